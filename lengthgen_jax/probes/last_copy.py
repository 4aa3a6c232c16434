"""This module measures how sorting tells the last copy of an item from the one
before.

A run is all copies of one item, which follow one another in the sorted output.
A row whose input is copy j of c has to predict the item again if j < c, else
the next larger item. It sees c copies in the prompt and j in the output so far.
If a head attends to these alone, and evenly, the output's part of the attention
is j / (j + c). At the last copy it is 1/2, which is 1 / (4c - 2) more than at
the copy before, whatever the list's length.
"""

import pathlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.errors import check
from lengthgen_jax.probes.activations import Observation

LAST, BEFORE = 0, 1  # copies left at the two rows that are compared
MIN_RUNS = 20  # fewer runs of one number of copies are not drawn


class Copies(NamedTuple):
  """Copies holds R rows of a model on lists of one length. The input of each
  row is an output, and its copies are all items that are equal to it.

  Attributes:
    copies: c, how often the row's item occurs in the list, [R].
    left: c - j, how many copies are not yet in the output, [R].
    prompt_attention, output_attention: the sum of the attention weights on
      copies in the prompt, and in the output so far, [L, H, R] for L layers
      and H heads.
    others: how many keys that are no copies have a weight above 0, [L, H, R].
    run: which run the row belongs to, a number, [R]; runs of the list's largest
      item are left out, because its last copy is never an input.
    wrong: whether the row predicts a wrong token under teacher forcing, [R].
  """

  copies: np.ndarray
  left: np.ndarray
  prompt_attention: np.ndarray
  output_attention: np.ndarray
  others: np.ndarray
  run: np.ndarray
  wrong: np.ndarray


def observe(observations: Iterable[Observation]) -> Copies:
  """Returns the rows of all observations, at least one, of a decoder-only model
  that sorts lists of one length."""
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
  copies_so_far = np.tril(items[:, None] == items[..., None]).sum(axis=-1)
  is_new = np.diff(items, axis=1, prepend=0) != 0
  run = np.cumsum(is_new).reshape(items.shape)
  kept = items != lists.max(axis=1, keepdims=True)
  targets = np.asarray(observation.batch.target[:count, rows])
  wrong = observation.logits[:count, rows].argmax(axis=-1) != targets
  is_prompt_copy = (lists[:, None] == items[..., None])[:, None]
  is_output_copy = (items[:, None] == items[..., None])[:, None]
  shares = []
  for _, _, weights in observation.attention():
    weights = weights[:, :, rows]
    on_prompt = weights[..., :n] * is_prompt_copy
    on_output = weights[..., rows] * is_output_copy
    num_copies = (on_prompt > 0).sum(axis=-1) + (on_output > 0).sum(axis=-1)
    others = (weights > 0).sum(axis=-1) - num_copies
    layer = on_prompt.sum(axis=-1), on_output.sum(axis=-1), others
    shares.append([x.swapaxes(0, 1)[:, kept] for x in layer])
  prompt_attention, output_attention, others = map(
    np.stack, zip(*shares, strict=True)
  )
  return Copies(
    copies=copies[kept],
    left=(copies - copies_so_far)[kept],
    prompt_attention=prompt_attention,
    output_attention=output_attention,
    others=others,
    run=run[kept],
    wrong=wrong[kept],
  )


def counting_head(rows: Copies) -> tuple[int, int]:
  """Returns the (layer, head) that best tells the last copy from the one
  before.

  Its score is the distance of the means of `output_part` at the two rows, in
  standard deviations, summed over runs; runs are compared with those of the
  same number of copies, where there are MIN_RUNS. The sum is multiplied by the
  head's mean attention on copies, because a head that attends to all keys alike
  has the same `output_part`, but of hardly any attention.

  Raises:
    UsageError: no number of copies above 1 has MIN_RUNS runs.
  """
  scores, has_runs = np.zeros(rows.output_attention.shape[:2]), False
  part = output_part(rows)
  for copies in np.unique(rows.copies[rows.copies > 1]):
    last, before = (
      part[..., (rows.copies == copies) & (rows.left == left)]
      for left in (LAST, BEFORE)
    )
    if last.shape[-1] >= MIN_RUNS:
      has_runs = True
      spread = np.sqrt((last.var(axis=-1) + before.var(axis=-1)) / 2) + 1e-3
      distance = abs(last.mean(axis=-1) - before.mean(axis=-1))
      scores += last.shape[-1] * distance / spread
  check(
    has_runs,
    f"--lengths, --samples: no number of copies above 1 has {MIN_RUNS} runs at"
    " the shortest length; choose longer lists, or more",
  )
  scores *= (rows.output_attention + rows.prompt_attention).mean(axis=-1)
  layer, head = np.unravel_index(scores.argmax(), scores.shape)
  return int(layer), int(head)


def output_part(rows: Copies) -> np.ndarray:
  """Returns the output's part of the attention on copies, [L, H, R]."""
  total = rows.output_attention + rows.prompt_attention
  return rows.output_attention / np.maximum(total, 1e-9)


def errors_by_copies(rows: Copies) -> dict[int, tuple[int, int]]:
  """Returns {copies: (runs with a wrong row, runs)}: in such a run the model
  stops too early or too late, or goes on with another item than the next larger
  one."""
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

  Attention is that of a model's `counting_head` at its shortest length.

  Args:
    models: {name: {length: rows}}.
    path: the path of the PNG to write.
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
        part = _by_copies(rows, output_part(rows)[head], left)
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
  """Returns (numbers of copies, means): for each number of copies with at least
  MIN_RUNS rows that have `left` copies left, the mean of `values` [R] over
  these rows."""
  counts, means = [], []
  for copies in np.unique(rows.copies):
    chosen = (rows.copies == copies) & (rows.left == left)
    if chosen.sum() >= MIN_RUNS:
      counts.append(int(copies))
      means.append(float(values[chosen].mean()))
  return counts, means
