"""Presets of state tracking: TASK[,METHOD][,OPTION...].

TASK     modular (sums modulo 7), permutations (S5), dyck (depth of brackets);
         --config.modular.p, permutations.group, dyck.brackets and dyck.bound
         choose others
METHOD   vanilla       sinusoidal positions (default)
         abc           ABC, with --mode=abc: vanilla first, then calibrated
OPTION   decoder_only  `x1...xn ⊥ y1...yn` in one sequence, and sinusoids of
                       places
         final         the last state alone instead of every prefix's; not with
                       abc: its one output belongs to no place of the input,
                       so that there are no lines to calibrate

  lengthgen --config=configs/states.py:modular,abc --mode=abc --workdir=W1
  lengthgen --config=configs/states.py:permutations,abc --mode=abc --workdir=W2
  echo 21345 13245 | lengthgen --mode=predict --workdir=W2
"""

from typing import Any

from lengthgen_jax.config import default_config, parse_preset

TASKS = ("modular", "permutations", "dyck")

BASE = {
  "data.train_length": 20,
  "model.num_encoder_layers": 0,
  "model.num_decoder_layers": 1,
  "train.steps": 2000,
  "train.learning_rate": 3e-3,
  "train.target_exact_match": 0.995,
  "train.batch_size": 64,
  "eval.lengths": (20, 60, 200, 2000),
  "eval.samples": (1000, 299, 299, 299),
}
# The table of 120 · 120 products is learned from short sequences, where evenly
# spread attention still has a large weight on a row's own item. With training
# lengths drawn uniformly up to 20 it is not learned.
PERMUTATIONS = {
  "model.emb_dim": 128,
  "model.mlp_dim": 512,
  "data.shortest": 2,
  "data.short_longest": 4,
  "data.buckets": (4, 20),
  "train.steps": 4000,
  "train.learning_rate": 2e-3,
  "train.batch_size": 256,
  "train.target_exact_match": 0.998,
}
ABC = {
  "method": "vanilla",  # of the first stage; the second is "abc"
  "calibration.lengths": (10, 15, 20),
  "calibration.reach": 1,
  "finetune.rounds": 3,
  "retrain.model.dropout_rate": 0.0,
  "retrain.train.steps": 400,
}
# With Muon the first stage needs 0.85 times the steps of Adam, and all three
# seeds are right after the second stage, with prompt and output in one sequence
# or in two. Adam's second stage leaves hundreds of contexts wrong in one.
PERMUTATIONS_ABC = {
  "train.optimizer": "muon",
  "train.learning_rate": 0.02,
  "train.adam_learning_rate": 2e-3,
  "retrain.data.shortest": 1,
  "retrain.data.short_longest": 0,
  "retrain.data.buckets": (),
  "retrain.train.batch_size": 64,
  "retrain.train.learning_rate": 0.02,
  "retrain.train.steps": 1500,
  # With smaller weights there is less rounding. In two sequences margins are
  # 11.2 to 11.7, and bounds on rounding at most 0.95; by Adam without decay
  # margins were 1.9 to 4.0, and bounds at most 5.6.
  "retrain.train.weight_decay": 0.6,
}
METHODS = {"vanilla": {}, "abc": ABC}
DECODER_ONLY = {"model.kind": "decoder_only", "positions.kind": "coordinates"}


def get_config(preset: str = "modular"):
  """Returns the config of a preset TASK[,METHOD][,OPTION...]."""
  task, method, options = parse_preset(
    preset, TASKS, METHODS, ("decoder_only", "final")
  )
  changes: dict[str, Any] = BASE | {"method": method} | METHODS[method]
  if task == "permutations":
    changes |= PERMUTATIONS
  if (task, method) == ("permutations", "abc"):
    changes |= PERMUTATIONS_ABC
  if "decoder_only" in options:
    changes |= DECODER_ONLY
  if "final" in options:
    changes |= {f"{task}.answer": "final"}
    changes["method"] += " final"
  return default_config(task, changes)
