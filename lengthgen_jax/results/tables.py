"""Tables of results: of one run as text, of many as frames of text, and these
as Markdown and LaTeX.

In a cell stands the median of the seeds or, of fewer than three, each seed.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from lengthgen_jax.results import summary
from lengthgen_jax.results.summary import FRONTIER, joined

LEGEND = (
  "median of the seeds (worst seed) [one-sided 95 % lower bound of the worst];"
  " of fewer than three seeds, each"
)


# Cells, which are lines of the frame that `summary.cells` returns.


def percent(fraction: float) -> str:
  """Returns a fraction of 1 as a percentage, without the sign %."""
  return f"{100 * fraction:.1f}"


def values_text(cell: Any, to_text: Callable[[float], str] = percent) -> str:
  """Returns the median of a cell's seeds and, where its text differs, the worst
  seed in parentheses; of fewer than three seeds each value if they differ."""
  if cell.seeds < 3:
    return ", ".join(dict.fromkeys(map(to_text, cell.values)))
  median, low = to_text(cell.median), to_text(cell.worst)
  return median if low == median else f"{median} ({low})"


def cell_text(cell: Any) -> str:
  """Returns a cell as text, with its lower bound, if it has one.

  Of the frontier "≥" says that nothing failed as far as was looked. " of k"
  follows where only k of the curve's seeds were measured.
  """
  if cell.length == FRONTIER:
    is_open = cell.bound == (cell.median if cell.seeds > 2 else cell.worst)
    text = "≥ " * is_open + values_text(cell, "{:g}".format)
  else:
    text = values_text(cell)
    if pd.notna(cell.lower_bound):
      text += f" [{percent(cell.lower_bound)}]"
  return text if cell.seeds == cell.in_curve else f"{text} of {cell.seeds}"


def proof(cell: Any) -> str:
  """Returns " ∀" if all of a curve's seeds are proved right, and " ∀ k of R" if
  some are."""
  is_all = cell.proved == cell.in_curve
  text = " ∀" if is_all else f" ∀ {cell.proved} of {cell.in_curve}"
  return text if cell.proved else ""


# Tables.


def wide(
  cells: pd.DataFrame,
  names: dict[str, str],
  to_text: Callable[[Any], str] = cell_text,
) -> pd.DataFrame:
  """Returns a frame of text with a row for each curve of `cells` and a column
  for each length, and the frontier, if it was searched ("∀" where every seed is
  proved right); before them are the columns in `names`, {column of `cells`:
  heading}."""
  texts = [to_text(cell) for cell in cells.itertuples()]
  lengths = cells.assign(text=texts).pivot(
    index="curve", columns="length", values="text"
  )
  curves = cells.drop_duplicates("curve").set_index("curve").loc[lengths.index]
  columns = {heading: curves[name] for name, heading in names.items()}
  lengths.columns = [
    "frontier" if x == FRONTIER else f"{x:.0f}" for x in lengths
  ]
  if "frontier" in lengths:
    every = curves.proved == curves.in_curve
    lengths["frontier"] = lengths.frontier.mask(every, "∀")
  return pd.DataFrame(columns).join(lengths.fillna("–")).astype(str)


def with_seeds(cells: pd.DataFrame) -> pd.DataFrame:
  """Returns cells with the columns `seeds_proved`, like "3 of 5 ∀ 2 of 3", and
  `samples`, like "1000 (200 at 60)" where one length has other than most."""
  samples = {}
  for curve, part in cells[cells.length != FRONTIER].groupby("curve"):
    usual = statistics.mode(part.n)  # the first of several
    others = part[part.n != usual].itertuples()
    text = ", ".join(f"{x.n} at {x.length:.0f}" for x in others)
    samples[curve] = f"{usual}" + (f" ({text})" if text else "")
  proved = [cell.asked + proof(cell) for cell in cells.itertuples()]
  return cells.assign(seeds_proved=proved, samples=cells.curve.map(samples))


def in_order(cells: pd.DataFrame) -> pd.DataFrame:
  by = ["task", "method", "stage", "test_set", "width", "run", "step"]
  order = cells.sort_values(by, key=lambda x: x.astype(str), kind="stable")
  return order.assign(curve=pd.factorize(order.curve)[0])


def cells_of_task(
  rows: list[dict], task: str, metric: str = "em", fields: Sequence[str] = ()
) -> pd.DataFrame:
  """Returns the cells of one task's runs, in order; `fields` are further
  columns of the rows, like config fields that were varied."""
  task_rows = [row for row in rows if row["task"] == task]
  shown = (*summary.SHOWN, *fields)
  return with_seeds(in_order(summary.cells(task_rows, metric, shown=shown)))


def named(
  cells: pd.DataFrame,
  fields: Sequence[str] = (),
  to_text: Callable[[Any], str] = cell_text,
) -> pd.DataFrame:
  """Returns the table of what `cells_of_task` returns: a metric by length."""
  names = {"name": "method"} | {field: field for field in fields}
  names |= {"test_set": "test set", "width": "width", "run": "run"}
  names |= {"seeds_proved": "seeds", "samples": "n"}
  return wide(cells, names, to_text)


def run_table(rows: list[dict]) -> str:
  """Returns a table of one run's exact match by length as text, for the screen.

  There is a line for each seed, and below them one of the median of more than
  two; of the test sets that eval.stress adds there is one line for all seeds. ∀
  stands beside a seed that is proved right at every length.
  """
  curves = summary.cells(rows, shown=("test_set",))
  if curves.empty:
    return "no exact match was measured"
  partial = curves.asked.str.contains(" of ")
  several = curves.in_curve > 2
  kinds = several.map({True: "median", False: "each"})
  curves["label"] = kinds + (", " + curves.asked + " seeds").where(partial, "")
  stress, single = curves.stress.eq(True), curves.asked == "1"
  seeds = summary.cells(rows, shown=("test_set", "seed"))
  seeds["label"] = seeds.seed.astype(str)
  seeds = seeds[~seeds.stress.eq(True) | (seeds.seeds_asked == 1)]
  lines = [
    _lines(seeds),
    _lines(curves[(several | partial | stress) & ~single]),
  ]
  grid = pd.concat(lines).reindex(columns=_lines(curves).columns).fillna("–")
  bits = {f"{x.length:.0f}": x.bits for x in curves.itertuples() if x.bits}
  grid = grid.rename(columns={n: f"{n} ({x})" for n, x in bits.items()})
  grid = grid.apply(lambda column: column.str.ljust(column.str.len().max()))
  unit = joined(curves.unit) + (" (bits)" if bits else "")
  trained = f"trained on lengths up to {joined(curves.train_length)}"
  if (curves.step == 0).all():
    trained = "not trained"
  return (
    f"{joined(curves.task)}: exact match in % by length in {unit}; in brackets"
    f" the one-sided 95 % lower bound\n{trained},"
    f" width={joined(curves.width)}, strict (every output token counted);"
    " ∀: proved for every input\n" + grid.to_string(index=False, justify="left")
  )


def _lines(cells: pd.DataFrame) -> pd.DataFrame:
  """Returns lines of `run_table`, with proofs beside the column `label`."""
  labels = [cell.label + proof(cell) for cell in cells.itertuples()]
  names = {"name": "method", "test_set": "test set", "label": "seed"}
  return wide(cells.assign(label=labels), names)


# Formats.


def to_markdown(table: pd.DataFrame) -> str:
  """Returns a frame of text as a Markdown table."""
  rows = [table.columns, ["---"] * len(table.columns), *table.to_numpy()]
  lines = [" | ".join(x.replace("|", "\\|") for x in row) for row in rows]
  return "\n".join(f"| {line} |" for line in lines)


# How LaTeX writes characters that pandas does not escape.
LATEX = {"∀": r"$\forall$", "≥": r"$\geq$", "×": r"$\times$", "–": "--"}


def to_latex(table: pd.DataFrame) -> str:
  """Returns a frame of text as a LaTeX table, for the package booktabs."""
  is_name = [not x.isdigit() and x != "frontier" for x in table]
  columns = "".join("l" if left else "r" for left in is_name)
  text = table.to_latex(index=False, escape=True, column_format=columns)
  return text.translate(str.maketrans(LATEX))


def to_csv(rows: list[dict]) -> str:
  """Returns the cells of runs as CSV: exact match, its frontier (a length) and
  edit distance; empty is what does not exist, as the median of two seeds."""
  parts = [summary.cells(rows, metric) for metric in ("em", "edit")]
  table = pd.concat([in_order(part) for part in parts])
  table["values"] = table["values"].map(lambda x: " ".join(map(str, x)))
  is_frontier = table.length == FRONTIER
  table["metric"] = table.metric.mask(is_frontier, "frontier")
  table["length"] = table.length.where(~is_frontier).astype("Int64")
  columns = ["metric", "task", "name", "test_set", "width", "run", "unit"]
  columns += ["length", "bits", "median", "worst", "best", "lower_bound", "n"]
  columns += ["seeds", "seeds_asked", "proved", "values"]
  return table[columns].to_csv(index=False)
