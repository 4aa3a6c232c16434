"""How many bits Theorem 5.1 takes: the longest lists that its construction
sorts with numbers of so many significant bits."""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from lengthgen_jax.construction import weights
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models.layers import Block
from lengthgen_jax.tasks import dataset, packing

LAYERS = (nn.Embed, nn.Dense, nn.DenseGeneral, nn.LayerNorm)
RESIDUAL_METHOD = Block.add_to_residual.__name__


def longest_lists(
  experiment: Experiment, precisions: Sequence[int], most: int
) -> list[dict]:
  """Returns the longest list for every way to tell copies and every precision.

  Args:
    experiment: one that the construction fits.
    precisions: significant bits of parameters and activations.
    most: longest list to try, unless the model's own numbers hold less.

  Returns:
    Dictionaries of "copies", "bits", "longest" and "tried".
  """
  rows, dtype = [], experiment.model.config.dtype
  for copies in weights.COPIES:
    tried = min(most, weights.most_items(dtype, copies))
    for bits in precisions:
      last = longest(partial(sorts, experiment, copies, bits), tried)
      row = {"copies": copies, "bits": bits, "longest": last, "tried": tried}
      rows.append(row)
  return rows


def longest(holds: Callable[[int], bool], most: int) -> int:
  """Returns the last n up to `most` before holds(n) fails, 0 if it never holds.

  Two numbers an octave are tried, then bisection. Numbers beyond may hold
  again, where roundings happen to help.
  """
  octaves = np.arange(0, np.log2(most) + 0.5, 0.5)
  good, bad = 0, most + 1
  for n in sorted({*np.rint(2**octaves).astype(int).tolist(), most}):
    if n <= most and not holds(n):
      bad = n
      break
    good = min(n, most)
  while bad - good > 1:
    middle = (good + bad) // 2
    good, bad = (middle, bad) if holds(middle) else (good, middle)
  return good


def sorts(experiment: Experiment, copies: str, bits: int, length: int) -> bool:
  """Returns whether the construction sorts the hardest lists of a length.

  It is the construction for lists of up to `length` items, with numbers of so
  many significant bits.
  """
  task = weights.check_shape(experiment)
  params = weights.parameters(experiment, length, copies)
  bound = max(1 << (length - 1).bit_length(), 64)
  # One list at a time: attention is as large as the square of the bound.
  for items in hardest(task.alphabet, length):
    parsed = [(items, [length])]
    batch = dataset.typed_batch(task, experiment.kind, parsed, length, bound)
    if not _exact_match(experiment, params, batch, jnp.int32(bits))[0]:
      return False
  return True


def hardest(alphabet: int, length: int) -> list[list[int]]:
  """Returns the lists of a length that are hardest to sort.

  These are lists of 1 and 2 with few to many copies of 1; and lists with every
  value once and copies of the next one.
  """
  place = np.arange(length)
  counts = [*(max(length * k // 8, 1) for k in range(9)), length - 1]
  pairs = [(place >= count) + 1 for count in counts]
  steps = [(place >= 1) + value for value in range(1, alphabet)]
  return [items.tolist() for items in (*pairs, *steps)]


@partial(jax.jit, static_argnums=0)
def _exact_match(
  experiment: Experiment, params: dict, batch: packing.Batch, bits: jax.Array
) -> jax.Array:
  """Returns the exact match [B] with rounded parameters and activations."""

  def intercept(method, args, kwargs, context):
    if isinstance(context.module, LAYERS) and context.method_name == "__call__":
      args = tuple(rounded(x, bits) for x in args)
    elif (
      not isinstance(context.module, Block)
      or context.method_name != RESIDUAL_METHOD
    ):
      return method(*args, **kwargs)
    return rounded(method(*args, **kwargs), bits)

  params = jax.tree.map(lambda x: rounded(x, bits), params)
  with nn.intercept_methods(intercept):
    return experiment.hits(params, {}, batch, experiment.task.name)[1]


def rounded(x: jax.Array, bits: jax.Array | int) -> jax.Array:
  """Rounds floating-point numbers to so many significant bits; others stay."""
  if not jnp.issubdtype(x.dtype, jnp.floating):  # tokens
    return x
  fraction, exponent = jnp.frexp(x)  # 0.5 <= |fraction| < 1
  return jnp.ldexp(jnp.round(jnp.ldexp(fraction, bits)), exponent - bits)
