"""Makes the most of an hour with one GPU or TPU.

  python launch/card.py --minutes=60
  python launch/card.py --plan
  python launch/card.py --numerics

It runs these in turn, the most valuable first, until the minutes are over:

  numerics     compares this device's numbers with the CPU's: the loss and the
               gradients of training steps, which --numerics does by itself, and
               the margin of the certificate of the main job
               (configs/quickstart.py with --mode=abc)
  bench        --mode=bench with a few configs
  tables       runs of launch/tables.py at the papers' sizes: sorting without a
               hint, with the successor hint and with a temperature; addition
               with ABC, vanilla, and with ABS

Workdirs are in runs/card. Training that is cut off is saved, and the same
command continues it. Rows of finished runs are archived in docs/results, as by
launch/tables.py; archived runs are repeated only if their config has changed or
rows of their table's probes are missing. An estimate of the FLOPs of each run
that is left, in ABC of its first stage, is printed first, or alone with --plan.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
from functools import partial
from typing import Any

import jax
import numpy as np
import sweep
import tables
from jax.flatten_util import ravel_pytree

from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.config import load_config
from lengthgen_jax.errors import Parser, UsageError, check
from lengthgen_jax.origin import REPOSITORY
from lengthgen_jax.papers import archive, runs
from lengthgen_jax.papers.runs import Run
from lengthgen_jax.pipelines.bench import matmul_flops
from lengthgen_jax.pipelines.runs import make_run
from lengthgen_jax.training.loop import (
  draw_batch,
  init_state,
  loss_and_grads,
  train_step,
)

ROOT = REPOSITORY / "runs" / "card"  # of the workdirs
# Runs of launch/tables.py --size=paper, the most valuable first.
RUNS = (
  "sort-none-paper",
  "sort-successor-paper",
  "sort-none-tempered-paper",
  "addition-abc-paper",
  "addition-paper",
  "addition-window_cpi-paper",
)
MAIN_JOB = "configs/quickstart.py"
# The configs that --mode=bench times, by the names of its workdirs.
BENCHED = {
  "papers": "configs/arithmetic.py:addition,vanilla,released",
  "main": MAIN_JOB,
  "lines": "configs/arithmetic.py:addition,nope_window",
  "sorting": "configs/sorting.py:none,best",
}
# The configs of which a training step is compared with the CPU's, with dense
# attention and along lines, and the greatest relative difference allowed in
# float32 with precision "highest".
COMPARED = (BENCHED["main"], BENCHED["lines"])
TOLERANCE = 1e-4


def parse(argv: list[str]) -> argparse.Namespace:
  parser = Parser(__doc__)
  add = parser.add_argument
  add("--minutes", type=float, default=60.0, help="default 60")
  add("--parallel", type=int, default=1, metavar="N", help="runs at a time")
  add("--plan", action="store_true", help="only print the estimates")
  add("--numerics", action="store_true", help="only compare training steps")
  return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
  """Runs a command line, by default that of sys.argv; returns the exit code.

  It is 0 if all was done that was asked for; 130 if the script was interrupted
  or its minutes are over, whatever came before; else 1: for a UsageError, which
  a failed job is too, and numbers that differ from the CPU's.
  """
  try:
    args = parse(sys.argv[1:] if argv is None else argv)
    is_valid = 0 < args.minutes < 1e6
    check(is_valid, f"--minutes={args.minutes:g}: must be in (0, 10^6)")
    check(args.parallel > 0, f"--parallel={args.parallel}: must be positive")
    if args.numerics:
      return compare()
    # This process only traces, for estimates; the device is for others.
    jax.config.update("jax_platforms", "cpu")
    kept = archive.read_archive(tables.RESULTS / "rows")
    jobs = tables.jobs_of([*RUNS], "paper", kept)
    print(estimate_table([job.run for job in jobs]), flush=True)
    if args.plan:
      return 0
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 60.0 * args.minutes)
    exit_code = check_numerics(ROOT)
    bench(ROOT)
    tables.make(jobs, ROOT / "tables", tables.RESULTS, args.parallel)
    return exit_code
  except UsageError as error:
    print(f"card: {error}", file=sys.stderr)
    return 1
  except (KeyboardInterrupt, TimeoutError):
    print(
      "stopped; the same command repeats the numerics and an unfinished bench,"
      " and continues training",
      file=sys.stderr,
    )
    return 130


def stop(*_: Any) -> None:
  """Ends the script when its minutes are over; training saves its state."""
  raise TimeoutError


def lengthgen(arguments: list[str], **environment: str) -> int:
  """Runs `lengthgen` in the repository; returns its exit code."""
  words = [*sweep.LENGTHGEN, *arguments]
  environment = os.environ | environment
  return subprocess.call(words, cwd=REPOSITORY, env=environment)


def estimate(run: Run) -> tuple[int, float]:
  """Returns the steps of one seed of a run's first stage, and the FLOPs of a
  step's matrix products, on average over the tasks that take turns; compiles
  nothing."""
  trained = make_run(runs.config_of(run), pathlib.Path())
  spec, scaffold = trained.spec, of_seed(trained.scaffold, 0)
  state = jax.eval_shape(partial(init_state, spec), 0)
  # The FLOPs depend neither on the seed nor on the step.
  arguments = state.params, state.opt_state, 0, 0, scaffold
  trace = jax.make_jaxpr(train_step, static_argnums=(0, 1))
  flops = [
    matmul_flops(trace(spec, step_spec, *arguments).jaxpr)
    for step_spec in trained.experiment.step_specs
  ]
  return spec.num_steps, sum(flops) / len(flops)


def estimate_table(table_runs: list[Run]) -> str:
  """Returns the estimates of runs as text; "PFLOP" is of all steps."""
  lines = [f"{'run':<44}{'steps':>9}{'TFLOP/step':>12}{'PFLOP':>9}"]
  for table_run in table_runs:
    steps, flops = estimate(table_run)
    lines.append(
      f"{table_run.name:<44}{steps:>9}{flops / 1e12:>12.4f}"
      f"{steps * flops / 1e15:>9.1f}"
    )
  return "\n".join(lines)


def compare() -> int:
  """Prints how a training step's loss and gradients on this device differ from
  the CPU's, as a share of the greatest absolute value there; returns the exit
  code, 1 if they do by more than TOLERANCE."""
  devices = jax.devices()[0], jax.devices("cpu")[0]
  print(f"{devices[0].device_kind} beside the CPU, float32, precision highest:")
  differences = []
  for config in COMPARED:
    function, *arguments = loss_and_gradients(config)
    results = [
      jax.device_get(jax.jit(function)(*jax.device_put(arguments, device)))
      for device in devices
    ]
    for name, *parts in zip(("loss", "gradients"), *results, strict=True):
      # All gradients have one scale, because some are zero but for rounding:
      # softmax does not depend on the key's bias.
      ours, cpu = (np.asarray(ravel_pytree(x)[0], np.float64) for x in parts)
      differences.append(np.abs(ours - cpu).max() / np.abs(cpu).max())
      print(f"{name:<12}{differences[-1]:<12.2e}{config}")
  return int(not np.max(differences) <= TOLERANCE)  # NaN is too much


def loss_and_gradients(config: str) -> tuple:
  """Returns a function of parameters and lines that returns the loss and the
  gradients of examples of a config's longest bucket, and these arguments."""
  trained = make_run(load_config(config), pathlib.Path())
  spec, step_spec = trained.spec, trained.experiment.step_specs[0]

  def function(params: dict, scaffold: dict) -> tuple:
    (head, _, (*_, part)), *_ = step_spec
    batch, noise = draw_batch(spec, head, part, 0, 0)
    return loss_and_grads(params, spec, scaffold, head, batch, noise)

  params = jax.jit(trained.experiment.init)(0)
  return function, params, of_seed(trained.scaffold, 0)


def check_numerics(root: pathlib.Path) -> int:
  """Compares this device's numbers with the CPU's and prints how they differ;
  returns the exit code, 1 if by more than rounding, or if there are none.

  After the table of `compare`, the main job is run on this device, in `root`,
  and its certificate is made there and then again on the CPU, from the same
  parameters; the CPU's stays. All of it runs in other processes, so that this
  one does not occupy the device.
  """
  words = [sys.executable, __file__, "--numerics"]
  code = subprocess.run(words, cwd=REPOSITORY, check=False).returncode
  path, margins = root / "main_job" / "certificate.json", []
  train = [f"--config={MAIN_JOB}", "--mode=abc"]
  on_cpu = {"JAX_PLATFORMS": "cpu"}
  for arguments, environment in ((train, {}), (["--mode=certify"], on_cpu)):
    path.unlink(missing_ok=True)  # a certificate that holds is not made again
    failed = lengthgen([*arguments, f"--workdir={path.parent}"], **environment)
    check(not failed, f"the main job failed: {arguments[-1]}")
    certificate = json.loads(path.read_text(encoding="utf-8"))["0"]
    check(certificate["margin"] is not None, f"{path}: no margin of seed 0")
    margins.append(certificate["margin"])
  print(
    f"margin on this device {margins[0]:.6f}, on the CPU {margins[1]:.6f}",
    flush=True,
  )
  return int(code != 0 or abs(margins[0] - margins[1]) > 1e-3)


def bench(root: pathlib.Path) -> None:
  """Runs --mode=bench for each of BENCHED, in workdirs of these names in
  `root`/bench, but for those that have bench.json, which is written last."""
  for name, config in BENCHED.items():
    folder = root / "bench" / name
    if not (folder / "bench.json").exists():
      words = [f"--config={config}", "--mode=bench", f"--workdir={folder}"]
      check(lengthgen(words) == 0, "--mode=bench failed")


if __name__ == "__main__":
  sys.exit(main())
