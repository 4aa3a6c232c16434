"""This module checks every field of a config by itself: known choices, valid
numbers.

What several fields mean together is checked in build.py and experiment.py.
"""

import math

from ml_collections import ConfigDict

from lengthgen_jax.attention.biases import BIASES
from lengthgen_jax.attention.biases.window import SIDES
from lengthgen_jax.attention.calibration import CHOICES as RULES
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.attention.positions.encoding import ANCHORS
from lengthgen_jax.attention.temperature import TEMPERATURES
from lengthgen_jax.config.fields import leaves, retrain_config
from lengthgen_jax.errors import check, check_choice
from lengthgen_jax.models import config as model_config
from lengthgen_jax.tasks import TASKS
from lengthgen_jax.tasks.dataset import NUMBERS
from lengthgen_jax.tasks.mixing import MIXING
from lengthgen_jax.tasks.packing import KINDS
from lengthgen_jax.training.optimizer import SCHEDULES
from lengthgen_jax.training.seeds import SEED_AXES

CHOICES = {
  "task": TASKS,
  "data.numbers": NUMBERS,
  "data.width": ("natural", "fixed"),
  "mixing.kind": MIXING,
  "model.kind": KINDS,
  "model.norm": model_config.NORMS,
  "model.norm_kind": model_config.NORM_KINDS,
  "model.activation": model_config.ACTIVATIONS,
  "model.dtype": model_config.DTYPES,
  "model.precision": model_config.PRECISIONS,
  "positions.kind": POSITIONS,
  "positions.source_anchor": ANCHORS,
  "temperature.kind": TEMPERATURES,
  "initial.kind": ("random", "construction"),
  "initial.copies": ("difference", "share"),
  "bias.kind": BIASES,
  "bias.sides": SIDES,
  "train.schedule": SCHEDULES,
  "train.seed_axis": SEED_AXES,
  "calibration.quantity": ("weights", "scores"),
  "calibration.lines": ("operand", "absolute"),
  "calibration.rows": ("length", "all"),
  "retrain.start": ("fresh", "interpolated"),
} | {f"calibration.{name}": choices for name, choices in RULES.items()}

# What must hold of numbers, and the fields for which it must.
NUMBERS = (
  (
    "must be positive",
    lambda value: value > 0,
    "data.train_length data.fixed_width model.emb_dim model.num_heads"
    " model.mlp_dim model.num_decoder_layers positions.table initial.longest"
    " train.batch_size train.learning_rate train.chunk"
    " train.validation_samples checkpoint.every checkpoint.keep data.shortest"
    " positions.random_start eval.repeated_items calibration.samples"
    " bias.scale certify.max_cases eval.stress_samples probe.samples"
    " bench.repeats bench.budget"
    " practice.steps practice.learning_rate",
  ),
  (
    "must not be negative",
    lambda value: value >= 0,
    "data.short_longest model.num_encoder_layers positions.cyclic_period"
    " bias.window train.warmup_steps train.clip_norm train.weight_decay"
    " train.steps initial.noise"
    " train.restarts eval.memory_mb data.size calibration.reach"
    " practice.rounds probe.every probe.random_inputs"
    " probe.causal_length eval.frontier",
  ),
  (
    "must be at least 299: fewer cannot prove 99 %",
    lambda value: value >= 299,
    "eval.frontier_samples",
  ),
  (
    f"must be below {1 << 31} examples",
    lambda value: value < 1 << 31,
    "data.size",
  ),
  (
    f"must be from 0 to {(1 << 31) - 1}",
    lambda value: 0 <= value < 1 << 31,
    "data.seed eval.seed",
  ),
  (
    "must be in [0, 1]",
    lambda value: 0.0 <= value <= 1.0,
    "data.short_share calibration.min_cells practice.share",
  ),
  (
    "must be in [0, 1)",
    lambda value: 0.0 <= value < 1.0,
    "model.dropout_rate train.adam_b1 train.adam_b2",
  ),
  ("must be at least 1", lambda value: value >= 1.0, "temperature.stretch"),
  ("must not be positive", lambda value: value <= 0.0, "bias.closed"),
)
# Tuples of integers (int32), and the least integer that they may hold.
INTEGERS = {
  "seeds": 0,
  "eval.lengths": 1,
  "eval.samples": 1,
  "eval.repetitions": 1,
  "eval.multipliers": 1,
  "eval.precisions": 2,
  "eval.multiplicities": 1,
  "eval.chains": 1,
  "data.widths": 1,
  "data.buckets": 1,
  "calibration.lengths": 1,
  "probe.lengths": 1,
  "bench.lengths": 1,
  "bench.threads": 1,
  "mesh": 1,
}
# Tuples that must not be empty, and the advice if they are.
WANTED = {
  "seeds": "name at least one seed, like (0,)",
  "eval.test_sets": "name at least one",
  "eval.lengths": "name at least one, like (6,)",
}


_is_constructed = lambda config: config.initial.kind == "construction"
_has_window = lambda config: config.bias.kind == "window"
_has_temperature = lambda config: config.temperature.kind != "none"
_has_encoder = lambda config: config.model.kind == "encoder_decoder"
_has_hints = lambda config: bool(config.hints)
# Fields that matter under a condition alone: a function of the config, and the
# condition in words. All other fields always matter.
MATTERS = {
  "data.fixed_width": (
    lambda config: config.data.width == "fixed",
    "data.width='fixed'",
  ),
  "data.seed": (
    lambda config: config.data.size or config.data.numbers == "permutation",
    "finite data: data.size or data.numbers='permutation'",
  ),
  "mixing.kind": (_has_hints, "runs with hints"),
  "mixing.weights": (_has_hints, "runs with hints"),
  "model.num_encoder_layers": (_has_encoder, "model.kind='encoder_decoder'"),
  "positions.source_anchor": (_has_encoder, "model.kind='encoder_decoder'"),
  "positions.cyclic_period": (
    lambda config: POSITIONS[config.positions.kind].by_index,
    "encodings of the index: positions.kind="
    + " or ".join(name for name in POSITIONS if POSITIONS[name].by_index),
  ),
  "positions.table": (
    lambda config: POSITIONS[config.positions.kind].limited,
    "positions.kind="
    + " or ".join(name for name in POSITIONS if POSITIONS[name].limited),
  ),
  "positions.random_start": (
    lambda config: POSITIONS[config.positions.kind].random_start,
    "positions.kind="
    + " or ".join(name for name in POSITIONS if POSITIONS[name].random_start),
  ),
  "temperature.initial": (_has_temperature, "a temperature.kind but 'none'"),
  "temperature.stretch": (_has_temperature, "a temperature.kind but 'none'"),
  "initial.longest": (_is_constructed, "initial.kind='construction'"),
  "initial.copies": (_is_constructed, "initial.kind='construction'"),
  "bias.window": (_has_window, "bias.kind='window'"),
  "bias.sides": (_has_window, "bias.kind='window'"),
  "bias.windowed_encoder": (_has_window, "bias.kind='window'"),
  "bias.file": (lambda config: config.bias.kind == "file", "bias.kind='file'"),
}


def check_matters(config: ConfigDict, name: str) -> None:
  """Checks that a field which was set changes something.

  A field of a section that ABC's second stage has too may matter there alone.

  Args:
    config: the whole config.
    name: of the field, as in "data.fixed_width" or "retrain.data.fixed_width".

  Raises:
    UsageError: it changes nothing under the kinds that are chosen.
  """
  in_second_stage = name.startswith("retrain.")
  short_name = name.removeprefix("retrain.")
  if short_name not in MATTERS or (
    config.task not in TASKS or config.positions.kind not in POSITIONS
  ):
    return
  matters, words = MATTERS[short_name]
  stages = [retrain_config(config, config.seeds, None)]
  stages += [] if in_second_stage else [config]
  value = config
  for part in name.split("."):
    value = value[part]
  check(
    any(
      stage.positions.kind in POSITIONS and matters(stage) for stage in stages
    ),
    f"{name}={value!r} changes nothing here: it is for {words}",
  )


def check_fields(config: ConfigDict) -> None:
  """Raises UsageError, one line that names the field and what is valid."""
  fields = dict(leaves(config))
  numbers = [
    (name, words, holds)
    for words, holds, names in NUMBERS
    for name in names.split()
  ]
  listed = {*CHOICES, *WANTED, *INTEGERS, *(name for name, *_ in numbers)}
  missing = ", ".join(sorted(listed - set(fields)))
  check(
    not missing,
    f"the config has no field {missing}; lengthgen_jax/config/fields.py has"
    " all there are",
  )
  for name, value in fields.items():
    finite = not isinstance(value, float) or math.isfinite(value)
    check(finite, f"{name}={value}: must be finite")
  for name, choices in CHOICES.items():
    check_choice(name, fields[name], choices)
  for name, words, holds in numbers:
    check(holds(fields[name]), f"{name}={fields[name]}: {words}")
  for name, words in WANTED.items():
    check(fields[name], f"{name}=(): {words}")
  for name, least in INTEGERS.items():
    value = tuple(fields[name])
    check(
      all(isinstance(n, int) and least <= n < 1 << 31 for n in value),
      f"{name}={value}: must be integers from {least} on",
    )
  for name in ("directions", "self_directions"):
    value = tuple(config.calibration[name])
    check(
      value and all(isinstance(step, int) for step in value),
      f"calibration.{name}={value}: name integers, like (0, 1)",
    )
  check(
    len(set(config.seeds)) == len(config.seeds),
    f"seeds={tuple(config.seeds)}: name every seed once",
  )
  _check_initial(config)
  check(
    len(config.mesh) in (0, 2),
    f"mesh={tuple(config.mesh)}: devices along seeds and along data, like"
    " (2, 4); or ()",
  )
  _check_eval(config)
  _check_heads(config)


def _check_initial(config: ConfigDict) -> None:
  """Raises UsageError if other fields do not fit the initial parameters."""
  initial, train = config.initial, config.train
  if initial.kind == "random":
    check(train.steps > 0, "train.steps=0: must be positive")
    check(
      not config.eval.precisions,
      "eval.precisions: is for initial.kind='construction'; choose ()",
    )
    check(
      initial.noise == 0,
      f"initial.noise={initial.noise}: initial.kind='random' is noise already",
    )
    return
  what = f"initial.kind={initial.kind!r}"
  check(
    config.bias.kind == "none",
    f"bias.kind={config.bias.kind!r}: {what} sees everything; choose 'none'",
  )
  check(
    train.restarts == 0,
    f"train.restarts={train.restarts}: {what} is one start; choose 0",
  )


def _check_eval(config: ConfigDict) -> None:
  """Raises UsageError if test sets, checkpoint or samples are not valid."""
  valid = TASKS[config.task].test_sets
  check(valid, f"task={config.task!r} names no test set: give it one")
  for name in config.eval.test_sets:
    check_choice("eval.test_sets", name, valid)
  checkpoint = str(config.eval.checkpoint)
  check(
    checkpoint in ("last", "best") or checkpoint.isdigit(),
    f"eval.checkpoint={checkpoint!r}: choose last, best or the number of a"
    " step",
  )
  check(
    len(config.eval.samples) in (1, len(config.eval.lengths)),
    f"eval.samples={tuple(config.eval.samples)}: one positive number, or one"
    f" for each of eval.lengths={tuple(config.eval.lengths)}",
  )


def check_places(config: ConfigDict, task) -> None:
  """Raises UsageError if positions or bias need what the model or task
  lacks."""
  kind = config.positions.kind
  digits = [name for name in POSITIONS if not POSITIONS[name].of_digits]
  check(
    task.of_digits or kind in digits,
    f"positions.kind={kind!r} counts places of digits in numbers, {task.name}"
    f" has none: choose one of {', '.join(digits)}",
  )
  decoder_only = config.model.kind == "decoder_only"
  check(
    not (decoder_only and config.bias.windowed_encoder),
    "bias.windowed_encoder: model.kind='decoder_only' has no encoder",
  )


def _check_heads(config: ConfigDict) -> None:
  """Raises UsageError if the heads do not divide the model's features."""
  model, positions = config.model, config.positions
  check(
    model.emb_dim % model.num_heads == 0,
    f"model.num_heads={model.num_heads} does not divide"
    f" model.emb_dim={model.emb_dim}",
  )
  check(
    positions.kind != "rope" or (model.emb_dim // model.num_heads) % 2 == 0,
    f"positions.kind='rope' needs an even head size, not"
    f" {model.emb_dim // model.num_heads} (model.emb_dim / model.num_heads)",
  )
