"""Makes the runs of the papers' tables and of our own, given by name.

  python launch/tables.py abs
  python launch/tables.py sorting hints --size=paper
  python launch/tables.py addition-abc
  python launch/tables.py abc --plan
  python launch/tables.py --check parity-window_cpi addition-abc
  python launch/tables.py --pages

A name is that of a table or of a single run of this --size. Each run has a
workdir below --root. A run that was interrupted resumes when the same command
is given again. The rows of finished runs are archived in --results, one file
for each run, and archived runs are not repeated unless their config has
changed or their probes are missing. At the end, or at once with --pages, the
result pages are written from the archive, and with the default --results also
README.md's tables.
--size=paper is for an accelerator. With --parallel=N, N runs are made at the
same time, and each writes to log.txt in its workdir.

--check repeats archived runs, of a table all, one after the other, and compares
their rows. Rows must be equal to the last bit if the machine and the versions
of libraries are the same and lengthgen_jax/ and configs/ have not changed since
the archived commit; else the exact match of each seed must lie among those of
the archived seeds.
"""

import argparse
import contextlib
import datetime
import difflib
import json
import operator
import os
import pathlib
import shutil
import sys
from typing import Any, NamedTuple

import sweep

from lengthgen_jax import origin
from lengthgen_jax.errors import Parser, UsageError, check
from lengthgen_jax.origin import REPOSITORY
from lengthgen_jax.papers import archive, pages, runs
from lengthgen_jax.papers.archive import Archive
from lengthgen_jax.papers.runs import DATA, SIZES, Run
from lengthgen_jax.results import records

RESULTS = REPOSITORY / "docs" / "results"
# Exact match of at least ALWAYS counts as always right, and of at most NEVER as
# never.
ALWAYS, NEVER = 0.99, 0.01


def parse(argv: list[str]) -> argparse.Namespace:
  parser = Parser(__doc__)
  names = ", ".join(DATA["tables"])
  add = parser.add_argument
  add("tables", nargs="*", metavar="TABLE", help=names)
  add("--size", choices=SIZES, default="cpu")
  add("--root", type=pathlib.Path, default=pathlib.Path("runs/tables"))
  add("--results", type=pathlib.Path, default=RESULTS)
  add("--parallel", type=int, default=1, metavar="N", help="runs at a time")
  add = parser.add_mutually_exclusive_group().add_argument
  add("--plan", action="store_true", help="only list the runs to make")
  add("--pages", action="store_true", help="only write pages and tables")
  add("--check", action="store_true", help="repeat archived runs")
  args = parser.parse_args(argv)
  check(args.parallel > 0, f"--parallel={args.parallel}: must be positive")
  check(args.tables or args.pages, f"name a table: {names}")
  check(not (args.tables and args.pages), "--pages takes no tables")
  check(not args.check or args.parallel == 1, "--check takes no --parallel")
  return args


def main(argv: list[str] | None = None) -> int:
  """Runs a command line, by default that of sys.argv; returns the exit code: 1
  after an error, or if --check finds a difference; 130 after Ctrl-C."""
  try:
    args = parse(sys.argv[1:] if argv is None else argv)
    root = args.root.resolve()
    if args.check:
      chosen = select(args.tables, args.size)
      return int(not check_runs(chosen, root / "check", args.results))
    if not args.pages:
      kept = archive.read_archive(args.results / "rows")
      jobs = jobs_of(args.tables, args.size, kept)
      print(plan(jobs), flush=True)
      if args.plan:
        return 0
      make(jobs, root / args.size, args.results, args.parallel)
    is_default = args.results.resolve() == RESULTS.resolve()
    readme = REPOSITORY / "README.md" if is_default else None
    for path in pages.write(args.results, readme):
      print(path)
    return 0
  except UsageError as error:
    print(f"tables: {error}", file=sys.stderr)
    return 1
  except KeyboardInterrupt:
    print("stopped; the same command goes on from here", file=sys.stderr)
    return 130


# Which runs are to make.


class Job(NamedTuple):
  """A run to make."""

  run: Run
  reason: str  # why it has to be made


def select(names: list[str], size: str) -> list[Run]:
  """Returns all runs of some tables, and single runs, each once.

  A run has the probes of a table that has it: of one in `names` or, if the run
  itself is named, of any; {} if none has probes.
  """
  tables, selection = DATA["tables"], {}
  runs_by_table = {table: runs.runs_of(table, size) for table in tables}
  run_names = {name for table in runs_by_table.values() for name in table}
  for name in names:
    near = ", ".join(difflib.get_close_matches(name, run_names, 3, 0.3))
    check(
      name in tables or name in run_names,
      f"no table {name!r}: choose from {', '.join(tables)}"
      + (f"; or a run, like {near}" if near else ""),
    )
    for table, table_runs in runs_by_table.items():
      for run in table_runs.values():
        is_first = run.name not in selection
        if name in (table, run.name) and (is_first or run.probes):
          selection[run.name] = run
  return [*selection.values()]


def jobs_of(names: list[str], size: str, kept: Archive) -> list[Job]:
  """Returns the jobs that are left of some tables and single runs: those that
  are not archived, were trained with another config, or lack their probes."""
  jobs = []
  for run in select(names, size):
    old = kept.get(run.name)
    if old is None:
      reason = "has no rows"
    elif run.probes and not any(map(archive.is_probe, old.rows)):
      reason = "has no probes"
    else:
      reason = runs.config_changes(run, old.header["config"])
    jobs += [Job(run, reason)] if reason else []
  return jobs


def plan(jobs: list[Job]) -> str:
  """Returns a line of text for each run to make (why, and how long it took when
  docs/results was made, whatever --results is), and one with their number."""
  kept, lines = archive.read_archive(RESULTS / "rows"), []
  for job in jobs:
    old, time_text = kept.get(job.run.name), "never timed"
    if old and old.header["seconds"]:
      duration = datetime.timedelta(seconds=old.header["seconds"])
      time_text = f"took {duration} on {old.header['machine']}"
    lines.append(f"{job.run.name}: {job.reason} ({time_text})")
  return "\n".join([*lines, f"runs to make: {len(jobs)}"])


# Making them.


def make(
  jobs: list[Job], root: pathlib.Path, results: pathlib.Path, parallel: int = 1
) -> None:
  """Makes runs in this order, `parallel` at a time, each in the workdir
  `root`/NAME (absolute), and archives rows and figures in the folder `results`.
  UsageError says which failed, after the others have been made all the same."""
  failures = []
  if parallel > 1:  # each takes no more of a device's memory than it needs
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
  made = {root / job.run.name: job.run for job in jobs}
  todo = [(path, run.commands(path)) for path, run in made.items()]
  slots = [("", "")] * parallel
  with contextlib.closing(sweep.run_jobs(todo, slots, REPOSITORY)) as ended:
    for number, (workdir, code, seconds) in enumerate(ended, 1):
      run = made[workdir]
      if code:
        failures.append(run.name)
      else:
        keep(run, workdir, results, seconds)
      print(f"== {number} of {len(jobs)}: {run.name}", flush=True)
  check(
    not failures, f"failed: {', '.join(failures)}; the same command tries again"
  )


def keep(
  run: Run, workdir: pathlib.Path, results: pathlib.Path, seconds: float
) -> None:
  """Archives a run that was made in `seconds`."""
  rows = []
  for file in ("results.jsonl", "probes.jsonl"):
    measured = records.read_results(workdir / file)
    # If a newer version tested or probed again, the file has rows of both.
    rows += [x for x in measured if x["version"] == measured[-1]["version"]]
  # Steps of an earlier call, which was interrupted, count too.
  trained = sum(
    sum({row["step"]: row["seconds"] for row in records.read(log)}.values())
    for log in workdir.rglob("metrics.jsonl")
  )
  config = (workdir / "config.json").read_text(encoding="utf-8")
  header = origin_of(workdir) | {
    "run": run.name,
    "command": run.commands()[0],
    "config": json.loads(config),
    "seconds": round(max(seconds, trained)) or None,
  }
  archive.write_run(results / "rows" / f"{run.name}.jsonl", rows, header)
  for table in DATA["tables"].values():
    for _, name, figure in table.get("figures", ()):
      # Not every figure need exist: probes draw some of them.
      if name == run.name and (workdir / figure).exists():
        copy = results / "figures" / name / pathlib.Path(figure).name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(workdir / figure, copy)


def origin_of(workdir: pathlib.Path) -> dict[str, Any]:
  """Returns the date, machine, versions and commit of a workdir."""
  return json.loads((workdir / "origin.json").read_text(encoding="utf-8"))


# Checking them.


def check_runs(
  chosen: list[Run], root: pathlib.Path, results: pathlib.Path
) -> bool:
  """Makes archived runs again, without their probes, prints how their rows
  differ from those in the folder `results`, and returns whether all agree.

  Each is made in the workdir `root`/NAME, from which a run that was interrupted
  resumes. If its rows agree, the workdir is removed.
  """
  kept, all_agree = archive.read_archive(results / "rows"), True
  for run in chosen:
    check(run.name in kept, f"no rows of {run.name} are archived in {results}")
  for run in chosen:
    name, workdir = run.name, root / run.name
    header, old_rows = kept[name]
    if changes := runs.config_changes(run, header["config"]):
      print(f"{name}: the config has changed since: {changes}", flush=True)
    job = workdir, run._replace(probes={}).commands(workdir)
    ((_, code, _),) = sweep.run_jobs([job], folder=REPOSITORY)
    check(code == 0, f"{name} failed; its workdir is {workdir}")
    rows = records.read_results(workdir / "results.jsonl")
    reasons = differences_in_origin(header, origin_of(workdir))
    differences = compare(old_rows, rows, exact=not reasons)
    verdict = "differs" if differences else "agrees"
    precision = f"within tolerance ({reasons})" if reasons else "to the bit"
    print(f"{name}: {verdict}, compared {precision}")
    for line in differences:
      print(f"  {line}")
    if differences:
      all_agree = False
      print(f"  its workdir is {workdir}; remove it to make the run once more")
    else:
      shutil.rmtree(workdir)
  return all_agree


def differences_in_origin(header: dict[str, Any], now: dict[str, Any]) -> str:
  """Returns why rows of the origin `now` may differ from archived ones with
  this header, or "" if they must be equal to the last bit."""
  reasons = []
  if header["machine"] != now["machine"]:
    reasons.append("another machine")
  old, new = header["versions"], now["versions"]
  names = [name for name in old | new if old.get(name) != new.get(name)]
  if names:
    reasons.append(f"another version of {', '.join(names)}")
  words = "diff", "--quiet", header["commit"], "--", *origin.CODE
  code = origin.git(*words).returncode
  if code == 1:
    reasons.append(f"code changed since commit {header['commit'][:12]}")
  elif code:
    # The commit ends in -dirty, is "unknown" or of another history; or there is
    # no git here, or this is no clone.
    reasons.append(f"no commit {header['commit']} in this clone")
  return ", ".join(reasons)


def compare(old: list[dict], new: list[dict], exact: bool) -> list[str]:
  """Returns a line of text for each difference of `new` rows from the archived
  ones of all seeds; rows of probes, and those not archived, do not count.

  `exact` rows must have the same value and number of samples, and certificates
  the same margin and rounding. If not, exact match alone must agree with that
  of all archived seeds under the same conditions: it is between the worst and
  the best of them, or always right as the worst is, or never as the best is.
  """
  if not exact:
    old, new = records.of_metric(old, "em"), records.of_metric(new, "em")
  condition_of = operator.itemgetter("stage", "metric", "test_set", "length")
  # Finetuning certifies a seed several times, each time at another step.
  key = lambda row: (row["seed"], exact and row["step"], condition_of(row))
  new_rows = {key(row): row for row in new}
  values, messages = {}, []  # the archived values of all seeds, by condition
  for row in old:
    values.setdefault(condition_of(row), []).append(row["value"])
  for row in old:
    if row["metric"] not in archive.METRICS:
      continue
    condition, new_row = condition_of(row), new_rows.get(key(row))
    names = [str(x) for x in condition if x not in ("em", "", None)]
    text = ", ".join([f"seed {row['seed']}", *names])
    if new_row is None:
      messages.append(f"{text} is missing")
    elif exact:
      messages += [
        f"{text}: {name}={row[name]} in the archive, {new_row[name]} now"
        for name in ("value", "n", "margin", "rounding")
        if row.get(name) != new_row.get(name)
      ]
    else:
      value = new_row["value"]
      low, high = min(values[condition]), max(values[condition])
      always = min(value, low) >= ALWAYS
      if not (low <= value <= high or always or max(value, high) <= NEVER):
        messages.append(
          f"{text}: {100 * value:.1f} % is outside of the archived"
          f" seeds' {100 * low:.1f} to {100 * high:.1f} %"
        )
  return messages


if __name__ == "__main__":
  sys.exit(main())
