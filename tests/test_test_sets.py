"""Test sets are what they say, at every length, which is traced."""

import collections
import functools
import itertools
import operator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import plain_tasks as plain
import pytest
from pytrees import one

from lengthgen_jax.config import default_config
from lengthgen_jax.tasks.automata import SequenceTask
from lengthgen_jax.tasks.task import Size

# Of the tasks that draw alike one is enough. Grids, which grow with the square,
# are in test_multiply_long.py, and queries in test_recall.py.
FORMS = "successor addition multiply parity sort increment modular dyck"
MAIN = {form: plain.MAIN[form] for form in FORMS.split()}

SAMPLES, NEAR, FAR = 100, 10, 60
LENGTHS = (1, 2, NEAR, FAR)  # as people count them


def variants(task, test_set, length):
  """Further arguments of a test set at a length."""
  section = default_config(task.name).eval
  section.update(repetitions=(1, 2), chains=(2,))
  names = task.variants(test_set, section, length)
  return [arguments for _, arguments in names]


@functools.cache
def sampler(form: str, longest: int):
  """A jitted sampler of all test sets of a task at a traced length, with room
  for the longest, and its cells (test set, arguments)."""
  task = MAIN[form]
  cells = [(x, y) for x in task.test_sets for y in variants(task, x, NEAR)]
  bound = task.natural_width(task.units(longest))

  def sample(key, length):
    keys = jax.random.split(key, SAMPLES)
    lengths, width = jnp.full(task.operands, length), task.natural_width(length)
    size = Size(lengths, width, bound)

    def draw_set(name, arguments):
      test_set = task.test_sets[name]
      return jax.vmap(lambda key: test_set(task, key, size, *arguments))(keys)

    items = jnp.stack([draw_set(*cell) for cell in cells])
    answer = jax.vmap(jax.vmap(lambda items: task.from_items(items, size)))
    return answer(items), items

  return jax.jit(sample), cells


@functools.lru_cache(maxsize=2)  # samples of one form and length take 100 MB
def draw_sets(form: str, length: int, longest: int = FAR):
  """(Example of arrays [cells, SAMPLES, ...], items)."""
  sample, _ = sampler(form, longest)
  units = MAIN[form].units(length)
  return jax.tree.map(np.asarray, sample(jax.random.key(0), units))


def examples_by_set(form: str, length: int):
  """By test set and arguments: [SAMPLES] of (prompt, output) ids."""
  task, examples = MAIN[form], {}
  arrays, _ = draw_sets(form, length)
  for i, (name, arguments) in enumerate(sampler(form, FAR)[1]):
    if arguments in variants(task, name, length):
      split = partial(plain.split_example, one(arrays, i))
      pairs = [split(j)[::2] for j in range(SAMPLES)]
      examples[name, arguments] = pairs
  return examples


# Of arithmetic: what the operands' texts are.


def is_long(task, texts, length):
  """Whether operands have exactly `length` digits, the single one aside."""
  *values, last = [int(text, task.base) for text in texts]
  if not task.short_operand:
    values.append(last)
  least = task.base ** (length - 1)
  return all(least <= value < least * task.base for value in values)


def check_equal(task, operands, length):
  assert all(is_long(task, texts, length) for texts in operands)
  if task.short_operand:
    assert {d for _, d in operands} == set("0123456789")
  elif task.operands == 2 and length > 2:
    assert all(int(a) != int(b) for a, b in operands)


def check_unequal(task, operands, length):
  if task.operands == 1 or task.short_operand:
    return check_equal(task, operands, length)
  sizes = np.array([[len(str(int(x))) for x in pair] for pair in operands])
  assert (sizes.max(axis=1) == length).all()
  for side in (0, 1):
    other = sizes[sizes[:, 1 - side] == length, side]
    if length < NEAR:
      assert set(other) == set(range(1, length + 1))
    assert 0.7 < other.mean() / ((length + 1) / 2) < 1.3


def check_carry(task, operands, length):
  values = [[int(text, task.base) for text in texts] for texts in operands]
  if task.base == 2:
    assert {value.bit_count() for (value,) in values} == {1}
    assert length / 2 < max(value.bit_length() for (value,) in values) <= length
  elif task.short_operand:
    assert {a for a, _ in values} == {10**length - 1}
    assert {d for _, d in values} == set(range(2, 10))
  else:
    one = 1 if task.operands == 1 else 0
    assert {sum(value) + one for value in values} == {10**length}
    assert len({a for a, *_ in values}) > 3 or one


def check_one(digits):
  """The one input: every operand's text by the length."""

  def check_texts(task, operands, length):
    (texts,) = set(map(tuple, operands))
    expected = [digits(task, i, length) for i in range(task.operands)]
    assert [text.lstrip("0") for text in texts] == expected

  return check_texts


def check_repeated(task, operands, length):
  sizes = [length, 1 if task.short_operand else length][: task.operands]
  for texts in operands:
    for text, size in zip(texts, sizes, strict=True):
      assert text.lstrip("0") == text[-1] * size
  pairs = {tuple(text[-1] for text in texts) for texts in operands}
  assert len(pairs) == 1 if task.base == 2 else len(pairs) > 6


def check_short(task, operands, length):
  most = max(length // 10, 1)
  sizes = [len(a.lstrip("0")) for a, *_ in operands]
  assert max(sizes) <= most and min(sizes) > 0
  assert max(sizes) > most / 2 and (len(set(sizes)) > 3 or most < 6)


def carries_of(task, texts) -> str:
  """Whether each place hands something on, 0 or 1, by Python's integers."""
  if task.base == 2:
    return plain.running_parity(*texts)
  a, b = [*map(int, texts), 1][:2]
  combine = operator.mul if task.short_operand else operator.add
  powers = [10 ** (place + 1) for place in range(len(texts[0]))]
  return "".join("01"[combine(a % n, b % n) >= n] for n in powers)


def check_chain(task, operands, length, carries):
  starts = set()
  for texts in operands:
    handed_on = carries_of(task, texts)
    if task.base == 2:  # the state of the last bit goes on in the padding
      handed_on = handed_on[:length]
    assert handed_on.strip("0") == "1" * carries
    assert task.base == 2 or is_long(task, texts, length)
    starts.add(handed_on.index("1"))
  first = task.operands == 1 and task.base == 10
  assert len(starts) == 1 if first or length == carries else len(starts) > 1


# Of others: what the prompt's numbers are.


def check_uniform(task, lists, length):
  digits = set(range(0 if task.of_digits else 1, 10))
  assert {items[0] for items in lists} == digits - {0}  # a number has no lead 0
  if length > 1:
    assert set(itertools.chain(*(items[1:] for items in lists))) == digits


def check_repeats(task, lists, length, num_values, times):
  for items in lists:
    counts = collections.Counter(items).values()
    assert sum(count >= times for count in counts) >= num_values
  if length > num_values * times:
    assert len({items.index(max(items)) for items in lists}) > 3


def in_order(order):
  def check_order(task, lists, length):
    assert all(items == order(items) for items in lists)
    assert len({tuple(items) for items in lists}) > 5

  return check_order


check_all_equal = in_order(lambda items: items[:1] * len(items))


def check_nines(task, lists, length):
  texts = ["".join(map(str, items)) for items in lists]
  runs = {len(text) - len(text.rstrip("9")) for text in texts}
  assert min(runs) >= 1 and max(runs) > length / 2
  if length < NEAR:
    assert runs == set(range(1, length + 1))
  if length <= NEAR:  # every run is as frequent
    assert texts.count("9" * length) > 0.4 * SAMPLES / length
  first_digits = {text.rstrip("9")[:1] for text in texts}
  assert first_digits >= set("12345678") or length == 1


def check_repeated_digit(task, lists, length):
  check_all_equal(task, lists, length)
  check_uniform(task, [items[:1] for items in lists], 1)


# Of sequences: what their words are.


def check_any(task, texts, length):
  words = set(itertools.chain(*texts))
  assert words <= set(task.token_names[: task.base])
  assert len(words) > 0.5 * min(task.base, length * SAMPLES)


def check_same(task, texts, length):
  assert all(len(set(words)) == 1 for words in texts)
  check_any(task, [words[:1] for words in texts], 1)


def check_lone(task, texts, length):
  first = task.token_names[0]
  others = [np.flatnonzero(np.array(words) != first) for words in texts]
  assert max(map(len, others)) == 1
  places = np.concatenate(others)
  assert length == 1 or places.max() >= length / 2 > places.min()


def check_nested(task, texts, length):
  depths = {x for words in texts for x in plain.depths(words, task.bound)}
  assert "invalid" not in depths
  if length > 4 * task.bound:
    assert depths == set(map(str, range(task.bound + 1)))


def check_broken(task, texts, length):
  ends = [plain.depths(words, task.bound)[-1] for words in texts]
  assert "invalid" in ends
  assert length == 1 or len(set(ends)) > 1


def check_two_values(task, lists, length):
  assert all(len(set(items)) <= 2 for items in lists)
  both = [items for items in lists if len(set(items)) == 2]
  assert len(both) > 30 or length == 1
  assert len({tuple(sorted(set(items))) for items in both}) > 9 or length == 1


def check_near_ties(task, lists, length):
  assert {max(items) - min(items) for items in lists} <= {0, 1, 2}
  assert set(itertools.chain(*lists)) == set(range(1, 10)) or length == 1


PROMISES = {
  "equal": check_equal,
  "unequal": check_unequal,
  "carry": check_carry,
  "chain": check_chain,
  "zeros": check_one(lambda *_: ""),
  "nines": check_one(lambda task, i, n: "1" if i else str(task.base - 1) * n),
  "repeated": check_repeated,
  "short": check_short,
  "uniform": check_uniform,
  "repeats": check_repeats,
  "sorted": in_order(sorted),
  "reversed": in_order(lambda items: sorted(items, reverse=True)),
  "all_equal": check_all_equal,
  "two_values": check_two_values,
  "near_ties": check_near_ties,
}
SEQUENCES = {
  "uniform": check_any,
  "all_equal": check_same,
  "lone": check_lone,
  "walks": check_nested,
  "deep": check_nested,
  "broken": check_broken,
}
INCREMENT = {"nines": check_nines, "repeated": check_repeated_digit}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("form", MAIN)
def test_sets_are_what_they_say_and_answers_those_of_plain_python(form, length):
  task = MAIN[form]
  units = task.units(length)
  promises = PROMISES | (INCREMENT if task.name == "increment" else {})
  for (name, arguments), examples in examples_by_set(form, length).items():
    for prompt, output in examples[:: 1 if length < FAR else 5]:
      assert task.symbols(output) == plain.plain_answer(task, prompt)
    texts = [task.symbols(prompt) for prompt, _ in examples]
    if isinstance(task, SequenceTask) and not task.of_digits:
      assert {len(text) for text in texts} == {units}
      SEQUENCES[name](task, texts, units)
      continue
    if texts[0][0] == "$":
      inputs = [plain.operand_texts("".join(text)) for text in texts]
      assert {len(a) for a, *_ in inputs} == {task.natural_width(units)}
    else:
      inputs = list(map(plain.numbers, texts))
      assert {len(items) for items in inputs} == {units}
    if name in promises:
      promises[name](task, inputs, units, *arguments)


def test_room_for_longer_inputs_changes_nothing():
  form = "sort"
  for length in (1, NEAR):
    near, far = (draw_sets(form, length, n)[1] for n in (NEAR, FAR))
    units = MAIN[form].units(length)
    assert np.array_equal(near[..., :units], far[..., :units])
