"""This module makes tables of results: of one run as text, of many as Markdown,
LaTeX and CSV.

A grid is a list of rows, the header first; a row is a list of cells of text.
"""

import csv
import io
from collections.abc import Callable, Iterable

from lengthgen_jax.results import summary
from lengthgen_jax.results.summary import Cell, Curve, joined_values

# The columns before the numbers in a grid of many runs.
NAMES = ("task", "method", "test_set", "width", "run", "seeds")


def run_table(rows: list[dict]) -> str:
  """Returns a table of exact match by length as text, for the screen.

  There is a row per curve (a method and a test set under equal conditions, like
  the step) and seed and, unless the config has one seed, one for the median of
  the seeds, which says "k of R seeds" if some of R are missing; of several
  seeds, the test sets that eval.stress adds have the median alone. ∀ stands
  beside a seed that both of records.CHECKERS proved right at every length, ∀¹
  beside one that only one of them did; beside the median they say for how many
  seeds that is so, if not for all. The last column is the frontier, where it
  was measured.

  Args:
    rows: rows of one run, of any metrics.
  """
  curves = summary.curves(rows, shown=("test_set",))
  if not curves:
    return "no exact match was measured"
  exact_rows = [row for curve in curves for row in curve.rows]
  bits = {row["length"]: row["bits"] for row in exact_rows}
  lengths = sorted(bits)
  unit, headings = joined_values(exact_rows, "unit"), list(map(str, lengths))
  if any(bits.values()):
    unit, headings = f"{unit} (bits)", [f"{n} ({bits[n]})" for n in lengths]
  has_frontier = any(curve.frontier for curve in curves)
  frontier = ["frontier"] * has_frontier
  grid = [["method", "test set", "seed", *headings, *frontier]]

  def add_row(curve: Curve, seed: str, to_text: Callable[[Cell], str]) -> None:
    """Appends a row to the grid."""
    cells = curve.cells
    texts = [to_text(cells[n]) if n in cells else "-" for n in lengths]
    texts += [frontier_text(curve)] * has_frontier
    names = [curve.name, curve.labels["test_set"], seed + curve.proof]
    grid.append([*names, *texts])

  for curve in curves:
    has_one_seed = curve.seeds_text == "1"
    if has_one_seed or not curve.is_stress:
      for seed in curve.seeds:
        with_bound = lambda cell: percent(cell.median) + _bound(cell)
        add_row(curve.of_seed(seed), str(seed), with_bound)
    if not has_one_seed:
      is_partial = " of " in curve.seeds_text
      note = f", {curve.seeds_text} seeds" if is_partial else ""
      add_row(curve, "median" + note, lambda cell: percent(cell.median))
  trained = (
    f"trained on lengths up to {joined_values(exact_rows, 'train_length')}"
  )
  if all(row["step"] == 0 for row in exact_rows):
    trained = "not trained"
  both, once = curves[0].proved, curves[0].proved_once
  return "\n".join(
    [
      f"{joined_values(exact_rows, 'task')}: exact match in % by length in"
      f" {unit}; in brackets the one-sided 95 % lower bound",
      f"{trained}, width={joined_values(exact_rows, 'width')}, strict (every"
      " output token counted)"
      + ("; ∀: proved for every input by both checkers" if both else "")
      + ("; ∀¹: proved for every input by one checker" if once else ""),
      *_align(grid),
    ]
  )


def _align(grid: list[list[str]]) -> list[str]:
  """Returns the rows of a grid as lines of text: three columns aligned left,
  and numbers right."""
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
  worst seed's one-sided 95 % lower bound in brackets, and its number of seeds
  where that differs from the row's. Results of different conditions or runs
  never share a row. ∀ says how many of the seeds both of records.CHECKERS
  proved right at every length, ∀¹ how many only one of them did. Of exact match
  the last column is the frontier, where it was measured.

  Args:
    rows: rows of any runs; a `run` field is optional.
    metric: the metric that the cells show.
  """
  curves = summary.sort(summary.curves(rows, metric))
  lengths = sorted({n for curve in curves for n in curve.cells})
  has_frontier = metric == "em" and any(curve.frontier for curve in curves)
  header = [*(name.replace("_", " ") for name in NAMES), *map(str, lengths)]
  if has_frontier:
    header.append("frontier")
  grid = [header]
  for curve in curves:
    names = [str(curve.labels[name]) for name in NAMES]
    names[-1] += curve.proof
    cells = [cell_text(curve, n) for n in lengths]
    if has_frontier:
      cells.append(frontier_text(curve))
    grid.append(names + cells)
  return grid


def certificate_grid(
  named_rows: Iterable[tuple[str, str, list[dict]]],
) -> list[list[str]]:
  """Returns a grid of what certificates say, the header alone if there are
  none.

  "rounding" is the largest bound of the seeds that have one; the last column
  has the seeds that are not proved right.

  Args:
    named_rows: (task, model, result rows of one stage) for each row of the
      grid; those without a certificate are left out.
  """
  header = ["task", "model", "right", "cases", "smallest margin", "rounding"]
  grid = [[*header, "not right"]]
  for task, model, rows in named_rows:
    # Every round of finetuning ends with a certificate: the last one counts.
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
    rounding = [row.get("rounding") for row in certificates]
    bound = max((x for x in rounding if x is not None), default=None)
    not_right = [
      f"seed {row['seed']}: {row['reason'].partition(';')[0]}"
      for row in certificates
      if row["value"] != 1
    ]
    grid.append(
      [
        task,
        model,
        f"{right} of {len(certificates)}",
        _range([f"{n:,}" for n in cases]),
        _range([f"{margin:.2f}" for margin in margins]),
        "–" if bound is None else f"{bound:.2g}",
        "; ".join(not_right),
      ]
    )
  return grid


def _range(texts: list[str]) -> str:
  """Returns "FIRST to LAST" of sorted texts, one of them if the two are equal,
  and "" if there are none."""
  return " to ".join(dict.fromkeys([*texts[:1], *texts[-1:]]))


# Cells.


def percent(fraction: float) -> str:
  """Returns a fraction of 1 as a percentage, without the sign %."""
  return f"{100 * fraction:.1f}"


def _bound(cell: Cell) -> str:
  """Returns the lower bound in brackets, "" if there is none."""
  bound = cell.lower_bound
  return "" if bound is None else f" [{percent(bound)}]"


def cell_text(curve: Curve, length: int, worst_word: str = "worst ") -> str:
  """Returns a curve's median, worst seed and lower bound at a length as text.

  " of k" follows where only k of the curve's seeds were measured. The text is a
  dash where none was.

  Args:
    curve: the results of one row of the table.
    length: the length of the cell's column.
    worst_word: stands before the worst seed.
  """
  cell = curve.cells.get(length)
  if cell is None:
    return "–"
  text = with_worst(cell, worst_word=worst_word) + _bound(cell)
  return text if cell.seeds == len(curve.seeds) else f"{text} of {cell.seeds}"


def with_worst(
  cell: Cell, to_text: Callable[[float], str] = percent, worst_word: str = ""
) -> str:
  """Returns the text of the median over the seeds and, if its own text differs,
  that of the worst seed's value in parentheses.

  Args:
    cell: statistics at one length.
    to_text: formats a value.
    worst_word: stands before the worst seed's value within the parentheses,
      with a space at its end.
  """
  median, worst = to_text(cell.median), to_text(cell.worst)
  return median if worst == median else f"{median} ({worst_word}{worst})"


def frontier_text(curve: Curve) -> str:
  """Returns the median and the worst seed of a curve's frontier as text.

  The frontier is the longest length up to which exact match is at least 99 % by
  its lower bound. "≥" says that the median is the longest that the search may
  try, "∀" that both checkers proved every seed right, "–" that there was no
  search, " of k" that only k of the curve's seeds have a frontier.
  """
  cell = curve.frontier
  if curve.proof == " ∀":
    return "∀"
  if cell is None:
    return "–"
  reached = "≥ " if cell.median == cell.limit else ""
  worst = f" (worst {cell.worst:g})" if cell.worst < cell.median else ""
  seeds = f" of {cell.seeds}" if cell.seeds < len(curve.seeds) else ""
  return f"{reached}{cell.median:g}{worst}{seeds}"


# Formats.


def to_markdown(grid: list[list[str]]) -> str:
  """Returns a grid as a Markdown table."""
  header, *rows = [[cell.replace("|", "\\|") for cell in row] for row in grid]
  rows = [header, ["---"] * len(header), *rows]
  return "\n".join(f"| {' | '.join(row)} |" for row in rows)


# How LaTeX writes characters that it reserves or lacks.
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
    "¹": "$^1$",
    "≥": "$\\geq$",
    "×": "$\\times$",
    "⊥": "$\\bot$",
    "·": "$\\cdot$",
  }
)


def to_latex(grid: list[list[str]], num_names: int = len(NAMES)) -> str:
  """Returns a grid as a LaTeX table, for the package booktabs.

  Args:
    grid: the rows of cells, the header first.
    num_names: how many columns hold names; those to the right hold numbers.
  """
  header, *rows = [
    " & ".join(cell.translate(LATEX) for cell in row) + r" \\" for row in grid
  ]
  columns = "l" * num_names + "r" * (len(grid[0]) - num_names)
  return "\n".join(
    [
      rf"\begin{{tabular}}{{{columns}}}",
      r"\toprule",
      header,
      r"\midrule",
      *rows,
      r"\bottomrule",
      r"\end{tabular}",
    ]
  )


# The columns of the CSV that are labels of a curve.
CSV_LABELS = ("task", "method", "test_set", "width", "run", "unit")


def to_csv(rows: list[dict]) -> str:
  """Returns exact match, its frontier and edit distance of runs as CSV.

  There is a line for every cell, with the numbers of `summary.Cell` in full:
  fractions of 1, and lengths for the metric `frontier`. The column `asked` is
  the number of seeds of the config, `certified` is `Curve.proof`. Values that
  do not exist are left empty.

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
    for curve in summary.sort(summary.curves(rows, metric)):
      fields = {name: curve.labels[name] for name in CSV_LABELS}
      fields["metric"] = metric
      fields["asked"] = max(row["seeds_asked"] for row in curve.rows)
      fields["certified"] = curve.proof.strip()
      bits = {row["length"]: row["bits"] for row in curve.rows}
      for length, cell in curve.cells.items():
        where = {"length": length, "bits": bits[length]}
        writer.writerow(fields | where | cell._asdict())
      if metric == "em" and curve.frontier:
        fields["metric"] = "frontier"
        writer.writerow(fields | curve.frontier._asdict())
  return buffer.getvalue()
