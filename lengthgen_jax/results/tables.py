"""Tables of results: of one run as text, of many as Markdown, LaTeX and CSV.

A grid is a head and lines of cells, all of them text.
"""

import csv
import io
from collections.abc import Callable, Iterable

from lengthgen_jax.results import summary
from lengthgen_jax.results.summary import Cell, Line, joined_values

# The columns before the numbers in a grid of many runs.
NAMES = ("task", "method", "test_set", "width", "run", "seeds")


def run_table(rows: list[dict]) -> str:
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
  exact_rows = [row for line in lines for row in line.rows]
  bits = {row["length"]: row["bits"] for row in exact_rows}
  lengths = sorted(bits)
  unit, head = joined_values(exact_rows, "unit"), list(map(str, lengths))
  if any(bits.values()):
    unit, head = f"{unit} (bits)", [f"{n} ({bits[n]})" for n in lengths]
  has_frontier = any(line.frontier for line in lines)
  grid = [["method", "test set", "seed", *head, *["frontier"] * has_frontier]]

  def add(line: Line, seed: str, cell_text: Callable[[Cell], str]) -> None:
    """Appends a line to the grid."""
    cells = line.cells
    texts = [cell_text(cells[n]) if n in cells else "-" for n in lengths]
    texts += [frontier_text(line)] * has_frontier
    names = [line.name, line.labels["test_set"], seed + line.proof]
    grid.append([*names, *texts])

  for line in lines:
    has_one_seed = line.seed_count == "1"
    if has_one_seed or not line.is_stress:
      for seed in line.seeds:
        one = lambda cell: percent(cell.median) + _bound(cell)
        add(line.of_seed(seed), str(seed), one)
    if not has_one_seed:
      is_partial = " of " in line.seed_count
      note = f", {line.seed_count} seeds" if is_partial else ""
      add(line, "median" + note, lambda cell: percent(cell.median))
  trained = (
    f"trained on lengths up to {joined_values(exact_rows, 'train_length')}"
  )
  if all(row["step"] == 0 for row in exact_rows):
    trained = "not trained"
  return "\n".join(
    [
      f"{joined_values(exact_rows, 'task')}: exact match in % by length in"
      f" {unit}; in brackets the one-sided 95 % lower bound",
      f"{trained}, width={joined_values(exact_rows, 'width')}, strict (every"
      " output token counted)"
      + ("; ∀: proved for every input" if lines[0].proved else ""),
      *_align(grid),
    ]
  )


def _align(grid: list[list[str]]) -> list[str]:
  """Returns lines of text in columns: three names left, numbers right."""
  columns = list(zip(*grid, strict=True))
  aligned = []
  for i, column in enumerate(columns):
    width = max((26, 14, 6, 13)[min(i, 3)], *map(len, column))
    side = "<" if i < 3 else ">"
    aligned.append([f"{text:{side}{width}}" for text in column])
  return list(map(" ".join, zip(*aligned, strict=True)))


def runs_grid(rows: list[dict], metric: str = "em") -> list[list[str]]:
  """Returns a grid of many runs: a metric by length.

  A cell holds the median of the seeds, the worst seed where it differs, the
  worst seed's one-sided 95 % lower bound in brackets, and the number of its
  seeds where it is not that of the line. Rows of different conditions or runs
  never share a line. ∀ says how many of the seeds are certified right at every
  length. The last column is the frontier, where it was measured.

  Args:
    rows: rows of any runs; they may name their `run`.
    metric: the metric that the cells show.
  """
  lines = summary.sort(summary.lines(rows, metric))
  lengths = sorted({n for line in lines for n in line.cells})
  has_frontier = metric == "em" and any(line.frontier for line in lines)
  head = [name.replace("_", " ") for name in NAMES]
  grid = [[*head, *map(str, lengths), *["frontier"] * has_frontier]]
  for line in lines:
    names = [str(line.labels[name]) for name in NAMES]
    names[-1] += line.proof
    cells = [cell_text(line, n) for n in lengths]
    cells += [frontier_text(line)] * has_frontier
    grid.append(names + cells)
  return grid


def certificate_grid(
  named_rows: Iterable[tuple[str, str, list[dict]]],
) -> list[list[str]]:
  """Returns a grid of what certificates say; there may be none.

  Args:
    named_rows: (task, model, rows of one stage) of each line.
  """
  grid = [["task", "model", "right", "cases", "smallest margin", "wrong"]]
  for task, model, rows in named_rows:
    # Every round of practice ends with a certificate: the last one counts.
    certificates = {
      row["seed"]: row for row in rows if row["metric"] == "certified"
    }.values()
    if not certificates:
      continue
    right = sum(row["value"] == 1 for row in certificates)
    cases = sorted(row["n"] for row in certificates)
    margins = sorted(
      row["margin"] for row in certificates if row["margin"] is not None
    )
    wrong = [
      f"seed {row['seed']}: {row['reason'].partition(';')[0]}"
      for row in certificates
      if row["value"] != 1
    ]
    grid.append(
      [
        *(task, model, f"{right} of {len(certificates)}"),
        _range([f"{n:,}" for n in cases]),
        _range([f"{margin:.2f}" for margin in margins]),
        "; ".join(wrong),
      ]
    )
  return grid


def _range(texts: list[str]) -> str:
  """Returns "least to greatest" of sorted texts, or one if they are equal."""
  return " to ".join(dict.fromkeys([*texts[:1], *texts[-1:]]))


# Cells.


def percent(share: float) -> str:
  """Returns a share in %, without the sign."""
  return f"{100 * share:.1f}"


def _bound(cell: Cell) -> str:
  """Returns the lower bound in brackets, "" if there is none."""
  return "" if cell.bound is None else f" [{percent(cell.bound)}]"


def cell_text(line: Line, length: int, worst_word: str = "worst ") -> str:
  """Returns what a line shows at a length; a dash where nothing was measured.

  Args:
    line: the line.
    length: the length.
    worst_word: the word before the worst seed.
  """
  cell = line.cells.get(length)
  if cell is None:
    return "–"
  text = with_worst(cell, worst_word=worst_word) + _bound(cell)
  return text if cell.seeds == len(line.seeds) else f"{text} of {cell.seeds}"


def with_worst(
  cell: Cell, to_text: Callable[[float], str] = percent, worst_word: str = ""
) -> str:
  """Returns the median and, where it reads otherwise, the worst seed.

  Args:
    cell: the seeds of a line at one length.
    to_text: turns a value into text.
    worst_word: the word before the worst seed, which stands in parentheses.
  """
  median, worst = to_text(cell.median), to_text(cell.worst)
  return median if worst == median else f"{median} ({worst_word}{worst})"


def frontier_text(line: Line) -> str:
  """Returns the frontier of a line as text.

  The frontier is the longest length with exact match of at least 99 %: the
  median of the seeds, and the worst seed. "≥" says that no length failed up to
  the one where the search ended, ∀ that every seed is proved right.
  """
  cell = line.frontier
  if line.proof == " ∀":
    return "∀"
  if cell is None:
    return "–"
  reached = "≥ " if cell.median == cell.limit else ""
  worst = f" (worst {cell.worst:g})" if cell.worst < cell.median else ""
  seeds = f" of {cell.seeds}" if cell.seeds < len(line.seeds) else ""
  return f"{reached}{cell.median:g}{worst}{seeds}"


# Formats.


def to_markdown(grid: list[list[str]]) -> str:
  """Returns a grid as Markdown."""
  head, *lines = [[cell.replace("|", "\\|") for cell in line] for line in grid]
  rows = [head, ["---"] * len(head), *lines]
  return "\n".join(f"| {' | '.join(row)} |" for row in rows)


LATEX = str.maketrans(
  {c: f"\\{c}" for c in "&%$#_{}"}
  | {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "|": "\\textbar{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "–": "--",
    "∀": "$\\forall$",
    "≥": "$\\geq$",
    "×": "$\\times$",
    "⊥": "$\\bot$",
    "·": "$\\cdot$",
  }
)


def to_latex(grid: list[list[str]], num_names: int = len(NAMES)) -> str:
  """Returns a grid as LaTeX, for the package booktabs.

  Args:
    grid: a head and lines of cells.
    num_names: how many columns hold names; those to the right hold numbers.
  """
  head, *lines = [
    " & ".join(cell.translate(LATEX) for cell in line) + r" \\" for line in grid
  ]
  columns = "l" * num_names + "r" * (len(grid[0]) - num_names)
  return "\n".join(
    [
      rf"\begin{{tabular}}{{{columns}}}",
      *(r"\toprule", head, r"\midrule", *lines, r"\bottomrule"),
      r"\end{tabular}",
    ]
  )


CSV_LABELS = ("task", "method", "test_set", "width", "run", "unit")


def to_csv(rows: list[dict]) -> str:
  """Returns exact match, its frontier and edit distance of runs as CSV.

  There is a line for every cell, with numbers in full: shares of 1, and lengths
  for the metric `frontier`. Unknown values are left empty.

  Args:
    rows: rows of any runs.
  """
  columns = ["metric", *CSV_LABELS, "asked", "certified", "length", "bits"]
  buffer = io.StringIO()
  writer = csv.DictWriter(
    buffer, [*columns, *Cell._fields], lineterminator="\n"
  )
  writer.writeheader()
  for metric in ("em", "edit"):
    for line in summary.sort(summary.lines(rows, metric)):
      fields = {name: line.labels[name] for name in CSV_LABELS}
      fields["metric"] = metric
      fields["asked"] = max(row["seeds_asked"] for row in line.rows)
      fields["certified"] = line.proof.strip()
      bits = {row["length"]: row["bits"] for row in line.rows}
      for length, cell in line.cells.items():
        place = {"length": length, "bits": bits[length]}
        writer.writerow(fields | place | cell._asdict())
      if metric == "em" and line.frontier:
        fields["metric"] = "frontier"
        writer.writerow(fields | line.frontier._asdict())
  return buffer.getvalue()
