"""This module computes the attention bias of a site from a scaffold.

A scaffold is a dict from attention site to lines or a matrix. The causal or the
padding mask is added to its bias. A cell (row, key) is closed if its bias is
-inf, and open otherwise.

From left to right: the causal mask of four rows (`.` open, `x` closed), the
same with a window of width 1 in self-attention, and such a window in
cross-attention to the five tokens `$0123`:

    .xxx      .xxx      xxx..
    ..xx      ..xx      xx...
    ...x      x..x      x...x
    ....      xx..      ...xx
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED, DenseBias, SparseBias
from lengthgen_jax.attention.lines import SiteLines
from lengthgen_jax.coordinates import PAD, Array, Coordinates
from lengthgen_jax.errors import check
from lengthgen_jax.tasks.task import Task

# In matrices from files, and as bias.closed, values at or below this one stand
# for -inf.
DENSE_CLOSED = -1e5


@dataclasses.dataclass(frozen=True)
class BiasConfig:
  """How a scaffold is added to attention scores."""

  # in cells that the scaffold closes; with a finite value they are not masked
  closed: float = CLOSED
  # self-attention that has a scaffold goes without the causal mask, as in the
  # released ABC program, so that rows may see future outputs
  allow_leak: bool = False


@dataclasses.dataclass(frozen=True)
class ScaffoldSpec:
  """What a scaffold must fit: a task, a model and seeds."""

  task: Task  # the main task, whose axes, segments and strides lines follow
  # by attention site, the names of the keys' segments, by number
  site_segments: dict[str, tuple[str, ...]]
  depths: dict[str, int]  # by attention site, the number of layers
  num_heads: int
  seeds: tuple[int, ...]


class SiteMatrix(NamedTuple):
  """The bias of one attention site for every (row index, key index).

  It comes from a file or a registered bias, and takes the place of SiteLines
  where only `shape`, `dense` and `first_leak` are used.
  """

  # [R or 1, N or 1, H, T_max, S_max], -inf where closed; without R in the
  # SiteMatrix of one seed
  values: Array

  @property
  def shape(self) -> tuple[int, ...]:
    """The leading axes, (R or 1, N or 1, H), or the same without R."""
    return self.values.shape[:-2]

  def dense(self, rows: Coordinates, keys: Coordinates) -> jax.Array:
    """Returns the bias of one seed, [N or 1, 1, H, T, S]."""
    values = jnp.take(jnp.asarray(self.values), rows.index, axis=-2)
    return values[..., : len(keys.index)][:, None]

  def check_size(self, site: str, rows: int, keys: int) -> None:
    """Raises UsageError if the matrix is smaller than rows x keys."""
    height, width = self.values.shape[-2:]
    check(
      rows <= height and keys <= width,
      f"bias: the matrix of {site} is {height} x {width}, but {rows} x {keys}"
      " are needed",
    )

  def first_leak(self) -> tuple[int, ...] | None:
    """Returns (seed, layer, head) of the first open cell whose key is in the
    future; None if there is none."""
    height, width = self.values.shape[-2:]
    future = np.arange(width) > np.arange(height)[:, None]
    is_leak = (np.asarray(self.values) != CLOSED) & future
    leaks = np.argwhere(is_leak)[:, :3].tolist()
    return tuple(leaks[0]) if leaks else None


Scaffold = dict[str, SiteLines | SiteMatrix]


def dense_bias(
  config: BiasConfig,
  scaffold: Scaffold,
  site: str,
  rows: Coordinates,
  keys: Coordinates,
  decoding: bool = False,
) -> DenseBias:
  """Returns the sum of the mask and one seed's scaffold at one site, which has
  the mask alone if it is not in the scaffold.

  The mask of self-attention is causal. No token sees PAD keys through it,
  because they come after all tokens. Other sites have the padding mask, and so
  has self-attention with a scaffold if config.allow_leak is set; but while
  `decoding` future outputs do not exist yet, and the mask is causal.
  """
  is_leaky = config.allow_leak and site in scaffold and not decoding
  is_seen = (jnp.asarray(keys.segment) != PAD)[:, None, None]
  if site == "self" and not is_leaky:
    is_seen = (keys.index <= jnp.asarray(rows.index)[:, None])[None, None]
  mask = jnp.where(is_seen, 0.0, CLOSED)
  if site not in scaffold:
    return DenseBias(mask[None])
  value = scaffold[site].dense(rows, keys)
  return DenseBias(jnp.where(value != CLOSED, value, config.closed) + mask)


def sparse_bias(
  config: BiasConfig,
  scaffold: dict[str, SiteLines],
  site: str,
  rows: Coordinates,
  keys: Coordinates,
) -> SparseBias:
  """Returns `dense_bias` of a scaffold of lines in sparse form: the index and
  the bias of each row's few keys on lines.

  All other keys are left out, so config.closed must be -inf and no head
  transparent (Experiment.supports_sparse), and `site` must be in the scaffold.
  """
  values, index = scaffold[site].gather(rows, keys)
  is_open = values != CLOSED
  # No line has a PAD key, so these keys need no padding mask.
  if site == "self" and not config.allow_leak:
    is_open &= keys.index[index] <= rows.index[:, None]
  return SparseBias(jnp.where(is_open, values, CLOSED), index)


def is_sparse_faster(
  scaffold: dict[str, SiteLines], sizes: dict[str, tuple[int, int]]
) -> bool:
  """Returns whether training is faster by sparse attention along lines [R, N or
  1, H, K] than by dense attention; `sizes` are (rows, keys) by site."""
  # How many keys of a dense product take the time of one gathered key, with its
  # gradient; more on an accelerator, where products are cheap (32 is a guess).
  cost = 4 if jax.default_backend() == "cpu" else 32
  gathered = dense = 0
  for site, lines in scaffold.items():
    rows, keys = sizes[site]
    gathered += rows * lines.value.shape[-1]
    dense += rows * keys
  return dense >= cost * gathered
