"""Rows: one vocabulary, and never two conditions in one cell of a table."""

import pandas as pd
import pytest
from command import refuses
from rows import CERTIFIED, PROVED, row, seeds
from scipy import special

from lengthgen_jax.evaluation import measures
from lengthgen_jax.results import records, summary, tables

INSIDE = ("part", "layer", "head", "line")  # where in a model a probe looks


def of_addition(rows) -> pd.DataFrame:
  return tables.named(tables.cells_of_task(rows, "addition"))


# Rows and their files.


def test_rows_that_differ_in_a_key_field_are_both_kept(tmp_path):
  for field in records.KEY:
    path = tmp_path / f"{field}.jsonl"
    records.merge(path, [row(), row() | {field: 0 if field in INSIDE else "?"}])
    records.merge(path, [row(n=1)])
    assert len(records.read_results(path)) == 2, field


def test_rows_are_replaced_by_key(tmp_path):
  path = tmp_path / "results.jsonl"
  other, new = row(eval_seed=1), row(40, n=7, seeds_asked=9)
  records.merge(path, [row(30), other, CERTIFIED])
  records.merge(path, [new, CERTIFIED])
  assert records.read(path) == [other, new, CERTIFIED]
  assert not list(tmp_path.glob("*.new"))


def test_a_certificate_replaces_all_earlier_ones_of_its_parameters(tmp_path):
  """Whatever the version and the seed of tests: what is withdrawn no longer
  counts."""
  path = tmp_path / "results.jsonl"
  records.merge(path, [row(), PROVED])
  withdrawn = PROVED | {"value": 0, "version": "2", "eval_seed": 5}
  records.merge(path, [withdrawn])
  assert records.read_results(path) == [row(), withdrawn]


def test_a_file_of_another_version_is_one_line(tmp_path):
  path, old_row = tmp_path / "results.jsonl", row() | {"old": 1}
  records.write(path, [row(), old_row])
  with refuses(str(path), "line 2"):
    records.merge(path, [row()])
  assert records.read(path) == [row(), old_row]


def test_a_torn_line_ends_a_log(tmp_path):
  path = tmp_path / "metrics.jsonl"
  rows = [{"step": n, "seed": seed} for n in (1, 2) for seed in (0, 1)]
  torn = lambda: path.write_text(path.read_text() + '{"st')
  records.write(path, rows)
  torn()
  assert records.read(path) == rows
  records.drop_after(path, {0: 1, 1: 2})  # seeds may be at different steps
  remaining = [rows[0], rows[1], rows[3]]
  assert records.read(path) == remaining
  torn()
  records.drop_after(path, {0: 9, 1: 9})  # as before every log goes on
  records.append(path, [{"step": 3, "seed": 0}])
  assert records.read(path) == [*remaining, {"step": 3, "seed": 0}]
  assert records.read(tmp_path / "none") == []


def test_a_damaged_line_loses_none_of_the_others(tmp_path):
  path = tmp_path / "results.jsonl"
  records.write(path, seeds(1, 2, 3))
  first, *others = path.read_text().splitlines()
  text = "\n".join([first, "<<<<<<< HEAD", *others, ""])
  path.write_text(text)
  for use in (records.read, lambda path: records.merge(path, [row(4)])):
    with refuses("line 2 is damaged"):
      use(path)
  assert path.read_text() == text
  path.write_bytes(b"\xff\xfe")
  with refuses("cannot be read"):
    records.read(path)


def test_rows_of_more_samples_stay_unless_they_are_to_be_replaced(tmp_path):
  path = tmp_path / "results.jsonl"
  many, few, other = row(n=1000), row(n=300, value=0.1), row(n=300, length=7)
  records.merge(path, [many])
  merged = records.merge(path, [few, other], keep_larger=True)
  assert merged == [many, other] == records.read(path)
  more = row(n=2000, value=0.2)
  assert records.merge(path, [more], keep_larger=True) == [more]
  assert records.merge(path, [few]) == [few]
  assert records.read(path) == [other, few]
  # A search up to another bound is another condition.
  searches = [row(metric="frontier", n=n, bound=n) for n in (299, 99)]
  for search in searches:
    assert records.merge(path, [search], keep_larger=True) == [search]
  assert searches[0] not in records.read(path)


# Cells: rows pooled over seeds.


def names(rows, **options) -> list[str]:
  """The names of the curves of exact match, in their order."""
  return list(summary.cells(rows, **options).drop_duplicates("curve")["name"])


SHOWN = "length", "bits", "metric", "bound"


@pytest.mark.parametrize("field", sorted({*records.CONDITIONS} - {*SHOWN}))
def test_another_condition_is_another_curve_with_another_name(field):
  values = {"leak": True, "step": 700, "eval_seed": 1, "train_length": 8}
  other = {field: values.get(field, "another")}
  rows = seeds(1, 2, 3) + seeds(4, 5, 6, **other)
  cells = summary.cells(rows, shown=())
  assert list(cells["values"]) == [[0.01, 0.02, 0.03], [0.04, 0.05, 0.06]]
  assert cells["name"].nunique() == 2
  # A condition that a reader sees beside the name is not in it, but for these.
  first, second = names([row(), row(**other)], shown=(field,))
  always = ("method", "stage", "leak", "eval_seed", "checkpoint")
  assert (first == second) == (field not in always)


def test_every_seed_has_its_own_best_step():
  best = lambda *steps: [
    row(step, seed=seed, step=step, checkpoint="best")
    for seed, step in enumerate(steps)
  ]
  # Trained on, seeds 1 and 2 got better: each counts once, as it was last.
  (cell,) = summary.cells(best(3, 5, 4) + best(3, 8, 7)[1:]).itertuples()
  assert cell.name == "vanilla (checkpoint best)" and cell.asked == "3"
  assert cell.values == [0.03, 0.08, 0.07]
  # Some seeds need no finetuning.
  steps = enumerate((600, 900, 600))
  finetuned = [row(seed=r, step=step, stage="finetune") for r, step in steps]
  assert names(finetuned) == ["vanilla (finetune)"]


def test_the_last_certificate_of_a_seed_of_a_run_counts():
  rows = [one | {"run": run} for run in "ab" for one in seeds(100, 100, 100)]
  by = lambda seed, **fields: PROVED | {"seed": seed, "run": "a"} | fields

  def proofs(*proofs):
    return [*map(tables.proof, summary.cells([*rows, *proofs]).itertuples())]

  assert proofs(by(0), by(1)) == [" ∀ 2 of 3", ""]
  assert proofs(*(by(s) for s in range(3))) == [" ∀", ""]
  # What is withdrawn, undecided or not tried no longer counts.
  for value in (0, None):
    withdrawn = by(0) | {"value": value, "version": "2"}
    assert proofs(by(0), withdrawn) == ["", ""]


# Tables.


def lines_of(rows) -> list[list[str]]:
  """The words of the lines of a run's table, without its head."""
  return [line.split() for line in tables.run_table(rows).splitlines()[3:]]


def test_table_has_a_line_per_seed_and_the_median():
  rows = [*seeds(80, 100, 90), CERTIFIED, *seeds(1, 2, 3, stress=True)]
  rows[-3:] = [x | {"test_set": "zeros"} for x in rows[-3:]]
  head = tables.run_table(rows)
  assert head.startswith("addition: exact match in % by length in digits;")
  shown = [line[:4] for line in lines_of(rows)]
  cells = [("0", "80.0"), ("1", "100.0"), ("2", "90.0"), ("median", "90.0")]
  assert shown == [
    *(["vanilla", "equal", *pair] for pair in cells),
    ["vanilla", "zeros", "median", "2.0"],
  ]
  bits = tables.run_table([row(bits=20), row(length=60, bits=200)])
  assert "in digits (bits);" in bits and "60 (200)" in bits
  assert tables.run_table([CERTIFIED]) == "no exact match was measured"


def test_tables_say_how_many_of_the_seeds():
  """ABC's survivors are not taken for all of its seeds."""
  vanilla = seeds(0, 0, 0, 0, 0, seeds_asked=5)
  abc = seeds(100, 90, method="abc", stage="retrain", seeds_asked=5)
  text = tables.run_table(vanilla + abc)
  assert "each, 2 of 5 seeds" in text and text.count("median") == 1
  table = of_addition(vanilla + abc)
  assert list(table["seeds"]) == ["2 of 5", "5"]
  rows = [*seeds(50, 60), row(50, length=9), row(0, length=9, seed=1)]
  rows[-1]["value"] = None  # no result: neither a zero nor silent
  table = of_addition(rows)
  assert table["9"][0] == "50.0 [41.4] of 1"


# Measurements.


def test_edit_distance_is_levenshtein():
  """The last two are a transposition, and a shift with a change."""
  known = ["kitten sitting 3", "saturday sunday 3", "ab ba 2", "12345 2346 2"]
  distance = lambda a, b: measures.edit_distance([*a], [*b])
  for a, b, edits in map(str.split, known):
    assert distance(a, b) == distance(b, a) == int(edits)
    assert distance(a, a) == 0
    assert distance(a, "") == distance("", a) == len(a)


def test_lower_bound_is_clopper_pearson():
  bound = measures.lower_bound
  assert bound(51, 51) == pytest.approx(0.943, abs=5e-4)
  assert bound(0, 10) == 0.0
  for correct, n in ((1, 1), (1, 10), (37, 50), (999, 1000), (1000, 1000)):
    # At the bound, so many successes have a probability of 5 %.
    tail = special.bdtrc(correct - 1, n, bound(correct, n))
    assert tail == pytest.approx(0.05)
