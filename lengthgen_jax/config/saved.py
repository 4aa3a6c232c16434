"""Configs on disk: read back, compared, hashed.

This is a config file too: `--config=saved.py:W/config.json` is what main fills
in when --config is left out.
"""

import hashlib
import json
import pathlib

from ml_collections import ConfigDict

from configs import base
from lengthgen_jax.errors import UsageError, check, reading


def get_config(path: str) -> ConfigDict:
  """The config at `path`, with defaults for fields that its version lacked;
  UsageError if it has fields that this version lacks, or is no config."""
  with reading(f"{path}: cannot be read"), open(path) as file:
    saved = json.load(file)
  check(isinstance(saved, dict), f"{path}: cannot be read (it is no config)")
  config = base.get_config(str(saved.get("task", "addition")))
  _fill(path, config, saved, "")
  return config


def _fill(path, config: ConfigDict, saved: dict, where: str) -> None:
  for name, value in saved.items():
    check(
      name in config,
      f"{path} is of another version: this one has no field {where}{name}",
    )
    if isinstance(config[name], ConfigDict) and isinstance(value, dict):
      _fill(path, config[name], value, f"{where}{name}.")
    elif value is not None:
      try:
        config[name] = tuple(value) if isinstance(value, list) else value
      except TypeError as error:
        raise UsageError(
          f"{path} is of another version: {where}{name} cannot be {value!r}"
        ) from error


# Fields that may change between training a workdir and reading it again.
READING_FIELDS = ("eval", "certify")


def saved_config(workdir) -> ConfigDict | None:
  """The config that a workdir was trained with, None if it has none."""
  path = pathlib.Path(workdir) / "config.json"
  return get_config(path) if path.exists() else None


def differences(config: ConfigDict, saved: ConfigDict, sections) -> list[str]:
  """Fields of the given sections whose values differ, "name: ours, theirs"."""
  ours = json.loads(config.to_json_best_effort())
  saved = json.loads(saved.to_json_best_effort())
  lines = []
  for section in sections:
    for name, mine, theirs in _leaves(section, ours, saved):
      if mine != theirs:
        lines.append(f"{name}={mine!r} but {theirs!r} there")
  return lines


def _leaves(name: str, ours: dict, saved: dict):
  mine, theirs = ours.get(name), saved.get(name)
  if not isinstance(mine, dict):
    yield name, mine, theirs
    return
  for key in sorted(set(mine) | set(theirs or {})):
    yield f"{name}.{key}", mine.get(key), (theirs or {}).get(key)


def config_hash(config: ConfigDict) -> str:
  """Eight hex digits of everything but the evaluation fields."""
  fields = json.loads(config.to_json_best_effort())
  for name in READING_FIELDS:
    fields.pop(name)
  # A pipeline's is in its workdir, whatever that is called.
  fields["bias"]["file"] = pathlib.Path(config.bias.file).name
  text = json.dumps(fields, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:8]
