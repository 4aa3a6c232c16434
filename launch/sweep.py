"""Runs one lengthgen command for every point of a grid, then the report.

  python launch/sweep.py --root=runs/window \\
    --config=configs/arithmetic.py:addition,window_cpi \\
    --grid=bias.window=1,2 --grid=positions.cyclic_period=3,5 \\
    -- '--config.seeds=(0,1,2)'

Several --config values are a grid too, so the ABS table is one line:

  python launch/sweep.py --root=runs/abs \\
    --config=configs/arithmetic.py:{successor,addition}\\
,{vanilla,window_cpi} -- '--config.seeds=(0,1,2)'

Every point has a workdir below --root. One that has ended well is not run
again; an interrupted one is taken up where it is, so the same command goes on
after a stop. Points run one after the other, or at once:

  --devices=cuda:0,cuda:1  one on each of these; cpu:N is a core, tpu:N a chip
  --hosts=first,second     one on each of these, by ssh, which must see this
                           folder under the same name; with --devices, one on
                           each of these of each host

What runs at once writes to log.txt in its workdir.
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

ENDED = "sweep.json"  # the words of the job that ended well in its workdir

LENGTHGEN = (sys.executable, "-m", "lengthgen_jax.main")
# How a command is kept to one device.
KEEP = {
  "cuda": "env CUDA_VISIBLE_DEVICES={}",
  "cpu": "env JAX_PLATFORMS=cpu taskset -c {}",
  "tpu": "env TPU_VISIBLE_CHIPS={} TPU_CHIPS_PER_PROCESS_BOUNDS=1,1,1"
  " TPU_PROCESS_BOUNDS=1,1,1",
}


def main() -> None:
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


def jobs(args: argparse.Namespace):
  """(workdir, words after `lengthgen`) of every point."""
  several = len({config.partition(":")[0] for config in args.config}) > 1
  for config, values in points(args.config, args.grid):
    workdir = args.root / name(config, values, several)
    words = [f"--config={config}", f"--workdir={workdir}"]
    words += [f"--mode={args.mode}"]
    words += [f"--config.{field}={value}" for field, value in values]
    yield workdir, words + args.rest


def points(configs: list[str], grid: list[str]):
  """(config, ((field, value), ...)) for every point of the product."""
  axes = []
  for axis in grid:
    field, _, values = axis.partition("=")
    axes.append([(field, value) for value in values.split(",")])
  for config in configs:
    for values in itertools.product(*axes):
      yield config, values


def name(config: str, values, several: bool) -> str:
  """A folder name that tells the point, its file too if there are several."""
  path, _, preset = config.partition(":")
  words = [pathlib.Path(path).stem] if several or not preset else []
  words += [preset.replace(",", "-")] if preset else []
  words += [f"{field.rpartition('.')[2]}={value}" for field, value in values]
  return "-".join(words)


# What is done.


def ended(workdir: pathlib.Path, words: list[str]) -> bool:
  """Whether this very job has ended well."""
  path = workdir / ENDED
  return path.exists() and json.loads(path.read_text()) == words


def end(workdir: pathlib.Path, words: list[str]) -> None:
  (workdir / ENDED).write_text(json.dumps(words) + "\n")


# Where.


def slots(devices=(), hosts=()) -> list[tuple[str, str]]:
  """(host, device) of everything that runs at once; "" where it is here, and
  on all there is."""
  return list(itertools.product(hosts or ("",), devices or ("",)))


def placed(words: list[str], place: tuple[str, str]) -> list[str]:
  """The command of a job on a device of a host."""
  host, device = place
  command = [*LENGTHGEN, *words]
  if device:
    kind, _, number = device.partition(":")
    command = [*KEEP[kind].format(number).split(), *command]
  if not host:
    return command
  # With a terminal, at whose end the command ends.
  there = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(command)}"
  return ["ssh", "-tt", "-o", "BatchMode=yes", host, there]


def run(jobs, places=(("", ""),)):
  """Runs jobs, one at each place at a time.

  Args:
    jobs: (workdir, words after `lengthgen`).
    places: (host, device), see `slots`. At the usual one a job has the
      terminal, else it writes to log.txt in its workdir.

  Yields:
    (workdir, exit code, seconds) of each as it ends.
  """
  jobs = list(jobs)
  crew = Crew(jobs, quiet=len(places) > 1 or any(places[0]))
  for place in places:
    threading.Thread(target=crew.work, args=(place,), daemon=True).start()
  try:
    for _ in jobs:
      yield crew.done.get()
  except BaseException as stop:
    # Ctrl-C has reached the runs too; any of them saves first.
    crew.stop(interrupted=isinstance(stop, KeyboardInterrupt))
    raise


class Crew:
  """Jobs that wait, run and are done; `work` is for a thread at each place."""

  def __init__(self, jobs: list, quiet: bool):
    self.waiting, self.quiet = collections.deque(jobs), quiet
    self.running, self.lock, self.done = set(), threading.Lock(), queue.Queue()

  def work(self, place: tuple[str, str]) -> None:
    """Takes jobs until there are none."""
    while True:
      with self.lock, contextlib.ExitStack() as opened:
        if not self.waiting:
          return
        workdir, words = self.waiting.popleft()
        print(f"== {workdir} {' '.join(place)}".rstrip(), flush=True)
        start, how = time.monotonic(), {}
        if self.quiet:
          workdir.mkdir(parents=True, exist_ok=True)
          log = opened.enter_context(open(workdir / "log.txt", "a"))
          how = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        try:
          process = subprocess.Popen(placed(words, place), **how)
        except OSError as error:  # no ssh, no taskset
          print(f"== {workdir}: {error}", file=sys.stderr, flush=True)
          self.done.put((workdir, 127, 0.0))
          continue
        self.running.add(process)
      code = process.wait()
      self.running.discard(process)
      self.done.put((workdir, code, time.monotonic() - start))

  def stop(self, interrupted: bool) -> None:
    """Begins no more jobs, and waits for those that run to end, which they are
    told to unless they were interrupted."""
    with self.lock:
      self.waiting.clear()
    running = list(self.running)
    for process in running if not interrupted else ():
      process.terminate()
    for process in running:
      process.wait()


if __name__ == "__main__":
  main()
