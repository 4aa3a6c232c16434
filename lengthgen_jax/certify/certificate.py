"""Whether a trained model is right on inputs of every length, by all cases.

See certify.receptive_fields for why finitely many cases are all there are. What
is left to believe: that the few cells which the program's own biases open at
the widths surveyed are those it opens (the program reads them off), that
floating point rounds no more than was measured here on other batch sizes and on
the dense path, and the lemma.
"""

import dataclasses
import hashlib
import itertools
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.certify import receptive_fields
from lengthgen_jax.certify.states import States
from lengthgen_jax.certify.transducer import Contexts, Tape
from lengthgen_jax.errors import check
from lengthgen_jax.tasks import data, pack
from lengthgen_jax.training.mesh import ONE

LEMMA = 2  # certificates made by an earlier one are made anew
THIN = 32  # contexts of a view with the smallest margins, which are kept
PASS = 32  # inputs that the whole model is shown at once
EDGES = np.concatenate([[-np.inf], np.arange(-8, 40, 0.5), [np.inf]])
ULPS = 2  # of the largest logit, the least rounding there is
DENSE_ROWS = 100_000  # rows whose logits are held against the dense path


class Survey(NamedTuple):
  """All there is to check of a model.

  Attributes:
    tape: of the task.
    views: {View: [Example, ...]}, narrowest first.
    contexts: the Contexts of every view, in the same order.
  """

  tape: Tape
  views: dict
  contexts: list

  @property
  def cases(self) -> int:
    return sum(own.count for own in self.contexts)

  def narrowest(self, count: int) -> "Survey":
    """The first views alone."""
    views = dict(list(self.views.items())[:count])
    return self._replace(views=views, contexts=self.contexts[:count])


def survey(experiment, scaffold) -> Survey:
  """The views of a model's rows, and their contexts."""
  tape = Tape(experiment.task)
  views = receptive_fields.views(experiment, scaffold, tape)
  contexts = [Contexts(tape, view.steps) for view in views]
  return Survey(tape, views, contexts)


@dataclasses.dataclass
class Tally:
  """What was found in the contexts of a view, so far.

  Attributes:
    cases, wrong: how many contexts, and how many of them are wrong.
    margin: the smallest: right logit - best wrong one.
    histogram: of margins, by EDGES.
    thin: [[margin, context]] of the smallest ones, smallest first.
  """

  cases: int = 0
  wrong: int = 0
  margin: float = float("inf")
  histogram: list = dataclasses.field(
    default_factory=lambda: [0] * (len(EDGES) - 1)
  )
  thin: list = dataclasses.field(default_factory=list)

  def add(self, contexts, margins) -> None:
    """Counts the contexts of a chunk."""
    self.cases += len(contexts)
    self.wrong += int((margins <= 0).sum())
    self.margin = min(self.margin, float(margins.min()))
    counts = np.histogram(margins, EDGES)[0]
    self.histogram = (np.array(self.histogram) + counts).tolist()
    order = np.argsort(margins, kind="stable")[:THIN]
    found = [[float(margins[k]), contexts[k].tolist()] for k in order]
    self.thin = sorted([*self.thin, *found])[:THIN]


def margins(view, contexts, logits, end: int):
  """Right logit - best wrong one, for every context; -inf if that is no
  number."""
  logits = np.array(logits)
  wanted = np.full(len(contexts), end)
  if view.asked is not None:
    wanted = contexts[:, view.asked].astype(int)
  right = np.take_along_axis(logits, wanted[:, None], 1)[:, 0]
  np.put_along_axis(logits, wanted[:, None], -np.inf, 1)
  with np.errstate(invalid="ignore"):
    found = right - logits.max(axis=1)
  return np.where(np.isnan(found), -np.inf, found)


def enumerate_view(states: States, view, contexts: Contexts, tally, skip=0):
  """Adds every chunk from `skip` on to the tally; yields after each."""
  chunks = itertools.islice(contexts.chunks(states.size), skip, None)
  end = states.tape.task.end
  for own, logits in states.of_chunks(view, chunks, contexts.count):
    tally.add(own, margins(view, own, logits, end))
    yield len(own)


def inputs_of(survey: Survey, view, example, context, live: int, rng=None):
  """Digits [operands, W] of an input whose row has a context, or None."""
  digits, outputs, shared = {}, {}, 0
  columns = view.columns(survey.tape.shared)
  for (kind, which, number), column in columns.items():
    value = int(context[column])
    if number < 0:
      shared = value
    elif kind == "given":
      digits[which, example.places[number]] = value
    else:
      outputs[example.places[number]] = value
  return survey.tape.realize(shared, digits, outputs, example.width, live, rng)


def inputs(survey: Survey, view, example, tally: Tally, dense: "Dense"):
  """Digits [n, operands, W] of inputs that have a tally's thinnest contexts at
  an example."""
  live = dense.experiment.live(example.width)
  made = lambda own: inputs_of(survey, view, example, own, live)
  return np.stack([made(own) for _, own in tally.thin])


class Dense:
  """The whole model on whole inputs, as everything else in the program runs it.

  Attributes:
    experiment, scaffold, params: of one seed.
    longest: static bound of widths.
    mesh: the devices that inputs are split over.
  """

  def __init__(self, experiment, scaffold, params, longest, *, mesh=ONE):
    self.experiment, self.longest = experiment, longest
    head = experiment.task.name
    told = lambda batch: experiment.apply(params, scaffold, batch, head)[0]
    self._apply = jax.jit(lambda batch: mesh.whole(told(mesh.split(batch))))

  def __call__(self, items, width):
    """(batch, logits [B, T, V]) of inputs [B, operands, W], a few at a time:
    one program for all, whose arrays fit a CPU's cache."""
    task, kind, count = self.experiment.task, self.experiment.kind, len(items)
    live = self.experiment.live(np.asarray(width))
    lengths = np.broadcast_to(live, task.operands)
    filled = np.concatenate([items, items[-1:].repeat(-count % PASS, 0)])
    parsed = [(own, lengths) for own in filled]
    made = data.typed_batch(task, kind, parsed, width, self.longest)
    some = partial(pack.take, jax.device_get(made))
    starts = range(0, count, PASS)
    logits = [self._apply(some(lambda x, n=n: x[n : n + PASS])) for n in starts]
    return some(lambda x: x[:count]), np.concatenate(logits)[:count]


def rounding(states: States, survey: Survey, dense: Dense, seed: int) -> tuple:
  """(largest difference of a logit, rows compared) between the layer-wise
  tables and the dense path, on random inputs of every width surveyed."""
  found = {}
  at = {e[:2]: (v, e) for v, own in survey.views.items() for e in own}
  count = -(-DENSE_ROWS // len(at))
  generator = np.random.default_rng(seed)
  for width in sorted({width for width, _ in at}):
    items = _random_inputs(generator, dense.experiment, count, width)
    batch, logits = dense(items, width)
    check_task(dense.experiment, survey.tape, items, batch)
    for row in (row for own, row in at if own == width):
      view, example = at[width, row]
      contexts = _contexts(survey.tape, view, example, items, batch)
      found.setdefault(view, []).append((contexts, logits[:, row]))
  most, rows = 0.0, 0
  for view, parts in found.items():
    contexts, wanted = map(np.concatenate, zip(*parts, strict=True))
    told = states.logits(view, contexts)
    most = float(np.maximum(most, gap(told, wanted)))  # NaN stays
    rows += len(contexts)
  return most, rows


def gap(tables, dense) -> float:
  """The largest difference of two computations of the same logits, at least a
  few units in their last place: that two agree to the bit says only that both
  round alike."""
  least = ULPS * np.finfo(dense.dtype).eps * np.abs(dense).max()
  return float(np.maximum(np.abs(tables - dense).max(), least))


def _contexts(tape: Tape, view, example, items, batch):
  """What the inputs have in a view's columns: [B, columns]."""
  rows = np.asarray(batch.rows.left[0, :, 0])
  said = np.asarray(batch.target)
  first = int(batch.first[0])
  found = []
  for kind, which, number in view.columns(tape.shared):
    if number < 0:
      found.append(items[:, which, 0])
    elif kind == "given":
      found.append(items[:, which, example.places[number]])
    else:
      place = example.places[number]
      assert rows[first + place] == place
      found.append(said[:, first + place])
  if not found:
    return np.zeros((len(items), 0), np.uint8)
  return np.stack(found, axis=1).astype(np.uint8)


def check_task(experiment, tape: Tape, items, batch) -> None:
  """UsageError unless a task is what it says it is: its answers are those of
  its transducer, and every input of its batches holds the mark, the digit or
  the output that it is said to hold.

  Args:
    experiment: whose task it is.
    tape: of the task.
    items: [B, operands, W] random digits.
    batch: of these inputs.
  """
  task, first = experiment.task, int(np.asarray(batch.first)[0])
  target = np.asarray(batch.target)
  state = np.full(len(items), task.begin)
  outputs = []
  for place in range(items.shape[-1]):
    read = [0 if k in tape.shared else place for k in range(task.operands)]
    symbols = [items[:, k, p] for k, p in enumerate(read)]
    state, output = task.step(state, symbols)
    outputs.append(np.asarray(output))
    check(
      np.array_equal(outputs[-1], target[:, first + place]),
      f"certify: {task.name}'s answers are not its transducer's: at place"
      f" {place} of {items.shape[-1]}",
    )
  ids = {"decoder": batch.inputs, "encoder": batch.source}
  for stack, tokens in receptive_fields.inputs_of(experiment, batch).items():
    for i, token in enumerate(tokens):
      held = token.which
      if token.kind == "said":
        held = outputs[token.place]
      elif token.kind == "given":
        held = items[:, token.which, max(token.place, 0)]
      check(
        (np.asarray(ids[stack])[:, i] == held).all(),
        f"certify: {task.name}'s {stack} input {i} of W={items.shape[-1]} is"
        f" not always the {token.kind} that the task says it holds",
      )


def _random_inputs(generator, experiment, count: int, width: int):
  """Digits [count, operands, W]: a third of them uniform, a third near the
  base's ends, a third with long carries."""
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
  items[:, :, experiment.live(width) :] = 0
  for operand in task.shared:
    items[:, operand, 1:] = 0
  return items.astype(np.int32)


def checksum(model) -> str:
  """Of all that a certificate is of: parameters and scaffold by value, what the
  program makes of them, and what it runs on."""
  digest, both = hashlib.sha256(), (model.params, model.scaffold)
  experiment = model.experiment
  fixed = experiment.kind, experiment.model.config, experiment.task
  where = jax.default_backend(), jax.__version__
  digest.update(repr((LEMMA, *where, *fixed, experiment.bias)).encode())
  digest.update(repr(experiment.fixed_width).encode())
  for path, leaf in jax.tree_util.tree_leaves_with_path(both):
    digest.update(jax.tree_util.keystr(path).encode())
    digest.update(np.ascontiguousarray(leaf).tobytes())
  return digest.hexdigest()[:16]


def in_float64(experiment, params):
  """The same model in float64; use under jax.enable_x64."""
  config = dataclasses.replace(experiment.model.config, dtype="float64")
  model = experiment.model.clone(config=config)
  params = jax.tree.map(
    lambda x: jnp.asarray(np.asarray(x), jnp.float64), params
  )
  return dataclasses.replace(experiment, model=model), params
