"""One attention for all: dense, sparse along lines, and what is closed."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained
from plain_lines import INF, random_lines
from pytrees import one

from lengthgen_jax.attention.kernel import DenseBias, attend
from lengthgen_jax.attention.lines import WHOLE
from lengthgen_jax.attention.normalizers import AttentionConfig
from lengthgen_jax.tasks.packing import KINDS

run = jax.jit(lambda *arrays: attend(*arrays, "highest", AttentionConfig()))


def normal(seed, *shape):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def softmax_reference(query, key, value, bias, tau):
  """Scores, weights and context in float64."""
  query, key, value = (x.astype(np.float64) for x in (query, key, value))
  scores = tau * np.einsum("bhtk,bhsk->bhts", query, key)
  scores /= np.sqrt(query.shape[-1])
  logits = scores + bias
  highest = logits.max(-1, keepdims=True)
  exp = np.exp(logits - np.maximum(highest, -1e9))  # of a closed row it is 0
  weights = exp / np.maximum(exp.sum(-1, keepdims=True), 1e-300)
  return scores, weights, np.einsum("bhts,bhsk->bhtk", weights, value)


@pytest.mark.parametrize("scale", (1.0, 100.0))
def test_attention_is_a_plain_softmax(scale):
  query, key = scale * normal(0, 2, 3, 5, 4), normal(1, 2, 3, 7, 4)
  value, tau = normal(2, 2, 3, 7, 4), 1 + normal(5, 2, 3, 5, 1) ** 2
  bias = normal(3, 3, 5, 7)
  bias[normal(4, 3, 5, 7) > 0.5] = -INF
  bias[1, 2] = -INF
  context, acts = run(query, key, value, DenseBias(bias[None]), tau)
  scores, weights, expected = softmax_reference(query, key, value, bias, tau)
  np.testing.assert_allclose(acts["weights"], weights, atol=1e-5 * scale)
  np.testing.assert_allclose(context, expected, atol=2e-5 * scale)
  np.testing.assert_allclose(acts["scores"], scores, rtol=1e-3, atol=1e-3)
  assert np.all(np.asarray(acts["weights"])[:, bias == -INF] == 0)


def test_bfloat16_keeps_float32_weights_and_scores():
  """The temperature multiplies float32 scores, not rounded ones."""
  query, key, value = (jnp.bfloat16(normal(i, 1, 2, 6, 16)) for i in range(3))
  tau = jnp.full((1, 1, 1, 1), 1.2345678)
  bias = DenseBias(jnp.zeros((1, 2, 6, 6)))
  context, acts = run(query, key, value, bias, tau)
  assert context.dtype == jnp.bfloat16
  assert acts["weights"].dtype == acts["scores"].dtype == jnp.float32
  np.testing.assert_allclose(acts["weights"].sum(-1), 1.0, rtol=1e-6)
  arrays = (np.asarray(x) for x in (query, key, value))
  scores, *_ = softmax_reference(*arrays, 0.0, 1.2345678)
  np.testing.assert_allclose(acts["scores"], scores, rtol=1e-4, atol=1e-5)


# Along lines.


def random_scaffold(experiment) -> dict:
  """Random lines of one seed, of two layers and four heads."""
  target, shape = experiment.task.target_segment, (1, 2, 4, 5)
  if experiment.kind == "decoder_only":
    segments = (0, 1, target, WHOLE)
    lines = random_lines(3, shape, 1, segments, (0, 1), rows=(target,))
    return {"self": one(lines)}
  own = random_lines(0, shape, 1, (target, WHOLE), rows=(target, -1))
  cross = random_lines(1, shape, 1, (0, 1, WHOLE), (0, 1, WHOLE))
  return {"self": one(own), "cross": one(cross)}


@pytest.mark.parametrize("kind", KINDS)
def test_heads_along_lines_say_and_learn_the_same(kind):
  """With stick-breaking by the order of keys."""
  is_packed = kind == "decoder_only"
  fields = {
    "model.num_encoder_layers": 0,
    "model.num_decoder_layers": 2,
    "model.num_heads": 4,
    "positions.kind": "none",
    "temperature.kind": "scalable",
    "attention.normalizer": "stick_breaking" if is_packed else "softmax",
  }
  experiment = untrained.experiment("addition", kind, fields)
  scaffold = random_scaffold(experiment)
  params = untrained.params(experiment)
  batch = untrained.typed(experiment, "12+34", "99+1", "0+805", longest=6)

  @functools.partial(jax.jit, static_argnums=0)
  def gradient_and_logits(sparse):
    def loss(params):
      args = params, scaffold, batch, "addition"
      logits, _ = experiment.apply(*args, sparse=sparse)
      scored = logits * batch.weight[..., None]
      return jnp.sin(scored).sum(), scored

    return jax.grad(loss, has_aux=True)(params)

  assert experiment.supports_sparse(scaffold)
  dense, sparse = gradient_and_logits(False), gradient_and_logits(True)
  assert np.abs(dense[1]).max() > 0.1
  compare = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=2e-4)
  jax.tree.map(compare, dense, sparse)
