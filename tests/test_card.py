"""launch/card.py, which does about an hour of runs on one accelerator, tested
on the CPU."""

import importlib.util
import pathlib

import command
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from command import REPOSITORY

from lengthgen_jax.papers import archive


@pytest.fixture(scope="module")
def card():
  path = REPOSITORY / "launch" / "card.py"
  spec = importlib.util.spec_from_file_location("card", path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


@pytest.mark.usefixtures("no_training", "no_figures")
def test_a_dry_run_benchmarks_and_archives_rows(card, tmp_path, monkeypatch):
  """It times the main job, and archives rows of a run at the papers' size."""
  timed = []

  def time_it(arguments):
    with command.parsed(*arguments) as (mode, config):
      timed.append((mode, config.task, config.train.steps))
    folder = arguments[-1].removeprefix("--workdir=")
    pathlib.Path(folder).mkdir(parents=True)
    return 0

  def run_jobs(jobs, *_):
    for workdir, commands in jobs:
      codes = [command.inside(*words).returncode for words in commands]
      yield workdir, max(codes), 1.0

  monkeypatch.setattr(card, "lengthgen", time_it)
  monkeypatch.setattr(card.tables.sweep, "run_jobs", run_jobs)
  monkeypatch.setattr(card, "RUNS", ("sort-none-tempered-paper",))
  root, results = tmp_path / "root", tmp_path / "results"
  arguments = [f"--root={root}", f"--results={results}", "--dry-run"]
  assert card.main(arguments) == 0
  kept = archive.read_archive(results / "rows")
  assert kept["sort-none-tempered-paper"].rows
  assert timed == [("bench", "addition", 4)]
  assert (root / "bench" / "main").is_dir()


def test_a_limit_that_is_no_number_of_minutes_is_refused(card, capsys):
  assert card.main(["--minutes=nan"]) == 1
  error = capsys.readouterr().err
  assert error == "card: --minutes=nan: must be in (0, 10^6)\n"


def test_devices_that_compute_the_same_pass_and_others_do_not(
  card, monkeypatch, capsys
):
  monkeypatch.setattr(card, "COMPARED", ("tests/tiny.py",))
  monkeypatch.chdir(REPOSITORY)
  assert card.main(["--numerics"]) == 0
  _, loss, gradients = capsys.readouterr().out.splitlines()
  assert loss.split()[:2] == ["loss", "0.00e+00"]
  assert gradients.split()[:2] == ["gradients", "0.00e+00"]

  # A result that changes from call to call stands for a wrong device.
  calls = []

  def drift(x):
    calls.append(1)
    return x + np.float32(1e-3 * len(calls))

  drifting = lambda x: (x, jax.pure_callback(drift, x, x))
  for wrong in (drifting, lambda x: (x, jnp.log(-x))):
    wrong_case = wrong, np.ones(3, np.float32)
    monkeypatch.setattr(
      card, "loss_and_gradients", lambda _, case=wrong_case: case
    )
    assert card.main(["--numerics"]) == 1
