"""Fills the papers' tables and those beyond them; each is called by its name.

  python launch/tables.py abs
  python launch/tables.py sorting hints --size=paper
  python launch/tables.py addition-abc
  python launch/tables.py abc --plan
  python launch/tables.py --check parity-window_cpi addition-abc
  python launch/tables.py --pages

The runs of a table are listed in launch/listed.py; a single run is called by
its name too. Each has a workdir below --root; a run that was cut off resumes,
so the same command continues after a stop. A pipeline copies the first stage of
another one whose first stage is the same. The rows of runs that are done are
archived in --results, a file for each run, and these runs are not made again;
the pages are made of these rows. --size=paper is for an accelerator.

--check makes archived runs again and compares: rows must be the same to the
last bit where machine, versions and program are the same; elsewhere they must
be within the range of the archived seeds, or both at 99 % or more, or both at
1 % or less.
"""

import argparse
import pathlib
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
RESULTS, README = REPOSITORY / "docs" / "results", REPOSITORY / "README.md"
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "launch")]

import listed  # noqa: E402
import made  # noqa: E402
import sweep  # noqa: E402
import verify  # noqa: E402
from table import SIZES  # noqa: E402

from lengthgen_jax.errors import UsageError, check  # noqa: E402
from lengthgen_jax.results import archive, records  # noqa: E402


class Parser(argparse.ArgumentParser):
  """A Parser reports a wrong command line in one line."""

  def error(self, message: str):
    """Raises UsageError instead of printing the usage."""
    raise UsageError(message)


def main(words: list[str] | None = None) -> int:
  """Runs a command line, sys.argv's by default, and returns the exit code."""
  try:
    args = parse(sys.argv[1:] if words is None else words)
    if args.check:
      others = args.tables or args.plan or args.pages or args.flags
      check(not others, "--check takes no tables, --plan, --pages or flags")
      return verify.run(args.check, args.results, args.root / "check")
    if not args.pages:
      code = fill(args)
      if code or args.plan or args.flags:
        return code
    write_pages(args)
    return 0
  except UsageError as error:
    print(f"tables: {error}", file=sys.stderr)
    return 1
  except KeyboardInterrupt:
    print("stopped; the same command goes on from here", file=sys.stderr)
    return 130


def parse(words: list[str]) -> argparse.Namespace:
  """Returns the parsed command line; what follows `--` is `flags`.

  Raises:
    UsageError: a flag is wrong, or a name is neither a table's nor a run's.
  """
  parser = Parser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  add = parser.add_argument
  add("tables", nargs="*", metavar="TABLE", help=", ".join(listed.TABLES))
  add("--size", choices=SIZES, default="cpu")
  add("--root", type=pathlib.Path, default=pathlib.Path("runs/tables"))
  add("--results", type=pathlib.Path, default=RESULTS)
  add("--plan", action="store_true", help="say what there is to do, no more")
  add("--pages", action="store_true", help="make the pages of what is kept")
  add("--check", nargs="+", metavar="ROW", help="make kept runs again")
  usage = parser.format_usage().removeprefix("usage: ").strip()
  parser.usage = (
    f"{usage} [-- FLAG ...]\n\nFLAGs are for every run, whose rows are not kept"
  )
  end = words.index("--") if "--" in words else len(words)
  args = parser.parse_args(words[:end])
  args.flags = words[end + 1 :]
  listed.chosen(args.tables, args.size)
  work = args.tables or args.pages or args.check
  check(work, f"name a table: {', '.join(listed.TABLES)}")
  return args


# Runs.


class Job(NamedTuple):
  """A job is a run that is not archived yet, or whose probes are not.

  Attributes:
    run: the run.
    head: of the archived rows, if only probes are missing; else None.
    probes: {field: value} of the `--mode=probe` that follows, {} for none.
  """

  run: listed.Run
  head: dict | None = None
  probes: dict[str, Any] = {}

  def trains(self, workdir: pathlib.Path) -> bool:
    """Returns whether the run itself is made; it is so too for probes if the
    workdir of the archived run is not here."""
    return self.head is None or not (workdir / "results.jsonl").exists()

  def calls(
    self, workdir: pathlib.Path, trains: bool, flags: list[str]
  ) -> list[list[str]]:
    """Returns the arguments of `lengthgen` of every call.

    Args:
      workdir: of the run.
      trains: whether the run itself is made.
      flags: further ones of the command line.
    """
    if flags:  # with them it is another run, which is not archived
      return [self.run.words(workdir) + flags]
    calls = self.run.calls(workdir) if trains else []
    if self.probes:
      words = listed.words(self.probes)
      calls.append(["--mode=probe", self.run.place(workdir), *words])
    return calls


def fill(args: argparse.Namespace) -> int:
  """Makes the runs that are not archived yet, prints how long they will take,
  and returns the exit code."""
  runs, todo = listed.chosen(args.tables, args.size), []
  kept_runs = archive.read_all(args.results / "rows")
  for name, (run, probes) in runs.items():
    probe_fields = {} if args.flags else probes
    head, rows = kept_runs.get(name, (None, []))
    changed = made.changed(run, head["config"]) if head else ""
    if args.flags or changed or not head:
      todo.append(Job(run, probes=probe_fields))
    elif probe_fields and not archive.probed(rows):
      todo.append(Job(run, head, probe_fields))
    if changed and not args.flags:
      print(f"{name} is made again: {changed}")
  left = partial(plan, kept_runs=kept_runs)
  print(left([job.run for job in todo], len(runs)), flush=True)
  if args.plan or not todo:
    return 0
  return make(args, todo, left)


def make(
  args: argparse.Namespace, todo: list[Job], left: Callable[..., str]
) -> int:
  """Makes runs one after the other and returns the exit code.

  Args:
    args: the command line.
    todo: the runs.
    left: returns a text about the runs that remain.

  Raises:
    UsageError: a run failed.
  """
  # With flags these are other runs, whose rows must not mix with listed ones'.
  root = args.root / ("flags" if args.flags else args.size)
  failed, started = [], time.monotonic()
  origin = None if args.flags else made.here()
  for number, job in enumerate(todo, 1):
    name, code = job.run.name, 0
    workdir = root / name
    if not args.flags:
      made.set_aside(job.run, workdir)
      made.share(job.run, workdir)
    head = origin if job.trains(workdir) else job.head
    for words in job.calls(workdir, head is origin, args.flags):
      [(_, code, seconds)] = sweep.run([(workdir, words)])
      if head is origin:
        made.add_seconds(workdir, seconds)
      if code:
        break
    if code:
      failed.append(name)
    elif not args.flags:
      made.keep(job.run, workdir, args.results, head)
      made.keep_figures(listed.TABLES, job.run, workdir, args.results)
    spent = made.duration(time.monotonic() - started)
    remaining = left([other.run for other in todo[number:]])
    print(
      f"== {number} of {len(todo)} in {spent}: {name}; {remaining}", flush=True
    )
  if list(root.rglob("results.jsonl")):
    from lengthgen_jax.pipelines import report

    report.write_report(root)
    print(f"all results below {root}: {root / 'report.html'}")
  check(
    not failed, f"failed: {', '.join(failed)}; the same command tries again"
  )
  return 0


def plan(
  todo: list[listed.Run],
  of: int = 0,
  *,
  kept_runs: dict[str, tuple[dict, list[dict]]],
) -> str:
  """Returns a text that says how many runs remain and how long they will take.

  Args:
    todo: the runs that remain.
    of: number of all runs; 0 leaves it out.
    kept_runs: (head, rows) of archived runs, by name.
  """
  heads = {name: head for name, (head, _) in kept_runs.items()}
  times = [listed.seconds(run, heads) for run in todo]
  known = [seconds for seconds in times if seconds]
  unknown = len(times) - len(known)
  text = f"about {made.duration(sum(known))}"
  if unknown and known:
    text += f" for {len(known)}, {unknown} were never timed"
  elif unknown:
    text = "never timed"
  text = f"{len(todo)} to do ({text})" if todo else "nothing left to do"
  return f"{of} runs, {text}" if of else text


# Pages.


def write_pages(args: argparse.Namespace) -> None:
  """Writes the pages of all archived rows, and prints their paths."""
  import book
  import headline

  kept_runs = archive.read_all(args.results / "rows")
  for path in book.write(args.results, kept_runs):
    print(path)
  if args.results == RESULTS:
    text = README.read_text()
    records.write_text(README, headline.put(text, kept_runs))
    print(README)


if __name__ == "__main__":
  sys.exit(main())
