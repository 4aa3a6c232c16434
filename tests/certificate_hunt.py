"""This script hunts for models of which a certificate would say too much.

Every draw is a small random model with random lines that the conditions of a
certificate may or may not accept. What is accepted must hold at sizes beyond
those that are surveyed: no row has a view that is not among those surveyed, and
the layer-wise tables give the logits of the ordinary forward pass. On all
inputs of a small size, the inputs on which the ordinary program is wrong are
those that have a wrong context; and a head that is fitted to be right in every
context, then moved until one fails, is right and then wrong by both.

A draw is a function of its number:

  python tests/certificate_hunt.py --first=0 --draws=10000
"""

import argparse
import collections
import dataclasses
import functools
import itertools
import json
import re
import sys
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import untrained

from lengthgen_jax.attention.lines import ANY, LEFT, RIGHT, WHOLE, SiteLines
from lengthgen_jax.certify import (
  certificate,
  conditions,
  receptive_fields,
  running_sums,
)
from lengthgen_jax.certify.states import States
from lengthgen_jax.certify.transducer import Transducer
from lengthgen_jax.errors import UsageError
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import dataset, packing

WIDEST = 44  # the largest width that a draw may have surveyed
BOUND = 52  # the static bound of widths
GRID_WIDEST, GRID_BOUND = (33, 4), (40, 7)
LINES = 3  # the most lines of a head
BATCH = 16  # inputs that are computed at once
BEYOND = 6  # how many sizes behind the last one surveyed are drawn from
TOLERANCE = 2e-4  # the tolerance of logits of size one
FEW = 400  # the most contexts of a model whose head is fitted
MOST = 20_000  # the most contexts of a view that are all counted


class Form(NamedTuple):
  """A form is what is compiled once for many draws.

  Attributes:
    task: the task's name.
    kind: family of the model.
    fields: (name, value) of the config's fields, beside the model's size.
  """

  task: str
  kind: str = "encoder_decoder"
  fields: tuple[tuple, ...] = ()

  def __str__(self):
    fields = ",".join(f"{n.split('.')[-1]}={x}" for n, x in self.fields)
    return f"{self.task} {self.kind} {fields}"


def forms() -> list[Form]:
  """Returns all forms that are drawn from.

  These are every task that states itself as a transducer, in both families; and
  each of the other things that a model may be, with some of the tasks.
  """
  alphabets = {
    "modular": {"modular.p": 3},
    "permutations": {"permutations.group": "S3"},
    "dyck": {"dyck.bound": 2},
    "copy": {"copying.alphabet": 3},
    "reverse": {"copying.alphabet": 3},
  }
  packed = {"model.kind": "decoder_only"}
  one_layer = {"model.num_decoder_layers": 1}
  encoder = {"model.num_encoder_layers": 1}
  encoders = {"model.num_encoder_layers": 2, "model.norm": "post"} | one_layer
  aligned = {"arithmetic.aligned": True}
  fixed = {"data.width": "fixed", "data.widths": (), "data.fixed_width": 9}

  def cyclic(kind: str, period: int, anchor: str) -> dict:
    fields = {"positions.kind": kind, "positions.cyclic_period": period}
    return fields | {"positions.source_anchor": anchor}

  arithmetic = ("successor", "addition", "multiply", "parity")
  variants = [(task, {}) for task in (*arithmetic, *alphabets)]
  variants += [(task, packed) for task in (*arithmetic, *alphabets)]
  variants += [
    ("addition", encoder),
    ("dyck", encoder),
    ("reverse", encoders),
    ("multiply", encoders),
    ("successor", cyclic("sinusoidal", 3, "right")),
    ("copy", cyclic("sinusoidal", 3, "left")),
    ("modular", cyclic("learned", 2, "left")),
    ("parity", packed | cyclic("sinusoidal", 2, "left")),
    ("addition", fixed),
    ("parity", packed | fixed),
    ("addition", packed | one_layer | {"arithmetic.slack": 1}),
    ("addition", aligned),
    ("multiply", aligned | encoder | one_layer),
    ("multiply", aligned | packed),  # refused
    ("dyck", {"dyck.brackets": "()[]", "dyck.bound": 1}),
    ("modular", packed | {"model.num_decoder_layers": 4}),
    ("copy", {"model.norm": "block_end", "model.norm_kind": "rms"}),
  ]
  variants += [("multiply_long", {}), ("multiply_long", packed)] * 3
  variants += [("multiply_long", one_layer), ("multiply_long", encoder)]
  all_forms = []
  for task, fields in variants:
    fields = alphabets.get(task, {}) | fields
    kind = fields.get("model.kind", "encoder_decoder")
    all_forms.append(Form(task, kind, tuple(fields.items())))
  return all_forms


FORMS = forms()


@functools.cache
def built(form: Form) -> Experiment:
  """Returns the experiment of a form."""
  fields = {"positions.kind": "none", "model.num_decoder_layers": 2}
  fields |= {"model.num_encoder_layers": 0, "data.train_length": 2}
  fields |= {"model.emb_dim": 32}
  return untrained.experiment(form.task, form.kind, fields | dict(form.fields))


@functools.cache
def shapes(form: Form) -> dict:
  """Returns the shapes of a form's parameters."""
  return jax.eval_shape(lambda: built(form).init(0))


@functools.cache
def forward(form: Form):
  """Returns the ordinary forward pass of a form, compiled.

  It gives logits [B, T, V] from parameters, lines and a batch.
  """
  experiment = built(form)
  apply = lambda params, scaffold, batch: experiment.apply(
    params, scaffold, batch, experiment.task.name
  )[0]
  return jax.jit(apply)


@dataclasses.dataclass
class Draw:
  """A draw is a model, its lines, and random numbers for what is done with
  it."""

  form: Form
  experiment: Experiment
  params: dict
  scaffold: dict[str, SiteLines]
  rng: np.random.Generator

  @property
  def grid(self) -> bool:
    """It says whether the task's outputs are a grid."""
    return self.experiment.task.axes > 1


def draw(number: int) -> Draw:
  """Returns the draw of a number."""
  rng = np.random.default_rng([20261123, number])
  form = FORMS[rng.integers(len(FORMS))]
  experiment = built(form)
  scale = lambda x: (
    (0.3 if len(x.shape) > 1 else 1.0) * rng.normal(size=x.shape)
  )
  params = jax.tree.map(lambda x: jnp.asarray(scale(x), x.dtype), shapes(form))
  reach = int(rng.choice([0, 1, 1, 2, 3, 6]))
  for _ in range(8):
    scaffold = random_scaffold(rng, experiment, reach)
    if not too_large(experiment, scaffold):
      break
    reach = max(reach - 1, 0)
  return Draw(form, experiment, params, scaffold, rng)


def too_large(experiment: Experiment, scaffold: dict[str, SiteLines]) -> bool:
  """Returns whether the sizes to survey are more than a draw may take."""
  if experiment.task.axes > 1:
    surveyed = running_sums.sizes(
      experiment, scaffold, running_sums.row_transducers(experiment)[0]
    )
    return any(
      sizes[-1] > n for sizes, n in zip(surveyed, GRID_WIDEST, strict=True)
    )
  transducer = transducer_of(experiment.task)
  return receptive_fields.widths(experiment, scaffold, transducer)[-1] > WIDEST


@functools.cache
def transducer_of(task) -> Transducer:
  """Returns the Transducer of a task."""
  return Transducer(task)


def random_scaffold(
  rng: np.random.Generator, experiment: Experiment, reach: int
) -> dict[str, SiteLines]:
  """Returns random lines of every site, most of them such as calibration finds.

  One draw in eight has something that a certificate refuses.
  """
  scaffold = {}
  config, task = experiment.model.config, experiment.task
  odd = (
    rng.choice(["step", "transparent", "mixed", "row"])
    if rng.random() < 0.12
    else ""
  )
  for site in experiment.model.sites:
    encoder = site == "encoder"
    layers = config.num_encoder_layers if encoder else config.num_decoder_layers
    if not layers:
      continue
    layers = 1 if config.norm == "post" else layers  # one for all
    shape = (layers, config.num_heads, LINES)
    make = grid_lines if task.axes > 1 else row_lines
    lines = make(rng, experiment, site, shape, reach)
    valid = rng.random(shape) < rng.choice([0.4, 0.8])
    valid &= (rng.random(shape[:2]) < 0.85)[..., None]  # closed heads
    value = np.float32(rng.integers(-2, 1, shape) / 2)
    if odd == "step":
      lines["matrix"][0, 0, 0] *= 2
    if odd == "mixed" and task.axes > 1:
      lines["matrix"][0, 0, 0, 0, 1] = 1
    transparent = np.zeros(shape[:2], bool)
    transparent[0, 0] = odd == "transparent"
    scaffold[site] = SiteLines(
      **lines, value=value, valid=valid, transparent=transparent
    )
  return scaffold


def row_lines(
  rng: np.random.Generator,
  experiment: Experiment,
  site: str,
  shape: tuple[int, int, int],
  reach: int,
) -> dict[str, np.ndarray]:
  """Returns fields of lines with one axis."""
  task, packed = experiment.task, experiment.kind == "decoder_only"
  operands = (
    list(range(task.target_segment)) if site != "self" or packed else []
  )
  outputs = [
    task.target_segment,
    task.target_segment,
    task.target_segment + 1,
  ] * (site == "self")
  segment = rng.choice([*operands, *operands, *outputs, WHOLE], shape)
  ends = np.isin(segment, operands) | ((segment == WHOLE) & (site != "self"))
  anchor = np.where(ends, rng.choice([LEFT, RIGHT, RIGHT], shape), LEFT)
  rows = ANY if site == "encoder" else task.target_segment
  row_segment = rng.choice([rows, rows, ANY], shape)
  pace = np.ones(shape, int)
  if site == "cross":
    pace[:] = max(1, *task.strides)
  step = pace * rng.choice([1, 1, 1, 0, -1], shape)
  forward = np.isin(segment, outputs)
  step = np.where(forward & (step < 0), 1, step)
  intercept = rng.choice([0, 0, 0, 1, -1], shape)
  intercept = np.where(forward, -rng.choice([1, 1, 2, 0], shape), intercept)
  far = tuple(rng.integers(n) for n in shape)
  if rng.random() < 0.5:
    intercept[far] = rng.integers(-reach, reach + 1)
  return {
    "row_segment": row_segment.astype(np.int32),
    "segment": segment.astype(np.int32),
    "anchor": anchor.astype(np.int32),
    "matrix": step[..., None, None].astype(np.int32),
    "intercept": intercept[..., None].astype(np.int32),
  }


def grid_lines(
  rng: np.random.Generator,
  experiment: Experiment,
  site: str,
  shape: tuple[int, int, int],
  reach: int,
) -> dict[str, np.ndarray]:
  """Returns fields of lines with two axes.

  They lead mostly to cells near a row's own, and to outputs in the first layer
  alone.
  """
  task, packed = experiment.task, experiment.kind == "decoder_only"
  names = ["a", "a", "b", "mark"] * (site != "self" or packed)
  names += ["row", "row", "before", "start"] * (site == "self")
  a, b, target = 0, 1, task.target_segment
  fields = {
    "row_segment": np.full(shape, target, np.int32),
    "segment": np.zeros(shape, np.int32),
    "anchor": np.zeros(shape, np.int32),
    "matrix": np.zeros((*shape, 2, 2), np.int32),
    "intercept": np.zeros((*shape, 2), np.int32),
  }
  far = tuple(rng.integers(n) for n in shape) if rng.random() < 0.2 else None
  for place in itertools.product(*map(range, shape)):
    name = rng.choice(names)
    if name in ("row", "before") and place[0] > 0:
      name = "row"
    segment, anchor, matrix, c = target, LEFT, np.eye(2, dtype=int), [0, -1]
    if name == "before":
      c = [-1, rng.integers(-1, 2)]
    if name == "start":
      segment, matrix, c = target + 1, np.zeros((2, 2), int), [0, 0]
    if name == "a":
      step = rng.choice([1, 1, 1, 0, -1])
      segment, anchor = a, rng.choice([RIGHT, RIGHT, LEFT])
      matrix, c = np.diag([0, step]), [0, rng.integers(-1, 2)]
    if name == "b":
      segment, anchor, matrix, c = b, RIGHT, np.diag([1, 0]), [0, 0]
    if name == "mark":
      segment, matrix, c = rng.choice([a, b]), np.zeros((2, 2), int), [0, 0]
    if place == far:
      c[rng.integers(2)] = rng.integers(-max(reach, 4), max(reach, 4) + 1)
    values = target, segment, anchor, matrix, c
    for field, value in zip(fields.values(), values, strict=True):
      field[place] = value
  if rng.random() < 0.1:
    fields["row_segment"][0, 0, 0] = ANY
  return fields


# What must hold of a draw.


def hunt(number: int) -> str:
  """Returns what became of a draw.

  Raises:
    AssertionError: the draw is accepted and does not hold.
  """
  drawn = draw(number)
  try:
    conditions.check_local(drawn.experiment, drawn.scaffold)
    if too_large(drawn.experiment, drawn.scaffold):
      return "left out: too many sizes"
    survey_of = running_sums.survey if drawn.grid else certificate.survey
    survey = survey_of(drawn.experiment, drawn.scaffold)
  except UsageError as reason:
    return f"refused: {sentence(str(reason))}"
  states = States(drawn.experiment, drawn.params, survey.transducer, 1 << 12)
  for size in sizes_beyond(drawn):
    check_size(drawn, survey, states, size)
  check_small(drawn, survey, states)
  if survey.cases <= FEW and not drawn.grid:
    check_fitted(drawn, survey)
  return "held"


def sentence(reason: str) -> str:
  """Returns a refusal without what differs between draws."""
  reason = re.sub(r"\(.*?\)|layer \d+|head \d+|[-+]?\d+", "…", reason)
  return reason.partition(";")[0]


def sizes_beyond(drawn: Draw) -> list:
  """Returns sizes larger than those surveyed; at width=fixed the only one."""
  experiment, scaffold, rng = drawn.experiment, drawn.scaffold, drawn.rng
  if drawn.grid:
    columns, rows = running_sums.sizes(
      experiment, scaffold, running_sums.row_transducers(experiment)[0]
    )
    n, m = columns[-1] + rng.integers(0, 4), rows[-1] + rng.integers(1, 4)
    return [(int(n), int(m)), (int(columns[-1] + 2), int(rng.integers(1, m)))]
  widths = receptive_fields.widths(
    experiment, scaffold, transducer_of(experiment.task)
  )
  if experiment.fixed_width is not None:
    return [experiment.fixed_width]
  return [int(widths[-1] + rng.integers(1, BEYOND + 1))]


def views_at(
  drawn: Draw, size: int | tuple[int, int]
) -> list[tuple[receptive_fields.ReceptiveField, receptive_fields.RowExample]]:
  """Returns the [(ReceptiveField, Example)] of all rows at a size."""
  args = drawn.experiment, drawn.scaffold
  if drawn.grid:
    return list(running_sums.views_at(*args, size, GRID_BOUND))
  transducer = transducer_of(drawn.experiment.task)
  return list(receptive_fields.views_at(*args, transducer, size, BOUND))


def check_size(
  drawn: Draw,
  survey: certificate.Survey,
  states: States,
  size: int | tuple[int, int],
) -> None:
  """Checks that no view is new, and that random inputs have the tables'
  logits."""
  rows = views_at(drawn, size)
  new = [example for view, example in rows if view not in survey.views]
  assert not new, f"a view that was not surveyed: {new[0]}"
  items = random_items(drawn, size)
  batch, logits = ordinary(drawn, drawn.params, items, size)
  order = drawn.rng.permutation(len(rows))[:4]
  for view, example in [rows[k] for k in order] + [rows[-1]]:
    contexts = contexts_of(drawn, survey, view, example, items, batch)
    compare(states.logits(view, contexts), logits[:, example.row])


def compare(tables: np.ndarray, dense: np.ndarray) -> None:
  """Checks that two computations of the same logits agree."""
  size = max(1.0, float(np.abs(dense).max()))
  gap = float(np.abs(tables - dense).max())
  assert gap <= TOLERANCE * size, f"tables and model differ by {gap}"


def random_items(drawn: Draw, size: int | tuple[int, int]) -> np.ndarray:
  """Returns digits of BATCH random inputs of a size."""
  if drawn.grid:
    n, m = size
    items = drawn.rng.integers(0, 10, (BATCH, 2, max(size))).astype(np.int32)
    items[:, 0, n:], items[:, 1, m:] = 0, 0
    return items
  return certificate._random_inputs(drawn.rng, drawn.experiment, BATCH, size)


def ordinary(
  drawn: Draw, params: dict, items: np.ndarray, size: int | tuple[int, int]
) -> tuple[packing.Batch, np.ndarray]:
  """Returns (batch, logits) of at most BATCH inputs by the ordinary pass."""
  experiment, count = drawn.experiment, len(items)
  task, kind = experiment.task, experiment.kind
  items = np.concatenate([items, items[-1:].repeat(BATCH - count, 0)])
  lengths = (
    size if drawn.grid else [experiment.nonzero_places(size)] * task.operands
  )
  bound = GRID_BOUND if drawn.grid else BOUND
  parsed = [(digits, lengths) for digits in items]
  batch = dataset.typed_batch(task, kind, parsed, size, bound)
  logits = np.asarray(forward(drawn.form)(params, drawn.scaffold, batch))
  return packing.take(jax.device_get(batch), lambda x: x[:count]), logits[
    :count
  ]


def contexts_of(
  drawn: Draw,
  survey: certificate.Survey,
  view: receptive_fields.ReceptiveField,
  example: receptive_fields.RowExample,
  items: np.ndarray,
  batch: packing.Batch,
) -> np.ndarray:
  """Returns what the inputs have in a view's columns: [B, columns]."""
  read_contexts = (
    running_sums._contexts if drawn.grid else certificate._contexts
  )
  return read_contexts(survey.transducer, view, example, items, batch)


def small_inputs(drawn: Draw) -> tuple[np.ndarray, int | tuple[int, int]]:
  """Returns (items [n, operands, ...], size) of all inputs of a small size.

  It is the largest size of which there are at most BATCH times four.
  """
  experiment, task = drawn.experiment, drawn.experiment.task
  if drawn.grid:
    return np.indices((10, 10)).reshape(2, -1).T[..., None].astype(np.int32), (
      1,
      1,
    )
  transducer = transducer_of(task)
  live = 1
  while (
    task.base ** ((live + 1) * len(transducer.long))
    * 10 ** len(task.shared_operands)
    <= 4 * BATCH
  ):
    live += 1
  width = experiment.fixed_width or live + task.slack
  live = min(live, experiment.nonzero_places(width))
  free = live * len(transducer.long) + len(task.shared_operands)
  digits = np.indices((task.base,) * free).reshape(free, -1).T
  items = np.zeros((len(digits), task.operands, width), np.int32)
  for k, operand in enumerate(transducer.long):
    items[:, operand, :live] = digits[:, k * live : (k + 1) * live]
  for k, operand in enumerate(task.shared_operands):
    items[:, operand, 0] = digits[:, live * len(transducer.long) + k]
  return items[: 16 * BATCH], width


def all_small(drawn: Draw, params: dict) -> tuple:
  """Returns (items, size, parts, target, logits) of all inputs of a small size.

  The parts are (batch, logits) of BATCH inputs each.
  """
  items, size = small_inputs(drawn)
  parts = [
    ordinary(drawn, params, part, size)
    for part in np.split(items, range(BATCH, len(items), BATCH))
  ]
  target = np.concatenate([np.asarray(batch.target) for batch, _ in parts])
  return items, size, parts, target, np.concatenate([x for _, x in parts])


def check_small(drawn: Draw, survey: certificate.Survey, states: States) -> int:
  """Checks all inputs of a small size against their contexts.

  Row by row, the inputs that are wrong must be those with a wrong context,
  which must be among those counted.

  Returns:
    How many inputs are wrong.
  """
  items, size, parts, target, logits = all_small(drawn, states.params)
  right = logits.argmax(-1) == target
  contexts_by_view = dict(zip(survey.views, survey.contexts, strict=True))
  wrong = np.zeros(len(items), bool)
  for view, example in views_at(drawn, size):
    contexts = np.concatenate(
      [
        contexts_of(drawn, survey, view, example, part, batch)
        for part, (batch, _) in zip(
          np.split(items, range(BATCH, len(items), BATCH)), parts, strict=True
        )
      ]
    )
    tables = states.logits(view, contexts)
    compare(tables, logits[:, example.row])
    end = survey.transducer.task.end
    margins = certificate.margins(view, contexts, tables, end)
    tie = np.abs(margins) < TOLERANCE * max(1.0, float(np.abs(tables).max()))
    agree = (margins > 0) == right[:, example.row]
    assert (agree | tie).all(), f"{example}: the program and the tables differ"
    wrong |= ~right[:, example.row]
    if contexts_by_view[view].count <= MOST:
      counted = np.concatenate(list(contexts_by_view[view].chunks(1 << 14)))
      assert len(np.unique(counted, axis=0)) == contexts_by_view[view].count
      both = np.concatenate([counted, contexts])
      assert len(np.unique(both, axis=0)) == len(counted), (
        "a context is missing"
      )
  return int(wrong.sum())


def all_contexts(
  survey: certificate.Survey,
) -> list[tuple[receptive_fields.ReceptiveField, np.ndarray]]:
  """Returns (view, contexts) of every view that has contexts."""
  return [
    (view, np.concatenate(list(contexts.chunks(1 << 14))))
    for view, contexts in zip(survey.views, survey.contexts, strict=True)
    if contexts.count
  ]


def check_fitted(drawn: Draw, survey: certificate.Survey) -> None:
  """Checks a head that is fitted, and then moved until a context fails.

  Right in all contexts, it must be right on all inputs; then it must be wrong
  by both.
  """
  task, cases = drawn.experiment.task, all_contexts(survey)
  head = f"logits_dense_{task.name}"
  shape = drawn.params[head]["kernel"].shape
  features = np.concatenate(
    [
      np.concatenate(
        [
          States(
            drawn.experiment,
            with_head(drawn, head, kernel),
            survey.transducer,
            1 << 12,
          ).logits(view, contexts)
          for view, contexts in cases
        ]
      )
      for kernel in np.array_split(
        np.eye(shape[0]), -(-shape[0] // shape[1]), axis=1
      )
      for kernel in [np.pad(kernel, ((0, 0), (0, shape[1] - kernel.shape[1])))]
    ],
    axis=1,
  )
  features = np.concatenate([features, np.ones((len(features), 1))], axis=1)
  answers = np.concatenate(
    [
      contexts[:, view.answer_column].astype(int)
      if view.answer_column is not None
      else np.full(len(contexts), task.end)
      for view, contexts in cases
    ]
  )
  wanted_logits = 10.0 * (answers[:, None] == np.arange(shape[1]))
  solution = np.linalg.lstsq(features, wanted_logits, rcond=1e-6)[0]
  # The constant is the last row; unused features have no share in it.
  columns = -(-shape[0] // shape[1])
  sizes = [len(x) for x in np.array_split(np.arange(shape[0]), columns)]
  rows = np.concatenate(
    [shape[1] * k + np.arange(n) for k, n in enumerate(sizes)]
  )
  kernel, bias = solution[rows], solution[-1]
  if np.abs(kernel).max() > 100:  # sums would cancel, and round
    return
  noise = drawn.rng.normal(size=kernel.shape)
  was_right = False
  for step in (0.0, 0.1, 0.3, 1.0, 3.0, 10.0):
    params = with_head(drawn, head, kernel + step * noise, bias)
    states = States(drawn.experiment, params, survey.transducer, 1 << 12)
    smallest = min(
      certificate.margins(
        view, contexts, states.logits(view, contexts), task.end
      ).min()
      for view, contexts in cases
    )
    moved = dataclasses.replace(drawn, params=params)
    wrong = check_small(moved, survey, states)
    if smallest > 0.05:
      was_right = True
      assert not wrong
      FITTED["right"] += 1
    elif was_right and smallest < -0.05:
      FITTED["moved and wrong"] += 1
      check_shortest(moved, survey, states)
      return


FITTED = collections.Counter()


def check_shortest(
  drawn: Draw, survey: certificate.Survey, states: States
) -> None:
  """Checks that an input made for the worst context fails in the ordinary
  pass."""
  worst = (np.inf, None)
  for (view, examples), (_, contexts) in zip(
    survey.views.items(), all_contexts(survey), strict=True
  ):
    end = drawn.experiment.task.end
    margins = certificate.margins(
      view, contexts, states.logits(view, contexts), end
    )
    k = int(margins.argmin())
    worst = min(
      worst, (margins[k], (view, examples[0], contexts[k])), key=lambda x: x[0]
    )
  view, example, context = worst[1]
  live = drawn.experiment.nonzero_places(example.width)
  items = certificate.input_with_context(survey, view, example, context, live)
  batch, logits = ordinary(drawn, drawn.params, items[None], example.width)
  assert logits[0, example.row].argmax() != batch.target[0, example.row]


def with_head(
  drawn: Draw, head: str, kernel: np.ndarray, bias: np.ndarray | None = None
) -> dict:
  """Returns the parameters with another output layer."""
  bias = np.zeros(kernel.shape[1]) if bias is None else bias
  params = {"kernel": jnp.float32(kernel), "bias": jnp.float32(bias)}
  return drawn.params | {head: params}


def main() -> int:
  """Hunts over the draws asked for; returns 1 if one does not hold."""
  # One program for all widths.
  receptive_fields.WIDTH_MULTIPLE, running_sums.SIZE_MULTIPLE = (
    BOUND,
    GRID_BOUND[0],
  )
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--first", type=int, default=0)
  parser.add_argument("--draws", type=int, default=100)
  parser.add_argument("--step", type=int, default=1)
  parser.add_argument("--task", default="", help="draws of this task alone")
  parser.add_argument("--out", default="")
  args = parser.parse_args()
  fates, by_form = collections.Counter(), collections.Counter()
  failures, start = [], time.time()
  for number in range(args.first, args.first + args.draws, args.step):
    if args.task not in draw_form(number).task:
      continue
    try:
      fate = hunt(number)
    except AssertionError as error:
      fate = "accepted and does not hold"
      failures.append([number, str(error)[:300]])
      print(number, draw(number).form, str(error)[:300], flush=True)
    fates[fate] += 1
    by_form[f"{draw_form(number)} | {fate.partition(':')[0]}"] += 1
    count = sum(fates.values())
    if count % 25 == 0:
      pace = (time.time() - start) / count
      print(f"{count} draws, {pace:.2f} s each: {dict(fates)}", flush=True)
      if args.out:
        with open(args.out, "w") as file:
          json.dump(
            {
              "first": args.first,
              "draws": args.draws,
              "step": args.step,
              "fates": fates,
              "fitted": FITTED,
              "by_form": by_form,
              "failures": failures,
            },
            file,
            indent=1,
          )
  print(json.dumps({"fates": fates, "fitted": FITTED}, indent=1))
  return bool(failures)


def draw_form(number: int) -> Form:
  """Returns the form of a draw, without the rest."""
  rng = np.random.default_rng([20261123, number])
  return FORMS[rng.integers(len(FORMS))]


if __name__ == "__main__":
  sys.exit(main())
