"""The papers' tables: runs, archived rows, pages, and the command for them."""

import importlib
import json
import pathlib
import re
import shutil
import subprocess
import threading

import command
import pytest
import test_docs
from command import REPOSITORY
from rows import CERTIFIED, row, seeds, without_length

from lengthgen_jax import origin
from lengthgen_jax.config import build, files
from lengthgen_jax.errors import UsageError
from lengthgen_jax.papers import overview, pages, provenance, runs
from lengthgen_jax.papers.experiments import SIZES, Table, TableRow, run_of
from lengthgen_jax.pipelines import abc
from lengthgen_jax.probes import tables as probe_tables
from lengthgen_jax.results import figures, reach, records, summary

DOCS = REPOSITORY / "docs" / "results"
RUNS = {
  run.name: run
  for size in SIZES
  for table in runs.TABLES
  for run in runs.runs_of(table, size).values()
}
ARCHIVE = provenance.read_archive(DOCS / "rows")


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
    for table in runs.TABLES:
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
    flag = "--config.certify.second_checker=True"  # a ∀ takes both
    is_proved = run.mode == "abc" or run.certify or config.finetune.rounds > 0
    assert is_proved == (flag in run.commands("w")[0])
    certified += [run.name] * run.certify
  assert {width for width, size in sizes if size == "paper"} == {
    128,
    256,
    512,
    1024,
  }
  assert {width for width, size in sizes if size == "cpu"} == {32, 64, 128}
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
  assert len(runs.TABLES["abs"].rows) == 23
  names = "abs abc ablation sorting data depth hints temperature positions"
  assert {*names.split(), "repeats", "robustness", "increment"} < {*runs.TABLES}
  papers = {(x.task, x.model): x.published for x in runs.TABLES["abs"].rows}
  assert papers["N×1", "+w=1"] == {6: 100, 10: 6.0, 15: 0.19, 20: 0, 60: 0}
  for table in runs.TABLES.values():
    assert {run for _, run, _ in table.figures} <= {*RUNS}
    for x in table.rows:  # a run of either mode may be finetuned
      is_abc = run_of(x, table, "cpu").mode == "abc"
      assert x.stage == "finetune" or (x.stage == "train") != is_abc
  for table in overview.README_TABLES:
    assert {row.run for row in table.rows} <= {*RUNS}
  assert {*overview.REACH} <= {*RUNS}


def test_a_run_is_selected_by_its_name():
  """Alone, and with the probes of the table that asks for them."""
  for name in ("addition-abc", "sort-none-best"):
    (selected,) = runs.select([name], "cpu").items()
    assert selected[0] == selected[1][0].name == name
  assert selected[1][1] == runs.TABLES["inside"].probes
  assert runs.select(["sorting"], "cpu")["sort-none-best"][1] == {}
  both = runs.select(["sorting", "inside"], "cpu")
  assert both["sort-none-best"][1] and both["sort-none"][1]
  assert runs.select(["products"], "paper") == {}


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
  "first_stage": None,
}


def archive_of(*rows) -> provenance.Archive:
  return {
    "a": provenance.ArchivedRun(HEADER, [one | {"run": "a"} for one in rows])
  }


def test_archived_rows_are_the_rows(tmp_path):
  rows = [one for n in range(9) for one in seeds(100, 90, n, length=n)]
  rows.append(CERTIFIED)
  path = tmp_path / "a.jsonl"
  provenance.write_run(path, [*rows, row(metric="token")], HEADER)
  header, read_rows = provenance.read_run(path)
  ordered = lambda some: sorted(some, key=lambda one: str(records.key(one)))
  assert header == HEADER
  assert ordered(read_rows) == ordered([one | {"run": "a"} for one in rows])
  records.write(tmp_path / "whole.jsonl", rows)
  whole_size = (tmp_path / "whole.jsonl").stat().st_size
  assert path.stat().st_size < 0.3 * whole_size


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
  provenance.write_run(path, seeds(1, 2), HEADER)
  _, first, second = records.read(path)
  flawed = first | group if isinstance(group, dict) else group
  records.write(path, [header, flawed, second])
  with pytest.raises(UsageError, match="another version wrote it") as error:
    provenance.read_run(path)
  assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_a_package_within_another_clone_has_no_commit(clone, monkeypatch):
  clone()
  monkeypatch.setattr(origin, "REPOSITORY", clone.folder / "configs")
  assert origin.commit() == "unknown"


def test_rows_are_compared_to_the_bit_where_no_code_has_changed(clone):
  assert origin.commit() == "unknown"
  first = clone()
  header = provenance.current_origin()
  assert header["commit"] == first and len(first) == 40
  (clone.folder / "docs.md").write_text("words")
  second = clone()
  assert first != second and not provenance.differences_in_origin(header)
  (clone.folder / "configs" / "a.py").write_text("2")
  assert origin.commit() == f"{second}-dirty"
  changed = f"code changed since commit {first[:12]}"
  assert provenance.differences_in_origin(header) == changed
  clone()
  other = header | {
    "machine": "x",
    "versions": header["versions"] | {"jax": "0"},
  }
  assert provenance.differences_in_origin(other) == (
    f"another machine, another version of jax, {changed}"
  )
  for commit in (f"{second}-dirty", "unknown"):
    reasons = provenance.differences_in_origin(header | {"commit": commit})
    assert reasons == f"no commit {commit} in this clone"


def test_rows_made_again_are_compared():
  old = [*seeds(100, 99, 100), *seeds(30, 40, 50, length=60)]
  old += seeds(0, 0, 1, length=200)
  assert provenance.compare(old, old, exact=True) == []
  assert provenance.compare(old, old, exact=False) == []
  new = [*seeds(99, 100, 99), *seeds(50, 31, 40, length=60)]
  new += seeds(1, 0, 0, length=200)
  assert provenance.compare(old, new, exact=False) == []
  differences = provenance.compare(old, new, exact=True)
  assert len(differences) == 8
  assert "value=1.0 in the archive, 0.99 now" in differences[0]
  frontier = row(metric="frontier", value=9.0)
  for one, value in ((frontier, 8.0), (CERTIFIED, 0)):
    assert provenance.compare([one], [one | {"value": value}], exact=True)
  # Each of a seed's certificates is compared with the one of the same step.
  certificates = [CERTIFIED | {"step": 9, "value": 0}, CERTIFIED]
  assert provenance.compare(certificates, certificates, exact=True) == []
  outside = [*seeds(98, 100, 99), *seeds(50, 31, 57, length=60)]
  assert provenance.compare(old, outside, exact=False) == [
    "seed 0, train, equal, 6: 98.0 % is outside of the archived seeds' 99.0 to"
    " 100.0 %",
    "seed 2, train, equal, 60: 57.0 % is outside of the archived seeds' 30.0 to"
    " 50.0 %",
    *(f"seed {seed}, train, equal, 200 is missing" for seed in range(3)),
  ]
  fewer = [one for one in old if one["seed"] < 2]
  for exact in (True, False):
    assert provenance.compare(old, fewer, exact) == [
      f"seed 2, train, equal, {n} is missing" for n in (6, 60, 200)
    ]


@pytest.mark.parametrize(
  "value, low, high, agrees",
  [(1.0, 0.99, 0.995, True), (1.0, 0.9, 0.995, False)]
  + [(0.0, 0.005, 0.01, True), (0.0, 0.005, 0.02, False)],
)
def test_nearly_all_and_nearly_nothing_agree(value, low, high, agrees):
  assert provenance.agrees(value, low, high) == agrees


# Pages.


def entries_of(archive, *fields) -> list[pages.Entry]:
  """Entries of addition by ABC of the run a, but for what fields say."""
  usual = {"task": "addition", "model": "ABC", "config": "", "run": "a"}
  entries = []
  for changes in fields or ({},):
    names = usual | changes
    run = names.pop("run")
    entries.append(pages.make_entry(TableRow(**names), run, archive))
  return entries


def cells_of(text: str) -> list[list[str]]:
  """The cells of all lines of all tables."""
  return [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in text.splitlines()
    if line.startswith("|")
  ]


def test_a_page_sets_ours_beside_the_papers():
  rows = [*seeds(100, 90, 95), *seeds(100, 100, 100, length=60, n=50)]
  rows += [
    without_length("frontier", 9.0, seed=seed, bound=60, tried=[])
    for seed in range(3)
  ]
  entries = entries_of(
    archive_of(*rows),
    {"published": {6: 99.5, 20: "?"}},
    {"model": "other", "run": "b", "published": {60: 1}},
  )
  table, gaps = pages.table_paragraphs(entries, "others")
  lines = cells_of(table)
  assert lines[0][2:6] == ["", "6", "20", "60"]
  assert lines[2] == ["addition", "ABC", "others", "99.5", "?", *[""] * 5]
  assert lines[3] == [
    *("addition", "ABC", "**ours**", "95.0 (90.0) [83.6]", "–"),
    *("100.0 [97.0]", "9", "3", "100 (50 at 60)", "natural"),
  ]
  assert lines[5][2:8] == ["ours", "–", "–", "–", "", "not run yet"]
  assert "1 of 2 runs have not been made yet: `b`" in gaps


def test_a_page_shows_the_last_certificates_and_what_is_wrong():
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
  archive = archive_of(*seeds(90, 90, 90, step=600), *rows)
  entries = entries_of(archive, {}, {"run": "b"}, {"stage": "retrain"})
  text = "\n".join(pages.table_paragraphs(entries))
  (line,) = [cells for cells in cells_of(text) if "8*9" in cells[-1]]
  assert line == [
    *("addition", "ABC", "1 of 3", "9 to 1,000", "-0.40 to 2.50"),
    "0.012",
    "seed 1: wrong on 3 of 9 cases, the shortest: 8*9; seed 2: too large",
  ]
  assert "## Certificates" not in pages.table_paragraphs(entries[1:])


def test_a_proof_is_of_the_run_that_has_it():
  proof = without_length("certified", 1, n=9, reason="right", seeds_asked=1)
  exact_rows = [row(seeds_asked=1, run=name) for name in "ab"]
  lines = summary.curves([*exact_rows, proof | {"run": "a"}])
  assert [line.proof for line in lines] == [" ∀¹", ""]


def test_a_page_folds_and_explains_its_hard_inputs():
  hard = seeds(90, 90, 80, test_set="chain_2", stress=True)
  archive = archive_of(*seeds(100, 100, 100), *hard)
  entries = entries_of(archive)
  main, _, meanings, summary, table, end = pages.table_paragraphs(entries)
  assert "chain_2" not in main
  assert "`chain_` one carry" in meanings and "`zeros`" not in meanings
  assert summary == "<details><summary>1 rows</summary>"
  assert cells_of(table)[2][2:] == ["chain_2", "90.0 (80.0)"]
  assert end == "</details>"


def test_a_page_refuses_mixed_conditions():
  archive = archive_of(*seeds(1, 2, 3), *seeds(4, 5, 6, slack=3))
  with pytest.raises(UsageError, match="a, train, equal: rows of different"):
    entries_of(archive)


def test_many_methods_are_squares(monkeypatch):
  monkeypatch.setattr(figures, "save", lambda figure, path: figure)
  rows = [
    one | {"method": f"m{i}", "run": f"{i}", "config_hash": f"{i}"}
    for i in range(15)
    for one in (row(i, length=6), row(2 * i, length=60))
  ]
  (axis,) = figures.by_method(rows, None, "title").axes
  assert [t.get_text() for t in axis.texts][:4] == ["0", "0", "1", "2"]
  assert [t.get_text() for t in axis.get_yticklabels()][-1] == "m14"
  figures.plt.close("all")


def test_committed_pages_are_those_of_committed_rows(tmp_path, monkeypatch):
  """Text for text; figures exist, and are not drawn again."""
  monkeypatch.setattr(figures, "draw_table", lambda *_: [])
  monkeypatch.setattr(reach, "reach_figure", lambda *_: None)
  monkeypatch.setattr(pages, "draw_comparison", lambda *_: None)
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
    overview.replace_tables(text.replace(overview.END, ""), ARCHIVE)
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
    for table in runs.TABLES.values()
    for row in table.rows
    for size in SIZES
    for words in run_of(row, table, size).commands(probes=table.probes)
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


def test_a_run_beside_others_writes_to_its_log_until_it_is_stopped(tmp_path):
  log, stop = tmp_path / "run.log", threading.Event()
  assert runs.lengthgen(["--mode=models"], log=log, stop=stop) == 0
  assert "| addition |" in log.read_text()
  stop.set()
  assert runs.lengthgen(["--mode=models"], log=log, stop=stop) != 0


@pytest.mark.parametrize("parallel", (1, 3))
def test_a_failed_run_leaves_the_others(
  parallel, tables, monkeypatch, capsys, tmp_path
):
  calls, logs = [], set()

  def lengthgen(words, log, stop):
    calls.append(words)
    logs.add(log and log.name)
    return 1

  monkeypatch.setattr(runs, "lengthgen", lengthgen)
  monkeypatch.setattr(provenance, "current_origin", lambda: HEADER)
  folders = [f"--root={tmp_path}", f"--results={tmp_path / 'docs'}"]
  flag = f"--parallel={parallel}"
  assert tables.main(["repeats", flag, *folders]) == 1
  out, err = capsys.readouterr()
  assert len(calls) == 4 and "== 4 of 4" in out
  assert err.startswith("tables: failed: ") and "sort-none-repeats" in err
  assert err.endswith("; the same command tries again\n")
  assert len(logs) == (4 if parallel > 1 else 1)  # None is the terminal
  assert not (tmp_path / "docs").exists()


def test_rows_of_an_older_version_are_not_archived(tmp_path, monkeypatch):
  monkeypatch.setattr(provenance, "current_origin", lambda: HEADER)
  name, run = next(iter(runs.runs_of("inside", "cpu").items()))
  workdir = tmp_path / name
  config = runs.config_of(run).to_json_best_effort()
  records.write_text(workdir / "config.json", config)
  probed = row(metric="minimum", part=None)

  def launch(arguments, version="2"):
    for file, measured in (("results", row()), ("probes", probed)):
      path = workdir / f"{file}.jsonl"
      records.merge(path, [measured | {"version": version}])
    return 0

  launch([], version="1")
  job = runs.Job(run, {"probe.samples": 9}, None, "has no rows")
  assert runs.run_job(job, workdir, tmp_path, launch)
  archived = provenance.read_run(tmp_path / "rows" / f"{name}.jsonl")
  assert [one["version"] for one in archived.rows] == ["2", "2"]
  assert len(archived.probes) == 1


def test_a_pipeline_begins_with_the_first_stage_of_another(tmp_path):
  first, *others = runs.runs_of("ablation", "cpu").values()
  source = tmp_path / first.name
  (source / "interpolate").mkdir(parents=True)
  steps = [{"step": 9, "seed": seed, "seconds": 2.0} for seed in (0, 1)]
  records.write(source / "interpolate" / "metrics.jsonl", steps)
  (source / "config.json").write_text(
    runs.config_of(first).to_json_best_effort()
  )
  runs.copy_first_stage(others[0], tmp_path / others[0].name)
  assert not (tmp_path / others[0].name).exists()  # it is not past it
  (source / "calibrate").mkdir()
  (source / "calibrate" / "bias.npz").touch()
  for run in others[:3]:
    workdir = tmp_path / run.name
    runs.copy_first_stage(run, workdir)
    assert records.read(workdir / "interpolate" / "metrics.jsonl") == steps
    assert (workdir / runs.TRAINED_BY).read_text() == first.name
    assert {path.name for path in workdir.iterdir()} == {
      *("interpolate", runs.COMMANDS)
    }
    # A command that was killed has left its steps alone.
    assert runs.seconds_of(workdir) == 2.0
    log = [{"step": step, "seed": 0, "seconds": 4.0} for step in (5, 9)]
    (workdir / "retrain").mkdir()
    records.write(workdir / "retrain" / "metrics.jsonl", log)
    assert runs.seconds_of(workdir) == 10.0
    records.append(workdir / runs.COMMANDS, [{"seconds": 9.0}])
    assert runs.seconds_of(workdir) == 11.0
  varied = [
    first._replace(fields=first.fields | fields)
    for fields in ({"seeds": (0, 1)}, {"model.emb_dim": 32})
  ]
  for run in (RUNS["parity-abc"], *varied, first._replace(mode="train")):
    runs.copy_first_stage(run, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_table_is_filled_archived_skipped_and_checked(
  tables, clone, trained, tmp_path, capsys, monkeypatch
):
  clone()
  name, figure = (
    "addition-window_cpi",
    "figures/addition_natural_em_by_length.png",
  )
  config = f"{REPOSITORY}/tests/tiny.py:addition,window_cpi"
  tiny = Table(
    "Tiny", "About.", [TableRow("addition", "+w=1", config, {6: 100})]
  )
  tiny = tiny._replace(
    seeds=(0, 1),
    figures=(("drawn", name, figure), ("not drawn", name, "figures/none.png")),
  )
  probes = {"probe.only": ("intact", "without_head"), "probe.samples": 32}
  probes["probe.figures"] = ("heads",)
  both = {"tiny": tiny, "probed": tiny._replace(probes=probes)}
  fields = {"eval.lengths": (2,), "eval.samples": (64,)}
  monkeypatch.setattr(runs, "TABLES", both)
  monkeypatch.setattr(pages, "TABLES", both)
  experiments = importlib.import_module("lengthgen_jax.papers.experiments")
  monkeypatch.setattr(experiments, "eval_fields", lambda *_: fields)

  def lengthgen(words, **_) -> int:
    (flag,) = [word for word in words if word.startswith("--workdir=")]
    workdir = pathlib.Path(flag.partition("=")[2])
    if not workdir.exists():  # there is nothing left to train
      shutil.copytree(trained, workdir)
    return command.inside(*words).returncode

  monkeypatch.setattr(runs, "lengthgen", lengthgen)
  results = tmp_path / "docs"
  folders = [f"--root={tmp_path / 'runs'}", f"--results={results}"]

  def output(*words, code=0) -> str:
    assert tables.main([*words, *folders]) == code
    return capsys.readouterr().out

  assert f"{name}: has no rows (took" in output("tiny", "--plan")
  out = output("tiny")
  assert "1 of 1" in out and str(results / "tiny.md") in out
  header, rows = provenance.read_run(results / "rows" / f"{name}.jsonl")
  assert header["seconds"] and header["commit"] == origin.commit()
  assert {one["metric"] for one in rows} == {"em"} and len(rows) == 2
  median = sum(100 * one["value"] for one in rows) / 2
  page = (results / "tiny.md").read_text()
  assert f"{median:.1f}" in page and "![not drawn]" not in page
  assert f"![drawn](figures/{name}/addition_natural_em_by_length.png)" in page
  # A table that looks inside asks for the probes alone.
  assert "1 of 1" in output("probed")
  archived = provenance.read_run(results / "rows" / f"{name}.jsonl")
  assert archived.header == header
  assert [x for x in archived.rows if not provenance.is_probe(x)] == rows
  intact = records.of_metric(archived.probes, "intact")
  title, _, cell = probe_tables.comparison_table({"ours": intact})[1]
  assert title == "EM, nothing changed"  # without a location
  assert len(intact) == 2
  assert cell.startswith(f"{50 * sum(x['value'] for x in intact):.1f}")
  assert cell in (results / "probed.md").read_text()
  # Again there is nothing to do; after a change of the config there is.
  assert "runs to make: 0" in output("tiny")
  workdir = tmp_path / "runs" / "cpu" / name
  with monkeypatch.context() as patch:
    changed = fields | {"train.steps": 601}
    patch.setattr(experiments, "eval_fields", lambda *_: changed)
    assert "train.steps=600, now 601" in output("tiny", "--plan")
    (job,) = runs.jobs_of(["tiny"], "cpu", {name: archived})
    runs.set_aside(job.run, workdir)  # it is of the earlier config
    assert not workdir.exists() and workdir.with_name(f"{name}.old0").exists()
  # Lengthgen refuses a workdir whose config has other overrides.
  shutil.copytree(workdir.with_name(f"{name}.old0"), workdir)
  saved = json.loads((workdir / "config.json").read_text())
  text = json.dumps(saved | {"overrides": ["train.steps=600"]})
  (workdir / "config.json").write_text(text)
  runs.set_aside(job.run, workdir)
  assert not workdir.exists() and workdir.with_name(f"{name}.old1").exists()
  shutil.copytree(workdir.with_name(f"{name}.old0"), workdir)
  run = runs.runs_of("tiny", "cpu")[name]
  runs.set_aside(run, workdir)  # of the present config: it stays
  assert workdir.exists()
  config = json.loads((workdir / "config.json").read_text())
  text = json.dumps(config | {"of_another_version": 1})
  (workdir / "config.json").write_text(text)
  runs.set_aside(run, workdir)
  assert not workdir.exists() and workdir.with_name(f"{name}.old2").exists()
  # A stranger's check: not the same, or the same to the bit.
  path = results / "rows" / f"{name}.jsonl"
  planted = [one | {"correct": 63, "value": 63 / 64} for one in rows]
  provenance.write_run(path, planted, header | {"machine": "elsewhere"})
  out = output("--check", name, code=1)
  assert f"{name}: differs, compared within tolerance (another machine)" in out
  assert "outside of the archived seeds' 98.4 to 98.4 %" in out
  check = tmp_path / "runs" / "check" / name
  assert f"its workdir is {check}" in out and check.exists()
  provenance.write_run(path, rows, header)
  assert f"{name}: agrees, compared to the bit" in output("--check", name)
  assert not check.exists()
