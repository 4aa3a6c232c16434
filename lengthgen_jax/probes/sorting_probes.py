"""Probes of how a decoder-only model sorts.

They measure, as rates, what the task hinting paper claims (section 4.2, figures
4.14 to 4.16), and its Theorem 5.1. A list is `x1 … xn ⊥ y1 … yn`, and the last
output is never an input. A residual shows a token in a basis if, of the vectors
that the basis has for the tokens considered, the token's has the greatest inner
product with the residual (as in the logit lens). The bases are the token
embedding (the paper's encoder basis) and the kernel of the output head (its
decoder basis).
"""

from collections.abc import Iterator

import numpy as np

from lengthgen_jax.probes.activations import RESIDUALS, Mean, Observation

NO_SUCCESSOR = np.iinfo(np.int32).max  # greater than every item


def minimum(observation: Observation) -> Iterator[Mean]:
  """Yields how often the residual at `⊥` shows the smallest item of the list,
  for each layer, before and after its MLP.

  The basis is the decoder's, for all items of the alphabet. The paper measures
  this in the residual that follows the first attention layer.
  """
  minima_B = _lists(observation).min(axis=1)
  for layer, name, residual in observation.residuals():
    shown_B = _shown_items(observation, residual[:, observation.length])
    yield _rate(shown_B == minima_B, name, layer)


def identity_successor(observation: Observation) -> Iterator[Mean]:
  """Yields how often outputs show the identity and the successor.

  The identity is the output itself, and the successor is the next distinct
  greater item of the list. They count as shown if, after the last attention
  layer, they have the two greatest inner products of the alphabet in the
  decoder's basis. Outputs that are the maximum have no successor, and do not
  count.
  """
  items, successors, has_successor = output_items(observation)
  layer = observation.num_layers - 1
  products = _item_products(
    observation, _output_rows(observation, layer, "before_mlp")
  )
  top_two = np.argsort(products, axis=-1)[..., -2:] + 1  # the first item is 1
  top_two = np.sort(top_two, axis=-1)
  is_right = (top_two == np.stack([items, successors], axis=-1)).all(axis=-1)
  yield _rate(is_right[has_successor], "before_mlp", layer)


def copy(observation: Observation) -> Iterator[Mean]:
  """Yields how often tokens, the items of the list and the outputs, show
  themselves, by layer and residual.

  The basis is the encoder's, for all items of the alphabet and `⊥`. Theorem 5.1
  claims it for the first attention layer, the paper for all layers.
  """
  task = observation.task
  tokens = np.append(np.arange(1, task.base + 1), task.delimiter)
  inputs = observation.batch.inputs[: observation.count]
  inputs = np.asarray(inputs[:, : 2 * observation.length])
  is_item = inputs != task.delimiter
  for layer, name, residual in observation.residuals():
    residual = residual[:, : 2 * observation.length]
    products = observation.project(residual, "encoder")[..., tokens]
    shown = tokens[products.argmax(axis=-1)]
    yield _rate((shown == inputs)[is_item], name, layer)


def identity_removed(observation: Observation) -> Iterator[Mean]:
  """Yields how often only the successor is left, before and after the last MLP.

  Only outputs that are the last copy of their item count. They are right if the
  residual shows their successor, of all items of the alphabet, in the decoder's
  basis.
  """
  _, successors, is_counted = output_items(observation)
  next_outputs = np.sort(_lists(observation), axis=1)[:, 1:]
  is_counted &= next_outputs == successors
  layer = observation.num_layers - 1
  for name in RESIDUALS:
    shown = _shown_items(observation, _output_rows(observation, layer, name))
    yield _rate((shown == successors)[is_counted], name, layer)


def identity_lowered(observation: Observation) -> Iterator[Mean]:
  """Yields how often the last MLP lowers the identity.

  That is so where the difference of two inner products in the decoder's basis,
  that of the output itself less that of its successor, is smaller after the
  MLP. It does not matter whether copies of the output are left. Outputs that
  are the maximum have no successor, and do not count.
  """
  items, successors, has_successor = output_items(observation)
  layer, gaps = observation.num_layers - 1, []
  for name in RESIDUALS:
    residual = _output_rows(observation, layer, name)
    products = _item_products(observation, residual)[has_successor]
    of_item, of_successor = (
      np.take_along_axis(products, tokens[has_successor, None] - 1, axis=-1)
      for tokens in (items, successors)
    )
    gaps.append(of_item - of_successor)
  before, after = gaps
  yield _rate(after < before, "after_mlp", layer)


# Shared by the probes.


def output_items(
  observation: Observation,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns the right inputs after `⊥`, the next distinct greater item of the
  list (or NO_SUCCESSOR), and whether there is one, all [B, n - 1]."""
  lists = _lists(observation)
  items = np.sort(lists, axis=1)[:, :-1]
  is_greater = lists[:, None] > items[..., None]
  successors = np.where(is_greater, lists[:, None], NO_SUCCESSOR).min(axis=-1)
  return items, successors, successors < NO_SUCCESSOR


def _lists(observation: Observation) -> np.ndarray:
  return np.asarray(
    observation.batch.inputs[: observation.count, : observation.length]
  )


def _output_rows(observation: Observation, layer: int, name: str) -> np.ndarray:
  """Returns residuals [B, n - 1, D] of the rows whose inputs are outputs."""
  n = observation.length
  return observation.residual(layer, name)[:, n + 1 : 2 * n]


def _item_products(
  observation: Observation, residual: np.ndarray
) -> np.ndarray:
  """Returns inner products [..., alphabet] with items in the decoder basis."""
  base = observation.task.base
  return observation.project(residual, "decoder")[..., 1 : base + 1]


def _shown_items(observation: Observation, residual: np.ndarray) -> np.ndarray:
  return _item_products(observation, residual).argmax(axis=-1) + 1


def _rate(is_right: np.ndarray, name: str, layer: int) -> Mean:
  return Mean(is_right.sum(), is_right.size, name, layer, success=True)
