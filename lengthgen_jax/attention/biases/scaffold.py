"""How a scaffold becomes the bias of a site.

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
from lengthgen_jax.coordinates import PAD

DENSE_CLOSED = -1e5  # values at or below this mean closed


@dataclasses.dataclass(frozen=True)
class BiasConfig:
  """How a scaffold enters the scores.

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
  """What a scaffold must know of the model and task that it is for.

  Attributes:
    sites: those with a decoder's rows, and their segments' names.
    layers, encoder_layers, heads: N, and H.
    strides: tokens that one output row advances in each segment of the input
      (0: stays); () if outputs stand at no fixed place.
    target: number of the output's segment.
    axes: of the coordinates.
    seeds: of the run.
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


def causal(rows, keys):
  """[1, 1, T, S]: 0 for keys at or before the row, -inf behind it."""
  behind = keys.index > jnp.asarray(rows.index)[:, None]
  return jnp.where(behind, CLOSED, 0.0)[None, None]


def padding(keys):
  """[B or 1, 1, 1, S]: -inf on PAD keys."""
  exists = jnp.asarray(keys.segment) != PAD
  return jnp.where(exists, 0.0, CLOSED)[:, None, None]


def total(config: BiasConfig, scaffold: dict, site: str, rows, keys, decoding):
  """Causal, padding and scaffold bias of one site, for one seed.

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
  own = scaffold.get(site)
  leaks = config.allow_leak and own is not None and not decoding
  hidden = causal(rows, keys) if site == "self" and not leaks else padding(keys)
  if own is None:
    return Dense(hidden[None])
  value = own.dense(rows, keys)
  # Not value * scale alone: -inf times a traced zero would be NaN.
  value = jnp.where(value != CLOSED, config.scale * value, config.closed)
  return Dense(value + hidden)


def total_gathered(
  config: BiasConfig, scaffold: dict, site: str, rows, keys, open_heads
) -> Gathered:
  """`total` of lines alone, as the few keys that each row sees.

  Args:
    open_heads: the transparent heads of every layer (or of all at once), which
      see everything there is; static.
  """
  values, index = scaffold[site].gather(rows, keys)
  is_open = values != CLOSED
  hides = site == "self" and not config.allow_leak
  if hides:
    is_open &= keys.index[index] <= rows.index[:, None]
  values = jnp.where(is_open, config.scale * values, CLOSED)
  rest = None
  if any(open_heads):
    rest = (causal(rows, keys) if hides else padding(keys))[None]
  return Gathered(values, index, rest, open_heads)


def followed(scaffold: dict, sizes: dict):
  """How training goes along lines, where that is faster than every pair.

  Args:
    scaffold: lines [R, N or 1, H, K] by site.
    sizes: rows and keys by site; {} if lines are not all there is.

  Returns:
    (site, transparent heads by layer), the same for all seeds; None if they are
    not, or rows look up too many of the keys there are.
  """
  if not sizes:
    return None
  # With its gradient, a key looked up costs what a few of all do; on an
  # accelerator more, whose products are cheap (a guess: none was at hand).
  least = 4 if jax.default_backend() == "cpu" else 32
  looked_up = pairs = 0
  for site, own in scaffold.items():
    if (own.transparent != own.transparent[:1]).any():
      return None
    rows, keys = sizes[site]
    looked_up += rows * own.value.shape[-1]
    pairs += rows * keys
  if pairs < least * looked_up:
    return None
  first = lambda own: own._replace(transparent=own.transparent[0])
  return tuple((site, open_heads(first(x))) for site, x in scaffold.items())


def open_heads(lines) -> tuple[tuple[int, ...], ...]:
  """Transparent heads by layer of one seed's lines; host-side."""
  return tuple(
    tuple(int(h) for h in np.flatnonzero(layer))
    for layer in np.asarray(lines.transparent)
  )
