"""Copies in sorted lists. A model that sorts is probed, by projections, in
test_construction.py.
"""

import types

import jax
import numpy as np
import pytest

from lengthgen_jax.probes.activations import Observation
from lengthgen_jax.probes.registry import PROBES, measure
from lengthgen_jax.tasks import dataset
from lengthgen_jax.tasks.packing import map_examples
from lengthgen_jax.tasks.sorting import Sort

LISTS = ([3, 1, 7, 3, 9], [5, 5, 5, 5, 5], [9, 8, 2, 2, 1], [4, 9, 9, 9, 6])
N = len(LISTS[0])


def observed(part=slice(None)) -> Observation:
  """Of the lists (or a part of them): one head that sees all keys alike, and
  one that sees its own token."""
  task = Sort(alphabet=9)
  parsed = [(items, [N]) for items in LISTS]
  batch = dataset.parsed_batch(task, "decoder_only", parsed, N, N)
  batch = map_examples(lambda x: x[part], jax.device_get(batch))
  count, size = batch.inputs.shape
  even = np.tril(np.ones((size, size))) / np.arange(1, size + 1)[:, None]
  weights = np.broadcast_to([even, np.eye(size)], (count, 2, size, size))
  acts = {"decoder_0": {"self_attention": {"weights": weights}}}
  model = types.SimpleNamespace(
    experiment=types.SimpleNamespace(task=task, kind="decoder_only"),
    observe=lambda batch: (None, acts),
  )
  return Observation(model, batch, count, N)


def test_copies_are_those_in_the_prompt_and_in_the_outputs():
  in_prompt, in_outputs = [], []
  for items in LISTS:
    for t, item in enumerate(sorted(items)[:-1]):
      num_keys = N + t + 2  # the prompt, ⊥, outputs up to the row's own
      in_prompt.append(items.count(item) / num_keys)
      in_outputs.append(sorted(items)[: t + 1].count(item) / num_keys)
  probes = {name: PROBES[name] for name in ("copies_given", "copies_said")}
  # Batches add up.
  parts = observed(slice(0, 1)), observed(slice(1, 4))
  for observations in ([observed()], parts):
    means = measure(probes, observations)
    evenly, itself = means["copies_given"].values()
    assert evenly.value == pytest.approx(np.mean(in_prompt))
    assert itself.value == 0
    evenly, itself = means["copies_said"].values()
    assert evenly.value == pytest.approx(np.mean(in_outputs))
    assert itself.value == 1
    assert (itself.part, itself.layer, itself.head) == ("self", 0, 1)
