"""The fields of result rows, and the files of JSON lines that hold them.

A row is a dict with the fields of `Row`. Of several hosts the first one alone
writes files.
"""

import json
import os
import pathlib
from typing import NotRequired, TypedDict

from lengthgen_jax import hosts
from lengthgen_jax.errors import check, file_errors


class Conditions(TypedDict):
  """The fields that say what was measured, and on what.

  Rows that differ in one are not pooled, unless a table or figure varies it or
  what follows from it (`summary.cells`). Names of curves add conditions in this
  order until the names differ.
  """

  task: str
  method: str
  stage: str  # "train", or the stage of a pipeline
  family: str  # of the model: "encoder_decoder" or "decoder_only"
  test_set: str | None
  width: str  # data.width
  slack: int | None  # None where numbers are not padded to a natural width
  train_length: int  # the longest in training
  train_data: str  # data.size, if it is set, or the kind of data
  leak: bool  # bias.allow_leak: rows may see later outputs
  normalizer: str  # of attention, with its α
  segments: bool  # whether inputs have a segment embedding
  prune: bool  # prune.enabled: lines that nothing needs are closed
  run: NotRequired[str]  # the workdir, where several files are read together
  checkpoint: str  # eval.checkpoint: "last", "best" or a step
  step: int  # of the checkpoint
  eval_seed: int
  length: int | None  # of the inputs; None for a frontier or a certificate
  bits: int | None  # the same length in bits, for parity
  unit: str  # what lengths count
  metric: str
  # Of probes: see probes.activations.Mean.
  position: NotRequired[int | None]
  part: NotRequired[str | None]
  layer: NotRequired[int | None]
  head: NotRequired[int | None]
  line: NotRequired[str | None]
  config_hash: str
  version: str
  bound: NotRequired[int]  # of a frontier: the longest length of the search


class Row(Conditions):
  """One measurement of one seed: a line of results.jsonl or probes.jsonl."""

  seed: int
  stopped_at: int  # the step at which training ended early, -1 if it did not
  seeds_asked: int  # how many seeds the config has
  value: float | None  # None where there is no result
  lower_bound: float | None  # one-sided, 95 %
  n: int | None
  correct: NotRequired[int | None]
  by_position: NotRequired[list[float]]  # a rate for each output
  stress: NotRequired[bool]  # the test set is one that eval.stress asked for
  tried: NotRequired[list]  # of a frontier: [length, correct, n] of each length
  margin: NotRequired[float | None]  # of a certificate: the smallest
  rounding: NotRequired[float | None]  # of a certificate: the largest bound
  reason: NotRequired[str]  # of a certificate


CONDITIONS = tuple(Conditions.__annotations__)
# Rows that agree in these fields are one measurement, of which the last counts.
KEY = (
  *(name for name in CONDITIONS if name not in ("run", "bound")),
  "seed",
  "stopped_at",
)
# The fields that say which trained parameters a row is about.
PARAMETERS = ("run", "config_hash", "stage", "checkpoint", "step", "seed")


def key(row: dict) -> tuple:
  return tuple(row.get(name) for name in KEY)


def parameters(row: dict) -> tuple:
  return tuple(row.get(name) for name in PARAMETERS)


def checked(row: dict, place: str) -> dict:
  """Returns a row of a file; UsageError, which begins with the row's place,
  unless it has the fields of a row."""
  missing = sorted(Row.__required_keys__ - set(row))
  unknown = sorted(set(row) - set(Row.__annotations__))
  check(
    not (missing or unknown),
    f"{place} {'lacks' if missing else 'has unknown'}"
    f" {', '.join(missing or unknown)}; another version wrote it: move the file"
    " away and make its rows again",
  )
  return row


def of_metric(rows: list[dict], metric: str) -> list[dict]:
  """Returns the rows of a metric that have a value."""
  return [
    row for row in rows if row["metric"] == metric and row["value"] is not None
  ]


def read(path: str | pathlib.Path) -> list[dict]:
  """Returns the objects of a JSON-lines file, but for a last line that was cut
  off; [] if there is no file. UsageError names another damaged line."""
  path, rows = pathlib.Path(path), []
  with file_errors(f"{path}: cannot be read"):
    lines = (
      path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    )
  for i, line in enumerate(lines, 1):
    try:
      rows.append({} | json.loads(line))
    except (json.JSONDecodeError, TypeError):
      message = f"{path}: line {i} is damaged: repair it or remove it"
      check(i == len(lines), message)
  return rows


def read_results(path: str | pathlib.Path) -> list[dict]:
  """Returns the rows of a results.jsonl or probes.jsonl; UsageError names a
  line that is no row of this version."""
  return [
    checked(row, f"{path}: line {i}") for i, row in enumerate(read(path), 1)
  ]


def write(path: str | pathlib.Path, rows: list[dict]) -> None:
  """Writes objects as a JSON-lines file, all of it or nothing."""
  write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def write_text(path: str | pathlib.Path, text: str) -> None:
  """Writes a text file, all of it or nothing; missing folders are made."""
  if not hosts.is_primary():
    return
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(path.name + ".new")
  temporary.write_text(text, encoding="utf-8")
  os.replace(temporary, path)


def append(path: str | pathlib.Path, rows: list[dict]) -> None:
  """Adds objects at the end of a JSON-lines file, which may be missing; its
  last line is whole, as `drop_after` leaves it."""
  if hosts.is_primary():
    with open(path, "a", encoding="utf-8") as file:
      file.write("".join(json.dumps(row) + "\n" for row in rows))


def drop_after(path: str | pathlib.Path, steps: dict[int, int]) -> None:
  """Removes from a log of training the rows that a resumed run will write
  again, those of each seed after the step of its checkpoint, and a last line
  that was cut off."""
  if pathlib.Path(path).exists():
    write(
      path, [row for row in read(path) if row["step"] <= steps[row["seed"]]]
    )


def merge(
  path: str | pathlib.Path, rows: list[dict], keep_larger: bool = False
) -> list[dict]:
  """Adds rows to a results.jsonl or probes.jsonl, and returns for each of them
  the row that the file has now.

  They replace the rows with the same key; with `keep_larger`, those of more
  samples (and the same bound) stay instead. A certificate also replaces earlier
  ones of the same parameters, of whatever version.
  """
  new_rows, old_rows = {key(row): row for row in rows}, read_results(path)
  for row in old_rows if keep_larger else []:
    new_row = new_rows.get(key(row))
    if (
      new_row
      and (row["n"] or 0) > (new_row["n"] or 0)
      and row.get("bound") == new_row.get("bound")
    ):
      new_rows[key(row)] = row
  certified = {parameters(row) for row in rows if row["metric"] == "certified"}
  remaining = [
    row
    for row in old_rows
    if key(row) not in new_rows
    and not (row["metric"] == "certified" and parameters(row) in certified)
  ]
  write(path, remaining + list(new_rows.values()))
  return [new_rows[key(row)] for row in rows]
