"""Markdown pages of archived rows: the papers' tables with ours beside them."""

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from lengthgen_jax.results import records, summary, tables


class Entry(NamedTuple):
  """A row of a table, and where its numbers come from.

  Attributes:
    task, model: names that the paper gives to them.
    run, stage: the run and its stage whose rows give the numbers.
    paper: the paper's exact match in % by length; text where it is no number.
    expect: (least, most) expected exact match of the median seed in %, by
      length.
    value: value of the config field that the table's figure is drawn against.
    calls: the words after `lengthgen`, for each command that makes the run.
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


CERTIFICATES = (
  "Of so many seeds; inputs that differ in what the model's rows see, and the"
  " smallest margin among them, from the least to the greatest of the seeds."
  " [What this proves](../certificates.md)."
)


def page(
  title: str,
  intro: str,
  entries: list[Entry],
  archived: dict[str, tuple[dict, list[dict]]],
  **options,
) -> str:
  """Returns the Markdown page of a table.

  Args:
    title: title of the table.
    intro: first paragraph of the page, which says what the table is about.
    entries: rows of the table, all of one size.
    archived: (head, rows) by run, without the runs that are not done.
    **options: `source` says whose the quoted numbers are ("paper" by default);
      `drawn` has the captions of figures and their paths relative to the page;
      `changed` says by run what differs between its config and today's; `more`
      has paragraphs that come before the figures.

  Returns:
    Markdown.

  Raises:
    UsageError: rows of different conditions would share a line.
  """
  entry_lines = [(entry, lines_of(entry, archived)) for entry in entries]
  parts = [f"# {title}", intro, HOW]
  parts += [
    tables.to_markdown(grid(entry_lines, options.get("source", "paper")))
  ]
  done_runs = {entry.run for entry, lines in entry_lines if lines}
  runs = {entry.run: entry for entry in entries}
  missing = [name for name in runs if name not in done_runs]
  if missing:
    parts.append(
      f"{len(missing)} of {len(runs)} runs have not been made yet:"
      f" {', '.join(f'`{name}`' for name in missing)}."
    )
  hard = stress(entry_lines)
  if len(hard) > 1:
    intro = hard_sets({line[2] for line in hard[1:]})
    parts += ["## Hard and odd inputs", intro, tables.to_markdown(hard)]
  certificates = tables.certificate_grid(
    [(e.task, e.model, stage_rows(e, archived)) for e in entries]
  )
  if len(certificates) > 1:
    markdown = tables.to_markdown(certificates)
    parts += ["## Certificates", CERTIFICATES, markdown]
  parts += options.get("more", ())
  drawn = options.get("drawn", ())
  if drawn:
    parts.append("## Figures")
    parts += [f"![{caption}]({path})" for caption, path in drawn]
  parts += commands(runs, archived, options.get("changed", {}))
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
  """Returns what a page says of its hard test sets: a sentence."""
  descriptions = [
    f"`{name}` {text}"
    for name, text in HARD.items()
    if any(test_set.startswith(name) for test_set in names)
  ]
  return f"Exact match in %, median (worst seed): {', '.join(descriptions)}."


def stage_rows(
  entry: Entry, archived: dict[str, tuple[dict, list[dict]]]
) -> list[dict]:
  """Returns the rows of an entry's run and stage, none if it is not done."""
  _, rows = archived.get(entry.run, ({}, []))
  return [row for row in rows if row["stage"] == entry.stage]


def lines_of(
  entry: Entry, archived: dict[str, tuple[dict, list[dict]]]
) -> list[summary.Line]:
  """Returns the measurements of an entry, a line for each test set.

  Raises:
    UsageError: rows of different conditions would share a line.
  """
  rows, lines = stage_rows(entry, archived), []
  exact = records.of_metric(rows, "em")
  for test_set in dict.fromkeys(row["test_set"] for row in exact):
    test_set_rows = [row for row in exact if row["test_set"] == test_set]
    summary.single_line(
      test_set_rows, f"{entry.run}, {entry.stage}, {test_set}"
    )
    other_rows = [r for r in rows if r["metric"] in ("frontier", "certified")]
    lines += summary.lines(test_set_rows + other_rows)
  return lines


def grid(
  entry_lines: list[tuple[Entry, list[summary.Line]]], source: str
) -> list[list[str]]:
  """Returns a head and lines of cells: the published numbers and ours.

  Args:
    entry_lines: (entry, its lines) for each row of the table.
    source: whose the published numbers are.
  """
  done_runs = {entry.run for entry, lines in entry_lines if lines}
  shown = [
    line for _, lines in entry_lines for line in lines if not line.is_stress
  ]
  lengths = {n for line in shown for n in line.cells}
  lengths = sorted(
    lengths | {n for entry, _ in entry_lines for n in entry.paper}
  )
  sets = {line.labels["test_set"] for line in shown}
  head = ["task", "model", *["test set"] * (len(sets) > 1), ""]
  last_columns = ["frontier", "seeds", "n", "width", "as expected"]
  table = [[*head, *map(str, lengths), *last_columns]]
  test_set_columns = len(head) - 3

  def add(
    names: list[str],
    origin: str,
    cells: list[str],
    last_cells: Sequence[str] = (),
  ) -> None:
    """Appends a line to the table, padded with empty cells."""
    last_cells = [*last_cells, *[""] * (len(last_columns) - len(last_cells))]
    table.append(
      [
        *names,
        *[""] * (test_set_columns + 2 - len(names)),
        origin,
        *cells,
        *last_cells,
      ]
    )

  for entry, lines in entry_lines:
    names = [entry.task, entry.model]
    if entry.paper:
      add(names, source, [f"{entry.paper.get(n, '')}" for n in lengths])
    ours = [line for line in lines if not line.is_stress]
    if not ours:
      status = "not needed" if entry.stage == "certify" else "no rows"
      status = status if entry.run in done_runs else "not run yet"
      add(names, "ours", ["–"] * len(lengths), ["", status])
    for line in ours:
      line_names = [*names, *[line.labels["test_set"]] * test_set_columns]
      cells = [tables.cell_text(line, n, "") for n in lengths]
      seeds = line.seed_count + line.proof
      samples = count(line.cells)
      expected = verdict(entry.expect, line) if line is ours[0] else ""
      width = line.labels["width"]
      last_cells = [tables.frontier_text(line), seeds, samples, width, expected]
      add(line_names, "**ours**", cells, last_cells)
  return table


def count(cells: dict[int, summary.Cell]) -> str:
  """Returns samples per seed: "1000 (300 at 200)" where one length has fewer.

  Args:
    cells: cells of a line by length.
  """
  counts = [cell.n for cell in cells.values()]
  usual = max(counts, key=counts.count)
  others = [f"{cell.n} at {n}" for n, cell in cells.items() if cell.n != usual]
  return f"{usual} ({', '.join(others)})" if others else str(usual)


def verdict(expect: dict, line: summary.Line) -> str:
  """Returns whether medians are in the expected ranges, and which are not.

  Args:
    expect: as in Entry.
    line: the measurements.
  """
  misses = [
    f"{n}: {100 * line.cells[n].median:.1f} not in {least}–{most}"
    for n, (least, most) in expect.items()
    if n in line.cells
    and not least - 1e-9 <= 100 * line.cells[n].median <= most + 1e-9
  ]
  if expect and not expect.keys() & line.cells.keys():
    return "not tested"
  return "no: " + "; ".join(misses) if misses else "yes" if expect else ""


def stress(
  entry_lines: list[tuple[Entry, list[summary.Line]]],
) -> list[list[str]]:
  """Returns a head and lines of cells: exact match on each hard test set."""
  shown = [
    (e, line) for e, lines in entry_lines for line in lines if line.is_stress
  ]
  lengths = sorted({n for _, line in shown for n in line.cells})
  table = [["task", "model", "test set", *map(str, lengths)]]
  for entry, line in shown:
    line_cells = [line.cells.get(n) for n in lengths]
    cells = [tables.with_worst(cell) if cell else "" for cell in line_cells]
    table.append([entry.task, entry.model, line.labels["test_set"], *cells])
  return table


EARLIER = "trained by an earlier program, tested by this one"


def _reused(head: dict) -> str:
  """Returns which part of an archived run is older than the run, or ""."""
  if head["first_stage"]:
    return f"first stage of {head['first_stage']}"
  return "" if head["source"] else EARLIER


def commands(
  runs: dict[str, Entry],
  archived: dict[str, tuple[dict, list[dict]]],
  changed: dict[str, str],
) -> list[str]:
  """Returns paragraphs on how runs are made and how archived ones were made.

  Args:
    runs: an entry of each run, by its name.
    archived: (head, rows) by run.
    changed: by run, what differs between its config and today's.
  """
  lines = [
    shlex.join(["lengthgen", *words])
    for entry in runs.values()
    for words in entry.calls
  ]
  parts = ["## Commands", "```bash\n" + "\n".join(lines) + "\n```"]
  table = [["run", "seconds", "machine", "date", "versions", ""]]
  for name in runs:
    if name not in archived:
      continue
    head = archived[name][0]
    seconds = head["seconds"]
    table.append(
      [
        name,
        "–" if seconds is None else f"{seconds:.0f}",
        head["machine"],
        head["date"],
        ", ".join(f"{n} {x}" for n, x in head["versions"].items()),
        changed.get(name) or _reused(head),
      ]
    )
  return [*parts, tables.to_markdown(table)] if len(table) > 1 else parts
