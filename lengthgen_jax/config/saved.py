"""This module reads, compares and hashes configs on disk.

It is a config file too: `--config=saved.py:W/config.json` is what main fills in
when --config is left out.
"""

import hashlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from configs import base
from lengthgen_jax.errors import UsageError, check, reading

# Sections that may change between training a workdir and reading it again.
READING_FIELDS = (
  "eval",
  "certify",
  "probe",
  "bench",
  "compile_cache",
  "mesh",
)


def get_config(path: str | pathlib.Path) -> ConfigDict:
  """Returns the config at `path`, with defaults for fields that its version
  lacked.

  Raises:
    UsageError: it has fields that this version lacks, or is no config.
  """
  with reading(f"{path}: cannot be read"), open(path) as file:
    saved = json.load(file)
  check(isinstance(saved, dict), f"{path}: cannot be read (it is no config)")
  config = base.get_config(str(saved.get("task", "addition"))).lock()
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


def saved_config(workdir: str | pathlib.Path) -> ConfigDict | None:
  """Returns the config that a workdir was trained with, None if it has none."""
  path = pathlib.Path(workdir) / "config.json"
  return get_config(path) if path.exists() else None


def leaves(
  config: ConfigDict | dict, path: str = ""
) -> Iterator[tuple[str, Any]]:
  """Yields (name, value) of every field, like ("train.steps", 1000)."""
  for name, value in config.items():
    if hasattr(value, "items"):
      yield from leaves(value, f"{path}{name}.")
    else:
      yield f"{path}{name}", value


def differences(config: ConfigDict, saved: ConfigDict) -> list[str]:
  """Describes every field that differs, except fields of READING_FIELDS."""
  ours, theirs = (
    dict(leaves(json.loads(version.to_json_best_effort())))
    for version in (config, saved)
  )
  return [
    f"{name}={ours.get(name)!r} but {theirs.get(name)!r} there"
    for name in ours | theirs
    if name.partition(".")[0] not in READING_FIELDS
    and ours.get(name) != theirs.get(name)
  ]


def config_hash(config: ConfigDict) -> str:
  """Returns eight hex digits that hash everything but the evaluation fields."""
  fields = json.loads(config.to_json_best_effort())
  fields = {
    name: value for name, value in fields.items() if name not in READING_FIELDS
  }
  # A pipeline's file is in its workdir, whose name must not matter.
  fields["bias"]["file"] = pathlib.Path(config.bias.file).name
  text = json.dumps(fields, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:8]
