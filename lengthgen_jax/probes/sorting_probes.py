"""How a decoder-only model sorts: the claims of the task hinting paper
(section 4.2, figures 4.14 to 4.16) and of its Theorem 5.1, as rates.

A list is `x1 … xn ⊥ y1 … yn`, and the last output is never an input. A residual
shows a token in a basis if it has the greatest inner product with its vector.
"""

import numpy as np

from lengthgen_jax.probes.activations import PLACES, Mean, Seen

NONE = np.iinfo(np.int32).max  # greater than every item


def minimum(seen: Seen):
  """`⊥` holds the minimum: in the decoder basis, among the alphabet. The paper
  looks after the first attention layer."""
  items, _ = lists(seen)
  for layer, place, x in places(seen):
    told = shown(seen, x[:, seen.length])
    yield rate(told == items.min(axis=1), place, layer)


def identity_successor(seen: Seen):
  """Outputs show identity and successor after the last attention layer: the
  two greatest of the alphabet in the decoder basis are the token and the next
  distinct greater item. Outputs that are the maximum have no successor."""
  held, successor, counted = outputs(seen)
  layer = seen.layers - 1
  found = on_alphabet(seen, after_delimiter(seen, layer, "before_mlp"))
  two = np.sort(np.argsort(found, axis=-1)[..., -2:] + 1, axis=-1)
  both = (two == np.stack([held, successor], axis=-1)).all(axis=-1)
  yield rate(both[counted], "before_mlp", layer)


def copy(seen: Seen):
  """Tokens copy themselves: in the encoder basis, among all that an input may
  hold. Theorem 5.1 says so of the first attention layer, the paper throughout.
  """
  own = np.append(np.arange(1, seen.task.alphabet + 1), seen.task.delimiter)
  held = np.asarray(seen.at.inputs[: seen.count, : 2 * seen.length])
  is_item = held != seen.task.delimiter
  for layer, place, x in places(seen):
    found = seen.project(x[:, : 2 * seen.length], "encoder")[..., own]
    told = own[found.argmax(axis=-1)]
    yield rate((told == held)[is_item], place, layer)


def identity_removed(seen: Seen):
  """The last MLP leaves the successor alone: of the outputs whose copies are
  all said, it is the greatest of the alphabet in the decoder basis."""
  held, successor, counted = outputs(seen)
  _, ordered = lists(seen)
  counted &= ordered[:, 1:] == successor
  layer = seen.layers - 1
  for place in PLACES:
    told = shown(seen, after_delimiter(seen, layer, place))
    yield rate((told == successor)[counted], place, layer)


def identity_lowered(seen: Seen):
  """The last MLP takes from the identity: its inner product less that of the
  successor falls, in the decoder basis, whether copies are left or not."""
  held, successor, counted = outputs(seen)
  layer, gaps = seen.layers - 1, []
  for place in PLACES:
    found = on_alphabet(seen, after_delimiter(seen, layer, place))
    pick = lambda token, found=found: np.take_along_axis(
      found, np.clip(token - 1, 0, seen.task.alphabet - 1)[..., None], axis=-1
    )
    gaps.append((pick(held) - pick(successor))[..., 0])
  yield rate((gaps[1] < gaps[0])[counted], "after_mlp", layer)


# What they share.


def lists(seen: Seen):
  """Items [B, n], as given and in order."""
  items = np.asarray(seen.at.inputs[: seen.count, : seen.length])
  return items, np.sort(items, axis=1)


def outputs(seen: Seen):
  """Of the rows after `⊥`, [B, n - 1]: the token that each holds, the next
  distinct greater item, and whether there is one."""
  items, ordered = lists(seen)
  held = ordered[:, :-1]
  greater = np.where(items[:, None] > held[..., None], items[:, None], NONE)
  successor = greater.min(axis=-1)
  return held, successor, successor < NONE


def after_delimiter(seen: Seen, layer: int, place: str):
  """Residuals [B, n - 1, D] of the rows that hold outputs."""
  first = seen.length + 1
  return seen.residual(layer, place)[:, first : 2 * seen.length]


def places(seen: Seen):
  """(layer, place, residuals [B, T, D]) all the way up."""
  for layer in range(seen.layers):
    for place in PLACES:
      yield layer, place, seen.residual(layer, place)


def on_alphabet(seen: Seen, x):
  """Inner products [..., V] of residuals with the items' decoder vectors."""
  return seen.project(x, "decoder")[..., 1 : seen.task.alphabet + 1]


def shown(seen: Seen, x):
  """The item [...] that residuals show in the decoder basis."""
  return on_alphabet(seen, x).argmax(axis=-1) + 1


def rate(right, part: str, layer: int) -> Mean:
  return Mean(right.sum(), right.size, part, layer, success=True)
