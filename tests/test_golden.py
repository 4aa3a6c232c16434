"""The program's numbers are those of the golden table (tests/golden.py)."""

import json
import math

import golden
import jax
import pytest

TABLE = json.loads(golden.TABLE.read_text())
ENTRIES = golden.entries()
RELATIVE, ABSOLUTE = 2e-5, 1e-5  # what processors may differ by


def is_same(wanted, computed) -> bool:
  if isinstance(wanted, float) and isinstance(computed, float):
    return math.isclose(wanted, computed, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
  return wanted == computed


def leaves(value) -> dict:
  """{path: leaf} of nested values; an empty list or dict is a leaf."""
  is_leaf = lambda x: not isinstance(x, list | dict) or not x
  flat, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=is_leaf)
  return {jax.tree_util.keystr(path): leaf for path, leaf in flat}


@pytest.mark.parametrize("name", ENTRIES)
def test_numbers_are_those_of_the_golden_table(name):
  wanted, computed = map(leaves, (TABLE[name], golden.as_json(ENTRIES[name]())))
  pairs = {x: (wanted.get(x), computed.get(x)) for x in wanted | computed}
  lines = [
    f"{path}: {new!r}, in the table {old!r}"
    for path, (old, new) in pairs.items()
    if not is_same(old, new)
  ]
  assert not lines, "\n".join([name, *lines[:20]])
