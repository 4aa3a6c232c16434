"""Every table there is, and the runs that fill it.

launch/tables.py makes runs, checks and pages of this list and of nothing else.
"""

import difflib
import pathlib
import statistics
from typing import NamedTuple

import attention_bias
import beyond
import task_hinting
from table import Row, Table

from lengthgen_jax.errors import check

TABLES = attention_bias.TABLES | task_hinting.TABLES | beyond.TABLES
# What the names of a config file's runs begin with, if not with its preset.
PREFIX = {
  "increment": ["increment"],
  "sorting": ["sort"],
  "construction": ["sort", "construction"],
  "multiply_long": ["multiply_long"],
  "asentmax": ["asentmax"],
}
STATES = {"eval.frontier": 2000, "eval.stress": True, "eval.stress_samples": 50}
# How runs are tested whose names begin so.
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
  """One command, or two.

  Attributes:
    name: of its workdir.
    config: FILE:PRESET.
    mode: train or abc.
    fields: {field: value} of its overrides.
    size: "cpu" or "paper".
    certify: whether a second command certifies what the first has trained.
  """

  name: str
  config: str
  mode: str
  fields: dict
  size: str
  certify: bool = False

  def calls(self, workdir=None) -> list[list[str]]:
    """Flags of every command."""
    certify = ["--mode=certify", self.place(workdir)]
    return [self.words(workdir), *[certify] * self.certify]

  def place(self, workdir=None) -> str:
    """The flag of its workdir, the usual one if none is given."""
    return f"--workdir={workdir or f'runs/tables/{self.size}/{self.name}'}"

  def words(self, workdir=None) -> list[str]:
    """Flags of the first command."""
    mode = [] if self.mode == "train" else [f"--mode={self.mode}"]
    own = words(self.fields)
    return [f"--config={self.config}", *mode, self.place(workdir), *own]


def run(row: Row, table: Table, size: str) -> Run:
  """The run that a row is a part of. Rows of several tables may share one."""
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


def tests(preset: list[str], size: str, varied: bool) -> dict:
  """How a run is tested, which its preset decides, and if it varies that."""
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
    samples = (10000,)  # the papers'
  fields = {"eval.lengths": lengths, "eval.samples": samples}
  if "decoder_only" in preset:
    fields["eval.samples"] = (1000, 1000, 1000, 1000, 299, 299, 299)
  fields |= {"eval.frontier": far}
  if scaffolded and usual:
    fields["eval.stress"] = True
  if "abc" in preset and varied:
    fields["certify.max_cases"] = 3e7  # two or three minutes a seed
  return fields


def words(fields: dict) -> list[str]:
  """Fields of a config as flags."""
  own = [f"--config.{name}={value}" for name, value in fields.items()]
  return [word.replace(" ", "") for word in own]


def runs(name: str, size: str) -> dict[str, Run]:
  """The runs of a table by name."""
  table = TABLES[name]
  found = [run(row, table, size) for row in table.rows if size in row.sizes]
  return {own.name: own for own in found}


def chosen(names: list[str], size: str) -> dict[str, tuple]:
  """{run: (Run, fields of its probes)} of tables, or of runs by their names.

  Raises:
    UsageError: a name is none of these.
  """
  found, of_tables, every = {}, {}, {}
  for name, table in TABLES.items():
    own = {run: (x, table.probes) for run, x in runs(name, size).items()}
    every |= {run: x for run, x in own.items() if run not in every or x[1]}
    of_tables[name] = own
  for name in names:
    near = ", ".join(difflib.get_close_matches(name, every, 3, 0.3))
    check(
      name in TABLES or name in every,
      f"no table {name!r}: choose of {', '.join(TABLES)}"
      + (f"; or a run, like {near}" if near else ""),
    )
    more = of_tables[name] if name in TABLES else {name: every[name]}
    found |= {run: x for run, x in more.items() if run not in found or x[1]}
  return found


def seconds(run: Run, heads: dict) -> float | None:
  """How long a run takes: as it did, or as runs of the same preset did (their
  median), for as many seeds and steps; None where none was timed.

  Args:
    run: to be made.
    heads: of kept rows, by run.
  """
  timed = {name: own for name, own in heads.items() if own["seconds"]}
  if run.name in timed:
    return timed[run.name]["seconds"]
  found = []
  for own in timed.values():
    if own["command"][0] == f"--config={run.config}":
      seeds, steps = own["config"]["seeds"], own["config"]["train"]["steps"]
      wanted = run.fields.get("train.steps", steps)
      if steps or not wanted:  # what was not trained says nothing of training
        ratio = len(run.fields["seeds"]) / len(seeds)
        ratio *= wanted / steps if steps else 1
        found.append(ratio * own["seconds"])
  return statistics.median(found) if found else None
