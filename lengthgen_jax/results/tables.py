"""Exact match as text: one run on the screen, many runs in a grid."""

from lengthgen_jax.results import summary
from lengthgen_jax.results.schema import values


def of_run(rows: list[dict]) -> str:
  """Exact match by length: a line per method, test set and seed, and the
  median of the seeds, which says "k of R seeds" where R were asked for. ∀
  stands beside a seed that is certified right at every length; the frontier,
  where it was measured, in the last column. Hard inputs have the median
  alone."""
  found = summary.lines(rows, shown=("test_set",))
  if not found:
    return "no exact match was measured"
  exact = [row for line in found for row in line.group.rows]
  bits = {row["length"]: row["bits"] for row in exact}
  lengths = sorted(bits)
  unit, head = values(exact, "unit"), list(map(str, lengths))
  if any(bits.values()):
    unit, head = f"{unit} (bits)", [f"{n} ({bits[n]})" for n in lengths]
  ahead = any(line.frontier for line in found)
  grid = [["method", "test set", "seed", *head, *["frontier"] * ahead]]
  for line in found:
    names = [line.about[name] for name in ("method", "test_set")]
    alone = line.seeds == "1" or not line.stress
    for seed in line.numbers if alone else ():
      own = line.of_seed(seed)
      cells = [_one(own.cells.get(n)) for n in lengths]
      cells += [frontier(own)] * ahead
      grid.append([*names, str(seed) + own.proved, *cells])
    if line.seeds != "1":
      of = f", {line.seeds} seeds" if " of " in line.seeds else ""
      cells = [_median(line.cells.get(n)) for n in lengths]
      cells += [frontier(line)] * ahead
      grid.append([*names, "median" + of + line.proved, *cells])
  return "\n".join(
    [
      f"{values(exact, 'task')}: exact match in % by length in {unit}; in"
      " brackets the one-sided 95 % lower bound",
      f"{_trained(exact)}, width={values(exact, 'width')}, strict (every output"
      " token counted)"
      + ("; ∀: proved for every input" if found[0].models else ""),
      *_aligned(grid),
    ]
  )


def _trained(rows: list[dict]) -> str:
  if all(row["step"] == 0 for row in rows):
    return "not trained"
  return f"trained on lengths up to {values(rows, 'train_length')}"


def _median(own: summary.Cell | None) -> str:
  return percent(own.median) if own else "-"


def _one(own: summary.Cell | None) -> str:
  return _median(own) + (_bound(own) if own else "")


def _bound(own: summary.Cell) -> str:
  return "" if own.bound is None else f" [{percent(own.bound)}]"


def _aligned(lines: list[list[str]]) -> list[str]:
  """Lines of cells: three names on the left, numbers on the right."""
  columns = list(zip(*lines, strict=True))
  for i, least in enumerate((26, 14, 6)):
    width = max(least, *map(len, columns[i]))
    columns[i] = [name.ljust(width) for name in columns[i]]
  columns[3:] = [[cell.rjust(13) for cell in own] for own in columns[3:]]
  return list(map(" ".join, zip(*columns, strict=True)))


# What a line of many runs says before its numbers.
NAMES = ("task", "method", "test_set", "width", "run", "seeds")


def of_runs(rows: list[dict], metric: str = "em") -> list[list[str]]:
  """A head and lines of cells: the median of seeds and the worst seed where it
  differs.

  A cell also holds the worst seed's one-sided 95 % lower bound in brackets,
  and the number of its seeds where it is not that of the line. Rows of
  different conditions or runs never share a line; rows may name their `run`.
  ∀ says how many of the seeds are certified right at every length. The
  frontier, where it was measured, is the last column.
  """
  found = summary.ordered(summary.lines(rows, metric))
  lengths = sorted({n for line in found for n in line.cells})
  ahead = metric == "em" and any(line.frontier for line in found)
  head = [name.replace("_", " ") for name in NAMES]
  grid = [[*head, *map(str, lengths), *["frontier"] * ahead]]
  for line in found:
    names = [str(line.about[name]) for name in NAMES]
    names[-1] += line.proved
    seeds = len(line.numbers)
    cells = [cell(line.cells.get(n), seeds) for n in lengths]
    cells += [frontier(line)] * ahead
    grid.append(names + cells)
  return grid


def cell(own: summary.Cell | None, seeds: int, word: str = "worst ") -> str:
  """Of one line at one length; `seeds` are the line's, `word` stands before the
  worst one."""
  if own is None:
    return "–"
  text = with_worst(own, word=word) + _bound(own)
  return text if own.seeds == seeds else f"{text} of {own.seeds}"


def percent(value: float) -> str:
  return f"{100 * value:.1f}"


def with_worst(own: summary.Cell, say=percent, word: str = "") -> str:
  """The median and, where it reads otherwise, the worst seed in parentheses."""
  median, worst = say(own.median), say(own.worst)
  return median if worst == median else f"{median} ({word}{worst})"


def frontier(line: summary.Line) -> str:
  """The longest length with exact match of at least 99 %: the median of seeds
  and the worst; "≥" where nothing failed as far as was looked; ∀ where every
  seed is proved right."""
  own = line.frontier
  if line.proved == " ∀":
    return "∀"
  if own is None:
    return "–"
  reached = "≥ " if own.median == own.limit else ""
  worst = f" (worst {own.worst:g})" if own.worst < own.median else ""
  of = f" of {own.seeds}" if own.seeds < len(line.numbers) else ""
  return f"{reached}{own.median:g}{worst}{of}"
