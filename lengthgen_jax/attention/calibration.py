"""Calibration finds the lines in mean attention, which become a bias.

ABC paper, section 5 and Algorithm 1: average the attention of a model that
interpolates along every line of some directions, keep the lines that stand out,
and use them as the bias of a new model at any size. Two things are ours. Lines
may be anchored to operands instead of the whole matrix, so that they mean the
same at every width. And a line is kept only if it stands out under every
condition (a width and a length of the operands) under which attention was
collected, so that low thresholds suffice.

`select_lines` has all steps but the last: `candidate_lines` lists what is
tested; `calibrate` tests it; `within_reach` marks the lines for which a
certificate can try all contexts; a share of a head's best score (best_share)
drops the weaker lines of a head; and `move_output_lines_to_first_layer` moves
lines of grids. `compact` makes a bias of what is left. Shapes: R seeds, N
layers, H heads, T rows, S keys, C candidate lines, K lines of a head, A axes.
"""

import itertools
from collections.abc import Collection, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax import sections
from lengthgen_jax.attention.lines import (
  LEFT,
  RIGHT,
  WHOLE,
  Lines,
  SiteLines,
  cells_of_each,
)
from lengthgen_jax.coordinates import PAD, Array, Coordinates
from lengthgen_jax.tasks.task import Task


class MeanAttention(NamedTuple):
  """The mean over samples of one condition, a width and a length."""

  values: Array  # [N, H, T, S] weights, or scores before the softmax
  used: Array  # [T] bool, the rows that count
  rows: Coordinates  # [1, T], the same for all samples
  keys: Coordinates  # [1, S]


class Selection(NamedTuple):
  """Which of C candidate lines are kept, fields [N, H, C]."""

  value: Array  # the bias on the line
  # the mean over conditions of d_l, 0 where the line crosses too few rows
  strength: Array
  # the least over conditions, -inf where one does not have the line
  score: Array
  is_long: Array  # whether it crosses enough rows under every condition
  keep: Array  # those of these that stand out under every condition


# Candidates.


def candidate_lines(
  rows: Coordinates,
  keys: Coordinates,
  row_segment: int,
  steps: Sequence[int],
  absolute: bool,
  right_anchored: Collection[int],
  right_anchored_steps: Sequence[int] | None = None,
  first_rows: Collection[int] = (),
) -> Lines:
  """Lists all lines of some directions that cross at least one cell of the
  largest condition, as Lines [C] of numpy arrays.

  `steps` are Δ values, the papers' column steps per row. `absolute` lists the
  papers' lines, over the whole sequence. Lines of the segments in
  `right_anchored` may be anchored right too: those of the prompt, whose end is
  known before the first output; their steps are `right_anchored_steps`, if
  given. `first_rows` are the segments that are the first row of a grid, to
  which lines lead from this row alone.
  """
  rows, keys = jax.tree.map(np.asarray, (rows, keys))
  has_lines = rows.segment[0] == row_segment
  segments = (
    [WHOLE] if absolute else sorted(set(keys.segment[0].tolist()) - {PAD})
  )
  lines = []
  for segment in segments:
    is_anchored_right = segment in right_anchored
    segment_steps = steps
    # In a decoder-only model self-attention to the prompt has the directions of
    # cross-attention.
    if is_anchored_right and right_anchored_steps:
      segment_steps = right_anchored_steps
    for anchor in (LEFT, RIGHT) if is_anchored_right else (LEFT,):
      key_offsets = _key_offsets(keys, segment, anchor)
      row_offsets = rows.left[0]
      if segment == WHOLE:
        row_offsets = _on_first_axis(rows.index, rows.axes)
      split_by_sign = absolute and is_anchored_right
      matrices = _matrices(key_offsets, segment_steps, anchor, split_by_sign)
      if segment in first_rows:
        sign = 1 if anchor == LEFT else -1
        matrices = [matrix + np.diag([sign, 0]) for matrix in matrices]
      for matrix in matrices:
        # All intercepts that occur: the key's offset minus M times the row's.
        row_steps = row_offsets[has_lines] @ matrix.T
        intercepts = key_offsets[None] - row_steps[:, None]
        if segment in first_rows:
          intercepts = intercepts[intercepts[..., 0] == 0]
        for intercept in np.unique(
          intercepts.reshape(-1, intercepts.shape[-1]), axis=0
        ):
          lines.append((row_segment, segment, anchor, matrix, intercept))
  columns = zip(*lines, strict=True)
  return Lines(*(np.array(column, np.int32) for column in columns))


def _key_offsets(keys: Coordinates, segment: int, anchor: int) -> np.ndarray:
  """Returns the offsets [keys of the segment, A] of a segment's keys from an
  anchor."""
  if segment == WHOLE:
    index = keys.index if anchor == LEFT else keys.index_right()[0]
    offsets, in_segment = _on_first_axis(index, keys.axes), keys.segment != PAD
  else:
    offsets = keys.left[0] if anchor == LEFT else keys.right[0]
    in_segment = keys.segment == segment
  return np.asarray(offsets)[np.asarray(in_segment)[0]]


def _on_first_axis(index: Array, axes: int) -> np.ndarray:
  """Returns indices [L] in the whole sequence as offsets [L, A], which are 0 on
  all axes but the first."""
  return np.asarray(index)[:, None] * (np.arange(axes) == 0)


def _matrices(
  offsets: np.ndarray, steps: Sequence[int], anchor: int, split_by_sign: bool
) -> list[np.ndarray]:
  """Returns the matrices M [A, A] of all directions of lines from one anchor,
  where keys have these offsets [keys, A].

  If `split_by_sign`, lines with a negative step have the right anchor only, and
  all others the left one only.
  """
  # M is diagonal, with one of the steps on each axis: each axis of the key
  # follows the same axis of the row. From the right, offsets are counted
  # backwards.
  axis_steps = [
    steps if len(np.unique(axis_offsets)) > 1 else (0,)
    for axis_offsets in offsets.T
  ]
  sign = 1 if anchor == LEFT else -1
  return [
    sign * np.diag(diagonal)
    for diagonal in itertools.product(*axis_steps)
    if not split_by_sign or (diagonal[0] < 0) == (anchor == RIGHT)
  ]


# Which candidates stand out.


def calibrate(
  attention: Sequence[MeanAttention],
  lines: Lines,
  causal: bool,
  threshold: float | jax.Array,
  section: sections.Calibration,
  first_rows: tuple[int, ...] = (),
) -> Selection:
  """Tests the C candidate lines of one site on its mean attention under every
  condition; keeps those that cross enough rows and exceed the threshold under
  all of them.

  If `causal`, only cells count whose key is at the row's own position or before
  it. `first_rows` are the segments that are the first row of a grid: for lines
  to them only the queries of row 0 of the grid count. Both are static under
  jit, and so is `section`, which says how lines are measured, and their bias.
  """
  measure = lambda mean: _measure(mean, lines, causal, section, first_rows)
  strength, score, is_long = jax.lax.map(measure, _stack(attention))
  score, is_long_everywhere = score.min(axis=0), is_long.all(axis=0)
  keep = is_long_everywhere & (score > threshold)
  strength = jnp.where(is_long, strength, 0.0).mean(axis=0)
  value = strength
  # Lines that never cross enough rows are no maximum of scores below zero.
  is_ever_long = is_long.any(axis=0)
  candidate_strength = jnp.where(is_ever_long, strength, -jnp.inf)
  if section.maximum == "head":
    value = strength - _or_zero(candidate_strength.max(-1, keepdims=True))
  elif section.maximum == "direction":
    # Lines of one direction have the same segment, anchor and matrix.
    equal = lambda x: (x[:, None] == x).reshape(len(x), len(x), -1).all(-1)
    same_direction = (
      equal(lines.segment) & equal(lines.anchor) & equal(lines.matrix)
    )
    strength_of_direction = jnp.where(
      same_direction, candidate_strength[..., None, :], -jnp.inf
    )
    value = strength - _or_zero(strength_of_direction.max(axis=-1))
  return Selection(value, strength, score, is_long_everywhere, keep)


def _or_zero(maximum: jax.Array) -> jax.Array:
  """Returns maxima, with 0 in the place of those of no lines."""
  return jnp.where(maximum > -jnp.inf, maximum, 0.0)


def _stack(attention: Sequence[MeanAttention]) -> MeanAttention:
  """Stacks the attention of all conditions along a new first axis, each padded
  to the largest number of rows and of keys."""

  def stack(*fields: Array) -> jax.Array:
    shape = np.max([x.shape for x in fields], axis=0)
    # Of coordinates PAD, the segment of positions without a token.
    value = PAD if jnp.issubdtype(fields[0].dtype, jnp.integer) else 0
    pad = lambda x: jnp.pad(
      x, [(0, n) for n in shape - x.shape], constant_values=value
    )
    return jnp.stack([*map(pad, fields)])

  return jax.tree.map(stack, *attention)


def _measure(
  attention: MeanAttention,
  lines: Lines,
  causal: bool,
  section: sections.Calibration,
  first_rows: tuple[int, ...],
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns each line's strength and score under one condition, and whether it
  crosses enough rows; all [N, H, C]."""
  values, used, rows, keys = attention
  counted = used[:, None] & (jnp.asarray(keys.segment[0]) != PAD)
  if causal:
    counted &= keys.index <= rows.index[:, None]
  cells = cells_of_each(lines, rows, keys) & counted
  on_line = cells.astype(jnp.float32).reshape(len(cells), -1)
  flat_values = values.reshape(*values.shape[:2], -1)
  total = jnp.einsum("nhx,cx->nhc", flat_values, on_line, precision="highest")
  num_cells = on_line.sum(axis=1)
  strength = total
  if section.line == "mean":
    strength = total / jnp.maximum(num_cells, 1.0)
  exists = num_cells > 0  # under this condition
  in_first_row = used & (jnp.asarray(rows.left)[0, :, 0] == 0)
  from_first_row = jnp.isin(jnp.asarray(lines.segment), jnp.array(first_rows))
  num_rows = jnp.where(from_first_row, in_first_row.sum(), used.sum())
  is_long = exists & (num_cells >= section.min_cells * num_rows)
  # The z-score, with the mean and deviation of the members of each head.
  if section.statistics == "distinct":
    members = _distinct(jnp.where(exists, strength, 0.0))
  else:
    members = is_long if section.statistics == "long" else exists
    members = jnp.broadcast_to(members, strength.shape)
  num_members = jnp.maximum(members.sum(-1, keepdims=True), 1)
  mu = jnp.where(members, strength, 0.0).sum(-1, keepdims=True) / num_members
  squares = jnp.where(members, (strength - mu) ** 2, 0.0)
  sigma = jnp.sqrt(squares.sum(-1, keepdims=True) / num_members)
  score = (strength - mu) / jnp.maximum(sigma, 1e-9)
  score = jnp.where(exists, score, -jnp.inf)
  return strength, score, jnp.broadcast_to(is_long, score.shape)


def _distinct(strength: jax.Array) -> jax.Array:
  """Marks one of each of a head's non-zero strengths, [N, H, C] bool."""
  order = jnp.argsort(strength, axis=-1)
  ascending = jnp.take_along_axis(strength, order, axis=-1)
  is_first = jnp.diff(ascending, axis=-1, prepend=jnp.nan) != 0
  is_first = jnp.take_along_axis(is_first, jnp.argsort(order, axis=-1), axis=-1)
  return is_first & (strength != 0)


# The lines of models that are to be certified.


def within_reach(
  lines: Lines, keys: Coordinates, task: Task, reach: int
) -> np.ndarray:
  """Marks the lines by which an output depends on few tokens, all values of
  which a certificate tries: [2, C], in the first layer and in later ones.

  `reach` is how many rows back; 1 is the row's own input and the one before.
  Runs on the host.
  """
  own_anchor = LEFT if task.anchor == "left" else RIGHT
  layers = []
  for _, segment, anchor, matrix, intercept in zip(*lines, strict=True):
    # A line follows all axes along which its segment extends.
    is_operand = 0 <= segment < task.target_segment
    axes = [*range(task.axes)]
    if is_operand:
      axes = [*task.segment_axes[segment]] if task.segment_axes else [0]
    steps, offset = matrix[axes, axes], intercept[axes]
    size = int(np.sum(np.asarray(keys.segment[0]) == segment))
    # In later layers the start token's key is a state, which has seen the
    # digits of the first output.
    in_later_layers = segment != task.target_segment + 1
    if segment == task.target_segment:
      # With M = 1, not far back; on a grid, not far away along either axis.
      near = offset[0] >= -1 - reach
      if task.axes > 1:
        near = (abs(offset) <= reach).all()
      allowed = near and (steps == 1).all()
    elif not is_operand:
      # The start token; or the whole sequence, which calibration refuses
      # together with a reach.
      allowed = True
    elif (steps == 0).any():
      # Only a token that is no digit, or a digit on which all outputs depend
      # anyway (N×1's single one).
      ends = int(offset[0]), size - 1 - int(offset[0])
      left, right = ends if anchor == LEFT else ends[::-1]
      place = task.operand_place(int(segment), left, right)
      allowed = place is None or place[0] not in task.long_operands
    else:
      # By lines that do not move with the places of outputs, rows depend on
      # digits far away.
      stride = task.strides[segment] if task.strides else 1
      allowed = anchor == own_anchor and (steps == stride).all()
      if task.axes > 1:
        # Of an operand along the first axis the row's own digit alone, of one
        # along the last axis those near it.
        farthest = np.where(np.array(axes) == task.axes - 1, reach, 0)
        allowed = allowed and (abs(offset) <= farthest).all()
    layers.append((allowed, allowed and in_later_layers))
  return np.array(layers).T


def move_output_lines_to_first_layer(
  selection: Selection, lines: Lines, target_segment: int
) -> Selection:
  """Moves the lines of a grid whose keys are outputs into layer 0.

  There such a line is kept by the heads that keep it in the earliest layer
  where any does, and with their values; all later layers lose it. In those
  layers its keys would be hidden states, which depend on the digits and outputs
  near them, so that every layer would add tokens that are further away; in
  layer 0 they are embeddings of tokens. Runs on the host.
  """
  to_output = lines.segment == target_segment
  first_layer = np.argmax(selection.keep.any(axis=1), axis=0)  # of each line

  def copy_to_layer_0(field: Array) -> np.ndarray:
    values = np.array(field)
    of_first_layer = values[first_layer, :, np.arange(len(first_layer))].T
    values[0] = np.where(to_output, of_first_layer, values[0])
    return values

  selection = Selection(*map(copy_to_layer_0, selection))
  selection.keep[1:] &= ~to_output
  return selection


def select_lines(
  section: ConfigDict,
  task: Task,
  attention: list[MeanAttention],
  site: str,
) -> tuple[Lines, Selection]:
  """Returns the candidate lines of one attention site, and which are kept.

  A line is kept if its score exceeds κ under every condition and no other field
  of the section (min_cells, reach, best_share) rules it out. On a grid
  with a reach, kept lines to outputs are moved into layer 0
  (`move_output_lines_to_first_layer`), unless the last layer's lines are to
  serve all layers.

  Args:
    section: config.calibration.
    task: the main task.
    attention: the mean attention of the site under every condition.
    site: "self" or "cross".
  """
  causal = site == "self"
  largest = max(attention, key=lambda mean: mean.keys.num_tokens().item())
  prompt_segments = set(range(len(task.segments)))
  first_rows = (0,) if task.operand_in == "first" else ()
  lines = candidate_lines(
    largest.rows,
    largest.keys,
    task.target_segment,
    section.self_directions if causal else section.directions,
    absolute=section.lines == "absolute",
    right_anchored=prompt_segments if causal else prompt_segments | {WHOLE},
    right_anchored_steps=section.directions,
    first_rows=first_rows,
  )
  threshold = section.kappa_self if causal else section.kappa
  rule, share = sections.Calibration.of(section), section.best_share
  select = jax.jit(calibrate, static_argnums=(2, 4, 5))
  selection = jax.device_get(
    select(attention, lines, causal, threshold, rule, first_rows)
  )
  if section.reach:  # with other lines, contexts are too many for a proof
    first_layer, later_layers = within_reach(
      lines, largest.keys, task, section.reach
    )
    keep = selection.keep & later_layers
    keep[0] = selection.keep[0] & first_layer
    selection = selection._replace(keep=keep)
  if share:
    score = np.where(selection.keep, selection.score, -np.inf)
    best = score.max(axis=-1, keepdims=True)
    keep = selection.keep & (score >= np.minimum(share * best, best))
    selection = selection._replace(keep=keep)
  # With layers="last", the last layer's lines, which all layers get, stay.
  if section.reach and task.axes > 1 and section.layers == "each":
    selection = move_output_lines_to_first_layer(
      selection, lines, task.target_segment
    )
  return lines, selection


def compact(
  lines: Lines,
  selections: Sequence[Selection],
  layers: str,
  empty_heads: str,
  further_layers: int = 0,
) -> SiteLines:
  """Gathers the kept lines of R seeds as SiteLines [R, N or 1, H, K], K the
  largest number of a head.

  `layers` is "each" for the kept lines of each layer, which `further_layers`
  without lines may follow, or "last" for those of the last layer in all layers.
  Heads without a line become "transparent" or "closed" (`empty_heads`). Runs on
  the host.
  """
  keep = np.stack([np.asarray(selection.keep) for selection in selections])
  value = np.stack([np.asarray(selection.value) for selection in selections])
  if layers == "last":
    keep, value = keep[:, -1:], value[:, -1:]
  else:
    padding = (0, 0), (0, further_layers), (0, 0), (0, 0)
    keep, value = np.pad(keep, padding), np.pad(value, padding)
  most_lines = max(int(keep.sum(-1).max()), 1)
  kept_first = np.argsort(~keep, axis=-1, kind="stable")[..., :most_lines]
  pick = lambda x: np.take_along_axis(x, kept_first, axis=-1)
  return SiteLines(
    *lines.take(kept_first),
    value=pick(value).astype(np.float32),
    valid=pick(keep),
    transparent=np.logical_and(~keep.any(-1), empty_heads == "transparent"),
  )
