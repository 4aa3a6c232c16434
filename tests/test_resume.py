"""A run that is cut off, or whose files are damaged, ends as if nothing was."""

import os
import pathlib
import shutil
import signal
import time

import command
from pytrees import bits
from tiny import get_config

from lengthgen_jax.pipelines import evaluate, predict, runs
from lengthgen_jax.results import records
from lengthgen_jax.training import log, loop


def metrics(workdir) -> list[dict]:
  """Rows of metrics.jsonl without the time they took."""
  rows = records.read(workdir / "metrics.jsonl")
  return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def assert_same_run(workdir, trained, trained_states) -> None:
  """Parameters, moments, best parameters, log and results, to the last bit."""
  states = loop.load(runs.make_run(get_config(), workdir), "last")
  assert bits(states) == bits(trained_states)
  assert metrics(workdir) == metrics(trained)
  results = [records.read(w / "results.jsonl") for w in (workdir, trained)]
  assert results[0] == results[1]


def saved_steps(workdir) -> list[int]:
  """Steps that have a finished checkpoint."""
  names = [path.name for path in (workdir / "checkpoints").glob("[0-9]*")]
  return sorted(map(int, names))


def is_saving(workdir) -> bool:
  """Whether a checkpoint is half written now."""
  return any((workdir / "checkpoints").glob(".*.writing"))


def wait_for(condition, process) -> None:
  deadline = time.monotonic() + 120
  while not condition():
    assert process.poll() is None, command.finish(process).stderr
    assert time.monotonic() < deadline
    time.sleep(0.002)


def test_killed_and_stopped_run_ends_as_if_nothing_was(
  trained, trained_states, tmp_path, monkeypatch
):
  workdir = tmp_path / "run"
  arguments = (command.TINY, f"--workdir={workdir}")
  process = command.start(*arguments)
  wait_for(lambda: saved_steps(workdir), process)
  wait_for(lambda: is_saving(workdir), process)
  process.kill()
  assert command.finish(process).returncode == -signal.SIGKILL
  first = saved_steps(workdir)[-1]
  assert first < 600

  write = log.Log.write

  def stop(log, status):
    write(log, status)
    os.kill(os.getpid(), signal.SIGTERM)

  with monkeypatch.context() as patch:
    patch.setattr(log.Log, "write", stop)
    done = command.inside(*arguments)
  assert done.returncode == 143
  assert f"resumed at step {first}" in done.stderr
  step = saved_steps(workdir)[-1]
  assert first < step <= first + 100
  last = done.stderr.splitlines()[-1]
  assert last.startswith(f"stopped at step {step} of 600, saved")
  assert not (workdir / "results.jsonl").exists()

  done = command.inside(*arguments)
  assert done.returncode == 0, done.stderr
  assert f"resumed at step {step}" in done.stderr
  assert_same_run(workdir, trained, trained_states)


def damage(workdir, step: int) -> None:
  """Flips a bit of the largest file of a checkpoint."""
  place = workdir / "checkpoints" / str(step)
  files = [path for path in place.rglob("*") if path.is_file()]
  path = max(files, key=lambda path: path.stat().st_size)
  data = bytearray(path.read_bytes())
  data[len(data) // 3] ^= 1
  path.write_bytes(data)


def contents(folder: pathlib.Path) -> dict:
  files = [path for path in folder.rglob("*") if path.is_file()]
  return {path: path.read_bytes() for path in files}


def test_damaged_checkpoint_is_moved_aside_by_training(
  trained, trained_states, tmp_path, capsys
):
  workdir = tmp_path / "run"
  shutil.copytree(trained, workdir)
  damage(workdir, 600)
  states = loop.train(runs.make_run(get_config(), workdir))
  aside = workdir / "checkpoints_damaged" / "600.0"
  assert aside.is_dir()
  lines = capsys.readouterr().err.splitlines()
  (line,) = [line for line in lines if "is damaged" in line]
  assert line.startswith("checkpoint 600 in ") and str(aside) in line
  assert any(line.endswith("resumed at step 500") for line in lines)
  assert bits(states) == bits(trained_states)
  assert saved_steps(workdir) == [500, 600]
  assert_same_run(workdir, trained, trained_states)


def test_modes_that_read_move_nothing(trained, tmp_path, capsys, monkeypatch):
  workdir = tmp_path / "run"
  shutil.copytree(trained, workdir)
  damage(workdir, 600)
  before = contents(workdir / "checkpoints")
  config = get_config()
  nothing = tmp_path / "nothing.txt"
  nothing.touch()
  monkeypatch.setattr(evaluate.figures, "of_run", lambda *_: [])
  for read in (
    lambda: predict.run(config, workdir, nothing),
    lambda: evaluate.run(config, workdir),
  ):
    assert read() == 0
    captured = capsys.readouterr().err
    assert "checkpoint 600 in " in captured
    assert "using the one before" in captured
  rows = records.read(workdir / "results.jsonl")
  assert {row["step"] for row in rows} == {500, 600}
  assert contents(workdir / "checkpoints") == before
  assert not (workdir / "checkpoints_damaged").exists()
