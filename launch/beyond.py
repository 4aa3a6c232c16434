"""What neither paper has, as data: the same methods where nobody took them."""

from table import ALL, FIVE, NONE, Row, Table

STAGES = {
  "interpolate": "vanilla",
  "retrain": "ABC",
  "certify": "ABC, certified",
}


def abc_rows(task, config, paper=(), lengths=(), seen=NONE) -> list[Row]:
  """The stages of one pipeline on two cores.

  Args:
    task, config: as in Row.
    paper: the best published mark, by length.
    lengths: at which the calibrated model should be right.
    seen: least and most of the vanilla model there.
  """
  return [
    Row(
      *(task, model, config, dict(paper) if stage == "retrain" else {}),
      dict.fromkeys(lengths, seen if stage == "interpolate" else ALL),
      stage=stage,
      sizes=("cpu",),
    )
    for stage, model in STAGES.items()
  ]


ONE_SEQUENCE = [
  row
  for task, name in (
    ("successor", "successor"),
    ("addition", "addition"),
    ("N×1", "multiply"),
    ("parity", "parity"),
  )
  for row in abc_rows(
    *(task, f"configs/arithmetic.py:{name},abc,decoder_only"),
    lengths=(60, 200, 1000),
  )
]
GRIDS = "configs/multiply_long.py:"
PRODUCTS = [
  Row(
    *("N×M", model, GRIDS + "window", {}, dict.fromkeys((10, 20, 100), ALL)),
    stage=stage,
    sizes=("cpu",),
  )
  for stage, model in (("train", "window"), ("certify", "window, certified"))
] + abc_rows("N×M", GRIDS + "abc", lengths=(10, 20, 100))
STATES = [
  *abc_rows("sums mod 7", "configs/states.py:modular,abc", (), (200, 2000)),
  *abc_rows("S5", "configs/states.py:permutations,abc", (), (200, 2000)),
  *abc_rows("Dyck", "configs/states.py:dyck,abc", (), (200, 2000), (0, 20)),
]
STATES += [
  Row(task, "vanilla, last state alone", f"configs/states.py:{name},final")
  for task, name in (("sums mod 7", "modular"), ("S5", "permutations"))
]
STATES = [row._replace(sizes=("cpu",)) for row in STATES]
# arXiv 2506.16640: softmax, scalable softmax and their best, where it says so.
COPYING = [
  Row("sort", "RoPE", "configs/asentmax.py:sort,rope", {128: 0}),
  Row("sort", "scalable softmax", "configs/asentmax.py:sort,ssmax"),
  Row(
    *("sort", "ours: best", "configs/asentmax.py:sort,best"),
    {128: 100, 256: 79.7, 512: 0},
  ),
  Row("copy", "RoPE", "configs/asentmax.py:copy,rope"),
  *abc_rows("copy", "configs/asentmax.py:copy,abc", {4096: 86.6}, (512, 4096)),
  Row("reverse", "RoPE", "configs/asentmax.py:reverse,rope"),
  *abc_rows("reverse", "configs/asentmax.py:reverse,abc", {512: 56.7}, (512,)),
]
COPYING = [row._replace(sizes=("cpu",)) for row in COPYING]

TABLES = {
  "one_sequence": Table(
    "Attention bias calibration in decoder-only models",
    "Prompt and output in one sequence, natural width, trained on up to 6"
    " digits (parity: 20 bits): lines of output rows over the prompt's segments"
    " and over the outputs. The increment's rows are in [increment.md]"
    "(increment.md).",
    ONE_SEQUENCE,
    FIVE,
  ),
  "products": Table(
    "N digits times M, by running sums",
    "Trained on 2×2, 3×3, 4×4, 4×3 and 3×4 digits. `equal` is N×N; `unequal`"
    " has so many digits of a beside 3 and 61 of b; nines, a single one and"
    " zeros inside are hard inputs. The longest published transformer is about"
    " 20×15 from 10×10 (arXiv 2410.15787).",
    PRODUCTS,
  ),
  "states": Table(
    "State tracking: sums, permutations, brackets",
    "Trained on up to 20 items; every prefix's state is said, or, in the last"
    " two rows, the last one alone.",
    STATES,
  ),
  "copying": Table(
    "Sort, copy and reverse, in the protocol of ASEntmax (arXiv 2506.16640)",
    "32 symbols, trained on 32 to 64 of them. Their best rows stand beside"
    " ours; our models are much smaller (64 against 256) and have seen less.",
    COPYING,
  ),
}
