"""The second stage of ABC, as a whole config."""

import copy

from ml_collections import ConfigDict


def retrain_config(config: ConfigDict, seeds, file) -> ConfigDict:
  """The config of the retraining stage: the first one's, but for what
  `config.retrain` says.

  Args:
    config: of the whole run.
    seeds: those that interpolated.
    file: their lines; None before there are any.
  """
  config = copy.deepcopy(config)
  config.unlock()
  for section, own in config.retrain.items():
    if not isinstance(own, ConfigDict):
      continue
    for name, value in own.items():
      if value is not None:
        config[section][name] = value
  config.bias.kind = "file" if file else "none"
  config.bias.file = str(file or "")
  config.method = "abc"
  config.seeds = tuple(seeds)
  config.lock()
  return config
