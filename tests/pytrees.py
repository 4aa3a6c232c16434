"""Pytrees to the last bit."""

import jax
import jax.numpy as jnp
import numpy as np


def leaf_bytes(tree) -> list:
  """Shape, dtype and bytes of every leaf."""
  leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
  return [(x.shape, x.dtype, x.tobytes()) for x in leaves]


def one(tree, r: int = 0):
  """Member r of a stacked pytree."""
  return jax.tree.map(lambda x: x[r], tree)


def copied(tree):
  """The same arrays in other buffers, for a function that is given them."""
  return jax.tree.map(jnp.copy, tree)


def is_finite(tree) -> bool:
  return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


def max_difference(left, right) -> float:
  """The greatest difference of two pytrees of numbers."""
  number = lambda x: np.asarray(x, float)
  apart = lambda x, y: float(np.abs(number(x) - number(y)).max())
  return max(jax.tree.leaves(jax.tree.map(apart, left, right)))
