"""Training: seeds, rounds, freezing, one compile, every kind of model."""

from conftest import get_config
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lengthgen_jax import records, rng, train
from lengthgen_jax import state as states

TARGET = 0.3  # validation exact match that stops a seed


def easy_config(seeds=(0, 1, 2), seed_axis="loop"):
  """A task that a tiny model half learns in a few chunks."""
  config = get_config("successor,window_cpi")
  config.seeds = seeds
  config.train.seed_axis = seed_axis
  config.train.target_exact_match = TARGET
  return config


def make_trainer(config):
  return train.Trainer(config, *train.prepare(config))


def one(tree, r: int):
  return jax.tree.map(lambda x: x[r], tree)


def bits(tree) -> list[bytes]:
  return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def assert_close(first, second):
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5),
    first,
    second,
  )


@pytest.fixture(scope="module", params=["loop", "vmap"])
def trainer(request):
  return make_trainer(easy_config(seed_axis=request.param))


def poison(state, r: int):
  """The same state with a NaN in every parameter of seed `r`."""
  spoiled = jax.tree.map(lambda x: x.at[r].set(jnp.nan), state.params)
  return state.replace(params=spoiled)


class TestSeeds:
  def test_not_finite_freezes_one_seed(self, trainer, tmp_path):
    state = poison(trainer.init(), 1)
    before = np.asarray(state.done)
    new, values = trainer.chunk(state, 3)
    assert new.diverged.tolist() == [False, True, False]
    assert new.done.tolist() == [False, True, False]
    assert new.stopped_at.tolist() == [-1, 3, -1]
    assert bits(one(new.opt_state, 1)) == bits(one(state.opt_state, 1))
    assert np.isfinite(one(values["loss"], np.array([0, 2]))).all()
    (line,) = train._news(trainer.config, before, new)
    assert line.startswith("seed 1: the loss is not finite at step 3")
    after, _ = trainer.chunk(new, 3)
    assert bits(one(after.opt_state, 1)) == bits(one(state.opt_state, 1))
    assert after.stopped_at.tolist() == [-1, 3, -1]
    for r in (0, 2):
      assert bits(one(after.params, r)) != bits(one(new.params, r))
      assert np.isfinite(
        np.concatenate(
          jax.tree.leaves(jax.tree.map(jnp.ravel, one(after.params, r)))
        )
      ).all()
