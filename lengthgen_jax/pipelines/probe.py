"""This is --mode=probe: it measures and draws what a trained model does inside.

W/probes.jsonl has a row per probe, length and part of the model, of every seed
(those of probe.retrain are of the best seed alone).
W/figures/probes (with a folder per stage in a workdir of --mode=abc) has the
figures, which show single inputs and heads of the best seed by validation, and
index.html, a page with all of them.
"""

import dataclasses
import html
import pathlib
import re
from collections.abc import Iterator

import jax
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax.drawing import save
from lengthgen_jax.errors import UsageError, check, check_choice
from lengthgen_jax.evaluation import measures
from lengthgen_jax.evaluation.trained import Model, best
from lengthgen_jax.pipelines import (
  evaluate,
  runs,
  workdir,
)
from lengthgen_jax.probes import figures, interventions
from lengthgen_jax.probes.activations import (
  Mean,
  Observation,
  observations,
)
from lengthgen_jax.probes.figures import FigureData, tokens_of
from lengthgen_jax.probes.registry import LINES, PROBES, Probe, measure, select
from lengthgen_jax.probes.tables import summary
from lengthgen_jax.results import records
from lengthgen_jax.training import loop
from lengthgen_jax.training.log import WATCHED

# Without probe.lengths, those of eval.lengths up to this one are probed.
LONGEST = 100
MAX_TOKENS = 200  # of the longest sequence that is drawn


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Probes the models of a workdir's stage; returns the exit code, 0.

  With probe.retrain it trains in a folder "without", in that of the stage's
  training."""
  names = workdir.stage_names(config, folder)
  name = config.probe.stage or names[-1]
  check_choice("probe.stage", name, names)
  stage = workdir.load_stage(config, folder, name)
  section, models = stage.config.probe, stage.models
  model = best(models)
  probes = select(section.only, model, "probe.only", PROBES)
  drawn = select(section.figures, model, "probe.figures", figures.FIGURES)
  inputs = _inputs(stage.config, model)
  if section.retrain:
    check(LINES.holds(model), f"probe.retrain is for {LINES.text}")
  rows = [
    row for seed_model in models for row in _rows(stage, seed_model, probes)
  ]
  if section.retrain:
    conditions = _conditions(stage, model, _causal_length(section, model))
    for mean in retrained(stage.run, model, stage.config):
      rows.append(conditions | _row("retrained_without_line", mean))
  records.merge(folder / "probes.jsonl", rows)
  text = summary(rows)
  print(text)
  runs.print_note(f"drawing {', '.join(drawn)}")
  logs = {}  # of the stages that probes watched
  for name in names:
    log_folder = workdir.training_folder(folder, name)
    if watched := records.read(log_folder / WATCHED):
      logs[name] = records.read(log_folder / "metrics.jsonl"), watched
  data = FigureData(inputs, rows, model.seed, _labels(section, model), logs)
  figure_folder = folder / "figures" / "probes"
  if workdir.is_abc(folder):
    figure_folder /= stage.name
  paths = [
    save(figure, figure_folder / f"{name}.png")
    for entry in drawn.values()
    for name, figure in entry.draw(data)
  ]
  title = (
    f"{stage.config.task}, {stage.config.method} ({stage.name}),"
    f" seed {model.seed}, step {model.step}"
  )
  page = [
    f"<!doctype html><meta charset=utf-8><title>{title}</title>",
    *(f"<h1>{title}</h1>", f"<pre>{html.escape(text)}</pre>"),
    *(f'<p><img src="{x.name}" alt="{x.stem}"></p>' for x in paths),
  ]
  records.write_text(figure_folder / "index.html", "\n".join(page))
  print(f"rows: {folder / 'probes.jsonl'}")
  print(f"figures: {figure_folder / 'index.html'}")
  return 0


def _inputs(config: ConfigDict, model: Model) -> dict[str, Observation]:
  """Returns the model on each input to draw, by its text: those of
  probe.inputs, and random ones, whose text is the prompt's tokens.

  If config.probe names neither, the task's `figure_input` or `usage` is drawn.
  """
  experiment, task, inputs = model.experiment, model.experiment.task, {}
  num_random = config.probe.random_inputs
  default = () if num_random else (task.figure_input or task.usage,)
  for text in map(str, config.probe.inputs or default):
    try:
      _, lengths = task.parse(text)
      batch = jax.device_get(model.text_batch(text))
    except ValueError as error:
      raise UsageError(f"probe.inputs: {error}") from error
    inputs[text] = Observation(model, batch, 1, max(lengths))
  for number in range(num_random):
    length, seed = experiment.train_length, config.eval.seed
    (observation,) = observations(model, length, 1, seed=seed, first=number)
    ids = observation.batch.source
    if ids is None:
      ids = observation.batch.inputs[:, : observation.batch.prompt_length[0]]
    separator = "" if task.of_digits else " "
    inputs[separator.join(task.symbols(np.asarray(ids[0])))] = observation
  for text, observation in inputs.items():
    sequences = [observation.batch.keys, observation.batch.source_keys]
    longest = max(len(tokens_of(keys)) for keys in sequences if keys)
    check(
      longest <= MAX_TOKENS,
      f"{text!r} makes a sequence of {longest} tokens, and figures show at"
      f" most {MAX_TOKENS}: choose a shorter one in probe.inputs, and"
      " probe.random_inputs=0 if it is a random one",
    )
  return inputs


def _causal_length(section: ConfigDict, model: Model) -> int:
  """Returns the length of the inputs of interventions, in digits or items."""
  return section.causal_length or model.experiment.train_length


def _conditions(stage: workdir.Stage, model: Model, length: int) -> dict:
  """Returns the fields of rows that all probes share."""
  task = model.experiment.task
  return evaluate.row_conditions(stage, model) | {
    "length": length,
    "bits": task.bits(length),
    "test_set": next(iter(task.test_sets)),
  }


def _rows(
  stage: workdir.Stage, model: Model, probes: dict[str, Probe]
) -> Iterator[dict]:
  """Yields the rows of all probes of one seed."""
  config, section = stage.config, stage.config.probe
  lengths = section.lengths or [x for x in config.eval.lengths if x <= LONGEST]
  lengths = lengths or [model.experiment.train_length]
  plan = [(length, True) for length in lengths]
  plan.append((_causal_length(section, model), False))
  for length, by_length in plan:
    selected = {
      name: probe
      for name, probe in probes.items()
      if probe.by_length == by_length
    }
    if not selected:
      continue
    length_text = f"{length} {model.experiment.task.unit}"
    runs.print_note(f"seed {model.seed}, {length_text}: {', '.join(selected)}")
    batches = observations(
      model,
      length,
      section.samples,
      seed=config.eval.seed,
      exact=not by_length,
      calibration=config.calibration,
    )
    conditions = _conditions(stage, model, length)
    for name, means in measure(selected, batches).items():
      yield from (conditions | _row(name, mean) for mean in means.values())


def _row(metric: str, mean: Mean) -> dict:
  """Returns the row of a mean, without the fields of `_conditions`."""
  row = measures.value_row(metric, mean.value, int(mean.count), True)
  names = "part", "layer", "head", "line", "position"
  row |= {name: getattr(mean, name) for name in names}
  if mean.success:
    row["correct"] = int(mean.total)
  if mean.by_position is not None:
    rates = np.asarray(mean.by_position) / mean.count
    row["by_position"] = [round(float(rate), 6) for rate in rates]
  return row


def _labels(section: ConfigDict, model: Model) -> dict[str, list[str]]:
  """Returns a label for each position of the decoder's "inputs", of the scored
  "outputs", and of the "source" if there is one, of interventions' inputs."""
  length = _causal_length(section, model)
  batch = next(observations(model, length, section.samples)).batch
  by_site = figures.labels_by_site(model.experiment.task, batch)
  rows = by_site["self"].rows
  labels = {
    "inputs": by_site["self"].keys,
    "outputs": [rows[row] for row in np.flatnonzero(batch.weight[0])],
  }
  if "cross" in by_site:
    labels["source"] = by_site["cross"].keys
  return labels


# Trained again without a line.


def retrained(
  run: loop.Run, model: Model, config: ConfigDict
) -> Iterator[Mean]:
  """Trains a model again without each line, and yields means of exact match,
  whose `part` and `line` say what was left out.

  A model that fails when a line is taken from it might have learned to do
  without that line if it had been trained so. The line is left out of every
  head. The folder without/seed_N in that of the run has a training for each
  line, from random parameters, even if retrain.start=interpolated.

  Args:
    run: the training of `model`, which is done again for its seed; rounds of
      finetuning are not.
    model: a trained model whose bias is lines.
    config: the whole config of the model."""
  length = _causal_length(config.probe, model)
  scaffold = jax.tree.map(lambda x: np.asarray(x)[None], model.scaffold)
  entries_by_line = {
    line: entries
    for line, entries in interventions.bias_lines(model).items()
    if line.layer is None and line.head is None
  }
  for number, (line, entries) in enumerate(entries_by_line.items(), 1):
    runs.print_note(
      f"{number} of {len(entries_by_line)}: training without {line.part},"
      f" {line.line}"
    )
    closed = interventions.close_lines(scaffold, line.part, entries)
    name = re.sub(r"[^\w+-]+", "_", f"{line.part}_{line.line}")
    line_run = dataclasses.replace(
      run,
      seeds=(model.seed,),
      scaffold=closed,
      folder=run.folder / "without" / f"seed_{model.seed}" / name,
      keep=1,
      sparse=run.experiment.trains_sparse(closed),
      watch=None,
      mesh=run.mesh.for_seeds(1, run.train.batch_size),
    )
    loop.train(line_run)
    (line_model,) = runs.load(line_run, "last")
    samples, seed = config.probe.samples, config.eval.seed
    batches = observations(line_model, length, samples, seed=seed)
    (mean,) = measure({"intact": PROBES["intact"]}, batches)["intact"].values()
    yield dataclasses.replace(mean, part=line.part, line=line.line)
