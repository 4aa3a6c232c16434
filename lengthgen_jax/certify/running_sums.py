"""This module surveys grids: running sums of every size.

The output for N digits a times M digits b is a grid. Its row j has the digits k
of floor(s / 10) + a·(digit j of b), where s is the number in row j - 1. In this
docstring a row is such a row j of the grid, and an attention row, which says
digit k of row j, is written (j, k). The intercept of a line has one number for
each axis; c is the one along the rows.

Lemma. Let the conditions of certify.conditions for grids hold: lines to outputs
lead from row j to row j + c, lines to b to digit j + c of b, all others open in
every row. Let `up` be one (an input at the start of a row holds the last output
of the row before), plus the sum over layers of each layer's largest -c in self-
attention, plus the largest -c of cross-attention in any layer; and `down` the
largest c, in any layer, of the attention that reads b. Along the digits let the
widths be those of certify.survey. Then every (j, k) of every grid of N by M has
the receptive field of some (j', k') of a grid of at most `up + down + 1` rows,
of a width in that range.

Proof. For the digits, as in certify.survey; M and j stay as they are. Along the
rows, whether a cell is open depends on the difference of two rows and on
whether the other one exists; so a path down from row j meets rows j - up to j +
down at most, as far as they exist. If M > up + down + 1, then j > up or M - j >
down + 1. In the first case, leave out row 0: the rows met all move by one, none
of them is lost, and row j is still not the first. In the second, leave out the
last row before the end token: no row met is lost, and row j is that of the end
token only if it was before. Repeat until M <= up + down + 1.

If, besides, no receptive field meets digits but those of a, digit j of b, and
outputs of rows j and j - 1 (else the model is refused), its logits are a
function of those digits. Row j - 1 may hold any number below 10·a (or 0, if a
is 0), and no other: floor(a·B / 10^(j-1)) is any such number for some B of j
digits if j is large. So its digits are one more operand of a transducer along k
(tasks.multiply_long.RunningSum), and all cases are those of a transducer.

Tape j of a grid is its row j; tape M is the end token alone.
"""

import functools
import itertools
from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.certify.receptive_fields import (
  Layout,
  ReceptiveField,
  Row,
  Size,
  Token,
  depths,
  embedded_segments,
)
from lengthgen_jax.certify.survey import (
  Context,
  RowGroup,
  Scaffold,
  Survey,
  Values,
  find_input,
  lemma_widths,
)
from lengthgen_jax.certify.transducer import Gap, Transducer
from lengthgen_jax.errors import check
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import packing
from lengthgen_jax.tasks.multiply_long import MultiplyLong, RunningSum

ROUNDING_SAMPLES = 1000  # random inputs of each size, to measure rounding
PRODUCTS_TRIED = 20_000  # random products among which a context is looked for
# Arrays have room for N rounded up to a multiple of this, so that one compiled
# program serves many N.
SIZE_MULTIPLE = 8


@functools.cache
def row_transducer(is_first: bool, end: int) -> Transducer:
  """Returns the transducer of one row of running sums.

  It does not read every digit in every state: no digit of a at place 0, and no
  sum of a previous row in the first row. Nor can a number end in every state,
  because the sum of the previous row is below 10·a, or 0.

  Args:
    is_first: whether the row is the first of its grid.
    end: the id of the end token.
  """
  running_sum = RunningSum(is_first, end)
  return Transducer(running_sum, running_sum.can_read, running_sum.can_pad)


class RunningSumSurvey(Survey[tuple[int, int]]):
  """The survey of a model that writes running sums; see the lemma above.

  A size is (N, M).

  Attributes:
    end: the id of the end token.
    transducer: the Transducer of all rows but the first.
    columns, rows: the values of N and of M, ascending, of the grids that are
      surveyed: their receptive fields are those of all grids.
  """

  def __init__(self, experiment: Experiment, scaffold: Scaffold):
    super().__init__(experiment, scaffold)
    assert experiment.task.end is not None
    self.end = experiment.task.end
    self.transducer = row_transducer(False, self.end)
    self.columns = lemma_widths(experiment, scaffold, self.transducer)
    self.rows = lemma_rows(experiment, scaffold)

  @property
  def largest(self) -> tuple[int, int]:
    return self.columns[-1], self.rows[-1]

  def sizes(self) -> Iterator[tuple[int, int]]:
    return itertools.product(self.columns, self.rows)

  def bound(self, largest: tuple[int, int]) -> tuple[int, int]:
    return -(-largest[0] // SIZE_MULTIPLE) * SIZE_MULTIPLE, largest[1]

  def tapes(
    self, size: tuple[int, int], batch: packing.Batch
  ) -> Iterator[Layout]:
    n, m = size
    scored = np.flatnonzero(batch.weight[0] > 0)
    coordinates = np.asarray(batch.rows.left[0, scored]).tolist()
    for j in range(m + 1):
      # The place of digit k is k + 1 (see RunningSum); that of the end token
      # comes after all digits.
      places = {
        row: k + 1 if j < m else n + 2
        for row, (row_j, k) in zip(scored.tolist(), coordinates, strict=True)
        if row_j == j
      }
      yield Layout(
        transducer=row_transducer(j == 0, self.end),
        tape=j,
        size=size,
        width=n + 2,
        nonzero_places=n + 1,
        depth=depths(self.experiment),
        tokens=self._tokens(batch, j),
        places=places,
      )

  def _tokens(self, batch: packing.Batch, j: int) -> dict[str, list[Token]]:
    """Returns the Token of every input, by stack, as grid row j sees it: of
    kind "outside" are outputs of other rows than j and j - 1, and digits of b
    other than digit j."""
    task = self.experiment.task
    stacks = {"decoder": (batch.inputs, batch.keys, batch.places)}
    if batch.source is not None:
      assert batch.source_keys is not None and batch.source_places is not None
      source = batch.source, batch.source_keys, batch.source_places
      stacks["encoder"] = source
    tokens = {stack: [] for stack in stacks}
    for stack, (ids, keys, places) in stacks.items():
      embedded = embedded_segments(self.experiment, places)
      for i, segment in enumerate(keys.segment[0].tolist()):
        left, right = keys.left[0, i].tolist(), keys.right[0, i].tolist()
        kind, number, place = "mark", int(ids[0, i]), -1
        if segment == task.target_segment and number != task.end:
          row, place = left[0], left[1] + (left[0] == j)
          kind = {j: "output", j - 1: "digit"}.get(row, "outside")
          number = 2 if row == j - 1 else 0
        elif 0 <= segment < task.target_segment:
          axis = task.segment_axes[segment]
          if task.operand_place(segment, left[axis], right[axis]):
            kind = "digit" if axis or right[0] == j else "outside"
            number, place = segment, right[1] + 1 if axis else -1
        tokens[stack].append(Token(kind, number, place, 0, embedded[i]))
    return tokens

  def rows_at(
    self, size: tuple[int, int], largest: tuple[int, int]
  ) -> Iterator[tuple[ReceptiveField, Row]]:
    for field, row in super().rows_at(size, largest):
      kinds = {token.kind for _, tokens in field.tokens for token in tokens}
      check(
        "outside" not in kinds,
        "a row of running sums meets digits beyond the row before and its own"
        " digit of b; that cannot be if lines to outputs and to the start token"
        " are in the first layer alone and no line leads further than"
        " calibration.reach=1 allows",
      )
      steps, next_place = field.steps, 1 + max(row.places, default=-1)
      if next_place < row.width:
        # The places beyond the receptive field must have digits with which the
        # sum of the row before is below 10·a.
        gap = Gap(row.width - 1 - next_place, 1)
        steps = *steps, field.transducer.shorten(gap)
      yield field._replace(steps=steps), row

  def random_inputs(
    self, rng: np.random.Generator, count: int, size: tuple[int, int]
  ) -> np.ndarray:
    """Returns random digits [count, 2, max(N, M)] of a and b, with zeros beyond
    their N and M; the numbers of the first half of the inputs have only the
    digits 8 and 9."""
    n, m = size
    items = rng.integers(0, 10, (count, 2, max(n, m))).astype(np.int32)
    items[: count // 2] = 9 - items[: count // 2] % 2
    items[:, 0, n:], items[:, 1, m:] = 0, 0
    return items

  def values(
    self, items: np.ndarray, batch: packing.Batch, size: Size, tape: int
  ) -> Values:
    assert isinstance(size, tuple)
    (n, m), j = size, tape
    start = int(np.asarray(batch.first_scored)[0])
    outputs = np.asarray(batch.target)[:, start : start + m * (n + 1)]
    sums = outputs.reshape(-1, m, n + 1)
    # The digits of a and of both sums, as the places of the tape have them.
    a, sum_before, row_sum = np.zeros((3, len(items), n + 2), int)
    a[:, 1:-1] = items[:, 0, :n]
    sum_before[:, :-1] = sums[:, j - 1] if j else 0
    row_sum[:, 1:] = sums[:, j] if j < m else 0
    digit_of_b = items[:, 1, j] if j < m else np.zeros(len(items), int)

    def values(kind: str, operand: int, place: int) -> np.ndarray:
      if place < 0:
        return digit_of_b
      if kind == "output":
        return row_sum[:, place]
      return (sum_before if operand else a)[:, place]

    return values

  def rows_compared(self) -> tuple[list[tuple[RowGroup, Row]], int]:
    return [(group, group.rows[0]) for group in self.groups], ROUNDING_SAMPLES

  def counterexamples(
    self, group: RowGroup, thin: list, model: Model
  ) -> list[str]:
    texts = [
      product_with_context(group, context)
      for margin, context in thin
      if margin <= 0
    ]
    wrong = []
    for text in dict.fromkeys(texts):
      a, b = text.split("*")
      if model.answers([text])[0] != str(int(a) * int(b)):
        wrong.append(text)
    return wrong

  def draw_texts(
    self,
    group: RowGroup,
    context: Context,
    count: int,
    rng: np.random.Generator,
  ) -> list[str]:
    # The greatest N and M of the main task's training inputs, all of which are
    # in bucket 0.
    longest = self.experiment.data[0].bound(0)
    assert isinstance(longest, tuple)
    n, m = longest
    rows = [row for row in group.rows if row.width - 2 <= n]
    if not rows:
      return []
    row = max(rows, key=lambda row: row.width)
    task, field = self.experiment.task, group.receptive_field
    assert isinstance(task, MultiplyLong)
    return random_products(task, field, row, context, m, count, rng)


def lemma_rows(experiment: Experiment, scaffold: Scaffold) -> range:
  """Returns the numbers of rows M that the lemma asks to survey, 1 up to
  `up + down + 1`."""
  # By site, the intercepts along the rows, [layers or 1, lines of a layer].
  intercepts = dict.fromkeys(("self", "cross"), np.zeros((1, 0), int))
  for site, lines in scaffold.items():
    row_intercept = np.where(lines.valid, lines.intercept[..., 0], 0)
    intercepts[site] = row_intercept.reshape(len(row_intercept), -1)
  self_up = -intercepts["self"].min(axis=1, initial=0)
  if len(self_up) == 1:  # all layers share these lines
    self_up = self_up * experiment.model.config.num_decoder_layers
  up = 1 + int(self_up.sum()) - int(intercepts["cross"].min(initial=0))
  # In one sequence, b is read in self-attention.
  site_of_b = "self" if experiment.kind == "decoder_only" else "cross"
  down = int(intercepts[site_of_b].max(initial=0))
  return range(1, up + down + 2)


def random_products(
  task: MultiplyLong,
  field: ReceptiveField,
  row: Row,
  context: Context,
  b_length: int,
  count: int,
  rng: np.random.Generator,
) -> list[str]:
  """Returns at most `count` products, as people type them, whose running sums
  have a context.

  PRODUCTS_TRIED random products that have the context's digits of a and b are
  drawn; those whose running sums have its other digits are returned, which may
  be none, and are none if b is too short for the row. The context is put in the
  first row of the grid if `row` is in the first row. Else it is put in the last
  row, whose sum has the most terms, or at the end token if `row` is there.

  Args:
    task: the task.
    field: the receptive field of the row.
    row: a row that has this receptive field; a has as many digits as in its
      size.
    context: a value for each column of the receptive field.
    b_length: how many digits b has.
    count: the most products to return.
    rng: draws the other digits.
  """
  a_length = row.width - 2
  is_end_token = field.answer_column is None
  grid_row = b_length if is_end_token else b_length - 1
  if row.tape == 0:
    grid_row = 0
  a, b = (
    rng.integers(0, 10, (PRODUCTS_TRIED, length))
    for length in (a_length, b_length)
  )
  constraints = []  # (grid row, power of ten, digit) of the sums
  for (kind, operand, number), column in field.columns.items():
    place = row.places[number] if number >= 0 else 0
    if number < 0:
      b[:, min(grid_row, b_length - 1)] = context[column]
    elif kind == "output":
      constraints.append((grid_row, place - 1, context[column]))
    elif operand:
      constraints.append((grid_row - 1, place, context[column]))
    elif 0 < place <= a_length:
      a[:, place - 1] = context[column]
  if any(sum_row < 0 for sum_row, _, _ in constraints) and row.tape:
    return []  # b is too short for a row before
  sums = np.asarray(_sums(task, a, b))
  sums = np.pad(sums, ((0, 0), (0, 0), (0, 1)))  # the digit above is zero
  fits = np.ones(PRODUCTS_TRIED, bool)
  for sum_row, power, digit in constraints:
    if 0 <= sum_row < b_length:
      fits &= sums[:, sum_row, power] == digit
  fits = np.flatnonzero(fits)[:count]
  to_text = lambda digits: "".join(map(str, digits[::-1]))
  pairs = zip(a[fits].tolist(), b[fits].tolist(), strict=True)
  return [
    f"{to_text(a_digits)}*{to_text(b_digits)}" for a_digits, b_digits in pairs
  ]


@partial(jax.jit, static_argnums=0)
def _sums(task: MultiplyLong, a: np.ndarray, b: np.ndarray) -> jax.Array:
  """Returns the digits [B, M, N + 1] of the running sums of B products, of the
  digits a [B, N] and b [B, M]."""
  return jax.vmap(task.sums)(jnp.asarray(a), jnp.asarray(b))


def product_with_context(group: RowGroup, context: Context) -> str:
  """Returns a product, as people type it, whose running sums have a context.

  The context is in the last row of the grid, which has the most significant
  digit of b, or at the end token, which has no digit of b. If there is a row
  before, the other digits of b make its sum what the context needs.
  """
  field, row = group.receptive_field, group.rows[0]
  digits = find_input(field, row, context, row.width - 1)
  number = lambda digits: int("".join(map(str, digits[::-1])))
  a, sum_before = number(digits[0, 1:-1]), number(digits[2])
  text, digit_of_b = str(a).zfill(row.width - 2), digits[1, 0]
  if not row.tape:
    return f"{text}*{digit_of_b}"
  j = row.width  # how many digits of b come before: enough to make any sum
  b = -(-sum_before * 10 ** (j - 1) // a) if a else 0  # rounded up
  last = "" if field.answer_column is None else digit_of_b
  return f"{text}*{last}{str(b).zfill(j)}"
