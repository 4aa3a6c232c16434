"""This module describes tables of results as data: their rows, and the runs
that fill them."""

import pathlib
from typing import Any, NamedTuple

# A run is sized for two CPU cores, or as in the papers, for an accelerator.
SIZES = ("cpu", "paper")


class TableRow(NamedTuple):
  """A row of a table shows one stage of one run.

  Attributes:
    task, model: what the table calls them, as the paper does.
    config: FILE:PRESET of the run at size "cpu"; size "paper" adds `,paper`.
    published: {length: exact match in %}; a string like "N/A" or "< 1" where
      the paper gives no single number.
    fields: {field: value} of config overrides, without those that `run_of`
      adds: seeds, tests and checkers.
    stage: "train", or one of ABC_MODELS: the stage whose results are shown.
    sizes: those of SIZES at which the row exists, if its table does.
    certify: whether a run of --mode=train is certified as well, at size "cpu";
      it must have few cases.
  """

  task: str
  model: str
  config: str
  published: dict[int, float | str] = {}
  fields: dict[str, Any] = {}
  stage: str = "train"
  sizes: tuple[str, ...] = SIZES
  certify: bool = False


class Table(NamedTuple):
  """A table has a page of its own in docs/results, and one more for its runs at
  size "paper" once any of them is archived.

  Attributes:
    title: the title of the page.
    about: a paragraph that says what the paper does and what we do.
    rows: the rows, in the order of the paper.
    seeds: the seeds of every run at size "cpu"; at size "paper" it is seed 0.
    x_field: SECTION.FIELD, a numeric config field, for a further figure with
      this field on the x axis; "" for none.
    figures: (caption, run, path in its workdir) of figures of single runs.
    probes: {field: value} of the `--mode=probe` that follows every run, whose
      rows are archived too; {} if there is none.
    source: what the page calls the source of the published numbers.
    sizes: those of SIZES at which the table exists.
    tests: {field: value} of the config fields that say how its runs with
      overrides are tested; {} for what `eval_fields` returns. Tables that share
      such a run must have equal `tests`.
  """

  title: str
  about: str
  rows: list[TableRow]
  seeds: tuple[int, ...] = (0, 1, 2)
  x_field: str = ""
  figures: tuple[tuple[str, str, str], ...] = ()
  probes: dict[str, Any] = {}
  source: str = "paper"
  sizes: tuple[str, ...] = SIZES
  tests: dict[str, Any] = {}

  def rows_at(self, size: str) -> list[TableRow]:
    """Returns the rows that exist at a size; [] if the table does not."""
    rows = self.rows if size in self.sizes else []
    return [row for row in rows if size in row.sizes]


CPU = ("cpu",)  # the sizes of rows that exist at size "cpu" alone

# The stages of --mode=abc, and what their models are called in tables.
ABC_MODELS = {
  "interpolate": "vanilla",
  "retrain": "ABC",
  "finetune": "ABC, certified",
}


def abc_rows(
  task: str,
  config: str,
  vanilla: dict[int, float | str] | None = None,
  abc: dict[int, float | str] | None = None,
) -> list[TableRow]:
  """Returns a row for each stage of a run of --mode=abc.

  Args:
    task, config: as in TableRow.
    vanilla, abc: published numbers of the models of the first and the second
      stage, as in TableRow; None if there are none.
  """
  published = {"interpolate": vanilla or {}, "retrain": abc or {}}
  return [
    TableRow(task, model, config, published.get(stage, {}), stage=stage)
    for stage, model in ABC_MODELS.items()
  ]


# The config field that asks the second checker, pretrained/checker.py, too: a
# model gets its ∀ only if this one and --mode=certify both prove it right.
BOTH_CHECKERS = {"certify.second_checker": True}


class Run(NamedTuple):
  """A run is a workdir and the commands that make it.

  Attributes:
    name: the name of the run and of its workdir.
    config: FILE:PRESET, with `,paper` at size "paper".
    mode: "train" or "abc".
    fields: {field: value} of config overrides.
    size: one of SIZES.
    certify: whether a second command certifies what the first has trained.
  """

  name: str
  config: str
  mode: str
  fields: dict[str, Any]
  size: str
  certify: bool = False

  def commands(
    self,
    workdir: pathlib.Path | str = "",
    probes: dict[str, Any] | None = None,
  ) -> list[list[str]]:
    """Returns the arguments of `lengthgen` in each command of the run.

    Args:
      workdir: the workdir; "" for runs/tables/SIZE/NAME.
      probes: `Table.probes`; {} or None for no command that probes.
    """
    workdir = workdir or f"runs/tables/{self.size}/{self.name}"
    workdir_flag = f"--workdir={workdir}"
    mode = [] if self.mode == "train" else [f"--mode={self.mode}"]
    arguments = [f"--config={self.config}", *mode, workdir_flag]
    commands = [[*arguments, *flags(self.fields)]]
    if self.certify:
      commands.append(["--mode=certify", workdir_flag])
    if probes:
      commands.append(["--mode=probe", workdir_flag, *flags(probes)])
    return commands


def flags(fields: dict[str, Any]) -> list[str]:
  """Returns fields of a config as flags of `lengthgen`."""
  flag = lambda name, value: f"--config.{name}={value}".replace(" ", "")
  return [flag(name, value) for name, value in fields.items()]


# The first parts of a run's name, by the stem of its config file: those of
# other files begin with the first word of the preset.
PREFIXES = {
  "increment": ["increment"],
  "sorting": ["sort"],
  "construction": ["sort", "construction"],
  "multiply_long": ["multiply_long"],
  "asentmax": ["asentmax"],
}


def run_of(row: TableRow, table: Table, size: str) -> Run:
  """Returns the run that a row of a table shows; rows may share a run."""
  config = row.config + (",paper" if size == "paper" else "")
  file, _, preset = config.partition(":")
  parts = [*PREFIXES.get(pathlib.Path(file).stem, ()), *preset.split(",")]
  to_text = lambda x: ".".join(map(str, x)) if isinstance(x, tuple) else x
  overrides = [f"{name}={to_text(value)}" for name, value in row.fields.items()]
  seeds = {"seeds": table.seeds if size == "cpu" else (0,)}
  tests = eval_fields(parts, size, bool(row.fields))
  if table.tests and row.fields:
    tests = table.tests
  mode = "abc" if "abc" in parts else "train"
  certify = row.certify and size == "cpu"
  checkers = BOTH_CHECKERS if mode == "abc" or certify else {}
  return Run(
    name="-".join([*parts, *overrides]),
    config=config,
    mode=mode,
    fields=seeds | row.fields | tests | checkers,
    size=size,
    certify=certify,
  )


# How runs that track states (configs/states.py) are tested.
EVAL_STATES = {
  "eval.frontier": 2000,
  "eval.stress": True,
  "eval.stress_samples": 50,
}
# How runs are tested, by the first part of their names, at every size and with
# any overrides.
EVAL_FIELDS = {
  "multiply_long": BOTH_CHECKERS  # rounds of finetuning certify
  | {
    "eval.test_sets": ("equal", "unequal", "nines", "one", "zeros"),
    "eval.lengths": (4, 6, 10, 20, 37, 40, 100),
    "eval.samples": (1000, 1000, 1000, 500, 100, 100, 20),
    "eval.frontier": 40,
  },
  "modular": EVAL_STATES,
  "permutations": EVAL_STATES,
  "dyck": EVAL_STATES,
  "asentmax": {"eval.frontier": 512},
}


def eval_fields(
  parts: list[str], size: str, has_overrides: bool
) -> dict[str, Any]:
  """Returns {field: value} of the config fields that say how a run is tested.

  The first part of the name decides, for increment and sort with the parts that
  follow; for the runs of configs/arithmetic.py, whose names begin with the
  task, the preset's options do. Those that have a bias of lines, neither of the
  options `fixed` and `paper_model`, and no overrides are tested on hard inputs
  too, and at size "cpu" on longer ones.

  Args:
    parts: the parts of the run's name before its overrides, like ["addition",
      "abc"].
    size: one of SIZES.
    has_overrides: whether the run overrides fields of its preset.
  """
  first_part = parts[0]
  if first_part in EVAL_FIELDS:
    return EVAL_FIELDS[first_part]
  if first_part == "increment":
    return {"eval.frontier": 1000 if "abc" in parts else 100}
  if first_part == "sort":
    fields: dict[str, Any] = {"eval.frontier": 100, "eval.stress": True}
    if "construction" in parts:
      fields |= {"eval.lengths": (10, 20, 50, 100), "eval.samples": (1000,)}
      fields |= {"eval.test_sets": ("uniform",)}
    if "repeats" in parts:
      fields |= {"eval.test_sets": ("uniform", "repeats")}
    return fields
  # The others are of configs/arithmetic.py. Lengths are the papers', in digits.
  lengths, samples = (6, 10, 15, 20, 60), (1000,) * 5
  scaffolded = "abc" in parts or any("window" in part for part in parts)
  is_natural = not {"fixed", "paper_model"} & {*parts}  # at size "cpu"
  if is_natural and size == "cpu":
    lengths = (1, 3, 6, 7, 8, 10, 15, 20, 60)
    samples = (1000,) * len(lengths)
  goes_far = scaffolded and is_natural and not has_overrides
  if goes_far and size == "cpu":
    lengths, samples = (*lengths, 200), (*samples, 200)
    if "abc" in parts:
      lengths, samples = (*lengths, 1000), (*samples, 100)
  if size == "paper":
    samples = (10000,)  # at every length, as in the papers
  elif "decoder_only" in parts:
    # 299 is the least number of samples that shows 99 %: if all are right, the
    # one-sided 95 % lower bound is 0.99.
    samples = tuple(1000 if length <= 20 else 299 for length in lengths)
  fields = {"eval.lengths": lengths, "eval.samples": samples}
  fields |= {"eval.frontier": lengths[-1]}
  if goes_far:
    fields |= {"eval.stress": True}
  if "abc" in parts and has_overrides:
    fields |= {"certify.max_cases": 3e7}  # ten minutes for each seed
  return fields
