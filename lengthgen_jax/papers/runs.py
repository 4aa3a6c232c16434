"""This module lists the runs of the tables, makes them and archives their rows,
and makes archived runs again to compare their rows.

A run that was interrupted resumes from its workdir. A run whose first stage
another run has finished already begins with a copy of it.
"""

import concurrent.futures
import contextlib
import datetime
import difflib
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict

from lengthgen_jax import origin
from lengthgen_jax.config import load_config
from lengthgen_jax.config.files import (
  CHANGEABLE,
  differences,
  name_overrides,
  saved_config,
)
from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.papers import attention_bias, provenance, task_hinting
from lengthgen_jax.papers.experiments import SIZES, Run, run_of
from lengthgen_jax.papers.provenance import Archive, ArchivedRun
from lengthgen_jax.pipelines.run_figures import training_seconds
from lengthgen_jax.results import records

TABLES = (
  attention_bias.TABLES | task_hinting.TABLES | attention_bias.FURTHER_TABLES
)
# Prefixes of config fields that have no effect on training (but rounds of
# finetuning depend on `certify` and `eval.checkpoint`), and of those that have
# none on the first stage of --mode=abc.
NO_EFFECT_ON_TRAINING = (*CHANGEABLE, "checkpoint", "overrides")
NO_EFFECT_ON_FIRST_STAGE = (
  *NO_EFFECT_ON_TRAINING,
  "calibration.",
  "retrain.",
  "finetune.",
  "abc.",
)
# Files of a workdir: the name of the run that trained a copied first stage, and
# the seconds of every command.
TRAINED_BY, COMMANDS = "interpolate/trained_by", "commands.jsonl"


def runs_of(table: str, size: str) -> dict[str, Run]:
  """Returns {name: run} of a table at a size, one of SIZES.

  Rows of the table that show the same run have one entry.
  """
  rows = TABLES[table].rows_at(size)
  runs = [run_of(row, TABLES[table], size) for row in rows]
  return {run.name: run for run in runs}


def select(names: list[str], size: str) -> dict[str, tuple[Run, dict]]:
  """Returns {name: (run, probes)} of all runs of some tables, and of single
  runs.

  `probes` are the `Table.probes` of a table that has the run: of one in `names`
  or, if the run itself is named, of any table. They are {} only if no such
  table has probes.

  Args:
    names: names of tables and of runs.
    size: one of SIZES.

  Raises:
    UsageError: a name is neither that of a table nor that of a run of this
      size.
  """
  tables, selection = {table: runs_of(table, size) for table in TABLES}, {}
  run_names = {name for runs in tables.values() for name in runs}
  for name in names:
    near = ", ".join(difflib.get_close_matches(name, run_names, 3, 0.3))
    check(
      name in TABLES or name in run_names,
      f"no table {name!r}: choose from {', '.join(TABLES)}"
      + (f"; or a run, like {near}" if near else ""),
    )
    for table, runs in tables.items():
      probes = TABLES[table].probes
      for run in runs.values():
        if name in (table, run.name) and (run.name not in selection or probes):
          selection[run.name] = run, probes
  return selection


def config_of(run: Run) -> ConfigDict:
  """Returns the config that a run has by the present presets and tables."""
  config = load_config(str(origin.REPOSITORY / run.config))
  config.update_from_flattened_dict(run.fields)
  return config


def config_changes(
  run: Run,
  saved: dict[str, Any],
  ignored: tuple[str, ...] = NO_EFFECT_ON_TRAINING,
) -> str:
  """Returns in which fields a run's config differs from a saved one, as text:
  "train.steps=100, now 200; ...", or "" if it does not differ.

  Args:
    run: the run, whose config is that of the present presets and tables.
    saved: the contents of a config.json, or the config in the header of an
      archived run. Fields that only one of the two configs has are not
      compared.
    ignored: prefixes of the fields that are not compared.
  """
  config = json.loads(config_of(run).to_json_best_effort())
  new_values = flatten_dict(config, sep=".")
  return "; ".join(
    f"{name}={value}, now {new_values[name]}"
    for name, value in flatten_dict(saved, sep=".").items()
    if name in new_values
    and new_values[name] != value
    and not name.startswith(ignored)
  )


class Job(NamedTuple):
  """A job is a run to make, because it is not archived, was trained with
  another config, or lacks the probes of its table.

  Attributes:
    run: the run.
    probes: {field: value} of the `--mode=probe` that follows, {} for none.
    archived: the archived run if only probes are missing, else None.
    reason: why the run has to be made, as text.
  """

  run: Run
  probes: dict[str, Any]
  archived: ArchivedRun | None
  reason: str


def jobs_of(names: list[str], size: str, archive: Archive) -> list[Job]:
  """Returns the jobs that are left of some tables and single runs.

  Args:
    names, size: as in `select`.
    archive: the archived runs, by name.

  Raises:
    UsageError: a name is neither that of a table nor that of a run of this
      size.
  """
  jobs = []
  for name, (run, probes) in select(names, size).items():
    archived_run = archive.get(name)
    if archived_run is None:
      jobs.append(Job(run, probes, None, "has no rows"))
    elif changes := config_changes(run, archived_run.header["config"]):
      jobs.append(Job(run, probes, None, changes))
    elif probes and not archived_run.probes:
      jobs.append(Job(run, probes, archived_run, "has no probes"))
  return jobs


def run_jobs(
  jobs: list[Job],
  root: pathlib.Path,
  results: pathlib.Path,
  parallel: int = 1,
) -> None:
  """Makes runs, each in the workdir `root`/NAME, and archives their rows and
  figures in the folder `results`.

  Args:
    jobs: the jobs, which begin in this order.
    root: the folder of the workdirs.
    results: the folder of the archive's folder "rows".
    parallel: how many runs are made at the same time, on the same devices. If
      they are several, each run writes to the file `root`/NAME.log.

  Raises:
    UsageError: a run failed; the others have been made all the same.
  """
  ended, failures, start = [], [], time.monotonic()
  root = root.resolve()
  root.mkdir(parents=True, exist_ok=True)
  stop = threading.Event()

  def make(job: Job) -> None:
    name = job.run.name
    log = root / f"{name}.log" if parallel > 1 else None
    launch = partial(lengthgen, log=log, stop=stop)
    try:
      is_made = run_job(job, root / name, results, launch)
    except UsageError as error:  # the other runs are made all the same
      print(f"{name}: {error}", file=sys.stderr, flush=True)
      is_made = False
    if not is_made:
      failures.append(name)
    ended.append(name)
    spent = datetime.timedelta(seconds=round(time.monotonic() - start))
    print(f"== {len(ended)} of {len(jobs)} in {spent}: {name}", flush=True)

  # Before the first run begins, all workdirs that have to be renamed are
  # renamed, because a run may copy its first stage from another's workdir.
  for job in jobs:
    set_aside(job.run, root / job.run.name)
  with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
    try:
      # With parallel=1 runs are made in this thread, which Ctrl-C interrupts.
      list((pool.map if parallel > 1 else map)(make, jobs))
    except KeyboardInterrupt:
      stop.set()
      pool.shutdown(cancel_futures=True)
      raise
  check(
    not failures, f"failed: {', '.join(failures)}; the same command tries again"
  )


def run_job(
  job: Job,
  workdir: pathlib.Path,
  results: pathlib.Path,
  launch: Callable[[list[str]], int],
) -> bool:
  """Makes a run in a workdir, and archives its rows and figures in the folder
  `results`; returns False if one of its commands failed.

  If only probes are missing, but the results of the workdir are not those of
  the archived run, the whole run is made.

  Args:
    job: the job.
    workdir, results: the two folders.
    launch: a function that runs `lengthgen` with the arguments of a command
      line and returns its exit code.
  """
  run, archived = job.run, job.archived
  copy_first_stage(run, workdir)
  if archived is not None:
    rows = records.read_results(workdir / "results.jsonl")
    if provenance.compare(archived.rows, rows, exact=True):
      archived = None
  commands = run.commands(workdir, job.probes)
  if archived is not None:
    commands = commands[-1:]  # that of the probes
  made_here = {} if archived else provenance.current_origin()
  for arguments in commands:
    start = time.monotonic()
    code = launch(arguments)
    if workdir.is_dir():
      _add_seconds(workdir, time.monotonic() - start)
    if code:
      return False
  rows = []
  for file in ("results.jsonl", "probes.jsonl"):
    measured = records.read_results(workdir / file)
    # If a newer version tested or probed again, the file has rows of both.
    rows += [x for x in measured if x["version"] == measured[-1]["version"]]
  path = results / "rows" / f"{run.name}.jsonl"
  header = archived.header if archived else made_here | describe(run, workdir)
  provenance.write_run(path, rows, header)
  for table in TABLES.values():
    for _, name, figure in table.figures:
      # Not every figure need exist: probes draw some of them, and the run may
      # have been made without probes.
      if name == run.name and (workdir / figure).exists():
        copy = results / "figures" / name / pathlib.Path(figure).name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(workdir / figure, copy)
  return True


def lengthgen(
  arguments: list[str],
  platform: str = "",
  log: pathlib.Path | None = None,
  stop: threading.Event | None = None,
) -> int:
  """Runs `lengthgen` in a process of its own and returns its exit code.

  The process runs in the folder of the repository, where presets are.

  Args:
    arguments: the arguments of its command line; paths of workdirs must be
      absolute.
    platform: the kind of device that JAX may use, like "cpu"; "" for any.
    log: a file to which the output is appended; None for the terminal. A
      process that writes to a file shares the device with others, so that it
      takes no more of its memory than it needs.
    stop: once this is set, the process is told to save its state and to end.
  """
  command = [sys.executable, "-m", "lengthgen_jax.main", *arguments]
  settings = {"JAX_PLATFORMS": platform} if platform else {}
  with contextlib.ExitStack() as stack:
    output = None
    if log is not None:
      settings["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
      output = stack.enter_context(open(log, "a", encoding="utf-8"))
    process = subprocess.Popen(
      command,
      env=os.environ | settings,
      cwd=origin.REPOSITORY,
      stdout=output,
      stderr=output,
    )
    try:
      while process.poll() is None and not (stop and stop.is_set()):
        with contextlib.suppress(subprocess.TimeoutExpired):
          process.wait(0.5)
    finally:
      if process.poll() is None:
        process.terminate()
      process.wait()
  return process.returncode


def set_aside(run: Run, workdir: pathlib.Path) -> None:
  """Renames a workdir that `lengthgen` would refuse, because it was made with
  another config of the run, to WORKDIR.oldN, for the first N = 0, 1, ... that
  is free."""
  config = config_of(run)
  name_overrides(config, load_config(str(origin.REPOSITORY / run.config)))
  try:
    saved = saved_config(workdir)
    if saved is None:
      return
    is_other = bool(differences(config, saved))
  except UsageError:  # it is damaged, or another version saved it
    is_other = True
  if is_other:
    names = (f"{workdir.name}.old{n}" for n in itertools.count())
    workdir.rename(
      next(x for x in map(workdir.with_name, names) if not x.exists())
    )


def copy_first_stage(run: Run, workdir: pathlib.Path) -> None:
  """Copies the first stage of a run of --mode=abc from another run's workdir in
  the same folder, if one has finished this stage and its config has the same
  fields but for those of NO_EFFECT_ON_FIRST_STAGE.

  It does nothing if the workdir of this run exists or its mode is another.
  """
  if run.mode != "abc" or workdir.exists() or not workdir.parent.exists():
    return
  for other in sorted(workdir.parent.iterdir()):
    path = other / "config.json"
    # A calibrated bias shows that the first stage is finished.
    if not (path.exists() and (other / "calibrate" / "bias.npz").exists()):
      continue
    if not config_changes(
      run,
      json.loads(path.read_text(encoding="utf-8")),
      NO_EFFECT_ON_FIRST_STAGE,
    ):
      # It is renamed when it is complete, because copying may be interrupted.
      copy = workdir.with_name(f"{run.name}.part")
      stage = copy / "interpolate"
      shutil.copytree(other / stage.name, stage, dirs_exist_ok=True)
      if not (copy / TRAINED_BY).exists():  # else `other` has a copy itself
        name = other.name.partition(".old")[0]
        records.write_text(copy / TRAINED_BY, name)
      # The time of its training counts as this run's.
      _add_seconds(copy, training_seconds(stage / "metrics.jsonl"))
      copy.rename(workdir)
      print(f"== {run.name} begins with the first stage of {other.name}")
      return


def _add_seconds(workdir: pathlib.Path, seconds: float) -> None:
  """Appends how long one command of a run took to the workdir's COMMANDS."""
  records.append(workdir / COMMANDS, [{"seconds": round(seconds, 1)}])


def seconds_of(workdir: pathlib.Path) -> float:
  """Returns how many seconds a run took: those of its commands, but at least
  those of its trainings, since a command that was killed recorded none."""
  seconds = sum(row["seconds"] for row in records.read(workdir / COMMANDS))
  logs = workdir.rglob("metrics.jsonl")
  return max(seconds, sum(map(training_seconds, logs)))


def describe(run: Run, workdir: pathlib.Path) -> dict[str, Any]:
  """Returns the fields of a run's header that describe the run itself; those of
  its origin are from provenance.current_origin."""
  trained_by = workdir / TRAINED_BY
  return {
    "run": run.name,
    "command": run.commands()[0],
    "config": json.loads((workdir / "config.json").read_text(encoding="utf-8")),
    # The day of archiving, which follows the last command at once.
    "date": datetime.date.today().isoformat(),
    "seconds": round(seconds_of(workdir)) or None,
    "first_stage": trained_by.read_text(encoding="utf-8")
    if trained_by.exists()
    else None,
  }


def check_runs(
  names: list[str], root: pathlib.Path, results: pathlib.Path
) -> bool:
  """Makes archived runs again, by the present presets and tables and without
  their probes, prints how their rows differ from those in the folder `results`,
  and returns whether all agree.

  Each is made in the workdir `root`/NAME, from which a run that was interrupted
  resumes. If its rows agree, the workdir is removed.

  Args:
    names: names of archived runs, of any size.
    root: the folder of the workdirs.
    results: the folder of the archive's folder "rows".

  Raises:
    UsageError: a name is not that of an archived run, or a run fails.
  """
  runs = {
    name: run
    for size in SIZES
    for table in TABLES
    for name, run in runs_of(table, size).items()
  }
  archive, all_agree = provenance.read_archive(results / "rows"), True
  for name in names:
    similar = ", ".join(difflib.get_close_matches(name, runs, 3, 0.3))
    check(name in runs, f"no run {name!r}; similar: {similar}")
    check(name in archive, f"no rows of {name} are archived in {results}")
  for name in names:
    workdir = root.resolve() / name
    if changes := config_changes(runs[name], archive[name].header["config"]):
      print(f"{name}: the config has changed since: {changes}", flush=True)
    for arguments in runs[name].commands(workdir):
      exit_code = lengthgen(arguments)
      check(exit_code == 0, f"{name} failed; its workdir is {workdir}")
    rows = records.read_results(workdir / "results.jsonl")
    origin_differences = provenance.differences_in_origin(archive[name].header)
    row_differences = provenance.compare(
      archive[name].rows, rows, exact=not origin_differences
    )
    verdict = "differs" if row_differences else "agrees"
    precision = (
      f"within tolerance ({origin_differences})"
      if origin_differences
      else "to the bit"
    )
    print(f"{name}: {verdict}, compared {precision}")
    lines = "".join(f"  {line}\n" for line in row_differences)
    print(lines, end="", flush=True)
    if row_differences:
      all_agree = False
      print(f"  its workdir is {workdir}; remove it to make the run once more")
    else:
      shutil.rmtree(workdir)
  return all_agree
