"""Heads knocked out, lines closed, residuals replaced: against doing the same
to the parameters, the bias and the inputs."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest
import untrained
from local_models import by_head
from plain_lines import one_seed

from lengthgen_jax.attention.lines import (
  LEFT,
  RIGHT,
  Line,
  shared_lines,
)
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.probes import interventions
from lengthgen_jax.probes.activations import PLACES, Seen
from lengthgen_jax.probes.registry import ALL, PROBES
from lengthgen_jax.tasks.packing import KINDS

TEXTS = ("12+34", "99+11", "50+75")


@functools.cache
def lined(closed=False) -> Seen:
  """An encoder-decoder of two layers, whose heads have a line each; or whose
  second head has none."""
  fields = {"model.num_decoder_layers": 2, "model.num_encoder_layers": 0}
  built = untrained.experiment("addition", "encoder_decoder", fields)
  scaffold = {site: by_head(site, built.task) for site in ("self", "cross")}
  if closed:
    valid = np.array(scaffold["cross"].valid)
    valid[:, 1] = False
    scaffold["cross"] = scaffold["cross"]._replace(valid=valid)
  model = Model(built, scaffold, untrained.params(built))
  batch = untrained.typed(built, *TEXTS)
  return Seen(model, batch, len(TEXTS), 2)


def last(seen: Seen, edit) -> np.ndarray:
  """Residuals at the end, under an edit."""
  return np.asarray(interventions._run(seen, edit)[2][-1])


def without(seen: Seen, site: str, n: int, h: int):
  edit = interventions.nothing(seen)
  factors = edit.heads[site].copy()
  factors[n, h] = 0.0
  return edit._replace(heads=edit.heads | {site: factors})


def test_a_head_that_sees_nothing_changes_nothing_without_it():
  seen = lined(closed=True)
  whole = last(seen, interventions.nothing(seen))
  assert np.array_equal(last(seen, without(seen, "cross", 0, 1)), whole)
  assert not np.array_equal(last(seen, without(seen, "cross", 0, 0)), whole)
  np.testing.assert_allclose(whole, seen.residual(1, "after_mlp"), atol=1e-5)


@pytest.mark.parametrize("site", ("self", "cross"))
def test_without_a_head_is_without_what_it_adds(site):
  """The same as zeros where its context enters the output's product."""
  seen = lined()
  found = last(seen, without(seen, site, 1, 0))
  name = f"{site}_attention"
  block = seen.model.params["decoder_1"]
  out = block[name]["out"]
  kernel = jnp.asarray(out["kernel"]).at[0].set(0.0)
  other = block | {name: block[name] | {"out": out | {"kernel": kernel}}}
  params = seen.model.params | {"decoder_1": other}
  model = dataclasses.replace(seen.model, params=params)
  wanted = Seen(model, seen.batch, 3, 2).residual(1, "after_mlp")
  np.testing.assert_allclose(found, wanted, atol=1e-5)
  assert np.abs(found - seen.residual(1, "after_mlp")).max() > 1e-3


def test_without_its_only_line_is_without_a_head():
  seen = lined()
  lines = interventions.lines(seen.model)
  assert len([at for at in lines if at[2] is not None]) == 4
  edit = interventions.nothing(seen)
  for (site, layer, head, _), cells in lines.items():
    if head is None:
      continue
    valid = edit.valid[site].copy()
    valid[*zip(*cells, strict=True)] = False
    closed = edit._replace(valid=edit.valid | {site: valid})
    # One set of lines serves both layers.
    assert layer is None
    factors = edit.heads[site].copy()
    factors[:, head] = 0.0
    knocked = edit._replace(heads=edit.heads | {site: factors})
    assert np.array_equal(last(seen, closed), last(seen, knocked))


def test_a_line_is_closed_in_a_head_in_a_layer_and_everywhere():
  lines = one_seed(shared_lines([Line(0, RIGHT, 1, 0), Line(1, LEFT, 0, 0)], 2))
  spread = lambda x: np.broadcast_to(x, (2, 2, *np.shape(x)[2:])).copy()
  own = type(lines)(*map(spread, lines))
  own.valid[1, 1, 0] = False
  seen = lined()
  model = dataclasses.replace(seen.model, scaffold={"cross": own})
  found = interventions.lines(model)
  words = "a: right-1·row = 0"
  assert found["cross", 0, 1, words] == [(0, 1, 0)]
  assert ("cross", 1, 1, words) not in found
  assert found["cross", 0, None, words] == [(0, 0, 0), (0, 1, 0)]
  assert found["cross", 1, None, words] == [(1, 0, 0)]
  assert len(found["cross", None, None, words]) == 3
  assert len(found) == 7 + 4 + 2


# Patching.


@functools.cache
def plain(kind: str) -> Seen:
  """A model that does not always say the same."""
  built = untrained.experiment("addition", kind)
  params, name = untrained.params(built), "logits_dense_addition"
  batch = untrained.typed(built, *TEXTS)
  usual = Model(built, {}, params).observe(batch)[0].mean(axis=(0, 1))
  head = params[name] | {"bias": params[name]["bias"] - usual}
  model = Model(built, {}, params | {name: head})
  return Seen(model, batch, len(TEXTS), 2)


@pytest.mark.parametrize("kind", KINDS)
def test_patching_with_itself_changes_nothing(kind):
  seen = plain(kind)
  edit = interventions.nothing(seen)
  met = interventions._run(seen, edit)[2]
  places = interventions.places(seen.experiment)
  assert len(met) == len(places)
  for number in range(len(places)):
    own = edit._replace(donors=met, place=number, row=2)
    assert np.array_equal(last(seen, own), met[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_patched_embedding_is_another_token(kind):
  """And of another row nothing else is: as if it had been typed."""
  seen, row = plain(kind), 3
  roll = lambda x: jnp.roll(x, 1, axis=0)
  edit = interventions.nothing(seen)
  met = interventions._run(seen, edit)[2]
  edit = edit._replace(donors=list(map(roll, met)), row=row)
  fields = {"inputs": "inputs"} | (
    {"source": "source"} if seen.batch.source is not None else {}
  )
  for number, (part, _) in enumerate(interventions.places(seen.experiment)):
    if part not in fields:
      continue
    old = getattr(seen.batch, part)
    typed = old.at[:, row].set(roll(old)[:, row])
    batch = seen.batch._replace(**{part: typed})
    wanted = np.asarray(seen.model.observe(batch)[1]["decoder"]["output"])
    found = edit._replace(place=number)
    acts = interventions._run(seen, found)[2]
    plainly = Seen(seen.model, batch, 3, 2)
    np.testing.assert_allclose(
      acts[-1], plainly.residual(0, "after_mlp"), atol=1e-5
    )
    assert wanted.shape == acts[-1].shape
    assert not np.allclose(acts[-1], met[-1], atol=1e-3)


@pytest.mark.parametrize("place", PLACES)
def test_the_last_residual_of_another_input_says_what_that_says(place):
  """Nothing behind the last attention looks at another row."""
  seen = plain("encoder_decoder")
  edit = interventions.nothing(seen)
  met = interventions._run(seen, edit)[2]
  places = interventions.places(seen.experiment)
  number = places.index((place, 0))
  donors = [jnp.roll(x, 1, axis=0) for x in met]
  told = seen.logits.argmax(-1)
  agreed = dataclasses.replace(seen, batch=seen.batch._replace(target=told))
  for row in range(told.shape[1]):
    here = edit._replace(donors=donors, place=number, row=row)
    right = interventions._run(agreed, here)[0]
    wanted = np.ones(told.shape, bool)
    wanted[:, row] = np.roll(told[:, row], 1) == told[:, row]
    assert np.array_equal(right, wanted)
  assert (told != np.roll(told, 1, axis=0)).any()


def test_rates_are_of_the_examples_that_count():
  """Here the last of three fills the batch."""
  seen = dataclasses.replace(plain("encoder_decoder"), count=2)
  (mean,) = interventions.intact(seen)
  told = seen.logits.argmax(-1) == seen.at.target
  assert mean.count == 2 and mean.total == told[:2].all(axis=1).sum()
  assert mean.by_position.tolist() == told[:2].sum(axis=0).tolist()
  means = list(interventions.patched(seen))
  sources, rows = seen.batch.source.shape[1], seen.batch.inputs.shape[1]
  # The source, and the decoder's inputs and its block's two places.
  assert len({own.where for own in means}) == sources + 3 * rows
  assert {own.count for own in means} == {2}


def test_lines_that_are_enough_are_enough(monkeypatch):
  """Of heads of which one alone matters."""
  seen = lined()
  needed = ("cross", (0, 0, 0))

  def answers(seen, edit, **where):
    site, at = needed
    total = 2 + bool(edit.valid[site][at])
    return interventions.Mean(total, 3, **where)

  monkeypatch.setattr(interventions, "_mean", answers)
  (left,) = interventions.enough_lines(seen)
  assert (left.part, left.head, left.total) == ("cross", 0, 3)


def test_one_program_serves_all_edits():
  seen = lined()
  before = interventions._hits._cache_size()
  for probe in (interventions.intact, interventions.without_head):
    assert list(probe(seen))
  assert list(interventions.without_line(seen))
  assert interventions._hits._cache_size() - before <= 1


@pytest.mark.parametrize(
  "name", [n for n, p in PROBES.items() if p.need is ALL]
)
def test_probes_of_every_model_say_something_of_every_example(name):
  """A place is named once, and a mean is of examples or of their parts."""
  means = list(PROBES[name].of(lined()))
  assert means and len({mean.where for mean in means}) == len(means)
  for mean in means:
    assert mean.count and np.isfinite(mean.value)
