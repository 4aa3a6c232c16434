"""Result rows that nobody measured, for tests of what is made of rows."""

from lengthgen_jax.evaluation import measures
from lengthgen_jax.results import records

CONDITIONS = {
  "task": "addition",
  "method": "vanilla",
  "stage": "train",
  "family": "encoder_decoder",
  "test_set": "equal",
  "length": 6,
  "bits": None,
  "unit": "digits",
  "position": None,
  "width": "natural",
  "slack": 2,
  "train_length": 6,
  "train_data": "endless",
  "seed": 0,
  "eval_seed": 0,
  "seeds_asked": 1,
  "step": 500,
  "checkpoint": "last",
  "stopped_at": -1,
  "leak": False,
  "normalizer": "softmax",
  "segments": False,
  "config_hash": "0badcafe",
  "version": "1",
}


def row(correct=100, **fields) -> dict:
  """Exact match in % of 100 samples."""
  measured = measures.success_row("em", correct, 100)
  return CONDITIONS | measured | {"seeds_asked": 3} | fields


def seeds(*correct, **fields) -> list[dict]:
  """A row for each seed, with so many correct."""
  return [row(n, seed=seed, **fields) for seed, n in enumerate(correct)]


def logged(folder) -> list[dict]:
  """Rows of metrics.jsonl without the time they took, seed by seed."""
  rows = records.read(folder / "metrics.jsonl")
  rows = [{k: v for k, v in row.items() if k != "seconds"} for row in rows]
  return sorted(rows, key=lambda row: (row["seed"], row["step"]))


def without_length(metric: str, value, **fields) -> dict:
  """A row of the frontier or of a certificate."""
  empty = dict.fromkeys(("length", "lower_bound", "correct"))
  return row() | empty | {"metric": metric, "value": value} | fields


def frontier(value, seed, bound=60, **fields) -> dict:
  """The longest length that is right, looked for up to `bound`."""
  fields = {"bound": bound, "tried": [[6, 300, 300]], "n": 299} | fields
  return without_length("frontier", value, seed=seed, **fields)


CERTIFIED = without_length(
  "certified", None, test_set=None, margin=0.25, reason="over budget"
)
PROVED = CERTIFIED | {"value": 1, "checkers": list(records.CHECKERS)}
