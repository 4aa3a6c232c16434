"""Training: seeds, rounds, freezing, one compile, every kind of model."""

import shutil
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import get_config

from lengthgen_jax import records, rng, train
from lengthgen_jax import state as states


def easy_config(seeds=(0, 1, 2), seed_axis="loop"):
  """A task that a tiny model learns in a few hundred steps."""
  config = get_config("successor,window_cpi")
  config.seeds = seeds
  config.model.dropout_rate = 0.0
  config.train.seed_axis = seed_axis
  config.train.target_exact_match = 0.3
  return config


def make_trainer(config):
  return train.Trainer(config, *train.prepare(config))


@pytest.fixture(scope="module")
def loop():
  return make_trainer(easy_config())


@pytest.fixture(scope="module")
def vmap():
  return make_trainer(easy_config(seed_axis="vmap"))


@pytest.fixture(params=["loop", "vmap"])
def trainer(request):
  return request.getfixturevalue(request.param)


def one(tree, r: int):
  return jax.tree.map(lambda x: x[r], tree)


def bits(tree) -> list[bytes]:
  return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def is_finite(tree) -> bool:
  return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


def frozen_parts(state, r: int):
  parts = (state.params, state.opt_state, state.best_params, state.stopped_at)
  return bits(one(parts, r))


def test_seed_that_is_not_finite_is_frozen_alone(trainer):
  start = trainer.init()
  spoiled = jax.tree.map(lambda x: x.at[1].set(jnp.nan), start.params)
  start = start.replace(params=spoiled)
  state, values = trainer.chunk(start, 12)
  assert state.diverged.tolist() == [False, True, False]
  assert state.done.tolist() == [False, True, False]
  assert state.stopped_at.tolist() == [-1, 12, -1]
  assert np.isfinite(values["loss"][:, 0]).tolist() == [True, False, True]
  (line,) = train._news(trainer.config, np.asarray(start.done), state)
  assert line.startswith("seed 1: the loss is not finite at step 12; frozen")

  later, _ = trainer.chunk(state, 12)
  assert frozen_parts(later, 1) == frozen_parts(state, 1)
  for r in (0, 2):
    assert bits(one(later.params, r)) != bits(one(state.params, r))
    assert is_finite(one(later.params, r))


def test_seed_at_its_target_is_frozen_alone(trainer):
  fresh = trainer.init()
  learned, _ = trainer.chunk(fresh, 300)
  assert learned.done.all(), "the task is no longer easy: more steps"
  assert (learned.best_em >= 0.3).all()
  # Seed 1 starts again among two that know the task.
  restarted = jnp.array([False, True, False])
  mixed = states.select(
    restarted,
    (fresh.params, fresh.opt_state),
    (learned.params, learned.opt_state),
  )
  mixed = fresh.replace(params=mixed[0], opt_state=mixed[1])
  state, values = trainer.chunk(mixed, 2)
  assert state.done.tolist() == [True, False, True]
  assert state.diverged.tolist() == [False] * 3
  assert state.stopped_at.tolist() == [2, -1, 2]
  assert np.isfinite(values["loss"]).all()
  first, _ = train._news(trainer.config, np.asarray(mixed.done), state)
  assert first.startswith("seed 0: target reached at step 2")

  later, values = trainer.chunk(state, 2)
  for r in (0, 2):
    assert frozen_parts(later, r) == frozen_parts(state, r)
  assert bits(one(later.params, 1)) != bits(one(state.params, 1))
  # A frozen seed has nothing to log, whatever the seed axis.
  assert np.isfinite(values["loss"][:, 0]).tolist() == [False, True, False]


def test_restart_spares_seeds_that_fit(loop):
  state, _ = loop.chunk(loop.init(), 12)
  state = state.replace(best_em=jnp.array([1.0, 0.98, 0.99]))
  again = loop.restart(state, 1)
  assert again.done.tolist() == [True, False, True]
  assert again.stopped_at.tolist() == [12, -1, 12]
  kept = lambda s, r: bits(one((s.params, s.opt_state), r))
  for r in (0, 2):
    assert kept(again, r) == kept(state, r)
  assert bits(one(again.opt_state, 1)) == bits(one(loop.init().opt_state, 1))
  for other in (state, loop.init(), loop.init(2)):
    assert bits(one(again.params, 1)) != bits(one(other.params, 1))


def test_attempts_resume_where_they_were(tmp_path):
  config = easy_config(seeds=(0,))
  config.train.update(
    steps=20, chunk=10, restarts=1, restart_below=1.5, target_exact_match=2.0
  )
  config.checkpoint.update(every=1, keep=9)
  lines = []
  run = lambda: train.run(
    config, *train.prepare(config), tmp_path, lines.append
  )
  whole = run()
  assert whole.step == 40
  assert len(lines) == 1 and "starts again" in lines[0]
  rows = records.read(tmp_path / "metrics.jsonl")
  rates = {row["step"]: row["learning_rate"] for row in rows}
  assert rates[10] == rates[30] and rates[20] == rates[40]
  for step in (30, 40):
    shutil.rmtree(tmp_path / "checkpoints" / str(step))
  assert bits(run()) == bits(whole)
  drop_seconds = lambda row: {k: v for k, v in row.items() if k != "seconds"}
  again = records.read(tmp_path / "metrics.jsonl")
  assert [*map(drop_seconds, again)] == [*map(drop_seconds, rows)]


def test_target_keeps_the_best_parameters(loop):
  state, _ = loop.chunk(loop.init(), 300)
  assert bits(state.best_params) == bits(state.params)
  worse = jax.tree.map(lambda x: x.at[0].set(0.0), state.params)
  worse = state.replace(params=worse, done=jnp.zeros(3, bool))
  later, values = loop.chunk(worse, 1)
  assert values["em"][0] < state.best_em[0]
  assert bits(one(later.best_params, 0)) == bits(one(state.best_params, 0))
  assert later.best_em[0] == state.best_em[0]


@partial(jax.jit, static_argnums=0)
def logits(trainer, params):
  """On fresh examples; parameters that do not matter do not count here
  (Adam moves a key's bias, whose gradient is rounding error, at random)."""
  task, width = trainer.experiment.task, 4
  lengths = jnp.full((64, 1), 2)
  batch = task.sample(jax.random.key(9), lengths, width)
  bias = trainer.experiment.full_biases(one(trainer.lines, 0), width)
  return trainer.experiment.model.apply({"params": params}, batch, bias)[0]


def test_seed_alone_equals_seed_among_others(loop, vmap):
  alone = make_trainer(easy_config(seeds=(1,)))
  states_after = [t.chunk(t.init(), 8) for t in (alone, loop, vmap)]
  (state, values), *others = states_after
  for other, other_values in others:
    assert bits(one(alone.init().params, 0)) == bits(one(loop.init().params, 1))
    np.testing.assert_allclose(
      other_values["loss"][1], values["loss"][0], rtol=1e-5
    )
    np.testing.assert_allclose(
      logits(loop, one(other.params, 1)),
      logits(loop, one(state.params, 0)),
      atol=1e-4,
    )


def test_seed_draws_the_same_bits_alone_and_among_others(loop):
  data = loop.experiment.data

  @jax.jit
  def draw(seed):
    key = jax.random.fold_in(rng.stream(seed, "data"), 7)
    return data.sample(key, 32, 4).source

  seeds = jnp.array([0, 1, 2])
  alone = np.stack([draw(seed) for seed in seeds])
  assert (jax.vmap(draw)(seeds) == alone).all()
  assert (jax.lax.map(draw, seeds) == alone).all()
  assert (alone[0] != alone[1]).any()


def test_seed_axes_agree(loop, vmap):
  first, values = loop.chunk(loop.init(), 8)
  second, other_values = vmap.chunk(vmap.init(), 8)
  for name in ("loss", "em"):
    np.testing.assert_allclose(values[name], other_values[name], rtol=1e-5)
  assert first.step == second.step
  for r in range(3):
    np.testing.assert_allclose(
      logits(loop, one(first.params, r)),
      logits(loop, one(second.params, r)),
      atol=1e-4,
    )


def test_numbers_of_rounds_share_one_compile(loop):
  loop.chunk(loop.init(), 1)
  size = train.Trainer.chunk._cache_size()
  state = loop.init()
  for rounds in (2, 3, 5):
    state, _ = loop.chunk(state, rounds)
  assert state.step == 10
  loaded = jax.tree.map(lambda x: jnp.array(np.asarray(x)), state)
  loop.chunk(loaded, 2)
  assert train.Trainer.chunk._cache_size() == size


def test_steps_do_not_depend_on_chunks(loop):
  whole, _ = loop.chunk(loop.init(), 5)
  parts = loop.init()
  for rounds in (2, 1, 2):
    parts, _ = loop.chunk(parts, rounds)
  assert bits(parts.params) == bits(whole.params)
  assert bits(parts.opt_state) == bits(whole.opt_state)


def test_a_round_trains_every_width():
  traced = []

  class Recording(train.Trainer):
    def train_step(self, params, opt_state, seed, step, lesson, biases):
      traced.append(lesson[0].parts[0].size)
      args = (params, opt_state, seed, step, lesson, biases)
      return super().train_step(*args)

  config = get_config("successor")
  config.data.widths = (3, 5)
  config.positions.kind = "learned"
  config.model.update(norm="post", activation="gelu", num_encoder_layers=0)
  config.model.dropout_rate = 0.0
  config.seeds = (0,)
  config.train.warmup_steps = 0
  trainer = Recording(config, *train.prepare(config))
  before = trainer.init()
  after, values = trainer.chunk(before, 1)
  assert set(traced) == {3, 5}
  assert after.step == 2
  assert np.isfinite(values["loss"]).all()
  rows = lambda state: state.params["target_table"]["embedding"][0]
  moved = (rows(before) != rows(after)).any(axis=1)
  assert moved[:6].all()  # rows 4 and 5 exist at width 5 only
  assert not moved[6:].any()
  parts, _ = trainer.chunk(after, 1)
  whole, _ = trainer.chunk(before, 2)
  assert parts.step == whole.step == 4
  assert bits(parts.params) == bits(whole.params)


KINDS = {
  "block_end, encoder, rope": (
    "addition,rope",
    {"norm": "block_end", "num_encoder_layers": 1},
    {},
  ),
  "no norm, alibi": ("multiply,alibi", {"norm": "none"}, {}),
  "pre, label": ("parity_classification", {"norm": "pre"}, {}),
  "permutation, windowed encoder": (
    "addition,window",
    {"num_encoder_layers": 1, "norm": "post"},
    {"numbers": "permutation", "widths": (8,)},
  ),
  "bfloat16": (
    "parity,nope_window",
    {"dtype": "bfloat16", "activation": "gelu"},
    {},
  ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_trains(kind):
  preset, model, data = KINDS[kind]
  config = get_config(preset)
  config.seeds = (0,)
  config.model.update(model)
  config.data.update(data)
  config.bias.windowed_encoder = "windowed encoder" in kind
  config.train.warmup_steps = 0
  trainer = make_trainer(config)
  (lesson,) = trainer.experiment.lessons

  @jax.jit
  def step(params, opt_state, number):
    biases = trainer.biases(one(trainer.lines, 0))
    return trainer.train_step(params, opt_state, 0, number, lesson, biases)

  random = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: jnp.array(0.2 * random.standard_normal(x.shape), x.dtype),
    jax.eval_shape(lambda: trainer.experiment.init(0)),
  )
  opt_state = trainer.optimizer.init(params)
  for number in range(2):
    before = params
    params, opt_state, loss = step(params, opt_state, number)
    assert np.isfinite(loss).all()
    assert bits(params) != bits(before)
  assert is_finite(params)
  assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("float32")}


def test_activations_have_the_model_dtype():
  config = get_config("parity,nope_window")
  config.model.dtype = "bfloat16"
  experiment, lines = train.prepare(config)

  def outputs():
    key = jax.random.key(0)
    batch = experiment.data.sample(key, 4, 9)
    bias = experiment.full_biases(one(lines, 0), 9)
    return experiment.model.init_with_output(key, batch, bias)[0]

  out, acts = jax.eval_shape(outputs)
  assert out.dtype == jnp.float32
  assert acts["decoder"]["output"].dtype == jnp.bfloat16
  block = acts["decoder"]["blocks"][0]
  assert block["after_mlp"].dtype == jnp.bfloat16
  assert block["cross"]["weights"].dtype == jnp.float32
