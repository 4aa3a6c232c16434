"""This module compares pytrees of arrays."""

import jax
import numpy as np


def leaf_bytes(tree) -> list:
  """Returns (shape, dtype, bytes) of every leaf, equal for pytrees that are
  equal to the last bit."""
  leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
  return [(x.shape, x.dtype, x.tobytes()) for x in leaves]


def one(tree, r: int = 0):
  """Returns entry r of the leading axis of every leaf."""
  return jax.tree.map(lambda x: x[r], tree)


def is_finite(tree) -> bool:
  """Returns whether all numbers are finite."""
  return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


def max_difference(left, right) -> float:
  """Returns the greatest absolute difference between two pytrees of numbers of
  the same structure."""
  number = lambda x: np.asarray(x, float)
  apart = lambda x, y: float(np.abs(number(x) - number(y)).max())
  return max(jax.tree.leaves(jax.tree.map(apart, left, right)))
