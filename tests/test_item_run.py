"""A workdir of a decoder-only model of lists: tested and probed."""

import pytest
from command import changed, inside

from lengthgen_jax.pipelines import runs
from lengthgen_jax.pipelines import workdir as workdirs
from lengthgen_jax.results import records
from lengthgen_jax.training import loop


@pytest.fixture(scope="module")
def sorting(tmp_path_factory):
  """A model that was not trained yet, and what its evaluation said."""
  workdir = tmp_path_factory.mktemp("sort") / "run"
  config = changed(
    "seeds=(3,)",
    "eval.test_sets=('uniform', 'repeats')",
    "eval.repetitions=(1, 2)",
    preset="sort,successor",
  )
  run = runs.make_run(config, workdir)
  workdirs.open_workdir(config, workdir, "train")
  store = run.open_checkpoints(writes=True)
  store.save(7, loop.init_seeds(run.spec, run.seeds))
  store.close()
  done = inside("--mode=evaluate", f"--workdir={workdir}")
  assert done.returncode == 0, done.stderr
  return workdir, done


def test_every_test_set_has_rows_and_figures(sorting):
  workdir, done = sorting
  assert "by length in items" in done.stdout and "uniform" in done.stdout
  rows = records.read(workdir / "results.jsonl")
  assert {row["metric"] for row in rows} == {"em", "token", "position", "edit"}
  assert {row["family"] for row in rows} == {"decoder_only"}
  assert {row["seed"] for row in rows} == {3}
  assert {(row["test_set"], row["length"]) for row in rows} == {
    *(("uniform", 4), ("uniform", 8)),
    *(("repeats_3x1", 4), ("repeats_3x1", 8), ("repeats_3x2", 8)),
  }
  names = {
    f"sort_{metric}_by_{what}.png"
    for metric in ("em", "edit")
    for what in ("length", "repetition")
  }
  assert {path.name for path in (workdir / "figures").iterdir()} == names


def test_sorting_probes_have_rows_and_figures(sorting):
  workdir, _ = sorting
  done = inside(
    "--mode=probe",
    f"--workdir={workdir}",
    "--config.probe.samples=8",
    "--config.probe.lengths=(3,4)",
    "--config.probe.causal_length=3",
    "--config.probe.random_inputs=1",
    "--config.probe.only=('minimum','identity_lowered','intact','patched')",
    "--config.probe.figures=('tokens',)",
  )
  assert done.returncode == 0, done.stderr
  rows = records.read_results(workdir / "probes.jsonl")
  places = [(row["metric"], row["length"]) for row in rows]
  assert set(places) == {
    *(("minimum", 3), ("minimum", 4), ("patched", 3), ("intact", 3)),
    *(("identity_lowered", 3), ("identity_lowered", 4)),
  }
  # Three items, the delimiter and two outputs, at three places.
  assert places.count(("patched", 3)) == 6 * 3
  assert "⊥ shows the minimum, layer 0 before MLP" in done.stdout
  names = {path.stem for path in (workdir / "figures/probes").iterdir()}
  tokens = {f"token_{name}" for name in ("before", "delimiter", "after")}
  assert names == {"index"} | tokens
