"""Heads knocked out, lines closed, residuals patched: against doing the same to
the parameters, the bias and the inputs."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained

from lengthgen_jax.attention import pruning
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.probes import interventions
from lengthgen_jax.probes.activations import RESIDUALS, Observation
from lengthgen_jax.probes.interventions import BiasLine, Patch, edited_logits
from lengthgen_jax.tasks.packing import KINDS

TEXTS = ("12+34", "99+11", "50+75")


def observed(model: Model) -> Observation:
  """The model on three sums, whose targets are what it says."""
  batch = jax.device_get(untrained.typed(model.experiment, *TEXTS))
  batch = batch._replace(target=np.asarray(model.observe(batch)[0].argmax(-1)))
  return Observation(model, batch, len(TEXTS), 2)


@functools.cache
def lined() -> Observation:
  """An encoder-decoder of two layers with a window of lines."""
  fields = {"model.num_decoder_layers": 2, "model.num_encoder_layers": 0}
  fields |= {"bias.kind": "window"}
  return observed(untrained.model(fields=fields))


@pytest.mark.parametrize("site", ("self", "cross"))
def test_without_a_head_is_with_a_context_of_zero(site):
  observation = lined()
  params = jax.tree.map(jnp.asarray, observation.model.params)
  attention = params["decoder_1"][f"{site}_attention"]
  # The kernel [D, H, K] and the bias [H, K].
  without = lambda x: x.at[..., 0, :].set(0.0)
  attention["value"] = jax.tree.map(without, attention["value"])
  expected = edited_logits(observation, params=params)
  params = observation.model.without_head(1, site, 0).params
  logits = np.asarray(edited_logits(observation, params=params))
  np.testing.assert_allclose(logits, expected, atol=1e-4)
  assert np.abs(logits - observation.logits).max() > 1e-3


def test_lines_that_are_enough_are_enough():
  """Of a model that is right: with the others closed it still is."""
  observation = lined()
  enough = list(interventions.enough_lines(observation))
  lines = interventions.bias_lines(observation.model)
  needed = {BiasLine(*mean.location[:4]) for mean in enough}
  of_heads = {line for line in lines if line.head is not None}
  assert needed and needed <= of_heads
  scaffold = observation.model.scaffold
  for line in of_heads - needed:
    depths = observation.experiment.model.depths
    scaffold = pruning.close(scaffold, lines[line], depths)
  logits = np.asarray(edited_logits(observation, scaffold=scaffold))
  scored = np.asarray(observation.batch.weight) > 0
  assert (logits.argmax(-1) == observation.batch.target)[scored].all()
  assert {(mean.total, mean.count) for mean in enough} == {(3, 3)}


# Patching.


@functools.cache
def plain(kind: str) -> Observation:
  """A model without lines that does not always say the same."""
  experiment = untrained.experiment("addition", kind)
  params, name = untrained.params(experiment), "logits_dense_addition"
  batch = untrained.typed(experiment, *TEXTS)
  usual = Model(experiment, {}, params).observe(batch)[0].mean(axis=(0, 1))
  head = params[name] | {"bias": params[name]["bias"] - usual}
  return observed(Model(experiment, {}, params | {name: head}))


@pytest.mark.parametrize("kind", KINDS)
def test_a_patched_embedding_is_another_token(kind):
  """And of another row nothing else is: as if it had been typed."""
  observation, row = plain(kind), 3
  batch, patched_parts = observation.batch, []
  points = interventions.patch_points(observation.experiment)
  for index, (part, _) in enumerate(points):
    if getattr(batch, part, None) is None:
      continue
    patched_parts.append(part)
    tokens = getattr(batch, part).copy()
    tokens[:, row] = np.roll(tokens[:, row], 1)
    typed = batch._replace(**{part: tokens})
    expected = observation.model.observe(typed)[0]
    logits = edited_logits(observation, patch=Patch(index, row))
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    assert not np.allclose(logits, observation.logits, atol=1e-3)
  sources = ["source"] if kind == "encoder_decoder" else []
  assert patched_parts == [*sources, "inputs"]


def test_the_last_residual_of_another_input_says_what_that_says():
  """Nothing behind the last attention looks at another row."""
  observation, row = plain("encoder_decoder"), 2
  points = interventions.patch_points(observation.experiment)
  for name in RESIDUALS:
    patch = Patch(points.index((name, 0)), row)
    expected = observation.logits.copy()
    expected[:, row] = np.roll(expected[:, row], 1, axis=0)
    logits = edited_logits(observation, patch=patch)
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_rates_are_of_the_examples_that_count():
  """Here the last of three fills the batch."""
  observation = plain("encoder_decoder")
  target = np.array(observation.batch.target)
  target[1, 0] += 1  # a wrong answer
  batch = observation.batch._replace(target=target)
  observation = dataclasses.replace(observation, count=2, batch=batch)
  (mean,) = interventions.intact(observation)
  assert (mean.total, mean.count) == (1, 2)
  assert mean.by_position.tolist() == [1, *[2] * (target.shape[1] - 1)]
  means = list(interventions.patched(observation))
  sources, rows = batch.source.shape[1], batch.inputs.shape[1]
  # The source, and the decoder's inputs and its block's two residuals.
  assert len({mean.location for mean in means}) == sources + 3 * rows
  assert {mean.count for mean in means} == {2}
  alone = dataclasses.replace(observation, count=1)
  assert not list(interventions.patched(alone))  # there is no other
