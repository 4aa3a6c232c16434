"""Decoder-only tasks, their data, lessons, temperatures and answers."""

import collections
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lengthgen_jax.lessons import Part
from lengthgen_jax.tasks.sequence import DataSet, Lengths, split
from random_params import random_params
from tiny import get_config

from lengthgen_jax import evaluate_sequences, metrics, predict, rng, train
from lengthgen_jax import experiment as experiments
from lengthgen_jax.attention import temperature
from lengthgen_jax.attention.temperature import TEMPERATURES
from lengthgen_jax.errors import UsageError
from lengthgen_jax.models import decode
from lengthgen_jax.tasks import HINTS, SEQUENCES, stress

KINDS = {task.name: task for task in SEQUENCES.values()} | {
  hint.name: hint for hints in HINTS.values() for hint in hints.values()
}
LONGEST = 7


def make(name, **fields):
  """A task whose tokens fit a line of text."""
  return KINDS[name](alphabet=10 if "increment" in name else 9, **fields)


@functools.cache
def drawn(name, count=300):
  """Prompts and outputs of a sample, as lists of words, and its batch."""
  task = make(name)
  key = jax.random.key(3)
  numbers = jax.random.uniform(key, (count, task.draws(LONGEST)))
  lengths = jnp.arange(count) % LONGEST + 1
  batch = jax.tree.map(np.asarray, task.sample(numbers, lengths, LONGEST))
  return [words(task, batch, i) for i in range(count)], batch


def words(task, batch, i):
  """(prompt, output) of example i as words."""
  full = [*batch.tokens[i].tolist(), int(batch.target[i, -1])]
  prompt, outputs = int(batch.prompt[i]), int(batch.weight[i].sum())
  assert not any(full[prompt + outputs :]), "PAD behind the output"
  name = {task.delimiter: "⊥", task.delimiter + 1: "c"}
  digits = "increment" in task.name
  show = lambda t: name.get(t, str(t - 1 if digits else t))
  full = [show(token) for token in full]
  return full[:prompt], full[prompt : prompt + outputs]


def successor(items, asked):
  greater = [x for x in items if x > asked]
  return [str(min(greater))] if greater else ["⊥"]


def predecessor(items, asked):
  smaller = [x for x in items if x < asked]
  return [str(max(smaller))] if smaller else ["⊥"]


def rarer(items):
  counts = collections.Counter(items).most_common()
  if len(counts) == 1:
    return [str(counts[0][0])]
  (_, most), (value, least) = counts
  return ["⊥"] if most == least else [str(value)]


def plus_one(items):
  total = int("".join(map(str, items))) + 1
  return list(str(total).zfill(len(items) + 1)[::-1])


def with_carries(items):
  digits, carry, out = items[::-1] + [0], 1, []
  for digit in digits:
    out += [str((digit + carry) % 10), "c"]
    carry = (digit + carry) // 10
    out.append(str(carry))
  return out


ANSWERS = {
  "sort": lambda items, rest: [str(x) for x in sorted(items)],
  "sort_successor": lambda items, rest: successor(items, int(rest[0])),
  "sort_predecessor": lambda items, rest: predecessor(items, int(rest[0])),
  "sort_minimum": lambda items, rest: [str(min(items))],
  "sort_count": lambda items, rest: rarer(items),
  "sort_fill": lambda items, rest: (
    [str(items[0])] * (len(items) - len(rest)) + ["⊥"]
  ),
  "increment": lambda items, rest: plus_one(items),
  "increment_carry": lambda items, rest: with_carries(items),
}


@pytest.mark.parametrize("name", KINDS)
def test_examples_against_python(name):
  examples, batch = drawn(name)
  for i, (prompt, output) in enumerate(examples):
    at = prompt.index("⊥")
    items, rest = [int(x) for x in prompt[:at]], prompt[at + 1 :]
    assert len(items) == batch.items[i] == i % LONGEST + 1
    assert output == ANSWERS[name](items, rest), (prompt, output)
    if name == "sort_fill":
      assert len(set(items)) == 1 and set(rest) <= {str(items[0])}
    elif rest:
      assert int(rest[0]) in items


@pytest.mark.parametrize("name", KINDS)
def test_weights_cover_exactly_the_outputs(name):
  examples, batch = drawn(name)
  for i, (prompt, output) in enumerate(examples):
    rows = np.flatnonzero(batch.weight[i])
    first = len(prompt) - 1  # the row of the last prompt token says the first
    assert rows.tolist() == list(range(first, first + len(output)))
    assert (batch.target[i, :-1] == batch.tokens[i, 1:]).all()


@pytest.mark.parametrize("name", KINDS)
def test_docstrings_hold(name):
  """Every "`prompt` -> `output`" line of a task is one of its examples."""
  lines = re.findall(r"`([^`]*⊥[^`]*)` -> `([^`]*)`", KINDS[name].__doc__)
  assert lines
  for prompt, output in lines:
    items, rest = prompt.split("⊥")
    items = [int(x) for x in items.split()]
    assert ANSWERS[name](items, rest.split()) == output.split()


@pytest.mark.parametrize(
  "length, gaps", [(2, {0}), (3, {1}), (4, {0, 2}), (7, {1, 3}), (8, {0, 2, 4})]
)
def test_count_has_two_numbers_a_capped_gap_and_ties(length, gaps):
  task = make("sort_count", count_gap=4, count_ties=0.25)
  numbers = jax.random.uniform(jax.random.key(0), (400, task.draws(8)))
  batch = task.sample(numbers, jnp.full(400, length), 8)
  found = collections.Counter()
  for row in np.asarray(batch.tokens)[:, :length].tolist():
    counts = sorted(collections.Counter(row).values())
    assert len(counts) == 2
    found[counts[1] - counts[0]] += 1
  assert set(found) == gaps
  if {0, 2} <= gaps:
    assert 60 < found[0] < 140


def test_repetition_data_draw_few_values():
  for share in (0.0, 1.0):
    task = KINDS["sort"](alphabet=50, repeat_share=share)
    numbers = jax.random.uniform(jax.random.key(0), (400, task.draws(20)))
    tokens = np.asarray(task.sample(numbers, jnp.full(400, 20), 20).tokens)
    distinct = [len(set(row[:20].tolist())) for row in tokens]
    # k is uniform in 1...20, so a tenth of all have one or two values.
    few = np.mean([n <= 2 for n in distinct])
    assert (0.05 < few < 0.2) if share else few == 0
    assert {*tokens[:, :20].ravel().tolist()} == set(range(1, 51))


def test_nines_are_as_frequent_as_asked():
  for share in (0.0, 1.0):
    task = make("increment", nines_share=share)
    numbers = jax.random.uniform(jax.random.key(0), (300, task.draws(6)))
    tokens = np.asarray(task.sample(numbers, jnp.full(300, 6), 6).tokens)
    ends = np.mean(tokens[:, 5] == 10)  # digit 9
    assert ends == 1.0 if share else ends < 0.2
    assert set(tokens[:, 0].tolist()) == set(range(2, 11))  # no leading 0
    if not share:
      assert set(tokens[:, 1].tolist()) == set(range(1, 11))


# Lengths and data.

LENGTHS = Lengths(2, 5, 20, 0.8, (5, 20))


def test_lengths_have_their_distribution():
  chance = LENGTHS.probability
  np.testing.assert_allclose(chance[2:6], 0.2)
  np.testing.assert_allclose(chance[6:], 0.2 / 15)
  assert LENGTHS.shares(256) == [205, 51]
  uniform = (np.arange(20000) + 0.5) / 20000
  for bucket, (first, last) in enumerate([(2, 5), (6, 20)]):
    draw = jax.vmap(lambda x, b=bucket: LENGTHS.draw(x, b))
    found = np.bincount(draw(uniform), minlength=22) / 20000
    expected = np.zeros(22)
    expected[first : last + 1] = 1 / (last - first + 1)
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("total", (1, 7, 100, 12345))
def test_split_is_exact(total):
  parts = split(total, [0.5, 0.3, 0.2])
  assert sum(parts) == total
  np.testing.assert_allclose(parts, np.array([0.5, 0.3, 0.2]) * total, atol=1.0)


def data_set(size, name="sort", seed=0, buckets=(5, 20)):
  lengths = Lengths(2, 5, 20, 0.8, buckets)
  return DataSet(make(name), lengths, size, seed)


def test_an_example_has_an_address():
  data = data_set(1000)
  whole = data.at(jnp.arange(64), 1)
  for index in ([3], [63, 3, 0], list(range(10, 40))):
    part = data.at(jnp.array(index), 1)
    for a, b in zip(part, whole, strict=True):
      assert np.array_equal(a, np.asarray(b)[index])
  same = lambda a, b: np.array_equal(a.tokens, b.tokens)
  first = data.at(jnp.arange(8), 1)
  assert not same(first, data_set(1000, seed=1).at(jnp.arange(8), 1))
  held_out = data.sample(jax.random.key(0), 8, 1, held_out=True)
  assert not set(map(bytes, np.asarray(held_out.tokens))) & set(
    map(bytes, np.asarray(whole.tokens))
  )


def test_a_finite_set_has_no_more_examples_than_its_share():
  data = data_set(20)
  assert [data.bucket_size(b) for b in (0, 1)] == [16, 4]
  batch = data.sample(jax.random.key(0), 500, 1)
  assert len(set(map(bytes, np.asarray(batch.tokens)))) == 4
  endless = data_set(0).sample(jax.random.key(0), 500, 1)
  assert len(set(map(bytes, np.asarray(endless.tokens)))) > 450


# Models and lessons.


@functools.cache
def trainer(preset="sort,successor,fill", **fields):
  config = get_config(preset)
  config.sequences.buckets = (6,)  # half as much to compile
  with config.unlocked():
    config.update_from_flattened_dict(fields)
  return train.Trainer(config, *train.prepare(config))


@functools.partial(jax.jit, static_argnums=0)
def apply(experiment, params, batch, bias):
  return experiment.apply(params, batch, bias, "sort")


def one(tree, r=0):
  return jax.tree.map(lambda x: np.asarray(x[r]), tree)


def changed(before, after) -> set[str]:
  """Top-level parameters that differ."""
  return {
    name
    for name in before
    if any(
      not np.array_equal(a, b)
      for a, b in zip(
        jax.tree.leaves(before[name]), jax.tree.leaves(after[name]), strict=True
      )
    )
  }


def moments(opt_state, head):
  found = []
  for path, leaf in jax.tree_util.tree_leaves_with_path(opt_state):
    if head in {getattr(part, "key", None) for part in path}:
      found.append(np.asarray(leaf))
  return found


def test_steps_alternate_and_idle_heads_rest():
  loop = trainer(**{"train.weight_decay": 0.1})  # of busy heads alone
  experiment = loop.experiment
  assert [share.head for (share,) in experiment.lessons] == [
    "sort",
    "sort_successor",
    "sort_fill",
  ]
  state = loop.init()
  params, opt_state = one(state.params), one(state.opt_state)
  step = jax.jit(loop.train_step, static_argnames="lesson")
  biases = loop.biases({})
  for number in range(6):
    lesson = experiment.lessons[number % 3]
    new, new_opt, _ = step(
      params, opt_state, 0, number, lesson=lesson, biases=biases
    )
    idle = {
      experiment.head_params(head)
      for head in experiment.heads
      if head != lesson[0].head
    }
    busy = experiment.head_params(lesson[0].head)
    moved = changed(params, new)
    assert busy in moved and "token_embedder" in moved and "layers_0" in moved
    assert not moved & idle
    for head in idle:
      old = moments(opt_state, head)
      assert old
      for a, b in zip(old, moments(new_opt, head), strict=True):
        assert np.array_equal(a, b)
    params, opt_state = new, new_opt


def test_a_chunk_is_its_rounds():
  loop = trainer()
  state, values = loop.chunk(loop.init(), 4)
  assert state.step == 12
  parts, _ = loop.chunk(loop.init(), 1)
  parts, _ = loop.chunk(parts, 3)
  same = jax.tree.map(np.array_equal, state.params, parts.params)
  assert all(jax.tree.leaves(same))
  assert values["loss"].shape == values["em"].shape == (2, 3)
  assert np.isfinite(values["loss"]).all()


def test_weighted_mixing_is_one_step_on_shares():
  config = get_config("sort,successor")
  config.sequences.buckets = (6,)
  config.mixing.update(kind="weighted", weights=(3.0, 1.0))
  mixed = train.Trainer(config, *train.prepare(config))
  (lesson,) = mixed.experiment.lessons
  count = lambda share: sum(part.count for part in share.parts)
  assert [count(share) for share in lesson] == [24, 8]
  np.testing.assert_allclose([share.weight for share in lesson], [0.75, 0.25])
  before = mixed.init()
  after, values = mixed.chunk(before, 1)
  assert changed(one(before.params), one(after.params)) == set(before.params)
  assert np.isfinite(values["loss"]).all()


def test_trunk_gradients_are_shared_and_heads_are_not():
  loop = trainer()
  experiment = loop.experiment
  params = one(loop.init().params)
  for head in experiment.heads:
    part = Part(0, 4)
    batch = experiment.sample(jax.random.key(0), head, part)
    bias = experiment.part_bias({}, head, part)
    key = jax.random.key(1)
    loss = functools.partial(
      experiment.loss, batch=batch, bias=bias, head=head, key=key
    )
    grads, _ = jax.jit(jax.grad(loss, has_aux=True))(params)
    size = {
      n: max(np.abs(x).max() for x in jax.tree.leaves(g))
      for n, g in grads.items()
    }
    for other in experiment.heads:
      assert (size[experiment.head_params(other)] > 0) == (other == head)
    assert size["layers_0"] > 0 and size["token_embedder"] > 0


@pytest.mark.parametrize("kind", TEMPERATURES)
def test_temperature_never_sees_padding(kind):
  """The same sequences in a short and in a long bucket."""
  loop = trainer(**{"temperature.kind": kind})
  experiment = loop.experiment
  params = one(loop.init().params)
  batch = stress.sample(experiment.task, "uniform", jax.random.key(0), 5, 4)
  rows = batch.tokens.shape[1]
  padded = batch._replace(
    tokens=jnp.pad(batch.tokens, ((0, 0), (0, 9))),
    target=jnp.pad(batch.target, ((0, 0), (0, 9))),
    weight=jnp.pad(batch.weight, ((0, 0), (0, 9))),
  )
  short, _ = apply(experiment, params, batch, experiment.row_bias({}, rows))
  long, _ = apply(experiment, params, padded, experiment.row_bias({}, rows + 9))
  np.testing.assert_allclose(long[:, :rows], short, atol=1e-6)


@pytest.mark.parametrize("kind", TEMPERATURES)
def test_temperatures_are_what_they_say(kind):
  n, a, b = 7.0, 0.5, 1.0
  expected = {
    "none": None,
    "log_items": 0.5 * np.log(8),
    "log_visible": 0.5 * np.log(8),
    "one_plus_log": 1 + 0.5 * np.log(8),
    "scalable": 0.5 * np.log(7) + 1,
    "fixed": 0.5 * np.log(8),
  }[kind]
  rule = TEMPERATURES[kind]
  if expected is None:
    assert rule.value is None
  else:
    np.testing.assert_allclose(rule.value(n, a, b), expected, rtol=1e-6)
  for preset in ("sort", "addition,vanilla"):
    config = get_config(preset)
    config.temperature.kind = kind
    built = experiments.build(config)
    names = {
      path[-1].key
      for path, _ in jax.tree_util.tree_leaves_with_path(
        jax.eval_shape(lambda e=built: e.init(0))
      )
    }
    assert ("temperature" in names) == (kind not in ("none", "fixed"))
    assert ("temperature_offset" in names) == (kind == "scalable")


def test_temperature_sharpens_the_scores_and_not_the_bias():
  config = get_config("sort")
  config.temperature.update(kind="fixed", initial=0.7)
  config.bias.kind = "alibi"
  hot = experiments.build(config)
  config.temperature.kind = "none"
  plain = experiments.build(config)
  params = jax.jit(plain.init)(0)
  batch = stress.sample(plain.task, "uniform", jax.random.key(0), 3, 4)
  bias = plain.row_bias({}, batch.tokens.shape[1])
  scores = [
    apply(e, params, batch, bias)[1]["blocks"][0]["self"] for e in (plain, hot)
  ]
  tau = 0.7 * np.log(5)
  np.testing.assert_allclose(
    scores[1]["scores"], tau * scores[0]["scores"], rtol=2e-4, atol=1e-6
  )
  wanted = jax.nn.softmax(tau * scores[0]["scores"] + bias["self"][0], axis=-1)
  np.testing.assert_allclose(scores[1]["weights"], wanted, atol=1e-5)


def test_n_is_stretched_and_jittered_in_training():
  """By s in tests; by 1...s² in training, each example by its own factor."""
  config = get_config("sort")
  config.temperature.update(kind="fixed", initial=0.7)
  plain = experiments.build(config)
  config.temperature.stretch = 10.0
  wide = experiments.build(config)
  params = jax.jit(plain.init)(0)
  batch = stress.sample(plain.task, "uniform", jax.random.key(0), 200, 4)
  bias = plain.row_bias({}, batch.tokens.shape[1])
  key = jax.random.key(1)
  scores = lambda e, *key: np.asarray(
    e.apply(params, batch, bias, "sort", *key)[1]["blocks"][0]["self"]["scores"]
  )
  small = scores(plain)
  np.testing.assert_array_equal(small, scores(plain, key))
  tau = np.log(4 * 10 + 1) / np.log(4 + 1)
  np.testing.assert_allclose(scores(wide), tau * small, rtol=1e-4, atol=1e-6)
  ratio = np.where(abs(small) > 1e-3, scores(wide, key) / small, np.nan)
  low, high = np.nanmin(ratio, (1, 2, 3)), np.nanmax(ratio, (1, 2, 3))
  np.testing.assert_allclose(low, high, rtol=1e-3)
  factor = (np.exp(low * np.log(5)) - 1) / 4  # back from log(n+1)
  assert 0.99 < factor.min() < 1.3 and 75 < factor.max() < 101
  assert 0.35 < np.mean(factor < 10) < 0.65


def test_buckets_of_a_step_are_jittered_apart(monkeypatch):
  """Equal counts of two buckets: other factors, though the step is one."""
  config = get_config("sort")
  config.temperature.update(kind="log_items", stretch=10.0)
  experiment = experiments.build(config)
  params = jax.jit(experiment.init)(0)
  drawn = []
  original = temperature.jittered

  def record(config, sizes, key, batch):
    drawn.append(original(config, sizes, key, batch)["self"] / sizes["self"])
    return original(config, sizes, key, batch)

  monkeypatch.setattr(temperature, "jittered", record)
  for bucket in (0, 1):
    part = Part(bucket, 8)
    batch = experiment.sample(jax.random.key(0), "sort", part)
    bias = experiment.part_bias({}, "sort", part)
    experiment.loss(params, batch, bias, "sort", jax.random.key(1))
  short, long = (np.asarray(factor)[:, 0] for factor in drawn)
  assert abs(short - long).min() > 1e-3


def test_jitter_reaches_every_site():
  config = get_config("addition,vanilla")
  config.model.dropout_rate = 0.0
  config.temperature.update(kind="log_items", stretch=10.0)
  experiment = experiments.build(config)
  params = jax.jit(experiment.init)(0)
  batch = experiment.data.sample(jax.random.key(0), 8, 4)
  bias = experiment.full_biases({}, 4)
  losses = [
    float(experiment.loss(params, batch, bias, "", jax.random.key(i))[0])
    for i in range(2)
  ]
  assert losses[0] != losses[1]
  sizes = temperature.jittered(
    experiment.model.config.temperature, bias["sizes"], jax.random.key(1), 8
  )
  assert set(sizes) == {"self", "cross", "encoder"}
  for site, n in sizes.items():
    ratio = n / bias["sizes"][site]
    assert ratio.shape[0] == 8 and 0.1 <= ratio.min() < 1 < ratio.max() <= 10


# Answers.


@functools.cache
def half_trained(preset="sort"):
  """A model that gets some right and some wrong."""
  loop = trainer(preset)
  state, _ = loop.chunk(loop.init(), 120)
  return loop.experiment, one(state.params)


def free_running(experiment, params, batch, length: int, bound: int):
  """Prompts of sorting and what the model told after them."""
  return decode.complete(
    experiment,
    params,
    {},
    batch.tokens[:, : length + 1],
    length + 1,
    length,
    length,
    head="sort",
    bound=bound,
  )


def test_exact_match_is_that_of_free_running():
  experiment, params = half_trained()
  length = 5
  batch = stress.sample(
    experiment.task, "uniform", jax.random.key(1), 60, length
  )
  exact = np.asarray(evaluate_sequences._hits(experiment, params, {}, batch)[1])
  assert 0 < exact.sum() < 60
  for bound in (2 * length + 1, 32):
    told = np.asarray(free_running(experiment, params, batch, length, bound))
    assert (told[:, : length + 1] == batch.tokens[:, : length + 1]).all()
    out = told[:, length + 1 : 2 * length + 1]
    truth = np.sort(np.asarray(batch.tokens)[:, :length], axis=1)
    assert np.array_equal((out == truth).all(axis=1), exact)


@pytest.mark.parametrize("kind", TEMPERATURES)
def test_free_running_is_teacher_forcing_on_what_was_told(kind):
  """Prompts shorter than the cache; every told token is the argmax of a whole
  pass over the prompt and the tokens before it."""
  config = get_config("sort")
  config.temperature.update(kind=kind, stretch=3.0)
  experiment = experiments.build(config)
  # Soft attention, so that another n would tell other tokens.
  params = jax.tree_util.tree_map_with_path(
    lambda path, x: 0.2 * x if "query" in jax.tree_util.keystr(path) else x,
    random_params(experiment),
  )
  length, bound = 5, 24
  batch = stress.sample(
    experiment.task, "uniform", jax.random.key(1), 200, length
  )
  told = free_running(experiment, params, batch, length, bound)
  told = told[:, : 2 * length + 1]
  again = batch._replace(tokens=told[:, :-1])
  bias = experiment.row_bias({}, 2 * length)
  logits, _ = apply(experiment, params, again, bias)
  assert np.array_equal(logits.argmax(-1)[:, length:], told[:, length + 1 :])
  assert len(set(map(bytes, np.asarray(told)[:, length + 1 :]))) > 3


def test_rows_of_a_length():
  experiment, params = half_trained()
  config = get_config("sort")
  config.eval.update(free_running=True, samples=(40,), lengths=(6,))
  config.eval.update(repeated_items=2, repetitions=(1, 3, 4))
  rows = evaluate_sequences.evaluate_length(
    config, experiment, {}, params, "uniform", 6
  )
  assert [r["metric"] for r in rows] == ["em", "token", "position", "edit"]
  assert len(rows[2]["by_position"]) == 6
  assert rows[3]["value"] == plain_edit_rate(experiment, params, 40, 6)
  assert rows[3]["value"] > 0
  few = config.copy_and_resolve_references()
  few.eval.memory_mb = 1
  again = evaluate_sequences.evaluate_length(
    few, experiment, {}, params, "uniform", 6
  )
  assert again == rows
  rows = evaluate_sequences.evaluate_length(
    config, experiment, {}, params, "repeats", 6
  )
  sets = {row["test_set"] for row in rows}
  assert sets == {"repeats_2x1", "repeats_2x3"}  # 2x4 does not fit 6 items


def plain_edit_rate(experiment, params, samples: int, length: int) -> float:
  """Of the samples of an evaluation, by a plain program on their text."""
  key = jax.random.fold_in(rng.stream(0, "eval"), length)
  batch = stress.sample(experiment.task, "uniform", key, samples, length)
  prompts = np.asarray(batch.tokens)[:, :length].tolist()
  predictor = predict.PromptPredictor(experiment, {}, params)
  told = predictor.answers([" ".join(map(str, prompt)) for prompt in prompts])
  assert not any(answer.startswith("error") for answer in told)
  distances = [
    plain_edit_distance(list(map(int, answer.split())), sorted(prompt))
    for answer, prompt in zip(told, prompts, strict=True)
  ]
  return sum(distances) / (samples * length)


def test_numbers_to_test_increment_on():
  task = make("increment")
  for name in ("uniform", "nines"):
    batch = stress.sample(task, name, jax.random.key(0), 300, 6)
    digits = np.asarray(batch.tokens)[:, :6] - 1
    if name == "nines":
      runs = {
        len(str(row)) - len(str(row).rstrip("9")) for row in as_int(digits)
      }
      assert runs >= set(range(1, 7))
    else:
      assert set(digits[:, 0]) == set(range(1, 10))
      assert set(digits[:, 1:].ravel()) == set(range(10))


def as_int(digits_BxL) -> list[int]:
  return [int("".join(map(str, row))) for row in digits_BxL]


def test_prompts_beyond_memory_are_refused_alone(monkeypatch):
  experiment, params = half_trained()
  predictor = predict.PromptPredictor(experiment, {}, params)
  texts = ["5 3 1 3", "1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1", "2 1"]
  whole = predictor.answers(texts)
  monkeypatch.setattr(predict, "MEMORY", 3 * 4 * 2 * 32**2)  # 32 rows at once
  one_by_one = predictor.answers(texts)
  assert one_by_one[0] == whole[0] and one_by_one[2] == whole[2]
  assert one_by_one[1].startswith("error: 16 items are too many")

  sizes = []

  def record(*arguments, **named):
    sizes.append(len(arguments[3]))
    return original(*arguments, **named)

  original = decode.complete
  monkeypatch.setattr(decode, "complete", record)
  monkeypatch.setattr(predict, "MEMORY", 3 * 3 * 4 * 2 * 16**2)
  assert predictor.answers(["2 1"] * 5) == [whole[2]] * 5
  assert sizes == [2, 2, 1]


@pytest.mark.parametrize("name", ("sorted", "reversed", "all_equal", "repeats"))
def test_stress_sets_are_what_they_say(name):
  task = make("sort")
  how = (3, 2) if name == "repeats" else ()
  batch = stress.sample(task, name, jax.random.key(0), 20, 8, how)
  for row in np.asarray(batch.tokens)[:, :8].tolist():
    if name == "sorted":
      assert row == sorted(row)
    elif name == "reversed":
      assert row == sorted(row)[::-1]
    elif name == "all_equal":
      assert len(set(row)) == 1
    else:
      counts = collections.Counter(row).values()
      assert sum(n >= 2 for n in counts) >= 3


def test_what_a_person_types():
  sort, increment = make("sort"), make("increment")
  assert sort.parse(" 5 3  9 3") == [5, 3, 9, 3]
  assert sort.render([3, 3, 5]) == "3 3 5"
  assert increment.render(np.array(increment.parse("1999"))[::-1]) == "1999"
  assert increment.render([1, 1]) == "0"
  for task, text in (
    (sort, ""),
    (sort, "5 x"),
    (sort, "0"),
    (sort, "10"),
    (sort, "-1"),
    (sort, "²"),
    (sort, "1" * 5000),
    (sort, "0" * 5000),
    (increment, "12a"),
    (increment, ""),
  ):
    with pytest.raises(ValueError, match=f"{task.name} takes"):
      task.parse(text)
  assert sort.parse("0" * 5000 + "7") == [7]
  with pytest.raises(ValueError, match="no item"):
    sort.render([0])
  with pytest.raises(ValueError, match="no digit"):
    increment.render([12])


def plain_edit_distance(a, b) -> int:
  table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
  for i in range(len(a) + 1):
    for j in range(len(b) + 1):
      if not i or not j:
        table[i][j] = i + j
      else:
        table[i][j] = min(
          table[i - 1][j] + 1,
          table[i][j - 1] + 1,
          table[i - 1][j - 1] + (a[i - 1] != b[j - 1]),
        )
  return table[-1][-1]


def test_edit_distance_against_a_plain_program():
  random = np.random.default_rng(0)
  for _ in range(50):
    a, b = (random.integers(0, 3, random.integers(0, 9)) for _ in range(2))
    assert metrics.edit_distance(a, b) == plain_edit_distance(a, b)


BAD = {
  "hints=('succesor',)": ("hints", ("succesor",), "successor"),
  "hint twice": ("hints", ("fill", "fill"), "once"),
  "weights": ("mixing.weights", (0.0, 0.0), "above zero"),
  "a weight": ("mixing.weights", (1.0, 0.0), "leave a hint out"),
  "no number": ("mixing.weights", ("a", 1), "above zero"),
  "a bucket left out": ("mixing.weights", (31, 1), "too few for every bucket"),
  "weight missing": ("mixing.weights", (1.0,), "sort_fill"),
  "size": ("sequences.size", 63, "at least 64"),
  "too many": ("sequences.size", 1 << 31, "below 2147483648"),
  "letters": ("sequences.alphabet", 1 << 17, "at most 65536"),
  "gap": ("sequences.count_gap", 1, "at least 2"),
  "ties": ("sequences.count_ties", 1.5, "[0, 1]"),
  "width": ("data.width", "fixed", "choose 'natural'"),
  "aligned": ("data.aligned", True, "choose False"),
  "stride": ("bias.stride", 2, "choose 0"),
  "buckets": ("sequences.buckets", (5, 9), "data.train_length"),
  "alphabet": ("sequences.alphabet", 1, "at least 2"),
  "share": ("sequences.short_share", 1.5, "[0, 1]"),
  "shortest": ("sequences.shortest", 9, "shortest <= short_longest"),
  "encoder": ("model.num_encoder_layers", 1, "decoder only"),
  "table": ("positions.kind", "learned", "positions.table"),
  "test set": ("eval.test_sets", ("equal",), "uniform"),
  "no room": ("eval.repetitions", (9,), "fit none of eval.lengths=(4, 8)"),
  "no repetition": ("eval.repetitions", (), "like (1, 2)"),
  "items": ("eval.repeated_items", 6, "sequences.alphabet=5"),
  "temperature": ("temperature.kind", "hot", "log_items"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_configs_are_refused_in_one_line(case):
  field, value, words = BAD[case]
  config = get_config("sort,fill")
  config.mixing.kind = "weighted" if "mixing" in field else "alternate"
  config.positions.table = 8
  config.eval.test_sets = ("uniform", "repeats")
  with config.unlocked():
    config.update_from_flattened_dict({field: value})
  with pytest.raises(UsageError) as error:
    experiments.build(config)
  assert words in str(error.value) and "\n" not in str(error.value)


def test_arithmetic_has_no_hints():
  config = get_config("addition,vanilla")
  config.hints = ("successor",)
  with pytest.raises(UsageError, match="tasks with hints are sort, increment"):
    experiments.build(config)


def test_streams_of_heads_differ():
  experiment = trainer().experiment
  key = rng.stream(0, "data")
  main = experiment.sample(key, "sort", Part(0, 8))
  hint = experiment.sample(key, "sort_fill", Part(0, 8))
  assert not np.array_equal(main.tokens[:, :2], hint.tokens[:, :2])
