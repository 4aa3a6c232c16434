"""The tables and figures of the ABS and ABC papers are listed as data: the runs
that fill them, the papers' numbers, and the numbers that are expected of ours.
"""

from typing import Any

from table import ALL, FIVE, NONE, Row, Table, by_length, pipeline

ARITHMETIC = "configs/arithmetic.py:"
LONG = {10: NONE, 20: NONE, 60: NONE}
RIGHT = {6: ALL, 10: ALL, 20: ALL, 60: ALL}
HUNDRED, INSIDE = by_length(*[100] * 5), by_length(100, 0, 0, 0, 0)


def abs_row(
  task: str,
  model: str,
  preset: str,
  paper: dict[int, float | str],
  expect: dict[int, tuple[float, float]],
  certify: bool = False,
  **fields: Any,
) -> Row:
  """Returns a row of a model that is trained in one stage.

  Args:
    task, model, paper, expect, certify: as in Row.
    preset: of configs/arithmetic.py.
    **fields: {field: value} of the config's overrides.
  """
  config = ARITHMETIC + preset
  return Row(task, model, config, paper, expect, fields, certify=certify)


ABS = [
  abs_row("successor", "vanilla", "successor", INSIDE, LONG),
  abs_row("successor", "+w=1", "successor,window", HUNDRED, {60: NONE}),
  abs_row(
    *("successor", "+w=1 +T=3", "successor,window_cpi", HUNDRED),
    {6: ALL, 10: (98, 100), 20: (90, 100), 60: (80, 100)},
    certify=True,
  ),
  abs_row(
    "successor", "NoPE +w=1", "successor,nope_window", HUNDRED, {60: (45, 60)}
  ),
  abs_row(
    "successor", "ALiBi", "successor,alibi", by_length(1.3, 0, 0, 0, 0), LONG
  ),
  abs_row("successor", "RoPE", "successor,rope", INSIDE, LONG),
  abs_row("addition", "vanilla", "addition", INSIDE, LONG),
  abs_row("addition", "+w=1", "addition,window", INSIDE, {6: ALL} | LONG),
  abs_row("addition", "+w=1 +T=3", "addition,window_cpi", HUNDRED, RIGHT),
  abs_row(
    *("addition", "NoPE +w=1", "addition,nope_window"),
    by_length(99.95, 99.81, 99.84, 99.76, 99.35),
    LONG,
  ),
  abs_row("addition", "ALiBi", "addition,alibi", by_length(*[0] * 5), LONG),
  abs_row("addition", "RoPE", "addition,rope", INSIDE, LONG),
  abs_row(
    *("addition", "RPE (T5's buckets)", "addition"),
    by_length(100, 99.9, 97.2, 21.3, "N/A"),
    {},
    **{"positions.kind": "t5"},
  ),
  abs_row(
    *("parity", "classification", "parity_classification"),
    dict.fromkeys((6, 10, 15, 20, 60), "52.0 / 52.6"),
    {60: (40, 60)},
  ),
  abs_row(
    *("parity", "vanilla + scratchpad", "parity"),
    by_length(29.23, 0.29, 0, 0, 0),
    LONG,
  ),
  abs_row("parity", "+w=1", "parity,window", HUNDRED, {60: (0, 20)}),
  abs_row(
    *("parity", "+w=1 +T=3", "parity,window_cpi", HUNDRED, RIGHT),
    certify=True,
  ),
  abs_row("parity", "NoPE +w=1", "parity,nope_window", HUNDRED, {60: (70, 80)}),
  abs_row("N×1", "vanilla", "multiply", INSIDE, LONG),
  abs_row(
    *("N×1", "+w=1", "multiply,window"),
    by_length(100, 6.0, 0.19, 0, 0),
    {60: (0, 10)},
  ),
  abs_row(
    *("N×1", "+w=1 +T=3", "multiply,window_cpi", HUNDRED, RIGHT),
    certify=True,
  ),
  abs_row(
    *("N×1", "NoPE +w=1", "multiply,nope_window"),
    by_length(99.89, 99.63, 99.49, 99.39, 98.31),
    {60: (70, 99)},
  ),
  abs_row("N×1", "RoPE", "multiply,rope", INSIDE, LONG),
]
# With one width for training and test, as in the papers, no position is new at
# test time.
ABS_FIXED = [
  row._replace(config=f"{row.config},fixed", expect={}, sizes=("cpu",))
  for row in ABS
  if row.task == "addition"
]


def abc_rows(
  task: str, preset: str, paper: tuple[float | str, ...], **fields: Any
) -> list[Row]:
  """Returns a row for each stage of one pipeline; with one width for training
  and test nothing is certified.

  Args:
    task: as in Row.
    preset: of configs/arithmetic.py.
    paper: exact match of the calibrated model in the paper, in %, at 6, 10, 20
      and 60 digits.
    **fields: {field: value} of the config's overrides.
  """
  lengths = 6, 10, 20, 60
  quoted = {"retrain": by_length(*paper, lengths=lengths)}
  if task != "parity":
    quoted["interpolate"] = by_length(100, 0, 0, 0, lengths=lengths)
  right = {60: (95, 100)}
  expect = {"interpolate": LONG, "retrain": right, "certify": right}
  stages = ["interpolate", "retrain", "certify"]
  if {"fixed", "paper_model"} & {*preset.split(",")}:
    stages.remove("certify")
  config = ARITHMETIC + preset
  return pipeline(task, config, quoted, expect, stages, fields=fields)


ABC = [
  *abc_rows("successor", "successor,abc", (100,) * 4),
  *abc_rows("addition", "addition,abc", (100, 100, 99.9, 99.8)),
  *abc_rows("N×1", "multiply,abc", (100,) * 4),
  *abc_rows("parity", "parity,abc", ("not solved",) * 4),
]
PAPER_MODEL = [
  abs_row(
    *("addition", "+w=1 +T=3", "addition,window_cpi,paper_model", HUNDRED),
    {6: ALL},
  ),
  *abc_rows("addition", "addition,abc,paper_model", (100, 100, 99.9, 99.8)),
]
PAPER_MODEL = [row._replace(sizes=("cpu",)) for row in PAPER_MODEL]
EXAMPLES = {  # the inputs of the papers' heat maps
  "successor": "03611451449241919819",
  "addition": "078114514+0241919810",
}
ABC_FIXED = [
  *abc_rows(
    *("successor", "successor,abc,fixed", (100,) * 4),
    **{"abc.example": EXAMPLES["successor"]},
  ),
  *abc_rows(
    *("addition", "addition,abc,fixed", (100, 100, 99.9, 99.8)),
    **{"abc.example": EXAMPLES["addition"]},
  ),
  *abc_rows("N×1", "multiply,abc,fixed", (100,) * 4),
  *abc_rows("parity", "parity,abc,fixed", ("not solved",) * 4),
]
ABC_FIXED = [row._replace(sizes=("cpu",)) for row in ABC_FIXED]
# The papers and their released program differ from the preset, or from each
# other, in these switches; each run changes one of them.
SWITCHES = {
  "nothing changed": {},
  "lines that hold at one length only": {"calibration.lengths": (6,)},
  "lines anywhere": {"calibration.reach": 0},
  "heads without a line are transparent": {
    "calibration.empty_heads": "transparent"
  },
  "the last layer's lines for all": {"calibration.layers": "last"},
  "sum over a line": {"calibration.line": "sum"},
  "statistics over distinct values": {"calibration.statistics": "distinct"},
  "maximum of a direction": {"calibration.maximum": "direction"},
  "no maximum": {"calibration.maximum": "none"},
  "one sample per condition": {"calibration.samples": 1},
  "all rows": {"calibration.rows": "all"},
  "anti-diagonals alone": {"calibration.directions": (-1,)},
  "the papers' κ": {"calibration.kappa": 4.5},
  "scores, not weights": {"calibration.quantity": "scores"},
  "lines of any number of cells": {"calibration.min_cells": 0.0},
  "an encoder layer": {"retrain.model.num_encoder_layers": 1},
  "no dropout": {"retrain.model.dropout_rate": 0.0},
}
ABLATION = [
  Row(
    *("addition", model, ARITHMETIC + "addition,abc", {}),
    {} if fields else {60: ALL},
    fields,
    "retrain",
    ("cpu",),
  )
  for model, fields in SWITCHES.items()
]

ATTENTION = (
  (
    "Attention of the vanilla model's last decoder layer on"
    f" {EXAMPLES['successor']} (successor), cross",
    f"successor-abc-fixed-abc.example={EXAMPLES['successor']}",
    "figures/attention_example_cross.png",
  ),
  (
    "The same, self",
    f"successor-abc-fixed-abc.example={EXAMPLES['successor']}",
    "figures/attention_example_self.png",
  ),
  (
    f"On {EXAMPLES['addition']} (addition), cross",
    f"addition-abc-fixed-abc.example={EXAMPLES['addition']}",
    "figures/attention_example_cross.png",
  ),
  (
    "The same, self",
    f"addition-abc-fixed-abc.example={EXAMPLES['addition']}",
    "figures/attention_example_self.png",
  ),
  (
    "Calibrated cross-attention bias, addition; each head its own scale",
    f"addition-abc-fixed-abc.example={EXAMPLES['addition']}",
    "figures/bias_cross.png",
  ),
  (
    "Calibrated cross-attention bias, N×1",
    "multiply-abc-fixed",
    "figures/bias_cross.png",
  ),
)

WINDOWS = tuple(
  (f"Window, {name}, {site}-attention", run, f"figures/bias_{site}.png")
  for name, run in (
    ("one operand", "successor-window_cpi"),
    ("two operands, interleaved", "multiply-window_cpi"),
  )
  for site in ("cross", "self")
)
TABLES = {
  "abs": Table(
    "Attention bias scaffolding (ABS paper, table 1)",
    "Trained on numbers of up to 6 digits (parity: 20 bits). On two cores"
    " operands are padded to their own length plus two zeros (natural width),"
    " so that a longer test really is a longer sequence; the papers pad"
    " everything to one width, in training and test. RPE and classification"
    " are figures that the paper quotes; ours beside them are runs of the same"
    " kind.",
    ABS,
    figures=WINDOWS,
  ),
  "abs_fixed": Table(
    "Addition at one width (ABS paper, table 1)",
    "The same rows with all operands padded to 61 digits in training and"
    " test, as in the papers. ALiBi, RoPE and T5's buckets, and the window"
    " without positions, do not fit six digits in these 2 000 (1 200) steps:"
    " their zeros say nothing of length.",
    ABS_FIXED,
  ),
  "abc": Table(
    "Attention bias calibration (ABC paper, table 3)",
    "A vanilla model, its attention as a bias of a few lines, a fresh model"
    " with that bias. Natural width; the papers have one width, and no"
    " parity, which their vanilla model did not interpolate. Certified: trained"
    " again on inputs that a certificate found wrong, where there were any.",
    ABC,
    FIVE,
  ),
  "abc_fixed": Table(
    "Attention bias calibration at one width (ABC paper, table 3, figures 10"
    " and 11)",
    "The papers' protocol: every operand padded to 61 digits (parity: 201"
    " bits), absolute lines, κ = 4.5. The papers' vanilla model did not"
    " interpolate parity.",
    ABC_FIXED,
    figures=ATTENTION,
  ),
  "paper_model": Table(
    "Addition with the papers' model, on two cores",
    "Model size 128, six decoder layers, eight heads, layer norm after the"
    " residual, one width of 61 digits, as in the papers; numbers (of uniformly"
    " drawn lengths), dropout 0.1, batch, learning rate and number of steps are"
    " ours. One seed.",
    PAPER_MODEL,
    {"cpu": (0,), "paper": (0,)},
  ),
  "ablation": Table(
    "What the switches of calibration cost",
    "Addition at natural width, one switch changed at a time, five seeds.",
    ABLATION,
    FIVE,
  ),
}
