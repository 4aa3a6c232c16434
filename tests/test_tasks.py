"""Tasks against plain Python and their own promises, and what
people type and read."""

import collections
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import plain_tasks as plain
import pytest
from plain_tasks import BOUND, COUNT, FORMS, MAIN, WIDTH

from lengthgen_jax.tasks import TASKS
from lengthgen_jax.tasks.numbers import NumberTask
from lengthgen_jax.tasks.task import Size, drawing

CLASSES = {task.name: type(task) for task in FORMS.values()}
KNOWN = [form for form in FORMS if FORMS[form].name in plain.ANSWERS]
every_form = pytest.mark.parametrize("form", FORMS)
every_main_form = pytest.mark.parametrize("form", MAIN)


# Plain Python.


@pytest.mark.parametrize("name", ("modular", "permutations", "dyck"))
def test_the_final_answer_is_the_last_state(name):
  states, final = (TASKS[name](answer=x) for x in ("states", "final"))
  prompt, output = plain.example_of_text(states, states.usage)
  assert plain.example_of_text(final, states.usage) == (prompt, output[-1:])
  assert states.render(output) == final.render(output[-1:])


@pytest.mark.parametrize("form", KNOWN)
def test_training_examples_equal_plain_python(form):
  """Output by output, and as people read the whole."""
  task, example = FORMS[form], plain.draw_examples(form).example
  for i in range(COUNT):
    prompt, prefix, output = plain.split_example(example, i)
    assert task.symbols(output) == plain.plain_answer(task, prompt, prefix)
    if form in MAIN:
      assert task.render(output) == plain.plain_line(task, prompt)


@every_form
def test_examples_have_the_sizes_that_the_task_states(form):
  task, (example, lengths) = FORMS[form], plain.draw_examples(form)
  # Of its own length where lengths differ, of the width elsewhere.
  bounds = lengths[:, 0] if task.ragged else np.full(COUNT, WIDTH)
  sizes = task.prompt_size, task.output_size
  for tokens, size in zip(example[:2], sizes, strict=True):
    counts = np.broadcast_to(tokens.length, COUNT)
    assert tokens.ids.shape == (COUNT, size(BOUND))
    assert (counts <= [size(bound) for bound in bounds]).all()
    assert counts.max() == size(bounds.max())
  for i in range(COUNT):
    prompt, prefix, output = plain.split_example(example, i)
    assert all(0 <= token < task.vocab_size for token in prompt + output)
    assert output and task.pad not in prompt + prefix + output
    if task.ragged:
      assert len(prompt) == lengths[i, 0]
    if task.end is not None:
      assert output.index(task.end) == len(output) - 1


@every_main_form
def test_what_a_person_types_is_the_example_that_is_drawn(form):
  task, example = FORMS[form], plain.draw_examples(form).example
  for i in range(0, COUNT, 7):
    prompt, _, output = plain.split_example(example, i)
    text = plain.input_text(task, prompt)
    assert plain.example_of_text(task, text) == (prompt, output)
    spaced = f"  {' '.join(text.split())} "
    assert plain.example_of_text(task, spaced)[0] == prompt


# Sizes.


def test_parity_counts_bits_of_decimal_lengths():
  parity, addition = TASKS["parity"](), TASKS["addition"]()
  assert [parity.units(n) for n in (6, 60, 1000)] == [20, 200, 3322]
  assert [parity.bits(n) for n in (6, 60)] == [20, 200]
  assert (addition.units(60), addition.bits(60)) == (60, None)


# What hints and training sets draw.


@functools.cache
def sampler(task, max_length: int):
  """Training examples of a length, from a seed and a static count."""

  @functools.partial(jax.jit, static_argnums=2)
  def sample(key, length, count):
    lengths = jnp.full(task.operands, length)
    size = Size(lengths, jnp.int32(max_length), max_length)
    make_example = lambda key: task.example(drawing(key), size)
    return jax.vmap(make_example)(jax.random.split(key, count))

  return lambda seed, length, count: jax.tree.map(
    np.asarray, sample(jax.random.key(seed), length, count)
  )


def test_count_has_two_numbers_a_capped_gap_and_ties():
  task = plain.make_task(CLASSES["sort_count"], count_gap=4, count_ties=0.25)
  items = sampler(task, 8)(0, 8, 400).prompt.ids[:, :8]
  counts = [sorted(collections.Counter(row).values()) for row in items.tolist()]
  assert all(len(pair) == 2 for pair in counts)
  frequencies = collections.Counter(most - least for least, most in counts)
  assert set(frequencies) == {0, 2, 4}
  assert 60 < frequencies[0] < 140


# k is 1 or 2 of 1...20, or in [1, 3) of [1, 21) in the logarithm.
SHARES = {"uniform": 2 / 20, "log_uniform": np.log(3) / np.log(21)}


@pytest.mark.parametrize(("values", "share_of_few"), SHARES.items())
def test_repetition_data_draw_few_values(values, share_of_few):
  task = CLASSES["sort"](alphabet=50, repeat_share=0.5, repeat_values=values)
  items = sampler(task, 20)(0, 20, 4000).prompt.ids
  few = np.mean([len(set(row)) <= 2 for row in items.tolist()])
  assert set(items.ravel().tolist()) == set(range(1, 51))
  assert abs(few - 0.5 * share_of_few) < 0.02


def test_runs_of_nines_are_as_frequent_as_the_config_says():
  task = CLASSES["increment"](nines_share=0.5)
  digits = sampler(task, 6)(0, 6, 4000).prompt.ids - 1
  assert abs(np.mean(digits[:, -1] == 9) - (0.5 + 0.05)) < 0.03
  assert abs(np.mean((digits == 9).all(axis=1)) - 0.5 / 6) < 0.02
  assert set(digits[:, 0]) == set(range(1, 10))  # no leading 0
  assert set(digits[:, 1]) == set(range(10))


def test_long_products_have_as_many_extreme_digits_as_the_config_says():
  shares = {}
  for share in (0.0, 1.0):
    task = CLASSES["multiply_long"](extreme_share=share)
    tokens = sampler(task, 6)(0, 6, 2000).prompt.ids
    digits = tokens[tokens < 10]
    assert set(digits.tolist()) == set(range(10))
    shares[share] = np.isin(digits, (0, 9)).mean()
  # Of uniform digits a fifth are 0s and 9s, of extreme ones half and a tenth.
  for share, measured in shares.items():
    assert abs(measured - (0.2 + 0.4 * share)) < 0.02


def queried_places(task, count, length):
  """Items [count, length], how often the queried one occurs, and where."""
  examples = sampler(task, length)(0, length, count)
  items = examples.prompt.ids
  equal = items == examples.output.ids[:, :1]
  return items.tolist(), equal.sum(axis=1), equal.argmax(axis=1)


def check_uniform(numbers, count):
  """Each of the numbers from 0 to count - 1 occurs as often."""
  shares = np.bincount(numbers, minlength=count) / len(numbers)
  assert (abs(shares - 1 / count) < 0.04).all()


def test_successors_are_of_items_that_occur_once():
  hint = CLASSES["sort_successor"]
  task = plain.make_task(hint, alphabet=4, asks_single=True)
  items, times, place = queried_places(task, 4000, 5)
  counts = (collections.Counter(row).values() for row in items)
  has_single = np.array([1 in x for x in counts])
  assert 0.1 < has_single.mean() < 0.99
  assert (times[has_single] == 1).all() and (times[~has_single] > 1).all()
  check_uniform(place[has_single], 5)


def test_hints_ask_about_any_item_and_give_any_part():
  task = plain.make_task(CLASSES["sort_successor"], repeat_share=0.0)
  items, _, place = queried_places(task, 4000, 4)
  check_uniform(place[[len(set(row)) == 4 for row in items]], 4)
  task = plain.make_task(CLASSES["sort_fill"])
  check_uniform(sampler(task, 3)(0, 3, 4000).prefix_length, 4)


# What people type and read: parse, render and usage.

BAD = {
  "successor": {"1+2": "'+'"},
  "addition": {
    "12x+3": "'x'",
    "1+2+3": "2 operators",
    "12": "0 operators",
    "12+": "lacks an operand",
  },
  "multiply": {"12*34": "multiplier of 2 digits"},
  "sort": {"0": "'0'", "33": "'33'", "-1": "-1", "²": "²"},
  "permutations": {
    "21345 11345": "'11345'; permutations takes permutations of 12345"
  },
  "mqmtar": {
    "1 2 : 3 . > 1 2 > 1 2 > 1 2 > 1 2": "'1 2 : 3' is no pair",
    "1 2 : 3 4 . > 1 2": "1 queries, not 4",
    "1 2 : 3 4 . > 1 2 > 1 2 > 1 2 > 2 1": "'2 1' is not the key",
  },
  "automaton": {
    "0110": "has no number behind *",
    "01*x": "has no number behind *",
    "01*٣": "has no number behind *",
  },
  "many_addends": {
    "12+3*0": "no number behind * of at least 1",
    "12+": "lacks a row",
  },
  "turing": {"A0 B1*2": "a tape has one head at most"},
  "insertion_sort": {"3 _ 2": "has '_'"},
  "outer_product": {"11x1 01": "outer_product takes a line like 11x"},
}
for name in TASKS:  # whatever it takes
  BAD.setdefault(name, {})
  BAD[name] |= {"": "empty", " ": "empty", "?": "'?'", "?\n1": "'?"}
  BAD[name] |= {"1" * 5000 + "?": "...", "?" * 5000: "'?"}


@pytest.mark.parametrize("name", BAD)
def test_parse_refuses_in_one_short_line_that_says_what_it_takes(name):
  task = TASKS[name]()
  for text, part in BAD[name].items():
    with pytest.raises(ValueError) as caught:
      task.parse(text)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 160, text[:40]
    assert part in message and task.usage in message, message
    assert f"{name} takes" in message


@pytest.mark.parametrize("name", TASKS)
def test_usage_can_be_typed(name):
  task = TASKS[name]()
  items, lengths = task.parse(task.usage)
  assert task.num_items(tuple(lengths)) == np.shape(items)[-1]
  assert len(lengths) == task.operands
  _, output = plain.example_of_text(task, task.usage)
  assert task.render(output)
  if hasattr(task, "alphabet"):
    small = TASKS[name](alphabet=2)
    small.parse(small.usage)


def test_render_has_no_leading_zeros():
  task = TASKS["addition"]()
  tokens = {"3210&": "123", "0010&@@": "100", "000&": "0", "5&": "5"}
  for text, answer in tokens.items():
    assert task.render(task.encode(text)) == answer
  assert TASKS["increment"]().render([1, 1]) == "0"


@every_main_form
def test_render_refuses_in_one_short_line_what_is_no_answer(form):
  task = MAIN[form]
  if isinstance(task, NumberTask):
    texts = ["123", "12+3&", "&", "", "1$&", "1" * 5000, "+" * 5000 + "&"]
    texts += ["7&"] if task.base == 2 else []
    bad = [task.encode(text) for text in texts]
  else:
    bad = [[task.pad], [1, task.delimiter], [task.delimiter + 1]]
  for tokens in bad:
    with pytest.raises(ValueError) as caught:
      task.render(tokens)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 160
    assert re.search("wrote|no end token", message)
