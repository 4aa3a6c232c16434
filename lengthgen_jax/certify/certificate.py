"""This module decides by all cases whether a model is right at every length.

See certify.survey for why finitely many cases suffice. Three things remain to
be believed: that the few cells which the program's own biases open at the sizes
surveyed are those that it opens (the program reads them off), that floating
point rounds no more than was measured here on other batch sizes and on the
dense path, and the lemma.
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
from lengthgen_jax.experiment import Experiment

LEMMA = 2  # version of the lemma; older certificates are computed again
THINNEST_KEPT = 32  # contexts of each receptive field kept, by smallest margin
EDGES = np.concatenate([[-np.inf], np.arange(-8, 40, 0.5), [np.inf]])
ULPS = 2  # the least rounding assumed, in last places of the largest logit
RECOMPUTE_FACTOR = 100  # margins below it times the rounding: again in float64
CERTAIN_FACTOR = 10  # margins below it times the rounding prove nothing
INPUTS_PER_FAILURE = 8  # inputs of each failing context to practice on


def make_survey(experiment: Experiment, scaffold: Scaffold) -> Survey:
  """Returns the survey of a model, by the form of its task's outputs."""
  is_grid = experiment.task.axes > 1
  return (RunningSumSurvey if is_grid else SequenceSurvey)(experiment, scaffold)


# All cases, and their margins.


@dataclasses.dataclass
class Tally:
  """Counts the right and wrong contexts of a receptive field, so far.

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

  def thin_contexts(self, below: float = float("inf")) -> np.ndarray:
    """Returns the kept contexts [n, columns] with margins below a bound."""
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
  layerwise: LayerwiseLogits, group: RowGroup, tally: Tally, skip: int = 0
) -> Iterator[int]:
  """Adds every chunk of a group's contexts from `skip` on to the tally; yields
  each one's size."""
  field, contexts = group.receptive_field, group.contexts
  chunks = itertools.islice(contexts.chunks(layerwise.size), skip, None)
  end = layerwise.transducer.task.end
  for chunk, logits in layerwise.of_chunks(field, chunks, contexts.count):
    tally.add(chunk, margins(field, chunk, logits, end))
    yield len(chunk)


# Rounding.


def rounding(
  layerwise: LayerwiseLogits, survey: Survey, dense: DenseLogits, seed: int
) -> tuple[float, int]:
  """Measures how far layer-wise logits and the dense path are apart.

  The inputs are random; the task is checked on them, too.

  Returns:
    (largest difference of a logit, rows compared).

  Raises:
    UsageError: the task is not what it says it is.
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


def rounding_of_thinnest(
  layerwise: LayerwiseLogits,
  survey: Survey,
  dense: DenseLogits,
  tallies: list[Tally],
) -> tuple[float, int]:
  """Measures what `rounding` does, on the thinnest contexts of all groups that
  have inputs of the group's own sizes."""
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

  It is at least a few units in their last place: that two agree to the bit says
  only that both round alike.
  """
  least = ULPS * np.finfo(dense.dtype).eps * np.abs(dense).max()
  return float(np.maximum(np.abs(layerwise - dense).max(), least))


def smallest_in_float64(
  survey: Survey, tallies: list[Tally], params: dict, below: float
) -> float:
  """Returns the smallest margin in float64 of contexts thinner than `below`.

  It is inf if there is no such context, -inf if there are too many to tell.
  """
  if all(tally.margin >= below for tally in tallies):
    return float("inf")
  smallest = float("inf")
  with jax.enable_x64(True):
    experiment, params = in_float64(survey.experiment, params)
    layerwise = LayerwiseLogits(experiment, params, survey.transducer)
    for group, tally in zip(survey.groups, tallies, strict=False):
      contexts, field = tally.thin_contexts(below), group.receptive_field
      if len(contexts) == THINNEST_KEPT:
        return -float("inf")
      if len(contexts):
        logits = layerwise(field, contexts)
        exact = margins(field, contexts, logits, experiment.task.end)
        smallest = min(smallest, float(exact.min()))
  return smallest


# Inputs on which the model is wrong.


def counterexamples(
  survey: Survey, tallies: list[Tally], dense: DenseLogits, model
) -> list[str]:
  """Returns inputs that fail strict exact match, the shortest first.

  Tallies are those of the survey's first groups, or of all; the model is an
  evaluation.trained.Model.
  """
  texts = set()
  for group, tally in zip(survey.groups, tallies, strict=False):
    if tally.wrong:
      texts.update(survey.counterexamples(group, tally.thin, dense, model))
  return sorted(texts, key=lambda text: (len(text), text))


def practice_inputs(
  survey: Survey, tallies: list[Tally], seed: int
) -> dict[str, list[str]]:
  """Returns {"failing", "thin"}: inputs to practice on, as people type them.

  They are no longer than in training, and have failing contexts (several inputs
  of each) and thin ones.
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
  every = (
    f"operands of up to {fixed_width - 1} places"
    if fixed_width
    else "every length"
  )
  cases, margin = f"{counted['cases']:,} cases", counted["margin"]
  noise = f"rounding at most {counted['rounding']:.1g}"
  certain = CERTAIN_FACTOR * counted["rounding"]
  if counted["wrong"] and (counted["counterexamples"] or margin < -certain):
    cases = cases if counted["complete"] else f"the first {cases}"
    shortest = ", ".join(counted["counterexamples"][:3]) or "none of them typed"
    return {
      "value": 0,
      "verdict": f"wrong on {counted['wrong']:,} of {cases}, the shortest:"
      f" {shortest}; smallest margin {margin:.3g}, {noise}",
    }
  # A margin that is no number, or a case that was not checked, proves nothing.
  all_right = counted["complete"] and counted["cases"] and not counted["wrong"]
  all_right = all_right and margin > 0 and np.isfinite(margin)
  if not (all_right and min(margin, exact_margin) >= certain):
    return {
      "value": None,
      "verdict": f"undecided: {cases}, no input is known to fail, but the"
      f" smallest margin {margin:.3g} is too close to the {noise}",
    }
  return {
    "value": 1,
    "verdict": f"right for {every}: {cases}, smallest margin {margin:.3g},"
    f" {noise}",
  }


def dependencies_in_words(group: RowGroup) -> str:
  """Returns what the logits of a group's first row depend on, like "a3, y2"."""
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


def rows_in_words(group: RowGroup) -> str:
  """Returns in words which rows have a receptive field."""
  first, last = group.rows[0], group.rows[-1]
  others = len(group.rows) - 1
  text = f"row {first.place} at W={first.width}"
  return text + (f" and {others} more up to W={last.width}" if others else "")


def lines_in_words(
  experiment: Experiment, scaffold: Scaffold
) -> dict[str, list[str]]:
  """Returns the lines of every site, layer and head of a model in words."""
  phrases = {}
  for site, lines in scaffold.items():
    names = experiment.site_segments[site]
    for n, h in np.ndindex(*np.shape(lines.valid)[:2]):
      phrases[f"{site} layer {n} head {h}"] = [
        lines.lines.take((n, h, k)).describe(names)
        for k in np.flatnonzero(lines.valid[n, h])
      ]
  return phrases


def checksum(model) -> str:
  """Returns a checksum of all that a certificate of a model depends on.

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
