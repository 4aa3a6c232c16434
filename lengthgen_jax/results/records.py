"""Files of JSON lines: metrics of training and results of evaluation.

Of several hosts the first one alone writes.
"""

import json
import os
import pathlib

from lengthgen_jax import hosts
from lengthgen_jax.errors import check, file_errors
from lengthgen_jax.results import schema


def read(path: str | pathlib.Path) -> list[dict]:
  """Returns the rows of a JSON-lines file, none if there is no file.

  A last line that was cut off is left out.

  Raises:
    UsageError: another line is no JSON, or the file cannot be read.
  """
  path, rows = pathlib.Path(path), []
  with file_errors(f"{path}: cannot be read"):
    lines = path.read_text().splitlines() if path.exists() else []
  for i, line in enumerate(lines, 1):
    try:
      rows.append(json.loads(line))
    except json.JSONDecodeError:
      check(i == len(lines), f"{path}: line {i} is damaged; mend or remove it")
  return rows


def read_results(path: str | pathlib.Path) -> list[dict]:
  """Returns the rows of a results.jsonl, none if there is no file.

  Raises:
    UsageError: a row is not of this version's schema.
  """
  rows = read(path)
  for i, row in enumerate(rows):
    flaw = schema.flaw(row)
    check(
      not flaw,
      f"{path}: line {i + 1} {flaw}; another version wrote it: move the file"
      " away and evaluate again",
    )
  return rows


def write(path: str | pathlib.Path, rows: list[dict]) -> None:
  """Writes a file of rows, all of them or none."""
  write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def write_text(path: str | pathlib.Path, text: str) -> None:
  """Writes a text file, atomically: a file at that path is replaced at once."""
  if not hosts.is_primary():
    return
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(path.name + ".new")
  temporary.write_text(text)
  os.replace(temporary, path)


def append(path: str | pathlib.Path, rows: list[dict]) -> None:
  """Adds rows at the end of a JSON-lines file."""
  if not hosts.is_primary():
    return
  path = pathlib.Path(path)
  with open(path, "ab+") as file:
    file.seek(max(file.tell() - 1, 0))
    torn = file.read() not in (b"", b"\n")
  if torn:  # an earlier call was cut off within a line
    write(path, read(path))
  with open(path, "a") as file:
    file.write("".join(json.dumps(row) + "\n" for row in rows))


def drop_after(path: str | pathlib.Path, steps: dict[int, int]) -> None:
  """Removes the rows that a resumed run will write again.

  Args:
    path: a JSON-lines file; there may be none.
    steps: the step of each seed's checkpoint; its later rows are removed.
  """
  if pathlib.Path(path).exists():
    remaining = [row for row in read(path) if row["step"] <= steps[row["seed"]]]
    write(path, remaining)


def merge(path: str | pathlib.Path, rows: list[dict]) -> None:
  """Adds rows to a results.jsonl.

  They replace the rows with the same key and every earlier certificate of the
  same parameters, of whatever version.

  Raises:
    ValueError: a new row is not of the schema.
    UsageError: a row in the file is not.
  """
  for row in rows:
    if flaw := schema.flaw(row):
      raise ValueError(f"a result row {flaw}: {row}")
  new_rows = {schema.key(row): row for row in rows}
  certified = {
    schema.parameters(x) for x in schema.of_metric(rows, "certified")
  }
  remaining = [
    row
    for row in read_results(path)
    if schema.key(row) not in new_rows
    and not (
      row["metric"] == "certified" and schema.parameters(row) in certified
    )
  ]
  write(path, remaining + list(new_rows.values()))
