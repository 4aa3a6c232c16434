"""Workdirs: whose they are, and what is refused in them."""

import dataclasses

import pytest
from command import TINY, changed, contents, inside, refusal, refused
from tiny import get_config

from lengthgen_jax.config import files
from lengthgen_jax.config.build import build
from lengthgen_jax.pipelines import evaluate
from lengthgen_jax.pipelines import workdir as workdirs
from lengthgen_jax.results import records, tables


def test_saved_config_of_another_version_gets_defaults(tmp_path):
  """Fields that a workdir's version did not have are what they are here."""
  config = get_config()
  with config.unlocked():
    del config.train.clip_norm
    del config.increment
  path = tmp_path / "config.json"
  path.write_text(config.to_json_best_effort())
  saved, config = files.saved_config(tmp_path), get_config()
  assert saved.to_json_best_effort() == config.to_json_best_effort()
  assert not files.differences(config, saved)
  saved.train.steps = 1
  assert files.differences(config, saved) == ["train.steps=600 but 1 there"]


OTHER = {
  '{"sequences": {"size": 1}}': "no field 'sequences'",
  '{"train": {"momentum": 1}}': "train.momentum: no field 'momentum'",
  '{"train": {': "cannot be read",
}


@pytest.mark.parametrize(("saved", "words"), OTHER.items())
def test_saved_config_of_other_fields_is_refused(saved, words, tmp_path):
  path = tmp_path / "config.json"
  path.write_text(saved)
  line = refusal(inside(f"--workdir={tmp_path}", "--mode=predict"))
  assert str(path) in line and words in line
  assert path.read_text() == saved


def test_reading_an_empty_workdir_is_refused(tmp_path):
  for words, reason in (
    ([TINY, "--mode=predict"], "--mode=train"),
    (["--mode=predict"], "--config is missing"),
    (["--mode=report"], "no results.jsonl"),
  ):
    line = refusal(inside(f"--workdir={tmp_path}", *words))
    assert str(tmp_path) in line and reason in line
  assert not list(tmp_path.iterdir())


def test_workdir_of_another_config_is_refused(trained):
  before = contents(trained)
  override, workdir = "--config.model.mlp_dim=64", f"--workdir={trained}"
  for words in ([TINY], [TINY, "--mode=evaluate"], ["--mode=predict"]):
    line = refusal(inside(workdir, override, *words))
    assert "model.mlp_dim=64 but 32" in line and str(trained) in line
  assert contents(trained) == before


def test_pipeline_in_a_workdir_of_one_training_is_refused(tmp_path):
  config = changed(preset="successor,abc")
  workdirs.open_workdir(config, tmp_path, "train")
  (tmp_path / "checkpoints").mkdir()
  line = refused("abc", config, tmp_path)
  assert str(tmp_path) in line and "holds a run of --mode=train" in line
  assert not (tmp_path / "interpolate").exists()


def test_fewer_samples_replace_if_asked(copied, no_figures):
  results = copied / "results.jsonl"
  before, config = records.read(results), (copied / "config.json").read_text()
  arguments = f"--workdir={copied}", "--mode=evaluate"
  arguments += ("--config.eval.samples=(8,)",)
  done = inside(*arguments)
  assert f"more samples are kept ({len(before)})" in done.stderr
  assert records.read(results) == before
  done = inside(*arguments, "--config.eval.replace=True")
  after = records.read(results)
  assert ": kept " not in done.stderr
  assert {row["n"] for row in after} == {8}
  assert {row["config_hash"] for row in after} == {before[0]["config_hash"]}
  assert (copied / "config.json").read_text() == config


# The lock of a workdir.


def test_a_second_process_in_a_workdir_is_refused(copied, tmp_path):
  with workdirs.lock(copied):
    before = contents(copied)
    line = refusal(inside(f"--workdir={copied}", "--mode=evaluate"))
    assert f"--workdir={copied}: another process works in it" in line
    assert contents(copied) == before
    new = tmp_path / "new"
    with workdirs.lock(new):
      assert "another process" in refusal(inside(f"--workdir={new}", TINY))
  with workdirs.lock(copied):
    pass  # it is free again
  assert not new.exists()  # nothing was written there


def test_every_row_of_a_leaking_model_is_marked(trained_models, tmp_path):
  config = get_config()
  config.bias.allow_leak = True
  model = dataclasses.replace(trained_models[0], experiment=build(config))
  stage = workdirs.Stage("train", config, None, 2, [model])
  rows = evaluate.evaluate(stage, tmp_path)
  assert len(rows) == 1 and all(row["leak"] for row in rows)
  table = tables.run_table(rows)
  assert "window_cpi LEAK" in table and "1 of 2 seeds" in table


def test_rows_of_a_run_are_the_same_wherever_its_bias_lies(tmp_path):
  """A workdir that was moved is still the same run."""
  config, moved, other = (
    changed("bias.kind='file'", f"bias.file='{path}'")
    for path in ("here/bias.npz", "there/bias.npz", "there/other.npz")
  )
  moved.dyck.bound += 1  # nor does it matter what other tasks there are
  assert files.config_hash(config) == files.config_hash(moved)
  assert files.config_hash(config) != files.config_hash(other)
