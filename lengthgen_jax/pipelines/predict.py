"""This is --mode=predict: it answers what a person types."""

import io
import pathlib
import sys

from ml_collections import ConfigDict

from lengthgen_jax import hosts
from lengthgen_jax.errors import check, file_errors, local_path
from lengthgen_jax.evaluation.trained import best
from lengthgen_jax.pipelines import workdir


def run(config: ConfigDict, folder: pathlib.Path, source: str | None) -> int:
  """Prints the answers to input texts, one a line of a file, or of standard
  input for None, by the seed that is best by validation; returns the exit code,
  1 if an input has no answer, whose line is "error: " and the reason.

  A terminal is answered line by line, anything else as a whole.
  """
  check(
    source or sys.stdin,
    "standard input is closed: name a file of inputs with --input",
  )
  model = best(workdir.load_stage(config, folder).models)
  hosts.print_note(
    f"answering with seed {model.seed}, step {model.step}"
    f" (best validation EM {100 * model.em:.1f} %)"
  )
  if source is None:
    assert isinstance(sys.stdin, io.TextIOWrapper)
    sys.stdin.reconfigure(errors="replace")
    inputs = sys.stdin
  else:
    with file_errors(f"--input={source}: cannot be read"):
      path = local_path("--input", source)
      inputs = io.StringIO(path.read_text(encoding="utf-8", errors="replace"))
  groups = ([line] for line in inputs) if inputs.isatty() else [list(inputs)]
  failed = False
  for group in groups:
    # A file may begin with a mark of its byte order.
    lines = [line.rstrip("\n").removeprefix("\ufeff") for line in group]
    for answer in model.answers(lines, config.eval.scratchpad):
      failed |= answer.startswith("error:")
      print(answer, flush=True)
  return int(failed)
