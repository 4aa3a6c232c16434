"""Tasks against their docstrings, Python integers, and their own promises."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lengthgen_jax.tasks import ARITHMETIC as TASKS
from lengthgen_jax.tasks import data, digits

LENGTHS = (1, 9, 10, 60, 1000)
BINARY = [name for name, task in TASKS.items() if task.operands == 2]
VARIANTS = [TASKS[name]() for name in TASKS]
VARIANTS += [TASKS[name](aligned=True) for name in BINARY]


def variant_name(task):
  return task.name + ("-aligned" if task.aligned else "")


every_variant = pytest.mark.parametrize("task", VARIANTS, ids=variant_name)
every_task = pytest.mark.parametrize("name", TASKS)


def operand_texts(task, source):
  """Digits of each operand in a source string, as written there."""
  assert source[0] == "$"
  if not task.interleaved:
    return source[1:].split(task.operator) if task.operator else [source[1:]]
  assert source[1] == task.operator
  first, second = source[2::2], source[3::2]
  if task.short_operand:
    assert second == second[0] * len(first)
    second = second[0]
  return [first, second]


def texts(task, batch):
  """(source, target) strings of a batch."""
  decode = task.vocabulary.decode
  rows = zip(np.asarray(batch.source), np.asarray(batch.target), strict=True)
  return [(decode(source), decode(target)) for source, target in rows]


def numbers(task, batch):
  """[B][operands] Python integers that the sources spell."""
  return [
    [int(text, task.base) for text in operand_texts(task, source)]
    for source, _ in texts(task, batch)
  ]


def reversed_digits(value, width):
  return str(value % 10**width).zfill(width)[::-1]


def running_parity(value, width):
  """Parity of the lowest 1, 2, ..., width bits."""
  bits = [(value & ((2 << i) - 1)).bit_count() % 2 for i in range(width)]
  return "".join(map(str, bits))


ORACLES = {
  "successor": lambda width, a: reversed_digits(a + 1, width),
  "addition": lambda width, a, b: reversed_digits(a + b, width),
  "multiply": lambda width, a, b: reversed_digits(a * b, width),
  "parity": lambda width, a: running_parity(a, width),
  "parity_classification": lambda width, a: str(a.bit_count() % 2),
}


def check_targets(task, batch, width):
  """Every target is Python's answer to its own source."""
  operands = numbers(task, batch)
  for (source, target), values in zip(
    texts(task, batch), operands, strict=True
  ):
    assert target == ORACLES[task.name](width, *values) + "&", source
  assert batch.target.shape[1] == task.target_length(width)
  assert np.all(np.asarray(batch.weight) == 1)
  assert batch.weight.shape == batch.target.shape
  return operands


def room(task, length):
  """A width for a length in decimal digits; few, since each is a compile."""
  return task.natural_width(max(length, 60))


@functools.cache
def compiled(task, test_set, width, batch):
  """A jitted sampler of a test set, and a list that grows when it traces."""
  traces = []

  def sample(key, length):
    traces.append(length)
    return data.sample_test(task, test_set, key, batch, length, width)

  return jax.jit(sample), traces


def sampled(task, test_set, length, seed=0):
  """(batch, width) of a test set at a length in decimal digits."""
  width, batch = room(task, length), 4 if length == 1000 else 64
  sample, _ = compiled(task, test_set, width, batch)
  return sample(jax.random.key(seed), task.units(length)), width


# The docstrings.


def docstring_examples():
  found = []
  for name, task in TASKS.items():
    for pair in re.findall(r"`(\$\S+)` -> `(\S+)`", task.__doc__):
      found.append((name, *pair))
  return found


@pytest.mark.parametrize("name, source, target", docstring_examples())
def test_docstring_example(name, source, target):
  aligned = source[1] == TASKS[name].operator
  task = TASKS[name](aligned=aligned)
  written = operand_texts(task, source)
  typed = task.operator.join(text.lstrip("0") or "0" for text in written)
  batch = task.encode_text([task.parse(typed)], len(written[0]))
  assert texts(task, batch) == [(source, target)]
  as_written = [jnp.array([[int(digit) for digit in text]]) for text in written]
  assert texts(task, task.encode(as_written)) == [(source, target)]


@every_task
def test_docstring_shows_examples_of_every_form(name):
  sources = [
    example[1] for example in docstring_examples() if example[0] == name
  ]
  aligned = [source[1] == TASKS[name].operator for source in sources]
  assert aligned.count(False) >= 2
  assert aligned.count(True) >= (name in BINARY)


# Python integers.


@pytest.mark.parametrize("length", LENGTHS)
@every_variant
def test_targets_equal_python_arithmetic(task, length):
  # "equal" is task.sample(..., exact=True).
  batch, width = sampled(task, "equal", length)
  units = task.units(length)
  low, high = task.base ** (units - 1), task.base**units
  for values in check_targets(task, batch, width):
    for i, value in enumerate(values):
      if task.is_digit(i):
        assert 0 <= value < 10
      else:
        assert low <= value < high
  assert np.all(np.asarray(batch.length) == units)


@every_variant
def test_arrays_are_int32_digits_at_a_thousand_digits(task):
  batch, width = sampled(task, "equal", 1000)
  for array in (batch.source, batch.target, batch.length):
    assert array.dtype == jnp.int32
  written = np.asarray(batch.source)
  is_number = written < 10
  expected = task.operand_width(0, width)
  if task.operands == 2:
    expected += width if task.interleaved else task.operand_width(1, width)
  assert np.all(is_number.sum(axis=1) == expected)
  assert written[is_number].min() == 0
  assert written[is_number].max() == task.base - 1
  answer = np.asarray(batch.target)[:, :-1]
  assert answer.min() >= 0 and answer.max() < task.base


@every_task
def test_answers_that_carry_over_every_digit(name):
  task = TASKS[name]()
  typed = {"addition": "999+1", "multiply": "999*9", "successor": "999"}
  text = typed.get(name, "111")
  batch = task.encode_text([task.parse(text)], 5)
  check_targets(task, batch, 5)


def test_bits_of_decimal_lengths():
  task = TASKS["parity"]()
  assert [task.units(n) for n in (6, 60, 1000)] == [20, 200, 3322]
  assert TASKS["addition"]().units(60) == 60


# Segments.


@pytest.mark.parametrize("width", (3, 8, 61))
@pytest.mark.parametrize(
  "task",
  [task for task in VARIANTS if not task.interleaved],
  ids=variant_name,
)
def test_segments_hold_an_operand_and_the_token_on_its_left(task, width):
  keys = task.coordinates(width)
  source = source_text(task, width)
  assert len(source) == len(keys.segment)
  starts = [0]
  if task.operands == 2:
    starts.append(source.index(task.operator))
  ends = starts[1:] + [len(source)]
  for segment, (start, end) in enumerate(zip(starts, ends, strict=True)):
    assert np.flatnonzero(keys.segment == segment).tolist() == list(
      range(start, end)
    )
    assert keys.left[start:end].tolist() == list(range(end - start))
    assert keys.right[start:end].tolist() == list(range(end - start))[::-1]
  # Right offset 0 is the least significant digit; row W, which predicts `&`,
  # has the token on the operand's left.
  for segment, stride in enumerate(task.strides):
    last_row = (keys.segment == segment) & (keys.right == width * stride)
    (key,) = np.flatnonzero(last_row)
    marker = source[starts[segment]] if stride else source[-1]
    assert source[key] == marker
  assert task.segment_names == ("a", "b")[: task.operands]


def source_text(task, width):
  """Some source of this width."""
  count = np.arange(width)[None] % (task.base - 1) + 1
  operands = [
    jnp.array(count[:, : task.operand_width(i, width)])
    for i in range(task.operands)
  ]
  return texts(task, task.encode(operands))[0][0]


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("width", (3, 8))
def test_aligned_source_is_one_segment_of_two_tokens_per_digit(name, width):
  task = TASKS[name](aligned=True)
  keys = task.coordinates(width)
  source = source_text(task, width)
  assert (task.strides, len(task.segment_names)) == ((2,), 1)
  assert np.all(keys.segment == 0) and len(keys.segment) == len(source)
  assert keys.right.tolist() == list(range(2 * width + 2))[::-1]
  assert keys.left.tolist() == list(range(2 * width + 2))
  row_tokens = lambda row: [
    source[int(np.flatnonzero(keys.right == 2 * row + k)[0])] for k in (1, 0)
  ]
  a, b = operand_texts(task, source)
  assert row_tokens(0) == [a[-1], b[-1]]
  assert row_tokens(width) == ["$", task.operator]


# In-range data.


@pytest.mark.parametrize("seed", (0, 7))
def test_permutation_is_a_bijection(seed):
  image = np.asarray(digits.permuted(jnp.arange(data.POPULATION), seed))
  assert image.dtype == np.int32
  assert np.array_equal(np.sort(image), np.arange(data.POPULATION))
  assert np.mean(image == np.arange(data.POPULATION)) < 1e-4


def test_permutation_depends_on_the_seed():
  index = jnp.arange(1000)
  same = digits.permuted(index, 0) == digits.permuted(index, 1)
  assert np.mean(np.asarray(same)) < 0.01


@pytest.mark.parametrize("name", ("addition", "parity"))
def test_training_and_validation_numbers_are_disjoint(name):
  task = TASKS[name]()
  width = 22
  seen = data.Interpolation(task, "permutation", train_length=6, seed=3)
  share = np.asarray(digits.permuted(jnp.arange(data.TRAIN_SHARE), 3))
  allowed = set(share.tolist())
  assert data.TRAIN_SHARE * 8 == data.POPULATION * 7
  for held_out in (False, True):
    sample = jax.jit(lambda key, h=held_out: seen.sample(key, 256, width, h))
    batch = sample(jax.random.key(1))
    drawn_numbers = check_targets(task, batch, width)
    for values in drawn_numbers:
      for i, value in enumerate(values):
        if not task.is_digit(i):
          assert (value in allowed) == (not held_out)
    # Numbers of all sizes below 2^20, not a corner of them.
    first = np.array([values[0] for values in drawn_numbers])
    assert first.max() > 0.9 * 2**20 and first.min() < 0.1 * 2**20


@pytest.mark.parametrize("name", ("addition", "multiply", "parity"))
def test_training_lengths_stay_in_range(name):
  task = TASKS[name]()
  longest, width = task.units(3), task.natural_width(3)
  train = data.Interpolation(task, "lengths", train_length=3)
  sample = jax.jit(lambda key: train.sample(key, 512, width))
  batch = sample(jax.random.key(0))
  values = np.array(check_targets(task, batch, width))
  long = [i for i in range(task.operands) if not task.is_digit(i)]
  size = task.base**longest
  for i in long:
    assert 0.8 * size < values[:, i].max() < size
  for i in range(task.operands):
    if task.is_digit(i):
      assert set(values[:, i].tolist()) == set(range(10))
  length = np.asarray(batch.length)
  assert (length.min(), length.max()) == (1, longest)
  # The recorded length bounds the long operands, and is reached by some of
  # every length: a number drawn with n digits has a nonzero lead usually.
  for n in range(1, longest + 1):
    biggest = values[length == n][:, long].max()
    assert task.base ** (n - 1) <= biggest < task.base**n


def test_recorded_length_ignores_the_single_digit():
  task = TASKS["multiply"]()
  sample = jax.jit(lambda key, length: task.sample(key, length, 8))
  batch = sample(jax.random.key(0), jnp.array([[2, 5], [4, 1]]))
  assert np.asarray(batch.length).tolist() == [2, 4]


# Test sets.


@pytest.mark.parametrize("aligned", (False, True))
def test_unequal_operands_have_either_order(aligned):
  task = TASKS["addition"](aligned=aligned)
  batch, width = sampled(task, "unequal", 6)
  values = check_targets(task, batch, width)
  lengths = np.array([[len(str(value)) for value in pair] for pair in values])
  assert np.all(lengths.max(axis=1) == 6)
  assert np.all(np.asarray(batch.length) == 6)
  for side in (0, 1):
    other = lengths[lengths[:, 1 - side] == 6][:, side]
    assert set(other.tolist()) == set(range(1, 7))


def test_unequal_is_equal_where_there_is_one_long_operand():
  task = TASKS["multiply"]()
  equal, unequal = (sampled(task, s, 4)[0] for s in ("equal", "unequal"))
  assert np.array_equal(equal.source, unequal.source)


@pytest.mark.parametrize("length", (1, 2, 7, 10))
@every_task
def test_carry_chains_run_through(name, length):
  task = TASKS[name]()
  batch, width = sampled(task, "carry", length)
  units = task.units(length)
  values = check_targets(task, batch, width)
  assert np.all(np.asarray(batch.length) == units)
  if task.base == 2:
    ones = [value.bit_count() for (value,) in values]
    assert set(ones) == {1}
    assert max(value for (value,) in values) < 2**units
  elif task.name == "multiply":
    assert all(a == 10**length - 1 and 2 <= d <= 9 for a, d in values)
  else:
    answer = {"addition": sum, "successor": lambda v: v[0] + 1}[task.name]
    assert all(answer(value) == 10**length for value in values)
  # Different examples, but where there is one only.
  if task.name != "successor":
    assert len(set(map(tuple, values))) > 1


@pytest.mark.parametrize("length", (*range(1, 12), 1000))
def test_size_of_a_test_set(length):
  for samples in (1, 50, 1000, 10**9):
    expected = min(10**length - 10 ** (length - 1), samples)
    assert data.test_size(length, samples) == expected


ONE_COMPILE = [(task, "equal") for task in VARIANTS]
ONE_COMPILE += [(TASKS[name](), "carry") for name in TASKS]
ONE_COMPILE += [(TASKS["addition"](), "unequal")]


@pytest.mark.parametrize("task, test_set", ONE_COMPILE)
def test_one_compile_serves_all_lengths(task, test_set):
  for length in (1, 2, 5, 10):
    batch, width = sampled(task, test_set, length, seed=length)
    check_targets(task, batch, width)
    assert np.all(np.asarray(batch.length) == task.units(length))
  _, traces = compiled(task, test_set, width, 64)
  assert len(traces) == 1


@every_variant
def test_draws_are_a_function_of_the_key(task):
  first, again, other = (
    sampled(task, "equal", 9, seed)[0] for seed in (1, 1, 2)
  )
  assert np.array_equal(first.source, again.source)
  assert not np.array_equal(first.source, other.source)
  assert len(set(texts(task, first))) > 32


def test_operands_are_drawn_independently():
  task = TASKS["addition"]()
  batch, _ = sampled(task, "equal", 9)
  assert all(a != b for a, b in numbers(task, batch))


# Text.

BAD = {
  "successor": ["12a4", "1+2", "-1", "3.5", " 12", ""],
  "addition": ["12x+3", "1+2+3", "1++2", "12", "12+", "+12", "+", "1*2", ""],
  "multiply": ["1q*3", "1*2*3", "12*34", "34", "12*", "*3", "*", "1+2", ""],
  "parity": ["012", "1b1", "1+1", ""],
  "parity_classification": ["012", "1b1", "1+1", ""],
}


@pytest.mark.parametrize(
  "name, text", [(name, text) for name in BAD for text in BAD[name]]
)
def test_parse_refuses_in_one_line(name, text):
  task = TASKS[name]()
  with pytest.raises(ValueError) as caught:
    task.parse(text)
  message = str(caught.value)
  assert "\n" not in message
  assert text in message and task.usage in message
  if not text:
    assert "empty" in message


@every_task
def test_parse_message_stays_one_line_for_a_line_break(name):
  with pytest.raises(ValueError) as caught:
    TASKS[name]().parse("1\n1")
  assert "\n" not in str(caught.value)


def test_every_task_has_parse_errors_tested():
  assert set(BAD) == set(TASKS)


@pytest.mark.parametrize(
  "name, text, part",
  [
    ("addition", "12x+3", "'x'"),
    ("addition", "1+2+3", "2 operators"),
    ("addition", "12+", "lacks an operand"),
    ("multiply", "12*34", "multiplier of 2 digits"),
    ("parity", "012", "'2'"),
  ],
)
def test_parse_names_the_trouble(name, text, part):
  with pytest.raises(ValueError, match=re.escape(part)):
    TASKS[name]().parse(text)


@every_variant
def test_usage_is_itself_valid(task):
  parsed = task.parse(task.usage)
  width = max(map(len, parsed)) + 2
  check_targets(task, task.encode_text([parsed], width), width)


@every_variant
def test_texts_of_different_lengths_share_a_batch(task):
  lines = {1: ["1", "10"], 2: [f"1{task.operator}2", f"11{task.operator}0"]}
  lines = lines[task.operands]
  batch = task.encode_text([task.parse(text) for text in lines], 6)
  values = check_targets(task, batch, 6)
  typed = [
    [int(number, task.base) for number in text.split(task.operator or None)]
    for text in lines
  ]
  assert values == typed


def test_render_is_in_ordinary_order_without_leading_zeros():
  task = TASKS["addition"]()
  for tokens, answer in (
    ("3210&", "123"),
    ("0010&@@", "100"),
    ("000&", "0"),
    ("5&", "5"),
  ):
    assert task.render(tokens) == answer


@pytest.mark.parametrize("tokens", ("123", "12+3&", "&", "", "1$&"))
@every_task
def test_render_refuses_what_is_no_number(name, tokens):
  with pytest.raises(ValueError) as caught:
    TASKS[name]().render(tokens)
  assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ("parity", "parity_classification"))
def test_parity_prints_one_bit(name):
  task = TASKS[name]()
  for text, bit in (("0110", "0"), ("0111", "1"), ("1", "1"), ("0", "0")):
    batch = task.encode_text([task.parse(text)], 6)
    assert task.render(texts(task, batch)[0][1]) == bit
  with pytest.raises(ValueError):
    task.render("7&")


@pytest.mark.parametrize("name", ("addition", "multiply", "successor"))
def test_render_reads_a_target_back(name):
  task = TASKS[name]()
  batch, _ = sampled(task, "equal", 60)
  for (_, target), values in zip(
    texts(task, batch), numbers(task, batch), strict=True
  ):
    value = {"addition": sum, "multiply": math.prod}.get(
      name, lambda v: v[0] + 1
    )(values)
    assert task.render(target) == str(value)
