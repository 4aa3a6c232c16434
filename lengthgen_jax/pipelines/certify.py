"""This is --mode=certify: it proves a trained model right at every length, or
finds the shortest inputs on which it is wrong.

Finitely many cases decide that. All of them are tried, unless they are more
than certify.max_cases, or some are wrong and certify.exhaustive is not set.
W/certificate.json has a certificate for every seed; W/certificate_partial.json
holds the state from which an interrupted certification resumes.
"""

import dataclasses
import json
import pathlib
import sys
import time
from functools import partial

import numpy as np
from ml_collections import ConfigDict
from tqdm import tqdm

import lengthgen_jax
from lengthgen_jax import hosts, stopwatch
from lengthgen_jax.certify import certificate, conditions
from lengthgen_jax.certify.certificate import Tally
from lengthgen_jax.certify.logits import DenseLogits, LayerwiseLogits
from lengthgen_jax.certify.survey import Survey
from lengthgen_jax.errors import Interrupted, UsageError
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import evaluate, export, prune, runs, workdir
from lengthgen_jax.probes.figures import draw_margins
from lengthgen_jax.results import records
from lengthgen_jax.training.log import stop_signals

PARTIAL = "certificate_partial.json"
SAVE_SECONDS = 10  # between two writes of PARTIAL
MANY_CASES = 100_000  # more than that are tried without bounds first


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Certifies a workdir's final model of every seed; returns the exit code.

  Args:
    config: the config of the workdir.
    folder: the workdir.

  Raises:
    UsageError: as in `workdir.trained_stages` and in `certify`.
    Interrupted: as in `certify`.
  """
  certify(workdir.trained_stages(config, folder)[-1], folder)
  return 0


@stopwatch.phase("certificate")
def certify(stage: workdir.Stage, folder: pathlib.Path) -> dict[str, dict]:
  """Certifies the models of a stage, and writes a file, rows and a figure.

  They are certificate.json, rows of results.jsonl and, if cases of any seed
  were tried, figures/margins.png. An existing certificate is reused if
  `is_valid`.

  Args:
    stage: the trained stage; the `certify` section of its config says which
      cases are tried, and whether a second checker is asked about the models
      that are proved right.
    folder: where the files go.

  Returns:
    The certificate of each seed, {str(seed): certificate}.

  Raises:
    UsageError: a model cannot be loaded, or does not fulfill the conditions of
      a certificate; the task does not do what its transducer and its
      coordinates say; or an earlier certificate.json or results.jsonl cannot be
      read.
    Interrupted: SIGTERM or SIGINT came; what was counted so far is saved.
  """
  models, section = stage.trained_models, stage.config.certify
  check_certifiable(models)
  path, certificates, rows = folder / workdir.CERTIFICATE, {}, []
  previous = workdir.read_certificates(folder)
  for model in models:
    start, seed = time.perf_counter(), str(model.seed)
    result, pruning = previous.get(seed, {}), stage.config.prune
    if not (
      prune.is_pruned_as_asked(pruning, result)
      and is_valid(
        result, section, prune.without_closed(pruning, model, result)
      )
    ):
      result = prune.certify_pruned(
        pruning, model, lambda pruned: certify_model(section, pruned, folder)
      )
    model = prune.without_closed(pruning, model, result)
    if (
      section.second_checker
      and result["value"] == 1
      and export.SECOND not in result
    ):
      result[export.SECOND] = export.second_opinion(stage.config, model)
    certificates[seed] = result
    records.write_text(
      path, json.dumps(previous | certificates, indent=1) + "\n"
    )
    seconds = time.perf_counter() - start
    print(f"seed {seed}: {result['verdict']}; {seconds:.0f} s", flush=True)
    if export.SECOND in result:
      text = result[export.SECOND]["text"]
      print(f"seed {seed}, second checker: {text}", flush=True)
    rows.append(
      evaluate.row_conditions(stage, model)
      | dict.fromkeys(("test_set", "length", "bits", "lower_bound"))
      | {
        "metric": "certified",
        "value": result["value"],
        "n": result["cases"],
      }
      | {"margin": result["margin"], "rounding": result["rounding"]}
      | {"reason": result["verdict"]}
      | {"checkers": records.proved_by(result, result.get(export.SECOND))}
    )
  records.merge(folder / "results.jsonl", rows)
  (folder / PARTIAL).unlink(missing_ok=True)
  print(f"certificate: {path}")
  histograms = {
    f"seed {seed}: {result['verdict']}": np.sum(
      [field["histogram"] for field in result["receptive_fields"]], axis=0
    )
    for seed, result in certificates.items()
    if result["receptive_fields"]
  }
  if histograms:
    title = f"{stage.config.task}: margins of the cases that were tried"
    figure = draw_margins(
      histograms,
      certificate.HISTOGRAM_EDGES,
      folder / "figures" / "margins.png",
      title,
    )
    print(f"figure: {figure}")
  return certificates


def check_certifiable(models: list[Model]) -> None:
  """Checks that every model fulfills the conditions of a certificate, above all
  that its rows see the keys on its lines and nothing else.

  Raises:
    UsageError: a model does not; the message says which condition.
  """
  for model in models:
    conditions.check_certifiable(model.experiment, model.scaffold)


def is_valid(previous: dict, section: ConfigDict, model: Model) -> bool:
  """Returns whether an earlier certificate stands for a new one.

  Args:
    previous: the earlier certificate; {} if there is none.
    section: config.certify: whether all cases must have been tried
      (`exhaustive`), and how many of a receptive field may be bounded again,
      more tightly (`max_refined`): a certificate that does not say wrong and
      has no `rounding` is valid only if it was made with as many or more.
    model: the model; all that `certificate.checksum` covers must be the same.
  """
  # Bounding more contexts again could not change the value.
  is_settled = (
    previous.get("value", 0) == 0 or previous.get("rounding") is not None
  )
  return bool(
    previous.get("checksum") == certificate.checksum(model)
    and previous.get("receptive_fields")
    and (previous["complete"] or not section.exhaustive)
    and (is_settled or previous.get("max_refined", 0) >= section.max_refined)
  )


def certify_model(
  section: ConfigDict, model: Model, folder: pathlib.Path
) -> dict:
  """Returns the certificate of one seed.

  If there are more than `max_cases` cases, or they cannot be listed, its value
  is None and its verdict says why none was tried.

  Args:
    section: config.certify.
    model: the model of the seed, which passed `check_certifiable`.
    folder: the folder of PARTIAL.

  Raises:
    UsageError: the task does not do what its transducer and its coordinates
      say.
    Interrupted: as in `certify`.
  """
  fields = {
    "value": None,
    "cases": 0,
    "complete": False,
    "margin": None,
    "rounding": None,
    "counterexamples": [],
    "training_inputs": {"failing": [], "thin": []},
    "receptive_fields": [],
    "lines": certificate.describe_lines(model.experiment, model.scaffold),
    "checksum": certificate.checksum(model),
    "step": model.step,
    "version": lengthgen_jax.__version__,
  }
  try:
    survey = certificate.make_survey(model.experiment, model.scaffold)
    groups = survey.groups
  except UsageError as reason:  # other seeds may have a certificate
    return fields | {"verdict": f"not tried: {reason}"}
  # The receptive field with the most cases.
  largest = max(groups, key=lambda group: group.contexts.count)
  dependencies = certificate.describe_dependencies(largest)
  cost = f"{survey.cases:,} cases in {len(groups)} receptive fields"
  fields["cases"] = survey.cases
  if survey.cases > section.max_cases:
    row = largest.rows[0]
    reason = (
      f"not tried: {cost}, more than certify.max_cases="
      f"{section.max_cases:.3g}; the most are of row {row.place} at"
      f" W={row.width}, which depends on {dependencies}; fewer lines"
      " would help (calibration.reach)"
    )
    return fields | {"verdict": reason}
  runs.print_note(
    f"seed {model.seed}: {cost} (about {max(survey.cases / 5e4, 10):.0f} s on"
    f" two cores); the row with the most depends on {dependencies}"
  )
  fields["max_refined"] = section.max_refined
  return fields | _results(section, model, survey, folder)


def _results(
  section: ConfigDict, model: Model, survey: Survey, folder: pathlib.Path
) -> dict:
  """Tries the cases of a survey, and returns the fields of a certificate that
  depend on them.

  The arguments are those of `tally_cases`; it raises what `certify_model` does.
  """
  experiment, params, mesh = model.experiment, model.params, model.mesh
  layerwise = LayerwiseLogits(experiment, params, survey.transducer, mesh=mesh)
  rows = [row for group in survey.groups for row in group.rows]
  # The size of a row is a width, or in a grid two widths.
  largest = np.max([row.size for row in rows], axis=0).tolist()
  bound = tuple(largest) if isinstance(largest, list) else largest
  dense = DenseLogits(experiment, model.scaffold, params, bound, mesh=mesh)
  comparison = certificate.compare_with_dense(
    layerwise, survey, dense, model.seed
  )
  tallies = tally_cases(section, model, survey, layerwise, folder)
  cases, widths = sum(x.cases for x in tallies), [row.width for row in rows]
  unbounded = sum(tally.unbounded for tally in tallies)
  share = max(tally.share for tally in tallies)
  rounding = max(tally.rounding for tally in tallies)
  fields = {
    "cases": cases,
    "complete": cases == survey.cases,
    "wrong": sum(tally.wrong for tally in tallies),
    "margin": min(tally.margin for tally in tallies),
    # None if a case's bound is not below the size of its own margin, or some
    # case has no bound.
    "rounding": None if share >= 1 or unbounded else rounding,
    "share": None if unbounded == cases else share,
    "unsure": sum(tally.unsure for tally in tallies),
    "unbounded": unbounded,
    "measured_rounding": comparison.difference,
    "measured_rows": comparison.num_margins,
    "exceeding": comparison.exceeding,
    "counterexamples": certificate.counterexamples(survey, tallies, model),
    "training_inputs": certificate.training_inputs(survey, tallies, model.seed),
    "widths": [min(widths), max(widths)],
    "receptive_fields": [
      {"rows": certificate.describe_rows(group), "cases": tally.cases}
      | {"wrong": tally.wrong, "margin": tally.margin}
      | {"rounding": None if tally.unbounded else tally.rounding}
      | {"share": None if tally.unbounded else tally.share}
      | {"histogram": tally.histogram}
      for group, tally in zip(survey.groups, tallies, strict=False)
    ],
  }
  return fields | certificate.verdict(experiment.fixed_width, fields)


def tally_cases(
  section: ConfigDict,
  model: Model,
  survey: Survey,
  layerwise: LayerwiseLogits,
  folder: pathlib.Path,
) -> list[Tally]:
  """Tries the cases of each receptive field, and returns their tallies.

  A case is one of its contexts; they are tried in chunks, batches of contexts.
  Bounds on rounding take most of the time. Many cases are therefore tried
  without bounds first, and with bounds only if all are right. The first chunk
  with a context whose bound is not below the size of its margin ends the
  bounding: the tallies are then those without bounds, with the bounds found
  until there.

  Args:
    section: config.certify. Unless it is `exhaustive`, receptive fields after
      the first one with wrong cases have no tally.
    model: the model that is certified.
    survey: its receptive fields.
    layerwise: computes the logits of cases, with bounds.
    folder: the folder of PARTIAL, which holds the tallies so far, so that
      another call resumes where this one was interrupted.

  Raises:
    Interrupted: SIGTERM or SIGINT came; the tallies so far are saved.
  """
  try_cases = partial(_try_cases, section, model, survey, folder / PARTIAL)
  unbounded = []
  if survey.cases > MANY_CASES:
    unbounded = try_cases(layerwise.without_bounds)
    if any(tally.wrong for tally in unbounded):
      return unbounded
  bounded = try_cases(layerwise)
  if not any(tally.unsure for tally in bounded):
    return bounded
  unbounded = unbounded or try_cases(layerwise.without_bounds)
  bounded += [Tally()] * (len(unbounded) - len(bounded))
  # `bounded` is the longer one if rounding made a case wrong without bounds
  # alone, and the first wrong case ended the count.
  return [
    tally.with_bounds(first)
    for tally, first in zip(unbounded, bounded, strict=False)
  ]


def _try_cases(
  section: ConfigDict,
  model: Model,
  survey: Survey,
  path: pathlib.Path,
  layerwise: LayerwiseLogits,
) -> list[Tally]:
  """Tries the cases of each receptive field, with bounds or without.

  With bounds, it ends after a chunk with a context whose bound is not below the
  size of its margin. `path` is that of PARTIAL; for the rest see `tally_cases`.
  """
  counts = survey.cases, layerwise.chunk_size, section.max_refined
  # Tallies of an exhaustive count may go on after the first wrong case.
  key = [certificate.checksum(model), *counts, section.exhaustive]
  saved: dict = (
    json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
  )
  if saved.get("key") != key:  # of another model, cases or settings
    saved = {"key": key}
  name = "bounded" if layerwise.group else "unbounded"
  state = saved.setdefault(name, {"tallies": [], "chunks": 0})
  tallies = [Tally(**fields) for fields in state["tallies"]]
  # In the last of these tallies, so many chunks are counted.
  last_tallied, chunks = len(tallies) - 1, state["chunks"]
  saved_at, any_host_stops = time.monotonic(), hosts.any_host

  def save() -> None:
    tally_fields = list(map(dataclasses.asdict, tallies))
    saved[name] = {"tallies": tally_fields, "chunks": chunks}
    records.write_text(path, json.dumps(saved))

  bar = tqdm(
    total=survey.cases,
    initial=sum(tally.cases for tally in tallies),
    unit="case",
    unit_scale=True,
    mininterval=1 if sys.stderr.isatty() else 10,
    disable=not hosts.is_primary(),
    desc=f"seed {model.seed}, {name}",
  )
  with stop_signals() as signals, bar:
    for index, group in enumerate(survey.groups):
      if index < last_tallied:
        continue
      if index > last_tallied:
        tallies.append(Tally())
        chunks = 0
      if tallies[index].unsure:  # saved after the last chunk with bounds
        break
      for count in certificate.count_cases(
        layerwise,
        group,
        tallies[index],
        chunks,
        max_refined=section.max_refined,
      ):
        chunks += 1
        stop = any_host_stops(bool(signals))
        bar.update(count)
        margin = min(tally.margin for tally in tallies)
        bar.set_postfix_str(f"smallest margin {margin:.3g}", refresh=False)
        if stop or time.monotonic() - saved_at > SAVE_SECONDS:
          save()
          saved_at = time.monotonic()
        if stop:
          done = sum(tally.cases for tally in tallies)
          raise Interrupted(
            f"stopped after {done:,} of {survey.cases:,} cases, kept; the same"
            " command goes on from there"
          )
      if tallies[index].unsure:
        break
      if tallies[index].wrong and not section.exhaustive:
        break
  save()
  return tallies
