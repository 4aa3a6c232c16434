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
import collections
import contextlib
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
import time
from collections.abc import Iterable, Iterator, Sequence

ENDED = "sweep.json"  # in a workdir: the arguments of the job that ended well

LENGTHGEN = (sys.executable, "-m", "lengthgen_jax.main")
# The beginnings of commands that bind a process to one device.
KEEP = {
  "cuda": "env CUDA_VISIBLE_DEVICES={}",
  "cpu": "env JAX_PLATFORMS=cpu taskset -c {}",
  "tpu": "env TPU_VISIBLE_CHIPS={} TPU_CHIPS_PER_PROCESS_BOUNDS=1,1,1"
  " TPU_PROCESS_BOUNDS=1,1,1",
}


def main() -> None:
  """Runs a command line; exits with a message if a job failed."""
  args = parse(sys.argv[1:])
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
  todo, failed = {}, []
  for workdir, words in jobs(args):
    if ended(workdir, words):
      print(f"== {workdir} is done", flush=True)
    else:
      todo[workdir] = words
  places = slots(args.devices, args.hosts)
  if args.dry_run:
    for words, place in zip(todo.values(), itertools.cycle(places)):
      print(shlex.join(placed(words, place)), flush=True)
    return
  for workdir, code, _ in run(todo.items(), places):
    if code:
      failed.append(str(workdir))
    else:
      end(workdir, todo[workdir])
  subprocess.run([*LENGTHGEN, "--mode=report", f"--workdir={args.root}"])
  if failed:
    sys.exit(f"failed: {', '.join(failed)}")


def parse(words: list[str]) -> argparse.Namespace:
  """Returns the parsed flags of a command line; a wrong one ends the process
  with exit code 2."""
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
  split = lambda text: tuple(filter(None, text.split(",")))
  parser.add_argument("--devices", type=split, default=(), metavar="KIND:N,...")
  parser.add_argument("--hosts", type=split, default=(), metavar="HOST,...")
  parser.add_argument(
    "--dry-run", action="store_true", help="print what would be run"
  )
  parser.add_argument("rest", nargs="*", help="flags for every run, after --")
  args = parser.parse_args(words)
  for device in args.devices:
    kind, _, number = device.partition(":")
    if kind not in KEEP or not number.isdigit():
      parser.error(f"--devices: {device!r} is no KIND:N of {', '.join(KEEP)}")
  return args


def jobs(
  args: argparse.Namespace,
) -> Iterator[tuple[pathlib.Path, list[str]]]:
  """Yields (workdir, arguments of `lengthgen`) of every point."""
  several = len({config.partition(":")[0] for config in args.config}) > 1
  for config, values in points(args.config, args.grid):
    workdir = args.root / name(config, values, several)
    words = [f"--config={config}", f"--workdir={workdir}"]
    words += [f"--mode={args.mode}"]
    words += [f"--config.{field}={value}" for field, value in values]
    yield workdir, words + args.rest


def points(
  configs: list[str], grid: list[str]
) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
  """Yields (config, ((field, value), ...)) of every point of the grid.

  Args:
    configs: values of --config.
    grid: values of --grid, FIELD=A,B,... each.
  """
  axes = []
  for axis in grid:
    field, _, values = axis.partition("=")
    axes.append([(field, value) for value in values.split(",")])
  for config in configs:
    for values in itertools.product(*axes):
      yield config, values


def name(config: str, values: Iterable[tuple[str, str]], several: bool) -> str:
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


# Points that are done.


def ended(workdir: pathlib.Path, words: list[str]) -> bool:
  """Returns whether a job with the same arguments has ended well here."""
  path = workdir / ENDED
  return path.exists() and json.loads(path.read_text()) == words


def end(workdir: pathlib.Path, words: list[str]) -> None:
  """Records in its workdir that a job has ended well."""
  (workdir / ENDED).write_text(json.dumps(words) + "\n")


# Hosts and devices.


def slots(
  devices: Sequence[str] = (), hosts: Sequence[str] = ()
) -> list[tuple[str, str]]:
  """Returns the (host, device) of each job that may run at once; host "" is
  this machine, device "" is all of its devices."""
  return list(itertools.product(hosts or ("",), devices or ("",)))


def placed(words: list[str], place: tuple[str, str]) -> list[str]:
  """Returns the command of a job on a device of a host.

  Args:
    words: the arguments of `lengthgen`.
    place: (host, device), see `slots`.
  """
  host, device = place
  command = [*LENGTHGEN, *words]
  if device:
    kind, _, number = device.partition(":")
    command = [*KEEP[kind].format(number).split(), *command]
  if not host:
    return command
  # ssh -tt gives the command a terminal, so it ends with the connection.
  there = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(command)}"
  return ["ssh", "-tt", "-o", "BatchMode=yes", host, there]


def run(
  jobs: Iterable[tuple[pathlib.Path, list[str]]],
  places: Sequence[tuple[str, str]] = (("", ""),),
) -> Iterator[tuple[pathlib.Path, int, float]]:
  """Runs jobs, one at a time at each place.

  Args:
    jobs: (workdir, arguments of `lengthgen`) of each.
    places: (host, device) of each, see `slots`. At the default one a job writes
      to the terminal, else to log.txt in its workdir.

  Yields:
    The (workdir, exit code, seconds) of each job when it ends.
  """
  jobs = list(jobs)
  crew = Crew(jobs, quiet=len(places) > 1 or any(places[0]))
  for place in places:
    threading.Thread(target=crew.work, args=(place,), daemon=True).start()
  try:
    for _ in jobs:
      yield crew.done.get()
  except BaseException as stop:
    # Ctrl-C has reached the jobs' processes too; each saves a checkpoint first.
    crew.stop(interrupted=isinstance(stop, KeyboardInterrupt))
    raise


class Crew:
  """A crew is a queue of jobs and the threads that run them, one at each place.

  Attributes:
    waiting: (workdir, arguments) of jobs that have not begun.
    quiet: whether jobs write to log.txt instead of the terminal.
    running: processes of jobs.
    lock: held while a job begins.
    done: (workdir, exit code, seconds) of jobs that have ended.
  """

  def __init__(self, jobs: list[tuple[pathlib.Path, list[str]]], quiet: bool):
    self.waiting, self.quiet = collections.deque(jobs), quiet
    self.running, self.lock, self.done = set(), threading.Lock(), queue.Queue()

  def work(self, place: tuple[str, str]) -> None:
    """Runs waiting jobs at a place until there are none; each place has a
    thread for this."""
    while True:
      with self.lock, contextlib.ExitStack() as opened:
        if not self.waiting:
          return
        workdir, words = self.waiting.popleft()
        print(f"== {workdir} {' '.join(place)}".rstrip(), flush=True)
        start, streams = time.monotonic(), {}
        if self.quiet:
          workdir.mkdir(parents=True, exist_ok=True)
          log = opened.enter_context(open(workdir / "log.txt", "a"))
          streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        try:
          process = subprocess.Popen(placed(words, place), **streams)
        except OSError as error:  # ssh or taskset is not installed
          print(f"== {workdir}: {error}", file=sys.stderr, flush=True)
          self.done.put((workdir, 127, 0.0))
          continue
        self.running.add(process)
      code = process.wait()
      self.running.discard(process)
      self.done.put((workdir, code, time.monotonic() - start))

  def stop(self, interrupted: bool) -> None:
    """Lets no more jobs begin, and waits until those that run have ended.

    Args:
      interrupted: whether Ctrl-C has interrupted them; otherwise they are
        terminated.
    """
    with self.lock:
      self.waiting.clear()
    running = list(self.running)
    for process in running if not interrupted else ():
      process.terminate()
    for process in running:
      process.wait()


if __name__ == "__main__":
  main()
