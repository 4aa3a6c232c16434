"""JSON lines: metrics while training, results of evaluation."""

import json
import os
import pathlib


def read(path) -> list[dict]:
  """Rows of a JSON-lines file; a torn last line is left out."""
  path = pathlib.Path(path)
  rows = []
  if not path.exists():
    return rows
  for line in path.read_text().splitlines():
    try:
      rows.append(json.loads(line))
    except json.JSONDecodeError:
      break
  return rows


def write(path, rows: list[dict]) -> None:
  """Writes rows whole or not at all."""
  write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def write_text(path, text: str) -> None:
  """Replaces a file in one move."""
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(path.name + ".new")
  temporary.write_text(text)
  os.replace(temporary, path)


def append(path, rows: list[dict]) -> None:
  with open(path, "a") as file:
    file.write("".join(json.dumps(row) + "\n" for row in rows))


def drop_after(path, step: int) -> None:
  """Removes rows beyond a step, so that a resumed run does not repeat them."""
  if pathlib.Path(path).exists():
    write(path, [row for row in read(path) if row["step"] <= step])


# What a result row measured (values beside it: n, correct, value,
# lower_bound). Two rows with the same key are the same measurement.
KEY = (
  "task",
  "method",
  "stage",
  "family",
  "test_set",
  "length",
  "bits",
  "metric",
  "position",
  "width",
  "slack",
  "train_length",
  "train_data",
  "seed",
  "eval_seed",
  "step",
  "checkpoint",
  "stopped_at",
  "leak",
  "config_hash",
  "version",
)


def merge(path, rows: list[dict]) -> None:
  """Adds rows to a results file; rows with the same key are replaced."""
  key = lambda row: tuple(row.get(name, 0) for name in KEY)
  fresh = {key(row) for row in rows}
  kept = [row for row in read(path) if key(row) not in fresh]
  write(path, kept + rows)
