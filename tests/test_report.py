"""A report says what the rows say, in every form, and what is missing."""

import csv
import html
import io
import json
import pathlib
import re
import shutil
import statistics
import subprocess

import pytest
from command import refuses
from rows import CERTIFIED, PROVED, frontier, row, seeds

from lengthgen_jax.pipelines import report
from lengthgen_jax.results import figures, html_report, records

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
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


def values_by_place() -> dict:
  """{(run, test set, metric, length): {seed: value}} of the rows."""
  places = {}
  for run, rows in ROWS.items():
    for one in rows:
      if one["metric"] in ("em", "edit", "frontier"):
        place = run, one["test_set"], one["metric"], one["length"]
        places.setdefault(place, {})[one["seed"]] = one["value"]
  return places


def text_of(markup: str) -> str:
  return html.unescape(re.sub(r"<[^>]*>", "", markup.replace("<small>", " ")))


def page_lines(page: str) -> list[dict[str, str]]:
  """The lines that all tables of a page show, by column, and their fold."""
  lines = []
  for fold in re.split(r"<details[^>]*>", page):
    name = re.search(r"<summary>(.*?)</summary>", fold)
    for table in re.findall(r"<table>(.*?)</table>", fold, re.S):
      head, *body = re.findall(r"<tr>(.*?)</tr>", table, re.S)
      find = lambda line: re.findall(r"<t[hd](.*?)</t[hd]>", line, re.S)
      names = [text_of(f"<{cell}").strip() for cell in find(head)]
      for line in body:
        texts = [text_of(f"<{cell}").strip() for cell in find(line)]
        titles = re.findall(r'title="(.*?)"', line)
        cells = dict(zip(names, texts, strict=True))
        fold_name = name[1] if name else ""
        lines.append(cells | {"fold": fold_name, "titles": titles})
  return lines


def test_csv_holds_the_numbers_of_the_rows(root):
  lines = {}
  for line in csv.DictReader(io.StringIO((root / "report.csv").read_text())):
    length = int(line["length"]) if line["length"] else None
    place = line["run"], line["test_set"], line["metric"], length
    assert place not in lines
    lines[place] = line
  places = values_by_place()
  assert set(lines) == set(places)
  for (run, test_set, metric, length), line in lines.items():
    values = places[run, test_set, metric, length].values()
    worst, best = (max, min) if metric == "edit" else (min, max)
    assert float(line["median"]) == statistics.median(values)
    assert float(line["worst"]) == worst(values)
    assert float(line["best"]) == best(values)
    assert int(line["seeds"]) == len(values) and line["asked"] == "3"
    assert line["certified"] == ("∀" if run == "b_&_%" else "")
    assert line["n"] == ("299" if metric == "frontier" else "100")
  lower_bounds = [one["lower_bound"] for one in seeds(97, 12, 55)]
  bound = float(lines["a", "equal", "em", 6]["lower_bound"])
  assert bound == pytest.approx(min(lower_bounds), abs=1e-9)


def test_the_page_holds_the_numbers_of_the_rows(root):
  lines = page_lines((root / "report.html").read_text())
  places = values_by_place()
  for line in lines:
    metric = "edit" if "Edit" in line["fold"] else "em"
    test_set = line.get("test set", "equal")
    columns = [name for name in line if name.isdigit() and line[name] != "–"]
    for column, title in zip(columns, line["titles"], strict=True):
      values = places.pop((line["run"], test_set, metric, int(column)))
      shares = [f"{100 * value:.1f}" for value in values.values()]
      assert title == f"{' '.join(shares)}; n=100"
      median = 100 * statistics.median(values.values())
      assert float(line[column].split()[0]) == pytest.approx(median)
  assert {metric for _, _, metric, _ in places} == {"frontier"}
  shown = {line["run"]: line for line in lines if not line["fold"]}
  assert shown["a"]["6"] == "55.0 (12.0) [7.1]"
  assert shown["a"]["frontier"] == "5 (0)"
  assert shown["b_&_%"]["frontier"] == "∀"
  assert shown["b_&_%"]["seeds"] == "2 of 3 ∀"


def test_the_page_shows_main_methods_and_what_tells_them_apart(root):
  lines = page_lines((root / "report.html").read_text())
  assert [(line["fold"], line["method"]) for line in lines] == [
    ("", "abc|x (retrain)"),
    ("", "vanilla width fixed"),
    ("", "vanilla width natural"),
    ("Variations of config fields (1)", "vanilla size=9"),
    ("Other and hard inputs (1)", "vanilla"),
    ("Edit distance, % of the output (1)", "abc|x (retrain)"),
  ]
  # Where no method is a preset's own, nothing is folded.
  (line,) = page_lines(html_report.page("title", ROWS["tuned"]))
  assert line["fold"] == ""


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


def test_the_title_names_the_folder_also_from_within(tmp_path, monkeypatch):
  write_run(tmp_path / "mine", "run", seeds(1, 2, 3), CONFIG)
  monkeypatch.chdir(tmp_path / "mine")
  report.write_report(pathlib.Path())
  page = pathlib.Path("report.html").read_text()
  assert "<title>Results below mine</title>" in page


def test_the_page_has_every_figure_and_fetches_nothing(root):
  page = (root / "report.html").read_text()
  names = set(re.findall(r"<figcaption>(.*?)</figcaption>", page))
  assert names == {path.stem for path in (root / "figures").glob("*.png")}
  assert "addition_natural_em_by_test_set" in names
  rest = re.sub(r'src="data:[^"]*"', "", page)
  assert not re.search(r"https?://|<link|<iframe|@import|url\(|fetch\(", rest)
  assert rest.count("<script") == 1 and " src=" not in rest


def browse(root, folder, width=1300, hash="", script="") -> str:
  """The page's elements after its script, and another one, have run."""
  text = (root / "report.html").read_text()
  page = folder / "page.html"
  page.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
  command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu"]
  command += ["--dump-dom", f"--window-size={width},900"]
  command += [f"--user-data-dir={folder / 'chrome'}", f"file://{page}{hash}"]
  done = subprocess.run(command, capture_output=True, text=True, timeout=120)
  assert done.returncode == 0, done.stderr
  return done.stdout


in_browser = pytest.mark.skipif(not CHROMIUM, reason="chromium is missing")


@in_browser
def test_the_page_sorts_and_filters_in_a_browser(root, tmp_path):
  script = """
    const heads = [...document.querySelectorAll("thead th")];
    heads.find(head => head.textContent === "frontier").click();"""
  dom = browse(root, tmp_path, script=script)
  sort = re.search(r'aria-sort="(\w+)">frontier', dom)
  assert sort and sort[1] == "descending"
  shown = [line["frontier"] for line in page_lines(dom) if not line["fold"]]
  assert shown == ["∀", "5 (0)", "–"]
  dom = browse(root, tmp_path, hash="#filter=zeros%20vanilla")
  (line,) = page_lines(dom)
  assert (line["run"], line["test set"]) == ("a", "zeros")
  assert dom.count('<details open="">') == 1


# What was varied, and what is refused.


def test_report_draws_numbers_that_were_varied(tmp_path, monkeypatch):
  """Between runs of one method, not what sets the methods apart, against
  lines of runs that differ in nothing else, words included."""
  labels = {}

  def save(figure, path):
    lines = figure.axes[0].get_lines()
    labels[path.name] = [line.get_label() for line in lines]
    figures.plt.close(figure)
    return path

  monkeypatch.setattr(figures, "save", save)
  monkeypatch.setattr(html_report, "page", lambda *_: "")
  runs = [("x", 0, "a"), ("x", 9, "a"), ("x", 0, "b"), ("x", 9, "b")]
  runs += [("y", 0, "a"), ("y", 9, "a")]
  for i, (method, size, kind) in enumerate(runs):
    config = {
      "sequences": {"size": size, "buckets": [5, 9]},
      "bias": {"kind": kind},
      "retrain": {"train": {"batch_size": {"x": 32, "y": 64}[method]}},
      "eval": {"memory_mb": i},
      "overrides": [f"sequences.size={size}"] if method == "y" else [],
    }
    method = " ".join([method, *config["overrides"]])
    fields = {"method": method, "config_hash": str(i), "step": 100 * i}
    write_run(tmp_path, f"run{i}", [*seeds(i, 2, 3, **fields)], config)
  table = report.write_report(tmp_path)
  assert len(table.splitlines()) == 2 + len(runs)
  assert (tmp_path / "report.md").read_text() == table + "\n"
  by_size = "addition_natural_equal_by_sequences.size.png"
  assert set(labels) == {"addition_natural_em_by_length.png", by_size}
  assert labels[by_size] == ["x, kind=a", "x, kind=b", "y, kind=a"]
  by_length = labels["addition_natural_em_by_length.png"]
  names = [f"x, run{i}" for i in range(4)]
  names += ["y sequences.size=0", "y sequences.size=9"]
  assert by_length[: len(runs)] == names


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
  for text in ("{", "[]", '{"eval": 3}', '{"seeds": 3}'):
    records.write_text(tmp_path / "run" / "config.json", text)
    with refuses("config.json: cannot be read"):
      report.write_report(tmp_path)
  records.write(path, [{"method": "vanilla"}])
  with refuses("line 1 lacks"):
    report.write_report(tmp_path)


def test_a_report_that_cannot_be_written_is_one_line(tmp_path):
  write_run(tmp_path, "run", seeds(1, 2, 3), CONFIG)
  (tmp_path / "report.md").mkdir()
  with refuses(f"--workdir={tmp_path}: cannot write there"):
    report.write_report(tmp_path)
