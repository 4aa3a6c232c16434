"""This module reads config files: files of presets, and the config.json that is
saved in a workdir.

It can itself be given to --config, like the files in configs/: its get_config
takes the path of a saved config where theirs take the name of a preset. If
--config is left out, main.py adds --config=THIS_FILE:WORKDIR/config.json, if
there is such a file and --model is left out too.
"""

import hashlib
import json
import pathlib
import runpy
import types

from ml_collections import ConfigDict

from lengthgen_jax.attention.biases import BIASES
from lengthgen_jax.attention.normalizers import NORMALIZERS
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.attention.temperature import TEMPERATURES
from lengthgen_jax.config.fields import (
  check_has_effect,
  default_config,
  leaves,
)
from lengthgen_jax.errors import UsageError, check, file_errors
from lengthgen_jax.registry import caller_file, registering_files, run_file
from lengthgen_jax.tasks import HINTS, TASKS
from lengthgen_jax.training.optimizer import OPTIMIZERS

PACKAGE = pathlib.Path(__file__).parents[1]

# Sections and fields that may be set again when a trained workdir is used.
CHANGEABLE = (
  "eval",
  "certify",
  "probe",
  "bench",
  "compile_cache",
  "mesh",
  "registered_by",
  "pretrained",
)
# Sections and fields that are not shown beside the method in results when they
# are set, because they do not change it.
NOT_IN_METHOD = (
  *CHANGEABLE,
  "seeds",
  "checkpoint",
  "method",
  "overrides",
  "train.chunk",
  "train.seed_axis",
)
# The registry of each field whose value is a registered name.
REGISTRY_OF_FIELD = {
  "task": TASKS,
  "positions.kind": POSITIONS,
  "temperature.kind": TEMPERATURES,
  "attention.normalizer": NORMALIZERS,
  "bias.kind": BIASES,
  "train.optimizer": OPTIMIZERS,
}


def find(path: str | pathlib.Path, folder: str | pathlib.Path = "") -> str:
  """Returns the path of a file of presets.

  A relative path is one in `folder`, by default the current one. If no such
  file is there, NAME.py and configs/NAME.py are the package's own presets.
  """
  found, path = pathlib.Path(folder, path), pathlib.Path(path)
  if not found.is_file() and path in (
    pathlib.Path(path.name),
    pathlib.Path("configs", path.name),
  ):
    # In a clone they lie beside the package, in an installed one within it.
    for parent in (PACKAGE.parent, PACKAGE):
      if (own := parent / "configs" / path.name).is_file():
        return str(own)
  return str(found)


def load_config(spec: str) -> ConfigDict:
  """Returns the config of FILE[:PRESET], where FILE is found as by `find`.

  Raises:
    UsageError: there is no such file, or it has no get_config().
    Exception: whatever the file raises.
  """
  file, _, preset = spec.partition(":")
  path = find(file)
  check(pathlib.Path(path).is_file(), f"--config={spec}: no file {file}")
  names = runpy.run_path(path)
  check("get_config" in names, f"--config={spec}: {file} has no get_config()")
  get_preset = names["get_config"]
  return get_preset(preset) if preset else get_preset()


def load_presets(path: str | pathlib.Path) -> types.SimpleNamespace:
  """Returns the names that a file of presets defines, as attributes, for other
  presets to build on; a relative path is one beside the file that calls this,
  or else of the package's own presets, as in `find`.

  Raises:
    UsageError: there is no such file.
    Exception: whatever the file raises.
  """
  folder = pathlib.Path(caller_file()).parent
  found = find(path, folder)
  check(
    pathlib.Path(found).is_file(),
    f"load_presets: no file {path} in {folder}, nor such a preset",
  )
  return types.SimpleNamespace(**runpy.run_path(found))


def check_overrides(spec: str, names: list[str]) -> None:
  """Checks that all config fields set on the command line exist.

  Args:
    spec: FILE[:PRESET], the config whose fields are set.
    names: full names of the fields that are set, like "train.steps".

  Raises:
    UsageError: a field does not exist, and the message lists those of its
      section; or there is no such file, or it has no get_config().
    Exception: whatever the config file raises, as for a wrong preset.
  """
  config = load_config(spec)
  for name in names:
    value, path = config, "config"
    for part in name.split("."):
      fields = list(value) if isinstance(value, ConfigDict) else []
      check(
        part in fields,
        f"--config.{name}: no field {part!r}; {path} has"
        f" {', '.join(fields) or 'no fields of its own'}",
      )
      value, path = value[part], f"{path}.{part}"


def name_overrides(config: ConfigDict, spec: str) -> None:
  """Fills in the fields `overrides` and `registered_by` of a config, in place.

  `overrides` lists the fields that differ from the preset, as "name=value", but
  none of NOT_IN_METHOD, nor these fields in `retrain`: results show them beside
  the method. If the preset is a saved config, those that this lists already are
  kept. `registered_by` is what `registering_files` returns.

  Args:
    config: the config after the command line was parsed.
    spec: FILE[:PRESET], the config before that.

  Raises:
    UsageError: a field was set that has no effect with the other fields, or
      that this function fills in; or a field that decides whether another one
      has an effect, like positions.kind, is not valid.
  """
  preset = dict(leaves(load_config(spec)))
  for field in ("overrides", "registered_by"):
    check(
      config[field] == preset[field],
      f"{field}: the program fills in this field; leave it out",
    )
  overrides = dict(text.split("=", 1) for text in config.overrides)
  for field, value in leaves(config):
    if value == preset[field]:
      continue
    check_has_effect(config, field)
    name = field.removeprefix("retrain.")
    if not {name, name.partition(".")[0]} & {*NOT_IN_METHOD}:
      overrides[field] = str(value).replace(" ", "")
  config.overrides = tuple(
    f"{name}={overrides[name]}" for name in sorted(overrides)
  )
  config.registered_by = registering_files()


def get_config(path: str | pathlib.Path) -> ConfigDict:
  """Returns the config that was saved at `path`, without its mesh, which was
  for the devices of that run.

  Fields that it lacks, because an older version saved it, get their defaults.
  The users' files that it names in `registered_by` are run first, so that their
  names are registered.

  Raises:
    UsageError: the file cannot be read or is no config; a field or its value is
      of another version; or it names users' files, and one of them fails or a
      name in the config is not registered.
  """
  with file_errors(f"{path}: cannot be read"), open(path) as file:
    saved = json.load(file)
  check(isinstance(saved, dict), f"{path}: cannot be read (it is no config)")
  return from_dict(saved, path)


def from_dict(saved: dict, path: str | pathlib.Path) -> ConfigDict:
  """Returns what `get_config` does, of a config that is read already.

  Args:
    saved: the config as a dict.
    path: the file that it was saved in, for error messages.

  Raises:
    UsageError: as in `get_config`.
  """
  _run_registering_files(path, saved)
  config = default_config(str(saved.get("task", "addition"))).lock()
  prefix = f"{path} is of another version:"
  for name, value in leaves(saved):
    if name.startswith("bench."):  # says nothing about the trained model
      continue
    value = tuple(value) if isinstance(value, list) else value
    try:
      config.update_from_flattened_dict({name: value})
    except KeyError as error:
      raise UsageError(f"{prefix} this one has no field {name}") from error
    except TypeError as error:
      raise UsageError(f"{prefix} {name} cannot be {value!r}") from error
  config.mesh = ()  # the saved one was for the devices of that run
  return config


def _run_registering_files(path: str | pathlib.Path, saved: dict) -> None:
  """Runs the files of users that registered something for a saved config.

  Those that this process has run already are not run again.

  Raises:
    UsageError: a file fails; or a name is not registered, and its file is
      missing or does not register it.
  """
  files = saved.get("registered_by", [])
  if not files:
    return
  for file in files:
    if pathlib.Path(file).is_file() and file not in registering_files():
      run_file(file, f"{path}: what it was trained with is registered by")
  fields, hints = dict(leaves(saved)), HINTS.get(str(saved.get("task")), {})
  names = [
    (name, fields.get(name), registry)
    for field, registry in REGISTRY_OF_FIELD.items()
    for name in (field, f"retrain.{field}")
  ]
  names += [("hints", hint, hints) for hint in saved.get("hints", ())]
  absent = [file for file in files if not pathlib.Path(file).is_file()]
  for field, name, registry in names:
    check(
      name is None or name in registry,
      f"{path}: {field}={name!r} is not registered; it was by"
      f" {' or '.join(absent or files)}, which"
      f" {'is not there' if absent else 'no longer does'}: name the file that"
      " registers it by --config=FILE",
    )


def saved_config(workdir: str | pathlib.Path) -> ConfigDict | None:
  """Returns the config that a workdir was trained with, None if it has none."""
  path = pathlib.Path(workdir) / "config.json"
  return get_config(path) if path.exists() else None


def _training_fields(config: ConfigDict) -> dict:
  """Returns a config without CHANGEABLE, as a dict of JSON's types."""
  fields = json.loads(config.to_json_best_effort())
  return {name: x for name, x in fields.items() if name not in CHANGEABLE}


def differences(config: ConfigDict, saved: ConfigDict) -> list[str]:
  """Describes each field, except CHANGEABLE, in which a config differs from the
  one that is saved in a workdir, "name=value but value there"."""
  fields = dict(leaves(_training_fields(config)))
  saved_fields = dict(leaves(_training_fields(saved)))
  return [
    f"{name}={fields.get(name)!r} but {saved_fields.get(name)!r} there"
    for name in fields | saved_fields
    if fields.get(name) != saved_fields.get(name)
  ]


def config_hash(config: ConfigDict) -> str:
  """Returns a hash of a config without CHANGEABLE, as eight hex digits."""
  fields = _training_fields(config)
  # --mode=abc has its bias file in the workdir, whose path must not matter.
  fields["bias"]["file"] = pathlib.Path(config.bias.file).name
  text = json.dumps(fields, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:8]
