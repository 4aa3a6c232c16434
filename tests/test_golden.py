"""The program's numbers are those of the golden table (tests/golden.py)."""

import json
import math

import golden
import pytest

TABLE = json.loads(golden.TABLE.read_text())
ENTRIES = golden.entries()
RELATIVE, ABSOLUTE = 2e-5, 1e-5  # what processors may differ by


def differences(wanted, computed, where="") -> list[str]:
  """A line for each place at which two nested values are not the same."""
  if isinstance(wanted, dict) and isinstance(computed, dict):
    lines = [f"{where}/{key}: new" for key in computed if key not in wanted]
    lines += [f"{where}/{key}: gone" for key in wanted if key not in computed]
    pairs = [(key, wanted[key], computed.get(key)) for key in wanted]
    pairs = [pair for pair in pairs if pair[0] in computed]
  elif (
    isinstance(wanted, list)
    and isinstance(computed, list)
    and len(wanted) == len(computed)
  ):
    lines, pairs = [], zip(range(len(wanted)), wanted, computed, strict=True)
  else:
    same = wanted == computed
    if isinstance(wanted, float) and isinstance(computed, float):
      same = math.isclose(wanted, computed, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    line = f"{where}: {computed!r}, in the table {wanted!r}"
    return [] if same else [line]
  for key, *values in pairs:
    lines += differences(*values, f"{where}/{key}")
  return lines


def test_the_table_has_every_entry():
  assert list(TABLE) == list(ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_numbers_are_those_of_the_golden_table(name):
  computed = golden.as_json(ENTRIES[name]())
  lines = differences(TABLE[name], computed)
  assert not lines, "\n".join([name, *lines[:20]])
