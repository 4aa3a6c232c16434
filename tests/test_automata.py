"""State tracking: automata against brute force, and what is refused."""

import itertools

import numpy as np
import plain_tasks as plain
import pytest
import untrained
from presets import asentmax, states

from lengthgen_jax.certify.transducer import Transducer
from lengthgen_jax.config import default_config
from lengthgen_jax.config.build import build
from lengthgen_jax.errors import UsageError
from lengthgen_jax.pipelines import abc, calibrate
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


def test_modulo_two_is_the_running_parity_of_bits():
  bits = [1, 0, 0, 1, 1, 1, 0]
  parity = plain.running_parity("".join(map(str, bits[::-1])))
  assert "".join(tracked(Transducer(TASKS["modular"](p=2)), bits)) == parity


BAD = {
  ("modular.p", 1): "a modulus must be at least 2",
  ("modular.p", 0): "at least 2",
  ("modular.p", 251): "at most 250",
  ("modular.answer", "last"): "choose one of states, final",
  ("permutations.group", "S4"): "choose one of S3, S5",
  ("dyck.brackets", "("): "pairs of different characters",
  ("dyck.brackets", ""): "pairs of different characters",
  ("dyck.brackets", "(("): "pairs of different characters",
  ("dyck.brackets", "( "): "spaces are no brackets",
  ("dyck.bound", 0): "from 1 to 250",
  ("dyck.bound", 10**9): "from 1 to 250",
  ("dyck.bound", 249): "253 tokens, at most 250",
  ("dyck.broken_share", 1.5): "[0, 1]",
  ("copying.alphabet", 1): "at least 2",
  ("copying.alphabet", 999): "at most 250",
}


@pytest.mark.parametrize("field, value", BAD)
def test_bad_automata_are_refused_in_one_line(field, value):
  section = field.partition(".")[0]
  name = "copy" if section == "copying" else section
  config = default_config(name)
  config.update_from_flattened_dict({field: value})
  with pytest.raises(UsageError) as caught:
    build(config)
  message = str(caught.value)
  assert "\n" not in message and f"{field}={value!r}" in message
  assert BAD[field, value] in message


@pytest.mark.parametrize(
  "name, fields",
  [
    ("dyck", {"brackets": "()[]", "bound": 200}),
    ("modular", {"p": 10**9}),
    ("copy", {"alphabet": 10**9}),
  ],
)
def test_too_many_tokens_are_refused_before_any_is_made(name, fields):
  with pytest.raises(UsageError, match="at most 250 are told apart"):
    TASKS[name](**fields)


def test_practice_is_for_one_bucket():
  config = states.get_config("permutations,abc")
  abc.check_config(config)
  config.retrain.data.buckets = (4, 20)
  with pytest.raises(UsageError, match="retrain.data.buckets"):
    abc.check_config(config)


def test_every_preset_of_states_and_of_asentmax_builds():
  for task in states.TASKS:
    for method in states.METHODS:
      for option in ("", ",decoder_only", ",final"):
        config = states.get_config(f"{task},{method}{option}")
        built = build(config)
        assert built.task.transducer == (option != ",final")
        if method == "abc" and option != ",final":
          abc.check_config(config)
  for task in asentmax.TASKS:
    for method in asentmax.METHODS:
      for option in ("", ",paper"):
        if task in asentmax.TASKS_OF_METHOD.get(method, asentmax.TASKS):
          config = asentmax.get_config(f"{task},{method}{option}")
          assert build(config).train_length == 64
          if method == "abc":
            abc.check_config(config)
        else:
          with pytest.raises(ValueError, match="is for"):
            asentmax.get_config(f"{task},{method}")


def test_places_of_a_task_count_from_the_end_that_is_read_first():
  """Of the prompt as of the output: sinusoids of places match."""
  for name, first in (("copy", "5"), ("reverse", "7")):
    built = untrained.experiment(name)
    batch = untrained.typed(built, "5 2 7")
    (index,) = np.flatnonzero(batch.source_places.place[0, :, 0] == 0)
    assert built.task.symbols(batch.source[0])[index] == first
    assert built.task.symbols(batch.target[0])[0] == first
