"""A batch in pieces that fit a CPU's cache.

What a step on many examples writes does not fit a cache, and then memory is
what it waits for. A sum over examples, and its gradient, can as well be taken a
few examples at a time. Accelerators take a batch whole.
"""

import jax
import jax.numpy as jnp

from lengthgen_jax.models.config import ModelConfig

CACHE = 3 << 20  # bytes of activations that stand side by side


def count(config: ModelConfig, batch, lines: dict | None, shards=1) -> int:
  """How many pieces of equal size a batch is best taken in.

  Args:
    config: of the model.
    batch: a Batch of B examples.
    lines: by site, of a model that attends along them; None: to everything.
    shards: parts on devices of their own, of the batch and of every piece.

  Returns:
    A divisor of B; 1 on an accelerator.
  """
  if jax.default_backend() != "cpu":
    return 1
  examples, rows = batch.inputs.shape
  seen = max(rows, 0 if batch.source is None else batch.source.shape[1])
  if lines:  # copies of a key, its value and both gradients
    most = max(own.value.shape[-1] for own in lines.values())
    seen = most * (1 + 4 * config.head_dim)
  # The widest of what a block writes: attention, and the MLP inside.
  each = 4 * rows * (config.num_heads * seen + config.mlp_dim)
  own = examples // shards if examples % shards == 0 else 1
  divisors = [n for n in range(1, own + 1) if own % n == 0]
  fitting = (n for n in divisors if own // n * each <= CACHE)
  return next(fitting, own)


def total(loss, params, examples, count: int):
  """The sum over all examples of loss(params, *examples(cut)).

  In more than one piece, its gradient is computed along with it, so that only
  one piece's activations are there at once.

  Args:
    loss: summed over the examples that it is given.
    params: what it is differentiated by.
    examples: function of `cut`, which takes some entries of an array's leading
      axis (every count-th one: an axis that a mesh has split stays split).
    count: of pieces.
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
    def one(carry, i):
      found = jax.value_and_grad(piece)(params, i)
      return jax.tree.map(jnp.add, carry, found), None

    nothing = jax.tree.map(jnp.zeros_like, params)
    dtype = jnp.result_type(jnp.float32, *jax.tree.leaves(params))
    start = jnp.zeros((), dtype), nothing
    return jax.lax.scan(one, start, jnp.arange(count))[0]

  def backward(gradient, factor):
    return (jax.tree.map(lambda x: x * factor, gradient),)

  whole.defvjp(forward, backward)
  return whole(params)
