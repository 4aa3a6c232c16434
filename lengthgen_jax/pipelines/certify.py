"""This is --mode=certify: it proves a trained model right at every length.

Finitely many cases decide that. The program goes through all of them and says
the verdict, with the shortest inputs on which the model is wrong.
W/certificate.json has a certificate for every seed; W/certificate_partial.json
holds the state from which an interrupted certification resumes.
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
from lengthgen_jax import hosts
from lengthgen_jax.certify import certificate, conditions, running_sums, verdict
from lengthgen_jax.certify.states import States
from lengthgen_jax.errors import Interrupted, UsageError
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import evaluate, run_figures, runs, workdir
from lengthgen_jax.results import records
from lengthgen_jax.training.log import stop_signals
from lengthgen_jax.training.mesh import AnyHostFlag

PARTIAL = "certificate_partial.json"
SAVE_SECONDS = 10  # between two writes of PARTIAL


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Certifies every seed of a workdir; returns the exit code."""
  certify(workdir.trained_stages(config, folder)[-1], folder, len(config.seeds))
  return 0


def certify(
  stage: workdir.Stage, folder: pathlib.Path, num_seeds: int
) -> dict[str, dict]:
  """Certifies the models of a stage, and writes a file, rows and a figure.

  A certificate that is there for the same parameters is kept.

  Args:
    stage: What was trained; the `certify` section of its config says what a
      certificate may cost.
    folder: Where the files go.
    num_seeds: The number of seeds that the run was asked for.

  Returns:
    The certificate of each seed, {seed: certificate}.

  Raises:
    UsageError: The rows of a model see more than lines.
    Interrupted: SIGTERM or SIGINT came; what was counted so far is saved.
  """
  models = stage.models()
  check_local(models)
  path, certificates, rows = folder / evaluate.CERTIFICATE, {}, []
  previous = json.loads(path.read_text()) if path.exists() else {}
  for model in models:
    start = time.perf_counter()
    seed_certificate = previous.get(str(model.seed), {})
    if not _kept(seed_certificate, stage.config.certify, model):
      seed_certificate = _certificate(stage.config.certify, model, folder)
    certificates[str(model.seed)] = seed_certificate
    records.write_text(
      path, json.dumps(previous | certificates, indent=1) + "\n"
    )
    seconds = time.perf_counter() - start
    print(
      f"seed {model.seed}: {seed_certificate['verdict']}; {seconds:.0f} s",
      flush=True,
    )
    rows.append(
      evaluate.row_conditions(stage.config, model, stage.name, num_seeds)
      | dict.fromkeys(("test_set", "length", "bits", "lower_bound"))
      | {
        "metric": "certified",
        "value": seed_certificate["value"],
        "n": seed_certificate["cases"],
      }
      | {
        "margin": seed_certificate["margin"],
        "reason": seed_certificate["verdict"],
      }
    )
  records.merge(folder / "results.jsonl", rows)
  (folder / PARTIAL).unlink(missing_ok=True)
  print(f"certificate: {path}")
  histograms = {
    f"seed {seed}: {fields['verdict']}": np.sum(
      [view["histogram"] for view in fields["views"]], axis=0
    )
    for seed, fields in certificates.items()
    if fields["views"]
  }
  if histograms:
    title = f"{stage.config.task}: margins of all cases"
    figure = run_figures.draw_margins(
      histograms, certificate.EDGES, folder / "figures" / "margins.png", title
    )
    print(f"figure: {figure}")
  return certificates


def check_local(models: list[Model]) -> None:
  """Checks that the rows of every model see lines and nothing else.

  Raises:
    UsageError: The rows of a model see more than lines.
  """
  for model in models:
    conditions.check_local(model.experiment, model.scaffold)


def _kept(previous: dict, section: ConfigDict, model: Model) -> bool:
  """Returns whether an earlier certificate is still valid and says enough."""
  is_same = previous.get("checksum") == certificate.checksum(model)
  is_enough = previous.get("complete") or (
    previous.get("views") and not section.exhaustive
  )
  return bool(is_same and is_enough)


def _certificate(
  section: ConfigDict, model: Model, folder: pathlib.Path
) -> dict:
  """Returns the certificate of one seed; `section` is config.certify."""
  is_grid = model.experiment.task.axes > 1
  make_survey = running_sums.survey if is_grid else certificate.survey
  fields = {
    "value": None,
    "cases": 0,
    "complete": False,
    "margin": None,
    "counterexamples": [],
    "practice": {"failing": [], "thin": []},
    "views": [],
    "lines": verdict.lines_in_words(model),
    "checksum": certificate.checksum(model),
    "step": model.step,
    "version": lengthgen_jax.__version__,
  }
  try:
    survey = make_survey(model.experiment, model.scaffold)
  except UsageError as reason:  # other seeds may have a certificate
    return fields | {"verdict": f"not tried: {reason}"}
  largest = int(np.argmax([contexts.count for contexts in survey.contexts]))
  example = list(survey.views.values())[largest][0]
  neighborhood = verdict.dependencies_in_words(
    list(survey.views)[largest], example
  )
  cost = f"{survey.cases:,} cases in {len(survey.views)} views"
  fields["cases"] = survey.cases
  if survey.cases > section.max_cases:
    reason = (
      f"not tried: {cost}, more than certify.max_cases="
      f"{section.max_cases:.3g}; most are of row {example.place} at"
      f" W={example.width}, which depends on {neighborhood}; fewer lines"
      " would help (calibration.reach)"
    )
    return fields | {"verdict": reason}
  runs.print_note(
    f"seed {model.seed}: {cost} (about {max(survey.cases / 2e5, 10):.0f} s on"
    f" two cores); a row depends on at most {neighborhood}"
  )
  return fields | _enumerated(section.exhaustive, model, survey, folder)


def _enumerated(
  exhaustive: bool,
  model: Model,
  survey: certificate.Survey,
  folder: pathlib.Path,
) -> dict:
  """Goes through the cases of a survey, and returns fields of a certificate.

  If it is not exhaustive, it stops after the narrowest view that fails.
  """
  experiment, mesh = model.experiment, model.mesh
  states = States(experiment, model.params, survey.transducer, mesh=mesh)
  widths = [
    example.width
    for view_examples in survey.views.values()
    for example in view_examples
  ]
  is_grid = experiment.task.axes > 1
  longest = max(widths)
  if is_grid:
    examples = (
      example
      for view_examples in survey.views.values()
      for example in view_examples
    )
    longest = tuple(
      np.max([example.size for example in examples], axis=0).tolist()
    )
  args = experiment, model.scaffold, model.params, longest
  dense = certificate.ForwardPass(*args, mesh=mesh)
  measure_rounding = (running_sums if is_grid else certificate).rounding
  rounding, compared_rows = measure_rounding(states, survey, dense, model.seed)
  tallies = _count(exhaustive, model, survey, states, folder)
  cases = sum(tally.cases for tally in tallies)
  complete = cases == survey.cases
  survey = survey.first_views(len(tallies))
  thin_rounding, thin_rows = (0.0, 0)
  if not is_grid:
    thin_rounding, thin_rows = verdict.rounding_of_thinnest(
      survey, tallies, states, dense
    )
  rounding = float(np.maximum(rounding, thin_rounding))  # NaN if any is
  fields = {
    "cases": cases,
    "complete": complete,
    "wrong": sum(tally.wrong for tally in tallies),
    "margin": min(tally.margin for tally in tallies),
    "rounding": rounding,
    "rounding_rows": compared_rows + thin_rows,
    "counterexamples": running_sums.counterexamples(survey, tallies, model)
    if is_grid
    else verdict.counterexamples(survey, tallies, dense, model),
    "practice": (running_sums if is_grid else verdict).inputs_to_train_on(
      survey, tallies, experiment, model.seed
    ),
    "widths": [min(widths), max(widths)],
    "views": [
      {
        "rows": verdict.rows_in_words(view_examples),
        "cases": view_tally.cases,
        "wrong": view_tally.wrong,
      }
      | {"margin": view_tally.margin, "histogram": view_tally.histogram}
      for view_examples, view_tally in zip(
        survey.views.values(), tallies, strict=True
      )
    ],
  }
  float64_margin = verdict.smallest_in_float64(
    survey, tallies, model, verdict.RECOMPUTE_FACTOR * rounding
  )
  return fields | verdict.decide(experiment, fields, float64_margin)


def _count(
  exhaustive: bool,
  model: Model,
  survey: certificate.Survey,
  states: States,
  folder: pathlib.Path,
) -> list[certificate.Tally]:
  """Returns a Tally of every view, or of those up to the first that fails.

  It resumes where an earlier call was interrupted.

  Raises:
    Interrupted: SIGTERM or SIGINT came; the tallies so far are saved.
  """
  path = folder / PARTIAL
  key = [certificate.checksum(model), survey.cases, states.size]
  previous = json.loads(path.read_text()) if path.exists() else {}
  if previous.get("key") != key:
    previous = {"key": key, "tallies": [], "chunks": 0}
  tallies = [certificate.Tally(**fields) for fields in previous["tallies"]]
  resumed_view, chunks = len(tallies) - 1, previous["chunks"]
  saved_at, vote = time.monotonic(), AnyHostFlag(model.mesh)
  bar = tqdm(
    total=survey.cases,
    initial=sum(entry.cases for entry in tallies),
    unit="case",
    unit_scale=True,
    mininterval=1 if sys.stderr.isatty() else 10,
    disable=not hosts.is_primary(),
    desc=f"seed {model.seed}",
  )

  def save():
    fields = [dataclasses.asdict(entry) for entry in tallies]
    record = {"key": key, "tallies": fields, "chunks": chunks}
    records.write_text(path, json.dumps(record))

  with stop_signals() as stops, bar:
    for k, view in enumerate(survey.views):
      if k < resumed_view:
        continue
      if k > resumed_view:
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
          f"smallest margin {min(entry.margin for entry in tallies):.3g}",
          refresh=False,
        )
        if stop or time.monotonic() - saved_at > SAVE_SECONDS:
          save()
          saved_at = time.monotonic()
        if stop:
          done = sum(entry.cases for entry in tallies)
          raise Interrupted(
            f"stopped after {done:,} of {survey.cases:,} cases, kept; the same"
            " command goes on from there"
          )
        if tally.wrong and not exhaustive:
          return tallies
  return tallies
