"""Presets of the arithmetic tasks: TASK[,METHOD][,OPTION...].

TASK     successor, addition, multiply, parity, parity_classification
METHOD   vanilla       sinusoidal positions, operands in sequence (default)
         window        ABS: each output sees its own digits, of operands that
                       are interleaved, its newest input and the one before
         window_cpi    ABS: the same and cyclic position indexing, T=3
         nope_window   ABS: windowed bias without position encoding
         alibi, rope   baselines
         abc           ABC, with --mode=abc: a model without bias, then one with
                       its lines
OPTION   decoder_only  `$a+b=` and the reversed sum in one sequence, and in
                       vanilla and window sinusoids of places instead of the
                       index
         fixed         one width for training and test, as in the papers (61
                       digits), and the papers' absolute lines
         at most one of these, which have that one width too:
         paper         the papers' hyper-parameters: model size 128, six decoder
                       layers, learning rate 1e-5; for an accelerator
         paper_model   the same model, with numbers, dropout, batch, learning
                       rate, steps and calibration for two cores
         released      the hyper-parameters and the calibration of the released
                       ABC program; its leak is a field, bias.allow_leak

  lengthgen --config=configs/arithmetic.py:parity,window_cpi --workdir=W1
  lengthgen --config=configs/arithmetic.py:parity,abc --mode=abc --workdir=W2
"""

from typing import Any

from lengthgen_jax.config import default_config, parse_preset

TASKS = ("successor", "addition", "multiply", "parity", "parity_classification")

LENGTHS = (1, 3, 6, 7, 8, 10, 20, 60)  # of tests, in and beyond training
SHARED = {
  "positions.kind": "sinusoidal",
  "train.validation_samples": 1536,
  "eval.lengths": LENGTHS,
}
BASELINE = {"train.steps": 2000, "train.target_exact_match": 0.995}

# ABS at natural width: the encoder passes embeddings through, and positions
# count from the right end, so that a digit's phase is the same at every width.
WINDOW = {
  "arithmetic.aligned": True,
  "bias.kind": "window",
  "model.num_encoder_layers": 0,
  "model.num_heads": 4,
  "positions.source_anchor": "right",
  "train.steps": 1200,
  "train.learning_rate": 3e-3,
  "train.warmup_steps": 100,
}
# N×1's carry can be any digit up to 8; a successor's is rare beyond the last
# digits of a number. Two numbers have many contexts, and proofs of all of
# them need smaller weights, with which there is less rounding. Without weight
# decay sinusoids carry further than in the paper, too.
WINDOW_BY_TASK = {
  "addition": {"train.weight_decay": 1.0},
  "multiply": {"train.steps": 3000, "train.weight_decay": 1.0},
  "successor": {"train.steps": 2000},
  "parity": {"train.steps": 600},
}

ABC = {
  "method": "vanilla",  # of the first stage; the second is "abc"
  "train.steps": 4000,
  "train.learning_rate": 3e-3,
  "train.target_exact_match": 0.995,
  "retrain.train.validation_samples": 512,
  "calibration.reach": 1,
  "finetune.rounds": 3,
  "eval.lengths": (*LENGTHS, 200, 1000),
  "eval.samples": (1000,) * len(LENGTHS) + (300, 100),
}
ABC_BY_TASK = {
  "multiply": {  # its carry can be any digit up to 8
    "model.num_decoder_layers": 3,
    "retrain.model.dropout_rate": 0.0,
    "retrain.train.learning_rate": 5e-3,
  },
  "successor": {
    # Carries are rare, so the line to the digit that causes one is faint. What
    # a low threshold lets in beside it, pruning closes.
    "calibration.kappa": 0.5,
    # A single head may attend to both digits that matter: sharp attention would
    # drop one of them, and no gradient would bring it back.
    "retrain.train.weight_decay": 1.0,
    "retrain.train.steps": 400,
  },
  "parity_classification": {
    "retrain.train.steps": 150,
    "calibration.reach": 0,
    "finetune.rounds": 0,
  },
}

# Baselines at natural width, and ABC in the tasks of MUON_BY_TASK.
MUON_TRAINING = {
  "train.optimizer": "muon",
  "train.learning_rate": 0.03,
  "train.adam_learning_rate": 3e-3,
  "train.warmup_steps": 50,
}
# ABC at natural width. In these tasks Muon is as good as Adam in all of five
# seeds, with at most a quarter of the vanilla model's steps. The successor is
# left out: with Muon two of five vanilla models show no line to the digit
# before.
MUON = MUON_TRAINING | {
  "train.target_exact_match": 0.999,
  "finetune.learning_rate": 0.01,
  "retrain.train.learning_rate": 0.03,
  "retrain.train.batch_size": 64,
  # With smaller weights there is less rounding: five of five seeds of N×1
  # are proved, and one without weight decay.
  "retrain.train.weight_decay": 0.6,
}
MUON_BY_TASK = {
  "addition": {"train.steps": 800, "retrain.train.steps": 400},
  # The single digit and the other number's last one have the same place; only
  # their segments tell them apart.
  "multiply": {
    "positions.segments": True,
    "train.steps": 1200,
    "retrain.train.steps": 1200,
  },
  "parity": {"train.steps": 800, "retrain.train.steps": 150},
}
# ABC in two sequences at natural width. A batch's width is that of its longest
# number, so the vanilla model must tell six widths apart; with sinusoids of
# places it learns addition in less than half of the steps that those of the
# index take. Without an encoder layer parity is learned in 600 to 800 steps,
# with one it is hardly learned.
ABC_ENCODER_DECODER = {
  "model.num_encoder_layers": 0,
  "positions.kind": "coordinates",
}
# ABC in one sequence at natural width: a segment's vector tells the prompt from
# the output. The lines that matter then stand out, so that a higher threshold
# drops only others; the successor's is faint and needs a low one.
ABC_DECODER_ONLY = {"positions.segments": True, "calibration.kappa_self": 3.0}
ABC_DECODER_ONLY_BY_TASK = {
  "addition": {"train.steps": 1000},
  "multiply": {"calibration.kappa_self": 2.0},
  "successor": {"calibration.kappa_self": 1.2},
}

METHODS = {
  "vanilla": BASELINE,
  "window": WINDOW,
  "window_cpi": WINDOW
  | {"positions.kind": "sinusoidal", "positions.cyclic_period": 3},
  "nope_window": WINDOW | {"positions.kind": "none"},
  "alibi": BASELINE | {"positions.kind": "alibi"},
  "rope": BASELINE | {"positions.kind": "rope"},
  "abc": ABC,
}
# What some tasks change of a method.
METHODS_BY_TASK = {"abc": ABC_BY_TASK} | dict.fromkeys(
  ("window", "window_cpi", "nope_window"), WINDOW_BY_TASK
)

# The papers' protocol has one width, and lines over the whole matrix. Nearly
# all rows are the zeros of padding, and lines over them hide those of the
# digits; so only rows up to the operands' length count. The papers' κ fits
# here, where there are many lines.
FIXED = {
  "data.width": "fixed",
  "train.validation_samples": 512,
  "calibration.lines": "absolute",
  "calibration.kappa": 4.5,
  "calibration.reach": 0,
  "finetune.rounds": 0,
  "retrain.train.steps": 1500,
  "eval.lengths": (6, 10, 20, 60),
  "eval.samples": (1000,),
  "train.batch_size": 64,  # sequences are seven times as long
}
FIXED_BY_TASK = {
  "parity": {"train.batch_size": 16},  # sequences have 201 bits
  "successor": {
    # The output before the previous one shows a carry; its line is faint.
    "calibration.kappa_self": 0.3,
    "retrain.train.steps": 600,
  },
}
# The papers' model, at every size.
PAPER_MODEL = {
  "model.emb_dim": 128,
  "model.mlp_dim": 512,
  "model.num_encoder_layers": 1,
  "model.num_decoder_layers": 6,
  "model.norm": "post",
  "positions.source_anchor": "left",
  "retrain.model.num_encoder_layers": 1,
  "retrain.train.weight_decay": 0.0,
  "eval.lengths": (6, 10, 15, 20, 60),
}
# The papers train for 256 epochs of 7/8 · 2^20 numbers (ABS, section 3; ABC,
# section 5).
PAPER = PAPER_MODEL | {
  "data.numbers": "permutation",
  "model.dropout_rate": 0.3,
  "train.steps": 256 * 1792,
  "train.batch_size": 512,
  "train.learning_rate": 1e-5,
  "train.warmup_steps": 0,
  "train.schedule": "constant",
  "train.clip_norm": 0.0,
  "train.weight_decay": 0.0,
  "train.target_exact_match": 1.0,
  "train.chunk": 512,
  "calibration.lengths": (),
  "calibration.rows": "all",
  "calibration.kappa_self": 0.87,
  "calibration.maximum": "direction",
  "calibration.min_cells": 0.0,
  "calibration.layers": "last",
  "calibration.empty_heads": "transparent",
  "retrain.model.dropout_rate": 0.3,
  "retrain.train.steps": 256 * 1792 // 10,
  "retrain.train.learning_rate": 1e-5,
  "retrain.train.warmup_steps": 0,
  "eval.samples": (10000,),
}
# These runs take an hour or more of one core; calibration is as in FIXED. With
# the papers' numbers, nearly all of which have six or seven digits, and with
# their dropout the model learns nothing in that time.
TWO_CORES = PAPER_MODEL | {
  "model.dropout_rate": 0.1,
  "train.steps": 5000,
  "train.batch_size": 32,
  "train.learning_rate": 1e-3,
  "train.warmup_steps": 500,
  "train.target_exact_match": 2.0,
  "retrain.model.dropout_rate": 0.1,
  "retrain.train.steps": 2000,
  "retrain.train.learning_rate": 1e-3,
  "retrain.train.warmup_steps": 300,
}
# A number of 60 digits has 200 bits, so a step takes three times as long.
TWO_CORES_BY_TASK = {
  "parity": {
    "train.batch_size": 16,
    "train.steps": 2500,
    "retrain.train.steps": 600,
  },
}
# N×1 does not quite fit in these steps; its attention shows the lines all the
# same.
TWO_CORES_ABC_BY_TASK = {"multiply": {"abc.min_exact_match": 0.9}}
# A window is learned in a fraction of the steps, on one number in fewer still.
TWO_CORES_WINDOW = {"train.steps": 3000, "train.warmup_steps": 150}
TWO_CORES_WINDOW_BY_TASK = {
  "successor": {"train.steps": 1500},
  "parity": {"train.steps": 600},
}
# The released ABC program differs from its paper in these fields.
RELEASED = PAPER | {
  "model.num_encoder_layers": 0,
  "train.learning_rate": 1e-4,
  "train.adam_eps": 1e-9,
  "calibration.samples": 1,
  "calibration.directions": (-1,),
  "calibration.self_directions": (1,),
  "calibration.rows": "length",
  "calibration.line": "sum",
  "calibration.statistics": "distinct",
  "calibration.maximum": "none",
  "retrain.model.num_encoder_layers": 0,
  "retrain.train.learning_rate": 1e-4,
  "eval.samples": (51,),
  "eval.free_running": True,
}
PAPERS = {"paper": PAPER, "paper_model": TWO_CORES, "released": RELEASED}
OPTIONS = ("decoder_only", "fixed", *PAPERS)

# Prompt and output are one sequence. With sinusoids of the index in it the
# model does not interpolate.
DECODER_ONLY = {
  "model.kind": "decoder_only",
  "model.num_decoder_layers": 3,
  "positions.kind": "coordinates",
  "train.learning_rate": 1e-3,
  # Outputs and operands share a softmax, so each line is one of more.
  "calibration.kappa_self": 2.0,
}


def get_config(preset: str = "addition"):
  """Returns the config of a preset TASK[,METHOD][,OPTION...]."""
  task, method, options = parse_preset(preset, TASKS, METHODS, OPTIONS)
  papers = [option for option in options if option in PAPERS]
  if len(papers) > 1:
    raise ValueError(f"preset {preset!r}: name at most one of {tuple(PAPERS)}")
  in_one_sequence = "decoder_only" in options
  has_natural_width = not {"fixed", *PAPERS} & {*options}
  changes: dict[str, Any] = {"method": method} | SHARED | METHODS[method]
  changes |= METHODS_BY_TASK.get(method, {}).get(task, {})
  if in_one_sequence:
    own = METHODS[method].get("positions.kind", "coordinates")
    changes |= DECODER_ONLY | {"positions.kind": own}
  if has_natural_width and method in ("vanilla", "alibi", "rope"):
    changes |= MUON_TRAINING
  if has_natural_width and method == "abc":
    if not in_one_sequence:
      changes |= ABC_ENCODER_DECODER
    if task in MUON_BY_TASK:
      changes |= MUON | MUON_BY_TASK[task]
    if in_one_sequence and task != "parity_classification":
      changes |= ABC_DECODER_ONLY | ABC_DECODER_ONLY_BY_TASK.get(task, {})
  if not has_natural_width:
    changes |= FIXED | FIXED_BY_TASK.get(task, {})
  for paper in papers:  # none or one
    changes |= PAPERS[paper]
    if paper == "paper_model":
      changes |= TWO_CORES_BY_TASK.get(task, {})
      if "window" in method:
        changes |= TWO_CORES_WINDOW | TWO_CORES_WINDOW_BY_TASK.get(task, {})
      if method == "abc":
        changes |= TWO_CORES_ABC_BY_TASK.get(task, {})
    # Retraining keeps the positions of the first stage; by default it has none.
    changes["retrain.positions.kind"] = changes["positions.kind"]
    # Wider than the other models, which takes two cores too long.
    if (method, task) == ("rope", "addition") and paper != "paper_model":
      changes["model.emb_dim"] = 512
  if method != "abc":  # there is no second stage
    changes = {
      name: value
      for name, value in changes.items()
      if not name.startswith("retrain.")
    }
  return default_config(task, changes)
