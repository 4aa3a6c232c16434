"""Presets of the protocol of ASEntmax: TASK[,METHOD][,OPTION...].

The tasks are those of "Long-Context Generalization with Sparse Attention"
(arXiv 2506.16640, and its released configurations): sequences of 32 to 64
symbols in training and of 2, 4, 8 ... times 64 at test, drawn uniformly from an
alphabet of 32, measured by exact match; and associative recall (MQMTAR): four
keys, each of two symbols of an alphabet of 256, are looked up in a context of
32 to 64 tokens, or 2, 4, 8 ... times 64 at test.

TASK     sort, copy, reverse, mqmtar
METHOD   rope      softmax and rotary positions, the paper's baseline (default)
         ssmax     the same with scalable softmax, its other baseline
         nape      softmax and NAPE positions
         asentmax  the paper's own: NAPE, 1.5-entmax and a learned scaling
         best      sort, mqmtar: what goes furthest on two cores, with segments
                   and entmax; in sort 60 % of the examples draw from few
                   distinct values (configs/sorting.py); mqmtar has the
                   positions of T5, whose bias tells distances up to 16 apart,
                   Muon with weight decay, and contexts of 8 to 64 tokens
         abc       copy, reverse: ABC, with --mode=abc
OPTION   segments  a learned vector for the prompt and one for the output
         entmax    1.5-entmax in the softmax's place: exact zeros
         paper     the sizes, steps and learning rates of the paper, for an
                   accelerator; without it model and budget are for two cores

  lengthgen --config=configs/asentmax.py:sort,best --workdir=W1
  lengthgen --config=configs/asentmax.py:copy,abc --mode=abc --workdir=W2

Not implemented here are Gemma-2 blocks and an end token.
"""

from lengthgen_jax.config import default_config, load_presets, parse_preset

sorting = load_presets("sorting.py")

TASKS = ("sort", "copy", "reverse", "mqmtar")
PROTOCOL = sorting.DECODER_ONLY | {
  "data.train_length": 64,
  "data.shortest": 32,
  "train.steps": 8000,
  "train.learning_rate": 1e-3,
  "train.chunk": 500,
  "eval.lengths": (64, 128, 256, 512),
  "eval.samples": (1000, 300, 300, 300),
  "eval.free_running": False,
}
BY_TASK = {
  "sort": {"sort.repeat_share": 0.0},  # no repetition data
  "reverse": {"model.num_decoder_layers": 6},
  "mqmtar": {"model.num_decoder_layers": 4},
}
PAPER = {
  "model.emb_dim": 256,
  "model.mlp_dim": 1024,
  "model.num_heads": 8,
  "model.norm_kind": "rms",
  "model.dense_bias": False,
  "train.batch_size": 128,
  "train.warmup_steps": 20_000,
  "train.optimizer": "adam",
  "train.learning_rate": 4e-4,
  "train.adam_learning_rate": 0.0,
  "train.adam_b2": 0.99,
  "eval.lengths": (64, 128, 256, 512, 1024, 2048, 4096),
  "eval.samples": (1000,),
}
PAPER_BY_TASK = {
  "sort": {"train.steps": 312_500, "data.size": 40_000_000},
  "copy": {
    "model.num_heads": 16,
    "train.steps": 156_250,
    "train.learning_rate": 1e-3,
    "data.size": 20_000_000,
  },
  "reverse": {"train.steps": 234_375, "data.size": 30_000_000},
  "mqmtar": {
    "model.emb_dim": 512,
    "model.num_heads": 16,
    "train.steps": 390_625,
    "train.learning_rate": 2e-4,
    "data.size": 50_000_000,
  },
}
ROPE = {"positions.kind": "rope", "train.target_exact_match": 0.995}
NAPE = ROPE | {"positions.kind": "nape"}
BEST = {
  **sorting.SEGMENTS,
  **sorting.ENTMAX,
  "eval.lengths": (64, 128, 256, 512, 1024),
  "eval.samples": (1000, 300, 300, 300, 30),
}
BEST_BY_TASK = {
  "sort": {
    "model.num_decoder_layers": 3,
    "sort.repeat_share": 0.6,
    "sort.repeat_values": "log_uniform",
    "train.steps": 16_000,
    "train.learning_rate": 3e-3,
  },
  # Short contexts teach to copy a value. All distances from 17 on share one
  # bias, so that longer contexts have none that training lacks.
  "mqmtar": {
    "data.shortest": 8,
    "data.short_longest": 24,
    "data.short_share": 0.2,
    "data.buckets": (24, 64),
    "positions.kind": "t5",
    "positions.max_distance": 17,
    "train.optimizer": "muon",
    "train.learning_rate": 0.02,
    "train.adam_learning_rate": 5e-3,
    "train.warmup_steps": 50,
    "train.weight_decay": 0.3,
  },
}
ABC = {
  "method": "vanilla",  # of the first stage; the second is "abc"
  "positions.kind": "coordinates",
  "model.activation": "relu",  # its rounding is bounded more tightly
  "data.shortest": 1,  # of the first stage
  "train.target_exact_match": 0.995,
  "abc.vanilla_longest": 256,
  "calibration.lengths": (32, 48, 64),
  "calibration.reach": 1,
  "calibration.kappa_self": 4.0,
  "retrain.data.shortest": 32,
  "retrain.train.steps": 500,
  "finetune.rounds": 3,
  "eval.lengths": (64, 128, 256, 512, 4096),
  "eval.samples": (1000, 300, 300, 300, 20),
}
METHODS = {
  "rope": ROPE,
  "ssmax": ROPE | {"temperature.kind": "scalable"},
  "nape": NAPE,
  "asentmax": NAPE | {"temperature.kind": "asentmax"} | sorting.ENTMAX,
  "best": BEST,
  "abc": ABC,
}
# The tasks of a method; a method that is not listed has them all.
TASKS_OF_METHOD = {"best": (*BEST_BY_TASK,), "abc": ("copy", "reverse")}
OPTIONS = {"segments": sorting.SEGMENTS, "entmax": sorting.ENTMAX}


def get_config(preset: str = "sort"):
  """Returns the config of a preset TASK[,METHOD][,OPTION...]."""
  task, method, options = parse_preset(
    preset, TASKS, METHODS, (*OPTIONS, "paper")
  )
  tasks = TASKS_OF_METHOD.get(method, TASKS)
  if task not in tasks:
    raise ValueError(f"preset {preset!r}: {method} is for {', '.join(tasks)}")
  changes = PROTOCOL | BY_TASK.get(task, {})
  changes |= {"method": method} | METHODS[method]
  if method == "best":
    changes |= BEST_BY_TASK[task]
  if "paper" in options:
    changes |= PAPER | PAPER_BY_TASK[task]
    if method != "abc":  # whose first stage stops when it interpolates
      # As in the paper, training takes all its steps: this is never reached.
      changes |= {"train.target_exact_match": 2.0}
  for name in options:
    if name in OPTIONS:
      changes |= OPTIONS[name]
      changes["method"] += f"+{name}"
  return default_config(task, changes)
