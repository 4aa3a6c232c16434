"""What is measured of a model on a test: functions that yield rows."""

import numpy as np

from lengthgen_jax.results.rows import by_position, counted, measured
from lengthgen_jax.results.statistics import edit_distance, until_end


def accuracy(model, test) -> list[dict]:
  """Exact match, and token accuracy with the truth for all tokens before.

  Args:
    model: has `batches(test)` and `hits(batch)`.
    test: its `name` and `length` go into the rows.
  """
  token, exact = [], []
  for batch, count in model.batches(test):
    right, whole = model.hits(batch)
    wanted = np.asarray(batch.weight) > 0
    right = np.asarray(right)[wanted].reshape(len(wanted), -1)
    token.append(right[:count])
    exact.append(np.asarray(whole)[:count])
  token, exact = np.concatenate(token), np.concatenate(exact)
  where = _where(model, test)
  return [
    counted(where, "em", exact.sum(), len(exact)),
    counted(where, "token", token.sum(), token.size, teacher_forced=True),
    by_position(where, token),
  ]


def free_running(model, test) -> list[dict]:
  """Edit distance per token of the truth and, where there is an end token,
  end-blind exact match; both of decoded outputs.

  End-blind is the released ABC program's metric: rows are decoded to the
  target's length whatever they say, every end token is deleted, and zeros in
  front of the number are forgiven.
  """
  end = model.experiment.task.end
  blind, distance, length, samples = 0, 0, 0, 0
  for batch, count in model.batches(test):
    told = model.greedy(batch, stop=None)
    wanted = np.asarray(batch.weight) > 0
    truth = np.asarray(batch.target)[wanted].reshape(len(told), -1)
    told = told[:, : truth.shape[1]]
    for said, meant in zip(told[:count], truth[:count], strict=True):
      if end is not None:
        blind += _number(said, end) == _number(meant, end)
        said, meant = until_end(said, end), until_end(meant, end)
      distance += edit_distance(said, meant)
      length += len(meant)
    samples += count
  where = _where(model, test)
  rows = [measured(where, "edit", distance / length, samples)]
  if end is not None:
    rows.append(counted(where, "em_end_blind", blind, samples))
  return rows


# By name; what `eval` asks for is a choice of them.
MEASURES = {"accuracy": accuracy, "free_running": free_running}


def _where(model, test) -> dict:
  bits = model.experiment.task.bits(test.length)
  return {"test_set": test.name, "length": test.length, "bits": bits}


def _number(tokens, end: int) -> list[int]:
  """Digits of a reversed number without end tokens and leading zeros."""
  kept = [int(t) for t in tokens if t != end]
  while kept and kept[-1] == 0:
    kept.pop()
  return kept
