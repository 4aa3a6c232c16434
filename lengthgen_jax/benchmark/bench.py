"""--mode=bench: how fast this program is on this device.

W/bench.json has a row for each case (medians of a few goes), what was left out
and why, and what the device can do; a table and a figure show the same.
"""

import contextlib
import json
import pathlib
import time

import jax

import lengthgen_jax
from lengthgen_jax.benchmark import device, report
from lengthgen_jax.benchmark.settings import BENCHES, Setting
from lengthgen_jax.benchmark.subjects import Subject
from lengthgen_jax.benchmark.timing import Case, in_turns, prepare, row
from lengthgen_jax.errors import UsageError, check_choice
from lengthgen_jax.pipelines import workdir
from lengthgen_jax.results import records

SHARE = 0.2  # of the time, what one group may go on repeating for


def run(whole, folder: pathlib.Path) -> int:
  """Times what `whole`.bench asks for; returns the exit code."""
  names = chosen(whole.bench)
  made = workdir.prepare(whole, folder)
  own = Subject(made.experiment, made.train, made.scaffold)
  path = folder / "bench.json"
  save = lambda found: records.write_text(path, json.dumps(found, indent=1))
  with fresh_programs():
    found = measured(names, own, whole.bench, save)
  print(report.table(found))
  print(f"rows: {path}")
  if figure := report.by_length(found, folder / "figures" / "bench.png"):
    print(f"figure: {figure}")
  return 0


def chosen(section) -> tuple[str, ...]:
  """Names of benches to time."""
  for name in section.only:
    check_choice("bench.only", name, BENCHES)
  return tuple(section.only) or tuple(BENCHES)


@contextlib.contextmanager
def fresh_programs():
  """Compiles again what an earlier run has compiled."""
  name = "jax_enable_compilation_cache"
  before = getattr(jax.config, name)
  jax.config.update(name, False)
  try:
    yield
  finally:
    jax.config.update(name, before)


def measured(names, own: Subject, section, save) -> dict:
  """What bench.json holds: the device, "rows", and "skipped" by title; saved
  after every group."""
  clock = time.perf_counter()
  about = {"version": lengthgen_jax.__version__} | device.about()
  if about["load"] > 0.5 * about["cpus"]:
    workdir.report(
      f"the machine is busy (load {about['load']:.1f}, {about['cpus']} CPUs):"
      " times are too long; those of a group compare all the same"
    )
  about["ceiling"] = device.ceiling(own.experiment.model.config.dtype)
  setting = Setting(own, tuple(section.lengths), tuple(section.threads))
  groups, skipped = plan(names, setting)
  guess = Guess(about["ceiling"])
  cases = [pair for group in groups for pair in group]
  total = sum(guess(*pair) for pair in cases)
  workdir.report(
    f"{len(cases)} cases, about {min(total, section.budget) / 60:.0f} minutes;"
    f" bench.budget={section.budget:.0f} s ends it"
  )
  rows = []
  found = about | {"rows": rows, "skipped": skipped}
  save(found)
  for group in groups:
    left = section.budget - (time.perf_counter() - clock)
    kept, too_much = fitting(group, guess, left)
    start, expected = time.perf_counter(), sum(guess(*pair) for pair in kept)
    more, failed = timed(kept, section)
    rows += more
    skipped |= too_much | failed
    save(found)
    if kept:
      guess.learn(expected, time.perf_counter() - start)
  return found


def plan(names, setting: Setting) -> tuple[list, dict]:
  """Groups of (case, cost), and why benches are left out."""
  groups, skipped = [], {}
  for name in names:
    try:
      for group in BENCHES[name](setting):
        groups.append([(case, case.cost()) for case in group])
    except UsageError as reason:
      skipped[name] = str(reason)
  return groups, skipped


class Guess:
  """Seconds that a case will take, in all; rough, and better as one learns."""

  # Of what a program writes, what reaches memory after fusion; seconds of
  # compilation for each equation.
  unfused, compiling = 0.3, 0.004

  def __init__(self, ceiling: dict):
    self.ceiling = ceiling
    self.expected = self.took = 0.0

  def __call__(self, case: Case, cost) -> float:
    """With the goes there are at least: the first, and two more."""
    go, compiling = case.guess, 0.0
    if cost is not None:
      written = self.unfused * cost.written
      go = cost.flops / self.ceiling["flops"] + written / self.ceiling["bytes"]
      compiling = self.compiling * cost.equations
    factor = self.took / self.expected if self.expected else 1.0
    return factor * (compiling + 3 * go)

  def learn(self, expected: float, took: float) -> None:
    factor = self.took / self.expected if self.expected else 1.0
    self.expected += expected / factor
    self.took += took


def fitting(group, guess: Guess, seconds: float) -> tuple[list, dict]:
  """Those (case, cost) that memory and time allow, and why not the others."""
  kept, skipped, free = [], {}, device.free_memory()
  for case, cost in group:
    # Two of the largest array, at the least.
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
      kept.append((case, cost))
  return kept, skipped


def timed(group, section) -> tuple[list, dict]:
  """Rows of a group's cases, and why some have none."""
  ready, skipped = [], {}
  for case, cost in group:
    workdir.report(f"{case.title} ...")
    try:
      ready.append((prepare(case), cost))
    except (MemoryError, RuntimeError) as error:
      skipped[case.title] = str(error).partition("\n")[0][:100]
  in_turns([own for own, _ in ready], section.repeats, SHARE * section.budget)
  return [row(*pair) for pair in ready], skipped
