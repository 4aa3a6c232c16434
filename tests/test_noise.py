"""Noise of training: drawn by number, so the same in any part of a batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained

from lengthgen_jax.config import build
from lengthgen_jax.rng import Noise
from lengthgen_jax.tasks import packing
from lengthgen_jax.tasks.mixing import Part
from lengthgen_jax.training import optimizer, train_step
from lengthgen_jax.training.train_step import over_seeds

KEY = jax.random.key(0)


def kept(key, rate, first=0, count=512, shape=(8, 64)):
  numbers = jnp.arange(first, first + count)
  return np.asarray(Noise(key, numbers).dropout_mask(shape, rate))


@pytest.mark.parametrize("rate", (0.02, 0.3, 0.9))
def test_dropout_keeps_its_share_wherever_one_looks(rate):
  """Of all, of each example, of each place, and each bit of a number."""
  found = kept(KEY, rate)
  spread = lambda n: 5 * np.sqrt(rate * (1 - rate) / n)
  assert abs(found.mean() - (1 - rate)) < spread(found.size)
  for axes in ((1, 2), (0,), (0, 1), (0, 2)):
    part = found.mean(axes)
    apart = np.abs(part - (1 - rate)).max()
    assert apart < 1.1 * spread(found.size / part.size), axes
  flat = found.reshape(-1)
  for bit in range(18):
    set_ = (np.arange(flat.size) >> bit) & 1 == 1
    assert abs(flat[set_].mean() - flat[~set_].mean()) < spread(flat.size / 4)


def test_what_one_draw_keeps_says_nothing_of_another():
  """Neighbors in place, in number, in key; other names of the same key."""
  noise = Noise(KEY, jnp.arange(512))
  own = kept(KEY, 0.5)
  others = {
    "next place": np.roll(own, 1, 2),
    "next row": np.roll(own, 1, 1),
    "next example": np.roll(own, 1, 0),
    "eight examples on": np.roll(own, 8, 0),
    "next key": kept(jax.random.key(1), 0.5),
    "next step": kept(jax.random.fold_in(KEY, 1), 0.5),
    "a name": np.asarray(noise.fold_in("a").dropout_mask((8, 64), 0.5)),
    "another name": np.asarray(noise.fold_in("b").dropout_mask((8, 64), 0.5)),
  }
  names = list(others)
  for name in names:
    agree = (own == others[name]).mean()
    assert abs(agree - 0.5) < 5 * 0.5 / np.sqrt(own.size), name
  agree = (others["a name"] == others["another name"]).mean()
  assert abs(agree - 0.5) < 5 * 0.5 / np.sqrt(own.size)


def test_an_example_draws_the_same_alone_and_among_others():
  """In a part of a batch, and of one seed among several in one program."""
  own = kept(KEY, 0.3)
  assert np.array_equal(kept(KEY, 0.3, 37, 5), own[37:42])
  noise = Noise(KEY, jnp.arange(512))
  draw = lambda key: jax.random.normal(key, (2,))
  part = noise.take(lambda x: x[7::100]).draw(draw)
  np.testing.assert_array_equal(part, noise.draw(draw)[7::100])
  keys = jax.random.split(KEY, 3)
  one = lambda key: Noise(key, jnp.arange(512)).dropout_mask((8, 64), 0.3)
  for axis in ("vmap", "loop"):
    many = np.asarray(over_seeds(one, axis)(keys))
    for key, found in zip(keys, many, strict=True):
      assert np.array_equal(found, kept(key, 0.3))


# A batch in microbatches.

FAMILIES = {
  # A batch axis of coordinates for each example; one for all.
  "sort": ("decoder_only", {"temperature.kind": "log_items"}),
  "addition": ("encoder_decoder", {"positions.kind": "abacus"}),
}


def experiment_and_spec(task, kind, fields=()):
  config = untrained.config(task, kind, fields)
  experiment = build.build(config)
  train = optimizer.TrainConfig(**config.train)
  return experiment, train_step.TrainSpec(experiment, train)


@pytest.mark.parametrize("task", FAMILIES)
def test_a_step_is_the_same_in_microbatches(task, monkeypatch):
  """Loss and gradients, with every kind of noise, of several seeds at once."""
  kind, fields = FAMILIES[task]
  fields = fields | {
    "model.dropout_rate": 0.3,
    "temperature.stretch": 3.0,
    "train.batch_size": 12,
  }
  built, spec = experiment_and_spec(task, kind, fields)
  params = untrained.params(built)
  sample = lambda: built.sample(KEY, task, Part(0, 12))

  def run(axis):
    def value(key, params):
      loss = lambda params: train_step.batch_loss(
        params, spec, sample(), task, key, {}
      )
      return jax.value_and_grad(loss)(params)

    keys = jax.random.split(KEY, 2)
    copies = jax.tree.map(lambda x: jnp.stack([x, 0.5 * x]), params)
    return jax.jit(over_seeds(value, axis))(keys, copies)

  counts = []

  def num_microbatches(spec, batch, scaffold):
    counts.append(len(batch.inputs))
    return count

  monkeypatch.setattr(train_step, "num_microbatches", num_microbatches)
  count = 1
  whole = run("loop")
  count = 4
  found = run("vmap" if task == "sort" else "loop")
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4),
    found,
    whole,
  )
  assert counts == [12, 12]
  assert max(np.abs(x).max() for x in jax.tree.leaves(whole[1])) > 0.1


@pytest.mark.parametrize("task", FAMILIES)
def test_a_part_of_a_batch_is_its_examples_and_what_they_share(task):
  kind, fields = FAMILIES[task]
  built = untrained.experiment(task, kind, fields)
  # As many examples as rows: an index is not mistaken for examples.
  size = jax.eval_shape(lambda: built.sample(KEY, task, Part(0, 1)))
  size = size.inputs.shape[1]
  batch = jax.jit(lambda: built.sample(KEY, task, Part(0, size)))()
  part = packing.take(batch, lambda x: x[1::2])
  for name, own in batch._asdict().items():
    found = getattr(part, name)
    if own is None or name not in packing.COORDINATE_FIELDS:
      wanted = None if own is None else own[1::2]
      assert (own is None and found is None) or np.array_equal(found, wanted)
      continue
    assert np.array_equal(found.index, own.index)
    step = 2 if task == "sort" else 1
    wanted = own[0][1::2] if step == 2 else own[0]
    assert np.array_equal(found[0], wanted)


def test_batches_are_cut_where_they_do_not_fit_the_cache(monkeypatch):
  built, spec = experiment_and_spec("addition", "encoder_decoder")
  config = built.model.config
  sizes = {}
  for examples in (1, 7, 96):
    sample = lambda n=examples: built.sample(KEY, "addition", Part(0, n))
    batch = jax.eval_shape(sample)
    rows, keys = batch.inputs.shape[1], batch.source.shape[1]
    each = 4 * rows * (config.num_heads * keys + config.mlp_dim)
    monkeypatch.setattr(train_step, "CACHE_BYTES", 10 * each)
    count = train_step.num_microbatches(spec, batch, {})
    sizes[examples] = examples / count
  assert sizes == {1: 1, 7: 7, 96: 8}
  monkeypatch.setattr(train_step, "CACHE_BYTES", 1)
  assert train_step.num_microbatches(spec, batch, {}) == 96
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  assert train_step.num_microbatches(spec, batch, {}) == 1
