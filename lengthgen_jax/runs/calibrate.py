"""--mode=calibrate: from an interpolated model's attention to a bias file."""

import json
import pathlib
import time

import jax
import numpy as np
from ml_collections import ConfigDict

import lengthgen_jax
from lengthgen_jax.attention import calibration, lines
from lengthgen_jax.attention.biases import file
from lengthgen_jax.attention.candidates import candidates, phrase
from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.runs import workdir as workdirs
from lengthgen_jax.runs.collect import collect, conditions, sites
from lengthgen_jax.trained import Model


def run(config: ConfigDict, workdir: pathlib.Path) -> int:
  """Writes W/calibrate/bias.npz from a trained workdir's attention."""
  workdirs.check_trained(config, workdir)
  check(
    not workdirs.is_pipeline(workdir),
    f"--workdir={workdir}: --mode=abc calibrates by itself; name a workdir of"
    " --mode=train",
  )
  check_config(config, workdirs.prepare(config, workdir).experiment)
  models = interpolated(config, workdirs.prepare(config, workdir))
  calibrate(config, models, workdir / "calibrate")
  print(f"bias: {workdir / 'calibrate' / 'bias.npz'}")
  return 0


def check_config(config: ConfigDict, experiment) -> None:
  """UsageError for a calibration that cannot be."""
  section, task = config.calibration, experiment.task
  check(
    task.of_digits,
    f"task={task.name!r}: its outputs stand at no fixed place of the input, so"
    " there are no lines; calibrate tasks of digits",
  )
  for length in section.lengths:
    check(
      length <= config.data.train_length,
      f"calibration.lengths: {length} exceeds"
      f" data.train_length={config.data.train_length}",
    )
  sizes = {width for width, _ in conditions(config, experiment)}
  free = section.lines == "operand" and config.data.width == "natural"
  what = "calibration.lengths" if task.ragged else "data.widths"
  check(
    not free or len(sizes) > 1,
    "calibration.lines='operand' cannot tell an operand's ends apart at one"
    f" width: train with two or more {what}, like"
    f" {tuple(max(sizes) + i for i in range(3))}",
  )


def interpolated(config: ConfigDict, run) -> list[Model]:
  """The seeds whose best validation EM reaches abc.min_exact_match.

  Raises:
    UsageError: there is none.
  """
  models = workdirs.load(run, "best")
  wanted = config.abc.min_exact_match
  good = [m for m in models if m.em >= wanted and not m.diverged]
  for model in models:
    if model not in good:
      workdirs.report(
        f"seed {model.seed} did not interpolate (EM {100 * model.em:.1f} %,"
        f" abc.min_exact_match={wanted}); dropped"
      )
  top = max(model.em for model in models)
  check(
    good,
    f"no seed interpolated: the best validation EM is {100 * top:.1f} %, below"
    f" abc.min_exact_match={wanted}; train longer, or lower it with"
    f" --config.abc.min_exact_match={max(top - 0.005, 0.0):.3f}",
  )
  return good


def judge(config: ConfigDict, experiment, collected: list, site: str):
  """Candidates of one site and the Verdict on them, from `collect` per
  condition."""
  section, task = config.calibration, experiment.task
  causal = site == "self"
  arrays = []
  places = conditions(config, experiment)
  for (_, length), found in zip(places, collected, strict=True):
    one = jax.tree.map(np.asarray, found["batch"])
    rows, keys = one.rows, one.keys if causal else one.source_keys
    # Of ragged tasks the samples of a condition have one length.
    first = lambda at: at._replace(
      segment=at.segment[:1], left=at.left[:1], right=at.right[:1]
    )
    rows, keys = first(rows), first(keys)
    limit = length or task.units(config.data.train_length)
    used = rows.segment[0] == task.target
    if section.rows == "length":
      used &= rows.left[0, :, 0] < limit
    arrays.append(calibration.Condition(found[site], used, rows, keys))
  largest = max(arrays, key=lambda c: c.attention.shape[3])
  prompts = set(range(len(task.segments)))
  tested = candidates(
    largest.rows,
    largest.keys,
    task.target,
    section.self_directions if causal else section.directions,
    absolute=section.lines == "absolute",
    ends=prompts if causal else prompts | {lines.WHOLE},
  )
  rule = calibration.Rule(
    line=section.line,
    rule=section.rule,
    threshold=section.kappa_self if causal else section.kappa,
    statistics=section.statistics,
    maximum=section.maximum,
    min_cells=section.min_cells,
  )
  run = jax.jit(calibration.calibrate, static_argnames=("causal", "rule"))
  return tested, jax.device_get(run(arrays, tested, causal=causal, rule=rule))


def calibrate(config: ConfigDict, models: list[Model], folder) -> None:
  """Calibrates every seed and writes `folder`/bias.npz.

  Args:
    config: config of the interpolated models.
    models: one of each seed; one whose attention has no line is dropped.
    folder: where bias.npz and attention.npz go.

  Raises:
    UsageError: no line passes in any head of any seed.
  """
  clock = time.perf_counter()
  experiment, report = models[0].experiment, workdirs.report
  where = sites(experiment)
  verdicts, attention, kept = {site: [] for site in where}, {}, []
  for model in models:
    collected = [
      collect(config, model, width, length)
      for width, length in conditions(config, experiment)
    ]
    shares = [100 * found["solved"] for found in collected]
    report(
      f"seed {model.seed}: collected {config.calibration.samples} samples at"
      f" each of {len(collected)} conditions, solved {min(shares):.1f} to"
      f" {max(shares):.1f} %"
    )
    judged = {s: judge(config, experiment, collected, s) for s in where}
    best = max(verdict.score.max() for _, verdict in judged.values())
    describe(config.calibration, experiment, model.seed, judged)
    if not any(verdict.keep.any() for _, verdict in judged.values()):
      report(f"seed {model.seed}: no head has a line; dropped")
      continue
    kept.append(model.seed)
    for site in where:
      verdicts[site].append(judged[site][1])
      name = f"{site}_{model.seed}"
      attention[name] = np.asarray(collected[-1][site])
      attention[name + "_std"] = np.asarray(collected[-1][site + "_std"])
  if not kept:
    raise UsageError(
      "calibration: no line passes calibration.kappa="
      f"{config.calibration.kappa} in any head (the best score is {best:.2f});"
      " lower it, or train longer"
    )
  section = config.calibration
  bias = {
    site: calibration.compact(
      judged[site][0], verdicts[site], section.layers, section.empty_heads
    )
    for site in where
  }
  folder.mkdir(parents=True, exist_ok=True)
  np.savez_compressed(folder / "attention.npz", **attention)
  # Last, and in one go: where there is a bias, calibration is done.
  _save(config, experiment, bias, kept, folder)
  seconds = time.perf_counter() - clock
  report(f"calibrated {len(kept)} of {len(models)} seeds in {seconds:.0f} s")


def describe(section, experiment, seed: int, judged: dict) -> None:
  """Reports every head: its lines with z-scores, or its best candidate."""
  unit = {"zscore": "z", "mass": "times random"}[section.rule]
  for site, (tested, verdict) in judged.items():
    names = experiment.site_segments[site]
    for n, h in np.ndindex(verdict.keep.shape[:2]):
      score, strength = verdict.score[n, h], verdict.strength[n, h]
      kept = np.flatnonzero(verdict.keep[n, h])
      kept = kept[np.argsort(-strength[kept])]
      phrases = [
        f"{phrase([x[c] for x in tested], names)}"
        f" ({strength[c]:.2f}, {unit} {score[c]:.1f})"
        for c in kept
      ]
      found = "; ".join(phrases)
      empty = f"{section.empty_heads} (best {unit} {score.max():.1f})"
      workdirs.report(
        f"seed {seed} {site} layer {n} head {h}: {found or empty}"
      )


def _save(config: ConfigDict, experiment, bias, seeds, folder) -> None:
  file.save(
    folder / "bias.npz",
    bias,
    {
      "version": lengthgen_jax.__version__,
      "seeds": seeds,
      "sites": experiment.site_segments,
      "conditions": conditions(config, experiment),
      "calibration": json.loads(config.calibration.to_json_best_effort()),
    },
  )
