"""The loop around chunks: reports, checkpoints, stops, resuming.

It trains a toy experiment, whose seeds fare as their fates say.
"""

import functools
import os
import shutil
import signal
from unittest import mock

import numpy as np
import pytest
import toy
from command import noted
from pytrees import leaf_bytes
from rows import logged
from toy import BAD_LOSS, CONVERGING, HOPELESS
from toy_runs import toy_run

from lengthgen_jax.errors import Interrupted
from lengthgen_jax.results import records
from lengthgen_jax.training import log, loop

SEEDS = (3, 1, 4)
FATES = (CONVERGING, BAD_LOSS, HOPELESS)


OF_TWO_HEADS = {"experiment": toy.Toy(), "seeds": SEEDS, "warmup_steps": 30}
make_run = functools.partial(toy_run, **OF_TWO_HEADS, fates=FATES)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """(final states, reported lines, folder) of a run in one go."""
  folder = tmp_path_factory.mktemp("whole") / "run"
  with noted() as lines:
    return loop.train(make_run(folder)), lines, folder


def test_a_seed_that_diverges_stops_and_the_others_go_on(whole):
  states, lines, folder = whole
  assert states.step.tolist() == [60, 20, 60] and states.done.all()
  assert states.diverged.tolist() == [False, True, False]
  assert states.stopped_at.tolist() == [-1, 20, -1]
  assert states.best_em[0] > 0.6 and states.best_em[2] == 0
  (line,) = lines
  assert line.startswith("seed 1: loss or parameters are not finite at step 20")
  rows = logged(folder)
  steps = lambda seed: [row["step"] for row in rows if row["seed"] == seed]
  # Of a chunk that diverges there is no loss.
  assert [*map(steps, SEEDS)] == [[20, 40, 60], [], [20, 40, 60]]
  rates = {row["step"]: row["learning_rate"] for row in rows}
  assert 0 < rates[20] < rates[40]  # warmed up
  names = "step seed learning_rate loss em loss_hint em_hint"
  assert set(rows[0]) == set(names.split())


@pytest.mark.parametrize("lost", [(), (40, 60)])
def test_a_run_resumes_where_it_was(lost, whole, tmp_path):
  states, _, folder = whole
  copy = tmp_path / "run"
  shutil.copytree(folder, copy)
  for step in lost:
    shutil.rmtree(copy / "checkpoints" / str(step))
  run, step = make_run(copy), 60 - 20 * len(lost)
  with mock.patch("tensorboardX.SummaryWriter") as writer, noted() as lines:
    assert leaf_bytes(loop.train(run)) == leaf_bytes(states)
  # TensorBoard shows no point twice, and loses none.
  assert writer.call_args.kwargs["purge_step"] == step + 1
  assert lines == [f"resumed at step {step}"]
  assert logged(copy) == logged(folder)


def test_seeds_behind_the_farthest_are_saved_too(tmp_path):
  """A checkpoint is named after the seed that is farthest."""
  run = make_run(tmp_path, fates=(CONVERGING,) * 3)
  start = loop.init_seeds(run.spec, SEEDS)
  states, _ = toy.chunk(run.spec, start, SEEDS, run.scaffold, 20)
  states = states.replace(
    step=np.where([True, False, True], 60, states.step),
    done=np.array([True, False, True]),
    stopped_at=np.array([60, -1, 60], np.int32),
  )
  checkpoints = run.open_checkpoints(writes=True)
  checkpoints.save(60, states)
  checkpoints.close()
  rows = [{"seed": r, "step": n} for n in (20, 40, 60) for r in SEEDS]
  records.append(tmp_path / "metrics.jsonl", rows)
  with noted() as lines:
    states = loop.train(run)
  assert states.step.tolist() == [60, 60, 60]
  assert lines == ["resumed at step 60"]
  assert leaf_bytes(loop.load(run, "60")) == leaf_bytes(states)
  # The log's rows of the seed's lost steps went with them, and no others.
  lost = {"seed": 1, "step": 60}
  *before, last = records.read(tmp_path / "metrics.jsonl")
  assert before == [row for row in rows if row != lost]
  assert lost.items() < last.items()


def test_a_stop_is_saved_and_goes_on(whole, tmp_path, monkeypatch):
  write = log.Log.write

  def stop_at_second(log, states, metrics):
    write(log, states, metrics)
    if max(states.step) == 40:
      os.kill(os.getpid(), signal.SIGTERM)

  run = make_run(tmp_path, save_every=100)
  handler = signal.getsignal(signal.SIGTERM)
  with monkeypatch.context() as patch:
    patch.setattr(log.Log, "write", stop_at_second)
    with pytest.raises(Interrupted, match="stopped at step 40 of 60"):
      loop.train(run)
  assert signal.getsignal(signal.SIGTERM) is handler
  assert os.listdir(tmp_path / "checkpoints") == ["40"]
  with noted() as lines:
    assert leaf_bytes(loop.train(make_run(tmp_path))) == leaf_bytes(whole[0])
  assert lines[0] == "resumed at step 40"
  assert logged(tmp_path) == logged(whole[2])


def test_first_ctrl_c_is_remembered_and_the_second_obeyed():
  before = signal.getsignal(signal.SIGINT)
  with log.stop_signals():
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)
  assert signal.getsignal(signal.SIGINT) is before
