"""The papers' tables: runs, archived rows, pages, and the command for them."""

import importlib
import re
import shutil
import subprocess

import command
import pytest
import test_docs
from command import REPOSITORY
from rows import CERTIFIED, row, seeds, without_length

from lengthgen_jax import origin
from lengthgen_jax.config import build, files
from lengthgen_jax.errors import UsageError
from lengthgen_jax.papers import archive, pages, runs
from lengthgen_jax.papers.runs import DATA, SIZES
from lengthgen_jax.pipelines import abc
from lengthgen_jax.probes import tables as probe_tables
from lengthgen_jax.results import figures, records

DOCS = REPOSITORY / "docs" / "results"
RUNS = {
  run.name: run
  for size in SIZES
  for table in DATA["tables"]
  for run in runs.runs_of(table, size).values()
}
ARCHIVE = archive.read_archive(DOCS / "rows")


@pytest.fixture(scope="module")
def tables():
  """launch/tables.py as a module."""
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(REPOSITORY / "launch"))
    yield importlib.import_module("tables")


@pytest.fixture
def clone(tmp_path, monkeypatch):
  """A git repository in place of this one; commits all that is in it."""
  folder = tmp_path / "clone"
  monkeypatch.setattr(origin, "REPOSITORY", folder)
  for name in origin.CODE:
    (folder / name).mkdir(parents=True)
    (folder / name / "a.py").write_text("1")

  def git_commit() -> str:
    git = ["git", "-C", folder, "-c", "user.name=x", "-c", "user.email=x"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
      subprocess.run([*git, *words], check=True)
    return origin.commit()

  git_commit.folder = folder
  return git_commit


# Tables and runs.


def test_every_run_of_both_sizes_builds():
  """Its fields matter and its experiment can be made; nothing is compiled."""
  sizes, certified = set(), []
  for size in SIZES:
    for table in DATA["tables"]:
      for run in runs.runs_of(table, size).values():
        assert RUNS[run.name] == run  # shared, never by accident
  for run in RUNS.values():
    config = runs.config_of(run)
    experiment = build.build(config)
    preset = files.load_config(str(REPOSITORY / run.config))
    files.name_overrides(config, preset)
    if run.mode == "abc":
      abc.check_config(config)
    sizes.add((experiment.model.config.emb_dim, run.size))
    assert "/" not in run.name and " " not in run.name
    _, *others = run.commands("w")
    assert others == [["--mode=certify", "--workdir=w"]] * run.certify
    flag = "--config.certify.second_opinion=True"
    is_proved = run.mode == "abc" or run.certify or config.finetune.rounds > 0
    assert is_proved == (flag in run.commands("w")[0])
    certified += [run.name] * run.certify
  widths = {"paper": {128, 256, 512, 1024}, "cpu": {32, 64, 128, 512}}
  for size in SIZES:
    assert {width for width, other in sizes if other == size} == widths[size]
  assert len(RUNS) > 150
  windows = "successor-window_cpi", "parity-window_cpi", "multiply-window_cpi"
  assert sorted(certified) == sorted(windows)


@pytest.mark.parametrize("name", ["addition-abc", "sort-none-data.size=10000"])
def test_the_command_of_a_run_has_its_config(name):
  run = RUNS[name]
  with command.parsed(*run.commands("runs/x")[0]) as (mode, config):
    assert mode == run.mode
    expected = runs.config_of(run)
    preset = files.load_config(str(REPOSITORY / run.config))
    files.name_overrides(expected, preset)
    assert config.to_json_best_effort() == expected.to_json_best_effort()


def test_tables_are_the_papers():
  assert len(DATA["tables"]["abs"]["rows"]) == 23
  rows = runs.rows_of("abs", "cpu") + runs.rows_of("abc", "cpu")
  papers = {(x.task, x.model): x.published for x in rows}
  assert papers["N×1", "+w=1"] == {6: 100, 10: 6.0, 15: 0.19, 20: 0, 60: 0}
  assert papers["addition", "ABC"] == {6: 100, 10: 100, 20: 99.9, 60: 99.8}
  for name, table in DATA["tables"].items():
    assert {run for _, run, _ in table.get("figures", ())} <= {*RUNS}
    for x in runs.rows_of(name, "cpu"):  # a run of either mode may be finetuned
      assert x.stage == "finetune" or (x.stage == "train") != (
        x.run.mode == "abc"
      )
  shown = [run for table in DATA["readme"] for _, _, run, *_ in table["rows"]]
  shown += [run for _, _, run in DATA["reach"]["ours"]]
  assert {*shown} <= {*RUNS}


def test_a_run_is_selected_by_its_name(tables):
  """Alone, and with the probes of the table that asks for them."""
  for name in ("addition-abc", "sort-none-best"):
    (selected,) = tables.select([name], "cpu").items()
    assert selected[0] == selected[1][0].name == name
  assert selected[1][1] == runs.probes_of("inside")
  assert tables.select(["sorting"], "cpu")["sort-none-best"][1] == {}
  both = tables.select(["sorting", "inside"], "cpu")
  assert both["sort-none-best"][1] and both["sort-none"][1]
  assert tables.select(["products"], "paper") == {}


# The archive.

HEADER = {
  "run": "a",
  "command": ["--config=x"],
  "config": {"train": {"steps": 5}},
  "machine": "an abacus, 2 cores",
  "date": "2026-11-22",
  "seconds": 90,
  "versions": {"lengthgen_jax": "1"},
  "commit": "0123456789abcdef",
}


def test_archived_rows_are_the_rows(tmp_path):
  rows = [one for n in range(9) for one in seeds(100, 90, n, length=n)]
  rows.append(CERTIFIED)
  path = tmp_path / "a.jsonl"
  archive.write_run(path, [*rows, row(metric="token")], HEADER)
  header, read_rows = archive.read_run(path)
  ordered = lambda some: sorted(some, key=lambda one: str(records.key(one)))
  assert header == HEADER
  assert ordered(read_rows) == ordered([one | {"run": "a"} for one in rows])
  records.write(tmp_path / "whole.jsonl", rows)
  whole_size = (tmp_path / "whole.jsonl").stat().st_size
  assert path.stat().st_size < 0.3 * whole_size


def test_rows_say_if_natural_width_was_that_of_tests_alone(tmp_path):
  """As the config's data.widths shows; what is not padded has no such width."""
  path = tmp_path / "a.jsonl"
  for data, slack, width in (
    ({"width": "natural", "widths": []}, 2, "natural in tests"),
    ({"width": "natural", "widths": []}, None, "natural"),
    ({"width": "natural"}, 2, "natural"),
  ):
    rows = seeds(1, 2, 3, slack=slack)
    archive.write_run(path, rows, HEADER | {"config": {"data": data}})
    assert {x["width"] for x in archive.read_run(path).rows} == {width}


@pytest.mark.parametrize(
  "header, group",
  [
    ([1], {}),
    ({name: x for name, x in HEADER.items() if name != "config"}, {}),
    (HEADER, 3),
    (HEADER, {"rows": 3}),
    (HEADER, {"rows": [[1]]}),
    (HEADER, {"shared": {"n": "ten"}}),
  ],
)
def test_archived_rows_of_another_version_are_one_line(header, group, tmp_path):
  path = tmp_path / "a.jsonl"
  archive.write_run(path, seeds(1, 2), HEADER)
  _, first, second = records.read(path)
  flawed = first | group if isinstance(group, dict) else group
  records.write(path, [header, flawed, second])
  with pytest.raises(UsageError, match="another version wrote it") as error:
    archive.read_run(path)
  assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_a_package_within_another_clone_has_no_commit(clone, monkeypatch):
  clone()
  monkeypatch.setattr(origin, "REPOSITORY", clone.folder / "configs")
  assert origin.commit() == "unknown"


def test_rows_are_compared_to_the_bit_where_no_code_has_changed(clone, tables):
  assert origin.commit() == "unknown"
  first = clone()
  header = tables.current_origin()
  assert header["commit"] == first and len(first) == 40
  (clone.folder / "docs.md").write_text("words")
  second = clone()
  assert first != second and not tables.differences_in_origin(header)
  (clone.folder / "configs" / "a.py").write_text("2")
  assert origin.commit() == f"{second}-dirty"
  changed = f"code changed since commit {first[:12]}"
  assert tables.differences_in_origin(header) == changed
  clone()
  other = header | {
    "machine": "x",
    "versions": header["versions"] | {"jax": "0"},
  }
  assert tables.differences_in_origin(other) == (
    f"another machine, another version of jax, {changed}"
  )
  for commit in (f"{second}-dirty", "unknown"):
    reasons = tables.differences_in_origin(header | {"commit": commit})
    assert reasons == f"no commit {commit} in this clone"


def test_rows_made_again_are_compared(tables):
  old = [*seeds(100, 99, 100), *seeds(30, 40, 50, length=60)]
  old += seeds(0, 0, 1, length=200)
  assert tables.compare(old, old, exact=True) == []
  assert tables.compare(old, old, exact=False) == []
  new = [*seeds(99, 100, 99), *seeds(50, 31, 40, length=60)]
  new += seeds(1, 0, 0, length=200)
  assert tables.compare(old, new, exact=False) == []
  differences = tables.compare(old, new, exact=True)
  assert len(differences) == 8
  assert "value=1.0 in the archive, 0.99 now" in differences[0]
  frontier = row(metric="frontier", value=9.0)
  for one, value in ((frontier, 8.0), (CERTIFIED, 0)):
    assert tables.compare([one], [one | {"value": value}], exact=True)
  # Each of a seed's certificates is compared with the one of the same step.
  certificates = [CERTIFIED | {"step": 9, "value": 0}, CERTIFIED]
  assert tables.compare(certificates, certificates, exact=True) == []
  outside = [*seeds(98, 100, 99), *seeds(50, 31, 57, length=60)]
  assert tables.compare(old, outside, exact=False) == [
    "seed 0, train, equal, 6: 98.0 % is outside of the archived seeds' 99.0 to"
    " 100.0 %",
    "seed 2, train, equal, 60: 57.0 % is outside of the archived seeds' 30.0 to"
    " 50.0 %",
    *(f"seed {seed}, train, equal, 200 is missing" for seed in range(3)),
  ]
  fewer = [one for one in old if one["seed"] < 2]
  for exact in (True, False):
    assert tables.compare(old, fewer, exact) == [
      f"seed 2, train, equal, {n} is missing" for n in (6, 60, 200)
    ]


@pytest.mark.parametrize(
  "value, low, high, agrees",
  [(1.0, 0.99, 0.995, True), (1.0, 0.9, 0.995, False)]
  + [(0.0, 0.005, 0.01, True), (0.0, 0.005, 0.02, False)],
)
def test_nearly_all_and_nearly_nothing_agree(value, low, high, agrees, tables):
  assert tables.agrees(value, low, high) == agrees


# Pages.


def page_of(kept, tmp_path, monkeypatch, *rows, **table) -> str:
  """The page of a table of such rows."""
  usual = {"title": "T", "about": "A.", "rows": list(rows)}
  monkeypatch.setitem(DATA["tables"], "t", usual | table)
  monkeypatch.setattr(figures, "draw", lambda *_: [])
  monkeypatch.setattr(runs, "config_changes", lambda *_: "")
  return pages.page("t", "cpu", kept, tmp_path)


def archive_of(*rows, run="addition-abc") -> archive.Archive:
  rows = [x | {"run": run, "stage": "retrain"} for x in rows]
  return {run: archive.ArchivedRun(HEADER, rows)}


def cells_of(text: str) -> list[list[str]]:
  """The cells of all lines of all tables."""
  return [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in text.splitlines()
    if line.startswith("|")
  ]


ABC = ["addition", "ABC", "arithmetic.py:addition,abc", {"stage": "retrain"}]
OTHER = ["addition", "other", "arithmetic.py:successor,abc"]


def test_a_page_sets_ours_beside_the_papers(tmp_path, monkeypatch):
  rows = [*seeds(100, 90, 95), *seeds(100, 100, 100, length=60, n=50)]
  rows += [
    without_length("frontier", 9.0, seed=seed, bound=60, tried=[])
    for seed in range(3)
  ]
  kept = archive_of(*rows)
  ours = [*ABC[:3], {"stage": "retrain", "published": {"6": 99.5, "20": "?"}}]
  other = [*OTHER, {"stage": "retrain", "published": {"60": 1}}]
  text = page_of(kept, tmp_path, monkeypatch, ours, other, source="others")
  lines = cells_of(text)
  assert lines[0][2:6] == ["", "6", "20", "60"]
  assert lines[2] == ["addition", "ABC", "others", "99.5", "?", *[""] * 5]
  assert lines[3] == [
    *("addition", "ABC", "**ours**", "95.0 (90.0) [83.6]", "–"),
    *("100.0 [97.0]", "9", "3", "100 (50 at 60)", "natural"),
  ]
  assert lines[5][2:8] == ["ours", "–", "–", "–", "", "not run yet"]
  assert "1 of 2 runs have not been made yet: `successor-abc`" in text


def test_a_page_says_whose_protocol_is_older(tmp_path, monkeypatch):
  rows = seeds(1, 2, 3)
  words = "older protocol"
  assert words not in page_of(archive_of(*rows), tmp_path, monkeypatch, ABC)
  old = [x | {"width": archive.NATURAL_IN_TESTS} for x in rows]
  text = page_of(archive_of(*old), tmp_path, monkeypatch, ABC)
  assert words in text and cells_of(text)[2][-1] == "natural in tests"


def test_a_page_shows_the_last_certificates_and_what_is_wrong(
  tmp_path, monkeypatch
):
  wrong = "wrong on 3 of 9 cases, the shortest: 8*9; smallest margin -0.1"
  proofs = [
    (0, 0, {"seed": 0, "margin": -0.1, "reason": wrong, "step": 300}),
    (1, 12, {"seed": 0, "margin": 2.5, "rounding": 0.012, "step": 600}),
    (0, 9, {"seed": 1, "margin": -0.4, "reason": wrong, "step": 300}),
    (None, 1000, {"seed": 2, "margin": None, "reason": "too large"}),
  ]
  rows = [
    without_length("certified", value, n=n, **{"reason": "right"} | fields)
    for value, n, fields in proofs
  ]
  kept = archive_of(*seeds(90, 90, 90, step=600), *rows)
  text = page_of(kept, tmp_path, monkeypatch, ABC, OTHER)
  (line,) = [cells for cells in cells_of(text) if "8*9" in cells[-1]]
  assert line == [
    *("addition", "ABC", "1 of 3", "9 to 1,000", "-0.40 to 2.50"),
    "0.012",
    "seed 1: wrong on 3 of 9 cases, the shortest: 8*9; seed 2: too large",
  ]
  text = page_of({}, tmp_path, monkeypatch, ABC)
  assert "## Certificates" not in text


def test_a_page_folds_and_explains_its_hard_inputs(tmp_path, monkeypatch):
  hard = seeds(90, 90, 80, test_set="chain_2", stress=True)
  kept = archive_of(*seeds(100, 100, 100), *hard)
  text = page_of(kept, tmp_path, monkeypatch, ABC)
  main, _, rest = text.partition("## Hard and odd inputs")
  assert "chain_2" not in main
  assert "`chain_` one carry" in rest and "`zeros`" not in rest
  table, _, _ = rest.partition("</details>")
  assert "<summary>1 rows</summary>" in table
  assert cells_of(table)[2][2:] == ["chain_2", "90.0 (80.0)"]


def test_a_page_refuses_mixed_conditions(tmp_path, monkeypatch):
  kept = archive_of(*seeds(1, 2, 3), *seeds(4, 5, 6, slack=3))
  words = "addition-abc, retrain, equal: rows of different"
  with pytest.raises(UsageError, match=words):
    page_of(kept, tmp_path, monkeypatch, ABC)


def test_reach_ends_where_the_median_seed_fails():
  def reach(*medians, **fields):
    rows = []
    for length, median in zip((6, 10, 20, 60, 200), medians, strict=False):
      rows += seeds(100, median, 0, length=length, **fields)
    return rows

  def tested(*rows):
    bars = pages.reach({"addition-abc": archive.ArchivedRun(HEADER, rows)})
    return list(bars[bars.is_ours].end) if len(bars) else []

  assert tested(*reach(100, 99, 100, 98, 100)) == [20]
  assert tested(*reach(98, 100)) == tested() == []
  # The last stage and the first test set that is not a stress test count.
  last = reach(100, stage="finetune")
  assert tested(*reach(100, 100, stage="retrain"), *last) == [6]
  rows = reach(100, 100) + reach(100, 100, 100, test_set="carry")
  hard = reach(0, test_set="zeros", stress=True)
  assert tested(*rows) == tested(*hard, *rows) == [10]


def test_committed_pages_are_those_of_committed_rows(tmp_path, monkeypatch):
  """Text for text; figures exist, and are not drawn again."""
  monkeypatch.setattr(figures, "draw", lambda *_: [])
  monkeypatch.setattr(figures, "by_field", lambda _, path, *__: path)
  monkeypatch.setattr(pages, "draw_comparison", lambda *_: None)
  monkeypatch.setattr(pages, "draw_reach", lambda *_: None)
  for name in ("rows", "figures"):
    (tmp_path / name).symlink_to(DOCS / name)
  readme = tmp_path / "readme.md"
  readme.write_text((REPOSITORY / "README.md").read_text())
  *paths, last = pages.write(tmp_path, readme)
  assert last == readme
  assert readme.read_text() == (REPOSITORY / "README.md").read_text()
  assert {path.name for path in paths} == {x.name for x in DOCS.glob("*.*")}
  # The figures of tables are left out, since nothing has drawn them here.
  image = r"(## Figures\n\n)?!\[.*\n\n"
  for path in paths:
    committed, written = (DOCS / path.name).read_text(), path.read_text()
    for name in re.findall(r"\]\((figures/[^)]*)\)", committed):
      assert (DOCS / name).exists(), name
    if path.suffix == ".html":  # what it shows, in whatever form
      main = lambda text: re.search(r"<main>(.*)</main>", text, re.S)[1]
      assert main(committed) == main(written)
    else:
      assert re.sub(image, "", committed) == re.sub(image, "", written), path


def test_readme_has_the_archives_numbers():
  text = (REPOSITORY / "README.md").read_text()
  with pytest.raises(UsageError, match="has no <!-- end of tables"):
    pages.with_tables(text.replace(pages.END, ""), ARCHIVE)
  line = next(x for x in text.splitlines() if x.startswith("| addition | van"))
  place = ("interpolate", 6, "em", "equal")
  values = sorted(
    x["value"]
    for x in ARCHIVE["addition-abc"].rows
    if (x["stage"], x["length"], x["metric"], x["test_set"]) == place
  )
  assert f" {100 * values[2]:.1f} ({100 * values[0]:.1f}) " in line


def test_commands_of_the_pages_parse_and_are_those_of_the_runs():
  commands = {
    tuple(words)
    for table in DATA["tables"]
    for size in SIZES
    for run in runs.runs_of(table, size).values()
    for words in run.commands(probes=runs.probes_of(table))
  }
  shown = {
    tuple(words)
    for path in DOCS.glob("*.md")
    for words in test_docs.commands("lengthgen", path.read_text())
  }
  assert shown and shown <= commands
  assert any("--mode=certify" in words for words in shown)
  # Probes take their config from a trained workdir.
  trained = sorted(x for x in shown if "--mode=probe" not in x)
  for words in trained[:: len(trained) // 5]:  # they build, see above
    test_docs.check_command(list(words))


def test_the_archive_names_no_folders_of_a_machine():
  for path in (DOCS / "rows").glob("*.jsonl"):
    assert "/tmp" not in path.read_text() and "/root" not in path.read_text()


# The command.


def test_commands_of_the_index_parse(tables):
  lines = test_docs.commands("python", (DOCS / "README.md").read_text())
  assert len(lines) > 3
  for script, *words in lines:
    assert script == "launch/tables.py"
    args = tables.parse(words)
    assert args.tables or args.check or args.pages


@pytest.mark.parametrize(
  "words, message",
  [
    (["nope"], "no table 'nope'"),
    (["addition-ab", "--plan"], "or a run, like addition-abc"),
    ([], "name a table: abs"),
    (["--check", "parity-abc", "--plan"], "--check takes no tables"),
    (["abs", "--check", "parity-abc"], "--check takes no tables"),
    (["abs", "--size=huge"], "invalid choice: 'huge'"),
    (["abs", "--sise=cpu"], "unrecognized arguments"),
    (["--check", "parity-windo"], "similar: parity-window"),
    (["--check", "sort-all", "--results=none"], "no rows of sort-all are"),
  ],
)
def test_a_wrong_command_is_one_line(words, message, tables, capsys):
  assert tables.main(words) == 1
  out, err = capsys.readouterr()
  (line,) = err.splitlines()
  assert line.startswith("tables: ") and message in line and not out


@pytest.mark.parametrize("parallel", (1, 3))
def test_a_failed_run_leaves_the_others(
  parallel, tables, monkeypatch, capfd, tmp_path
):
  """Each writes to its log, if they are several."""
  program = "import sys; print('made', *sys.argv); sys.exit(1)"
  monkeypatch.setattr(
    tables.sweep, "LENGTHGEN", (tables.sys.executable, "-c", program)
  )
  monkeypatch.setattr(tables, "current_origin", lambda: HEADER)
  monkeypatch.chdir(tmp_path)
  folders = ["--root=root", "--results=docs", f"--parallel={parallel}"]
  assert tables.main(["repeats", *folders]) == 1
  out, err = capfd.readouterr()
  logs = [x.read_text() for x in tmp_path.rglob("log.txt")]
  assert len(logs) == (4 if parallel > 1 else 0)
  text = out + "".join(logs)
  assert text.count(f"--workdir={tmp_path / 'root' / 'cpu'}") == 4
  assert "== 4 of 4" in out
  assert err.startswith("tables: failed: ") and "sort-none-repeats" in err
  assert err.endswith("; the same command tries again\n")
  assert not (tmp_path / "docs").exists()


def test_rows_of_an_older_version_are_not_archived(tables, tmp_path):
  name, run = next(iter(runs.runs_of("inside", "cpu").items()))
  config = runs.config_of(run).to_json_best_effort()
  records.write_text(tmp_path / name / "config.json", config)
  probed = row(metric="minimum", part=None)
  for version in "12":
    for file, measured in (("results", row()), ("probes", probed)):
      path = tmp_path / name / f"{file}.jsonl"
      records.merge(path, [measured | {"version": version}])
  job = tables.Job(run, {"probe.samples": 9}, None, "has no rows")
  tables.keep(job, tmp_path / name, tmp_path, HEADER, 5)
  kept = archive.read_run(tmp_path / "rows" / f"{name}.jsonl")
  assert [one["version"] for one in kept.rows] == ["2", "2"]
  assert len(kept.probes) == 1 and kept.header["seconds"] == 5


def test_a_table_is_filled_archived_skipped_and_checked(
  tables, clone, trained, tmp_path, capsys, monkeypatch
):
  clone()
  name, figure = "addition-window_cpi", "figures/addition_em_by_length.png"
  config = f"{REPOSITORY}/tests/tiny.py:addition,window_cpi"
  tiny = {
    "title": "Tiny",
    "about": "About.",
    "seeds": [0, 1],
    "rows": [["addition", "+w=1", config, {"published": {"6": 100}}]],
    "figures": [["drawn", name, figure], ["not", name, "figures/none.png"]],
  }
  probes = {"probe.only": ["intact", "without_head"], "probe.samples": 32}
  probes["probe.figures"] = ["heads"]
  both = {"tiny": tiny, "probed": tiny | {"probes": probes}}
  rule = {
    "runs": "",
    "set": {"eval.lengths": [2], "eval.samples": [64]},
  }
  monkeypatch.setitem(DATA, "tables", both)
  monkeypatch.setitem(DATA, "tests", [rule])

  def run_jobs(jobs, slots=(), folder=None):
    for workdir, commands in jobs:
      if not workdir.exists():  # there is nothing left to train
        shutil.copytree(trained, workdir)
      codes = [command.inside(*words).returncode for words in commands]
      yield workdir, max(codes), 1.0

  monkeypatch.setattr(tables.sweep, "run_jobs", run_jobs)
  results = tmp_path / "docs"
  folders = [f"--root={tmp_path / 'runs'}", f"--results={results}"]

  def output(*words, code=0) -> str:
    assert tables.main([*words, *folders]) == code
    return capsys.readouterr().out

  assert f"{name}: has no rows (took" in output("tiny", "--plan")
  out = output("tiny")
  assert "1 of 1" in out and str(results / "tiny.md") in out
  header, rows = archive.read_run(results / "rows" / f"{name}.jsonl")
  assert header["seconds"] and header["commit"] == origin.commit()
  assert {one["metric"] for one in rows} == {"em"} and len(rows) == 2
  page = (results / "tiny.md").read_text()
  values = dict.fromkeys(f"{100 * one['value']:.1f}" for one in rows)
  assert f"| {', '.join(values)} [" in page and "![not]" not in page
  assert f"![drawn](figures/{name}/addition_em_by_length.png)" in page
  # A table that looks inside asks for the probes alone.
  assert "1 of 1" in output("probed")
  kept = archive.read_run(results / "rows" / f"{name}.jsonl")
  assert kept.header == header
  assert [x for x in kept.rows if not archive.is_probe(x)] == rows
  intact = records.of_metric(kept.probes, "intact")
  title, _, cell = probe_tables.comparison_table({"ours": intact})[1]
  assert title == "EM, nothing changed"  # without a location
  assert len(intact) == 2
  assert cell.startswith(f"{50 * sum(x['value'] for x in intact):.1f}")
  assert cell in (results / "probed.md").read_text()
  # Again there is nothing to do; after a change of the config there is.
  assert "runs to make: 0" in output("tiny")
  with monkeypatch.context() as patch:
    patch.setitem(rule["set"], "train.steps", 601)
    assert "train.steps=600, now 601" in output("tiny", "--plan")
  # A stranger's check: not the same, or the same to the bit.
  path = results / "rows" / f"{name}.jsonl"
  planted = [one | {"correct": 63, "value": 63 / 64} for one in rows]
  archive.write_run(path, planted, header | {"machine": "elsewhere"})
  out = output("--check", name, code=1)
  assert f"{name}: differs, compared within tolerance (another machine)" in out
  assert "outside of the archived seeds' 98.4 to 98.4 %" in out
  check = tmp_path / "runs" / "check" / name
  assert f"its workdir is {check}" in out and check.exists()
  archive.write_run(path, rows, header)
  assert f"{name}: agrees, compared to the bit" in output("--check", name)
  assert not check.exists()
