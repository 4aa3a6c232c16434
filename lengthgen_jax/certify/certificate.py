"""This module decides whether a model is right at every length, by trying all
of its contexts.

The lemmas of certify.survey and certify.running_sums say why finitely many
contexts suffice. What the program takes for granted: these lemmas, proved by
hand in the docstrings of the two modules; that the outputs of the task are
those of its transducer, which is tried on random inputs; that the attention
bias of the model is finite on the cells where the survey found it so, and -inf
on all others; and the model of arithmetic of certify.rounding, from which the
rounding of every context is bounded.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from lengthgen_jax.certify.logits import DenseLogits, LayerwiseLogits
from lengthgen_jax.certify.receptive_fields import ReceptiveField
from lengthgen_jax.certify.rounding import spread
from lengthgen_jax.certify.running_sums import RunningSumSurvey
from lengthgen_jax.certify.survey import (
  RowGroup,
  Scaffold,
  SequenceSurvey,
  Survey,
)
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment

LEMMA = 4  # version of the lemmas; older certificates are computed again
# A context whose margin is smaller than THIN_MARGIN is called thin. A tally
# keeps at most MAX_THIN of them, those with the smallest margins. The user is
# shown counterexamples that are made from at most MAX_SHOWN of each tally.
THIN_MARGIN = 4.0
MAX_THIN = 2048
MAX_SHOWN = 32
HISTOGRAM_EDGES = np.concatenate([[-np.inf], np.arange(-8, 40, 0.5), [np.inf]])
ULPS = 2  # Comparison.difference is at least so many ulps of the largest logit
# Where a context's bound on rounding is not below its margin, all margins must
# be this many times the largest rounding that was measured; and where contexts
# have no bound, a wrong one must be wrong by as much.
CERTAIN_FACTOR = 10.0
# Training inputs are made from at most MAX_TRAINING_CONTEXTS contexts: one from
# a thin context, and INPUTS_PER_FAILURE from a failing one, or fewer if many
# fail.
MAX_TRAINING_CONTEXTS = 8192
INPUTS_PER_FAILURE = 8


def make_survey(experiment: Experiment, scaffold: Scaffold) -> Survey:
  """Returns the survey of a model: a RunningSumSurvey if its outputs are a
  grid, else a SequenceSurvey.

  `scaffold` has the lines of one seed by site.
  """
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
    rounding: the largest bound on the rounding of any context's margin.
    share: the largest ratio of a context's bound to the size of its margin.
    unsure: how many contexts have a margin whose sign rounding can change: its
      size, whether it is right or wrong, is not above the bound.
    unbounded: how many contexts have no bound; `rounding`, `share` and `unsure`
      are of the others.
    refined: how many right contexts had a first bound that was not below their
      margin; they were bounded a second time, where `count_cases` allows it.
    histogram: the number of margins in each interval of HISTOGRAM_EDGES.
    thin: [[margin, context]] of the thin contexts with the smallest margins, at
      most MAX_THIN, smallest first.
  """

  cases: int = 0
  wrong: int = 0
  margin: float = float("inf")
  rounding: float = 0.0
  share: float = 0.0
  unsure: int = 0
  unbounded: int = 0
  refined: int = 0
  histogram: list = dataclasses.field(
    default_factory=lambda: [0] * (len(HISTOGRAM_EDGES) - 1)
  )
  thin: list = dataclasses.field(default_factory=list)

  def add(
    self,
    contexts: np.ndarray,
    margins: np.ndarray,
    rounding: np.ndarray | None,
  ) -> None:
    """Adds the contexts [B, columns] of a chunk, their margins [B] and the
    bounds [B] on the rounding of these, or None without bounds."""
    if rounding is None:
      self.unbounded += len(contexts)
    else:
      shares = margin_shares(margins, rounding)
      self.rounding = max(self.rounding, float(rounding.max()))
      self.share = max(self.share, float(shares.max()))
      self.unsure += int((shares >= 1).sum())
    self.cases += len(contexts)
    self.wrong += int((margins <= 0).sum())
    self.margin = min(self.margin, float(margins.min()))
    counts = np.histogram(margins, HISTOGRAM_EDGES)[0]
    self.histogram = (np.array(self.histogram) + counts).tolist()
    is_thin = margins < THIN_MARGIN
    margins, contexts = margins[is_thin], contexts[is_thin]
    order = np.argsort(margins, kind="stable")[:MAX_THIN]
    chunk_thin = [
      [float(margin), context.tolist()]
      for margin, context in zip(margins[order], contexts[order], strict=True)
    ]
    self.thin = sorted([*self.thin, *chunk_thin])[:MAX_THIN]

  def with_bounds(self, bounded: "Tally") -> "Tally":
    """Returns this tally, made without bounds, with those of another one.

    `bounded` is the tally of the first contexts of the same receptive field.
    """
    return dataclasses.replace(
      self,
      rounding=bounded.rounding,
      share=bounded.share,
      unsure=bounded.unsure,
      unbounded=self.cases - bounded.cases,
    )


def differences(
  logits: jax.Array | np.ndarray, answers: np.ndarray
) -> np.ndarray:
  """Returns the right token's logit minus that of each token, [B, V].

  What is not a number counts as -inf. The entry of the right token itself is
  inf, so that it is never the smallest.

  Args:
    logits: [B, V], of B contexts.
    answers: [B], their right tokens.
  """
  logits, answers = np.asarray(logits, np.float64), answers[:, None]
  with np.errstate(invalid="ignore"):
    result = np.take_along_axis(logits, answers, 1) - logits
  result = np.where(np.isnan(result), -np.inf, result)
  np.put_along_axis(result, answers, np.inf, 1)
  return result


def margins(logits: jax.Array | np.ndarray, answers: np.ndarray) -> np.ndarray:
  """Returns the margin of every context, [B]: its right logit minus the best
  wrong one. The arguments are those of `differences`."""
  return differences(logits, answers).min(axis=1)


def bounds(
  logits: jax.Array | np.ndarray, answers: np.ndarray, errors: np.ndarray
) -> np.ndarray:
  """Returns the bounds [B] on the rounding of every context's margin.

  The margin that was computed and that of any other evaluation, or the exact
  one, differ by no more. A difference d_v of logits, of which the margin m is
  the smallest, is in both within its error e_v; so it changes by at most s e_v,
  where s is 2, or hardly more than 1 if it was computed in float64
  (rounding.spread). It falls below m by at most s e_v - (d_v - m), and the
  largest of these is the bound. It is below m, if that is positive, exactly if
  s e_v is below d_v for every token v. A bound that is not a number counts as
  inf.

  Args:
    logits: [B, V], of B contexts.
    answers: [B], their right tokens.
    errors: [B, V], those of LayerwiseLogits.chunk_logits.
  """
  above = differences(logits, answers)
  with np.errstate(invalid="ignore"):
    above -= above.min(axis=1, keepdims=True)
    # Two infinite differences are equally far below any margin.
    fall = spread(errors) * errors - np.where(np.isnan(above), 0, above)
  np.put_along_axis(fall, answers[:, None], -np.inf, 1)
  return np.where(np.isnan(fall), np.inf, fall).max(axis=1)


def margin_shares(margins: np.ndarray, rounding: np.ndarray) -> np.ndarray:
  """Returns rounding / |margin| [B]; inf where the margin is zero."""
  with np.errstate(divide="ignore", invalid="ignore"):
    shares = rounding / np.abs(margins)
  return np.where(np.isnan(shares), np.inf, shares)


def count_cases(
  layerwise: LayerwiseLogits,
  group: RowGroup,
  tally: Tally,
  num_done: int = 0,
  *,
  max_refined: int = 0,
) -> Iterator[int]:
  """Checks the contexts of a group in chunks and adds them to a tally.

  The rounding of right contexts whose margin is not above its bound is bounded
  again, more tightly and, if that is not enough, in float64: of at most
  `max_refined` of them, as long as no context, of the tally or of the chunk, is
  wrong. A chunk with a context whose bound is even so not below the size of its
  margin is the last one. In both cases more bounds would prove nothing.

  Args:
    layerwise: computes the logits of contexts, with or without bounds.
    group: the rows of one receptive field, with its contexts.
    tally: the tally of this receptive field.
    num_done: how many of the first chunks the tally has already.
    max_refined: the most contexts that are bounded again.

  Yields:
    The number of contexts of each chunk, once it has been added.
  """
  field, contexts = group.receptive_field, group.contexts
  chunks = contexts.chunks(layerwise.chunk_size)
  chunks = itertools.islice(chunks, num_done, None)
  results = layerwise.chunk_logits(field, chunks, contexts.count)
  for chunk, logits, errors in results:
    answers = field.right_tokens(chunk)
    chunk_margins, rounding = margins(logits, answers), None
    if layerwise.group:  # not None: it bounds errors
      rounding = bounds(logits, answers, errors)
      is_unsure = (chunk_margins > 0) & (rounding >= chunk_margins)
      tally.refined += int(is_unsure.sum())
      has_wrong = tally.wrong or (chunk_margins <= 0).any()
      is_hopeless = tally.refined > max_refined or has_wrong
      for tighter in (
        () if is_hopeless else (layerwise.finer, layerwise.precise)
      ):
        is_unsure = (chunk_margins > 0) & (rounding >= chunk_margins)
        if is_unsure.any():
          logits, errors = tighter(field, chunk[is_unsure])
          of_unsure = logits, answers[is_unsure]
          chunk_margins[is_unsure] = margins(*of_unsure)
          rounding[is_unsure] = bounds(*of_unsure, errors)
    tally.add(chunk, chunk_margins, rounding)
    yield len(chunk)
    if tally.unsure:
      return


# Comparison with the model's own dense attention.


class Comparison(NamedTuple):
  """The differences between two computations of the same margins.

  Attributes:
    num_margins: how many margins were compared.
    difference: the largest difference, or ULPS units in the last binary digit
      of the largest logit if that is more: two computations that agree may both
      be off by rounding.
    exceeding: how many differ by more than the bound on their rounding.
  """

  num_margins: int
  difference: float
  exceeding: int


def compare_with_dense(
  layerwise: LayerwiseLogits, survey: Survey, dense: DenseLogits, seed: int
) -> Comparison:
  """Compares two computations of the same margins.

  One is the layer-by-layer computation with which all contexts are checked, the
  other the model itself with dense attention. The inputs are random. They also
  serve to compare the task with its transducer. A difference that exceeds the
  bound on its rounding shows that the bound or a computation is wrong.

  Args:
    layerwise: computes the logits of contexts layer by layer.
    survey: chooses the rows, and draws inputs.
    dense: computes the logits of whole inputs.
    seed: the seed of the random inputs.

  Raises:
    UsageError: an output of the task is not that of its transducer, or an input
      of a batch is not what its coordinates say.
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
  gaps, exceeds, least = [], [], 0.0
  for field, parts in compared.items():
    contexts, dense_logits = map(np.concatenate, zip(*parts, strict=True))
    unit = ULPS * float(np.finfo(np.float32).eps)
    least = np.maximum(least, unit * np.abs(dense_logits).max())
    logits, errors = layerwise(field, contexts)
    answers = field.right_tokens(contexts)
    gap = np.abs(margins(logits, answers) - margins(dense_logits, answers))
    gaps.append(gap)
    exceeds.append(~(gap <= bounds(logits, answers, errors)))
  gap = np.concatenate(gaps)
  num_exceeding = int(np.concatenate(exceeds).sum())
  largest = float(np.maximum(gap.max(), least))  # NaN stays
  return Comparison(len(gap), largest, num_exceeding)


# Inputs on which the model is wrong.


def counterexamples(
  survey: Survey, tallies: list[Tally], model: Model
) -> list[str]:
  """Returns inputs that the model answers wrongly, the shortest first.

  Args:
    survey: the survey of the model.
    tallies: a tally of each group, or of the first groups.
    model: the model that was surveyed.

  Returns:
    The inputs as people type them; none for failing contexts beyond the
    MAX_SHOWN with the smallest margins of each group.
  """
  texts = set()
  for group, tally in zip(survey.groups, tallies, strict=False):
    if tally.wrong:
      thin = tally.thin[:MAX_SHOWN]
      texts.update(survey.counterexamples(group, thin, model))
  return sorted(texts, key=lambda text: (len(text), text))


def training_inputs(
  survey: Survey, tallies: list[Tally], seed: int
) -> dict[str, list[str]]:
  """Returns inputs to train the model on again, as people type them.

  They are no longer than in training, so contexts that need longer inputs have
  none. Of the contexts that the tallies keep, at most MAX_TRAINING_CONTEXTS are
  used, drawn at random with this seed.

  Returns:
    {"failing": inputs with contexts on which the model is wrong, "thin": inputs
    with contexts on which it is right with a small margin}, both empty if it is
    wrong on none.
  """
  texts: dict[str, list[str]] = {"failing": [], "thin": []}
  if not any(tally.wrong for tally in tallies):
    return texts
  rng = np.random.default_rng(seed)
  thin = [
    (group, margin, context)
    for group, tally in zip(survey.groups, tallies, strict=False)
    for margin, context in tally.thin
  ]
  num_failing = sum(margin <= 0 for _, margin, _ in thin)
  per_failure = MAX_TRAINING_CONTEXTS // max(num_failing, 1)
  per_failure = int(np.clip(per_failure, 1, INPUTS_PER_FAILURE))
  for index in rng.permutation(len(thin))[:MAX_TRAINING_CONTEXTS]:
    group, margin, context = thin[index]
    name, count = ("failing", per_failure) if margin <= 0 else ("thin", 1)
    texts[name] += survey.draw_texts(group, context, count, rng)
  return texts


# What a certificate says.


def verdict(fixed_width: int | None, counted: dict) -> dict:
  """Decides from what was counted of a model whether it is right.

  Args:
    fixed_width: W of `data.width=fixed`; None where longer inputs are wider.
    counted: these fields of a certificate (docs/certificates.md): "cases",
      "complete", "wrong", "unsure", "unbounded", "margin", "rounding", "share",
      "measured_rounding", "exceeding" and "counterexamples".

  Returns:
    {"value": 1 (right for every length, or for all that fit the fixed width), 0
    (wrong) or None (undecided), "verdict": the same in words}.
  """
  lengths = "every length"
  if fixed_width:
    lengths = f"operands of up to {fixed_width - 1} places"
  cases, margin = f"{counted['cases']:,} cases", counted["margin"]
  is_bounded = counted["rounding"] is not None
  measured = counted["measured_rounding"]
  num_bounded = counted["cases"] - counted["unbounded"]
  noise = f"rounding measured at most {measured:.2g}"
  if is_bounded:
    noise = (
      f"rounding at most {counted['rounding']:.2g}, nowhere more than"
      f" {counted['share']:.1%} of a margin"
    )
  elif num_bounded:
    noise += (
      f", its bound above {counted['unsure']:,} of {num_bounded:,} margins"
    )
  if counted["unbounded"]:
    is_wrong = margin <= -CERTAIN_FACTOR * measured
  else:  # more margins are negative than rounding can change the sign of
    is_wrong = counted["wrong"] > counted["unsure"]
  is_wrong = is_wrong and not counted["exceeding"]
  if counted["wrong"] and (counted["counterexamples"] or is_wrong):
    cases = cases if counted["complete"] else f"the first {cases}"
    shortest = ", ".join(counted["counterexamples"][:3]) or "no input known"
    return {
      "value": 0,
      "verdict": f"wrong on {counted['wrong']:,} of {cases}, the shortest:"
      f" {shortest}; smallest margin {margin:.3g}, {noise}",
    }
  undecided = f"undecided: {cases}, no input is known to fail, but"
  if counted["exceeding"]:
    return {
      "value": None,
      "verdict": f"{undecided} {counted['exceeding']:,} margins of the model on"
      f" whole inputs differ by more than the bound on rounding",
    }
  # NaN as a margin, or a case that was not checked, proves nothing.
  all_right = counted["complete"] and counted["cases"] and not counted["wrong"]
  is_certain = margin >= CERTAIN_FACTOR * measured
  all_right = all_right and 0 < margin < np.inf
  if not (all_right and (is_bounded or is_certain)):
    return {
      "value": None,
      "verdict": f"{undecided} the smallest margin is {margin:.3g}, {noise}",
    }
  return {
    "value": 1,
    "verdict": f"right for {lengths}: {cases}, smallest margin {margin:.3g},"
    f" {noise}",
  }


def describe_dependencies(group: RowGroup) -> str:
  """Returns what the logits of a group's first row depend on, like "a3, y2".

  The operands are called a and b, the outputs y, and in a grid the previous
  row's running sum s. The number is the place; in a grid a3 and y3 are digit 2
  of a and of the row's own sum, and s3 is digit 3 of s. The digit that all
  places share has no number. "nothing" says that the row sees marks alone.
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
  """Returns which rows a group has, like "row 2 at W=5 and 3 more up to W=9";
  a row is named by the place of what it must say, and W is the number of places
  of its tape (in a grid N + 2)."""
  first, last = group.rows[0], group.rows[-1]
  others = len(group.rows) - 1
  text = f"row {first.place} at W={first.width}"
  return text + (f" and {others} more up to W={last.width}" if others else "")


def describe_lines(
  experiment: Experiment, scaffold: Scaffold
) -> dict[str, list[str]]:
  """Returns the equations of the lines (Lines.describe) of every head, by names
  like "cross layer 0 head 1"; layer 0 alone where all layers share them."""
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

  It covers the parameters and the scaffold by value, the settings of the model,
  of its task and of its bias, the fixed width, the platform, the versions of
  jax and of the lemmas. It has 16 hexadecimal digits.
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
