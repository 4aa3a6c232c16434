"""Training steps of one seed, and chunks of many: what is frozen and kept.

They are of a toy experiment, whose seeds fare as their fates say.
"""

from functools import partial

import jax
import numpy as np
import pytest
import toy
from pytrees import is_finite, leaf_bytes, one
from toy import BAD_LOSS, BAD_UPDATE, CONVERGING, HOPELESS

from lengthgen_jax.training import loop
from lengthgen_jax.training.loop import TrainSpec

SEEDS = (3, 1, 4, 7)


@pytest.fixture(scope="module")
def spec():
  """Of seeds side by side; test_loop.py trains them in turn."""
  return toy.train_spec("vmap")


def initial(spec):
  return loop.init_seeds(spec, SEEDS)


def chunk(spec, states, rounds: int, fates=(CONVERGING,) * 4):
  """(states, metrics) after a chunk."""
  return toy.chunk(spec, states, SEEDS, toy.scaffold(*fates), rounds)


def learning(state):
  return state.params, state.opt_state


def unchanged(before, after) -> list[bool]:
  """Whether each seed's part of two pytrees is the same to the last bit."""
  pairs = ((one(before, r), one(after, r)) for r in range(4))
  return [leaf_bytes(x) == leaf_bytes(y) for x, y in pairs]


def test_a_seed_knows_no_other():
  """To the last bit, whatever stands beside it."""
  spec = toy.train_spec()
  fates = (CONVERGING, HOPELESS, CONVERGING, CONVERGING)
  states, metrics = chunk(spec, initial(spec), 5, fates)
  for r in (1, 2):
    start = loop.init_seeds(spec, SEEDS[r : r + 1])
    scaffold = toy.scaffold(fates[r])
    alone = toy.chunk(spec, start, SEEDS[r : r + 1], scaffold, 5)
    assert leaf_bytes(one(alone)) == leaf_bytes(one((states, metrics), r))
  assert len({str(leaf_bytes(one(states.params, r))) for r in range(4)}) == 4


def test_not_finite_is_back_at_the_chunks_first_parameters(spec):
  start, _ = chunk(spec, initial(spec), 2)
  fates = (CONVERGING, BAD_LOSS, BAD_UPDATE, CONVERGING)
  is_fine = [True, False, False, True]
  states, metrics = chunk(spec, start, 1, fates)
  # The spoiled update is the last one: no loss has seen it yet.
  has_loss = np.isfinite(metrics.loss).all(axis=1)
  assert has_loss.tolist() == [True, False, True, True]
  assert states.diverged.tolist() == [not fine for fine in is_fine]
  assert states.done.tolist() == states.diverged.tolist()
  assert states.stopped_at.tolist() == [-1, 6, 6, -1]
  assert states.step.tolist() == [6] * 4
  assert is_finite(states)
  assert unchanged(learning(start), learning(states)) == states.done.tolist()
  best = lambda states: (states.best_em, states.best_step)
  assert unchanged(best(start), best(states))[1:3] == [True] * 2

  later, metrics = chunk(spec, states, 2)
  assert np.isfinite(metrics.loss).all(axis=1).tolist() == is_fine
  assert unchanged(states, later) == states.done.tolist()


def test_a_target_freezes_a_seed_alone_with_its_best_parameters(spec):
  learned, _ = chunk(spec, initial(spec), 150)
  assert learned.done.all() and (learned.best_em >= 0.95).all()
  is_learned = np.array([True, False, True, False])
  args = learning(learned), learning(initial(spec))
  pick = lambda mask, *values: np.stack(
    [x if is_set else y for is_set, x, y in zip(mask, *values, strict=True)]
  )
  params, opt_state = jax.tree.map(partial(pick, is_learned), *args)
  start = initial(spec).replace(params=params, opt_state=opt_state)
  states, metrics = chunk(spec, start, 2)
  assert states.done.tolist() == is_learned.tolist()
  assert not states.diverged.any()
  assert states.stopped_at.tolist() == [4, -1, 4, -1]
  assert (states.best_em == metrics.em[:, 0]).all()
  assert leaf_bytes(states.best_params) == leaf_bytes(states.params)
  later, metrics = chunk(spec, states, 2)
  is_trained = np.isfinite(metrics.loss).all(axis=1)
  assert is_trained.tolist() == (~is_learned).tolist()
  assert unchanged(states, later) == is_learned.tolist()

  # Later ones that are worse leave the best as they are.
  best = lambda states: (states.best_params, states.best_em, states.best_step)
  fields = {"done": np.zeros(4, bool), "step": learned.step - 300}
  worse = learned.replace(params=initial(spec).params, **fields)
  later, metrics = chunk(spec, worse, 1)
  assert (metrics.em[:, 0] < learned.best_em).all()
  assert leaf_bytes(best(later)) == leaf_bytes(best(learned))
  assert leaf_bytes(later.params) != leaf_bytes(learned.params)


def first_step(experiment, step_spec):
  """Gradients and losses of a step, from fresh parameters."""
  spec = TrainSpec(experiment, toy.train_config())
  args = *learning(loop.init_state(spec, 5)), 5, 0, {"fate": CONVERGING}
  _, opt_state, losses = loop.train_step(spec, step_spec, *args)
  (adam,) = [x for x in opt_state if hasattr(x, "mu")]
  return jax.tree.map(lambda m: m / 0.1, adam.mu), losses


def test_weighted_mixing_is_one_step_on_shares():
  experiment = toy.Toy(weights=(0.75, 0.25))
  (step_spec,) = experiment.step_specs
  grads, losses = first_step(experiment, step_spec)
  alone = ((share._replace(weight=1.0),) for share in step_spec)
  steps = [first_step(experiment, step) for step in alone]
  (main, main_loss), (hint, hint_loss) = steps
  np.testing.assert_allclose(losses, [main_loss[0], hint_loss[0]], rtol=1e-5)
  weighted = jax.tree.map(lambda a, b: 0.75 * a + 0.25 * b, main, hint)
  compare = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
  jax.tree.map(compare, grads, weighted)
  assert grads["main"]["offset"] != 0 and grads["hint"]["offset"] != 0
  assert main["hint"]["offset"] == 0 and hint["main"]["offset"] == 0
