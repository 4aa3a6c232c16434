"""This script searches for models that a certificate would wrongly accept.

Every draw is a small random model with random lines, which the conditions of a
certificate may or may not accept. If they do, what a certificate assumes must
hold at sizes beyond those that are surveyed: no row has a receptive field that
is not among those surveyed, and the layer-wise logits are those of the ordinary
forward pass. On all inputs of a small size, the ordinary program must be wrong
in exactly those rows whose context is wrong.

A draw is a function of its number. Draws from 10 000 on are of the same forms,
three in four of them with a segment embedding where they can have one, and
those from 20 000 on are of LATER_FORMS:

  python tests/certificate_hunt.py --first=0 --draws=10000
"""

import argparse
import collections
import dataclasses
import functools
import itertools
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import untrained

from lengthgen_jax.attention.lines import ANY, LEFT, RIGHT, WHOLE, SiteLines
from lengthgen_jax.certify import (
  certificate,
  conditions,
  running_sums,
  survey,
)
from lengthgen_jax.certify.logits import LayerwiseLogits
from lengthgen_jax.certify.receptive_fields import ReceptiveField, Size
from lengthgen_jax.certify.running_sums import RunningSumSurvey
from lengthgen_jax.certify.survey import Survey
from lengthgen_jax.errors import UsageError
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import TASKS, dataset, packing

WIDEST = 44  # the largest width that a draw may have surveyed
PADDED_WIDTH = 52  # every batch is padded to this width
GRID_WIDEST, PADDED_GRID = (33, 4), (40, 7)
LINES = 3  # the most lines of a head
BATCH = 16  # inputs that are computed at once
MAX_SIZES_BEYOND = 6  # the most by which a width exceeds the largest surveyed
TOLERANCE = 2e-4  # of logits, relative to the largest logit, at least 1


class Form(NamedTuple):
  """A form is a task and config fields; draws of one form share its compiled
  programs.

  Attributes:
    task: the name of the task.
    kind: model.kind.
    fields: (name, value) of config fields.
  """

  task: str
  kind: str = "encoder_decoder"
  fields: tuple[tuple, ...] = ()


def forms() -> list[Form]:
  """Returns the forms of draws below 10 000: tasks with a transducer, in both
  families, and some of them with other options of the model."""
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
  fixed = {"data.width": "fixed", "data.fixed_width": 9}

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
    ("multiply", aligned | packed),  # certify refuses it
    ("dyck", {"dyck.brackets": "()[]", "dyck.bound": 1}),
    ("modular", packed | {"model.num_decoder_layers": 4}),
    ("copy", {"model.norm": "block_end", "model.norm_kind": "rms"}),
  ]
  # Drawn three times as often, because grids have the most kinds of lines.
  variants += [("multiply_long", {}), ("multiply_long", packed)] * 3
  variants += [("multiply_long", one_layer), ("multiply_long", encoder)]
  all_forms = []
  for task, fields in variants:
    fields = alphabets.get(task, {}) | fields
    kind = fields.get("model.kind", "encoder_decoder")
    all_forms.append(Form(task, kind, tuple(fields.items())))
  return all_forms


FORMS = forms()


def segment_forms() -> list[Form]:
  """Returns FORMS, three in four of them with a segment embedding, if their
  inputs have more than one segment."""
  all_forms = []
  for number, form in enumerate(FORMS):
    packed, fields = form.kind == "decoder_only", dict(form.fields)
    has_two_operand_segments = (
      TASKS[form.task].operands > 1 and "arithmetic.aligned" not in fields
    )
    fields["positions.segments"] = (
      packed or has_two_operand_segments
    ) and number % 4 < 3
    all_forms.append(form._replace(fields=tuple(fields.items())))
  return all_forms


# Forms of a task that was added after the draws of the others had been tried.
LATER_FORMS = [
  Form("increment"),
  Form("increment", "decoder_only", (("model.kind", "decoder_only"),)),
]
# The forms of draws, by the first number that has them.
FORMS_FROM = {0: FORMS, 10_000: segment_forms(), 20_000: LATER_FORMS}


@functools.cache
def experiment_of(form: Form) -> Experiment:
  """Returns the experiment of a form."""
  fields = {"positions.kind": "none", "model.num_decoder_layers": 2}
  fields |= {"model.num_encoder_layers": 0, "data.train_length": 2}
  fields |= {"model.emb_dim": 32}
  return untrained.experiment(form.task, form.kind, fields | dict(form.fields))


@functools.cache
def forward(form: Form):
  """Returns the ordinary forward pass of a form as a compiled function (params,
  scaffold, batch) -> logits [B, T, V]."""
  experiment = experiment_of(form)
  head = experiment.task.name
  return jax.jit(lambda *model: experiment.apply(*model, head)[0])


@dataclasses.dataclass
class Draw:
  """A Draw is a random model with random lines.

  Attributes:
    form: the form of the model.
    params: the parameters.
    survey: the survey of the model's rows, which has the lines.
    rng: the source of random numbers for the checks.
  """

  form: Form
  params: dict
  survey: Survey
  rng: np.random.Generator

  @property
  def experiment(self) -> Experiment:
    """Returns the experiment of the form."""
    return self.survey.experiment

  @property
  def is_grid(self) -> bool:
    """Returns whether the task's outputs are a grid."""
    return isinstance(self.survey, RunningSumSurvey)

  @property
  def bound(self) -> Size:
    """Returns the static bound of sizes."""
    return PADDED_GRID if self.is_grid else PADDED_WIDTH

  @functools.cached_property
  def layerwise(self) -> LayerwiseLogits:
    """Returns the function that computes logits of contexts layer by layer."""
    transducer = self.survey.transducer
    return LayerwiseLogits(self.experiment, self.params, transducer, 1 << 12)


def draw(number: int) -> Draw:
  """Returns the draw with this number."""
  rng = np.random.default_rng([20261123, number])
  choices = FORMS_FROM[max(first for first in FORMS_FROM if first <= number)]
  form = choices[rng.integers(len(choices))]
  experiment = experiment_of(form)
  random_like = lambda x: (
    (0.3 if len(x.shape) > 1 else 1.0) * rng.normal(size=x.shape)
  )
  shapes = jax.eval_shape(lambda: experiment.init(0))
  params = jax.tree.map(lambda x: jnp.asarray(random_like(x), x.dtype), shapes)
  reach = int(rng.choice([0, 1, 1, 2, 3, 6]))
  for _ in range(8):
    scaffold = random_scaffold(rng, experiment, reach)
    drawn = Draw(
      form, params, certificate.make_survey(experiment, scaffold), rng
    )
    if not too_large(drawn):
      break
    reach = max(reach - 1, 0)
  return drawn


def too_large(drawn: Draw) -> bool:
  """Returns whether the largest size to survey is more than a draw may have."""
  widest = GRID_WIDEST if drawn.is_grid else WIDEST
  return bool(np.greater(drawn.survey.largest, widest).any())


def random_scaffold(
  rng: np.random.Generator, experiment: Experiment, reach: int
) -> dict[str, SiteLines]:
  """Returns random lines by site, most of them like those that calibration
  finds.

  `reach` is the greatest intercept of a line that leads far away. Up to one
  draw in eight has a feature that a certificate refuses: a line with a doubled
  step (unless it is closed or its step is 0), a transparent head, or, on grids,
  a matrix that mixes the axes.
  """
  scaffold = {}
  config, task = experiment.model.config, experiment.task
  refused_feature = (
    rng.choice(["step", "transparent", "mixed", ""])
    if rng.random() < 0.12
    else ""
  )
  for site in experiment.model.sites:
    encoder = site == "encoder"
    layers = config.num_encoder_layers if encoder else config.num_decoder_layers
    if not layers:
      continue
    # In a post-norm model, layers share one scaffold.
    layers = 1 if config.norm == "post" else layers
    shape = (layers, config.num_heads, LINES)
    make = grid_lines if task.axes > 1 else row_lines
    lines = make(rng, experiment, site, shape, reach)
    valid = rng.random(shape) < rng.choice([0.4, 0.8])
    valid &= (rng.random(shape[:2]) < 0.85)[..., None]  # closed heads
    value = np.float32(rng.integers(-2, 1, shape) / 2)
    if refused_feature == "step":
      lines["matrix"][0, 0, 0] *= 2
    if refused_feature == "mixed" and task.axes > 1:
      lines["matrix"][0, 0, 0, 0, 1] = 1
    transparent = np.zeros(shape[:2], bool)
    transparent[0, 0] = refused_feature == "transparent"
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
  """Returns {field: array} of SiteLines with one axis, for `random_scaffold`;
  `shape` is (layers, heads, lines)."""
  task, packed = experiment.task, experiment.kind == "decoder_only"
  target = task.target_segment
  operands = [*range(target)] * (site != "self" or packed)
  outputs = [target, target, target + 1] * (site == "self")
  segment = rng.choice([*operands, *operands, *outputs, WHOLE], shape)
  ends = np.isin(segment, operands) | ((segment == WHOLE) & (site != "self"))
  anchor = np.where(ends, rng.choice([LEFT, RIGHT, RIGHT], shape), LEFT)
  rows = ANY if site == "encoder" else target

  row_segment = rng.choice([rows, rows, ANY], shape)
  pace = np.ones(shape, int)
  if site == "cross":
    pace[:] = max(1, *task.strides)
  step = pace * rng.choice([1, 1, 1, 0, -1], shape)
  is_to_output = np.isin(segment, outputs)
  step = np.where(is_to_output & (step < 0), 1, step)
  intercept = rng.choice([0, 0, 0, 1, -1], shape)
  intercept = np.where(
    is_to_output, -rng.choice([1, 1, 2, 0], shape), intercept
  )
  far_line = tuple(rng.integers(n) for n in shape)
  if rng.random() < 0.5:
    intercept[far_line] = rng.integers(-reach, reach + 1)
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
  """Returns {field: array} of SiteLines with two axes, for `random_scaffold`;
  `shape` is (layers, heads, lines).

  They lead mostly to cells near a row's own. Lines to an earlier row of the
  grid ("before") stand in the first layer alone.
  """
  task, packed = experiment.task, experiment.kind == "decoder_only"
  names = []
  if site != "self" or packed:
    names += ["a", "a", "b", "mark"]
  if site == "self":
    names += ["row", "row", "before", "start"]
  a, b, target = 0, 1, task.target_segment
  fields = {
    "row_segment": np.full(shape, target, np.int32),
    "segment": np.zeros(shape, np.int32),
    "anchor": np.zeros(shape, np.int32),
    "matrix": np.zeros((*shape, 2, 2), np.int32),
    "intercept": np.zeros((*shape, 2), np.int32),
  }
  far_line = (
    tuple(rng.integers(n) for n in shape) if rng.random() < 0.2 else None
  )
  for place in itertools.product(*map(range, shape)):
    name = rng.choice(names)
    if name == "before" and place[0] > 0:
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
    if place == far_line:
      c[rng.integers(2)] = rng.integers(-max(reach, 4), max(reach, 4) + 1)
    values = target, segment, anchor, matrix, c
    for field, value in zip(fields.values(), values, strict=True):
      field[place] = value
  if rng.random() < 0.1:
    fields["row_segment"][0, 0, 0] = ANY
  return fields


# What must hold for a draw.


def hunt(number: int) -> str:
  """Returns what became of the draw with this number, as text: "held",
  "refused: REASON" or "left out: REASON".

  Raises:
    AssertionError: the draw is wrongly accepted.
  """
  drawn = draw(number)
  try:
    conditions.check_certifiable(drawn.experiment, drawn.survey.scaffold)
    if too_large(drawn):
      return "left out: too many sizes"
    assert drawn.survey.groups
  except UsageError as reason:
    return f"refused: {reason}"
  for size in sizes_beyond(drawn):
    check_size(drawn, size)
  check_small(drawn)
  return "held"


def sizes_beyond(drawn: Draw) -> list[Size]:
  """Returns sizes beyond those surveyed; at data.width=fixed the only size."""
  largest, rng = drawn.survey.largest, drawn.rng
  if drawn.is_grid:
    n, m = largest[0] + rng.integers(0, 4), largest[1] + rng.integers(1, 4)
    return [(int(n), int(m)), (largest[0] + 2, int(rng.integers(1, m)))]
  if drawn.experiment.fixed_width is not None:
    return [drawn.experiment.fixed_width]
  return [int(largest + rng.integers(1, MAX_SIZES_BEYOND + 1))]


def check_size(drawn: Draw, size: Size) -> None:
  """Checks that no receptive field is new, and that the layer-wise logits are
  those of the ordinary pass on random inputs."""
  known = {group.receptive_field for group in drawn.survey.groups}
  rows = list(drawn.survey.rows_at(size, drawn.bound))
  new = [row for field, row in rows if field not in known]
  assert not new, f"a receptive field that was not surveyed: {new[0]}"
  items = random_items(drawn, size)
  batch, logits = ordinary_logits(drawn, items, size)
  order = drawn.rng.permutation(len(rows))[:4]
  for field, row in [rows[k] for k in order] + [rows[-1]]:
    contexts = drawn.survey.contexts_of(field, row, items, batch)
    compare(drawn, field, contexts, logits[:, row.index])


def compare(
  drawn: Draw, field: ReceptiveField, contexts: np.ndarray, dense: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Checks that the layer-wise logits of contexts agree with `dense`, those of
  the ordinary pass, and that their margins agree within the bound of rounding.

  Returns:
    The layer-wise logits, and their margins.
  """
  layerwise, errors = drawn.layerwise(field, contexts)
  size = max(1.0, float(np.abs(dense).max()))
  gap = float(np.abs(layerwise - dense).max())
  assert gap <= TOLERANCE * size, f"layer-wise and dense logits: {gap} apart"
  answers = field.right_tokens(contexts)
  margins, dense_margins = (
    certificate.margins(logits, answers) for logits in (layerwise, dense)
  )
  bounds = certificate.bounds(layerwise, answers, errors)
  is_within = np.abs(margins - dense_margins) <= bounds
  assert is_within.all(), "margins differ by more than the bound of rounding"
  return layerwise, margins


def random_items(drawn: Draw, size: Size) -> np.ndarray:
  """Returns the items [BATCH, operands, ...] of random inputs of a size."""
  if not drawn.is_grid:
    return drawn.survey.random_inputs(drawn.rng, BATCH, size)
  n, m = size
  items = drawn.rng.integers(0, 10, (BATCH, 2, max(size))).astype(np.int32)
  items[:, 0, n:], items[:, 1, m:] = 0, 0
  return items


def ordinary_logits(
  drawn: Draw, items: np.ndarray, size: Size
) -> tuple[packing.Batch, np.ndarray]:
  """Returns the batch of inputs with these items, and their logits by the
  ordinary pass."""
  experiment, count = drawn.experiment, len(items)
  task, kind = experiment.task, experiment.kind
  padded = np.concatenate([items, items[-1:].repeat(-count % BATCH, 0)])
  places = experiment.nonzero_places(np.asarray(size))
  lengths = np.broadcast_to(places, task.operands)
  parsed = [(digits, lengths) for digits in padded]
  batch = dataset.parsed_batch(task, kind, parsed, size, drawn.bound)
  batch, scaffold = jax.device_get(batch), drawn.survey.scaffold
  take = lambda start, end: packing.take(batch, lambda x: x[start:end])
  logits = [
    forward(drawn.form)(drawn.params, scaffold, take(n, n + BATCH))
    for n in range(0, count, BATCH)
  ]
  return take(0, count), np.concatenate(logits)[:count]


def small_inputs(drawn: Draw) -> tuple[np.ndarray, Size]:
  """Returns (items [n, operands, ...], size) of all inputs of a small size.

  It is the largest length with at most 4 * BATCH inputs, or length 1.
  """
  if drawn.is_grid:
    digits = np.indices((10, 10)).reshape(2, -1).T
    return digits[..., None].astype(np.int32), (1, 1)
  experiment, transducer = drawn.experiment, drawn.survey.transducer
  task, long, shared = experiment.task, transducer.long, transducer.shared
  length, count = 0, 10 ** len(shared)
  while not length or count * task.base ** len(long) <= 4 * BATCH:
    length, count = length + 1, count * task.base ** len(long)
  width = experiment.fixed_width or length + task.slack
  length = min(length, experiment.nonzero_places(width))
  num_digits = length * len(long) + len(shared)
  digits = np.indices((task.base,) * num_digits).reshape(num_digits, -1).T
  items = np.zeros((len(digits), task.operands, width), np.int32)
  for k, operand in enumerate(long):
    items[:, operand, :length] = digits[:, k * length : (k + 1) * length]
  for k, operand in enumerate(shared):
    items[:, operand, 0] = digits[:, length * len(long) + k]
  assert len(items) <= 16 * BATCH, len(items)
  return items + task.first_item, width


def check_small(drawn: Draw) -> None:
  """Checks each row on all inputs of a small size: the program is wrong exactly
  where the context is wrong, and every context was counted."""
  items, size = small_inputs(drawn)
  batch, logits = ordinary_logits(drawn, items, size)
  is_right = logits.argmax(-1) == np.asarray(batch.target)
  groups = {group.receptive_field: group for group in drawn.survey.groups}
  for field, row in drawn.survey.rows_at(size, drawn.bound):
    contexts = drawn.survey.contexts_of(field, row, items, batch)
    layerwise_logits, margins = compare(
      drawn, field, contexts, logits[:, row.index]
    )
    tie = np.abs(margins) < TOLERANCE * max(
      1.0, float(np.abs(layerwise_logits).max())
    )
    agree = (margins > 0) == is_right[:, row.index]
    assert (agree | tie).all(), f"{row}: the program and the contexts disagree"
    group = groups[field]
    if group.contexts.count <= 20_000:
      counted = np.concatenate(list(group.contexts.chunks(1 << 14)))
      assert len(np.unique(counted, axis=0)) == group.contexts.count
      union = np.concatenate([counted, contexts])
      assert len(np.unique(union, axis=0)) == len(counted), (
        "a context is missing"
      )


if __name__ == "__main__":
  # Pads every survey to one size, so that one compiled program serves all
  # widths.
  survey.WIDTH_MULTIPLE, running_sums.SIZE_MULTIPLE = (
    PADDED_WIDTH,
    PADDED_GRID[0],
  )
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--first", type=int, default=0)
  parser.add_argument("--draws", type=int, default=100)
  args = parser.parse_args()
  outcomes = collections.Counter()
  for number in range(args.first, args.first + args.draws):
    try:
      outcome = hunt(number).partition(":")[0]
    except AssertionError as error:
      outcome = "wrongly accepted"
      print(number, str(error)[:300], flush=True)
    outcomes[outcome] += 1
    if outcomes.total() % 25 == 0:
      print(dict(outcomes), flush=True)
  sys.exit("wrongly accepted" in outcomes)
