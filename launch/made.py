"""How runs are made: with which program, on which machine, in what time."""

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

from lengthgen_jax import __version__, main
from lengthgen_jax.config.saved import READING_FIELDS
from lengthgen_jax.pipelines import abc
from lengthgen_jax.results import archive, records

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")
# Parts of a config that do not say how a run was trained.
TESTED = (*READING_FIELDS, "checkpoint", "overrides")
# Of a pipeline: those that do not say how its first stage was.
LATER = (*TESTED, "calibration.", "retrain.", "practice.", "abc.")


DESCRIBED = ast.Module | ast.ClassDef | ast.FunctionDef
LENDER = "lent_by"  # file of a first stage that another run has made


def here() -> dict:
  """Machine, versions and program, as a kept head says them."""
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
  """Twelve hex digits of the program that makes numbers, words about it and the
  rest of results/ aside."""
  digest = hashlib.sha256()
  for folder in ("lengthgen_jax", "configs"):
    for path in sorted((REPOSITORY / folder).rglob("*.py")):
      if path.parent.name != "results" or path.stem == "measures":
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
          if isinstance(node, DESCRIBED) and ast.get_docstring(node):
            node.body[0].value.value = ""
        digest.update(f"{path.name} {ast.dump(tree)}".encode())
  return digest.hexdigest()[:12]


def elsewhere(head: dict) -> str:
  """How a kept run was made otherwise than it would be here; "" if alike."""
  now, said = here(), []
  if head["machine"] != now["machine"]:
    said.append("another machine")
  was, own = head["versions"], now["versions"]
  others = [name for name in was | own if was.get(name) != own.get(name)]
  if others:
    said.append(f"another version of {', '.join(others)}")
  if head["source"] != now["source"]:
    said.append("another program")
  return ", ".join(said)


def config(run):
  """The whole config of a run as it would be made today."""
  preset = main.load_config(str(REPOSITORY / run.config))
  preset.update_from_flattened_dict(run.fields)
  return preset


def changed(run, saved: dict, aside: tuple = TESTED) -> str:
  """What differs between today's config of a run and a saved one; fields that
  one of them lacks, or whose names begin as those `aside`, do not count."""
  today = json.loads(config(run).to_json_best_effort())
  now, before = (flatten_dict(one, sep=".") for one in (today, saved))
  said = [
    f"{name}={before[name]}, now {now[name]}"
    for name in before
    if name in now and now[name] != before[name] and not name.startswith(aside)
  ]
  return "; ".join(said)


def set_aside(run, workdir: pathlib.Path) -> None:
  """Renames a workdir that belongs to an earlier config of a run."""
  path = workdir / "config.json"
  if path.exists() and changed(run, json.loads(path.read_text())):
    number = len(list(workdir.parent.glob(f"{workdir.name}.old*")))
    workdir.rename(workdir.with_name(f"{workdir.name}.old{number}"))


def share(run, workdir: pathlib.Path) -> None:
  """Begins a pipeline with the first stage of one beside it that differs in
  later ones alone, if there is one that is past it."""
  if run.mode != "abc" or workdir.exists() or not workdir.parent.exists():
    return
  for other in sorted(workdir.parent.iterdir()):
    path, first = other / "config.json", other / "interpolate"
    if not (path.exists() and (other / "calibrate" / "bias.npz").exists()):
      continue
    if not changed(run, json.loads(path.read_text()), LATER):
      part = workdir / "part"  # of a copy that may be cut off
      shutil.copytree(first, part)
      if not (part / LENDER).exists():  # else that one has lent it itself
        records.write_text(part / LENDER, other.name.partition(".old")[0])
      part.rename(workdir / first.name)
      # As if it had made it.
      add_seconds(workdir, abc.seconds(first / "metrics.jsonl"))
      print(f"== {run.name} begins with the first stage of {other.name}")
      return


def keep(
  run, workdir: pathlib.Path, results: pathlib.Path, about: dict
) -> None:
  """Keeps the rows of a run that is done, and figures that a table shows."""
  saved = json.loads((workdir / "config.json").read_text())
  leaves = flatten_dict(saved, sep=".").items()
  own = unflatten_dict({n: x for n, x in leaves if x is not None}, sep=".")
  lender, seconds = workdir / "interpolate" / LENDER, took(workdir)
  head = about | {
    "run": run.name,
    "command": run.words(),
    "config": own,
    "date": datetime.date.today().isoformat(),
    "seconds": round(seconds) or None,
    "first_stage": lender.read_text() if lender.exists() else None,
  }
  # Of a run that was kept before, all is as it was.
  head |= {name: about[name] for name in archive.MADE if name in about}
  rows = records.read_results(workdir / "results.jsonl")
  rows += records.read_results(workdir / "probes.jsonl")
  archive.keep(results / "rows" / f"{run.name}.jsonl", rows, head)


def keep_figures(tables: dict, run, workdir, results: pathlib.Path) -> None:
  """Copies figures of a workdir that pages show."""
  for table in tables.values():
    for _, name, path in table.figures:
      for suffix in (".png", ".svg") if name == run.name else ():
        file = (workdir / path).with_suffix(suffix)
        if not file.exists():  # of probes, which another table asks for
          continue
        target = results / "figures" / name / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def add_seconds(workdir: pathlib.Path, seconds: float) -> None:
  """Notes what a call of a run took; a run that was cut off has several."""
  if workdir.is_dir():
    records.append(workdir / "wall.jsonl", [{"seconds": round(seconds, 1)}])


def took(workdir: pathlib.Path) -> float:
  """Seconds of a run: of its calls, but at least of its gradient steps, since a
  call that was killed has noted none."""
  calls = sum(row["seconds"] for row in records.read(workdir / "wall.jsonl"))
  return max(calls, sum(map(abc.seconds, workdir.rglob("metrics.jsonl"))))


def duration(seconds: float) -> str:
  """Seconds as people say them."""
  hours, minutes = int(seconds // 3600), int(seconds % 3600 // 60)
  if hours:
    return f"{hours} h {minutes} min"
  return f"{minutes} min" if minutes else f"{seconds:.0f} s"
