"""Training steps of one seed, and of many: what is frozen, kept, brought back.

On a toy experiment whose seeds fare as they are told.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy
from pytrees import bits, copied, is_finite, one
from toy import BAD_LOSS, BAD_UPDATE, FINE, HOPELESS

from lengthgen_jax.training import train_step
from lengthgen_jax.training.train_step import SEED_AXES

SEEDS = jnp.array([3, 1, 4, 7])


@pytest.fixture(params=SEED_AXES)
def spec(request):
  return toy.train_spec(request.param)


def fresh(spec):
  return train_step.init_seeds(spec, SEEDS)


def chunk(spec, start, rounds: int, fates=(FINE,) * 4):
  """(states, metrics) of a chunk; `start` can be used again."""
  scaffold = toy.scaffold(*fates)
  states, status = train_step.train_seeds(
    spec, copied(start), SEEDS, scaffold, rounds
  )
  return states, status.metrics


def learning(state):
  return state.params, state.opt_state


def test_state_is_of_one_seed_which_knows_no_other():
  """To the last bit, whatever stands beside it."""
  spec = toy.train_spec()
  fates = (FINE, HOPELESS, FINE, FINE)
  first, values = chunk(spec, fresh(spec), 5, fates)
  init = jax.jit(partial(train_step.init_state, spec))
  train = jax.jit(partial(train_step.train_chunk, spec))
  for r in (1, 2):
    start = init(SEEDS[r])
    assert bits(start) == bits(one(fresh(spec), r))
    alone, own = train(start, SEEDS[r], {"fate": fates[r]}, 5)
    assert bits(alone) == bits(one(first, r))
    for metric, of_all in zip(own, values, strict=True):
      np.testing.assert_allclose(metric, of_all[r], rtol=1e-6)
  assert alone.step.shape == alone.done.shape == alone.best_em.shape == ()
  assert len({str(bits(one(first.params, r))) for r in range(4)}) == 4


def test_seed_axes_agree():
  found = []
  for axis in SEED_AXES:
    spec = toy.train_spec(axis)
    found.append(chunk(spec, fresh(spec), 9))
  (first, values), (second, others) = found
  compare = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
  jax.tree.map(compare, (first, values), (second, others))


def test_steps_do_not_depend_on_chunks(spec):
  whole, _ = chunk(spec, fresh(spec), 5)
  parts = fresh(spec)
  for rounds in (2, 1, 2):
    parts, _ = chunk(spec, parts, rounds)
  assert parts.step.tolist() == [10] * 4
  assert bits(learning(parts)) == bits(learning(whole))


def test_any_number_of_rounds_is_one_compile():
  spec = toy.train_spec()
  state, _ = chunk(spec, fresh(spec), 1)
  size = train_step.train_seeds._cache_size()
  for rounds in (2, 3, 5):
    state, _ = chunk(spec, state, rounds)
  state = jax.tree.map(lambda x: jax.device_put(np.asarray(x)), state)
  chunk(spec, state, 2)  # as from a checkpoint
  assert train_step.train_seeds._cache_size() == size


def test_not_finite_is_back_at_the_chunks_first_parameters(spec):
  start, _ = chunk(spec, fresh(spec), 2)
  fates = (FINE, BAD_LOSS, BAD_UPDATE, FINE)
  state, values = chunk(spec, start, 1, fates)
  # The spoiled update is the last one: no loss has seen it yet.
  finite = np.isfinite(values.loss).all(axis=1)
  assert finite.tolist() == [True, False, True, True]
  assert state.diverged.tolist() == [False, True, True, False]
  assert state.done.tolist() == state.diverged.tolist()
  assert state.stopped_at.tolist() == [-1, 6, 6, -1]
  assert state.step.tolist() == [6] * 4
  assert is_finite(state)
  for r in range(4):
    same = bits(one(learning(state), r)) == bits(one(learning(start), r))
    assert same == (fates[r] != FINE)
    best = [one((s.best_em, s.best_step), r) for s in (state, start)]
    assert fates[r] == FINE or bits(best[0]) == bits(best[1])

  later, values = chunk(spec, state, 2)
  logged = np.isfinite(values.loss).all(axis=1)
  assert logged.tolist() == np.isfinite(values.em).all(axis=1).tolist()
  for r in range(4):
    frozen = bits(one(later, r)) == bits(one(state, r))
    assert frozen == (fates[r] != FINE) == (not logged[r])


@pytest.fixture
def learned(spec):
  state, _ = chunk(spec, fresh(spec), 150)
  assert state.done.all() and (state.best_em >= 0.95).all()
  return state


def test_target_freezes_a_seed_alone(spec, learned):
  # Seeds 1 and 7 start again beside two that know the task.
  start = fresh(spec)
  know = jnp.array([True, False, True, False])
  pick = lambda x, y: jnp.where(know.reshape(4, *[1] * (x.ndim - 1)), x, y)
  mixed = jax.tree.map(pick, learning(learned), learning(start))
  start = start.replace(params=mixed[0], opt_state=mixed[1])
  state, values = chunk(spec, start, 2)
  assert state.done.tolist() == [True, False, True, False]
  assert not state.diverged.any()
  assert state.stopped_at.tolist() == [4, -1, 4, -1]
  assert np.isfinite(values.loss).all()
  assert (state.best_em == values.em[:, 0]).all()
  assert bits(state.best_params) == bits(state.params)

  later, values = chunk(spec, state, 2)
  logged = np.isfinite(values.loss).all(axis=1)
  assert logged.tolist() == [False, True, False, True]
  for r in range(4):
    frozen = bits(one(later, r)) == bits(one(state, r))
    assert frozen == (r in (0, 2))


def test_best_parameters_and_their_step_are_kept(spec, learned):
  worse = learned.replace(
    params=jax.tree.map(jnp.zeros_like, learned.params),
    done=jnp.zeros(4, bool),
  )
  later, values = chunk(spec, worse, 1)
  assert (values.em[:, 0] < learned.best_em).all()
  best = lambda s: (s.best_params, s.best_em, s.best_step)
  assert bits(best(later)) == bits(best(learned))
  assert (later.step > learned.step).all()
  assert bits(later.params) != bits(learned.params)


def test_steps_end_with_the_attempt(spec):
  start = fresh(spec)
  start = start.replace(
    step=start.step + 394, attempt_start=start.attempt_start + 0
  )
  state, _ = chunk(spec, start, 10, (HOPELESS,) * 4)
  assert state.step.tolist() == [400] * 4
  assert state.done.all() and not state.diverged.any()
  assert state.stopped_at.tolist() == [-1] * 4


def test_validation_is_of_every_width():
  spec = toy.train_spec()
  _, values = chunk(spec, fresh(spec), 1)
  # All of the second width are right, few of the first.
  assert ((values.em >= 0.5) & (values.em < 0.9)).all()


def test_seeds_that_are_done_leave_the_mapped_axis(monkeypatch):
  """Half of them at least: nothing changes but the size."""
  spec = toy.train_spec("vmap")
  fates = toy.scaffold(FINE, HOPELESS, FINE, HOPELESS)
  done = np.array([True, False, False, True])
  start, _ = chunk(spec, fresh(spec), 2, (FINE, HOPELESS) * 2)
  state = start.replace(done=jnp.array(done))
  wanted, values = chunk(spec, state, 3, (FINE, HOPELESS) * 2)
  after, found = train_step.train_unfinished_seeds(
    spec, copied(state), SEEDS, fates, done, 3
  )
  assert np.array_equal(np.isnan(found.metrics.loss[:, 0]), done)
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
  jax.tree.map(close, (after, found.metrics), (wanted, values))
  for r in np.flatnonzero(done):
    assert bits(one(after, r)) == bits(one(state, r))

  class Size(Exception):
    pass

  def count(spec, state, seeds, scaffold, rounds, replay):
    assert len(scaffold["fate"]) == len(state.step) == len(seeds)
    raise Size(len(seeds))

  monkeypatch.setattr(train_step, "train_seeds", count)
  cases = [
    ("vmap", "0000", 4),
    ("vmap", "0001", 4),
    ("vmap", "1001", 2),
    ("vmap", "1101", 1),
    ("loop", "1101", 4),  # there, what is done costs nothing
  ]
  for axis, marks, size in cases:
    done = np.array([mark == "1" for mark in marks])
    args = copied(start), SEEDS, fates, done
    with pytest.raises(Size, match=str(size)):
      train_step.train_unfinished_seeds(toy.train_spec(axis), *args, 1)


def test_marked_seeds_begin_another_attempt():
  spec = toy.train_spec()
  state, _ = chunk(spec, fresh(spec), 3, (FINE, BAD_LOSS, FINE, FINE))
  marked = jnp.array([False, True, True, False])
  again = train_step.restart_seeds(spec, copied(state), SEEDS, marked)
  start = fresh(spec)
  for r in (0, 3):
    assert bits(one(again, r)) == bits(one(state, r))
  for r in (1, 2):
    assert bits(one(again.opt_state, r)) == bits(one(start.opt_state, r))
    assert bits(one(again.params, r)) != bits(one(start.params, r))
    kept = lambda s, r=r: one((s.step, s.best_em, s.best_params), r)
    assert bits(kept(again)) == bits(kept(state))
  assert again.attempt.tolist() == [0, 1, 1, 0]
  assert again.attempt_start.tolist() == [0, 6, 6, 0]
  assert not again.done.any() and not again.diverged.any()
  assert again.stopped_at.tolist() == [-1] * 4


def gradients(opt_state):
  """What the first step's moments were made of."""
  (adam,) = [x for x in opt_state if hasattr(x, "mu")]
  return jax.tree.map(lambda m: m / 0.1, adam.mu)


def first_step(experiment, step_spec):
  """Gradients and losses of a step, from fresh parameters."""
  spec = toy.TrainSpec(experiment, toy.train_config())
  params, opt_state = learning(train_step.init_state(spec, 5))
  batches = train_step.draw_batches(spec, step_spec, 5, 0)
  _, opt_state, losses = train_step.train_step(
    spec, step_spec, params, opt_state, batches, {"fate": FINE}
  )
  return gradients(opt_state), losses


def test_weighted_mixing_is_one_step_on_shares():
  mixed = toy.Toy(weights=(0.75, 0.25))
  (step_spec,) = mixed.step_specs
  both, losses = first_step(mixed, step_spec)
  parts = [
    first_step(mixed, (share._replace(weight=1.0),)) for share in step_spec
  ]
  (main, main_loss), (hint, hint_loss) = parts
  np.testing.assert_allclose(losses, [main_loss[0], hint_loss[0]], rtol=1e-5)
  wanted = jax.tree.map(lambda a, b: 0.75 * a + 0.25 * b, main, hint)
  compare = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
  jax.tree.map(compare, both, wanted)
  assert both["main"]["offset"] != 0 and both["hint"]["offset"] != 0
  assert main["hint"]["offset"] == 0 and hint["main"]["offset"] == 0


def test_every_head_part_step_and_seed_has_noise_of_its_own():
  drawn, spec = [], toy.train_spec()
  for seed, step in ((5, 0), (5, 1), (6, 0)):
    for (share,) in spec.experiment.step_specs:
      parts = tuple(share.parts[0]._replace(bucket=b) for b in (0, 1))
      step_spec = (share._replace(parts=parts),)
      (batches,) = train_step.draw_batches(spec, step_spec, seed, step)
      drawn += [tuple(jax.random.key_data(key).tolist()) for _, key in batches]
  assert len(drawn) == len(set(drawn)) == 12


def test_finite_is_of_every_leaf():
  tree = {"a": jnp.ones(3), "b": [jnp.zeros(()), jnp.ones((2, 2))]}
  assert train_step.is_finite(tree)
  for value in (jnp.nan, jnp.inf):
    assert not train_step.is_finite(tree | {"c": jnp.array([1.0, value])})
