"""Configs on disk: read back, compared, hashed.

This is a config file too: `--config=saved.py:W/config.json` is what main fills
in when --config is left out.
"""

import hashlib
import json

from ml_collections import ConfigDict

from configs import base


def get_config(path: str) -> ConfigDict:
  """The config at `path`; JSON lists become tuples."""
  with open(path) as file:
    return ConfigDict(_tuples(filled(json.load(file))))


def filled(saved: dict) -> dict:
  """A saved config with defaults for the fields that its version lacked."""
  return _filled(saved, json.loads(base.get_config().to_json_best_effort()))


def _filled(saved: dict, defaults: dict) -> dict:
  result = defaults | saved
  for name, default in defaults.items():
    if isinstance(default, dict):
      result[name] = _filled(saved.get(name) or {}, default)
  return result


def _tuples(value):
  if isinstance(value, dict):
    return {name: _tuples(item) for name, item in value.items()}
  return tuple(map(_tuples, value)) if isinstance(value, list) else value


# Fields that may change between training a workdir and reading it again.
READING_FIELDS = ("eval",)


def differences(config, saved: dict, sections) -> list[str]:
  """Fields of the given sections whose values differ, "name: ours, theirs"."""
  ours = json.loads(config.to_json_best_effort())
  saved = filled(saved)
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


def config_hash(config) -> str:
  """Eight hex digits of everything but the evaluation fields."""
  fields = json.loads(config.to_json_best_effort())
  for name in READING_FIELDS:
    fields.pop(name)
  text = json.dumps(fields, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:8]
