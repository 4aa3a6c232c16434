"""--mode=probe: rows, figures, and one line for every mistake."""

import pytest
from command import changed, refused, succeeds

from lengthgen_jax.probes.registry import PROBES, SORTING
from lengthgen_jax.results import records

# Of an adder with lines. No line is needed where no answer is right, as on some
# processors with the half-trained models of these tests.
METRICS = [
  name
  for name, probe in PROBES.items()
  if probe.requires is not SORTING and name != "enough_lines"
]


def test_every_probe_that_applies_has_rows_of_every_seed(copied):
  """And figures are drawn of what applies."""
  fields = "samples=12", "inputs=('12+34',)", f"only={tuple(METRICS)}"
  flags = (f"--config.probe.{field}" for field in fields)
  done = succeeds("--mode=probe", f"--workdir={copied}", *flags)
  assert "rows: " in done.stdout and "EM, nothing changed" in done.stdout
  rows = records.read_results(copied / "probes.jsonl")
  assert {row["metric"] for row in rows} == set(METRICS)
  assert {row["seed"] for row in rows} == {0, 1}
  for row in rows:
    is_exact_match = PROBES[row["metric"]].title.startswith("EM")
    assert row["length"] == 2 and row["n"] == 12
    assert ("by_position" in row) == is_exact_match
    if is_exact_match:
      assert row["correct"] == round(12 * row["value"])
  names = {path.stem for path in (copied / "figures/probes").iterdir()}
  assert names == {
    *("attention_self", "attention_cross", "by_length", "patched", "index"),
    *("projections_encoder", "projections_decoder"),
    *("without_head", "without_line"),
  }


# Mistakes.

MISTAKES = {
  "probe.only=('minimum',)": ["decoder-only models that sort", "attention_own"],
  "probe.only=('nothing',)": ["probe.only='nothing'", "without_line"],
  "probe.inputs=('12+x',)": ["probe.inputs", "'x'", "123+456"],
  "probe.lengths=(0,)": ["probe.lengths", "from 1 on"],
}


@pytest.mark.parametrize("change", MISTAKES)
def test_mistakes_are_one_line(change, trained):
  line = refused("probe", changed(change), trained)
  for word in MISTAKES[change]:
    assert word in line
