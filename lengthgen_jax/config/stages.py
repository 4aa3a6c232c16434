"""This module makes the second stage of ABC, as a whole config."""

import copy
import pathlib
from collections.abc import Sequence

from ml_collections import ConfigDict

from lengthgen_jax.config.saved import leaves


def retrain_config(
  config: ConfigDict, seeds: Sequence[int], file: str | pathlib.Path | None
) -> ConfigDict:
  """Returns the config of the retraining stage.

  It is that of the first stage, but for the changes in `config.retrain`.

  Args:
    config: of the whole run.
    seeds: those that interpolated.
    file: their lines; None before there are any.
  """
  config = copy.deepcopy(config)
  changes = {
    name: value
    for name, value in leaves(config.retrain)
    if value is not None and "." in name  # the others are of the stage itself
  } | {
    "bias.kind": "file" if file else "none",
    "bias.file": str(file or ""),
    "method": "abc",
    "seeds": tuple(seeds),
  }
  if config.mesh and len(seeds) % config.mesh[0]:
    changes["mesh"] = ()  # asked for when there were more seeds
  config.update_from_flattened_dict(changes)
  return config
