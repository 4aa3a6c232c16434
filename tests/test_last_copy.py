"""The probe of copies in sorted lists, against counts in plain Python."""

import dataclasses
import importlib
import sys

import numpy as np
import pytest
from command import REPOSITORY
from test_sorting_probes import LISTS, N, observed

sys.path.insert(0, str(REPOSITORY / "launch"))
last_copy = importlib.import_module("last_copy")


def rows_and_answers(wrong=lambda j, c: False):
  """The Copies of LISTS, and for each of their rows (j, c, number of keys): its
  input is copy j of c. Logits are wrong in the rows where wrong(j, c) holds."""
  observation = observed()
  targets = np.asarray(observation.batch.target)
  logits = np.eye(40)[targets]
  places = []
  for index, items in enumerate(LISTS):
    ordered = sorted(items)
    for t, item in enumerate(ordered[:-1]):
      j, c = ordered[: t + 1].count(item), items.count(item)
      if item != max(items):
        places.append((j, c, N + t + 2))
        if wrong(j, c):
          logits[index, N + t + 1] = np.eye(40)[39]
  acts = observation.model.observe(None)[1]
  observation.model.observe = lambda batch: (logits, acts)
  return last_copy.observe([dataclasses.replace(observation)]), places


def test_attention_on_copies_is_counted_by_copies_left():
  rows, places = rows_and_answers()
  j, c, keys = np.array(places).T
  np.testing.assert_array_equal(rows.copies, c)
  np.testing.assert_array_equal(rows.left, c - j)
  even, itself = 0, 1  # heads: equal weights on all keys; on the own key alone
  np.testing.assert_allclose(rows.prompt_attention[0, even], c / keys)
  np.testing.assert_allclose(rows.output_attention[0, even], j / keys)
  np.testing.assert_array_equal(rows.others[0, even], keys - c - j)
  np.testing.assert_array_equal(rows.others[0, itself], 0)
  part = last_copy.output_part(rows)[0, even]
  np.testing.assert_allclose(part, j / (j + c))


@pytest.mark.parametrize("left", (0, 1))
def test_errors_are_counted_by_run(left):
  rows, places = rows_and_answers(lambda j, c: c == 2 and c - j == left)
  runs = [c for j, c, _ in places if j == c]
  expected = {c: (runs.count(c) * (c == 2), runs.count(c)) for c in set(runs)}
  assert last_copy.errors_by_copies(rows) == expected
