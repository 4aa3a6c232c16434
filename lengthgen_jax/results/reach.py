"""This module shows how far beyond their training lengths our models and
published ones go."""

import pathlib
from typing import NamedTuple

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.results import summary

RIGHT = 0.99  # the least median exact match of a length that counts as right


class Bar(NamedTuple):
  """A Bar says to which length a method was trained, and how right it is at a
  test length: a bar of the figure, and a row of its table.

  Attributes:
    task: the task; bars of one task stand together.
    method: the method and, if it is not ours, its source.
    trained, tested: the longest training length, and the test length.
    exact: exact match at the test length, in %; None if it is not published.
    unit: what lengths count, like "digits".
    seeds: how many seeds, as text; "" if it is not published.
    n: samples per seed at the test length, 0 if unknown.
    proof: which seeds are proved right, as in `summary.Curve.proof`.
  """

  task: str
  method: str
  trained: int
  tested: int
  exact: float | None
  unit: str
  seeds: str = ""
  n: int = 0
  proof: str = ""

  @property
  def percent(self) -> str:
    """Returns the exact match as text."""
    return "not said" if self.exact is None else f"{self.exact:.3g} %"


def farthest(task: str, method: str, rows: list[dict]) -> Bar | None:
  """Returns the bar of the longest length that a run's last stage gets right.

  A length counts as right if the median seed has at least 99 % exact match
  there and at all shorter test lengths, on one test set: that of
  `summary.final_curve`.

  Args:
    task, method: as in Bar.
    rows: rows of one run.

  Returns:
    None where nothing was measured or nothing is right.
  """
  curve = summary.final_curve(rows)
  if curve is None:
    return None
  trained, unit = curve.labels["train_length"], curve.labels["unit"]
  seeds, proof, bar = curve.seeds_text, curve.proof, None
  for length, cell in curve.cells.items():
    if cell.median < RIGHT:
      break
    exact = 100 * cell.median
    bar = Bar(task, method, trained, length, exact, unit, seeds, cell.n, proof)
  return bar


def _by_task(ours: list[Bar], published: list[Bar]) -> list[list[Bar]]:
  """Returns the bars of each task, ours first."""
  bars_by_task = {}
  for bar in (*ours, *published):
    bars_by_task.setdefault(bar.task, []).append(bar)
  return list(bars_by_task.values())


def reach_figure(
  ours: list[Bar], published: list[Bar], path: pathlib.Path, title: str
) -> pathlib.Path:
  """Draws all bars, from training to test length, by task; returns the figure's
  path.

  Our bars are blue, published ones gray; beside each stand the factor between
  the lengths and the exact match.
  """
  groups = _by_task(ours, published)
  height = len(ours) + len(published) + len(groups)
  figure, axis = plt.subplots(figsize=(9, 0.8 + 0.21 * height))
  y, labels = 0, {}
  for bars in groups:
    for bar in bars:
      color = "C0" if bar in ours else "0.6"
      axis.plot([bar.trained, bar.tested], [y, y], color=color, linewidth=2)
      axis.plot(bar.tested, y, "o", color=color, markersize=5)
      proof = f",{bar.proof}" if bar.proof else ""
      axis.annotate(
        f"{bar.tested / bar.trained:.3g}×, {bar.percent}{proof}",
        (bar.tested, y),
        (6, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
      )
      labels[y] = f"{bar.task}: {bar.method}"
      y -= 1
    y -= 1  # a gap between tasks
  axis.set_yticks(list(labels), list(labels.values()), fontsize=7)
  units = " or ".join(sorted({bar.unit for bar in ours}))
  axis.set_xlabel(f"from the longest in training to the test ({units})")
  for color, label in (("C0", "ours"), ("0.6", "published")):
    axis.plot([], [], "o-", color=color, label=label)
  axis.legend(
    title="∀: seeds proved right at every length; ∀¹: by one checker",
    loc="upper center",
    bbox_to_anchor=(0.5, -0.07),  # below the axis, where no bar ends
    ncols=2,
    fontsize=8,
    title_fontsize=8,
  )
  longest = max(bar.tested for bar in (*ours, *published))
  axis.set(xscale="log", xlim=(None, 8 * longest), ylim=(y + 1, 1))
  axis.grid(axis="x", color="0.92")
  axis.set_axisbelow(True)
  axis.set_title(title, fontsize=10)
  return save(figure, path)


def reach_grid(ours: list[Bar], published: list[Bar]) -> list[list[str]]:
  """Returns the grid of a table with a row for each bar, by task; see
  tables.py."""
  grid = [
    [
      "task",
      "method",
      "trained up to",
      "tested at",
      "exact match",
      "seeds",
      "n",
    ]
  ]
  for bars in _by_task(ours, published):
    grid += [
      [
        bar.task,
        f"**{bar.method}**" if bar in ours else bar.method,
        f"{bar.trained} {bar.unit}",
        f"{bar.tested}",
        bar.percent,
        bar.seeds + bar.proof,
        f"{bar.n or ''}",
      ]
      for bar in bars
    ]
  return grid
