"""This module computes attention bias calibration: mean attention in, lines
out.

All functions but `compact` are pure. ABC paper, section 5 and Algorithm 1:
average the attention of a model that interpolates along every line of some
directions, keep the lines that stand out, and use them as the bias of a new
model at any size. Two things are ours. Lines may be anchored to operands
instead of the whole matrix, so that they mean the same at every width. And a
line is kept only if it stands out under every condition (widths and operand
lengths) under which attention was collected, so that low thresholds suffice.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention.candidates import Candidates
from lengthgen_jax.attention.lines import SiteLines, open_cells
from lengthgen_jax.coordinates import PAD, Coordinates

CHOICES = {
  "line": ("mean", "sum"),
  "rule": ("zscore", "mass"),
  "statistics": ("all", "distinct", "long"),
  "maximum": ("direction", "head", "none"),
  "layers": ("each", "last"),
  "empty_heads": ("transparent", "closed"),
}


@dataclasses.dataclass(frozen=True)
class Rule:
  """This class says how lines are measured, kept and valued.

  Attributes:
    line: a line's strength d_l is the "mean" of its cells, or their "sum" (the
      released ABC program).
    rule: keeps a line if its "zscore" (d_l - μ)/σ over the head's lines exceeds
      `threshold` (the papers' μ + κσ), or by "mass": if it holds more than
      `threshold` times the attention that as many cells would hold at random.
    threshold: κ, or the multiple of random mass.
    statistics: μ and σ are taken over "all" lines, over the "distinct" non-zero
      strengths (released program), or over "long" lines, which cross enough
      rows.
    maximum: a kept line's value is d_l - d_max with d_max over its "direction"
      (Algorithm 1) or the whole "head" (equation 1), or d_l itself ("none",
      released program).
    min_cells: the least share of the used rows that a line must cross.
  """

  line: str = "mean"
  rule: str = "zscore"
  threshold: float = 2.0
  statistics: str = "all"
  maximum: str = "head"
  min_cells: float = 0.5


class Condition(NamedTuple):
  """A condition is the mean attention of samples of one width and length.

  Attributes:
    attention: [N, H, T, S] mean softmax weights or raw scores.
    used: [T] bool, the rows that count.
    rows: Coordinates of the T rows, the same for all samples.
    keys: Coordinates of the S keys.
  """

  attention: jax.Array
  used: jax.Array
  rows: Coordinates
  keys: Coordinates


class Verdict(NamedTuple):
  """A verdict holds what was measured of all candidates: float32 or bool [N, H,
  C].

  Attributes:
    value: the bias on the line.
    strength: d_l, the mean over conditions.
    score: the least z-score (or multiple of random mass) over conditions.
    keep: whether the line stands out under every condition.
  """

  value: jax.Array
  strength: jax.Array
  score: jax.Array
  keep: jax.Array


def calibrate(
  conditions: Sequence[Condition], lines: Candidates, causal: bool, rule: Rule
) -> Verdict:
  """Tests all candidates under all conditions; pure and jittable.

  Args:
    conditions: the measured attention, a Condition for each width and length.
    lines: the C candidates.
    causal: whether only cells at or before the row count (self-attention).
    rule: how to measure, keep and value.

  Returns:
    Verdict with [N, H, C] arrays.
  """
  measured = [
    _measure(condition, lines, causal, rule) for condition in conditions
  ]
  strength, score, exists = map(jnp.stack, zip(*measured, strict=True))
  keep = (exists & (score > rule.threshold)).all(axis=0)
  strength = jnp.where(exists, strength, 0.0).mean(axis=0)
  value = strength
  if rule.maximum == "head":
    value = strength - strength.max(axis=-1, keepdims=True)
  elif rule.maximum == "direction":
    peers = jnp.where(lines.direction, strength[..., None, :], -jnp.inf)
    value = strength - peers.max(axis=-1)
  return Verdict(value, strength, score.min(axis=0), keep)


def _measure(
  condition: Condition, lines: Candidates, causal: bool, rule: Rule
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns strength, score and eligibility [N, H, C] under one condition."""
  attention, used, rows, keys = condition
  counted = used[:, None] & (jnp.asarray(keys.segment[0]) != PAD)
  if causal:
    counted &= keys.index <= rows.index[:, None]
  lines_of_one_head = Candidates(
    *(jnp.asarray(x)[None, :, None] for x in lines)
  )
  cells = open_cells(lines_of_one_head, rows, keys)[0, 0] & counted
  on_line = cells.astype(jnp.float32).reshape(len(cells), -1)
  flat_attention = attention.reshape(*attention.shape[:2], -1)
  total = jnp.einsum(
    "nhx,cx->nhc", flat_attention, on_line, precision="highest"
  )
  count = on_line.sum(axis=1)
  mean = total / jnp.maximum(count, 1.0)
  strength = total if rule.line == "sum" else mean
  exists = count > 0
  long_enough = exists & (count >= rule.min_cells * used.sum())
  if rule.rule == "mass":
    random_mass = jnp.where(counted, attention, 0.0).sum((2, 3)) / counted.sum()
    score = mean / jnp.maximum(random_mass, 1e-9)[..., None]
  else:
    eligible = long_enough if rule.statistics == "long" else exists
    members = _statistics_over(strength, eligible, rule.statistics)
    size = jnp.maximum(members.sum(-1, keepdims=True), 1)
    mu = jnp.where(members, strength, 0.0).sum(-1, keepdims=True) / size
    squares = jnp.where(members, (strength - mu) ** 2, 0.0).sum(
      -1, keepdims=True
    )
    score = (strength - mu) / jnp.maximum(jnp.sqrt(squares / size), 1e-9)
  score = jnp.where(exists, score, -jnp.inf)
  return strength, score, jnp.broadcast_to(long_enough, score.shape)


def _statistics_over(
  strength: jax.Array, exists: jax.Array, which: str
) -> jax.Array:
  """Returns which lines μ and σ are taken over, [N, H, C] bool."""
  if which != "distinct":
    return jnp.broadcast_to(exists, strength.shape)
  strengths = jnp.where(exists, strength, 0.0)
  order = jnp.argsort(strengths, axis=-1)
  sorted_strengths = jnp.take_along_axis(strengths, order, axis=-1)
  is_first = jnp.diff(sorted_strengths, axis=-1, prepend=jnp.nan) != 0
  is_first = jnp.take_along_axis(is_first, jnp.argsort(order, axis=-1), axis=-1)
  return is_first & (strengths != 0)


def compact(
  lines: Candidates, verdicts: Sequence[Verdict], layers: str, empty: str
) -> SiteLines:
  """Gathers the kept lines of R seeds as SiteLines [R, N or 1, H, K], on the
  host.

  Args:
    lines: the C candidates.
    verdicts: a Verdict per seed.
    layers: "each" layer keeps its own lines, or the "last" one's serve all.
    empty: heads without a line are "transparent" or "closed".
  """
  keep = np.stack([np.asarray(verdict.keep) for verdict in verdicts])
  value = np.stack([np.asarray(verdict.value) for verdict in verdicts])
  if layers == "last":
    keep, value = keep[:, -1:], value[:, -1:]
  size = max(int(keep.sum(-1).max()), 1)
  order = np.argsort(~keep, axis=-1, kind="stable")[..., :size]
  pick = lambda x: np.take_along_axis(x, order, axis=-1)
  return SiteLines(
    *(np.asarray(column)[order] for column in lines),
    value=pick(value).astype(np.float32),
    valid=pick(keep),
    transparent=~keep.any(-1) & (empty == "transparent"),
  )
