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
from lengthgen_jax.attention.lines import LEFT, WHOLE, SiteLines


class RelativeTable(NamedTuple):
  """The lines of one (segment, anchor, delta) of a site.

  Attributes:
    segment, anchor, delta: ints, as in SiteLines.
    first: intercept of the table's first entry; entry i belongs to keys with
      left - delta·row (or right + delta·row) = first + i.
    values: [..., N or 1, H, entries] float32, -inf where closed. Keys outside
      the table are closed: the clip.
  """

  segment: int
  anchor: int
  delta: int
  first: int
  values: np.ndarray


def tables(lines: SiteLines) -> list[RelativeTable]:
  """Every direction of one site's lines as a table; host-side.

  Transparent heads have no lines and so no entries: their bias is 0 everywhere.

  Args:
    lines: [..., N or 1, H, K].
  """
  kind = np.stack([lines.segment, lines.anchor, lines.delta], axis=-1)
  valid = np.asarray(lines.valid)
  found = []
  for segment, anchor, delta in sorted(set(map(tuple, kind[valid].tolist()))):
    mine = valid & (kind == (segment, anchor, delta)).all(axis=-1)
    first, last = lines.intercept[mine].min(), lines.intercept[mine].max()
    values = np.full(valid.shape[:-1] + (last - first + 1,), CLOSED, np.float32)
    where = np.nonzero(mine)
    cell = (*where[:-1], lines.intercept[mine] - first)
    np.maximum.at(values, cell, lines.value[mine])
    found.append(RelativeTable(segment, anchor, delta, int(first), values))
  return found


def dense(parts: list[RelativeTable], row_T, keys):
  """The bias matrix [..., N or 1, H, T, S] of tables, as `lines.dense`."""
  bias = CLOSED
  for part in parts:
    at = keys.absolute() if part.segment == WHOLE else keys
    inside = at.segment == (0 if part.segment == WHOLE else part.segment)
    step = part.delta * row_T[:, None]
    relative = at.left - step if part.anchor == LEFT else at.right + step
    entry = relative - part.first
    inside = inside & (entry >= 0) & (entry < part.values.shape[-1])
    entry = jnp.clip(entry, 0, part.values.shape[-1] - 1)
    value = jnp.where(inside, jnp.asarray(part.values)[..., entry], CLOSED)
    bias = jnp.maximum(bias, value)
  return bias


def save(path, bias: dict) -> None:
  """Writes `{site}_{i}_values` and `{site}_{i}_line` = (segment, anchor,
  delta, first) for table i of every site of a LineBias."""
  arrays = {}
  for site, lines in bias.items():
    for i, table in enumerate(tables(lines)):
      arrays[f"{site}_{i}_values"] = table.values
      arrays[f"{site}_{i}_line"] = np.array(table[:4], np.int32)
  np.savez_compressed(path, **arrays)
