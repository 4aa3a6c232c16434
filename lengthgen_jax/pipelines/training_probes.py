"""Probes during training."""

from collections.abc import Callable
from functools import partial

from ml_collections import ConfigDict

from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.errors import check
from lengthgen_jax.evaluation.trained import Model, models
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines.attention_statistics import strongest_lines
from lengthgen_jax.probes.activations import observations
from lengthgen_jax.probes.registry import PROBES, measure, select
from lengthgen_jax.training import loop


def make_watcher(
  section: ConfigDict,
  calibration: ConfigDict,
  experiment: Experiment,
  scaffold: dict,
) -> Callable[[loop.Run, loop.TrainState], list[dict]] | None:
  """Returns the function that probes a run while it trains.

  Args:
    section: config.probe.
    calibration: config.calibration, by which the strongest lines of a model's
      attention are found, for probes of them.
    experiment: the experiment of the run.
    scaffold: the scaffold of the run, with its leading axis of seeds.

  Returns:
    A function of the run and the states [R, ...] of its seeds that returns rows
    of watched.jsonl, one for each seed and each `Mean` of a probe; None if
    probe.every is 0.

  Raises:
    UsageError: none of the probes that run during training is for models of
      this experiment with this scaffold.
  """
  if not section.every:
    return None
  watched = {name: probe for name, probe in PROBES.items() if probe.watched}
  untrained = Model(experiment, of_seed(scaffold, 0), {})
  probes = select((), untrained, "", watched)
  requirements = {probe.requires.text for probe in watched.values()}
  check(
    probes,
    f"probe.every={section.every}: probes during training are for"
    f" {' and for '.join(sorted(requirements))} alone; choose probe.every=0",
  )

  def watch(run: loop.Run, states: loop.TrainState) -> list[dict]:
    rows = []
    # With the current parameters, not those that were best in validation.
    run_models = models(run, states, checkpoint="last")
    for step, model in zip(states.step.tolist(), run_models, strict=True):
      batches = observations(
        model,
        experiment.train_length,
        section.samples,
        scored_lines=partial(
          strongest_lines, calibration, model, section.samples
        ),
      )
      for name, means in measure(probes, batches).items():
        rows += [
          {"step": step, "seed": model.seed, "metric": name}
          | {"part": mean.part, "layer": mean.layer, "head": mean.head}
          | {"line": mean.line, "value": mean.value, "n": int(mean.count)}
          for mean in means.values()
        ]
    return rows

  return watch
