"""Lengths, gradient steps, data sets and test batches; what is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import plain_tasks as plain
import presets
import pytest
from command import refuses
from tiny import get_config

from lengthgen_jax.config.build import build
from lengthgen_jax.coordinates import PAD
from lengthgen_jax.tasks import TASKS, dataset, packing
from lengthgen_jax.tasks.dataset import Dataset, Lengths, step_specs

# Lengths.

SKEWED = Lengths(2, 5, 20, 0.8, (5, 20))
EVEN = Lengths(1, 5, 20, 0.5, (3, 10, 20))


def test_lengths_are_drawn_by_their_probability():
  numbers = (np.arange(20000) + 0.5) / 20000
  for lengths, bucket, ranges in (
    (SKEWED, 0, {(2, 5): 1.0}),
    (SKEWED, 1, {(6, 20): 1.0}),
    (EVEN, 1, {(4, 5): 6 / 11, (6, 10): 5 / 11}),  # 2/10 and 5/30 of all
  ):
    drawn = lengths.draw(jnp.asarray(numbers), bucket)
    expected = np.zeros(21)
    for (first, last), share in ranges.items():
      expected[first : last + 1] = share / (last + 1 - first)
    shares = np.bincount(drawn, minlength=21) / 20000
    np.testing.assert_allclose(shares, expected, atol=1e-3)


# Gradient steps of a cycle.

HEADS = ("sort", "sort_successor", "sort_fill")
LENGTHS_OF = dict.fromkeys(HEADS, SKEWED)


def counts(share) -> list[int]:
  return [part.count for part in share.parts]


def test_steps_are_of_one_head_in_turn_or_of_shares():
  steps = step_specs(LENGTHS_OF, 32, "alternate", ())
  whole = (0, 26), (1, 6)  # the batch, in its buckets
  assert steps == tuple(((head, 1.0, whole),) for head in HEADS)
  (step,) = step_specs(LENGTHS_OF, 100, "weighted", (3.0, 1.0, 1.0))
  assert [share.head for share in step] == [*HEADS]
  np.testing.assert_allclose([s.weight for s in step], [0.6, 0.2, 0.2])
  assert list(map(counts, step)) == [[48, 12], [16, 4], [16, 4]]
  (equal,) = step_specs(LENGTHS_OF, 99, "weighted", ())
  assert [sum(counts(share)) for share in equal] == [33, 33, 33]


BAD_WEIGHTS = [
  ("alternate", (1.0, 1.0, 1.0), "mixing.kind=weighted"),
  ("weighted", (1.0, 1.0, 0.0), "leave a hint out"),
  ("weighted", (1.0, 1.0), "sort_fill"),
  ("weighted", (30, 1, 1), "too few for every bucket"),
]


@pytest.mark.parametrize("kind, weights, words", BAD_WEIGHTS)
def test_bad_weights_are_refused_in_one_line(kind, weights, words):
  with refuses(words, "mixing.weights"):
    step_specs(LENGTHS_OF, 32, kind, weights)


# Data sets. Equal sets, counts and buckets share a compilation.

COUNT, INDEX = 500, jnp.arange(500)
KEY = jax.random.key(0)


def sorting_set(name="sort", size=0, seed=0, lengths=SKEWED):
  hint = plain.HINT_KINDS.get(name, (None,))[0]
  task = plain.make_task(hint or TASKS[name], repeat_share=0.0)
  args = lengths, (), False, "lengths", size, seed
  return Dataset(task, "decoder_only", *args)


def number_set(name="addition", last=5, **fields):
  task = plain.make_task(TASKS[name])
  args = Lengths(1, last, last, 0.8, (last,)), (22,), False, "lengths", 0, 0
  usual = Dataset(task, "encoder_decoder", *args)
  return dataclasses.replace(usual, **fields)


def prompts(batch) -> set[bytes]:
  return set(map(bytes, np.asarray(batch.inputs)))


def values(task, batch) -> list[tuple[int, ...]]:
  """Python integers that the sources spell."""
  texts = map(task.decode, np.asarray(batch.source))
  operands = (plain.operand_texts(text.rstrip("@")) for text in texts)
  return [tuple(int(text, task.base) for text in texts) for texts in operands]


def test_an_example_has_an_address_whatever_the_batch_is():
  index = [63, 3, 0]
  for data, bucket in ((sorting_set(), 1), (number_set(), 0)):
    whole = data.examples(INDEX, bucket)
    part = data.examples(jnp.array(index), bucket)
    names = ["inputs", "target", "weight", "prompt_length", "first_scored"]
    names += ["source"] * (whole.source is not None)
    for name in names:
      expected = np.asarray(getattr(whole, name))[index]
      assert np.array_equal(getattr(part, name), expected)


def test_an_address_names_seed_task_bucket_and_stream():
  """And addresses are drawn endlessly, by a key alone."""
  data, other, key = sorting_set(), sorting_set(seed=1), jax.random.key(1)
  streams = [data.examples(INDEX, 1), other.examples(INDEX, 1)]
  streams += [data.sample(x, COUNT, 1) for x in (KEY, key)]
  streams.append(data.sample(KEY, COUNT, 1, held_out=True))
  streams = [*map(prompts, streams)]
  assert all(len(stream) > COUNT - 10 for stream in streams)
  assert len(set().union(*streams)) == sum(map(len, streams))
  # Two hints that draw alike, two buckets of one length: others.
  hints = [sorting_set(f"sort_{n}") for n in ("successor", "predecessor")]
  halves = sorting_set(lengths=Lengths(2, 5, 5, 0.8, (3, 5)))
  for pair in (
    [hint.examples(INDEX, 0) for hint in hints],
    [halves.examples(INDEX, bucket) for bucket in (0, 1)],
  ):
    a, b = (np.asarray(batch.inputs)[:, :2] for batch in pair)
    assert not np.array_equal(a, b)


def test_a_finite_set_has_no_more_examples_than_its_share():
  data = sorting_set(size=20)
  batch = data.sample(KEY, COUNT, 1)
  assert prompts(batch) == prompts(data.examples(jnp.arange(4), 1))
  times = np.unique(np.asarray(batch.inputs), axis=0, return_counts=True)[1]
  assert len(times) == 4 and times.min() > 0.18 * COUNT  # uniform


def test_widths_are_taken_in_turn_and_examples_padded_to_the_widest():
  data = number_set(size=1000, widths=(7, 9))
  sizes = data.task.prompt_size, data.task.output_size
  before = Dataset.examples._cache_size()
  numbers = []
  for width_index, width in enumerate((7, 9, 7, 9)):
    batch = data.examples(jnp.arange(16), 0, jnp.int32(width_index))
    assert batch.source.shape == (16, sizes[0](9))
    assert batch.target.shape == (16, sizes[1](9))
    assert (batch.prompt_length == sizes[0](width)).all()
    assert (batch.weight.sum(axis=1) == sizes[1](width)).all()
    numbers.append(values(data.task, batch))
  # One program for all widths.
  assert Dataset.examples._cache_size() == before + 1
  assert numbers[0] == numbers[1]  # an example is the same at every width


@pytest.mark.parametrize("name", ("addition", "multiply"))
def test_a_natural_width_is_that_of_the_longest_operand(name):
  task = plain.make_task(TASKS[name])
  widths = tuple(range(1 + task.slack, 5 + task.slack))
  data = number_set(name, 4, widths=widths, natural=True)
  for width_index, width in enumerate(widths):
    batch = data.sample(KEY, 512, 0, jnp.int32(width_index))
    assert (batch.prompt_length == task.prompt_size(width)).all()
    # Numbers of all operands, whose leading digits may be zeros.
    numbers = np.array(values(task, batch)).reshape(512, -1)
    longest = numbers[:, task.long_operands].max(axis=1)
    assert (longest < task.base ** (width - task.slack)).all()
    assert np.mean(longest >= task.base ** (width - task.slack - 1)) > 0.4
    if name == "addition":  # each operand is the longer one as often
      assert 0.3 < np.mean(numbers[:, 0] > numbers[:, 1]) < 0.7
    if name == "multiply":
      assert (numbers[:, 1] < 10).all()


# The papers' numbers.


def test_training_and_validation_numbers_are_disjoint():
  assert dataset.NUM_TRAIN * 8 == dataset.POPULATION * 7
  train = set(dataset.permutation(3)[: dataset.NUM_TRAIN].tolist())
  data = number_set(numbers="permutation", seed=3)
  for held_out in (False, True):
    batch = data.sample(jax.random.key(1), COUNT, 0, held_out=held_out)
    numbers = np.array(values(data.task, batch))
    assert {x in train for x in numbers.ravel().tolist()} == {not held_out}
    # Numbers of all sizes below 2^20, not a corner of them.
    shares = np.quantile(numbers[:, 0], (0.0, 0.5, 1.0)) / 2**20
    np.testing.assert_allclose(shares, (0.0, 0.5, 1.0), atol=0.1)


# Uniform.


def check_counts(counts, expected):
  """Counts are within four standard deviations of what is expected."""
  counts, expected = np.asarray(counts), np.asarray(expected)
  assert (abs(counts - expected) < 4 * np.sqrt(expected) + 1).all()


def test_digits_and_lengths_of_operands_are_uniform_and_independent():
  data, count = number_set(last=3), 6000
  drawn = np.array(values(data.task, data.sample(KEY, count, 0)))
  # A number drawn with n digits may have a leading 0.
  probability = [
    sum((10**n - 10 ** (n - 1) + (n == 1)) / 10**m for m in range(n, 4)) / 3
    for n in (1, 2, 3)
  ]
  for operand in (0, 1):
    last_digits = np.bincount(drawn[:, operand] % 10, minlength=10)
    check_counts(last_digits, np.full(10, count / 10))
    sizes = np.bincount([len(str(x)) for x in drawn[:, operand]])[1:]
    check_counts(sizes, count * np.array(probability))
  assert abs(np.corrcoef(drawn.T)[0, 1]) < 4 / np.sqrt(count)
  assert abs(np.corrcoef(np.log(drawn.T + 1))[0, 1]) < 4 / np.sqrt(count)


# Tests.


def test_a_test_example_is_a_function_of_seed_length_and_index():
  experiment = build(get_config("sort"))
  make_batch = lambda *args: experiment.test_batch("uniform", *args, {})
  whole = make_batch(0, np.arange(16), 9)
  part = make_batch(0, [7, 0, 7], 9)
  for name in ("inputs", "target", "weight", "prompt_length"):
    expected = np.asarray(getattr(whole, name))[[7, 0, 7]]
    assert np.array_equal(getattr(part, name), expected)
  assert len(prompts(whole)) == 16
  assert not prompts(make_batch(1, np.arange(16), 9)) & prompts(whole)
  items = np.asarray(whole.inputs)[:, :9]
  shorter = np.asarray(make_batch(0, np.arange(16), 8).inputs)[:, :8]
  assert not np.array_equal(items[:, :8], shorter)
  assert (np.sort(items) == np.asarray(whole.target)[:, 9:18]).all()


# From a config.


def test_a_config_becomes_steps():
  config = get_config("sort,successor,fill")
  experiment = build(config)
  assert [step[0].head for step in experiment.step_specs] == [*HEADS]
  assert [share.head for share in experiment.validation] == [*HEADS]
  assert {sum(counts(share)) for share in experiment.validation} == {64}
  config.mixing.update(kind="weighted", weights=(2.0, 1.0, 1.0))
  ((main, *_),) = build(config).step_specs
  assert (main.weight, sum(counts(main))) == (0.5, 16)
  # Hints may have a length of their own, with a bucket more.
  config.mixing.hint_length = 9
  data = build(config).data
  assert [x.lengths.buckets for x in data] == [(3, 6), (3, 6, 9), (3, 6, 9)]
  inputs = data[1].sample(jax.random.key(0), 99, 2).inputs
  delimiters = inputs == data[1].task.delimiter
  assert {*np.argmax(delimiters, axis=1).tolist()} == {7, 8, 9}
  config.mixing.hint_length = 30
  config.positions.update(kind="learned", table=20)
  with refuses("sort_successor"):
    build(config)
  config.positions.update(kind="none", table=512)
  config.mixing.hint_length = 0
  config.data.size = 100  # split over the tasks
  assert [data.size for data in build(config).data] == [34, 33, 33]


def test_hints_of_padded_tasks_take_their_own_widths_in_turn():
  config = presets.adding.get_config("both,longer")
  config.mixing.hint_length = 20
  experiment = build(config)
  assert experiment.width_counts == (16, 20, 20)
  for index in (3, 18):
    for data, count in zip(experiment.data, (16, 20, 20), strict=True):
      width = 1 + index % count + data.task.slack
      part = dataset.Part(0, 4)
      batch = experiment.sample(jax.random.key(0), data.name, part, index)
      assert (batch.prompt_length == 2 * (1 + width)).all()
  for config.mixing.hint_length in (16, 9):
    with refuses("mixing.hint_length", "16"):
      build(config)


@pytest.mark.parametrize("preset", ["reversing", "sorting"])
def test_a_restriction_keeps_what_its_output_depends_on(preset):
  config = getattr(presets, preset).get_config("restricted,longer")
  experiment = build(config)
  main, restricted = experiment.data
  assert experiment.model.output_heads == (main.name,)
  batch = jax.tree.map(
    np.asarray, restricted.examples(jnp.arange(200, dtype=jnp.uint32), 0)
  )
  # A part of a batch, as a microbatch is, has its examples whole.
  part = packing.map_examples(lambda x: x[:3], batch)
  fewer = restricted.examples(jnp.arange(3, dtype=jnp.uint32), 0)
  jax.tree.map(np.testing.assert_array_equal, part, fewer)
  # As many inputs as 20 items and their output have, one of which is scored.
  assert batch.inputs.shape == (200, 40)
  assert {*batch.weight.sum(axis=1).tolist()} <= {0, 1}
  assert batch.weight.mean() > 0.9 / 40
  for i, row in zip(*batch.weight.nonzero(), strict=True):
    index, tokens = batch.places.index[i], batch.inputs[i]
    assert (np.diff(index) > 0).all() and index[row] <= 2 * 60 - 1
    assert (batch.keys.segment[i][row + 1 :] == PAD).all()
    prompt = tokens[: batch.prompt_length[i]]
    delimiter = index[batch.prompt_length[i]]
    assert tokens[batch.prompt_length[i]] == main.task.delimiter
    assert 21 <= delimiter <= 60
    answer = batch.target[i, row]
    if preset == "reversing":
      place = 2 * delimiter - 1 - index[row]
      assert prompt[index[: len(prompt)] == place] == answer
    else:  # the least item that is not written yet
      last = tokens[row] if index[row] > delimiter else 0
      written = np.sum(tokens[len(prompt) + 1 : row + 1] == last)
      is_left = last if np.sum(prompt == last) > written else 0
      assert answer == (is_left or prompt[prompt > last].min())


LONGER = {"mixing.hint_length": 9}
NOT_RESTRICTED = [
  ("increment", LONGER, ["increment", "sort, copy, reverse"]),
  ("sort", {}, ["mixing.hint_length"]),
  ("sort", LONGER | {"positions.kind": "alibi"}, ["kind='alibi'", "rope"]),
  ("sort", LONGER | {"bias.kind": "window"}, ["kind='window'", "none"]),
]


@pytest.mark.parametrize(("preset", "changes", "words"), NOT_RESTRICTED)
def test_what_cannot_be_restricted_is_refused(preset, changes, words):
  config = get_config(preset)
  config.hints = ("restricted",)
  config.update_from_flattened_dict(changes)
  with refuses(*words):
    build(config)
