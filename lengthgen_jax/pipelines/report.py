"""This is --mode=report: it writes the report of all results below a folder."""

import pathlib

from ml_collections import ConfigDict

from lengthgen_jax.results import report


def run(config: ConfigDict | None, folder: pathlib.Path) -> int:
  """Writes the report, and prints its tables; returns the exit code. The config
  is not used, since every run has its own."""
  del config
  print(report.write_report(folder))
  print(f"page: {folder / 'report.html'}")
  return 0
