"""launch/card.py, which does about an hour of runs on one accelerator, tested
on the CPU."""

import importlib.util
import json

import command
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from command import REPOSITORY

from lengthgen_jax.config import build
from lengthgen_jax.papers import archive
from lengthgen_jax.proofs import checker


@pytest.fixture(scope="module")
def card():
  path = REPOSITORY / "launch" / "card.py"
  spec = importlib.util.spec_from_file_location("card", path)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def test_a_dry_run_benchmarks_and_archives_rows(card, tmp_path, monkeypatch):
  """It writes bench.json, and archives rows of a run at the papers' size."""
  lengthgen = lambda arguments, **_: command.inside(*arguments).returncode

  def run_jobs(jobs, *_):
    for workdir, commands in jobs:
      yield workdir, max(map(lengthgen, commands)), 1.0

  monkeypatch.setattr(card, "lengthgen", lengthgen)
  monkeypatch.setattr(card.tables.sweep, "run_jobs", run_jobs)
  monkeypatch.setattr(checker, "prove_file", lambda path: None)
  monkeypatch.setattr(card, "RUNS", ("sort-none-tempered-paper",))
  root, results = tmp_path / "root", tmp_path / "results"
  arguments = [f"--root={root}", f"--results={results}", "--dry-run"]
  assert card.main(arguments) == 0
  kept = archive.read_archive(results / "rows")
  assert kept["sort-none-tempered-paper"].rows
  assert json.loads((root / "bench" / "main" / "bench.json").read_text())[
    "rows"
  ]


def test_relative_workdirs_are_in_the_current_folder(
  card, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  assert card.parse([]).root == tmp_path / "runs" / "card"
  args = card.parse(["--root=here", "--dry-run"])
  assert args.root == tmp_path / "here"
  assert args.results == tmp_path / "here" / "results"


def test_runs_are_those_of_the_tables(card, tmp_path):
  jobs = card.table_jobs(tmp_path, dry_run=False)
  assert [job.run.name for job in jobs] == [*card.RUNS]
  for job in jobs:
    # The same Run as the tables use, so that its archived rows count there.
    assert (job.run,) == tuple(
      run for run, _ in card.tables.select([job.run.name], "paper").values()
    )


def test_every_field_of_a_dry_run_changes_something(card, tmp_path):
  for job in card.table_jobs(tmp_path, dry_run=True):
    build.build(card.runs.config_of(job.run))  # refuses a field without effect
    is_abc = job.run.mode == "abc"
    assert ("calibration.samples" in job.run.fields) == is_abc


@pytest.mark.parametrize("minutes", ("0", "inf", "nan"))
def test_a_limit_that_is_no_number_of_minutes_is_refused(minutes, card, capsys):
  assert card.main([f"--minutes={minutes}"]) == 1
  error = capsys.readouterr().err
  assert error == f"card: --minutes={minutes}: must be in (0, 10^6)\n"


def test_an_unknown_flag_is_refused_in_one_line(card, capsys):
  assert card.main(["--hours=1"]) == 1
  assert capsys.readouterr().err == (
    "card: unrecognized arguments: --hours=1\n"
  )


def test_estimates_grow_with_the_batch(card):
  (job,) = card.tables.jobs_of(["sort-none-paper"], "paper", {})
  small = card.estimate(
    job.run._replace(fields=job.run.fields | {"train.batch_size": 16})
  )
  large = card.estimate(
    job.run._replace(fields=job.run.fields | {"train.batch_size": 32})
  )
  assert small.steps == large.steps == 100_000
  assert large.flops == pytest.approx(2 * small.flops, rel=0.01)


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


def test_gradients_that_are_zero_but_for_rounding_may_differ(card):
  """On one device the gradient of a key's bias was 6e-12, on another 0, beside
  others of 0.1: that is rounding. The loss has a scale of its own."""
  gradients = {"kernel": np.float32([0.1, 0.2]), "key_bias": np.float32(6e-12)}
  rounded = gradients | {"key_bias": np.float32(0.0)}
  wrong = gradients | {"kernel": np.float32([0.1, 0.201])}
  assert card.relative_difference(rounded, gradients) < 1e-9
  difference = card.relative_difference(wrong, gradients)
  assert difference == pytest.approx(5e-3, rel=1e-3)
