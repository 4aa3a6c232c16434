"""This is --mode=report: it writes tables, figures and a page of results."""

import pathlib

from lengthgen_jax.config.files import CHANGEABLE
from lengthgen_jax.results import report


def run(_, workdir: pathlib.Path) -> int:
  """Writes the report of all results below a folder, and prints its tables.

  The first argument is the config of the program, which is not looked at.

  Returns:
    The exit code.
  """
  print(report.run(workdir, CHANGEABLE))
  print(f"page: {workdir / 'report.html'}")
  return 0
