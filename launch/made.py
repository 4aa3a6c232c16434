"""Runs are archived with their provenance: program, machine and time.

The functions prepare the workdirs of runs, and archive the rows of runs that
are done under a head that says how they were made.
"""

import ast
import datetime
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys

from flax.traverse_util import flatten_dict, unflatten_dict
from listed import Run
from table import Table

from lengthgen_jax import __version__, main
from lengthgen_jax.config.files import CHANGEABLE
from lengthgen_jax.pipelines import run_figures
from lengthgen_jax.results import archive, records

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")
# Fields (or the beginnings of their names) that do not affect training.
TESTED = (*CHANGEABLE, "checkpoint", "overrides")
# Those of a pipeline that do not affect the training of its first stage.
LATER = (*TESTED, "calibration.", "retrain.", "practice.", "abc.")


DESCRIBED = ast.Module | ast.ClassDef | ast.FunctionDef
# File in a first stage that was copied: the name of the run that trained it.
LENDER = "lent_by"


def here() -> dict:
  """Returns the machine, the versions and the program of this process, as the
  head of archived rows has them."""
  device = "import jax; print(jax.devices()[0].device_kind)"
  kind = subprocess.run(
    [sys.executable, "-c", device], capture_output=True, text=True
  ).stdout.strip()
  info = pathlib.Path("/proc/cpuinfo")
  lines = info.read_text().splitlines() if info.exists() else []
  names = [line for line in lines if line.startswith("model name")]
  processor = names[0].partition(": ")[2] if names else platform.machine()
  cores = len(os.sched_getaffinity(0)) if lines else os.cpu_count()
  machine = f"{processor}, {cores} cores"
  versions = {name: importlib.metadata.version(name) for name in PACKAGES}
  versions["python"] = platform.python_version()
  return {
    "machine": machine if kind == "cpu" else f"{machine}, {kind}",
    "versions": {"lengthgen_jax": __version__, **versions},
    "source": source(),
  }


def source() -> str:
  """Returns twelve hex digits of a hash of the program that computes numbers.

  Comments and docstrings do not count, nor does results/.
  """
  digest = hashlib.sha256()
  for folder in ("lengthgen_jax", "configs"):
    for path in sorted((REPOSITORY / folder).rglob("*.py")):
      if path.parent.name != "results":
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
          if isinstance(node, DESCRIBED) and ast.get_docstring(node):
            node.body[0].value.value = ""
        digest.update(f"{path.name} {ast.dump(tree)}".encode())
  return digest.hexdigest()[:12]


def elsewhere(head: dict) -> str:
  """Returns how the provenance of archived rows differs from what it would be
  here, "" if it is the same.

  Args:
    head: of the archived rows.
  """
  now, reasons = here(), []
  if head["machine"] != now["machine"]:
    reasons.append("another machine")
  old, new = head["versions"], now["versions"]
  others = [name for name in old | new if old.get(name) != new.get(name)]
  if others:
    reasons.append(f"another version of {', '.join(others)}")
  if head["source"] != now["source"]:
    reasons.append("another program")
  return ", ".join(reasons)


def config(run: Run):
  """Returns the whole config that a run would have today."""
  preset = main.load_config(str(REPOSITORY / run.config))
  preset.update_from_flattened_dict(run.fields)
  return preset


def changed(run: Run, saved: dict, aside: tuple[str, ...] = TESTED) -> str:
  """Returns the differences between today's config of a run and a saved one, as
  text; "" if there are none.

  Args:
    run: whose config is made today.
    saved: a config that was saved. Fields that only one of the two has do not
      count.
    aside: beginnings of the names of fields that do not count either.
  """
  today = json.loads(config(run).to_json_best_effort())
  now, before = (flatten_dict(one, sep=".") for one in (today, saved))
  differences = [
    f"{name}={before[name]}, now {now[name]}"
    for name in before
    if name in now and now[name] != before[name] and not name.startswith(aside)
  ]
  return "; ".join(differences)


def set_aside(run: Run, workdir: pathlib.Path) -> None:
  """Renames a run's workdir if an earlier config of the run has made it."""
  path = workdir / "config.json"
  if path.exists() and changed(run, json.loads(path.read_text())):
    number = len(list(workdir.parent.glob(f"{workdir.name}.old*")))
    workdir.rename(workdir.with_name(f"{workdir.name}.old{number}"))


def share(run: Run, workdir: pathlib.Path) -> None:
  """Copies the first stage of a pipeline from another workdir in the same
  folder, if one has finished it and differs in later stages alone."""
  if run.mode != "abc" or workdir.exists() or not workdir.parent.exists():
    return
  for other in sorted(workdir.parent.iterdir()):
    path, first = other / "config.json", other / "interpolate"
    if not (path.exists() and (other / "calibrate" / "bias.npz").exists()):
      continue
    if not changed(run, json.loads(path.read_text()), LATER):
      part = workdir / "part"  # the copy may be cut off
      shutil.copytree(first, part)
      if not (part / LENDER).exists():  # else it is a copy itself
        records.write_text(part / LENDER, other.name.partition(".old")[0])
      part.rename(workdir / first.name)
      # The copy counts as if this run had trained it.
      add_seconds(workdir, run_figures.seconds(first / "metrics.jsonl"))
      print(f"== {run.name} begins with the first stage of {other.name}")
      return


def keep(
  run: Run, workdir: pathlib.Path, results: pathlib.Path, origin: dict
) -> None:
  """Archives the rows of a run that is done.

  Args:
    run: the run.
    workdir: where its rows are.
    results: folder of the archive.
    origin: what `here` returned when the run began, or the head of the rows
      that were archived before.
  """
  saved = json.loads((workdir / "config.json").read_text())
  leaves = flatten_dict(saved, sep=".").items()
  fields = unflatten_dict(
    {field: value for field, value in leaves if value is not None}, sep="."
  )
  lender, seconds = workdir / "interpolate" / LENDER, took(workdir)
  head = origin | {
    "run": run.name,
    "command": run.words(),
    "config": fields,
    "date": datetime.date.today().isoformat(),
    "seconds": round(seconds) or None,
    "first_stage": lender.read_text() if lender.exists() else None,
  }
  # The head of rows that were archived before stays as it was.
  head |= {name: origin[name] for name in archive.MADE if name in origin}
  rows = records.read_results(workdir / "results.jsonl")
  rows += records.read_results(workdir / "probes.jsonl")
  archive.keep(results / "rows" / f"{run.name}.jsonl", rows, head)


def keep_figures(
  tables: dict[str, Table],
  run: Run,
  workdir: pathlib.Path,
  results: pathlib.Path,
) -> None:
  """Copies the figures of a run's workdir that pages of tables show."""
  for table in tables.values():
    for _, name, path in table.figures:
      file = workdir / path
      # The probes that draw some of them are asked for by another table alone.
      if name == run.name and file.exists():
        target = results / "figures" / name / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def add_seconds(workdir: pathlib.Path, seconds: float) -> None:
  """Records the seconds of one call of a run; a run that was cut off has
  several calls."""
  if workdir.is_dir():
    records.append(workdir / "wall.jsonl", [{"seconds": round(seconds, 1)}])


def took(workdir: pathlib.Path) -> float:
  """Returns the seconds of a run: those of its calls, but at least those of its
  gradient steps, since a call that was killed has recorded none."""
  calls = sum(row["seconds"] for row in records.read(workdir / "wall.jsonl"))
  return max(
    calls, sum(map(run_figures.seconds, workdir.rglob("metrics.jsonl")))
  )


def duration(seconds: float) -> str:
  """Returns seconds as text in hours, minutes or seconds."""
  hours, minutes = int(seconds // 3600), int(seconds % 3600 // 60)
  if hours:
    return f"{hours} h {minutes} min"
  return f"{minutes} min" if minutes else f"{seconds:.0f} s"
