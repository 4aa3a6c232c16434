"""Figures of rows: one condition in a point, and how far tests reach."""

import pytest
from rows import CERTIFIED, PROVED, row, seeds

from lengthgen_jax.results import figures, reach


@pytest.fixture
def drawn(monkeypatch):
  """Figures are handed back instead of saved."""
  for module in (figures, reach):
    monkeypatch.setattr(module, "save", lambda figure, path: figure)
  yield
  figures.plt.close("all")


def curves(axis) -> dict:
  """{name: [(x, y)]} of the curves in a panel."""
  return {
    line.get_label(): [tuple(map(round, point)) for point in line.get_xydata()]
    for line in axis.get_lines()
    if not line.get_label().startswith("_")
  }


def test_by_length_has_a_line_per_condition(drawn):
  rows = seeds(0, 20, 40) + seeds(100, 90, 100, step=700)
  rows += seeds(50, 60, method="abc", unit="items", train_length=8)
  rows += seeds(70, test_set="unequal")
  equal, unequal = figures.by_length([*rows, CERTIFIED], None, "title").axes
  assert curves(equal) == {
    "vanilla, step 500": [(6, 20.0)],
    "vanilla, step 700": [(6, 100.0)],
    "abc (2 of 3 seeds)": [(6, 55.0)],
  }
  assert curves(unequal)["vanilla, step 500"] == [(6, 70.0)]
  assert (
    equal.get_xlabel()
    == "test length (digits or items; dotted: longest trained)"
  )
  assert len(equal.get_lines()) == 3 + 2  # the longest trained lengths
  assert [tick.get_text() for tick in equal.get_xticklabels()] == ["6"]


def test_by_repetition_tells_lengths_and_items_apart(drawn):
  rows = [
    row(correct, length=length, unit="items", test_set=f"repeats_{k}x{times}")
    for correct, length, k, times in (
      (10, 8, 2, 1),
      (20, 8, 2, 4),
      (30, 9, 2, 4),
      (40, 8, 3, 4),
    )
  ]
  (axis,) = figures.by_times(rows, None, "title").axes
  assert curves(axis) == {
    "vanilla, 8 items, test set repeats_2 (1 of 3 seeds)": [(1, 10), (4, 20)],
    "vanilla, 9 items (1 of 3 seeds)": [(4, 30)],
    "vanilla, 8 items, test set repeats_3 (1 of 3 seeds)": [(4, 40)],
  }


def test_figures_are_drawn_against_what_their_test_set_varies(drawn):
  rows = [row(test_set=f"multiplicity_x{n}", unit="items") for n in (2, 4)]
  (axis,) = figures.DRAW["em", "multiplicity"](rows, None, "title").axes
  (points,) = curves(axis).values()
  assert [x for x, _ in points] == [2, 4]
  assert axis.get_xlabel() == "how often every value occurs"
  kinds = {
    "equal": "length",
    "repeats_3x2": "repetition",
    "multiplicity_x2": "multiplicity",
    "mean_multiplicity_x2": "length",
    "repeats_often": "length",  # as a registered task may call one
  }
  for name, kind in kinds.items():
    assert figures.varied_by(row(test_set=name)) == kind
  assert figures.varied_by(row(test_set="chain_2", stress=True)) == "test_set"


def test_by_field_has_one_run_and_step_in_a_point(drawn):
  rows = [
    one | {"size": size, "run": run, "config_hash": run}
    for size, run, run_rows in (
      (1, "a", seeds(10, 20, 30, step=500)),
      (9, "b", seeds(40, 50, 60, step=700)),
      (9, "b", seeds(70, 90, step=800)),  # trained on
      (9, "c", seeds(0, 0, step=300)),  # made like b, of fewer seeds
      (20, "d", seeds(5, 5, 5, version="2")),
    )
    for one in run_rows
  ]
  (axis,) = figures.by_field(rows, None, "title", "size").axes
  assert curves(axis) == {
    # The last run at a point.
    "vanilla, version 1 (2 of 3 seeds)": [(1, 20), (9, 0)],
    "vanilla, version 2": [(20, 5)],
  }
  assert axis.get_title() == "test length: 6 digits"


def test_squares_show_the_medians_of_the_seeds(drawn):
  rows = seeds(10, 20, 60) + seeds(90, 90, 30, test_set="zeros", length=9)
  figure = figures.by_test_set(rows, None, "title")
  assert [text.get_text() for text in figure.axes[0].texts] == ["20", "90"]


@pytest.mark.parametrize("num_methods", (8, 9))
def test_more_methods_than_curves_can_tell_apart_are_squares(
  num_methods, monkeypatch, tmp_path
):
  monkeypatch.setattr(figures, "save", lambda figure, path: path)
  rows = [row(method=f"m{i}") for i in range(num_methods)]
  (path,) = figures.draw(rows, tmp_path, "a_")
  kind = "model" if num_methods > 8 else "length"
  assert path == tmp_path / f"a_addition_natural_em_by_{kind}.png"
  figures.plt.close("all")


# How far tests go beyond training.


def of_medians(*medians, **fields):
  """Rows of three seeds with a median exact match at 6, 10, 20 ... digits."""
  rows = []
  for length, median in zip((6, 10, 20, 60, 200), medians, strict=False):
    rows += seeds(100, median, 0, length=length, **fields)
  return rows


def test_the_farthest_length_ends_where_the_median_seed_fails():
  rows = of_medians(100, 99, 100, 98, 100)
  bar = reach.farthest("addition", "ours", rows)
  assert (bar.trained, bar.tested, bar.exact) == (6, 20, 100)
  assert (bar.n, bar.seeds) == (rows[0]["n"], "3")
  assert reach.farthest("addition", "ours", of_medians(98, 100)) is None
  assert reach.farthest("addition", "ours", []) is None


def test_the_last_stage_and_the_first_test_set_count():
  tested = lambda rows: reach.farthest("addition", "ours", rows).tested
  rows = of_medians(100, 100, stage="retrain")
  assert tested(rows + of_medians(100, stage="finetune")) == 6
  rows = of_medians(100, 100) + of_medians(100, 100, 100, test_set="carry")
  hard = of_medians(0, test_set="zeros", stress=True)
  assert tested(rows) == tested(hard + rows) == 10


def test_the_reach_figure_and_its_table_have_every_bar(drawn):
  ours = [reach.farthest("addition", "ours", of_medians(100, 100, 100))]
  published = [
    reach.Bar("addition", "theirs", 20, 100, 99.1, "digits"),
    reach.Bar("N×M", "others", 10, 20, None, "digits"),
  ]
  (axis,) = reach.reach_figure(ours, published, None, "how far").axes
  names = [label.get_text() for label in axis.get_yticklabels()]
  assert names == ["addition: ours", "addition: theirs", "N×M: others"]
  ends = [list(line.get_xdata()) for line in axis.get_lines()[:6:2]]
  assert ends == [[6, 20], [20, 100], [10, 20]]
  labels = [text.get_text() for text in axis.get_legend().get_texts()]
  assert labels == ["ours", "published"]
  head, *lines = reach.reach_grid(ours, published)
  exact = head.index("exact match")
  assert [(*line[:2], line[exact]) for line in lines] == [
    ("addition", "**ours**", "100 %"),
    ("addition", "theirs", "99.1 %"),
    ("N×M", "others", "not said"),
  ]


def test_a_bar_says_whether_its_length_is_proved():
  once = CERTIFIED | {"value": 1}
  for certificate, proof in ((PROVED, " ∀"), (once, " ∀¹"), (CERTIFIED, "")):
    rows = [row(length=60), certificate]
    assert reach.farthest("addition", "ours", rows).proof == proof
