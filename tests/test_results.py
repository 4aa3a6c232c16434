"""Rows: one vocabulary, never two conditions in one cell or point."""

import json

import numpy as np
import pytest
from rows import CERTIFIED, CONDITIONS, row, seeds
from scipy import stats

from lengthgen_jax.errors import UsageError
from lengthgen_jax.evaluation import measures
from lengthgen_jax.pipelines import report
from lengthgen_jax.results import figures as plots
from lengthgen_jax.results import records, summary, tables

# The vocabulary.


def test_every_condition_and_the_seeds_own_make_a_row_unique():
  assert set(records.KEY) - set(records.CONDITIONS) == {"seed", "stopped_at"}
  assert set(records.CONDITIONS) - set(records.KEY) == {"run", "bound"}
  inside = {"part", "layer", "head", "line"}  # of a model, in rows of probes
  known = set(CONDITIONS) - {"seeds_asked"} | {"metric"} | inside
  assert set(records.KEY) == known
  assert records.key(row()) == records.key(row(**dict.fromkeys(inside)))
  for name in inside:
    assert records.key(row(**{name: 1})) != records.key(row(**{name: 0}))
  assert records.flaw(row()) == records.flaw(CERTIFIED) == ""


@pytest.mark.parametrize("field", records.KEY)
def test_rows_that_differ_in_a_key_field_are_both_kept(field, tmp_path):
  path = tmp_path / "results.jsonl"
  records.merge(path, [row()])
  records.merge(path, [row() | {field: "another"}])
  assert len(records.read_results(path)) == 2


def test_rows_are_replaced_by_key(tmp_path):
  path = tmp_path / "results.jsonl"
  other = row(eval_seed=1)
  records.merge(path, [row(30), other, CERTIFIED])
  records.merge(path, [row(40, n=7, seeds_asked=9), CERTIFIED])
  assert records.read(path) == [other, row(40, n=7, seeds_asked=9), CERTIFIED]
  assert not list(tmp_path.glob("*.new"))


def test_fields_outside_the_schema_are_refused(tmp_path):
  path = tmp_path / "results.jsonl"
  with pytest.raises(ValueError, match="unknown colour"):
    records.merge(path, [row() | {"colour": "red"}])
  lacking = row()
  del lacking["unit"]
  with pytest.raises(ValueError, match="lacks unit"):
    records.merge(path, [lacking])
  assert not path.exists()


def test_a_file_of_another_version_is_one_line(tmp_path):
  path = tmp_path / "run" / "results.jsonl"
  for old in ({"method": "vanilla"}, row() | {"old": 1}, 3):
    records.write(path, [row(), old])
    for use in (
      lambda: records.merge(path, [row()]),
      lambda: report.write_report(tmp_path),
    ):
      with pytest.raises(UsageError) as error:
        use()
      text = str(error.value)
      assert str(path) in text and "line 2" in text and "\n" not in text
    assert records.read(path) == [row(), old]


def test_a_torn_line_ends_a_log(tmp_path):
  path = tmp_path / "metrics.jsonl"
  rows = [{"step": n, "seed": seed} for n in (1, 2) for seed in (0, 1)]
  records.write(path, rows)
  path.write_text(path.read_text() + '{"st')
  assert records.read(path) == rows
  records.drop_after(path, {0: 1, 1: 2})  # seeds may be at different steps
  assert records.read(path) == [rows[0], rows[1], rows[3]]
  assert records.read(tmp_path / "none") == []
  path.write_text(path.read_text() + '{"st')
  records.append(path, [{"step": 3, "seed": 0}])
  assert records.read(path) == [
    rows[0],
    rows[1],
    rows[3],
    {"step": 3, "seed": 0},
  ]


def test_a_damaged_line_loses_none_of_the_others(tmp_path):
  path = tmp_path / "results.jsonl"
  records.write(path, seeds(1, 2, 3))
  lines = path.read_text().splitlines()
  text = "\n".join([lines[0], "<<<<<<< HEAD", *lines[1:], ""])
  path.write_text(text)
  for use in (records.read, lambda path: records.merge(path, [row(4)])):
    with pytest.raises(UsageError, match="line 2 is damaged"):
      use(path)
  assert path.read_text() == text
  path.write_bytes(b"\xff\xfe")
  with pytest.raises(UsageError, match="cannot be read"):
    records.read(path)


# Groups.


def pools(group) -> dict:
  """{length: {seed: step}} of a group; no seed is there twice."""
  found = {}
  for one in group.rows:
    there = found.setdefault(one["length"], {})
    assert one["seed"] not in there
    there[one["seed"]] = one["step"]
  return found


@pytest.mark.parametrize(
  "field", [f for f in records.CONDITIONS if f not in ("length", "bits")]
)
def test_another_condition_is_another_line_with_another_name(field):
  values = {"leak": True, "step": 700, "eval_seed": 1, "train_length": 8}
  other = {field: values.get(field, "another")}
  found = summary.pool(seeds(1, 2) + seeds(3, 4, **other))
  assert [len(group.rows) for group in found] == [2, 2]
  assert len({group.name for group in found}) == 2
  beside = summary.pool([row(), row(**other)], shown=(field,))
  always = ("method", "stage", "leak", "eval_seed", "checkpoint")
  assert (beside[0].name == beside[1].name) == (field not in always)


def test_bits_follow_from_the_length():
  found = summary.pool([row(length=6, bits=20), row(length=60, bits=200)])
  assert len(found) == 1


def test_seeds_that_stopped_by_themselves_share_a_line():
  found = summary.pool([row(seed=s, stopped_at=100 * s) for s in range(3)])
  assert len(found) == 1 and found[0].seed_count == "3"
  assert found[0].name == "vanilla"


def test_a_row_written_twice_counts_once():
  (group,) = summary.pool([row(10), row(20), row(30, seed=1)])
  assert [one["correct"] for one in group.rows] == [20, 30]


def test_best_steps_are_the_seeds_own():
  best = lambda seed, step, **fields: row(
    seed=seed, step=step, checkpoint="best", **fields
  )
  (group,) = summary.pool([best(0, 300), best(1, 500), best(2, 400)])
  assert group.name == "vanilla (checkpoint best)" and group.seed_count == "3"
  # Trained on, seeds 1 and 2 got better: each counts once, as it was last.
  first = [best(seed, step) for seed, step in enumerate((3, 5, 4))]
  (group,) = summary.pool(first + [best(1, 8), best(2, 7)])
  assert pools(group) == {6: {0: 3, 1: 8, 2: 7}}


def test_name_says_what_is_not_as_usual():
  assert summary.model_name(row()) == "vanilla"
  marked = row(stage="retrain", checkpoint="best", eval_seed=1, leak=True)
  assert (
    summary.model_name(marked)
    == "vanilla (retrain, checkpoint best, eval.seed 1) LEAK"
  )


# Tables.


def test_table_has_a_line_per_seed_and_the_median():
  text = tables.run_table([*seeds(80, 100, 90), CERTIFIED]).splitlines()
  assert text[0].startswith("addition: exact match in % by length in digits;")
  names = [line.split()[:4] for line in text[3:]]
  wanted = [("0", "80.0"), ("1", "100.0"), ("2", "90.0"), ("median", "90.0")]
  assert names == [["vanilla", "equal", *pair] for pair in wanted]
  bits = tables.run_table([row(bits=20), row(length=60, bits=200)])
  assert "in digits (bits);" in bits and "60 (200)" in bits
  assert tables.run_table([CERTIFIED]) == "no exact match was measured"


def test_evaluations_at_two_steps_share_no_cell():
  """Evaluated at step 500, trained on, evaluated at step 700."""
  both = seeds(0, 20, 40) + seeds(100, 90, 100, step=700, stopped_at=600)
  lines = tables.run_table(both).splitlines()[3:]
  assert [line.split()[1:] for line in lines if "median" in line] == [
    ["step", "500", "equal", "median", "20.0"],
    ["step", "700", "equal", "median", "100.0"],
  ]
  assert len(lines) == 8
  _, *cells = tables.runs_grid([one | {"run": "a"} for one in both])
  assert [cell[1] for cell in cells] == [
    f"vanilla, step {n}" for n in (500, 700)
  ]
  assert cells[0][5:] == ["3", "20.0 (worst 0.0) [0.0]"]
  assert cells[1][-1].startswith("100.0 (worst 90.0) [8")


def test_tables_say_how_many_of_the_seeds():
  """That ABC's survivors are not taken for all of its seeds."""
  vanilla = seeds(0, 0, 0, 0, 0, seeds_asked=5)
  abc = seeds(100, 90, method="abc", stage="retrain", seeds_asked=5)
  text = tables.run_table(vanilla + abc)
  assert "median, 2 of 5 seeds" in text and text.count("median") == 2
  one = tables.run_table(abc[:1])
  assert "median, 1 of 5 seeds" in one
  assert "median" not in tables.run_table([row(seeds_asked=1)])
  _, *lines = tables.runs_grid(vanilla + abc)
  assert "2 of 5" in lines[0] and "abc (retrain)" in lines[0]
  assert "5" in lines[1]


def test_a_cell_says_which_seeds_it_lacks():
  found = [*seeds(50, 60), row(50, length=9), row(0, length=9, seed=1)]
  found[-1]["value"] = None  # no result: neither a zero nor silent
  assert tables.runs_grid(found)[1][-1] == "50.0 [41.4] of 1"


def test_columns_widen():
  method = "vanilla bias.kind=file bias.file=some/where/bias.npz"
  lines = tables.run_table(
    seeds(1, 2) + seeds(3, 4, method=method)
  ).splitlines()
  assert len({len(line) for line in lines[2:]}) == 1
  assert len({line.index("equal") for line in lines[3:]}) == 1


# Statistics.


def plain_edit_distance(a, b) -> int:
  """Levenshtein by the textbook."""
  table = np.zeros((len(a) + 1, len(b) + 1), int)
  table[:, 0] = np.arange(len(a) + 1)
  table[0] = np.arange(len(b) + 1)
  for i in range(1, len(a) + 1):
    for j in range(1, len(b) + 1):
      table[i, j] = min(
        table[i - 1, j] + 1,
        table[i, j - 1] + 1,
        table[i - 1, j - 1] + (a[i - 1] != b[j - 1]),
      )
  return int(table[-1, -1])


def test_edit_distance_is_levenshtein():
  random = np.random.default_rng(0)
  for _ in range(200):
    a, b = (random.integers(0, 3, random.integers(0, 9)) for _ in "ab")
    assert measures.edit_distance(a, b) == plain_edit_distance(a, b)
  assert measures.edit_distance([], [1, 2]) == 2
  assert measures.edit_distance([1, 2], []) == 2


def test_until_end():
  assert measures.until_end(np.array([1, 2, 9, 3]), 9) == [1, 2]
  assert measures.until_end(np.array([1, 2]), 9) == [1, 2]


def test_lower_bound_is_clopper_pearson():
  bound = measures.lower_bound
  assert bound(51, 51) == pytest.approx(0.943, abs=5e-4)
  assert bound(299, 299) >= 0.99 > bound(298, 298)
  assert bound(0, 10) == 0.0
  for correct, n in ((1, 1), (1, 10), (37, 50), (999, 1000), (1000, 1000)):
    # At the bound, so many successes have a probability of 5 %.
    tail = stats.binom.sf(correct - 1, n, bound(correct, n))
    assert tail == pytest.approx(0.05)


def test_rows_of_measurements():
  token = np.array([[1, 1, 0], [1, 0, 0]], bool)
  worst = CONDITIONS | measures.by_position(token)
  assert worst["by_position"] == [1.0, 0.5, 0.0] and worst["value"] == 0.0
  assert worst["n"] == 2 and worst["teacher_forced"]
  token = CONDITIONS | measures.counted("token", 3, 6, teacher_forced=True)
  assert token["value"] == 0.5 and token["lower_bound"] is None
  edit = CONDITIONS | measures.measured("edit", 0.25, 9)
  assert edit["value"] == 0.25 and edit["correct"] is None
  assert not any(map(records.flaw, (worst, token, edit)))


# Figures.


@pytest.fixture
def drawn(monkeypatch):
  """Figures are handed back instead of saved."""
  monkeypatch.setattr(plots, "save", lambda figure, path: figure)
  yield
  plots.plt.close("all")


def curves(axis) -> dict:
  """{name: [(x, y)]} of the lines in a panel, the vertical ones left out."""
  return {
    line.get_label(): [tuple(map(round, point)) for point in line.get_xydata()]
    for line in axis.get_lines()
    if not line.get_label().startswith("_")
  }


def test_by_length_has_a_line_per_condition(drawn):
  found = seeds(0, 20, 40) + seeds(100, 90, 100, step=700)
  found += seeds(50, 60, method="abc", unit="items", train_length=8)
  found += seeds(70, test_set="unequal")
  figure = plots.by_length([*found, CERTIFIED], None, "title")
  equal, unequal = figure.axes
  assert curves(equal) == {
    "vanilla, step 500": [(6, 20.0)],
    "vanilla, step 700": [(6, 100.0)],
    "abc (2 of 3 seeds)": [(6, 55.0)],
  }
  assert curves(unequal)["vanilla, step 500"] == [(6, 70.0)]
  assert equal.get_xlabel() == "test length (digits or items)"
  assert len(equal.get_lines()) == 3 + 2  # the longest trained lengths
  assert [tick.get_text() for tick in equal.get_xticklabels()] == ["6"]


def test_by_repetition_tells_lengths_and_items_apart(drawn):
  found = [
    row(correct, length=length, unit="items", test_set=f"repeats_{k}x{times}")
    for correct, length, k, times in (
      (10, 8, 2, 1),
      (20, 8, 2, 4),
      (30, 9, 2, 4),
      (40, 8, 3, 4),
    )
  ]
  (axis,) = plots.by_times(found, None, "title", "em", "repetition").axes
  assert curves(axis) == {
    "vanilla, 8 items, test set repeats_2 (1 of 3 seeds)": [(1, 10), (4, 20)],
    "vanilla, 9 items (1 of 3 seeds)": [(4, 30)],
    "vanilla, 8 items, test set repeats_3 (1 of 3 seeds)": [(4, 40)],
  }


def test_what_a_test_set_is_drawn_against(drawn):
  found = [row(test_set=f"multiplicity_x{n}", unit="items") for n in (2, 4)]
  (axis,) = plots.by_times(found, None, "title", "em", "multiplicity").axes
  (points,) = curves(axis).values()
  assert [x for x, _ in points] == [2, 4]
  assert axis.get_xlabel() == "how often every value occurs"
  names = "equal", "repeats_3x2", "multiplicity_x2", "mean_multiplicity_x2"
  against = "length", "repetition", "multiplicity", "length"
  found = [plots.varied_by(row(test_set=name)) for name in names]
  assert tuple(found) == against
  assert plots.varied_by(row(test_set="chain_2", stress=True)) == "test_set"


def test_by_field_has_one_run_and_step_in_a_point(drawn):
  found = [
    one | {"size": size, "run": run, "config_hash": run}
    for size, run, ones in (
      (1, "a", seeds(10, 20, 30, step=500)),
      (9, "b", seeds(40, 50, 60, step=700)),
      (9, "b", seeds(70, 90, step=800)),  # trained on
      (9, "c", seeds(0, 0, step=300)),  # made like b, of fewer seeds
      (20, "d", seeds(5, 5, 5, version="2")),
    )
    for one in ones
  ]
  (axis,) = plots.by_field(found, None, "title", "size").axes
  assert curves(axis) == {
    # The last run at a point.
    "vanilla, version 1 (2 of 3 seeds)": [(1, 20), (9, 0)],
    "vanilla, version 2": [(20, 5)],
  }
  assert axis.get_title() == "test length: 6 digits"


# Reports.


def make_run(root, name: str, found, config):
  records.merge(root / name / "results.jsonl", found)
  records.write_text(root / name / "config.json", json.dumps(config))


def test_report_draws_numbers_that_were_varied(tmp_path, monkeypatch):
  """Between runs of one method, not what sets the methods apart."""
  made = {}

  def save(figure, path):
    made[path.name] = [line.get_label() for line in figure.axes[0].get_lines()]
    plots.plt.close(figure)
    records.write_text(path, "")
    return path

  monkeypatch.setattr(plots, "save", save)
  runs = [("a", 0, 32), ("a", 9, 32), ("b", 0, 64), ("b", 9, 64)]
  for i, (method, size, batch_size) in enumerate(runs):
    config = {
      "sequences": {"size": size, "buckets": [5, 9]},
      "retrain": {"train": {"batch_size": batch_size}},
      "eval": {"memory_mb": i},
    }
    found = seeds(i, 2, 3, method=method, config_hash=str(i), step=100 * i)
    make_run(tmp_path, f"run{i}", [*found, CERTIFIED], config)
  table = report.write_report(tmp_path)
  assert len(table.splitlines()) == 2 + len(runs)
  assert (tmp_path / "report.md").read_text() == table + "\n"
  assert set(made) == {
    "addition_natural_em_by_length.png",
    "addition_natural_equal_by_sequences.size.png",
  }
  by_length = made["addition_natural_em_by_length.png"]
  assert by_length[:4] == [f"{m}, run{i}" for i, (m, *_) in enumerate(runs)]
  by_size = made["addition_natural_equal_by_sequences.size.png"]
  assert by_size == ["a", "b"]


def test_report_names_what_else_differs(tmp_path, monkeypatch):
  """Words too: runs with another bias are not one line of a figure."""
  labels = {}

  def save(figure, path):
    lines = figure.axes[0].get_lines()
    labels[path.name] = [line.get_label() for line in lines]
    plots.plt.close(figure)
    return path

  monkeypatch.setattr(plots, "save", save)
  monkeypatch.setattr(report.html_report, "page", lambda *_: "")
  for i, (size, kind) in enumerate(((0, "a"), (9, "a"), (0, "b"), (9, "b"))):
    config = {"sequences": {"size": size}, "bias": {"kind": kind}}
    make_run(tmp_path, str(i), seeds(1, 2, 3), config)
  report.write_report(tmp_path)
  by_size = labels["addition_natural_equal_by_sequences.size.png"]
  assert by_size == ["vanilla, kind=a", "vanilla, kind=b"]
  assert len(labels) == 2  # words are no axis


def test_report_writes_figures_and_needs_rows(tmp_path):
  with pytest.raises(UsageError, match="no results.jsonl with exact match"):
    report.write_report(tmp_path)
  make_run(tmp_path, ".", [CERTIFIED], {})
  with pytest.raises(UsageError, match="no results.jsonl with exact match"):
    report.write_report(tmp_path)
  repeats = [row(test_set=f"repeats_3x{n}") for n in (1, 2)]
  make_run(tmp_path, ".", repeats, {})
  report.write_report(tmp_path)
  figures = {path.name for path in (tmp_path / "figures").iterdir()}
  name = "addition_natural_em_by_repetition"
  assert figures == {f"{name}.png"}


def test_a_certificate_replaces_all_that_were_made_before_it(tmp_path):
  """Whatever the version and the seed of tests: what is withdrawn no longer
  counts."""
  path = tmp_path / "results.jsonl"
  base = row(test_set=None, length=None, bits=None, lower_bound=None)
  certified = base | {"metric": "certified", "margin": 1.0, "reason": ""}
  kept = row()
  first = certified | {"value": 1, "version": "1"}
  records.merge(path, [kept, first])
  assert len(summary.proved(records.read_results(path))) == 1
  withdrawn = {"value": 0, "version": "2", "eval_seed": 5}
  records.merge(path, [certified | withdrawn])
  found = records.read_results(path)
  assert len(found) == 2 and not summary.proved(found)
  # Nor where both stand in one list, as rows of several files do.
  assert not summary.proved([first, certified | {"value": 0}])
