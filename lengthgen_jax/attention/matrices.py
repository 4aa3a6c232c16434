"""This module holds a bias as matrices made elsewhere, with the protocol of
lines."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.coordinates import Coordinates
from lengthgen_jax.errors import check


class SiteMatrix(NamedTuple):
  """SiteMatrix holds the bias of one attention site, row by row of its
  sequence.

  Attributes:
    values: [R, N or 1, H, T_max, S_max] float32, -inf where closed; functions
      that act on one seed take it without R.
    lined: False, because every row may see any key.
  """

  values: jax.Array
  lined = False

  @property
  def shape(self) -> tuple[int, ...]:
    """Returns the leading axes, (R, N or 1, H), or the same without R."""
    return self.values.shape[:-2]

  def dense(self, rows: Coordinates, keys: Coordinates) -> jax.Array:
    """Returns the bias of one seed, [N or 1, 1, H, T, S]."""
    values = jnp.take(jnp.asarray(self.values), rows.index, axis=-2)
    return values[..., : len(keys.index)][:, None]

  def check_size(self, name: str, rows: int, keys: int) -> None:
    """Raises UsageError if there are too few rows or columns."""
    height, width = self.values.shape[-2:]
    check(
      rows <= height and keys <= width,
      f"bias.file: {name} is {height} x {width}, but {rows} x {keys} are"
      " needed",
    )

  def leak(self) -> tuple[int, ...] | None:
    """Finds the first open cell behind its row, like SiteLines.leak."""
    height, width = self.values.shape[-2:]
    future = np.arange(width) > np.arange(height)[:, None]
    leaks = np.argwhere((np.asarray(self.values) != CLOSED) & future)
    return tuple(map(int, leaks[0])) if len(leaks) else None
