"""Reads configs: files of presets, the config.json that is saved in a workdir,
and the fields that a command line sets."""

import copy
import hashlib
import inspect
import json
import pathlib
import runpy
import types
from typing import Any

from absl import flags
from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict
from ml_collections.config_flags import tuple_parser

from lengthgen_jax.config.fields import (
  CALIBRATED,
  RETRAIN_SECTIONS,
  check_fields,
  check_has_effect,
  default_config,
)
from lengthgen_jax.errors import (
  UsageError,
  check,
  file_errors,
  local_path,
  user_errors,
)
from lengthgen_jax.registry import PACKAGE, caller_file, registering_files
from lengthgen_jax.tasks import TASKS

# Sections and fields that may be set again when a trained workdir is used.
CHANGEABLE = (
  "eval",
  "certify",
  "prune",
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
# How the text of a command line shows values of these types.
PARSERS = {
  bool: flags.BooleanParser().parse,
  int: int,
  float: float,
  tuple: tuple_parser.TupleParser().parse,
}


def find(path: str | pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
  """Returns where a file of presets is: a relative path is one in `folder` or
  else, as NAME.py or configs/NAME.py, one of the package's own presets."""
  path = pathlib.Path(path)
  places = [folder / path]
  if str(path.parent) in (".", "configs"):
    # In a clone they lie beside the package, in an installed one within it.
    parents = PACKAGE.parent, PACKAGE
    places += [parent / "configs" / path.name for parent in parents]
  return next(filter(pathlib.Path.is_file, places), places[0])


def load_config(spec: str) -> ConfigDict:
  """Returns the config of FILE[:PRESET], where FILE is found as by `find`;
  fields that it lacks get their defaults."""
  name, _, preset = spec.partition(":")
  path = find(local_path("--config", name), pathlib.Path())
  check(path.is_file(), f"--config={spec}: no file {name}")
  with user_errors(f"--config={spec}"):
    names = runpy.run_path(str(path))
    check("get_config" in names, f"{path} has no get_config()")
    get_config = names["get_config"]
    has_presets = bool(inspect.signature(get_config).parameters)
    check(has_presets or not preset, "the file has no presets")
    config = get_config(*([preset] if preset else []))
    if not isinstance(config, ConfigDict):  # whose text takes long to make
      raise UsageError(f"get_config() must return a config, not {config!r}")
  return _filled(config.to_dict(), f"--config={spec}")


def load_presets(path: str | pathlib.Path) -> types.SimpleNamespace:
  """Returns the names that a file of presets defines, as attributes, for other
  presets to build on; a relative path is found as by `find` in the folder of
  the file that calls this."""
  folder = pathlib.Path(caller_file()).parent
  file = find(path, folder)
  check(
    file.is_file(),
    f"load_presets: no file {path} in {folder}, nor such a preset",
  )
  return types.SimpleNamespace(**runpy.run_path(str(file)))


def with_assignments(preset: ConfigDict, assignments: list[str]) -> ConfigDict:
  """Returns a config after a command line has set fields, each by
  "field=value", with its fields `overrides` and `registered_by` filled in."""
  config = copy.deepcopy(preset)
  for assignment in assignments:
    name, _, text = assignment.partition("=")
    set_field(config, name, text, f"--config.{name}")
  name_overrides(config, preset)
  return config


def _as_tuples(value: Any) -> Any:
  """Returns a value whose lists, and those inside them, are tuples."""
  return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def set_field(config: ConfigDict, name: str, value: Any, what: str) -> None:
  """Sets a field, by its full name like "train.steps", in place, to a value or
  to what a text shows.

  `what` begins the message of a UsageError: there is no such field, and the
  message lists those of its section; or its type is another one.
  """
  first_name = name.removeprefix("retrain.")
  group, _, last = first_name.partition(".")
  if name != first_name and last:  # set it in a copy of the first stage
    check(
      group in RETRAIN_SECTIONS,
      f"{what}: no such field; config.retrain has {', '.join(config.retrain)}",
    )
    check(first_name not in CALIBRATED, f"{what}: calibration decides it")
    stage = ConfigDict(copy.deepcopy({group: config[group]}))
    set_field(stage, first_name, value, what)
    with config.unlocked():
      config.retrain[group][last] = stage[group][last]
    return
  section, path, field = config, "config", config
  for part in name.split("."):
    names = list(field) if isinstance(field, ConfigDict) else []
    check(
      part in names,
      f"{what}: no field {part!r}; {path} has"
      f" {', '.join(names) or 'no fields of its own'}",
    )
    section, field, path = field, field[part], f"{path}.{part}"
  kind = section.get_type(part)
  try:
    if isinstance(value, str) and kind in PARSERS:
      text, value = value, PARSERS[kind](value)
      # Of text that is no literal the parser makes a single name.
      check(
        value != (text,) or text[:1] not in ("(", "["),
        f"{what}: cannot be {text}; names have quotes in it, like ('a', 'b')",
      )
    section[part] = _as_tuples(value)
  except UsageError:
    raise
  except (TypeError, ValueError) as error:
    raise UsageError(
      f"{what}: cannot be {value!r}; its type is {kind.__name__}"
    ) from error


def _filled(values: dict, what: str) -> ConfigDict:
  """Returns a whole config, locked: some values, by section, and else its
  defaults; `what` says in messages where they are from."""
  config = default_config(str(values.get("task", "addition"))).lock()
  for name, value in flatten_dict(values, sep=".").items():
    set_field(config, name, value, f"{what}: {name}")
  return config


def name_overrides(config: ConfigDict, preset: ConfigDict) -> None:
  """Fills in the fields `overrides` and `registered_by` of a config, in place.

  `overrides` lists the fields that differ from the preset, as "name=value", for
  results to show beside the method, but none of NOT_IN_METHOD, nor these in
  `retrain`. What a preset lists already, as a saved config does, is kept.
  UsageError names a field that was set and has no effect, or is filled in here.
  """
  before = flatten_dict(preset.to_dict(), sep=".")
  for field in ("overrides", "registered_by", "pretrained"):
    check(
      config[field] == before[field],
      f"{field}: the program fills in this field; leave it out",
    )
  overrides = dict(text.split("=", 1) for text in config.overrides)
  for field, value in flatten_dict(config.to_dict(), sep=".").items():
    if value == before.get(field):
      continue
    check_has_effect(config, field)
    name = field.removeprefix("retrain.")
    if not {name, name.partition(".")[0]} & {*NOT_IN_METHOD}:
      overrides[field] = str(value).replace(" ", "")
  config.overrides = tuple(
    f"{name}={overrides[name]}" for name in sorted(overrides)
  )
  config.registered_by = registering_files()


def from_dict(saved: dict, path: str | pathlib.Path) -> ConfigDict:
  """Returns the config that was saved at `path`, without its mesh.

  Fields that it lacks get their defaults. The users' files that it names in
  `registered_by` are run first.
  """
  registering, absent = saved.get("registered_by", ()), []
  for file in registering:
    if not pathlib.Path(file).is_file():
      absent.append(file)
    elif file not in registering_files():
      with user_errors(f"{path} was trained with what {file} registers"):
        runpy.run_path(file)
  try:
    config = _filled(saved, f"{path} is of another version")
    if registering:
      check_fields(config)
  except UsageError as error:
    check(
      not absent,
      f"{error}; {' or '.join(absent)}, which is not there, registered what it"
      f" was trained with: correct the path, registered_by in {path}",
    )
    raise
  config.mesh = ()  # the saved one was for the devices of that run
  return config


def saved_config(workdir: str | pathlib.Path) -> ConfigDict | None:
  """Returns the config that a workdir was trained with, None if it has none."""
  path = pathlib.Path(workdir) / "config.json"
  if not path.exists():
    return None
  with file_errors(f"{path}: cannot be read"):
    saved = json.loads(path.read_text(encoding="utf-8"))
  check(isinstance(saved, dict), f"{path}: cannot be read (it is no config)")
  return from_dict(saved, path)


def _training_fields(config: ConfigDict) -> dict:
  """Returns a config without CHANGEABLE, as a dict."""
  fields = config.to_dict()
  return {name: x for name, x in fields.items() if name not in CHANGEABLE}


def differences(config: ConfigDict, saved: ConfigDict) -> list[str]:
  """Describes each field, except CHANGEABLE, abc.min_exact_match and the list
  of overrides, in which a config differs from the one that is saved in a
  workdir."""
  here, there = (
    flatten_dict(_training_fields(x), sep=".") for x in (config, saved)
  )
  return [
    f"{name}={here.get(name)!r} but {there.get(name)!r} there"
    for name in sorted(here | there, key=lambda name: "." in name)
    # One is told to lower abc.min_exact_match where no seed interpolates; the
    # seeds that it chose are those of bias.npz.
    if here.get(name) != there.get(name)
    and name not in ("abc.min_exact_match", "overrides")
  ]


def config_hash(config: ConfigDict) -> str:
  """Returns a hash of a config without CHANGEABLE and the sections of other
  tasks, as eight hex digits."""
  others = {x.section for x in TASKS.values()} - {TASKS[config.task].section}
  fields = _training_fields(config)
  fields = {name: x for name, x in fields.items() if name not in others}
  # --mode=abc has its bias file in the workdir, whose path must not matter.
  fields["bias"]["file"] = pathlib.Path(config.bias.file).name
  text = json.dumps(fields, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:8]
