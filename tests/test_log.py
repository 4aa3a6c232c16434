"""What a run reports while it trains."""

import struct

import pytest
import toy
from tensorboardX.proto.event_pb2 import Event, SessionLog
from toy_runs import SEEDS, toy_run

from lengthgen_jax.training import log, loop


def events(folder) -> list[Event]:
  """All events in a folder, in the order in which they were written."""
  found = []
  for path in folder.iterdir():
    data = path.read_bytes()
    while data:  # length, checksum, event, checksum
      (size,) = struct.unpack("<Q", data[:8])
      found.append(Event.FromString(data[12 : 12 + size]))
      data = data[16 + size :]
  return sorted(found, key=lambda event: event.wall_time)


def shown_steps(folder) -> list[int]:
  """The steps of a curve in TensorBoard, which drops what was written before a
  start of the program for its step and later ones."""
  steps = []
  for event in events(folder):
    if event.session_log.status == SessionLog.START:
      steps = [step for step in steps if step < event.step]
    for value in event.summary.value:
      if value.tag == f"seed{SEEDS[0]}/loss":
        steps.append(event.step)
  return steps


def test_tensorboard_keeps_the_point_of_the_checkpoint_that_goes_on(
  tmp_path, monkeypatch
):
  fates = (toy.CONVERGING,) * len(SEEDS)
  run = toy_run(tmp_path, steps=60, fates=fates)
  write, written = log.Log.write, []

  def write_twice(self, *chunk):
    if len(written) == 2:
      raise KeyboardInterrupt
    written.append(write(self, *chunk))

  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(log.Log, "write", write_twice)
    loop.train(run)
  (path,) = (tmp_path / "tensorboard").iterdir()
  path.rename(path.with_name("first"))  # the second's name has the same second
  loop.train(run)
  chunk = run.train.chunk
  assert shown_steps(tmp_path / "tensorboard") == [*range(chunk, 61, chunk)]
