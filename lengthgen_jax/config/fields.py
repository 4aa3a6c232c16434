"""All fields of a config are defined here, with defaults and meanings.

The section of a task (arithmetic, sort, increment ...) has the fields of the
task's dataclass. Presets (configs/) start from `default_config`.
"""

import copy
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from ml_collections import ConfigDict, config_dict

from lengthgen_jax.tasks import TASKS

# The sections that ABC's second stage has again in `retrain`; a field that is
# None there has the first stage's value.
STAGED = ("data", "model", "positions", "temperature", "bias", "train")
# Fields of these sections that calibration decides.
CALIBRATED = ("bias.kind", "bias.file")

# The fields that decide how a run is trained, except for the tasks' sections.
TRAINING_FIELDS = {
  "task": "addition",  # a name in lengthgen_jax/tasks/__init__.py
  "method": "vanilla",  # a label for result rows and figures
  # fields that the command line changed, for the same; filled in by the program
  "overrides": (),
  # files that registered what is not the package's; filled in by the program
  "registered_by": (),
  "seeds": (0,),  # trained together, one result row each
  # devices along seeds and along data, like (2, 4); () = as many seeds as
  # divide the devices, and the batch over the rest
  "mesh": (),
  # folder of JAX's compilation cache, so that the next run starts at once;
  # "" = none
  "compile_cache": "~/.cache/lengthgen_jax",
  "data": {
    # lengths: a uniform length per operand, then uniform digits;
    # permutation: the papers' integers below 2^20, split 7:1 into training and
    # validation
    "numbers": "lengths",
    # longest training length: decimal digits, or items of a sequence;
    # short_share of the lengths is uniform in shortest...short_longest,
    # the rest uniform up to it; short_longest=0 is the longest
    "train_length": 6,
    "shortest": 1,
    "short_longest": 0,
    "short_share": 0.8,
    # static sizes of tasks without padding; () pads to the longest
    "buckets": (),
    # natural: operands padded to the longest length + slack;
    # fixed: one width for training and test (the papers)
    "width": "natural",
    # natural widths in training, used in turn; () = longest + slack, and one
    # more for every further phase of a cyclic index
    "widths": (),
    "fixed_width": 61,  # in digits; bits for parity follow from it
    "size": 0,  # examples of the finite data set, 0 = endless
    "seed": 0,  # of the permutation, or of the data set
  },
  # auxiliary tasks with heads of their own. sort: successor, count, fill,
  # predecessor, minimum; increment: carry
  "hints": (),
  "mixing": {
    # alternate: gradient steps in turn; weighted: shares of every batch
    "kind": "alternate",
    "weights": (),  # main task first; () = equal
  },
  "model": {
    "kind": "encoder_decoder",  # encoder_decoder, decoder_only
    "emb_dim": 64,
    "num_heads": 8,
    "mlp_dim": 256,
    # 0 = the encoder passes tokens through; a decoder_only model has none
    "num_encoder_layers": 1,
    "num_decoder_layers": 2,
    "norm": "pre",  # pre, post, block_end, none
    "norm_kind": "layer",  # layer, rms
    "dense_bias": True,  # biases of dense layers
    "activation": "relu",  # relu, gelu
    "dropout_rate": 0.0,
    # of activations: float32, bfloat16; float64, of parameters too
    "dtype": "float32",
    # of matrix products: default, high, highest (CPUs know one)
    "precision": "highest",
  },
  "positions": {
    # none; encodings of the index: sinusoidal, learned, rope, alibi, t5, fire,
    # randomized; encodings of places, which an output shares with its
    # operands' digits: coordinates (sinusoids), abacus, coupling (learned)
    "kind": "sinusoidal",
    "cyclic_period": 0,  # T of cyclic position indexing, 0 = off
    "source_anchor": "left",  # end that source positions count from
    "table": 512,  # rows of a learned table, or positions to draw from
    # places start below this in training (abacus, coupling)
    "random_start": 100,
  },
  # of the softmax: scores are multiplied by this factor before the bias is
  # added
  "temperature": {
    # none; a·log(n+1): log_items, log_visible (n = keys that a row sees),
    # fixed (a is not learned); one_plus_log: 1 + a·log(n+1); scalable:
    # s·log n + b per head
    "kind": "none",
    "initial": 0.5,  # first value of a (or s)
    # s: n is multiplied by s, in training by a random factor in 1...s²
    "stretch": 1.0,
  },
  # the parameters before the first step
  "initial": {
    # random; construction: weights that sort, of Theorem 5.1 of the task
    # hinting paper (train.steps=0 leaves them as they are)
    "kind": "random",
    "longest": 1000,  # most items that the construction sorts
    # how it computes whether copies of an item are left: difference, or share
    # (as in the paper)
    "copies": "difference",
    "noise": 0.0,  # standard deviation of normal noise on its parameters
  },
  "bias": {
    "kind": "none",  # none, window, file
    "file": "",  # an .npz with lines or matrices
    "window": 1,  # w, tokens on each side
    "sides": "both",  # both, previous (the less significant one alone)
    "windowed_encoder": False,  # window encoder self-attention too
    "scale": 1.0,  # factor on the bias's open values
    "learned_scale": False,  # one more factor per layer and site, learned
    "closed": -1e9,  # bias of closed cells; above -1e5 they are not masked
    # True: no causal mask besides the bias, which may then show the future
    "allow_leak": False,
  },
  "train": {
    "steps": 1000,  # gradient steps
    "batch_size": 128,
    "learning_rate": 1e-3,
    "warmup_steps": 200,
    "schedule": "cosine",  # constant, cosine
    "clip_norm": 1.0,  # global gradient norm, 0 = off
    "adam_b1": 0.9,
    "adam_b2": 0.98,
    "adam_eps": 1e-8,
    "weight_decay": 0.0,  # of AdamW; it is multiplied by the learning rate
    "chunk": 100,  # steps per dispatch; logs and stops are between chunks
    "validation_samples": 512,  # in-range examples after every chunk
    # freeze a seed at this validation exact match; above 1 = never
    "target_exact_match": 2.0,
    # seeds whose validation exact match stays below restart_below start
    # again from other parameters, this often
    "restarts": 0,
    "restart_below": 0.99,
    # how a step trains several seeds: loop, or vmap; with vmap rounding depends
    # on which seeds still train, so a resumed run may differ in the last bits
    "seed_axis": "loop",
  },
  "checkpoint": {
    "every": 4,  # chunks between checkpoints
    "keep": 2,  # newest checkpoints kept; each holds the best too
  },
  # ABC: how lines are found in the attention of the model above ...
  "calibration": {
    "lengths": (4, 5, 6),  # decimal digits; () draws training examples
    "samples": 500,  # for each width and length
    "quantity": "weights",  # weights (after softmax), scores (before)
    "scaled": True,  # scores divided by sqrt(head size)
    "lines": "operand",  # operand: anchored to segments; absolute: papers
    "directions": (-1, 0, 1),  # Δ in cross-attention
    "self_directions": (0, 1),  # Δ in self-attention
    # 0: any line; n: fixed places on marks alone, outputs at most n rows
    # back, so that receptive fields stay small enough for certificates
    "reach": 0,
    "rows": "length",  # rows used: length (below the operands'), all
    "line": "mean",  # strength of a line: mean, sum
    "rule": "zscore",  # zscore (μ + κσ), mass (multiple of random)
    "kappa": 2.0,  # threshold in cross-attention
    "kappa_self": 0.87,  # threshold in self-attention
    # μ and σ over all lines, distinct strengths, or long ones (min_cells)
    "statistics": "all",
    "maximum": "head",  # maximum that is subtracted: of a direction, head, none
    "min_cells": 0.5,  # least share of the rows that a line crosses
    "layers": "each",  # lines of each layer, or the last one's for all
    "empty_heads": "closed",  # heads without a line: closed, transparent
  },
  "abc": {
    # validation exact match from which on a model counts as interpolated
    "min_exact_match": 0.97,
    "example": "",  # input of the attention heat maps; "" = a short one
    "vanilla_longest": 60,  # longest test length of the vanilla model
  },
  # ... and what the model retrained with them changes: any field of the
  # sections in STAGED
  "retrain": {
    "start": "fresh",  # parameters: fresh, interpolated
  },
  # after training (with abc: after the second stage) certify; train a wrong
  # model on inputs of training length on which it is wrong; certify again
  "practice": {
    "rounds": 0,  # most rounds of these; 0 = none, and no certificate
    "steps": 300,  # gradient steps of a round
    "learning_rate": 1e-3,
    "share": 0.25,  # of such inputs in every batch
  },
}
# The fields of modes that read a trained workdir; they do not affect training.
READING_FIELDS = {
  # proofs for every length (--mode=certify)
  "certify": {
    "max_cases": 1e9,  # a certificate of more cases is refused
    "exhaustive": True,  # False: stop at the narrowest cases that fail
  },
  # looking inside (--mode=probe)
  "probe": {
    # inputs whose attention is drawn, as one types them; () = the papers', or
    # an example
    "inputs": (),
    "random_inputs": 0,  # number of further random ones of training length
    "stage": "",  # of --mode=abc: interpolate, retrain, certify; "" = the last
    # names in lengthgen_jax/probes/registry.py and figures.py; () = all that
    # apply to the model
    "only": (),
    "figures": (),
    "lengths": (),  # () = those of eval.lengths up to 100
    "samples": 128,  # inputs of each length
    # length of the inputs of interventions (what is knocked out or patched);
    # 0 = the training length
    "causal_length": 0,
    # whether the best seed is trained again without each line of its bias
    "retrain": False,
    # activations that are saved for the inputs, like
    # decoder.blocks.0.before_mlp
    "activations": (),
    # chunks of training between probes during training; 0 = none
    "every": 0,
  },
  # timing (--mode=bench)
  "bench": {
    "only": (),  # names in lengthgen_jax/benchmark/settings.py; () = all
    "repeats": 5,  # runs of each case, of which the median counts
    "budget": 900.0,  # seconds; cases that would take longer are left out
    "lengths": (60, 200, 1000, 3000, 10_000),  # decimal digits
    "threads": (1, 2),  # numbers of threads in the comparison with PyTorch
  },
  "eval": {
    "lengths": (6, 10, 20, 60),  # decimal digits
    # arithmetic: equal, unequal, carry, chain, nines, zeros, short, repeated;
    # sort: uniform, repeats, sorted, reversed, all_equal, two_values,
    # near_ties, multiplicity, mean_multiplicity; increment: uniform, nines,
    # repeated; modular, permutations: uniform, all_equal, lone; dyck: walks,
    # broken, deep, uniform; copy, reverse: uniform, all_equal
    "test_sets": ("equal",),
    # repeats: number of distinct items, and how often each occurs
    "repeated_items": 3,
    "repetitions": (1, 2, 4, 8),
    # unequal of multiply_long: digits of the factor b beside those of a
    "multipliers": (3, 61),
    # multiplicity, mean_multiplicity: how often each value that occurs does,
    # exactly or on average
    "multiplicities": (1, 2, 4, 8, 16),
    "chains": (1, 2, 4, 8, 16, 32),  # chain: places that a carry crosses
    # whether the task's hard and odd inputs are tested too, and how many of
    # each kind
    "stress": False,
    "stress_samples": 200,
    # bound of the search for the longest length with exact match of at least
    # 99 % (by the lower bound), on every test set; 0 = no search
    "frontier": 0,
    "frontier_samples": 299,  # per length; 299 right of 299 are 99 %
    # samples per length and seed: one number, or one for each length
    "samples": (1000,),
    "checkpoint": "last",  # last, best (by validation), or a step
    "seed": 0,  # of the test samples
    # of a construction: numbers of significant bits; for each of them the
    # longest list length that is sorted is searched; () = no search
    "precisions": (),
    # whether outputs are decoded freely too: rows em_end_blind and edit
    "free_running": False,
    # predict: whether intermediate results are printed too (multiply_long: the
    # running sums)
    "scratchpad": False,
    "memory_mb": 0,  # of attention scores at once; 0 = 16 on CPU, else 1024
  },
}
# The fields whose defaults in the second stage differ from the first stage's.
RETRAIN = {
  "data.widths": (),
  "model.num_encoder_layers": 0,
  "model.dropout_rate": 0.1,
  "positions.kind": "none",
  "train.steps": 800,
  "train.learning_rate": 3e-3,
  "train.warmup_steps": 50,
  "train.target_exact_match": 2.0,
  "train.restarts": 1,
}


def default_config(task: str = "addition") -> ConfigDict:
  """Returns the default config of a task: a small vanilla model."""
  sections = {
    known.section: {f.name: f.default for f in dataclasses.fields(known)}
    for known in TASKS.values()
  }
  config = ConfigDict(
    TRAINING_FIELDS | READING_FIELDS | sections | {"task": task}
  )
  if task in TASKS:
    config.eval.test_sets = tuple(TASKS[task].test_sets)[:1]
  for section in STAGED:
    config.retrain[section] = {
      name: config_dict.placeholder(type(value))
      for name, value in config[section].items()
      if f"{section}.{name}" not in CALIBRATED
    }
  config.retrain.update_from_flattened_dict(RETRAIN)
  return config


def parse_preset(
  preset: str,
  tasks: tuple[str, ...],
  methods: dict[str, tuple],
  options: tuple[str, ...],
) -> tuple[str, str, list[str]]:
  """Returns (task, method, options) of a preset TASK[,METHOD][,OPTION...].

  Args:
    preset: as it is typed.
    tasks, methods, options: the valid names; the first method is the default.

  Raises:
    ValueError: another name occurs, or two methods.
  """
  task, *words = preset.split(",")
  if task not in tasks:
    raise ValueError(f"preset {preset!r}: task {task!r} is none of {tasks}")
  chosen = [word for word in words if word in methods]
  extras = [word for word in words if word in options]
  if len(chosen) > 1 or len(chosen) + len(extras) < len(words):
    raise ValueError(
      f"preset {preset!r}: after the task, name at most one method of"
      f" {(*methods,)} and options of {options}"
    )
  return task, *(chosen or [*methods][:1]), extras


def leaves(
  config: ConfigDict | dict, path: str = ""
) -> Iterator[tuple[str, Any]]:
  """Yields (name, value) of every field, like ("train.steps", 1000)."""
  for name, value in config.items():
    if hasattr(value, "items"):
      yield from leaves(value, f"{path}{name}.")
    else:
      yield f"{path}{name}", value


def retrain_config(
  config: ConfigDict, seeds: Sequence[int], file: str | pathlib.Path | None
) -> ConfigDict:
  """Returns the config of the retraining stage.

  It is that of the first stage, but for the changes in `config.retrain`.

  Args:
    config: of the whole run.
    seeds: those that interpolated.
    file: their lines; None before there are any.
  """
  config = copy.deepcopy(config)
  changes = {
    name: value
    for name, value in leaves(config.retrain)
    if value is not None and "." in name  # the others are of the stage itself
  } | {
    "bias.kind": "file" if file else "none",
    "bias.file": str(file or ""),
    "method": "abc",
    "seeds": tuple(seeds),
  }
  if config.mesh and len(seeds) % config.mesh[0]:
    changes["mesh"] = ()  # asked for when there were more seeds
  config.update_from_flattened_dict(changes)
  return config
