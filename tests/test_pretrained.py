"""Models as files: those that come with the package, and those exported."""

import dataclasses
import json
import shutil

import checker_fuzz
import command
import jax
import numpy as np
import pytest
import untrained
from command import TINY, contents, inside, refusal, refuses

import lengthgen_jax
from lengthgen_jax.attention.biases.scaffold import SiteMatrix
from lengthgen_jax.pipelines import export, models, workdir
from lengthgen_jax.pretrained import files
from lengthgen_jax.results import records

SHIPPED = files.names()
# Inputs and answers of models of every kind, of any length.
QUESTIONS = {
  "addition_decoder_only": (f"{'9' * 30}+1", f"1{'0' * 30}"),
  "turing": ("0 0 A0 0*6", "C1 0 1 1 (not halted)"),
  "multiply_long": ("99999*9999", "999890001"),
  "sort": ("5 3 9 3", "3 3 5 9"),
  "insertion_sort": ("5 3 32 3 1*4", "1 3 3 5"),
}


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
  """The path, FOLDER/NAME, of a tiny model that one command has exported."""
  path = tmp_path_factory.mktemp("exported") / "deep" / "tiny"
  flags = "--mode=export", f"--export_to={path}", "--seed=1"
  completed = command.succeeds(f"--workdir={trained}", *flags)
  assert "seed 1, step" in completed.stdout
  return path


@pytest.fixture
def copied(exported, tmp_path):
  """A copy of the exported model that a test may change."""
  for end in (".npz", ".json"):
    shutil.copy(exported.with_suffix(end), tmp_path)
  return tmp_path / "tiny"


def rewrite(path, change) -> None:
  """Changes the arrays, and their sha256 in the card."""
  with np.load(path.with_suffix(".npz")) as file:
    arrays = dict(file)
  change(arrays)
  card = json.loads(path.with_suffix(".json").read_text())
  checker_fuzz.write(path.with_suffix(".npz"), arrays, card)


# Models that come with the package.


@pytest.mark.parametrize("name", SHIPPED)
def test_the_card_of_a_model_is_of_its_arrays(name):
  card, arrays = files.read(name)
  params = [x for key, x in arrays.items() if key.startswith("params/")]
  assert card["name"] == name and card["task"] == card["config"]["task"]
  assert card["parameters"] == sum(x.size for x in params)
  assert {x.dtype for x in params} == {np.dtype(np.float32)}
  assert card["bytes"] == (files.FOLDER / f"{name}.npz").stat().st_size
  assert len(card["data_sheet"]["commit"]) == 40  # all code was committed
  if card["certificate"]:
    assert card["certificate"]["outcome"] == 1


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_model_of_the_package_answers(name):
  text, answer = QUESTIONS[name]
  loaded = lengthgen_jax.load(name)
  said, error = loaded.predict([text, "?"])
  assert said == answer and error.startswith("error: ")


def test_the_list_of_models_needs_no_workdir():
  rows = command.succeeds("--mode=models").stdout.splitlines()[2:]
  assert [row.split(" | ")[0] for row in rows] == [f"| {x}" for x in SHIPPED]
  proofs = {name: "∀" in row for name, row in zip(SHIPPED, rows, strict=True)}
  assert proofs["parity"] and not proofs["sort"]


# Exporting.


def test_an_export_is_one_seed_of_the_workdir(exported, trained):
  both = (lengthgen_jax.load(x, seed=1) for x in (exported, trained))
  loaded, original = both
  for name in ("params", "scaffold"):
    pair = (getattr(x.model, name) for x in (loaded, original))
    jax.tree.map(np.testing.assert_array_equal, *pair)
  assert loaded.config.seeds == (1,) and loaded.model.seed == 1
  assert loaded.model.step == original.model.step
  texts = ["12+34", "9+9", "what"]
  assert loaded.predict(texts) == original.predict(texts)


def test_the_data_sheet_says_what_was_measured(exported, trained):
  sheet = lengthgen_jax.load(exported).data_sheet
  origin = json.loads((trained / "origin.json").read_text())
  assert origin["command"][0] == TINY
  assert {name: sheet[name] for name in origin} == origin
  rows = records.read(trained / "results.jsonl")
  exact = [x for x in rows if x["metric"] == "em" and x["seed"] == 1]
  tests = [(test["n"], test["exact_match"]) for test in sheet["tests"]]
  assert tests == [(x["n"], x["value"]) for x in exact]


def test_the_seed_with_the_largest_margin_is_chosen(trained_models, capsys):
  first, second = trained_models
  proof = lambda value, margin: {"outcome": value, "margin": margin}
  choose = lambda *args: export.choose(trained_models, *args)
  assert choose({0: proof(1, 2.0), 1: proof(1, 3.0)}, None) is second
  assert choose({0: proof(1, 2.0), 1: proof(0, 3.0)}, None) is first
  assert choose({0: proof(1, 2.0)}, 1) is second
  assert not capsys.readouterr().err
  assert choose({}, None).em == max(model.em for model in trained_models)
  assert "no seed is proved" in capsys.readouterr().err
  with refuses("--seed=7", "0, 1"):
    choose({}, 7)


def test_output_heads_of_hints_are_not_exported():
  config = untrained.config("sort", "decoder_only", {"hints": ("fill",)})
  params = untrained.params(untrained.build(config))
  idle = "logits_dense_sort_fill"
  assert idle in params
  alone = export.config_of(config, 0)
  assert alone.hints == () and alone.bias.kind == "none"
  kept = export.used_params(params, untrained.build(alone))
  assert set(params) - set(kept) == {idle}


def test_what_cannot_be_exported_is_refused(trained_models, trained, tmp_path):
  model = trained_models[0]
  doubled = jax.tree.map(lambda x: np.asarray(x, np.float64), model.params)
  with refuses("model.dtype", "float64"):
    export.used_params(doubled, model.experiment)
  matrix = SiteMatrix(np.zeros((1, 2, 4, 4), np.float32))
  with refuses("self is a matrix"):
    export.bias_arrays(dataclasses.replace(model, scaffold={"self": matrix}))
  flags = f"--workdir={trained}", "--mode=export"
  assert "--export_to is missing" in refusal(inside(*flags))
  for target in (tmp_path, tmp_path / "model.npz"):
    line = refusal(inside(*flags, f"--export_to={target}"))
    assert "end with the name of the model" in line
  line = refusal(inside(f"--workdir={trained}", "--mode=predict", "--seed=1"))
  assert "--seed is for --mode=export" in line


# --model in place of --workdir.


def test_a_model_replaces_a_workdir(exported, no_figures, tmp_path):
  before = contents(exported.parent) | contents(files.FOLDER)
  flag = f"--model={exported}"
  line = {"text": "12+34\n", "folder": tmp_path}
  completed = command.succeeds(flag, "--mode=predict", **line)
  answer = lengthgen_jax.load(exported).predict("12+34")
  assert completed.stdout.strip() == answer
  assert not list(tmp_path.iterdir())  # nothing is written to answer
  flags = "--config.eval.lengths=(1,)", "--config.eval.samples=(16,)"
  command.succeeds(flag, "--mode=evaluate", *flags, folder=tmp_path)
  rows = records.read(tmp_path / "tiny" / "results.jsonl")
  found = {(row["length"], row["seed"], row["stage"]) for row in rows}
  assert found == {(1, 1, "train")}
  probe = "--config.probe.only=('intact',)", "--config.probe.figures=()"
  command.succeeds(flag, "--mode=probe", *probe, folder=tmp_path)
  command.succeeds(flag, "--mode=report", folder=tmp_path)
  written = {path.name for path in (tmp_path / "tiny").iterdir()}
  assert {"probes.jsonl", "report.html", "report.tex"} <= written
  # The folder of its results can be passed as --workdir afterwards.
  command.succeeds("--mode=predict", "--workdir=tiny", **line)
  assert before == contents(exported.parent) | contents(files.FOLDER)
  # Even if its config is of another version it can be reported.
  saved = tmp_path / "tiny" / "config.json"
  saved.write_text(saved.read_text().replace('"compile_cache"', '"old"'))
  command.succeeds("--mode=report", "--workdir=tiny", folder=tmp_path)


def test_a_model_and_another_run_are_not_mixed(exported, trained, tmp_path):
  flag = f"--model={exported}"
  line = refusal(inside(flag, f"--workdir={trained}", "--mode=evaluate"))
  assert str(trained) in line and "was trained there" in line
  line = refusal(inside(flag, TINY, "--mode=predict"))
  assert "leave --config out" in line
  words = flag, "--mode=evaluate"
  other = "--config.model.mlp_dim=64"
  line = refusal(inside(*words, other, folder=tmp_path))
  assert "model.mlp_dim=64 but 32 there" in line
  assert not (tmp_path / "tiny" / "results.jsonl").exists()
  (tmp_path / "other").mkdir()
  (tmp_path / "other" / "thesis.txt").write_text("all of it")
  line = refusal(inside(*words, f"--workdir={tmp_path / 'other'}"))
  assert "is not empty" in line
  config = workdir.files.saved_config(tmp_path / "tiny")
  line = refusal(inside(TINY, f"--workdir={tmp_path / 'tiny'}"))
  assert "holds results of --model=" in line and config.pretrained in line


# Files that are damaged, or of another model.


def test_an_unknown_name_lists_all_models(tmp_path):
  line = refusal(inside("--model=subtraction", "--mode=predict"))
  assert "--model=subtraction" in line
  assert ", ".join(SHIPPED) in line
  with refuses("nothing was trained there", *SHIPPED):
    lengthgen_jax.load("subtraction")
  line = refusal(inside(f"--model={tmp_path}/tiny", "--mode=predict"))
  assert f"no file {tmp_path}/tiny.json" in line
  assert "--model is empty" in refusal(inside("--model=", "--mode=predict"))


def test_damaged_arrays_are_refused(copied):
  archive = copied.with_suffix(".npz")
  content = bytearray(archive.read_bytes())
  content[len(content) // 2] ^= 1
  archive.write_bytes(content)
  line = refusal(inside(f"--model={copied}", "--mode=predict"))
  assert str(archive) in line and "sha256" in line
  archive.unlink()
  with refuses(str(archive), "cannot be read"):
    lengthgen_jax.load(copied)


def first_kernel(arrays: dict) -> str:
  return next(name for name in arrays if name.endswith("query/kernel"))


def edited(name, function):
  """A change of an array, or of the first kernel if the name is empty."""

  def change(arrays):
    key = name or first_kernel(arrays)
    arrays[key] = function(arrays.get(key))

  return change


CHANGES = {
  "float32[2, 2]; lacks": edited("", lambda _: np.ones((2, 2), np.float32)),
  "no such array": edited("lines/x", lambda _: np.ones(3)),
  "not float32": edited("", lambda x: x.astype("f8")),
  # numpy would broadcast it.
  "lines/self_value: is float32": edited(
    "lines/self_value", lambda x: x[:, :, :1]
  ),
  "too large a number": edited("lines/self_intercept", lambda x: x + (1 << 30)),
  "not finite": edited("", lambda x: x * np.float32(np.nan)),
}


@pytest.mark.parametrize(("message", "change"), CHANGES.items())
def test_arrays_of_another_form_or_model_are_refused(message, change, copied):
  rewrite(copied, change)
  with refuses(message):
    lengthgen_jax.load(copied)


def test_a_certificate_of_another_model_is_none(tmp_path):
  """A damaged model beside the card of a proved one."""
  path = tmp_path / "parity"
  for end in (".npz", ".json"):
    shutil.copy((files.FOLDER / "parity").with_suffix(end), tmp_path)
  card, _ = files.read(str(path))
  assert models.proof(card) == "∀"
  rewrite(path, lambda x: x[first_kernel(x)].fill(0))
  assert lengthgen_jax.load(path).certificate == files.OTHER_MODEL
  card, _ = files.read(str(path))
  line = models.table([card]).splitlines()[-1]
  assert "∀" not in line and "certificate is of another model" in line


NO_CARDS = {
  "[]": "format version None",
  "{": "cannot be read",
  '{"format": 2}': "has no name",
  '{"format": 1}': "format version 1; this package reads 2",
}


@pytest.mark.parametrize(("text", "words"), NO_CARDS.items())
def test_a_file_that_is_no_card_is_refused(text, words, copied):
  copied.with_suffix(".json").write_text(text)
  with refuses(f"{copied}.json", words):
    lengthgen_jax.load(copied)
