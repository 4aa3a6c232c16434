"""This module takes a batch in pieces (microbatches) that fit a CPU's cache.

What a step on many examples writes does not fit a cache, so that the step waits
for memory. A sum over examples, and its gradient, can as well be computed a few
examples at a time. Accelerators take a batch whole.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from lengthgen_jax.attention.lines import SiteLines
from lengthgen_jax.models.config import ModelConfig

CACHE = 3 << 20  # bytes of activations that stand side by side


def count(
  config: ModelConfig,
  batch,
  lines: dict[str, SiteLines] | None,
  shards: int = 1,
) -> int:
  """Returns how many pieces of equal size a batch is best taken in.

  Args:
    config: of the model.
    batch: a Batch of B examples.
    lines: by site, of a model that attends along them; None if it attends to
      everything.
    shards: parts on devices of their own, of the batch and of every piece.

  Returns:
    A divisor of B; 1 on an accelerator.
  """
  if jax.default_backend() != "cpu":
    return 1
  examples, rows = batch.inputs.shape
  columns = max(rows, 0 if batch.source is None else batch.source.shape[1])
  if lines:  # copies of a key, its value and both gradients
    lines_per_head = max(
      per_shard.value.shape[-1] for per_shard in lines.values()
    )
    columns = lines_per_head * (1 + 4 * config.head_dim)
  # The widest arrays that a block writes: attention, and the MLP's inside.
  bytes_per_example = 4 * rows * (config.num_heads * columns + config.mlp_dim)
  per_shard = examples // shards if examples % shards == 0 else 1
  divisors = [n for n in range(1, per_shard + 1) if per_shard % n == 0]
  fitting = (n for n in divisors if per_shard // n * bytes_per_example <= CACHE)
  return next(fitting, per_shard)


def total(
  loss: Callable, params: dict, examples: Callable, count: int
) -> jax.Array:
  """Sums loss(params, *examples(cut)) over all examples.

  In more than one piece, its gradient is computed along with it, so that only
  one piece's activations are there at once.

  Args:
    loss: summed over the examples that it is given.
    params: what it is differentiated by.
    examples: function of `cut`, which takes some entries of an array's leading
      axis (every count-th one: an axis that a mesh has split stays split).
    count: number of pieces.
  """
  if count == 1:
    return loss(params, *examples(lambda x: x))

  def piece(params, i):
    cut = lambda x: x.reshape(-1, count, *x.shape[1:])[:, i]
    return loss(params, *examples(cut))

  @jax.custom_vjp
  def whole(params):
    return forward(params)[0]

  def forward(params):
    def add_piece(carry, i):
      value_and_gradient = jax.value_and_grad(piece)(params, i)
      return jax.tree.map(jnp.add, carry, value_and_gradient), None

    zeros = jax.tree.map(jnp.zeros_like, params)
    dtype = jnp.result_type(jnp.float32, *jax.tree.leaves(params))
    start = jnp.zeros((), dtype), zeros
    return jax.lax.scan(add_piece, start, jnp.arange(count))[0]

  def backward(gradient, factor):
    return (jax.tree.map(lambda x: x * factor, gradient),)

  whole.defvjp(forward, backward)
  return whole(params)
