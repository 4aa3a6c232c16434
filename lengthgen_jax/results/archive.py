"""Rows of a run that are kept in the repository: compact, with all that a
stranger needs to make them again.

A file has a head, which says how the rows were made, and a line for all rows of
a stage, seed and metric: what they share, and the rest as a table.

Whether a run that was made again says what its kept rows say.
"""

import pathlib

from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.results import records, schema

METRICS = ("em", "edit", "frontier", "certified")
# What a head must say.
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


def keep(path, rows: list[dict], made: dict) -> None:
  """Writes a run's rows.

  Args:
    path: of the file.
    rows: of a results.jsonl, those of METRICS, and of a probes.jsonl.
    made: what MADE asks for.

  Raises:
    UsageError: there is no exact match, or something names an absolute path.
  """
  assert set(made) == set(MADE), set(made) ^ set(MADE)
  rows = [row for row in rows if row["metric"] in METRICS or is_probe(row)]
  check(
    schema.of_metric(rows, "em"), f"{path}: there is no exact match to keep"
  )
  lines = [made]
  for group in _groups(rows):
    alike = _shared(group)
    names = [name for name in group[0] if name not in alike]
    table = [[row[name] for name in names] for row in group]
    lines.append({"shared": alike, "columns": names, "rows": table})
  for text in _texts(lines):
    check(not text.startswith("/"), f"{path}: {text} is no path of others")
  records.write(path, lines)


def is_probe(row: dict) -> bool:
  """Whether a row says what a model does inside."""
  return "part" in row


def probed(rows: list[dict]) -> bool:
  return any(map(is_probe, rows))


def _groups(rows: list[dict]) -> list[list[dict]]:
  """Rows with the same fields that share most of them."""
  found = {}
  for row in rows:
    key = row["stage"], row["metric"], row["seed"], tuple(sorted(row))
    found.setdefault(key, []).append(row)
  return list(found.values())


def _shared(group: list[dict]) -> dict:
  first = group[0]
  return {
    name: first[name]
    for name in first
    if all(row[name] == first[name] for row in group)
  }


def _texts(value):
  """All words in a structure, values of `field=value` apart."""
  if isinstance(value, str):
    yield from (word.rpartition("=")[2] for word in value.split())
  elif isinstance(value, dict):
    yield from _texts(list(value.values()))
  elif isinstance(value, list | tuple):
    for one in value:
      yield from _texts(one)


def read(path) -> tuple[dict, list[dict]]:
  """(what MADE asks for, rows) of a file.

  Raises:
    UsageError: it is none of this version.
  """
  head, *groups = records.read(path) or [{}]
  lacking = set(MADE) - set(head if isinstance(head, dict) else ())
  other = "another version wrote it"
  check(
    not lacking, f"{path}: its head lacks {', '.join(sorted(lacking))}; {other}"
  )
  rows = []
  for i, group in enumerate(groups, 2):
    try:
      shared, columns = group["shared"], group["columns"]
      own = [
        shared | dict(zip(columns, values, strict=True))
        for values in group["rows"]
      ]
    except (KeyError, TypeError, ValueError) as error:
      raise UsageError(f"{path}: line {i} holds no rows; {other}") from error
    for row in own:
      flaw = schema.flaw(row)
      check(not flaw, f"{path}: a row of line {i} {flaw}; {other}")
    rows += own
  return head, rows


def read_all(folder) -> dict:
  """{run: (made, rows)} of a folder; rows name their run."""
  found = {}
  for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
    made, rows = read(path)
    found[made["run"]] = made, [row | {"run": made["run"]} for row in rows]
  return found


CERTAIN, NEVER = 0.99, 0.01


def differences(old: list[dict], new: list[dict], exact: bool) -> list[str]:
  """What differs between a run's kept rows and those of making it again, a
  line each.

  Args:
    old: kept rows of all seeds.
    new: those of the same run, made again.
    exact: whether every row must be the same (same machine and versions).
      Otherwise a seed's exact match must lie within the kept seeds' range, or
      both at 99 % or more, or both at 1 % or less.
  """
  return (_to_the_bit if exact else _in_range)(old, new)


def _to_the_bit(old: list[dict], new: list[dict]) -> list[str]:
  there, said = {_place(row): row for row in new}, []
  for row in old:
    again = there.get(_place(row))
    if row["metric"] not in METRICS:
      continue
    if again is None:
      said.append(f"{_name(row)} is missing")
    elif (again["value"], again["n"]) != (row["value"], row["n"]):
      said.append(f"{_name(row)}: {_says(row)} is kept, {_says(again)} now")
  return said


def _in_range(old: list[dict], new: list[dict]) -> list[str]:
  said, ranges = [], {}
  there = {_place(row): row for row in schema.of_metric(new, "em")}
  for row in schema.of_metric(old, "em"):
    ranges.setdefault(_place(row)[1:], []).append(row["value"])
  found = [place[1:] for place in there]
  for place, values in ranges.items():
    where, lacks = _words(place), len(values) - found.count(place)
    if lacks == len(values):
      said.append(f"{where} is missing")
    elif lacks > 0:
      said.append(f"{where}: {lacks} of {len(values)} seeds are missing")
  for place, row in there.items():
    own = ranges.get(place[1:])
    if own and not agrees(row["value"], min(own), max(own)):
      value, low, high = (100 * x for x in (row["value"], min(own), max(own)))
      off = max(low - value, value - high)
      said.append(
        f"{_name(row)}: {value:.1f} % is {off:.1f} outside of the kept seeds'"
        f" {low:.1f} to {high:.1f} %"
      )
  return said


def agrees(value: float, low: float, high: float) -> bool:
  """Whether a value is that of seeds from `low` to `high`, see above."""
  alike = min(value, low) >= CERTAIN or max(value, high) <= NEVER
  return low <= value <= high or alike


def _place(row: dict) -> tuple:
  """What a row is about, its seed first."""
  where = "stage", "metric", "test_set", "length"
  return row["seed"], *(row[name] for name in where)


def _name(row: dict) -> str:
  seed, *place = _place(row)
  unit = "" if row["length"] is None else f" {row['unit']}"
  return f"seed {seed}, {_words(place)}{unit}"


def _words(place) -> str:
  stage, metric, test_set, length = place
  said = [stage, metric if metric != "em" else "", test_set, length]
  return ", ".join(str(word) for word in said if word not in ("", None))


def _says(row: dict) -> str:
  """A row's result."""
  if row.get("correct") is not None:
    return f"{row['correct']} of {row['n']}"
  return f"{row['value']} (n={row['n']})"
