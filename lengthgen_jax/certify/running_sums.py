"""This module certifies grids: running sums of every size.

Lemma. Let the conditions of certify.conditions for grids hold: along the axis
of rows, lines to outputs lead to the row that is -c rows before, lines to b to
the digit that is c places ahead of the row's own, and all others open in every
row. Let `up` be the sum over the layers of the largest -c of self-attention,
one more (an input at the start of a row holds the last output of the row
before), with the largest -c of cross-attention, and `down` the largest c of
that. Along the digits let the widths be those of certify.receptive_fields. Then
every row (j, k) of every grid of N by M has a view of a grid of at most `up +
down + 1` rows, of a width in that range.

Proof. For the digits, as in certify.receptive_fields; M and j stay as they are.
Along the rows, whether a cell is open depends on the difference of two rows and
on whether the other one exists; so a path down from row j meets rows j - up to
j + down at most, as far as they exist. If M > up + down + 1, then j > up or M -
j > down + 1. In the first case, leave out row 0: the rows met all move by one,
none of them is lost, and row j is still not the first. In the second, leave out
the last row before the end: no row met is lost, nor is j the end if it was not.
Repeat until M <= up + down + 1.

If, besides, no view meets digits but those of a, digit j of b, and outputs of
rows j and j - 1 (else the model is refused), its logits are a function of those
digits. Row j - 1 may hold any number below 10·a (or 0, if a is), and no other:
floor(a·B / 10^(j-1)) is any such number for some B of j digits if j is large.
So its digits are one more operand of a transducer along k
(tasks.multiply_long.RunningSum), and all cases are those of a transducer.
"""

import functools
import itertools
from collections.abc import Iterator

import jax
import numpy as np

from lengthgen_jax.attention.lines import SiteLines
from lengthgen_jax.certify import certificate, receptive_fields, verdict
from lengthgen_jax.certify.receptive_fields import (
  ReceptiveField,
  RowExample,
  Token,
)
from lengthgen_jax.certify.states import States
from lengthgen_jax.certify.transducer import Contexts, Gap, Transducer
from lengthgen_jax.errors import check
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import packing
from lengthgen_jax.tasks.multiply_long import RunningSum

ROUNDING_SAMPLES = 1000  # random inputs of each size, to measure rounding
TRIED_PRODUCTS = 20_000  # products that are tried to meet a context


SIZE_MULTIPLE = 8  # how many values of N one compiled program serves


class RowTransducer(Transducer):
  """The transducer of a running sum, where not all digits can follow."""

  def possible(self, state: tuple[int, int], digits: tuple[int, ...]) -> bool:
    """Returns whether these digits can follow a state."""
    return self.task.possible(state[1], digits)

  def ends(self, state: tuple[int, int], digits: tuple[int, ...]) -> bool:
    """Returns whether these digits can be padding after a state."""
    return self.task.ends(state[1], digits)


def survey(
  experiment: Experiment, scaffold: dict[str, SiteLines]
) -> certificate.Survey:
  """Returns the views of a model's rows, and their contexts.

  Raises:
    UsageError: a row meets digits of other rows.
  """
  transducers = row_transducers(experiment)
  columns, rows = sizes(experiment, scaffold, transducers[0])
  longest = columns[-1], rows[-1]
  receptive_fields.check_size(experiment, scaffold, longest)
  views = {}
  for size in itertools.product(columns, rows):
    for view, example in views_at(experiment, scaffold, size, longest):
      views.setdefault(view, []).append(example)
  contexts = [Contexts(transducers[view.first], view.steps) for view in views]
  return certificate.Survey(transducers[0], views, contexts)


def row_transducers(
  experiment: Experiment,
) -> tuple[RowTransducer, RowTransducer]:
  """Returns the transducers of a running sum: of a row that has one before it,
  and of the first."""
  return _row_transducers(experiment.task.end)


@functools.cache
def _row_transducers(end: int) -> tuple:
  """Returns the transducers of running sums whose end token is `end`."""
  return tuple(RowTransducer(RunningSum(first, end)) for first in (False, True))


def views_at(
  experiment: Experiment,
  scaffold: dict[str, SiteLines],
  size: tuple[int, int],
  longest: tuple[int, int],
) -> Iterator[tuple[ReceptiveField, RowExample]]:
  """Yields (ReceptiveField, Example) of every row on a grid of N by M.

  Raises:
    UsageError: a row meets digits of other rows.
  """
  n, m = size
  bound = -(-longest[0] // SIZE_MULTIPLE) * SIZE_MULTIPLE, longest[1]
  batch, biases = jax.tree.map(
    np.asarray,
    receptive_fields.batch_and_biases(
      experiment, scaffold, np.array([n, m], np.int32), bound
    ),
  )
  transducers, cells = row_transducers(experiment), None
  for j in range(m + 1):
    tokens = _tokens(experiment, batch, j)
    cells = cells or receptive_fields.open_cells(experiment, tokens, biases)
    row_layout = receptive_fields.Layout(n + 2, n + 1, tokens, cells, [], size)
    transducer = transducers[j == 0]
    for row in np.flatnonzero(batch.weight[0] > 0).tolist():
      row_j, k = batch.rows.left[0, row].tolist()
      if row_j != j:
        continue
      place = k + 1 if j < m else row_layout.width
      view, example = receptive_fields.view(
        experiment, transducer, row_layout, row, place
      )
      _check(view)
      yield (
        _up_to_row_end(transducer, view, example)._replace(first=j == 0),
        example,
      )


def sizes(
  experiment: Experiment, scaffold: dict[str, SiteLines], transducer: Transducer
) -> tuple[range, range]:
  """Returns N and M of the grids whose views are the views of all grids."""
  steps = {"self": [], "cross": []}
  for site, lines in scaffold.items():
    c = np.where(lines.valid, lines.intercept[..., 0], 0)
    steps[site] = c.reshape(len(c), -1)
  depth = experiment.model.config.num_decoder_layers
  back = [max(-int(c.min(initial=0)), 0) for c in steps["self"]]
  back = back if len(back) > 1 else depth * back
  cross_steps = np.array(steps["cross"]).reshape(-1)
  up = 1 + sum(back) + max(-int(cross_steps.min(initial=0)), 0)
  down = max(int(cross_steps.max(initial=0)), 0)
  if experiment.kind == "decoder_only":  # b is read in self-attention
    down = max(int(np.array(steps["self"]).max(initial=0)), 0)
  columns = receptive_fields.widths(experiment, scaffold, transducer)
  return columns, range(1, up + down + 2)


def _tokens(
  experiment: Experiment, batch: packing.Batch, j: int
) -> dict[str, list[Token]]:
  """Returns what every input holds as row j sees it, by stack."""
  task = experiment.task
  stacks = {"decoder": (batch.inputs, batch.keys)}
  if batch.source is not None:
    stacks["encoder"] = batch.source, batch.source_keys
  tokens = {stack: [] for stack in stacks}
  for stack, (ids, keys) in stacks.items():
    for i, segment in enumerate(keys.segment[0].tolist()):
      left, right = keys.left[0, i].tolist(), keys.right[0, i].tolist()
      kind, which, place = "mark", int(ids[0, i]), -1
      if segment == task.target_segment and which != task.end:
        token_row, place = left[0], left[1] + (left[0] == j)
        kind = {j: "said", j - 1: "given"}.get(token_row, "outside")
        which = 2 if token_row == j - 1 else 0
      elif segment < task.target_segment and segment >= 0:
        axis = task.segment_axes[segment]
        if task.operand_place(segment, left[axis], right[axis]):
          kind, which = "given", segment
          place = right[1] + 1 if axis else -1
          kind = "given" if axis or right[0] == j else "outside"
      tokens[stack].append(receptive_fields.Token(kind, which, place, 0))
  return tokens


def _up_to_row_end(
  transducer: Transducer, view: ReceptiveField, example: RowExample
) -> ReceptiveField:
  """Returns the view up to the end of the row, which not every sum before
  reaches."""
  after = 1 + max(example.places, default=-1)
  if after == example.width:
    return view
  gap = transducer.shorten(Gap(example.width - 1 - after, 1))
  return view._replace(steps=(*view.steps, gap))


def _check(view: ReceptiveField) -> None:
  """Checks that a view meets no digits that the lemma does not cover.

  Raises:
    UsageError: it meets digits of other rows.
  """
  kinds = {token.kind for _, tokens in view.tokens for token in tokens}
  check(
    "outside" not in kinds,
    "a row of running sums meets digits beyond the row before and its own digit"
    " of b; lines to outputs must be in the first layer alone and at most one"
    " cell away (calibration.reach=1)",
  )


def rounding(
  states: States,
  survey: certificate.Survey,
  dense: certificate.ForwardPass,
  seed: int,
) -> tuple[float, int]:
  """Measures how far the layer-wise tables and the dense path are apart.

  The inputs are random, of every size that has a view first.

  Returns:
    (largest difference of a logit, rows compared).
  """
  rng, largest, rows = np.random.default_rng(seed), 0.0, 0
  first = {view: examples[0] for view, examples in survey.views.items()}
  for n, m in sorted({example.size for example in first.values()}):
    items = rng.integers(0, 10, (ROUNDING_SAMPLES, 2, max(n, m))).astype(
      np.int32
    )
    items[: ROUNDING_SAMPLES // 2] = 9 - items[: ROUNDING_SAMPLES // 2] % 2
    items[:, 0, n:], items[:, 1, m:] = 0, 0
    batch, logits = dense(items, (n, m))
    check_task(dense.experiment, items, batch, (n, m))
    for view, example in first.items():
      if example.size == (n, m):
        contexts = _contexts(survey.transducer, view, example, items, batch)
        tables = states.logits(view, contexts)
        gap = certificate.gap(tables, logits[:, example.row])
        largest = float(np.maximum(largest, gap))
        rows += len(tables)
  return largest, rows


def _values(
  items: np.ndarray, batch: packing.Batch, size: tuple[int, int], j: int
) -> np.ndarray:
  """Returns digits [3, B, N + 2] of inputs by place, as row j sees them.

  They are the digits of a, of the row before, and of the row itself.
  """
  n, m = size
  start = int(np.asarray(batch.first_scored)[0])
  outputs = np.asarray(batch.target)[:, start : start + m * (n + 1)]
  sums = outputs.reshape(-1, m, n + 1)
  values = np.zeros((3, len(items), n + 2), int)
  values[0, :, 1:-1] = items[:, 0, :n]
  values[1, :, :-1] = sums[:, j - 1] if j else 0
  values[2, :, 1:] = sums[:, j] if j < m else 0
  return values


def check_task(
  experiment: Experiment,
  items: np.ndarray,
  batch: packing.Batch,
  size: tuple[int, int],
) -> None:
  """Checks that running sums are what they are said to be.

  It does what certificate.check_task does, for every row of a grid.

  Args:
    experiment: the experiment of the task.
    items: [B, 2, max(N, M)] random digits.
    batch: the batch of these inputs.
    size: N and M.

  Raises:
    UsageError: the task is something else.
  """
  n, m = size
  transducers, name = row_transducers(experiment), experiment.task.name
  ids = {"decoder": batch.inputs, "encoder": batch.source}
  for j in range(m + 1):
    values = _values(items, batch, size, j)
    b = items[:, 1, j] if j < m else None
    if j < m:
      task = transducers[j == 0].task
      state = np.full(len(items), task.initial_state)
      for place in range(n + 2):
        symbols = values[0, :, place], b, values[1, :, place]
        state, digit = task.step(state, symbols)
        check(
          place == 0 or np.array_equal(digit, values[2, :, place]),
          f"certify: {name}'s row {j} is not what its transducer says",
        )
    for stack, tokens in _tokens(experiment, batch, j).items():
      for i, token in enumerate(tokens):
        if token.kind == "outside":
          continue
        expected = token.which
        if token.kind != "mark":
          row = 2 if token.kind == "said" else token.which // 2
          expected = b if token.place < 0 else values[row, :, token.place]
        check(
          (np.asarray(ids[stack])[:, i] == expected).all(),
          f"certify: {name}'s {stack} input {i} is not always the {token.kind}"
          " that the task says it holds",
        )


def _contexts(
  transducer: Transducer,
  view: ReceptiveField,
  example: RowExample,
  items: np.ndarray,
  batch: packing.Batch,
) -> np.ndarray:
  """Returns what the inputs have in a view's columns: [B, columns]."""
  n, m = example.size
  j = (example.row - int(np.asarray(batch.first_scored)[0])) // (n + 1)
  values = _values(items, batch, example.size, j)
  digit_of_b = items[:, 1, j] if j < m else np.zeros(len(items), int)

  def digits(operand: int, place: int) -> np.ndarray:
    return digit_of_b if place < 0 else values[operand // 2, :, place]

  return certificate.gather_contexts(
    transducer,
    view,
    example,
    len(items),
    digits=digits,
    outputs=lambda place: values[2, :, place],
  )


def inputs_to_train_on(
  survey: certificate.Survey,
  tallies: list[certificate.Tally],
  experiment: Experiment,
  seed: int,
) -> dict[str, list[str]]:
  """Returns products of the largest training size, as
  verdict.inputs_to_train_on does."""
  rng = np.random.default_rng(seed)
  longest, rows = experiment.data[0].bound(0)

  def make_texts(transducer, view, examples, context, count):
    widest = max(examples, key=lambda example: example.width)
    return products(transducer, view, widest, context, rows, rng)[:count]

  fits = lambda example: example.width - 2 <= longest
  return verdict.texts_by_margin(survey, tallies, fits, make_texts)


def products(
  transducer: Transducer,
  view: ReceptiveField,
  example: RowExample,
  context: np.ndarray | list[int],
  rows: int,
  rng: np.random.Generator,
) -> list[str]:
  """Returns products, as people type them, whose running sums have a context.

  The digits that the context names are given and others are random; the
  products that fit are returned. The context is in the first row, or in the
  last one, which has most sums before it, or at the end.

  Args:
    transducer: the transducer of the view's row.
    view: the view that the context belongs to.
    example: the row that has the context.
    context: values of the view's columns.
    rows: how many digits b has.
    rng: draws the other digits.
  """
  n, j = example.width - 2, rows - 1 + (view.answer_column is None)
  j = 0 if transducer.task.first else j
  a, b = (rng.integers(0, 10, (TRIED_PRODUCTS, size)) for size in (n, rows))
  constraints = []
  for (kind, which, number), column in view.columns(transducer.shared).items():
    place = example.places[number] if number >= 0 else 0
    if number < 0:
      b[:, min(j, rows - 1)] = context[column]
    elif kind == "said":
      constraints.append((j, place - 1, context[column]))
    elif which:
      constraints.append((j - 1, place, context[column]))
    elif 0 < place <= n:
      a[:, place - 1] = context[column]
  number = (a * 10 ** np.arange(n)).sum(axis=1)
  sums = [0 * number]
  for k in range(rows):
    sums.append(sums[-1] // 10 + number * b[:, k])
  fits = np.ones(TRIED_PRODUCTS, bool)
  for row, place, digit in constraints:
    if 0 <= row < rows:
      fits &= sums[row + 1] // 10**place % 10 == digit
  text = lambda digits: "".join(map(str, digits[::-1]))
  pairs = zip(a[fits].tolist(), b[fits].tolist(), strict=True)
  return [f"{text(one)}*{text(other)}" for one, other in pairs]


def counterexamples(
  survey: certificate.Survey, tallies: list[certificate.Tally], model
) -> list[str]:
  """Returns products that fail strict exact match, the shortest first."""
  wrong = set()
  for contexts, (view, examples), tally in zip(
    survey.contexts, survey.views.items(), tallies, strict=True
  ):
    example = examples[0]
    for margin, context in tally.thin:
      if margin <= 0:
        text = product_with_context(contexts.transducer, view, example, context)
        a, b = text.split("*")
        if model.answers([text])[0] != str(int(a) * int(b)):
          wrong.add(text)
  return sorted(wrong, key=lambda text: (len(text), text))


def product_with_context(
  transducer: Transducer,
  view: ReceptiveField,
  example: RowExample,
  context: np.ndarray | list[int],
) -> str:
  """Returns a product whose running sums have a context.

  b is what makes the row before what it is, then the digit of the row.
  """
  constraints = certificate.values_by_place(transducer, view, example, context)
  shared, size = constraints[0], example.width
  items = transducer.realize(*constraints, size, size - 1)
  number = lambda row: int("".join(map(str, row[::-1])))
  a, before = number(items[0, 1:-1]), number(items[2])
  text = str(a).zfill(size - 2)
  if transducer.task.first:
    return f"{text}*{shared}"
  j = size  # digits of b so far, enough to make any sum
  b = -(-before * 10 ** (j - 1) // a) if a else 0
  last = shared if view.answer_column is not None else ""
  return f"{text}*{last}{str(b).zfill(j)}"
