"""What a row is said to depend on: nothing else matters, at any width."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained
from local_models import BATCH, CYCLIC, Case, model, some_lines
from plain_lines import one_seed

from lengthgen_jax.attention.lines import (
  LEFT,
  WHOLE,
  Line,
  shared_lines,
)
from lengthgen_jax.certify import receptive_fields
from lengthgen_jax.certify.states import States
from lengthgen_jax.certify.transducer import Transducer
from lengthgen_jax.config.build import make_scaffold

WIDTHS = 4, 11
FORMS = [
  (task, kind, aligned)
  for task in ("addition", "multiply")
  for kind in ("encoder_decoder", "decoder_only")
  for aligned in (False, True)
  if (task, kind, aligned) != ("addition", "encoder_decoder", True)  # cyclic
]
OWN, BEFORE = Line(WHOLE, LEFT, 1, 0), Line(WHOLE, LEFT, 1, -1)
FIRST = Line(WHOLE, LEFT, 0, 0)


@functools.cache
def random_case(task, kind, aligned) -> Case:
  """With an encoder, where there may be one and prompts are not aligned."""
  encoder = int(kind == "encoder_decoder" and not aligned)
  built, params = model(task, kind, aligned, encoder)
  return Case(built, params, some_lines(built, 7))


@functools.cache
def cyclic_case() -> Case:
  """A window on interleaved operands, indices mod 3, and a state of row 0 that
  the second layer reads."""
  name = "addition", "encoder_decoder"
  fields = {"bias.kind": "window", "arithmetic.aligned": True}
  fields |= {"model.num_encoder_layers": 0} | CYCLIC
  built, params = model(*name, True, 0, tuple(CYCLIC.items()))
  config = untrained.config(*name, fields)
  window = one_seed(make_scaffold(config, built)["cross"])
  layers = [one_seed(shared_lines([OWN, own], 2)) for own in (BEFORE, FIRST)]
  own = type(window)(*map(np.concatenate, zip(*layers, strict=True)))
  return Case(built, params, {"self": own, "cross": window})


CASES = {
  "-".join([task, kind, *["aligned"] * aligned]): functools.partial(
    random_case, task, kind, aligned
  )
  for task, kind, aligned in FORMS
} | {"cyclic": cyclic_case}
by_case = pytest.mark.parametrize("name", CASES)


@by_case
def test_no_other_token_changes_a_bit(name):
  own, rng = CASES[name](), np.random.default_rng(0)
  for width in WIDTHS:
    _, batch = own.inputs(width)
    rows, near = own.claims(width)
    far = {}
    for field, inside in near.items():
      ids = np.asarray(getattr(batch, field))
      other = (ids + rng.integers(1, 15, ids.shape)) % 15
      far[field] = np.where(inside, ids, other)
    assert (
      sum((~inside[:, : 2 * width]).sum() for inside in near.values()) > BATCH
    )
    every = {field: (np.asarray(x) + 1) % 15 for field, x in far.items()}
    before, after, moved = (
      np.asarray(own.apply(own.params, own.scaffold, batch._replace(**inputs)))[
        np.arange(BATCH), rows
      ]
      for inputs in ({}, far, every)
    )
    np.testing.assert_array_equal(before, after)
    assert (before != moved).any(axis=1).all()


@pytest.mark.parametrize(
  "name", ("addition-encoder_decoder", "multiply-decoder_only", "cyclic")
)
def test_gradients_are_those_of_what_a_row_depends_on(name):
  """Every input has a token of its own, and so a vector."""
  own, width = CASES[name](), WIDTHS[-1]
  _, batch = own.inputs(width)
  rows, near = own.claims(width)
  ids, count = {}, 0
  for field, inside in near.items():
    ids[field] = count + np.arange(inside.size).reshape(inside.shape)
    count += inside.size
  config = dataclasses.replace(own.built.model.config, vocab_size=count)
  built = dataclasses.replace(
    own.built, model=own.built.model.clone(config=config)
  )
  rng = np.random.default_rng(0)
  table, head = own.params["token_embedder"], f"logits_dense_{built.task.name}"
  wide = {
    "token_embedder": {"embedding": rng.normal(size=(count, 16))},
    head: {
      name: rng.normal(size=(*x.shape[:-1], count))
      for name, x in own.params[head].items()
    },
  }
  assert set(table) == {"embedding"}
  wide = jax.tree.map(jnp.float32, wide)

  def total(embedder):
    params = own.params | wide | {"token_embedder": embedder}
    logits = built.apply(
      params, own.scaffold, batch._replace(**ids), built.task.name
    )[0]
    return logits[np.arange(BATCH), rows].sum()

  slope = jax.jit(jax.grad(total))(wide["token_embedder"])["embedding"]
  moves = (np.asarray(slope) != 0).any(axis=-1)
  for field, inside in near.items():
    found = moves[ids[field]]
    assert not found[~inside].any()
    # Nothing is claimed in vain, but that N×1's one digit is at every place.
    if "multiply" not in name:
      assert found[inside].mean() > 0.95


@by_case
def test_a_views_logits_are_those_of_the_whole_model(name):
  own = CASES[name]()
  for width in (*WIDTHS, own.last + 3):
    items, batch = own.inputs(width)
    dense = np.asarray(own.apply(own.params, own.scaffold, batch))
    first, target = int(batch.first_scored[0]), np.asarray(batch.target)
    rows = own.rows(width)
    few = sorted(rows)[:: 1 if width < 9 else len(rows) // 5]
    for row in {*few, max(rows)}:
      view, example = rows[row]
      contexts = [
        target[:, first + example.places[number]]
        if kind == "said"
        else items[:, which, example.places[number] if number >= 0 else 0]
        for kind, which, number in view.columns(own.transducer.shared)
      ]
      contexts = np.stack([np.zeros(BATCH), *contexts], axis=1)[:, 1:]
      told = own.states.logits(view, contexts.astype(np.uint8))
      np.testing.assert_allclose(told, dense[:, row], rtol=0, atol=1e-5)


@by_case
def test_no_view_comes_late(name):
  own = CASES[name]()
  later = range(own.last + 1, own.last + 7)
  assert 5 < len(own.views) < 200
  for width in later:
    assert {view for view, _ in own.rows(width).values()} <= own.views


def test_the_widths_surveyed_follow_every_layer_of_every_site():
  """One set of lines for all layers reaches as far as the same for each."""
  for task, kind, encoder in (
    ("addition", "encoder_decoder", 4),
    ("addition", "decoder_only", 0),
  ):
    built, _ = model(task, kind, False, encoder)
    transducer = Transducer(built.task)
    line = lambda c: one_seed(shared_lines([Line(WHOLE, LEFT, 1, c)], 2))
    shared = {"self": line(-1)}
    if encoder:
      shared |= {"cross": line(-2), "encoder": line(-4)}
    each = {}
    for site, own in shared.items():
      layers = encoder if site == "encoder" else 2
      each[site] = type(own)(*(np.repeat(x, layers, 0) for x in own))
    found, wanted = (
      receptive_fields.widths(built, own, transducer)[-1]
      for own in (shared, each)
    )
    reach = 2 * 1 + (2 * 2 + 4 * 4 if encoder else 0)
    assert found == wanted >= 3 * 2 * reach


def test_a_fixed_width_is_the_only_one():
  fields = {"data.width": "fixed", "data.fixed_width": 9}
  built, _ = model("addition", more=(*fields.items(), ("data.widths", ())))
  assert list(receptive_fields.widths(built, {}, Transducer(built.task))) == [9]


def test_an_encoder_that_no_row_reads_is_left_out():
  base = random_case("addition", "encoder_decoder", False)
  valid = np.zeros_like(base.scaffold["cross"].valid)
  cross = base.scaffold["cross"]._replace(valid=valid)
  own = Case(base.built, base.params, base.scaffold | {"cross": cross})
  own.apply = base.apply
  _, batch = own.inputs(4)
  dense = np.asarray(own.apply(own.params, own.scaffold, batch))
  for row, (view, _) in own.rows(4).items():
    assert {stack for stack, _, _ in view.layers} == {"decoder"}
    if view.steps and row == 0:
      context = np.zeros((1, len(view.columns(()))), np.uint8)
      told = own.states.logits(view, context)
      np.testing.assert_allclose(told[0], dense[0, row], atol=1e-5)


def test_both_stacks_have_the_vectors_of_their_own_index():
  fields = CYCLIC | {"positions.kind": "learned"}
  built, params = model("addition", more=tuple(fields.items()))
  states = States(built, params, Transducer(built.task))
  size = built.model.config.vocab_size
  words = np.asarray(params["token_embedder"]["embedding"])
  for stack, site in (("encoder", "cross"), ("decoder", "self")):
    own = np.asarray(params[f"positions_{site}"]["embedding"]["embedding"])
    for phase in range(3):
      found = states.inputs[stack].states[size * phase : size * (phase + 1)]
      np.testing.assert_allclose(found, words + own[phase], rtol=1e-6)
