"""JSON lines: metrics while training, results of evaluation; of several hosts
the first one writes."""

import json
import os
import pathlib

from lengthgen_jax import hosts
from lengthgen_jax.errors import check, reading
from lengthgen_jax.results import schema


def read(path) -> list[dict]:
  """Rows of a JSON-lines file; a torn last line is left out.

  Raises:
    UsageError: another line is none, or the file cannot be read.
  """
  path, rows = pathlib.Path(path), []
  with reading(f"{path}: cannot be read"):
    lines = path.read_text().splitlines() if path.exists() else []
  for i, line in enumerate(lines, 1):
    try:
      rows.append(json.loads(line))
    except json.JSONDecodeError:
      check(i == len(lines), f"{path}: line {i} is damaged; mend or remove it")
  return rows


def read_results(path) -> list[dict]:
  """Rows of a results.jsonl, none if there is no file.

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


def write(path, rows: list[dict]) -> None:
  """Writes rows whole or not at all."""
  write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def write_text(path, text: str) -> None:
  """Replaces a file in one move."""
  if not hosts.first():
    return
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(path.name + ".new")
  temporary.write_text(text)
  os.replace(temporary, path)


def append(path, rows: list[dict]) -> None:
  """Adds rows at the end of a log."""
  if not hosts.first():
    return
  path = pathlib.Path(path)
  with open(path, "ab+") as file:
    file.seek(max(file.tell() - 1, 0))
    torn = file.read() not in (b"", b"\n")
  if torn:  # a call was cut off in a line
    write(path, read(path))
  with open(path, "a") as file:
    file.write("".join(json.dumps(row) + "\n" for row in rows))


def drop_after(path, steps: dict) -> None:
  """Removes rows beyond the step {seed: step} of their seed, so that a resumed
  run does not repeat them."""
  if pathlib.Path(path).exists():
    kept = [row for row in read(path) if row["step"] <= steps[row["seed"]]]
    write(path, kept)


def merge(path, rows: list[dict]) -> None:
  """Adds rows to a results.jsonl; rows with the same key are replaced, and so
  is every earlier certificate of the same parameters, of whatever version.

  Raises:
    ValueError: a new row is not of the schema.
    UsageError: a row in the file is not.
  """
  for row in rows:
    if flaw := schema.flaw(row):
      raise ValueError(f"a result row {flaw}: {row}")
  fresh = {schema.key(row): row for row in rows}
  certified = {
    schema.parameters(x) for x in schema.of_metric(rows, "certified")
  }
  kept = [
    row
    for row in read_results(path)
    if schema.key(row) not in fresh
    and not (
      row["metric"] == "certified" and schema.parameters(row) in certified
    )
  ]
  write(path, kept + list(fresh.values()))
