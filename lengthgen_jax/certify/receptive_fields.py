"""This module reads off what the logits of a row depend on, at one size.

The receptive field of a row is everything that its logits are a function of:
the tokens that the row depends on, and which states attend to which, in every
layer and head, with what bias. Its places are numbered in order, so that rows
at different places and sizes can have the same receptive field. It is read off
the open cells of the model's own biases at one size (a Layout), from the last
layer down: a row's state after a layer is a function of its state before and of
the states (not the tokens alone) at the keys that it sees.

The lemmas of certify.survey and certify.running_sums say at which sizes this
has to be done so that no receptive field is missing.
"""

import itertools
from typing import NamedTuple

import jax
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.attention.lines import SiteLines
from lengthgen_jax.certify.transducer import Gap, Key, Place, Step, Transducer
from lengthgen_jax.compilation import jit_unoptimized
from lengthgen_jax.coordinates import Array, Coordinates, Places
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import packing

# W, to which the operands of an input are padded; in a grid (N, M), their
# lengths.
Size = int | tuple[int, int]
# {(stack, site, layer, row): ((key, bias by head), ...)}, the open cells of
# every row; layers are counted from 0, and a bias by head is a tuple [H].
Cells = dict[tuple[str, str, int, int], tuple]


class Token(NamedTuple):
  """What an input of the model holds, without its value.

  Attributes:
    kind: "mark" (always the same token), "digit" or "output"; "outside" for a
      digit or an output that the proof for grids does not allow a row to depend
      on.
    id: the id of the token for a mark, the operand for a digit, 0 for an
      output.
    place: the place of the digit or output; -1 for a mark, and for a digit that
      all places share. In a receptive field, its number among the row's places.
    phase: the input's index modulo the period of a cyclic index; 0 without one.
    segment: the input's segment; 0 if the model has no segment embedding.
  """

  kind: str
  id: int
  place: int
  phase: int
  segment: int

  @property
  def key(self) -> Key:
    """The key of the token's value among a context's columns."""
    return self.kind, self.id, self.place


class Layout(NamedTuple):
  """All that the receptive fields of one tape are read off.

  A tape is a run of outputs that one transducer writes. A stack is "encoder" or
  "decoder".

  Attributes:
    transducer: the Transducer of the tape's outputs.
    tape: the number of the tape.
    size: the Size of the inputs.
    width: how many places the tape has.
    nonzero_places: how many of them may have digits other than zero.
    depth: how many layers each stack has.
    tokens: the Token of every input, by stack.
    places: {row: place of the output that it must say}, the rows of the tape;
      the end token's place is the width.
    cells: the open cells of every row, of all tapes.
  """

  transducer: Transducer
  tape: int
  size: Size
  width: int
  nonzero_places: int
  depth: dict[str, int]
  tokens: dict[str, list[Token]]
  places: dict[int, int]
  cells: Cells = {}

  def open_keys(self, stack: str, layer: int, row: int) -> tuple[tuple, tuple]:
    """Returns a row's open cells ((key, bias by head), ...) in a layer: those
    of self- and those of cross-attention, () where the layer has none."""
    if stack == "encoder":
      return self.cells[stack, "encoder", layer, row], ()
    cross_keys = self.cells.get((stack, "cross", layer, row), ())
    return self.cells[stack, "self", layer, row], cross_keys


class Node(NamedTuple):
  """What a row's state after a layer is computed from.

  States are numbered by the inputs of their stack that the receptive field has.

  Attributes:
    previous: the row's state before the layer.
    self_keys: ((state, bias by head), ...) that self-attention sees.
    cross_keys: ((state, bias by head), ...) that cross-attention sees.
  """

  previous: int
  self_keys: tuple
  cross_keys: tuple


class ReceptiveField(NamedTuple):
  """Everything that the logits of a row are a function of.

  Attributes:
    transducer: the Transducer of the outputs.
    tokens: ((stack, tokens), ...): by stack, the Token of every input.
    layers: ((stack, layer, nodes), ...) from the bottom up, layers counted from
      1; nodes are pairs of a number among the stack's inputs and its Node. The
      last layer has one node, which is that of the row.
    steps: the neighborhood (certify.transducer): the places whose digits or
      outputs the row depends on, that of what it must say, and the gaps before
      and between them; in a grid, also the gap after them.
    answer_column: the column of the contexts that holds what the row must say;
      None where that is the end token.
  """

  transducer: Transducer
  tokens: tuple
  layers: tuple
  steps: tuple[Step, ...]
  answer_column: int | None

  @property
  def columns(self) -> dict[Key, int]:
    """Returns the column of its contexts that holds each value; see
    Transducer.columns."""
    return self.transducer.columns(self.steps)

  def right_tokens(self, contexts: np.ndarray) -> np.ndarray:
    """Returns the id [B] of the token that the row must say in each of the
    contexts [B, columns]."""
    if self.answer_column is None:
      return np.full(len(contexts), self.transducer.task.end)
    return contexts[:, self.answer_column].astype(int)


class Row(NamedTuple):
  """A row at one size.

  Attributes:
    size: the Size of the inputs.
    width: how many places its tape has.
    tape: the number of the row's tape.
    index: the index of the row in the decoder.
    place: the place of the output that it must say; for the end token, the
      width.
    places: the places that its neighborhood looks at, ascending; the index of
      a place is its number in the receptive field.
  """

  size: Size
  width: int
  tape: int
  index: int
  place: int
  places: tuple[int, ...]


def depths(experiment: Experiment) -> dict[str, int]:
  """Returns the number of layers of every stack, "encoder" and "decoder"."""
  config = experiment.model.config
  return {
    "encoder": config.num_encoder_layers,
    "decoder": config.num_decoder_layers,
  }


def num_layers(experiment: Experiment, site: str) -> int:
  """Returns how many layers have an attention site, "encoder", "self" or
  "cross"."""
  return depths(experiment)["encoder" if site == "encoder" else "decoder"]


def batch_and_biases(
  experiment: Experiment,
  scaffold: dict[str, SiteLines],
  size: np.ndarray,
  bound: Size,
) -> tuple[packing.Batch, dict[str, Array]]:
  """Returns a batch of one example of a size, and its dense biases by site.

  The biases are those that the program itself adds: [N or 1, H, T, S] for N
  layers, T rows and S keys. `size` is a Size as an array, [] or [2], so that
  one compiled program serves all sizes up to `bound`.
  """
  length, index = experiment.nonzero_places(size), np.zeros(1, np.int32)
  batch = experiment.random_batch(jax.random.key(0), index, length, size, bound)
  return batch, _dense_biases(experiment, scaffold, batch)


@jit_unoptimized(0)
def _dense_biases(
  experiment: Experiment, scaffold: dict[str, SiteLines], batch: packing.Batch
) -> dict[str, Array]:
  """Returns the dense biases of a batch of one example by site."""
  biases = experiment.site_inputs(scaffold, batch).biases
  return {site: bias.values[:, 0] for site, bias in biases.items()}


def open_cells(experiment: Experiment, biases: dict[str, np.ndarray]) -> Cells:
  """Returns the open cells of a Layout.

  Args:
    experiment: the experiment that the model belongs to.
    biases: by site, the dense biases [N or 1, H, T, S].
  """
  cells = {}
  for site, values in biases.items():
    stack = "encoder" if site == "encoder" else "decoder"
    for layer in range(num_layers(experiment, site)):
      bias = values[layer if len(values) > 1 else 0]  # [H, T, S]
      rows, keys = np.nonzero((bias != CLOSED).any(axis=0))
      by_head = map(tuple, bias[:, rows, keys].T.tolist())
      open_keys = list(zip(keys.tolist(), by_head, strict=True))
      ends = np.searchsorted(rows, np.arange(bias.shape[1] + 1)).tolist()
      for row, (start, end) in enumerate(itertools.pairwise(ends)):
        cells[stack, site, layer, row] = tuple(open_keys[start:end])
  return cells


def tokens_by_stack(
  experiment: Experiment, batch: packing.Batch
) -> dict[str, list[Token]]:
  """Returns the Token of every input of a batch, by stack, for tasks whose
  outputs have one axis.

  The examples of the batch have one size, so the first one's Tokens serve all.
  """
  decoder = batch.inputs, batch.keys, batch.places
  stacks = {"decoder": _tokens(experiment, *decoder, False)}
  if batch.source is not None:
    assert batch.source_keys is not None and batch.source_places is not None
    from_right = experiment.model.config.positions.source_anchor == "right"
    source = batch.source, batch.source_keys, batch.source_places
    stacks["encoder"] = _tokens(experiment, *source, from_right)
  return stacks


def embedded_segments(experiment: Experiment, places: Places) -> list[int]:
  """Returns the segment whose learned vector each input of a stack has; 0 for
  all if the model has no segment embedding.

  `places` are those of the stack's inputs, in a batch of one size.
  """
  last = experiment.model.config.num_segments - 1
  return np.minimum(np.asarray(places.segment[0]), last).tolist()


def _tokens(
  experiment: Experiment,
  ids,
  keys: Coordinates,
  places: Places,
  from_right: bool,
) -> list[Token]:
  """Returns the Token of every input of a stack.

  Args:
    experiment: the experiment that the model belongs to.
    ids: [B, L], the ids of the inputs, of which the first example's are used.
    keys: the coordinates of the inputs.
    places: the places of the inputs.
    from_right: whether cyclic indices count from the last input, else from the
      first.
  """
  task = experiment.task
  period = experiment.model.config.positions.cyclic_period or 1
  index = keys.index_right()[0] if from_right else keys.index
  embedded = embedded_segments(experiment, places)
  tokens = []
  for i, segment in enumerate(keys.segment[0]):
    left, right = int(keys.left[0, i, 0]), int(keys.right[0, i, 0])
    inputs = int(index[i]) % period, embedded[i]
    if segment == task.target_segment and ids[0, i] != task.end:
      tokens.append(Token("output", 0, left, *inputs))
    elif 0 <= segment < task.target_segment and (
      operand_place := task.operand_place(int(segment), left, right)
    ):
      operand, place = operand_place
      place = -1 if operand in task.shared_operands else place
      tokens.append(Token("digit", operand, place, *inputs))
    else:
      tokens.append(Token("mark", int(ids[0, i]), -1, *inputs))
  return tokens


def of_row(layout: Layout, index: int) -> tuple[ReceptiveField, Row]:
  """Returns the receptive field of a row of the decoder, and the Row; `index`
  is one of `layout.places`."""
  depth, answer_place = layout.depth, layout.places[index]
  # {(stack, layer): rows whose states after the layer are needed}.
  needed = {("decoder", depth["decoder"]): {index}}
  downward = [("decoder", n) for n in range(depth["decoder"], 0, -1)]
  downward += [("encoder", n) for n in range(depth["encoder"], 0, -1)]
  for stack, n in downward:
    below = needed.setdefault((stack, n - 1), set())
    encoded = needed.setdefault(("encoder", depth["encoder"]), set())
    for i in needed.get((stack, n), ()):
      self_keys, cross_keys = layout.open_keys(stack, n - 1, i)
      below |= {i} | {key for key, _ in self_keys}
      encoded |= {key for key, _ in cross_keys}
  inputs = {
    stack: sorted(needed.get((stack, 0), ()))
    for stack in ("encoder", "decoder")
  }
  numbers = {
    stack: {i: number for number, i in enumerate(indices)}
    for stack, indices in inputs.items()
  }
  layers = []
  for stack, n in reversed(downward):
    number, encoder_number = numbers[stack], numbers["encoder"]
    nodes = []
    for i in sorted(needed.get((stack, n), ())):
      self_keys, cross_keys = layout.open_keys(stack, n - 1, i)
      node = Node(
        number[i],
        tuple((number[key], bias) for key, bias in self_keys),
        tuple((encoder_number[key], bias) for key, bias in cross_keys),
      )
      nodes.append((number[i], node))
    if nodes:  # an encoder that no row sees has none
      layers.append((stack, n, tuple(nodes)))
  tokens = {
    stack: [layout.tokens[stack][i] for i in indices]
    for stack, indices in inputs.items()
  }
  places, steps, answer_column = _neighborhood(layout, tokens, answer_place)
  number = {place: k for k, place in enumerate(places)}
  renumber = lambda token: token._replace(place=number.get(token.place, -1))
  renumbered = tuple(
    (stack, tuple(map(renumber, stack_tokens)))
    for stack, stack_tokens in tokens.items()
  )
  field = ReceptiveField(
    layout.transducer, renumbered, tuple(layers), steps, answer_column
  )
  size = layout.size, layout.width, layout.tape
  return field, Row(*size, index, answer_place, places)


def _neighborhood(
  layout: Layout, tokens: dict[str, list[Token]], answer_place: int
) -> tuple[tuple[int, ...], tuple[Step, ...], int | None]:
  """Returns the neighborhood of a row.

  Args:
    layout: the Layout of the row's tape.
    tokens: the Tokens that the row depends on, by stack.
    answer_place: the place of what the row must say.

  Returns:
    The places of the tokens and of what the row must say, ascending; the steps
    over them; and the column of what it must say (None for the end token).
  """
  transducer = layout.transducer
  operands, outputs = {}, {answer_place} - {layout.width}
  for token in itertools.chain(*tokens.values()):
    if token.kind == "digit" and token.id not in transducer.shared:
      operands.setdefault(token.place, set()).add(token.id)
    if token.kind == "output":
      outputs.add(token.place)
  places = tuple(sorted(set(operands) | outputs))
  steps, next_place = [], 0
  for place in places:
    if place > next_place:
      first_padding = max(next_place, layout.nonzero_places)
      padding = max(place - first_padding, 0)
      gap = Gap(place - next_place - padding, padding)
      steps.append(transducer.shorten(gap))
    step_operands = tuple(sorted(operands.get(place, ())))
    is_padding = place >= layout.nonzero_places
    steps.append(Place(step_operands, place in outputs, is_padding))
    next_place = place + 1
  if answer_place == layout.width:
    return places, tuple(steps), None
  answer = "output", 0, places.index(answer_place)
  return places, tuple(steps), transducer.columns(steps)[answer]
