"""The second stage of ABC, as a whole config."""

import copy

from ml_collections import ConfigDict

from lengthgen_jax.config.saved import leaves


def retrain_config(config: ConfigDict, seeds, file) -> ConfigDict:
  """The config of the retraining stage: the first one's, but for what
  `config.retrain` says.

  Args:
    config: of the whole run.
    seeds: those that interpolated.
    file: their lines; None before there are any.
  """
  config = copy.deepcopy(config)
  own = {n: x for n, x in leaves(config.retrain) if x is not None}
  own.pop("start")  # which is of the stage itself
  kind = "file" if file else "none"
  own |= {"bias.kind": kind, "bias.file": str(file or "")}
  own |= {"method": "abc", "seeds": tuple(seeds)}
  config.update_from_flattened_dict(own)
  return config


def reading(config: ConfigDict, **fields) -> ConfigDict:
  """The config with other fields of its `eval` section."""
  config = copy.deepcopy(config)
  config.eval.update(fields)
  return config
