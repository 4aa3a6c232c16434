"""This module checks the conditions under which a model can be certified.

They are those of the lemmas of certify.survey (outputs with one axis), of
certify.running_sums (grids) and of certify.rounding.
"""

import numpy as np

from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.attention.lines import LEFT, RIGHT, WHOLE, Lines, SiteLines
from lengthgen_jax.certify import rounding
from lengthgen_jax.certify.receptive_fields import num_layers
from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks.numbers import NumberTask
from lengthgen_jax.tasks.task import Task


def check_certifiable(experiment: Experiment, scaffold: dict) -> None:
  """Checks that a model fulfills the conditions of a certificate.

  Args:
    experiment: the experiment that the model belongs to.
    scaffold: the model's lines (SiteLines of one seed) by site; matrices
      (SiteMatrix) are refused.

  Raises:
    UsageError: one line that says what stands in the way of a certificate and
      what would remove it.
  """
  task, config = experiment.task, experiment.model.config
  check(
    task.transducer or task.axes > 1,
    f"certify: {task.name} is no transducer, its outputs depend on more than"
    " the digits and outputs up to their place; only tasks whose outputs are"
    " those of a transducer can be certified",
  )
  check(
    not (isinstance(task, NumberTask) and task.is_constrained),
    f"certify: {task.name} excludes operands (its method constrain), and a"
    " proof is about all of them",
  )
  check(
    task.axes == 1 or not config.num_encoder_layers,
    "certify: an encoder over the operands of running sums is not covered by"
    " the proof; train with model.num_encoder_layers=0",
  )
  for site in ("cross", "self", "encoder"):
    if site not in experiment.model.sites or not num_layers(experiment, site):
      continue
    check(
      site in scaffold,
      f"certify: {site}-attention has no lines, every key is open; train with"
      + (
        " bias.kind=window and bias.windowed_encoder, or with"
        " model.num_encoder_layers=0"
        if site == "encoder"
        else " a scaffold (--mode=abc, or bias.kind=window)"
      ),
    )
    lines = scaffold[site]
    check(
      lines.supports_sparse,
      f"certify: {site}-attention has a dense bias, which covers no inputs"
      " longer than itself; calibrate lines instead",
    )
    depth = num_layers(experiment, site)
    check(
      len(lines.transparent) in (1, depth),
      f"certify: {site}-attention has lines of {len(lines.transparent)} layers,"
      f" the model {depth}; give one set of lines for all layers, or one for"
      " each",
    )
    for layer, head in np.argwhere(np.asarray(lines.transparent)):
      raise UsageError(
        f"certify: {site}-attention, layer {layer}, head {head} is transparent,"
        " it sees everything; calibrate with calibration.empty_heads=closed"
      )
  rounding.check_arithmetic(config)
  settings = (  # (whether a field is an obstacle, its name, a valid value)
    (config.temperature.kind != "none", "temperature.kind", "none"),
    (not config.positions.placeless, "positions.kind", "none"),
    (experiment.bias.closed != CLOSED, "bias.closed", "-1e9"),
    (experiment.bias.allow_leak, "bias.allow_leak", "False"),
  )
  for is_obstacle, field, value in settings:
    check(
      not is_obstacle,
      f"certify: with this run's {field} a row depends on its position, on the"
      " length of the input, or on what comes later; train with"
      f" {field}={value}"
      + (
        ", or sinusoidal or learned with positions.cyclic_period"
        if field.startswith("pos")
        else ""
      ),
    )
  check(
    task.axes == 1 or config.positions.kind == "none",
    "certify: running sums with a cyclic index are not covered by the proof;"
    " train with positions.kind=none",
  )
  check(
    experiment.kind == "encoder_decoder" or 2 not in task.strides,
    "certify: in a decoder-only model aligned operands have two tokens for each"
    " output, which the proof does not cover; choose arithmetic.aligned=False",
  )
  if task.axes > 1:
    _check_grid(experiment, scaffold)
  else:
    for site, lines in scaffold.items():
      _check_slopes(task, site, lines)


def _check_slopes(task: Task, site: str, lines: SiteLines) -> None:
  """Checks that from one row to the next, each line moves by the stride of its
  segment, the number of tokens from a digit to the next (Task.strides), or not
  at all.

  Lines of self-attention to outputs or to the whole sequence must be anchored
  left, because the last output is not known during decoding.

  Raises:
    UsageError: a line moves by another number of tokens, or has the wrong
      anchor.
  """
  # The start token's segment is the one after that of the outputs.
  outputs = np.isin(
    lines.segment, (WHOLE, task.target_segment, task.target_segment + 1)
  )
  is_from_last = outputs & (np.asarray(lines.anchor) == RIGHT) & lines.valid
  check(
    site != "self" or not is_from_last.any(),
    "certify: a line of self-attention counts outputs from the last one, which"
    " is not known during decoding; give it the anchor left",
  )
  # The stride of each segment; 1 if it is missing here, or 0 (a segment of
  # fixed size). The rows of an encoder are single tokens of the prompt.
  strides = dict(enumerate(task.strides)) if site != "encoder" else {}
  strides[WHOLE] = max((1, *task.strides)) if site == "cross" else 1
  valid = np.asarray(lines.valid)
  for segment, step in zip(
    np.asarray(lines.segment)[valid],
    np.abs(lines.matrix).max((-2, -1), initial=0)[valid],
    strict=True,
  ):
    stride = strides.get(int(segment), 1) or 1
    check(
      step in (0, stride),
      f"certify: a line of {site}-attention moves {step} tokens from row to"
      f" row, the digits {stride}; calibrate with other calibration.directions"
      " or calibration.self_directions",
    )


def _check_grid(experiment: Experiment, scaffold: dict[str, SiteLines]) -> None:
  """Checks that the lemma of certify.running_sums covers the lines of a grid.

  Raises:
    UsageError: it does not cover one of them.
  """
  for site, lines in scaffold.items():
    names = experiment.site_segments[site]
    valid = np.asarray(lines.valid)
    for line in map(Lines._make, zip(*lines.lines.take(valid), strict=True)):
      reason = _grid_obstacle(experiment, site, line)
      check(
        not reason,
        f"certify: a line of {site}-attention ({line.describe(names)})"
        f" {reason}, which the proof for running sums does not cover;"
        " calibrate with calibration.lines=operand and calibration.reach=1",
      )


def _grid_obstacle(experiment: Experiment, site: str, line: Lines) -> str:
  """Returns why the lemma does not cover one line of a site: a predicate for
  the error message, "" if it does.

  Offsets have two axes: the first counts the rows j of the grid, the second the
  digits of a row. The operands are a, along the second axis, and b, along the
  first, with a digit for each j.
  """
  task = experiment.task
  row_segment, segment, anchor, m, c = map(np.asarray, line)
  if segment == WHOLE:
    return "counts along the whole sequence"
  has_prompt_rows = site == "self" and experiment.kind == "decoder_only"
  if has_prompt_rows and row_segment != task.target_segment:
    return "opens keys in the prompt's rows"
  if m[0, 1] or m[1, 0]:
    return "follows one axis along the other"
  if abs(m[1, 1]) > 1:
    return f"moves {abs(m[1, 1])} digits for one digit of the row"
  follows_row, is_fixed = m[0, 0] == 1, m[0, 0] == 0 and c[0] == 0
  if segment == task.target_segment:
    is_covered = follows_row and anchor == LEFT
    return "" if is_covered else "does not follow the row"
  is_operand = 0 <= segment < task.target_segment
  if not (is_operand and task.segment_axes[segment] == 0):
    # All tokens of this segment have the offset 0 along the axis of j.
    return "" if is_fixed else "opens in some rows only"
  if follows_row and anchor == RIGHT or is_fixed and anchor == LEFT:
    return ""  # it opens digit j + c of b in row j, or b's mark in every row
  return "does not follow the row"
