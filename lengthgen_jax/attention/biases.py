"""Biases added to attention scores, by name.

A bias answers for one site ("self", "cross", "encoder") with [N or 1, H, T, S]
for given rows and keys. The causal and padding terms are always added to it,
never replaced by it: see `total`.

Causal bias of four rows (`.` open, `x` closed) and the window w=1 of
self-attention, and of cross-attention on `$0123`:

    .xxx      .xxx      xxx..
    ..xx      ..xx      xx...
    ...x      x..x      x...x
    ....      xx..      ...xx
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from lengthgen_jax.attention import lines
from lengthgen_jax.attention.kernel import CLOSED


def causal(row_T, keys):
  """[T, S]: 0 for keys at or before the row, -inf behind it."""
  return jnp.where(keys.left <= row_T[:, None], 0.0, CLOSED)


def padding(keys):
  """[S]: -inf on PAD keys."""
  return jnp.where(keys.segment >= 0, 0.0, CLOSED)


SIDES = ("both", "previous")


def window_lines(
  strides,
  width: int,
  heads: int,
  windowed_encoder: bool = False,
  sides: str = "both",
):
  """The windowed bias of ABS as lines (ABS paper, section 4.1).

  Self-attention: row i sees decoder inputs i, i-1, ..., i-w. Cross-attention:
  in every segment the tokens of row i's own digit and `width` tokens on either
  side; a segment that advances two tokens per row (interleaved operands) opens
  two, and one that stays (the single digit of N×1) opens its last token and
  `width` to its left, for every row.

  Args:
    strides: tokens per output row, one for each source segment.
    width: w.
    heads: H.
    windowed_encoder: whether encoder self-attention is windowed too (w tokens
      to both sides, counted over the whole source).
    sides: "both" as the papers write, or "previous": only the less significant
      side, as the released ABC program does. Without positions it matters: the
      first row of a window to both sides sees a digit and its left neighbor and
      cannot tell which is which.

  Returns:
    LineBias with sites "self", "cross" and maybe "encoder".
  """
  self_lines = [(0, lines.LEFT, 1, -k, 0.0) for k in range(width + 1)]
  cross_lines = []
  for segment, stride in enumerate(strides):
    first = -width if stride else 0
    last = width if sides == "both" else 0
    for intercept in range(first, max(stride, 1) + last):
      cross_lines.append((segment, lines.RIGHT, -stride, intercept, 0.0))
  bias = {
    "self": lines.shared_lines(self_lines, heads),
    "cross": lines.shared_lines(cross_lines, heads),
  }
  if windowed_encoder:
    band = [
      (lines.WHOLE, lines.LEFT, 1, k, 0.0) for k in range(-width, width + 1)
    ]
    bias["encoder"] = lines.shared_lines(band, heads)
  return bias


def alibi(site: str, heads: int, row_T, keys):
  """ALiBi: -slope · distance, slopes 2^(-8h/H) (Press et al. 2022).

  Distance is |left - row| at every site, both counted from the left end of
  their own sequence: in self-attention the usual i - j, in cross-attention the
  gap between the output row's index and the source token's, the plain transfer
  of a definition that was made for one sequence.
  """
  del site
  slopes = 2.0 ** (-8.0 * jnp.arange(1, heads + 1) / heads)
  distance = jnp.abs(keys.absolute().left - row_T[:, None])
  return -slopes[:, None, None] * distance


class Bias(NamedTuple):
  """What a kind of bias adds beside the causal and padding terms.

  Attributes:
    lines: function like `window_lines` -> LineBias, or None. Lines are data:
      they may as well come from a file.
    dense: function (site, heads, row_T, keys) -> [H, T, S], or None.
  """

  lines: Callable | None = None
  dense: Callable | None = None


BIASES = {
  "none": Bias(),
  "window": Bias(lines=window_lines),
  "alibi": Bias(dense=alibi),
  "file": Bias(),  # lines or matrices read from bias.file
}


@dataclasses.dataclass(frozen=True)
class BiasConfig:
  """How a scaffold enters the scores.

  Attributes:
    kind: a name in BIASES.
    scale: factor on the scaffold's open values.
    closed: what the scaffold's closed cells get ("soft" ABC if finite).
    allow_leak: leaves the causal term out where there is a scaffold for
      self-attention, as the released ABC program does: the future shows.
  """

  kind: str = "none"
  scale: float = 1.0
  closed: float = CLOSED
  allow_leak: bool = False


def scaffold(
  config: BiasConfig, bias: dict, site: str, heads: int, row_T, keys
):
  """The scaffold [N or 1, H, T, S] of one site and seed; None if there is none.

  Args:
    config: how it enters.
    bias: LineBias of one seed; matrices from elsewhere stand under
      "self_dense" and "cross_dense" as [1 or N, H, T_max, S_max].
    site: "self", "cross" or "encoder".
    heads: H.
    row_T: [T] row numbers.
    keys: Coordinates of the S keys.
  """
  if site in bias:
    value = lines.dense(bias[site], row_T, keys)
  elif f"{site}_dense" in bias:
    matrix = jnp.asarray(bias[f"{site}_dense"])
    value = jnp.take(matrix, row_T, axis=2)[..., : keys.segment.shape[0]]
  elif BIASES[config.kind].dense is not None:
    value = BIASES[config.kind].dense(site, heads, row_T, keys)[None]
  else:
    return None
  # Not value * scale alone: -inf times a traced zero would be NaN.
  is_open = value != CLOSED
  return jnp.where(is_open, config.scale * value, config.closed)


def total(config: BiasConfig, bias: dict, site: str, heads: int, row_T, keys):
  """Causal + padding + scaffold bias of one site, for one seed.

  Arguments as for `scaffold`. Only "self" is causal, and always is, unless
  `config.allow_leak` says otherwise.

  Returns:
    [N or 1, H, T, S] float32.
  """
  value = padding(keys)[None, None, None, :]
  added = scaffold(config, bias, site, heads, row_T, keys)
  if site == "self" and not (config.allow_leak and added is not None):
    value = value + causal(row_T, keys)
  if added is not None:
    value = value + added
  shape = (row_T.shape[0], keys.segment.shape[0])
  return jnp.broadcast_to(value, value.shape[:1] + (heads,) + shape)


def total_gathered(config: BiasConfig, bias: dict, site: str, row_T, keys):
  """`total` of a bias of lines alone, as the few keys that each row sees."""
  causal_site = site == "self" and not config.allow_leak
  found = lines.gathered(bias[site], row_T, keys, causal_site)
  is_open = found.bias != CLOSED
  value = jnp.where(is_open, config.scale * found.bias, CLOSED)
  return found._replace(bias=value)
