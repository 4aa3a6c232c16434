"""All tables are listed here, and the runs that fill them.

launch/tables.py makes the runs, checks and pages of this list and no others.
"""

import difflib
import pathlib
import statistics
from typing import Any, NamedTuple

import attention_bias
import beyond
import task_hinting
from table import Row, Table

from lengthgen_jax.errors import check

TABLES = attention_bias.TABLES | task_hinting.TABLES | beyond.TABLES
# The beginnings of the names of a config file's runs. The names of runs of
# other files begin with the preset.
PREFIX = {
  "increment": ["increment"],
  "sorting": ["sort"],
  "construction": ["sort", "construction"],
  "multiply_long": ["multiply_long"],
  "asentmax": ["asentmax"],
}
STATES = {"eval.frontier": 2000, "eval.stress": True, "eval.stress_samples": 50}
# The test fields of runs, by the first part of their names.
BY_KIND = {
  "multiply_long": {
    "eval.test_sets": ("equal", "unequal", "nines", "one", "zeros"),
    "eval.lengths": (4, 6, 10, 20, 37, 40, 100),
    "eval.samples": (1000, 1000, 1000, 500, 100, 100, 20),
    "eval.frontier": 40,
  },
  "modular": STATES,
  "permutations": STATES,
  "dyck": STATES,
  "asentmax": {"eval.frontier": 512},
}


class Run(NamedTuple):
  """A run is one command, or two.

  Attributes:
    name: of the run and of its workdir.
    config: FILE:PRESET.
    mode: "train" or "abc".
    fields: {field: value} of its overrides.
    size: "cpu" or "paper".
    certify: whether a second command certifies what the first has trained.
  """

  name: str
  config: str
  mode: str
  fields: dict[str, Any]
  size: str
  certify: bool = False

  def calls(self, workdir: pathlib.Path | None = None) -> list[list[str]]:
    """Returns the flags of every command."""
    certify = ["--mode=certify", self.place(workdir)]
    return [self.words(workdir), *[certify] * self.certify]

  def place(self, workdir: pathlib.Path | None = None) -> str:
    """Returns the flag of the workdir, the usual one if none is given."""
    return f"--workdir={workdir or f'runs/tables/{self.size}/{self.name}'}"

  def words(self, workdir: pathlib.Path | str | None = None) -> list[str]:
    """Returns the flags of the first command."""
    mode = [] if self.mode == "train" else [f"--mode={self.mode}"]
    overrides = words(self.fields)
    return [f"--config={self.config}", *mode, self.place(workdir), *overrides]


def run(row: Row, table: Table, size: str) -> Run:
  """Returns the run that a row of a table is a part of. Rows of several tables
  may share one run."""
  config = row.config + (",paper" if size == "paper" else "")
  file, _, preset = config.partition(":")
  stem = pathlib.Path(file).stem
  preset = [*PREFIX.get(stem, ()), *preset.split(",")]
  value = lambda x: ".".join(map(str, x)) if isinstance(x, tuple) else x
  words = [f"{name}={value(x)}" for name, x in row.fields.items()]
  mode = "abc" if "abc" in preset else "train"
  tested = tests(preset, size, bool(row.fields))
  fields = {"seeds": table.seeds[size]} | row.fields | tested
  name, certify = "-".join([*preset, *words]), row.certify and size == "cpu"
  return Run(name, config, mode, fields, size, certify)


def tests(preset: list[str], size: str, varied: bool) -> dict[str, Any]:
  """Returns the config fields that say how a run is tested.

  Args:
    preset: the parts of the run's name that its preset gives.
    size: "cpu" or "paper".
    varied: whether the run overrides fields of its preset.
  """
  kind = preset[0]
  if kind in BY_KIND:
    return BY_KIND[kind]
  if kind == "increment":
    return {"eval.frontier": 1000 if "abc" in preset else 100}
  if kind == "sort":
    fields = {"eval.frontier": 100, "eval.stress": True}
    if "construction" in preset:
      fields |= {"eval.lengths": (10, 20, 50, 100), "eval.samples": (1000,)}
      fields["eval.test_sets"] = ("uniform",)
    if "repeats" in preset:
      fields["eval.test_sets"] = ("uniform", "repeats")
    return fields
  lengths, samples, far = (6, 10, 15, 20, 60), (1000,) * 5, 60
  scaffolded = "abc" in preset or any("window" in word for word in preset)
  usual = not varied and not {"fixed", "paper_model"} & {*preset}
  if scaffolded and size == "cpu" and usual:
    lengths, samples, far = (*lengths, 200), (*samples, 200), 200
    if "abc" in preset:
      lengths, samples, far = (*lengths, 1000), (*samples, 100), 1000
  if size == "paper":
    samples = (10000,)  # as in the papers
  fields = {"eval.lengths": lengths, "eval.samples": samples}
  if "decoder_only" in preset:
    fields["eval.samples"] = (1000, 1000, 1000, 1000, 299, 299, 299)
  fields |= {"eval.frontier": far}
  if scaffolded and usual:
    fields["eval.stress"] = True
  if "abc" in preset and varied:
    fields["certify.max_cases"] = 3e7  # two or three minutes for each seed
  return fields


def words(fields: dict[str, Any]) -> list[str]:
  """Returns fields of a config as flags."""
  flags = [f"--config.{name}={value}" for name, value in fields.items()]
  return [flag.replace(" ", "") for flag in flags]


def runs(name: str, size: str) -> dict[str, Run]:
  """Returns the runs of a table by name.

  Args:
    name: of the table.
    size: "cpu" or "paper".
  """
  table = TABLES[name]
  members = [run(row, table, size) for row in table.rows if size in row.sizes]
  return {member.name: member for member in members}


def chosen(names: list[str], size: str) -> dict[str, tuple[Run, dict]]:
  """Returns {run: (Run, fields of its probes)} of tables and runs.

  Args:
    names: of tables, or of runs.
    size: "cpu" or "paper".

  Raises:
    UsageError: a name is neither a table's nor a run's.
  """
  selected, of_tables, every = {}, {}, {}
  for name, table in TABLES.items():
    entries = {
      run: (entry, table.probes) for run, entry in runs(name, size).items()
    }
    every |= {
      run: entry
      for run, entry in entries.items()
      if run not in every or entry[1]
    }
    of_tables[name] = entries
  for name in names:
    near = ", ".join(difflib.get_close_matches(name, every, 3, 0.3))
    check(
      name in TABLES or name in every,
      f"no table {name!r}: choose of {', '.join(TABLES)}"
      + (f"; or a run, like {near}" if near else ""),
    )
    wanted = of_tables[name] if name in TABLES else {name: every[name]}
    selected |= {
      run: entry
      for run, entry in wanted.items()
      if run not in selected or entry[1]
    }
  return selected


def seconds(run: Run, heads: dict[str, dict]) -> float | None:
  """Estimates how many seconds a run takes.

  Args:
    run: the run to be made.
    heads: of archived rows, by run.

  Returns:
    The seconds that the run took before; else the median of the runs of the
    same preset, scaled to as many seeds and steps; None where none was timed.
  """
  timed = {name: head for name, head in heads.items() if head["seconds"]}
  if run.name in timed:
    return timed[run.name]["seconds"]
  durations = []
  for head in timed.values():
    if head["command"][0] == f"--config={run.config}":
      seeds, steps = head["config"]["seeds"], head["config"]["train"]["steps"]
      wanted = run.fields.get("train.steps", steps)
      if steps or not wanted:  # a run without steps says nothing of training
        ratio = len(run.fields["seeds"]) / len(seeds)
        ratio *= wanted / steps if steps else 1
        durations.append(ratio * head["seconds"])
  return statistics.median(durations) if durations else None
