"""What a tally of all cases means: confirmed, and in words."""

import jax
import numpy as np

from lengthgen_jax.attention.candidates import phrase
from lengthgen_jax.certify import certificate
from lengthgen_jax.certify.states import States

THICK = 100  # margins below so many times the rounding are computed in float64
VARIANTS = 8  # inputs of each failing context to practice on
SURE = 10  # margins below so many times the rounding certify nothing


def verdict(experiment, found: dict, exact: float) -> dict:
  """{"value", "verdict"} of what was found."""
  width = experiment.fixed_width
  every = f"operands of up to {width - 1} places" if width else "every length"
  cases, margin = f"{found['cases']:,} cases", found["margin"]
  noise = f"rounding at most {found['rounding']:.1g}"
  sure = SURE * found["rounding"]
  if found["wrong"] and (found["counterexamples"] or margin < -sure):
    cases = cases if found["complete"] else f"the first {cases}"
    shortest = ", ".join(found["counterexamples"][:3]) or "none of them typed"
    return {
      "value": 0,
      "verdict": f"wrong on {found['wrong']:,} of {cases}, the shortest:"
      f" {shortest}; smallest margin {margin:.3g}, {noise}",
    }
  # Whatever is not a number, or was not looked at, proves nothing.
  all_right = found["complete"] and found["cases"] and not found["wrong"]
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


def thinnest(survey, tallies, states: States, dense) -> tuple:
  """As certificate.rounding, on the thinnest contexts of every view."""
  most, rows = 0.0, 0
  for (view, examples), tally in zip(
    survey.views.items(), tallies, strict=True
  ):
    if not tally.thin:  # no input comes there
      continue
    found = certificate.inputs(survey, view, examples[0], tally, dense)
    contexts = np.array([own for _, own in tally.thin], np.uint8)
    contexts = contexts.reshape(len(tally.thin), -1)
    _, logits = dense(found, examples[0].width)
    told = states.logits(view, contexts)
    gap = certificate.gap(told, logits[:, examples[0].row])
    most = float(np.maximum(most, gap))
    rows += len(told)
  return most, rows


def counterexamples(survey, tallies, dense, model) -> list[str]:
  """Inputs that fail strict exact match, the shortest first."""
  task, found = model.experiment.task, {}
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
    for own, right, (margin, _) in zip(items, exact, tally.thin, strict=True):
      if margin <= 0 and not right:
        found[task.typed(own, live)] = width
  return sorted(found, key=lambda text: (len(text), text))


def practice(survey, tallies, experiment, seed: int) -> dict:
  """{"failing", "thin"}: inputs as people type them, no longer than in
  training, that have failing contexts (several of each) and thin ones."""
  rng, task = np.random.default_rng(seed), experiment.task
  longest = experiment.task.units(experiment.train_length)
  found = {"failing": [], "thin": []}
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
        found[name].append(task.typed(items, live))
  return found


def smallest_in_float64(survey, tallies, model, below: float) -> float:
  """The smallest margin in float64 of the contexts that are thinner than
  `below`; inf if there is none, -inf if there are too many to tell."""
  if all(tally.margin >= below for tally in tallies):
    return float("inf")
  found = float("inf")
  with jax.enable_x64(True):
    experiment, params = certificate.in_float64(model.experiment, model.params)
    states = States(experiment, params, survey.tape)
    for view, tally in zip(survey.views, tallies, strict=True):
      thin = [own for margin, own in tally.thin if margin < below]
      if len(thin) == certificate.THIN:
        return -float("inf")
      if thin:
        contexts = np.array(thin, np.uint8)
        logits = states.logits(view, contexts)
        margins = certificate.margins(
          view, contexts, logits, experiment.task.end
        )
        found = min(found, float(margins.min()))
  return found


def neighborhood(view, example) -> str:
  """What a row's logits depend on, like "a3, a2, y2"."""
  names = []
  tokens = {t.key for _, own in view.tokens for t in own if t.kind != "mark"}
  for kind, which, number in sorted(tokens):
    name = "y" if kind == "said" else "abs"[which]
    names.append(f"{name}{example.places[number]}" if number >= 0 else name)
  return ", ".join(names) or "nothing"


def rows(examples) -> str:
  first, last = examples[0], examples[-1]
  more = len(examples) - 1
  text = f"row {first.place} at W={first.width}"
  return text + (f" and {more} more up to W={last.width}" if more else "")


def lines(model) -> dict:
  """The lines of every site, layer and head of a model in words."""
  found = {}
  for site, own in model.scaffold.items():
    names = model.experiment.site_segments[site]
    layers, heads, count = np.shape(own.valid)
    for n in range(layers):
      for h in range(heads):
        found[f"{site} layer {n} head {h}"] = [
          phrase([np.asarray(x)[n, h, k] for x in own[:5]], names)
          for k in range(count)
          if own.valid[n, h, k]
        ]
  return found
