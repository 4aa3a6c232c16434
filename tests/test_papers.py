"""The papers' tables: runs, archived rows, pages, and the command for them."""

import copy
import functools
import json
import re
import shutil
import subprocess

import command
import pytest
import tables
from command import REPOSITORY
from rows import CERTIFIED, row, seeds

from lengthgen_jax import origin
from lengthgen_jax.config import build, default_config, files
from lengthgen_jax.papers import archive, pages, runs
from lengthgen_jax.papers.runs import DATA, SIZES
from lengthgen_jax.pipelines import abc
from lengthgen_jax.results import figures, records

DOCS = REPOSITORY / "docs" / "results"
RUNS = {
  run.name: run
  for size in SIZES
  for table in DATA["tables"]
  for run in runs.runs_of(table, size).values()
}


@pytest.fixture(scope="module", autouse=True)
def _presets_are_read_once():
  """Many runs share one."""
  read = functools.cache(files.load_config)
  copy = lambda spec: read(spec).copy_and_resolve_references()
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(runs, "load_config", copy)
    yield


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


def test_runs_of_both_sizes_build():
  """Their fields matter and their experiments can be made, of every third."""
  certified = []
  for size in SIZES:
    for table in DATA["tables"]:
      for run in runs.runs_of(table, size).values():
        shared = run._replace(probes=RUNS[run.name].probes)
        assert RUNS[run.name] == shared  # never by accident
  one_stage = default_config().retrain
  for run in [*RUNS.values()][::3]:
    config = runs.config_of(run)
    build.build(config)
    # By this --mode=train knows a config of --mode=abc.
    has_two_stages = config.retrain.to_dict() != one_stage.to_dict()
    assert has_two_stages == (run.mode == "abc")
    if has_two_stages:
      abc.check_config(config)
  for run in RUNS.values():
    first, *others = run._replace(probes={}).commands("w")
    assert others == [["--mode=certify", "--workdir=w"]] * run.certify
    is_proved = run.mode == "abc" or run.certify
    assert is_proved <= ("--config.certify.second_opinion=True" in first)
    certified += [run.name] * run.certify
  assert len({name.partition("-")[0] for name in certified}) == 4


@pytest.mark.parametrize("name", ["addition-abc", "sort-none-data.size=10000"])
def test_the_command_of_a_run_has_its_config(name):
  run = RUNS[name]
  with command.parsed(*run.commands("runs/x")[0]) as (mode, config):
    assert mode == run.mode
    expected = runs.config_of(run)
    preset = files.load_config(str(REPOSITORY / run.config))
    files.name_overrides(expected, preset)
    assert config.to_json_best_effort() == expected.to_json_best_effort()


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


def test_archived_rows_of_another_version_are_one_line(tmp_path):
  path = tmp_path / "a.jsonl"
  archive.write_run(path, seeds(1, 2), HEADER)
  header, first, second = records.read(path)
  records.write(path, [header, first | {"rows": [[1]]}, second])
  with command.refuses("another version wrote it", str(path)):
    archive.read_run(path)
  del header["run"]
  records.write(path, [header, first, second])
  with command.refuses("another version wrote it", str(path)):
    archive.read_run(path)


def test_rows_are_compared_to_the_bit_where_no_code_has_changed(clone):
  assert origin.commit() == "unknown"
  first = clone()
  header = origin.describe("cpu")
  assert header["commit"] == first and len(first) == 40
  (clone.folder / "docs.md").write_text("words")
  second = clone()
  reasons = lambda old: tables.differences_in_origin(old, header)
  assert first != second and not reasons(header)
  (clone.folder / "configs" / "a.py").write_text("2")
  assert origin.commit() == f"{second}-dirty"
  changed = f"code changed since commit {first[:12]}"
  versions = header["versions"] | {"jax": "0"}
  other = header | {"machine": "x", "versions": versions}
  expected = f"another machine, another version of jax, {changed}"
  assert reasons(other) == expected
  unknown = header | {"commit": "unknown"}
  assert reasons(unknown) == "no commit unknown in this clone"


def test_rows_made_again_are_compared():
  old = [*seeds(100, 99, 100), *seeds(30, 40, 50, length=60)]
  old += seeds(0, 0, 1, length=200)
  assert tables.compare(old, old, exact=True) == []
  assert tables.compare(old, old, exact=False) == []
  new = [*seeds(99, 100, 99), *seeds(50, 31, 40, length=60)]
  new += seeds(1, 0, 0, length=200)
  assert tables.compare(old, new, exact=False) == []
  assert "1.0 in the archive, 0.99 now" in tables.compare(old, new, True)[0]
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


# Pages.


def test_committed_pages_are_those_of_committed_rows(tmp_path, monkeypatch):
  """Text for text; figures exist, and are not drawn again."""
  monkeypatch.setattr(figures, "draw", lambda *_: [])
  monkeypatch.setattr(figures, "curves", lambda _, path, *__: path)
  monkeypatch.setattr(pages, "draw_comparison", lambda *_: None)
  monkeypatch.setattr(pages, "draw_extrapolation", lambda *_: None)
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


# The command.


@pytest.mark.parametrize(
  "words, message",
  [
    (["nope"], "no table 'nope'"),
    ([], "name a table: abs"),
    (["abs", "--pages"], "--pages takes no tables"),
    (["--check", "parity-windo"], "a run, like parity-window"),
    (["--check", "sort-all", "--results=none"], "no rows of sort-all are"),
  ],
)
def test_a_wrong_command_is_one_line(words, message, capsys):
  assert tables.main(words) == 1
  out, err = capsys.readouterr()
  (line,) = err.splitlines()
  assert line.startswith("tables: ") and message in line and not out


def test_a_table_is_filled_once(clone, trained, tmp_path, capsys, monkeypatch):
  """Runs are copies of one that was trained."""
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
  probes = {"probe.only": ["intact"]}
  both = {"tiny": tiny, "probed": tiny | {"probes": probes}}
  rule = {"runs": "", "set": {"eval.lengths": [2], "eval.samples": [64]}}
  monkeypatch.setitem(DATA, "tables", both)
  monkeypatch.setitem(DATA, "tests", [rule])

  nowhere = dict.fromkeys(("part", "layer", "head", "line"))
  intact = [row(64, metric="intact", seed=s) | nowhere for s in (0, 1)]

  def run_jobs(jobs, slots=(), folder=None):
    for workdir, commands in jobs:
      if not workdir.exists():
        shutil.copytree(trained, workdir)
        made = {"date": "2026-01-01"} | origin.describe("cpu")
        (workdir / "origin.json").write_text(json.dumps(made))
      if "--mode=probe" in commands[-1]:
        assert "--config.probe.only=('intact',)" in commands[-1]
        records.write(workdir / "probes.jsonl", intact)
      yield workdir, failing.pop() if failing else 0, 1.0

  failing = [1]
  monkeypatch.setattr(tables.sweep, "run_jobs", run_jobs)
  results = tmp_path / "docs"
  folders = [f"--root={tmp_path / 'runs'}", f"--results={results}"]

  assert tables.main(["tiny", *folders]) == 1
  failed = f"tables: failed: {name}; the same command tries again\n"
  assert capsys.readouterr().err == failed and not results.exists()

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
  assert "1 of 1" in output("probed")
  kept = archive.read_run(results / "rows" / f"{name}.jsonl")
  assert kept.header == header
  assert [x for x in kept.rows if not archive.is_probe(x)] == rows
  probed = [x for x in kept.rows if archive.is_probe(x)]
  assert [x["value"] for x in probed] == [0.64, 0.64]
  assert "64.0" in (results / "probed.md").read_text()
  # Again there is nothing to do; after a change of the config there is.
  assert "runs to make: 0" in output("tiny")
  with monkeypatch.context() as patch:
    patch.setitem(rule["set"], "train.steps", 601)
    # A field that was not there yet had its default.
    path, old = results / "rows" / f"{name}.jsonl", copy.deepcopy(header)
    del old["config"]["train"]["steps"]
    archive.write_run(path, rows, old)
    assert "train.steps=1000, now 601" in output("tiny", "--plan")
    archive.write_run(path, rows, header)
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
