"""Lengths, gradient steps, data sets and test batches; what is refused."""

import dataclasses
import functools

import command
import jax
import jax.numpy as jnp
import numpy as np
import plain_tasks as plain
import pytest
from presets import arithmetic, increment, sorting

from lengthgen_jax.config import default_config
from lengthgen_jax.config.build import build
from lengthgen_jax.errors import UsageError
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import HINTS, TASKS, dataset
from lengthgen_jax.tasks.dataset import (
  Dataset,
  Lengths,
  Part,
  split,
  step_specs,
)
from lengthgen_jax.tasks.packing import KINDS
from lengthgen_jax.tasks.task import Size

# Lengths.

SKEWED = Lengths(2, 5, 20, 0.8, (5, 20))
EVEN = Lengths(1, 5, 20, 0.5, (3, 10, 20))
UNIFORM = Lengths(1, 3, 3, 0.8, (3,))  # nothing beyond the short ones


def test_short_lengths_have_their_share_of_the_mass():
  np.testing.assert_allclose(SKEWED.probability[:2], 0)
  np.testing.assert_allclose(SKEWED.probability[2:6], 0.2)
  np.testing.assert_allclose(SKEWED.probability[6:], 0.2 / 15)
  np.testing.assert_allclose(UNIFORM.probability, [0, 1 / 3, 1 / 3, 1 / 3])


def test_buckets_divide_lengths_and_have_their_exact_share():
  assert [SKEWED.bucket_range(bucket) for bucket in (0, 1)] == [(2, 5), (6, 20)]
  assert SKEWED.bucket_counts(256) == [205, 51]
  assert SKEWED.bucket_counts(20) == [16, 4]
  assert EVEN.bucket_counts(300) == [90, 110, 100]
  assert UNIFORM.bucket_counts(7) == [7]


def test_lengths_are_drawn_by_their_probability():
  numbers = (np.arange(20000) + 0.5) / 20000
  for lengths in (SKEWED, EVEN):
    for bucket in range(len(lengths.buckets)):
      first, last = lengths.bucket_range(bucket)
      drawn = lengths.draw(jnp.asarray(numbers), bucket)
      probability = np.zeros(21)
      probability[first : last + 1] = lengths.probability[first : last + 1]
      np.testing.assert_allclose(
        np.bincount(drawn, minlength=21) / 20000,
        probability / probability.sum(),
        atol=1e-3,
      )


@pytest.mark.parametrize("total", (0, 1, 7, 100, 12345))
def test_split_is_whole_and_in_proportion(total):
  for mass in ([0.5, 0.3, 0.2], [5, 3, 2], [1.0] * 7):
    counts = split(total, mass)
    assert sum(counts) == total and all(isinstance(n, int) for n in counts)
    assert (abs(counts - np.array(mass) / np.sum(mass) * total) < 1.0).all()


# Gradient steps of a round.

HEADS = ("sort", "sort_successor", "sort_fill")


def counts(share) -> list[int]:
  return [part.count for part in share.parts]


def test_alternating_steps_are_of_one_head_in_turn():
  steps = step_specs(HEADS, SKEWED, 32, "alternate", ())
  assert [[share.head for share in step] for step in steps] == [
    ["sort"],
    ["sort_successor"],
    ["sort_fill"],
  ]
  for (share,) in steps:  # the whole batch, in its buckets
    assert share.weight == 1.0
    assert share.parts == (Part(0, 26), Part(1, 6))
  assert len(step_specs(HEADS[:1], SKEWED, 32, "alternate", ())) == 1


def test_weighted_mixing_is_one_step_of_shares():
  (step,) = step_specs(HEADS, SKEWED, 100, "weighted", (3.0, 1.0, 1.0))
  assert [share.head for share in step] == [*HEADS]
  np.testing.assert_allclose([s.weight for s in step], [0.6, 0.2, 0.2])
  assert list(map(counts, step)) == [[48, 12], [16, 4], [16, 4]]
  (equal,) = step_specs(HEADS, SKEWED, 99, "weighted", ())
  np.testing.assert_allclose([s.weight for s in equal], 1 / 3)
  assert [sum(counts(share)) for share in equal] == [33, 33, 33]


@pytest.mark.parametrize("batch", (32, 33, 77))
def test_a_batch_is_whole_whatever_its_shares(batch):
  for weights in ((), (5, 2, 2)):
    (step,) = step_specs(HEADS, SKEWED, batch, "weighted", weights)
    assert sum(sum(counts(share)) for share in step) == batch
    assert all(isinstance(n, int) for share in step for n in counts(share))
  for (share,) in step_specs(HEADS, SKEWED, batch, "alternate", ()):
    assert sum(counts(share)) == batch


@pytest.mark.parametrize(
  "kind, weights, words",
  [
    ("alternate", (1.0, 1.0, 1.0), "mixing.kind=weighted"),
    ("weighted", (1.0, 1.0, 0.0), "leave a hint out"),
    ("weighted", (1.0, 1.0, -1.0), "above zero"),
    ("weighted", ("a", 1, 1), "above zero"),
    ("weighted", (1.0, 1.0), "sort_fill"),
    ("weighted", (1.0, 1.0, 1.0, 1.0), "sort_fill"),
    ("weighted", (30, 1, 1), "too few for every bucket"),
  ],
)
def test_bad_weights_are_refused_in_one_line(kind, weights, words):
  with pytest.raises(UsageError) as error:
    step_specs(HEADS, SKEWED, 32, kind, weights)
  message = str(error.value)
  assert words in message and "mixing.weights" in message
  assert "\n" not in message


# Data sets. Equal sets, counts and buckets share a compilation.

COUNT, INDEX = 500, jnp.arange(500)
KEY = jax.random.key(0)


def sorting_set(name="sort", size=0, seed=0, lengths=SKEWED):
  hint = plain.HINT_KINDS.get(name, (None,))[0]
  task = plain.make_task(hint or TASKS[name], repeat_share=0.0)
  return Dataset(
    task, "decoder_only", lengths, (), False, "lengths", size, seed
  )


def number_set(
  name="addition",
  numbers="lengths",
  size=0,
  seed=0,
  widths=(22,),
  last=5,
  natural=False,
):
  task, lengths = (
    plain.make_task(TASKS[name]),
    Lengths(1, last, last, 0.8, (last,)),
  )
  return Dataset(
    task, "encoder_decoder", lengths, widths, natural, numbers, size, seed
  )


def same(a, b) -> bool:
  return all(map(np.array_equal, jax.tree.leaves(a), jax.tree.leaves(b)))


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
    for name in ("inputs", "target", "weight", "prompt_length", "first_scored"):
      assert np.array_equal(
        getattr(part, name), np.asarray(getattr(whole, name))[index]
      )
    if whole.source is not None:
      assert np.array_equal(part.source, np.asarray(whole.source)[index])
  assert len(prompts(sorting_set().examples(INDEX, 1))) > 0.9 * COUNT


def test_an_address_names_seed_task_bucket_and_stream():
  first = sorting_set().examples(INDEX, 1)
  assert same(first, sorting_set().examples(INDEX, 1))
  assert not same(first, sorting_set(seed=1).examples(INDEX, 1))
  held_out = sorting_set().examples(INDEX, 1, 0, "held_out")
  assert not prompts(first) & prompts(held_out)
  # Two hints that draw alike, two buckets of one length: others.
  hints = [sorting_set(f"sort_{n}") for n in ("successor", "predecessor")]
  halves = sorting_set(lengths=Lengths(2, 5, 5, 0.8, (3, 5)))
  for pair in (
    [hint.examples(INDEX, 0) for hint in hints],
    [halves.examples(INDEX, bucket) for bucket in (0, 1)],
  ):
    a, b = (np.asarray(batch.inputs)[:, :2] for batch in pair)
    assert not np.array_equal(a, b)


def test_examples_of_a_bucket_have_its_lengths():
  for bucket, (first, last) in enumerate([(2, 5), (6, 20)]):
    batch = sorting_set().examples(INDEX, bucket)
    assert set(batch.prompt_length.tolist()) == set(range(first, last + 1))
    assert batch.inputs.shape == (COUNT, 2 * last)  # padded to the bucket


def test_a_finite_set_has_no_more_examples_than_its_share():
  data = sorting_set(size=20)
  batch = data.sample(KEY, COUNT, 1)
  assert prompts(batch) == prompts(data.examples(jnp.arange(4), 1))
  times = np.unique(np.asarray(batch.inputs), axis=0, return_counts=True)[1]
  assert len(times) == 4 and times.min() > 0.18 * COUNT  # uniform


@pytest.mark.parametrize("size", (0, 20))
def test_samples_are_a_function_of_the_key_and_streams_are_endless(size):
  data = sorting_set(size=size)
  first, again, other = (
    data.sample(jax.random.key(seed), COUNT, 1) for seed in (1, 1, 2)
  )
  assert same(first, again) and not same(first, other)
  held_out = prompts(data.sample(jax.random.key(1), COUNT, 1, held_out=True))
  assert len(held_out) > COUNT - 10 and not held_out & prompts(first)
  assert size or len(prompts(first)) > COUNT - 10


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
  sampled = data.sample(KEY, 4, 0, jnp.int32(1))
  assert (sampled.prompt_length == sizes[0](9)).all()


@pytest.mark.parametrize("name", ("addition", "multiply", "parity"))
def test_a_natural_width_is_that_of_the_longest_operand(name):
  task = plain.make_task(TASKS[name])
  widths = tuple(range(1 + task.slack, 5 + task.slack))
  data = number_set(name, widths=widths, last=4, natural=True)
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


@pytest.mark.parametrize("seed", (0, 7))
def test_permutation_is_a_bijection(seed):
  index = jnp.arange(dataset.POPULATION)
  image = np.asarray(dataset.permuted(index, seed))
  assert image.dtype == np.int32
  assert np.array_equal(np.sort(image), index)
  assert np.mean(image == index) < 1e-4
  other = np.asarray(dataset.permuted(index[:1000], seed + 1))
  assert np.mean(other == image[:1000]) < 0.01


@pytest.mark.parametrize("name", ("addition", "parity"))
def test_training_and_validation_numbers_are_disjoint(name):
  assert dataset.NUM_TRAIN * 8 == dataset.POPULATION * 7
  train_index = jnp.arange(dataset.NUM_TRAIN)
  train = set(np.asarray(dataset.permuted(train_index, 3)).tolist())
  data = number_set(name, "permutation", seed=3)
  for held_out in (False, True):
    batch = data.sample(jax.random.key(1), COUNT, 0, held_out=held_out)
    numbers = np.array(values(data.task, batch))
    assert {x in train for x in numbers.ravel().tolist()} == {not held_out}
    # Numbers of all sizes below 2^20, not a corner of them.
    first = numbers[:, 0]
    assert first.max() > 0.9 * 2**20 and first.min() < 0.1 * 2**20
    assert abs(first.mean() / 2**19 - 1) < 0.1
    for source, target in zip(batch.source, batch.target, strict=True):
      expected = plain.plain_answer(data.task, source)
      assert data.task.symbols(target) == expected


def test_the_single_digit_of_a_product_is_no_number_of_the_set():
  task = TASKS["multiply"]()
  size = Size(jnp.array([0, 0]), jnp.int32(8), 9)
  make_example = lambda value, number: task.from_values(
    value[None].repeat(2), lambda n: number[None], size, dataset.POPULATION
  )
  number = jnp.arange(20)
  examples = jax.jit(jax.vmap(make_example))(
    number * 50_000, (number + 0.5) / 20
  )
  for i in range(20):
    prompt, _, output = plain.split_example(examples, i)
    assert task.decode(prompt) == f"${i * 50_000:08}*{i // 2}"
    assert task.symbols(output) == plain.plain_answer(task, prompt)


# Uniform.


def check_counts(counts, expected):
  """Counts are within four standard deviations of what is expected."""
  counts, expected = np.asarray(counts), np.asarray(expected)
  assert (abs(counts - expected) < 4 * np.sqrt(expected) + 1).all()


def test_items_and_lengths_are_uniform():
  batches = [
    sorting_set().sample(jax.random.key(i), COUNT, 1) for i in range(8)
  ]
  lengths = np.concatenate([batch.prompt_length for batch in batches])
  items = np.concatenate([batch.inputs for batch in batches])
  check_counts(np.bincount(lengths)[6:], np.full(15, len(items) / 15))
  for place in (0, 5):
    counts = np.bincount(items[:, place])[1:]
    check_counts(counts, np.full(9, len(items) / 9))


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


@functools.cache
def experiment() -> Experiment:
  """Never trained."""
  config = sorting.get_config("all")
  config.hints = ("successor", "fill")
  config.train.batch_size = 32
  return build(config)


def test_a_test_example_is_a_function_of_seed_length_and_index():
  make_batch = lambda seed, index, length: experiment().test_batch(
    "uniform", seed, index, length, {}
  )
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


def test_a_test_batch_serves_all_lengths_below_a_bound():
  with command.count_programs() as names:
    for length in (2, 30, 64):
      experiment().test_batch("uniform", 0, np.arange(16), length, {})
  assert len([name for name in names if "test_batch" in name]) <= 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
  "name, texts",
  [
    ("addition", ["1+2", "110+20", "7+99"]),
    ("sort", ["3 1 2", "5", "9 8 9 8"]),
  ],
)
def test_typed_texts_of_different_lengths_share_a_batch(name, texts, kind):
  task = plain.make_task(TASKS[name])
  batch = dataset.parsed_batch(task, kind, list(map(task.parse, texts)), 4, 6)
  inputs = batch.source if kind == "encoder_decoder" else batch.inputs
  for i, text in enumerate(texts):
    output = np.asarray(batch.target)[i][np.asarray(batch.weight[i]) > 0]
    prompt = np.asarray(inputs)[i][: int(batch.prompt_length[i])].tolist()
    assert task.symbols(output) == plain.plain_answer(task, prompt)
    spelled = plain.input_text(task, prompt)
    if name == "addition":
      spelled = "+".join(str(int(x)) for x in spelled.split("+"))
    assert spelled == text


# Streams of a run.


class Recorder:
  """A data set that notes the keys it is asked with."""

  def __init__(self, name, calls):
    self.task = type("Task", (), {"name": name})
    self.calls = calls

  def sample(self, key, count, bucket, width_index, held_out):
    key_data = tuple(jax.random.key_data(key).tolist())
    self.calls.append((key_data, count, bucket))
    return width_index, held_out


def test_heads_and_buckets_have_streams_of_their_own():
  calls = []
  recorders = tuple(Recorder(name, calls) for name in "abc")
  recorded = dataclasses.replace(experiment(), data=recorders)
  for head in "abc":
    for bucket in (0, 1):
      part = Part(bucket, 8)
      assert recorded.sample(KEY, head, part, 5, True) == (5, True)
  assert len({key for key, _, _ in calls}) == 6
  assert [rest for _, *rest in calls] == [[8, 0], [8, 1]] * 3


def test_an_experiment_samples_the_heads_own_task():
  assert experiment().heads == ("sort", "sort_successor", "sort_fill")
  assert experiment().task.name == "sort"
  batch = experiment().sample(KEY, "sort_fill", Part(0, 8))
  prompt = np.asarray(batch.inputs)[:, :2]
  assert (prompt[:, 0] == prompt[:, 1]).all()


def test_data_fields_of_a_config_reach_the_data():
  config = default_config("addition")
  config.data.update(size=1000, seed=5, train_length=4, shortest=3)
  config.eval.lengths = (4,)
  (data,) = build(config).data
  assert (data.size, data.seed, data.widths) == (1000, 5, (5, 6))
  assert data.lengths == Lengths(3, 4, 4, 0.8, (4,))
  assert build(config).num_widths == 2 and data.bound(0) == 6
  config.data.width = "fixed"
  config.data.fixed_width = 30
  assert build(config).data[0].widths == (30,)
  assert build(config).fixed_width == 30


# From a config.


def sort_config():
  """A small run of sorting and two hints; nothing here compiles."""
  config = sorting.get_config()
  config.hints = ("successor", "fill")
  config.data.update(train_length=6, shortest=1, short_longest=3)
  config.data.buckets = (3, 6)
  config.sort.alphabet = 5
  config.eval.update(test_sets=("uniform", "repeats"), lengths=(4, 8))
  return config


def test_a_config_becomes_steps():
  experiment = build(sort_config())
  assert experiment.heads == HEADS
  assert [step[0].head for step in experiment.step_specs] == [*HEADS]
  assert [share.head for share in experiment.validation] == [*HEADS]
  assert {sum(counts(share)) for share in experiment.validation} == {512}
  config = sort_config()
  config.mixing.update(kind="weighted", weights=(2.0, 1.0, 1.0))
  ((main, *_),) = build(config).step_specs
  assert (main.weight, sum(counts(main))) == (0.5, 16)


def test_sizes_of_a_finite_set_are_split_over_the_tasks():
  config = sort_config()
  config.data.size = 100
  assert [data.size for data in build(config).data] == [34, 33, 33]


@pytest.mark.parametrize("task", HINTS)
def test_every_hint_can_be_asked_for(task):
  presets = {"sort": sorting, "increment": increment}
  config = presets[task].get_config()
  config.hints = tuple(HINTS[task])
  names = [hint.name for hint in HINTS[task].values()]
  assert build(config).heads == (TASKS[task].name, *names)


def check_refused(config, field, value, words):
  """Another value is refused in one line with these words."""
  build(config)
  with config.unlocked():
    config.update_from_flattened_dict({field: value})
  with pytest.raises(UsageError) as error:
    build(config)
  message = str(error.value)
  assert words in message and "\n" not in message


@pytest.mark.parametrize(
  "field, value, words",
  [
    ("hints", ("succesor",), "successor"),
    ("hints", ("fill", "fill"), "once"),
    ("mixing.kind", "both", "alternate, weighted"),
    ("mixing.weights", (1.0, 1.0, 1.0), "mixing.kind=weighted"),
    ("data.size", 95, "at least 96"),
    ("data.size", 1 << 31, "from 0 to 2147483647"),
    ("data.size", -1, "from 0"),
    ("sort.alphabet", 1, "at least 2"),
    ("sort.alphabet", 1 << 17, "at most 65536"),
    ("sort.count_gap", 1, "at least 2"),
    ("sort.count_ties", 1.5, "[0, 1]"),
    ("sort.repeat_share", -0.1, "[0, 1]"),
    ("data.width", "fixed", "choose 'natural'"),
    ("data.numbers", "permutation", "choose 'lengths'"),
    ("data.buckets", (5, 9), "data.train_length"),
    ("data.buckets", (6, 3), "must rise"),
    ("data.buckets", (0, 6), "from 1 on"),
    ("data.short_share", 1.0, "no length of 4 to 6 occurs"),
    ("data.short_share", 1.5, "[0, 1]"),
    ("data.shortest", 9, "shortest <= short_longest"),
    ("train.batch_size", 1, "every bucket"),
    ("train.validation_samples", 1, "every bucket"),
    ("eval.test_sets", ("equal",), "uniform"),
    ("eval.test_sets", (), "at least one"),
    ("eval.repetitions", (9,), "eval.lengths=(4, 8)"),
    ("eval.repetitions", (), "eval.repetitions"),
    ("eval.repeated_items", 6, "eval.repeated_items"),
    ("eval.lengths", (0,), "from 1 on"),
  ],
)
def test_bad_configs_of_sorting_are_refused(field, value, words):
  check_refused(sort_config(), field, value, words)


@pytest.mark.parametrize(
  "field, value, words",
  [
    ("task", "sum", "successor, addition"),
    ("hints", ("successor",), "tasks with hints are sort, increment"),
    ("data.short_longest", 3, "every length in turn"),
    ("data.buckets", (3, 6), "choose ()"),
    ("arithmetic.slack", -1, "must not be negative"),
    ("arithmetic.slack", 0, "one digit more"),
    ("data.numbers", "primes", "permutation"),
    ("data.numbers", "permutation", "data.width='fixed'"),
    ("eval.test_sets", ("sorted",), "equal, unequal, carry"),
  ],
)
def test_bad_configs_of_arithmetic_are_refused(field, value, words):
  config = arithmetic.get_config("addition,vanilla")
  check_refused(config, field, value, words)


def test_a_test_must_fit_a_fixed_width():
  config = arithmetic.get_config("addition,vanilla,fixed")
  config.data.fixed_width = 20
  config.eval.lengths = (19,)
  words = "20 digits do not fit data.width=fixed with W=20"
  check_refused(config, "eval.lengths", (20,), words)


def test_a_test_set_need_not_exist_at_every_length():
  config = sort_config()  # whose alphabet has fewer items than its length 8
  config.eval.update(test_sets=("multiplicity",), multiplicities=(1,))
  check_refused(config, "eval.lengths", (8,), "nothing to test")
