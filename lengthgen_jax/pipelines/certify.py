"""--mode=certify: is a trained model right at every length? All cases, a
verdict, and the shortest inputs on which it is wrong.

W/certificate.json has a certificate for every seed; W/certificate_partial.json
is where a certification that was cut off goes on.
"""

import dataclasses
import json
import pathlib
import sys
import time

import numpy as np
from ml_collections import ConfigDict
from tqdm import tqdm

import lengthgen_jax
from lengthgen_jax import hosts, plots
from lengthgen_jax.certify import certificate, conditions, running_sums, verdict
from lengthgen_jax.certify.states import States
from lengthgen_jax.errors import Interrupted, UsageError
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import evaluate, workdir
from lengthgen_jax.results import records
from lengthgen_jax.training.mesh import Vote
from lengthgen_jax.training.progress import stop_signals

PARTIAL = "certificate_partial.json"
SAVE_SECONDS = 10


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Certifies every seed of a workdir; returns the exit code."""
  certify(workdir.trainings(config, folder)[-1], folder, len(config.seeds))
  return 0


def certify(stage: workdir.Stage, folder, asked: int) -> dict:
  """Certificates of a stage's models, one each; also as a file, rows and a
  figure. One that is there for the same parameters is kept.

  Args:
    stage: what was trained; its config's `certify` section says what a
      certificate may cost.
    folder: where the files go.
    asked: seeds that the run was asked for.

  Returns:
    {seed: certificate}.

  Raises:
    UsageError: a model whose rows see more than lines.
    Interrupted: after SIGTERM or SIGINT, what was found is kept.
  """
  models = stage.models()
  check_local(models)
  path, found, rows = folder / evaluate.CERTIFICATE, {}, []
  before = json.loads(path.read_text()) if path.exists() else {}
  for model in models:
    clock = time.perf_counter()
    own = before.get(str(model.seed), {})
    if not _kept(own, stage.config.certify, model):
      own = _certificate(stage.config.certify, model, folder)
    found[str(model.seed)] = own
    records.write_text(path, json.dumps(before | found, indent=1) + "\n")
    seconds = time.perf_counter() - clock
    print(f"seed {model.seed}: {own['verdict']}; {seconds:.0f} s", flush=True)
    rows.append(
      evaluate.row_base(stage.config, model, stage.name, asked)
      | dict.fromkeys(("test_set", "length", "bits", "lower_bound"))
      | {"metric": "certified", "value": own["value"], "n": own["cases"]}
      | {"margin": own["margin"], "reason": own["verdict"]}
    )
  records.merge(folder / "results.jsonl", rows)
  (folder / PARTIAL).unlink(missing_ok=True)
  print(f"certificate: {path}")
  if any(own["views"] for own in found.values()):
    title = f"{stage.config.task}: margins of all cases"
    figure = folder / "figures" / "margins.png"
    print(f"figure: {plots.margins(found, certificate.EDGES, figure, title)}")
  return found


def check_local(models: list[Model]) -> None:
  """UsageError if a model's rows see more than lines."""
  for model in models:
    conditions.check_local(model.experiment, model.scaffold)


def _kept(own: dict, section, model: Model) -> bool:
  """Whether a certificate of before says all that is asked."""
  same = own.get("checksum") == certificate.checksum(model)
  enough = own.get("complete") or (own.get("views") and not section.exhaustive)
  return bool(same and enough)


def _certificate(section, model: Model, folder) -> dict:
  """The certificate of one seed; `section` is config.certify."""
  grid = model.experiment.task.axes > 1
  survey_of = running_sums.survey if grid else certificate.survey
  found = {
    "value": None,
    "cases": 0,
    "complete": False,
    "margin": None,
    "counterexamples": [],
    "practice": {"failing": [], "thin": []},
    "views": [],
    "lines": verdict.lines(model),
    "checksum": certificate.checksum(model),
    "step": model.step,
    "version": lengthgen_jax.__version__,
  }
  try:
    survey = survey_of(model.experiment, model.scaffold)
  except UsageError as reason:  # the other seeds may do
    return found | {"verdict": f"not tried: {reason}"}
  largest = int(np.argmax([own.count for own in survey.contexts]))
  example = list(survey.views.values())[largest][0]
  met = verdict.neighborhood(list(survey.views)[largest], example)
  cost = f"{survey.cases:,} cases in {len(survey.views)} views"
  found["cases"] = survey.cases
  if survey.cases > section.max_cases:
    reason = (
      f"not tried: {cost}, more than certify.max_cases="
      f"{section.max_cases:.3g}; most are of row {example.place} at"
      f" W={example.width}, which depends on {met}; fewer lines would help"
      " (calibration.reach)"
    )
    return found | {"verdict": reason}
  workdir.report(
    f"seed {model.seed}: {cost} (about {max(survey.cases / 2e5, 10):.0f} s on"
    f" two cores); a row depends on at most {met}"
  )
  return found | _enumerated(section.exhaustive, model, survey, folder)


def _enumerated(exhaustive: bool, model: Model, survey, folder) -> dict:
  """What all cases say, or those up to the narrowest that fail."""
  experiment, mesh = model.experiment, model.mesh
  states = States(experiment, model.params, survey.tape, mesh=mesh)
  widths = [e.width for own in survey.views.values() for e in own]
  grid = experiment.task.axes > 1
  longest = max(widths)
  if grid:
    examples = (e for own in survey.views.values() for e in own)
    longest = tuple(np.max([e.size for e in examples], axis=0).tolist())
  args = experiment, model.scaffold, model.params, longest
  dense = certificate.Dense(*args, mesh=mesh)
  measured = (running_sums if grid else certificate).rounding
  rounding, compared = measured(states, survey, dense, model.seed)
  tallies = _count(exhaustive, model, survey, states, folder)
  cases = sum(tally.cases for tally in tallies)
  complete = cases == survey.cases
  survey = survey.narrowest(len(tallies))
  more, again = (0.0, 0)
  if not grid:
    more, again = verdict.thinnest(survey, tallies, states, dense)
  rounding = float(np.maximum(rounding, more))  # NaN stays
  found = {
    "cases": cases,
    "complete": complete,
    "wrong": sum(tally.wrong for tally in tallies),
    "margin": min(tally.margin for tally in tallies),
    "rounding": rounding,
    "rounding_rows": compared + again,
    "counterexamples": running_sums.counterexamples(survey, tallies, model)
    if grid
    else verdict.counterexamples(survey, tallies, dense, model),
    "practice": (running_sums if grid else verdict).practice(
      survey, tallies, experiment, model.seed
    ),
    "widths": [min(widths), max(widths)],
    "views": [
      {"rows": verdict.rows(own), "cases": t.cases, "wrong": t.wrong}
      | {"margin": t.margin, "histogram": t.histogram}
      for own, t in zip(survey.views.values(), tallies, strict=True)
    ],
  }
  exact = verdict.smallest_in_float64(
    survey, tallies, model, verdict.THICK * rounding
  )
  return found | verdict.verdict(experiment, found, exact)


def _count(exhaustive, model: Model, survey, states: States, folder) -> list:
  """A Tally of every view, or of those up to the first that fails; goes on
  where an earlier call was cut off."""
  path = folder / PARTIAL
  key = [certificate.checksum(model), survey.cases, states.size]
  before = json.loads(path.read_text()) if path.exists() else {}
  if before.get("key") != key:
    before = {"key": key, "tallies": [], "chunks": 0}
  tallies = [certificate.Tally(**own) for own in before["tallies"]]
  start, chunks = len(tallies) - 1, before["chunks"]
  saved, vote = time.monotonic(), Vote(model.mesh)
  bar = tqdm(
    total=survey.cases,
    initial=sum(t.cases for t in tallies),
    unit="case",
    unit_scale=True,
    mininterval=1 if sys.stderr.isatty() else 10,
    disable=not hosts.first(),
    desc=f"seed {model.seed}",
  )

  def save():
    own = [dataclasses.asdict(t) for t in tallies]
    text = {"key": key, "tallies": own, "chunks": chunks}
    records.write_text(path, json.dumps(text))

  with stop_signals() as stops, bar:
    for k, view in enumerate(survey.views):
      if k < start:
        continue
      if k > start:
        tallies.append(certificate.Tally())
        chunks = 0
      tally, contexts = tallies[k], survey.contexts[k]
      for count in certificate.enumerate_view(
        states, view, contexts, tally, chunks
      ):
        chunks += 1
        stop = vote(bool(stops))
        bar.update(count)
        bar.set_postfix_str(
          f"smallest margin {min(t.margin for t in tallies):.3g}", refresh=False
        )
        if stop or time.monotonic() - saved > SAVE_SECONDS:
          save()
          saved = time.monotonic()
        if stop:
          done = sum(t.cases for t in tallies)
          raise Interrupted(
            f"stopped after {done:,} of {survey.cases:,} cases, kept; the same"
            " command goes on from there"
          )
        if tally.wrong and not exhaustive:
          return tallies
  return tallies
