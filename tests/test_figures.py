"""Figures of rows: one condition in a point, and what a band is."""

import pytest
from rows import CERTIFIED, row, seeds

from lengthgen_jax.results import figures


@pytest.fixture
def drawn(monkeypatch):
  """Figures are handed back instead of saved."""
  monkeypatch.setattr(figures, "save", lambda figure, path: figure)
  yield
  figures.plt.close("all")


def curves(figure, panel: int = 0) -> dict:
  """{name: [[(x, y)]]} of the lines of each curve in a panel."""
  handles = figure.legends[0].legend_handles
  names = {
    (handle.get_color(), handle.get_linestyle()): text.get_text()
    for handle, text in zip(handles, figure.legends[0].texts, strict=True)
  }
  lines, axis = {}, figure.axes[panel]
  places = [int(label.get_text()) for label in axis.get_xticklabels()]
  for line in axis.get_lines():
    points = [(places[int(x)], round(y)) for x, y in line.get_xydata()]
    name = names.get((line.get_color(), line.get_linestyle()))
    if points and name:
      lines.setdefault(name, []).append(points)
  return lines


def test_by_length_has_a_line_per_condition(drawn):
  rows = seeds(0, 20, 40) + seeds(100, 90, 100, step=700)
  rows += seeds(50, 60, method="abc", unit="items", train_length=8)
  rows += seeds(70, 70, 70, test_set="unequal")
  figure = figures.curves([*rows, CERTIFIED], None, "title")
  assert curves(figure) == {
    "vanilla, step 500": [[(6, 20)]],
    "vanilla, step 700": [[(6, 100)]],
    "abc (2 of 3 seeds)": [[(6, 50)], [(6, 60)]],  # two have no median
  }
  assert curves(figure, 1) == {"vanilla, step 500": [[(6, 70)]]}
  equal, _ = figure.axes
  label = "test length (digits or items; dotted: longest trained)"
  assert equal.get_xlabel() == label
  dotted = [x for x in equal.get_lines() if x.get_color() == "0.6"]
  assert len(dotted) == 2  # the longest trained lengths


def test_a_band_reaches_from_the_lower_bound_of_the_worst_seed(drawn):
  rows = seeds(50, 20, 90) + seeds(50, 20, 90, length=60)
  figure = figures.curves(rows, None, "title")
  (band,) = figure.axes[0].collections
  low, high = band.get_datalim(figure.axes[0].transData).intervaly
  bound = next(x["lower_bound"] for x in rows if x["value"] == 0.2)
  assert (low, high) == (pytest.approx(100 * bound), pytest.approx(90))
  words = "band: from the worst seed (its 95 % lower bound"
  assert words in figure.get_suptitle()


def test_by_repetition_tells_lengths_and_items_apart(drawn):
  points = (10, 8, "2x1"), (20, 8, "2x4"), (30, 9, "2x4"), (40, 8, "3x4")
  rows = [
    row(correct, length=length, unit="items", test_set=f"repeats_{name}")
    for correct, length, name in points
  ]
  assert {figures.varied_by(row) for row in rows} == {"repetition"}
  figure = figures.by_repetition(rows, None, "title")
  one = " (1 of 3 seeds)"
  assert curves(figure) == {
    f"vanilla, test set repeats_2{one}": [[(1, 10), (4, 20)]],
    f"vanilla, test set repeats_3{one}": [[(4, 40)]],
  }
  assert curves(figure, 1) == {f"vanilla, test set repeats_2{one}": [[(4, 30)]]}
  titles = [axis.get_title() for axis in figure.axes]
  assert titles == ["test length: 8 items", "test length: 9 items"]


def test_squares_show_the_medians_of_the_seeds(drawn):
  rows = seeds(10, 20, 60) + seeds(90, 90, 30, test_set="zeros", length=9)
  rows += seeds(7, 5, test_set="zeros")  # of two, the worse
  figure = figures.squares(rows, None, "title", "test_set")
  texts = [text.get_text() for text in figure.axes[0].texts]
  assert texts == ["20", "5", "90"]


def test_squares_of_methods_have_a_panel_for_each_width(drawn):
  """But not for each version; a title is of no method."""
  rows = [row(method="a"), row(method="b", version="2")]
  rows += [row(method="b", width="fixed")]
  figure = figures.squares(rows, None, "title", "method")
  titles = [axis.get_title() for axis in figure.axes]
  assert titles == [
    "test set: equal, width natural",
    "test set: equal, width fixed",
  ]
