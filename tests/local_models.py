"""This module has models that nobody trained, whose attention follows lines."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import untrained
from plain_lines import one_seed, random_lines

from lengthgen_jax.attention.lines import (
  ANY,
  LEFT,
  RIGHT,
  WHOLE,
  Line,
  SiteLines,
  shared_lines,
)
from lengthgen_jax.certify import certificate
from lengthgen_jax.certify.certificate import Tally
from lengthgen_jax.certify.logits import DenseLogits, LayerwiseLogits
from lengthgen_jax.certify.survey import SequenceSurvey
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import dataset

BATCH = 14  # at least one example for each row at a width of 11
BEYOND = 6  # the most by which a width exceeds the largest surveyed
# Config fields of positions that a certificate allows.
CYCLIC = {
  "positions.kind": "sinusoidal",
  "positions.cyclic_period": 3,
  "positions.source_anchor": "right",
}


@functools.cache
def model(task, kind="encoder_decoder", aligned=False, encoder=0, fields=()):
  """Returns (experiment, parameters) of a small model.

  Args:
    task: the name of the task.
    kind: model.kind.
    aligned: arithmetic.aligned.
    encoder: the number of encoder layers.
    fields: (name, value) of further config fields.
  """
  form = {
    "arithmetic.aligned": aligned,
    "model.num_decoder_layers": 2,
    "model.num_encoder_layers": encoder,
    "positions.kind": "none",
    "model.dropout_rate": 0.1,  # of training alone
  }
  experiment = untrained.experiment(task, kind, form | dict(fields))
  if task == "addition" and not aligned or experiment.task.ragged:
    return experiment, untrained.params(experiment)
  # The parameters of addition, but for the name of the task's output head.
  params = model("addition", kind, False, encoder, fields)[1]
  return experiment, {n.replace("addition", task): x for n, x in params.items()}


def lines(*lines_of_heads: Line) -> SiteLines:
  """Returns one seed's SiteLines, the same for all layers and both heads."""
  return one_seed(shared_lines(list(lines_of_heads), 2))


@dataclasses.dataclass
class Case:
  """A Case is a model that nobody trained, with the survey of its rows.

  Attributes:
    experiment, params: the model.
    scaffold: one seed's lines by site.
    survey: the SequenceSurvey, whose greatest width is `largest`.
    bound: the static bound of widths.
    layerwise: the LayerwiseLogits of the model.
    apply: the compiled function (params, scaffold, batch) -> logits.
    rows: a cached `_rows`.
  """

  experiment: Experiment
  params: dict
  scaffold: dict

  def __post_init__(self):
    self.survey = SequenceSurvey(self.experiment, self.scaffold)
    self.largest = self.survey.largest
    self.bound = self.survey.bound(self.largest + BEYOND)
    args = self.experiment, self.params, self.survey.transducer
    self.layerwise = LayerwiseLogits(*args, 1 << 10)
    head = self.experiment.task.name
    self.apply = jax.jit(lambda *model: self.experiment.apply(*model, head)[0])
    self.rows = functools.cache(self._rows)

  def _rows(self, width: int) -> dict:
    """Returns {index: (ReceptiveField, Row)} of all rows at a width."""
    rows = self.survey.rows_at(width, self.bound)
    return {row.index: (field, row) for field, row in rows}

  @functools.cached_property
  def receptive_fields(self) -> set:
    """Returns all receptive fields that are surveyed."""
    widths = self.survey.sizes()
    return {field for w in widths for field, _ in self.rows(w).values()}

  def inputs(self, width: int):
    """Returns (digits, batch) of random inputs of a width."""
    rng, task = np.random.default_rng(0), self.experiment.task
    items = self.survey.random_inputs(rng, BATCH, width)
    lengths = [self.experiment.nonzero_places(width)] * task.operands
    parsed = [(digits, lengths) for digits in items]
    kind = self.experiment.kind
    return items, dataset.parsed_batch(task, kind, parsed, width, self.bound)

  def dependencies(self, width: int):
    """Returns a row for each example of a batch, and what it depends on.

    Returns:
      The indices [B] of the rows, and {"inputs" or "source": [B, L] bool},
      whether a token is in the receptive field of the example's row.
    """
    (layout,), rows = self.survey.layouts(width, self.bound), self.rows(width)
    indices = [list(rows)[i % len(rows)] for i in range(BATCH)]
    inside = {"decoder": [], "encoder": []}
    for field, row in (rows[index] for index in indices):
      place = lambda t, row=row: row.places[t.place] if t.place >= 0 else -1
      keys = {
        (stack, t.kind, t.id, place(t))
        for stack, tokens in field.tokens
        for t in tokens
      }
      for stack, tokens in layout.tokens.items():
        inside[stack].append([(stack, *t.key) in keys for t in tokens])
    names = {"decoder": "inputs", "encoder": "source"}
    return np.array(indices), {
      names[stack]: np.array(inside[stack]) for stack in layout.tokens
    }


def some_lines(experiment: Experiment, seed: int) -> dict:
  """Returns one seed's random lines by site, different in every layer and head.

  Most are diagonals whose step is the stride of the task's operands; some are
  anti-diagonals or verticals.
  """
  task, config = experiment.task, experiment.model.config
  target = task.target_segment
  operands, rng = list(range(target)), np.random.default_rng(seed)
  scaffold = {}
  for site in experiment.model.sites:
    is_encoder, is_self = site == "encoder", site == "self"
    layers = config.num_encoder_layers if is_encoder else 2
    if not layers:
      continue
    read = operands * (not is_self or experiment.kind == "decoder_only")
    names = [*read, *read, WHOLE, *[target] * is_self]
    ends = (*read, *[WHOLE] * (not is_self))
    count = 6 if is_self and read else 3
    shape = (1, layers, config.num_heads, count)
    rows = (ANY,) if is_encoder else (ANY, target)
    site_lines = random_lines(seed, shape, 1, names, ends, rows)
    of_operand = np.isin(site_lines.segment, operands)
    is_forward = (site_lines.anchor == RIGHT) | ~of_operand
    step = np.where(is_forward, 1, -1) * rng.choice((1, 1, 0, -1), shape)
    of_output_rows = (site_lines.row_segment == target) & of_operand
    step *= np.where(of_output_rows, max((1, *task.strides)), 1)
    site_lines.matrix[:] = step[..., None, None]
    site_lines.intercept[:] = rng.integers(-1, 2, site_lines.intercept.shape)
    scaffold[site] = one_seed(site_lines)
  return scaffold


# The line of each of two heads: to the row itself and to the one before; to the
# digit of the row's place and to the next one.
HEADS = {
  "self": [Line(WHOLE, LEFT, 1, 0), Line(WHOLE, LEFT, 1, -1)],
  "cross": [Line(0, RIGHT, 1, 0), Line(0, RIGHT, 1, 1)],
}


def by_head(site: str, task) -> SiteLines:
  """Returns one seed's SiteLines of HEADS at a site, a line for each head."""
  heads = HEADS[site]
  if site == "cross":
    anchor = LEFT if task.anchor == "left" else RIGHT
    heads = [line._replace(anchor=anchor) for line in heads]
  each = [one_seed(shared_lines([line], 1)) for line in heads]
  join = lambda *x: np.concatenate(x, axis=1)
  return SiteLines(*map(join, *each))


@functools.cache
def small(task: str):
  """Returns a random model of a task, and what certification makes of it.

  The model has one layer, and predicts only what may be right: digits and the
  end token.

  Returns:
    (Model, Survey, LayerwiseLogits, DenseLogits, [Tally of each group]).
  """
  experiment, params = model(task, fields=(("model.num_decoder_layers", 1),))
  head = f"logits_dense_{task}"
  words = np.arange(experiment.model.config.vocab_size)
  end = experiment.task.end
  digit = words - experiment.task.first_item
  likely = (digit >= 0) & (digit < experiment.task.base) | (words == end)
  kernel = 4.0 * params[head]["kernel"]  # the prediction varies with the input
  head_params = {"kernel": kernel, "bias": 12.0 * likely}
  params = params | {head: jax.tree.map(jnp.float32, head_params)}
  scaffold = {site: by_head(site, experiment.task) for site in HEADS}
  survey = certificate.make_survey(experiment, scaffold)
  layerwise = LayerwiseLogits(experiment, params, survey.transducer, 128)
  tallies = []
  for group in survey.groups:
    tallies.append(Tally())
    cases = sum(
      certificate.count_cases(layerwise.without_bounds, group, tallies[-1])
    )
    assert cases == group.contexts.count == tallies[-1].cases
  dense = DenseLogits(experiment, scaffold, params, 64)
  return Model(experiment, scaffold, params), survey, layerwise, dense, tallies
