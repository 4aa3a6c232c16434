"""What the README and docs/ show can be typed."""

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
from command import REPOSITORY, parsed

from lengthgen_jax.config import build, default_config
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import abc

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
TEXT = "\n".join(page.read_text() for page in PAGES)
WORKDIR = "runs/quickstart"  # of the examples that read a trained workdir


def blocks(language: str, text: str = TEXT) -> list[str]:
  return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def commands(script: str, text: str = TEXT) -> list[list[str]]:
  """The words after `script` of every shell command of a text."""
  found = []
  for block in blocks("bash", text):
    text = block.replace("\\\n", " ")
    for line in text.splitlines():
      lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
      lexer.whitespace_split = True
      part = []
      for word in [*lexer, ";"]:
        if set(word) <= set("|&;"):
          if script in part:
            found.append(part[part.index(script) + 1 :])
          part = []
        else:
          part.append(word)
  return found


def check_command(words: list[str]) -> None:
  """A command line parses, and its config builds where one is named."""
  assert any(word.startswith("--workdir=") for word in words)
  with parsed(*words) as (mode, config):
    if mode in ("train", "abc"):
      build.build(config)
    if mode == "abc":
      abc.check_config(config)
    named = any(word.startswith("--config=") for word in words)
    # A clone in which the pages were followed has the workdir's own config.
    assert config is not None if named else mode not in ("train", "abc")


# (name, text) of the files that the pages add to the package, or add lines to.
FILES = re.findall(
  r"`(lengthgen_jax/[\w/]+\.py)`[^:`]*(?:`[^`]*`[^:`]*)?:\n\n```python\n(.*?)```",
  TEXT,
  re.S,
)
ADDED = [
  name.rpartition("/")[2].removesuffix(".py")
  for name, _ in FILES
  if not (REPOSITORY / name).exists()
]


@pytest.mark.parametrize("words", commands("lengthgen"), ids=" ".join)
def test_commands_of_the_pages_parse(words):
  if not any(name in " ".join(words) for name in ADDED):
    check_command(words)  # the others below


def test_the_first_command_is_the_main_job():
  (first, *_) = commands("lengthgen")
  assert first == [
    "--config=configs/quickstart.py",
    "--mode=abc",
    f"--workdir={WORKDIR}",
  ]


def test_sweeps_of_the_pages_parse(monkeypatch):
  monkeypatch.syspath_prepend(str(REPOSITORY / "launch"))
  sweep = importlib.import_module("sweep")
  lines = [
    words for words in commands("python") if words[0] == "launch/sweep.py"
  ]
  assert lines
  for words in lines:
    value = lambda flag, words=words: [
      word.partition("=")[2] for word in words if word.startswith(f"--{flag}=")
    ]
    points = list(sweep.points(value("config"), value("grid")))
    assert len(points) > 1
    for path, fields in points:
      changes = [f"--config.{field}={what}" for field, what in fields]
      with parsed(f"--config={path}", *changes) as (_, config):
        build.build(config)


def test_fields_that_the_pages_name_are_there():
  config = default_config()
  named = re.findall(r"`(?:--config\.)?([a-z_]+\.[a-z_.]+)=", TEXT)
  sections = "|".join(name for name in config if hasattr(config[name], "keys"))
  named += re.findall(rf"`(?:--config\.)?((?:{sections})\.[a-z_.]+)`", TEXT)
  assert len(named) > 10
  for name in named:
    node = config
    if name.startswith("model.") and hasattr(Model, name.split(".")[1]):
      continue  # of a model in Python
    for part in name.split("."):
      assert part in node, f"the pages name {name}"
      node = node[part]


SCRIPTS = [
  text for text in blocks("python") if text not in [own for _, own in FILES]
]


@pytest.mark.parametrize("text", SCRIPTS, ids=range(len(SCRIPTS)))
def test_python_of_the_pages_runs(text, request, capsys):
  if WORKDIR in text:
    text = text.replace(WORKDIR, str(request.getfixturevalue("trained")))
    # A fixture that knows two digits stands in for the main job.
    text = re.sub(r"(length=)\d+", r"\g<1>2", text)
  names = {}
  exec(compile(text, "page", "exec"), names)
  assert capsys.readouterr().out.strip()
  if "calibration" in names:
    there = names["there"]
    dense = np.asarray(names["bias"].dense(there, there))
    back = dense[0, 0, 1]  # the head that looks one back, at 40 rows
    assert (back[np.arange(1, 40), np.arange(39)] > -1).all()
    assert np.isfinite(back).sum() == 39


def test_what_the_pages_add_is_all_there_is_to_add(tmp_path):
  """Its files and registry lines in a copy of the project, where its test line
  covers the new task, and others the new encoding and the new probe."""
  for folder in ("lengthgen_jax", "configs", "tests", "docs"):
    shutil.copytree(REPOSITORY / folder, tmp_path / folder)
  shutil.copy(REPOSITORY / "README.md", tmp_path)
  for name, text in FILES:
    path = tmp_path / name
    if path.exists():  # a registry; an entry's indent says of what depth
      line, entry = text.splitlines()
      indent = entry[: len(entry) - len(entry.lstrip()) - 2]
      found = path.read_text().replace("\nfrom ", f"\n{line}\nfrom ", 1)
      text = found.replace(f"\n{indent}}}", f"\n{entry}\n{indent}}}", 1)
    path.write_text(text)
  (words,) = [w for w in commands("python") if ADDED[0] in w]
  assert words[:2] == ["-m", "pytest"]
  words[words.index(ADDED[0])] = " or ".join(ADDED)
  words += ["tests/test_models.py", "tests/test_interventions.py"]
  words += ["tests/test_docs.py::test_commands_of_the_pages_parse"]
  done = subprocess.run(
    [sys.executable, *words, "-v", "-p", "no:cacheprovider"],
    cwd=tmp_path,
    env=os.environ | {"PYTHONPATH": str(tmp_path)},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stdout[-3000:] + done.stderr
  assert int(re.search(r"(\d+) passed", done.stdout).group(1)) > 20
  assert "test_interventions" in done.stdout  # -v names what has run
