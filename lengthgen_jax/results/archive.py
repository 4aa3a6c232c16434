"""The archive: result rows that are kept in the repository, a file per run.

A file has all that a stranger needs to make its rows again. Its first line is a
head, which says how the rows were made. Each further line holds the rows of a
stage, seed and metric: the fields that they share once, the others as a table.

`keep` and `read` write and read such files. `differences` compares the kept
rows of a run with those of making the run again.
"""

import pathlib
from collections.abc import Iterator

from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.results import records

METRICS = ("em", "edit", "frontier", "certified")
# The fields of a head, and what they say.
MADE = {
  "run": "name of the run",
  "command": "words after `lengthgen`, without the workdir",
  "config": "the whole config",
  "machine": "processor, cores and device",
  "date": "day on which it ended",
  "seconds": "that it took, None if nobody measured",
  "versions": "of lengthgen_jax and of what it runs on",
  "source": "hash of the program that trained it, None if unknown",
  "first_stage": "run, maybe of an earlier program, that lent it, else None",
}


def keep(path: pathlib.Path, rows: list[dict], head: dict) -> None:
  """Writes the rows of a run to a file of the archive.

  Args:
    path: the file.
    rows: rows of a results.jsonl and of a probes.jsonl; of the former only
      those of METRICS are written.
    head: the fields of MADE.

  Raises:
    UsageError: no row has exact match, or a text names an absolute path.
  """
  assert set(head) == set(MADE), set(head) ^ set(MADE)
  rows = [row for row in rows if row["metric"] in METRICS or is_probe(row)]
  check(
    records.of_metric(rows, "em"), f"{path}: there is no exact match to keep"
  )
  lines = [head]
  for group in _groups(rows):
    shared = _shared(group)
    names = [name for name in group[0] if name not in shared]
    table = [[row[name] for name in names] for row in group]
    lines.append({"shared": shared, "columns": names, "rows": table})
  for text in _texts(lines):
    check(not text.startswith("/"), f"{path}: {text} is no path of others")
  records.write(path, lines)


def is_probe(row: dict) -> bool:
  """Returns whether a row is of a probe, of what a model does inside."""
  return "part" in row


def probed(rows: list[dict]) -> bool:
  """Returns whether some of the rows are of probes."""
  return any(map(is_probe, rows))


def _groups(rows: list[dict]) -> list[list[dict]]:
  """Splits rows by stage, metric, seed and by which fields they have."""
  groups = {}
  for row in rows:
    key = row["stage"], row["metric"], row["seed"], tuple(sorted(row))
    groups.setdefault(key, []).append(row)
  return list(groups.values())


def _shared(group: list[dict]) -> dict:
  """Returns the fields that have the same value in all rows."""
  first_row = group[0]
  return {
    name: first_row[name]
    for name in first_row
    if all(row[name] == first_row[name] for row in group)
  }


def _texts(value: str | dict | list | tuple | float | None) -> Iterator[str]:
  """Yields all words in a nested structure; of `field=value` the value."""
  if isinstance(value, str):
    yield from (word.rpartition("=")[2] for word in value.split())
  elif isinstance(value, dict):
    yield from _texts(list(value.values()))
  elif isinstance(value, list | tuple):
    for item in value:
      yield from _texts(item)


def read(path: pathlib.Path) -> tuple[dict, list[dict]]:
  """Returns the head and the rows of a file of the archive.

  Raises:
    UsageError: the file is not of this version's format.
  """
  head, *groups = records.read(path) or [{}]
  missing = set(MADE) - set(head if isinstance(head, dict) else ())
  hint = "another version wrote it"
  check(
    not missing, f"{path}: its head lacks {', '.join(sorted(missing))}; {hint}"
  )
  rows = []
  for i, group in enumerate(groups, 2):
    try:
      shared, columns = group["shared"], group["columns"]
      group_rows = [
        shared | dict(zip(columns, values, strict=True))
        for values in group["rows"]
      ]
    except (KeyError, TypeError, ValueError) as error:
      raise UsageError(f"{path}: line {i} holds no rows; {hint}") from error
    for row in group_rows:
      flaw = records.flaw(row)
      check(not flaw, f"{path}: a row of line {i} {flaw}; {hint}")
    rows += group_rows
  return head, rows


def read_all(folder: str | pathlib.Path) -> dict[str, tuple[dict, list[dict]]]:
  """Returns {run: (head, rows)} of a folder; the rows name their run."""
  runs = {}
  for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
    head, rows = read(path)
    runs[head["run"]] = head, [row | {"run": head["run"]} for row in rows]
  return runs


# Exact match from which, and up to which, seeds agree whatever their range.
CERTAIN, NEVER = 0.99, 0.01


def differences(old: list[dict], new: list[dict], exact: bool) -> list[str]:
  """Returns what differs between kept rows and new rows of the same run.

  Args:
    old: the kept rows of all seeds.
    new: rows of the same run when it was made again.
    exact: whether every row must be the same (same machine and versions).
      Otherwise the exact match of a seed must lie within the range of the kept
      seeds, or both be at least 99 %, or both at most 1 %.

  Returns:
    A line of text for each difference.
  """
  return (_to_the_bit if exact else _in_range)(old, new)


def _to_the_bit(old: list[dict], new: list[dict]) -> list[str]:
  """Returns the differences where every row must have the same value and n."""
  new_rows, messages = {_place(row): row for row in new}, []
  for row in old:
    new_row = new_rows.get(_place(row))
    if row["metric"] not in METRICS:
      continue
    if new_row is None:
      messages.append(f"{_name(row)} is missing")
    elif (new_row["value"], new_row["n"]) != (row["value"], row["n"]):
      messages.append(
        f"{_name(row)}: {_says(row)} is kept, {_says(new_row)} now"
      )
  return messages


def _in_range(old: list[dict], new: list[dict]) -> list[str]:
  """Returns the differences where exact match must be in the seeds' range."""
  messages, ranges = [], {}
  new_rows = {_place(row): row for row in records.of_metric(new, "em")}
  for row in records.of_metric(old, "em"):
    ranges.setdefault(_place(row)[1:], []).append(row["value"])
  new_places = [place[1:] for place in new_rows]
  for place, values in ranges.items():
    place_text, lacking = _words(place), len(values) - new_places.count(place)
    if lacking == len(values):
      messages.append(f"{place_text} is missing")
    elif lacking > 0:
      messages.append(
        f"{place_text}: {lacking} of {len(values)} seeds are missing"
      )
  for place, row in new_rows.items():
    old_values = ranges.get(place[1:])
    if old_values and not agrees(
      row["value"], min(old_values), max(old_values)
    ):
      value, low, high = (
        100 * x for x in (row["value"], min(old_values), max(old_values))
      )
      gap = max(low - value, value - high)
      messages.append(
        f"{_name(row)}: {value:.1f} % is {gap:.1f} outside of the kept seeds'"
        f" {low:.1f} to {high:.1f} %"
      )
  return messages


def agrees(value: float, low: float, high: float) -> bool:
  """Returns whether a value agrees with seeds from `low` to `high`.

  It does within that range, and where both are CERTAIN or both NEVER right.
  """
  both_extreme = min(value, low) >= CERTAIN or max(value, high) <= NEVER
  return low <= value <= high or both_extreme


def _place(row: dict) -> tuple:
  """Returns what a row measures: its seed, stage, metric, test set, length."""
  fields = "stage", "metric", "test_set", "length"
  return row["seed"], *(row[name] for name in fields)


def _name(row: dict) -> str:
  """Returns the place of a row as text, the seed included."""
  seed, *place = _place(row)
  unit = "" if row["length"] is None else f" {row['unit']}"
  return f"seed {seed}, {_words(place)}{unit}"


def _words(place: tuple) -> str:
  """Returns a place without its seed as text."""
  stage, metric, test_set, length = place
  words = [stage, metric if metric != "em" else "", test_set, length]
  return ", ".join(str(word) for word in words if word not in ("", None))


def _says(row: dict) -> str:
  """Returns the result of a row as text."""
  if row.get("correct") is not None:
    return f"{row['correct']} of {row['n']}"
  return f"{row['value']} (n={row['n']})"
