"""Files of trained models: NAME.npz has the arrays, NAME.json the model card.

The arrays are float32 parameters, named "params/" and their path joined by "/",
and the lines of the attention bias, named "lines/" and their name in a bias
file (attention/biases/file.py). The card has the config, a data sheet (how the
model was made, and what was measured of it) and the certificate.

The models of the package lie beside this file. They are called by their names;
others are called by a path with a slash, FOLDER/NAME.

This is itself a config file, whose presets are models: under --model, main sets
--config to it.
"""

import hashlib
import json
import os
import pathlib
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from ml_collections import ConfigDict

from lengthgen_jax.attention.biases.file import LINES
from lengthgen_jax.config import files
from lengthgen_jax.errors import check, file_errors
from lengthgen_jax.experiment import Experiment

FORMAT = 1
PARAMS = "params/"  # begins the names of parameters
FOLDER = pathlib.Path(__file__).parent
CARD_FIELDS = (
  "format",
  "name",
  "task",
  "family",
  "parameters",  # how many numbers
  "config",  # the whole config of the stage that trained it
  "bytes",  # of the npz
  "sha256",  # of the npz
  "data_sheet",
  "certificate",  # of lengthgen_jax/certify; None if none was made
  "second_checker",  # what checker.py says; None if it was not run
)


def names() -> list[str]:
  """Returns the names of the models that come with the package."""
  return sorted(path.stem for path in FOLDER.glob("*.json"))


def path_of(model: str) -> pathlib.Path:
  """Returns the path of a model's card.

  Args:
    model: The name of a model of the package, or FOLDER/NAME.

  Raises:
    UsageError: There is no such model.
  """
  if "/" in model or os.sep in model:
    path = pathlib.Path(f"{model.removesuffix('.json')}.json")
    check(path.is_file(), f"--model={model}: there is no file {path}")
    return path
  check(
    model in names(),
    f"--model={model}: no model of this name comes with the package; choose one"
    f" of {', '.join(names())}, or a path FOLDER/NAME",
  )
  return FOLDER / f"{model}.json"


def read_card(model: str) -> dict[str, Any]:
  """Returns the card of a model, a dict with CARD_FIELDS.

  Raises:
    UsageError: There is no such model, or its card is of another format.
  """
  path = path_of(model)
  with file_errors(f"{path}: cannot be read"):
    card = json.loads(path.read_text())
  is_dict = isinstance(card, dict)
  card_format = card.get("format") if is_dict else None
  check(
    card_format == FORMAT,
    f"{path}: is of format {card_format}, this version reads {FORMAT}; export"
    " the model again, or install the version that made it",
  )
  missing = [field for field in CARD_FIELDS if field not in card]
  check(not missing, f"{path}: has no {', '.join(missing)}")
  return card


def get_config(model: str) -> ConfigDict:
  """Returns the config of a model, whose bias file is the model's.

  Raises:
    UsageError: As in `read_card`; the config is of another version; or the
      arrays are not those of the card.
  """
  card, path = read_card(model), path_of(model)
  check_arrays(path, card)
  config = files.from_dict(card["config"], path)
  is_shipped = path.parent == FOLDER
  config.pretrained = (
    model if is_shipped else str(path.resolve().with_suffix(""))
  )
  if config.bias.kind == "file":
    config.bias.file = str(path.with_suffix(".npz").resolve())
  return config


def check_arrays(path: pathlib.Path, card: dict) -> None:
  """Checks that the arrays beside a card are those that it describes.

  Raises:
    UsageError: They are missing, damaged or another model's.
  """
  archive = path.with_suffix(".npz")
  with file_errors(f"{archive}: cannot be read"):
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
  check(
    digest == card["sha256"],
    f"{archive}: is damaged, or another model's: its sha256 is {digest[:12]}…,"
    f" and {card['sha256'][:12]}… in {path.name}",
  )


def read_params(model: str, experiment: Experiment) -> dict:
  """Returns the parameters of a model as a pytree of arrays.

  Args:
    model: The name or path of the model.
    experiment: What its config describes.

  Raises:
    UsageError: They are not the parameters of this experiment.
  """
  path = path_of(model).with_suffix(".npz")
  with (
    file_errors(f"{path}: cannot be read"),
    np.load(path, allow_pickle=False) as file,
  ):
    arrays = {
      name.removeprefix(PARAMS): file[name]
      for name in file
      if name.startswith(PARAMS)
    }
  abstract: dict[str, Any] = flatten_dict(
    jax.eval_shape(lambda: experiment.init(0)), sep="/"
  )
  differing = [
    f"{name} {arrays[name].shape}, not {abstract[name].shape}"
    for name in sorted(abstract.keys() & arrays.keys())
    if arrays[name].shape != abstract[name].shape
  ]
  problems = {
    "lacks": sorted(abstract.keys() - arrays.keys()),
    "has unknown": sorted(arrays.keys() - abstract.keys()),
    "has": differing,
  }
  text = "; ".join(
    f"{verb} {', '.join(names)}" for verb, names in problems.items() if names
  )
  check(not text, f"{path}: is no model of its config: {text}")
  return unflatten_dict(arrays, sep="/")


def write(path: pathlib.Path, card: dict, params: dict, lines: dict) -> None:
  """Writes the two files of a model.

  Args:
    path: FOLDER/NAME.
    card: The fields of CARD_FIELDS, but for those that follow from the rest.
    params: The parameters, a pytree of float32 arrays.
    lines: The arrays of its bias file, {} if it has none.

  Raises:
    UsageError: The files cannot be written.
  """
  arrays = {
    f"{PARAMS}{name}": np.asarray(value)
    for name, value in flatten_dict(params, sep="/").items()
  }
  arrays |= {f"{LINES}{name}": value for name, value in lines.items()}
  archive = path.with_name(f"{path.name}.npz")
  with file_errors(f"--export_to={path}: cannot be written"):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(archive, allow_pickle=False, **arrays)
  content = archive.read_bytes()
  num_parameters = sum(x.size for x in jax.tree.leaves(params))
  whole_card = card | {
    "format": FORMAT,
    "name": path.name,
    "parameters": num_parameters,
    "bytes": len(content),
    "sha256": hashlib.sha256(content).hexdigest(),
  }
  ordered = {field: whole_card[field] for field in CARD_FIELDS}
  text = json.dumps(ordered, indent=1, ensure_ascii=False) + "\n"
  path.with_name(f"{path.name}.json").write_text(text)
