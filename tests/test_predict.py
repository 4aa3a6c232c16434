"""A trained workdir, asked and loaded: an answer or an error for every line."""

import re

import numpy as np
import pytest
import untrained
from command import inside, refuses

import lengthgen_jax
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.results import records

LINES = b"12+34|what||  56 + 78 |123456789+1|1+2+3|99+01|7+|+".split(b"|")
LINES += [b"\xff\xfe+1", "½+1".encode(), b"1 2+\t34", b"1" * 500 + b"x"]
GOOD = (0, 3, 4, 6, 11)


@pytest.fixture(scope="module")
def predicted(trained):
  """A finished command that read LINES."""
  text = b"\n".join(LINES).decode("utf-8", "surrogateescape") + "\n"
  return inside(f"--workdir={trained}", "--mode=predict", text=text)


def test_every_line_has_one_answer_or_error(predicted):
  answers = predicted.stdout.splitlines()
  assert len(answers) == len(LINES), predicted.stderr
  assert predicted.returncode == 1
  assert "Traceback" not in predicted.stderr
  for i, answer in enumerate(answers):
    if i not in GOOD:
      assert answer.startswith("error: "), LINES[i]
      assert "addition takes digits like 123+456" in answer
    elif i != 4:  # its length was not trained
      assert re.fullmatch("0|[1-9][0-9]*", answer), (LINES[i], answer)
  assert answers[11] == answers[0]  # spaces in an expression are ignored
  # Long quotes are shortened.
  assert "'x'" in answers[-1] and "1...1" in answers[-1]
  assert len(answers[-1]) < 150


def test_answers_do_not_depend_on_the_lines_beside(trained, predicted):
  model = lengthgen_jax.load(trained).model
  assert f"answering with seed {model.seed}, " in predicted.stderr
  one_by_one = [
    model.answers([line.decode(errors="replace")])[0] for line in LINES
  ]
  assert predicted.stdout.splitlines() == one_by_one


def test_a_file_is_answered_too(trained, predicted, tmp_path, monkeypatch):
  """Also one that begins with a mark of its byte order; a tilde is the home
  folder."""
  monkeypatch.setenv("HOME", str(tmp_path))
  (tmp_path / "run").symlink_to(trained)
  path = tmp_path / "lines.txt"
  arguments = ("--workdir=~/run", "--mode=predict", "--input=~/lines.txt")
  path.write_bytes(b"\xef\xbb\xbf" + b"\n".join(LINES[i] for i in GOOD))
  done = inside(*arguments)
  answers = predicted.stdout.splitlines()
  assert done.stdout.splitlines() == [answers[i] for i in GOOD]
  assert done.returncode == ("error: " in done.stdout)
  path.write_bytes(b"")
  done = inside(*arguments)
  assert (done.returncode, done.stdout) == (0, "")
  path.unlink()
  assert (
    "--input=~/lines.txt: cannot be read (No such file"
    in inside(*arguments).stderr
  )
  assert lengthgen_jax.load("~/run").predict("12+34") == answers[0]


# lengthgen_jax.load.


def test_loaded_model_measures_as_the_command_did(trained, trained_models):
  rows = records.read(trained / "results.jsonl")
  exact = {row["seed"]: row for row in rows if row["metric"] == "em"}
  assert set(exact) == {0, 1}
  for seed, row in exact.items():
    model = lengthgen_jax.load(trained, seed=seed).model
    assert model.seed == seed
    args = row["length"], row["n"], row["test_set"]
    assert row["value"] == model.exact_match(*args)
  best = max(trained_models, key=lambda model: model.em)
  assert lengthgen_jax.load(trained).model.seed == best.seed
  assert model.exact_match(2, 64, "unequal") != model.exact_match(2, 64)
  assert lengthgen_jax.load("multiply_long").model.exact_match(3, 8) == 1


def test_attention_of_a_loaded_model_sums_to_one(trained):
  model = lengthgen_jax.load(trained).model
  assert set(model.scaffold) == {"self", "cross"}
  first, *_, last = model.lines
  assert first.startswith(("self layer 0 head 0: ", "cross layer 0 head 0: "))
  assert " = " in last and len(repr(model)) < 100
  batch, (layer,) = model.attention("12+34")
  rows, sources = batch.target.shape[1], batch.source.shape[1]
  shapes = {"self": (2, rows, rows), "cross": (2, rows, sources)}
  assert {site: weights.shape for site, weights in layer.items()} == shapes
  for weights in layer.values():
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)


def test_loading_what_does_not_exist_is_refused(trained, tmp_path):
  with refuses("nothing was trained there"):
    lengthgen_jax.load(tmp_path)
  with refuses("has 0, 1"):
    lengthgen_jax.load(trained, seed=7)
  with pytest.raises(ValueError, match="takes digits"):
    lengthgen_jax.load(trained).model.attention("what")


CALLS = {
  "exact_match(2.5)": "length=2.5: must be a whole number from 1 on",
  "exact_match(2, test_set='foo')": "'foo': choose one of equal, unequal",
  "exact_match(2, test_set='chain')": "arguments=(): must be (carries) for",
  "answers(['1+2', None])": "None: inputs are strings, like '123+456'",
  "without_head(1, 'self', 0)": "layer=1: choose one of 0",
}


@pytest.mark.parametrize(("call", "words"), CALLS.items())
def test_what_a_model_cannot_do_is_a_line(trained_models, call, words):
  with pytest.raises(ValueError) as caught:
    eval(f"model.{call}", {"model": trained_models[0]})
  (line,) = str(caught.value).splitlines()
  assert words in line


def test_a_text_that_does_not_fit_is_refused():
  fixed = {"data.width": "fixed", "data.fixed_width": 8}
  experiment = untrained.experiment(fields=fixed)
  model = Model(experiment, {}, untrained.params(experiment))
  assert model.text_batch("1234567+1").source.shape[1] > 8
  with refuses("at most 7"):
    model.attention("12345678+1")
