"""Programs that ABC's later stages (calibrate, retrain, evaluate) run are
compiled while the first stage trains."""

import jax
import tiny
from jax import monitoring

from lengthgen_jax.config import fields
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import (
  attention_statistics,
  compile_ahead,
  evaluate,
  runs,
  workdir,
)
from lengthgen_jax.training import loop

LARGE_PROGRAMS = {
  "jit(init_seeds)",  # retrain
  "jit(train_seeds)",  # retrain
  "jit(_matches)",  # evaluate
  "jit(_sums)",  # calibrate
}


def test_later_stages_compile_no_large_program_again(tmp_path):
  config = tiny.get_config("parity,abc")
  config.seeds = (0,)
  config.update_from_flattened_dict(
    {
      "model.num_encoder_layers": 0,
      "train.steps": 20,
      "train.chunk": 20,
      "calibration.samples": 8,
      "retrain.train.steps": 20,
      "retrain.train.restarts": 0,
    }
  )
  compiled = []

  def listen(event: str, duration_secs: float, **details) -> None:
    if event.endswith("backend_compile_duration"):
      compiled.append(details["fun_name"])

  first_run = runs.make_run(config, tmp_path / "interpolate")
  monitoring.register_event_duration_secs_listener(listen)
  try:
    for _ in compile_ahead.compile_later_stages(config, first_run, tmp_path):
      pass
  finally:
    monitoring.unregister_event_duration_listener(listen)
  assert set(compiled) >= LARGE_PROGRAMS, compiled
  compiled.clear()
  experiment = first_run.experiment
  params = experiment.init(0)  # calibration needs no trained ones
  bias_path = workdir.bias_path(tmp_path)
  second_config = fields.retrain_config(config, (0,), bias_path)
  lines = compile_ahead.placeholder_lines(second_config, experiment)
  second_run = runs.make_run(second_config, tmp_path / "retrain", lines)
  monitoring.register_event_duration_secs_listener(listen)
  try:
    section = config.calibration
    conditions = attention_statistics.conditions(section.lengths, experiment)
    attention_statistics.collect(
      section, Model(experiment, {}, params), conditions, section.samples
    )
    loop.train(second_run)
    (retrained,) = runs.load(second_run, "last")
    for spec in evaluate.eval_specs(second_config, retrained):
      jax.block_until_ready(
        [retrained.matches(b) for b, _ in retrained.batches(spec)]
      )
  finally:
    monitoring.unregister_event_duration_listener(listen)
  assert not LARGE_PROGRAMS & set(compiled), compiled
