"""A trained workdir from Python; `lengthgen_jax.load` opens it."""

import dataclasses
import pathlib

import numpy as np

from lengthgen_jax.config.saved import saved_config
from lengthgen_jax.errors import check
from lengthgen_jax.results.measures import accuracy
from lengthgen_jax.runs import predict, workdir
from lengthgen_jax.tasks.data import typed_batch
from lengthgen_jax.trained import Model, Test


@dataclasses.dataclass(frozen=True)
class Door:
  """One seed of a trained workdir.

  Attributes:
    model: parameters, scaffold and experiment.
  """

  model: Model

  @property
  def lines(self) -> dict:
    """Its scaffold by attention site: lines or matrices, or nothing."""
    return self.model.scaffold

  def answers(self, texts: list[str]) -> list[str]:
    """What --mode=predict would print for each text."""
    return predict.answers(self.model, list(texts))

  def exact_match(
    self, length: int, samples: int = 1000, test_set: str = "", seed: int = 0
  ) -> float:
    """Exact match on random inputs, in 0...1.

    Args:
      length: as people count it.
      samples: how many.
      test_set: of the task, its first one by default.
      seed: of the inputs.
    """
    name = test_set or next(iter(self.model.experiment.task.test_sets))
    test = Test(name, name, (), length, samples, seed)
    return accuracy(self.model, test)[0]["value"]

  def attention(self, text: str) -> list[dict]:
    """Softmax weights on one input, by layer: {site: [H, T, S]}."""
    experiment = self.model.experiment
    parsed = experiment.task.parse(text)
    width = experiment.fixed_width or experiment.task.natural_width(
      max(parsed[1])
    )
    batch = typed_batch(
      experiment.task, experiment.kind, [parsed], width, width
    )
    blocks = self.model.activations(batch)["decoder"]["blocks"]
    return [
      {
        site: np.asarray(block[site]["weights"][0])
        for site in ("self", "cross")
        if site in block
      }
      for block in blocks
    ]


def open_door(folder, seed: int | None = None) -> Door:
  """The door of a workdir; see lengthgen_jax.load."""
  folder = pathlib.Path(folder)
  config = saved_config(folder)
  check(config is not None, f"{folder}: nothing was trained there")
  config, run = workdir.answering(config, folder)
  models = workdir.load(run, config.eval.checkpoint)
  if seed is None:
    return Door(predict.choose(models))
  found = [model for model in models if model.seed == seed]
  check(found, f"{folder} has seeds {run.seeds}, none of {seed}")
  return Door(found[0])
