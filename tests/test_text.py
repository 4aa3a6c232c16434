"""What people type and read: parse, render and usage of every task."""

import dataclasses
import re

import numpy as np
import plain_tasks as plain
import pytest
from plain_tasks import COUNT, MAIN

from lengthgen_jax.tasks import TASKS
from lengthgen_jax.tasks.numbers import NumberTask

every_main_form = pytest.mark.parametrize("form", MAIN)

BAD = {
  "successor": {"12a4": "'a'", "1+2": "'+'"},
  "addition": {
    "12x+3": "'x'",
    "1+2+3": "2 operators",
    "12": "0 operators",
    "12+": "lacks an operand",
    "1*2": "'*'",
  },
  "multiply": {"12*34": "multiplier of 2 digits"},
  "multiply_long": {"*3": "lacks an operand"},
  "parity": {"012": "'2'"},
  "sort": {"5 x": "'x'", "0": "'0'", "33": "'33'", "-1": "-1", "²": "²"},
  "increment": {"-5": "'-'"},
  "modular": {"3 7": "'7'"},
  "permutations": {
    "21345 11345": "'11345'; permutations takes permutations of 12345",
    "213": "'213'",
  },
  "dyck": {"(()]": "']'"},
  "mqmtar": {
    "1 2 : 3 . > 1 2 > 1 2 > 1 2 > 1 2": "'1 2 : 3' is no pair",
    "1 2 : 3 4 . > 1 2": "1 queries, not 4",
    "1 2 : 3 4 . > 1 2 > 1 2 > 1 2 > 2 1": "'2 1' is not the key",
  },
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


@pytest.mark.parametrize("fields", ({}, {"alphabet": 2}), ids=str)
@every_main_form
def test_usage_can_be_typed(form, fields):
  task = TASKS[MAIN[form].name]()
  if not set(fields) <= {field.name for field in dataclasses.fields(task)}:
    return
  task = dataclasses.replace(task, **fields)
  items, lengths = task.parse(task.usage)
  assert max(lengths) == np.shape(items)[-1] and len(lengths) == task.operands
  prompt, output = plain.example_of_text(task, task.usage)
  if task.name in plain.SPOKEN:
    assert task.render(output) == plain.plain_line(task, prompt)
  assert task.render(output)


@pytest.mark.parametrize(
  "form", [form for form in MAIN if MAIN[form].name in plain.SPOKEN]
)
def test_render_is_what_people_write(form):
  task, example = MAIN[form], plain.draw_examples(form).example
  for i in range(COUNT):
    prompt, _, output = plain.split_example(example, i)
    assert task.render(output) == plain.plain_line(task, prompt)


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
