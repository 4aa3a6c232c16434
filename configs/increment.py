"""Presets of incrementing a number with task hints: HINT[,OPTION...].

HINT     none or carry (the digits, each with its carry); gradient steps
         alternate between the task and the hint
OPTION   tempered  attention scores times a·log(n+1), where n is the number
                   of tokens of the prompt and each layer learns its factor a
         abc       ABC, with --mode=abc: sinusoids of places, then calibrated
                   lines
         paper     the paper's size: depth 4 (3 with abc), model size 1024,
                   16 heads, 100 000 steps

  lengthgen --config=configs/increment.py:carry,tempered --workdir=W
  lengthgen --config=configs/increment.py:none,abc --mode=abc --workdir=W2
  echo 1999 | lengthgen --mode=predict --workdir=W
"""

from lengthgen_jax.config import load_presets

arithmetic = load_presets("arithmetic.py")
sorting = load_presets("sorting.py")

HINTS = ("none", "carry")
SHARED = {
  "data.train_length": 10,
  "data.short_longest": 4,
  "data.buckets": (4, 10),
  "model.num_decoder_layers": 4,
  "train.steps": 8000,
  "eval.test_sets": ("uniform", "nines"),
  "eval.lengths": (10, 20, 50, 100),
}
# Calibration needs digits in every place, so most numbers are long.
ABC = arithmetic.DECODER_ONLY | {
  "data.short_share": 0.3,
  "data.buckets": (),
  "model.num_heads": 8,
  "model.activation": "relu",
  "train.steps": 3000,
  "train.batch_size": 128,
  "train.warmup_steps": 200,
  "train.chunk": 100,
  "train.target_exact_match": 0.995,
  "calibration.lengths": (8, 9, 10),
  # With smaller weights there is less rounding: the largest bound on it that
  # proofs/checker.py finds falls from 18 to 0.75. Margins are about 10.
  "retrain.train.weight_decay": 1.0,
  "finetune.rounds": 3,
  "eval.lengths": (10, 20, 100, 1000),
  "eval.samples": (1000, 1000, 300, 300),
  "eval.free_running": False,
}
OPTIONS = {"tempered": sorting.TEMPERED, "abc": ABC, "paper": sorting.PAPER}


def get_config(preset: str = "none"):
  """Returns the config of a preset HINT[,OPTION...]."""
  return sorting.hint_config("increment", SHARED, preset, HINTS, OPTIONS)
