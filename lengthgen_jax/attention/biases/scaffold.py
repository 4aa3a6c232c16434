"""This module computes the attention bias of a site from a scaffold.

A scaffold is a dict from attention sites to lines or matrices. The causal and
padding masks are added to it. A cell (row, key) is closed if its bias is -inf,
and open otherwise.

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
from lengthgen_jax.attention.lines import SiteLines, of_seed
from lengthgen_jax.coordinates import PAD, Array, Coordinates
from lengthgen_jax.errors import check
from lengthgen_jax.tasks.task import Task

# In matrices from files, values at or below this one stand for -inf.
DENSE_CLOSED = -1e5


@dataclasses.dataclass(frozen=True)
class BiasConfig:
  """A BiasConfig says how a scaffold is added to attention scores.

  Attributes:
    scale: factor on the scaffold's values in open cells.
    closed: the bias in cells that the scaffold closes; it is -inf, or finite
      for "soft" ABC.
    allow_leak: whether a scaffold for self-attention replaces the causal mask,
      as in the released ABC program, so that rows may see future outputs.
  """

  scale: float = 1.0
  closed: float = CLOSED
  allow_leak: bool = False


@dataclasses.dataclass(frozen=True)
class ScaffoldSpec:
  """A ScaffoldSpec says what a scaffold must fit: a task, a model and seeds.

  Attributes:
    task: the main task, whose axes, segments and strides lines follow.
    site_segments: the names of the keys' segments, by number, of each attention
      site.
    num_decoder_layers, num_encoder_layers, num_heads: of the model.
    seeds: of the run.
  """

  task: Task
  site_segments: dict[str, tuple[str, ...]]
  num_decoder_layers: int
  num_encoder_layers: int
  num_heads: int
  seeds: tuple[int, ...]


class SiteMatrix(NamedTuple):
  """SiteMatrix holds the bias of one attention site as a matrix over indices.

  It is read from a file, and has methods of SiteLines.

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
  """Returns the causal mask [1, 1, T, S]: -inf for keys after the row, else
  0."""
  is_later = keys.index > jnp.asarray(rows.index)[:, None]
  return jnp.where(is_later, CLOSED, 0.0)[None, None]


def padding_bias(keys: Coordinates) -> jax.Array:
  """Returns the padding mask [B or 1, 1, 1, S]: -inf for PAD keys, else 0."""
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
  """Returns the sum of mask and scaffold bias of one site, for one seed.

  The mask of self-attention is causal. It closes PAD keys too, because they
  come after all tokens. Other sites have the padding mask, and so has
  self-attention with a scaffold if config.allow_leak is set.

  Args:
    config: the factor on the scaffold and the bias of its closed cells.
    scaffold: lines or matrices by site; sites may be missing.
    site: the attention site.
    rows: coordinates of the rows.
    keys: coordinates of the keys.
    decoding: whether outputs are decoded; then the mask is causal in spite of
      config.allow_leak, because future outputs do not exist yet.
  """
  is_leaky = config.allow_leak and site in scaffold and not decoding
  is_causal = site == "self" and not is_leaky
  mask = causal_bias(rows, keys) if is_causal else padding_bias(keys)
  if site not in scaffold:
    return DenseBias(mask[None])
  value = scaffold[site].dense(rows, keys)
  # In closed cells the product is not used: -inf times a scale of 0 is NaN.
  value = jnp.where(value != CLOSED, config.scale * value, config.closed)
  return DenseBias(value + mask)


@dataclasses.dataclass(frozen=True)
class SparsePlan:
  """A SparsePlan says that attention visits only the keys on lines.

  Transparent heads are excepted: their attention stays dense. A plan is
  hashable, so that it can be a static argument of jit.

  Attributes:
    dense_heads: (site, layers) of every site. `layers` has a tuple for each
      layer, or a single one if all layers share their lines: the indices of the
      transparent heads.
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
  def max_dense_heads(self) -> int:
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
  """Returns the bias of `dense_bias` in sparse form, for a scaffold of lines.

  Instead of a value for every key, it holds the index and the value of the few
  keys on lines of each row. Heads that stay dense have the mask as their bias.
  All other keys are left out, so this is for config.closed = -inf alone
  (Experiment.supports_sparse).
  """
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
  """Returns the plan for sparse attention in training.

  Args:
    scaffold: lines [R, N or 1, H, K] by site.
    sizes: (number of rows, number of keys) by site.

  Returns:
    The plan, or None if dense attention is faster, or if seeds differ in which
    heads are transparent.
  """
  # A gathered key, with its gradient, takes the time of a few keys of a dense
  # product, and of more on an accelerator, where products are cheap (32 is an
  # estimate).
  cost = 4 if jax.default_backend() == "cpu" else 32
  gathered = dense = 0
  for site, lines in scaffold.items():
    if (lines.transparent != lines.transparent[:1]).any():
      return None
    rows, keys = sizes[site]
    gathered += rows * lines.value.shape[-1]
    dense += rows * keys
  if dense < cost * gathered:
    return None
  return SparsePlan.of_scaffold(of_seed(scaffold, 0))
