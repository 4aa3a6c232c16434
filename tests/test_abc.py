"""The ABC pipeline: killed in each stage, restarted, the same in the end."""

import json
import signal
import time

import command
import numpy as np
import pytest
from tiny import get_config

from lengthgen_jax import abc, bias_file, records, restore
from lengthgen_jax.errors import UsageError

FLAGS = (
  "--mode=abc",
  "--config=tests/tiny.py:successor,abc",
  "--config.seeds=(0,1)",
  "--config.data.widths=(4,5)",
  "--config.retrain.widths=(4,)",
  "--config.train.steps=200",
  "--config.train.chunk=20",
  "--config.checkpoint.every=1",
  "--config.calibration.lengths=(1,2)",
  "--config.calibration.samples=64",
  "--config.calibration.kappa=1.0",
  "--config.abc.min_exact_match=0.05",
  "--config.retrain.train.steps=100",
  "--config.retrain.train.warmup_steps=10",
  "--config.retrain.train.restarts=0",
  "--config.eval.lengths=(4,)",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """A pipeline that ran in one go."""
  workdir = tmp_path_factory.mktemp("abc") / "whole"
  done = command.run(*FLAGS, f"--workdir={workdir}")
  assert done.returncode == 0, done.stderr
  return workdir, done


def config_of(workdir):
  from lengthgen_jax import saved

  return saved.get_config(str(workdir / "config.json"))


def final_params(workdir):
  config = config_of(workdir)
  new, experiment, lines = abc.retrain_parts(config, workdir)
  state = restore.load_state(new, experiment, lines, workdir / "retrain", print)
  return restore.seed_states(new, state)


def kill_when(workdir, condition):
  """Runs the pipeline until `condition(workdir)`, then SIGKILL."""
  process = command.start(*FLAGS, f"--workdir={workdir}")
  deadline = time.time() + 900
  while not condition(workdir) and process.poll() is None:
    assert time.time() < deadline
    time.sleep(0.01)
  process.send_signal(signal.SIGKILL)
  process.communicate()
  return process.returncode


def saved_steps(folder):
  return [p.name for p in folder.glob("checkpoints/[0-9]*") if p.name.isdigit()]


def test_killed_in_each_stage_it_ends_the_same(whole, tmp_path):
  workdir = tmp_path / "killed"
  stages = [
    lambda w: saved_steps(w / "interpolate"),
    lambda w: (w / "calibrate" / "attention.npz").exists(),  # half written
    lambda w: saved_steps(w / "retrain"),
  ]
  codes = [kill_when(workdir, stage) for stage in stages]
  assert codes[0] == -signal.SIGKILL, codes
  assert set(codes) <= {0, -signal.SIGKILL}, codes
  done = command.run(*FLAGS, f"--workdir={workdir}")
  assert done.returncode == 0, done.stderr
  first, _ = bias_file.load(abc.bias_path(whole[0]))
  second, _ = bias_file.load(abc.bias_path(workdir))
  for site in first:
    for a, b in zip(first[site], second[site], strict=True):
      np.testing.assert_array_equal(a, b)
  for a, b in zip(final_params(whole[0]), final_params(workdir), strict=True):
    assert a["seed"] == b["seed"]
    for name in a["params"]:
      for x, y in zip(leaves(a["params"]), leaves(b["params"]), strict=True):
        np.testing.assert_array_equal(x, y, err_msg=name)


def leaves(tree):
  import jax

  return jax.tree.leaves(tree)


def test_pipeline_leaves_rows_figures_and_a_bias(whole):
  workdir, done = whole
  rows = records.read(workdir / "results.jsonl")
  assert {row["stage"] for row in rows} == {"interpolate", "retrain"}
  assert {row["method"] for row in rows} == {"vanilla", "abc"}
  assert "abc/retrain" in done.stdout
  for name in ("accuracy_by_length", "bias_cross", "attention_mean_cross"):
    assert (workdir / "figures" / f"{name}.png").stat().st_size > 5000
  bias, meta = bias_file.load(abc.bias_path(workdir))
  assert meta["seeds"] == [0, 1]
  assert len(meta["conditions"]) == 4  # two widths, two lengths
  assert bias["cross"].segment.shape[:3] == (2, 1, 2)  # seeds, layers, heads


def test_modes_read_the_retrained_model(whole):
  workdir, _ = whole
  told = command.run(
    "--mode=predict", f"--workdir={workdir}", text="12\nx\n12345678\n"
  )
  assert len(told.stdout.splitlines()) == 3
  assert told.stdout.splitlines()[1].startswith("error: ")
  assert told.returncode == 1
  again = command.run("--mode=evaluate", f"--workdir={workdir}")
  assert again.returncode == 0, again.stderr
  assert "abc/retrain" in again.stdout


def test_nothing_is_overwritten_by_a_mistake(whole):
  workdir, _ = whole
  before = (workdir / "config.json").read_bytes()
  changed = command.run(
    *FLAGS, "--config.calibration.kappa=3.0", f"--workdir={workdir}"
  )
  assert "calibration.kappa" in command.refusal(changed)
  assert (workdir / "config.json").read_bytes() == before


def failing(whole, tmp_path, **changes):
  """The error of a stage run on a copy of the finished pipeline's config."""
  config = config_of(whole[0])
  for name, value in changes.items():
    section, field = name.split("__")
    config[section][field] = value
  (tmp_path / "interpolate").symlink_to(whole[0] / "interpolate")
  with pytest.raises(UsageError) as error:
    abc.run(config, tmp_path, lambda line: None)
  assert "\n" not in str(error.value)
  assert not abc.bias_path(tmp_path).exists()
  return str(error.value)


def test_no_line_passes(whole, tmp_path):
  message = failing(
    whole, tmp_path, calibration__kappa=90.0, calibration__kappa_self=90.0
  )
  assert "calibration.kappa=90.0" in message


def test_interpolation_below_the_target(whole, tmp_path):
  message = failing(whole, tmp_path, abc__min_exact_match=1.5)
  assert "--config.abc.min_exact_match=" in message


@pytest.mark.parametrize(
  ("change", "words"),
  [
    ({"calibration": {"rule": "magic"}}, "zscore, mass"),
    ({"calibration": {"lengths": (9,)}}, "calibration.lengths"),
    ({"retrain": {"start": "warm"}}, "fresh, interpolated"),
    ({"retrain": {"start": "interpolated"}}, "same model"),
    ({"retrain": {"widths": (1,)}}, "too narrow"),
    ({"abc": {"example": "12a"}}, "abc.example"),
  ],
)
def test_mistakes_show_before_any_training(change, words):
  config = get_config("successor,abc")
  for section, fields in change.items():
    config[section].update(fields)
  with pytest.raises(UsageError, match=words):
    abc.check_config(config)


@pytest.mark.parametrize(
  ("arrays", "words"),
  [
    ({"self": np.zeros((1, 2, 9, 9))}, "leaks the future"),
    ({"cross": np.zeros((1, 3, 9, 9))}, "heads"),
    ({"cross": np.zeros((5, 2, 9, 9))}, "layers"),
    ({"cross": np.zeros((1, 2, 2, 2))}, "width"),
  ],
)
def test_imported_bias_that_does_not_fit(tmp_path, arrays, words):
  np.savez(tmp_path / "bias.npz", **arrays)
  done = command.run(
    command.TINY,
    "--config.bias.kind=file",
    f"--config.bias.file={tmp_path / 'bias.npz'}",
    f"--workdir={tmp_path / 'run'}",
  )
  assert words in command.refusal(done)
  assert not (tmp_path / "run").exists()


def test_every_row_of_a_leaking_run_is_marked(tmp_path):
  np.savez(tmp_path / "bias.npz", self=np.zeros((1, 2, 70, 70)))
  workdir = tmp_path / "run"
  done = command.run(
    command.TINY,
    "--config.bias.kind=file",
    "--config.bias.allow_leak=true",
    f"--config.bias.file={tmp_path / 'bias.npz'}",
    "--config.train.steps=20",
    f"--workdir={workdir}",
  )
  assert done.returncode == 0, done.stderr
  rows = records.read(workdir / "results.jsonl")
  assert rows and all(row["leak"] for row in rows)
  assert json.loads((workdir / "config.json").read_text())["bias"]["allow_leak"]
