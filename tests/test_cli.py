"""The command: help, overrides, and one line for every mistake."""

import errno
import os
import subprocess
import sys

import command
import jax
import numpy as np
import pytest
import tiny
from command import REPOSITORY, TINY, changed, inside, refusal, refused
from tiny import get_config

import lengthgen_jax
from lengthgen_jax import compilation, main
from lengthgen_jax.config import build, default_config
from lengthgen_jax.errors import Interrupted
from lengthgen_jax.evaluation import trained
from lengthgen_jax.pipelines import evaluate, workdir
from lengthgen_jax.results import records


def test_help_names_our_flags_and_needs_no_jax(tmp_path):
  (tmp_path / "jax.py").write_text("raise SystemExit('jax was imported')")
  path = os.pathsep.join(map(str, (tmp_path, REPOSITORY)))
  done = command.run("--help", env=os.environ | {"PYTHONPATH": path})
  assert "lengthgen --config=configs/quickstart.py --mode=abc" in done.stdout
  for flag in ("config", "workdir", "model", "mode", "input", "export_to"):
    assert f"\n  --{flag}: " in done.stdout
  assert "|".join(main.MODES) in done.stdout.replace("\n    ", "")
  assert "Traceback" not in done.stderr
  assert "--verbosity" not in done.stdout  # absl's own flags stay out


# What is wrong, and what the message must name.
RUN = f"{TINY} --workdir=unused"
HOSTS = f"{RUN} --multihost"
TWO = f"{HOSTS} --processes=2"
MISTAKES = {
  f"{TINY} --config.train.stepz=3": ["train.stepz", "steps", "seed_axis"],
  f"{TINY} --config.train.steps=many": ["steps", "many"],
  f"{RUN} --config.train.steps=3000000000": ["train.steps=", "2^31"],
  f"{TINY} --config.eval.test_sets=(nines,)": ["(nines,)", "like ('a', 'b')"],
  f"{TINY} --config.data.fixed_width=8": ["fixed_width=8", "nothing here"],
  f"{TINY} --config.retrain.bias.kind=window": ["bias.kind", "calibration dec"],
  "--config=configs/nothing.py": ["configs/nothing.py"],
  f"{TINY} --workdir=gs://b/run": ["--workdir=gs://b/run", "launch/tpu_vm"],
  "--config=configs/arithmetic.py:division": ["addition"],
  "--config=configs/states.py:dyck,abc --workdir=x": ["choose --mode=abc"],
  "--config=configs/quickstart.py --workdir=x": ["choose --mode=abc"],
  "--config=configs/quickstart.py:x": ["quickstart.py:x: the file has no"],
  f"{TINY} --mode=dance": ["dance", *main.MODES],
  f"{TINY} --wrkdir=x": ["wrkdir"],
  f"{TINY} predict": ["predict"],
  "--config.seeds=(1,)": ["--config=FILE"],
  TINY: ["--workdir"],
  "--model=addition": ["addition is trained already"],
  f"{RUN} --input=x": ["--input", "predict"],
  f"{RUN} --process=0": ["--process are for --multihost"],
  f"{HOSTS} --process=0": ["go together: name all three"],
  f"{HOSTS} --mode=predict": ["--multihost is for --mode: train, abc"],
  f"{TWO} --coordinator=a:0 --process=0": ["=a:0: must be HOST:PORT"],
  f"{TWO} --coordinator=a:9 --process=2": ["--process=2: must be from 0 to 1"],
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistake_in_flags_is_one_line(words):
  line = refusal(inside(*words.split()))
  assert all(name in line for name in MISTAKES[words])


def test_a_workdir_whose_checkpoints_could_not_be_read_is_refused(tmp_path):
  folder = tmp_path / "lr[1]"
  folder.mkdir()
  tiny_file = f"--config={REPOSITORY / 'tests' / 'tiny.py'}"
  for run_folder, place in ((folder / "run", tmp_path), ("run", folder)):
    line = refusal(inside(tiny_file, f"--workdir={run_folder}", folder=place))
    assert line.startswith("lengthgen: --workdir: choose a path without [ ]")
  assert not list(folder.iterdir())
  records.write_text(folder / "config.json", get_config().to_json_best_effort())
  with command.refuses("load: choose a path without [ ]"):
    lengthgen_jax.load(folder)


# Of a config file of one's own; the names that the message has.
TYPOS = {
  "config.retrain.train.step = 3": ["retrain.train.step", "steps"],
  "config = None": ["get_config()", "None"],
  "config.train.steps = 'many'": ["TypeError", "many"],
}


@pytest.mark.parametrize("line", TYPOS)
def test_mistake_in_a_config_file_writes_nothing(line, tmp_path):
  path = tmp_path / "mine.py"
  path.write_text(
    "from lengthgen_jax.config import default_config\n"
    f"def get_config():\n  config = default_config()\n  {line}\n"
    "  return config\n"
  )
  flags = f"--config={path}", f"--workdir={tmp_path / 'run'}"
  line_printed = refusal(inside(*flags))
  for name in [str(path), *TYPOS[line]]:
    assert name in line_printed
  assert not (tmp_path / "run").exists()


def test_the_config_of_both_stages_is_printed():
  words = "--config.train.steps=7", "--config.retrain.train.steps=9"
  first, second = inside(TINY, *words, "--mode=config").stdout.split("\n\n")
  assert "train.steps=7" in first.splitlines()
  assert "train.steps=9" in second.splitlines()
  assert second.startswith("The second stage")
  assert "train.batch_size" not in second and "sort.alphabet" not in first


def test_of_a_field_that_is_set_again_the_last_value_counts():
  words = [f"--config.{field}" for field in ("seeds=(0,)", "seeds=(1,)")]
  words += ["--config.eval.samples", "(8,)", "--config.eval.samples", "(9, 9)"]
  words += ["--config.train.steps=5", "-config.train.steps", "6"]
  words += ["--config.bias.closed", "-5.0"]
  words += ["--config.bias.allow_leak", "--noconfig.bias.allow_leak"]
  with command.parsed(TINY, *words, "--config.seeds=(2,)") as (_, config):
    assert config.seeds == (2,)
    assert config.eval.samples == (9, 9)
    assert config.train.steps == 6
    assert config.bias.closed == -5.0
    assert config.bias.allow_leak is False


def test_a_device_that_is_not_there_is_one_line():
  env = os.environ | {"JAX_PLATFORMS": "tpu"}
  done = command.run("--mode=predict", "--model=addition", env=env)
  line = refusal(done)
  assert done.returncode == 1
  assert "JAX_PLATFORMS=tpu: no such device here" in line


FULL = "No space left on device"
ENDS = [
  (OSError(errno.ENOSPC, FULL, "run/metrics.jsonl"), 1, f"{FULL}: free some"),
  (Interrupted("stopped at step 40 of 60, saved"), 143, "at step 40 of 60"),
  (KeyboardInterrupt(), 130, ""),
  (
    RuntimeError("RESOURCE_EXHAUSTED: 9.\nmore"),
    1,
    "9. Lower train.batch_size",
  ),
]


@pytest.mark.parametrize(("error", "code", "words"), ENDS)
def test_a_full_disk_and_a_stop_are_one_line(error, code, words, monkeypatch):
  """A stopped command has the exit code of SIGTERM; Ctrl-C is silent."""

  def fail(*_):
    raise error

  monkeypatch.setattr(main, "mode_function", lambda mode: fail)
  done = inside(TINY, "--workdir=run")
  assert done.returncode == code
  assert words in done.stderr and done.stderr.count("\n") == bool(words)


def test_the_package_runs_as_a_module_where_few_signs_can_be_shown():
  env = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0"}
  env["PYTHONCOERCECLOCALE"] = "0"  # standard output is of ASCII alone
  words = [sys.executable, "-m", "lengthgen_jax", "--mode=models"]
  done = subprocess.run(words, env=env, cwd=REPOSITORY, capture_output=True)
  assert done.returncode == 0, done.stderr
  lines = done.stdout.decode("ascii").splitlines()
  assert any("| addition |" in x and "| ? |" in x for x in lines)


# Of a preset or a task, values that only the experiment can judge; of several
# fields the last one is named.
ADDITION = "addition,window_cpi"
FIXED = ("data.width='fixed'", "data.fixed_width=8", "eval.lengths=(2, 8)")
REPEATS = ("eval.repetitions=(9,)", "eval.test_sets=('repeats',)")
REFUSED = [
  (ADDITION, ("task='subtraction'",), ["addition", "parity"]),
  (ADDITION, ("model.dropout_rate=1.0",), ["[0, 1)"]),
  (ADDITION, ("train.learning_rate=1e999",), ["learning_rate=inf", "finite"]),
  (ADDITION, ("arithmetic.slack=0",), ["digit more"]),
  (ADDITION, ("data.short_longest=1",), ["every length in turn"]),
  (ADDITION, ("data.size=5",), ["train.batch_size=32"]),
  (ADDITION, ("train.steps=None",), ["train.steps=None", "have a value"]),
  (ADDITION, ("mesh=(3, 1)",), ["(3, 1): 3 does not divide the 2 seeds"]),
  (ADDITION, ("mesh=(1, 5)",), ["5 does not divide train.batch_size=32"]),
  (ADDITION, ("mesh=(2, 4)",), ["8 does not divide the 1 devices"]),
  (ADDITION, ("mesh=(0, 1)",), ["must be integers from 1 on"]),
  (ADDITION, ("seeds=(1, 1)",), ["once"]),
  (ADDITION, ("seeds=('a',)",), ["integers"]),
  (ADDITION, ("eval.test_sets=('x',)",), ["eval.test_sets='x'", "unequal"]),
  (ADDITION, ("eval.samples=(1, 2)",), ["eval.lengths=(2,)"]),
  (ADDITION, ("eval.checkpoint='newest'",), ["last, best"]),
  (ADDITION, ("eval.frontier_samples=298",), ["299"]),
  (ADDITION, FIXED, ["8 digits do not fit", "W=8"]),
  ("sort", ("hints=('carry',)",), ["successor", "minimum"]),
  ("sort", ("data.buckets=(6, 3)",), ["rise"]),
  ("sort", ("data.width='fixed'",), ["not padded", "natural"]),
  ("sort", ("train.batch_size=1",), ["too few", "buckets"]),
  ("sort", ("positions.kind='abacus'",), ["sort has none", "rope"]),
  ("sort", REPEATS, ["repeats has nothing to test"]),
  ("multiply_long", ("eval.lengths=(20000,)",), ["20000 rows of 20001 cells"]),
  ("modular", ("modular.p=1",), ["a modulus must be at least 2"]),
  ("permutations", ("permutations.group='S4'",), ["choose one of S3, S5"]),
  ("dyck", ("dyck.brackets='('",), ["must be pairs, like '()'"]),
]


@pytest.mark.parametrize(("preset", "assignments", "names"), REFUSED)
def test_bad_value_writes_nothing(preset, assignments, names, tmp_path):
  is_tiny = preset in (ADDITION, "sort")
  get_config = tiny.get_config if is_tiny else default_config
  config = changed(*assignments, preset=preset, get_config=get_config)
  line = refused("train", config, tmp_path / "run")
  for name in [assignments[-1].partition("=")[0], *names]:
    assert name in line
  assert not (tmp_path / "run").exists()


def test_bias_that_does_not_fit_is_refused_before_training(tmp_path):
  config = changed("eval.lengths=(2, 20)")
  config.bias.update(kind="file", file=str(tmp_path / "bias.npz"))
  for words, matrix in (
    ("leaks the future", np.zeros((1, 2, 9, 9))),
    ("self is 9 x 9", np.triu(np.full((1, 2, 9, 9), -1e9), 1)),  # of tests
  ):
    np.savez(tmp_path / "bias.npz", self=matrix)
    assert words in refused("train", config, tmp_path / "run")
  assert not (tmp_path / "run").exists()


# Overrides are part of a method's name.


def method(*words) -> str:
  """What rows of a command's run are called."""
  with command.parsed(*words) as (_, config):
    experiment = build.build(config)
  model = trained.Model(experiment, {}, {})
  stage = workdir.Stage("train", config, None, 1)
  return evaluate.row_conditions(stage, model)["method"]


def test_overrides_show_in_the_method_of_rows():
  vanilla = "--config=configs/arithmetic.py:addition"
  assert method(vanilla) == "vanilla"
  words = ("--config.bias.kind=file", "--config.bias.file=a.npz")
  assert method(vanilla, *words) == "vanilla bias.file=a.npz bias.kind=file"
  words = ("--config.train.steps", "7", "--config.eval.lengths=(8, 9)")
  assert method(vanilla, *words) == "vanilla train.steps=7"
  assert "bias.allow_leak=True" in method(vanilla, "--config.bias.allow_leak")
  # Nor is a default by another name another method.
  assert method(vanilla, "--config.train.learning_rate=3e-2") == "vanilla"


def test_compiled_programs_are_kept_where_the_config_or_jax_says(tmp_path):
  name = "jax_compilation_cache_dir"
  before = jax.config.jax_compilation_cache_dir
  least = jax.config.jax_persistent_cache_min_compile_time_secs
  try:
    jax.config.update(name, None)
    compilation.set_cache("")
    assert jax.config.jax_compilation_cache_dir is None
    compilation.set_cache(str(tmp_path))
    folder = jax.config.jax_compilation_cache_dir
    assert folder == str(tmp_path)
    compilation.set_cache(str(tmp_path / "other"))
    assert jax.config.jax_compilation_cache_dir == folder
  finally:
    jax.config.update(name, before)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least)
