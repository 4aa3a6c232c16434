"""Runs one lengthgen command for every point of a grid, then makes the report.

  python launch/sweep.py --root=runs/window \\
    --config=configs/arithmetic.py:addition,window_cpi \\
    --grid=bias.window=1,2 --grid=positions.cyclic_period=3,5 \\
    -- '--config.seeds=(0,1,2)'

Several values of --config are an axis of the grid too, so that one command runs
the whole ABS table:

  python launch/sweep.py --root=runs/abs \\
    --config=configs/arithmetic.py:{successor,addition}\\
,{vanilla,window_cpi} -- '--config.seeds=(0,1,2)'

Every point of the grid has a workdir below --root. When the same command is
given again, points that have succeeded are skipped and an interrupted one
resumes. Points run one after the other, or in parallel:

  --devices=cuda:0,cuda:1  one on each device; cpu:N is a core, tpu:N a chip
  --hosts=first,second     one on each host, by ssh; this folder must have the
                           same path on all hosts; with --devices, one on each
                           device of each host

Points that run in parallel write to log.txt in their workdirs.
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import queue
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence

DONE = "sweep.json"  # in a workdir: the arguments of the job that succeeded
LENGTHGEN = (sys.executable, "-m", "lengthgen_jax.main")
# Prefixes of commands that bind a process to one device.
BIND = {
  "cuda": "env CUDA_VISIBLE_DEVICES={}",
  "cpu": "env JAX_PLATFORMS=cpu taskset -c {}",
  "tpu": "env TPU_VISIBLE_CHIPS={} TPU_CHIPS_PER_PROCESS_BOUNDS=1,1,1"
  " TPU_PROCESS_BOUNDS=1,1,1",
}
Job = tuple[pathlib.Path, list[str]]  # a workdir, the arguments of `lengthgen`


def main() -> None:
  """Runs the jobs of a command line; exits with a message if one failed."""
  args = parse(sys.argv[1:])
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
  pending, failures = {}, []
  for workdir, arguments in jobs(args):
    if is_done(workdir, arguments):
      print(f"== {workdir} is done", flush=True)
    else:
      pending[workdir] = arguments
  # One (host, device) for each job that may run in parallel; host "" is this
  # machine, device "" is all of its devices.
  slots = list(itertools.product(args.hosts, args.devices))
  if args.dry_run:
    for arguments, slot in zip(pending.values(), itertools.cycle(slots)):
      print(shlex.join(command(arguments, slot)), flush=True)
    return
  for workdir, code in run_jobs(pending.items(), slots):
    if code:
      failures.append(str(workdir))
    else:
      (workdir / DONE).write_text(json.dumps(pending[workdir]) + "\n")
  subprocess.run([*LENGTHGEN, "--mode=report", f"--workdir={args.root}"])
  if failures:
    sys.exit(f"failed: {', '.join(failures)}")


def parse(argv: list[str]) -> argparse.Namespace:
  """Parses the command line; the process exits with code 2 if it is wrong."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  add, split = parser.add_argument, lambda text: text.split(",")
  add("--root", type=pathlib.Path, required=True)
  add("--config", action="append", required=True)
  add(
    "--grid",
    action="append",
    default=[],
    metavar="FIELD=A,B,...",
    help="values of a config field; repeat for a product",
  )
  add("--mode", default="train")
  add("--devices", type=split, default=[""], metavar="KIND:N,...")
  add("--hosts", type=split, default=[""], metavar="HOST,...")
  add("--dry-run", action="store_true", help="print what would be run")
  add("rest", nargs="*", help="flags for every run, after --")
  args = parser.parse_args(argv)
  for device in filter(None, args.devices):
    kind, _, number = device.partition(":")
    if kind not in BIND or not number.isdigit():
      parser.error(f"--devices: {device!r} is no KIND:N of {', '.join(BIND)}")
  return args


def jobs(args: argparse.Namespace) -> Iterator[Job]:
  """Yields the job of every point of the grid."""
  has_several_files = (
    len({config.partition(":")[0] for config in args.config}) > 1
  )
  axes = []
  for axis in args.grid:
    field, _, values = axis.partition("=")
    axes.append([(field, value) for value in values.split(",")])
  for config in args.config:
    for values in itertools.product(*axes):
      workdir = args.root / workdir_name(config, values, has_several_files)
      arguments = [f"--config={config}", f"--workdir={workdir}"]
      arguments += [f"--mode={args.mode}"]
      arguments += [f"--config.{field}={value}" for field, value in values]
      yield workdir, arguments + args.rest


def workdir_name(
  config: str, values: Iterable[tuple[str, str]], has_several_files: bool
) -> str:
  """Returns the name of a point's workdir.

  Args:
    config: FILE or FILE:PRESET.
    values: (field, value) of each axis of the grid.
    has_several_files: whether the points differ in config file, so that the
      name must include it.
  """
  path, _, preset = config.partition(":")
  parts = [pathlib.Path(path).stem] if has_several_files or not preset else []
  parts += [preset.replace(",", "-")] if preset else []
  parts += [f"{field.rpartition('.')[2]}={value}" for field, value in values]
  return "-".join(parts)


def is_done(workdir: pathlib.Path, arguments: list[str]) -> bool:
  """Returns whether a job with these arguments has succeeded in the workdir."""
  path = workdir / DONE
  return path.exists() and json.loads(path.read_text()) == arguments


def command(arguments: list[str], slot: tuple[str, str]) -> list[str]:
  """Returns the command that runs a job on a device of a host.

  Args:
    arguments: the arguments of `lengthgen`.
    slot: (host, device); host "" is this machine, device "" is all of its
      devices.
  """
  host, device = slot
  local = [*LENGTHGEN, *arguments]
  if device:
    kind, _, number = device.partition(":")
    local = [*BIND[kind].format(number).split(), *local]
  if not host:
    return local
  # With -tt the command has a terminal, so it ends with the connection.
  remote = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(local)}"
  return ["ssh", "-tt", "-o", "BatchMode=yes", host, remote]


def run_jobs(
  jobs: Iterable[Job], slots: Sequence[tuple[str, str]] = (("", ""),)
) -> Iterator[tuple[pathlib.Path, int]]:
  """Runs jobs, at most one at a time in each slot.

  If the generator is interrupted, no more jobs begin. The running ones are
  terminated (Ctrl-C has reached them already), so that they save a checkpoint,
  and are waited for.

  Args:
    jobs: the jobs.
    slots: (host, device) of each slot, see `command`. In the default slot, jobs
      write to the terminal; otherwise they write to log.txt in their workdirs.

  Yields:
    The (workdir, exit code) of each job when it ends.
  """
  has_log = len(slots) > 1 or any(slots[0])
  free_slots, processes = queue.SimpleQueue(), set()
  for slot in slots:
    free_slots.put(slot)
  lock, stopped = threading.Lock(), threading.Event()

  def run_job(
    workdir: pathlib.Path, arguments: list[str]
  ) -> tuple[pathlib.Path, int]:
    slot = free_slots.get()
    try:
      with lock:
        if stopped.is_set():
          return workdir, 1
        print(f"== {workdir} {' '.join(slot)}".rstrip(), flush=True)
        process = start(command(arguments, slot), workdir if has_log else None)
        processes.add(process)
      return workdir, process.wait()
    except OSError as error:  # ssh or taskset is not installed
      print(f"== {workdir}: {error}", file=sys.stderr, flush=True)
      return workdir, 127
    finally:
      free_slots.put(slot)

  with concurrent.futures.ThreadPoolExecutor(len(slots)) as pool:
    futures = [pool.submit(run_job, *job) for job in jobs]
    try:
      for future in concurrent.futures.as_completed(futures):
        yield future.result()
    except BaseException as stop:
      with lock:
        stopped.set()
      for process in processes:
        if not isinstance(stop, KeyboardInterrupt):
          process.terminate()
      raise


def start(
  arguments: list[str], log_folder: pathlib.Path | None
) -> subprocess.Popen:
  """Starts a command, which writes to log.txt in the folder if there is one."""
  if log_folder is None:
    return subprocess.Popen(arguments)
  log_folder.mkdir(parents=True, exist_ok=True)
  with open(log_folder / "log.txt", "a") as log:
    streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
    return subprocess.Popen(arguments, **streams)


if __name__ == "__main__":
  main()
