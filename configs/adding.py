"""Presets of addition in one sequence with task hints: HINT[,OPTION...].

HINT     none, no_carry (each pair of digits modulo 10), carry_only (the carry
         out of each place), or both; gradient steps alternate between the task
         and the hints
OPTION   longer  the hint's numbers have up to 32 digits, those to add up to 16

Hints and lengths are those of "Extrapolation by Association" (arXiv
2506.09251), where operands, too, begin with their least significant digit, and
positions are rotary. Here only the output does; with rotary positions 4 % of
sums of up to six digits are right after 3,000 steps, so that positions are
sinusoids of places. The model's size is ours.

  lengthgen --config=configs/adding.py:both,longer --workdir=W
"""

from lengthgen_jax.config import load_presets

sorting = load_presets("sorting.py")

HINTS = ("none", "no_carry", "carry_only", "both")
SHARED = {
  "model.num_decoder_layers": 4,
  "data.train_length": 16,
  "positions.kind": "coordinates",
  "positions.segments": True,
  "train.optimizer": "muon",
  "train.steps": 4000,
  "train.learning_rate": 0.03,
  "train.adam_learning_rate": 3e-3,
  "eval.lengths": (8, 16, 17, 20, 24, 32),
}
OPTIONS = {"longer": {"mixing.hint_length": 32}}


def get_config(preset: str = "none"):
  """Returns the config of a preset HINT[,OPTION...]."""
  return sorting.hint_config("addition", SHARED, preset, HINTS, OPTIONS)
