"""This module turns a scaffold into the bias of a site.

A scaffold is a dict from sites to lines or matrices. The causal and padding
terms are always added to it, never replaced by it.

Causal bias of four rows (`.` open, `x` closed) and the window w=1 of
self-attention, and of cross-attention on `$0123`:

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
from lengthgen_jax.attention.lines import SiteLines, of_seed
from lengthgen_jax.coordinates import PAD, Array, Coordinates
from lengthgen_jax.errors import check

DENSE_CLOSED = -1e5  # values at or below this mean closed


@dataclasses.dataclass(frozen=True)
class BiasConfig:
  """This class says how a scaffold enters the scores.

  Attributes:
    scale: factor on the scaffold's open values.
    closed: what the scaffold's closed cells get ("soft" ABC if finite).
    allow_leak: leaves the causal term out where there is a scaffold for
      self-attention, as the released ABC program does: the future shows.
  """

  scale: float = 1.0
  closed: float = CLOSED
  allow_leak: bool = False


@dataclasses.dataclass(frozen=True)
class ScaffoldSpec:
  """A ScaffoldSpec holds what a scaffold must know of its model and task.

  Attributes:
    sites: those with a decoder's rows, and their segments' names.
    layers, encoder_layers, heads: N, and H.
    strides: tokens that one output row advances in each segment of the input
      (0: stays); () if outputs stand at no fixed place.
    target_segment: number of the output's segment.
    axes: number of axes of the coordinates.
    seeds: seeds of the run.
    segment_axes: of a grid, the axis of each of the input's segments.
    anchor: the end of the input's segments that the first row reads.
  """

  sites: dict[str, tuple[str, ...]]
  layers: int
  encoder_layers: int
  heads: int
  strides: tuple[int, ...]
  target_segment: int
  axes: int
  seeds: tuple[int, ...]
  segment_axes: tuple[int, ...] = ()
  anchor: str = "right"


class SiteMatrix(NamedTuple):
  """SiteMatrix holds the bias of one attention site as a matrix over indices.

  It is read from a file, and has the methods of SiteLines.

  Attributes:
    values: [R, N or 1, H, T_max, S_max] float32, -inf where closed; methods
      that act on one seed take it without R.
    supports_sparse: False, because every row may see any key.
  """

  values: Array
  supports_sparse = False

  @property
  def shape(self) -> tuple[int, ...]:
    """Returns the leading axes, (R, N or 1, H), or the same without R."""
    return self.values.shape[:-2]

  def dense(self, rows: Coordinates, keys: Coordinates) -> jax.Array:
    """Returns the bias of one seed, [N or 1, 1, H, T, S]."""
    values = jnp.take(jnp.asarray(self.values), rows.index, axis=-2)
    return values[..., : len(keys.index)][:, None]

  def check_size(self, site: str, rows: int, keys: int) -> None:
    """Raises UsageError if there are too few rows or columns."""
    height, width = self.values.shape[-2:]
    check(
      rows <= height and keys <= width,
      f"bias.file: {site} is {height} x {width}, but {rows} x {keys} are"
      " needed",
    )

  def first_leak(self) -> tuple[int, ...] | None:
    """Returns the first open cell whose key is in the future, or None; it is
    (seed, layer, head, row, column)."""
    height, width = self.values.shape[-2:]
    future = np.arange(width) > np.arange(height)[:, None]
    leaks = np.argwhere((np.asarray(self.values) != CLOSED) & future)
    return tuple(map(int, leaks[0])) if len(leaks) else None


Scaffold = dict[str, SiteLines | SiteMatrix]


def causal_bias(rows: Coordinates, keys: Coordinates) -> jax.Array:
  """Returns [1, 1, T, S]: 0 for keys at or before the row, -inf for later
  ones."""
  is_later = keys.index > jnp.asarray(rows.index)[:, None]
  return jnp.where(is_later, CLOSED, 0.0)[None, None]


def padding_bias(keys: Coordinates) -> jax.Array:
  """Returns [B or 1, 1, 1, S]: -inf on PAD keys, 0 elsewhere."""
  exists = jnp.asarray(keys.segment) != PAD
  return jnp.where(exists, 0.0, CLOSED)[:, None, None]


def dense_bias(
  config: BiasConfig,
  scaffold: Scaffold,
  site: str,
  rows: Coordinates,
  keys: Coordinates,
  decoding: bool,
) -> DenseBias:
  """Sums the causal, padding and scaffold bias of one site, for one seed.

  "self" is causal, and always is, unless `config.allow_leak` says otherwise.
  PAD follows all tokens of a sequence, where causality hides it. While
  decoding, later keys do not exist yet: they are closed, leak or not.
  """
  leaks = config.allow_leak and site in scaffold and not decoding
  is_causal = site == "self" and not leaks
  hidden = causal_bias(rows, keys) if is_causal else padding_bias(keys)
  if site not in scaffold:
    return DenseBias(hidden[None])
  value = scaffold[site].dense(rows, keys)
  # Not value * scale alone: -inf times a traced zero would be NaN.
  value = jnp.where(value != CLOSED, config.scale * value, config.closed)
  return DenseBias(value + hidden)


@dataclasses.dataclass(frozen=True)
class SparsePlan:
  """A SparsePlan has attention visit the keys on lines alone.

  Transparent heads are left out: they see everything, densely. A plan is
  hashable, and so a static argument of jit.

  Attributes:
    dense_heads: (site, transparent heads of every layer, or once for all).
  """

  dense_heads: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]

  @classmethod
  def of_scaffold(cls, scaffold: dict[str, SiteLines]) -> "SparsePlan":
    """Returns the plan for lines of one seed; runs on the host."""
    dense_heads = lambda lines: tuple(
      tuple(np.flatnonzero(layer).tolist())
      for layer in np.asarray(lines.transparent)
    )
    return cls(tuple((site, dense_heads(x)) for site, x in scaffold.items()))

  @property
  def most_dense_heads(self) -> int:
    """Returns the greatest number of dense heads of any layer."""
    return max(len(heads) for _, layers in self.dense_heads for heads in layers)


def sparse_bias(
  config: BiasConfig,
  scaffold: dict[str, SiteLines],
  site: str,
  rows: Coordinates,
  keys: Coordinates,
  plan: SparsePlan,
) -> SparseBias:
  """Computes `dense_bias` of lines alone, as the few keys that each row
  sees."""
  values, index = scaffold[site].gather(rows, keys)
  is_open = values != CLOSED
  is_causal = site == "self" and not config.allow_leak
  if is_causal:
    is_open &= keys.index[index] <= rows.index[:, None]
  values = jnp.where(is_open, config.scale * values, CLOSED)
  dense_heads, dense_values = dict(plan.dense_heads)[site], None
  if any(dense_heads):
    dense_values = causal_bias(rows, keys) if is_causal else padding_bias(keys)
    dense_values = dense_values[None]
  return SparseBias(values, index, dense_values, dense_heads)


def sparse_training_plan(
  scaffold: dict[str, SiteLines], sizes: dict[str, tuple[int, int]]
) -> SparsePlan | None:
  """Returns the plan for training along lines, None where that is slower.

  Args:
    scaffold: lines [R, N or 1, H, K] by site; their transparent heads must be
      the same in all seeds.
    sizes: rows and keys by site.
  """
  # With its gradient, a key looked up costs as much as a few keys of a dense
  # product. On an accelerator, whose products are cheap, it costs more (the
  # factor is a guess: none was at hand).
  cost = 4 if jax.default_backend() == "cpu" else 32
  looked_up = pairs = 0
  for site, lines in scaffold.items():
    if (lines.transparent != lines.transparent[:1]).any():
      return None
    rows, keys = sizes[site]
    looked_up += rows * lines.value.shape[-1]
    pairs += rows * keys
  if pairs < cost * looked_up:
    return None
  return SparsePlan.of_scaffold(of_seed(scaffold, 0))
