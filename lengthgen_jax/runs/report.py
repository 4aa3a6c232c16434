"""--mode=report: one table and figures of all results below a folder."""

import pathlib

from lengthgen_jax.results import report


def run(_, workdir: pathlib.Path) -> int:
  """Writes the report and prints its table; there need be no config."""
  print(report.run(workdir))
  return 0
