"""The longest lists that the construction sorts with numbers of few bits.

Its parameters, the inputs and outputs of its layers and its residual stream are
rounded to a few significant bits; weights of attention are not.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from lengthgen_jax.construction import weights
from lengthgen_jax.evaluation.measures import longest_before_failure
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models.layers import Block
from lengthgen_jax.tasks import dataset, packing

# The layers whose inputs and outputs are rounded, and the method of a block
# whose output is rounded, too.
LAYERS = (nn.Embed, nn.Dense, nn.DenseGeneral, nn.LayerNorm)
RESIDUAL_METHOD = Block.add_to_residual.__name__


def longest_lists(
  experiment: Experiment, precisions: Sequence[int], max_length: int
) -> list[dict]:
  """Returns rows {"copies", "bits", "longest", "tried"}: one of weights.COPIES,
  the number of significant bits, the length up to which the construction sorts
  the `hardest_lists` of every length tried, and the greatest length to try.

  That is `max_length`, or weights.max_items of the model's weights.factor_dtype
  if that is less.
  """
  rows, dtype = [], weights.factor_dtype(experiment.model.config)
  for copies in weights.COPIES:
    greatest = min(max_length, weights.max_items(dtype, copies))
    # The lengths are rounded powers of sqrt(2) and the greatest. They are tried
    # in ascending order until one fails, because rounding errors can cancel at
    # a longer one. The interval before the one that fails is then bisected, so
    # the result can be a length that is not among them.
    powers = np.rint(2 ** np.arange(0, greatest.bit_length() + 0.5, 0.5))
    lengths = np.unique(powers.clip(max=greatest)).astype(int).tolist()
    for bits in precisions:
      is_sorted = partial(sorts, experiment, copies, bits)
      length = longest_before_failure(is_sorted, lengths)
      row = {"copies": copies, "bits": bits, "longest": length}
      rows.append(row | {"tried": greatest})
  return rows


def sorts(experiment: Experiment, copies: str, bits: int, length: int) -> bool:
  """Returns whether the construction for lists of up to `length` items, with
  numbers of `bits` significant bits, sorts the `hardest_lists`."""
  task = weights.check_shape(experiment)
  params = weights.parameters(experiment, length, copies)
  bound = experiment.bound(length, {})
  # One list at a time: attention is as large as the square of the bound.
  for items in hardest_lists(task.alphabet, length):
    parsed = [(items, [length])]
    batch = dataset.parsed_batch(task, experiment.kind, parsed, length, bound)
    if not _exact_match(experiment, params, batch, jnp.int32(bits))[0]:
      return False
  return True


def hardest_lists(alphabet: int, length: int) -> list[list[int]]:
  """Returns lists of a length on which rounded numbers are likely to fail
  first: those of two neighboring values, and one of 1s alone.

  They are a chosen set, and not a proven worst case. One family is c copies of
  1 followed by 2s, for c = 1, every multiple of an eighth of the length up to
  all of it, and one less than the length; the other is one item v followed by
  copies of v + 1, for every v above 1. Other orders are not tried: what a row
  of the prompt sees of earlier ones goes to the dimensions that weights.py
  calls `next s`, which layer 2 does not attend to, but for the scale of layer
  normalization, if there is one.
  """
  index = np.arange(length)
  counts = [*(max(length * k // 8, 1) for k in range(9)), length - 1]
  ones_and_twos = [(index >= count) + 1 for count in counts]
  one_smaller = [(index >= 1) + value for value in range(2, alphabet)]
  return [items.tolist() for items in (*ones_and_twos, *one_smaller)]


@partial(jax.jit, static_argnums=0)
def _exact_match(
  experiment: Experiment, params: dict, batch: packing.Batch, bits: jax.Array
) -> jax.Array:
  """Returns exact match [B] of one teacher-forced pass with rounded numbers."""

  def intercept(method, args, kwargs, context):
    module, name = context.module, context.method_name
    is_layer = isinstance(module, LAYERS) and name == "__call__"
    is_residual = isinstance(module, Block) and name == RESIDUAL_METHOD
    if is_layer:
      args = tuple(round_to_bits(x, bits) for x in args)
    out = method(*args, **kwargs)
    return round_to_bits(out, bits) if is_layer or is_residual else out

  params = jax.tree.map(lambda x: round_to_bits(x, bits), params)
  with nn.intercept_methods(intercept):
    _, is_exact = experiment.matches(params, {}, batch, experiment.task.name)
  return is_exact


def round_to_bits(x: jax.Array, bits: jax.Array | int) -> jax.Array:
  """Rounds floating-point arrays to some significant bits; returns integers as
  they are."""
  if not jnp.issubdtype(x.dtype, jnp.floating):
    return x
  bits = jnp.minimum(bits, 64)  # no dtype has more, and ldexp would overflow
  fraction, exponent = jnp.frexp(x)  # 0.5 <= |fraction| < 1
  return jnp.ldexp(jnp.round(jnp.ldexp(fraction, bits)), exponent - bits)
