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
from pytrees import far
from toy_runs import ENDLESS, SEEDS, toy_run

from lengthgen_jax import hosts
from lengthgen_jax.results import records
from lengthgen_jax.training import loop, train_step

PATIENCE = 120  # seconds, on a busy machine


def free_port() -> int:
  with socket.socket() as found:
    found.bind(("127.0.0.1", 0))
    return found.getsockname()[1]


class Two:
  """Two processes of one_of_two.py; what they say goes to files."""

  def __init__(self, run_folder, log_folder):
    path = [command.REPOSITORY, command.REPOSITORY / "tests"]
    path = os.pathsep.join(map(str, path))
    script, port = path.split(os.pathsep)[1] + "/one_of_two.py", free_port()
    self.logs = [log_folder / f"{which}.log" for which in range(2)]
    self.processes = []
    env = {"PYTHONPATH": path, "TMPDIR": str(log_folder)}
    for which, log in enumerate(self.logs):
      words = [sys.executable, script, str(port), str(which), str(run_folder)]
      with log.open("w") as out:
        started = subprocess.Popen(
          words, env=os.environ | env, stdout=out, stderr=out
        )
      self.processes.append(started)

  def said(self, which: int) -> list[str]:
    """Lines of a process, but for a progress bar's."""
    text = self.logs[which].read_text().replace("\r", "\n")
    return [line for line in text.splitlines() if line and "step/s" not in line]

  def wait(self, condition) -> None:
    """Until it holds, while both run."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
      assert time.monotonic() < deadline, [self.said(0), self.said(1)]
      assert not any(p.poll() for p in self.processes), self.said(0)
      time.sleep(0.05)

  def end(self) -> None:
    for process in self.processes:
      process.kill()
      process.wait()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
  """(Two, the step at which a signal stopped them, the run's folder): told to
  stop by a signal to the second one, both went on, and that one was killed."""
  place = tmp_path_factory.mktemp("two")
  folder = place / "run"
  found = Two(folder, place)
  rows = lambda: records.read(folder / "metrics.jsonl")
  try:
    found.wait(rows)
    found.processes[1].send_signal(signal.SIGTERM)
    found.wait(lambda: found.said(0) and found.said(1))
    step = max(map(int, os.listdir(folder / "checkpoints")))
    found.wait(lambda: rows()[-1]["step"] > step)
    found.processes[1].kill()
    for process in found.processes:
      process.wait(hosts.HEARTBEAT + PATIENCE)
    yield found, step, folder
  finally:
    found.end()


def test_a_signal_to_one_stops_both_at_the_same_step_saved(two):
  found, step, _ = two
  for which in range(2):
    assert found.said(which)[0].startswith(f"stopped at step {step} of ")


def test_a_checkpoint_of_two_hosts_is_read_by_one(two):
  """It is what one device would have trained; two hosts went on from it, split
  in another way."""
  _, step, folder = two
  run = toy_run(folder, steps=ENDLESS, fates=(toy.FINE,) * len(SEEDS))
  states = loop.load(run, str(step))
  parts = {path.name for path in (folder / f"checkpoints/{step}").glob("*/*")}
  assert {"ocdbt.process_0", "ocdbt.process_1"} <= parts
  assert states.step.tolist() == [step] * len(SEEDS)
  alone = train_step.init_seeds(run.spec, run.seed_R)
  args = run.seed_R, run.scaffold, step // 2
  alone, _ = train_step.train_seeds(run.spec, alone, *args)
  assert far(alone.params, states.params) < 1e-4


def test_the_first_process_alone_writes_and_talks(two):
  found, step, folder = two
  rows = records.read(folder / "metrics.jsonl")
  at = [(row["step"], row["seed"]) for row in rows]
  assert len(at) == len(set(at)) and max(at)[0] > step
  assert len(list((folder / "tensorboard").iterdir())) == 2  # before and after
  assert len(found.said(1)) == 1 and len(found.said(0)) == 2
  assert "step/s" not in found.logs[1].read_text()


def test_if_one_is_killed_the_other_ends_with_a_line(two):
  found, _, _ = two
  assert found.processes[0].returncode == 1
  assert found.processes[1].returncode == -signal.SIGKILL
  line = found.said(0)[-1]
  assert line.startswith(f"lengthgen: {hosts.LOST} (log: ")


# What cannot be, in a line.


def test_a_coordinator_that_is_silent_is_named(tmp_path):
  address = f"127.0.0.1:{free_port()}"
  which = ("--processes=2", "--process=1", "--connect_timeout=1")
  done = command.run(
    *(command.TINY, "--multihost", f"--coordinator={address}", *which),
    "--workdir=unused",
    env=os.environ | {"TMPDIR": str(tmp_path)},
  )
  line = command.refusal(done)
  assert f"--coordinator={address} did not answer within 1 s" in line


@pytest.mark.parametrize(
  ("flags", "words"),
  [
    (["--process=0"], "--process are for --multihost"),
    (["--multihost", "--process=0"], "go together: name all three"),
    (
      ["--multihost", "--mode=predict"],
      "--multihost is for --mode: train, abc",
    ),
    (
      ["--multihost", "--coordinator=here", "--processes=2", "--process=0"],
      "--coordinator=here: must be HOST:PORT",
    ),
    (
      ["--multihost", "--coordinator=here:99", "--processes=2", "--process=2"],
      "--process=2: must be from 0 to 1",
    ),
  ],
)
def test_flags_that_cannot_be_are_a_line(flags, words):
  done = command.inside(command.TINY, "--workdir=unused", *flags)
  assert words in command.refusal(done)
