"""State tracking: automata against brute force, and what is refused."""

import itertools

import plain_tasks as plain
import pytest
from presets import states

from lengthgen_jax.config.build import build
from lengthgen_jax.errors import UsageError
from lengthgen_jax.pipelines import calibrate
from lengthgen_jax.proofs.table import table
from lengthgen_jax.tasks import TASKS


def tracked(task, items):
  """Names of the outputs for items [n], by a task's table."""
  (machine,), state, names = table(task)["machines"], 0, []
  for item in items:
    names.append(task.token_names[machine["outputs"][state][item]])
    state = machine["next"][state][item]
  return names


def test_brackets_of_all_short_texts_are_nested_as_a_stack_says():
  """Of several kinds; test_test_sets.py has long texts of one kind."""
  brackets, bound = "()[]{}", 2
  task = TASKS["dyck"](brackets=brackets, bound=bound)
  for items in itertools.product(range(len(brackets)), repeat=5):
    text = "".join(brackets[item] for item in items)
    expected = plain.depths(text, bound, brackets)
    assert tracked(task, items) == expected, text


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
