"""Every table and figure of the two papers, as data: which runs fill it, what
the papers have there, and what is expected of ours."""

from table import ALL, FIVE, NONE, SIZES, Row, Table, by_length, pipeline

ARITHMETIC, SORTING = "configs/arithmetic.py:", "configs/sorting.py:"
INCREMENT = "configs/increment.py:"


LONG = {10: NONE, 20: NONE, 60: NONE}
RIGHT = {6: ALL, 10: ALL, 20: ALL, 60: ALL}
HUNDRED, INSIDE = by_length(*[100] * 5), by_length(100, 0, 0, 0, 0)


def abs_row(task, model, preset, paper, expect, **fields) -> Row:
  return Row(task, model, ARITHMETIC + preset, paper, expect, fields)


ABS = [
  abs_row("successor", "vanilla", "successor", INSIDE, LONG),
  abs_row("successor", "+w=1", "successor,window", HUNDRED, {60: NONE}),
  abs_row(
    *("successor", "+w=1 +T=3", "successor,window_cpi", HUNDRED),
    {6: ALL, 10: (98, 100), 20: (90, 100), 60: (80, 100)},
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
  abs_row("parity", "+w=1 +T=3", "parity,window_cpi", HUNDRED, RIGHT),
  abs_row("parity", "NoPE +w=1", "parity,nope_window", HUNDRED, {60: (70, 80)}),
  abs_row("N×1", "vanilla", "multiply", INSIDE, LONG),
  abs_row(
    *("N×1", "+w=1", "multiply,window"),
    by_length(100, 6.0, 0.19, 0, 0),
    {60: (0, 10)},
  ),
  abs_row("N×1", "+w=1 +T=3", "multiply,window_cpi", HUNDRED, RIGHT),
  abs_row(
    *("N×1", "NoPE +w=1", "multiply,nope_window"),
    by_length(99.89, 99.63, 99.49, 99.39, 98.31),
    {60: (70, 99)},
  ),
  abs_row("N×1", "RoPE", "multiply,rope", INSIDE, LONG),
]
# At one width, as in the papers, no position is new at test time.
ABS_FIXED = [
  row._replace(config=f"{row.config},fixed", expect={}, sizes=("cpu",))
  for row in ABS
  if row.task == "addition"
]


def abc_rows(task, preset, paper, **fields) -> list[Row]:
  """The stages of one pipeline; at one width nothing is certified."""
  at = 6, 10, 20, 60
  quoted = {"retrain": by_length(*paper, lengths=at)}
  if task != "parity":
    quoted["interpolate"] = by_length(100, 0, 0, 0, lengths=at)
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
EXAMPLES = {  # the papers' inputs of their heat maps
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
# One switch of those in which the papers and their program differ from the
# preset, or from each other.
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


def sorting(model, preset, expect=(), paper=(), fields=(), sizes=SIZES) -> Row:
  config = SORTING + preset
  return Row(
    *("sorting", model, config, dict(paper), dict(expect), dict(fields)),
    sizes=sizes,
  )


STANDARD = sorting("standard", "none", {20: ALL, 50: (40, 100)}, {100: "< 1"})
TEMPERED = sorting("tempered", "none,tempered", {20: ALL, 50: (80, 100)})
SUCCESSOR = sorting("successor hint", "successor", {20: (90, 100)})
BEST = sorting("ours: best", "none,best", {50: ALL, 100: (80, 100)})
BEST_LONGER = sorting(
  "ours: best, twice the steps",
  "none,best",
  {50: ALL, 100: (92.6, 100)},  # the paper's mark
  fields={"train.steps": 96_000},
)
BESTS = [row._replace(sizes=("cpu",)) for row in (BEST, BEST_LONGER)]
FIXED = [  # the temperature's factor is 0.5 and not learned
  row._replace(
    model=f"{row.model}, fixed temperature",
    fields={"temperature.kind": "fixed"} | row.fields,
  )
  for row in BESTS
]
SORT = [
  STANDARD,
  TEMPERED,
  SUCCESSOR,
  sorting("successor hint, tempered", "successor,tempered"),
  sorting(
    "successor hint, repetition data", "successor,repeats", paper={100: 92.6}
  ),
  *BESTS,
]
HINTS = [
  STANDARD,
  SUCCESSOR,
  sorting("count hint", "count"),
  sorting("fill hint", "fill"),
  sorting("all three", "all"),
  sorting("predecessor hint (ours)", "predecessor"),
  sorting("minimum hint (ours)", "minimum"),
]


def varied(rows, field: str, values: dict, usual: dict) -> list[Row]:
  """Rows once for each value of a field.

  Args:
    rows: whose models are told apart by their presets.
    field: of the config.
    values: by size; at one that is not named there are no rows.
    usual: by size, the value that the preset has, which needs no override.
  """
  return [
    row._replace(
      model=f"{row.model}, {field.rpartition('.')[2]}={value}",
      fields=({field: value} if value != usual[size] else {}) | row.fields,
      sizes=(size,),
      expect={},
      paper={},
      value=value if isinstance(value, int) and value else None,
    )
    for size in values
    for row in rows
    for value in values[size]
  ]


# As many steps on sorting as without a hint.
TWICE = {"train.steps": 32_000}
LONGER = sorting("successor hint, twice the steps", "successor", fields=TWICE)
SEEN = {
  "cpu": (10**4, 10**5, 10**6, 0),
  "paper": (10**6, 10**7, 160 * 10**6),
}
DATA = [
  row
  for size, hinted in (("cpu", LONGER), ("paper", SUCCESSOR))
  for row in varied(
    *([STANDARD, hinted, TEMPERED], "data.size"),
    {size: SEEN[size]},
    {"cpu": 0, "paper": 160 * 10**6},
  )
]
DEPTH = varied(
  *([STANDARD, TEMPERED], "model.num_decoder_layers"),
  {"cpu": (1, 2, 4), "paper": (2, 4, 6, 8, 12)},
  {"cpu": 2, "paper": 2},
)
KINDS = "log_visible", "one_plus_log", "scalable", "fixed"
TEMPERATURE = SORT[:4] + varied(
  *([STANDARD, SUCCESSOR], "temperature.kind"),
  {"cpu": KINDS, "paper": KINDS},
  {"cpu": "none", "paper": "none"},
)
TEMPERATURE += BESTS + FIXED
PLACES = ("none", "sinusoidal", "learned", "rope")
POSITIONS = varied(
  *([STANDARD], "positions.kind"),
  {"cpu": PLACES, "paper": PLACES},
  {"cpu": "none", "paper": "none"},
)
REPEATS = [
  STANDARD,
  sorting("standard, repetition data", "none,repeats"),
  TEMPERED,
  sorting("tempered, repetition data", "none,tempered,repeats"),
]
ROBUSTNESS = [REPEATS[1], SORT[4], REPEATS[3]]
CARRY = [
  Row("increment", model, INCREMENT + preset, {}, {10: (95, 100)})
  for model, preset in {
    "standard": "none",
    "carry hint": "carry",
    "tempered": "none,tempered",
    "carry hint, tempered": "carry,tempered",
  }.items()
]
CARRY += [
  Row(
    *("increment", model, INCREMENT + "none,abc", {}, expect),
    stage=stage,
    sizes=("cpu",),
  )
  for model, stage, expect in (
    ("sinusoids of places", "interpolate", {20: NONE}),
    ("calibrated (ours)", "retrain", {20: ALL, 100: ALL}),
  )
]

# Why the paper's order of hint and none does not hold at this size.
PLACE = [
  STANDARD,
  SUCCESSOR,
  sorting("standard, twice the steps", "none", fields=TWICE),
  LONGER,
  sorting(
    "successor hint of single items, twice the steps",
    "successor",
    fields=TWICE | {"sort.asks_single": True},
  ),
  sorting(
    "successor hint, a tenth of every batch",
    "successor",
    fields={"mixing.kind": "weighted", "mixing.weights": (9, 1)},
  ),
  *(
    row
    for row in DATA
    if row.value and row.config != TEMPERED.config and "cpu" in row.sizes
  ),
]
PLACE = [
  row._replace(expect={}, paper={}, sizes=("cpu",), value=None) for row in PLACE
]

# What the paper looks at inside (section 4.2), each against length.
CLAIMS = {
  "probe.only": (
    "minimum",
    "identity_successor",
    "copy",
    "identity_removed",
    "identity_lowered",
  ),
  "probe.figures": ("by_length", "tokens"),
  "probe.lengths": (5, 10, 20, 50, 100),
  "probe.samples": 1000,
}
PROJECTIONS = tuple(
  (
    f"What {words} shows on the encoder's and the decoder's basis, best recipe",
    "sort-none-best",
    f"figures/probes/token_{name}.png",
  )
  for name, words in (
    ("before", "a token before ⊥"),
    ("delimiter", "⊥"),
    ("after", "the same token after ⊥"),
  )
)
CONSTRUCTION = "configs/construction.py:10,100"
THEOREM = [
  Row("sorting", model, CONSTRUCTION, {}, expect, fields, sizes=("cpu",))
  for model, expect, fields in (
    ("construction", {100: ALL}, {}),
    ("noise of 0.001", {100: NONE}, {"initial.noise": 0.001}),
    (
      "noise, then trained",
      {20: ALL},
      {
        "initial.noise": 0.001,
        "train.steps": 2000,
        "train.learning_rate": 1e-4,
      },
    ),
    (
      "trained without noise",
      {20: ALL},
      {"train.steps": 2000, "train.learning_rate": 1e-4},
    ),
    (
      "from scratch",
      {},
      {"initial.kind": "random", "train.steps": 16_000},
    ),
  )
]
THEOREM.append(
  sorting(
    "from scratch, the presets' model",
    "none,tempered",
    fields={"sort.alphabet": 10},
    sizes=("cpu",),
  )
)

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
  "sorting": Table(
    "Sorting (task hinting paper, tables 1 and 2, figure 3.5)",
    "Decoder-only, trained on up to 20 items, most of them 2 to 5; on two"
    " cores alphabet 32, model size 64 and 16 000 gradient steps in all (with a"
    " hint half of them on it; our best recipe 48 000). Of the paper's numbers"
    " its text keeps one: 92.6 at 100 items.",
    SORT,
  ),
  "inside": Table(
    "Sorting: what the models do inside (task hinting paper, section 4.2)",
    "The paper's account of a trained model: the first attention layer puts"
    " the minimum at `⊥`, the last one identity and successor at every output"
    " token, tokens copy themselves throughout, and the last MLP takes the"
    " identity away. Rates over 1 000 lists; a residual shows the token whose"
    " vector it has the greatest inner product with. Where the paper looks:"
    " the minimum in layer 0 before MLP, the rest as named.",
    [STANDARD, SUCCESSOR, TEMPERED, BEST._replace(sizes=("cpu",))],
    figures=PROJECTIONS,
    probes=CLAIMS,
  ),
  "theorem": Table(
    "Theorem 5.1 as a point to start from (task hinting paper, appendix A)",
    "The construction for ten items and up to 100 of them; with normal noise"
    " on its parameters; trained on, with and without noise, on up to 20 items;"
    " and the same tempered model from random parameters. Does training find"
    " the construction's mechanism, and does it stay there?",
    THEOREM,
    probes=CLAIMS,
  ),
  "hints": Table(
    "Sorting: which hint (task hinting paper, figure 3.11)",
    "The paper's order: successor helps most, fill a little, count hurts, all"
    " three are mixed or worse than none.",
    HINTS,
  ),
  "place": Table(
    "Sorting: why a hint does not help at this size",
    "The paper has the successor hint far above none; with equal steps in all"
    " ours is below. Here: equal steps on sorting (twice in all), successors"
    " asked only of items that occur once, where sorting has the same next"
    " token, the hint as a tenth of every batch, and finite sets of which the"
    " hint has its own half.",
    PLACE,
  ),
  "data": Table(
    "Sorting: how much data (task hinting paper, figures 3.3 and 3.5)",
    "Sizes of the finite set (0: never the same example again); with a hint,"
    " half of it is the hint's, and on two cores twice the steps.",
    DATA,
    along="data.size",
  ),
  "depth": Table(
    "Sorting: how many layers (task hinting paper, figure 3.3)",
    "The paper: up to a point, more layers help at 50 items, and never at 100.",
    DEPTH,
    along="model.num_decoder_layers",
  ),
  "temperature": Table(
    "Sorting: which temperature (task hinting paper, section 5.1)",
    "Tempered is the paper's: a·log n of the prompt's items, a learned for each"
    " layer (log_items); the others are ours or of other papers.",
    TEMPERATURE,
  ),
  "positions": Table(
    "Sorting: which position encoding (task hinting paper, appendix B)",
    "The paper uses none; learned and fixed ones were equal or worse.",
    POSITIONS,
  ),
  "repeats": Table(
    "Sorting: repetition data (task hinting paper, section 3.1)",
    "Some examples draw from few distinct values.",
    REPEATS,
  ),
  "robustness": Table(
    "Sorting: repeated items in tests (task hinting paper, figures 3.7 to 3.9)",
    "Three distinct items, each so many times, among uniform ones; exact match"
    " and edit distance.",
    ROBUSTNESS,
  ),
  "increment": Table(
    "Increment (task hinting paper, table 3)",
    "Trained on up to 10 digits. The paper: standard < hint < tempered; its"
    " numbers are lost in the text that we have.",
    CARRY,
  ),
}
