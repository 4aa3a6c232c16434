"""A report says what the rows say, in every form, and what is missing."""

import csv
import io
import json
import re
import shutil
import subprocess

import pytest
from rows import CERTIFIED, row, seeds, without_length

from lengthgen_jax.errors import UsageError
from lengthgen_jax.pipelines import report
from lengthgen_jax.results import (
  figures,
  records,
  summary,
  tables,
)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def frontier(value, seed, bound=60, **fields):
  fields = {"bound": bound, "tried": [[6, 300, 300]], "n": 299} | fields
  return without_length("frontier", value, seed=seed, **fields)


ABC = {"method": "abc|x", "stage": "retrain", "config_hash": "abc0"}
ROWS = {
  "a": [
    *seeds(97, 12, 55),
    *seeds(0, 3, 0, length=60, bits=None),
    *seeds(40, 50, 60, test_set="zeros", stress=True),
    *(frontier(n, seed) for seed, n in enumerate((7.0, 0.0, 5.0))),
  ],
  "b_&_%": [
    *seeds(100, 100, **ABC),
    *seeds(100, 99, length=60, **ABC),
    *(frontier(60.0, seed, **ABC) for seed in (0, 1)),
    *(CERTIFIED | ABC | {"value": 1, "seed": seed} for seed in (0, 1)),
    *(
      row(metric="edit", value=0.25 * s, lower_bound=None, seed=s, **ABC)
      for s in (0, 1)
    ),
  ],
}
CONFIG = {"seeds": [0, 1, 2], "eval": {"lengths": [6, 60, 200]}}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
  """A folder of two runs with results, one without, and their report."""
  root = tmp_path_factory.mktemp("results")
  for run, rows in ROWS.items():
    records.write(root / run / "results.jsonl", rows)
    records.write_text(root / run / "config.json", json.dumps(CONFIG))
  records.write_text(root / "c" / "config.json", json.dumps(CONFIG))
  report.write_report(root)
  return root


def truth() -> dict:
  """{(run, test set, metric, length): {seed: value}} of the rows."""
  found = {}
  for run, rows in ROWS.items():
    for one in rows:
      if one["metric"] in ("em", "edit", "frontier"):
        place = run, one["test_set"], one["metric"], one["length"]
        found.setdefault(place, {})[one["seed"]] = one["value"]
  return found


def middle(values) -> float:
  values = sorted(values)
  half = len(values) // 2
  return (
    values[half] if len(values) % 2 else sum(values[half - 1 : half + 1]) / 2
  )


def data(root) -> dict:
  """What the page shows."""
  text = (root / "report.html").read_text()
  return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])


def test_csv_holds_the_numbers_of_the_rows(root):
  lines = list(csv.DictReader(io.StringIO((root / "report.csv").read_text())))
  found = {}
  for line in lines:
    length = int(line["length"]) if line["length"] else None
    place = line["run"], line["test_set"], line["metric"], length
    assert place not in found
    found[place] = line
  wanted = truth()
  assert set(found) == set(wanted)
  for place, line in found.items():
    values = wanted[place].values()
    pick = (max, min) if place[2] == "edit" else (min, max)
    assert float(line["median"]) == pytest.approx(middle(values))
    assert float(line["worst"]) == pick[0](values)
    assert float(line["best"]) == pick[1](values)
    assert int(line["seeds"]) == len(values) and line["asked"] == "3"
    assert line["certified"] == ("∀" if place[0] != "a" else "")
    assert line["n"] == ("299" if place[2] == "frontier" else "100")
  assert float(found["a", "equal", "em", 6]["bound"]) == pytest.approx(
    min(r["lower_bound"] for r in seeds(97, 12, 55)), abs=1e-9
  )


def test_the_page_holds_the_numbers_of_the_rows(root):
  shown = {}
  for line in data(root)["lines"]:
    for length, cell in line["cells"].items():
      place = line["run"], line["test set"], line["metric"], int(length)
      shown.setdefault(place, {})[line["seed"]] = cell[0]
    if line["frontier"]:
      place = line["run"], line["test set"], "frontier", None
      shown.setdefault(place, {})[line["seed"]] = line["frontier"][0]
  wanted = truth()
  # The frontier stands beside every exact match of the same test set.
  assert set(shown) == set(wanted)
  for place, cells in shown.items():
    values = wanted[place]
    assert cells.pop("median") == pytest.approx(middle(values.values()))
    if place[1] != "zeros":  # hard inputs have the median alone
      assert {int(seed): value for seed, value in cells.items()} == values


FORMS = {
  "md": (r"(?<!\\)\|", "∀", "abc\\|x (retrain)", "b_&_%"),
  "tex": (
    r"(?<!\\)&",
    r"$\forall$",
    r"abc\textbar{}x (retrain)",
    r"b\_\&\_\%",
  ),
}


@pytest.mark.parametrize("form", FORMS)
def test_tables_hold_the_numbers_of_the_rows(root, form):
  separator, mark, method, run = FORMS[form]
  text = (root / f"report.{form}").read_text()
  exact = text.split("task", 2)[1]  # before the table of edit distances
  lines = [
    [cell.strip() for cell in re.split(separator, line.strip("| \\"))]
    for line in exact.splitlines()
  ]
  lines = {(own[4], own[2]): own for own in lines if len(own) == 9}
  assert len(lines) == 4  # with the rule or the rest of the head
  assert lines["a", "equal"][5:] == [
    "3",
    "55.0 (worst 12.0) [7.1]",
    "0.0 [0.0]",
    "5 (worst 0)",
  ]
  abc = lines[run, "equal"]
  assert abc[:2] == ["addition", method] and abc[5] == f"2 of 3 {mark}"
  assert abc[6:] == ["100.0 [97.0]", "99.5 (worst 99.0) [95.3]", mark]
  assert text.count("task") == 2 and "25.0" not in exact
  assert "12.5 (worst 25.0)" in text


def test_what_is_missing_is_said(root):
  said = data(root)["missing"]
  assert said == [
    "a lacks lengths 200",
    "b_&_% (retrain) lacks seeds 2",
    "b_&_% lacks lengths 200",
    "c has no results yet",
  ]
  text = (root / "report.md").read_text()
  assert all(f"Missing: {line}." in text for line in said)


def test_every_figure_is_on_the_page(root):
  names = {figure["name"] for figure in data(root)["figures"]}
  files = {path.stem for path in (root / "figures").glob("*.png")}
  assert names == files
  assert "addition_natural_em_by_test_set" in names


def test_the_page_fetches_nothing(root):
  text = (root / "report.html").read_text()
  page = re.sub(r'src="data:[^"]*"|"source": "data:[^"]*"', "", text)
  assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
  assert not re.search(r"<link|<iframe|@import|url\(|fetch\(|XMLHttp", page)
  assert page.count("<script") == 2 and " src=" not in page


def browse(root, tmp_path, hash="", script="") -> str:
  """The page's elements after its script, and another one, have run."""
  text = (root / "report.html").read_text()
  page = tmp_path / "page.html"
  script = f"<script>{script}</script></body>"
  page.write_text(text.replace("</body>", script))
  done = subprocess.run(
    [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    + ["--virtual-time-budget=2000", f"--user-data-dir={tmp_path / 'chrome'}"]
    + [f"file://{page}#{hash}"],
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert done.returncode == 0, done.stderr
  return done.stdout


def cells(dom: str) -> list[dict[str, str]]:
  """Text of the table's lines, by column."""
  head, body = re.search(
    r"<thead>(.*?)<tbody>(.*?)</tbody>", dom, re.S
  ).groups()
  strip = lambda html: re.sub(r"<[^>]*>", "", html).replace("&amp;", "&")
  names = list(map(strip, re.findall(r"<th .*?>(.*?)</th>", head, re.S)))
  lines = re.findall(r"<tr>(.*?)</tr>", body, re.S)
  find = lambda line: re.findall(r"<td.*?>(.*?)</td>", line, re.S)
  return [dict(zip(names, map(strip, find(x)), strict=True)) for x in lines]


@pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed")
def test_a_browser_shows_sorts_filters_and_answers_the_mouse(root, tmp_path):
  dom = browse(root, tmp_path)
  found = cells(dom)
  assert [x["run"] for x in found] == ["b_&_%", "a"]  # without hard inputs
  assert [found[1][x] for x in ("6", "60", "frontier")] == [
    *("55.0 (12.0) [7.1]", "0.0 [0.0]", "5 (0)")
  ]
  assert found[0]["frontier"] == "∀" and found[0]["seed"] == "2 of 3 ∀"
  assert dom.count("<circle") == 4 and "c has no results yet" in dom
  # By the address: hard inputs, one seed, sorted by the longest length.
  dom = browse(root, tmp_path, "test+set=all&seed=1&sort=6&order=down")
  found = cells(dom)
  assert [x["6"].split()[0] for x in found] == ["100.0", "12.0"]
  assert "seed" not in found[0]  # the filter says it
  dom = browse(root, tmp_path, "test+set=all")
  found = [x["test set"] for x in cells(dom)]
  assert found == ["equal", "equal", "zeros"]
  # By hand: a filter, a heading, a point.
  script = """
    const box = document.querySelector("select[name=run]");
    box.value = "a"; box.onchange();
    setTimeout(() => {
      const heads = [...document.querySelectorAll("th")];
      heads.find(x => x.textContent === "frontier").click();
      setTimeout(() => {
        const dot = document.querySelectorAll("circle")[0];
        dot.dispatchEvent(new Event("mouseenter"));
      }, 50);
    }, 50);"""
  dom = browse(root, tmp_path, script=script)
  assert len(cells(dom)) == 1 and "run" not in cells(dom)[0]
  assert re.search(r'aria-sort="ascending"[^>]*>frontier', dom)
  tip = re.search(r'id="tip"[^>]*>(.*?)</div>', dom, re.S)[1]
  for words in ("length 6 digits", "median 55.0 %", "lower bound", "n = 100"):
    assert words in tip
  assert "worst: 7.1 %" in tip and "seeds: 3" in tip


def test_a_line_has_the_frontier_that_was_looked_for_furthest():
  rows = [*seeds(1, 2, 3), *(frontier(20.0, s, bound=20) for s in range(3))]
  rows += [frontier(30.0, 0, bound=40), frontier(35.0, 1, bound=40)]
  (line,) = summary.lines(rows)
  assert (line.frontier.median, line.frontier.limit) == (32.5, 40)
  assert line.frontier.seeds == 2
  assert tables.frontier_text(line) == "32.5 (worst 30) of 2"
  (line,) = summary.lines(rows[:6])
  assert tables.frontier_text(line) == "≥ 20"


def test_rows_of_different_conditions_share_no_cell():
  both = [*seeds(1, 2, 3), *seeds(4, 5, 6, step=700)]
  with pytest.raises(UsageError) as error:
    summary.single_line(both, "addition, vanilla")
  assert str(error.value) == (
    "addition, vanilla: rows of different conditions: vanilla, step 500;"
    " vanilla, step 700"
  )
  assert summary.single_line(both[:3], "one").seed_count == "3"


def test_rows_without_a_config_are_one_line(tmp_path):
  records.write(tmp_path / "run" / "results.jsonl", seeds(1, 2, 3))
  with pytest.raises(UsageError, match="no config.json beside it") as error:
    report.write_report(tmp_path)
  assert "\n" not in str(error.value)
  for text in ("{", "[]", '{"eval": 3}', '{"seeds": 3}'):
    records.write_text(tmp_path / "run" / "config.json", text)
    with pytest.raises(UsageError, match="config.json: cannot be read"):
      report.write_report(tmp_path)


@pytest.mark.parametrize("draw", figures.DRAW.values())
def test_a_figure_with_nothing_to_show_is_one_line(draw):
  for rows in ([], [CERTIFIED]):
    with pytest.raises(UsageError, match="^a figure with nothing to show"):
      draw(rows, None, "title")
