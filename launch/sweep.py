"""Runs one lengthgen command for every point of a grid, then makes the report.

  python launch/sweep.py --root=runs/window \\
    --config=configs/arithmetic.py:addition,window_cpi \\
    --grid=bias.window=1,2 --grid=positions.cyclic_period=3,5 \\
    -- '--config.seeds=(0,1,2)'

Several --config values are an axis of the grid, too. So one line runs two
methods of the ABS paper on two of its tasks:

  python launch/sweep.py --root=runs/abs \\
    --config=configs/arithmetic.py:{successor,addition}\\
,{vanilla,window_cpi} -- '--config.seeds=(0,1,2)'

Every point of the grid has a workdir below --root, with a name like
FILE-PRESET-field=value. A point that succeeded is not run again, and an
interrupted one resumes, so the same command continues after a stop. Points run
one after the other, or several at the same time:

  --devices=cuda:0,cuda:1  one on each device; cpu:N is a core, tpu:N a chip
  --hosts=first,second     one on each host, reached by ssh; the hosts must see
                           this folder under the same name; with --devices, one
                           on each of these devices of each host

With --devices or --hosts, points write to log.txt in their workdirs.
"""

import argparse
import concurrent.futures
import itertools
import os
import pathlib
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence

from lengthgen_jax.config import files
from lengthgen_jax.config.fields import check_fields
from lengthgen_jax.errors import Parser, UsageError, check, workdir_path
from lengthgen_jax.main import split_assignments

# A file in the workdir of a job that succeeded: the arguments of the job.
DONE = "sweep.txt"
LENGTHGEN = (sys.executable, "-m", "lengthgen_jax")
# What a command begins with so that its process uses one device alone, by the
# kind of the device; {} is the device's number.
BIND_COMMANDS = {
  "cuda": "env CUDA_VISIBLE_DEVICES={}",
  "cpu": "env JAX_PLATFORMS=cpu taskset -c {}",
  "tpu": "env TPU_VISIBLE_CHIPS={} TPU_CHIPS_PER_PROCESS_BOUNDS=1,1,1"
  " TPU_PROCESS_BOUNDS=1,1,1",
}
# A workdir, and the arguments of `lengthgen` in each command of the job.
Job = tuple[pathlib.Path, list[list[str]]]
Slot = tuple[str, str]  # a host ("" is this machine), a device ("": all of it)


def main() -> None:
  """Runs the sweep that sys.argv describes, and then makes the report of all
  results below --root, even if some points failed; or with --dry-run prints
  which points are done, and the commands of the others.

  SystemExit says what failed. It is not raised if only the report fails.
  """
  try:
    args = parse(sys.argv[1:])
  except UsageError as error:
    sys.exit(f"sweep: {error}")
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
  pending, failures = {}, []
  for workdir, arguments in jobs(args):
    done, text = workdir / DONE, shlex.join(arguments)
    # A file that was cut off is another text.
    if done.exists() and done.read_bytes() == text.encode():
      print(f"== {workdir} is done", flush=True)
    else:
      pending[workdir] = arguments
  # One job at a time runs on each slot.
  slots = list(itertools.product(args.hosts, args.devices))
  if args.dry_run:
    for arguments, slot in zip(pending.values(), itertools.cycle(slots)):
      print(shlex.join(command(arguments, slot)), flush=True)
    return
  try:
    todo = [(workdir, [arguments]) for workdir, arguments in pending.items()]
    for workdir, code, _ in run_jobs(todo, slots):
      if code:
        failures.append(str(workdir))
        continue
      workdir.mkdir(parents=True, exist_ok=True)  # some modes make none
      text = shlex.join(pending[workdir])
      (workdir / DONE).write_text(text, encoding="utf-8")
  except KeyboardInterrupt:
    print("stopped; the same command goes on from here", file=sys.stderr)
    sys.exit(130)
  subprocess.run([*LENGTHGEN, "--mode=report", f"--workdir={args.root}"])
  if failures:
    sys.exit(f"failed: {', '.join(failures)}")


def parse(words: list[str]) -> argparse.Namespace:
  """Returns the parsed flags, with everything checked but which fields fit each
  other: each run checks that."""
  parser = Parser(__doc__)
  add, split = parser.add_argument, lambda text: text.split(",")
  add("--root", type=pathlib.Path, required=True)
  add("--config", action="append", required=True)
  add(
    "--grid",
    action="append",
    default=[],
    metavar="FIELD=A,B,...",
    help="values without commas of a config field; repeated for a product",
  )
  add("--devices", type=split, default=[""], metavar="KIND:N,...")
  add("--hosts", type=split, default=[""], metavar="HOST,...")
  add("--dry-run", action="store_true", help="print what would be run")
  add("rest", nargs="*", help="flags for every run, after --, like --mode=abc")
  args = parser.parse_args(words)
  args.root = workdir_path("--root", args.root)
  workdirs = [str(workdir) for workdir, _ in jobs(args)]
  shared = sorted({x for x in workdirs if workdirs.count(x) > 1})
  check(not shared, f"several points would share {', '.join(shared)}")
  fixed = {x.partition("=")[0] for x in split_assignments(args.rest)[0]}
  for axis in args.grid:
    field = axis.partition("=")[0]
    check(field not in fixed, f"--grid={axis}: {field} is also set after --")
  presets = {spec: files.load_config(spec) for spec in args.config}
  for _, arguments in jobs(args):
    preset = presets[arguments[0].removeprefix("--config=")]
    assignments, _ = split_assignments(arguments)
    check_fields(files.with_assignments(preset, assignments))
  kinds = "|".join(BIND_COMMANDS)
  for device in filter(None, args.devices):
    is_device = re.fullmatch(rf"({kinds}):\d+", device)
    check(is_device, f"--devices: {device!r} must be ({kinds}):NUMBER")
  return args


def jobs(args: argparse.Namespace) -> Iterator[tuple[pathlib.Path, list[str]]]:
  """Yields each point's workdir and the arguments of its command."""
  axes = []
  for axis in args.grid:
    field, _, values = axis.partition("=")
    axes.append([(field, value) for value in values.split(",")])
  for config in args.config:
    for values in itertools.product(*axes):
      workdir = args.root / workdir_name(config, values)
      arguments = [f"--config={config}", f"--workdir={workdir}"]
      arguments += [f"--config.{field}={value}" for field, value in values]
      yield workdir, arguments + args.rest


def workdir_name(config: str, values: Iterable[tuple[str, str]]) -> str:
  """Returns the name of a point's workdir, for a config FILE[:PRESET] and the
  (field, value) of each --grid.

  What is no letter, digit or one of . + - in a value becomes "_", so that the
  name is that of one folder, and one that checkpoints can be read from.
  """
  path, _, preset = config.partition(":")
  words = [pathlib.Path(path).stem, *filter(None, preset.split(","))]
  for field, value in values:
    value = re.sub(r"[^\w.+-]+", "_", value).strip("_")
    words.append(f"{field.rpartition('.')[2]}={value}")
  return "-".join(words)


def command(arguments: list[str], slot: Slot) -> list[str]:
  """Returns the words of the command line that runs `lengthgen` on a slot, by
  ssh if it is on another host."""
  host, device = slot
  local = [*LENGTHGEN, *arguments]
  if device:
    kind, _, number = device.partition(":")
    local = [*BIND_COMMANDS[kind].format(number).split(), *local]
  if not host:
    return local
  # ssh -tt gives the command a terminal, so it ends with the connection.
  remote = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(local)}"
  return ["ssh", "-tt", "-o", "BatchMode=yes", host, remote]


def run_jobs(
  jobs: Iterable[Job],
  slots: Sequence[Slot] = (("", ""),),
  folder: pathlib.Path | None = None,
) -> Generator[tuple[pathlib.Path, int, float]]:
  """Runs jobs, one at a time on each slot, and yields (workdir, exit code,
  seconds) of each when it ends, which is when one of its commands fails; the
  code is 127 if a process could not be started.

  If this process is stopped, no more jobs begin. Those that run get SIGTERM
  (unless it was Ctrl-C, which has reached them already), save a checkpoint, and
  are waited for. Those on other hosts end with their ssh, without saving.

  With the default slot alone jobs write to the terminal, else each to log.txt
  in its workdir. Local processes run in `folder`, None for the current one.
  """
  to_log = len(slots) > 1 or any(slots[0])
  free_slots, processes = queue.SimpleQueue(), set()
  for slot in slots:
    free_slots.put(slot)
  # The lock makes sure that no process starts once `stopped` is set.
  lock, stopped = threading.Lock(), threading.Event()

  def run_job(
    workdir: pathlib.Path, commands: list[list[str]]
  ) -> tuple[pathlib.Path, int, float]:
    slot, start, code = free_slots.get(), time.monotonic(), 0
    log = workdir / "log.txt" if to_log else None
    try:
      for arguments in commands:
        with lock:
          if stopped.is_set():
            code = 1
            break
          if arguments is commands[0]:
            print(f"== {workdir} {' '.join(slot)}".rstrip(), flush=True)
          process = start_process(command(arguments, slot), log, folder)
          processes.add(process)
        if code := process.wait():
          break
    except OSError as error:  # no ssh, or log.txt cannot be written
      print(f"== {workdir}: {error}", file=sys.stderr, flush=True)
      code = 127
    finally:
      free_slots.put(slot)
    return workdir, code, time.monotonic() - start

  with concurrent.futures.ThreadPoolExecutor(len(slots)) as pool:
    try:
      futures = [pool.submit(run_job, *job) for job in jobs]
      for future in concurrent.futures.as_completed(futures):
        yield future.result()
    except BaseException as error:
      with lock:
        stopped.set()
      for process in processes:
        if not isinstance(error, KeyboardInterrupt):
          process.terminate()
      raise


def start_process(
  words: list[str], log: pathlib.Path | None, folder: pathlib.Path | None
) -> subprocess.Popen:
  """Starts the process of a command line in `folder`, with its output appended
  to the file `log`, or in the terminal."""
  if log is None:
    return subprocess.Popen(words, cwd=folder)
  log.parent.mkdir(parents=True, exist_ok=True)
  with open(log, "a", encoding="utf-8") as file:
    return subprocess.Popen(
      words, cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file
    )


if __name__ == "__main__":
  main()
