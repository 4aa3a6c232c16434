"""How far tests go beyond training: ours and published marks, one figure."""

from typing import NamedTuple

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.results import schema, summary

STAGES = ("certify", "retrain", "train")  # the last one of a run counts
RIGHT = 0.99
FACTORS = (1, 10, 100)


class Mark(NamedTuple):
  """A length to which something was trained, and one at which it was tested.

  Attributes:
    task: what a panel is called.
    who: method and where it is from.
    trained, tested: lengths.
    exact: exact match there, in %; None if it was not said.
    unit: of lengths.
    seeds: what is said of them, "" if published without.
    n: samples of a seed there, 0 if unknown.
  """

  task: str
  who: str
  trained: int
  tested: int
  exact: float | None
  unit: str
  seeds: str = ""
  n: int = 0


def farthest(task: str, who: str, rows: list[dict]) -> list[Mark]:
  """Where a run's last stage ends to be right: the longest test length at
  which, as at all shorter ones, the median seed has 99 % exact match.

  Args:
    task, who: as the mark calls them.
    rows: of a run; the test set that comes first in them counts.

  Returns:
    One mark, or none where nothing was measured or nothing is right.
  """
  exact = [row for row in schema.of_metric(rows, "em") if not row.get("stress")]
  stage = next((s for s in STAGES if any(r["stage"] == s for r in exact)), None)
  own = [row for row in exact if row["stage"] == stage]
  own = [row for row in own if row["test_set"] == own[0]["test_set"]]
  if not own:
    return []
  proofs = [r for r in rows if r["metric"] == "certified"]
  line = summary.lines(own + [r for r in proofs if r["stage"] == stage])[0]
  found = None
  for length, cell in line.cells.items():
    if cell.median < RIGHT:
      break
    found = length, cell
  if found is None:
    return []
  length, cell = found
  trained, unit = own[0]["train_length"], own[0]["unit"]
  seeds = f"{line.seeds}{line.proved}"
  return [
    Mark(task, who, trained, length, 100 * cell.median, unit, seeds, cell.n)
  ]


def figure(ours: list[Mark], published: list[Mark], path, title: str):
  """Test length against training length, a panel for each task: ours filled,
  published marks hollow with their exact match beside them. Returns the path.
  """
  tasks = list(dict.fromkeys(mark.task for mark in (*ours, *published)))
  columns = min(4, len(tasks))
  rows = -(-len(tasks) // columns)
  size = 3.3 * columns, 3.0 * rows
  drawn, axes = plt.subplots(
    *(rows, columns), figsize=size, squeeze=False, layout="constrained"
  )
  for axis in axes.flat[len(tasks) :]:
    axis.axis("off")
  for axis, task in zip(axes.flat, tasks, strict=False):
    own = [mark for mark in ours if mark.task == task]
    others = [mark for mark in published if mark.task == task]
    _panel(axis, own, others)
    axis.set_title(task, fontsize=9)
  drawn.suptitle(title, fontsize=10)
  return save(drawn, path)


def _panel(axis, ours, published) -> None:
  both = [*ours, *published]
  low = min(mark.trained for mark in both) / 2
  high = max(mark.trained for mark in both) * 2
  for factor in FACTORS:
    ends = [low, high], [low * factor, high * factor]
    axis.plot(*ends, color="0.85", linewidth=1, zorder=0)
    text = f"{factor}×"
    axis.annotate(text, (low, low * factor), fontsize=6, color="0.5")
  styles = (published, {"facecolors": "none", "edgecolors": "0.3"}), (ours, {})
  for marks, style in styles:
    for mark in marks:
      axis.scatter(mark.trained, mark.tested, 26, zorder=2, **style)
      text = mark.who
      if mark.exact is None or mark.exact < 99.95:
        text += f", {_percent(mark)}"
      axis.annotate(
        text,
        (mark.trained, mark.tested),
        (4, 3),
        textcoords="offset points",
        fontsize=6,
      )
  axis.set(xscale="log", yscale="log", xlim=(low, high * 4))
  axis.set_ylim(low, 3 * max(mark.tested for mark in both))
  unit = both[0].unit
  axis.set_xlabel(f"trained up to ({unit})", fontsize=7)
  axis.set_ylabel(f"tested at ({unit})", fontsize=7)
  axis.tick_params(labelsize=6)


def table(ours: list[Mark], published: list[Mark]) -> list[list[str]]:
  """A line for each mark, by task."""
  grid = [["task", "who", "trained up to", "tested at", "exact match"]]
  grid[0] += ["seeds", "n"]
  tasks = dict.fromkeys(mark.task for mark in (*ours, *published))
  for task in tasks:
    for mark in (*ours, *published):
      if mark.task == task:
        bold = f"**{mark.who}**" if mark in ours else mark.who
        grid.append(
          [task, bold, f"{mark.trained} {mark.unit}", f"{mark.tested}"]
          + [_percent(mark), mark.seeds, f"{mark.n or ''}"]
        )
  return grid


def _percent(mark: Mark) -> str:
  return "not said" if mark.exact is None else f"{mark.exact:.3g} %"
