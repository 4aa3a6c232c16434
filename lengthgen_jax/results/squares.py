"""A figure of squares: exact match on every test set at every length."""

import numpy as np

from lengthgen_jax.drawing import plt, save
from lengthgen_jax.errors import check
from lengthgen_jax.results import schema

NOTHING = "a figure with nothing to show: there are no rows for it"


def by_test_set(rows: list[dict], path, title: str, metric: str = "em"):
  """EM on every test set at every length, median of seeds: a panel per method
  and conditions."""
  rows = schema.of_metric(rows, metric)
  groups = schema.groups(rows, along=("test_set", "length"))
  return _draw(rows, groups, path, title, "test_set")


def by_method(rows: list[dict], path, title: str):
  """EM of every method at every length, median of seeds: a panel per test set
  and conditions, for more methods than lines could tell apart."""
  rows = schema.of_metric(rows, "em")
  along, free = ("method", "length"), ("bits", *schema.BY_CONFIG)
  groups = schema.groups(rows, along, free)
  groups = [g._replace(name=g.rows[0]["test_set"]) for g in groups]
  return _draw(rows, groups, path, title, "method")


def _draw(rows: list[dict], groups, path, title: str, by: str):
  """A panel for each group: values of the field `by` against lengths."""
  check(rows, NOTHING)
  sets = list(dict.fromkeys(row[by] for row in rows))
  lengths = sorted({row["length"] for row in rows})
  columns = min(len(groups), 4)
  down = -(-len(groups) // columns)
  size = (
    1.5 + (0.6 * len(lengths) + 0.9) * columns,
    1 + 0.3 * len(sets) * down,
  )
  figure, axes = plt.subplots(
    down, columns, figsize=size, squeeze=False, sharey=True
  )
  for axis in axes.flat[len(groups) :]:
    axis.set_visible(False)
  for axis, group in zip(axes.flat, groups, strict=False):
    found = {}
    for row in group.rows:
      place = sets.index(row[by]), lengths.index(row["length"])
      found.setdefault(place, []).append(100 * row["value"])
    cells = np.full((len(sets), len(lengths)), np.nan)
    for place, values in found.items():
      cells[place] = np.median(values)
      text = {"ha": "center", "va": "center", "fontsize": 7}
      color = "white" if cells[place] < 60 else "black"
      axis.text(*place[::-1], f"{cells[place]:.3g}", color=color, **text)
    axis.imshow(cells, vmin=0, vmax=100, aspect="auto")
    axis.set_xticks(range(len(lengths)), lengths, fontsize=8)
    axis.set_yticks(range(len(sets)), sets, fontsize=8)
    axis.set_title(group.name, fontsize=8)
  figure.supxlabel(f"test length ({schema.values(rows, 'unit')})", fontsize=9)
  figure.suptitle(f"{title}: exact match (%)", fontsize=10)
  figure.tight_layout()
  return save(figure, path)
