"""Accuracy of predictions, and how much a count of successes proves."""

import jax.numpy as jnp
import numpy as np
import optax
from scipy import special


def cross_entropy(logits_BxTxV, target_BxT, weight_BxT):
  """Summed cross-entropy (nats) of weighted tokens, and their weight."""
  loss = optax.softmax_cross_entropy_with_integer_labels(
    logits_BxTxV, target_BxT
  )
  return (loss * weight_BxT).sum(), weight_BxT.sum()


def hits(predicted_BxT, target_BxT, weight_BxT):
  """Correct tokens [B, T] (True where weight is 0) and exact match [B].

  Exact match is strict: every weighted token counts, the end token included.
  From teacher-forced argmaxes it equals the exact match of greedy decoding,
  by induction on the first error.
  """
  token = (predicted_BxT == target_BxT) | (weight_BxT == 0)
  return token, jnp.all(token, axis=1)


def until_end(tokens, end: int) -> list[int]:
  """The tokens before the first end token."""
  tokens = list(map(int, tokens))
  return tokens[: tokens.index(end)] if end in tokens else tokens


def edit_distance(first, second) -> int:
  """Levenshtein distance of two sequences."""
  second = np.asarray(second)
  row = np.arange(len(second) + 1)
  for i, item in enumerate(first):
    substituted = row[:-1] + (second != item)
    best = np.minimum(row[1:] + 1, substituted)
    best = np.concatenate([[i + 1], best])
    # Insertions run along the row: min over k <= j of best[k] + (j - k).
    steps = np.arange(len(best))
    row = np.minimum.accumulate(best - steps) + steps
  return int(row[-1])


def lower_bound(correct: int, n: int, confidence: float = 0.95) -> float:
  """One-sided Clopper-Pearson lower bound of a success rate."""
  if correct == 0:
    return 0.0
  return float(special.betaincinv(correct, n - correct + 1, 1.0 - confidence))
