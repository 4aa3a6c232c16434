"""A workdir of a decoder-only model of lists: tested and probed."""

import itertools

import pytest
from command import changed, succeeds

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
  return workdir, succeeds("--mode=evaluate", f"--workdir={workdir}")


def test_every_test_set_has_rows_and_figures(sorting):
  workdir, done = sorting
  assert "by length in items" in done.stdout and "uniform" in done.stdout
  rows = records.read(workdir / "results.jsonl")
  assert {row["metric"] for row in rows} == {"em", "edit"}
  assert {row["family"] for row in rows} == {"decoder_only"}
  assert {row["seed"] for row in rows} == {3}
  assert {(row["test_set"], row["length"]) for row in rows} == {
    *(("uniform", 4), ("uniform", 8)),
    *(("repeats_3x1", 4), ("repeats_3x1", 8), ("repeats_3x2", 8)),
  }
  pairs = itertools.product(("em", "edit"), ("length", "repetition"))
  names = {f"sort_{metric}_by_{what}.png" for metric, what in pairs}
  assert {path.name for path in (workdir / "figures").iterdir()} == names


def test_sorting_probes_have_rows_and_figures(sorting):
  workdir, _ = sorting
  fields = ["samples=8", "lengths=(3,4)", "inputs=('3 1 2',)"]
  fields.append("only=('minimum','identity_lowered','intact','patched')")
  fields.append("figures=('tokens',)")
  flags = (f"--config.probe.{field}" for field in fields)
  done = succeeds("--mode=probe", f"--workdir={workdir}", *flags)
  rows = records.read_results(workdir / "probes.jsonl")
  places = [(row["metric"], row["length"]) for row in rows]
  assert set(places) == {
    *(("minimum", 3), ("minimum", 4), ("patched", 6), ("intact", 6)),
    *(("identity_lowered", 3), ("identity_lowered", 4)),
  }
  # Six items, the delimiter and five outputs, at three places.
  assert places.count(("patched", 6)) == 12 * 3
  assert "⊥ shows the minimum, layer 0 before MLP" in done.stdout
  names = {path.stem for path in (workdir / "figures/probes").iterdir()}
  tokens = {f"token_{name}" for name in ("before", "delimiter", "after")}
  assert names == {"index"} | tokens
