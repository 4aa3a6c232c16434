"""This module is --mode=bench, which times training, evaluation, decoding and
calibration on the device at hand.

bench.json, in the workdir, has a row for each case (medians of several runs),
the cases that were left out and why, and the device with its peak throughput. A
table shows them, and a figure the time per token against length.
"""

import contextlib
import json
import pathlib
import tempfile
import time
from collections.abc import Iterator

import jax
from jax.experimental.compilation_cache import compilation_cache
from ml_collections import ConfigDict

import lengthgen_jax
from lengthgen_jax.benchmark import report, timing
from lengthgen_jax.benchmark.cases import BENCHMARKS, Workload
from lengthgen_jax.benchmark.timing import Case
from lengthgen_jax.errors import UsageError, check_choice, file_errors
from lengthgen_jax.pipelines import runs
from lengthgen_jax.results import records


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Times the benchmarks that `bench.only` names, by default all of them.

  Args:
    config: the whole config.
    folder: the workdir, where bench.json is written, and figures/bench.png if a
      variant of a benchmark was timed at two lengths or more.

  Returns:
    The exit code, 0.

  Raises:
    UsageError: bench.only names a benchmark that does not exist, a field of the
      config is not valid, its bias does not fit the model, or the workdir
      cannot be made or written to.
  """
  for name in config.bench.only:
    check_choice("bench.only", name, BENCHMARKS)
  training = runs.make_run(config, folder)
  workload = Workload(training.experiment, training.train, training.scaffold)
  path = folder / "bench.json"
  with file_errors(f"--workdir={folder}: cannot write there"):
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()  # fails if it is read-only
  with every_program_compiled():
    results = measure(workload, config.bench, path)
  print(report.table(results))
  print(f"rows: {path}")
  if figure := report.draw_by_length(results, folder / "figures" / "bench.png"):
    print(f"figure: {figure}")
  return 0


@contextlib.contextmanager
def every_program_compiled() -> Iterator[None]:
  """Returns a context in which JAX's persistent compilation cache is off, so
  that compilation is measured."""
  was_enabled = jax.config.values["jax_enable_compilation_cache"]
  jax.config.update("jax_enable_compilation_cache", False)
  compilation_cache.reset_cache()  # else a cache that was used stays on
  try:
    yield
  finally:
    jax.config.update("jax_enable_compilation_cache", was_enabled)
    compilation_cache.reset_cache()


def measure(
  workload: Workload, section: ConfigDict, path: pathlib.Path
) -> dict:
  """Times benchmarks and returns the contents of bench.json.

  Args:
    workload: what the benchmark "config" times; "peak_flops" is measured in the
      dtype and precision of its model.
    section: the config's section `bench`.
    path: the path of bench.json, which is written after every group of cases.

  Returns:
    The package's "version", the fields of timing.describe_device, the "rows" of
    the cases that were timed (timing.make_row), and "skipped", why others were
    not: {title of the case: reason}, or {name of the benchmark: reason} if the
    benchmark cannot run here.
  """
  deadline = time.perf_counter() + section.budget
  rows: list[dict] = []
  skipped: dict[str, str] = {}
  results = {"version": lengthgen_jax.__version__}
  model_config = workload.experiment.model.config
  results |= timing.describe_device(model_config.dtype, model_config.precision)
  results |= {"rows": rows, "skipped": skipped}
  for name in section.only or BENCHMARKS:
    try:
      for cases in BENCHMARKS[name](workload, section):
        group_rows, group_skipped = time_group(cases, section, deadline)
        rows += group_rows
        skipped |= group_skipped
        records.write_text(path, json.dumps(results, indent=1))
    except UsageError as error:
      skipped[name] = str(error)
  records.write_text(path, json.dumps(results, indent=1))
  return results


def time_group(
  cases: list[Case], section: ConfigDict, deadline: float
) -> tuple[list[dict], dict[str, str]]:
  """Compiles cases and times them in turns, so that they are compared under the
  same conditions.

  Args:
    cases: the cases to compare.
    section: the config's section `bench`.
    deadline: the reading of time.perf_counter(), in seconds, after which no
      case is started.

  Returns:
    The rows of the cases, and {title: reason} of those that have no row.
  """
  programs, skipped = [], {}
  for case in cases:
    if time.perf_counter() > deadline:
      skipped[case.title] = f"bench.budget={section.budget:.0f} s are used up"
      continue
    runs.print_note(f"{case.title} ...")
    try:
      programs.append(timing.compile_case(case))
    except (MemoryError, RuntimeError) as error:
      skipped[case.title] = str(error).partition("\n")[0][:100]
  timing.time_in_turns(programs, section.repeats, deadline)
  return [timing.make_row(program) for program in programs], skipped
