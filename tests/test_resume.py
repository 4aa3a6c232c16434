"""A run that is cut off, or whose files are damaged, ends as if nothing was."""

import gc
import logging
import os
import pathlib
import shutil
import signal
import time

import command
import jax
import numpy as np
import pytest
from lengthgen_jax.checkpoint import Checkpoints
from lengthgen_jax.progress import StopSignal

from lengthgen_jax import records, restore, train
from lengthgen_jax.errors import UsageError

pytestmark = pytest.mark.filterwarnings(
  "ignore::pytest.PytestUnraisableExceptionWarning"  # orbax, on damaged files
)


@pytest.fixture(autouse=True, scope="module")
def quiet_asyncio():
  """Orbax leaves tasks behind when one of many reads fails."""
  logger = logging.getLogger("asyncio")
  logger.disabled = True
  yield
  gc.collect()
  logger.disabled = False


def state_of(trained_model, workdir):
  config, experiment, lines, _ = trained_model
  return restore.load_state(config, experiment, lines, workdir, print)


def assert_equal_bits(first, second):
  first, second = (
    [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
    for state in (first, second)
  )
  for x, y in zip(first, second, strict=True):
    assert x.dtype == y.dtype
    assert x.tobytes() == y.tobytes()


def metric_rows(workdir) -> list[dict]:
  """Rows of metrics.jsonl without the time they took."""
  rows = records.read(workdir / "metrics.jsonl")
  return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def assert_same_run(trained_model, trained, workdir):
  """Parameters, moments, best parameters and log, to the last bit."""
  assert_equal_bits(state_of(trained_model, workdir), trained_model[3])
  rows = metric_rows(workdir)
  assert len({(row["step"], row["seed"]) for row in rows}) == len(rows)
  assert rows == metric_rows(trained)


def saved_steps(workdir) -> list[int]:
  """Steps that have a finished checkpoint."""
  names = [path.name for path in (workdir / "checkpoints").glob("*")]
  return sorted(int(name) for name in names if name.isdigit())


def is_saving(workdir) -> bool:
  """Whether a checkpoint is half written now."""
  names = [path.name for path in (workdir / "checkpoints").glob("*")]
  return any(not name.isdigit() for name in names)


def wait_for(condition, process) -> None:
  deadline = time.monotonic() + 120
  while not condition():
    assert process.poll() is None, command.finish(process).stderr
    assert time.monotonic() < deadline
    time.sleep(0.002)


def test_killed_runs_end_as_if_nothing_was(trained, trained_model, tmp_path):
  workdir = tmp_path / "run"
  arguments = (command.TINY, f"--workdir={workdir}")

  process = command.start(*arguments)
  wait_for(lambda: saved_steps(workdir), process)
  process.kill()
  assert command.finish(process).returncode == -signal.SIGKILL
  first = saved_steps(workdir)
  assert first and first[-1] < 600

  process = command.start(*arguments)
  wait_for(lambda: saved_steps(workdir)[-1] > first[-1], process)
  wait_for(lambda: is_saving(workdir), process)
  process.kill()
  done = command.finish(process)
  assert done.returncode == -signal.SIGKILL
  assert f"resumed at step {first[-1]}" in done.stderr
  second = saved_steps(workdir)
  assert first[-1] < second[-1] < 600

  done = command.run(*arguments)
  assert done.returncode == 0, done.stderr
  assert f"resumed at step {second[-1]}" in done.stderr
  assert_same_run(trained_model, trained, workdir)


def test_stopped_run_saves_and_goes_on(trained, trained_model, tmp_path):
  workdir = tmp_path / "run"
  arguments = (command.TINY, f"--workdir={workdir}")
  process = command.start(*arguments)
  wait_for(lambda: saved_steps(workdir), process)
  process.terminate()
  done = command.finish(process)
  assert done.returncode == 143
  assert "Traceback" not in done.stderr
  line = done.stderr.splitlines()[-1]
  step = saved_steps(workdir)[-1]
  assert 100 <= step < 600
  assert line.startswith(f"stopped at step {step} of 600, saved")
  assert not (workdir / "results.jsonl").exists()

  done = command.run(*arguments)
  assert done.returncode == 0, done.stderr
  assert f"resumed at step {step}" in done.stderr
  assert_same_run(trained_model, trained, workdir)


def test_first_ctrl_c_is_remembered_and_the_second_obeyed():
  before = signal.getsignal(signal.SIGINT)
  stop = StopSignal()
  with stop:
    assert not stop.received
    os.kill(os.getpid(), signal.SIGINT)
    assert stop.received
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)
  assert signal.getsignal(signal.SIGINT) is before


def data_files(checkpoint: pathlib.Path) -> list[pathlib.Path]:
  """The files that hold the arrays, largest first."""
  files = [path for path in checkpoint.rglob("d/*") if path.is_file()]
  return sorted(files, key=lambda path: -path.stat().st_size)


def truncate(checkpoint):
  path = data_files(checkpoint)[0]
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_bytes(checkpoint):
  path = data_files(checkpoint)[0]
  data = np.frombuffer(path.read_bytes(), np.uint8).copy()
  data[len(data) // 4 :: 64] ^= 0x10
  path.write_bytes(data.tobytes())


def delete(checkpoint):
  data_files(checkpoint)[0].unlink()


def spoil_meta(checkpoint):
  (checkpoint / "meta" / "metadata").write_text("{")


@pytest.mark.parametrize("damage", [truncate, flip_bytes, delete, spoil_meta])
def test_damaged_checkpoint_is_reported_and_not_used(
  damage, trained, trained_model, tmp_path
):
  workdir = tmp_path / "run"
  shutil.copytree(trained, workdir)
  older, newest = saved_steps(workdir)
  damage(workdir / "checkpoints" / str(newest))
  lines = []
  state = train.run(*trained_model[:3], workdir, lines.append)
  aside = workdir / "checkpoints_damaged" / f"{newest}.0"
  assert aside.is_dir()
  assert len(lines) == 2
  assert lines[0].startswith(f"checkpoint {newest} is damaged (")
  assert str(aside) in lines[0] and "\n" not in lines[0]
  assert len(lines[0]) < len(str(aside)) + 240
  assert lines[1] == f"resumed at step {older}"
  assert_equal_bits(state, trained_model[3])
  assert_same_run(trained_model, trained, workdir)
  assert saved_steps(workdir) == [older, newest]


def copy_checkpoints(trained, folder) -> pathlib.Path:
  return shutil.copytree(trained / "checkpoints", folder / "checkpoints")


def test_no_flipped_bit_goes_unnoticed(trained, trained_model, tmp_path):
  """A flipped bit is found, or lies where nothing is read from."""
  state = trained_model[3]
  folder = copy_checkpoints(trained, tmp_path)
  found = 0
  for path in data_files(folder / "600"):
    sound = path.read_bytes()
    for place in range(len(sound) // 8, len(sound), len(sound) // 3 + 1):
      flipped = bytes([sound[place] ^ 1])
      path.write_bytes(sound[:place] + flipped + sound[place + 1 :])
      store = Checkpoints(folder)
      try:
        assert_equal_bits(store.restore(state, step=600)[1], state)
      except UsageError as error:
        assert "checkpoint 600 in" in str(error)
        found += 1
      finally:
        store.close()
    path.write_bytes(sound)
  assert found


def test_all_checkpoints_damaged(trained, trained_model, tmp_path):
  folder = copy_checkpoints(trained, tmp_path)
  for step in (500, 600):
    delete(folder / str(step))
  store = Checkpoints(folder)
  lines = []
  assert store.restore(trained_model[3], report=lines.append) == (None, None)
  store.close()
  assert [line.split()[1] for line in lines] == ["600", "500"]
  aside = sorted(p.name for p in (tmp_path / "checkpoints_damaged").iterdir())
  assert aside == ["500.1", "600.0"]


def test_missing_step_is_refused_with_those_there(trained, trained_model):
  store = Checkpoints(trained / "checkpoints")
  with pytest.raises(UsageError, match="last, best or one of 500, 600"):
    store.restore(trained_model[3], step=7)
  store.close()


def test_buffers_may_change_while_a_checkpoint_is_written(tmp_path):
  """Saving is asynchronous; what counts is the state at the call."""
  store = Checkpoints(tmp_path / "checkpoints")
  state = {"x": jax.numpy.arange(1 << 18)}
  store.save(1, state, {})
  wanted = np.asarray(state["x"]).copy()
  state["x"] = jax.jit(lambda x: x * 0, donate_argnums=0)(state["x"])
  store.close()
  store = Checkpoints(tmp_path / "checkpoints")
  _, found = store.restore(state)
  store.close()
  assert (found["x"] == wanted).all()
