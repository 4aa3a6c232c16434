"""--mode=probe: rows, figures, what is watched while a model trains, and one
line for every mistake."""

import dataclasses
import shutil

import numpy as np
import pytest
import untrained
from command import TINY, changed, inside, refused
from lengthgen_jax.probes.sheets import shelved

from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import line_ablation, training_probes
from lengthgen_jax.pipelines import workdir as workdirs
from lengthgen_jax.probes import interventions
from lengthgen_jax.probes.figures import FIGURES, Page
from lengthgen_jax.probes.registry import PROBES
from lengthgen_jax.results import records
from lengthgen_jax.tasks import TASKS
from lengthgen_jax.training import loop

FEW = "--config.probe.samples=12"
# Of an adder with lines; of the strongest line see what is watched, below.
LINED = [n for n, p in PROBES.items() if not p.need.words.endswith("sort")]
LINED.remove("strongest_line")


@pytest.fixture(scope="module")
def probed(trained, tmp_path_factory):
  """A copy of the trained workdir, and what probing it said."""
  workdir = tmp_path_factory.mktemp("probed") / "run"
  shutil.copytree(trained, workdir)
  more = "'decoder.blocks.0.before_mlp','encoder.embeddings'"
  done = inside(
    "--mode=probe",
    f"--workdir={workdir}",
    FEW,
    "--config.probe.inputs=('12+34',)",
    f"--config.probe.activations=({more})",
    f"--config.probe.only={tuple(LINED)}",
  )
  assert done.returncode == 0, done.stderr
  return workdir, done


def test_every_probe_that_applies_has_rows_of_every_seed(probed):
  workdir, done = probed
  rows = records.read_results(workdir / "probes.jsonl")
  assert {row["metric"] for row in rows} == set(LINED)
  assert {row["seed"] for row in rows} == {0, 1}
  assert {row["stage"] for row in rows} == {"train"}
  for row in rows:
    assert row["length"] == 2 and row["n"] in (1, 12)
    assert ("by_position" in row) == PROBES[row["metric"]].title.startswith(
      "EM"
    )
  keep = {row["seed"]: row for row in rows if row["metric"] == "intact"}
  for seed, row in keep.items():
    assert row["correct"] == round(12 * row["value"])
    assert f"seed {seed}, 2 digits: " in done.stderr
  assert "rows: " in done.stdout and "lines that are enough" in done.stdout


def test_rows_of_another_call_take_the_place_of_the_same(probed):
  workdir, _ = probed
  before = records.read_results(workdir / "probes.jsonl")
  done = inside(
    "--mode=probe",
    f"--workdir={workdir}",
    FEW,
    "--config.probe.only=('attention_own','intact')",
    "--config.probe.figures=('bases',)",
  )
  assert done.returncode == 0, done.stderr
  after = records.read_results(workdir / "probes.jsonl")
  text = lambda rows: sorted(str(sorted(row.items(), key=str)) for row in rows)
  assert text(after) == text(before)


def test_figures_are_drawn_of_what_applies(probed):
  workdir, _ = probed
  names = {path.stem for path in (workdir / "figures/probes").iterdir()}
  assert names == {
    *("overview", "attention_self", "attention_cross"),
    *("projections_encoder", "projections_decoder", "bases", "by_length"),
    *("without_head", "without_line", "patched"),
  }


def test_activations_are_had_by_asking_for_them(probed, trained_models):
  workdir, _ = probed
  found = np.load(workdir / "activations.npz")
  assert set(found) == {
    "0.decoder.blocks.0.before_mlp",
    "0.encoder.embeddings",
  }
  best = max(trained_models, key=lambda model: model.em)
  acts = best.observe(best.typed("12+34"))[1]
  wanted = acts["decoder"]["blocks"][0]["before_mlp"]
  np.testing.assert_allclose(
    found["0.decoder.blocks.0.before_mlp"], wanted, atol=1e-5
  )


@pytest.mark.parametrize("task", TASKS)
def test_inputs_are_made_for_every_task(task):
  built = untrained.experiment(task, "encoder_decoder")
  model = Model(built, {}, {})
  length = built.train_length
  (seen,) = training_probes.passes(model, length, 3, exact=False)
  assert seen.count == len(seen.batch.inputs) == 3
  assert seen.length == built.task.units(length)


# While training.


def test_what_is_watched_is_the_strongest_line_of_every_head(
  trained_run, trained_states
):
  config = changed(
    "probe.every=2", "probe.samples=12", "calibration.lengths=()"
  )
  see = training_probes.make_watcher(
    config.probe, config.calibration, trained_run.experiment
  )
  rows = see(trained_run, trained_states)
  assert {row["metric"] for row in rows} == {"strongest_line"}
  assert {row["seed"] for row in rows} == {0, 1}
  assert {row["step"] for row in rows} == set(trained_states.step.tolist())
  places = [(r["seed"], r["part"], r["layer"], r["head"]) for r in rows]
  assert len(set(places)) == len(places) == 2 * 2 * 1 * 2
  cross = [row for row in rows if row["part"] == "cross"]
  assert all(row["line"].startswith("pairs: ") for row in cross)


def test_nobody_watches_unless_asked(trained_run):
  assert trained_run.watch is None


# Trained again.


def test_a_model_is_trained_again_without_each_line(
  trained_run, trained_models, tmp_path, monkeypatch
):
  """Of the second seed; the line is closed in every head, and nothing else."""
  model = trained_models[1]
  found = interventions.lines(model)
  everywhere = [at for at in found if at[1] is None and at[2] is None]
  few = {at: found[at] for at in (everywhere[0], everywhere[-1])}
  other = next(at for at in found if at[2] is not None)
  monkeypatch.setattr(
    interventions, "lines", lambda _: few | {other: found[other]}
  )
  train = dataclasses.replace(trained_run.train, steps=4, chunk=4)
  run, runs = dataclasses.replace(trained_run, train=train), []
  monkeypatch.setattr(
    loop, "train", lambda own, go=loop.train: runs.append(own) or go(own)
  )
  see = {"length": 2, "samples": 8}
  means = list(line_ablation.retrained(run, tmp_path, model, see))
  assert [(m.part, m.line, m.count) for m in means] == [
    (site, words, 8) for site, _, _, words in few
  ]
  for own, (site, *_), cells in zip(runs, few, few.values(), strict=True):
    assert own.seeds == (1,) and own.folder.parent == tmp_path / "without"
    for name, lines in own.scaffold.items():
      was = np.asarray(model.scaffold[name].valid)
      lost = np.argwhere(was & ~np.asarray(lines.valid)[0]).tolist()
      wanted = sorted(map(list, cells)) if name == site else []
      assert lost == wanted and not (np.asarray(lines.valid)[0] & ~was).any()
  assert len({own.folder for own in runs}) == 2


# Mistakes.

MISTAKES = {
  "probe.only=('minimum',)": ["decoder-only models that sort", "attention_own"],
  "probe.only=('nothing',)": ["probe.only='nothing'", "without_line"],
  "probe.figures=('tokens',)": ["models that sort", "overview"],
  "probe.stage='retrain'": ["probe.stage='retrain'", "train"],
  "probe.inputs=('12+x',)": ["probe.inputs", "'x'", "123+456"],
  f"probe.inputs=('{'9' * 40}+1',)": ["tokens, and figures show at most 64"],
  "probe.activations=('decoder.blocks.7.self',)": [
    "no activation 'decoder.blocks.7.self'",
    "decoder.blocks.0.self.weights",
  ],
  "probe.samples=0": ["probe.samples=0", "positive"],
  "probe.lengths=(0,)": ["probe.lengths", "from 1 on"],
}


@pytest.mark.parametrize("change", MISTAKES)
def test_mistakes_are_one_line(change, trained):
  line = refused("probe", changed(change), trained)
  for word in MISTAKES[change]:
    assert word in line


def test_watching_what_nothing_is_for_is_refused(tmp_path):
  config = changed("probe.every=1", preset="parity_classification")
  with pytest.raises(Exception, match="probe.every=1") as caught:
    workdirs.make_run(config, tmp_path)
  assert "decoder-only models that sort" in str(caught.value)
  done = inside("--mode=probe", TINY, f"--workdir={tmp_path}")
  assert "nothing was trained there" in done.stderr


# Pages.


def test_shelves_hold_every_page_once_and_are_not_too_wide():
  sizes = ((9, 2), (3, 3), (5, 4), (6, 1), (2, 4))
  pages = [Page(str(i), size, None) for i, size in enumerate(sizes)]
  found = shelved(pages, 10)
  assert sorted(p.name for own in found for p in own) == list("01234")
  assert all(sum(p.size[0] for p in own) <= 10 for own in found)
  assert found[0][0].name == "0"
  assert len(found) == 3


def test_every_figure_says_whom_it_is_for():
  assert list(FIGURES)[0] == "overview"
  assert all(own.need.words for own in FIGURES.values())
