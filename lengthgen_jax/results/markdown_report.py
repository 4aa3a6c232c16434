"""Markdown pages of kept rows: the papers' tables with ours beside them."""

import shlex
from typing import NamedTuple

from lengthgen_jax.results import formats, schema, summary, tables


class Entry(NamedTuple):
  """A row of a table, and where its numbers come from.

  Attributes:
    task, model: as the paper names them.
    run, stage: whose rows are meant.
    paper: in %, by length; text where it is no number.
    expect: least and most of the median seed, in %, by length.
    value: of the field that the table's figure is drawn against.
    calls: words after `lengthgen`, of one command or several.
  """

  task: str
  model: str
  run: str
  stage: str
  paper: dict
  expect: dict
  value: float | None
  calls: list


HOW = (
  "Exact match in %: every token of the output and the end token right. Ours:"
  " median of the seeds, (worst seed where it differs), [one-sided 95 % lower"
  " bound of the worst]; n samples per seed and length. Frontier: the longest"
  " length with at least 99 % by the lower bound, ≥ where nothing failed as far"
  " as was looked, ∀ where every seed is proved right at every length. As"
  " expected: whether the median is in the range that earlier runs of this"
  " program let us expect, which need not be the paper's."
)


def page(title: str, about: str, entries: list[Entry], kept: dict, **more):
  """A page.

  Args:
    title, about: of the table.
    entries: its rows, of one size.
    kept: (made, rows) by run, those of runs that are not done left out.
    **more: `source`, whose the quoted numbers are, "paper" if it is not said;
      `drawn`, paths of figures relative to the page with their captions;
      `changed`, by run what differs between its config and today's; `more`,
      paragraphs before the figures.

  Returns:
    Markdown.

  Raises:
    UsageError: rows of different conditions would share a line.
  """
  found = [(entry, lines_of(entry, kept)) for entry in entries]
  parts = [f"# {title}", about, HOW]
  parts += [formats.markdown(grid(found, more.get("source", "paper")))]
  done = {entry.run for entry, lines in found if lines}
  runs = {entry.run: entry for entry in entries}
  missing = [name for name in runs if name not in done]
  if missing:
    parts.append(
      f"{len(missing)} of {len(runs)} runs have not been made yet:"
      f" {', '.join(f'`{name}`' for name in missing)}."
    )
  hard = stress(found)
  if len(hard) > 1:
    about = hard_sets({line[2] for line in hard[1:]})
    parts += ["## Hard and odd inputs", about, formats.markdown(hard)]
  proved = summary.grid([(e, kept.get(e.run, ({}, []))[1]) for e in entries])
  if len(proved) > 1:
    parts += ["## Certificates", summary.ABOUT, formats.markdown(proved)]
  parts += more.get("more", ())
  drawn = more.get("drawn", ())
  if drawn:
    parts.append("## Figures")
    parts += [f"![{caption}]({path})" for caption, path in drawn]
  parts += commands(runs, kept, more.get("changed", {}))
  return "\n\n".join(parts) + "\n"


HARD = {
  "chain_": "one carry that travels so many places",
  "carry": "the longest chain of carries",
  "nines": "99…9+1",
  "zeros": "0+0",
  "short": "numbers of up to a tenth of the length",
  "repeated": "one digit each",
  "unequal": "operands of unequal lengths",
  "all_equal": "all items equal",
  "two_values": "items of two values",
  "near_ties": "of three neighboring ones",
  "sorted": "in order",
  "reversed": "in reverse",
  "lone": "one item among such as change nothing",
  "deep": "brackets up to the bound and down to zero",
  "broken": "one bracket another than in well-nested ones",
  "uniform": "brackets at random",
}


def hard_sets(names: set) -> str:
  """What a page says of its test sets."""
  said = [
    f"`{name}` {text}"
    for name, text in HARD.items()
    if any(other.startswith(name) for other in names)
  ]
  return f"Exact match in %, median (worst seed): {', '.join(said)}."


def lines_of(entry: Entry, kept: dict) -> list[summary.Line]:
  """What was measured of an entry on usual test sets, a line each."""
  _, rows = kept.get(entry.run, ({}, []))
  own = [row for row in rows if row["stage"] == entry.stage]
  found = []
  exact = schema.of_metric(own, "em")
  for test_set in dict.fromkeys(row["test_set"] for row in exact):
    there = [row for row in exact if row["test_set"] == test_set]
    schema.only_group(there, f"{entry.run}, {entry.stage}, {test_set}")
    others = [r for r in own if r["metric"] in ("frontier", "certified")]
    found += summary.lines(there + others)
  return found


def grid(found: list, source: str) -> list[list[str]]:
  """The numbers of others, whose `source` says, and ours, a line for each."""
  done = {entry.run for entry, lines in found if lines}
  shown = [line for _, lines in found for line in lines if not line.stress]
  lengths = {n for line in shown for n in line.cells}
  lengths = sorted(lengths | {n for entry, _ in found for n in entry.paper})
  sets = {line.about["test_set"] for line in shown}
  head = ["task", "model", *["test set"] * (len(sets) > 1), ""]
  more = ["frontier", "seeds", "n", "width", "as expected"]
  made = [[*head, *map(str, lengths), *more]]
  space = len(head) - 3

  def add(names, whose, cells, others=()):
    others = [*others, *[""] * (len(more) - len(others))]
    made.append(
      [*names, *[""] * (space + 2 - len(names)), whose, *cells, *others]
    )

  for entry, lines in found:
    names = [entry.task, entry.model]
    if entry.paper:
      add(names, source, [f"{entry.paper.get(n, '')}" for n in lengths])
    ours = [line for line in lines if not line.stress]
    if not ours:
      why = "not needed" if entry.stage == "certify" else "no rows"
      why = why if entry.run in done else "not run yet"
      add(names, "ours", ["–"] * len(lengths), ["", why])
    for line in ours:
      own = [*names, *[line.about["test_set"]] * space]
      seeds = len(line.numbers)
      cells = [tables.cell(line.cells.get(n), seeds, "") for n in lengths]
      seeds = line.seeds + line.proved
      samples = count(line.cells)
      expected = verdict(entry.expect, line) if line is ours[0] else ""
      width = line.about["width"]
      others = [tables.frontier(line), seeds, samples, width, expected]
      add(own, "**ours**", cells, others)
  return made


def count(cells: dict) -> str:
  """Samples of a seed: "1000 (300 at 200)" where one length has fewer."""
  found = [cell.n for cell in cells.values()]
  usual = max(found, key=found.count)
  others = [f"{cell.n} at {n}" for n, cell in cells.items() if cell.n != usual]
  return f"{usual} ({', '.join(others)})" if others else str(usual)


def verdict(expect: dict, line: summary.Line) -> str:
  """Whether medians are what was expected; where not, which ones."""
  off = [
    f"{n}: {100 * line.cells[n].median:.1f} not in {least}–{most}"
    for n, (least, most) in expect.items()
    if n in line.cells
    and not least - 1e-9 <= 100 * line.cells[n].median <= most + 1e-9
  ]
  if expect and not expect.keys() & line.cells.keys():
    return "not tested"
  return "no: " + "; ".join(off) if off else "yes" if expect else ""


def stress(found: list) -> list[list[str]]:
  """Exact match on hard inputs, a line for each test set."""
  shown = [(e, line) for e, lines in found for line in lines if line.stress]
  lengths = sorted({n for _, line in shown for n in line.cells})
  made = [["task", "model", "test set", *map(str, lengths)]]
  for entry, line in shown:
    there = [line.cells.get(n) for n in lengths]
    cells = [tables.with_worst(cell) if cell else "" for cell in there]
    made.append([entry.task, entry.model, line.about["test_set"], *cells])
  return made


EARLIER = "trained by an earlier program, tested by this one"


def _reused(head: dict) -> str:
  """What of a kept run is older than the run."""
  if head["first_stage"]:
    return f"first stage of {head['first_stage']}"
  return "" if head["source"] else EARLIER


def commands(runs: dict, kept: dict, changed: dict) -> list[str]:
  """How every run is made, and how those that are kept were."""
  lines = [
    shlex.join(["lengthgen", *words])
    for own in runs.values()
    for words in own.calls
  ]
  parts = ["## Commands", "```bash\n" + "\n".join(lines) + "\n```"]
  made = [["run", "seconds", "machine", "date", "versions", ""]]
  for name in runs:
    if name not in kept:
      continue
    head = kept[name][0]
    seconds = head["seconds"]
    made.append(
      [
        name,
        "–" if seconds is None else f"{seconds:.0f}",
        head["machine"],
        head["date"],
        ", ".join(f"{n} {x}" for n, x in head["versions"].items()),
        changed.get(name) or _reused(head),
      ]
    )
  return [*parts, formats.markdown(made)] if len(made) > 1 else parts
