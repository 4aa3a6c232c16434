"""This module says what a tally of all cases means: confirmed or not, in
words."""

from collections.abc import Callable

import jax
import numpy as np

from lengthgen_jax.certify import certificate
from lengthgen_jax.certify.receptive_fields import ReceptiveField, RowExample
from lengthgen_jax.certify.states import States
from lengthgen_jax.experiment import Experiment

RECOMPUTE_FACTOR = 100  # margins below it times the rounding: again in float64

VARIANTS = 8  # inputs of each failing context to train on
CERTAIN_FACTOR = 10  # margins below it times the rounding prove nothing


def decide(experiment: Experiment, result: dict, exact: float) -> dict:
  """Returns the {"value", "verdict"} of a certification's result.

  Args:
    experiment: the experiment that was certified.
    result: what was counted and measured: "cases", "complete", "wrong",
      "margin", "rounding" and "counterexamples".
    exact: the smallest margin in float64 (see smallest_in_float64).

  Returns:
    value 1 (right for every length), 0 (wrong) or None (undecided), and the
    verdict in words.
  """
  width = experiment.fixed_width
  every = f"operands of up to {width - 1} places" if width else "every length"
  cases, margin = f"{result['cases']:,} cases", result["margin"]
  noise = f"rounding at most {result['rounding']:.1g}"
  sure = CERTAIN_FACTOR * result["rounding"]
  if result["wrong"] and (result["counterexamples"] or margin < -sure):
    cases = cases if result["complete"] else f"the first {cases}"
    shortest = ", ".join(result["counterexamples"][:3]) or "none of them typed"
    return {
      "value": 0,
      "verdict": f"wrong on {result['wrong']:,} of {cases}, the shortest:"
      f" {shortest}; smallest margin {margin:.3g}, {noise}",
    }
  # A margin that is no number, or a case that was not checked, proves nothing.
  all_right = result["complete"] and result["cases"] and not result["wrong"]
  all_right = all_right and margin > 0 and np.isfinite(margin)
  if not (all_right and min(margin, exact) >= sure):
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


def rounding_of_thinnest(
  survey: certificate.Survey,
  tallies: list[certificate.Tally],
  states: States,
  dense: certificate.ForwardPass,
) -> tuple[float, int]:
  """Measures the rounding on the thinnest contexts of every view.

  Returns:
    (largest difference of a logit, rows compared), as certificate.rounding.
  """
  largest, rows = 0.0, 0
  for (view, examples), tally in zip(
    survey.views.items(), tallies, strict=True
  ):
    if not tally.thin:  # no input comes there
      continue
    items = certificate.thinnest_inputs(survey, view, examples[0], tally, dense)
    contexts = np.array([context for _, context in tally.thin], np.uint8)
    contexts = contexts.reshape(len(tally.thin), -1)
    _, logits = dense(items, examples[0].width)
    tables = states.logits(view, contexts)
    gap = certificate.gap(tables, logits[:, examples[0].row])
    largest = float(np.maximum(largest, gap))
    rows += len(tables)
  return largest, rows


def counterexamples(
  survey: certificate.Survey,
  tallies: list[certificate.Tally],
  dense: certificate.ForwardPass,
  model,
) -> list[str]:
  """Returns inputs that fail strict exact match, the shortest first."""
  task, failing = model.experiment.task, {}
  for (view, examples), tally in zip(
    survey.views.items(), tallies, strict=True
  ):
    if not tally.wrong:
      continue
    width = examples[0].width
    items = certificate.thinnest_inputs(survey, view, examples[0], tally, dense)
    batch, _ = dense(items, width)
    exact = np.asarray(model.hits(batch)[1])
    nonzero_places = model.experiment.nonzero_places(width)
    for digits, right, (margin, _) in zip(
      items, exact, tally.thin, strict=True
    ):
      if margin <= 0 and not right:
        failing[task.input_text(digits, nonzero_places)] = width
  return sorted(failing, key=lambda text: (len(text), text))


def inputs_to_train_on(
  survey: certificate.Survey,
  tallies: list[certificate.Tally],
  experiment: Experiment,
  seed: int,
) -> dict[str, list[str]]:
  """Returns {"failing", "thin"}: inputs to train on, as people type them.

  They are no longer than in training, and have failing contexts (several inputs
  of each) and thin ones.
  """
  rng, task = np.random.default_rng(seed), experiment.task
  longest = task.units(experiment.train_length)

  def make_texts(transducer, view, examples, context, count):
    texts = []
    for _ in range(count):
      example = examples[rng.integers(len(examples))]
      places = experiment.nonzero_places(example.width)
      items = certificate.input_with_context(
        survey, view, example, context, places, rng
      )
      texts.append(task.input_text(items, places))
    return texts

  fits = lambda example: experiment.nonzero_places(example.width) <= longest
  return texts_by_margin(survey, tallies, fits, make_texts)


def texts_by_margin(
  survey: certificate.Survey,
  tallies: list[certificate.Tally],
  fits: Callable[[RowExample], bool],
  make_texts: Callable[..., list[str]],
) -> dict[str, list[str]]:
  """Returns {"failing", "thin"}: typed inputs that have the thinnest contexts.

  Args:
    survey: the views, and their contexts.
    tallies: of every view, with its thinnest contexts.
    fits: tells whether a row's input is short enough.
    make_texts: function of (transducer, view, fitting examples, context, count)
      to at most `count` inputs, as people type them.
  """
  texts = {"failing": [], "thin": []}
  for contexts, (view, examples), tally in zip(
    survey.contexts, survey.views.items(), tallies, strict=True
  ):
    fitting = [example for example in examples if fits(example)]
    for margin, context in tally.thin if fitting else ():
      name, count = ("failing", VARIANTS) if margin <= 0 else ("thin", 1)
      texts[name] += make_texts(
        contexts.transducer, view, fitting, context, count
      )
  return texts


def smallest_in_float64(
  survey: certificate.Survey,
  tallies: list[certificate.Tally],
  model,
  below: float,
) -> float:
  """Returns the smallest margin in float64 of contexts thinner than `below`.

  It is inf if there is no such context, -inf if there are too many to tell.
  """
  if all(tally.margin >= below for tally in tallies):
    return float("inf")
  smallest = float("inf")
  with jax.enable_x64(True):
    experiment, params = certificate.in_float64(model.experiment, model.params)
    states = States(experiment, params, survey.transducer)
    for view, tally in zip(survey.views, tallies, strict=True):
      thin = [context for margin, context in tally.thin if margin < below]
      if len(thin) == certificate.THINNEST_KEPT:
        return -float("inf")
      if thin:
        contexts = np.array(thin, np.uint8)
        logits = states.logits(view, contexts)
        margins = certificate.margins(
          view, contexts, logits, experiment.task.end
        )
        smallest = min(smallest, float(margins.min()))
  return smallest


def dependencies_in_words(view: ReceptiveField, example: RowExample) -> str:
  """Returns what a row's logits depend on, like "a3, a2, y2"."""
  names = []
  tokens = {
    t.key
    for _, stack_tokens in view.tokens
    for t in stack_tokens
    if t.kind != "mark"
  }
  for kind, which, number in sorted(tokens):
    name = "y" if kind == "said" else "abs"[which]
    names.append(f"{name}{example.places[number]}" if number >= 0 else name)
  return ", ".join(names) or "nothing"


def rows_in_words(examples: list[RowExample]) -> str:
  """Returns in words which rows have a view."""
  first, last = examples[0], examples[-1]
  others = len(examples) - 1
  text = f"row {first.place} at W={first.width}"
  return text + (f" and {others} more up to W={last.width}" if others else "")


def lines_in_words(model) -> dict[str, list[str]]:
  """Returns the lines of every site, layer and head of a model in words."""
  phrases = {}
  for site, site_lines in model.scaffold.items():
    names = model.experiment.site_segments[site]
    layers, heads, count = np.shape(site_lines.valid)
    for n in range(layers):
      for h in range(heads):
        phrases[f"{site} layer {n} head {h}"] = [
          site_lines.lines.take((n, h, k)).describe(names)
          for k in range(count)
          if site_lines.valid[n, h, k]
        ]
  return phrases
