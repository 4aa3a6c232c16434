"""This module reads off what the logits of a row depend on, at every width.

A *view*, or receptive field, is everything that the logits of one row are a
function of: which states meet which states in which head of which layer and
with what bias, and which tokens stand at the bottom of it, up to renaming. It
is read off the open cells of the model's own biases at one width (a Layout),
from the row down: a row's state after a layer is a function of its state before
and of the states (not the tokens) at the keys that it sees. Rows of different
places and widths have the same view where only the numbers of their places
differ. Finitely many views are all there are:

Lemma. Let the conditions of certify.conditions hold. Let a *hop* be the most by
which one layer can move a place (see `hops`), C the sum of the hops of all
self- and encoder-attention and of the longest hop of cross-attention, and D =
2C + marks + slack + g, where g and p are how long an unseen gap must be to
forget how long it is, and the period at which it does (certify.transducer). Let
T be the period of the index, 1 without one. Then every row at every width W > 3
(D + T·p) has the view, and the reachable contexts, of a row at a smaller width.

Proof. Every input has a place: an output's is that of the token its row must
say, a digit's its own. Along a line, the place of the key is ± the row's place,
or 0, or their mirror image W - ..., plus a constant that is at most the hop. A
path down from row i takes self-attention hops, at most one cross-attention hop,
then encoder hops; so every place met is within C of 0, i, W - i or W. Call
these four the anchors. Whether a cell is open, which of two inputs comes first
and whether a place is padding are comparisons of two places met, or of one with
an end of its segment, up to marks and slack. While neighboring anchors are more
than D apart, such comparisons between their neighborhoods do not depend on how
far, and the unseen places between them are more than g, so contexts do not
depend on how many they are modulo p. If W > 3 (D + T·p), one of the gaps min(i,
W - i) and |W - 2i| is above D + T·p. Shorten it by T·p (if it is the first,
both of its copies): it stays above D, so no comparison changes; indices move by
multiples of T and keep their phase; unseen gaps by multiples of p, and keep
their contexts. Repeat until W <= 3 (D + T·p). So the views of all widths up to
there are the views of all widths. At width=fixed there is one width, and
nothing to prove.

A context holds the true outputs of earlier places, as in teacher forcing:
greedy decoding shows the same until its first error, and a first error is an
error in a context.
"""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.attention.lines import LEFT, WHOLE, SiteLines
from lengthgen_jax.certify.transducer import Gap, Position, Transducer
from lengthgen_jax.errors import UsageError
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import dataset, packing
from lengthgen_jax.tasks.task import Task

MAX_CELLS = 1 << 28  # of all layers' and heads' biases at one size: a gibibyte
WIDTH_MULTIPLE = 32  # arrays are padded to it: one program serves many widths


class Token(NamedTuple):
  """A Token says what an input of the model holds, without its value.

  Attributes:
    kind: "mark" (always the same token), "given" (a digit of an operand) or
      "said" (an output).
    which: the mark's id, the operand's number, 0 for an output.
    place: the place of the digit or output, -1 for a digit that all places
      share; in a view, its number among the view's places.
    phase: the input's index mod T.
  """

  kind: str
  which: int
  place: int
  phase: int

  @property
  def key(self) -> tuple:
    """The key (kind, which, place) says whose value the input holds."""
    return self.kind, self.which, self.place


class Layout(NamedTuple):
  """A Layout is all that views are read off at one width.

  A stack is "encoder" or "decoder".

  Attributes:
    width: W.
    nonzero_places: how many places may be other than zero.
    tokens: the Token of every input, by stack.
    cells: (stack, site, layer, row) -> ((key, bias by head), ...).
    rows: (row, place) of every output; the end token's place is W.
    size: what the input is padded to: W, or (N, M) of a grid.
  """

  width: int
  nonzero_places: int
  tokens: dict[str, list[Token]]
  cells: dict[tuple[str, str, int, int], tuple]
  rows: list[tuple[int, int]]
  size: int | tuple[int, int]


@partial(jax.jit, static_argnums=(0, 3))
def batch_and_biases(
  experiment: Experiment,
  scaffold: dict[str, SiteLines],
  width: jax.Array,
  longest: int | tuple[int, int],
) -> tuple[packing.Batch, dict[str, jax.Array]]:
  """Returns a batch of one example at a width, and its dense biases by site."""
  task = experiment.task
  batch = dataset.test_batch(
    task,
    experiment.kind,
    next(iter(task.test_sets)),
    jax.random.key(0),
    np.zeros(1, np.int32),
    experiment.nonzero_places(width),
    width,
    longest,
    (),
  )
  sites = experiment.sites(scaffold, batch)
  return batch, {site: bias.values[:, 0] for site, bias in sites.biases.items()}


def layout(
  experiment: Experiment,
  scaffold: dict[str, SiteLines],
  width: int,
  longest: int,
) -> Layout:
  """Returns tokens and open cells at a width, by the program's own biases."""
  arrays = batch_and_biases(experiment, scaffold, np.int32(width), longest)
  batch, biases = jax.tree.map(np.asarray, arrays)
  tokens = tokens_by_stack(experiment, batch)
  scored = np.flatnonzero(batch.weight[0] > 0)
  rows = [(int(row), int(batch.rows.left[0, row, 0])) for row in scored]
  cells = open_cells(experiment, tokens, biases)
  return Layout(
    width, experiment.nonzero_places(width), tokens, cells, rows, width
  )


def tokens_by_stack(
  experiment: Experiment, batch: packing.Batch
) -> dict[str, list[Token]]:
  """Returns {stack: Token of every input} of a batch of like examples."""
  tokens = {"decoder": _tokens(experiment, batch.inputs, batch.keys, False)}
  if batch.source is not None:
    right = experiment.model.config.positions.source_anchor == "right"
    source = batch.source, batch.source_keys
    tokens["encoder"] = _tokens(experiment, *source, right)
  return tokens


def open_cells(
  experiment: Experiment,
  tokens: dict[str, list[Token]],
  biases: dict[str, np.ndarray],
) -> dict[tuple[str, str, int, int], tuple]:
  """Returns the open cells of a Layout from the dense biases by site."""
  cells = {}
  for site, values in biases.items():
    stack = "encoder" if site == "encoder" else "decoder"
    layers = depths(experiment)[stack]
    for n in range(layers):
      bias = values[n if len(values) > 1 else 0]  # [H, T, S]
      rows, keys = np.nonzero((bias != CLOSED).any(axis=0))
      by_head = map(tuple, bias[:, rows, keys].T.tolist())
      seen = list(zip(keys.tolist(), by_head, strict=True))
      ends = np.searchsorted(rows, np.arange(len(tokens[stack]) + 1)).tolist()
      for row, (start, end) in enumerate(itertools.pairwise(ends)):
        cells[stack, site, n, row] = tuple(seen[start:end])
  return cells


def depths(experiment: Experiment) -> dict[str, int]:
  """Returns the number of layers of every stack."""
  config = experiment.model.config
  return {
    "encoder": config.num_encoder_layers,
    "decoder": config.num_decoder_layers,
  }


def _tokens(experiment, ids, keys, from_right: bool) -> list[Token]:
  """Returns what every input of a stack holds."""
  task = experiment.task
  period = experiment.model.config.positions.cyclic_period or 1
  index = keys.index_right()[0] if from_right else keys.index
  tokens = []
  for i, segment in enumerate(keys.segment[0]):
    left, right = int(keys.left[0, i, 0]), int(keys.right[0, i, 0])
    phase = int(index[i]) % period
    if segment == task.target_segment and ids[0, i] != task.end:
      tokens.append(Token("said", 0, left, phase))
    elif 0 <= segment < task.target_segment and (
      held := task.operand_place(int(segment), left, right)
    ):
      operand, place = held
      place = -1 if operand in task.shared_operands else place
      tokens.append(Token("given", operand, place, phase))
    else:
      tokens.append(Token("mark", int(ids[0, i]), -1, phase))
  return tokens


class Node(NamedTuple):
  """A Node is a row's state after a layer, and what it is computed from.

  Attributes:
    previous: the row's state before the layer, by its number among the stack's
      inputs that the view has.
    self_keys: ((state, bias by head), ...) that self-attention sees.
    cross_keys: ((state, bias by head), ...) that cross-attention sees.
  """

  previous: int
  self_keys: tuple
  cross_keys: tuple


class ReceptiveField(NamedTuple):
  """A view: everything that the logits of a row are a function of.

  Attributes:
    tokens: ((stack, tokens), ...): by stack ("encoder", "decoder"), the Token
      of every input met.
    layers: ((stack, layer, nodes), ...) from the bottom up; nodes are pairs of
      a number among the stack's inputs and its Node; the last one is the row.
    steps: the neighborhood: the places whose digits or outputs the row depends
      on, and the gaps between them (certify.transducer).
    answer_column: the column of the contexts that holds what the row must say;
      None where that is the end token.
    first: on a grid, whether the row is in the grid's first line of outputs,
      which has no sum before it and so other contexts.
  """

  tokens: tuple
  layers: tuple
  steps: tuple
  answer_column: int | None
  first: bool = False

  def columns(self, shared: tuple[int, ...]) -> dict[tuple[str, int, int], int]:
    """Returns the column of the contexts by a Token's key.

    Args:
      shared: the operands of one digit, which all places share.
    """
    keys = [("given", operand, -1) for operand in shared]
    places = [step for step in self.steps if isinstance(step, Position)]
    for number, step in enumerate(places):
      keys += [("given", operand, number) for operand in step.reads]
      keys += [("said", 0, number)] * step.has_output
    return {key: column for column, key in enumerate(keys)}


class RowExample(NamedTuple):
  """A RowExample is a row that has a certain view.

  Attributes:
    width: W.
    row: position of the row in the decoder.
    place: the place of the output that it must say; W is the end token's.
    places: the places that matter, in order.
    size: what the input is padded to: W, or (N, M) of a grid.
  """

  width: int
  row: int
  place: int
  places: tuple[int, ...]
  size: int | tuple[int, int]


def view(
  experiment: Experiment,
  transducer: Transducer,
  row_layout: Layout,
  row: int,
  place: int,
) -> tuple[ReceptiveField, RowExample]:
  """Returns the (ReceptiveField, Example) of a row.

  Args:
    experiment: the experiment that the model belongs to.
    transducer: the Transducer of its task.
    row_layout: the layout of the row's width.
    row: position of the row.
    place: the place of the output that the row must say.
  """
  depth = depths(experiment)
  need = {("decoder", depth["decoder"]): {row}}
  order = [("decoder", n) for n in range(depth["decoder"], 0, -1)]
  order += [("encoder", n) for n in range(depth["encoder"], 0, -1)]
  for stack, n in order:
    below = need.setdefault((stack, n - 1), set())
    memory = need.setdefault(("encoder", depth["encoder"]), set())
    for i in need.get((stack, n), ()):
      self_keys, cross_keys = _open_keys(row_layout, stack, n, i)
      below |= {i} | {key for key, _ in self_keys}
      memory |= {key for key, _ in cross_keys}
  inputs = {
    stack: sorted(need.get((stack, 0), ())) for stack in ("encoder", "decoder")
  }
  number = {
    stack: {i: k for k, i in enumerate(dependencies)}
    for stack, dependencies in inputs.items()
  }
  layers = []
  for stack, n in reversed(order):
    dependencies, below = number["encoder"], number[stack]
    nodes = []
    for i in sorted(need.get((stack, n), ())):
      self_keys, cross_keys = _open_keys(row_layout, stack, n, i)
      renamed = Node(
        below[i],
        tuple((below[key], bias) for key, bias in self_keys),
        tuple((dependencies[key], bias) for key, bias in cross_keys),
      )
      nodes.append((below[i], renamed))
    if nodes:  # an encoder that no row sees has none
      layers.append((stack, n, tuple(nodes)))
  tokens = {
    s: [row_layout.tokens[s][i] for i in dependencies]
    for s, dependencies in inputs.items()
  }
  steps, answer, places = _steps(transducer, row_layout, tokens, place)
  renamed = tuple(
    (s, tuple(t._replace(place=places.get(t.place, -1)) for t in dependencies))
    for s, dependencies in tokens.items()
  )
  dependencies = ReceptiveField(renamed, tuple(layers), steps, answer)
  return dependencies, RowExample(
    row_layout.width, row, place, tuple(places), row_layout.size
  )


def _open_keys(row_layout: Layout, stack: str, n: int, i: int):
  """Returns a row's open cells in a layer, of self- and of cross-attention."""
  if stack == "encoder":
    return row_layout.cells[stack, "encoder", n - 1, i], ()
  cross_keys = row_layout.cells.get((stack, "cross", n - 1, i), ())
  return row_layout.cells[stack, "self", n - 1, i], cross_keys


def _steps(
  transducer: Transducer, row_layout: Layout, tokens: dict, place: int
):
  """Returns the places that matter.

  Returns:
    The places as steps; the column of what the row must say, None for the end
    token; and {place: its number}.
  """
  width, nonzero_places = row_layout.width, row_layout.nonzero_places
  reads, outputs = {}, set()
  for token in (*tokens["encoder"], *tokens["decoder"]):
    if token.kind == "given" and token.which not in transducer.shared:
      reads.setdefault(token.place, set()).add(token.which)
    if token.kind == "said":
      outputs.add(token.place)
  places = sorted(set(reads) | outputs | ({place} if place < width else set()))
  steps, answer, columns, after = [], None, len(transducer.shared), 0
  for current in places:
    if current > after:
      zeros = max(current - max(after, nonzero_places), 0)
      steps.append(transducer.shorten(Gap(current - after - zeros, zeros)))
    operands = tuple(sorted(reads.get(current, ())))
    says = current in outputs or current == place
    steps.append(Position(operands, says, current >= nonzero_places))
    columns += len(operands) + says
    if current == place:
      answer = columns - 1
    after = current + 1
  return tuple(steps), answer, {p: k for k, p in enumerate(places)}


def hops(experiment: Experiment, site: str, lines: SiteLines) -> np.ndarray:
  """Returns how far lines of a site can move a place along the last axis.

  That is the intercept, and what a place is not counted by: in self-attention
  the key that holds an output is the row that must say the next one; in one
  sequence a prompt's row, too, says the token after its own; lines over the
  whole sequence count marks; of interleaved operands a place is two tokens.

  Returns:
    [N or 1] the most of every layer's lines.
  """
  task = experiment.task
  c = lines.intercept[..., -1]
  packed = site == "self" and experiment.kind == "decoder_only"
  whole, outputs = lines.segment == WHOLE, lines.segment == task.target_segment
  hop = np.abs(c) + packed
  if site != "self" and 2 in task.strides:
    hop = (hop + 1) // 2 + 1
  if site == "self":
    left = lines.anchor == LEFT
    hop = np.where(outputs, np.where(left, np.abs(c + 1), np.abs(c) + 1), hop)
  if site != "self" or packed:
    between = max(marks(task) - (2 if packed else 3), 0)  # of the segments
    hop = np.where(whole, np.abs(c) + between, hop)
  hop = np.where(lines.valid, hop, 0)
  return hop.reshape(len(hop), -1).max(axis=1, initial=0)


def marks(task: Task) -> int:
  """Returns how many tokens of a sequence are no places.

  These are the tokens of the prompt whose number does not grow with the width,
  the start token and the end token.
  """
  size = lambda width: task.prompt_size(width)
  return 2 + 2 * size(1) - size(2)


def context_radius(
  experiment: Experiment, scaffold: dict[str, SiteLines]
) -> int:
  """Returns the lemma's C: how far from an anchor a row's view extends."""
  total = 0
  for site, lines in scaffold.items():
    hop = hops(experiment, site, lines)
    depth = depths(experiment)["encoder" if site == "encoder" else "decoder"]
    if site == "cross":
      total += int(hop.max(initial=0))
    else:
      total += int(hop.sum() if len(hop) > 1 else depth * hop[0])
  return total


def widths(
  experiment: Experiment, scaffold: dict[str, SiteLines], transducer: Transducer
) -> range:
  """Returns the widths whose views are the views of all widths."""
  if experiment.fixed_width is not None:
    return range(experiment.fixed_width, experiment.fixed_width + 1)
  task = experiment.task
  first, period = transducer.preperiod_and_period
  period *= experiment.model.config.positions.cyclic_period or 1
  distance = (
    2 * context_radius(experiment, scaffold) + marks(task) + task.slack + first
  )
  return range(task.natural_width(1), 3 * (distance + period) + 1)


def check_size(
  experiment: Experiment,
  scaffold: dict[str, SiteLines],
  longest: int | tuple[int, int],
) -> None:
  """Checks, before a survey begins, that the largest size's biases can be held.

  Raises:
    UsageError: they have too many cells; it names the line that reaches
      farthest.
  """
  cells = 0
  for site, (rows, keys) in experiment.site_sizes(longest).items():
    if site in scaffold:
      depth = depths(experiment)["encoder" if site == "encoder" else "decoder"]
      cells += depth * experiment.model.config.num_heads * rows * keys
  if cells <= MAX_CELLS:
    return
  farthest = (-1, "")
  for site, lines in scaffold.items():
    c = np.where(lines.valid[..., None], lines.intercept, 0)
    n, h, k, axis = np.unravel_index(np.abs(c).argmax(), c.shape)
    description = (
      f"{site}-attention, layer {n}, head {h}: {c[n, h, k, axis]:+d}"
    )
    farthest = max(farthest, (int(abs(c[n, h, k, axis])), description))
  raise UsageError(
    f"lines reach so far that sizes up to {longest} would have to be surveyed,"
    f" {cells:.2g} cells at once, and {MAX_CELLS:.2g} are held; the largest"
    f" offset is that of {farthest[1]}; nearer lines would help"
    " (calibration.reach)"
  )


def views(
  experiment: Experiment, scaffold: dict[str, SiteLines], transducer: Transducer
) -> dict[ReceptiveField, list[RowExample]]:
  """Returns every ReceptiveField with the Examples that have it, narrowest
  first."""
  examples = {}
  sizes = widths(experiment, scaffold, transducer)
  check_size(experiment, scaffold, sizes[-1])
  for width in sizes:
    for view, example in views_at(
      experiment, scaffold, transducer, width, sizes[-1]
    ):
      examples.setdefault(view, []).append(example)
  return examples


def views_at(
  experiment: Experiment,
  scaffold: dict[str, SiteLines],
  transducer: Transducer,
  width: int,
  longest: int,
) -> Iterator[tuple[ReceptiveField, RowExample]]:
  """Yields (ReceptiveField, Example) of every row at a width.

  The width is at most `longest`.
  """
  bound = -(-longest // WIDTH_MULTIPLE) * WIDTH_MULTIPLE
  width_layout = layout(experiment, scaffold, width, bound)
  for row, place in width_layout.rows:
    yield view(experiment, transducer, width_layout, row, place)
