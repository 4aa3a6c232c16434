"""This is --mode=calibrate: it turns a model's attention into a bias file."""

import pathlib

import numpy as np
from ml_collections import ConfigDict

import lengthgen_jax
from lengthgen_jax import hosts, stopwatch
from lengthgen_jax.attention import calibration
from lengthgen_jax.attention.biases import file
from lengthgen_jax.attention.lines import Lines
from lengthgen_jax.config import fields
from lengthgen_jax.drawing import save
from lengthgen_jax.errors import check
from lengthgen_jax.evaluation import mean_attention, trained
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines import runs, workdir
from lengthgen_jax.probes import figures
from lengthgen_jax.probes.activations import Observation
from lengthgen_jax.training import loop


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Writes W/calibrate/bias.npz from the models of a workdir W of --mode=train;
  returns the exit code."""
  workdir.stage_names(config, folder)  # fails if nothing was trained there
  check(
    not workdir.is_abc(folder),
    f"--workdir={folder}: --mode=abc calibrates by itself; name a workdir of"
    " --mode=train",
  )
  training_run = runs.make_run(config, folder)
  check_config(config, training_run.experiment)
  models = interpolating_models(config, training_run)
  write_bias(config, models, folder / "calibrate")
  print(f"bias: {workdir.bias_path(folder)}")
  return 0


def check_config(config: ConfigDict, experiment: Experiment) -> None:
  """Checks that the models of an experiment can be calibrated."""
  section, task = config.calibration, experiment.task
  check(
    task.of_digits or task.strides or task.axes > 1,
    f"task={task.name!r}: its outputs belong to no fixed places of the input,"
    " so there are no lines; calibrate a task whose answer goes place by place",
  )
  has_places = task.transducer or task.axes > 1
  check(
    not section.reach or has_places and section.lines == "operand",
    f"calibration.reach={section.reach} is for calibration.lines='operand' and"
    f" tasks that are transducers or grids, not for {task.name} with"
    f" {section.lines!r} lines; choose 0",
  )
  for length in section.lengths:
    check(
      length <= config.data.train_length,
      f"calibration.lengths: {length} exceeds"
      f" data.train_length={config.data.train_length}",
    )
  widths = {
    condition.width
    for condition in mean_attention.conditions(section.lengths, experiment)
  }
  longest = config.data.train_length
  advice = f"name two or more, like {(max(longest - 1, 1), longest)}"
  check(
    widths,
    f"calibration.lengths={tuple(section.lengths)}: training has none of these"
    f" sizes; {advice}",
  )
  is_natural = config.data.width == "natural"
  check(
    section.lines != "operand" or not is_natural or len(widths) > 1,
    f"calibration.lengths={tuple(section.lengths)}:"
    " calibration.lines='operand' cannot tell an operand's ends apart at one"
    f" width; {advice}",
  )


def interpolating_models(config: ConfigDict, run: loop.Run) -> list[Model]:
  """Returns the models whose best validation EM reaches abc.min_exact_match.

  They have the parameters of that best validation. Seeds whose training
  diverged are left out; a note is printed for every seed that is."""
  models, interpolating = runs.load(run, "best"), []
  threshold = config.abc.min_exact_match
  for model in models:
    if model.em >= threshold and not model.diverged:
      interpolating.append(model)
      continue
    reason = "diverged" if model.diverged else "did not interpolate"
    hosts.print_note(
      f"seed {model.seed} {reason} (EM {100 * model.em:.1f} %,"
      f" abc.min_exact_match={threshold}); dropped"
    )
  best = trained.best(models)
  check(not best.diverged, "all seeds diverged: lower train.learning_rate")
  check(
    interpolating,
    f"no seed interpolated: the best validation EM is {100 * best.em:.1f} %,"
    f" below abc.min_exact_match={threshold}; train longer, in another workdir,"
    " with --config.train.steps, or lower it with"
    f" --config.abc.min_exact_match={max(best.em - 0.005, 0.0):.3f}",
  )
  return interpolating


@stopwatch.phase("calibration")
def write_bias(
  config: ConfigDict, models: list[Model], folder: pathlib.Path
) -> None:
  """Calibrates every seed and writes bias.npz and attention.npz to a folder.

  bias.npz has the kept lines of every seed; a seed without any is dropped. With
  calibration.layers='each' it has as many layers as the second stage of ABC;
  those that the first lacks have no lines.
  attention.npz, for figures, has the mean attention [N, H, T, S] of every site
  and seed under the last condition, as "SITE_SEED".

  Args:
    config: the config of the models.
    models: one interpolating model of each seed, at least one.
    folder: where the files go, W/calibrate."""
  section, experiment = config.calibration, models[0].experiment
  conditions = mean_attention.conditions(section.lengths, experiment)
  # By site, the candidate lines, which are the same for all seeds.
  candidates: dict[str, Lines] = {}
  selections_by_seed, best_scores, attention_by_seed = {}, [], {}
  for model in models:
    attention, solved = mean_attention.collect(section, model, conditions)
    hosts.print_note(
      f"seed {model.seed}: collected {section.samples} samples at each of"
      f" {len(conditions)} conditions, solved {min(solved):.1f} to"
      f" {max(solved):.1f} %"
    )
    selections = {}
    for site, means in attention.items():
      candidates[site], selections[site] = calibration.select_lines(
        section, experiment.task, means, site
      )
      _print_lines(section, model, site, candidates[site], selections[site])
      best_scores.append(selections[site].score.max())
      attention_by_seed[f"{site}_{model.seed}"] = np.asarray(means[-1].values)
    # With "last", the last layer's lines are those of all layers.
    used = slice(-1, None) if section.layers == "last" else slice(None)
    if any(selection.keep[used].any() for selection in selections.values()):
      selections_by_seed[model.seed] = selections
    else:
      hosts.print_note(f"seed {model.seed}: no head has a line; dropped")
  check(
    selections_by_seed,
    f"calibration: no line passes calibration.kappa={section.kappa} (of"
    f" self-attention, calibration.kappa_self={section.kappa_self}) in any head"
    f" (the best score is {max(best_scores):.2f}, lines that other fields of"
    " calibration rule out included); lower it, or train longer",
  )
  retrained = fields.retrain_config(config, config.seeds, None).model
  more_layers = retrained.num_decoder_layers - config.model.num_decoder_layers
  bias = {
    site: calibration.compact(
      lines,
      [selections[site] for selections in selections_by_seed.values()],
      section.layers,
      section.empty_heads,
      further_layers=max(more_layers, 0),
    )
    for site, lines in candidates.items()
  }
  metadata = {
    "version": lengthgen_jax.__version__,
    "seeds": list(selections_by_seed),
    "sites": experiment.site_segments,
    "conditions": conditions,
    "calibration": section.to_dict(),
  }
  if hosts.is_primary():
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "attention.npz", **attention_by_seed)
    # The bias is written last, and atomically: if there is one, calibration is
    # done.
    file.save(folder / "bias.npz", bias, metadata)
  hosts.print_note(
    f"calibrated {len(selections_by_seed)} of {len(models)} seeds"
  )


def _print_lines(
  section: ConfigDict,
  model: Model,
  site: str,
  lines: Lines,
  selection: calibration.Selection,
) -> None:
  """Prints a note for every head: its kept lines or, for a head without any,
  what becomes of it (calibration.empty_heads), and its best score."""
  kappa = "kappa_self" if site == "self" else "kappa"
  segments = model.experiment.site_segments[site]
  for layer, head in np.ndindex(selection.keep.shape[:2]):
    _, strength, score, is_long, keep = (
      np.asarray(x)[layer, head] for x in selection
    )
    text = "; ".join(
      f"{lines.take(k).describe(segments)} ({strength[k]:.2f}, z"
      f" {score[k]:.1f})"
      for k in np.argsort(-strength, kind="stable")
      if keep[k]
    )
    if not text:
      best = score[is_long].max(initial=-np.inf)
      text = f"{section.empty_heads}: the best z is {best:.1f}"
      if best > section[kappa]:
        text += ", but calibration.reach rules its line out"
        if layer and model.experiment.task.axes > 1:
          text += " or has moved it to layer 0"
      else:
        text += f", not above calibration.{kappa}={section[kappa]}"
    hosts.print_note(
      f"seed {model.seed} {site} layer {layer} head {head}: {text}"
    )


def draw(
  config: ConfigDict, folder: pathlib.Path, model: Model
) -> list[pathlib.Path]:
  """Draws the calibrated biases and the mean attention of the first retrained
  seed, `model`, and the attention of the first vanilla one to one input, in its
  last decoder layer; returns the paths. The config is that of the workdir."""
  interpolation = runs.make_run(config, folder / "interpolate")
  experiment, section = interpolation.experiment, config.calibration
  *_, condition = mean_attention.conditions(section.lengths, experiment)
  batch = mean_attention.sample_batch(
    experiment, model.seed, condition, condition.width, 0, 1
  )
  paths = figures.draw_biases(model, batch, folder / "figures")
  attention = np.load(folder / "calibrate" / "attention.npz")
  for site, labels in figures.labels_by_site(experiment.task, batch).items():
    # The arrays are padded to the widest condition; the padding comes last.
    shape = tuple(slice(len(x)) for x in (labels.rows, labels.keys))
    figure = figures.matrices(
      attention[f"{site}_{model.seed}"][..., *shape],
      f"mean {site}-attention of the interpolated model, seed {model.seed}",
      labels.keys,
      labels.rows,
      label=f"mean attention {section.quantity.removesuffix('s')}",
    )
    path = folder / "figures" / f"attention_mean_{site}.png"
    paths.append(save(figure, path))
  text = config.abc.example or experiment.task.usage
  vanilla = runs.load(interpolation, "best")[0]
  observation = Observation(vanilla, vanilla.text_batch(text), 1, 0)
  title = f"{text}, vanilla model, last layer"
  for site, figure in figures.attention_on(observation, title, slice(-1, None)):
    path = folder / "figures" / f"attention_example_{site}.png"
    paths.append(save(figure, path))
  return paths
