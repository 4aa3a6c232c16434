"""Grids that a local rule writes: rules and machines against plain Python,
their contexts, and what is refused."""

import dataclasses
import itertools
import re
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


def task_of(name, **fields):
  return TASKS[name](**fields)


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
    grids.append([task.row_text(row) for row in ids.reshape(width[::-1])])
  return grids


def rows_of(task, text):
  """The rows of the grid of a typed line."""
  (rows,) = grids_of(task, [text])
  return rows


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
  task = task_of(name)
  examples = plain.docstring_examples(TASKS[name])
  assert examples
  grids = grids_of(task, [text for text, _ in examples])
  for (text, answer), rows in zip(examples, grids, strict=True):
    ids = [[task.token_names.index(x) for x in split(task, row)]
           for row in rows]  # fmt: skip
    assert task.answer(ids).startswith(answer), text


def split(task, row: str) -> list[str]:
  return row.split() if task.separator else list(row)


@pytest.mark.parametrize(("rule", "kind"), zip((30, 110), KINDS, strict=True))
def test_an_automaton_goes_by_wolframs_rule(rule, kind):
  task, rng = task_of("automaton", rule=rule), np.random.default_rng(rule)
  sizes = (1, 3), (12, 0), (30, 9)
  first = ["".join(map(str, rng.integers(2, size=n))) for n, _ in sizes]
  cases = [(row, steps) for row, (_, steps) in zip(first, sizes, strict=True)]
  grids = grids_of(task, [f"{row}*{steps}" for row, steps in cases], kind)
  assert grids == [evolved(rule, row, steps) for row, steps in cases]


def run_machine(machine: str, tape: list[str], steps: int) -> list[list[str]]:
  """Tapes of a Turing machine, whose head's cell begins with the state."""
  actions = [row[i : i + 3] for row in machine.split("_")
             for i in range(0, len(row), 3)]  # fmt: skip
  size, tapes = machine.index("_") // 3, [tape]
  for _ in range(steps):
    tape = list(tapes[-1])
    head = next((i for i, cell in enumerate(tape) if len(cell) > 1), None)
    state = "" if head is None else tape[head][0]
    if state and ord(state) - 65 < machine.count("_") + 1:
      write, move, state = actions[
        (ord(state) - 65) * size + int(tape[head][1])
      ]
      tape[head], head = write, head + (1 if move == "R" else -1)
      if 0 <= head < len(tape):
        tape[head] = state + tape[head]
    tapes.append(tape)
  return tapes


def test_a_machine_runs_until_it_halts_or_leaves_the_tape():
  busy_beaver = task_of("turing")
  tape = ["0"] * 10 + ["A0"] + ["0"] * 8
  for machine, start, steps in (
    (busy_beaver.machine, tape, 110),
    (busy_beaver.machine, tape[8:], 30),  # it runs off
    (INCREMENT, ["0", "A2", "2", "1", "2", "2", "0"], 20),
  ):
    task, line = task_of("turing", machine=machine), " ".join(start)
    tapes = [" ".join(x) for x in run_machine(machine, start, steps)]
    assert rows_of(task, f"{line}*{steps}") == tapes
  answer = lambda text, task=busy_beaver: task.answer(
    [[task.cells.index(x) for x in text.split()]]
  )
  assert tapes[-1].count("Z") == 1
  assert answer("1 Z0 1") == "1 Z0 1 (halted)"
  assert answer("1 0 1") == "1 0 1 (the head has left the tape)"
  assert answer("1 A0 1") == "1 A0 1 (not halted)"
  # 107 steps and 13 ones (Brady 1983).
  last = run_machine(busy_beaver.machine, tape, 107)[-1]
  assert sum(cell[-1] == "1" for cell in last) == 13 and "Z" in "".join(last)
  assert "Z" not in "".join(run_machine(busy_beaver.machine, tape, 106)[-1])


def test_items_are_sorted_one_by_one():
  task, rng = task_of("insertion_sort", alphabet=9), np.random.default_rng(0)
  lists = [(rng.integers(9, size=size) + 1).tolist() for size in (1, 7)]
  texts = [" ".join(map(str, items)) for items in lists]
  *grids, cut = grids_of(task, [*texts, "5 3 9 3*2"])
  for items, rows in zip(lists, grids, strict=True):
    for j, row in enumerate(rows):
      expected = [*map(str, sorted(items[: j + 1]))]
      assert row.split() == expected + ["_"] * (len(items) - j - 1)
  # With fewer cells the largest are dropped.
  assert cut[-1] == "3 3"


def test_half_of_the_lists_to_sort_have_repeated_items():
  task = task_of("insertion_sort", alphabet=250)
  size = Size(jnp.array((6, 6)), jnp.array((6, 6)), (6, 6))
  draw = jax.vmap(lambda key: task.draw_items(drawing(key), size)[1])
  items = np.array(draw(jax.random.split(jax.random.key(0), 4000)))
  assert items.min() == 1 and items.max() == 250
  counts = np.bincount([len(set(x)) for x in items.tolist()], minlength=7)
  assert (counts[1:] > 200).all() and 1500 < counts[6] < 2100


def test_numbers_in_another_base_are_those_of_python():
  """From binary to decimal they are in the docstring."""
  source, target, rng = 3, 7, np.random.default_rng(0)
  task = task_of("base", source=source, target=target)
  texts = ["".join(map(str, rng.integers(source, size=n))) for n in (1, 12)]
  *grids, cut = grids_of(task, [*texts, f"{texts[-1]}*2"])
  for text, rows in zip(texts, grids, strict=True):
    for j, row in enumerate(rows):
      assert int(row[::-1], target) == int(text[: j + 1], source)
  # With fewer cells, modulo what they hold.
  assert int(cut[-1][::-1], target) == int(texts[-1], source) % target**2


def test_numbers_are_added_one_by_one():
  task, rng = task_of("many_addends"), np.random.default_rng(0)
  for count, size, kind in ((1, 3, KINDS[0]), (11, 4, KINDS[1])):
    numbers = rng.integers(10**size, size=count).tolist()
    text = "+".join(map(str, numbers))
    # With fewer cells, modulo what they hold.
    whole, cut = grids_of(task, [text, f"{text}*{size}"], kind)
    sums = list(itertools.accumulate(numbers))
    assert [int(row[::-1]) for row in whole] == sums
    assert [int(row[::-1]) for row in cut] == [x % 10**size for x in sums]


def test_an_outer_product_is_added_up_to_the_product():
  task, rng = task_of("outer_product"), np.random.default_rng(0)
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


@pytest.mark.parametrize("divisor", (1, 9))
def test_a_number_is_divided(divisor):
  task = task_of("divide", divisor=divisor)
  numbers = (0, 5, 1234, 987654)
  for number, rows in zip(
    numbers, grids_of(task, [f"{x}*3" for x in numbers]), strict=True
  ):
    assert [*map(int, rows)] == [number // divisor**j for j in range(4)]


def test_a_number_is_halved_and_read_as_binary():
  task = task_of("halving")
  numbers = (0, 13, 98765)
  grids = grids_of(task, map(str, numbers))
  for number, rows in zip(numbers, grids, strict=True):
    assert [*map(int, rows)] == [number >> j for j in range(len(rows))]
    ids = [[*map(int, row)] for row in rows]
    assert task.answer(ids) == f"{number:b}"


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
  assert rows_of(Wide(), "120211*3") == expected


# Proofs.


def config_of(task) -> dict:
  return {"task": task.name, task.section: dataclasses.asdict(task)}


@pytest.mark.parametrize(
  "task",
  [
    task_of("automaton", rule=30),
    task_of("turing", machine=INCREMENT),
    task_of("insertion_sort", alphabet=4),
    task_of("base", source=3, target=5),
    task_of("halving"),
    task_of("divide", divisor=3),
    task_of("many_addends"),
    task_of("outer_product"),
  ],
  ids=lambda task: task.name,
)
def test_the_checker_refuses_a_rule_with_one_entry_changed(task):
  data, form = table.table(task), (len(task.token_names), True)
  args = config_of(task), *form
  assert checker.is_stated(checker.make_task(data, *form), *args)
  outputs, rng = data["machines"][-1]["outputs"], np.random.default_rng(0)
  for _ in range(10):
    state, symbol = (int(rng.integers(n)) for n in np.shape(outputs))
    if not data["machines"][-1]["accepting"][state]:
      continue  # of no row that occurs
    old = outputs[state][symbol]
    outputs[state][symbol] = (old + 1) % len(task.cells)
    with pytest.raises(
      ValueError, match="another transducer|cannot be the one"
    ):
      checker.is_stated(checker.make_task(data, *form), *args)
    outputs[state][symbol] = old


def test_rows_that_do_not_occur_are_not_taken_for_granted():
  """A table that says that no row ends in 1 is refused if some are written."""
  data, form = table.table(task_of("automaton", rule=30)), (5, True)
  machine = data["machines"][0]
  checker.make_task(data, *form)
  machine["accepting"][machine["next"][machine["next"][0][1]][0]] = False
  with pytest.raises(ValueError, match="a row cannot be the one above"):
    checker.make_task(data, *form)


def test_a_table_has_every_symbol():
  """Else a proof would leave rows out."""
  data, form = table.table(task_of("many_addends")), (13, True)
  checker.make_task(data, *form)
  data["symbols"] = [[a, 0] for a in range(10)]
  for machine in data["machines"]:
    for name in "next", "outputs":
      machine[name] = [row[::10] for row in machine[name]]
  with pytest.raises(ValueError, match="combinations are missing"):
    checker.make_task(data, *form)


def test_halving_is_by_two_whatever_a_card_says():
  task = task_of("divide", divisor=3)
  data, form = table.table(task), (len(task.token_names), True)
  config = {"task": "halving", "halving": {"divisor": 3}}
  with pytest.raises(ValueError, match="another transducer"):
    checker.is_stated(checker.make_task(data, *form), config, *form)


def test_counterexamples_keep_their_rows():
  """A prompt is laid out by its size, so they are drawn at theirs alone."""
  config = load_presets("local_rules.py").get_config("many_addends")
  (data,), text = build.build(config).data, "99+01+99*2"
  data = dataclasses.replace(data, counterexamples=((0, text),), share=1.0)
  digits, found = [9, 9, 1, 0, 9, 9], 0
  sample = jax.jit(
    lambda index: data.sample(jax.random.key(0), 2, 0, index, seed=0)
  )
  for index, (cells, rows) in enumerate(data.widths):
    batch = sample(index)
    prompt = np.asarray(batch.source)[0, : cells * rows].tolist()
    is_drawn = cells == 2 and rows <= 3
    found += is_drawn
    assert (prompt == digits[: cells * rows]) == is_drawn
  assert found


# Bad input.


def test_machines_and_rules_that_make_no_sense():
  for machine, words in (
    ("1RB1LB_1LA", "the same number of actions"),
    ("1RA" * 11, "the same number of actions"),
    ("1RB1LB_1LA2LB", "writes 2"),
    ("1RB1XB_1LA0LB", "actions like 1RB"),
    ("", "actions like 1RB"),
  ):
    with refuses(words):
      task_of("turing", machine=machine)
  with refuses("automaton.rule=256"):
    task_of("automaton", rule=256)
  with refuses("base.source=10: must not exceed base.target=2"):
    task_of("base", source=10, target=2)
  with refuses("insertion_sort.alphabet=251"):
    task_of("insertion_sort", alphabet=251)

  class Half(Wide):
    def write(self, state, driver, above):
      return state, {0: 0, 1: 1}[above]

  class Beyond(Wide):
    def write(self, state, driver, above):
      return state, above + 1

  class Counts(Wide):
    def first_state(self, driver):
      return 0

    def write(self, state, driver, above):
      return state + above, 0

  class Nowhere(Wide):
    def first_state(self, driver):
      return None

  class Lists(Wide):
    def write(self, state, driver, above):
      return [above], 0

  class Far(Wide):
    ahead = 2

  for task, words in (
    (Nowhere(), "first_state must not be None"),
    (Far(), "ahead must be 0 or 1"),
    (Lists(), "unhashable"),
    (Half(), "wide: write((0, 0, 0), 3, 2): KeyError"),
    (Beyond(), "writes 3, which is no cell from 0 to 2"),
    (Counts(), "more than 4096 states"),
  ):
    with refuses(words):
      table.table(task)


@pytest.mark.parametrize(
  ("name", "line", "words"),
  [
    ("automaton", "0110", "has no number behind *"),
    ("automaton", "01a*2", "has 'a'"),
    ("automaton", "*2", "empty line"),
    ("automaton", "01*x", "has no number behind *"),
    ("automaton", "01*99999999", "rows of 2 cells are more than"),
    ("turing", "A0 B1*2", "a tape has one head at most"),
    ("turing", "0 Q0*2", "has 'Q0'"),
    ("insertion_sort", "3 _ 2", "has '_'"),
    ("insertion_sort", "3 33", "has '33'"),
    ("base", "1021", "has '2'"),
    ("many_addends", "12+", "lacks a row"),
    ("many_addends", "12+3x", "has 'x'"),
    ("many_addends", "12+3*", "has no number behind *"),
    ("many_addends", "12+3*0", "has no number behind *"),
    ("many_addends", "1+2*99999999", "rows of 99999999 cells are more than"),
    ("outer_product", "11x", "is no product"),
    ("outer_product", "1x2", "is no product"),
    ("base", "1011*0", "has no number behind *"),
    ("base", "", "empty line"),
  ],
)
def test_lines_that_are_no_input(name, line, words):
  with pytest.raises(Exception, match="(?s)" + re.escape(words)):
    task_of(name).parse(line)


def test_small_grids_have_no_other_contexts():
  """Every choice of the cells above and of the driver that the transducer's
  runs allow occurs in a small grid, and the other way round."""
  task = task_of("insertion_sort", alphabet=2)
  seen, sizes = set(), (1, 2, 3, 4)
  lists = [x for n in sizes for x in itertools.product("12", repeat=n)]
  grids = grids_of(task, map(" ".join, lists))
  for items, grid in zip(lists, grids, strict=True):
    rows = [["_"] * len(items), *(x.split() for x in grid)]
    for above, row, item in zip(rows, rows[1:], items, strict=False):
      for k in range(len(items)):
        left = above[k - 1] if k else ""
        seen.add((item, left, above[k], row[k]))
  machine = task.row_machine
  said = set()
  for d, item in enumerate("12"):
    todo, known = [machine.start[d]], set()
    origins = {int(machine.start[d]): ""}
    while todo:
      state = int(todo.pop())
      if state in known:
        continue
      known.add(state)
      for symbol in range(3):
        after = machine.next_states[d, state, symbol]
        if machine.accepting[after]:
          name = task.cells[symbol]
          cell = task.cells[machine.cells[d, state, symbol]]
          said.add((item, origins[state], name, cell))
          origins[int(after)] = name
          todo.append(after)
  assert said == seen
