"""--mode=predict: an answer or an error for every line."""

import os
import re
import signal
import time

import command
import pytest
from command import inside, refusal

import lengthgen_jax

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
def from_items(trained):
  """What a process says to LINES."""
  env = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}  # as on a desktop
  process = command.start(f"--workdir={trained}", "--mode=predict", env=env)
  return command.finish(process, b"\n".join(LINES) + b"\n")


def test_every_line_has_one_answer_or_error(from_items):
  answers = from_items.stdout.splitlines()
  assert len(answers) == len(LINES), from_items.stderr
  assert from_items.returncode == 1
  assert "Traceback" not in from_items.stderr
  for i, answer in enumerate(answers):
    if i not in GOOD:
      assert answer.startswith("error: "), LINES[i]
      assert "addition takes digits like 123+456" in answer
    elif i != 4:  # its length was not trained
      assert re.fullmatch("0|[1-9][0-9]*", answer), (LINES[i], answer)


def test_spaces_in_an_expression_are_ignored(from_items):
  answers = from_items.stdout.splitlines()
  assert answers[11] == answers[0]


def test_long_quotes_are_shortened(from_items):
  last = from_items.stdout.splitlines()[-1]
  assert "'x'" in last and "1...1" in last and len(last) < 150


def test_answers_do_not_depend_on_the_lines_beside(trained, from_items):
  model = lengthgen_jax.load(trained)
  assert f"answering with seed {model.seed}, " in from_items.stderr
  alone = []
  for line in LINES:
    (answer,) = model.answers([line.decode(errors="replace")])
    alone.append(answer)
  assert from_items.stdout.splitlines() == alone


def test_a_file_is_answered_like_standard_input(trained, from_items, tmp_path):
  path = tmp_path / "lines.txt"
  path.write_bytes(b"\n".join(LINES[i] for i in GOOD))
  arguments = (f"--workdir={trained}", "--mode=predict", f"--input={path}")
  done = inside(*arguments)
  answers = from_items.stdout.splitlines()
  assert done.stdout.splitlines() == [answers[i] for i in GOOD]
  assert done.returncode == ("error: " in done.stdout)
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
  assert "step 500 " in told[0].stderr and "step 600 " in told[1].stderr
  assert "choose last, best or one of 500, 600" in refusal(told[2])
