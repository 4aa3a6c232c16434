"""--mode=abc: three stages that end the same however often they are cut off."""

import itertools
import json
import re
import shutil

import jax
import numpy as np
import pytest
import untrained
from command import TINY, changed, inside, refusal, refused, refuses, succeeds

import lengthgen_jax
from lengthgen_jax.attention import calibration
from lengthgen_jax.attention.biases import file
from lengthgen_jax.attention.lines import RIGHT
from lengthgen_jax.config import build, files
from lengthgen_jax.errors import UsageError
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import abc, calibrate, runs
from lengthgen_jax.pipelines import workdir as workdirs
from lengthgen_jax.results import records
from lengthgen_jax.training import checkpoint

FIELDS = """
model.num_encoder_layers=0 train.steps=200 train.chunk=50 checkpoint.every=1
calibration.samples=64 calibration.kappa=1.0 abc.min_exact_match=0.05
retrain.train.steps=60 retrain.train.chunk=20 retrain.train.warmup_steps=10
finetune.rounds=1 finetune.steps=40 eval.lengths=(4,) eval.free_running=False
"""
SMALL = FIELDS.split()
FLAGS = [f"--config.{field}" for field in SMALL]
PIPELINE = ("--mode=abc", f"{TINY}:successor,abc", *FLAGS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """A pipeline that ran in one go, and what it said."""
  workdir = tmp_path_factory.mktemp("abc") / "whole"
  return workdir, succeeds(*PIPELINE, f"--workdir={workdir}")


def finals(workdir):
  """Parameters of the seeds after all that was trained."""
  models = workdirs.load_stage(files.saved_config(workdir), workdir).models
  return {model.seed: model.params for model in models}


def rows_of(workdir) -> list[dict]:
  return records.read(workdir / "results.jsonl")


def equal(one, other):
  jax.tree.map(np.testing.assert_array_equal, one, other)


class Killed(BaseException):
  """What no code of ours catches."""


def kill_at(stage: str, patch, workdir) -> None:
  """Makes the next run end in a stage: at its first checkpoint, or before
  bias.npz is written."""

  def killed(*arguments, **options):
    raise Killed

  save = checkpoint.Checkpoints.save

  def save_once(store, *arguments):
    save(store, *arguments)
    if store.folder.parent == workdir / stage:
      store.close()
      raise Killed

  if stage == "calibrate":
    patch.setattr(file, "save", killed)
  else:
    patch.setattr(checkpoint.Checkpoints, "save", save_once)


@pytest.fixture
def undrawn(no_figures, monkeypatch):
  """Leaves out the figures, which take half of the time of a second run."""
  monkeypatch.setattr(calibrate, "draw", lambda *arguments: [])


def test_a_round_counts_from_its_first_checkpoint_on(whole, tmp_path):
  """Before it, all modes use the models of the stage before."""
  workdir = tmp_path / "whole"
  shutil.copytree(whole[0], workdir)
  (workdir / "finetune_2" / "checkpoints").mkdir(parents=True)
  equal(finals(workdir), finals(whole[0]))


def test_mode_calibrate_writes_the_bias_of_the_pipeline(whole, tmp_path):
  workdir = tmp_path / "run"
  shutil.copytree(whole[0] / "interpolate", workdir)
  shutil.copy(whole[0] / "config.json", workdir)
  succeeds("--mode=calibrate", f"--workdir={workdir}")
  paths = (workdirs.bias_path(folder) for folder in (workdir, whole[0]))
  equal(*(file.read(path)[0] for path in paths))
  line = refusal(inside("--mode=calibrate", f"--workdir={whole[0]}"))
  assert "--mode=abc calibrates by itself" in line


def test_killed_in_each_stage_it_ends_the_same(whole, undrawn, tmp_path):
  workdir = tmp_path / "killed"
  shutil.copytree(whole[0] / "interpolate", workdir / "interpolate")
  arguments = (*PIPELINE, f"--workdir={workdir}")
  for stage in ("calibrate", "retrain", "finetune_1"):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
      kill_at(stage, patch, workdir)
      inside(*arguments)
    if stage == "calibrate":
      assert (workdir / "calibrate" / "attention.npz").exists()
    else:
      (first,) = (workdir / stage / "checkpoints").iterdir()
      assert first.name == "20"
    assert workdirs.bias_path(workdir).exists() == (stage != "calibrate")
  done = succeeds(*arguments)
  equal(finals(workdir), finals(whole[0]))
  biases = [file.read(workdirs.bias_path(w))[0] for w in (workdir, whole[0])]
  equal(*biases)
  assert rows_of(workdir) == rows_of(whole[0])
  for name in ("certificate.json", "finetune_1/inputs.json"):
    assert (workdir / name).read_text() == (whole[0] / name).read_text()
  # What is done is not done again.
  assert "calibrated" in whole[1].stderr
  assert "calibrated" not in done.stderr


def test_pipeline_leaves_rows_figures_and_a_bias(whole):
  workdir, done = whole
  rows = rows_of(workdir)
  assert {(row["stage"], row["method"].split()[0]) for row in rows} == {
    *(("interpolate", "vanilla"), ("retrain", "abc")),
    ("finetune", "abc+finetune"),
  }
  assert {row["seeds_asked"] for row in rows} == {2}
  for row in rows:  # of all stages
    assert {x["seed"] for x in rows if x["stage"] == row["stage"]} == {0, 1}
  hashes = {(row["stage"], row["config_hash"]) for row in rows}
  assert len({x for stage, x in hashes if stage != "finetune"}) == 2
  assert re.search(r"^abc .*\(retrain\) +equal +1 ", done.stdout, re.M)
  whats = "bias", "attention_mean", "attention_example"
  names = [f"{what}_{site}" for what in whats for site in ("self", "cross")]
  for name in ("successor_em_by_length", *names):
    path = workdir / "figures" / f"{name}.png"
    assert path.stat().st_size > 1000 and str(path) in done.stdout
  arrays, meta = file.read(workdirs.bias_path(workdir))
  assert meta["seeds"] == [0, 1] and arrays["cross_valid"].any()


def test_certificates_are_rows_and_models_are_finetuned_on_what_fails(whole):
  workdir, done = whole
  certificates = json.loads((workdir / "certificate.json").read_text())
  trained_on = json.loads((workdir / "finetune_1/inputs.json").read_text())
  certified = [x for x in rows_of(workdir) if x["metric"] == "certified"]
  # Trained for so short a time no seed is right, before or after.
  assert done.stderr.count("wrong with all lines, so that none is closed") == 4
  assert set(certificates) == set(trained_on) == {"0", "1"}
  for row in certified:
    assert row["value"] == 0 and row["n"] > 100 and row["margin"] < 0
    assert row["length"] is None and row["lower_bound"] is None
  steps = [row["step"] for row in certified if row["stage"] == "finetune"]
  assert steps == [100, 100]
  for seed, inputs in trained_on.items():
    assert inputs["failing"]
    assert all(len(text) <= 2 for text in inputs["failing"] + inputs["thin"])
    wrong = certificates[seed]["counterexamples"]
    assert certificates[seed]["pruning"]["closed"] == []
    model = lengthgen_jax.load(workdir, int(seed)).model
    for text, answer in zip(wrong[:8], model.answers(wrong[:8]), strict=True):
      assert answer != str(int(text) + 1), text
    assert sorted(wrong, key=len) == wrong
    assert f"the shortest: {wrong[0]}" in done.stdout


def test_a_certificate_of_other_parameters_is_none(whole, tmp_path):
  shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
  config = files.saved_config(tmp_path)
  assert set(workdirs.load_stage(config, tmp_path).certificates) == {0, 1}
  path = tmp_path / "certificate.json"
  certificates = json.loads(path.read_text())
  certificates["0"]["checksum"] = "0"
  path.write_text(json.dumps(certificates))
  assert set(workdirs.load_stage(config, tmp_path).certificates) == {1}


def test_a_workdir_is_read_as_its_last_stage_or_as_another(whole):
  workdir, _ = whole
  model = lengthgen_jax.load(workdir).model
  assert model.step == 100
  equal(model.params, finals(workdir)[model.seed])
  first = lengthgen_jax.load(workdir, model.seed, stage="interpolate")
  assert not first.model.scaffold and first.config.bias.kind == "none"
  with refuses("stage='interpolated': choose one of interpolate, retrain"):
    lengthgen_jax.load(workdir, stage="interpolated")
  arrays, meta = file.read(workdirs.bias_path(workdir))
  intercept = arrays["cross_intercept"][meta["seeds"].index(model.seed)]
  equal(model.scaffold["cross"].intercept, intercept)


# Seeds that drop out.


@pytest.fixture
def interpolated(whole):
  """The config of the pipeline, and the run of its first stage."""
  config = files.saved_config(whole[0])
  return config, runs.make_run(config, whole[0] / "interpolate")


def test_seed_without_fit_is_dropped(whole, interpolated, tmp_path, capsys):
  config, run = interpolated
  em = {model.seed: model.em for model in runs.load(run, "best")}
  worse, better = sorted(em, key=em.get)
  assert em[worse] < em[better]
  config.abc.min_exact_match = (em[worse] + em[better]) / 2
  models = calibrate.interpolating_models(config, run)
  error = capsys.readouterr().err
  assert f"seed {worse} did not interpolate" in error
  assert f"seed {better} did not" not in error
  calibrate.write_bias(config, models, tmp_path / "calibrate")
  assert workdirs.retraining(config, tmp_path)[1].seeds == (better,)
  config.abc.min_exact_match = 1.0
  with refuses("--config.abc.min_exact_match=0."):
    calibrate.interpolating_models(config, run)
  # That may be done: the workdir is still that of this config.
  assert workdirs.is_of(config, whole[0])


def test_seed_without_line(whole, interpolated, tmp_path, capsys, monkeypatch):
  select_lines, calls = calibration.select_lines, itertools.count()

  def select_later_lines(*arguments):
    """Keeps no line in the first two calls, of both sites of the first seed."""
    lines, selection = select_lines(*arguments)
    return lines, selection._replace(keep=selection.keep & (next(calls) > 1))

  monkeypatch.setattr(calibration, "select_lines", select_later_lines)
  config, run = interpolated
  calibrate.write_bias(config, runs.load(run, "best"), tmp_path)
  assert "seed 0: no head has a line; dropped" in capsys.readouterr().err
  arrays, meta = file.read(tmp_path / "bias.npz")
  assert meta["seeds"] == [1]
  both, _ = file.read(workdirs.bias_path(whole[0]))
  intercepts = (
    x["cross_intercept"][seed][x["cross_valid"][seed]]
    for x, seed in ((arrays, 0), (both, 1))
  )
  np.testing.assert_array_equal(*intercepts)


def test_no_line_at_all_is_an_error(interpolated, tmp_path):
  config, run = interpolated
  config.calibration.update(kappa=90.0, kappa_self=90.0)
  with refuses("calibration.kappa=90.0", "best score"):
    calibrate.write_bias(config, runs.load(run, "best"), tmp_path)
  assert not list(tmp_path.iterdir())


# Mistakes.


MISTAKES = [
  ("calibration.lengths=(2,)", "name two or more, like (1, 2)"),
  ("retrain.model.num_heads=3", "retrain.*: model.num_heads=3"),
  ("abc.example='12a'", "abc.example: '12a'"),
  ("bias.kind='window'", "bias.kind='window': the first stage"),
  ("retrain.model.num_heads=4", "choose 2, as there"),
]


@pytest.mark.parametrize(("assignment", "words"), MISTAKES)
def test_mistakes_show_before_any_training(assignment, words, tmp_path):
  config = changed(*SMALL, assignment, preset="successor,abc")
  assert words in refused("abc", config, tmp_path / "run")
  assert not (tmp_path / "run").exists()


def test_the_second_stage_has_at_least_as_many_layers_as_the_first():
  fields = "model.num_decoder_layers=2", "retrain.model.num_decoder_layers=1"
  config = changed(*SMALL, *fields, preset="successor,abc")
  with pytest.raises(UsageError, match="choose at least 2, as many as there"):
    abc.check_config(config)
  config.calibration.layers = "last"  # whose lines are those of every layer
  abc.check_config(config)


def test_an_example_that_does_not_fit_shows_before_any_training():
  config = changed(preset="successor,abc,fixed")
  config.abc.example = "1" * 60
  abc.check_config(config)
  config.abc.example = "1" * 61
  with pytest.raises(UsageError, match="abc.example: 61 digits .* at most 60"):
    abc.check_config(config)


def test_lines_of_one_sequence_are_those_of_every_operand(tmp_path):
  """Of a decoder-only model that nobody trained: all its lines pass."""
  lowest = (f"calibration.{x}=-9.0" for x in ("kappa", "kappa_self"))
  fields = *lowest, "calibration.samples=8"
  config = changed(*fields, preset="addition,abc,decoder_only")
  config.retrain.model.num_decoder_layers = 2  # of which one has no lines
  experiment = build.build(config)
  model = Model(experiment, {}, untrained.params(experiment), seed=0)
  calibrate.write_bias(config, [model], tmp_path)
  arrays, meta = file.read(tmp_path / "bias.npz")
  assert list(meta["sites"]) == ["self"]
  valid, names = arrays["self_valid"], meta["sites"]["self"]
  assert valid.shape[1] == 2 and not valid[:, 1].any()
  fields = ("segment", "anchor", "matrix", "intercept")
  lines = zip(*(arrays[f"self_{name}"][valid] for name in fields), strict=True)
  lines = {tuple(int(field.item()) for field in line) for line in lines}
  for operand in "ab":
    assert (names.index(operand), RIGHT, 1, 0) in lines
