"""This module reads and writes the two files of a trained model: NAME.npz has
its arrays, NAME.json is its model card.

The arrays are the float32 parameters, named "params/PATH" by their paths in the
pytree, and the lines of the attention bias, named "lines/NAME" by their names
in a bias file (attention/biases/file.py). The card has the config, a data sheet
(how the model was made, and its test results) and the certificate.

The models of the package lie beside this file, and are named by NAME alone. Any
other model is named by FOLDER/NAME, with a slash.

This module is also a config file: get_config takes the name of a model where
those of configs/ take the name of a preset, and main turns --model=NAME into
--config=THIS_FILE:NAME.
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

from lengthgen_jax.attention.biases.file import LINES_PREFIX
from lengthgen_jax.config import files as config_files
from lengthgen_jax.errors import check, file_errors
from lengthgen_jax.experiment import Experiment

FORMAT_VERSION = 1
PARAMS_PREFIX = "params/"  # of parameter names in the npz
FOLDER = pathlib.Path(__file__).parent  # of the models of the package
# The fields of a card, in the order in which they are written.
CARD_FIELDS = (
  "format",
  "name",
  "task",
  "family",  # model.kind
  "parameters",  # number of scalar parameters
  "config",  # that of the stage that trained it, for one seed, without hints
  "bytes",  # size of the npz
  "sha256",  # of the npz, as hex digits
  "data_sheet",
  # that of --mode=certify without its longest fields; None if none was made
  "certificate",
  "second_checker",  # the result of checker.py; None if it was not run
)


def names() -> list[str]:
  """Returns the names of the models of the package, sorted."""
  return sorted(path.stem for path in FOLDER.glob("*.json"))


def card_path(model: str) -> pathlib.Path:
  """Returns the path of a model's card.

  Args:
    model: NAME, FOLDER/NAME, or the path FOLDER/NAME.json of the card itself.

  Raises:
    UsageError: there is no such model.
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

  Args:
    model: NAME or FOLDER/NAME.

  Raises:
    UsageError: there is no such model, or its card cannot be read, is of
      another format or lacks a field.
  """
  path = card_path(model)
  with file_errors(f"{path}: cannot be read"):
    card = json.loads(path.read_text(encoding="utf-8"))
  is_dict = isinstance(card, dict)
  card_format = card.get("format") if is_dict else None
  check(
    card_format == FORMAT_VERSION,
    f"{path}: has format version {card_format}; this package reads"
    f" {FORMAT_VERSION}; export the model again, or install the version that"
    " made it",
  )
  missing = [field for field in CARD_FIELDS if field not in card]
  check(not missing, f"{path}: has no {', '.join(missing)}")
  return card


def get_config(model: str) -> ConfigDict:
  """Returns the config of a model.

  Its field `pretrained` says which model it is: NAME, or the absolute path
  FOLDER/NAME. A bias of kind "file" is read from the model's NAME.npz.

  Args:
    model: NAME or FOLDER/NAME.

  Raises:
    UsageError: as in `read_card`, `check_arrays` and
      `config.files.from_dict`.
  """
  card, path = read_card(model), card_path(model)
  check_arrays(path, card)
  config = config_files.from_dict(card["config"], path)
  # The card itself may be a link to a file of another name.
  absolute_path = path.parent.resolve() / path.name
  is_shipped = absolute_path.parent == FOLDER.resolve()
  config.pretrained = (
    path.stem if is_shipped else str(absolute_path.with_suffix(""))
  )
  if config.bias.kind == "file":
    config.bias.file = str(path.with_suffix(".npz").resolve())
  return config


def check_arrays(path: pathlib.Path, card: dict) -> None:
  """Checks that the arrays beside a card are those that it describes.

  Args:
    path: the path of the card.
    card: the card.

  Raises:
    UsageError: the arrays are missing, damaged or those of another model.
  """
  archive = path.with_suffix(".npz")
  with file_errors(f"{archive}: cannot be read"):
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
  check(
    digest == card["sha256"],
    f"{archive}: is damaged, or another model's: its sha256 is {digest[:12]}…,"
    f" but {path.name} has {card['sha256'][:12]}…",
  )


def read_params(model: str, experiment: Experiment) -> dict:
  """Returns the parameters of a model as a pytree of arrays.

  Args:
    model: NAME or FOLDER/NAME.
    experiment: the experiment that the model's config describes.

  Raises:
    UsageError: the file cannot be read, or does not have the parameters of
      this experiment.
  """
  path = card_path(model).with_suffix(".npz")
  with (
    file_errors(f"{path}: cannot be read"),
    np.load(path, allow_pickle=False) as file,
  ):
    arrays = {
      name.removeprefix(PARAMS_PREFIX): file[name]
      for name in file
      if name.startswith(PARAMS_PREFIX)
    }
  expected_shapes: dict[str, Any] = flatten_dict(
    jax.eval_shape(lambda: experiment.init(0)), sep="/"
  )
  differing_shapes = [
    f"{name} {arrays[name].shape}, not {expected_shapes[name].shape}"
    for name in sorted(expected_shapes.keys() & arrays.keys())
    if arrays[name].shape != expected_shapes[name].shape
  ]
  problems = {
    "lacks": sorted(expected_shapes.keys() - arrays.keys()),
    "has unknown": sorted(arrays.keys() - expected_shapes.keys()),
    "has wrong shapes:": differing_shapes,
  }
  text = "; ".join(
    f"{verb} {', '.join(items)}" for verb, items in problems.items() if items
  )
  check(not text, f"{path}: does not match its config: {text}")
  return unflatten_dict(arrays, sep="/")


def write(path: pathlib.Path, card: dict, params: dict, lines: dict) -> None:
  """Writes the two files of a model.

  Args:
    path: FOLDER/NAME, without a suffix; the folder is made if it is missing.
    card: {field: value} of the CARD_FIELDS except "format", which is always
      FORMAT_VERSION, and "name", "parameters", "bytes" and "sha256", which
      follow from the other arguments.
    params: the parameters, a pytree of float32 arrays.
    lines: the arrays of the model's bias file by name; {} if it has none.

  Raises:
    UsageError: the files cannot be written.
  """
  arrays = {
    f"{PARAMS_PREFIX}{name}": np.asarray(value)
    for name, value in flatten_dict(params, sep="/").items()
  }
  arrays |= {f"{LINES_PREFIX}{name}": value for name, value in lines.items()}
  archive = path.with_name(f"{path.name}.npz")
  with file_errors(f"{path}: cannot be written"):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(archive, allow_pickle=False, **arrays)
    content = archive.read_bytes()
    whole_card = card | {
      "format": FORMAT_VERSION,
      "name": path.name,
      "parameters": sum(x.size for x in jax.tree.leaves(params)),
      "bytes": len(content),
      "sha256": hashlib.sha256(content).hexdigest(),
    }
    ordered_card = {field: whole_card[field] for field in CARD_FIELDS}
    text = json.dumps(ordered_card, indent=1, ensure_ascii=False) + "\n"
    path.with_name(f"{path.name}.json").write_text(text, encoding="utf-8")
