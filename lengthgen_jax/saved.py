"""A config read back from a workdir's config.json, as a config file.

`--config=saved.py:W/config.json` is what main fills in when --config is left
out.
"""

import json

from ml_collections import ConfigDict


def get_config(path: str) -> ConfigDict:
  """The config at `path`; JSON lists become tuples."""
  with open(path) as file:
    return ConfigDict(_tuples(json.load(file)))


def _tuples(value):
  if isinstance(value, dict):
    return {name: _tuples(item) for name, item in value.items()}
  return tuple(map(_tuples, value)) if isinstance(value, list) else value
