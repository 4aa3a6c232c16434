"""The two files of a trained model: their form, reading and writing.

NAME.npz has its arrays, in one canonical form that `check_form` states, because
the file is part of a proof: the float32 parameters, named "params/PATH" by
their paths in the pytree, and the lines of the attention bias, named
"lines/NAME" by their names in a bias file (attention/biases/file.py). NAME.json
is the model card: the config, a data sheet (how the model was made, and its
test results) and what proves it.

The models of the package lie beside this file, and are named by NAME alone; any
other model by FOLDER/NAME, with a slash.
"""

import hashlib
import io
import json
import os
import pathlib
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from ml_collections import ConfigDict

from lengthgen_jax.attention.biases import file
from lengthgen_jax.config import files as config_files
from lengthgen_jax.errors import check, file_errors
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.training.checkpoint import differences

FORMAT_VERSION = 2
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
  "table",  # of the task's transducer (table.py); None if it has none
  "bytes",  # size of the npz
  "sha256",  # of the npz, as hex digits
  "data_sheet",
  # that of --mode=certify without its longest fields, and with a checksum of
  # the arrays and the config; None if none was made
  "certificate",
)
# What stands in the place of a certificate of another model.
OTHER_MODEL = {"outcome": None, "verdict": "certificate is of another model"}


def names() -> list[str]:
  """Returns the names of the models of the package, sorted."""
  return sorted(path.stem for path in FOLDER.glob("*.json"))


def card_path(model: str) -> pathlib.Path:
  """Returns the path of the card of a model: NAME, FOLDER/NAME, or the path
  FOLDER/NAME.json itself."""
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


def read(model: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
  """Returns the card of a model, a dict with CARD_FIELDS, and its arrays;
  UsageError if they are missing, damaged, or not of one model of this format.

  A certificate that is of other arrays or another config is OTHER_MODEL.
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
  archive = path.with_suffix(".npz")
  with file_errors(f"{archive}: cannot be read"):
    content = archive.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    check(
      digest == card["sha256"],
      f"{archive}: is damaged, or another model's: its sha256 is"
      f" {digest[:12]}…, but {path.name} has {str(card['sha256'])[:12]}…",
    )
    arrays = dict(np.load(io.BytesIO(content), allow_pickle=False))
  check(isinstance(card["config"], dict), f"{path}: its config is no object")
  check_form(archive, arrays, card["config"])
  expected, proof = checksum(arrays, card["config"]), card["certificate"]
  if proof and proof.get("checksum") != expected:
    card["certificate"] = OTHER_MODEL
  return card, arrays


def check_form(
  path: pathlib.Path, arrays: dict[str, np.ndarray], config: dict
) -> None:
  """Checks that the arrays of the file `path` have the canonical form of a
  model with the card's `config`.

  Those named "params/PATH" are float32 and finite (`read_params` compares their
  paths and shapes with those of the config's model). Those named "lines/NAME"
  are there if bias.kind is "file", and are those of a bias file
  (attention/biases/file.py) of one seed, that of the config. There are no
  others.
  """
  lines = {}
  for name, array in arrays.items():
    if name.startswith(file.LINES_PREFIX):
      lines[name.removeprefix(file.LINES_PREFIX)] = array
      continue
    is_known = name.startswith(PARAMS_PREFIX)
    check(is_known, f"{path}: has an unknown array {name}")
    is_float = array.dtype == np.float32 and np.isfinite(array).all()
    check(is_float, f"{path}: {name} is not float32, or not finite")
  kind = config.get("bias", {}).get("kind")
  check(
    (kind == "file") == bool(lines),
    f"{path}: has {'' if lines else 'no '}lines, but its bias.kind is {kind!r}",
  )
  if lines:
    meta = file.check_lines(f"{path}: {file.LINES_PREFIX}", lines)
    seeds = [*config.get("seeds", ())]
    check(
      len(seeds) == 1 and meta == {"seeds": seeds, "sites": meta["sites"]},
      f"{path}: lines/meta: must have seeds={seeds}, one, and sites alone",
    )


def checksum(arrays: dict[str, np.ndarray], config: dict) -> str:
  """Returns the checksum of a model's parameters, lines and config that its
  proofs have: 64 hexadecimal digits."""
  digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
  for name in sorted(arrays):
    array = arrays[name]
    digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
    digest.update(array.tobytes())
  return digest.hexdigest()


def get_config(model: str) -> ConfigDict:
  """Returns the config of a model: its field `pretrained` is NAME or the
  absolute path FOLDER/NAME, and a bias of kind "file" is read from NAME.npz."""
  (card, _), path = read(model), card_path(model)
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


def read_params(model: str, experiment: Experiment) -> dict:
  """Returns the parameters of a model as a pytree of arrays, with the paths and
  shapes of the experiment that its config describes."""
  path = card_path(model).with_suffix(".npz")
  arrays = {
    name.removeprefix(PARAMS_PREFIX): array
    for name, array in read(model)[1].items()
    if name.startswith(PARAMS_PREFIX)
  }
  shapes = jax.eval_shape(lambda: experiment.init(0))
  changes = differences(arrays, flatten_dict(shapes, sep="/"))
  check(not changes, f"{path}: does not match its config: it {changes}")
  return unflatten_dict(arrays, sep="/")


def to_arrays(params: dict, lines: dict) -> dict[str, np.ndarray]:
  """Returns the arrays of a model's file by name: a pytree of float32
  parameters, and the arrays of its bias file by name, {} if it has none."""
  named = flatten_dict({"params": params, "lines": lines}, sep="/")
  return {name: np.asarray(value) for name, value in named.items()}


def write(path: pathlib.Path, card: dict, arrays: dict) -> dict[str, Any]:
  """Writes the two files of a model, of which it returns the card; `path` is
  FOLDER/NAME, without a suffix.

  The card has the CARD_FIELDS but for "format" and those that follow from the
  other arguments: "name", "parameters", "bytes" and "sha256". Its certificate
  is of this config and these arrays (see `to_arrays`), and gets their checksum.
  """
  archive = path.with_name(f"{path.name}.npz")
  check_form(archive, arrays, card["config"])
  stamp = {"checksum": checksum(arrays, card["config"])}
  params = [x for name, x in arrays.items() if name.startswith(PARAMS_PREFIX)]
  with file_errors(f"{path}: cannot be written"):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(archive, allow_pickle=False, **arrays)
    content = archive.read_bytes()
    whole_card = card | {
      "format": FORMAT_VERSION,
      "name": path.name,
      "parameters": sum(x.size for x in params),
      "bytes": len(content),
      "sha256": hashlib.sha256(content).hexdigest(),
    }
    if card["certificate"]:
      whole_card["certificate"] = card["certificate"] | stamp
    whole_card = {field: whole_card[field] for field in CARD_FIELDS}
    text = card_text(whole_card)
    path.with_name(f"{path.name}.json").write_text(text, encoding="utf-8")
  return whole_card


def card_text(card: dict) -> str:
  """Returns the text of a card, with its table, which is long, on one line."""
  text = json.dumps(card | {"table": "@table"}, indent=1, ensure_ascii=False)
  table = json.dumps(card["table"], separators=(",", ":"))
  return text.replace('"table": "@table"', f'"table": {table}', 1) + "\n"
