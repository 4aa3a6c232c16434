"""A workdir of a decoder-only model of lists: tested and probed."""

import itertools

import pytest
from command import TINY, succeeds

from lengthgen_jax.results import records


def flags(*fields) -> list[str]:
  return [f"--config.{field}" for field in fields]


@pytest.mark.usefixtures("no_training")
def test_a_model_of_lists_is_tested_and_probed(tmp_path):
  """Every test set has rows and figures, and so have probes of sorting."""
  workdir = tmp_path / "run"
  fields = "eval.test_sets=('uniform','repeats')", "eval.repetitions=(1,2)"
  words = f"{TINY}:sort,successor", f"--workdir={workdir}"
  done = succeeds(*words, *flags("seeds=(3,)", *fields))
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

  fields = ["samples=8", "lengths=(3,4)", "inputs=('3 1 2',)"]
  fields.append("only=('minimum','identity_lowered','intact','patched')")
  fields.append("figures=('tokens',)")
  of_probe = flags(*(f"probe.{field}" for field in fields))
  done = succeeds("--mode=probe", f"--workdir={workdir}", *of_probe)
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
