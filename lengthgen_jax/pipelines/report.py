"""This is --mode=report: it writes the report of all results below a folder."""

import pathlib
from collections.abc import Sequence

from ml_collections import ConfigDict

from lengthgen_jax.results import report


def run(
  config: ConfigDict | None,
  folder: pathlib.Path,
  metric: str | None,
  tasks: Sequence[str] | None,
  lengths: Sequence[str] | None,
) -> int:
  """Writes the report, and prints its tables; returns the exit code. The config
  is not used, since every run has its own; of the others see `write_report`."""
  del config
  print(report.write_report(folder, metric, tasks or (), lengths or ()))
  print(f"page: {folder / 'report.html'}")
  return 0
