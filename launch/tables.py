"""Fills the papers' tables and those beyond them, each by its name.

  python launch/tables.py abs
  python launch/tables.py sorting hints --size=paper
  python launch/tables.py addition-abc
  python launch/tables.py abc --plan
  python launch/tables.py --check parity-window_cpi addition-abc
  python launch/tables.py --pages

A table's runs are those of launch/listed.py; one alone is made by its name.
Each has a workdir below --root; one that was cut off is taken up where it is,
so the same command goes on after a stop. A pipeline begins with the first stage
of one beside it that has the same. Rows of runs that are done are kept in
--results, one file each, and not made again; its pages are made of them.
--size=paper is for an accelerator.

--check makes runs that are kept again and compares: the same to the last bit
where machine, versions and program are the same; elsewhere within the range of
the kept seeds, or both at 99 % or more, or both at 1 % or less.
"""

import argparse
import pathlib
import sys
import time
from functools import partial
from typing import NamedTuple

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
RESULTS, README = REPOSITORY / "docs" / "results", REPOSITORY / "README.md"
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "launch")]

import listed  # noqa: E402
import made  # noqa: E402
import sweep  # noqa: E402
import verify  # noqa: E402
from table import SIZES  # noqa: E402

from lengthgen_jax.config.saved import READING_FIELDS  # noqa: E402
from lengthgen_jax.errors import UsageError, check  # noqa: E402
from lengthgen_jax.results import archive, records  # noqa: E402


class Parser(argparse.ArgumentParser):
  """Says what is wrong in one line."""

  def error(self, message):
    raise UsageError(message)


def main(words=None) -> int:
  """Runs a command line; returns the exit code."""
  try:
    args = parse(sys.argv[1:] if words is None else words)
    if args.check:
      more = args.tables or args.plan or args.pages or args.flags
      check(not more, "--check takes no tables, --plan, --pages or flags")
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
  asked = args.tables or args.pages or args.check
  check(asked, f"name a table: {', '.join(listed.TABLES)}")
  return args


# Runs.


class Job(NamedTuple):
  """What a run lacks.

  Attributes:
    run: a listed.Run.
    head: of its kept rows, if only probes are missing.
    probes: fields of the `--mode=probe` that follows, {} for none.
  """

  run: listed.Run
  head: dict | None = None
  probes: dict = {}

  def trains(self, workdir: pathlib.Path) -> bool:
    """Whether it is made whole; the workdir of a kept run may be elsewhere."""
    return self.head is None or not (workdir / "results.jsonl").exists()

  def calls(self, workdir: pathlib.Path, trains: bool, flags) -> list:
    """Words after `lengthgen` of every call."""
    if flags:  # another run, of which nothing is kept
      return [self.run.words(workdir) + flags]
    made = self.run.calls(workdir) if trains else []
    if self.probes:
      words = listed.words(self.probes)
      made.append(["--mode=probe", self.run.place(workdir), *words])
    return made


def fill(args) -> int:
  """Makes what a table lacks; says how long that will take, and how far it
  is."""
  runs, todo = listed.chosen(args.tables, args.size), []
  found = archive.read_all(args.results / "rows")
  for name, (run, probes) in runs.items():
    own = {} if args.flags else probes
    head, rows = found.get(name, (None, []))
    changed = made.changed(run, head["config"]) if head else ""
    if args.flags or changed or not head:
      todo.append(Job(run, probes=own))
    elif own and not archive.probed(rows):
      todo.append(Job(run, head, own))
    if changed and not args.flags:
      print(f"{name} is made again: {changed}")
  left = partial(plan, found=found)
  print(left([job.run for job in todo], len(runs)), flush=True)
  if args.plan or not todo:
    return 0
  return make(args, todo, left)


def make(args, todo: list[Job], left) -> int:
  """Makes runs one after the other; returns the exit code."""
  # With flags it is another run, whose rows must not meet those of the list.
  root = args.root / ("flags" if args.flags else args.size)
  failed, started = [], time.monotonic()
  about = None if args.flags else made.here()
  for number, job in enumerate(todo, 1):
    name, code = job.run.name, 0
    workdir = root / name
    if not args.flags:
      made.set_aside(job.run, workdir)
      made.share(job.run, workdir)
    head = about if job.trains(workdir) else job.head
    for words in job.calls(workdir, head is about, args.flags):
      [(_, code, seconds)] = sweep.run([(workdir, words)])
      if head is about:
        made.add_seconds(workdir, seconds)
      if code:
        break
    if code:
      failed.append(name)
    elif not args.flags:
      made.keep(job.run, workdir, args.results, head)
      made.keep_figures(listed.TABLES, job.run, workdir, args.results)
    spent = made.duration(time.monotonic() - started)
    more = left([other.run for other in todo[number:]])
    print(f"== {number} of {len(todo)} in {spent}: {name}; {more}", flush=True)
  if list(root.rglob("results.jsonl")):
    from lengthgen_jax.results import report

    report.run(root, READING_FIELDS)
    print(f"all results below {root}: {root / 'report.html'}")
  check(
    not failed, f"failed: {', '.join(failed)}; the same command tries again"
  )
  return 0


def plan(todo: list, of: int = 0, *, found: dict) -> str:
  """How much there is to do, of so many runs."""
  heads = {name: head for name, (head, _) in found.items()}
  times = [listed.seconds(run, heads) for run in todo]
  known = [seconds for seconds in times if seconds]
  unknown = len(times) - len(known)
  about = f"about {made.duration(sum(known))}"
  if unknown and known:
    about += f" for {len(known)}, {unknown} were never timed"
  elif unknown:
    about = "never timed"
  about = f"{len(todo)} to do ({about})" if todo else "nothing left to do"
  return f"{of} runs, {about}" if of else about


# Pages.


def write_pages(args) -> None:
  """Makes pages of all kept rows, and says which."""
  import book
  import headline

  found = archive.read_all(args.results / "rows")
  for path in book.write(args.results, found):
    print(path)
  if args.results == RESULTS:
    text = README.read_text()
    records.write_text(README, headline.put(text, found))
    print(README)


if __name__ == "__main__":
  sys.exit(main())
