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


class TwoProcesses:
  """Two processes of one_of_two.py, whose output goes to files."""

  def __init__(self, run_folder, log_folder):
    tests = command.REPOSITORY / "tests"
    path = f"{command.REPOSITORY}{os.pathsep}{tests}"
    env = os.environ | {"PYTHONPATH": path, "TMPDIR": str(log_folder)}
    arguments = [sys.executable, tests / "one_of_two.py", str(free_port())]
    self.logs = [log_folder / f"{index}.log" for index in range(2)]
    self.processes = []
    for index, log in enumerate(self.logs):
      with log.open("w") as file:
        process = subprocess.Popen(
          [*arguments, str(index), run_folder],
          env=env,
          stdout=file,
          stderr=file,
        )
      self.processes.append(process)

  def lines(self, index: int) -> list[str]:
    """What a process said when it was stopped."""
    lines = self.logs[index].read_text().splitlines()
    return [line for line in lines if line.startswith("stopped")]

  def wait(self, condition) -> None:
    """Until it holds, while both run."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
      assert time.monotonic() < deadline, [self.lines(0), self.lines(1)]
      running = [p.poll() is None for p in self.processes]
      assert all(running), [self.lines(0), self.lines(1)]
      time.sleep(0.05)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
  """(TwoProcesses, the step at which a signal stopped them, the run's folder).
  A signal to the second process stopped the training of both; both went on with
  another mesh, as one_of_two.py says, until another signal."""
  logs = tmp_path_factory.mktemp("two")
  folder = logs / "run"
  two = TwoProcesses(folder, logs)
  rows = lambda: records.read(folder / "metrics.jsonl")
  try:
    two.wait(rows)
    two.processes[1].send_signal(signal.SIGTERM)
    two.wait(lambda: two.lines(0) and two.lines(1))
    step = max(map(int, os.listdir(folder / "checkpoints")))
    two.wait(lambda: rows()[-1]["step"] > step)
    two.processes[1].send_signal(signal.SIGTERM)
    for process in two.processes:
      assert process.wait(PATIENCE) == 0
    yield two, step, folder
  finally:
    for process in two.processes:
      process.kill()
      process.wait()


def test_a_signal_to_one_stops_both_and_one_reads_what_they_saved(two):
  """It is what one device would have trained; two hosts went on from it, split
  in another way."""
  processes, step, folder = two
  for index in range(2):
    assert processes.lines(index)[0].startswith(f"stopped at step {step} of ")
  run = toy_run(folder, steps=ENDLESS, fates=(toy.CONVERGING,) * len(SEEDS))
  states = loop.load(run, str(step))
  parts = {path.name for path in (folder / f"checkpoints/{step}").glob("*/*")}
  assert {"ocdbt.process_0", "ocdbt.process_1"} <= parts
  assert states.step.tolist() == [step] * len(SEEDS)
  start = loop.init_seeds(run.spec, SEEDS)
  expected, _ = toy.chunk(run.spec, start, SEEDS, run.scaffold, step)
  assert max_difference(expected.params, states.params) < 1e-4


def test_the_first_process_alone_writes_and_talks(two):
  processes, step, folder = two
  rows = records.read(folder / "metrics.jsonl")
  keys = [(row["step"], row["seed"]) for row in rows]
  assert len(keys) == len(set(keys)) and max(keys)[0] > step
  assert len(list((folder / "tensorboard").iterdir())) == 2  # before and after
  assert "run:" not in processes.logs[1].read_text()


# What is refused in a line.


MISTAKES = {
  "--process=0": "--process are for --multihost",
  "--multihost --process=0": "go together: name all three",
  "--multihost --mode=predict": "--multihost is for --mode: train, abc",
  "--multihost --coordinator=here:0 --processes=2 --process=0": (
    "--coordinator=here:0: must be HOST:PORT"
  ),
  "--multihost --coordinator=here:99 --processes=2 --process=2": (
    "--process=2: must be from 0 to 1"
  ),
}


@pytest.mark.parametrize("flags", MISTAKES)
def test_flags_that_cannot_be_are_a_line(flags):
  done = command.inside(command.TINY, "--workdir=unused", *flags.split())
  assert MISTAKES[flags] in command.refusal(done)
