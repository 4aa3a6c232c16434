"""Certificates of grids: running sums of every size.

Lemma. Let the conditions of interpret.locality hold along a row of the grid
(digits k), and let a row (j, k) meet, through all layers, no other digits than
those of a, digit j of b, outputs of its own row j and outputs of row j - 1.
Then its logits are a function of those digits, and the views of sizes N x 3 up
to the width of interpret.locality are the views of all sizes: nothing met tells
j, but whether there is a row before. Row j - 1 may hold any number below 10·a
(or 0, if a is), and no other: floor(a·B / 10^(j-1)) is any such number for some
B of j digits if j is large. So its digits are one more operand of a transducer
along k (tasks.multiply_long.RunningSum), and all cases are those of a tape.
"""

import jax
import numpy as np

from lengthgen_jax.errors import check
from lengthgen_jax.interpret import certificate, judge, layout, locality
from lengthgen_jax.interpret.contexts import Contexts
from lengthgen_jax.interpret.tape import Skip, Tape
from lengthgen_jax.tasks.multiply_long import RunningSum

ROWS = 3  # M of the grids that views are read off
SAMPLES = 1000  # random inputs of each size, to measure rounding
TRIED = 20_000  # products that are tried to meet a context


class RowTape(Tape):
  """The tape of a running sum."""

  def possible(self, state, digits):
    return self.task.possible(state[1], digits)

  def ends(self, state, digits):
    return self.task.ends(state[1], digits)


def survey(experiment, scaffold) -> certificate.Survey:
  """The views of a model's rows, and their contexts.

  Raises:
    UsageError: a row meets digits of other rows.
  """
  end = experiment.task.end
  tapes = [RowTape(RunningSum(first, end)) for first in (False, True)]
  sizes = locality.widths(experiment, scaffold, tapes[0])
  views = {}
  for n in sizes:
    found = layout.numbers(
      experiment, scaffold, np.array([n, ROWS], np.int32), (sizes[-1], ROWS)
    )
    batch, biases = jax.tree.map(np.asarray, found)
    cells = None
    for j in (*range(1, ROWS + 1), 0):
      tokens = _tokens(experiment, batch, j)
      cells = cells or layout.opened(experiment, tokens, biases)
      at = layout.Layout(n + 2, n + 1, tokens, cells, [])
      tape = tapes[j == 0]
      for row in np.flatnonzero(batch.weight[0] > 0).tolist():
        own, k = batch.rows.left[0, row].tolist()
        if own != j:
          continue
        place = k + 1 if j < ROWS else at.width
        view, example = locality.view(experiment, tape, at, row, place)
        _check(view)
        view = _ended(tape, view, example)
        views.setdefault(view, (tape, []))[1].append(example)
  contexts = [Contexts(tape, view.steps) for view, (tape, _) in views.items()]
  found = {view: examples for view, (_, examples) in views.items()}
  return certificate.Survey(tapes[0], found, contexts)


def _tokens(experiment, batch, j: int) -> dict:
  """What every input holds, for row j."""
  task = experiment.task
  stacks = {"decoder": (batch.inputs, batch.keys)}
  if batch.source is not None:
    stacks["encoder"] = batch.source, batch.source_keys
  found = {stack: [] for stack in stacks}
  for stack, (ids, keys) in stacks.items():
    for i, segment in enumerate(keys.segment[0].tolist()):
      left, right = keys.left[0, i].tolist(), keys.right[0, i].tolist()
      kind, which, place = "mark", int(ids[0, i]), -1
      if segment == task.target:
        own, place = left[0], left[1] + (left[0] == j)
        kind = {j: "said", j - 1: "given"}.get(own, "far")
        which = 2 if own == j - 1 else 0
      elif segment < task.target and segment >= 0:
        axis = task.along[segment]
        if task.holds(segment, left[axis], right[axis]):
          kind, which = "given", segment
          place = right[1] + 1 if axis else -1
          kind = "given" if axis or right[0] == j else "far"
      found[stack].append(layout.Token(kind, which, place, 0))
  return found


def _ended(tape: Tape, view, example):
  """The view up to the end of the row, which not every sum before reaches."""
  after = 1 + max(example.places, default=-1)
  if after == example.width:
    return view
  rest = tape.shorten(Skip(example.width - 1 - after, 1))
  return view._replace(steps=(*view.steps, rest))


def _check(view) -> None:
  kinds = {token.kind for _, own in view.tokens for token in own}
  check(
    "far" not in kinds,
    "a row of running sums meets digits beyond the row before and its own digit"
    " of b; lines to outputs must be in the first layer alone and at most one"
    " cell away (calibration.reach=1)",
  )


def rounding(states, found: certificate.Survey, dense, seed: int) -> tuple:
  """(largest difference of a logit, rows compared) between the layer-wise
  tables and the dense path, on random inputs of every size that has a view
  first."""
  random, most, rows = np.random.default_rng(seed), 0.0, 0
  first = {view: own[0] for view, own in found.views.items()}
  for n in sorted({example.width - 2 for example in first.values()}):
    items = random.integers(0, 10, (SAMPLES, 2, max(n, ROWS))).astype(np.int32)
    items[: SAMPLES // 2] = 9 - items[: SAMPLES // 2] % 2
    items[:, 0, n:], items[:, 1, ROWS:] = 0, 0
    batch, logits = dense(items, (n, ROWS))
    for view, example in first.items():
      if example.width - 2 == n:
        contexts = _contexts(found.tape, view, example, items, batch)
        told = states.logits(view, contexts)
        gap = np.abs(told - logits[:, example.row]).max()
        most = float(np.maximum(most, gap))
        rows += len(told)
  return most, rows


def _contexts(tape: Tape, view, example, items, batch):
  """What the inputs have in a view's columns: [B, columns]."""
  n, start = example.width - 2, int(np.asarray(batch.first)[0])
  said = np.asarray(batch.target)[:, start : start + ROWS * (n + 1)]
  sums = said.reshape(-1, ROWS, n + 1)
  j = (example.row - start) // (n + 1)
  values = np.zeros((3, len(items), n + 2), int)  # a, the row before, this one
  values[0, :, 1:-1] = items[:, 0, :n]
  values[1, :, :-1] = sums[:, j - 1] if j else 0
  values[2, :, 1:] = sums[:, j] if j < ROWS else 0
  found = []
  for kind, which, number in view.columns(tape.shared):
    if number < 0:
      found.append(items[:, 1, j] if j < ROWS else 0 * items[:, 1, 0])
    else:
      row = 2 if kind == "said" else which // 2
      found.append(values[row, :, example.places[number]])
  return np.stack(found, axis=1).astype(np.uint8)


def practice(found: certificate.Survey, tallies, experiment, seed: int) -> dict:
  """As judge.practice: products of the largest training size."""
  random = np.random.default_rng(seed)
  longest, rows = experiment.data[0].longest(0)
  inputs = {"failing": [], "thin": []}
  for contexts, (view, examples), tally in zip(
    found.contexts, found.views.items(), tallies, strict=True
  ):
    within = [e for e in examples if e.width - 2 <= longest]
    for margin, context in tally.thin if within else ():
      example = max(within, key=lambda e: e.width)
      own = products(contexts.tape, view, example, context, rows, random)
      if margin <= 0:
        inputs["failing"] += own[: judge.VARIANTS]
      else:
        inputs["thin"] += own[:1]
  return inputs


def products(tape: Tape, view, example, context, rows: int, random) -> list:
  """Products with so many digits of b, as people type them, whose running sums
  have a context: the digits that it names, others at random, those that fit.

  It is in the first row, or in the last one, which has most sums before it, or
  at the end.
  """
  n, at = example.width - 2, rows - 1 + (view.asked is None)
  at = 0 if tape.task.first else at
  a, b = (random.integers(0, 10, (TRIED, size)) for size in (n, rows))
  wanted = []
  for (kind, which, number), column in view.columns(tape.shared).items():
    place = example.places[number] if number >= 0 else 0
    if number < 0:
      b[:, min(at, rows - 1)] = context[column]
    elif kind == "said":
      wanted.append((at, place - 1, context[column]))
    elif which:
      wanted.append((at - 1, place, context[column]))
    elif 0 < place <= n:
      a[:, place - 1] = context[column]
  number = (a * 10 ** np.arange(n)).sum(axis=1)
  sums = [0 * number]
  for k in range(rows):
    sums.append(sums[-1] // 10 + number * b[:, k])
  fits = np.ones(TRIED, bool)
  for row, place, digit in wanted:
    if 0 <= row < rows:
      fits &= sums[row + 1] // 10**place % 10 == digit
  text = lambda digits: "".join(map(str, digits[::-1]))
  pairs = zip(a[fits].tolist(), b[fits].tolist(), strict=True)
  return [f"{text(one)}*{text(other)}" for one, other in pairs]


def counterexamples(found: certificate.Survey, tallies, model) -> list[str]:
  """Products that fail strict exact match, the shortest first."""
  wrong = set()
  for contexts, (view, own), tally in zip(
    found.contexts, found.views.items(), tallies, strict=True
  ):
    example = own[0]
    for margin, context in tally.thin:
      if margin <= 0:
        text = typed(contexts.tape, view, example, context)
        a, b = text.split("*")
        if model.answers([text])[0] != str(int(a) * int(b)):
          wrong.add(text)
  return sorted(wrong, key=lambda text: (len(text), text))


def typed(tape: Tape, view, example, context) -> str:
  """A product whose running sums have a context: b is what makes the row before
  what it is, then the digit of the row."""
  digits, outputs, shared = {}, {}, 0
  for key, column in view.columns(tape.shared).items():
    kind, which, number = key
    if number < 0:
      shared = int(context[column])
    elif kind == "given":
      digits[which, example.places[number]] = int(context[column])
    else:
      outputs[example.places[number]] = int(context[column])
  size = example.width
  items = tape.realize(shared, digits, outputs, size, size - 1)
  number = lambda own: int("".join(map(str, own[::-1])))
  a, before = number(items[0, 1:-1]), number(items[2])
  text = str(a).zfill(size - 2)
  if tape.task.first:
    return f"{text}*{shared}"
  j = size  # digits of b so far, enough to make any sum
  b = -(-before * 10 ** (j - 1) // a) if a else 0
  last = shared if view.asked is not None else ""
  return f"{text}*{last}{str(b).zfill(j)}"
