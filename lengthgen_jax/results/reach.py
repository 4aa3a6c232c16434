"""How far beyond their training lengths our models and published ones go."""

import pathlib
from typing import NamedTuple

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.results import summary

RIGHT = 0.99  # the least median exact match of a length that counts as right


class Mark(NamedTuple):
  """A length to which something was trained, and one at which it was tested.

  Attributes:
    task: the task; marks of one task stand together.
    method: the method and, if it is not ours, its source.
    trained, tested: the longest training length, and the test length.
    exact: exact match at the test length, in %; None if it is not published.
    unit: what lengths count.
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


def farthest(task: str, method: str, rows: list[dict]) -> Mark | None:
  """Returns the mark of the longest length that a run's last stage gets right.

  A length counts as right if the median seed has at least 99 % exact match
  there and at all shorter test lengths.

  Args:
    task, method: as in Mark.
    rows: rows of one run.

  Returns:
    None where nothing was measured or nothing is right.
  """
  curve = summary.final_curve(rows)
  if curve is None:
    return None
  trained, unit = curve.labels["train_length"], curve.labels["unit"]
  seeds, proof, mark = curve.seeds_text, curve.proof, None
  for length, cell in curve.cells.items():
    if cell.median < RIGHT:
      break
    exact = 100 * cell.median
    mark = Mark(
      task, method, trained, length, exact, unit, seeds, cell.n, proof
    )
  return mark


def _by_task(ours: list[Mark], published: list[Mark]) -> list[list[Mark]]:
  """Returns the marks of each task, ours first."""
  marks_by_task = {}
  for mark in (*ours, *published):
    marks_by_task.setdefault(mark.task, []).append(mark)
  return list(marks_by_task.values())


def reach_figure(
  ours: list[Mark], published: list[Mark], path: pathlib.Path, title: str
) -> pathlib.Path:
  """Draws a bar from training to test length for every mark, by task; returns
  the figure's path.

  Our bars are blue, published ones gray; beside each stand the factor between
  the lengths and the exact match.
  """
  groups = _by_task(ours, published)
  height = len(ours) + len(published) + len(groups)
  figure, axis = plt.subplots(figsize=(9, 0.8 + 0.21 * height))
  y, labels = 0, {}
  for marks in groups:
    for mark in marks:
      color = "C0" if mark in ours else "0.6"
      axis.plot([mark.trained, mark.tested], [y, y], color=color, linewidth=2)
      axis.plot(mark.tested, y, "o", color=color, markersize=5)
      proof = f",{mark.proof}" if mark.proof else ""
      axis.annotate(
        f"{mark.tested / mark.trained:.3g}×, {mark.percent}{proof}",
        (mark.tested, y),
        (6, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
      )
      labels[y] = f"{mark.task}: {mark.method}"
      y -= 1
    y -= 1  # a gap between tasks
  axis.set_yticks(list(labels), list(labels.values()), fontsize=7)
  units = " or ".join(sorted({mark.unit for mark in ours}))
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
  longest = max(mark.tested for mark in (*ours, *published))
  axis.set(xscale="log", xlim=(None, 8 * longest), ylim=(y + 1, 1))
  axis.grid(axis="x", color="0.92")
  axis.set_axisbelow(True)
  axis.set_title(title, fontsize=10)
  return save(figure, path)


def reach_grid(ours: list[Mark], published: list[Mark]) -> list[list[str]]:
  """Returns the grid of a table with a row for each mark, by task."""
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
  for marks in _by_task(ours, published):
    grid += [
      [
        mark.task,
        f"**{mark.method}**" if mark in ours else mark.method,
        f"{mark.trained} {mark.unit}",
        f"{mark.tested}",
        mark.percent,
        mark.seeds + mark.proof,
        f"{mark.n or ''}",
      ]
      for mark in marks
    ]
  return grid
