"""Grids that a local rule writes: rules and machines against plain Python,
their contexts, and what is refused."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import plain_tasks as plain
import pytest
from command import refuses

from lengthgen_jax.config import build, load_presets
from lengthgen_jax.proofs import checker, table
from lengthgen_jax.tasks import TASKS, dataset
from lengthgen_jax.tasks.local_rules import LocalRule
from lengthgen_jax.tasks.task import Size, drawing

INCREMENT = "0LB1RA2RA_2RZ2RZ1LB"
KINDS = "encoder_decoder", "decoder_only"


def grids_of(task, texts, kind="encoder_decoder"):
  """The rows of the grids of typed lines, as people write them, in room for the
  largest, so that they share a program."""
  parsed = [task.parse(text) for text in texts]
  widths = [task.padded_width(lengths) for _, lengths in parsed]
  bound = tuple(map(max, zip(*widths, strict=True)))
  grids = []
  for one, width in zip(parsed, widths, strict=True):
    batch = dataset.parsed_batch(task, kind, [one], width, bound)
    ids = np.asarray(batch.target)[0][np.asarray(batch.weight)[0] > 0]
    grids.append([task.render(row) for row in ids.reshape(width[::-1])])
  return grids


def evolved(rule: int, row: str, steps: int) -> list[str]:
  """Rows of an elementary cellular automaton."""
  rows = [row]
  for _ in range(steps):
    above = f"0{rows[-1]}0"
    cells = (int(above[i : i + 3], 2) for i in range(len(row)))
    rows.append("".join(str(rule >> cell & 1) for cell in cells))
  return rows


@pytest.mark.parametrize("name", checker.GRIDS)
def test_docstring_examples_are_what_the_task_answers(name):
  task = TASKS[name]()
  examples = plain.docstring_examples(TASKS[name])
  assert examples
  grids = grids_of(task, [text for text, _ in examples])
  for (text, answer), rows in zip(examples, grids, strict=True):
    cells = [row.split() if task.separator else row for row in rows]
    ids = [[task.token_names.index(x) for x in row] for row in cells]
    assert task.answer(ids).startswith(answer), text


SCRATCHPADS = [
  ("many_addends", "17+5+98", ["17", "22", "120"]),
  ("divide", "1234*2", ["1234", "176", "25"]),
]


@pytest.mark.parametrize(("name", "text", "steps"), SCRATCHPADS)
def test_the_scratchpad_is_all_rows_as_people_read_them(name, text, steps):
  task = TASKS[name]()
  (rows,) = grids_of(task, [text])
  ids = [int(cell) for row in rows for cell in row]
  lengths = len(rows[0]), len(rows)
  assert task.render_with_lengths(ids, lengths, True) == " / ".join(steps)
  assert task.render_with_lengths(ids, lengths) == steps[-1]


@pytest.mark.parametrize(("rule", "kind"), zip((30, 110), KINDS, strict=True))
def test_an_automaton_goes_by_wolframs_rule(rule, kind):
  task, rng = TASKS["automaton"](rule=rule), np.random.default_rng(rule)
  sizes = (1, 3), (12, 0), (30, 9)
  first = ["".join(map(str, rng.integers(2, size=n))) for n, _ in sizes]
  cases = [(row, steps) for row, (_, steps) in zip(first, sizes, strict=True)]
  grids = grids_of(task, [f"{row}*{steps}" for row, steps in cases], kind)
  assert grids == [evolved(rule, row, steps) for row, steps in cases]


def test_a_machine_runs_until_it_halts_or_leaves_the_tape():
  busy_beaver = TASKS["turing"]()
  lines = [f"{'0 ' * 10}A0{' 0' * 8}*110", "0 A0 0*6"]
  rows, few = grids_of(busy_beaver, lines)
  # 107 steps and 13 ones (Brady 1983).
  assert "Z" not in rows[106] and "Z" in rows[107] and rows[110] == rows[107]
  assert sum(cell[-1] == "1" for cell in rows[107].split()) == 13
  assert few[1:4] == ["0 1 B0", "0 A1 1", "B0 1 1"]
  assert few[4:] == ["1 1 1"] * 3  # it has run off
  # Adds one to a binary number with the digits 1 and 2.
  task = TASKS["turing"](machine=INCREMENT)
  (rows,) = grids_of(task, ["0 A2 2 1 2 2 0*20"])
  assert rows[20] == "0 2 2 2 Z1 1 0"
  for text, end in (
    ("1 Z0 1", "halted"),
    ("1 0 1", "the head has left the tape"),
    ("1 A0 1", "not halted"),
  ):
    ids = [busy_beaver.cells.index(x) for x in text.split()]
    assert busy_beaver.answer([ids]) == f"{text} ({end})"


def test_half_of_the_lists_to_sort_have_repeated_items():
  task = TASKS["insertion_sort"](alphabet=250)
  size = Size(jnp.array((6, 6)), jnp.array((6, 6)), (6, 6))
  draw = jax.vmap(lambda key: task.draw_items(drawing(key), size)[1])
  items = np.array(draw(jax.random.split(jax.random.key(0), 4000)))
  assert items.min() == 1 and items.max() == 250
  counts = np.bincount([len(set(x)) for x in items.tolist()], minlength=7)
  assert (counts[1:] > 200).all() and 1500 < counts[6] < 2100


def test_an_outer_product_is_added_up_to_the_product():
  task, rng = TASKS["outer_product"](), np.random.default_rng(0)
  pairs = [*map(tuple, rng.integers(1, 1 << 7, size=(20, 2)).tolist()), (1, 0)]
  texts = [f"{a:07b}x{b:07b}" for a, b in pairs]
  for (a, b), rows in zip(pairs, grids_of(task, texts), strict=True):
    assert task.answer([[*map(int, row)] for row in rows]) == f"{a * b:b}"
  # What training draws is an outer product; that of numbers that fit too.
  size = Size(jnp.array((5, 6)), jnp.array((5, 6)), (5, 6))
  draw = jax.vmap(lambda key: task.draw_items(drawing(key), size)[0])
  grids = np.array(draw(jax.random.split(jax.random.key(0), 500)))
  grids = grids.reshape(-1, 6, 5)
  a, b = grids.max(axis=1), grids.max(axis=2)
  assert (grids == b[:, :, None] * a[:, None]).all()
  assert 0.15 < a[:, -1].mean() < 0.35 < 0.4 < a[:, 0].mean() < 0.6


@dataclasses.dataclass(frozen=True)
class Wide(LocalRule):
  """A sum modulo 3 of the cell above and the three to its left."""

  name: ClassVar[str] = "wide"
  section: ClassVar[str] = "wide"
  cells: ClassVar[str] = "012"
  operand_in: ClassVar[str] = "first"

  def first_state(self, driver):
    return 0, 0, 0

  def write(self, state, driver, above):
    return (*state[1:], above), (sum(state) + above) % 3


def test_a_rule_of_ones_own_with_a_wider_neighborhood():
  row, expected = [1, 2, 0, 2, 1, 1], ["120211"]
  for _ in range(3):
    above = [0, 0, 0, *row]
    row = [sum(above[i : i + 4]) % 3 for i in range(len(row))]
    expected.append("".join(map(str, row)))
  assert grids_of(Wide(), ["120211*3"]) == [expected]


# Proofs.


def test_rows_that_do_not_occur_are_not_taken_for_granted():
  """A table that says that no row ends in 1 is refused if some are written."""
  data, form = table.table(TASKS["automaton"](rule=30)), (5, True)
  machine = data["machines"][0]
  checker.Task(data, *form)
  machine["accepting"][machine["next"][machine["next"][0][1]][0]] = False
  with pytest.raises(ValueError, match="a row cannot be the one above"):
    checker.Task(data, *form)


def test_a_table_has_every_symbol():
  """Else a proof would leave rows out."""
  data, form = table.table(TASKS["many_addends"]()), (13, True)
  checker.Task(data, *form)
  data["symbols"] = [[a, 0] for a in range(10)]
  for machine in data["machines"]:
    for name in "next", "outputs":
      machine[name] = [row[::10] for row in machine[name]]
  with pytest.raises(ValueError, match="combinations are missing"):
    checker.Task(data, *form)


def test_a_last_cell_that_is_no_digit_is_no_answer():
  task = TASKS["halving"]()
  assert task.render_with_lengths([1, 3, 0, 7], (2, 2)) == "11"
  with refuses("the model wrote"):
    task.render_with_lengths([1, 3, 0, task.delimiter], (2, 2))


def test_counterexamples_keep_their_rows():
  """A prompt is laid out by its size, so they are drawn at theirs alone."""
  config = load_presets("local_rules.py").get_config("many_addends")
  (data,), text = build.build(config).data, "99+01+99*2"
  data = dataclasses.replace(data, counterexamples=((0, text),), share=1.0)
  digits, found = [9, 9, 1, 0, 9, 9], 0
  key = jax.random.key(0)
  sample = jax.jit(lambda index: data.sample(key, 2, 0, index, seed=0))
  for index, (cells, rows) in enumerate(data.widths):
    batch = sample(index)
    prompt = np.asarray(batch.source)[0, : cells * rows].tolist()
    is_drawn = cells == 2 and rows <= 3
    found += is_drawn
    assert (prompt == digits[: cells * rows]) == is_drawn
  assert found


# Bad input.


BAD_RULES = [
  ("turing", {"machine": "1RB1LB_1LA"}, "the same number of actions"),
  ("turing", {"machine": "1RA" * 11}, "the same number of actions"),
  ("turing", {"machine": "1RB1XB_1LA0LB"}, "actions like 1RB"),
  ("turing", {"machine": "1RB1LB_1LA2LB"}, "below that number"),
  ("base", {"source": 10, "target": 2}, "must not exceed base.target=2"),
]


@pytest.mark.parametrize(("name", "fields", "words"), BAD_RULES)
def test_fields_that_make_no_sense_are_refused(name, fields, words):
  with refuses(words):
    TASKS[name](**fields)
