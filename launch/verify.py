"""Archived runs are made again and compared with their archived rows."""

import difflib
import pathlib
import shutil

import listed
import made
import sweep
from table import SIZES

from lengthgen_jax.errors import check
from lengthgen_jax.results import archive, records

DONE = "checked"  # file in the workdir of an earlier check that ended


def run(names: list[str], results: pathlib.Path, root: pathlib.Path) -> int:
  """Makes runs again, prints how they differ from their archived rows, and
  returns the exit code.

  Args:
    names: of runs.
    results: folder of the archive.
    root: folder of the workdirs.

  Raises:
    UsageError: a name is no run's or nothing is archived of it, or a run fails.
  """
  runs = {}
  for size in SIZES:
    for table in listed.TABLES:
      runs |= listed.runs(table, size)
  kept_runs, wrong = archive.read_all(results / "rows"), False
  for name in names:
    near = difflib.get_close_matches(name, runs, 3, 0.3)
    check(name in runs, f"no row {name!r}: close are {', '.join(near)}")
    check(name in kept_runs, f"no rows of {name} are kept in {results}")
  for name in names:
    workdir = root / name
    if (workdir / DONE).exists():
      shutil.rmtree(workdir)
    head, rows = kept_runs[name]
    for words in runs[name].calls(workdir):
      [(_, code, _)] = sweep.run([(workdir, words)])
      check(code == 0, f"{name} failed; its workdir is {workdir}")
    other = made.elsewhere(head)
    new = records.read_results(workdir / "results.jsonl")
    differences = archive.differences(rows, new, exact=not other)
    wrong |= bool(differences)
    precision = f"in range ({other})" if other else "to the bit"
    print(
      f"{name}: {'differs' if differences else 'agrees'}, compared {precision}"
    )
    print("".join(f"  {line}\n" for line in differences), end="", flush=True)
    records.write_text(workdir / DONE, "\n".join(differences))
  return int(wrong)
