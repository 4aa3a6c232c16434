"""How far tests go beyond training: ours and published marks, one figure."""

from typing import NamedTuple

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.results import schema, summary

STAGES = ("certify", "retrain", "train")  # the last one of a run counts
RIGHT = 0.99


class Mark(NamedTuple):
  """A length to which something was trained, and one at which it was tested.

  Attributes:
    task: marks of one stand together.
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


def last(rows: list[dict], stage: str = "", test_set: str = ""):
  """The summary.Line of a run's stage and test set, None without any; "" is the
  last stage, and the test set that comes first."""
  exact = [row for row in schema.of_metric(rows, "em") if not row.get("stress")]
  stages = (stage,) if stage else STAGES
  stage = next((s for s in stages if any(r["stage"] == s for r in exact)), None)
  own = [row for row in exact if row["stage"] == stage]
  name = test_set or (own[0]["test_set"] if own else "")
  own = [row for row in own if row["test_set"] == name]
  proofs = [row for row in rows if row["metric"] == "certified"]
  return summary.lines(own + proofs)[0] if own else None


def farthest(task: str, who: str, rows: list[dict]) -> list[Mark]:
  """Where a run's last stage ends to be right: the longest test length at
  which, as at all shorter ones, the median seed has 99 % exact match.

  Args:
    task, who: as the mark calls them.
    rows: of a run.

  Returns:
    One mark, or none where nothing was measured or nothing is right.
  """
  line = last(rows)
  if line is None:
    return []
  found = None
  for length, cell in line.cells.items():
    if cell.median < RIGHT:
      break
    found = length, cell
  if found is None:
    return []
  length, cell = found
  about = line.group.rows[0]
  trained, unit = about["train_length"], about["unit"]
  seeds = f"{line.seeds}{line.proved}"
  return [
    Mark(task, who, trained, length, 100 * cell.median, unit, seeds, cell.n)
  ]


def figure(ours: list[Mark], published: list[Mark], path, title: str):
  """A bar from training to test length for every mark, by task: ours dark,
  published ones gray, with the factor and the exact match. Returns the path."""
  tasks = dict.fromkeys(mark.task for mark in (*ours, *published))
  lines, ticks, names = 0, [], []
  count = len(ours) + len(published) + len(tasks)
  drawn, axis = plt.subplots(figsize=(9, 0.8 + 0.21 * count))
  for task in tasks:
    for mark in (*ours, *published):
      if mark.task == task:
        color = "C0" if mark in ours else "0.6"
        ends = [mark.trained, mark.tested]
        axis.plot(ends, [-lines] * 2, color=color, linewidth=2)
        axis.plot(*(ends[1], -lines, "o"), color=color, markersize=5)
        _, some, which = mark.seeds.partition("∀")  # "∀ 1 of 3" or "∀"
        proved = f", {some}{which}" if some else ""
        factor = f"{mark.tested / mark.trained:.3g}×"
        text = f"{factor}, {_percent(mark)}{proved}"
        place = {"textcoords": "offset points", "va": "center", "fontsize": 7}
        axis.annotate(text, (ends[1], -lines), (6, 0), **place)
        ticks.append(-lines)
        names.append(f"{task}: {mark.who}")
        lines += 1
    lines += 1
  axis.set_yticks(ticks, names, fontsize=7)
  units = schema.values([mark._asdict() for mark in ours], "unit")
  axis.set_xlabel(f"from the longest in training to the test ({units})")
  far = max(mark.tested for mark in (*ours, *published))
  for color, whose in (("C0", "ours"), ("0.6", "published")):
    axis.plot([], [], "o-", color=color, label=whose)
  about = "∀: seeds proved right at every length"
  axis.legend(title=about, loc="center right", fontsize=8, title_fontsize=8)
  axis.set(xscale="log", xlim=(None, 8 * far), ylim=(1 - lines, 1))
  axis.grid(axis="x", color="0.92")
  axis.set_axisbelow(True)
  axis.set_title(title, fontsize=10)
  return save(drawn, path)


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
