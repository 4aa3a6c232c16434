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

import command
import pytest
from command import refuses
from rows import CERTIFIED, PROVED, frontier, row, seeds

from lengthgen_jax.pipelines import report
from lengthgen_jax.results import figures, records

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
    if len(values) == 2:  # two have no median
      assert not line["median"]
    else:
      assert float(line["median"]) == statistics.median(values)
    assert sorted(map(float, line["values"].split())) == sorted(values)
    assert float(line["worst"]) == worst(values)
    assert float(line["best"]) == best(values)
    assert int(line["seeds"]) == len(values) and line["seeds_asked"] == "3"
    assert line["proved"] == ("2" if run == "b_&_%" else "0")
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
      if len(values) > 2:
        median = 100 * statistics.median(values.values())
        assert float(line[column].split()[0]) == pytest.approx(median)
  assert {metric for _, _, metric, _ in places} == {"frontier"}
  shown = {line["run"]: line for line in lines if not line["fold"]}
  assert shown["a"]["6"] == "55.0 (12.0) [7.1]"
  assert shown["a"]["frontier"] == "5 (0)"
  assert shown["b_&_%"]["frontier"] == "∀"
  assert shown["b_&_%"]["seeds"] == "2 of 3 ∀"


def test_all_methods_stand_in_one_table(root):
  lines = page_lines((root / "report.html").read_text())
  assert [(line["fold"], line["method"]) for line in lines] == [
    ("", "abc|x (retrain)"),
    ("", "vanilla"),
    ("", "vanilla"),
    ("", "vanilla size=9"),
    ("Other and hard inputs (1)", "vanilla"),
    ("Edit distance, % of the output (1)", "abc|x (retrain)"),
  ]


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
  assert "addition_em_by_test_set" in names
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
      "eval": {"memory_mb": window},
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
  lines = [line for line in page_lines(page) if not line["fold"]]
  points = [("1", "none"), ("2", "none"), ("1", "rope"), ("2", "rope")]
  shown = [(x["bias.window"], x["positions.kind"]) for x in lines]
  assert shown == points and {x["method"] for x in lines} == {"decoder"}
  curves = {f"decoder bias.window={w} positions.kind={k}" for w, k in points}
  assert set(drawn["addition_em_by_length.png"]) == curves
  # Against the number, a line joins the points that differ in it alone.
  assert set(drawn["addition_equal_by_bias.window.png"]) == {
    "decoder positions.kind=none",
    "decoder positions.kind=rope",
  }
  # The figure stands in the open, before all that is folded.
  assert page.index("<figcaption>addition_em_by_length") < page.index("<detail")
  head = (tmp_path / "report.md").read_text().splitlines()[4]
  assert head.startswith("| method | bias.window | positions.kind |")


def test_a_run_can_be_called_otherwise_afterwards(tmp_path, drawn):
  write_sweep(tmp_path)
  path = tmp_path / "labels.json"
  records.write_text(path, '{"none1": "NoPE"}')
  text = report.write_report(tmp_path)
  assert re.search(r"^\| NoPE \| 1 \| none \|", text, re.M)
  assert "NoPE" in drawn["addition_em_by_length.png"]
  for wrong, words in (
    ('{"nope": "x"}', "no run 'nope'; choose from none1,"),
    ('["x"]', "must be like"),
    ("{", "cannot be read"),
  ):
    records.write_text(path, wrong)
    with refuses(f"{path}: {words}"):
      report.write_report(tmp_path)


def test_each_task_has_a_table_with_its_own_lengths(tmp_path, drawn):
  write_run(tmp_path, "a", seeds(1, 2, 3), {"seeds": [0, 1, 2]})
  write_run(
    tmp_path, "b", seeds(4, 5, 6, task="copy", length=64), {"seeds": [0, 1, 2]}
  )
  text = report.write_report(tmp_path)
  heads = [x for x in text.splitlines() if x.startswith("| method")]
  assert [x.rpartition("| n |")[2] for x in heads] == [" 6 |", " 64 |"]
  latex = (tmp_path / "report.tex").read_text()
  assert re.findall(r"^% (.*)", latex, re.M) == [
    "addition: exact match",
    "copy: exact match",
  ]


def test_a_report_of_some_results_alone(tmp_path, drawn):
  write_sweep(tmp_path)
  words = ["--mode=report", f"--workdir={tmp_path}"]
  done = command.inside(
    *words, "--metric=edit", "--tasks=addition", "--lengths=60"
  )
  assert "exact match" not in done.stdout and "| n | 60 |" in done.stdout
  for flag, line in (
    ("--tasks=copy", "--tasks: no copy; choose from addition"),
    ("--lengths=7", "--lengths: no 7; choose from 6, 60"),
  ):
    assert command.inside(*words, flag).stderr == f"lengthgen: {line}\n"


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
