"""Tables of exact match: of one run as text, of many runs as grids of cells."""

from collections.abc import Callable

from lengthgen_jax.results import summary
from lengthgen_jax.results.schema import values


def of_run(rows: list[dict]) -> str:
  """Returns a table of exact match by length as text, for the screen.

  There is a line per method, test set and seed, and one for the median of the
  seeds, which says "k of R seeds" if some of R are missing; hard inputs have
  the median alone. ∀ stands beside a seed that is certified right at every
  length. The last column is the frontier, where it was measured.

  Args:
    rows: rows of one run.
  """
  lines = summary.lines(rows, shown=("test_set",))
  if not lines:
    return "no exact match was measured"
  exact = [row for line in lines for row in line.group.rows]
  bits = {row["length"]: row["bits"] for row in exact}
  lengths = sorted(bits)
  unit, head = values(exact, "unit"), list(map(str, lengths))
  if any(bits.values()):
    unit, head = f"{unit} (bits)", [f"{n} ({bits[n]})" for n in lengths]
  has_frontier = any(line.frontier for line in lines)
  grid = [["method", "test set", "seed", *head, *["frontier"] * has_frontier]]
  for line in lines:
    names = [line.about[name] for name in ("method", "test_set")]
    shows_seeds = line.seeds == "1" or not line.stress
    for seed in line.numbers if shows_seeds else ():
      seed_line = line.of_seed(seed)
      cells = [_one(seed_line.cells.get(n)) for n in lengths]
      cells += [frontier(seed_line)] * has_frontier
      grid.append([*names, str(seed) + seed_line.proved, *cells])
    if line.seeds != "1":
      seeds_note = f", {line.seeds} seeds" if " of " in line.seeds else ""
      cells = [_median(line.cells.get(n)) for n in lengths]
      cells += [frontier(line)] * has_frontier
      grid.append([*names, "median" + seeds_note + line.proved, *cells])
  return "\n".join(
    [
      f"{values(exact, 'task')}: exact match in % by length in {unit}; in"
      " brackets the one-sided 95 % lower bound",
      f"{_trained(exact)}, width={values(exact, 'width')}, strict (every output"
      " token counted)"
      + ("; ∀: proved for every input" if lines[0].models else ""),
      *_aligned(grid),
    ]
  )


def _trained(rows: list[dict]) -> str:
  """Returns up to which lengths the models of the rows were trained."""
  if all(row["step"] == 0 for row in rows):
    return "not trained"
  return f"trained on lengths up to {values(rows, 'train_length')}"


def _median(stats: summary.Cell | None) -> str:
  """Returns the median in %, "-" without any."""
  return percent(stats.median) if stats else "-"


def _one(stats: summary.Cell | None) -> str:
  """Returns the exact match of one seed in %, with its lower bound."""
  return _median(stats) + (_bound(stats) if stats else "")


def _bound(stats: summary.Cell) -> str:
  """Returns the lower bound in brackets, "" if there is none."""
  return "" if stats.bound is None else f" [{percent(stats.bound)}]"


def _aligned(lines: list[list[str]]) -> list[str]:
  """Returns lines of cells as text, in columns of equal width.

  Three names stand on the left, numbers on the right.
  """
  columns = list(zip(*lines, strict=True))
  for i, minimum in enumerate((26, 14, 6)):
    width = max(minimum, *map(len, columns[i]))
    columns[i] = [name.ljust(width) for name in columns[i]]
  columns[3:] = [[cell.rjust(13) for cell in column] for column in columns[3:]]
  return list(map(" ".join, zip(*columns, strict=True)))


# The columns before the numbers in a table of many runs.
NAMES = ("task", "method", "test_set", "width", "run", "seeds")


def of_runs(rows: list[dict], metric: str = "em") -> list[list[str]]:
  """Returns a head and lines of cells: a metric of many runs by length.

  A cell holds the median of the seeds, the worst seed where it differs, the
  worst seed's one-sided 95 % lower bound in brackets, and the number of its
  seeds where it is not that of the line. Rows of different conditions or runs
  never share a line. ∀ says how many of the seeds are certified right at every
  length. The last column is the frontier, where it was measured.

  Args:
    rows: rows of any runs; they may name their `run`.
    metric: the metric that the cells show.
  """
  lines = summary.ordered(summary.lines(rows, metric))
  lengths = sorted({n for line in lines for n in line.cells})
  has_frontier = metric == "em" and any(line.frontier for line in lines)
  head = [name.replace("_", " ") for name in NAMES]
  grid = [[*head, *map(str, lengths), *["frontier"] * has_frontier]]
  for line in lines:
    names = [str(line.about[name]) for name in NAMES]
    names[-1] += line.proved
    seeds = len(line.numbers)
    cells = [cell(line.cells.get(n), seeds) for n in lengths]
    cells += [frontier(line)] * has_frontier
    grid.append(names + cells)
  return grid


def cell(stats: summary.Cell | None, seeds: int, word: str = "worst ") -> str:
  """Returns the text of a cell.

  Args:
    stats: the seeds of a line at one length, None if it has no rows there.
    seeds: how many seeds the line has.
    word: the word before the worst seed.
  """
  if stats is None:
    return "–"
  text = with_worst(stats, word=word) + _bound(stats)
  return text if stats.seeds == seeds else f"{text} of {stats.seeds}"


def percent(value: float) -> str:
  """Returns a share in %, without the sign."""
  return f"{100 * value:.1f}"


def with_worst(
  stats: summary.Cell, say: Callable[[float], str] = percent, word: str = ""
) -> str:
  """Returns the median and, where it reads otherwise, the worst seed.

  Args:
    stats: the seeds of a line at one length.
    say: turns a value into text.
    word: the word before the worst seed, which stands in parentheses.
  """
  median, worst = say(stats.median), say(stats.worst)
  return median if worst == median else f"{median} ({word}{worst})"


def frontier(line: summary.Line) -> str:
  """Returns the frontier of a line as text.

  The frontier is the longest length with exact match of at least 99 %: the
  median of the seeds, and the worst seed. "≥" says that no length failed up to
  the one where the search ended, ∀ that every seed is proved right.
  """
  stats = line.frontier
  if line.proved == " ∀":
    return "∀"
  if stats is None:
    return "–"
  reached = "≥ " if stats.median == stats.limit else ""
  worst = f" (worst {stats.worst:g})" if stats.worst < stats.median else ""
  seeds_note = f" of {stats.seeds}" if stats.seeds < len(line.numbers) else ""
  return f"{reached}{stats.median:g}{worst}{seeds_note}"
