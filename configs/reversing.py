"""Presets of reversing a list with task hints: HINT[,OPTION...].

HINT     none, copy, shifted (the list reversed, each value plus 1, the
         greatest becoming 1), or restricted (with `longer`: one output of a
         list of 21 to 60 items is asked for, and at most as many tokens are
         kept as 20 items and their output have); gradient steps alternate
         between the task and the hint
OPTION   longer  the hint's lists have up to 60 items, those to reverse up to 20

Rotary positions and an auxiliary task at longer lengths are those of
"Extrapolation by Association" (arXiv 2506.09251), random restrictions those of
"Length Generalization via Auxiliary Tasks" (Awasthi, Gupta and Kumar, NeurIPS
2025); tasks and sizes are ours.

  lengthgen --config=configs/reversing.py:shifted,longer --workdir=W
"""

from lengthgen_jax.config import load_presets

sorting = load_presets("sorting.py")

HINTS = ("none", "copy", "shifted", "restricted")
SHARED = {
  "data.train_length": 20,
  "positions.kind": "rope",
  "model.num_decoder_layers": 4,
  "train.steps": 8000,
  "train.learning_rate": 1e-3,
  "eval.lengths": (20, 30, 40, 60),
  "eval.free_running": False,
}
OPTIONS = {"longer": sorting.OPTIONS["longer"]}


def get_config(preset: str = "none"):
  """Returns the config of a preset HINT[,OPTION...]."""
  return sorting.hint_config("reverse", SHARED, preset, HINTS, OPTIONS)
