"""This is --mode=probe: it measures and draws what a trained model does inside.

W/probes.jsonl has a row per probe, length and part of the model, of every seed.
W/figures/probes (with a folder per stage in a workdir of --mode=abc) has the
figures, which show single inputs and heads of the best seed by validation, and
index.html, a page with all of them.
"""

import html
import pathlib
from collections.abc import Iterator

import jax
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax import hosts
from lengthgen_jax.drawing import save
from lengthgen_jax.errors import check, check_choice, user_errors
from lengthgen_jax.evaluation import measures
from lengthgen_jax.evaluation.trained import Model, best
from lengthgen_jax.pipelines import evaluate, workdir
from lengthgen_jax.probes import figures
from lengthgen_jax.probes.activations import Mean, Observation, observations
from lengthgen_jax.probes.figures import FigureData, tokens_of
from lengthgen_jax.probes.registry import PROBES, Probe, measure, select
from lengthgen_jax.probes.tables import summary
from lengthgen_jax.results import records

# Without probe.lengths, those of eval.lengths up to this one are probed.
LONGEST = 100
MAX_TOKENS = 200  # of the longest sequence that is drawn


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Probes the models of a workdir's stage; returns the exit code, 0."""
  names = workdir.stage_names(config, folder)
  name = config.probe.stage or names[-1]
  check_choice("probe.stage", name, names)
  stage = workdir.load_stage(config, folder, name)
  section, models = stage.config.probe, stage.models
  model = best(models)
  probes = select(section.only, model, "probe.only", PROBES)
  drawn = select(section.figures, model, "probe.figures", figures.FIGURES)
  inputs = _inputs(stage.config, model)
  rows = [
    row for seed_model in models for row in _rows(stage, seed_model, probes)
  ]
  records.merge(folder / "probes.jsonl", rows)
  text = summary(rows)
  print(text)
  hosts.print_note(f"drawing {', '.join(drawn)}")
  labels = _labels(model, section.samples)
  data = FigureData(inputs, rows, model.seed, labels)
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
  probe.inputs, or else the task's `figure_input` or `usage`."""
  task, inputs = model.experiment.task, {}
  default = (task.figure_input or task.usage,)
  for text in map(str, config.probe.inputs or default):
    with user_errors("probe.inputs"):
      _, lengths = task.parse(text)
      batch = jax.device_get(model.text_batch(text))
    sequences = [batch.keys, batch.source_keys]
    longest = max(len(tokens_of(keys)) for keys in sequences if keys)
    check(
      longest <= MAX_TOKENS,
      f"{text!r} makes a sequence of {longest} tokens, and figures show at"
      f" most {MAX_TOKENS}: choose a shorter one in probe.inputs",
    )
    inputs[text] = Observation(model, batch, 1, max(lengths))
  return inputs


def _rows(
  stage: workdir.Stage, model: Model, probes: dict[str, Probe]
) -> Iterator[dict]:
  """Yields the rows of all probes of one seed."""
  config, section = stage.config, stage.config.probe
  task, train_length = model.experiment.task, model.experiment.train_length
  lengths = section.lengths or [x for x in config.eval.lengths if x <= LONGEST]
  plan = [(length, True) for length in lengths or [train_length]]
  plan.append((train_length, False))
  for length, by_length in plan:
    selected = {
      name: probe
      for name, probe in probes.items()
      if probe.by_length == by_length
    }
    if not selected:
      continue
    length_text = f"{length} {task.unit}"
    hosts.print_note(f"seed {model.seed}, {length_text}: {', '.join(selected)}")
    batches = observations(
      model,
      length,
      section.samples,
      seed=config.eval.seed,
      exact=not by_length,
    )
    conditions = evaluate.row_conditions(stage, model) | {
      "length": length,
      "bits": task.bits(length),
      "test_set": next(iter(task.test_sets)),
    }
    for name, means in measure(selected, batches).items():
      yield from (conditions | _row(name, mean) for mean in means.values())


def _row(metric: str, mean: Mean) -> dict:
  """Returns the row of a mean, without the conditions of all probes."""
  row = measures.value_row(metric, mean.value, int(mean.count))
  names = "part", "layer", "head", "line", "position"
  row |= {name: getattr(mean, name) for name in names}
  if mean.success:
    row["correct"] = int(mean.total)
  if mean.by_position is not None:
    rates = np.asarray(mean.by_position) / mean.count
    row["by_position"] = [round(float(rate), 6) for rate in rates]
  return row


def _labels(model: Model, samples: int) -> dict[str, list[str]]:
  """Returns a label for each position of the decoder's "inputs", of the scored
  "outputs", and of the "source" if there is one, of interventions' inputs."""
  length = model.experiment.train_length
  batch = next(observations(model, length, samples)).batch
  by_site = figures.labels_by_site(model.experiment.task, batch)
  rows = by_site["self"].rows
  labels = {
    "inputs": by_site["self"].keys,
    "outputs": [rows[row] for row in np.flatnonzero(batch.weight[0])],
  }
  if "cross" in by_site:
    labels["source"] = by_site["cross"].keys
  return labels
