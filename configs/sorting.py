"""Presets of sorting with task hints: HINT[,OPTION...].

HINT     none, successor, count, fill, predecessor, minimum, all (successor,
         count and fill), or restricted (with `longer`: one output of a list of
         21 to 60 items is asked for, and at most as many tokens are kept as 20
         items and their output have); gradient steps alternate between sorting
         and the hint
OPTION   tempered  attention scores times a·log(n+1), where n is the number of
                   the prompt's tokens and each layer learns its own a
         repeats   60 % of the examples draw from k distinct values, for random
                   k up to the length, instead of 10 % (at the paper's size:
                   10 % instead of none)
         best      the option that sorts the longest lists: segments, entmax,
                   three layers (four sort longer lists still), 90 % of the
                   examples from k values, with k mostly small, half of the
                   lists longer than 5, a longer warm-up
         segments  a learned vector for the prompt and one for the output
         entmax    1.5-entmax in the softmax's place: exact zeros
         longer    the hint's lists have up to 60 items, those to sort up to 20
         paper     the paper's size: alphabet 100, model size 1024, 16 heads,
                   100 000 steps, uniform values (10 % from few with repeats);
                   for an accelerator, not a laptop

  lengthgen --config=configs/sorting.py:successor,tempered --workdir=W
  echo 5 3 9 3 | lengthgen --mode=predict --workdir=W
"""

from collections.abc import Collection
from typing import Any

from lengthgen_jax.config import default_config, parse_preset

ONE = ("successor", "count", "fill", "predecessor", "minimum", "restricted")
HINTS = ("none", *ONE, "all")
# What stands for no single hint, in the other files too.
NOT_ONE = {
  "none": (),
  "all": ("successor", "count", "fill"),
  "both": ("no_carry", "carry_only"),
}
SEGMENTS = {"positions.segments": True}
ENTMAX = {"attention.normalizer": "entmax"}

TEMPERED = {"temperature.kind": "log_items"}

# A small decoder-only model without positions.
DECODER_ONLY: dict[str, Any] = {
  "model.kind": "decoder_only",
  "model.num_encoder_layers": 0,
  "model.num_heads": 4,
  "model.activation": "gelu",
  "positions.kind": "none",
  "train.steps": 16_000,  # many small batches do better than few large ones
  "train.batch_size": 32,
  "train.learning_rate": 3e-3,
  "train.warmup_steps": 500,
  "train.chunk": 1000,
  "eval.free_running": True,
}
SHARED = {
  "data.train_length": 20,
  "data.shortest": 2,
  "data.short_longest": 5,
  "data.buckets": (5, 20),
  "eval.lengths": (20, 30, 50, 100),
}
# Task hinting paper, section 3; what it leaves out is our choice.
PAPER = {
  "sort.alphabet": 100,
  "data.size": 160_000_000,
  "model.emb_dim": 1024,
  "model.num_heads": 16,
  "model.mlp_dim": 2048,
  "model.norm_kind": "rms",
  "model.dense_bias": False,
  "train.steps": 100_000,
  "train.batch_size": 1024,
  "train.learning_rate": 1e-5,
  "train.clip_norm": 0.0,
  "train.chunk": 100,
}
# With exact zeros in attention no temperature is needed: a key that gets no
# weight gets none among more keys either, so that the shares of attention by
# which copies of a value are counted are the same at every length. Segments
# tell the prompt's copies from the output's, and repetition data show how many
# copies there may be. Half of the training lists are longer than 5 (without
# this option 20 % are).
BEST = {
  **SEGMENTS,
  **ENTMAX,
  "model.num_decoder_layers": 3,
  "sort.repeat_share": 0.9,
  "sort.repeat_values": "log_uniform",
  "data.short_share": 0.5,
  "train.warmup_steps": 1000,
  "eval.lengths": (20, 30, 50, 100, 200, 300),
  "eval.samples": (1000, 1000, 1000, 1000, 1000, 300),
}
OPTIONS = {
  "paper": PAPER | {"sort.repeat_share": 0.0},
  "tempered": TEMPERED,
  "repeats": {"sort.repeat_share": 0.6},
  "best": BEST,
  "segments": SEGMENTS,
  "entmax": ENTMAX,
  "longer": {"mixing.hint_length": 60},
}


def get_config(preset: str = "none"):
  """Returns the config of a preset HINT[,OPTION...]."""
  config = hint_config("sort", SHARED, preset, HINTS, OPTIONS)
  if {"repeats", "paper"} <= {*preset.split(",")}:
    config.sort.repeat_share = 0.1
  return config


def hint_config(
  task: str,
  shared: dict[str, Any],
  preset: str,
  hints: Collection[str],
  options: dict[str, dict[str, Any]],
):
  """Returns the config, of a decoder-only model with task hints, of a preset
  HINT[,OPTION...].

  `hints` has the names of HINT, `options` the fields that each option sets:
  where two set the same field, the later one counts. The config's `method` is
  HINT and the options joined by `+`.
  """
  hint, _, chosen = parse_preset(preset, hints, (), options)
  tasks = NOT_ONE.get(hint, (hint,))
  changes = DECODER_ONLY | shared | {"hints": tasks, "method": hint}
  if "longer" in chosen and not tasks:
    raise ValueError(f"preset {preset!r}: longer is for a hint")
  for name in chosen:
    changes |= options[name]
    # "paper" is a size and not a method. "abc" has two stages: this names the
    # first one, and the method of the second one is "abc".
    if name not in ("abc", "paper"):
      changes["method"] += f"+{name}"
  return default_config(task, changes)
