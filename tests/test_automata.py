"""State tracking: automata against brute force, and what is refused."""

import itertools

import numpy as np
import plain_tasks as plain
import pytest
from presets import states

from lengthgen_jax.certify.transducer import Transducer
from lengthgen_jax.config.build import build
from lengthgen_jax.errors import UsageError
from lengthgen_jax.pipelines import calibrate
from lengthgen_jax.tasks import TASKS

BRACKETS = ("()", "()[]", "()[]{}")


def tracked(transducer, items):
  """Names of the outputs for items [n], by a task's table."""
  state, names = (0, transducer.task.initial_state), []
  for item in items:
    (symbol,), output, state = transducer.table[state][item]
    assert symbol == item
    names.append(transducer.task.token_names[output])
  return names


def nested(brackets: str, bound: int, text: str) -> list[str]:
  """What Dyck should say, by a stack."""
  pairs = dict(zip(brackets[1::2], brackets[::2], strict=True))
  stack, states = [], []
  for bracket in text:
    if stack is not None and bracket in pairs:
      stack = stack[:-1] if stack[-1:] == [pairs[bracket]] else None
    elif stack is not None:
      stack = [*stack, bracket] if len(stack) < bound else None
    kinds = "" if len(brackets) == 2 else "".join(stack or "")
    states.append("invalid" if stack is None else f"{len(stack)}{kinds}")
  return states


@pytest.mark.parametrize("brackets", BRACKETS)
def test_brackets_of_all_short_texts_are_nested_as_a_stack_says(brackets):
  bound, length = (3, 8) if brackets == "()" else (2, 5)
  transducer = Transducer(TASKS["dyck"](brackets=brackets, bound=bound))
  for items in itertools.product(range(len(brackets)), repeat=length):
    text = "".join(brackets[item] for item in items)
    assert tracked(transducer, items) == nested(brackets, bound, text), text


@pytest.mark.parametrize("group, order", (("S3", 6), ("S5", 120)))
def test_products_are_those_of_a_group(group, order):
  task = TASKS["permutations"](group=group)
  table, transducer = np.empty((order, order), int), Transducer(task)
  for (_, state), moves in transducer.table.items():
    table[state] = [new for _, _, (_, new) in moves]
  elements = np.arange(order)
  assert (table[0] == elements).all() and (table[:, 0] == elements).all()
  for row in (*table, *table.T):  # each element once in every row and column
    assert sorted(row) == list(elements)
  a, b, c = np.random.default_rng(0).integers(0, order, (3, 500))
  assert (table[table[a, b], c] == table[a, table[b, c]]).all()
  assert (table != table.T).any()
  words = [task.token_names[i] for i in (a[0], b[0], c[0])]
  assert tracked(transducer, (a[0], b[0], c[0])) == plain.composed(words)


@pytest.mark.parametrize("name", ("modular", "permutations", "dyck"))
def test_the_final_answer_is_the_last_state(name):
  states_, final = (TASKS[name](answer=x) for x in ("states", "final"))
  text = {"modular": "3 5 6", "dyck": "(()"}.get(name, "21345 13245 54321")
  prompt, output = plain.example_of_text(states_, text)
  assert plain.example_of_text(final, text) == (prompt, output[-1:])
  assert states_.render(output) == final.render(output[-1:])
  assert states_.transducer and not final.transducer
  config = states.get_config(f"{name},vanilla,final")
  with pytest.raises(UsageError, match="no fixed place"):
    calibrate.check_config(config, build(config))
