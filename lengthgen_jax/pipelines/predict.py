"""This is --mode=predict: it answers what a person types."""

import io
import pathlib
import sys
from typing import TextIO

from ml_collections import ConfigDict

from lengthgen_jax.errors import check, file_errors, local_path
from lengthgen_jax.evaluation.trained import Model, best
from lengthgen_jax.pipelines import runs, workdir


def run(config: ConfigDict, folder: pathlib.Path, source: str | None) -> int:
  """Answers input texts, one a line of a file, or of standard input for None,
  with the seed that is best by validation; returns the exit code, 1 if an input
  has no answer."""
  check(
    source or sys.stdin,
    "standard input is closed: name a file of inputs with --input",
  )
  model = best(workdir.load_stage(config, folder).models)
  runs.print_note(
    f"answering with seed {model.seed}, step {model.step}"
    f" (best validation EM {100 * model.em:.1f} %)"
  )
  if source is None:
    assert isinstance(sys.stdin, io.TextIOWrapper)
    sys.stdin.reconfigure(errors="replace")
    return answer_all(model, sys.stdin, config.eval.scratchpad)
  with file_errors(f"--input={source}:"):
    path = local_path("--input", source)
    text = path.read_text(encoding="utf-8", errors="replace")
  return answer_all(model, io.StringIO(text), config.eval.scratchpad)


def answer_all(model: Model, source: TextIO, scratchpad: bool = False) -> int:
  """Prints the answer to every line of `source`, or "error: " and the reason;
  returns 1 if any is an error, else 0.

  A terminal is answered line by line, anything else as a whole. With
  `scratchpad`, intermediate results precede each answer."""
  failed = False
  groups = ([line] for line in source) if source.isatty() else [list(source)]
  for group in groups:
    # A file may begin with a mark of its byte order.
    lines = [line.rstrip("\n").removeprefix("\ufeff") for line in group]
    for answer in model.answers(lines, scratchpad):
      failed |= answer.startswith("error:")
      print(answer, flush=True)
  return int(failed)
