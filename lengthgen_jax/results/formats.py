"""Formats of tables: grids of cells as Markdown and LaTeX, numbers as CSV."""

import csv
import io

from lengthgen_jax.results import summary


def markdown(grid: list[list[str]]) -> str:
  """Returns the Markdown table of a grid: a head and lines of cells."""
  safe = [[cell.replace("|", "\\|") for cell in line] for line in grid]
  lines = [safe[0], ["---"] * len(grid[0]), *safe[1:]]
  return "\n".join(f"| {' | '.join(line)} |" for line in lines)


LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
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


def latex(grid: list[list[str]], names: int) -> str:
  """Returns the LaTeX table of a grid, for \\usepackage{booktabs}.

  Args:
    grid: a head and lines of cells.
    names: how many columns hold names, on the left; the others hold numbers.
  """
  line = lambda cells: " & ".join(map(_escaped, cells)) + r" \\"
  return "\n".join(
    [
      rf"\begin{{tabular}}{{{'l' * names}{'r' * (len(grid[0]) - names)}}}",
      r"\toprule",
      line(grid[0]),
      r"\midrule",
      *map(line, grid[1:]),
      r"\bottomrule",
      r"\end{tabular}",
    ]
  )


def _escaped(text: str) -> str:
  """Returns a text as LaTeX source."""
  return "".join(LATEX.get(c, c) for c in text)


NAMES = ("task", "method", "test_set", "width", "run", "unit")
COLUMNS = (
  *("metric", *NAMES, "asked", "certified", "length", "bits"),
  *summary.Cell._fields,
)


def numbers(rows: list[dict], metrics: tuple[str, ...] = ("em", "edit")) -> str:
  """Returns CSV with a line for every cell of a table.

  Numbers are in full: shares of 1, and lengths for the metric `frontier`.
  Unknown values are left empty.

  Args:
    rows: rows of any runs.
    metrics: metrics of the cells; with "em" goes the frontier.
  """
  buffer = io.StringIO()
  writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
  writer.writeheader()
  for metric in metrics:
    for line in summary.ordered(summary.lines(rows, metric)):
      fields = {name: line.about[name] for name in NAMES}
      fields["asked"] = max(row["seeds_asked"] for row in line.group.rows)
      fields["certified"] = line.proved.strip()
      for length, cell in line.cells.items():
        place = {"length": length, "bits": line.bits[length]}
        writer.writerow({"metric": metric} | fields | place | cell._asdict())
      if metric == "em" and line.frontier:
        writer.writerow(
          {"metric": "frontier"} | fields | line.frontier._asdict()
        )
  return buffer.getvalue()
