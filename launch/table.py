"""A table is data: its rows, and the exact match that is expected of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

SIZES = ("cpu", "paper")
FIVE = {"cpu": (0, 1, 2, 3, 4), "paper": (0,)}  # seeds, by size
NONE, ALL = (0, 1), (99, 100)  # of exact match, in %


class Row(NamedTuple):
  """A row of a table is one stage of one run.

  Attributes:
    task, model: the names that the paper gives them.
    config: FILE:PRESET of the run on two cores; at the paper's size `,paper` is
      added.
    paper: the paper's exact match in %, by length; text where it is no number.
    expect: the least and the greatest exact match in % that is expected of our
      median seed on two cores, by length.
    fields: {field: value} of the config's overrides, except for those that say
      how the run is tested.
    stage: "train", or the stage of a pipeline.
    sizes: those at which the row exists, of SIZES.
    value: of the field that the table's figure is drawn against.
    certify: whether a run of one stage is certified too on two cores, because
      it has few cases.
  """

  task: str
  model: str
  config: str
  paper: dict[int, float | str] = {}
  expect: dict[int, tuple[float, float]] = {}
  fields: dict[str, Any] = {}
  stage: str = "train"
  sizes: tuple[str, ...] = SIZES
  value: float | None = None
  certify: bool = False


class Table(NamedTuple):
  """A table is a list of rows with a page of its own.

  Attributes:
    title: of the page.
    about: a paragraph that says what the paper does and what we do.
    rows: in the order of the paper.
    seeds: by size.
    along: the numeric config field that the figure is drawn against, "" for
      none.
    figures: (caption, run, path in its workdir) of the figures of runs that the
      page shows.
    probes: {field: value} of the `--mode=probe` that follows every run, whose
      rows are archived too; {} if there is none.
    source: the name of those whose numbers stand beside ours.
  """

  title: str
  about: str
  rows: list[Row]
  seeds: dict[str, tuple[int, ...]] = {"cpu": (0, 1, 2), "paper": (0,)}
  along: str = ""
  figures: tuple[tuple[str, str, str], ...] = ()
  probes: dict[str, Any] = {}
  source: str = "paper"


def by_length(
  *values: float | str, lengths: Sequence[int] = (6, 10, 15, 20, 60)
) -> dict[int, float | str]:
  """Returns {length: value}; by default the lengths are the papers'."""
  return dict(zip(lengths, values, strict=True))


# The stages of --mode=abc that have rows, and the names of their models.
STAGES = {
  "interpolate": "vanilla",
  "retrain": "ABC",
  "certify": "ABC, certified",
}


def pipeline(
  task: str,
  config: str,
  paper: dict[str, dict],
  expect: dict[str, dict],
  stages: Sequence[str] = (*STAGES,),
  **row_fields: Any,
) -> list[Row]:
  """Returns a row for each stage of a run of --mode=abc.

  Args:
    task, config: as in Row.
    paper, expect: by stage, then as in Row.
    stages: of STAGES.
    **row_fields: further fields of all rows.
  """
  return [
    Row(
      *(task, STAGES[stage], config),
      *(paper.get(stage, {}), expect.get(stage, {})),
      stage=stage,
      **row_fields,
    )
    for stage in stages
  ]
