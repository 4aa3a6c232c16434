"""How sorting tells the last copy of an item from the one before.

A run is all copies of an item, one after another, in a sorted list. A row whose
input is copy j of c has to say the item again if j < c, else the next one. If
attention is on copies alone, and evenly, the outputs' part of it is j / (j +
c): at the last copy (1/2) it is 1 / (4c - 2) more than at the one before,
whatever the list's length.
"""

import pathlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.probes.activations import Observation

LAST, BEFORE = 0, 1  # copies left, where the two rows that are compared stand
MIN_RUNS = 20  # fewer runs are not drawn


class Copies(NamedTuple):
  """Rows of a model at one length, whose inputs are outputs: R of them.

  Attributes:
    copies: c, how often the row's item occurs in the list, [R].
    left: c - j, how many copies are yet to be said, [R].
    given, said: attention on copies in the prompt, and among the outputs, [L,
      H, R] for L layers and H heads.
    others: how many other keys have a weight that is not zero, [L, H, R].
    run: number of the row's run, [R]; runs of the greatest item lack their last
      row, and are left out.
    wrong: whether the row says a wrong token under teacher forcing, [R].
  """

  copies: np.ndarray
  left: np.ndarray
  given: np.ndarray
  said: np.ndarray
  others: np.ndarray
  run: np.ndarray
  wrong: np.ndarray


def observe(observations: Iterable[Observation]) -> Copies:
  """Returns the rows of all observations of a decoder-only model that sorts."""
  parts, num_runs = [], 0
  for observation in observations:
    part = _observe_batch(observation)
    parts.append(part._replace(run=part.run + num_runs))
    num_runs = parts[-1].run.max(initial=num_runs) + 1
  fields = zip(*parts, strict=True)
  return Copies(*(np.concatenate(field, axis=-1) for field in fields))


def _observe_batch(observation: Observation) -> Copies:
  """Returns the rows of one observation."""
  n, count = observation.length, observation.count
  rows = slice(n + 1, 2 * n)
  inputs = np.asarray(observation.batch.inputs[:count])
  lists, items = inputs[:, :n], inputs[:, rows]
  copies = (lists[:, None] == items[..., None]).sum(axis=-1)
  said = np.tril(items[:, None] == items[..., None]).sum(axis=-1)
  is_new = np.diff(items, axis=1, prepend=0) != 0
  run = np.cumsum(is_new).reshape(items.shape)
  kept = items != lists.max(axis=1, keepdims=True)
  targets = np.asarray(observation.batch.target[:count, rows])
  wrong = observation.logits[:count, rows].argmax(axis=-1) != targets
  is_given = (lists[:, None] == items[..., None])[:, None]
  is_said = (items[:, None] == items[..., None])[:, None]
  shares = []
  for _, _, weights in observation.attention():
    weights = weights[:, :, rows]
    on_given = weights[..., :n] * is_given
    on_said = weights[..., rows] * is_said
    num_copies = (on_given > 0).sum(axis=-1) + (on_said > 0).sum(axis=-1)
    others = (weights > 0).sum(axis=-1) - num_copies
    layer = on_given.sum(axis=-1), on_said.sum(axis=-1), others
    shares.append([x.swapaxes(0, 1)[:, kept] for x in layer])
  given, on_said, others = map(np.stack, zip(*shares, strict=True))
  left = (copies - said)[kept]
  return Copies(
    copies[kept], left, given, on_said, others, run[kept], wrong[kept]
  )


def counting_head(rows: Copies) -> tuple[int, int]:
  """Returns the layer and the head in which the outputs' part of the attention
  on copies differs most between the last copy and the one before, in standard
  deviations, of runs of the same number of copies."""
  scores = np.zeros(rows.said.shape[:2])
  part = said_part(rows)
  for copies in np.unique(rows.copies[rows.copies > 1]):
    last, before = (
      part[..., (rows.copies == copies) & (rows.left == left)]
      for left in (LAST, BEFORE)
    )
    if last.shape[-1] >= MIN_RUNS:
      spread = np.sqrt((last.var(axis=-1) + before.var(axis=-1)) / 2) + 1e-3
      distance = abs(last.mean(axis=-1) - before.mean(axis=-1))
      scores += last.shape[-1] * distance / spread
  layer, head = np.unravel_index(scores.argmax(), scores.shape)
  return int(layer), int(head)


def said_part(rows: Copies) -> np.ndarray:
  """Returns the outputs' part of the attention on copies, [L, H, R]."""
  return rows.said / np.maximum(rows.said + rows.given, 1e-9)


def errors_by_copies(rows: Copies) -> dict[int, tuple[int, int]]:
  """Returns {copies: (runs that end wrongly, runs)}: too early or too late, or
  with another token than the next item."""
  _, index = np.unique(rows.run, return_inverse=True)
  wrong = np.bincount(index, rows.wrong) > 0
  copies = np.zeros(len(wrong), int)
  copies[index] = rows.copies
  return {
    int(c): (int(wrong[copies == c].sum()), int((copies == c).sum()))
    for c in np.unique(copies)
  }


def draw(
  models: dict[str, dict[int, Copies]], path: pathlib.Path
) -> pathlib.Path:
  """Draws one figure of several models, a column each, and returns its path.

  Args:
    models: {name: {length: rows}}.
    path: of the PNG.
  """
  size = (0.6 + 2.6 * len(models), 6.6)
  canvas, axes = plt.subplots(
    3, len(models), figsize=size, squeeze=False, sharex=True, sharey="row"
  )
  for (name, by_length), column in zip(models.items(), axes.T, strict=True):
    head = counting_head(by_length[min(by_length)])
    column[0].set_title(f"{name}\nlayer {head[0]}, head {head[1]}", fontsize=7)
    for color, (length, rows) in enumerate(sorted(by_length.items())):
      style = {"color": f"C{color}", "marker": "o", "markersize": 2}
      for left, line in ((LAST, "-"), (BEFORE, "--")):
        part = _by_copies(rows, said_part(rows)[head], left)
        label = f"{length} items, {'last' if line == '-' else 'one before'}"
        column[0].plot(*part, line, label=label, **style)
      others = _by_copies(rows, rows.others[head], LAST)
      column[1].plot(*others, label=f"{length} items", **style)
      errors = {
        copies: wrong / runs
        for copies, (wrong, runs) in errors_by_copies(rows).items()
        if runs >= MIN_RUNS
      }
      column[2].plot(errors.keys(), errors.values(), **style)
    for axis in column:
      axis.tick_params(labelsize=6)
    column[1].set_yscale("symlog", linthresh=1)
    column[2].set_xlabel("copies of the item in the list", fontsize=7)
  for axis, text in zip(
    axes[:, 0],
    (
      "outputs' part of the\nattention on copies",
      "other keys with a weight",
      "runs that end wrongly",
    ),
    strict=True,
  ):
    axis.set_ylabel(text, fontsize=7)
  axes[0, 0].legend(fontsize=5, frameon=False)
  return save(canvas, path)


def _by_copies(
  rows: Copies, values: np.ndarray, left: int
) -> tuple[list[int], list[float]]:
  """Returns numbers of copies, and the mean of values [R] at the rows with so
  many copies left, where there are enough of them."""
  counts, means = [], []
  for copies in np.unique(rows.copies):
    chosen = (rows.copies == copies) & (rows.left == left)
    if chosen.sum() >= MIN_RUNS:
      counts.append(int(copies))
      means.append(float(values[chosen].mean()))
  return counts, means
