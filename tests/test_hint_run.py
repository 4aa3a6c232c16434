"""A decoder-only run with a hint, from the command to the report."""

import numpy as np
import pytest
from command import TINY, inside

from lengthgen_jax.results import records


@pytest.fixture(scope="module")
def sorted_once(tmp_path_factory):
  """A short run of sorting with the successor hint, and what it said."""
  workdir = tmp_path_factory.mktemp("sort") / "run"
  done = inside(
    f"{TINY}:sort,successor",
    f"--workdir={workdir}",
    "--config.seeds=(3,)",
    "--config.train.steps=20",
    "--config.train.chunk=10",
    "--config.data.buckets=()",
    "--config.eval.lengths=(4,8)",
    "--config.eval.test_sets=('uniform','repeats')",
    "--config.eval.repetitions=(1,2)",
  )
  assert done.returncode == 0, done.stderr
  return workdir, done


def test_every_head_is_logged(sorted_once):
  workdir, done = sorted_once
  rows = records.read(workdir / "metrics.jsonl")
  assert [row["step"] for row in rows] == [10, 20]
  for name in ("loss", "em", "loss_sort_successor", "em_sort_successor"):
    assert all(np.isfinite(row[name]) for row in rows)
  assert "by length in items" in done.stdout and "uniform" in done.stdout


def test_every_test_set_has_rows_and_figures(sorted_once):
  workdir, _ = sorted_once
  rows = records.read(workdir / "results.jsonl")
  assert {row["metric"] for row in rows} == {"em", "token", "position", "edit"}
  assert {row["family"] for row in rows} == {"decoder_only"}
  assert {row["seed"] for row in rows} == {3}
  found = {(row["test_set"], row["length"]) for row in rows}
  wanted = {
    (name, length)
    for name in ("uniform", "repeats_3x1", "repeats_3x2")
    for length in (4, 8)
  }
  assert found == wanted - {("repeats_3x2", 4)}
  names = {
    f"{name}_by_{what}.png"
    for name in ("accuracy", "edit_distance")
    for what in ("length", "repetition")
  }
  assert {path.name for path in (workdir / "figures").iterdir()} == names


def test_report_joins_runs(sorted_once):
  workdir, _ = sorted_once
  report = inside("--mode=report", f"--workdir={workdir.parent}")
  assert report.returncode == 0, report.stderr
  assert "repeats_3x2" in report.stdout and "| run |" in report.stdout
  assert (workdir.parent / "report.md").read_text() == report.stdout
  figures = {path.name for path in (workdir.parent / "figures").iterdir()}
  assert figures == {
    f"sort_natural{what}{metric}.png"
    for what in ("", "_repetition")
    for metric in ("", "_edit")
  }


def test_every_line_of_items_is_answered(sorted_once):
  workdir, _ = sorted_once
  asked = inside(
    "--mode=predict", f"--workdir={workdir}", text="5 3\n9\n2 1 1 4 4 2 1 5 3\n"
  )
  first, second, third = asked.stdout.splitlines()
  assert len(first.split()) == 2 and len(third.split()) == 9
  assert second.startswith("error: ") and "1 to 5" in second
  assert asked.returncode == 1
