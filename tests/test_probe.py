"""--mode=probe: rows, figures, what is watched while a model trains, and one
line for every mistake."""

import dataclasses

import numpy as np
import pytest
from command import changed, refused, succeeds

from lengthgen_jax.pipelines import probe, runs
from lengthgen_jax.probes import figures, interventions
from lengthgen_jax.probes.registry import PROBES, SORTING
from lengthgen_jax.results import records
from lengthgen_jax.training import loop

# Of an adder with lines; of the strongest line see what is watched, below.
METRICS = [n for n, p in PROBES.items() if p.requires is not SORTING]
METRICS.remove("strongest_line")
METRICS_LOG = [{"step": 2, "seed": 0, "loss": 0.5, "em": 0.1}]


def test_every_probe_that_applies_has_rows_of_every_seed(copied):
  """And figures are drawn of what applies."""
  fields = "samples=12", "inputs=('12+34',)", f"only={tuple(METRICS)}"
  flags = (f"--config.probe.{field}" for field in fields)
  done = succeeds("--mode=probe", f"--workdir={copied}", *flags)
  assert "rows: " in done.stdout and "lines that are enough" in done.stdout
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


# While training.


def test_the_strongest_line_of_every_head_is_watched(
  trained_run, trained_states
):
  fields = "probe.every=2", "probe.samples=12", "calibration.lengths=()"
  args = trained_run.experiment, trained_run.scaffold
  watch = runs.make_watcher(changed(*fields), *args)
  rows = watch(trained_run, trained_states)
  assert {row["metric"] for row in rows} == {"strongest_line"}
  heads = [(r["seed"], r["part"], r["layer"], r["head"]) for r in rows]
  assert len(set(heads)) == len(heads) == 2 * 2 * 1 * 2
  lines = [row["line"] for row in rows if row["part"] == "cross"]
  assert all(line.startswith("pairs: ") for line in lines)
  data = figures.FigureData({}, [], 0, {}, {"train": (METRICS_LOG, rows)})
  ((_, figure),) = figures.by_step(data)
  *_, panel = figure.axes
  assert panel.get_title() == PROBES["strongest_line"].title
  assert len(panel.get_lines()) == len(heads)
  figures.plt.close(figure)


# Trained again.


def test_a_model_is_trained_again_without_a_line(
  trained_run, trained_models, tmp_path, no_training, monkeypatch
):
  """Of the second seed; the line is closed in every head, and nothing else."""
  model = trained_models[1]
  lines = interventions.bias_lines(model)
  line = next(x for x in lines if x.layer is None and x.head is None)
  entries = lines[line]
  monkeypatch.setattr(interventions, "bias_lines", lambda _: {line: entries})
  run = dataclasses.replace(trained_run, folder=tmp_path)
  train_run, line_runs = loop.train, []
  monkeypatch.setattr(
    loop, "train", lambda run: line_runs.append(run) or train_run(run)
  )
  config = changed("probe.causal_length=2", "probe.samples=8")
  (mean,) = probe.retrained(run, model, config)
  assert (mean.part, mean.line, mean.count) == (line.part, line.line, 8)
  (line_run,) = line_runs
  assert line_run.seeds == (1,)
  assert line_run.folder.parent == tmp_path / "without" / "seed_1"
  for site, bias in line_run.scaffold.items():
    was_valid = np.asarray(model.scaffold[site].valid)
    closed = np.argwhere(was_valid != np.asarray(bias.valid)[0]).tolist()
    assert closed == (sorted(map(list, entries)) if site == line.part else [])


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
