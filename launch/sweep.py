"""Runs one lengthgen command for every point of a grid, then the report.

  python launch/sweep.py --root=runs/window \\
    --config=configs/arithmetic.py:addition,window_cpi \\
    --grid=bias.window=1,2 --grid=positions.cyclic_period=3,5 \\
    -- '--config.seeds=(0,1,2)'

Several --config values are a grid too, so the ABS table is one line:

  python launch/sweep.py --root=runs/abs \\
    --config=configs/arithmetic.py:{successor,addition}\\
,{vanilla,window_cpi} -- '--config.seeds=(0,1,2)'

Every point has a workdir below --root; a finished or interrupted one is taken
up where it is, so the same command goes on after a stop.
"""

import argparse
import itertools
import pathlib
import subprocess
import sys
import time


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument("--root", type=pathlib.Path, required=True)
  parser.add_argument("--config", action="append", required=True)
  parser.add_argument(
    "--grid",
    action="append",
    default=[],
    metavar="FIELD=A,B,...",
    help="values of a config field; repeat for a product",
  )
  parser.add_argument("--mode", default="train")
  parser.add_argument("rest", nargs="*", help="flags for every run, after --")
  args = parser.parse_args()
  jobs = []
  for config, values in points(args.config, args.grid):
    workdir = args.root / name(config, values)
    words = [f"--config={config}", f"--workdir={workdir}"]
    words += [f"--mode={args.mode}"]
    words += [f"--config.{field}={value}" for field, value in values]
    jobs.append((workdir, words + args.rest))
  failed = [str(workdir) for workdir, code, _ in run(jobs) if code]
  report = [sys.executable, "-m", "lengthgen_jax.main", "--mode=report"]
  subprocess.run([*report, f"--workdir={args.root}"])
  if failed:
    sys.exit(f"failed: {', '.join(failed)}")


def run(jobs):
  """Runs (workdir, words after `lengthgen`) in turn; yields (workdir, exit
  code, seconds) of each as it ends."""
  for workdir, words in jobs:
    print(f"== {workdir}", flush=True)
    start = time.monotonic()
    command = [sys.executable, "-m", "lengthgen_jax.main", *words]
    process = subprocess.Popen(command)
    try:
      code = process.wait()
    except KeyboardInterrupt:
      process.wait()  # it saves first
      raise
    yield workdir, code, time.monotonic() - start


def points(configs: list[str], grid: list[str]):
  """(config, ((field, value), ...)) for every point of the product."""
  axes = []
  for axis in grid:
    field, _, values = axis.partition("=")
    axes.append([(field, value) for value in values.split(",")])
  for config in configs:
    for values in itertools.product(*axes):
      yield config, values


def name(config: str, values) -> str:
  """A folder name that tells the point."""
  path, _, preset = config.partition(":")
  words = [preset.replace(",", "-") or pathlib.Path(path).stem]
  words += [f"{field.rpartition('.')[2]}={value}" for field, value in values]
  return "-".join(words)


if __name__ == "__main__":
  main()
