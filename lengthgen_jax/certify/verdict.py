"""This module says what a tally of all cases means: confirmed or not, in
words."""

import jax
import numpy as np

from lengthgen_jax.attention.candidates import phrase
from lengthgen_jax.certify import certificate
from lengthgen_jax.certify.receptive_fields import Example, ReceptiveField
from lengthgen_jax.certify.states import States
from lengthgen_jax.experiment import Experiment

THICK = 100  # margins below so many times the rounding are computed in float64
VARIANTS = 8  # how many inputs of each failing context there are to practice on
SURE = 10  # margins below so many times the rounding certify nothing


def verdict(experiment: Experiment, result: dict, exact: float) -> dict:
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
  sure = SURE * result["rounding"]
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


def thinnest(
  survey: certificate.Survey,
  tallies: list[certificate.Tally],
  states: States,
  dense: certificate.Dense,
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
    items = certificate.inputs(survey, view, examples[0], tally, dense)
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
  dense: certificate.Dense,
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
    items = certificate.inputs(survey, view, examples[0], tally, dense)
    batch, _ = dense(items, width)
    exact = np.asarray(model.hits(batch)[1])
    live = model.experiment.live(width)
    for digits, right, (margin, _) in zip(
      items, exact, tally.thin, strict=True
    ):
      if margin <= 0 and not right:
        failing[task.typed(digits, live)] = width
  return sorted(failing, key=lambda text: (len(text), text))


def practice(
  survey: certificate.Survey,
  tallies: list[certificate.Tally],
  experiment: Experiment,
  seed: int,
) -> dict[str, list[str]]:
  """Returns {"failing", "thin"}: inputs to practice on, as people type them.

  They are no longer than in training, and have failing contexts (several inputs
  of each) and thin ones.
  """
  rng, task = np.random.default_rng(seed), experiment.task
  longest = experiment.task.units(experiment.train_length)
  inputs = {"failing": [], "thin": []}
  for (view, examples), tally in zip(
    survey.views.items(), tallies, strict=True
  ):
    within = [e for e in examples if experiment.live(e.width) <= longest]
    for margin, context in tally.thin if within else ():
      failing = margin <= 0
      for _ in range(VARIANTS if failing else 1):
        example = within[rng.integers(len(within))]
        live = experiment.live(example.width)
        items = certificate.inputs_of(survey, view, example, context, live, rng)
        name = "failing" if failing else "thin"
        inputs[name].append(task.typed(items, live))
  return inputs


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
    states = States(experiment, params, survey.tape)
    for view, tally in zip(survey.views, tallies, strict=True):
      thin = [context for margin, context in tally.thin if margin < below]
      if len(thin) == certificate.THIN:
        return -float("inf")
      if thin:
        contexts = np.array(thin, np.uint8)
        logits = states.logits(view, contexts)
        margins = certificate.margins(
          view, contexts, logits, experiment.task.end
        )
        smallest = min(smallest, float(margins.min()))
  return smallest


def neighborhood(view: ReceptiveField, example: Example) -> str:
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


def rows(examples: list[Example]) -> str:
  """Returns in words which rows have a view."""
  first, last = examples[0], examples[-1]
  others = len(examples) - 1
  text = f"row {first.place} at W={first.width}"
  return text + (f" and {others} more up to W={last.width}" if others else "")


def lines(model) -> dict[str, list[str]]:
  """Returns the lines of every site, layer and head of a model in words."""
  phrases = {}
  for site, site_lines in model.scaffold.items():
    names = model.experiment.site_segments[site]
    layers, heads, count = np.shape(site_lines.valid)
    for n in range(layers):
      for h in range(heads):
        phrases[f"{site} layer {n} head {h}"] = [
          phrase([np.asarray(x)[n, h, k] for x in site_lines[:5]], names)
          for k in range(count)
          if site_lines.valid[n, h, k]
        ]
  return phrases
