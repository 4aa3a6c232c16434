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

import pathlib

from lengthgen_jax.config import load_presets

FOLDER = pathlib.Path(__file__).parent
arithmetic = load_presets(FOLDER / "arithmetic.py")
sorting = load_presets(FOLDER / "sorting.py")

HINTS = {"none": (), "carry": ("carry",)}
OPTIONS = ("tempered", "abc", "paper")

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


def get_config(preset: str = "none"):
  """Returns the config of a preset HINT[,OPTION...]."""
  config, options = sorting.hint_config("increment", preset, HINTS, OPTIONS)
  config.data.update(train_length=10, short_longest=4, buckets=(4, 10))
  config.model.num_decoder_layers = 4
  config.train.steps = 8000
  config.eval.update(test_sets=("uniform", "nines"), lengths=(10, 20, 50, 100))
  if "abc" in options:
    config.update_from_flattened_dict(ABC)
  if "paper" in options:
    config.update_from_flattened_dict(sorting.PAPER)
  return config
