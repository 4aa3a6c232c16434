"""The mode --mode=bench times this program on this device.

W/bench.json has a row for each case (medians of several repeats), the cases
that were left out and why, and the device's measured throughput. A table and a
figure show the same.
"""

import contextlib
import json
import pathlib
import time
from collections.abc import Callable, Iterator

import jax

import lengthgen_jax
from lengthgen_jax.benchmark import device, report
from lengthgen_jax.benchmark.cost import Cost
from lengthgen_jax.benchmark.settings import BENCHES, Setting
from lengthgen_jax.benchmark.subjects import Subject
from lengthgen_jax.benchmark.timing import Case, in_turns, prepare, row
from lengthgen_jax.errors import UsageError, check_choice
from lengthgen_jax.pipelines import runs
from lengthgen_jax.results import records

SHARE = 0.2  # of the budget: how long one group may go on repeating its cases


def run(full_config, folder: pathlib.Path) -> int:
  """Times the benches that a config names, and returns the exit code.

  Args:
    full_config: the whole config; its section `bench` says what is timed.
    folder: the workdir, where bench.json and the figure are written.
  """
  names = chosen(full_config.bench)
  training_run = runs.make_run(full_config, folder)
  subject = Subject(
    training_run.experiment, training_run.train, training_run.scaffold
  )
  path = folder / "bench.json"
  save = lambda results: records.write_text(path, json.dumps(results, indent=1))
  with fresh_programs():
    results = measured(names, subject, full_config.bench, save)
  print(report.table(results))
  print(f"rows: {path}")
  if figure := report.by_length(results, folder / "figures" / "bench.png"):
    print(f"figure: {figure}")
  return 0


def chosen(section) -> tuple[str, ...]:
  """Returns the names of the benches to time: those of bench.only, or all.

  Args:
    section: the config's section `bench`.

  Raises:
    UsageError: bench.only names a bench that does not exist.
  """
  for name in section.only:
    check_choice("bench.only", name, BENCHES)
  return tuple(section.only) or tuple(BENCHES)


@contextlib.contextmanager
def fresh_programs() -> Iterator[None]:
  """Turns JAX's compilation cache off, so that every program is compiled anew
  and its compilation time is measured."""
  name = "jax_enable_compilation_cache"
  before = getattr(jax.config, name)
  jax.config.update(name, False)
  try:
    yield
  finally:
    jax.config.update(name, before)


def measured(
  names: tuple[str, ...],
  subject: Subject,
  section,
  save: Callable[[dict], None],
) -> dict:
  """Times the named benches and returns the contents of bench.json.

  Args:
    names: of benches, see settings.BENCHES.
    subject: the model and the training of --config.
    section: the config's section `bench`.
    save: writes the results; it is called after every group.

  Returns:
    The description of the device, "rows" of the cases that were timed, and
    "skipped", the reasons why others were not, by title.
  """
  clock = time.perf_counter()
  machine = {"version": lengthgen_jax.__version__} | device.about()
  if machine["load"] > 0.5 * machine["cpus"]:
    runs.print_note(
      f"the machine is busy (load {machine['load']:.1f},"
      f" {machine['cpus']} CPUs): times are too long; those of a group"
      " compare all the same"
    )
  machine["ceiling"] = device.ceiling(subject.experiment.model.config.dtype)
  setting = Setting(subject, tuple(section.lengths), tuple(section.threads))
  groups, skipped = plan(names, setting)
  guess = Guess(machine["ceiling"])
  cases = [pair for group in groups for pair in group]
  total = sum(guess(*pair) for pair in cases)
  runs.print_note(
    f"{len(cases)} cases, about {min(total, section.budget) / 60:.0f} minutes;"
    f" bench.budget={section.budget:.0f} s ends it"
  )
  rows = []
  results = machine | {"rows": rows, "skipped": skipped}
  save(results)
  for group in groups:
    left = section.budget - (time.perf_counter() - clock)
    affordable, too_much = fitting(group, guess, left)
    start, expected = (
      time.perf_counter(),
      sum(guess(*pair) for pair in affordable),
    )
    new_rows, failed = timed(affordable, section)
    rows += new_rows
    skipped |= too_much | failed
    save(results)
    if affordable:
      guess.learn(expected, time.perf_counter() - start)
  return results


def plan(
  names: tuple[str, ...], setting: Setting
) -> tuple[list[list[tuple[Case, Cost | None]]], dict[str, str]]:
  """Returns the groups of (case, cost) of the named benches, and the reasons
  why benches are left out, by name."""
  groups, skipped = [], {}
  for name in names:
    try:
      for group in BENCHES[name](setting):
        groups.append([(case, case.cost()) for case in group])
    except UsageError as reason:
      skipped[name] = str(reason)
  return groups, skipped


class Guess:
  """Estimates how many seconds a case will take in all.

  The estimate is rough; each group that has been timed corrects the next ones.

  Attributes:
    unfused: share of the bytes a program writes that reach memory after fusion.
    compiling: seconds of compilation for each equation of a jaxpr.
    ceiling: the device's throughput, see device.ceiling.
    expected, took: estimated and measured seconds of the cases so far.
  """

  unfused, compiling = 0.3, 0.004

  def __init__(self, ceiling: dict[str, float]):
    self.ceiling = ceiling
    self.expected = self.took = 0.0

  def __call__(self, case: Case, cost: Cost | None) -> float:
    """Returns the seconds of compilation and of three runs of a case, the
    fewest there are: the first run and two timed ones."""
    seconds, compiling = case.guess, 0.0
    if cost is not None:
      written = self.unfused * cost.written
      seconds = (
        cost.flops / self.ceiling["flops"] + written / self.ceiling["bytes"]
      )
      compiling = self.compiling * cost.equations
    factor = self.took / self.expected if self.expected else 1.0
    return factor * (compiling + 3 * seconds)

  def learn(self, expected: float, took: float) -> None:
    """Corrects later estimates by a group that was expected to take some
    seconds and took others."""
    factor = self.took / self.expected if self.expected else 1.0
    self.expected += expected / factor
    self.took += took


def fitting(
  group: list[tuple[Case, Cost | None]], guess: Guess, seconds: float
) -> tuple[list[tuple[Case, Cost | None]], dict[str, str]]:
  """Returns the (case, cost) of a group that memory and time allow, and the
  reasons why the others are left out, by title.

  Args:
    group: cases and their costs.
    guess: estimates the seconds of a case.
    seconds: that are left of bench.budget.
  """
  affordable, skipped, free = [], {}, device.free_memory()
  for case, cost in group:
    # A program holds two arrays of the largest size at the least.
    need = case.memory if cost is None else 2 * cost.largest
    takes = guess(case, cost)
    if need > free:
      skipped[case.title] = (
        f"needs {need / 2**30:.0f} GB, {free / 2**30:.0f} free"
      )
    elif takes > seconds:
      skipped[case.title] = (
        f"takes about {takes:.0f} s, {max(seconds, 0):.0f} s are left of"
        " bench.budget"
      )
    else:
      seconds -= takes
      affordable.append((case, cost))
  return affordable, skipped


def timed(
  group: list[tuple[Case, Cost | None]], section
) -> tuple[list[dict], dict[str, str]]:
  """Times a group's cases in turns; returns their rows, and the reasons why
  some have none, by title.

  Args:
    group: cases and their costs.
    section: the config's section `bench`.
  """
  ready, skipped = [], {}
  for case, cost in group:
    runs.print_note(f"{case.title} ...")
    try:
      ready.append((prepare(case), cost))
    except (MemoryError, RuntimeError) as error:
      skipped[case.title] = str(error).partition("\n")[0][:100]
  in_turns(
    [compiled for compiled, _ in ready],
    section.repeats,
    SHARE * section.budget,
  )
  return [row(*pair) for pair in ready], skipped
