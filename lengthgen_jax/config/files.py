"""This module reads config files: presets, and the configs of workdirs.

It is a config file too: `--config=files.py:W/config.json` is what main fills in
when --config is left out.
"""

import hashlib
import json
import pathlib
import runpy
import types

from ml_collections import ConfigDict

from lengthgen_jax.attention.biases import BIASES
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.attention.temperature import TEMPERATURES
from lengthgen_jax.config.fields import (
  check_matters,
  default_config,
  leaves,
)
from lengthgen_jax.errors import UsageError, check, file_errors
from lengthgen_jax.registry import run_file
from lengthgen_jax.tasks import HINTS, TASKS

# Sections that may change between training a workdir and reading it again.
CHANGEABLE = (
  "eval",
  "certify",
  "probe",
  "bench",
  "compile_cache",
  "mesh",
  "registered_by",
)
# Fields and sections beside these that do not change the method of a run.
UNNAMED = (
  *CHANGEABLE,
  "seeds",
  "checkpoint",
  "method",
  "overrides",
  "train.chunk",
  "train.seed_axis",
)
# Fields that name a registered thing.
REGISTERED = {
  "task": TASKS,
  "positions.kind": POSITIONS,
  "temperature.kind": TEMPERATURES,
  "bias.kind": BIASES,
}


def load_config(spec: str) -> ConfigDict:
  """Returns the config of FILE[:PRESET].

  Raises:
    UsageError: there is no such file.
  """
  path, _, preset = spec.partition(":")
  check(pathlib.Path(path).is_file(), f"--config={spec}: no file {path}")
  get_preset = runpy.run_path(path)["get_config"]
  return get_preset(preset) if preset else get_preset()


def load_presets(path: str | pathlib.Path) -> types.SimpleNamespace:
  """Returns what a file of presets defines, for other presets to build on."""
  return types.SimpleNamespace(**runpy.run_path(str(path)))


def check_overrides(spec: str, names: list[str]) -> None:
  """Checks that the command line changes fields that there are.

  Whatever a config file raises about its preset passes through.

  Args:
    spec: the config, FILE[:PRESET].
    names: of the fields that are changed, like "train.steps".

  Raises:
    UsageError: a field is not there; the message says which ones are.
  """
  config = load_config(spec)
  for name in names:
    node, node_name = config, "config"
    for part in name.split("."):
      fields = list(node) if isinstance(node, ConfigDict) else []
      check(
        part in fields,
        f"--config.{name}: no field {part!r}; {node_name} has"
        f" {', '.join(fields) or 'no fields of its own'}",
      )
      node, node_name = node[part], f"{node_name}.{part}"


def name_overrides(config: ConfigDict, spec: str) -> None:
  """Puts what the command line changed, and who registered what, into a config.

  By `overrides`, results tell a run from others of its preset.

  Args:
    config: as it was parsed; its fields `overrides` and `registered_by` are
      filled in.
    spec: the config that it began as, FILE[:PRESET].

  Raises:
    UsageError: a field was set that changes nothing.
  """
  preset = dict(leaves(load_config(spec)))
  overrides = dict(text.split("=", 1) for text in config.overrides)
  for field, value in leaves(config):
    if value == preset[field]:
      continue
    check_matters(config, field)
    if field not in UNNAMED and field.partition(".")[0] not in UNNAMED:
      overrides[field] = str(value).replace(" ", "")
  config.overrides = tuple(
    f"{name}={overrides[name]}" for name in sorted(overrides)
  )
  config.registered_by = registering_files()


def registering_files() -> tuple[str, ...]:
  """Returns the files outside of the package that registered something."""
  registries = [*REGISTERED.values(), *HINTS.values()]
  files = {file for known in registries for file in known.origins.values()}
  return tuple(sorted(files))


def get_config(path: str | pathlib.Path) -> ConfigDict:
  """Returns the config at `path`, with defaults for fields that its version
  lacked.

  Raises:
    UsageError: it has fields that this version lacks, or is no config.
  """
  with file_errors(f"{path}: cannot be read"), open(path) as file:
    saved = json.load(file)
  check(isinstance(saved, dict), f"{path}: cannot be read (it is no config)")
  _run_registering_files(path, saved)
  config = default_config(str(saved.get("task", "addition"))).lock()
  prefix = f"{path} is of another version:"
  for name, value in leaves(saved):
    value = tuple(value) if isinstance(value, list) else value
    try:
      config.update_from_flattened_dict({name: value})
    except KeyError as error:
      raise UsageError(f"{prefix} this one has no field {name}") from error
    except TypeError as error:
      raise UsageError(f"{prefix} {name} cannot be {value!r}") from error
  config.mesh = ()  # the saved one is of the devices of that run
  return config


def _run_registering_files(path: str | pathlib.Path, saved: dict) -> None:
  """Registers again what a saved config was made with.

  Raises:
    UsageError: it cannot be, and is not registered now.
  """
  fields = dict(leaves(saved))
  kinds = [
    (name, fields.get(name), known) for name, known in REGISTERED.items()
  ]
  hints = HINTS.get(str(saved.get("task")), {})
  kinds += [("hints", hint, hints) for hint in saved.get("hints", ())]
  files = [file for file in saved.get("registered_by", ())]
  for file in files:
    is_known = all(
      kind in known for _, kind, known in kinds if kind is not None
    )
    if pathlib.Path(file).is_file() and not is_known:
      run_file(file, f"{path}: what it was trained with is registered by")
  for name, kind, known in kinds:
    check(
      kind is None or kind in known or not files,
      f"{path}: {name}={kind!r} is not registered; it was by"
      f" {', '.join(files)}, which is not there: name the file that registers"
      " it by --config=FILE",
    )


def saved_config(workdir: str | pathlib.Path) -> ConfigDict | None:
  """Returns the config that a workdir was trained with, None if it has none."""
  path = pathlib.Path(workdir) / "config.json"
  return get_config(path) if path.exists() else None


def differences(config: ConfigDict, saved: ConfigDict) -> list[str]:
  """Describes every field that differs, except fields of CHANGEABLE."""
  ours, theirs = (
    dict(leaves(json.loads(version.to_json_best_effort())))
    for version in (config, saved)
  )
  return [
    f"{name}={ours.get(name)!r} but {theirs.get(name)!r} there"
    for name in ours | theirs
    if name.partition(".")[0] not in CHANGEABLE
    and ours.get(name) != theirs.get(name)
  ]


def config_hash(config: ConfigDict) -> str:
  """Returns eight hex digits that hash everything but the evaluation fields."""
  fields = json.loads(config.to_json_best_effort())
  fields = {
    name: value for name, value in fields.items() if name not in CHANGEABLE
  }
  # A pipeline's file is in its workdir, whose name must not matter.
  fields["bias"]["file"] = pathlib.Path(config.bias.file).name
  text = json.dumps(fields, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:8]
