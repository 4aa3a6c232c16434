"""This module lists all receptive fields that the rows of a model can have.

A survey of a model has every receptive field that a row can have at any size.
Each comes with the rows that have it at the sizes surveyed, and with all its
contexts. A lemma says which sizes have to be surveyed so that none is missing:
the lemma for outputs with one axis is proved here, that for grids in
certify.running_sums.

Lemma. Let the conditions of certify.conditions hold, and let

- W be the width: the number of places that numbers are padded to or, in tasks
  without padding tokens, that the output has;
- a *hop* be the most by which one layer can move a place (see `hops`);
- C be the sum of the hops of all layers of self- and encoder-attention and of
  the longest hop of cross-attention (see `context_radius`);
- g and p be the transducer's preperiod and period: g or more places that a
  receptive field does not look at can be followed by the same digits and
  outputs as p more of them;
- D = 2C + marks + slack + g, where marks are the tokens that hold no digit and
  no output (see `marks`), and slack is the task's least number of padding
  zeros;
- T be the period of a cyclic index, 1 without one.

Then every row at every width W > 3 (D + T·p) has the receptive field, and the
contexts, of a row at a smaller width.

Proof. Every input has a place: an output's is that of the token its row must
say, a digit's its own. Along a line, the place of the key is ± the row's place,
or 0, or their mirror image W - ..., plus a constant that is at most the hop. A
path down from row i takes self-attention hops, at most one cross-attention hop,
then encoder hops; so every place met is within C of 0, i, W - i or W. Call
these four the centers. Whether a cell is open, which of two inputs comes first
and whether a place is padding are comparisons of two places met, or of one with
an end of its segment, up to marks and slack. While neighboring centers are more
than D apart, such comparisons between their neighborhoods do not depend on how
far apart they are, and more than g places between them are not looked at, so
contexts depend on the number of these places modulo p alone. If W > 3 (D +
T·p), one of the distances min(i, W - i) and |W - 2i| between neighboring
centers is above D + T·p. Shorten it by T·p; min(i, W - i) occurs twice, and is
shortened at both ends. It stays above D, so no comparison changes. Indices move
by multiples of T and keep their phase, and inputs stay in their segments; the
runs of places that are not looked at shorten by multiples of p, and contexts
stay the same. Repeat until W <= 3 (D + T·p). So the receptive fields of all
widths up to there are those of all widths. At data.width=fixed there is one
width, and nothing to prove.

A context holds the true outputs of earlier places, as in teacher forcing:
greedy decoding has the same inputs until its first error, and a first error is
an error in a context.
"""

import abc
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import jax
import numpy as np

from lengthgen_jax.attention.lines import LEFT, WHOLE, SiteLines
from lengthgen_jax.certify import receptive_fields
from lengthgen_jax.certify.receptive_fields import (
  Layout,
  ReceptiveField,
  Row,
  Size,
  num_layers,
)
from lengthgen_jax.certify.transducer import Contexts, Transducer
from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import dataset, packing
from lengthgen_jax.tasks.task import Task

MAX_CELLS = 1 << 28  # of all biases at one size: a gibibyte
# Arrays have room for a multiple of this width, so that one compiled program
# serves many widths.
WIDTH_MULTIPLE = 32
DENSE_ROWS = 100_000  # rows whose logits are compared with the dense path

Scaffold = dict[str, SiteLines]  # the lines of one seed, by site
Context = Sequence[int] | np.ndarray  # a value for each column
# A function of ("digit" or "output", operand, place) to the token ids [B] that
# B inputs hold there. Operands are those of the tape's transducer (in a grid
# the first number, a digit of the second one, and the running sum before), 0
# for an output. The place is -1 for a digit that all places share.
Values = Callable[[str, int, int], np.ndarray]
SizeT = TypeVar("SizeT", int, tuple[int, int])  # a Size


class RowGroup(NamedTuple):
  """All surveyed rows that have one receptive field.

  Attributes:
    receptive_field: what the logits of each of these rows are a function of.
    rows: the rows, those of the smallest sizes first.
    contexts: all Contexts of the receptive field.
  """

  receptive_field: ReceptiveField
  rows: list[Row]
  contexts: Contexts


class Survey(abc.ABC, Generic[SizeT]):
  """Everything that a certificate has to check of one model.

  There is a subclass for outputs with one axis and one for grids, each with a
  lemma that says which sizes have all receptive fields that there are. A *tape*
  is a run of outputs that one transducer writes: a sequence is one tape, a grid
  has one for each row.

  Attributes:
    experiment: the experiment that the model belongs to.
    scaffold: the model's lines, by site.
    transducer: the Transducer of the task; of a grid, that of all rows but the
      first.
  """

  transducer: Transducer

  def __init__(self, experiment: Experiment, scaffold: Scaffold):
    """Prepares a survey; `groups` reads off the receptive fields."""
    self.experiment, self.scaffold = experiment, scaffold

  # What a subclass defines.

  @property
  @abc.abstractmethod
  def largest(self) -> SizeT:
    """Returns the largest size that is surveyed."""

  @abc.abstractmethod
  def sizes(self) -> Iterable[SizeT]:
    """Returns all sizes that are surveyed, the smallest first."""

  @abc.abstractmethod
  def bound(self, largest: SizeT) -> SizeT:
    """Returns the size that arrays have room for at all sizes up to `largest`,
    so that one compiled program serves them."""

  @abc.abstractmethod
  def tapes(self, size: SizeT, batch: packing.Batch) -> Iterator[Layout]:
    """Yields the Layout of every tape, without its open cells, of a batch whose
    examples all have this size."""

  @abc.abstractmethod
  def random_inputs(
    self, rng: np.random.Generator, count: int, size: SizeT
  ) -> np.ndarray:
    """Returns random inputs of a size: digits [count, operands, places]."""

  @abc.abstractmethod
  def values(
    self, items: np.ndarray, batch: packing.Batch, size: Size, tape: int
  ) -> Values:
    """Returns a function that looks up the digits and outputs of one tape, as
    token ids, in B inputs.

    Args:
      items: the digits of the inputs, as token ids [B, operands, places].
      batch: the batch that is made of them.
      size: the width that their operands are padded to, of a grid both widths.
      tape: the number of the tape.
    """

  @abc.abstractmethod
  def rows_compared(self) -> tuple[list[tuple[RowGroup, Row]], int]:
    """Returns the rows whose logits are compared with the dense path, and on
    how many random inputs each."""

  @abc.abstractmethod
  def counterexamples(
    self, group: RowGroup, thin: list, model: Model
  ) -> list[str]:
    """Returns inputs that the model answers wrongly, in the text form that
    --mode=predict reads.

    Args:
      group: the rows of one receptive field.
      thin: the (margin, context) pairs of the contexts with the smallest
        margins (`Tally.thin` in certificate.py), at least one. An input with
        the context is returned if the margin is not positive and the model is
        wrong on the whole input.
      model: the model that was surveyed.
    """

  @abc.abstractmethod
  def draw_texts(
    self,
    group: RowGroup,
    context: Context,
    count: int,
    rng: np.random.Generator,
  ) -> list[str]:
    """Draws at most `count` inputs that have a context, in the text form of
    --mode=predict, and are no longer than in training."""

  # What is the same for sequences and grids.

  @functools.cached_property
  def groups(self) -> list[RowGroup]:
    """Returns all surveyed rows, grouped by their receptive field, in the order
    of the sizes at which these occur first.

    Raises:
      UsageError: the sizes do not fit in memory, or a row depends on something
        that the lemma leaves out.
    """
    check_memory(self.experiment, self.scaffold, self.largest)
    rows = {}
    for size in self.sizes():
      for field, row in self.rows_at(size, self.largest):
        rows.setdefault(field, []).append(row)
    return [
      RowGroup(field, group_rows, Contexts(field.transducer, field.steps))
      for field, group_rows in rows.items()
    ]

  @property
  def cases(self) -> int:
    """Returns the number of contexts of all receptive fields."""
    return sum(group.contexts.count for group in self.groups)

  def layouts(self, size: SizeT, largest: SizeT) -> Iterator[Layout]:
    """Yields the Layout of every tape at a size, with its open cells.

    They are read off the biases that the model computes with. One compiled
    program serves all sizes up to `largest`.
    """
    experiment = self.experiment
    batch, biases = jax.tree.map(
      np.asarray,
      receptive_fields.batch_and_biases(
        experiment,
        self.scaffold,
        np.array(size, np.int32),
        self.bound(largest),
      ),
    )
    cells = receptive_fields.open_cells(experiment, biases)  # of all tapes
    for tape in self.tapes(size, batch):
      yield tape._replace(cells=cells)

  def rows_at(
    self, size: SizeT, largest: SizeT
  ) -> Iterator[tuple[ReceptiveField, Row]]:
    """Yields the receptive field of every scored row at a size, and the row.

    Args:
      size: the size of the inputs.
      largest: the largest size that the compiled program is to serve, as in
        `layouts`.

    Raises:
      UsageError: a row depends on something that the lemma leaves out.
    """
    for layout in self.layouts(size, largest):
      for row_index in layout.places:
        yield receptive_fields.of_row(layout, row_index)

  def contexts_of(
    self,
    field: ReceptiveField,
    row: Row,
    items: np.ndarray,
    batch: packing.Batch,
  ) -> np.ndarray:
    """Returns the contexts [B, columns] that B inputs have at a row.

    Args:
      field: the receptive field of the row.
      row: the row.
      items: the digits of the inputs, [B, operands, places], of the row's size.
      batch: the batch that is made of them.
    """
    values = self.values(items, batch, row.size, row.tape)
    columns = field.columns
    contexts = np.zeros((len(items), len(columns)), np.uint8)
    for (kind, operand, number), column in columns.items():
      place = row.places[number] if number >= 0 else -1
      contexts[:, column] = values(kind, operand, place)
    return contexts

  def check_task(
    self, items: np.ndarray, batch: packing.Batch, size: SizeT
  ) -> None:
    """Checks on inputs [B, operands, places] and their batch that the task does
    what its transducer and its coordinates say.

    Its outputs must be those of its transducer, and every input of its batches
    must hold the mark, the digit or the output that its coordinates say.

    Raises:
      UsageError: some output or input differs.
    """
    name = self.experiment.task.name
    ids = {"decoder": batch.inputs, "encoder": batch.source}
    for layout in self.tapes(size, batch):
      where = f"tape {layout.tape} of size {size}"
      values = self.values(items, batch, size, layout.tape)
      task = layout.transducer.task
      state = np.full(len(items), task.initial_state)
      # A tape whose only row has the place of the end token has no outputs.
      has_outputs = set(layout.places.values()) != {layout.width}
      for place in range(layout.width) if has_outputs else ():
        symbols = [
          values(
            "digit", operand, -1 if operand in task.shared_operands else place
          )
          for operand in range(task.operands)
        ]
        state, output = task.step(state, symbols)
        check(
          np.array_equal(output, values("output", 0, place)),
          f"certify: {name}'s answers are not its transducer's: place {place},"
          f" {where}",
        )
      for stack, tokens in layout.tokens.items():
        for index, token in enumerate(tokens):
          if token.kind == "outside":  # of another tape, or another digit of b
            continue
          expected = token.id if token.kind == "mark" else values(*token.key)
          check(
            bool(np.all(np.asarray(ids[stack])[:, index] == expected)),
            f"certify: {name}'s {stack} input {index}, {where}, is not always"
            f" the {token.kind} that the task says it holds",
          )


def find_input(
  field: ReceptiveField,
  row: Row,
  context: Context,
  nonzero_places: int,
  rng: np.random.Generator | None = None,
) -> np.ndarray:
  """Returns digits [operands, width] of an input that has a context at a row.

  Args:
    field: the receptive field of the row.
    row: the row.
    context: one of the receptive field's contexts.
    nonzero_places: how many places of the input may be other than zero.
    rng: chooses among such inputs; None takes the first that is found.
  """
  shared, digits, outputs = 0, {}, {}
  for (kind, operand, number), column in field.columns.items():
    value = int(context[column])
    if number < 0:
      shared = value
    elif kind == "output":
      outputs[row.places[number]] = value
    else:
      digits[operand, row.places[number]] = value
  items = field.transducer.find_input(
    shared, digits, outputs, row.width, nonzero_places, rng
  )
  assert items is not None  # every context occurs at every such row
  return items


class SequenceSurvey(Survey[int]):
  """The survey of a model whose outputs have one axis; see the lemma above.

  Attributes:
    widths: the widths that are surveyed; their receptive fields are those of
      all widths.
  """

  def __init__(self, experiment: Experiment, scaffold: Scaffold):
    super().__init__(experiment, scaffold)
    self.transducer = _transducer(experiment.task)
    fixed = experiment.fixed_width
    self.widths = (
      lemma_widths(experiment, scaffold, self.transducer)
      if fixed is None
      else range(fixed, fixed + 1)
    )

  @property
  def largest(self) -> int:
    return self.widths[-1]

  def sizes(self) -> Iterable[int]:
    return self.widths

  def bound(self, largest: int) -> int:
    return -(-largest // WIDTH_MULTIPLE) * WIDTH_MULTIPLE

  def tapes(self, size: int, batch: packing.Batch) -> Iterator[Layout]:
    scored = np.flatnonzero(batch.weight[0] > 0).tolist()
    yield Layout(
      transducer=self.transducer,
      tape=0,
      size=size,
      width=size,
      nonzero_places=self.experiment.nonzero_places(size),
      depth=receptive_fields.depths(self.experiment),
      tokens=receptive_fields.tokens_by_stack(self.experiment, batch),
      places={row: int(batch.rows.left[0, row, 0]) for row in scored},
    )

  def random_inputs(
    self, rng: np.random.Generator, count: int, size: int
  ) -> np.ndarray:
    """Returns random digits [count, operands, W], as tokens.

    About a third of the inputs has uniform digits, and a third only the digits
    0 and base - 1. In the last third the digits of two operands, neither of
    them shared, mostly sum to base - 1, so that carries run far; in other tasks
    each digit is uniform. Padding holds 0, and so do all but the first place of
    a shared operand.
    """
    task = self.transducer.task
    shape = (count, task.operands, size)
    uniform = rng.integers(0, task.base, shape)
    extreme = (task.base - rng.integers(0, 2, shape)) % task.base
    kind = rng.integers(0, 3, (count, 1, 1))
    carrying = uniform.copy()
    carrying[:, 1:2] = task.base - 1 - uniform[:, : task.operands - 1][:, :1]
    is_uniform = rng.random(shape) < 0.1
    carrying = np.where(is_uniform, uniform, carrying)
    items = np.choose(kind, [uniform, extreme, carrying])
    items[:, :, self.experiment.nonzero_places(size) :] = 0
    for operand in self.transducer.shared:
      items[:, operand, 1:] = 0
    return items.astype(np.int32) + task.first_item

  def values(
    self, items: np.ndarray, batch: packing.Batch, size: Size, tape: int
  ) -> Values:
    target, first = (
      np.asarray(batch.target),
      int(np.asarray(batch.first_scored)[0]),
    )
    return lambda kind, operand, place: (
      target[:, first + place]
      if kind == "output"
      else items[:, operand, max(place, 0)]
    )

  def rows_compared(self) -> tuple[list[tuple[RowGroup, Row]], int]:
    rows = [(group, row) for group in self.groups for row in group.rows]
    return rows, -(-DENSE_ROWS // len(rows))

  def counterexamples(
    self, group: RowGroup, thin: list, model: Model
  ) -> list[str]:
    row, task = group.rows[0], self.experiment.task
    places = self.experiment.nonzero_places(row.width)
    inputs = [
      find_input(group.receptive_field, row, context, places)
      for _, context in thin
    ]
    lengths = np.full(task.operands, places)
    parsed = [(items, lengths) for items in inputs]
    # All are padded to one width, so that one compiled program serves them.
    bound = max(row.width for group in self.groups for row in group.rows)
    batch = dataset.parsed_batch(
      task, self.experiment.kind, parsed, row.width, bound
    )
    exact = np.asarray(model.matches(batch)[1])
    return [
      task.input_text(items, places)
      for items, is_right, (margin, _) in zip(inputs, exact, thin, strict=True)
      if margin <= 0 and not is_right
    ]

  def draw_texts(
    self,
    group: RowGroup,
    context: Context,
    count: int,
    rng: np.random.Generator,
  ) -> list[str]:
    experiment, texts = self.experiment, []
    longest = experiment.task.units(experiment.train_length)
    rows = [
      row
      for row in group.rows
      if experiment.nonzero_places(row.width) <= longest
    ]
    if not rows:
      return []
    for _ in range(count):
      row = rows[rng.integers(len(rows))]
      places = experiment.nonzero_places(row.width)
      items = find_input(group.receptive_field, row, context, places, rng)
      texts.append(experiment.task.input_text(items, places))
    return texts


_transducer = functools.cache(Transducer)


# The sizes of the lemma.


def hops(experiment: Experiment, site: str, lines: SiteLines) -> np.ndarray:
  """Returns how far lines of a site can move a place along the last axis.

  That is the size of the intercept, corrected for what makes a key's place
  differ from its coordinate. In self-attention the key that holds an output is
  the row that must say the next one; in a single sequence a row of the prompt,
  too, says the token after its own. Lines over the whole sequence count marks.
  A place of interleaved operands is two tokens.

  Returns:
    [N or 1], for each of N layers the farthest that one of its lines can move a
    place.
  """
  task = experiment.task
  intercept = lines.intercept[..., -1]
  packed = site == "self" and experiment.kind == "decoder_only"
  whole, outputs = lines.segment == WHOLE, lines.segment == task.target_segment
  hop = np.abs(intercept) + packed
  if site != "self" and 2 in task.strides:
    hop = (hop + 1) // 2 + 1
  if site == "self":
    left = lines.anchor == LEFT
    to_output = np.where(left, np.abs(intercept + 1), np.abs(intercept) + 1)
    hop = np.where(outputs, to_output, hop)
  if site != "self" or packed:
    # Such lines count the marks of the prompt except the first one and, in a
    # single sequence, also the mark between prompt and output.
    num_marks = max(marks(task) - (2 if packed else 3), 0)
    hop = np.where(whole, np.abs(intercept) + num_marks, hop)
  hop = np.where(lines.valid, hop, 0)
  return hop.reshape(len(hop), -1).max(axis=1, initial=0)


def marks(task: Task) -> int:
  """Returns how many tokens of a sequence hold no digit and no output, at most.

  These are the tokens of the prompt whose number does not grow with the width
  (the single digit of N×1 counts too), the start token and the end token, which
  counts even in tasks without one.
  """
  return 2 + 2 * task.prompt_size(1) - task.prompt_size(2)


def context_radius(experiment: Experiment, scaffold: Scaffold) -> int:
  """Returns the lemma's C: how far from a center a row's places extend."""
  total = 0
  for site, lines in scaffold.items():
    hop = hops(experiment, site, lines)
    if site == "cross":
      total += int(hop.max(initial=0))
    elif len(hop) > 1:
      total += int(hop.sum())
    else:
      total += num_layers(experiment, site) * int(hop[0])
  return total


def lemma_widths(
  experiment: Experiment, scaffold: Scaffold, transducer: Transducer
) -> range:
  """Returns the widths W that the lemma asks to survey.

  They range from the width of numbers of one digit to 3 (D + T·p).
  """
  task = experiment.task
  radius = context_radius(experiment, scaffold)  # C
  distance = 2 * radius + marks(task) + task.slack + transducer.preperiod  # D
  index_period = experiment.model.config.positions.cyclic_period or 1  # T
  period = index_period * transducer.period  # T·p
  return range(1 + task.slack, 3 * (distance + period) + 1)


def check_memory(
  experiment: Experiment, scaffold: Scaffold, largest: Size
) -> None:
  """Checks, before a survey begins, that the largest size's biases can be held.

  Raises:
    UsageError: they have too many cells; the message names the line that
      reaches farthest, or the fixed width.
  """
  cells = 0
  for site, (rows, keys) in experiment.site_sizes(largest).items():
    if site in scaffold:
      heads = experiment.model.config.num_heads
      layers = min(num_layers(experiment, site), len(scaffold[site].valid))
      cells += layers * heads * rows * keys
  if cells <= MAX_CELLS:
    return
  check(
    experiment.fixed_width is None,
    f"data.width=fixed: inputs of width {largest} take {cells:.2g} cells at"
    f" once, more than {MAX_CELLS:.2g}; choose a smaller data.fixed_width",
  )
  farthest = (-1, "")
  for site, lines in scaffold.items():
    intercept = np.where(lines.valid[..., None], lines.intercept, 0)
    index = np.unravel_index(np.abs(intercept).argmax(), intercept.shape)
    layer, head, *_ = index
    offset = int(intercept[index])
    description = f"{site}-attention, layer {layer}, head {head}: {offset:+d}"
    farthest = max(farthest, (abs(offset), description))
  raise UsageError(
    f"certify: sizes up to {largest} would have to be surveyed, which takes"
    f" {cells:.2g} cells at once, more than {MAX_CELLS:.2g}; the largest offset"
    f" of a line is that of {farthest[1]}; nearer lines (calibration.reach,"
    " bias.window), a smaller positions.cyclic_period or a smaller"
    " arithmetic.slack would help"
  )
