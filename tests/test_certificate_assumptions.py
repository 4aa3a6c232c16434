"""These tests break what a certificate assumes, one assumption at a time.

What is broken alone is refused, or surveyed otherwise. docs/certificates.md
lists the assumptions.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import untrained
from local_models import Case, model, small
from plain_lines import one_seed
from test_multiply_long import model as grid_model

from lengthgen_jax.attention.lines import (
  ANY,
  LEFT,
  RIGHT,
  WHOLE,
  Line,
  SiteLines,
  shared_lines,
)
from lengthgen_jax.certify import (
  certificate,
  conditions,
  receptive_fields,
  running_sums,
  verdict,
)
from lengthgen_jax.certify.states import States
from lengthgen_jax.certify.transducer import Contexts, Position, Transducer
from lengthgen_jax.errors import UsageError
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import certify
from lengthgen_jax.tasks import TASKS, dataset
from lengthgen_jax.tasks.arithmetic import Addition
from lengthgen_jax.tasks.automata import Modular
from lengthgen_jax.tasks.multiply_long import RunningSum
from lengthgen_jax.tasks.packing import KINDS

TARGET = 2  # the segment of outputs of a product


# Grids: rows are surveyed as far as lines reach along them.


def moved(
  grid: Model, site: str, where: tuple[int, ...], **changes
) -> dict[str, SiteLines]:
  """Returns a grid's scaffold with fields of some of a site's lines changed."""
  lines = grid.scaffold[site]
  fields = {}
  for name, value in changes.items():
    fields[name] = np.array(getattr(lines, name))
    fields[name][where] = value
  return grid.scaffold | {site: lines._replace(**fields)}


def first_line(
  lines: SiteLines, segment: int, c: list[int] | None = None
) -> tuple[int, ...]:
  """Returns the index of a site's first valid line to a segment."""
  here = np.asarray(lines.valid) & (np.asarray(lines.segment) == segment)
  if c is not None:
    here &= (np.asarray(lines.intercept) == c).all(-1)
  return tuple(np.argwhere(here)[0])


REFUSED = "digits beyond the row before|does not cover"


@pytest.mark.parametrize(
  ("site", "segment", "changes"),
  [
    ("self", TARGET, {"intercept": [-4, 0]}),  # the row four before
    ("self", TARGET, {"intercept": [-2, 0]}),
    ("cross", 1, {"intercept": [4, 0]}),  # digit j + 4 of b
    ("cross", 1, {"intercept": [-5, 0]}),
    # Every row sees the fourth digit of b; or an output at a fixed place.
    ("cross", 1, {"matrix": np.zeros((2, 2), int), "intercept": [3, 0]}),
    ("self", TARGET, {"matrix": np.diag([0, 1]), "intercept": [3, 0]}),
  ],
  ids=str,
)
def test_digits_of_far_rows_are_found_however_far(site, segment, changes):
  grid = grid_model()
  where = first_line(grid.scaffold[site], segment)
  scaffold = moved(grid, site, where, **changes)
  with pytest.raises(UsageError, match=REFUSED):
    conditions.check_local(grid.experiment, scaffold)
    running_sums.survey(grid.experiment, scaffold)


def test_the_rows_surveyed_follow_the_lines():
  grid = grid_model()
  transducer = running_sums.row_transducers(grid.experiment)[0]
  rows = lambda scaffold: running_sums.sizes(
    grid.experiment, scaffold, transducer
  )[1]
  assert rows(grid.scaffold) == range(1, 4)
  up = first_line(grid.scaffold["self"], TARGET, [-1, 0])
  assert rows(moved(grid, "self", up, intercept=[-4, 0])) == range(1, 7)
  ahead = first_line(grid.scaffold["cross"], 1)
  assert rows(moved(grid, "cross", ahead, intercept=[4, 0])) == range(1, 8)
  assert rows(moved(grid, "cross", ahead, intercept=[-2, 0])) == range(1, 6)


GRID_BREAKERS = {
  "whole sequence": ("self", TARGET, {"segment": WHOLE}),
  "one axis along the other": ("self", TARGET, {"matrix": [[1, 1], [0, 1]]}),
  "2 digits a digit": ("cross", 0, {"matrix": np.diag([0, 2])}),
  "does not follow the row": ("self", TARGET, {"anchor": RIGHT}),
  "opens in some rows": ("cross", 0, {"intercept": [-3, 0]}),
  "follow the row": ("cross", 1, {"anchor": LEFT}),
}


@pytest.mark.parametrize("words", GRID_BREAKERS)
def test_lines_that_the_proof_of_grids_leaves_out_are_refused(words):
  grid = grid_model()
  conditions.check_local(grid.experiment, grid.scaffold)
  site, segment, changes = GRID_BREAKERS[words]
  where = first_line(grid.scaffold[site], segment)
  scaffold = moved(grid, site, where, **changes)
  with pytest.raises(UsageError, match=words) as caught:
    conditions.check_local(grid.experiment, scaffold)
  assert "\n" not in str(caught.value)


def test_prompt_rows_and_encoders_of_grids_are_refused():
  grid = grid_model("decoder_only")
  conditions.check_local(grid.experiment, grid.scaffold)
  where = first_line(grid.scaffold["self"], 0)
  scaffold = moved(grid, "self", where, row_segment=ANY)
  with pytest.raises(UsageError, match="prompt's rows"):
    conditions.check_local(grid.experiment, scaffold)
  fields = {"positions.kind": "none", "model.num_encoder_layers": 2}
  fields |= {"model.num_decoder_layers": 2, "model.num_heads": 4}
  built = untrained.experiment("multiply_long", fields=fields)
  scaffold = grid_model().scaffold
  with pytest.raises(UsageError, match="num_encoder_layers=0"):
    conditions.check_local(built, scaffold | {"encoder": scaffold["cross"]})


def test_first_rows_have_views_of_their_own():
  """A view of a first row and one of a later row have other contexts."""
  grid = grid_model()
  survey = running_sums.survey(grid.experiment, grid.scaffold)
  assert {view.first for view in survey.views} == {False, True}
  for (view, examples), contexts in zip(
    survey.views.items(), survey.contexts, strict=True
  ):
    assert contexts.transducer.task.first == view.first
    rows = {example.size[0] + 1 for example in examples}
    assert all(example.row >= 0 for example in examples) and rows


# One axis: a hop is more than its intercept.


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_many_layers_drift_no_farther_than_is_surveyed(kind):
  """Places drift by no more than their lines' hops in all layers.

  In one sequence a prompt's row says the token after its own, so that a line of
  intercept 0 moves a place by one in every layer.
  """
  built, params = model(
    "addition", kind, more=(("model.num_decoder_layers", 4),)
  )
  packed = kind == "decoder_only"
  read = [Line(0, RIGHT, 1, 0), Line(0, LEFT, 1, 0), Line(0, RIGHT, 0, 0)]
  if packed:
    scaffold = {"self": one_seed(shared_lines(read, 2))}
  else:
    near = [Line(WHOLE, LEFT, 1, 0), Line(WHOLE, LEFT, 1, -1)]
    scaffold = {
      "self": one_seed(shared_lines(near, 2)),
      "cross": one_seed(shared_lines(read, 2)),
    }
  case = Case(built, params, scaffold)
  assert receptive_fields.context_radius(built, scaffold) == 4
  for width in range(case.last + 1, case.last + 5):
    assert {view for view, _ in case.rows(width).values()} <= case.views


def test_lines_over_the_whole_sequence_count_its_marks():
  built, _ = model("addition", "decoder_only")
  line = lambda segment, c: {
    "self": one_seed(shared_lines([Line(segment, LEFT, 1, c)], 2))
  }
  reach = lambda *arguments: receptive_fields.context_radius(
    built, line(*arguments)
  )
  assert reach(WHOLE, -1) == 2 * (1 + 2)
  assert reach(0, -1) == 2 * (1 + 1)
  assert reach(TARGET, -1) == 0 and reach(TARGET, -3) == 2 * 2


def test_prompts_without_marks_are_as_long_as_they_are():
  """Found by the hunt (draws 894 and 1105): nothing stands between segments
  where there is one, and a hop is no less than its intercept."""
  built, _ = model("copy", more=(("model.num_encoder_layers", 1),))
  near, far = ([Line(WHOLE, LEFT, 1, c)] for c in (0, 1))
  scaffold = {
    "self": one_seed(shared_lines(near, 2)),
    "cross": one_seed(shared_lines(far, 2)),
    "encoder": one_seed(shared_lines(far, 2)),
  }
  assert receptive_fields.context_radius(built, scaffold) == 2


def test_lines_that_reach_too_far_are_said_before_a_survey_begins():
  built, _ = model("addition")
  near, far = ([Line(WHOLE, LEFT, 1, c)] for c in (0, -3000))
  scaffold = {
    "self": one_seed(shared_lines(far, 2)),
    "cross": one_seed(shared_lines(near, 2)),
  }
  with pytest.raises(
    UsageError, match="self-attention.*head 0: -3000"
  ) as error:
    certificate.survey(built, scaffold)
  assert "\n" not in str(error.value)


# Values: no two contexts share a state, no number wraps.


def test_contexts_of_many_wide_values_are_told_apart():
  """No two contexts share a number, however many values they have.

  There are seven places of items and outputs of Dyck with bound 60, 64 values:
  as one 64-bit number, 128 contexts would be 96.
  """
  transducer = Transducer(TASKS["dyck"](bound=60))
  assert transducer.values == 64
  contexts = Contexts(transducer, [Position((0,), True, False)] * 7)
  every = np.concatenate(list(contexts.chunks(1 << 10)))
  assert len(every) == contexts.count == 128
  states = States.__new__(States)
  states.transducer = transducer
  columns = list(range(contexts.columns))
  first, same = states._distinct(every, columns)
  assert len(first) == 128 and sorted(same) == list(range(128))
  np.testing.assert_array_equal(every[first][same], every)
  narrow = Transducer(TASKS["dyck"](bound=2))
  states.transducer = narrow
  first, same = states._distinct(every % 2, [0, 3])
  assert len(first) == len(np.unique(every[:, [0, 3]] % 2, axis=0))
  np.testing.assert_array_equal(
    (every % 2)[first][same][:, [0, 3]], (every % 2)[:, [0, 3]]
  )


def test_a_large_vocabulary_has_vectors_of_every_phase():
  """Token and phase make one number, which is more than a byte."""
  fields = {
    "positions.kind": "sinusoidal",
    "positions.cyclic_period": 3,
    "copying.alphabet": 200,
  }
  built, params = model("copy", more=tuple(fields.items()))
  line = [Line(0, LEFT, 1, 0)]
  scaffold = {
    "self": one_seed(shared_lines([Line(WHOLE, LEFT, 1, 0)], 2)),
    "cross": one_seed(shared_lines(line, 2)),
  }
  case = Case(built, params, scaffold)
  items, batch = case.inputs(6)
  dense = np.asarray(case.apply(params, scaffold, batch))
  for row, (view, example) in case.rows(6).items():
    contexts = certificate._contexts(
      case.transducer, view, example, items, batch
    )
    tables = case.states.logits(view, contexts)
    np.testing.assert_allclose(tables, dense[:, row], rtol=0, atol=1e-4)


def test_tasks_of_more_values_than_a_byte_are_refused():
  @dataclasses.dataclass(frozen=True)
  class Large(Modular):
    def check_tokens(self, field, count):
      pass

  with pytest.raises(UsageError, match="257 digits and outputs"):
    Transducer(Large(p=257))


# Tasks: they are what they say they are.


class Careless(Addition):
  """This task says of itself that it never carries, and adds."""

  name = "addition"

  def answer(self, items):
    return Addition().answer(items)

  def step(self, state, symbols):
    return 0 * state, (symbols[0] + symbols[1]) % 10


class Unmarked(Addition):
  """This task says that the lowest digit of a is a mark."""

  def operand_place(self, segment, left, right):
    return (
      None
      if segment == 0 and right == 0
      else super().operand_place(segment, left, right)
    )


class Shifted(Addition):
  """This task says that a's digits are those of the next place."""

  def operand_place(self, segment, left, right):
    held = super().operand_place(segment, left, right)
    return (1 - held[0], held[1]) if held else None


@pytest.mark.parametrize(
  ("task", "words"),
  [
    (Careless(), "answers are not its transducer's"),
    (Unmarked(), "not always the mark"),
    (Shifted(), "not always the given"),
  ],
)
def test_tasks_that_are_not_what_they_say_are_refused(task, words):
  built, _ = model("addition")
  items = np.random.default_rng(0).integers(0, 10, (16, 2, 6)).astype(np.int32)
  items[:, :, 4:] = 0
  parsed = [(digits, [4, 4]) for digits in items]
  batch = dataset.typed_batch(built.task, built.kind, parsed, 6, 8)
  certificate.check_task(built, Transducer(built.task), items, batch)
  sets = (dataclasses.replace(built.data[0], task=task),)
  other = dataclasses.replace(built, data=sets)
  with pytest.raises(UsageError, match=words) as caught:
    certificate.check_task(other, Transducer(task), items, batch)
  assert "\n" not in str(caught.value)


# A certificate that is kept is of this model, and of this lemma.


def test_a_certificate_is_of_what_the_program_makes_of_parameters(monkeypatch):
  candidate, *_ = small("successor")
  before = certificate.checksum(candidate)
  config = candidate.experiment.model.config
  task = dataclasses.replace(candidate.experiment.task, slack=1)
  sets = (dataclasses.replace(candidate.experiment.data[0], task=task),)
  changed = [
    dataclasses.replace(candidate.experiment, data=sets),
    dataclasses.replace(candidate.experiment, fixed_width=9),
    dataclasses.replace(
      candidate.experiment,
      model=candidate.experiment.model.clone(
        config=dataclasses.replace(config, activation="gelu")
      ),
    ),
  ]
  sums = {
    certificate.checksum(dataclasses.replace(candidate, experiment=experiment))
    for experiment in changed
  }
  assert len(sums) == 3 and before not in sums
  section = type("Section", (), {"exhaustive": True})
  stored = {"checksum": before, "complete": True}
  assert certify._kept(stored, section, candidate)
  monkeypatch.setattr(certificate, "LEMMA", certificate.LEMMA + 1)
  assert not certify._kept(stored, section, candidate)


def test_a_head_that_is_no_number_is_wrong():
  """A NaN counts as wrong, be it in a parameter or in a line's value."""
  candidate, survey, _, _, _ = small("successor")
  lines = candidate.scaffold["self"]
  value = np.full_like(lines.value, np.nan)
  scaffold = candidate.scaffold | {"self": lines._replace(value=value)}
  head = "logits_dense_successor"
  params = candidate.params | {
    head: {name: x * jnp.nan for name, x in candidate.params[head].items()}
  }
  for params_, scaffold_ in (
    (candidate.params, scaffold),
    (params, candidate.scaffold),
  ):
    survey = certificate.survey(candidate.experiment, scaffold_)
    states = States(candidate.experiment, params_, survey.transducer)
    for view, contexts in zip(survey.views, survey.contexts, strict=True):
      tally = certificate.Tally()
      list(certificate.enumerate_view(states, view, contexts, tally))
      assert tally.wrong == tally.cases > 0


# What a verdict needs.


@pytest.mark.parametrize(
  "flaw",
  [
    {"wrong": 5, "margin": 0.0, "rounding": 0.0},
    {"complete": False},
    {"cases": 0},
    {"margin": np.inf},
    {"margin": 0.0, "rounding": 0.0},
    {"rounding": np.inf},
  ],
  ids=str,
)
def test_nothing_is_proved_by_less_than_all_cases(flaw):
  experiment = type("Experiment", (), {"fixed_width": None})
  usual = {"cases": 9, "wrong": 0, "margin": 2.0, "rounding": 1e-5}
  usual |= {"counterexamples": [], "complete": True}
  assert verdict.decide(experiment, usual, np.inf)["value"] == 1
  assert verdict.decide(experiment, usual | flaw, np.inf)["value"] != 1


def test_two_computations_that_agree_still_round():
  logits = np.float32([[8.0, -2.0]])
  assert certificate.gap(logits, logits) >= np.spacing(np.float32(8.0))
  assert np.isnan(certificate.gap(logits * np.nan, logits))


def test_outputs_are_counted_as_decoding_counts_them():
  built, _ = model("successor", more=(("model.num_encoder_layers", 0),))
  scaffold = lambda anchor: {
    "self": one_seed(shared_lines([Line(1, anchor, 1, -1)], 2)),
    "cross": one_seed(shared_lines([Line(0, RIGHT, 1, 0)], 2)),
  }
  conditions.check_local(built, scaffold(LEFT))
  with pytest.raises(UsageError, match="counts outputs from the last"):
    conditions.check_local(built, scaffold(RIGHT))


@pytest.mark.parametrize("layers", (1, 2, 3))
def test_lines_are_one_set_for_all_layers_or_one_for_each(layers):
  built, _ = model("successor")
  line = one_seed(shared_lines([Line(WHOLE, LEFT, 1, 0)], 2))
  lines = type(line)(*(np.repeat(x, layers, 0) for x in line))
  scaffold = {"self": lines, "cross": line}
  if layers < 3:
    return conditions.check_local(built, scaffold)
  with pytest.raises(UsageError, match="lines of 3 layers, the model 2"):
    conditions.check_local(built, scaffold)


def test_a_view_that_no_input_has_has_no_contexts():
  """No context is counted where zeros alone can follow and there is a digit."""
  transducer = running_sums.RowTransducer(RunningSum(True, 11))
  steps = (Position((2,), False, False), Position((0, 2), True, False))
  contexts = Contexts(transducer, steps)
  every = np.concatenate(list(contexts.chunks(64)))
  assert len(every) == contexts.count and not every[:, 1].any()
  transducer.possible = lambda state, digits: False
  transducer.table = transducer._table()
  assert Contexts(transducer, steps).count == 0
  assert not list(Contexts(transducer, steps).chunks(64))
