"""What a table is: rows, and what is expected of them."""

from typing import NamedTuple

SIZES = ("cpu", "paper")
FIVE = {"cpu": (0, 1, 2, 3, 4), "paper": (0,)}  # seeds, by size
NONE, ALL = (0, 1), (99, 100)  # of exact match, in %


class Row(NamedTuple):
  """A row of a table: one stage of one run.

  Attributes:
    task, model: as the paper calls them.
    config: FILE:PRESET of the run on two cores; the paper's has `,paper`.
    paper: what the paper has, in %, by length; text where it is no number.
    expect: least and most of our median seed on two cores, in %, by length.
    fields: what else the config says, but for how it is tested.
    stage: "train", or the stage of a pipeline.
    sizes: at which the row is there.
    value: of the field that the table's figure is drawn against.
    certify: whether the run, which has one stage, is certified too on two
      cores: where all cases are few.
  """

  task: str
  model: str
  config: str
  paper: dict = {}
  expect: dict = {}
  fields: dict = {}
  stage: str = "train"
  sizes: tuple = SIZES
  value: float | None = None
  certify: bool = False


class Table(NamedTuple):
  """Rows that belong together.

  Attributes:
    title: of its page.
    about: what the paper says, and what is ours, in a paragraph.
    rows: in the paper's order.
    seeds: by size.
    along: a numeric config field that its figure is drawn against.
    figures: (caption, run, path in its workdir) of figures that are kept.
    probes: fields of the `--mode=probe` that follows every run; its rows are
      kept too; {} if there is none.
    source: whose numbers stand beside ours.
  """

  title: str
  about: str
  rows: list
  seeds: dict = {"cpu": (0, 1, 2), "paper": (0,)}
  along: str = ""
  figures: tuple = ()
  probes: dict = {}
  source: str = "paper"


def by_length(*values, lengths=(6, 10, 15, 20, 60)) -> dict:
  return dict(zip(lengths, values, strict=True))


STAGES = {
  "interpolate": "vanilla",
  "retrain": "ABC",
  "certify": "ABC, certified",
}


def pipeline(task, config, paper, expect, stages=(*STAGES,), **more):
  """A Row for each stage of --mode=abc; `paper` and `expect` are by stage."""
  return [
    Row(
      *(task, STAGES[stage], config),
      *(paper.get(stage, {}), expect.get(stage, {})),
      stage=stage,
      **more,
    )
    for stage in stages
  ]
