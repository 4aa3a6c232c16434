"""Draws how models that sort tell the last of several equal items from others.

  python launch/last_copy.py runs/best runs/softmax --lengths 20 200
  python launch/last_copy.py runs/best --samples=300 --figure=last_copy.png

The figure has a column of panels for each workdir, against the number of copies
of an item in the list. The first panel shows how much of the attention on
copies of the item is on outputs, in rows of its last copy and of the one before
it; the second how many keys that are no copies have a weight; the third the
share of the runs (all copies of an item, in the sorted list, but for the list's
largest item) in which the model is wrong. Attention is that of one head: the
one that, at the shortest length, best tells the last copy from the one before.
Of several seeds of a workdir, the best by validation is drawn. The numbers of
wrong runs are printed too.

A run is all copies of one item, which follow one another in the sorted output.
A row whose input is copy j of c has to predict the item again if j < c, else
the next larger item. It sees c copies in the prompt and j in the output so far.
If a head attends to these alone, and evenly, the output's part of the attention
is j / (j + c). At the last copy it is 1/2, which is 1 / (4c - 2) more than at
the copy before, whatever the list's length.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

import lengthgen_jax  # noqa: E402
from lengthgen_jax.drawing import panels, save  # noqa: E402
from lengthgen_jax.errors import (  # noqa: E402
  Parser,
  UsageError,
  check,
  file_errors,
)
from lengthgen_jax.probes.activations import (  # noqa: E402
  Observation,
  observations,
)
from lengthgen_jax.probes.registry import SORTING  # noqa: E402

LAST, BEFORE = 0, 1  # copies left at the two rows that are compared
MIN_RUNS = 20  # fewer runs of one number of copies are not drawn


class Copies(NamedTuple):
  """R rows of a model on lists of one length. The input of each row is an
  output, and its copies are all items that are equal to it; shapes are [R], or
  [L, H, R] for L layers and H heads. Runs of the list's largest item are left
  out, because its last copy is never an input."""

  copies: np.ndarray  # [R] c, how often the row's item occurs in the list
  left: np.ndarray  # [R] c - j, how many copies are not yet in the output
  # [L, H, R], the sums of the attention weights on copies in the prompt, and in
  # the output so far.
  prompt_attention: np.ndarray
  output_attention: np.ndarray
  others: np.ndarray  # [L, H, R] keys that are no copies, with a weight above 0
  run: np.ndarray  # [R] the number of the row's run
  wrong: np.ndarray  # [R] whether its prediction is (with teacher forcing)


def observe(observations: Iterable[Observation]) -> Copies:
  """Returns the rows of observations of a decoder-only model that sorts lists
  of one length."""
  parts, num_runs = [], 0
  for observation in observations:
    part = _observe_batch(observation)
    parts.append(part._replace(run=part.run + num_runs))
    num_runs = parts[-1].run.max(initial=num_runs) + 1
  fields = zip(*parts, strict=True)
  return Copies(*(np.concatenate(field, axis=-1) for field in fields))


def _observe_batch(observation: Observation) -> Copies:
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
  stops too early or too late, or goes on with a wrong item."""
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
  """Draws one figure of {model: {length: rows}}, a column for each model, whose
  head is the `counting_head` at its shortest length; returns the path."""
  count, shared = len(models), {"sharex": True, "sharey": "row"}
  canvas, axes = panels(3 * count, 3.2, 2.2, count, **shared)
  for i, (name, by_length) in enumerate(models.items()):
    head = counting_head(by_length[min(by_length)])
    part_axis, others_axis, errors_axis = axes[i::count]
    part_axis.set_title(f"{name}\nlayer {head[0]}, head {head[1]}")
    for color, (length, rows) in enumerate(sorted(by_length.items())):
      style = {"color": f"C{color}", "marker": "os^Dv"[color % 5]}
      part = output_part(rows)[head]
      for left, line, text in ((LAST, "-", "last"), (BEFORE, "--", "before")):
        label = f"{length} items, {text}"
        part_axis.plot(
          *_by_copies(rows, part, left), line, label=label, **style
        )
      others_axis.plot(*_by_copies(rows, rows.others[head], LAST), **style)
      errors = {
        copies: wrong / runs
        for copies, (wrong, runs) in errors_by_copies(rows).items()
        if runs >= MIN_RUNS
      }
      errors_axis.plot(list(errors), list(errors.values()), **style)
    others_axis.set_yscale("symlog", linthresh=1)
    errors_axis.set_xlabel("copies of the item in the list")
  axes[0].set_ylabel("outputs' part of the\nattention on copies")
  axes[count].set_ylabel("other keys with a weight")
  axes[2 * count].set_ylabel("runs that end wrongly")
  axes[0].legend()
  return save(canvas, path)


def _by_copies(
  rows: Copies, values: np.ndarray, left: int
) -> tuple[list[int], list[float]]:
  """Returns numbers of copies with at least MIN_RUNS rows that have `left`
  copies left, and the means of `values` [R] over these rows."""
  counts, means = [], []
  for copies in np.unique(rows.copies):
    chosen = (rows.copies == copies) & (rows.left == left)
    if chosen.sum() >= MIN_RUNS:
      counts.append(int(copies))
      means.append(float(values[chosen].mean()))
  return counts, means


def main() -> int:
  """Runs the command line; returns the exit code."""
  parser = Parser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  add = parser.add_argument
  add("workdirs", nargs="+", type=pathlib.Path, help="trained workdirs")
  add(
    "--lengths",
    nargs="+",
    type=int,
    default=[20, 200],
    help="items of a list, default 20 200",
  )
  add(
    "--samples",
    type=int,
    default=200,
    help="number of lists of each length, default 200",
  )
  add("--figure", type=pathlib.Path, default=pathlib.Path("last_copy.png"))
  try:
    args = parser.parse_args()
    check(min(args.lengths) >= 2, "--lengths: must be at least 2")
    check(args.samples >= 1, f"--samples={args.samples}: must be at least 1")
    check(
      args.figure.suffix == ".png", f"--figure={args.figure}: must be a .png"
    )
    models = {}
    for workdir in args.workdirs:
      model = lengthgen_jax.load(workdir).model
      check(SORTING.holds(model), f"{workdir}: only {SORTING.text} are drawn")
      models[str(workdir)] = {}
      for length in args.lengths:
        rows = observe(observations(model, length, args.samples))
        models[str(workdir)][length] = rows
        for copies, (wrong, runs) in errors_by_copies(rows).items():
          print(
            f"{workdir}, {length} items, {copies} copies: {wrong} of {runs}"
          )
    with file_errors(f"--figure={args.figure}: cannot be written"):
      print(draw(models, args.figure))
  except UsageError as error:
    print(f"last_copy: {error}", file=sys.stderr)
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(main())
