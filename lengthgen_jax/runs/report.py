"""--mode=report: one table and figures of all results below a folder."""

import pathlib

from lengthgen_jax.results import report


def run(folder: pathlib.Path) -> int:
  """Writes the report and prints its table."""
  print(report.run(folder))
  return 0
