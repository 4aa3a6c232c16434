"""What the README and docs/ show can be typed."""

import re
import shlex

import pytest
import sweep
from command import REPOSITORY, parsed

from lengthgen_jax.config import build
from lengthgen_jax.pipelines import abc

EXTENDING = REPOSITORY / "docs" / "extending.md"  # test_register.py runs it
PAGES = [
  REPOSITORY / "README.md",
  *sorted({*(REPOSITORY / "docs").glob("*.md")} - {EXTENDING}),
]
TEXT = "\n".join(page.read_text() for page in PAGES)
WORKDIR = "runs/quickstart"  # of the examples that read a trained workdir


def blocks(language: str, text: str = TEXT) -> list[str]:
  return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def commands(script: str, text: str = TEXT) -> list[list[str]]:
  """The words after `script` of every shell command of a text."""
  calls = []
  for block in blocks("bash", text):
    text = block.replace("\\\n", " ")
    for line in text.splitlines():
      lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
      lexer.whitespace_split = True
      part = []
      for word in [*lexer, ";"]:
        if set(word) <= set("|&;"):
          if script in part:
            calls.append(part[part.index(script) + 1 :])
          part = []
        else:
          part.append(word)
  return calls


def check_command(words: list[str]) -> None:
  """A command line parses, and its config builds where one is named."""
  if words == ["--mode=models"]:
    return
  assert any(word.startswith(("--workdir=", "--model=")) for word in words)
  with parsed(*words) as (mode, config):
    if mode in ("train", "abc"):
      build.build(config)
    if mode == "abc":
      abc.check_config(config)
    named = any(word.startswith("--config=") for word in words)
    # A clone in which the pages were followed has the workdir's own config.
    assert config is not None if named else mode not in ("train", "abc")


@pytest.mark.parametrize("words", commands("lengthgen"), ids=" ".join)
def test_commands_of_the_pages_parse(words):
  check_command(words)


def test_sweeps_of_the_pages_parse():
  lines = [x for x in commands("python") if x[0] == "launch/sweep.py"]
  assert lines
  for words in lines:
    jobs = list(sweep.jobs(sweep.parse(words[1:])))
    assert len(jobs) > 1
    for _, job_words in jobs:
      check_command(job_words)


SCRIPTS = blocks("python")


@pytest.mark.parametrize("text", SCRIPTS, ids=range(len(SCRIPTS)))
def test_python_of_the_pages_runs(text, request, capsys):
  if WORKDIR in text:
    text = text.replace(WORKDIR, str(request.getfixturevalue("trained")))
    # A fixture that knows two digits stands in for the main job.
    text = re.sub(r"(length=)\d+", r"\g<1>2", text)
  names = {}
  exec(compile(text, "page", "exec"), names)
  assert capsys.readouterr().out.strip()
