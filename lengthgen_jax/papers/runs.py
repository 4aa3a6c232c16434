"""Reads tables.toml: the rows of the tables and the runs that fill them."""

import json
import pathlib
import re
import tomllib
from typing import Any, NamedTuple

from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict

from lengthgen_jax import origin
from lengthgen_jax.config import default_config, load_config
from lengthgen_jax.config.files import CHANGEABLE, set_field

PATH = pathlib.Path(__file__).with_name("tables.toml")
DATA = tomllib.loads(PATH.read_text(encoding="utf-8"))
# A run is sized for two CPU cores, or as in the papers, for an accelerator.
SIZES = ("cpu", "paper")
# The stages of --mode=abc, and what their models are called.
STAGES = {
  "interpolate": "vanilla (ABC's first stage)",
  "retrain": "ABC",
  "finetune": "ABC, certified",
}
# Prefixes of config fields whose change asks for no new run.
NO_EFFECT = (*CHANGEABLE, "checkpoint", "overrides")


class Run(NamedTuple):
  """A workdir and the commands that make it."""

  name: str  # and that of the workdir
  config: str  # FILE:PRESET
  mode: str  # "train" or "abc"
  fields: dict[str, Any]  # config overrides
  size: str  # one of SIZES
  certify: bool  # whether a second command certifies what is trained
  probes: dict[str, Any]  # fields of the --mode=probe at the end; {}: none

  def commands(self, workdir: pathlib.Path | str = "") -> list[list[str]]:
    """Returns the arguments of `lengthgen` in each command of the run, by
    default in runs/tables/SIZE/NAME."""
    workdir = workdir or f"runs/tables/{self.size}/{self.name}"
    workdir_flag = f"--workdir={workdir}"
    mode = [] if self.mode == "train" else [f"--mode={self.mode}"]
    arguments = [f"--config={self.config}", *mode, workdir_flag]
    commands = [[*arguments, *flags(self.fields)]]
    if self.certify:
      commands.append(["--mode=certify", workdir_flag])
    if self.probes:
      commands.append(["--mode=probe", workdir_flag, *flags(self.probes)])
    return commands


class Row(NamedTuple):
  """A row of a table shows one stage of one run."""

  task: str  # this and the next are the paper's names
  model: str
  stage: str
  run: Run
  published: dict[int, float | str]  # {length: exact match in %, or text}


def flags(fields: dict[str, Any]) -> list[str]:
  """Returns fields of a config as flags of `lengthgen`."""
  text = lambda x: str(tuple(x) if isinstance(x, list) else x).replace(" ", "")
  return [f"--config.{name}={text(value)}" for name, value in fields.items()]


def rows_of(table: str, size: str) -> list[Row]:
  """Returns the rows of a table at a size, [] if it does not exist there."""
  data, rows = DATA["tables"][table], []
  for task, model, config, *further in data["rows"]:
    options = {"sizes": SIZES, "seeds": [0, 1, 2]} | data | dict(*further)
    if size not in options["sizes"]:
      continue
    seeds = options["seeds"] if size == "cpu" else [0]
    varied, *values = options.get("vary", ["", None])
    for value in values:
      label, fields = model, options.get("set", {})
      if varied:
        label += f", {varied.rpartition('.')[2]}={value}"
        fields = {varied: value} | fields
      run = _run(config, fields, size, seeds, options.get("probes", {}))
      rows += _rows_of_run(task, label, run, options)
  return rows


def _rows_of_run(
  task: str, model: str, run: Run, options: dict[str, Any]
) -> list[Row]:
  """Returns a run's rows, one for each stage that is shown."""
  stages, rows = [options.get("stage", "train")], []
  if run.mode == "abc" and "stage" not in options:
    stages = options.get("stages", STAGES)
  for stage in stages:
    name = STAGES[stage] + model if model[:1] in ("", ",") else model
    numbers = options.get("vanilla" if stage == "interpolate" else "published")
    if stage == "finetune" or not numbers:
      numbers = {}
    elif isinstance(numbers, list):
      numbers = dict(zip(options["lengths"], numbers, strict=True))
    published = {int(length): value for length, value in numbers.items()}
    rows.append(Row(task, name, stage, run, published))
  return rows


def _run(config: str, fields: dict, size: str, seeds: Any, probes: dict) -> Run:
  """Returns the run of a preset with overrides, and with the tests that
  tables.toml has for its name."""
  file, _, preset = config.partition(":")
  parts = [*preset.split(","), *["paper"] * (size == "paper")]
  prefix = DATA["prefixes"].get(pathlib.Path(file).stem)
  text = lambda x: ".".join(map(str, x)) if isinstance(x, list) else x
  overrides = [f"{field}={text(value)}" for field, value in fields.items()]
  name = "-".join(x for x in (prefix, *parts, *overrides) if x)
  tests, certify = {}, False
  for rule in DATA["tests"]:
    but = rule.get("but")
    if re.search(rule["runs"], name) and not (but and re.search(but, name)):
      tests |= rule.get("set", {})
      certify |= rule.get("certify", False)
  path = pathlib.PurePosixPath("configs", file)
  return Run(
    name,
    f"{path}:{','.join(parts)}",
    "abc" if "abc" in parts else "train",
    {"seeds": seeds} | fields | tests,
    size,
    certify,
    probes,
  )


def runs_of(table: str, size: str) -> dict[str, Run]:
  """Returns {name: run} of a table at a size."""
  return {row.run.name: row.run for row in rows_of(table, size)}


def config_changes(run: Run, saved: dict[str, Any]) -> str:
  """Returns in which fields that training depends on the run's config, by the
  present presets and tables, differs from a saved one, as text:
  "train.steps=100, now 200; ...", or "". A field that the saved one lacks had
  its default; one that is gone does not count."""
  flat = lambda x: flatten_dict(json.loads(x.to_json_best_effort()), sep=".")
  without_effect = (*NO_EFFECT, *["retrain"] * (run.mode == "train"))
  config = config_of(run)
  old = flat(default_config(config.task)) | flatten_dict(saved, sep=".")
  return "; ".join(
    f"{name}={old[name]}, now {value}"
    for name, value in flat(config).items()
    if not name.startswith(without_effect) and old.get(name, value) != value
  )


def config_of(run: Run) -> ConfigDict:
  config = load_config(str(origin.REPOSITORY / run.config))
  for name, value in run.fields.items():
    set_field(config, name, value, f"{run.name}: {name}")
  return config
