"""This is --mode=config: it prints the fields of both stages of a config."""

from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict

from lengthgen_jax.config import fields
from lengthgen_jax.tasks import TASKS


def run(config: ConfigDict) -> int:
  """Prints every field of the config, but for the sections of other tasks, and
  then those that are others in the second stage of --mode=abc; returns the exit
  code."""
  fields.check_fields(config)
  other_tasks = {task.section for task in TASKS.values()}
  other_tasks -= {TASKS[config.task].section}
  first = flatten_dict(config.to_dict(), sep=".")
  stage = fields.retrain_config(config, config.seeds, "calibrate/bias.npz")
  second = flatten_dict(stage.to_dict(), sep=".")
  for name, value in first.items():
    if name.partition(".")[0] not in other_tasks | {"retrain"}:
      print(f"{name}={value!r}")
  print("\nThe second stage, which --config.retrain.SECTION.FIELD changes:")
  for name, value in second.items():
    if value != first.get(name):
      print(f"{name}={value!r}")
  return 0
