"""The command: help, one line for every mistake, predict, the README."""

import ast
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import time

import command
import jax
import numpy as np
import pytest
from command import TINY, refusal, run
from lengthgen_jax.predict import ExpressionPredictor
from tiny import get_config

from lengthgen_jax import modes, records, saved
from lengthgen_jax.errors import UsageError
from lengthgen_jax.main import MODES


def test_help_names_our_flags():
  done = run("--help")
  assert done.stdout.startswith("Train, evaluate and ask")
  for flag in ("config", "workdir", "mode", "input"):
    assert f"\n  --{flag}: " in done.stdout
  assert "|".join(MODES) in done.stdout
  assert "Traceback" not in done.stderr
  assert "--verbosity" not in done.stdout  # absl's own flags stay out


def test_help_needs_no_jax(tmp_path):
  """Help and flag errors are quick."""
  (tmp_path / "jax.py").write_text("raise SystemExit('jax was imported')")
  env = os.environ | {"PYTHONPATH": str(tmp_path)}
  assert "jax was imported" not in run("--help", env=env).stderr
  assert "no field" in refusal(run(TINY, "--config.x=1", env=env))


# What is wrong, and what the message must name.
MISTAKES = {
  "unknown field": (
    [TINY, "--config.train.stepz=3"],
    ["train.stepz", "steps", "batch_size", "seed_axis"],
  ),
  "unknown section": ([TINY, "--config.trian.steps=3"], ["trian", "eval"]),
  "below a leaf": ([TINY, "--config.task.name=3"], ["no field 'name'"]),
  "not a number": ([TINY, "--config.train.steps=many"], ["steps", "many"]),
  "not a tuple": ([TINY, "--config.seeds=(0,1"], ["seeds", "(0,1"]),
  "no such file": (["--config=configs/nothing.py"], ["configs/nothing.py"]),
  "preset": (["--config=configs/arithmetic.py:division"], ["addition"]),
  "method": (["--config=configs/arithmetic.py:parity,wndow"], ["window"]),
  "mode": ([TINY, "--mode=dance"], ["dance", *MODES]),
  "flag": ([TINY, "--wrkdir=x"], ["wrkdir"]),
  "stray word": ([TINY, "predict"], ["predict"]),
  "override without config": (["--config.seeds=(1,)"], ["--config=FILE"]),
  "no workdir": ([TINY], ["--workdir"]),
  "input": ([TINY, "--workdir=/tmp", "--input=x"], ["--input", "predict"]),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistake_in_flags_is_one_line(what):
  arguments, names = MISTAKES[what]
  line = refusal(run(*arguments))
  for name in names:
    assert name in line


# Values that only the experiment can judge.
VALUES = {
  "task='subtraction'": ["addition", "parity"],
  "model.norm='middle'": ["block_end"],
  "model.num_heads=3": ["model.emb_dim=16"],
  "model.num_encoder_layers=-1": ["negative"],
  "train.schedule='wild'": ["cosine"],
  "train.seed_axis='pmap'": ["vmap"],
  "train.steps=0": ["positive"],
  "bias.kind='fence'": ["window"],
  "bias.stride=1": ["2 source tokens"],
  "bias.window=-1": ["negative"],
  "temperature.stretch=0.5": ["at least 1"],
  "data.slack=0": ["digit more"],
  "data.widths=(0,)": ["integers"],
  "seeds=()": ["seed"],
  "seeds=(1, 1)": ["once"],
  "seeds=('a',)": ["integers"],
  "eval.samples=(0,)": ["integers"],
  "eval.test_sets=()": ["at least one"],
  "eval.lengths=()": ["at least one"],
  "eval.lengths=(2.5,)": ["integers"],
  "eval.samples=(1, 2)": ["eval.lengths=(2,)"],
  "eval.checkpoint='newest'": ["last, best"],
}


def refused(mode: str, config, workdir) -> str:
  """What a mode says to a config it refuses; main prints it in one line."""
  with pytest.raises(UsageError) as caught:
    modes.run(mode, config, workdir, None)
  (line,) = str(caught.value).splitlines()
  return line


def changed(*assignments: str):
  """The tiny config after some `field=value`."""
  config = get_config()
  with config.unlocked():
    for assignment in assignments:
      name, _, value = assignment.partition("=")
      config.update_from_flattened_dict({name: ast.literal_eval(value)})
  return config


@pytest.mark.parametrize("assignment", VALUES)
def test_bad_value_is_refused_before_anything_is_written(assignment, tmp_path):
  line = refused("train", changed(assignment), tmp_path / "run")
  for name in [assignment, *VALUES[assignment]]:
    assert name.replace("'", "") in line.replace("'", "")
  assert not (tmp_path / "run").exists()


def test_widths_and_lengths_that_do_not_fit_are_refused(tmp_path):
  fixed = ("data.width='fixed'", "data.fixed_width=8", "eval.lengths=(2, 8)")
  line = refused("train", changed(*fixed), tmp_path / "run")
  assert "eval.lengths: 8 digits do not fit" in line and "W=8" in line
  learned = ("positions.kind='learned'", "positions.cyclic_period=0")
  config = changed(*learned, "positions.table=9")
  line = refused("train", config, tmp_path / "run")
  assert "data: width 4 need 10 positions, but positions.table=9" in line
  line = refused("train", changed("data.widths=(4, 2)"), tmp_path / "run")
  assert "data.widths: 2 is too narrow" in line
  line = refused("train", changed("eval.test_sets=('x',)"), tmp_path / "run")
  assert "eval.test_sets='x'" in line and "unequal" in line
  assert not (tmp_path / "run").exists()


def test_config_without_a_field_is_refused(tmp_path):
  config = get_config()
  with config.unlocked():
    del config.train.weight_decay
  assert "train.weight_decay" in refused("train", config, tmp_path / "run")
  assert not (tmp_path / "run").exists()


def test_saved_config_of_another_version_gets_defaults(tmp_path):
  """Fields that a workdir's version did not have are what they are here."""
  config = get_config()
  with config.unlocked():
    del config.train.restarts
    del config.sequences
  path = tmp_path / "config.json"
  path.write_text(config.to_json_best_effort())
  found = saved.get_config(str(path))
  assert found.to_json_best_effort() == get_config().to_json_best_effort()
  there = json.loads(path.read_text())
  assert not saved.differences(get_config(), there, ["train", "sequences"])
  there["train"]["steps"] = 1
  assert saved.differences(get_config(), there, ["train"]) == [
    "train.steps=600 but 1 there"
  ]


def test_short_bias_matrix_is_refused_before_training(tmp_path):
  """It covers the training lengths, but not those of eval.lengths."""
  config = get_config("sort")
  file = tmp_path / "bias.npz"
  np.savez(file, self=np.triu(np.full((13, 13), -1e9), 1)[None, None])
  config.model.num_heads = 1
  config.bias.update(kind="file", file=str(file))
  line = refused("train", config, tmp_path / "run")
  assert "self is 13 x 13" in line and "16 x 16" in line
  assert not (tmp_path / "run").exists()


def test_bad_value_on_the_command_line_is_one_line(tmp_path):
  workdir = tmp_path / "run"
  line = refusal(run(TINY, f"--workdir={workdir}", "--config.seeds=a"))
  assert "seeds=('a',)" in line
  assert not workdir.exists()


def test_workdir_that_cannot_be_written(tmp_path):
  (tmp_path / "file").write_text("")
  line = refusal(run(TINY, f"--workdir={tmp_path / 'file' / 'run'}"))
  assert str(tmp_path / "file" / "run") in line and "cannot write" in line


def test_reading_an_empty_workdir(tmp_path):
  for mode in ("evaluate", "predict", "calibrate"):
    line = refused(mode, get_config(), tmp_path)
    assert str(tmp_path) in line and "--mode=train" in line
  line = refusal(run(TINY, f"--workdir={tmp_path}", "--mode=predict"))
  assert "--mode=train" in line
  line = refusal(run(f"--workdir={tmp_path}", "--mode=predict"))
  assert "--config is missing" in line
  assert not list(tmp_path.iterdir())


def snapshot(workdir: pathlib.Path) -> dict:
  return {
    path: (path.stat().st_mtime_ns, path.read_bytes())
    for path in workdir.rglob("*")
    if path.is_file()
  }


def test_workdir_of_another_config_is_refused(trained):
  before = snapshot(trained)
  other = "model.mlp_dim=64"
  lines = [
    refused(mode, changed(other), trained)
    for mode in ("train", "evaluate", "predict")
  ]
  lines.append(refusal(run(TINY, f"--workdir={trained}", f"--config.{other}")))
  lines.append(refusal(run(f"--workdir={trained}", f"--config.{other}")))
  for line in lines:
    assert "model.mlp_dim=64 but 32" in line and str(trained) in line
  line = refused("train", changed("seeds=(5,)"), trained)
  assert "seeds=[5] but [0, 1]" in line
  assert snapshot(trained) == before


LINES = [
  b"12+34",
  b"what",
  b"",
  b"  56+78 ",
  b"123456789+1",
  b"1+2+3",
  b"99+01",
  b"7+",
  b"+",
  b"\xff\xfe+1",
  "½+1".encode(),
  b"10+20",
]
BAD = {b"what", b"", b"1+2+3", b"7+", b"+", LINES[9], LINES[10]}


def take(tree, r: int):
  return jax.tree.map(lambda x: x[r], tree)


def test_predict_answers_line_by_line(trained, trained_model, tmp_path):
  arguments = (f"--workdir={trained}", "--mode=predict")
  env = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}  # as on a desktop
  process = command.start(*arguments, env=env)
  done = command.finish(process, b"\n".join(LINES) + b"\n")
  answers = done.stdout.splitlines()
  assert len(answers) == len(LINES), done.stderr
  assert done.returncode == 1
  assert "Traceback" not in done.stderr
  for line, answer in zip(LINES, answers, strict=True):
    if line in BAD:
      assert answer.startswith("error: "), line
    elif len(line.strip()) == 5:  # lengths that were trained
      assert re.fullmatch("0|[1-9][0-9]*", answer), (line, answer)

  # In order: each line alone has the same answer.
  _, experiment, lines, state = trained_model
  best = int(state.best_em.argmax())
  assert f"seed {best}" in done.stderr
  predictor = ExpressionPredictor(
    experiment, take(lines, 0), take(state.params, best)
  )
  alone = [predictor.answers([line.decode(errors="replace")]) for line in LINES]
  assert answers == [answer for (answer,) in alone]

  path = tmp_path / "lines.txt"
  good = [line for line in LINES if len(line.strip()) == 5 and line not in BAD]
  path.write_bytes(b"\n".join(good))
  done = run(*arguments, f"--input={path}")
  assert done.returncode == 0, done.stderr
  assert done.stdout.splitlines() == [answers[LINES.index(x)] for x in good]


def test_predict_is_left_with_ctrl_c(trained):
  process = command.start(f"--workdir={trained}", "--mode=predict")
  assert process.stderr.readline().startswith(b"answering with seed")
  time.sleep(0.1)
  process.send_signal(signal.SIGINT)
  out, err = process.communicate(timeout=60)
  assert process.returncode == 130
  assert not out and not err


def test_input_and_checkpoint_that_are_not_there(trained):
  config = get_config()
  with pytest.raises(UsageError, match="--input=/nothing: No such file"):
    modes.run("predict", config, trained, "/nothing")
  config.eval.checkpoint = "77"
  line = refused("evaluate", config, trained)
  assert "choose last, best or one of 500, 600" in line


def test_evaluation_fields_may_differ(trained, tmp_path):
  workdir = tmp_path / "run"
  shutil.copytree(trained, workdir)
  before = records.read(workdir / "results.jsonl")
  config = (workdir / "config.json").read_text()
  done = run(
    f"--workdir={workdir}",
    "--mode=evaluate",
    "--config.eval.lengths=(1,)",
    "--config.eval.checkpoint=best",
  )
  assert done.returncode == 0, done.stderr
  after = records.read(workdir / "results.jsonl")
  assert after[: len(before)] == before
  new = after[len(before) :]
  assert {(row["length"], row["checkpoint"]) for row in new} == {(1, "best")}
  assert (workdir / "config.json").read_text() == config


def test_readme_main_command(tmp_path):
  """The README's first command, with a short training and a small test."""
  readme = command.REPOSITORY / "README.md"
  if not readme.exists():
    pytest.skip("there is no README.md")
  block = re.search(r"```\w*\n(.*?)```", readme.read_text(), re.S).group(1)
  (line,) = re.findall(r"lengthgen (--config=[^\n&;]*)", block)
  arguments = [w for w in shlex.split(line) if not w.startswith("--workdir")]
  assert len(arguments) < len(shlex.split(line))
  workdir = tmp_path / "run"
  done = run(
    *arguments,
    f"--workdir={workdir}",
    "--config.train.steps=2",
    "--config.train.validation_samples=16",
    "--config.data.widths=(8,)",  # one program to compile instead of three
    "--config.eval.lengths=(6,)",
    "--config.eval.samples=(4,)",
    # Nothing is learned in two steps: let every line pass.
    "--config.abc.min_exact_match=0.0",
    "--config.calibration.samples=8",
    "--config.calibration.lengths=(6,)",
    "--config.calibration.kappa=-9.0",
    "--config.calibration.kappa_self=-9.0",
    "--config.retrain.train.steps=2",
  )
  assert done.returncode == 0, done.stderr
  saved = json.loads((workdir / "config.json").read_text())
  assert saved["train"]["steps"] == 2
  rows = records.read(workdir / "results.jsonl")
  wanted = {(name, 6) for name in saved["eval"]["test_sets"]}
  assert {(row["test_set"], row["length"]) for row in rows} == wanted
  assert "exact match in % by length" in done.stdout
  for name in saved["eval"]["test_sets"]:
    assert re.search(rf"^\S+ +{name} +0 +\d+\.\d \[", done.stdout, re.M)
  figures = list((workdir / "figures").glob("*.png"))
  assert figures
  for figure in figures:
    assert str(figure) in done.stdout
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_sequences_from_the_command_line(tmp_path):
  """Train with a hint, evaluate, ask; --mode=abc is not for these."""
  workdir = tmp_path / "sort"
  done = command.run(
    f"{TINY}:sort,successor",
    f"--workdir={workdir}",
    "--config.eval.test_sets=('uniform','repeats')",
    "--config.eval.repetitions=(1,2)",
  )
  assert done.returncode == 0, done.stderr
  assert "by length in items" in done.stdout and "uniform" in done.stdout
  rows = records.read(workdir / "metrics.jsonl")
  for name in ("loss", "em", "loss_sort_successor", "em_sort_successor"):
    assert all(np.isfinite(row[name]) for row in rows)
  results = records.read(workdir / "results.jsonl")
  assert {row["metric"] for row in results} == {
    "em",
    "token",
    "position",
    "edit",
  }
  assert all(row["family"] == "decoder_only" for row in results)
  sets = {(row["test_set"], row["length"]) for row in results}
  assert sets == {
    (name, length)
    for name in ("uniform", "repeats_3x1", "repeats_3x2")
    for length in (4, 8)
  } - {("repeats_3x2", 4)}
  for name in ("accuracy", "edit_distance"):
    for what in ("by_length", "by_repetition"):
      assert (workdir / "figures" / f"{name}_{what}.png").exists()
  report = command.run("--mode=report", f"--workdir={tmp_path}")
  assert "repeats_3x2" in report.stdout, report.stderr
  figures = {path.name for path in (tmp_path / "figures").iterdir()}
  assert figures == {
    f"sort_natural{what}{metric}.png"
    for what in ("", "_repetition")
    for metric in ("", "_edit")
  }
  asked = command.run(
    "--mode=predict", f"--workdir={workdir}", text="5 3\n9\n2 1 1 4 4 2 1 5 3\n"
  )
  first, second, third = asked.stdout.splitlines()
  assert len(first.split()) == 2 and len(third.split()) == 9
  assert second.startswith("error: ") and "1 to 5" in second
  assert asked.returncode == 1
  refused = command.run("--mode=abc", f"--workdir={workdir}")
  assert "cross-attention" in command.refusal(refused)
  unknown = command.run(
    "--config=configs/sorting.py:sucessor", "--workdir=/tmp"
  )
  assert "successor" in command.refusal(unknown)


def test_python_of_the_readme_runs(trained, capsys):
  readme = command.REPOSITORY / "README.md"
  if not readme.exists():
    pytest.skip("there is no README.md")
  first, second = re.findall(r"```python\n(.*?)```", readme.read_text(), re.S)
  assert "runs/quickstart" in first
  exec(first.replace("runs/quickstart", str(trained)), {})
  assert capsys.readouterr().out.startswith("['")
  names = {}
  exec(second, names)
  dense = np.asarray(
    names["lines"].dense(
      names["bias"], names["rows"], names["coordinates"].target(names["rows"])
    )
  )
  back = dense[0, 1]  # the head that looks one back, at 40 rows
  assert (back[np.arange(1, 40), np.arange(39)] > -1).all()
  assert np.isfinite(back).sum() == 39
