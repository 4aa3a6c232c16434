"""Tasks against their docstrings, plain Python, and their own promises."""

import collections
import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import plain_tasks as plain
import pytest
from plain_tasks import BOUND, COUNT, FORMS, MAIN, WIDTH

from lengthgen_jax.config import default_config
from lengthgen_jax.errors import UsageError
from lengthgen_jax.tasks import HINTS, TASKS
from lengthgen_jax.tasks.arithmetic import ArithmeticTask
from lengthgen_jax.tasks.automata import SequenceTask
from lengthgen_jax.tasks.task import Size

KINDS = {task.name: type(task) for task in FORMS.values()}
KNOWN = [form for form in FORMS if FORMS[form].name in plain.ANSWERS]

every_form = pytest.mark.parametrize("form", FORMS)
every_main_form = pytest.mark.parametrize("form", MAIN)
every_known_form = pytest.mark.parametrize("form", KNOWN)


# The registries.


def test_names_are_told_apart_and_fit_the_registry():
  assert len(KINDS) == len(TASKS) + len(plain.HINT_KINDS)
  assert [kind.name for kind in TASKS.values()] == [*TASKS]
  assert set(HINTS) <= set(TASKS)
  assert set(plain.ANSWERS) <= set(KINDS)


@every_form
def test_a_task_says_what_it_must(form):
  task = FORMS[form]
  assert hash(task) == hash(type(task)(**dataclasses.asdict(task)))  # static
  assert task.section and task.unit and task.segments
  assert len(task.strides) in (0, len(task.segments))
  assert task.target_segment == len(task.segments)
  assert all(0 <= t < task.vocab_size for t in (task.pad, task.start))
  assert task.delimiter <= task.vocab_size
  if form in MAIN:
    assert task.test_sets
    default = default_config(task.name).eval.test_sets
    assert default == (next(iter(task.test_sets)),)


@pytest.mark.parametrize("name", plain.HINT_KINDS)
def test_a_hint_shares_its_main_tasks_section_and_tokens(name):
  hint, main = plain.HINT_KINDS[name]
  assert hint.section == main.section
  a, b = plain.made(hint), plain.made(main)
  for field in ("vocab_size", "pad", "start", "delimiter", "segments", "end"):
    assert getattr(a, field) == getattr(b, field)


# Docstrings.


@pytest.mark.parametrize("name", KINDS)
def test_docstring_shows_examples_of_every_form(name):
  prompts = [prompt for prompt, _ in plain.docstring_examples(KINDS[name])]
  aligned = [plain.is_aligned(prompt) for prompt in prompts]
  assert aligned.count(False) >= 2
  assert any(aligned) == (f"{name}-aligned" in FORMS)


@pytest.mark.parametrize("name", TASKS)
def test_docstring_examples_are_what_the_task_answers(name):
  for prompt, output in plain.docstring_examples(TASKS[name]):
    if prompt[0] == "$":
      operands = plain.operand_texts(prompt)
      task = TASKS[name](**{"aligned": True} if prompt[1:2] in "+*" else {})
      text, width = task.operator.join(operands), len(operands[0])
    else:
      task, text, width = TASKS[name](), prompt, WIDTH
    wanted = plain.ids(task, prompt), plain.ids(task, output)
    assert plain.of_text(task, text, width) == wanted, prompt


@functools.cache
def sampler(task, longest: int):
  """Training examples of a length, from a key and a static count."""

  @functools.partial(jax.jit, static_argnums=2)
  def sample(key, length, count):
    numbers = jax.random.uniform(key, (count, task.num_random(longest)))
    size = Size(jnp.full(task.operands, length), jnp.int32(longest), longest)
    return jax.vmap(lambda own: task.example(own, size))(numbers)

  return lambda key, length, count: jax.tree.map(
    np.asarray, sample(jax.random.key(key), length, count)
  )


@pytest.mark.parametrize("name", plain.HINT_KINDS)
def test_docstring_examples_of_hints_are_drawn_like_that(name):
  """A hint draws what it asks: its examples are among very many."""
  task, found = plain.made(KINDS[name]), []
  for line, output in plain.docstring_examples(KINDS[name]):
    prompt, given = line.split("⊥")
    ids = [plain.ids(task, text) for text in (prompt, given, output)]
    found.append((prompt, *ids))
  longest = max(len(prompt) for _, prompt, _, _ in found)
  for text, prompt, given, output in found:
    many = sampler(task, longest)(0, len(prompt), 1 << 18)
    same = (many.prompt.ids[:, : len(prompt)] == prompt).all(axis=1)
    same &= np.broadcast_to(many.num_given, same.shape) == len(given)
    same &= (many.output.ids[:, : len(given)] == given).all(axis=1)
    assert same.any(), f"{text}: never drawn; choose a shorter example"
    for told in np.flatnonzero(same):
      length = many.output.length[told]
      assert many.output.ids[told, len(given) : length].tolist() == output, text


# Plain Python.


@every_known_form
def test_training_examples_equal_plain_python(form):
  task, example = FORMS[form], plain.drawn(form).example
  for i in range(COUNT):
    prompt, given, output = plain.parts(example, i)
    wanted = plain.plain_answer(task, prompt, given)
    assert task.symbols(output) == list(wanted), prompt


@every_form
def test_examples_have_the_sizes_that_are_said(form):
  task, found = FORMS[form], plain.drawn(form)
  example, lengths = found.example, found.lengths
  said = (task.prompt_size, task.output_size)
  for tokens, size in zip(example[:2], said, strict=True):
    own = np.broadcast_to(tokens.length, COUNT)
    assert tokens.ids.shape == (COUNT, size(BOUND))
    assert tokens.left.shape == tokens.right.shape
    assert tokens.left.shape == (COUNT, size(BOUND), task.axes)
    assert tokens.ids.dtype == np.int32
    # Of the own length where lengths differ, of the width elsewhere.
    own_size = lengths[:, 0] if task.ragged else np.full(COUNT, WIDTH)
    assert all(n <= size(m) for n, m in zip(own, own_size, strict=True))
    assert own.max() == size(own_size.max())
  for i in range(COUNT):
    prompt, given, output = plain.parts(example, i)
    assert all(0 <= token < task.vocab_size for token in prompt + output)
    assert output and task.pad not in prompt + given + output
    if task.ragged:
      assert len(prompt) == lengths[i, 0]
    if task.end is not None:
      assert output.index(task.end) == len(output) - 1


@every_main_form
def test_what_a_person_types_is_the_example_that_is_drawn(form):
  task, example = FORMS[form], plain.drawn(form).example
  for i in range(0, COUNT, 7):
    prompt, _, output = plain.parts(example, i)
    text = plain.typed(task, prompt)
    assert plain.of_text(task, text) == (prompt, output)
    assert plain.of_text(task, f"  {' '.join(text.split())} ")[0] == prompt


# Transducers.

TRANSDUCERS = [form for form in MAIN if MAIN[form].states]


def symbols_of(task):
  """Digits of the operands that may follow each other: for N×1, by its single
  digit; [groups][tuples]."""
  digits = range(task.base)
  if task.shared_operands:
    return [[(a, d) for a in digits] for d in range(10)]
  return [list(itertools.product(digits, repeat=task.operands))]


@pytest.mark.parametrize("form", TRANSDUCERS)
def test_states_are_all_that_occur(form):
  task, reached = MAIN[form], set()
  outputs = task.base
  if isinstance(task, SequenceTask):  # they may have tokens of their own
    outputs = task.delimiter
  for group in symbols_of(task):
    columns, found = np.array(group).T, {task.initial_state}
    while True:
      steps = [task.step(s, columns) for s in found]
      new, told = (set(np.ravel(x).tolist()) for x in zip(*steps, strict=True))
      assert told <= set(range(outputs))
      if new <= found:
        break
      found |= new
    reached |= found
  assert sorted(reached) == sorted(task.states)


@pytest.mark.parametrize("form", TRANSDUCERS)
def test_a_transducer_says_the_answer(form):
  """Digit by digit, from the least significant on; item by item."""
  task, example = MAIN[form], plain.drawn(form).example
  for i in range(COUNT):
    prompt, _, output = plain.parts(example, i)
    found = task.symbols(prompt)
    if isinstance(task, SequenceTask):
      state, told = task.initial_state, []
      for item in prompt if task.anchor == "left" else prompt[::-1]:
        state, token = task.step(state, [item])
        told.append(int(token))
      assert told == output
      continue
    if found[0] == "$":
      operands = plain.operand_texts("".join(found))
    else:
      operands = ["0" + "".join(found)]  # one digit more
    rows = [list(map(int, reversed(text))) for text in operands]
    width = len(rows[0])
    rows = [own * width if len(own) < width else own for own in rows]
    state, told = task.initial_state, []
    for own in zip(*rows, strict=True):
      state, digit = task.step(state, own)
      told.append(str(int(digit)))
    output = [x for x in task.symbols(output) if x != "&"]
    # A classification's only output is the last one.
    assert told[-len(output) :] == output


# Sizes.


def test_bits_of_decimal_lengths():
  parity, addition = TASKS["parity"](), TASKS["addition"]()
  assert [parity.units(n) for n in (6, 60, 1000)] == [20, 200, 3322]
  assert [parity.bits(n) for n in (6, 60)] == [20, 200]
  assert (addition.units(60), addition.bits(60)) == (60, None)


@pytest.mark.parametrize("length", (1, 2, 9, 10, 1000))
@every_main_form
def test_size_of_a_test_set(form, length):
  task = MAIN[form]
  everything = 10**length - 10 ** (length - 1)
  if not isinstance(task, ArithmeticTask):
    everything = 10**10
  for samples in (1, 50, 1000, 10**9):
    assert task.num_test_samples(length, samples) == min(everything, samples)


@pytest.mark.parametrize("form", ("addition", "parity"))
def test_operands_have_slack_at_natural_width(form):
  task = plain.made(type(MAIN[form]), slack=3)
  assert task.natural_width(20) == 23
  with pytest.raises(UsageError, match="arithmetic.slack=-1"):
    plain.made(type(task), slack=-1)


# What hints and training sets draw.


@pytest.mark.parametrize(
  "length, gaps", [(2, {0}), (3, {1}), (4, {0, 2}), (7, {1, 3}), (8, {0, 2, 4})]
)
def test_count_has_two_numbers_a_capped_gap_and_ties(length, gaps):
  task = plain.made(KINDS["sort_count"], count_gap=4, count_ties=0.25)
  items = sampler(task, 8)(0, length, 400).prompt.ids[:, :length]
  counts = [sorted(collections.Counter(row).values()) for row in items.tolist()]
  assert all(len(own) == 2 for own in counts)
  found = collections.Counter(most - least for least, most in counts)
  assert set(found) == gaps
  if {0, 2} <= gaps:
    assert 60 < found[0] < 140


def test_repetition_data_draw_few_values():
  few = {}
  for share in (0.0, 0.5):
    task = KINDS["sort"](alphabet=50, repeat_share=share)
    items = sampler(task, 20)(0, 20, 4000).prompt.ids
    few[share] = np.mean([len(set(row)) <= 2 for row in items.tolist()])
    assert set(items.ravel().tolist()) == set(range(1, 51))
  # k is uniform in 1...20: a tenth of that half have one or two values.
  assert few[0.0] == 0 and 0.035 < few[0.5] < 0.065


def test_runs_of_nines_are_as_frequent_as_asked():
  task = KINDS["increment"](nines_share=0.5)
  digits = sampler(task, 6)(0, 6, 4000).prompt.ids - 1
  assert abs(np.mean(digits[:, -1] == 9) - (0.5 + 0.05)) < 0.03
  assert abs(np.mean((digits == 9).all(axis=1)) - 0.5 / 6) < 0.02
  assert set(digits[:, 0]) == set(range(1, 10))  # no leading 0
  assert set(digits[:, 1]) == set(range(10))


def test_successors_are_asked_of_items_that_occur_once():
  task = plain.made(KINDS["sort_successor"], alphabet=4, asks_single=True)
  found = sampler(task, 6)(0, 5, 4000)
  items, asked = found.prompt.ids[:, :5], found.output.ids[:, :1]
  times = (items == asked).sum(axis=1)
  lone = [1 in collections.Counter(row).values() for row in items.tolist()]
  lone = np.array(lone)
  assert 0.1 < lone.mean() < 0.99
  assert (times[lone] == 1).all() and (times[~lone] > 1).all()
  place = (items == asked)[lone].argmax(axis=1)
  assert (abs(np.bincount(place, minlength=5) / lone.sum() - 0.2) < 0.04).all()


def test_hints_ask_about_any_item_and_give_any_part():
  task = plain.made(KINDS["sort_successor"], repeat_share=0.0)
  found = sampler(task, 4)(0, 4, 4000)
  items, asked = found.prompt.ids, found.output.ids[:, :1]
  distinct = np.array([len(set(row)) == 4 for row in items.tolist()])
  place = np.bincount((items == asked)[distinct].argmax(axis=1), minlength=4)
  assert (abs(place / distinct.sum() - 0.25) < 0.04).all()
  task = plain.made(KINDS["sort_fill"])
  given = sampler(task, 3)(0, 3, 4000).num_given
  assert (abs(np.bincount(given) / 4000 - 0.25) < 0.04).all()
