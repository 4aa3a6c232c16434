"""Runs one lengthgen command for every point of a grid, then makes the report.

  python launch/sweep.py --root=runs/window \\
    --config=configs/arithmetic.py:addition,window_cpi \\
    --grid=bias.window=1,2 --grid=positions.cyclic_period=3,5 \\
    -- '--config.seeds=(0,1,2)'

Several --config values are an axis of the grid too, so the ABS table is one
line:

  python launch/sweep.py --root=runs/abs \\
    --config=configs/arithmetic.py:{successor,addition}\\
,{vanilla,window_cpi} -- '--config.seeds=(0,1,2)'

Every point has a workdir below --root. A point that has ended well is not run
again, and an interrupted one resumes, so the same command continues after a
stop. Points run one after the other, or at once:

  --devices=cuda:0,cuda:1  one on each device; cpu:N is a core, tpu:N a chip
  --hosts=first,second     one on each host by ssh; the hosts must see this
                           folder under the same name; with --devices, one on
                           each device of each host

Points that run at once write to log.txt in their workdirs.
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

DONE = "sweep.json"  # in a workdir: the arguments of the job that ended well
LENGTHGEN = (sys.executable, "-m", "lengthgen_jax.main")
# The beginnings of commands that bind a process to one device.
BIND = {
  "cuda": "env CUDA_VISIBLE_DEVICES={}",
  "cpu": "env JAX_PLATFORMS=cpu taskset -c {}",
  "tpu": "env TPU_VISIBLE_CHIPS={} TPU_CHIPS_PER_PROCESS_BOUNDS=1,1,1"
  " TPU_PROCESS_BOUNDS=1,1,1",
}
Job = tuple[pathlib.Path, list[str]]  # a workdir, the arguments of `lengthgen`


def main() -> None:
  """Runs a command line; exits with a message if a job failed."""
  args = parse(sys.argv[1:])
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
  todo, failures = {}, []
  for workdir, words in jobs(args):
    if is_done(workdir, words):
      print(f"== {workdir} is done", flush=True)
    else:
      todo[workdir] = words
  # The (host, device) of each job that may run at once; host "" is this
  # machine, device "" is all of its devices.
  places = list(itertools.product(args.hosts, args.devices))
  if args.dry_run:
    for words, place in zip(todo.values(), itertools.cycle(places)):
      print(shlex.join(command(words, place)), flush=True)
    return
  for workdir, code in run(todo.items(), places):
    if code:
      failures.append(str(workdir))
    else:
      (workdir / DONE).write_text(json.dumps(todo[workdir]) + "\n")
  subprocess.run([*LENGTHGEN, "--mode=report", f"--workdir={args.root}"])
  if failures:
    sys.exit(f"failed: {', '.join(failures)}")


def parse(words: list[str]) -> argparse.Namespace:
  """Returns the parsed flags of a command line; a wrong one ends the process
  with exit code 2."""
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
  args = parser.parse_args(words)
  for device in filter(None, args.devices):
    kind, _, number = device.partition(":")
    if kind not in BIND or not number.isdigit():
      parser.error(f"--devices: {device!r} is no KIND:N of {', '.join(BIND)}")
  return args


def jobs(args: argparse.Namespace) -> Iterator[Job]:
  """Yields the job of every point of the grid."""
  several = len({config.partition(":")[0] for config in args.config}) > 1
  axes = []
  for axis in args.grid:
    field, _, values = axis.partition("=")
    axes.append([(field, value) for value in values.split(",")])
  for config in args.config:
    for values in itertools.product(*axes):
      workdir = args.root / workdir_name(config, values, several)
      words = [f"--config={config}", f"--workdir={workdir}"]
      words += [f"--mode={args.mode}"]
      words += [f"--config.{field}={value}" for field, value in values]
      yield workdir, words + args.rest


def workdir_name(
  config: str, values: Iterable[tuple[str, str]], several: bool
) -> str:
  """Returns the name of a point's workdir.

  Args:
    config: FILE or FILE:PRESET.
    values: (field, value) of each axis of the grid.
    several: whether the points have several config files; then the name says
      which.
  """
  path, _, preset = config.partition(":")
  words = [pathlib.Path(path).stem] if several or not preset else []
  words += [preset.replace(",", "-")] if preset else []
  words += [f"{field.rpartition('.')[2]}={value}" for field, value in values]
  return "-".join(words)


def is_done(workdir: pathlib.Path, words: list[str]) -> bool:
  """Returns whether a job with the same arguments has ended well here."""
  path = workdir / DONE
  return path.exists() and json.loads(path.read_text()) == words


def command(words: list[str], place: tuple[str, str]) -> list[str]:
  """Returns the command of a job on a (host, device).

  Args:
    words: the arguments of `lengthgen`.
    place: host "" is this machine, device "" is all of its devices.
  """
  host, device = place
  local = [*LENGTHGEN, *words]
  if device:
    kind, _, number = device.partition(":")
    local = [*BIND[kind].format(number).split(), *local]
  if not host:
    return local
  # ssh -tt gives the command a terminal, so it ends with the connection.
  remote = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(local)}"
  return ["ssh", "-tt", "-o", "BatchMode=yes", host, remote]


def run(
  jobs: Iterable[Job], places: Sequence[tuple[str, str]] = (("", ""),)
) -> Iterator[tuple[pathlib.Path, int]]:
  """Runs jobs, one at a time at each place.

  Where it is stopped, no more jobs begin; those that run are terminated (Ctrl-C
  has reached them already), save a checkpoint and are waited for.

  Args:
    jobs: the jobs.
    places: (host, device) of each, see `command`. At the default one a job
      writes to the terminal, else to log.txt in its workdir.

  Yields:
    The (workdir, exit code) of each job when it ends.
  """
  quiet = len(places) > 1 or any(places[0])
  free_places, processes = queue.SimpleQueue(), set()
  for place in places:
    free_places.put(place)
  lock, stopped = threading.Lock(), threading.Event()

  def work(workdir: pathlib.Path, words: list[str]) -> tuple[pathlib.Path, int]:
    place = free_places.get()
    try:
      with lock:
        if stopped.is_set():
          return workdir, 1
        print(f"== {workdir} {' '.join(place)}".rstrip(), flush=True)
        process = start(command(words, place), workdir if quiet else None)
        processes.add(process)
      return workdir, process.wait()
    except OSError as error:  # ssh or taskset is not installed
      print(f"== {workdir}: {error}", file=sys.stderr, flush=True)
      return workdir, 127
    finally:
      free_places.put(place)

  with concurrent.futures.ThreadPoolExecutor(len(places)) as pool:
    futures = [pool.submit(work, *job) for job in jobs]
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


def start(words: list[str], logged: pathlib.Path | None) -> subprocess.Popen:
  """Starts a command, with its output in the log.txt of a workdir if given."""
  if logged is None:
    return subprocess.Popen(words)
  logged.mkdir(parents=True, exist_ok=True)
  with open(logged / "log.txt", "a") as log:
    streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
    return subprocess.Popen(words, **streams)


if __name__ == "__main__":
  main()
