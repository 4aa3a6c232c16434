"""Makes the runs of the papers' tables and of our own, given by name.

  python launch/tables.py abs
  python launch/tables.py sorting hints --size=paper
  python launch/tables.py addition-abc
  python launch/tables.py abc --plan
  python launch/tables.py --check parity-window_cpi addition-abc
  python launch/tables.py --pages

A name is that of a table or of a single run. Each run has a workdir below
--root. A run that was interrupted resumes when the same command is given again.
The rows of finished runs are archived in --results, one file for each run, and
archived runs are not repeated unless their config has changed or their probes
are missing. At the end, or at once with --pages, the result pages are written
from the archive, and with the default --results also README.md's tables.
--size=paper is for an accelerator. With --parallel=N, N runs are made at the
same time, and each writes to NAME.log.

--check repeats archived runs and compares their rows. Rows must be equal to the
last bit if the machine and the versions of libraries are the same and
lengthgen_jax/ and configs/ have not changed since the archived commit.
Otherwise only exact match is compared: it must be within the range of the
archived seeds, or at 99 % or more as all of these are, or at 1 % or less as all
of these are.
"""

import argparse
import datetime
import pathlib
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "docs" / "results"
sys.path.insert(0, str(REPOSITORY))

from lengthgen_jax.errors import Parser, UsageError, check  # noqa: E402
from lengthgen_jax.papers import pages, provenance, runs  # noqa: E402
from lengthgen_jax.papers.experiments import SIZES  # noqa: E402


def parse(argv: list[str]) -> argparse.Namespace:
  """Returns the parsed arguments of the command line.

  Raises:
    UsageError: a flag is wrong, no table is named, or a name among the tables
      is neither that of a table nor that of a run of this size. The names in
      --check are not looked up here.
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
  add("--parallel", type=int, default=1, metavar="N", help="runs at a time")
  add("--plan", action="store_true", help="only list the runs to make")
  add(
    "--pages",
    action="store_true",
    help="only write pages and tables",
  )
  add("--check", nargs="+", metavar="RUN", help="repeat archived runs")
  args = parser.parse_args(argv)
  check(args.parallel > 0, f"--parallel={args.parallel}: must be positive")
  check(args.tables or args.pages or args.check, f"name a table: {names}")
  check(
    not args.check
    or not (args.tables or args.plan or args.pages or args.parallel > 1),
    "--check takes no tables, --plan, --pages or --parallel",
  )
  check(not (args.plan and args.pages), "--plan and --pages exclude each other")
  check(
    not (args.tables and args.pages),
    "--pages takes no tables: it writes the pages of all",
  )
  runs.select(args.tables, args.size)  # raises if a name is unknown
  return args


def main(argv: list[str] | None = None) -> int:
  """Runs a command line, by default that of sys.argv; returns the exit code: 1
  after an error, or if --check finds a difference; 130 after Ctrl-C."""
  try:
    args = parse(sys.argv[1:] if argv is None else argv)
    if args.check:
      agree = runs.check_runs(args.check, args.root / "check", args.results)
      return int(not agree)
    if not args.pages:
      archive = provenance.read_archive(args.results / "rows")
      jobs = runs.jobs_of(args.tables, args.size, archive)
      print(plan(jobs), flush=True)
      if args.plan:
        return 0
      root = args.root / args.size
      runs.run_jobs(jobs, root, args.results, args.parallel)
    is_default = args.results.resolve() == RESULTS.resolve()
    readme = REPOSITORY / "README.md" if is_default else None
    for path in pages.write(args.results, readme):
      print(path)
    return 0
  except UsageError as error:
    print(f"tables: {error}", file=sys.stderr)
    return 1
  except KeyboardInterrupt:
    print(
      "stopped; the same command goes on from here (--check makes runs that"
      " agreed again)",
      file=sys.stderr,
    )
    return 130


def plan(jobs: list[runs.Job]) -> str:
  """Returns a line of text for each run to make, and a last one with their
  number. A run's line has its name, why it has to be made, and how long it took
  when docs/results was made, whatever --results is."""
  archive, lines = provenance.read_archive(RESULTS / "rows"), []
  for job in jobs:
    archived_run, time_text = archive.get(job.run.name), "never timed"
    if archived_run and archived_run.header["seconds"]:
      duration = datetime.timedelta(seconds=archived_run.header["seconds"])
      time_text = f"took {duration} on {archived_run.header['machine']}"
    lines.append(f"{job.run.name}: {job.reason} ({time_text})")
  return "\n".join([*lines, f"runs to make: {len(jobs)}"])


if __name__ == "__main__":
  sys.exit(main())
