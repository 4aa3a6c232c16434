"""--mode=predict, and lengthgen_jax.load, which answers the same."""

import os
import re
import signal
import time

import command
import numpy as np
import pytest
from command import inside, refusal

import lengthgen_jax
from lengthgen_jax.errors import UsageError

LINES = [
  b"12+34",
  b"what",
  b"",
  b"  56 + 78 ",
  b"123456789+1",
  b"1+2+3",
  b"99+01",
  b"7+",
  b"+",
  b"\xff\xfe+1",
  "½+1".encode(),
  b"1 2+\t34",
  b"1" * 500 + b"x",
]
GOOD = (0, 3, 4, 6, 11)


@pytest.fixture(scope="module")
def answered(trained):
  """What a process says to LINES."""
  env = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}  # as on a desktop
  process = command.start(f"--workdir={trained}", "--mode=predict", env=env)
  return command.finish(process, b"\n".join(LINES) + b"\n")


def test_every_line_has_one_answer_or_error(answered):
  answers = answered.stdout.splitlines()
  assert len(answers) == len(LINES), answered.stderr
  assert answered.returncode == 1
  assert "Traceback" not in answered.stderr
  for i, answer in enumerate(answers):
    if i not in GOOD:
      assert answer.startswith("error: "), LINES[i]
      assert "addition takes digits like 123+456" in answer
    elif i != 4:  # its length was not trained
      assert re.fullmatch("0|[1-9][0-9]*", answer), (LINES[i], answer)


def test_spaces_in_an_expression_are_ignored(answered):
  answers = answered.stdout.splitlines()
  assert answers[11] == answers[0]


def test_long_quotes_are_shortened(answered):
  last = answered.stdout.splitlines()[-1]
  assert "'x'" in last and "1...1" in last.replace("11", "1").replace("11", "1")
  assert len(last) < 150


def test_answers_do_not_depend_on_the_lines_beside(trained, answered):
  model = lengthgen_jax.load(trained)
  assert f"answering with seed {model.seed}, " in answered.stderr
  alone = []
  for line in LINES:
    (answer,) = model.answers([line.decode(errors="replace")])
    alone.append(answer)
  assert answered.stdout.splitlines() == alone


def test_a_file_is_answered_like_standard_input(trained, answered, tmp_path):
  path = tmp_path / "lines.txt"
  path.write_bytes(b"\n".join(LINES[i] for i in GOOD))
  arguments = (f"--workdir={trained}", "--mode=predict", f"--input={path}")
  done = inside(*arguments)
  answers = answered.stdout.splitlines()
  assert done.stdout.splitlines() == [answers[i] for i in GOOD]
  failed = any(answer.startswith("error") for answer in done.stdout)
  assert done.returncode == failed
  path.write_bytes(b"12+34\n")
  assert inside(*arguments).returncode == 0
  path.write_bytes(b"")
  done = inside(*arguments)
  assert (done.returncode, done.stdout) == (0, "")
  path.unlink()
  assert f"--input={path}: (No such file" in inside(*arguments).stderr


def test_ctrl_c_leaves_without_a_word(trained):
  process = command.start(f"--workdir={trained}", "--mode=predict")
  assert process.stderr.readline().startswith(b"answering with seed")
  time.sleep(0.1)
  process.send_signal(signal.SIGINT)
  out, err = process.communicate(timeout=60)
  assert process.returncode == 130
  assert not out and not err


def test_checkpoint_of_another_step_answers(trained):
  told = [
    inside(
      f"--workdir={trained}",
      "--mode=predict",
      f"--config.eval.checkpoint={checkpoint}",
      text="12+34\n",
    )
    for checkpoint in ("500", "600", "77")
  ]
  assert [f"step {n} " in done.stderr for n, done in zip((500, 600), told)]
  assert "choose last, best or one of 500, 600" in refusal(told[2])


# From Python.


def test_model_that_is_loaded_measures_as_the_command_did(
  trained, trained_models
):
  from lengthgen_jax.results import records

  rows = records.read(trained / "results.jsonl")
  exact = {row["seed"]: row for row in rows if row["metric"] == "em"}
  assert set(exact) == {0, 1}
  for seed, row in exact.items():
    model = lengthgen_jax.load(trained, seed=seed)
    assert model.seed == seed
    found = model.exact_match(row["length"], row["n"], row["test_set"])
    assert found == row["value"]
  best = max(trained_models, key=lambda model: model.em)
  assert lengthgen_jax.load(trained).seed == best.seed
  assert model.exact_match(2, 64, "unequal") != model.exact_match(2, 64)


def test_model_shows_its_attention_and_lines(trained):
  model = lengthgen_jax.load(trained)
  assert set(model.lines) == {"self", "cross"}
  batch, layers = model.attention("12+34")
  assert len(layers) == 1
  (rows,) = batch.target.shape[1:]
  for site, keys in (("self", rows), ("cross", batch.source.shape[1])):
    weights = layers[0][site]
    assert weights.shape == (2, rows, keys)
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
  behind = np.triu(np.ones((rows, rows), bool), 1)
  assert not layers[0]["self"][:, behind].any()


def test_loading_what_is_not_there_is_refused(trained, tmp_path):
  with pytest.raises(UsageError, match="nothing was trained there"):
    lengthgen_jax.load(tmp_path)
  with pytest.raises(UsageError, match=r"seeds \(0, 1\), none of 7"):
    lengthgen_jax.load(trained, seed=7)
  with pytest.raises(ValueError, match="takes digits"):
    lengthgen_jax.load(trained).attention("what")
