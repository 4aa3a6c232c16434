"""A run that is killed ends as if nothing was."""

import signal
import time

import command
from pytrees import leaf_bytes
from rows import logged
from tiny import get_config

from lengthgen_jax.pipelines import runs
from lengthgen_jax.results import records
from lengthgen_jax.training import loop


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


def test_killed_run_ends_as_if_nothing_was(
  trained, trained_states, no_figures, tmp_path
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

  finished = command.inside(*arguments)
  assert finished.returncode == 0, finished.stderr
  assert f"resumed at step {killed_step}" in finished.stderr
  # To the last bit: parameters, moments, best parameters, log and results.
  states = loop.load(runs.make_run(get_config(), workdir), "last")
  assert leaf_bytes(states) == leaf_bytes(trained_states)
  assert logged(workdir) == logged(trained)
  results = [records.read(w / "results.jsonl") for w in (workdir, trained)]
  assert results[0] == results[1]
