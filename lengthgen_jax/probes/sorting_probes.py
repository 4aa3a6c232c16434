"""Probes of how a decoder-only model sorts.

They measure, as rates, what the task hinting paper claims (section 4.2, figures
4.14 to 4.16), and its Theorem 5.1. A list is `x1 … xn ⊥ y1 … yn`, and the last
output is never an input. A residual shows a token in a basis if, of all
vectors, it has the greatest inner product with that of the token.
"""

from collections.abc import Iterator

import numpy as np

from lengthgen_jax.probes.activations import PLACES, Mean, Seen

NONE = np.iinfo(np.int32).max  # greater than every item


def minimum(seen: Seen) -> Iterator[Mean]:
  """Yields how often `⊥` shows the minimum, by layer and place.

  The basis is the decoder's, over the alphabet. The paper looks after the first
  attention layer.
  """
  items, _ = lists(seen)
  for layer, place, residuals in places(seen):
    shown_items = shown(seen, residuals[:, seen.length])
    yield rate(shown_items == items.min(axis=1), place, layer)


def identity_successor(seen: Seen) -> Iterator[Mean]:
  """Yields how often outputs show identity and successor.

  After the last attention layer, the two greatest of the alphabet in the
  decoder basis are the token and the next distinct greater item. Outputs that
  are the maximum have no successor, and do not count.
  """
  held, successor, has_successor = outputs(seen)
  layer = seen.layers - 1
  products = on_alphabet(seen, after_delimiter(seen, layer, "before_mlp"))
  top_two = np.sort(np.argsort(products, axis=-1)[..., -2:] + 1, axis=-1)
  is_right = (top_two == np.stack([held, successor], axis=-1)).all(axis=-1)
  yield rate(is_right[has_successor], "before_mlp", layer)


def copy(seen: Seen) -> Iterator[Mean]:
  """Yields how often tokens show themselves, by layer and place.

  The basis is the encoder's, over all tokens that an input may hold. Theorem
  5.1 claims it for the first attention layer, the paper for all layers.
  """
  alphabet = np.append(
    np.arange(1, seen.task.alphabet + 1), seen.task.delimiter
  )
  held = np.asarray(seen.at.inputs[: seen.count, : 2 * seen.length])
  is_item = held != seen.task.delimiter
  for layer, place, residuals in places(seen):
    products = seen.project(residuals[:, : 2 * seen.length], "encoder")[
      ..., alphabet
    ]
    shown_tokens = alphabet[products.argmax(axis=-1)]
    yield rate((shown_tokens == held)[is_item], place, layer)


def identity_removed(seen: Seen) -> Iterator[Mean]:
  """Yields how often the last MLP leaves the successor alone.

  Of the outputs whose copies have all been said, the successor is the greatest
  of the alphabet in the decoder basis. It is measured before and after the
  MLP.
  """
  held, successor, is_counted = outputs(seen)
  _, ordered = lists(seen)
  is_counted &= ordered[:, 1:] == successor
  layer = seen.layers - 1
  for place in PLACES:
    shown_items = shown(seen, after_delimiter(seen, layer, place))
    yield rate((shown_items == successor)[is_counted], place, layer)


def identity_lowered(seen: Seen) -> Iterator[Mean]:
  """Yields how often the last MLP lowers the identity.

  The inner product of the token itself, less that of the successor, falls in
  the decoder basis, whether copies are left or not.
  """
  held, successor, has_successor = outputs(seen)
  layer, gaps = seen.layers - 1, []
  for place in PLACES:
    products = on_alphabet(seen, after_delimiter(seen, layer, place))
    pick = lambda token, products=products: np.take_along_axis(
      products,
      np.clip(token - 1, 0, seen.task.alphabet - 1)[..., None],
      axis=-1,
    )
    gaps.append((pick(held) - pick(successor))[..., 0])
  yield rate((gaps[1] < gaps[0])[has_successor], "after_mlp", layer)


# Shared by the probes.


def lists(seen: Seen) -> tuple[np.ndarray, np.ndarray]:
  """Returns the items [B, n] as they are given, and in order."""
  items = np.asarray(seen.at.inputs[: seen.count, : seen.length])
  return items, np.sort(items, axis=1)


def outputs(seen: Seen) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns what the rows after `⊥` hold and what comes next, [B, n - 1] each.

  Returns:
    The token that each row holds, the next distinct greater item, and whether
    there is one.
  """
  items, ordered = lists(seen)
  held = ordered[:, :-1]
  greater = np.where(items[:, None] > held[..., None], items[:, None], NONE)
  successor = greater.min(axis=-1)
  return held, successor, successor < NONE


def after_delimiter(seen: Seen, layer: int, place: str) -> np.ndarray:
  """Returns the residuals [B, n - 1, D] of the rows that hold outputs."""
  first = seen.length + 1
  return seen.residual(layer, place)[:, first : 2 * seen.length]


def places(seen: Seen) -> Iterator[tuple[int, str, np.ndarray]]:
  """Yields (layer, place, residuals [B, T, D]) from the first layer up."""
  for layer in range(seen.layers):
    for place in PLACES:
      yield layer, place, seen.residual(layer, place)


def on_alphabet(seen: Seen, residuals: np.ndarray) -> np.ndarray:
  """Returns inner products [..., V] of residuals with the decoder basis.

  V is the number of items, without marks.
  """
  return seen.project(residuals, "decoder")[..., 1 : seen.task.alphabet + 1]


def shown(seen: Seen, residuals: np.ndarray) -> np.ndarray:
  """Returns the items [...] that residuals show in the decoder basis."""
  return on_alphabet(seen, residuals).argmax(axis=-1) + 1


def rate(right: np.ndarray, part: str, layer: int) -> Mean:
  """Returns the rate of success of a probe that is `right` or not."""
  return Mean(right.sum(), right.size, part, layer, success=True)
