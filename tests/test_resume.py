"""A run that is cut off, or whose files are damaged, ends as if nothing was."""

import os
import shutil
import signal
import time

import command
import pytest
from pytrees import leaf_bytes
from rows import logged
from tiny import get_config

from lengthgen_jax.pipelines import evaluate, runs
from lengthgen_jax.results import records
from lengthgen_jax.training import log, loop


def assert_same_run(workdir, trained, trained_states) -> None:
  """Parameters, moments, best parameters, log and results, to the last bit."""
  states = loop.load(runs.make_run(get_config(), workdir), "last")
  assert leaf_bytes(states) == leaf_bytes(trained_states)
  assert logged(workdir) == logged(trained)
  results = [records.read(w / "results.jsonl") for w in (workdir, trained)]
  assert results[0] == results[1]


def saved_steps(workdir) -> list[int]:
  """Steps that have a finished checkpoint."""
  names = [path.name for path in (workdir / "checkpoints").glob("[0-9]*")]
  return sorted(int(name) for name in names if name.isdigit())


def is_saving(workdir) -> bool:
  """Whether a checkpoint is half written now."""
  return any((workdir / "checkpoints").glob("*.orbax-checkpoint-tmp"))


def wait_for(condition, process) -> None:
  deadline = time.monotonic() + 600
  while not condition():
    assert process.poll() is None, command.finish(process).stderr
    assert time.monotonic() < deadline
    time.sleep(0.002)


def test_killed_and_stopped_run_ends_as_if_nothing_was(
  trained, trained_states, no_figures, tmp_path, monkeypatch
):
  workdir = tmp_path / "run"
  arguments = (command.TINY, f"--workdir={workdir}")
  process = command.start(*arguments)
  wait_for(lambda: saved_steps(workdir), process)
  wait_for(lambda: is_saving(workdir), process)
  process.kill()
  assert command.finish(process).returncode == -signal.SIGKILL
  killed_step = saved_steps(workdir)[-1]
  assert killed_step < 600

  write = log.Log.write

  def write_and_stop(*chunk):
    write(*chunk)
    os.kill(os.getpid(), signal.SIGTERM)

  with monkeypatch.context() as patch:
    patch.setattr(log.Log, "write", write_and_stop)
    stopped = command.inside(*arguments)
  assert stopped.returncode == 143
  assert f"resumed at step {killed_step}" in stopped.stderr
  stopped_step = saved_steps(workdir)[-1]
  assert killed_step < stopped_step <= killed_step + 100
  last_line = stopped.stderr.splitlines()[-1]
  assert last_line.startswith(f"stopped at step {stopped_step} of 600, saved")
  assert not (workdir / "results.jsonl").exists()

  finished = command.inside(*arguments)
  assert finished.returncode == 0, finished.stderr
  assert f"resumed at step {stopped_step}" in finished.stderr
  assert_same_run(workdir, trained, trained_states)


@pytest.fixture
def damaged(trained, tmp_path):
  """A copy of `trained`, whose last checkpoint has lost its arrays."""
  workdir = tmp_path / "run"
  shutil.copytree(trained, workdir)
  for path in (workdir / "checkpoints" / "600").rglob("d/*"):
    path.unlink()
  return workdir


def test_modes_that_read_change_no_checkpoint(damaged, no_figures, capsys):
  left = damaged / "checkpoints" / "700.orbax-checkpoint-tmp"
  left.mkdir()
  before = command.contents(damaged / "checkpoints")
  config = get_config()
  assert evaluate.run(config, damaged) == 0
  error_text = capsys.readouterr().err
  assert "checkpoint 600 in " in error_text
  assert "using the one before" in error_text
  rows = records.read(damaged / "results.jsonl")
  assert {row["step"] for row in rows} == {500, 600}
  assert command.contents(damaged / "checkpoints") == before and left.is_dir()
