"""Noise of training: drawn by number, so the same in any part of a batch."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained

from lengthgen_jax import sections
from lengthgen_jax.config import build
from lengthgen_jax.rng import Noise
from lengthgen_jax.tasks.dataset import Part
from lengthgen_jax.training import loop

KEY = jax.random.key(0)


SHAPE = (8, 64)


def mask(key, rate, first=0, count=512):
  numbers = jnp.arange(first, first + count)
  return np.asarray(Noise(key, numbers).dropout_mask(SHAPE, rate))


@pytest.mark.parametrize("rate", (0.02, 0.3))
def test_dropout_keeps_its_share_wherever_one_looks(rate):
  """Of all, of each example, of each place, and each bit of a number."""
  is_open = mask(KEY, rate)
  spread = lambda n: 5 * np.sqrt(rate * (1 - rate) / n)
  for axes in ((0, 1, 2), (1, 2), (0,), (0, 1), (0, 2)):
    means = is_open.mean(axes)
    difference = np.abs(means - (1 - rate)).max()
    assert difference < 1.1 * spread(is_open.size / means.size), axes
  flat = is_open.reshape(-1)
  for bit in range(18):
    is_set = (np.arange(flat.size) >> bit) & 1 == 1
    difference = abs(flat[is_set].mean() - flat[~is_set].mean())
    assert difference < spread(flat.size / 4)


def test_what_one_draw_keeps_says_nothing_of_another():
  """Neighbors in place, in number, in key; other names of the same key."""
  noise = Noise(KEY, jnp.arange(512))
  usual = mask(KEY, 0.5)
  draw = lambda noise: np.asarray(noise.dropout_mask(SHAPE, 0.5))
  masks = {
    "next place": np.roll(usual, 1, 2),
    "next row": np.roll(usual, 1, 1),
    "next example": np.roll(usual, 1, 0),
    "next key": mask(jax.random.key(1), 0.5),
    "next step": mask(jax.random.fold_in(KEY, 1), 0.5),
    "a name": draw(noise.fold_in("a")),
    "another name": draw(noise.fold_in("b")),
  }
  pairs = [(usual, name) for name in masks]
  for first, name in [*pairs, (masks["a name"], "another name")]:
    agreement = (first == masks[name]).mean()
    assert abs(agreement - 0.5) < 5 * 0.5 / np.sqrt(usual.size), name


# Microbatches.

ABACUS = {"positions.kind": "abacus", "model.num_encoder_layers": 0}
FAMILIES = {
  # A batch axis of coordinates for each example; one for all.
  "sort": ("decoder_only", {"temperature.kind": "log_items"}),
  "addition": ("encoder_decoder", ABACUS),
}


@pytest.mark.parametrize("task", FAMILIES)
def test_a_step_is_the_same_in_microbatches(task, monkeypatch):
  """Loss and gradients, with every kind of noise, of several seeds at once."""
  fields = {"model.dropout_rate": 0.3, "temperature.stretch": 3.0}
  fields |= {"model.norm": "none", "train.batch_size": 12}
  kind, family_fields = FAMILIES[task]
  config = untrained.config(task, kind, family_fields | fields)
  train = sections.Train(**config.train)
  spec = loop.TrainSpec(build.build(config), train)
  params = untrained.params(spec.experiment)

  def loss_and_grads(axis, count):
    def of_seed(spec, seed):
      batch, noise = loop.draw_batch(spec, task, Part(0, 12), seed, 0)
      scaled = jax.tree.map(lambda x: x / (1 + seed), params)
      return loop.loss_and_grads(scaled, spec, {}, task, batch, noise)

    monkeypatch.setattr(loop, "num_microbatches", lambda *_: count)
    train = dataclasses.replace(spec.train, seed_axis=axis)
    of_axis = dataclasses.replace(spec, train=train)
    return loop.over_seeds(of_seed, of_axis)(jnp.arange(2))

  whole = loss_and_grads("loop", 1)
  parts = loss_and_grads("vmap" if task == "sort" else "loop", 4)
  compare = partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-4)
  jax.tree.map(compare, parts, whole)
  assert max(np.abs(x).max() for x in jax.tree.leaves(whole[1])) > 0.1
