"""A report says what the rows say, in every form, and what is missing."""

import csv
import html
import json
import re

import pytest
from command import refuses
from rows import CERTIFIED, PROVED, frontier, row, seeds

from lengthgen_jax.results import figures, records, report

ABC = {"method": "abc|x", "stage": "retrain", "config_hash": "abc0"}
EDITS = [row(metric="edit", value=0.25 * s, seed=s, **ABC) for s in (0, 1)]
ROWS = {
  "a": [
    *seeds(97, 12, 55),
    *seeds(0, 3, 0, length=60),
    *seeds(40, 50, 60, test_set="zeros", stress=True),
    *(frontier(n, seed) for seed, n in enumerate((7.0, 0.0, 5.0))),
  ],
  "b_&_%": [
    *seeds(100, 100, **ABC),
    *seeds(100, 99, length=60, **ABC),
    *(frontier(60.0, seed, **ABC) for seed in (0, 1)),
    *(PROVED | ABC | {"seed": seed} for seed in (0, 1)),
    *(edit | {"lower_bound": None} for edit in EDITS),
  ],
  "tuned": seeds(20, 20, 20, method="vanilla size=9", config_hash="c"),
  "wide": seeds(30, 30, 30, width="fixed", config_hash="d"),
}
CONFIG = {"seeds": [0, 1, 2], "eval": {"lengths": [6, 60, 200]}}


def write_run(root, name: str, rows: list[dict], config: dict) -> None:
  if rows:
    records.write(root / name / "results.jsonl", rows)
  records.write_text(root / name / "config.json", json.dumps(config))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  """A folder of four runs with results, one without, and their report."""
  root = tmp_path_factory.mktemp("results")
  for name, rows in (ROWS | {"none": []}).items():
    write_run(root, name, rows, CONFIG)
  report.write_report(root)
  return root


def text_of(markup: str) -> str:
  return html.unescape(re.sub(r"<[^>]*>", "", markup.replace("<small>", " ")))


# Of each line of report.csv: place, median, worst and best, proved, n.
LINES = """
a equal em 6|0.55 0.12 0.97|0|100
a equal em 60|0.0 0.0 0.03|0|100
a zeros em 6|0.5 0.4 0.6|0|100
a equal frontier |5.0 0.0 7.0|0|299
b_&_% equal em 6| 1.0 1.0|2|100
b_&_% equal em 60| 0.99 1.0|2|100
b_&_% equal frontier | 60.0 60.0|2|299
b_&_% equal edit 6| 0.25 0.0|2|100
tuned equal em 6|0.2 0.2 0.2|0|100
wide equal em 6|0.3 0.3 0.3|0|100
"""


def test_csv_holds_the_numbers_of_the_rows(root):
  """Two seeds have no median, and the greatest edit distance is the worst."""
  groups = "run test_set metric length", "median worst best", "proved", "n"
  with (root / "report.csv").open() as file:
    lines = [*csv.DictReader(file)]
  found = {
    "|".join(" ".join(line[x] for x in group.split()) for group in groups)
    for line in lines
  }
  assert found == {*LINES.splitlines()[1:]} and len(lines) == len(found)
  (line,) = (x for x in lines if x["metric"] == "edit")
  assert line["values"] == "0.0 0.25"
  assert (line["seeds"], line["seeds_asked"]) == ("2", "3")
  worst = next(x for x in ROWS["a"] if x["value"] == 0.12)
  bound = next(float(x["lower_bound"]) for x in lines if x["worst"] == "0.12")
  assert bound == pytest.approx(worst["lower_bound"], abs=1e-9)


def test_page_and_text_show_the_same_cells(root):
  page, text = ((root / f"report.{x}").read_text() for x in ("html", "md"))
  for cell in ("55.0 (12.0) [7.1]", "5 (0)", "∀", "2 of 3 ∀"):
    assert cell in text_of(page)
  latex = (root / "report.tex").read_text()
  for file, cell in ((text, "2 of 3 ∀"), (latex, r"2 of 3 $\forall$")):
    assert "55.0 (12.0) [7.1]" in file and cell in file


def test_missing_seeds_and_lengths_are_listed(root):
  page, text = ((root / f"report.{x}").read_text() for x in ("html", "md"))
  gaps = [
    "a lacks lengths 200",
    "b_&_% (retrain) lacks seeds 2",
    "b_&_% lacks lengths 200",
    "none has no results yet",
    "tuned lacks lengths 60, 200",
    "wide lacks lengths 60, 200",
  ]
  items = re.findall(r"<li>(.*?)</li>", page)
  assert list(map(html.unescape, items)) == gaps
  assert re.findall(r"^Missing: (.*)\.$", text, re.M) == gaps


def test_the_page_has_every_figure_and_fetches_nothing(root):
  page = (root / "report.html").read_text()
  names = set(re.findall(r"<figcaption>(.*?)</figcaption>", page))
  assert names == {path.stem for path in (root / "figures").glob("*.png")}
  assert "addition_em_by_test_set" in names
  rest = re.sub(r'src="data:[^"]*"', "", page)
  assert not re.search(r"https?://|<link|<iframe|@import|url\(|fetch\(", rest)
  assert rest.count("<script") == 1 and " src=" not in rest


# A sweep.


def write_sweep(root) -> None:
  """Four points of a grid, one of them the default of both fields."""
  for kind, window in (("none", 1), ("rope", 1), ("none", 2), ("rope", 2)):
    overrides = [f"bias.window={window}"] * (window != 1)
    overrides += [f"positions.kind={kind}"] * (kind != "none")
    fields = {
      "method": " ".join(["decoder", *overrides]),
      "config_hash": f"{kind}{window}",
      "step": 100 * window,
    }
    rows = seeds(window, 2, 3, **fields) + seeds(9, 8, 7, length=60, **fields)
    rows += [x | {"metric": "edit", "lower_bound": None} for x in rows]
    config = {
      "seeds": [0, 1, 2],
      "positions": {"kind": kind},
      "bias": {"window": window},
      "eval": {"lengths": [6, 60], "memory_mb": window},
      "overrides": overrides,
    }
    write_run(root, f"{kind}{window}", rows, config)


@pytest.fixture
def drawn(monkeypatch):
  """{name of a figure: its curves}; figures are not written."""
  labels = {}

  def save(figure, path):
    handles, names = figure.legends[0].legend_handles, figure.legends[0].texts
    assert len(handles) == len(names)
    labels[path.name] = [text.get_text() for text in names]
    figures.plt.close(figure)
    records.write_text(path, "")
    return path

  monkeypatch.setattr(figures, "save", save)
  return labels


def test_a_sweep_is_one_table_and_one_figure_with_all_values(tmp_path, drawn):
  write_sweep(tmp_path)
  report.write_report(tmp_path)
  page = (tmp_path / "report.html").read_text()
  text = (tmp_path / "report.md").read_text()
  points = [("1", "none"), ("2", "none"), ("1", "rope"), ("2", "rope")]
  shown = re.findall(r"^\| decoder \| (\d) \| (\w+) \|", text, re.M)
  assert shown[:4] == points
  curves = {f"decoder bias.window={w} positions.kind={k}" for w, k in points}
  assert set(drawn["addition_em_by_length.png"]) == curves
  # Against the number, a line joins the points that differ in it alone.
  assert set(drawn["addition_equal_by_bias.window.png"]) == {
    "decoder positions.kind=none",
    "decoder positions.kind=rope",
  }
  # The figure stands in the open, before all that is folded.
  assert page.index("<figcaption>addition_em_by_length") < page.index("<detail")
  head = text.splitlines()[4]
  assert head.startswith("| method | bias.window | positions.kind |")


# What is refused.


def test_a_folder_without_exact_match_is_refused(tmp_path):
  for rows in ([], [CERTIFIED]):
    write_run(tmp_path, "run", rows, {})
    with refuses("no results.jsonl with exact match"):
      report.write_report(tmp_path)


def test_results_without_a_readable_config_are_one_line(tmp_path):
  path = tmp_path / "run" / "results.jsonl"
  records.write(path, seeds(1, 2, 3))
  with refuses("no config.json beside it"):
    report.write_report(tmp_path)
  for text in ("{", "3", '{"seeds": 7}', '{"eval": 5}'):
    records.write_text(tmp_path / "run" / "config.json", text)
    with refuses("config.json: cannot be read"):
      report.write_report(tmp_path)
