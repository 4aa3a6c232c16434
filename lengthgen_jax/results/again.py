"""Whether a run that was made again says what its kept rows say."""

from lengthgen_jax.results import kept, schema

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
    if row["metric"] not in kept.METRICS:
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
