"""This module turns a scaffold into the bias of a site.

The causal and padding terms are always added to it, never replaced by it.

Causal bias of four rows (`.` open, `x` closed) and the window w=1 of
self-attention, and of cross-attention on `$0123`:

    .xxx      .xxx      xxx..
    ..xx      ..xx      xx...
    ...x      x..x      x...x
    ....      xx..      ...xx
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED, Dense, Gathered
from lengthgen_jax.attention.lines import SiteLines
from lengthgen_jax.coordinates import PAD, Coordinates

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
class Shape:
  """A Shape holds what a scaffold must know of the model and task that it is
  for.

  Attributes:
    sites: those with a decoder's rows, and their segments' names.
    layers, encoder_layers, heads: N, and H.
    strides: tokens that one output row advances in each segment of the input
      (0: stays); () if outputs stand at no fixed place.
    target: number of the output's segment.
    axes: number of axes of the coordinates.
    seeds: seeds of the run.
    along: of a grid, the axis of each of the input's segments.
    anchor: the end of the input's segments that the first row reads.
  """

  sites: dict[str, tuple[str, ...]]
  layers: int
  encoder_layers: int
  heads: int
  strides: tuple[int, ...]
  target: int
  axes: int
  seeds: tuple[int, ...]
  along: tuple[int, ...] = ()
  anchor: str = "right"


def causal(rows: Coordinates, keys: Coordinates) -> jax.Array:
  """Returns [1, 1, T, S]: 0 for keys at or before the row, -inf for later
  ones."""
  behind = keys.index > jnp.asarray(rows.index)[:, None]
  return jnp.where(behind, CLOSED, 0.0)[None, None]


def padding(keys: Coordinates) -> jax.Array:
  """Returns [B or 1, 1, 1, S]: -inf on PAD keys, 0 elsewhere."""
  exists = jnp.asarray(keys.segment) != PAD
  return jnp.where(exists, 0.0, CLOSED)[:, None, None]


def total(
  config: BiasConfig,
  scaffold: dict,
  site: str,
  rows: Coordinates,
  keys: Coordinates,
  decoding: bool,
) -> Dense:
  """Sums the causal, padding and scaffold bias of one site, for one seed.

  Args:
    config: how the scaffold enters.
    scaffold: lines or matrices of one seed, by site.
    site: "self" is causal, and always is, unless `config.allow_leak` says
      otherwise. PAD follows all tokens of a sequence, where causality hides it.
    rows, keys: Coordinates of the site.
    decoding: whether later keys do not exist yet: closed, leak or not.

  Returns:
    Dense.
  """
  site_bias = scaffold.get(site)
  leaks = config.allow_leak and site_bias is not None and not decoding
  hidden = causal(rows, keys) if site == "self" and not leaks else padding(keys)
  if site_bias is None:
    return Dense(hidden[None])
  value = site_bias.dense(rows, keys)
  # Not value * scale alone: -inf times a traced zero would be NaN.
  value = jnp.where(value != CLOSED, config.scale * value, config.closed)
  return Dense(value + hidden)


def total_gathered(
  config: BiasConfig,
  scaffold: dict[str, SiteLines],
  site: str,
  rows: Coordinates,
  keys: Coordinates,
  open_heads: tuple[tuple[int, ...], ...],
) -> Gathered:
  """Computes `total` of lines alone, as the few keys that each row sees.

  Args:
    config, scaffold, site, rows, keys: as in `total`.
    open_heads: the transparent heads of every layer (or of all at once), which
      see everything there is; static.
  """
  values, index = scaffold[site].gather(rows, keys)
  is_open = values != CLOSED
  is_causal = site == "self" and not config.allow_leak
  if is_causal:
    is_open &= keys.index[index] <= rows.index[:, None]
  values = jnp.where(is_open, config.scale * values, CLOSED)
  open_bias = None
  if any(open_heads):
    open_bias = (causal(rows, keys) if is_causal else padding(keys))[None]
  return Gathered(values, index, open_bias, open_heads)


def sparse_training_heads(
  scaffold: dict[str, SiteLines], sizes: dict[str, tuple[int, int]]
) -> tuple | None:
  """Decides whether training attends along lines, where that is faster.

  Args:
    scaffold: lines [R, N or 1, H, K] by site.
    sizes: rows and keys by site; {} if lines are not all there is.

  Returns:
    (site, transparent heads by layer), the same for all seeds; None if they are
    not, or if rows look up too many of the keys there are.
  """
  if not sizes:
    return None
  # With its gradient, a key looked up costs as much as a few keys of a dense
  # product. On an accelerator, whose products are cheap, it costs more (the
  # factor is a guess: none was at hand).
  least = 4 if jax.default_backend() == "cpu" else 32
  looked_up = pairs = 0
  for site, lines in scaffold.items():
    if (lines.transparent != lines.transparent[:1]).any():
      return None
    rows, keys = sizes[site]
    looked_up += rows * lines.value.shape[-1]
    pairs += rows * keys
  if pairs < least * looked_up:
    return None
  first = lambda lines: lines._replace(transparent=lines.transparent[0])
  return tuple(
    (site, open_heads(first(site_lines)))
    for site, site_lines in scaffold.items()
  )


def open_heads(lines: SiteLines) -> tuple[tuple[int, ...], ...]:
  """Returns the transparent heads by layer of one seed's lines, on the host."""
  return tuple(
    tuple(int(head) for head in np.flatnonzero(layer))
    for layer in np.asarray(lines.transparent)
  )
