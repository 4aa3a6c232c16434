"""Lengths, data sets and test batches: which examples there are."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import plain_tasks as plain
import pytest
from presets import sorting

from lengthgen_jax.config import default_config
from lengthgen_jax.config.build import build
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import TASKS, dataset, packing
from lengthgen_jax.tasks.dataset import Dataset, Lengths, split
from lengthgen_jax.tasks.mixing import Part
from lengthgen_jax.tasks.task import Size

# Lengths.

SKEWED = Lengths(2, 5, 20, 0.8, (5, 20))
UNIFORM = Lengths(1, 3, 3, 0.8, (3,))  # nothing beyond the short ones


def test_short_lengths_have_their_share_of_the_mass():
  chance = SKEWED.probability
  np.testing.assert_allclose(chance[:2], 0)
  np.testing.assert_allclose(chance[2:6], 0.2)
  np.testing.assert_allclose(chance[6:], 0.2 / 15)
  np.testing.assert_allclose(UNIFORM.probability, [0, 1 / 3, 1 / 3, 1 / 3])


def test_buckets_divide_lengths_and_have_their_exact_share():
  assert [SKEWED.bucket_range(bucket) for bucket in (0, 1)] == [(2, 5), (6, 20)]
  assert SKEWED.bucket_counts(256) == [205, 51]
  assert SKEWED.bucket_counts(20) == [16, 4]
  across = Lengths(1, 5, 20, 0.5, (3, 10, 20))
  assert across.bucket_counts(300) == [90, 110, 100]
  assert UNIFORM.bucket_counts(7) == [7]


def test_lengths_are_drawn_by_their_probability():
  uniform = (np.arange(20000) + 0.5) / 20000
  for lengths in (SKEWED, Lengths(1, 5, 20, 0.5, (3, 10, 20))):
    for bucket in range(len(lengths.buckets)):
      first, last = lengths.bucket_range(bucket)
      draw = jax.vmap(lambda x, b=bucket, own=lengths: own.draw(x, b))
      found = np.bincount(draw(uniform), minlength=21) / 20000
      chance = np.zeros(21)
      chance[first : last + 1] = lengths.probability[first : last + 1]
      np.testing.assert_allclose(found, chance / chance.sum(), atol=1e-3)


@pytest.mark.parametrize("total", (0, 1, 7, 100, 12345))
def test_split_is_whole_and_in_proportion(total):
  for mass in ([0.5, 0.3, 0.2], [5, 3, 2], [1.0] * 7):
    parts = split(total, mass)
    assert sum(parts) == total and all(isinstance(n, int) for n in parts)
    wanted = np.array(mass) / np.sum(mass) * total
    assert (abs(parts - wanted) < 1.0).all()


# Data sets. Equal sets, counts and buckets share a compilation.

COUNT, KEY = 500, jax.random.key(0)


def data_set(name="sort", kind="decoder_only", size=0, seed=0, **fields):
  kind_of_task = TASKS.get(name) or plain.HINT_KINDS[name][0]
  plainly = {"repeat_share": 0.0} if name.startswith("sort") else {}
  task = plain.make_task(kind_of_task, **plainly)
  options = {"lengths": SKEWED, "widths": (), "numbers": "lengths"} | fields
  return Dataset(task=task, kind=kind, size=size, seed=seed, **options)


def addition(numbers="lengths", size=0, seed=0, widths=(22,)):
  lengths = dataclasses.replace(SKEWED, shortest=1, longest=5, buckets=(5,))
  return data_set(
    "addition",
    "encoder_decoder",
    size,
    seed,
    lengths=lengths,
    widths=widths,
    numbers=numbers,
  )


def same(a, b) -> bool:
  return all(map(np.array_equal, jax.tree.leaves(a), jax.tree.leaves(b)))


def prompts(batch) -> list[bytes]:
  return list(map(bytes, np.asarray(batch.inputs)))


def test_an_example_has_an_address_whatever_the_batch_is():
  index = [63, 3, 0]
  for own, bucket in ((data_set(), 1), (addition(), 0)):
    whole = own.examples(jnp.arange(COUNT), bucket)
    part = own.examples(jnp.array(index), bucket)
    for name in (
      *("inputs", "target", "weight", "source"),
      *("prompt_length", "first_scored"),
    ):
      if getattr(whole, name) is not None:
        wanted = np.asarray(getattr(whole, name))[index]
        assert np.array_equal(getattr(part, name), wanted)
    assert len(set(prompts(whole))) > 0.9 * COUNT


def test_an_address_names_seed_task_bucket_and_stream():
  index = jnp.arange(COUNT)
  first = data_set().examples(index, 1)
  assert same(first, data_set().examples(index, 1))
  assert not same(first, data_set(seed=1).examples(index, 1))
  held_out = data_set().examples(index, 1, 0, "held_out")
  assert not set(prompts(first)) & set(prompts(held_out))
  # Two hints that draw alike, two buckets of one length: others.
  hints = [data_set(f"sort_{n}") for n in ("successor", "predecessor")]
  a, b = (np.asarray(own.examples(index, 0).inputs)[:, :2] for own in hints)
  assert not np.array_equal(a, b)
  halves = Lengths(2, 5, 5, 0.8, (3, 5))
  own = data_set(lengths=halves)
  a, b = (
    np.asarray(own.examples(index, bucket).inputs)[:, :2] for bucket in (0, 1)
  )
  assert not np.array_equal(a, b)


def test_examples_of_a_bucket_have_its_lengths():
  for bucket, (first, last) in enumerate([(2, 5), (6, 20)]):
    batch = data_set().examples(jnp.arange(COUNT), bucket)
    assert set(batch.prompt_length.tolist()) == set(range(first, last + 1))
    assert batch.inputs.shape == (COUNT, 2 * last)  # padded to the bucket


def test_a_finite_set_has_no_more_examples_than_its_share():
  own = data_set(size=20)
  assert [own.lengths.bucket_counts(own.size)[bucket] for bucket in (0, 1)] == [
    16,
    4,
  ]
  batch = own.sample(KEY, COUNT, 1)
  seen = set(prompts(batch))
  everything = prompts(own.examples(jnp.arange(COUNT), 1))
  assert seen == set(everything[:4]) and len(seen) == 4
  times = np.unique(prompts(batch), return_counts=True)[1]
  assert times.min() > 0.18 * COUNT  # uniform
  # Held-out examples are endless, and none of the set.
  held_out = set(
    prompts(own.sample(jax.random.key(0), COUNT, 1, held_out=True))
  )
  assert len(held_out) > COUNT - 10 and not held_out & seen


def test_an_endless_stream_repeats_nothing():
  own = data_set()
  assert own.size == 0
  seen = set(prompts(own.sample(jax.random.key(0), COUNT, 1)))
  held_out = set(
    prompts(own.sample(jax.random.key(0), COUNT, 1, held_out=True))
  )
  assert (
    len(seen) > COUNT - 10
    and len(held_out) > COUNT - 10
    and not seen & held_out
  )


def test_draws_are_a_function_of_the_key():
  for own in (data_set(), data_set(size=20)):
    first, again, other = (
      own.sample(jax.random.key(seed), COUNT, 1) for seed in (1, 1, 2)
    )
    assert same(first, again) and not same(first, other)


def test_widths_are_taken_in_turn_and_examples_padded_to_the_widest():
  own = addition(size=1000, widths=(7, 9))
  before = Dataset.examples._cache_size()
  numbers = []
  for width_index, width in enumerate((7, 9, 7, 9)):
    batch = own.examples(jnp.arange(16), 0, jnp.int32(width_index))
    assert batch.source.shape == (16, own.task.prompt_size(9))
    assert batch.target.shape == (16, own.task.output_size(9))
    assert (batch.prompt_length == own.task.prompt_size(width)).all()
    assert (batch.weight.sum(axis=1) == own.task.output_size(width)).all()
    numbers.append(values(own.task, batch))
  assert (
    Dataset.examples._cache_size() == before + 1
  )  # one program for all widths
  assert numbers[0] == numbers[1]  # an example is the same at every width
  direct = own.sample(jax.random.key(0), 4, 0, jnp.int32(1))
  assert (direct.prompt_length == own.task.prompt_size(9)).all()


def values(task, batch) -> list[tuple[int, ...]]:
  """Python integers that the sources spell."""
  texts = map(task.vocabulary.decode, np.asarray(batch.source))
  texts = (plain.operand_texts(t.rstrip("@")) for t in texts)
  return [tuple(int(x, task.base) for x in own) for own in texts]


# The papers' numbers.


@pytest.mark.parametrize("seed", (0, 7))
def test_permutation_is_a_bijection(seed):
  everything = jnp.arange(dataset.POPULATION)
  image = np.asarray(dataset.permuted(everything, seed))
  assert image.dtype == np.int32
  assert np.array_equal(np.sort(image), everything)
  assert np.mean(image == everything) < 1e-4
  other = np.asarray(dataset.permuted(everything[:1000], seed + 1))
  assert np.mean(other == image[:1000]) < 0.01


@pytest.mark.parametrize("name", ("addition", "parity"))
def test_training_and_validation_numbers_are_disjoint(name):
  assert dataset.TRAIN_SHARE * 8 == dataset.POPULATION * 7
  train = np.asarray(dataset.permuted(jnp.arange(dataset.TRAIN_SHARE), 3))
  allowed = set(train.tolist())
  own = dataclasses.replace(
    addition("permutation", seed=3), task=plain.make_task(TASKS[name])
  )
  for held_out in (False, True):
    batch = own.sample(jax.random.key(1), COUNT, 0, held_out=held_out)
    found = values(own.task, batch)
    for numbers in found:
      assert {value in allowed for value in numbers} == {not held_out}
    first = np.array([numbers[0] for numbers in found])
    # Numbers of all sizes below 2^20, not a corner of them.
    assert first.max() > 0.9 * 2**20 and first.min() < 0.1 * 2**20
    assert abs(first.mean() / 2**19 - 1) < 0.1
    answer = plain.ANSWERS[name]
    for source, target in zip(batch.source, batch.target, strict=True):
      text = own.task.vocabulary.decode(source)
      told = own.task.vocabulary.decode(target)
      assert told == answer(*plain.operand_texts(text)) + "&"


def test_the_single_digit_of_a_product_is_no_number_of_the_set():
  task = TASKS["multiply"]()
  size = Size(jnp.array([0, 0]), jnp.int32(8), 9)
  make = lambda value, number: task.from_values(
    value[None].repeat(2), number[None], size, dataset.POPULATION
  )
  numbers = np.arange(20) * 50_000, (np.arange(20) + 0.5) / 20
  found = jax.jit(jax.vmap(make))(*map(jnp.asarray, numbers))
  for i in range(20):
    prompt, _, output = plain.split_example(found, i)
    text = task.vocabulary.decode(prompt)
    assert text == f"${i * 50_000:08}*{i // 2}"
    assert task.symbols(output) == plain.plain_answer(task, prompt)


# Uniform.


def uniform(counts, wanted) -> bool:
  """Whether counts are within four standard deviations of what is wanted."""
  counts, wanted = np.asarray(counts), np.asarray(wanted)
  return bool((abs(counts - wanted) < 4 * np.sqrt(wanted) + 1).all())


def test_items_and_lengths_are_uniform():
  parts = [data_set().sample(jax.random.key(i), COUNT, 1) for i in range(8)]
  lengths, items = (
    np.concatenate([np.asarray(getattr(part, name)) for part in parts])
    for name in ("prompt_length", "inputs")
  )
  many = 8 * COUNT
  assert uniform(np.bincount(lengths)[6:], np.full(15, many / 15))
  for place in (0, 5):
    found = np.bincount(items[:, place])[1:]
    assert uniform(found, np.full(9, many / 9))


def test_digits_and_lengths_of_operands_are_uniform_and_independent():
  own = addition()
  own = dataclasses.replace(own, lengths=UNIFORM)
  count = 6000
  drawn = np.array(values(own.task, own.sample(jax.random.key(0), count, 0)))
  for operand in (0, 1):
    last = np.bincount(drawn[:, operand] % 10, minlength=10)
    assert uniform(last, np.full(10, count / 10))
    # A number drawn with n digits may have a leading 0.
    size = np.bincount([len(str(x)) for x in drawn[:, operand]])[1:]
    chance = [
      sum((10**n - 10 ** (n - 1) + (n == 1)) / 10**m for m in range(n, 4)) / 3
      for n in (1, 2, 3)
    ]
    assert uniform(size, count * np.array(chance))
  assert abs(np.corrcoef(drawn.T)[0, 1]) < 4 / np.sqrt(count)
  assert abs(np.corrcoef(np.log(drawn.T + 1))[0, 1]) < 4 / np.sqrt(count)


# Tests.


@functools.cache
def experiment(preset="successor,fill") -> Experiment:
  """Never trained."""
  config = sorting.get_config("all")
  config.hints = tuple(preset.split(","))
  config.train.batch_size = 32
  return build(config)


def test_a_test_example_is_a_function_of_seed_length_and_index():
  make = lambda seed, index, length: experiment().test_batch(
    "uniform", seed, index, length, {}
  )
  whole = make(0, np.arange(16), 9)
  part = make(0, [7, 0, 7], 9)
  for name in ("inputs", "target", "weight", "prompt_length"):
    wanted = np.asarray(getattr(whole, name))[[7, 0, 7]]
    assert np.array_equal(getattr(part, name), wanted)
  assert len(set(prompts(whole))) == 16
  assert not set(prompts(make(1, np.arange(16), 9))) & set(prompts(whole))
  items = np.asarray(whole.inputs)[:, :9]
  shorter = np.asarray(make(0, np.arange(16), 8).inputs)[:, :8]
  assert not np.array_equal(items[:, :8], shorter)
  assert (np.sort(items) == np.asarray(whole.target)[:, 9:18]).all()


def test_a_test_batch_serves_all_lengths_below_a_bound():
  before = dataset.test_batch._cache_size()
  for length in (2, 30, 64):
    experiment().test_batch("uniform", 0, np.arange(16), length, {})
  assert dataset.test_batch._cache_size() <= before + 1


@pytest.mark.parametrize("kind", packing.KINDS)
def test_typed_texts_of_different_lengths_share_a_batch(kind):
  for name, texts in (
    ("addition", ["1+2", "110+20", "7+99"]),
    ("sort", ["3 1 2", "5", "9 8 9 8"]),
  ):
    task = plain.make_task(TASKS[name])
    parsed = list(map(task.parse, texts))
    batch = dataset.typed_batch(task, kind, parsed, 4, 6)
    for row, text in zip(range(3), texts, strict=True):
      told = np.asarray(batch.target)[row][np.asarray(batch.weight[row]) > 0]
      given = batch.source if kind == "encoder_decoder" else batch.inputs
      prompt = np.asarray(given)[row][: int(batch.prompt_length[row])].tolist()
      assert task.symbols(told) == list(plain.plain_answer(task, prompt))
      found = plain.input_text(task, prompt)
      if name == "addition":
        found = "+".join(str(int(x)) for x in found.split("+"))
      assert found == text


# Streams of a run.


class Recorder:
  """A data set that notes the keys it is asked with."""

  def __init__(self, name, keys):
    self.task = type("Task", (), {"name": name})
    self.keys = keys

  def sample(self, key, count, bucket, width_index, held_out):
    self.keys.append((tuple(jax.random.key_data(key).tolist()), count, bucket))
    return width_index, held_out


def test_heads_and_buckets_have_streams_of_their_own():
  keys = []
  own = dataclasses.replace(
    experiment(), data=tuple(Recorder(name, keys) for name in "abc")
  )
  for head in "abc":
    for bucket in (0, 1):
      part = Part(bucket, 8)
      assert own.sample(jax.random.key(0), head, part, 5, True) == (5, True)
  assert len({key for key, _, _ in keys}) == 6
  assert [rest for _, *rest in keys] == [[8, 0], [8, 1]] * 3


def test_an_experiment_samples_the_heads_own_task():
  own = experiment()
  assert own.heads == ("sort", "sort_successor", "sort_fill")
  assert own.task.name == "sort" and own.heads[2] == "sort_fill"
  batch = own.sample(jax.random.key(0), "sort_fill", Part(0, 8))
  prompt = np.asarray(batch.inputs)[:, :2]
  assert (prompt[:, 0] == prompt[:, 1]).all()


def test_data_fields_of_a_config_reach_the_data():
  config = default_config("addition")
  config.data.update(size=1000, seed=5, train_length=4, widths=(6, 8))
  config.eval.lengths = (4,)
  (own,) = build(config).data
  assert (own.size, own.seed, own.widths) == (1000, 5, (6, 8))
  assert own.lengths == Lengths(1, 4, 4, 0.8, (4,))
  assert build(config).num_widths == 2 and own.bound(0) == 8
  config.positions.cyclic_period = 3
  config.data.widths = ()
  assert build(config).data[0].widths == (6, 7, 8)  # every phase of the index
  config.data.width = "fixed"
  config.data.fixed_width = 30
  assert build(config).data[0].widths == (30,)
  assert build(config).fixed_width == 30
