"""Two processes on one machine, as on two hosts."""

import os
import signal
import socket
import subprocess
import sys
import time

import command
import pytest
import toy
from pytrees import max_difference
from toy_runs import ENDLESS, SEEDS, toy_run

from lengthgen_jax.results import records
from lengthgen_jax.training import loop

PATIENCE = 120  # seconds, on a busy machine


def free_port() -> int:
  with socket.socket() as server:
    server.bind(("127.0.0.1", 0))
    return server.getsockname()[1]


def started(index: int, port: int, folder, log):
  """A process of one_of_two.py, whose output goes to a file."""
  tests = command.REPOSITORY / "tests"
  path = f"{command.REPOSITORY}{os.pathsep}{tests}"
  env = os.environ | {"PYTHONPATH": path, "TMPDIR": str(log.parent)}
  words = [sys.executable, tests / "one_of_two.py", str(port), str(index)]
  with log.open("w") as file:
    return subprocess.Popen([*words, folder], env=env, stdout=file, stderr=file)


def stops(log) -> list[str]:
  """What a process said when it was stopped."""
  lines = log.read_text().splitlines()
  return [line for line in lines if line.startswith("stopped")]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
  """(output of the two, the step at which a signal stopped them, the run's
  folder). A signal to the second process stopped the training of both; both
  went on with another mesh, as one_of_two.py says, until another signal."""
  parent, port = tmp_path_factory.mktemp("two"), free_port()
  folder, logs = parent / "run", [parent / f"{index}.log" for index in range(2)]
  processes = [started(i, port, folder, log) for i, log in enumerate(logs)]

  def wait(condition) -> None:
    """Until it holds, while both run."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
      assert time.monotonic() < deadline, list(map(stops, logs))
      assert all(process.poll() is None for process in processes)
      time.sleep(0.05)

  rows = lambda: records.read(folder / "metrics.jsonl")
  try:
    wait(rows)
    processes[1].send_signal(signal.SIGTERM)
    wait(lambda: all(map(stops, logs)))
    step = max(map(int, os.listdir(folder / "checkpoints")))
    wait(lambda: rows()[-1]["step"] > step)
    processes[1].send_signal(signal.SIGTERM)
    for process in processes:
      assert process.wait(PATIENCE) == 0
    yield logs, step, folder
  finally:
    for process in processes:
      process.kill()
      process.wait()


def test_a_signal_to_one_stops_both_and_one_reads_what_they_saved(two):
  """It is what one device would have trained; two hosts went on from it, split
  in another way."""
  logs, step, folder = two
  for log in logs:
    assert stops(log)[0].startswith(f"stopped at step {step} of ")
  run = toy_run(folder, steps=ENDLESS, fates=(toy.CONVERGING,) * len(SEEDS))
  states = loop.load(run, str(step))
  parts = {path.name for path in (folder / f"checkpoints/{step}").glob("*/*")}
  assert {"ocdbt.process_0", "ocdbt.process_1"} <= parts
  assert states.step.tolist() == [step] * len(SEEDS)
  start = loop.init_seeds(run.spec, SEEDS)
  expected, _ = toy.chunk(run.spec, start, SEEDS, run.scaffold, step)
  assert max_difference(expected.params, states.params) < 1e-4


def test_the_first_process_alone_writes_and_talks(two):
  logs, step, folder = two
  rows = records.read(folder / "metrics.jsonl")
  keys = [(row["step"], row["seed"]) for row in rows]
  assert len(keys) == len(set(keys)) and max(keys)[0] > step
  assert len(list((folder / "tensorboard").iterdir())) == 2  # before and after
  assert "run:" not in logs[1].read_text()
