"""The papers' tables: one list, and runs, rows, pages and checks made of it."""

import importlib
import itertools
import re

import command
import pytest
import test_docs
from command import REPOSITORY
from rows import CERTIFIED, row, seeds, without_length

from lengthgen_jax.config import build
from lengthgen_jax.errors import UsageError
from lengthgen_jax.pipelines import abc
from lengthgen_jax.probes import comparison
from lengthgen_jax.results import (
  archive,
  figures,
  markdown_report,
  records,
  summary,
)

DOCS = REPOSITORY / "docs" / "results"


@pytest.fixture(scope="module")
def launch():
  """(listed, tables, made, book, sweep), the scripts as modules."""
  with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(REPOSITORY / "launch"))
    names = ("listed", "tables", "made", "book", "sweep")
    yield [importlib.import_module(name) for name in names]


def all_runs(listed):
  """Every run of the list, by name, once for each table and size."""
  for size, name in itertools.product(("cpu", "paper"), listed.TABLES):
    yield from listed.runs(name, size).values()


# The list.


def test_every_run_of_both_sizes_builds(launch):
  """Its command parses and its experiment can be made; nothing is compiled."""
  listed, _, made, *_ = launch
  seen, sizes = {}, set()
  for run in all_runs(listed):
    assert seen.setdefault(run.name, run) == run  # shared, never by accident
  for run in seen.values():
    config = made.config(run)
    experiment = build.build(config)
    if run.mode == "abc":
      abc.check_config(config)
    paper = "paper" in run.name.split("-")
    sizes.add((experiment.model.config.emb_dim, paper))
    assert "/" not in run.name and " " not in run.name
  assert {size for size, paper in sizes if paper} == {128, 512, 1024}
  assert {size for size, paper in sizes if not paper} == {32, 64, 128}
  assert len(seen) > 150


def test_how_long_a_run_takes_is_what_its_like_took(launch):
  listed, *_ = launch

  def head(preset, seconds, steps=100, seeds=(0, 1)):
    config = {"seeds": list(seeds), "train": {"steps": steps}}
    command = [f"--config=a.py:{preset}", "--workdir=w"]
    return {"command": command, "config": config, "seconds": seconds}

  def run(name, **fields):
    fields = {"seeds": (0, 1)} | fields
    return listed.Run(name, "a.py:x", "train", fields, "cpu")

  heads = {
    "mine": head("x", 50),
    "long": head("x", 90, steps=300),
    "wide": head("x", 100, seeds=(0, 1, 2, 3)),
    "untimed": head("x", None),
    "other": head("x,y", 7),
  }
  assert listed.seconds(run("mine"), heads) == 50
  assert listed.seconds(run("new"), heads) == 50  # of 50, 30 and 50
  assert listed.seconds(run("new", **{"train.steps": 300}), heads) == 150
  assert listed.seconds(run("untimed", seeds=(0,)), heads) == 25
  assert listed.seconds(run("new")._replace(config="a.py:z"), heads) is None


@pytest.mark.parametrize("name", ["addition-abc", "sort-none-data.size=10000"])
def test_a_runs_words_are_its_config(launch, name):
  listed, _, made, *_ = launch
  run = next(run for run in all_runs(listed) if run.name == name)
  with command.parsed(*run.words("runs/x")) as (mode, config):
    assert mode == run.mode
    assert config.to_json_best_effort() == (
      made.config(run).to_json_best_effort()
    )


def test_the_tables_are_the_papers(launch):
  listed, *_ = launch
  assert len(listed.TABLES["abs"].rows) == 23
  wanted = "abs abc ablation sorting data depth hints temperature positions"
  wanted += " repeats robustness increment"
  assert set(wanted.split()) <= set(listed.TABLES)
  quoted = {
    (one.task, one.model): one.paper for one in listed.TABLES["abs"].rows
  }
  assert quoted["N×1", "+w=1"] == {6: 100, 10: 6.0, 15: 0.19, 20: 0, 60: 0}
  for table in listed.TABLES.values():
    for one in table.rows:
      for least, most in one.expect.values():
        assert 0 <= least < most <= 100
    names = {run.name for run in all_runs(listed)}
    assert {run for _, run, _ in table.figures} <= names
    assert table.along == "" or any(one.value for one in table.rows)


# Rows that are kept.

HEAD = {
  "run": "addition-abc",
  "command": ["--config=x"],
  "config": {"train": {"steps": 5}},
  "machine": "an abacus, 2 cores",
  "date": "2026-11-22",
  "seconds": 90,
  "versions": {"lengthgen_jax": "1"},
  "source": "0123456789ab",
  "first_stage": None,
}


def test_kept_rows_are_the_rows(tmp_path):
  rows = [one for n in range(9) for one in seeds(100, 90, n, length=n)]
  rows.append(CERTIFIED)
  other = row(metric="token")
  path = tmp_path / "a.jsonl"
  archive.keep(path, [*rows, other], HEAD)
  made, found = archive.read(path)
  order = lambda some: sorted(some, key=lambda one: str(records.key(one)))
  assert made == HEAD and order(found) == order(rows)
  size = len(path.read_text())
  records.write(tmp_path / "whole.jsonl", rows)
  assert size < 0.3 * len((tmp_path / "whole.jsonl").read_text())


@pytest.mark.parametrize(
  "head, rows, words",
  [
    (HEAD | {"command": ["--config=/root/x"]}, seeds(1), "/root/x"),
    (HEAD, seeds(1, method="a bias.file=/tmp/b.npz"), "/tmp/b.npz"),
    (HEAD, [CERTIFIED], "no exact match"),
  ],
)
def test_no_path_and_nothing_empty_is_kept(head, rows, words, tmp_path):
  with pytest.raises(UsageError, match=words):
    archive.keep(tmp_path / "a.jsonl", rows, head)


def test_kept_rows_of_another_version_are_one_line(tmp_path):
  path = tmp_path / "a.jsonl"
  archive.keep(path, seeds(1, 2), HEAD)
  head, *rows = records.read(path)
  lacking = {name: x for name, x in head.items() if name != "config"}
  whole, values = rows[0], rows[0]["rows"]
  others = [
    {"colour": 1},
    3,
    whole | {"rows": 3},
    whole | {"rows": [[1, *one] for one in values]},
    whole | {"shared": whole["shared"] | {"n": "ten"}},
  ]
  for lines in (
    *([], [lacking, *rows], [[1], *rows]),
    *([head, other] for other in others),
  ):
    records.write(path, lines)
    with pytest.raises(UsageError, match="another version wrote it") as error:
      archive.read(path)
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_another_program_is_other_code_not_other_words(
  launch, tmp_path, monkeypatch
):
  made, file = launch[2], tmp_path / "lengthgen_jax" / "one.py"
  monkeypatch.setattr(made, "REPOSITORY", tmp_path)
  file.parent.mkdir()
  texts = (
    '"""Words."""\ndef f():\n  """More."""\n  return "x"',
    '"""Other."""\ndef f():  # words\n  """words."""\n  return "x"',
    '"""Words."""\ndef f():\n  """More."""\n  return "y"',
  )
  found = [(file.write_text(text), made.source())[1] for text in texts]
  assert found[0] == found[1] != found[2]


def test_what_was_made_again_is_compared():
  old = [*seeds(100, 99, 100), *seeds(30, 40, 50, length=60)]
  old += seeds(0, 0, 1, length=200)
  assert archive.differences(old, old, exact=True) == []
  assert archive.differences(old, old, exact=False) == []
  new = [*seeds(99, 100, 99), *seeds(50, 31, 40, length=60)]
  new += seeds(1, 0, 0, length=200)
  assert archive.differences(old, new, exact=False) == []
  said = archive.differences(old, new, exact=True)
  assert len(said) == 8 and "100 of 100 is kept, 99 of 100 now" in said[0]
  ahead, wrong = row(metric="frontier", value=9.0), CERTIFIED | {"value": 0}
  assert archive.differences([ahead], [ahead | {"value": 8.0}], exact=True)
  assert archive.differences([CERTIFIED], [wrong], exact=True)
  off = [*seeds(98, 100, 99), *seeds(50, 31, 57, length=60)]
  assert archive.differences(old, off, exact=False) == [
    "train, equal, 200 is missing",
    "seed 0, train, equal, 6 digits: 98.0 % is 1.0 outside of the kept seeds'"
    " 99.0 to 100.0 %",
    "seed 2, train, equal, 60 digits: 57.0 % is 7.0 outside of the kept seeds'"
    " 30.0 to 50.0 %",
  ]
  fewer = [one for one in old if one["seed"] < 2]
  assert archive.differences(old, fewer, exact=False) == [
    f"train, equal, {n}: 1 of 3 seeds are missing" for n in (6, 60, 200)
  ]
  # 99 % or more is 99 % or more; a range below is not.
  assert archive.agrees(1.0, 0.99, 0.995) and not archive.agrees(
    1.0, 0.9, 0.995
  )
  assert archive.agrees(0.0, 0.005, 0.01) and not archive.agrees(
    0.0, 0.005, 0.02
  )


# Pages.


def entry(**fields) -> markdown_report.Entry:
  usual = {"task": "addition", "model": "ABC", "run": "a", "stage": "train"}
  usual |= {"paper": {}, "expect": {}, "value": None, "calls": [["--x=1"]]}
  return markdown_report.Entry(**usual | fields)


def test_a_page_sets_ours_beside_the_papers():
  rows = [*seeds(100, 90, 95), *seeds(100, 100, 100, length=60, n=50)]
  rows += [
    without_length("frontier", 9.0, seed=s, bound=60, tried=[])
    for s in range(3)
  ]
  found = {"a": (HEAD | {"run": "a"}, [one | {"run": "a"} for one in rows])}
  entries = [
    entry(paper={6: 99.5, 20: "?"}, expect={6: (96, 100), 60: (99, 100)}),
    entry(model="other", run="b", paper={60: 1}),
  ]
  text = markdown_report.page("Title", "About.", entries, found)
  lines = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in text.splitlines()
    if line.startswith("|")
  ]
  assert lines[0][2:6] == ["", "6", "20", "60"]
  assert lines[2] == [
    *("addition", "ABC", "paper", "99.5", "?", "", "", "", "", "", "")
  ]
  assert lines[3] == [
    *("addition", "ABC", "**ours**", "95.0 (90.0) [83.6]", "–"),
    *("100.0 [97.0]", "9", "3", "100 (50 at 60)", "natural"),
    "no: 6: 95.0 not in 96–100",
  ]
  assert lines[5][2:8] == ["ours", "–", "–", "–", "", "not run yet"]
  assert "1 of 2 runs have not been made yet: `b`" in text
  assert "lengthgen --x=1" in text and "an abacus, 2 cores" in text


def test_a_page_says_what_certificates_found():
  """The last round's, the seeds that are wrong and where."""
  wrong = "wrong on 3 of 9 cases, the shortest: 8*9; smallest margin -0.1"
  proofs = [
    (0, 0, {"seed": 0, "margin": -0.1, "reason": wrong, "step": 300}),
    (1, 12, {"seed": 0, "margin": 2.5, "step": 600}),
    (0, 9, {"seed": 1, "margin": -0.4, "reason": wrong, "step": 300}),
    (None, 1000, {"seed": 2, "margin": None, "reason": "too large"}),
  ]
  rows = [
    without_length("certified", value, n=n, **{"reason": "right"} | more)
    for value, n, more in proofs
  ]
  found = {"a": (HEAD, [*seeds(90, 90, 90, step=600), *rows])}
  entries = [entry(), entry(run="b"), entry(stage="retrain")]
  text = markdown_report.page("T", "A", entries, found, source="others")
  (line,) = [line for line in text.splitlines() if "8*9" in line]
  assert [cell.strip() for cell in line.strip("|").split("|")] == [
    *("addition", "ABC", "1 of 3", "9 to 1,000", "-0.40 to 2.50"),
    "seed 1: wrong on 3 of 9 cases, the shortest: 8*9; seed 2: too large",
  ]
  assert "## Certificates" not in markdown_report.page(
    "T", "A", entries[1:], found
  )


def test_what_was_not_tested_is_not_as_expected():
  found = {"a": (HEAD, seeds(100, 100, 100))}
  text = markdown_report.page("T", "A", [entry(expect={60: (99, 100)})], found)
  assert "| not tested |" in text and "| yes |" not in text


def test_a_proof_is_of_the_run_that_has_it():
  proof = without_length("certified", 1, n=9, reason="right", seeds_asked=1)
  exact_rows = [row(seeds_asked=1, run=name) for name in "ab"]
  lines = summary.lines([*exact_rows, proof | {"run": "a"}])
  assert [line.proof for line in lines] == [" ∀", ""]


def test_a_page_explains_the_hard_inputs_that_it_shows():
  hard = seeds(90, 90, 90, test_set="chain_2", stress=True)
  found = {"a": (HEAD, [*seeds(100, 100, 100), *hard])}
  text = markdown_report.page(
    "T", "A", [entry(paper={6: 7})], found, source="others"
  )
  assert "`chain_` one carry" in text and "`zeros`" not in text
  assert "| addition | ABC | others | 7 |" in text


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


def test_a_page_refuses_mixed_conditions():
  rows = [*seeds(1, 2, 3), *seeds(4, 5, 6, slack=3)]
  with pytest.raises(UsageError, match="a, train, equal: rows of different"):
    markdown_report.page("T", "A", [entry()], {"a": (HEAD, rows)})


def shown(text: str) -> str:
  """A page but for its figures, which are not drawn again; what an HTML page
  shows."""
  if text.startswith("<"):
    return re.search(r'id="data">(.*?)</script>', text, re.S)[1]
  return re.sub(r"(## Figures\n\n)?!\[.*\n\n", "", text)


def test_committed_pages_are_those_of_committed_rows(launch, tmp_path):
  """Text for text; figures are there."""
  *_, book, _ = launch
  found = archive.read_all(DOCS / "rows")
  with pytest.MonkeyPatch.context() as patch:
    drawn = []

    def draw(name, entries, rows, folder, along):
      return drawn.append(name) or []

    patch.setattr(book.figures, "draw_table", draw)
    patch.setattr(book.comparison, "figure", lambda *_: None)
    patch.setattr(book.reach, "reach_figure", lambda *_: None)
    (tmp_path / "figures").symlink_to(DOCS / "figures")
    written = book.write(tmp_path, found)
  assert drawn
  names = {path.name for path in written}
  assert names == {path.name for path in DOCS.glob("*.*")}
  for path in written:
    text = (DOCS / path.name).read_text()
    for name in re.findall(r"\]\((figures/[^)]*)\)", text):
      assert (DOCS / name).exists(), name
    assert shown(text) == shown(path.read_text()), path.name


def test_the_readmes_tables_are_those_of_committed_rows(launch):
  headline = importlib.import_module("headline")
  text = (REPOSITORY / "README.md").read_text()
  found = archive.read_all(DOCS / "rows")
  assert headline.put(text, found) == text
  with pytest.raises(UsageError, match="has no <!-- end of tables"):
    headline.put(text.replace(headline.END, ""), found)
  names = {run.name for run in all_runs(launch[0])}
  for part in headline.PARTS:
    assert {run for _, _, run, _ in part.lines} <= names
  # A number of the rows is where a reader looks for it.
  line = next(x for x in text.splitlines() if x.startswith("| addition | van"))
  exact = [
    row["value"]
    for row in found["addition-abc"][1]
    if (row["stage"], row["length"], row["metric"], row.get("test_set"))
    == ("interpolate", 6, "em", "equal")
  ]
  median, worst = sorted(exact)[2], min(exact)
  assert f" {100 * median:.1f} ({100 * worst:.1f}) " in line


def test_commands_of_the_pages_parse_and_are_those_of_the_list(launch):
  listed, *_ = launch
  listed = {tuple(own) for run in all_runs(listed) for own in run.calls()}
  seen = set()
  for path in DOCS.glob("*.md"):
    for words in test_docs.commands("lengthgen", path.read_text()):
      seen.add(tuple(words))
  assert seen and seen <= listed
  assert any("--mode=certify" in own for own in seen)
  for words in sorted(seen)[:: len(seen) // 5]:  # they build, see above
    test_docs.check_command(words)


def test_kept_rows_name_no_machines_folders():
  for path in (DOCS / "rows").glob("*.jsonl"):
    assert "/tmp" not in path.read_text() and "/root" not in path.read_text()


# The command.


def test_a_kept_run_is_made_whole_where_its_results_are_not(launch, tmp_path):
  listed, tables, *_ = launch
  run, probes = listed.chosen(["inside"], "cpu")["sort-none-best"]
  job = tables.Job(run, {"run": run.name}, probes)
  assert probes and job.trains(tmp_path / "none")
  (tmp_path / "checkpoints").mkdir()  # it was cut off
  assert job.trains(tmp_path) and len(job.calls(tmp_path, True, [])) == 2
  (tmp_path / "results.jsonl").touch()
  assert not job.trains(tmp_path) and len(job.calls(tmp_path, False, [])) == 1
  assert tables.Job(run).trains(tmp_path)


def test_figures_of_probes_that_nobody_made_are_left_out(launch, tmp_path):
  listed, _, made, *_ = launch
  run, _ = listed.chosen(["sorting"], "cpu")["sort-none-best"]
  made.keep_figures(listed.TABLES, run, tmp_path, tmp_path / "results")
  assert not (tmp_path / "results").exists()


def test_what_was_never_trained_times_no_training(launch):
  listed, *_ = launch
  runs = list(listed.runs("theorem", "cpu").values())[:3]
  own = {"train": {"steps": 0}, "seeds": (0, 1, 2)}
  command = [f"--config={runs[0].config}"]
  head = {"config": own, "seconds": 20, "command": command}
  told = [listed.seconds(run, {runs[0].name: head}) for run in runs]
  assert told == [20, 20, None]


def test_bad_input_is_one_line(launch, capsys, tmp_path):
  _, tables, *_ = launch
  for words, wanted in (
    (["nope"], "no table 'nope'"),
    (["addition-ab", "--plan"], "or a run, like addition-abc"),
    ([], "name a table: abs"),
    (["--check", "parity-abc", "--plan"], "--check takes no tables"),
    (["abs", "--check", "parity-abc"], "--check takes no tables"),
    (["--check", "parity-abc", "--", "--x=1"], "--check takes no tables"),
    (["abs", "--size=huge"], "invalid choice: 'huge'"),
    (["abs", "--sise=cpu"], "unrecognized arguments"),
    (["--check", "parity-windo"], "close are parity-window"),
    (["--check", "sort-all", f"--results={tmp_path}"], "no rows of sort-all"),
  ):
    assert tables.main(words) == 1
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith("tables: ") and wanted in line and not said.out


def test_some_runs_are_certified_too(launch):
  listed, tables, *_ = launch
  certified = [run for run in all_runs(listed) if run.certify]
  assert {run.name for run in certified} == {
    f"{task}-window_cpi" for task in ("parity", "successor", "multiply")
  }
  for run in all_runs(listed):
    first, *more = run.calls("w")
    assert first == run.words("w")
    assert more == [["--mode=certify", "--workdir=w"]] * run.certify
  job = tables.Job(certified[0])
  assert len(job.calls("w", True, [])) == 2
  assert len(job.calls("w", True, ["--x=1"])) == 1


def test_a_run_is_chosen_by_its_name(launch):
  """Alone, and with the probes of the table that asks for them."""
  listed, *_ = launch
  for name in ("addition-abc", "sort-none-best"):
    (found,) = listed.chosen([name], "cpu").items()
    assert found[0] == found[1][0].name == name
  assert found[1][1] == listed.TABLES["inside"].probes
  (alone,) = listed.chosen(["sorting"], "cpu").keys() & {"sort-none-best"}
  assert listed.chosen(["sorting"], "cpu")[alone][1] == {}
  both = listed.chosen(["sorting", "inside"], "cpu")
  assert both[alone][1] and both["sort-none"][1]
  assert listed.chosen(["products"], "paper") == {}


def test_commands_of_the_index_parse(launch):
  _, tables, *_ = launch
  lines = test_docs.commands("python", (DOCS / "README.md").read_text())
  assert len(lines) > 3
  for script, *words in lines:
    assert script == "launch/tables.py"
    args = tables.parse(words)
    assert args.tables or args.check or args.pages


def test_flags_reach_every_run_and_a_failure_is_said(
  launch, monkeypatch, capsys, tmp_path
):
  listed, tables, _, _, sweep = launch
  seen = []

  def run(jobs):
    for workdir, words in jobs:
      seen.append(words)
      yield workdir, int("count" in workdir.name), 1.0

  monkeypatch.setattr(sweep, "run", run)
  flag = "--config.train.steps=3"
  where = [f"--root={tmp_path / 'runs'}", f"--results={tmp_path / 'docs'}"]
  assert tables.main(["hints", *where, "--", flag]) == 1
  said = capsys.readouterr()
  assert len(seen) == 7 and all(words[-1] == flag for words in seen)
  assert said.err == (
    "tables: failed: sort-count; the same command tries again\n"
  )
  assert "== 7 of 7" in said.out and not (tmp_path / "docs").exists()


def test_a_pipeline_begins_with_the_first_stage_of_another(launch, tmp_path):
  listed, _, made, *_ = launch
  first, *others = listed.runs("ablation", "cpu").values()
  source = tmp_path / first.name
  (source / "interpolate").mkdir(parents=True)
  steps = [{"step": 9, "seed": seed, "seconds": 2.0} for seed in (0, 1)]
  records.write(source / "interpolate" / "metrics.jsonl", steps)
  (source / "config.json").write_text(made.config(first).to_json_best_effort())
  made.share(others[0], tmp_path / others[0].name)
  assert not (tmp_path / others[0].name).exists()  # it is not past it
  (source / "calibrate").mkdir()
  (source / "calibrate" / "bias.npz").touch()
  for run in others:
    workdir = tmp_path / run.name
    made.share(run, workdir)
    copied = records.read(workdir / "interpolate" / "metrics.jsonl")
    assert list(copied) == steps
    assert [x["seconds"] for x in records.read(workdir / "wall.jsonl")] == [2.0]
    # A call that was killed has left its steps alone; one that ended, its time.
    assert made.took(workdir) == 2.0
    own = [{"step": step, "seed": 0, "seconds": 4.0} for step in (5, 9)]
    (workdir / "retrain").mkdir()
    records.write(workdir / "retrain" / "metrics.jsonl", own)
    assert made.took(workdir) == 10.0
    made.add_seconds(workdir, 9.0)
    assert made.took(workdir) == 11.0
    assert not {"config.json", "part"} & {x.name for x in workdir.iterdir()}
    assert (workdir / "interpolate" / made.LENDER).read_text() == first.name
  (parity,) = listed.chosen(["parity-abc"], "cpu").values()
  more = first._replace(fields=first.fields | {"seeds": (0, 1)})
  wider = first._replace(fields=first.fields | {"model.emb_dim": 32})
  for run in (parity[0], more, wider, first._replace(mode="train")):
    made.share(run, tmp_path / "other")
    assert not (tmp_path / "other").exists()


TINY = {"seeds": (0, 1), "eval.lengths": (2,), "eval.samples": (64,)}


PROBES = {
  "probe.only": ("intact", "without_head"),
  "probe.samples": 32,
  "probe.figures": ("heads",),
}


@pytest.fixture
def tiny_table(launch, monkeypatch):
  """One table of one run, the one of the fixture `trained`, and runs in this
  process."""
  listed, _, made, _, sweep = launch
  own = listed.Row(
    "addition", "+w=1", "tests/tiny.py:addition,window_cpi", {6: 100}
  )
  table = listed.Table("Tiny", "About.", [own], {"cpu": (0, 1), "paper": (0,)})
  probed = table._replace(probes=PROBES)
  tables = {"tiny": table, "probed": probed}
  monkeypatch.setattr(listed, "TABLES", tables)
  monkeypatch.setattr(listed, "tests", lambda *_: TINY)
  monkeypatch.setattr(made, "source", lambda: "a")

  def run(jobs):
    for workdir, words in jobs:
      done = command.inside(*words)
      yield workdir, done.returncode, 7000.0

  monkeypatch.setattr(sweep, "run", run)
  return launch


def test_a_table_is_filled_kept_skipped_and_checked(
  tiny_table, tmp_path, capsys, monkeypatch
):
  listed, tables, made, *_ = tiny_table
  where = [f"--root={tmp_path / 'runs'}", f"--results={tmp_path / 'docs'}"]
  assert tables.main(["tiny", "--plan", *where]) == 0
  assert "1 runs, 1 to do (never timed)" in capsys.readouterr().out
  assert tables.main(["tiny", *where]) == 0
  said = capsys.readouterr().out
  assert "1 of 1" in said and str(tmp_path / "docs" / "tiny.md") in said
  name = "addition-window_cpi"
  head, rows = archive.read(tmp_path / "docs" / "rows" / f"{name}.jsonl")
  assert head["seconds"] == 7000 and head["source"] == "a"
  assert {one["metric"] for one in rows} == {"em"} and len(rows) == 2
  median = sum(100 * one["value"] for one in rows) / 2
  assert f"{median:.1f}" in (tmp_path / "docs" / "tiny.md").read_text()
  # A table that looks inside asks for the probes alone.
  assert tables.main(["probed", *where]) == 0
  assert "1 of 1" in capsys.readouterr().out
  old, more = archive.read(tmp_path / "docs" / "rows" / f"{name}.jsonl")
  assert old == head and [x for x in more if not archive.is_probe(x)] == rows
  intact = [x["value"] for x in records.of_metric(more, "intact")]
  cell = comparison.table({"ours": records.of_metric(more, "intact")})[1][2]
  assert len(intact) == 2 and cell.startswith(f"{50 * sum(intact):.1f}")
  assert cell in (tmp_path / "docs" / "probed.md").read_text()
  # Again: nothing to do. After a change of the preset: made again.
  assert tables.main(["tiny", *where]) == 0
  assert "nothing left to do" in capsys.readouterr().out
  other = monkeypatch.context()
  with other as patch:
    patch.setattr(listed, "tests", lambda *_: TINY | {"train.steps": 601})
    assert tables.main(["tiny", "--plan", *where]) == 0
    said = capsys.readouterr().out
    assert "made again: train.steps=600, now 601" in said
    assert "about 1 h 56 min" in said
    (run,) = listed.runs("tiny", "cpu").values()
    workdir = tmp_path / "runs" / "cpu" / name
    made.set_aside(run, workdir)  # what is there is of the earlier config
    assert not workdir.exists() and workdir.with_name(f"{name}.old0").exists()
  # A stranger's check: the same to the bit, or not.
  assert tables.main(["--check", name, *where]) == 0
  assert f"{name}: agrees, compared to the bit" in capsys.readouterr().out
  head["machine"] = "elsewhere"
  head["versions"]["jax"] = "0"
  planted = [one | {"correct": 63, "value": 63 / 64} for one in rows]
  archive.keep(tmp_path / "docs" / "rows" / f"{name}.jsonl", planted, head)
  assert tables.main(["--check", name, *where]) == 1
  said = capsys.readouterr().out
  assert "in range (another machine, another version of jax)" in said
  assert "outside of the kept seeds' 98.4 to 98.4 %" in said
