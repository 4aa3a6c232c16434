"""This module reads and writes the archive of result rows in docs/results/rows.

Each file holds one run. Its first line, the header, has all that is needed to
reproduce the rows. Each further line holds rows that agree in stage, seed,
metric and the names of their fields: what they share, and a table of the rest.

Reproduced rows must have the archived values, to the last bit, and numbers of
samples if the machine and the versions are the same and no code has changed
since the header's commit, by `git diff --quiet COMMIT -- lengthgen_jax
configs`. Otherwise only exact match is compared, by `agrees`.
"""

import functools
import pathlib
import subprocess
import sys
from typing import Any, NamedTuple

from lengthgen_jax import origin
from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.results import records

# The metrics whose rows are archived, besides those of probes.
METRICS = ("em", "edit", "frontier", "certified")
# The fields of a header.
HEADER = (
  "machine",  # processor, cores and device
  "versions",  # of lengthgen_jax, of the libraries and of Python
  "commit",  # ends in -dirty if code was changed
  "run",  # the name of the run
  # The arguments of `lengthgen` in the run's first command, with the default
  # workdir.
  "command",
  "config",  # the whole config
  "date",  # the day on which the run ended
  "seconds",  # how long it took; None if that was not measured
  # The run that trained the first stage, if it was copied; None if this run
  # trained it.
  "first_stage",
)


class ArchivedRun(NamedTuple):
  """The header and the result rows of an archived run.

  Attributes:
    header: {field: value} of the fields of HEADER.
    rows: the rows, each with the run's name as field "run".
  """

  header: dict[str, Any]
  rows: list[dict]

  @property
  def probes(self) -> list[dict]:
    """Returns those of the rows that are of probes."""
    return [row for row in self.rows if is_probe(row)]


Archive = dict[str, ArchivedRun]  # by the run's name


@functools.cache
def device_kind() -> str:
  """Returns the name of this machine's first device, "" if JAX has none."""
  # JAX runs in another process, so that this one does not occupy the device.
  program = "import jax; print(jax.devices()[0].device_kind)"
  process = subprocess.run(
    [sys.executable, "-c", program], capture_output=True, encoding="utf-8"
  )
  return process.stdout.strip()


def current_origin() -> dict[str, Any]:
  """Returns the header's machine, versions and commit for a run made here."""
  return origin.describe(device_kind())


def differences_in_origin(header: dict[str, Any]) -> str:
  """Returns why rows made here may differ from archived ones with this header,
  as text; "" if they must be equal to the last bit."""
  now, reasons = current_origin(), []
  if header["machine"] != now["machine"]:
    reasons.append("another machine")
  old, new = header["versions"], now["versions"]
  names = [name for name in old | new if old.get(name) != new.get(name)]
  if names:
    reasons.append(f"another version of {', '.join(names)}")
  words = "diff", "--quiet", header["commit"], "--", *origin.CODE
  process = origin.git(*words)
  code = process.returncode if process else 128
  if code == 1:
    reasons.append(f"code changed since commit {header['commit'][:12]}")
  elif code:
    # The commit ends in -dirty, is "unknown" or of another history; or there is
    # no git here, or this is no clone.
    reasons.append(f"no commit {header['commit']} in this clone")
  return ", ".join(reasons)


# Files.


def write_run(
  path: pathlib.Path, rows: list[dict], header: dict[str, Any]
) -> None:
  """Writes the file of a run.

  Args:
    path: the path of the file, a .jsonl.
    rows: rows of a results.jsonl, of which those of METRICS are written, and of
      a probes.jsonl.
    header: the fields of HEADER.
  """
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


def is_probe(row: dict) -> bool:
  """Returns whether a row is of a probe, that is, from a probes.jsonl."""
  return "part" in row


def read_run(path: pathlib.Path) -> ArchivedRun:
  """Returns the archived run in a file.

  Each row has the run's name as its field "run", and the fields that old rows
  lack (records.completed).

  Raises:
    UsageError: the file is missing or not in the format of this version, or
      what `records.read` raises.
  """
  header, *groups = records.read(path) or [{}]
  missing = set(HEADER) - set(header if isinstance(header, dict) else ())
  hint = "another version wrote it"
  check(
    not missing,
    f"{path}: its header lacks {', '.join(sorted(missing))}; {hint}",
  )
  run_rows = []
  for number, group in enumerate(groups, start=2):
    try:
      rows = [
        group["shared"] | dict(zip(group["columns"], values, strict=True))
        for values in group["rows"]
      ]
    except (KeyError, TypeError, ValueError) as error:
      raise UsageError(
        f"{path}: line {number} holds no table of rows; {hint}"
      ) from error
    for row in map(records.completed, rows):
      flaw = records.flaw(row)
      check(not flaw, f"{path}: a row of line {number} {flaw}; {hint}")
      run_rows.append(row | {"run": header["run"]})
  return ArchivedRun(header, run_rows)


def read_archive(folder: pathlib.Path) -> Archive:
  """Returns the runs of all .jsonl files in a folder, {} if there is none.

  Raises:
    UsageError: as in `read_run`.
  """
  runs = map(read_run, sorted(folder.glob("*.jsonl")))
  return {run.header["run"]: run for run in runs}


def rows_of(archive: Archive, run: str) -> list[dict]:
  """Returns the rows of a run, none if it is not archived."""
  return archive[run].rows if run in archive else []


# Comparison.

# Exact match of at least ALWAYS counts as always right, and of at most NEVER as
# never.
ALWAYS, NEVER = 0.99, 0.01


def compare(old: list[dict], new: list[dict], exact: bool) -> list[str]:
  """Returns the differences between archived rows and reproduced ones.

  Rows of probes, and rows that are not archived, are not compared.

  Args:
    old: the archived rows of all seeds.
    new: the reproduced rows.
    exact: whether every row must have the same value and number of samples, and
      every certificate the same margin, rounding and checkers. If not, each
      exact match alone must agree with those of all archived seeds under the
      same conditions (`agrees`).

  Returns:
    A line of text for each difference.
  """
  if not exact:
    old, new = records.of_metric(old, "em"), records.of_metric(new, "em")
  # Finetuning certifies a seed several times, each time at another step.
  key = lambda row: (row["seed"], exact and row["step"], _condition(row))
  new_rows = {key(row): row for row in new}
  values, messages = {}, []  # the archived values of all seeds, by condition
  for row in old:
    values.setdefault(_condition(row), []).append(row["value"])
  for row in old:
    if row["metric"] not in METRICS:
      continue
    condition = _condition(row)
    new_row = new_rows.get(key(row))
    names = [str(x) for x in condition if x not in ("em", "", None)]
    text = ", ".join([f"seed {row['seed']}", *names])
    if new_row is None:
      messages.append(f"{text} is missing")
    elif exact:
      messages += [
        f"{text}: {name}={row[name]} in the archive, {new_row[name]} now"
        for name in ("value", "n", "margin", "rounding", "checkers")
        if row.get(name) != new_row.get(name)
      ]
    else:
      low, high = min(values[condition]), max(values[condition])
      if not agrees(new_row["value"], low, high):
        messages.append(
          f"{text}: {100 * new_row['value']:.1f} % is outside of the archived"
          f" seeds' {100 * low:.1f} to {100 * high:.1f} %"
        )
  return messages


def _condition(row: dict) -> tuple:
  """Returns the stage, metric, test set and length of a row."""
  return tuple(row[name] for name in ("stage", "metric", "test_set", "length"))


def agrees(value: float, low: float, high: float) -> bool:
  """Returns whether an exact match agrees with archived seeds, of which the
  worst has `low` and the best has `high`.

  It does within that range, if it and `low` are at least ALWAYS, or if it and
  `high` are at most NEVER.
  """
  both_extreme = min(value, low) >= ALWAYS or max(value, high) <= NEVER
  return low <= value <= high or both_extreme
