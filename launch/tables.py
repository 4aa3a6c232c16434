"""Fills the papers' tables and those beyond them; each is called by its name.

  python launch/tables.py abs
  python launch/tables.py sorting hints --size=paper
  python launch/tables.py addition-abc
  python launch/tables.py abc --plan
  python launch/tables.py --check parity-window_cpi addition-abc
  python launch/tables.py --pages

A single run is called by its name too. Each has a workdir below --root; a run
that was cut off resumes, so the same command continues after a stop. The rows
of runs that are done are archived in --results, a file for each run, and these
runs are not made again; the pages are made of these rows. --size=paper is for
an accelerator.

--check makes archived runs again and compares: rows must be the same to the
last bit where machine and versions are the same and lengthgen_jax/ and configs/
have not changed since the rows' commit; elsewhere they must be within the range
of the archived seeds, or both at 99 % or more, or both at 1 % or less.
"""

import argparse
import datetime
import pathlib
import sys
from typing import NoReturn

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "docs" / "results"
sys.path.insert(0, str(REPOSITORY))

from lengthgen_jax.errors import UsageError, check  # noqa: E402
from lengthgen_jax.papers import pages, provenance, runs  # noqa: E402
from lengthgen_jax.papers.experiments import SIZES  # noqa: E402


class Parser(argparse.ArgumentParser):
  """A Parser reports a wrong command line in one line."""

  def error(self, message: str) -> NoReturn:
    """Raises UsageError instead of printing the usage."""
    raise UsageError(message)


def parse(words: list[str]) -> argparse.Namespace:
  """Returns the parsed command line.

  Raises:
    UsageError: a flag is wrong, or a name is neither a table's nor a run's.
  """
  parser = Parser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  names = ", ".join(runs.TABLES)
  add = parser.add_argument
  add("tables", nargs="*", metavar="TABLE", help=names)
  add("--size", choices=SIZES, default="cpu")
  add("--root", type=pathlib.Path, default=pathlib.Path("runs/tables"))
  add("--results", type=pathlib.Path, default=RESULTS)
  add("--plan", action="store_true", help="say what there is to do, no more")
  add("--pages", action="store_true", help="write pages of the archived rows")
  add("--check", nargs="+", metavar="ROW", help="make archived runs again")
  args = parser.parse_args(words)
  check(args.tables or args.pages or args.check, f"name a table: {names}")
  check(
    not (args.check and (args.tables or args.plan or args.pages)),
    "--check takes no tables, --plan or --pages",
  )
  runs.select(args.tables, args.size)
  return args


def main(words: list[str] | None = None) -> int:
  """Runs a command line, sys.argv's by default, and returns the exit code."""
  try:
    args = parse(sys.argv[1:] if words is None else words)
    if args.check:
      agree = runs.check_runs(args.check, args.root / "check", args.results)
      return int(not agree)
    if not args.pages:
      archive = provenance.read_archive(args.results / "rows")
      jobs = runs.jobs_of(args.tables, args.size, archive)
      print(plan(jobs), flush=True)
      if args.plan:
        return 0
      runs.make(jobs, args.root / args.size, args.results)
    readme = REPOSITORY / "README.md" if args.results == RESULTS else None
    for path in pages.write(args.results, readme):
      print(path)
    return 0
  except UsageError as error:
    print(f"tables: {error}", file=sys.stderr)
    return 1
  except KeyboardInterrupt:
    print("stopped; the same command goes on from here", file=sys.stderr)
    return 130


def plan(jobs: list[runs.Job]) -> str:
  """Returns a line for each run that is to be made: why, and how long it took
  where the rows of this repository were made."""
  archive, lines = provenance.read_archive(RESULTS / "rows"), []
  for job in jobs:
    run, took = archive.get(job.run.name), "never timed"
    if run and run.head["seconds"]:
      time = datetime.timedelta(seconds=run.head["seconds"])
      took = f"took {time} on {run.head['machine']}"
    lines.append(f"{job.run.name}: {job.reason} ({took})")
  return "\n".join([*lines, f"runs to make: {len(jobs)}"])


if __name__ == "__main__":
  sys.exit(main())
