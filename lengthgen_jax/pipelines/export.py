"""This is --mode=export: it writes one seed's model of a workdir to two files,
NAME.npz and the model card NAME.json, like those in lengthgen_jax/pretrained.

They have neither the optimizer's state nor the output heads of hints.
"""

import copy
import dataclasses
import json
import pathlib
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax import hosts
from lengthgen_jax.attention.biases import file
from lengthgen_jax.attention.lines import SiteLines
from lengthgen_jax.config import build
from lengthgen_jax.errors import check, file_errors, local_path
from lengthgen_jax.evaluation.trained import Model, best
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines import evaluate, workdir
from lengthgen_jax.pretrained import files
from lengthgen_jax.proofs import table
from lengthgen_jax.results import records

# Fields of a certificate that a card leaves out: they are long, and finetuning
# alone needs them.
LONG_FIELDS = ("counterexamples", "training_inputs")


def run(
  config: ConfigDict, folder: pathlib.Path, target: str | None, seed: int | None
) -> int:
  """Exports one seed's model of a workdir's last stage (`choose`), with the
  parameters of eval.checkpoint, to the files TARGET.npz and TARGET.json;
  returns the exit code."""
  check(target, "--export_to is missing: name FOLDER/NAME of the files")
  path = local_path("--export_to", str(target))
  check(
    path.name
    and not path.name.startswith(".")
    and path.suffix not in (".npz", ".json")
    and not path.is_dir(),
    f"--export_to={path}: end with the name of the model, without .npz or"
    " .json, like FOLDER/addition",
  )
  stage = workdir.load_stage(config, folder)
  model = choose(stage.models, stage.certificates, seed)
  check(not model.diverged, f"seed {model.seed} diverged: choose another")
  with file_errors(f"{folder / workdir.ORIGIN}: cannot be read"):
    origin = json.loads((folder / workdir.ORIGIN).read_text(encoding="utf-8"))
  results = records.read_results(folder / "results.jsonl")
  card, arrays = exported_model(stage.config, model)
  certificate = {
    name: value
    for name, value in stage.certificates.get(model.seed, {}).items()
    if name not in LONG_FIELDS
  }
  sheet = origin | data_sheet(stage, model, results)
  card |= {"data_sheet": sheet, "certificate": certificate or None}
  card = files.write(path, card, arrays)
  print(
    f"seed {model.seed}, step {model.step}: {card['parameters']:,} parameters,"
    f" {card['bytes']:,} bytes"
  )
  print(f"{path}.npz and {path}.json")
  return 0


def exported_model(
  config: ConfigDict, model: Model
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """Returns the card of a model so far ("task", "family", "config" and
  "table"), and the arrays of its file, without the output heads of hints; the
  config is that of the stage that trained it."""
  exported_config = config_of(config, model.seed)
  experiment = build.build(exported_config)
  params = used_params(model.params, experiment)
  sections = json.loads(exported_config.to_json_best_effort())
  # These say nothing of the model.
  for name in ("bench", "probe", "certify", "prune"):
    del sections[name]
  card = {
    "task": exported_config.task,
    "family": experiment.kind,
    "config": sections,
    "table": table.table(experiment.task),
  }
  exported = dataclasses.replace(model, experiment=experiment, params=params)
  return card, files.to_arrays(params, bias_arrays(exported))


def choose(
  models: list[Model], certificates: dict[int, dict], seed: int | None
) -> Model:
  """Returns the model of a seed or, of None, the one that is proved with the
  largest margin; if none is proved, the best by validation."""
  by_seed = {model.seed: model for model in models}
  if seed is None:
    proved = [x for x in certificates if certificates[x]["outcome"] == 1]
    if not proved:
      note = "no seed is proved: the best one by validation is exported"
      hosts.print_note(note)
      return best(models)
    seed = max(proved, key=lambda x: certificates[x]["margin"])
  seeds = ", ".join(map(str, by_seed))
  check(seed in by_seed, f"--seed={seed}: the workdir has {seeds}")
  return by_seed[seed]


def config_of(config: ConfigDict, seed: int) -> ConfigDict:
  """Returns the config of an exported model, from that of the stage that
  trained it: without hints, so that it has no output heads of theirs, with an
  empty bias.file, because the file of the model has its bias, and tested at
  eval.lengths alone, unless more is asked for."""
  config = copy.deepcopy(config)
  config.update(seeds=(seed,), mesh=(), hints=())
  config.eval.update(frontier=0, stress=False)
  config.mixing.update(weights=(), hint_length=0)
  kind = "none" if config.bias.kind == "none" else "file"
  config.bias.update(kind=kind, file="")
  return config


def used_params(params: dict, experiment: Experiment) -> dict:
  """Returns those parameters that an experiment has, as float32 arrays: a model
  with hints has further output heads, and rows of the segment embedding."""
  shapes = jax.eval_shape(lambda: experiment.init(0))
  first = lambda shape, x: x[tuple(map(slice, shape.shape))]
  params = jax.tree.map(first, shapes, {name: params[name] for name in shapes})
  dtypes = {np.dtype(x.dtype).name for x in jax.tree.leaves(params)}
  check(
    dtypes == {"float32"},
    f"model.dtype: parameters are {', '.join(sorted(dtypes))}; only float32"
    " ones can be exported",
  )
  return jax.tree.map(np.asarray, params)


def bias_arrays(model: Model) -> dict[str, Any]:
  """Returns the arrays of a bias file with a model's lines, {} if it has
  none."""
  for site, bias in model.scaffold.items():
    check(
      isinstance(bias, SiteLines),
      f"bias.file: {site} is a matrix; only lines can be exported",
    )
  if not model.scaffold:
    return {}
  scaffold = jax.tree.map(lambda x: np.asarray(x)[None], model.scaffold)
  meta = {"seeds": [model.seed], "sites": model.experiment.site_segments}
  return file.to_arrays(scaffold, meta)


def data_sheet(stage: workdir.Stage, model: Model, rows: list[dict]) -> dict:
  """Returns what a card says of a model's training and of its tests, from the
  rows of the workdir's results.jsonl."""
  conditions = evaluate.row_conditions(stage, model)
  names = "config_hash", "stage", "seed", "step", "checkpoint", "stopped_at"
  tests = [
    {name: row[name] for name in ("test_set", "length", "bits", "n")}
    | {"exact_match": row["value"], "lower_bound": row["lower_bound"]}
    for row in records.of_metric(rows, "em")
    if all(row[name] == conditions[name] for name in names)
  ]
  return {
    "seed": model.seed,
    "stage": stage.name,
    "step": model.step,
    "stopped_at": model.stopped_at,
    "validation_exact_match": model.em,
    "unit": model.experiment.task.unit,
    "tests": tests,
  }
