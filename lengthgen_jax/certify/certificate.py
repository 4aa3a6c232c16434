"""This module decides by all cases whether a model is right at every length.

See certify.receptive_fields for why finitely many cases suffice. Three things
remain to be believed: that the few cells which the program's own biases open at
the widths surveyed are those that it opens (the program reads them off), that
floating point rounds no more than was measured here on other batch sizes and on
the dense path, and the lemma.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention.lines import SiteLines
from lengthgen_jax.certify import receptive_fields
from lengthgen_jax.certify.receptive_fields import ReceptiveField, RowExample
from lengthgen_jax.certify.states import States
from lengthgen_jax.certify.transducer import Contexts, Transducer
from lengthgen_jax.errors import check
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import dataset, packing
from lengthgen_jax.training.mesh import SINGLE_DEVICE, Mesh

LEMMA = 2  # version of the lemma; older certificates are computed again
THINNEST_KEPT = 32  # contexts of each view that are kept, by smallest margin
PASS = 32  # inputs that the whole model computes at once
EDGES = np.concatenate([[-np.inf], np.arange(-8, 40, 0.5), [np.inf]])
ULPS = 2  # the least rounding assumed, in last places of the largest logit
DENSE_ROWS = 100_000  # rows whose logits are compared with the dense path


class Survey(NamedTuple):
  """A Survey is everything that a certificate has to check of a model.

  Attributes:
    transducer: the Transducer of the task.
    views: {ReceptiveField: [RowExample, ...]}, those of the smallest sizes
      first.
    contexts: the Contexts of every view, in the same order.
  """

  transducer: Transducer
  views: dict[ReceptiveField, list[RowExample]]
  contexts: list[Contexts]

  @property
  def cases(self) -> int:
    """Returns the number of contexts of all views."""
    return sum(contexts.count for contexts in self.contexts)

  def first_views(self, count: int) -> "Survey":
    """Returns the survey of the first `count` views alone."""
    views = dict(list(self.views.items())[:count])
    return self._replace(views=views, contexts=self.contexts[:count])


def survey(experiment: Experiment, scaffold: dict[str, SiteLines]) -> Survey:
  """Returns the views of a model's rows, and their contexts."""
  transducer = Transducer(experiment.task)
  views = receptive_fields.views(experiment, scaffold, transducer)
  contexts = [Contexts(transducer, view.steps) for view in views]
  return Survey(transducer, views, contexts)


@dataclasses.dataclass
class Tally:
  """A Tally counts the right and wrong contexts of a view, so far.

  Attributes:
    cases, wrong: how many contexts were checked, and how many of them are
      wrong.
    margin: the smallest margin: right logit - best wrong one.
    histogram: the number of margins in each interval of EDGES.
    thin: [[margin, context]] of the contexts with the smallest margins,
      smallest first.
  """

  cases: int = 0
  wrong: int = 0
  margin: float = float("inf")
  histogram: list = dataclasses.field(
    default_factory=lambda: [0] * (len(EDGES) - 1)
  )
  thin: list = dataclasses.field(default_factory=list)

  def add(self, contexts: np.ndarray, margins: np.ndarray) -> None:
    """Adds the contexts [B, columns] of a chunk and their margins [B]."""
    self.cases += len(contexts)
    self.wrong += int((margins <= 0).sum())
    self.margin = min(self.margin, float(margins.min()))
    counts = np.histogram(margins, EDGES)[0]
    self.histogram = (np.array(self.histogram) + counts).tolist()
    order = np.argsort(margins, kind="stable")[:THINNEST_KEPT]
    thinnest = [[float(margins[k]), contexts[k].tolist()] for k in order]
    self.thin = sorted([*self.thin, *thinnest])[:THINNEST_KEPT]


def margins(
  view: ReceptiveField,
  contexts: np.ndarray,
  logits: jax.Array | np.ndarray,
  end: int,
) -> np.ndarray:
  """Returns the margin of every context: right logit - best wrong one.

  Args:
    view: the view that the contexts belong to.
    contexts: [B, columns].
    logits: [B, V] of the view's row.
    end: id of the end token.

  Returns:
    [B] margins; a margin that is not a number counts as -inf.
  """
  logits = np.array(logits)
  answers = np.full(len(contexts), end)
  if view.answer_column is not None:
    answers = contexts[:, view.answer_column].astype(int)
  right = np.take_along_axis(logits, answers[:, None], 1)[:, 0]
  np.put_along_axis(logits, answers[:, None], -np.inf, 1)
  with np.errstate(invalid="ignore"):
    differences = right - logits.max(axis=1)
  return np.where(np.isnan(differences), -np.inf, differences)


def enumerate_view(
  states: States,
  view: ReceptiveField,
  contexts: Contexts,
  tally: Tally,
  skip: int = 0,
) -> Iterator[int]:
  """Adds every chunk from `skip` on to the tally; yields each one's size."""
  chunks = itertools.islice(contexts.chunks(states.size), skip, None)
  end = states.transducer.task.end
  for chunk, logits in states.of_chunks(view, chunks, contexts.count):
    tally.add(chunk, margins(view, chunk, logits, end))
    yield len(chunk)


def input_with_context(
  survey: Survey,
  view: ReceptiveField,
  example: RowExample,
  context: np.ndarray | list[int],
  nonzero_places: int,
  rng: np.random.Generator | None = None,
) -> np.ndarray | None:
  """Returns an input whose row has a given context.

  Args:
    survey: the survey that the view is in.
    view: the view of the row.
    example: the row, one that has the view.
    context: values of the view's columns.
    nonzero_places: how many places may be other than zero.
    rng: chooses among such inputs; None takes the first.

  Returns:
    Digits [operands, W], or None where there is no such input.
  """
  constraints = values_by_place(survey.transducer, view, example, context)
  return survey.transducer.realize(
    *constraints, example.width, nonzero_places, rng
  )


def thinnest_inputs(
  survey: Survey,
  view: ReceptiveField,
  example: RowExample,
  tally: Tally,
  dense: "ForwardPass",
) -> np.ndarray:
  """Returns digits [n, operands, W] of inputs that have a tally's thinnest
  contexts at an example."""
  nonzero_places = dense.experiment.nonzero_places(example.width)
  realize = lambda context: input_with_context(
    survey, view, example, context, nonzero_places
  )
  return np.stack([realize(context) for _, context in tally.thin])


class ForwardPass:
  """A ForwardPass runs the whole model on whole inputs, as the rest of the
  program does; what it computes is called the dense path.

  Attributes:
    experiment: the experiment that the model belongs to.
    longest: static bound of widths.
  """

  def __init__(
    self,
    experiment: Experiment,
    scaffold: dict[str, SiteLines],
    params: dict,
    longest: int | tuple[int, int],
    *,
    mesh: Mesh = SINGLE_DEVICE,
  ):
    """Compiles the forward pass of one seed.

    Args:
      experiment: the experiment that the model belongs to.
      scaffold: lines of this seed, by site.
      params: parameters of this seed.
      longest: static bound of widths.
      mesh: the devices that inputs are split over.
    """
    self.experiment, self.longest = experiment, longest
    head = experiment.task.name
    forward = lambda batch: experiment.apply(params, scaffold, batch, head)[0]
    self._apply = jax.jit(
      lambda batch: mesh.replicate(forward(mesh.shard_batch(batch)))
    )

  def __call__(
    self, items: np.ndarray, width: int | tuple[int, int]
  ) -> tuple[packing.Batch, np.ndarray]:
    """Returns (batch, logits [B, T, V]) of inputs [B, operands, W].

    Inputs are computed a few at a time: one program serves for all, whose
    arrays fit a CPU's cache.
    """
    task, kind, count = self.experiment.task, self.experiment.kind, len(items)
    nonzero_places = self.experiment.nonzero_places(np.asarray(width))
    lengths = np.broadcast_to(nonzero_places, task.operands)
    filled = np.concatenate([items, items[-1:].repeat(-count % PASS, 0)])
    parsed = [(digits, lengths) for digits in filled]
    batch = dataset.typed_batch(task, kind, parsed, width, self.longest)
    select = partial(packing.take, jax.device_get(batch))
    starts = range(0, count, PASS)
    logits = [
      self._apply(select(lambda x, n=n: x[n : n + PASS])) for n in starts
    ]
    return select(lambda x: x[:count]), np.concatenate(logits)[:count]


def rounding(
  states: States, survey: Survey, dense: ForwardPass, seed: int
) -> tuple[float, int]:
  """Measures how far the layer-wise tables and the dense path are apart.

  The inputs are random, of every width surveyed.

  Returns:
    (largest difference of a logit, rows compared).
  """
  compared = {}
  by_row = {e[:2]: (v, e) for v, group in survey.views.items() for e in group}
  count = -(-DENSE_ROWS // len(by_row))
  generator = np.random.default_rng(seed)
  for width in sorted({width for width, _ in by_row}):
    items = _random_inputs(generator, dense.experiment, count, width)
    batch, logits = dense(items, width)
    check_task(dense.experiment, survey.transducer, items, batch)
    for row in (row for group, row in by_row if group == width):
      view, example = by_row[width, row]
      contexts = _contexts(survey.transducer, view, example, items, batch)
      compared.setdefault(view, []).append((contexts, logits[:, row]))
  largest, rows = 0.0, 0
  for view, parts in compared.items():
    contexts, expected = map(np.concatenate, zip(*parts, strict=True))
    tables = states.logits(view, contexts)
    largest = float(np.maximum(largest, gap(tables, expected)))  # NaN stays
    rows += len(contexts)
  return largest, rows


def gap(tables: np.ndarray, dense: np.ndarray) -> float:
  """Returns the largest difference of two computations of the same logits.

  It is at least a few units in their last place: that two agree to the bit says
  only that both round alike.
  """
  least = ULPS * np.finfo(dense.dtype).eps * np.abs(dense).max()
  return float(np.maximum(np.abs(tables - dense).max(), least))


def _contexts(
  transducer: Transducer,
  view: ReceptiveField,
  example: RowExample,
  items: np.ndarray,
  batch: packing.Batch,
) -> np.ndarray:
  """Returns the contexts [B, columns] that inputs have at a row."""
  outputs, first = np.asarray(batch.target), int(batch.first_scored[0])
  return gather_contexts(
    transducer,
    view,
    example,
    len(items),
    digits=lambda operand, place: items[:, operand, max(place, 0)],
    outputs=lambda place: outputs[:, first + place],
  )


def gather_contexts(
  transducer: Transducer,
  view: ReceptiveField,
  example: RowExample,
  count: int,
  *,
  digits: Callable[[int, int], np.ndarray],
  outputs: Callable[[int], np.ndarray],
) -> np.ndarray:
  """Returns the contexts [count, columns] that inputs have at a row.

  Args:
    transducer: the transducer of the view's rows.
    view: the view of the row.
    example: the row.
    count: the number of inputs.
    digits: function of (operand, place) to the inputs' digits [count]; the
      place is -1 for a digit that all places share.
    outputs: function of a place to the right outputs [count].
  """
  contexts = np.zeros((count, len(view.columns(transducer.shared))), np.uint8)
  for (kind, operand, number), column in view.columns(
    transducer.shared
  ).items():
    place = example.places[number] if number >= 0 else -1
    contexts[:, column] = (
      outputs(place) if kind == "said" else digits(operand, place)
    )
  return contexts


def values_by_place(
  transducer: Transducer,
  view: ReceptiveField,
  example: RowExample,
  context: np.ndarray | list[int],
) -> tuple[int, dict[tuple[int, int], int], dict[int, int]]:
  """Returns what a context says of the inputs that have it at a row.

  Args:
    transducer: the transducer of the view's rows.
    view: the view of the row.
    example: the row.
    context: values of the view's columns.

  Returns:
    The digit that all places share (0 without one), {(operand, place): digit},
    and {place: output}; see Transducer.realize.
  """
  shared, digits, outputs = 0, {}, {}
  for (kind, operand, number), column in view.columns(
    transducer.shared
  ).items():
    value = int(context[column])
    if number < 0:
      shared = value
    elif kind == "said":
      outputs[example.places[number]] = value
    else:
      digits[operand, example.places[number]] = value
  return shared, digits, outputs


def check_task(
  experiment: Experiment,
  transducer: Transducer,
  items: np.ndarray,
  batch: packing.Batch,
) -> None:
  """Checks that a task is what it says it is.

  Its answers must be those of its transducer, and every input of its batches
  must hold the mark, the digit or the output that it is said to hold.

  Args:
    experiment: the experiment of the task.
    transducer: the Transducer of the task.
    items: [B, operands, W] random digits.
    batch: the batch of these inputs.

  Raises:
    UsageError: the task is something else.
  """
  task, first = experiment.task, int(np.asarray(batch.first_scored)[0])
  target = np.asarray(batch.target)
  state = np.full(len(items), task.initial_state)
  outputs = []
  for place in range(items.shape[-1]):
    read = [
      0 if k in transducer.shared else place for k in range(task.operands)
    ]
    symbols = [items[:, k, p] for k, p in enumerate(read)]
    state, output = task.step(state, symbols)
    outputs.append(np.asarray(output))
    check(
      np.array_equal(outputs[-1], target[:, first + place]),
      f"certify: {task.name}'s answers are not its transducer's: at place"
      f" {place} of {items.shape[-1]}",
    )
  ids = {"decoder": batch.inputs, "encoder": batch.source}
  for stack, tokens in receptive_fields.tokens_by_stack(
    experiment, batch
  ).items():
    for i, token in enumerate(tokens):
      expected = token.which
      if token.kind == "said":
        expected = outputs[token.place]
      elif token.kind == "given":
        expected = items[:, token.which, max(token.place, 0)]
      check(
        (np.asarray(ids[stack])[:, i] == expected).all(),
        f"certify: {task.name}'s {stack} input {i} of W={items.shape[-1]} is"
        f" not always the {token.kind} that the task says it holds",
      )


def _random_inputs(
  generator: np.random.Generator, experiment: Experiment, count: int, width: int
) -> np.ndarray:
  """Returns random digits [count, operands, W].

  A third of them is uniform, a third is near the base's ends, and a third has
  long carries.
  """
  task = experiment.task
  shape = (count, task.operands, width)
  items = generator.integers(0, task.base, shape)
  ends = (task.base - generator.integers(0, 2, shape)) % task.base
  kind = generator.integers(0, 3, (count, 1, 1))
  carries = np.concatenate(
    [items[:, :1], (task.base - 1 - items[:, :1])], axis=1
  )[:, : task.operands]
  flip = generator.random(shape) < 0.1
  carries = np.where(flip, items, carries)
  items = np.choose(kind, [items, ends, carries])
  items[:, :, experiment.nonzero_places(width) :] = 0
  for operand in task.shared_operands:
    items[:, operand, 1:] = 0
  return items.astype(np.int32)


def checksum(model) -> str:
  """Returns a checksum of all that a certificate depends on.

  Parameters and scaffold enter by value, beside what the program computes with
  them, and what it runs on.
  """
  digest, trees = hashlib.sha256(), (model.params, model.scaffold)
  experiment = model.experiment
  settings = experiment.kind, experiment.model.config, experiment.task
  platform = jax.default_backend(), jax.__version__
  digest.update(repr((LEMMA, *platform, *settings, experiment.bias)).encode())
  digest.update(repr(experiment.fixed_width).encode())
  for path, leaf in jax.tree_util.tree_leaves_with_path(trees):
    digest.update(jax.tree_util.keystr(path).encode())
    digest.update(np.ascontiguousarray(leaf).tobytes())
  return digest.hexdigest()[:16]


def in_float64(experiment: Experiment, params: dict) -> tuple[Experiment, dict]:
  """Returns the same model in float64; use it under jax.enable_x64."""
  config = dataclasses.replace(experiment.model.config, dtype="float64")
  model = experiment.model.clone(config=config)
  params = jax.tree.map(
    lambda x: jnp.asarray(np.asarray(x), jnp.float64), params
  )
  return dataclasses.replace(experiment, model=model), params
