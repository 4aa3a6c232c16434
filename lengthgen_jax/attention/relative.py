"""A calibrated bias as a table over relative positions.

The ABC paper reads its bias as a generalized relative position encoding: what
is added depends on key offset minus row, and beyond an asymmetric clip it is
-inf. Lines of one direction are such a table, per layer and head; a bias is the
element-wise maximum of a few tables.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.attention.lines import ANY, LEFT, WHOLE, SiteLines
from lengthgen_jax.coordinates import PAD


class RelativeTable(NamedTuple):
  """The lines of one direction of a site whose coordinates have one axis.

  Attributes:
    row_segment, segment, anchor, step: ints, as in SiteLines (step is M).
    first: intercept of the table's first entry; entry i belongs to keys whose
      offset is M · row + first + i.
    values: [..., N or 1, H, entries] float32, -inf where closed. Keys outside
      the table are closed: the clip.
  """

  row_segment: int
  segment: int
  anchor: int
  step: int
  first: int
  values: np.ndarray


def tables(lines: SiteLines) -> list[RelativeTable]:
  """Every direction of one site's lines as a table; host-side.

  Transparent heads have no lines and so no entries: their bias is 0 everywhere.

  Args:
    lines: [..., N or 1, H, K], with one axis.
  """
  step, intercept = lines.matrix[..., 0, 0], lines.intercept[..., 0]
  kind = np.stack(
    [lines.row_segment, lines.segment, lines.anchor, step], axis=-1
  )
  valid = np.asarray(lines.valid)
  found = []
  for name in sorted(set(map(tuple, kind[valid].tolist()))):
    mine = valid & (kind == name).all(axis=-1)
    first, last = intercept[mine].min(), intercept[mine].max()
    values = np.full(valid.shape[:-1] + (last - first + 1,), CLOSED, np.float32)
    where = np.nonzero(mine)
    cell = (*where[:-1], intercept[mine] - first)
    np.maximum.at(values, cell, lines.value[mine])
    found.append(RelativeTable(*name, int(first), values))
  return found


def dense(parts: list[RelativeTable], rows, keys):
  """The bias matrix [..., N or 1, H, T, S] of tables, for rows and keys of one
  example: what `SiteLines.dense` says."""
  bias = CLOSED
  for part in parts:
    whole = part.segment == WHOLE
    along = jnp.asarray(rows.index if whole else rows.left[0, :, 0])
    left = keys.index if whole else keys.left[0, :, 0]
    right = keys.index_right()[0] if whole else keys.right[0, :, 0]
    offset = jnp.asarray(left if part.anchor == LEFT else right)
    entry = offset - part.step * along[:, None] - part.first
    name = jnp.asarray(keys.segment[0])
    inside = name != PAD if whole else name == part.segment
    row = jnp.asarray(rows.segment[0])[:, None]
    inside &= row != PAD if part.row_segment == ANY else row == part.row_segment
    inside &= (entry >= 0) & (entry < part.values.shape[-1])
    entry = jnp.clip(entry, 0, part.values.shape[-1] - 1)
    value = jnp.where(inside, jnp.asarray(part.values)[..., entry], CLOSED)
    bias = jnp.maximum(bias, value)
  return bias


def save(path, bias: dict) -> None:
  """Writes `{site}_{i}_values` and `{site}_{i}_line` = (row segment, segment,
  anchor, step, first) for table i of every site of a LineBias."""
  arrays = {}
  for site, lines in bias.items():
    for i, table in enumerate(tables(lines)):
      arrays[f"{site}_{i}_values"] = table.values
      arrays[f"{site}_{i}_line"] = np.array(table[:5], np.int32)
  np.savez_compressed(path, **arrays)
