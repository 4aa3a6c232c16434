"""What the logits of a row depend on: nothing else matters, at any width."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained
from local_models import (
  BATCH,
  CYCLIC,
  Case,
  lines,
  model,
  some_lines,
)
from plain_lines import one_seed

from lengthgen_jax.attention.calibration import within_reach
from lengthgen_jax.attention.lines import (
  ANY,
  LEFT,
  RIGHT,
  WHOLE,
  Line,
  Lines,
  SiteLines,
)
from lengthgen_jax.certify.logits import LayerwiseLogits
from lengthgen_jax.certify.survey import SequenceSurvey
from lengthgen_jax.certify.transducer import Transducer
from lengthgen_jax.config.build import make_scaffold
from lengthgen_jax.coordinates import segment_coordinates
from lengthgen_jax.tasks import TASKS

WIDTHS = 4, 11
# (task, kind, whether operands are aligned): every pair of choices occurs.
FORMS = [
  ("addition", "encoder_decoder", False),
  ("addition", "decoder_only", True),
  ("multiply", "encoder_decoder", True),
  ("multiply", "decoder_only", False),
]
SAME, BEFORE = Line(WHOLE, LEFT, 1, 0), Line(WHOLE, LEFT, 1, -1)
FIRST = Line(WHOLE, LEFT, 0, 0)


@functools.cache
def random_case(task, kind, aligned) -> Case:
  """With an encoder, where there may be one and prompts are not aligned."""
  encoder = int(kind == "encoder_decoder" and not aligned)
  experiment, params = model(task, kind, aligned, encoder)
  return Case(experiment, params, some_lines(experiment, 7))


@functools.cache
def cyclic_case() -> Case:
  """A window on interleaved operands, indices mod 3, and a state of row 0 that
  the second layer reads."""
  name = "addition", "encoder_decoder"
  fields = {"bias.kind": "window", "arithmetic.aligned": True}
  fields |= {"model.num_encoder_layers": 0} | CYCLIC
  experiment, params = model(*name, True, 0, tuple(CYCLIC.items()))
  config = untrained.config(*name, fields)
  window = one_seed(make_scaffold(config, experiment)["cross"])
  layers = lines(SAME, BEFORE), lines(SAME, FIRST)
  by_layer = SiteLines(*map(np.concatenate, zip(*layers, strict=True)))
  return Case(experiment, params, {"self": by_layer, "cross": window})


@functools.cache
def segmented_case(kind: str, normalizer: str) -> Case:
  """A segment embedding, and weights that are no softmax."""
  fields = {"positions.segments": True, "attention.normalizer": normalizer}
  experiment, params = model("addition", kind, fields=tuple(fields.items()))
  return Case(experiment, params, some_lines(experiment, 7))


CASES = {
  "-".join([task, kind, *["aligned"] * aligned]): functools.partial(
    random_case, task, kind, aligned
  )
  for task, kind, aligned in FORMS
} | {
  "cyclic": cyclic_case,
  "segments": lambda: segmented_case("encoder_decoder", "entmax"),
  "segments-decoder_only": lambda: segmented_case(
    "decoder_only", "stick_breaking"
  ),
}
by_case = pytest.mark.parametrize("name", CASES)


@by_case
def test_no_other_token_changes_a_bit(name):
  case, rng = CASES[name](), np.random.default_rng(0)
  for width in WIDTHS:
    _, batch = case.inputs(width)
    rows, inside = case.dependencies(width)
    changed = {}
    for field, is_inside in inside.items():
      ids = np.asarray(getattr(batch, field))
      other = (ids + rng.integers(1, 15, ids.shape)) % 15
      changed[field] = np.where(is_inside, ids, other)
    assert sum((~x[:, : 2 * width]).sum() for x in inside.values()) > BATCH
    all_changed = {field: (ids + 1) % 15 for field, ids in changed.items()}
    before, after, moved = (
      np.asarray(
        case.apply(case.params, case.scaffold, batch._replace(**inputs))
      )[np.arange(BATCH), rows]
      for inputs in ({}, changed, all_changed)
    )
    np.testing.assert_array_equal(before, after)
    assert (before != moved).any(axis=1).all()


@pytest.mark.parametrize(
  "name", ("addition-encoder_decoder", "multiply-decoder_only", "cyclic")
)
def test_gradients_are_those_of_what_a_row_depends_on(name):
  """Every input has a token of its own, and so a vector."""
  case, width = CASES[name](), WIDTHS[-1]
  _, batch = case.inputs(width)
  rows, inside = case.dependencies(width)
  ids, count = {}, 0
  for field, is_inside in inside.items():
    ids[field] = count + np.arange(is_inside.size).reshape(is_inside.shape)
    count += is_inside.size
  small = case.experiment.model
  config = dataclasses.replace(small.config, vocab_size=count)
  experiment = dataclasses.replace(
    case.experiment, model=small.clone(config=config)
  )
  rng, head = np.random.default_rng(0), experiment.task.name
  wide = {
    "token_embedder": {"embedding": rng.normal(size=(count, 16))},
    f"logits_dense_{head}": {
      name: rng.normal(size=(*x.shape[:-1], count))
      for name, x in case.params[f"logits_dense_{head}"].items()
    },
  }
  params = case.params | jax.tree.map(jnp.float32, wide)
  assert jax.tree.structure(params) == jax.tree.structure(case.params)

  def total(embedder):
    logits, _ = experiment.apply(
      params | {"token_embedder": embedder},
      case.scaffold,
      batch._replace(**ids),
      head,
    )
    return logits[np.arange(BATCH), rows].sum()

  slope = jax.jit(jax.grad(total))(params["token_embedder"])["embedding"]
  has_slope = (np.asarray(slope) != 0).any(axis=-1)
  for field, is_inside in inside.items():
    assert not has_slope[ids[field]][~is_inside].any()
    # Nothing is claimed in vain, but that N×1's one digit is at every place.
    if "multiply" not in name:
      assert has_slope[ids[field]][is_inside].mean() > 0.95


@by_case
def test_layerwise_logits_are_those_of_the_whole_model(name):
  case = CASES[name]()
  for width in (*WIDTHS, case.largest + 3):
    items, batch = case.inputs(width)
    dense = np.asarray(case.apply(case.params, case.scaffold, batch))
    first, target = int(batch.first_scored[0]), np.asarray(batch.target)
    rows = case.rows(width)
    some = sorted(rows)[:: 1 if width < 9 else len(rows) // 5]
    for index in {*some, max(rows)}:
      field, row = rows[index]
      contexts = np.zeros((BATCH, len(field.columns)), np.uint8)
      for (kind, operand, number), k in field.columns.items():
        place = row.places[number] if number >= 0 else 0
        is_output = kind == "output"
        contexts[:, k] = (
          target[:, first + place] if is_output else items[:, operand, place]
        )
      logits, _ = case.layerwise(field, contexts)
      np.testing.assert_allclose(logits, dense[:, index], rtol=0, atol=1e-5)
      computed = case.survey.contexts_of(field, row, items, batch)
      np.testing.assert_array_equal(computed, contexts)


@by_case
def test_no_receptive_field_comes_late(name):
  case = CASES[name]()
  assert 5 < len(case.receptive_fields) < 200
  for width in range(case.largest + 1, case.largest + 4):  # every phase
    fields = {field for field, _ in case.rows(width).values()}
    assert fields <= case.receptive_fields


@pytest.mark.parametrize(
  ("kind", "encoder"), [("encoder_decoder", 4), ("decoder_only", 0)]
)
def test_the_widths_surveyed_follow_every_layer_of_every_site(kind, encoder):
  """One set of lines for all layers reaches as far as the same for each."""
  experiment, _ = model("addition", kind, False, encoder)
  offsets = {"self": -1}
  if encoder:
    offsets |= {"cross": -2, "encoder": -4}
  shared = {s: lines(Line(WHOLE, LEFT, 1, c)) for s, c in offsets.items()}
  layers = {"self": 2, "cross": 2, "encoder": encoder}
  each = {
    site: SiteLines(*(np.repeat(x, layers[site], 0) for x in site_lines))
    for site, site_lines in shared.items()
  }
  largest = [SequenceSurvey(experiment, x).largest for x in (shared, each)]
  radius = 2 * 1 + (2 * 2 + 4 * 4 if encoder else 0)
  assert largest[0] == largest[1] >= 3 * 2 * radius


def test_a_fixed_width_is_the_only_one():
  fields = {"data.width": "fixed", "data.fixed_width": 9}
  experiment, _ = model("addition", fields=tuple(fields.items()))
  assert list(SequenceSurvey(experiment, {}).sizes()) == [9]


def test_an_encoder_that_no_row_reads_is_left_out():
  base = random_case("addition", "encoder_decoder", False)
  cross = base.scaffold["cross"]
  closed = cross._replace(valid=np.zeros_like(cross.valid))
  case = Case(base.experiment, base.params, base.scaffold | {"cross": closed})
  case.apply, case.bound = base.apply, base.bound
  _, batch = case.inputs(4)
  dense = np.asarray(case.apply(case.params, case.scaffold, batch))
  rows = case.rows(4)
  for field, _ in rows.values():
    assert {stack for stack, _, _ in field.layers} == {"decoder"}
  field, row = rows[0]
  context = np.zeros((1, len(field.columns)), np.uint8)
  logits, _ = case.layerwise(field, context)
  np.testing.assert_allclose(logits[0], dense[0, row.index], atol=1e-5)


def test_both_stacks_have_the_vectors_of_their_own_index():
  fields = CYCLIC | {"positions.kind": "learned"}
  experiment, params = model("addition", fields=tuple(fields.items()))
  layerwise = LayerwiseLogits(experiment, params, Transducer(experiment.task))
  size = experiment.model.config.vocab_size
  words = np.asarray(params["token_embedder"]["embedding"])
  for stack, site in (("encoder", "cross"), ("decoder", "self")):
    table = np.asarray(params[f"positions_{site}"]["embedding"]["embedding"])
    for phase in range(3):
      rows = slice(size * phase, size * (phase + 1))
      states = layerwise.inputs[stack].states[rows]
      np.testing.assert_allclose(states, words + table[phase], rtol=1e-6)


def test_tokens_of_receptive_fields_have_the_vectors_of_their_segment():
  """Of each token, at every place: what the model embeds there."""
  for kind, normalizer in (
    ("encoder_decoder", "entmax"),
    ("decoder_only", "stick_breaking"),
  ):
    case = segmented_case(kind, normalizer)
    _, batch = case.inputs(4)
    words = np.asarray(case.params["token_embedder"]["embedding"])
    vectors = np.asarray(case.params["segment_embedder"]["embedding"])
    (layout,) = case.survey.layouts(4, case.bound)
    sources = {"decoder": batch.inputs, "encoder": batch.source}
    places = {"decoder": batch.places, "encoder": batch.source_places}
    config = case.experiment.model.config
    for stack, tokens in layout.tokens.items():
      ids = np.asarray(sources[stack])[0]
      table = np.asarray(case.layerwise.inputs[stack].states)
      segments = np.asarray(places[stack].segment)[0]
      assert len(set(segments)) > 1 or stack == "decoder"
      for i, token in enumerate(tokens):
        state = table[config.input_index(ids[i], token.phase, token.segment)]
        expected = words[ids[i]] + vectors[segments[i]]
        np.testing.assert_allclose(state, expected, rtol=1e-5, atol=1e-6)


# Lines that keep receptive fields small.


def near(name: str, reach: int, sizes, lines, **fields):
  """Whether lines (segment, anchor, M, c) are within reach, in the first layer
  and in later ones."""
  segment, anchor, matrix, c = map(np.array, zip(*lines, strict=True))
  rows = np.full(len(lines), ANY)
  tested = Lines(rows, segment, anchor, matrix[:, None, None], c[:, None])
  task = TASKS[name](**fields)
  is_near = within_reach(tested, segment_coordinates(*sizes), task, reach)
  assert is_near.shape == (2, len(lines))
  return [tuple(layers) for layers in is_near.T.tolist()]


YES, NO = (True, True), (False, False)


def test_outputs_are_near_and_fixed_places_are_marks():
  target = 2
  lines = {
    (target, LEFT, 1, -1): YES,  # the row's own input
    (target, LEFT, 1, -2): YES,
    (target, LEFT, 1, -3): NO,
    (target, LEFT, 0, 0): NO,  # the first output
    (target + 1, LEFT, 0, 0): (True, False),  # its state has seen digits
    (0, LEFT, 0, 0): YES,  # $
    (0, RIGHT, 0, 4): YES,
    (0, LEFT, 0, 1): NO,
    (0, RIGHT, 0, 0): NO,
    (1, LEFT, 0, 0): YES,  # +
    (1, RIGHT, 0, 0): NO,
    (1, RIGHT, 1, 3): YES,  # as far as it likes
    (1, RIGHT, 1, -2): YES,
    (0, RIGHT, -1, 2): NO,  # against the rows
    (0, LEFT, -1, 2): NO,  # with them, but from the other end
    (0, LEFT, 1, 2): NO,
  }
  is_near = near("addition", 1, (5, 5), lines)
  assert dict(zip(lines, is_near, strict=True)) == lines
  further = [(target, LEFT, 1, c) for c in (-3, -4)]
  assert near("addition", 2, (5, 5), further) == [YES, NO]


@pytest.mark.parametrize(
  ("task", "fields", "line"),
  (
    ("copy", {}, (0, LEFT, 1, -1)),
    ("reverse", {}, (0, RIGHT, 1, 1)),
    ("modular", {}, (0, LEFT, 1, 0)),
    ("addition", {"aligned": True}, (0, RIGHT, 2, 3)),
  ),
)
def test_lines_to_operands_move_with_the_rows(task, fields, line):
  segment, anchor, step, c = line
  lines = [
    (segment, a, m, c) for a in (LEFT, RIGHT) for m in (step, -step, 3 * step)
  ]
  is_near = near(task, 1, (10, 5), lines, **fields)
  kept = [
    line for line, is_kept in zip(lines, is_near, strict=True) if is_kept[0]
  ]
  assert kept == [line]


def test_a_digit_that_all_places_share_is_near():
  is_near = near("multiply", 1, (5, 2), [(1, RIGHT, 0, 0), (0, RIGHT, 0, 0)])
  assert is_near == [YES, NO]
  pairs = [(0, RIGHT, 0, c) for c in (0, 1, 2, 7, 8, 9)]
  is_near = near("multiply", 1, (10,), pairs, aligned=True)
  assert is_near == [YES, NO, YES, NO, YES, YES]  # the digit, marks at the left
