"""--mode=report: tables, figures and a page of all results below a folder."""

import pathlib

from lengthgen_jax.config.saved import READING_FIELDS
from lengthgen_jax.results import report


def run(_, workdir: pathlib.Path) -> int:
  """Writes the report and prints its tables; there need be no config."""
  print(report.run(workdir, READING_FIELDS))
  print(f"page: {workdir / 'report.html'}")
  return 0
