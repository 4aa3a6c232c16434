"""Certificates of running sums: a row depends on what they say it does."""

import dataclasses
import types

import numpy as np
import plain_tasks as plain
import pytest
from test_multiply_long import TARGET, TASK, model

from lengthgen_jax.certify import certificate, running_sums
from lengthgen_jax.certify.logits import DenseLogits, LayerwiseLogits
from lengthgen_jax.certify.transducer import Contexts, Place
from lengthgen_jax.errors import UsageError
from lengthgen_jax.pipelines import certify
from lengthgen_jax.tasks.multiply_long import RunningSum


def rows(a: str, b: str) -> list[str]:
  """Running sums, least significant digit first."""
  text, size = plain.running_sums(a, b), len(a) + 1
  return [text[i : i + size] for i in range(0, len(text), size)]


def test_a_running_sum_says_the_digits_of_a_row():
  rng = np.random.default_rng(0)
  for _ in range(20):
    a, b = ("".join(map(str, rng.integers(0, 10, n))) for n in (5, 4))
    before = "000000"
    for j, row in enumerate(rows(a, b)):
      task = RunningSum(j == 0, TASK.end)
      state, text = task.initial_state, ""
      columns = zip("0" + a[::-1] + "0", before + "0", strict=True)
      for place, pair in enumerate(columns):
        digits = tuple(map(int, pair))
        assert task.can_read(state, digits)
        if place == 6:
          assert task.can_pad(state, digits)
        state, digit = task.step(state, (digits[0], int(b[-1 - j]), digits[1]))
        text += str(digit)
      assert text[1:] == row
      before = row


def test_sums_before_are_all_that_there_can_be_and_no_other():
  """Of one digit a: by brute force over b of four digits."""
  expected = set()
  for a in range(10):
    for value in range(10**4):
      sums = rows(str(a), str(value).zfill(4))
      expected.add((int(sums[2][0]), a, int(sums[2][1])))
  steps = (
    Place((2,), False, False),
    Place((0, 2), False, False),
    Place((), False, True),
  )
  contexts = Contexts(running_sums.row_transducer(False, TASK.end), steps)
  chunks = np.concatenate(list(contexts.chunks(1000)))
  assert {tuple(context[1:].tolist()) for context in chunks} == expected
  assert len(chunks) == contexts.count == 10 * len(expected)


@pytest.fixture(scope="module")
def grid():
  """A model of grids, and its survey."""
  grid_model = model()
  return grid_model, certificate.make_survey(
    grid_model.experiment, grid_model.scaffold
  )


def test_nothing_else_changes_what_a_row_says(grid):
  """Whole inputs say what the few digits of their rows' contexts say."""
  grid_model, survey = grid
  experiment, params = grid_model.experiment, grid_model.params
  layerwise = LayerwiseLogits(experiment, params, survey.transducer)
  widest = max(row.width for group in survey.groups for row in group.rows)
  dense = DenseLogits(experiment, grid_model.scaffold, params, (widest, 3))
  comparison = certificate.compare_with_dense(layerwise, survey, dense, 0)
  assert comparison.difference < 1e-4 and comparison.num_margins > 1000
  assert not comparison.exceeding


def check_context(text: str, group, context) -> None:
  """The last row of a product's running sums (the first one, if that is what
  the group is of) has the digits of a context."""
  a, b = text.split("*")
  row, field = group.rows[0], group.receptive_field
  is_end = field.answer_column is None  # the row of `&`
  sums = rows(a, b if row.tape else b[-1:])
  before = sums[-1] if is_end else ["0" * 99, *sums][-2]
  current, digits = "-" * 99 if is_end else sums[-1], a[::-1] + "0" * 9
  for (kind, operand, number), column in field.columns.items():
    place, value = row.places[number] if number >= 0 else 0, context[column]
    if kind == "output":
      digit = current[place - 1]
    elif operand == 1:
      digit = value if is_end else b[0 if row.tape else -1]
    else:
      digit = before[place] if operand else digits[place - 1]
    assert str(digit) == str(value), (text, kind, operand, place)


def test_a_context_is_one_of_a_product(grid):
  rng, (_, survey) = np.random.default_rng(0), grid
  for group in survey.groups:
    for context in rng.choice(next(group.contexts.chunks(5000)), 3):
      text = running_sums.product_with_context(group, context)
      check_context(text, group, context)


def test_rows_that_meet_earlier_digits_of_b_are_refused(monkeypatch):
  """The digit of the row before, seen in a layer whose keys have seen b."""
  monkeypatch.setattr(running_sums, "lemma_widths", lambda *_: range(2, 4))
  grid_model = model("decoder_only")
  survey = certificate.make_survey(grid_model.experiment, grid_model.scaffold)
  assert survey.cases > 10**4
  lines = grid_model.scaffold["self"]
  up = (lines.segment == TARGET) & (lines.intercept[..., 0] < 0)
  lines = lines._replace(valid=lines.valid | up)
  bad = dataclasses.replace(
    grid_model, scaffold=grid_model.scaffold | {"self": lines}
  )
  survey = certificate.make_survey(bad.experiment, bad.scaffold)
  with pytest.raises(UsageError, match="beyond the row before"):
    assert survey.groups
  fields = certify.certify_model(None, bad, None)  # other seeds may do
  assert fields["value"] is None
  assert fields["verdict"].startswith("not tried: a")


def test_products_to_train_on_have_the_contexts(grid, monkeypatch):
  """And are of training sizes: failing ones several times."""
  rng, (_, survey) = np.random.default_rng(0), grid
  trained_on = lambda n, m: types.SimpleNamespace(
    data=[types.SimpleNamespace(bound=lambda _: (n, m))],
    task=survey.experiment.task,
  )
  tallies, num_made = [], 0
  for group in survey.groups:
    contexts = rng.choice(next(group.contexts.chunks(5000)), 4)
    group = group._replace(rows=group.rows[:1])
    monkeypatch.setattr(survey, "experiment", trained_on(4, 4))
    for context in contexts:
      texts = survey.draw_texts(group, context, 3, rng)
      num_made += bool(texts)
      for text in texts:
        check_context(text, group, context)
        assert len(text.split("*")[1]) == 4
    thin = [[-1.0, contexts[0].tolist()], [2.0, contexts[1].tolist()]]
    tallies.append(certificate.Tally(wrong=1, thin=thin))
  assert num_made > len(tallies)
  inputs = certificate.training_inputs(survey, tallies, 0)
  assert len(inputs["failing"]) > 2 * len(inputs["thin"]) > 0
  for text in inputs["failing"] + inputs["thin"]:
    assert max(map(len, text.split("*"))) <= 4
  monkeypatch.setattr(survey, "experiment", trained_on(0, 4))
  assert not any(certificate.training_inputs(survey, tallies, 0).values())
