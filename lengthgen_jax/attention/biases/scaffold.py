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
from lengthgen_jax.attention.lines import SiteLines, of_seed
from lengthgen_jax.coordinates import PAD, Array, Coordinates
from lengthgen_jax.errors import check
from lengthgen_jax.tasks.task import Task

# In matrices from files, and as bias.closed, values at or below this one stand
# for -inf.
DENSE_CLOSED = -1e5


@dataclasses.dataclass(frozen=True)
class BiasConfig:
  """A BiasConfig says how a scaffold is added to attention scores.

  Attributes:
    scale: factor on the scaffold's values in open cells.
    closed: the bias in cells that the scaffold closes: -inf, or a finite value,
      with which they are not masked.
    allow_leak: whether self-attention that has a scaffold goes without the
      causal mask, as in the released ABC program, so that rows may see future
      outputs.
  """

  scale: float = 1.0
  closed: float = CLOSED
  allow_leak: bool = False


@dataclasses.dataclass(frozen=True)
class ScaffoldSpec:
  """A ScaffoldSpec says what a scaffold must fit: a task, a model and seeds.

  Attributes:
    task: the main task, whose axes, segments and strides lines follow.
    site_segments: by attention site, the names of the keys' segments; a
      segment's number is its index.
    num_decoder_layers, num_encoder_layers, num_heads: those of the model.
    seeds: the seeds of the run.
  """

  task: Task
  site_segments: dict[str, tuple[str, ...]]
  num_decoder_layers: int
  num_encoder_layers: int
  num_heads: int
  seeds: tuple[int, ...]


class SiteMatrix(NamedTuple):
  """SiteMatrix holds the bias of one attention site for every (row index, key
  index).

  It comes from a file or a registered bias, and takes the place of SiteLines
  where only `shape`, `dense`, `first_leak` and `supports_sparse` are used.

  Attributes:
    values: [R or 1, N or 1, H, T_max, S_max] float32, -inf where closed;
      without R in the SiteMatrix of one seed.
    supports_sparse: False, because every row may see any key.
  """

  values: Array
  supports_sparse = False

  @property
  def shape(self) -> tuple[int, ...]:
    """Returns the leading axes, (R or 1, N or 1, H), or the same without R."""
    return self.values.shape[:-2]

  def dense(self, rows: Coordinates, keys: Coordinates) -> jax.Array:
    """Returns the bias of one seed for T rows and S keys, [N or 1, 1, H, T,
    S]."""
    values = jnp.take(jnp.asarray(self.values), rows.index, axis=-2)
    return values[..., : len(keys.index)][:, None]

  def check_size(self, site: str, rows: int, keys: int) -> None:
    """Raises UsageError if the matrix has fewer rows or columns than the rows
    and keys of attention."""
    height, width = self.values.shape[-2:]
    check(
      rows <= height and keys <= width,
      f"bias: the matrix of {site} is {height} x {width}, but {rows} x {keys}"
      " are needed",
    )

  def first_leak(self) -> tuple[int, ...] | None:
    """Returns (seed, layer, head, row, column) of the first open cell whose key
    is in the future, as indices; None if there is none."""
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
  """Returns the sum of the mask and the scaffold's bias at one site, for one
  seed.

  The mask of self-attention is causal. No token sees PAD keys through it,
  because they come after all tokens. Other sites have the padding mask, and so
  has self-attention with a scaffold if config.allow_leak is set.

  Args:
    config: how the scaffold is added.
    scaffold: one seed's lines or matrices by site; a site that is missing has
      the mask alone.
    site: the attention site, "self", "cross" or "encoder".
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
  """A SparsePlan says which heads compute the scores of all keys.

  These are the transparent heads, whose attention is dense. All others visit
  only the keys on their lines. A plan is hashable, so that it can be a static
  argument of jit.

  Attributes:
    dense_heads: (site, layers) for every site. `layers` has the indices of the
      transparent heads of each layer, or of a single one if all layers share
      their lines.
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
  """Returns the bias of `dense_bias` with decoding=False in sparse form, for a
  scaffold of lines.

  Instead of a value for every key, it holds the index and the bias of each
  row's few keys on lines. All other keys are left out, so config.closed must be
  -inf (Experiment.supports_sparse). The dense heads of `plan` have the mask as
  their bias. The other arguments are those of `dense_bias`, but `site` must be
  in the scaffold.
  """
  values, index = scaffold[site].gather(rows, keys)
  is_open = values != CLOSED
  is_causal = site == "self" and not config.allow_leak
  # No line has a PAD key, so these keys need no padding mask.
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
  # How many keys of a dense product take the time of one gathered key, with its
  # gradient; more on an accelerator, where products are cheap (32 is a guess).
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
