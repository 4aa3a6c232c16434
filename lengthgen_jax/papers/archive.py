"""The archive of result rows in docs/results/rows.

Each file holds one run. Its first line, the header, has all that is needed to
reproduce the rows. Each further line holds rows that agree in stage, seed,
metric and the names of their fields: what they share, and a table of the rest.
"""

import pathlib
from typing import Any, NamedTuple

from lengthgen_jax.errors import UsageError
from lengthgen_jax.results import records

# The metrics whose rows are archived, besides those of probes.
METRICS = ("em", "edit", "frontier", "certified")


class ArchivedRun(NamedTuple):
  """The header and the rows of an archived run, each with the run's name as
  field "run".

  The header has `machine` (processor, cores and device), `versions` (of
  lengthgen_jax, of the libraries and of Python), `commit` (ends in -dirty if
  code was changed), `run` (its name), `command` (the arguments of `lengthgen`
  in its first command), `config` (all of it), `date` (the day on which it
  ended) and `seconds` (how long it took; None if that was not measured).
  """

  header: dict[str, Any]
  rows: list[dict]


Archive = dict[str, ArchivedRun]  # by the run's name


def is_probe(row: dict) -> bool:
  """Returns whether a row is from a probes.jsonl."""
  return "part" in row


def write_run(
  path: pathlib.Path, rows: list[dict], header: dict[str, Any]
) -> None:
  """Writes the file of a run: its rows of METRICS, and those of probes."""
  groups = {}
  for row in rows:
    if row["metric"] in METRICS or is_probe(row):
      key = row["stage"], row["metric"], row["seed"], tuple(sorted(row))
      groups.setdefault(key, []).append(row)
  lines = [header]
  for group in groups.values():
    shared = {
      name: value
      for name, value in group[0].items()
      if all(row[name] == value for row in group)
    }
    names = [name for name in group[0] if name not in shared]
    table = [[row[name] for name in names] for row in group]
    lines.append({"shared": shared, "columns": names, "rows": table})
  records.write(path, lines)


def read_run(path: pathlib.Path) -> ArchivedRun:
  """Returns the run in a file; UsageError if this version cannot read it."""
  lines = records.read(path)
  try:
    header, *groups = lines
    name = header["run"]
    rows = [
      group["shared"] | dict(zip(group["columns"], values, strict=True))
      for group in groups
      for values in group["rows"]
    ]
  except (KeyError, TypeError, ValueError) as error:
    raise UsageError(f"{path}: another version wrote it") from error
  rows = [
    records.checked(row, f"{path}: a row") | {"run": name} for row in rows
  ]
  return ArchivedRun(header, rows)


def read_archive(folder: pathlib.Path) -> Archive:
  """Returns the runs of all .jsonl files in a folder, {} if there is none."""
  runs = map(read_run, sorted(folder.glob("*.jsonl")))
  return {run.header["run"]: run for run in runs}
