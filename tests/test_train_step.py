"""Training steps of one seed, and of many: what is frozen, kept, brought back.

Most are of a toy experiment, whose seeds fare as their fates say; the last ones
are of real models.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy
import untrained
from pytrees import copied, is_finite, leaf_bytes, one
from tiny import get_config
from toy import BAD_LOSS, BAD_UPDATE, CONVERGING, HOPELESS

from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.config.build import build, make_scaffold
from lengthgen_jax.training import optimizer, train_step
from lengthgen_jax.training.train_step import SEED_AXES, TrainSpec

SEEDS = jnp.array([3, 1, 4, 7])


@pytest.fixture(params=SEED_AXES, scope="module")
def spec(request):
  return toy.train_spec(request.param)


def initial(spec):
  return train_step.init_seeds(spec, SEEDS)


def chunk(spec, states, rounds: int, fates=(CONVERGING,) * 4):
  """(states, metrics) after a chunk; `states` can be used again."""
  scaffold = toy.scaffold(*fates)
  states, status = train_step.train_seeds(
    spec, copied(states), SEEDS, scaffold, rounds
  )
  return states, status.metrics


def learning(state):
  return state.params, state.opt_state


def best(state):
  return state.best_params, state.best_em, state.best_step


def unchanged(before, after) -> list[bool]:
  """Whether each seed's part of two pytrees is the same to the last bit."""
  return [
    leaf_bytes(one(before, r)) == leaf_bytes(one(after, r)) for r in range(4)
  ]


def assert_close(actual, expected, rtol=1e-4, atol=1e-6):
  compare = partial(np.testing.assert_allclose, rtol=rtol, atol=atol)
  jax.tree.map(compare, actual, expected)


def test_state_is_of_one_seed_which_knows_no_other():
  """To the last bit, whatever stands beside it."""
  spec = toy.train_spec()
  fates = (CONVERGING, HOPELESS, CONVERGING, CONVERGING)
  states, metrics = chunk(spec, initial(spec), 5, fates)
  init = jax.jit(partial(train_step.init_state, spec))
  train = jax.jit(partial(train_step.train_chunk, spec))
  for r in (1, 2):
    start = init(SEEDS[r])
    assert leaf_bytes(start) == leaf_bytes(one(initial(spec), r))
    state, seed_metrics = train(start, SEEDS[r], {"fate": fates[r]}, 5)
    assert leaf_bytes(state) == leaf_bytes(one(states, r))
    assert_close(seed_metrics, one(metrics, r), rtol=1e-6)
  assert state.step.shape == state.done.shape == state.best_em.shape == ()
  assert len({str(leaf_bytes(one(states.params, r))) for r in range(4)}) == 4


def test_seeds_start_from_parameters_that_are_given():
  """And from nothing else that random ones would have left in a state."""
  spec = toy.train_spec()
  params = jax.tree.map(lambda x: x + 1, initial(spec).params)
  states = train_step.init_seeds(spec, SEEDS, params)
  expected = initial(spec).replace(params=params, best_params=params)
  assert leaf_bytes(states) == leaf_bytes(expected)


def test_steps_do_not_depend_on_chunks_and_any_number_is_one_compile(spec):
  whole, _ = chunk(spec, initial(spec), 5)
  compiled = train_step.train_seeds._cache_size()
  states = initial(spec)
  for rounds in (2, 1, 2):
    states, _ = chunk(spec, states, rounds)
  assert states.step.tolist() == [10] * 4
  assert leaf_bytes(learning(states)) == leaf_bytes(learning(whole))
  restored = jax.tree.map(lambda x: jax.device_put(np.asarray(x)), states)
  chunk(spec, restored, 2)
  assert train_step.train_seeds._cache_size() == compiled


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
  is_best = unchanged(best(start)[1:], best(states)[1:])
  assert is_best[1] and is_best[2]

  later, metrics = chunk(spec, states, 2)
  assert np.isfinite(metrics.loss).all(axis=1).tolist() == is_fine
  assert np.isfinite(metrics.em).all(axis=1).tolist() == is_fine
  assert unchanged(states, later) == states.done.tolist()


@pytest.fixture(scope="module")
def learned(spec):
  states, _ = chunk(spec, initial(spec), 150)
  assert states.done.all() and (states.best_em >= 0.95).all()
  return states


def test_target_freezes_a_seed_alone(spec, learned):
  start = initial(spec)
  is_learned = jnp.array([True, False, True, False])
  pick = lambda x, y: jnp.where(
    is_learned.reshape(4, *[1] * (x.ndim - 1)), x, y
  )
  params, opt_state = jax.tree.map(pick, learning(learned), learning(start))
  start = start.replace(params=params, opt_state=opt_state)
  states, metrics = chunk(spec, start, 2)
  assert states.done.tolist() == is_learned.tolist()
  assert not states.diverged.any()
  assert states.stopped_at.tolist() == [4, -1, 4, -1]
  assert np.isfinite(metrics.loss).all()
  assert (states.best_em == metrics.em[:, 0]).all()
  assert leaf_bytes(states.best_params) == leaf_bytes(states.params)

  later, metrics = chunk(spec, states, 2)
  is_trained = np.isfinite(metrics.loss).all(axis=1)
  assert is_trained.tolist() == (~is_learned).tolist()
  assert unchanged(states, later) == is_learned.tolist()


def test_best_parameters_and_their_step_are_kept(spec, learned):
  worse = learned.replace(
    params=jax.tree.map(jnp.zeros_like, learned.params),
    done=jnp.zeros(4, bool),
  )
  later, metrics = chunk(spec, worse, 1)
  assert (metrics.em[:, 0] < learned.best_em).all()
  assert leaf_bytes(best(later)) == leaf_bytes(best(learned))
  assert (later.step > learned.step).all()
  assert leaf_bytes(later.params) != leaf_bytes(learned.params)


def test_steps_end_with_the_attempt(spec):
  start = initial(spec)
  start = start.replace(step=start.step + 394)
  states, _ = chunk(spec, start, 10, (HOPELESS,) * 4)
  assert states.step.tolist() == [400] * 4
  assert states.done.all() and not states.diverged.any()
  assert states.stopped_at.tolist() == [-1] * 4


def test_validation_is_of_every_width():
  spec = toy.train_spec()
  _, metrics = chunk(spec, initial(spec), 1)
  # All of the second width are right, few of the first.
  assert ((metrics.em >= 0.5) & (metrics.em < 0.9)).all()


def test_seeds_that_are_done_leave_the_mapped_axis(monkeypatch):
  """Half of them at least: nothing changes but the size."""
  spec = toy.train_spec("vmap")
  fates = (CONVERGING, HOPELESS) * 2
  done = np.array([True, False, False, True])
  start, _ = chunk(spec, initial(spec), 2, fates)
  start = start.replace(done=jnp.array(done))
  expected = chunk(spec, start, 3, fates)
  states, status = train_step.train_unfinished_seeds(
    spec, copied(start), SEEDS, toy.scaffold(*fates), done, 3
  )
  assert np.array_equal(np.isnan(status.metrics.loss[:, 0]), done)
  assert_close((states, status.metrics), expected, rtol=1e-5, atol=1e-7)
  same = np.array(unchanged(start, states))
  assert same[done].all()

  class Size(Exception):
    pass

  def raise_size(spec, states, seed_R, scaffold, rounds, replay):
    assert len(scaffold["fate"]) == len(states.step) == len(seed_R)
    raise Size(len(seed_R))

  monkeypatch.setattr(train_step, "train_seeds", raise_size)
  for axis, marks, size in [
    ("vmap", "0000", 4),
    ("vmap", "0001", 4),
    ("vmap", "1001", 2),
    ("vmap", "1101", 1),
    ("loop", "1101", 4),  # there, what is done costs nothing
  ]:
    done = np.array([mark == "1" for mark in marks])
    with pytest.raises(Size, match=str(size)):
      train_step.train_unfinished_seeds(
        toy.train_spec(axis), start, SEEDS, toy.scaffold(*fates), done, 1
      )


def test_marked_seeds_begin_another_attempt():
  spec = toy.train_spec()
  states, _ = chunk(
    spec, initial(spec), 3, (CONVERGING, BAD_LOSS, CONVERGING, CONVERGING)
  )
  is_marked = jnp.array([False, True, True, False])
  restarted = train_step.restart_seeds(spec, copied(states), SEEDS, is_marked)
  start = initial(spec)
  assert unchanged(states, restarted) == [True, False, False, True]
  assert unchanged(start.opt_state, restarted.opt_state)[1:3] == [True] * 2
  assert unchanged(start.params, restarted.params)[1:3] == [False] * 2
  progress = lambda states: (states.step, states.best_em, states.best_params)
  assert leaf_bytes(progress(restarted)) == leaf_bytes(progress(states))
  assert restarted.attempt.tolist() == [0, 1, 1, 0]
  assert restarted.attempt_start.tolist() == [0, 6, 6, 0]
  assert not restarted.done.any() and not restarted.diverged.any()
  assert restarted.stopped_at.tolist() == [-1] * 4


def first_step(experiment, step_spec):
  """Gradients and losses of a step, from fresh parameters."""
  spec = TrainSpec(experiment, toy.train_config())
  params, opt_state = learning(train_step.init_state(spec, 5))
  batches = train_step.draw_batches(spec, step_spec, 5, 0)
  _, opt_state, losses = train_step.train_step(
    spec, step_spec, params, opt_state, batches, {"fate": CONVERGING}
  )
  (adam,) = [x for x in opt_state if hasattr(x, "mu")]
  return jax.tree.map(lambda m: m / 0.1, adam.mu), losses


def test_weighted_mixing_is_one_step_on_shares():
  experiment = toy.Toy(weights=(0.75, 0.25))
  (step_spec,) = experiment.step_specs
  grads, losses = first_step(experiment, step_spec)
  (main, main_loss), (hint, hint_loss) = (
    first_step(experiment, (share._replace(weight=1.0),)) for share in step_spec
  )
  np.testing.assert_allclose(losses, [main_loss[0], hint_loss[0]], rtol=1e-5)
  weighted = jax.tree.map(lambda a, b: 0.75 * a + 0.25 * b, main, hint)
  assert_close(grads, weighted)
  assert grads["main"]["offset"] != 0 and grads["hint"]["offset"] != 0
  assert main["hint"]["offset"] == 0 and hint["main"]["offset"] == 0


def test_every_head_part_step_and_seed_has_noise_of_its_own():
  keys, spec = [], toy.train_spec()
  for seed, step in ((5, 0), (5, 1), (6, 0)):
    for (share,) in spec.experiment.step_specs:
      parts = tuple(share.parts[0]._replace(bucket=b) for b in (0, 1))
      step_spec = (share._replace(parts=parts),)
      (batches,) = train_step.draw_batches(spec, step_spec, seed, step)
      keys += [tuple(jax.random.key_data(key).tolist()) for _, key in batches]
  assert len(keys) == len(set(keys)) == 12


def test_finite_is_of_every_leaf():
  tree = {"a": jnp.ones(3), "b": [jnp.zeros(()), jnp.ones((2, 2))]}
  assert train_step.is_finite(tree)
  for value in (jnp.nan, jnp.inf):
    assert not train_step.is_finite(tree | {"c": jnp.array([1.0, value])})


# Real models.


def spec_of(config):
  """(spec, scaffold of all seeds)."""
  experiment = build(config)
  train = optimizer.TrainConfig(**config.train)
  return TrainSpec(experiment, train), make_scaffold(config, experiment)


@partial(jax.jit, static_argnums=(0, 1))
def take_step(spec, step_spec, params, opt_state, step):
  batches = train_step.draw_batches(spec, step_spec, 0, step)
  return train_step.train_step(spec, step_spec, params, opt_state, batches, {})


def untrained_start(spec):
  """(parameters, optimizer state) before the first step."""
  params = untrained.params(spec.experiment)
  return params, jax.jit(optimizer.make_optimizer(spec.train).init)(params)


def test_seed_with_dropout_is_the_same_whatever_stands_beside_it(tiny_config):
  """To the last bit."""

  tiny_config.model.num_encoder_layers = 0
  spec, scaffold = spec_of(tiny_config)

  def train(seeds):
    states = train_step.init_seeds(spec, jnp.array(seeds))
    args = states, jnp.array(seeds), scaffold, 8
    states, status = train_step.train_seeds(spec, *args)
    return one((states, status.metrics), seeds.index(1))

  assert leaf_bytes(train((0, 1))) == leaf_bytes(train((1, 7)))


def test_every_width_is_trained_in_its_turn():
  """One program pads to the widest; what is padded has no gradient."""
  config = get_config("successor")
  config.data.train_length = 2
  config.positions.kind = "learned"
  config.model.update(norm="post", activation="gelu", num_encoder_layers=0)
  config.model.dropout_rate = 0.0
  config.train.warmup_steps = 0
  spec, _ = spec_of(config)
  (step_spec,) = spec.experiment.step_specs
  assert spec.experiment.num_widths == 2
  params, opt_state = untrained_start(spec)
  table = lambda params: np.concatenate(
    [
      params[f"positions_{site}"]["embedding"]["embedding"]
      for site in ("self", "cross")
    ],
    axis=1,
  )
  before = table(params)
  compiled = take_step._cache_size()
  for step, width in ((0, 3), (1, 4)):
    params, opt_state, loss = take_step(
      spec, step_spec, params, opt_state, step
    )
    assert np.isfinite(loss).all()
    moved = (table(params) != before).any(axis=1)
    assert moved[: width + 1].all() and not moved[width + 1 :].any()
  assert take_step._cache_size() == compiled + 1


def moments(opt_state, name: str) -> list:
  """Adam's, of the parameters under a top-level name."""
  return [
    np.asarray(leaf)
    for path, leaf in jax.tree_util.tree_leaves_with_path(opt_state)
    if name in {getattr(part, "key", None) for part in path}
  ]


def test_steps_alternate_and_idle_heads_rest():
  """The trunk learns from all; weights decay in busy heads alone."""
  config = get_config("increment,carry")
  config.data.buckets = (6,)  # half as much to compile
  config.train.weight_decay = 0.1
  spec, _ = spec_of(config)
  step_specs = spec.experiment.step_specs
  heads = [share.head for (share,) in step_specs]
  assert heads == ["increment", "increment_carry"]
  params, opt_state = untrained_start(spec)
  trunk = {"token_embedder", "decoder_0", "decoder_norm"}
  for step, step_spec in enumerate(step_specs):
    before, before_opt = params, opt_state
    params, opt_state, losses = take_step(
      spec, step_spec, params, opt_state, step
    )
    assert losses.shape == (1,)
    busy = trunk | {f"logits_dense_{heads[step]}"}
    for name in params:
      assert (leaf_bytes(before[name]) != leaf_bytes(params[name])) == (
        name in busy
      )
      old, new = moments(before_opt, name), moments(opt_state, name)
      if name not in busy:
        assert leaf_bytes(old) == leaf_bytes(new)
      elif name in ("token_embedder", "decoder_0"):
        # Weights decay without a gradient; moments do not come without one.
        pairs = zip(old, new, strict=True)
        assert all((x != y).any() for x, y in pairs)


MODELS = {
  "permutation, windowed encoder, rope, block_end, gelu": (
    "multiply,window",
    {
      "model.num_encoder_layers": 1,
      "model.norm": "block_end",
      "model.activation": "gelu",
      "data.numbers": "permutation",
      "data.width": "fixed",
      "data.fixed_width": 8,
      "bias.windowed_encoder": True,
      "positions.kind": "rope",
    },
  ),
  "alibi, no norm, bfloat16, label": (
    "parity_classification,alibi",
    {"model.norm": "none", "model.dtype": "bfloat16"},
  ),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_of_every_kind_of_model_learns(name):
  preset, fields = MODELS[name]
  config = get_config(preset)
  config.update_from_flattened_dict(fields)
  spec, scaffold = spec_of(config)
  ((share,),) = spec.experiment.step_specs
  data_key, noise_key = jax.random.split(jax.random.key(0))

  @jax.jit
  @jax.value_and_grad
  def loss_and_grads(params):
    batch = spec.experiment.sample(data_key, share.head, share.parts[0])
    return train_step.batch_loss(
      params, spec, batch, share.head, noise_key, of_seed(scaffold, 0)
    )

  loss, grads = loss_and_grads(untrained.params(spec.experiment))
  assert np.isfinite(loss) and is_finite(grads)
  assert {x.dtype for x in jax.tree.leaves(grads)} == {jnp.dtype("float32")}
  for path, leaf in jax.tree_util.tree_leaves_with_path(grads):
    # The softmax does not see what all keys have in common.
    common = "key" in jax.tree_util.keystr(path) and path[-1].key == "bias"
    assert common or np.abs(leaf).max() > 0, path
