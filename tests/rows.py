"""This module has result rows that nobody measured, for tests of what is made
of rows."""

from lengthgen_jax.evaluation import measures
from lengthgen_jax.results import records

TEXTS = """
task=addition method=vanilla stage=train family=encoder_decoder test_set=equal
unit=digits width=natural train_data=endless checkpoint=last normalizer=softmax
config_hash=0badcafe version=1
"""
NUMBERS = {"length": 6, "slack": 2, "train_length": 6, "seed": 0}
NUMBERS |= {"eval_seed": 0, "seeds_asked": 1, "step": 500, "stopped_at": -1}
CONDITIONS = dict(text.split("=") for text in TEXTS.split()) | NUMBERS
CONDITIONS |= dict.fromkeys(("bits", "position"))
CONDITIONS |= dict.fromkeys(("leak", "segments", "prune"), False)


def row(correct=100, **fields) -> dict:
  """Returns a row of exact match, with `correct` of 100 samples right."""
  measured = measures.success_row("em", correct, 100)
  return CONDITIONS | measured | {"seeds_asked": 3} | fields


def seeds(*correct, **fields) -> list[dict]:
  """Returns a row for each of the seeds 0, 1, ..., with so many of 100 samples
  right."""
  return [row(n, seed=seed, **fields) for seed, n in enumerate(correct)]


def logged(folder) -> list[dict]:
  """Returns the rows of a folder's metrics.jsonl, without their times, sorted
  by seed and step."""
  rows = records.read(folder / "metrics.jsonl")
  rows = [{k: v for k, v in row.items() if k != "seconds"} for row in rows]
  return sorted(rows, key=lambda row: (row["seed"], row["step"]))


def without_length(metric: str, value, **fields) -> dict:
  """Returns a row of the frontier or of a certificate."""
  empty = dict.fromkeys(("length", "lower_bound", "correct"))
  return row() | empty | {"metric": metric, "value": value} | fields


def frontier(value, seed, bound=60, **fields) -> dict:
  """Returns a row of the frontier of a seed, looked for up to `bound`."""
  fields = {"bound": bound, "tried": [[6, 300, 300]], "n": 299} | fields
  return without_length("frontier", value, seed=seed, **fields)


# A certificate that is undecided, and one of a model that is proved.
CERTIFIED = without_length(
  "certified", None, test_set=None, margin=0.25, reason="over budget"
)
PROVED = CERTIFIED | {"value": 1}
