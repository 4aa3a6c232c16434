"""This module decides whether a model is right at every length, by trying all
of its contexts.

The lemma of certify.survey says why finitely many contexts suffice. A
certificate rests on three things that are not proved here: the lemma; that the
attention bias of the model is finite on the cells where the survey found it so,
and -inf on all others; and that floating-point rounding is never larger than
what `measure_rounding` and `rounding_of_thin_contexts` measured.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator

import jax
import numpy as np

from lengthgen_jax.certify.logits import (
  DenseLogits,
  LayerwiseLogits,
  in_float64,
)
from lengthgen_jax.certify.receptive_fields import ReceptiveField
from lengthgen_jax.certify.running_sums import RunningSumSurvey
from lengthgen_jax.certify.survey import (
  RowGroup,
  Scaffold,
  SequenceSurvey,
  Survey,
)
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment

LEMMA = 2  # version of the lemma; older certificates are computed again
# The contexts of a receptive field with the smallest margins are called thin; a
# tally keeps this many of them.
MAX_THIN = 32
HISTOGRAM_EDGES = np.concatenate([[-np.inf], np.arange(-8, 40, 0.5), [np.inf]])
ULPS = 2  # the least rounding assumed, in units of a logit's last binary digit
# Margins below this many times the rounding are computed again in float64.
RECOMPUTE_FACTOR = 100
# Margins below this many times the rounding prove nothing.
CERTAIN_FACTOR = 10
INPUTS_PER_FAILURE = 8  # training inputs made of each failing context


def make_survey(experiment: Experiment, scaffold: Scaffold) -> Survey:
  """Returns the survey of a model, by whether its outputs are a grid."""
  is_grid = experiment.task.axes > 1
  return (RunningSumSurvey if is_grid else SequenceSurvey)(experiment, scaffold)


# All cases, and their margins.


@dataclasses.dataclass
class Tally:
  """A Tally counts the right and the wrong contexts of a receptive field.

  Attributes:
    cases: how many contexts were checked.
    wrong: how many of them have a margin that is not positive.
    margin: the smallest margin of any context.
    histogram: the number of margins in each interval of HISTOGRAM_EDGES.
    thin: [[margin, context]] of the MAX_THIN contexts with the smallest
      margins, smallest first.
  """

  cases: int = 0
  wrong: int = 0
  margin: float = float("inf")
  histogram: list = dataclasses.field(
    default_factory=lambda: [0] * (len(HISTOGRAM_EDGES) - 1)
  )
  thin: list = dataclasses.field(default_factory=list)

  def add(self, contexts: np.ndarray, margins: np.ndarray) -> None:
    """Adds the contexts [B, columns] of a chunk and their margins [B]."""
    self.cases += len(contexts)
    self.wrong += int((margins <= 0).sum())
    self.margin = min(self.margin, float(margins.min()))
    counts = np.histogram(margins, HISTOGRAM_EDGES)[0]
    self.histogram = (np.array(self.histogram) + counts).tolist()
    order = np.argsort(margins, kind="stable")[:MAX_THIN]
    chunk_thin = [
      [float(margin), context.tolist()]
      for margin, context in zip(margins[order], contexts[order], strict=True)
    ]
    self.thin = sorted([*self.thin, *chunk_thin])[:MAX_THIN]

  def thin_contexts(self, below: float = float("inf")) -> np.ndarray:
    """Returns the thin contexts [n, columns] below a margin."""
    contexts = [context for margin, context in self.thin if margin < below]
    return np.array(contexts, np.uint8)


def margins(
  field: ReceptiveField,
  contexts: np.ndarray,
  logits: jax.Array | np.ndarray,
  end: int | None,
) -> np.ndarray:
  """Returns the margin of every context: right logit - best wrong one.

  Args:
    field: the receptive field of the row.
    contexts: [B, columns].
    logits: [B, V] of the row.
    end: id of the end token.

  Returns:
    [B] margins; a margin that is not a number counts as -inf.
  """
  logits = np.array(logits)
  answers = np.full(len(contexts), end)
  if field.answer_column is not None:
    answers = contexts[:, field.answer_column].astype(int)
  right = np.take_along_axis(logits, answers[:, None], 1)[:, 0]
  np.put_along_axis(logits, answers[:, None], -np.inf, 1)
  with np.errstate(invalid="ignore"):
    differences = right - logits.max(axis=1)
  return np.where(np.isnan(differences), -np.inf, differences)


def count_cases(
  layerwise: LayerwiseLogits, group: RowGroup, tally: Tally, num_done: int = 0
) -> Iterator[int]:
  """Checks the contexts of a group in chunks and adds them to a tally.

  Args:
    layerwise: computes the logits of contexts.
    group: the rows of one receptive field, with its contexts.
    tally: the tally of this receptive field.
    num_done: chunks at the beginning that the tally already counts.

  Yields:
    The number of contexts of each chunk, once it has been added.
  """
  field, contexts = group.receptive_field, group.contexts
  chunks = contexts.chunks(layerwise.chunk_size)
  chunks = itertools.islice(chunks, num_done, None)
  end = layerwise.transducer.task.end
  for chunk, logits in layerwise.chunk_logits(field, chunks, contexts.count):
    tally.add(chunk, margins(field, chunk, logits, end))
    yield len(chunk)


# Rounding.


def measure_rounding(
  layerwise: LayerwiseLogits, survey: Survey, dense: DenseLogits, seed: int
) -> tuple[float, int]:
  """Measures how much two computations of the same logits differ.

  One is the layer-by-layer computation with which all contexts are checked, the
  other the model itself with dense attention. The inputs are random. They also
  serve to compare the task with its transducer.

  Returns:
    (the largest difference of a logit, how many rows were compared).

  Raises:
    UsageError: the outputs of the task are not those of its transducer.
  """
  rng = np.random.default_rng(seed)
  rows, count = survey.rows_compared()
  compared: dict[ReceptiveField, list] = {}
  for size in sorted({row.size for _, row in rows}):
    items = survey.random_inputs(rng, count, size)
    batch, logits = dense(items, size)
    survey.check_task(items, batch, size)
    for group, row in rows:
      if row.size == size:
        field = group.receptive_field
        contexts = survey.contexts_of(field, row, items, batch)
        compared.setdefault(field, []).append((contexts, logits[:, row.index]))
  largest, num_rows = 0.0, 0
  for field, parts in compared.items():
    contexts, expected = map(np.concatenate, zip(*parts, strict=True))
    gap = largest_gap(layerwise(field, contexts), expected)
    largest = float(np.maximum(largest, gap))  # NaN stays
    num_rows += len(contexts)
  return largest, num_rows


def rounding_of_thin_contexts(
  layerwise: LayerwiseLogits,
  survey: Survey,
  dense: DenseLogits,
  tallies: list[Tally],
) -> tuple[float, int]:
  """Measures how much the layer-by-layer and the dense logits differ on the
  contexts with the smallest margins.

  A group is left out if no input of the size of its first row has its thin
  contexts.

  Args:
    layerwise: computes the logits of contexts layer by layer.
    survey: the survey of the model.
    dense: computes the logits of whole inputs with dense attention.
    tallies: a tally of each group, or of the first groups.

  Returns:
    (the largest difference of a logit, how many rows were compared).
  """
  largest, num_rows = 0.0, 0
  for group, tally in zip(survey.groups, tallies, strict=False):
    contexts = tally.thin_contexts()
    items = survey.inputs_with_contexts(group, contexts) if tally.thin else None
    if items is not None:
      row = group.rows[0]
      _, logits = dense(items, row.size)
      gap = largest_gap(
        layerwise(group.receptive_field, contexts), logits[:, row.index]
      )
      largest = float(np.maximum(largest, gap))
      num_rows += len(contexts)
  return largest, num_rows


def largest_gap(layerwise: np.ndarray, dense: np.ndarray) -> float:
  """Returns the largest difference of two computations of the same logits.

  The result is at least ULPS units in the last binary digit of the largest
  logit, because two computations that agree exactly may still both be rounded.
  """
  least = ULPS * np.finfo(dense.dtype).eps * np.abs(dense).max()
  return float(np.maximum(np.abs(layerwise - dense).max(), least))


def smallest_in_float64(
  survey: Survey, tallies: list[Tally], params: dict, below: float
) -> float:
  """Returns the smallest float64 margin of the contexts whose float32 margin is
  less than `below`.

  It is inf if there is no such context, and -inf if a receptive field has
  MAX_THIN or more of them, because a tally does not list more.
  """
  if all(tally.margin >= below for tally in tallies):
    return float("inf")
  smallest = float("inf")
  with jax.enable_x64(True):
    experiment, params = in_float64(survey.experiment, params)
    layerwise = LayerwiseLogits(experiment, params, survey.transducer)
    for group, tally in zip(survey.groups, tallies, strict=False):
      contexts, field = tally.thin_contexts(below), group.receptive_field
      if len(contexts) == MAX_THIN:
        return -float("inf")
      if len(contexts):
        logits = layerwise(field, contexts)
        exact = margins(field, contexts, logits, experiment.task.end)
        smallest = min(smallest, float(exact.min()))
  return smallest


# Inputs on which the model is wrong.


def counterexamples(
  survey: Survey, tallies: list[Tally], dense: DenseLogits, model: Model
) -> list[str]:
  """Returns inputs that the model answers wrongly, the shortest first.

  Args:
    survey: the survey of the model.
    tallies: a tally of each group, or of the first groups.
    dense: computes the logits of whole inputs with dense attention.
    model: the model that was surveyed.
  """
  texts = set()
  for group, tally in zip(survey.groups, tallies, strict=False):
    if tally.wrong:
      texts.update(survey.counterexamples(group, tally.thin, dense, model))
  return sorted(texts, key=lambda text: (len(text), text))


def training_inputs(
  survey: Survey, tallies: list[Tally], seed: int
) -> dict[str, list[str]]:
  """Returns inputs to train the model on again, as people type them.

  They are no longer than in training.

  Returns:
    {"failing": inputs with contexts on which the model is wrong, "thin": inputs
    with contexts on which it is right with a small margin}.
  """
  rng = np.random.default_rng(seed)
  texts = {"failing": [], "thin": []}
  for group, tally in zip(survey.groups, tallies, strict=False):
    for margin, context in tally.thin:
      count = INPUTS_PER_FAILURE if margin <= 0 else 1
      name = "failing" if margin <= 0 else "thin"
      texts[name] += survey.draw_texts(group, context, count, rng)
  return texts


# What a certificate says.


def verdict(
  fixed_width: int | None, counted: dict, exact_margin: float
) -> dict:
  """Returns the {"value", "verdict"} of what was counted of a model.

  Args:
    fixed_width: W of `width=fixed`, None where longer inputs are wider.
    counted: what was counted and measured: "cases", "complete", "wrong",
      "margin", "rounding" and "counterexamples".
    exact_margin: the smallest margin in float64 (see smallest_in_float64).

  Returns:
    value 1 (right for every length), 0 (wrong) or None (undecided), and the
    verdict in words.
  """
  lengths = "every length"
  if fixed_width:
    lengths = f"operands of up to {fixed_width - 1} places"
  cases, margin = f"{counted['cases']:,} cases", counted["margin"]
  noise = f"rounding at most {counted['rounding']:.1g}"
  threshold = CERTAIN_FACTOR * counted["rounding"]
  if counted["wrong"] and (counted["counterexamples"] or margin < -threshold):
    cases = cases if counted["complete"] else f"the first {cases}"
    shortest = ", ".join(counted["counterexamples"][:3]) or "no input known"
    return {
      "value": 0,
      "verdict": f"wrong on {counted['wrong']:,} of {cases}, the shortest:"
      f" {shortest}; smallest margin {margin:.3g}, {noise}",
    }
  # NaN as a margin, or a case that was not checked, proves nothing.
  all_right = counted["complete"] and counted["cases"] and not counted["wrong"]
  all_right = all_right and margin > 0 and np.isfinite(margin)
  if not (all_right and min(margin, exact_margin) >= threshold):
    return {
      "value": None,
      "verdict": f"undecided: {cases}, no input is known to fail, but the"
      f" smallest margin {margin:.3g} is too close to the {noise}",
    }
  return {
    "value": 1,
    "verdict": f"right for {lengths}: {cases}, smallest margin {margin:.3g},"
    f" {noise}",
  }


def describe_dependencies(group: RowGroup) -> str:
  """Returns what the logits of a group's first row depend on, like "a3, y2".

  Operands are called a and b, s is the sum of a grid's row before, and y the
  output.
  """
  names, places = [], group.rows[0].places
  keys = {
    token.key
    for _, tokens in group.receptive_field.tokens
    for token in tokens
    if token.kind != "mark"
  }
  for kind, operand, number in sorted(keys):
    name = "y" if kind == "output" else "abs"[operand]
    names.append(f"{name}{places[number]}" if number >= 0 else name)
  return ", ".join(names) or "nothing"


def describe_rows(group: RowGroup) -> str:
  """Returns which rows a group has, like "row 2 at W=5"."""
  first, last = group.rows[0], group.rows[-1]
  others = len(group.rows) - 1
  text = f"row {first.place} at W={first.width}"
  return text + (f" and {others} more up to W={last.width}" if others else "")


def describe_lines(
  experiment: Experiment, scaffold: Scaffold
) -> dict[str, list[str]]:
  """Returns descriptions of the lines of every site, layer and head."""
  descriptions = {}
  for site, lines in scaffold.items():
    names = experiment.site_segments[site]
    for layer, head in np.ndindex(*np.shape(lines.valid)[:2]):
      descriptions[f"{site} layer {layer} head {head}"] = [
        lines.lines.take((layer, head, index)).describe(names)
        for index in np.flatnonzero(lines.valid[layer, head])
      ]
  return descriptions


def checksum(model: Model) -> str:
  """Returns a checksum of all that a certificate of a model depends on.

  It covers the parameters and the scaffold by value, the settings of the model
  and of its task, the platform and the version of jax.
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
