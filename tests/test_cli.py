"""The command: help, overrides, and one line for every mistake."""

import os
import types

import command
import jax
import numpy as np
import pytest
from command import TINY, changed, inside, refusal, refused, run
from tiny import get_config

from lengthgen_jax import main
from lengthgen_jax.config import build, fields
from lengthgen_jax.pipelines import evaluate, workdir


def test_help_names_our_flags_and_needs_no_jax(tmp_path):
  (tmp_path / "jax.py").write_text("raise SystemExit('jax was imported')")
  done = run("--help", env=os.environ | {"PYTHONPATH": str(tmp_path)})
  assert "lengthgen --config=configs/quickstart.py --mode=abc" in done.stdout
  for flag in ("config", "workdir", "mode", "input"):
    assert f"\n  --{flag}: " in done.stdout
  assert "|".join(main.MODES) in done.stdout
  assert "Traceback" not in done.stderr
  assert "--verbosity" not in done.stdout  # absl's own flags stay out


# What is wrong, and what the message must name.
MISTAKES = {
  "unknown field": (
    [TINY, "--config.train.stepz=3"],
    ["train.stepz", "steps", "batch_size", "seed_axis"],
  ),
  "unknown section": ([TINY, "--config.trian.steps=3"], ["trian", "eval"]),
  "below a leaf": ([TINY, "--config.task.name=3"], ["no field 'name'"]),
  "unknown switch": ([TINY, "--noconfig.bias.leak"], ["leak"]),
  "not a number": ([TINY, "--config.train.steps=many"], ["steps", "many"]),
  "not whole": ([TINY, "--config.train.steps=1.5"], ["steps", "1.5"]),
  "not a tuple": ([TINY, "--config.seeds=(0,1"], ["seeds", "(0,1"]),
  "a calibrated field": (
    [TINY, "--config.retrain.bias.kind=window"],
    ["no field 'kind'", "scale"],
  ),
  "no such file": (["--config=configs/nothing.py"], ["configs/nothing.py"]),
  "preset": (["--config=configs/arithmetic.py:division"], ["addition"]),
  "method": (["--config=configs/arithmetic.py:parity,wndow"], ["window"]),
  "hint": (["--config=configs/sorting.py:sucessor"], ["successor"]),
  "mode": ([TINY, "--mode=dance"], ["dance", *main.MODES]),
  "flag": ([TINY, "--wrkdir=x"], ["wrkdir"]),
  "stray word": ([TINY, "predict"], ["predict"]),
  "override without config": (["--config.seeds=(1,)"], ["--config=FILE"]),
  "no workdir": ([TINY], ["--workdir"]),
  "input": ([TINY, "--workdir=/tmp", "--input=x"], ["--input", "predict"]),
  "no input": (
    [TINY, "--workdir=/tmp", "--mode=predict", "--input=/nothing"],
    ["/tmp", "--mode=train"],
  ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistake_in_flags_is_one_line(what):
  arguments, names = MISTAKES[what]
  line = refusal(inside(*arguments))
  for name in names:
    assert name in line


def test_mistake_leaves_the_process_with_one_line_too(tmp_path):
  done = run(TINY, "--config.train.stepz=3")
  assert "train.stepz" in refusal(done) and done.returncode == 2
  done = run(TINY, f"--workdir={tmp_path / 'run'}", "--config.seeds=a")
  assert "seeds=('a',)" in refusal(done) and done.returncode == 1
  assert not (tmp_path / "run").exists()


# Values that only the experiment can judge: of the tiny config, or of another.
VALUES = {
  "task='subtraction'": ["addition", "parity"],
  "model.kind='encoder'": ["decoder_only"],
  "model.norm='middle'": ["block_end"],
  "model.num_heads=3": ["model.emb_dim=16"],
  "model.num_encoder_layers=-1": ["negative"],
  "model.dropout_rate=1.0": ["[0, 1)"],
  "positions.kind='rotary'": ["rope"],
  "train.schedule='wild'": ["cosine"],
  "train.seed_axis='pmap'": ["vmap"],
  "train.steps=0": ["positive"],
  "train.learning_rate=1e999": ["train.learning_rate=inf", "finite"],
  "train.clip_norm=-1e999+1e999": ["train.clip_norm=nan", "finite"],
  "checkpoint.every=0": ["positive"],
  "bias.kind='fence'": ["window"],
  "bias.window=-1": ["negative"],
  "bias.closed=1.0": ["positive"],
  "temperature.kind='warm'": ["log_items"],
  "temperature.stretch=0.5": ["at least 1"],
  "arithmetic.slack=0": ["digit more"],
  "arithmetic.slack=-1": ["negative"],
  "data.widths=(0,)": ["integers"],
  "data.widths=(4, 2)": ["2 is too narrow"],
  "data.buckets=(2,)": ["data.widths"],
  "data.short_share=1.5": ["[0, 1]"],
  "data.size=5": ["train.batch_size=32"],
  "hints=('carry',)": ["addition has none"],
  "mixing.kind='shaken'": ["weighted"],
  "seeds=()": ["seed"],
  "seeds=(1, 1)": ["once"],
  "seeds=('a',)": ["integers"],
  "seeds=(4294967296,)": ["integers"],
  "eval.samples=(0,)": ["integers"],
  "eval.test_sets=()": ["at least one"],
  "eval.test_sets=('x',)": ["eval.test_sets='x'", "unequal"],
  "eval.lengths=()": ["at least one"],
  "eval.lengths=(2.5,)": ["integers"],
  "eval.samples=(1, 2)": ["eval.lengths=(2,)"],
  "eval.checkpoint='newest'": ["last, best"],
  "calibration.quantity='logits'": ["weights, scores"],
  "calibration.directions=(0.5,)": ["integers"],
  "calibration.self_directions=()": ["integers"],
  "calibration.min_cells=2.0": ["[0, 1]"],
}


@pytest.mark.parametrize("assignment", VALUES)
def test_bad_value_is_refused_before_anything_is_written(assignment, tmp_path):
  line = refused("train", changed(assignment), tmp_path / "run")
  field = assignment.partition("=")[0]
  for name in [field, *VALUES[assignment]]:
    assert name in line
  assert not (tmp_path / "run").exists()


SORT = {
  ("hints=('carry',)",): ["successor", "minimum"],
  ("hints=('fill', 'fill')",): ["once"],
  ("mixing.weights=(1, 2)",): ["mixing.kind=weighted"],
  ("mixing.kind='weighted'", "mixing.weights=(-1,)"): ["above zero"],
  ("data.buckets=(6, 3)",): ["rise"],
  ("data.buckets=(3,)",): ["data.train_length=6"],
  ("data.width='fixed'",): ["not padded", "natural"],
  ("data.numbers='permutation'",): ["not padded", "lengths"],
  ("train.batch_size=1",): ["too few", "buckets"],
  ("sort.alphabet=1",): ["at least 2"],
  ("sort.repeat_share=2.0",): ["[0, 1]"],
  ("positions.kind='abacus'",): ["sort has none", "rope"],
  ("bias.windowed_encoder=True",): ["no encoder"],
  ("eval.test_sets=('repeats',)", "eval.repetitions=(9,)"): ["nothing to test"],
}


@pytest.mark.parametrize("assignments", SORT)
def test_what_a_task_cannot_have_is_refused(assignments, tmp_path):
  config = changed(*assignments, preset="sort")
  line = refused("train", config, tmp_path / "run")
  for name in [assignments[-1].partition("=")[0], *SORT[assignments]]:
    assert name in line
  assert not (tmp_path / "run").exists()


def test_widths_that_do_not_fit_are_refused(tmp_path):
  fixed = ("data.width='fixed'", "data.fixed_width=8", "eval.lengths=(2, 8)")
  line = refused("train", changed(*fixed), tmp_path / "run")
  assert "eval.lengths: 8 digits do not fit" in line and "W=8" in line
  assert "data.fixed_width" in line
  learned = ("positions.kind='learned'", "positions.cyclic_period=0")
  config = changed(*learned, "positions.table=9")
  line = refused("train", config, tmp_path / "run")
  assert "need 10 positions, but positions.table=9" in line
  config = changed(*learned, "positions.table=10", "eval.lengths=(20,)")
  line = refused("train", config, tmp_path / "run")
  assert "eval.lengths: 20 digits need" in line and "positions.table=10" in line
  assert not (tmp_path / "run").exists()


def test_config_without_a_field_is_refused(tmp_path):
  config = get_config()
  with config.unlocked():
    del config.train.weight_decay
  assert "train.weight_decay" in refused("train", config, tmp_path / "run")
  assert not (tmp_path / "run").exists()


# A bias from elsewhere, and what is wrong with it.
BIASES = {
  "leaks the future": {"self": np.zeros((1, 2, 9, 9))},
  "3 heads": {"cross": np.zeros((1, 3, 9, 9))},
  "5 layers": {"cross": np.zeros((5, 2, 9, 9))},
  "self is 9 x 9": {"self": np.triu(np.full((9, 9), -1e9), 1)[None, None]},
  "shape (2, 9, 9)": {"cross": np.zeros((2, 9, 9))},
  "holds NaN": {"cross": np.full((1, 2, 9, 9), np.nan)},
  "expected `self`": {"slef": np.zeros((1, 2, 9, 9))},
  "schema 1": {"schema": 1, "meta": "{}", "cross": np.zeros((1, 2, 9, 9))},
}


@pytest.mark.parametrize("words", BIASES)
def test_bias_that_does_not_fit_is_refused_before_training(words, tmp_path):
  file = tmp_path / "bias.npz"
  arrays = dict(BIASES[words])
  if words == "self is 9 x 9":  # fits training, but not the tests
    arrays["self"] = np.repeat(arrays["self"], 2, axis=1)
  np.savez(file, **arrays)
  config = changed("eval.lengths=(2, 20)")
  config.bias.update(kind="file", file=str(file))
  line = refused("train", config, tmp_path / "run")
  assert words in line
  assert not (tmp_path / "run").exists()


# The second stage of ABC has any field of the first.


def test_any_field_of_the_second_stage_can_be_set_and_reaches_it():
  flags = {
    "train.batch_size": 48,
    "train.schedule": "cosine",
    "model.norm": "post",
    "model.dense_bias": False,
    "positions.kind": "alibi",
    "positions.table": 99,
    "temperature.kind": "log_items",
    "bias.scale": 2.0,
    "data.train_length": 1,
    "data.widths": (7, 8),
  }
  words = [f"--config.retrain.{field}={flags[field]}" for field in flags]
  with command.parsed(f"{TINY}:successor,abc", *words) as (_, config):
    later = fields.retrain_config(config, (3,), "bias.npz")
  for field, value in flags.items():
    section, name = field.split(".")
    assert later[section][name] == value != config[section][name]
  assert later.seeds == (3,) and later.method == "abc"
  assert (later.bias.kind, later.bias.file) == ("file", "bias.npz")
  assert later.train.adam_b2 == config.train.adam_b2  # None is the first's
  experiment = build.build(fields.retrain_config(config, (3,), None))
  assert experiment.step_specs[0][0].parts[0].count == 48
  assert experiment.data[0].widths == (7, 8)
  assert experiment.model.config.norm == "post"
  assert experiment.model.config.temperature.kind == "log_items"


# Overrides are part of a method's name.


def method(*words) -> str:
  """What rows of a command's run are called."""
  with command.parsed(*words):
    config = main.chosen_config()
    experiment = build.build(config)
  model = types.SimpleNamespace(
    experiment=experiment, seed=0, step=1, stopped_at=-1
  )
  stage = workdir.Stage("train", config, (), 1)
  return evaluate.row_conditions(stage, model)["method"]


def test_overrides_show_in_the_method_of_rows():
  vanilla = "--config=configs/arithmetic.py:addition"
  assert method(vanilla) == "vanilla"
  words = ("--config.bias.kind=file", "--config.bias.file=a.npz")
  assert method(vanilla, *words) == "vanilla bias.file=a.npz bias.kind=file"
  words = ("--config.train.steps", "7", "--config.data.widths=(8, 9)")
  assert method(vanilla, *words) == "vanilla data.widths=(8,9) train.steps=7"
  assert "bias.allow_leak=True" in method(vanilla, "--config.bias.allow_leak")
  # Nor is a default by another name another method.
  assert method(vanilla, "--config.train.learning_rate=1e-3") == "vanilla"


def test_what_makes_no_other_method_does_not_show():
  words = (
    "--config.seeds=(0,1)",
    "--config.eval.lengths=(9,)",
    "--config.checkpoint.every=3",
    "--config.train.chunk=7",
    "--config.train.seed_axis=vmap",
    "--config.method=mine",
  )
  assert method("--config=configs/arithmetic.py:addition", *words) == "mine"


def test_overrides_of_a_workdir_stay_when_it_is_read(tmp_path):
  config = get_config()
  config.overrides = ("train.steps=7",)
  config.train.steps = 7
  path = tmp_path / "config.json"
  path.write_text(config.to_json_best_effort())
  read = method(f"--workdir={tmp_path}", "--config.eval.lengths=(1,)")
  assert read == "window_cpi train.steps=7"


def test_compiled_programs_are_kept_where_the_config_or_jax_says(tmp_path):
  name = "jax_compilation_cache_dir"
  before = jax.config.jax_compilation_cache_dir
  least = jax.config.jax_persistent_cache_min_compile_time_secs
  try:
    jax.config.update(name, None)
    main.set_compile_cache("")
    assert jax.config.jax_compilation_cache_dir is None
    main.set_compile_cache(str(tmp_path))
    kept = jax.config.jax_compilation_cache_dir
    assert kept.startswith(f"{tmp_path}/")  # one of each kind of CPU
    main.set_compile_cache(str(tmp_path / "other"))
    assert jax.config.jax_compilation_cache_dir == kept
  finally:
    jax.config.update(name, before)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least)
