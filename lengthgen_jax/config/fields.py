"""All fields of a config: defaults, meanings, and what they may be.

The section of a task (arithmetic, sort, increment ...) has the fields of the
task's dataclass. Presets (configs/) start from `default_config`. What several
fields mean together is checked where the experiment is built (build.py).
"""

import copy
import dataclasses
import math
import operator
import pathlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict, config_dict

from lengthgen_jax.attention.biases import BIASES
from lengthgen_jax.attention.biases.window import SIDES
from lengthgen_jax.attention.calibration import CHOICES as CALIBRATION_CHOICES
from lengthgen_jax.attention.normalizers import NORMALIZERS
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.attention.positions.encoding import ANCHORS
from lengthgen_jax.attention.temperature import TEMPERATURES
from lengthgen_jax.errors import check, check_choice
from lengthgen_jax.models import layers
from lengthgen_jax.tasks import TASKS
from lengthgen_jax.tasks.dataset import MIXING, NUMBERS
from lengthgen_jax.tasks.packing import KINDS
from lengthgen_jax.training.optimizer import OPTIMIZERS, SCHEDULES
from lengthgen_jax.training.train_step import SEED_AXES


class Condition(NamedTuple):
  """A Condition says when a field changes anything.

  Attributes:
    holds: function of a whole config.
    text: returns the condition as a message names it.
  """

  holds: Callable[[ConfigDict], Any]
  text: Callable[[], str]


class Field(NamedTuple):
  """A Field is a config field that not every value is valid for.

  Attributes:
    default: its value unless it is set.
    check_value: function of (name, value) that raises UsageError.
    when: condition under which the field has an effect; None = always.
  """

  default: Any
  check_value: Callable[[str, Any], None] = lambda name, value: None
  when: Condition | None = None


def number(
  message: str, is_valid: Callable[[Any], bool]
) -> Callable[[str, Any], None]:
  """Returns a check of a number."""
  return lambda name, value: check(
    is_valid(value), f"{name}={value}: {message}"
  )


POSITIVE = number("must be positive", lambda value: value > 0)
NOT_NEGATIVE = number("must not be negative", lambda value: value >= 0)
NOT_POSITIVE = number("must not be positive", lambda value: value <= 0)
ABOVE_ONE = number("must be above 1, which is softmax", lambda value: value > 1)
AT_LEAST_ONE = number("must be at least 1", lambda value: value >= 1)
SHARE = number("must be in [0, 1]", lambda value: 0 <= value <= 1)
BELOW_ONE = number("must be in [0, 1)", lambda value: 0 <= value < 1)
INT32 = number(
  f"must be from 0 to {(1 << 31) - 1}", lambda value: 0 <= value < 1 << 31
)
ENOUGH_SAMPLES = number(
  "must be at least 299: fewer cannot prove 99 %", lambda value: value >= 299
)


class OneOf(NamedTuple):
  """OneOf is a check that a value is one of the choices."""

  choices: Collection

  def __call__(self, name: str, value: Any) -> None:
    """Raises UsageError, which names the choices."""
    check_choice(name, value, self.choices)


def integers(
  smallest: int, allow_empty: bool = True
) -> Callable[[str, Any], None]:
  """Returns a check that a value is a tuple of integers from `smallest` to
  2^31 - 1, and not empty unless `allow_empty` is set."""

  def check_value(name: str, value: Sequence) -> None:
    numbers = tuple(value)
    check(
      all(isinstance(x, int) and smallest <= x < 1 << 31 for x in numbers),
      f"{name}={numbers}: must be integers from {smallest} on",
    )
    check(
      numbers or allow_empty,
      f"{name}=(): name at least one, like ({smallest},)",
    )

  return check_value


def directions(name: str, value: Sequence) -> None:
  """Raises UsageError unless a value is a tuple of at least one integer."""
  steps = tuple(value)
  check(
    steps and all(isinstance(step, int) for step in steps),
    f"{name}={steps}: name integers, like (0, 1)",
  )


def not_empty(name: str, value: Sequence) -> None:
  """Raises UsageError if a tuple of names is empty."""
  check(value, f"{name}=(): name at least one")


def encodings(attribute: str) -> Condition:
  """Returns the condition that the class of positions.kind has an attribute."""
  return Condition(
    lambda config: getattr(POSITIONS[config.positions.kind], attribute),
    lambda: (
      "positions.kind="
      + " or ".join(n for n in POSITIONS if getattr(POSITIONS[n], attribute))
    ),
  )


def optimizers(attribute: str) -> Condition:
  """Returns the condition that an optimizer says something of itself."""
  return Condition(
    lambda config: getattr(OPTIMIZERS[config.train.optimizer], attribute),
    lambda: (
      "train.optimizer="
      + " or ".join(n for n in OPTIMIZERS if getattr(OPTIMIZERS[n], attribute))
    ),
  )


WITH_ALPHA = Condition(
  lambda config: NORMALIZERS[config.attention.normalizer].has_alpha,
  lambda: (
    "attention.normalizer="
    + " or ".join(n for n in NORMALIZERS if NORMALIZERS[n].has_alpha)
  ),
)


def equals(name: str, value: str) -> Condition:
  """Returns the condition that another field has a value."""
  return Condition(
    lambda config: operator.attrgetter(name)(config) == value,
    lambda: f"{name}={value!r}",
  )


def is_not_none(name: str) -> Condition:
  """Returns the condition that another field is not "none"."""
  return Condition(
    lambda config: operator.attrgetter(name)(config) != "none",
    lambda: f"a {name} but 'none'",
  )


def above_zero(name: str) -> Condition:
  """Returns the condition that another field is positive."""
  return Condition(
    lambda config: operator.attrgetter(name)(config) > 0,
    lambda: f"{name} above 0",
  )


ENCODER = equals("model.kind", "encoder_decoder")
CONSTRUCTED = equals("initial.kind", "construction")
WINDOW = equals("bias.kind", "window")
FROM_FILE = equals("bias.kind", "file")
FIXED_WIDTH = equals("data.width", "fixed")
NATURAL_WIDTH = equals("data.width", "natural")
SCORES = equals("calibration.quantity", "scores")
MEAN_WEIGHTS = Condition(
  lambda config: (
    config.calibration.quantity == "weights"
    and config.calibration.line == "mean"
  ),
  lambda: "calibration.quantity='weights' and calibration.line='mean'",
)
NORMALIZED = is_not_none("model.norm")
BIASED = is_not_none("bias.kind")
TEMPERED = is_not_none("temperature.kind")
RESTARTED = above_zero("train.restarts")
FINETUNED = above_zero("finetune.rounds")
SHORT_LENGTHS = Condition(
  lambda config: 0 < config.data.short_longest < config.data.train_length,
  lambda: "a data.short_longest below data.train_length",
)
FINITE_DATA = Condition(
  lambda config: config.data.size or config.data.numbers == "permutation",
  lambda: "finite data: data.size or data.numbers='permutation'",
)
HINTS_CHOSEN = Condition(
  lambda config: bool(config.hints), lambda: "runs with hints"
)
WEIGHTED = Condition(
  lambda config: config.hints and config.mixing.kind == "weighted",
  lambda: "mixing.kind='weighted'",
)

# The sections that ABC's second stage has again in `retrain`; a field that is
# None there has the first stage's value.
RETRAIN_SECTIONS = (
  "data",
  "model",
  "positions",
  "temperature",
  "attention",
  "bias",
  "train",
)
# Fields of these sections that calibration decides.
CALIBRATED = ("bias.kind", "bias.file")

# The fields that decide how a run is trained, except for the tasks' sections.
TRAINING_FIELDS = {
  # a name in lengthgen_jax/tasks/__init__.py
  "task": Field("addition", OneOf(TASKS)),
  "method": "vanilla",  # a label for result rows and figures
  # fields that the command line changed; filled in by the program
  "overrides": (),
  # files that registered what is not the package's; filled in by the program
  "registered_by": (),
  # the model of lengthgen_jax/pretrained, or the path of one, that stands in
  # place of a training; filled in by the program (--model)
  "pretrained": "",
  # trained together, one result row each
  "seeds": Field((0,), integers(0, allow_empty=False)),
  # devices along seeds and along data, like (2, 4); () = as many seeds as
  # divide the devices, and the batch over the rest
  "mesh": Field((), integers(1)),
  # folder of JAX's compilation cache, so that the next run starts at once;
  # "" = none
  "compile_cache": "~/.cache/lengthgen_jax",
  "data": {
    # lengths: a uniform length per operand, then uniform digits;
    # permutation: the papers' integers below 2^20, split 7:1 into training and
    # validation
    "numbers": Field("lengths", OneOf(NUMBERS)),
    # longest training length, in decimal digits or items; a share of
    # short_share of the lengths is uniform in shortest...short_longest, the
    # rest in what is longer; with short_longest=0 all are uniform
    "train_length": Field(6, POSITIVE),
    "shortest": Field(1, POSITIVE),
    "short_longest": Field(0, NOT_NEGATIVE),
    "short_share": Field(0.8, SHARE, when=SHORT_LENGTHS),
    # upper ends of ranges of length, each with batches of its own, in tasks
    # whose operands are not padded to a width; () = one range
    "buckets": Field((), integers(1)),
    # natural: operands padded to the longest length + slack;
    # fixed: one width for training and test (the papers)
    "width": Field("natural", OneOf(("natural", "fixed"))),
    # natural widths in training, used in turn; () = longest + slack, and one
    # more for every further phase of a cyclic index
    "widths": Field((), integers(1), when=NATURAL_WIDTH),
    # in digits; bits for parity follow from it
    "fixed_width": Field(61, POSITIVE, when=FIXED_WIDTH),
    "size": Field(0, INT32),  # examples of the finite data set, 0 = endless
    # that the permutation, or the data set, is made from
    "seed": Field(0, INT32, when=FINITE_DATA),
  },
  # auxiliary tasks with heads of their own. sort: successor, count, fill,
  # predecessor, minimum; increment: carry
  "hints": (),
  "mixing": {
    # alternate: gradient steps in turn; weighted: shares of every batch
    "kind": Field("alternate", OneOf(MIXING), when=HINTS_CHOSEN),
    "weights": Field((), when=WEIGHTED),  # main task first; () = equal
  },
  "model": {
    # encoder_decoder, decoder_only
    "kind": Field("encoder_decoder", OneOf(KINDS)),
    "emb_dim": Field(64, POSITIVE),
    "num_heads": Field(8, POSITIVE),
    "mlp_dim": Field(256, POSITIVE),
    # 0 = the encoder passes tokens through; a decoder_only model has none
    "num_encoder_layers": Field(1, NOT_NEGATIVE, when=ENCODER),
    "num_decoder_layers": Field(2, POSITIVE),
    # pre, post, block_end, none
    "norm": Field("pre", OneOf(layers.NORMS)),
    # layer, rms
    "norm_kind": Field("layer", OneOf(layers.NORM_KINDS), when=NORMALIZED),
    "dense_bias": True,  # biases of dense layers
    "activation": Field("relu", OneOf(layers.ACTIVATIONS)),  # relu, gelu
    "dropout_rate": Field(0.0, BELOW_ONE),
    # of activations: float32, bfloat16; float64, of parameters too
    "dtype": Field("float32", OneOf(layers.DTYPES)),
    # of matrix products: default, high, highest (CPUs know one)
    "precision": Field("highest", OneOf(layers.PRECISIONS)),
  },
  "positions": {
    # none; encodings of the index: sinusoidal, learned, rope, alibi, nape (half
    # of the heads), t5, fire, randomized; encodings of places, which an output
    # shares with its operands' digits: coordinates (sinusoids), abacus,
    # coupling (learned)
    "kind": Field("sinusoidal", OneOf(POSITIONS)),
    # T of cyclic position indexing, 0 = off
    "cyclic_period": Field(0, NOT_NEGATIVE, when=encodings("by_index")),
    # end that source positions count from
    "source_anchor": Field("left", OneOf(ANCHORS), when=ENCODER),
    # rows of a learned table, or positions to draw from
    "table": Field(512, POSITIVE, when=encodings("limited")),
    # places start below this in training (abacus, coupling)
    "random_start": Field(100, POSITIVE, when=encodings("random_start")),
    # whether a learned vector of its token's segment (an operand, the output)
    # is added to every input
    "segments": False,
  },
  # of the softmax: scores are multiplied by this factor before the bias is
  # added
  "temperature": {
    # none; a·log(n+1): log_items, log_visible (n = keys that a row sees),
    # fixed (a is not learned); one_plus_log: 1 + a·log(n+1); scalable:
    # s·log n + b per head; asentmax: s + β·log(n+1)^γ per head, β and γ from
    # the hidden state
    "kind": Field("none", OneOf(TEMPERATURES)),
    "initial": Field(0.5, when=TEMPERED),  # first value of a (or s)
    # s: n is multiplied by s, in training by a random factor in 1...s²
    "stretch": Field(1.0, AT_LEAST_ONE, when=TEMPERED),
  },
  # how scores become weights
  "attention": {
    # softmax; with exact zeros: entmax, sparsemax; stick_breaking (of
    # decoder-only models)
    "normalizer": Field("softmax", OneOf(NORMALIZERS)),
    # of entmax: 2 is sparsemax
    "alpha": Field(1.5, ABOVE_ONE, when=WITH_ALPHA),
  },
  # the parameters before the first step
  "initial": {
    # random; construction: weights that sort, of Theorem 5.1 of the task
    # hinting paper (train.steps=0 leaves them as they are)
    "kind": Field("random", OneOf(("random", "construction"))),
    # most items that the construction sorts
    "longest": Field(1000, POSITIVE, when=CONSTRUCTED),
    # how it computes whether copies of an item are left: difference, or share
    # (as in the paper)
    "copies": Field(
      "difference", OneOf(("difference", "share")), when=CONSTRUCTED
    ),
    # standard deviation of normal noise on its parameters
    "noise": Field(0.0, NOT_NEGATIVE),
  },
  "bias": {
    "kind": Field("none", OneOf(BIASES)),  # none, window, file
    "file": Field("", when=FROM_FILE),  # an .npz with lines or matrices
    "window": Field(1, NOT_NEGATIVE, when=WINDOW),  # w, tokens on each side
    # both, previous (the less significant one alone)
    "sides": Field("both", OneOf(SIDES), when=WINDOW),
    # window encoder self-attention too
    "windowed_encoder": Field(False, when=WINDOW),
    # factor on the bias's open values
    "scale": Field(1.0, POSITIVE, when=BIASED),
    # one more factor per layer and site, learned
    "learned_scale": Field(False, when=BIASED),
    # bias of closed cells; above -1e5 they are not masked
    "closed": Field(-1e9, NOT_POSITIVE, when=BIASED),
    # True: no causal mask besides the bias, which may then show the future
    "allow_leak": Field(False, when=BIASED),
  },
  "train": {
    "steps": Field(1000, NOT_NEGATIVE),  # gradient steps
    "batch_size": Field(128, POSITIVE),
    # adam (AdamW with train.weight_decay), lion; muon: the kernels of attention
    # and MLP, and NAdam for all other parameters
    "optimizer": Field("adam", OneOf(OPTIMIZERS)),
    "learning_rate": Field(1e-3, POSITIVE),
    # of the parameters that Muon leaves to NAdam; 0 = learning_rate
    "adam_learning_rate": Field(
      0.0, NOT_NEGATIVE, when=optimizers("has_separate_adam_rate")
    ),
    "warmup_steps": Field(200, NOT_NEGATIVE),
    "schedule": Field("cosine", OneOf(SCHEDULES)),  # constant, cosine
    "clip_norm": Field(1.0, NOT_NEGATIVE),  # global gradient norm, 0 = off
    "adam_b1": Field(0.9, BELOW_ONE, when=optimizers("uses_adam_fields")),
    "adam_b2": Field(0.98, BELOW_ONE, when=optimizers("uses_adam_fields")),
    "adam_eps": Field(1e-8, when=optimizers("uses_adam_fields")),
    # decoupled from the gradient; it is multiplied by the learning rate
    "weight_decay": Field(0.0, NOT_NEGATIVE),
    # steps per dispatch; logs and stops are between chunks
    "chunk": Field(100, POSITIVE),
    # in-range examples after every chunk
    "validation_samples": Field(512, POSITIVE),
    # freeze a seed at this validation exact match; above 1 = never
    "target_exact_match": 2.0,
    # seeds whose validation exact match stays below restart_below start
    # again from other parameters, this often
    "restarts": Field(0, NOT_NEGATIVE),
    "restart_below": Field(0.99, when=RESTARTED),
    # how a step trains several seeds: loop, or vmap; with vmap rounding depends
    # on which seeds still train, so a resumed run may differ in the last bits
    "seed_axis": Field("loop", OneOf(SEED_AXES)),
  },
  "checkpoint": {
    "every": Field(4, POSITIVE),  # chunks between checkpoints
    # newest checkpoints kept; each holds the best too
    "keep": Field(2, POSITIVE),
  },
  # ABC: how lines are found in the attention of the model above ...
  "calibration": {
    # decimal digits; () draws training examples
    "lengths": Field((4, 5, 6), integers(1)),
    "samples": Field(500, POSITIVE),  # for each width and length
    # weights (after softmax), scores (before)
    "quantity": Field("weights", OneOf(("weights", "scores"))),
    "scaled": Field(True, when=SCORES),  # scores divided by sqrt(head size)
    # operand: anchored to segments; absolute: papers
    "lines": Field("operand", OneOf(("operand", "absolute"))),
    "directions": Field((-1, 0, 1), directions),  # Δ in cross-attention
    "self_directions": Field((0, 1), directions),  # Δ in self-attention
    # 0: any line; n: fixed places on marks alone, outputs at most n rows
    # back, operands only along lines that shift by one digit per row, so that
    # receptive fields stay small enough for certificates
    "reach": Field(0, NOT_NEGATIVE),
    # rows that count: length (up to the operands' length), all
    "rows": Field("length", OneOf(("length", "all"))),
    # strength of a line: mean, sum
    "line": Field("mean", OneOf(CALIBRATION_CHOICES["line"])),
    # zscore (μ + κσ), mass (multiple of random)
    "rule": Field("zscore", OneOf(CALIBRATION_CHOICES["rule"])),
    "kappa": 2.0,  # threshold in cross-attention
    "kappa_self": 0.87,  # threshold in self-attention
    # μ and σ over all lines, distinct strengths, or long ones (min_cells)
    "statistics": Field("all", OneOf(CALIBRATION_CHOICES["statistics"])),
    # maximum that is subtracted: of a direction, head, none
    "maximum": Field("head", OneOf(CALIBRATION_CHOICES["maximum"])),
    # least share of the rows that a line crosses
    "min_cells": Field(0.5, SHARE),
    # least share of a row's attention that the lines of a head hold together;
    # the lines of other heads are dropped
    "min_share": Field(0.0, SHARE, when=MEAN_WEIGHTS),
    # lines of each layer, or the last one's for all
    "layers": Field("each", OneOf(CALIBRATION_CHOICES["layers"])),
    # heads without a line: closed, transparent
    "empty_heads": Field("closed", OneOf(CALIBRATION_CHOICES["empty_heads"])),
  },
  "abc": {
    # validation exact match from which on a model counts as interpolated
    "min_exact_match": 0.97,
    "example": "",  # input of the attention heat maps; "" = a short one
    "vanilla_longest": 60,  # longest test length of the vanilla model
  },
  # ... and what the model retrained with them changes: any field of the
  # sections in RETRAIN_SECTIONS
  "retrain": {
    # parameters: fresh, interpolated
    "start": Field("fresh", OneOf(("fresh", "interpolated"))),
  },
  # after training (with abc: after the second stage) certify; train a wrong
  # model on inputs of training length on which it is wrong; certify again
  "finetune": {
    # most rounds of these; 0 = none, and no certificate
    "rounds": Field(0, NOT_NEGATIVE),
    "steps": Field(300, POSITIVE, when=FINETUNED),  # gradient steps of a round
    "learning_rate": Field(1e-3, POSITIVE, when=FINETUNED),
    # share of such inputs in every batch
    "share": Field(0.25, SHARE, when=FINETUNED),
  },
}
# The fields of modes that read a trained workdir; they do not affect training.
READING_FIELDS = {
  # proofs for every length (--mode=certify)
  "certify": {
    "max_cases": Field(1e9, POSITIVE),  # a certificate of more cases is refused
    "exhaustive": True,  # False: stop at the narrowest cases that fail
    # whether pretrained/checker.py, which shares no code with it, has to prove
    # what a certificate proves; it takes up to a minute for each seed
    "second_checker": False,
  },
  # looking inside (--mode=probe)
  "probe": {
    # inputs whose attention is drawn, as one types them; () = the papers', or
    # an example
    "inputs": (),
    # number of further random ones of training length
    "random_inputs": Field(0, NOT_NEGATIVE),
    "stage": "",  # of --mode=abc: interpolate, retrain, finetune; "" = the last
    # names in lengthgen_jax/probes/registry.py and figures.py; () = all that
    # apply to the model
    "only": (),
    "figures": (),
    "lengths": Field((), integers(1)),  # () = those of eval.lengths up to 100
    "samples": Field(128, POSITIVE),  # inputs of each length
    # length of the inputs of interventions (what is knocked out or patched);
    # 0 = the training length
    "causal_length": Field(0, NOT_NEGATIVE),
    # whether the best seed is trained again without each line of its bias
    "retrain": False,
    # activations that are saved for the inputs, like
    # decoder.blocks.0.before_mlp
    "activations": (),
    # chunks of training between probes during training; 0 = none
    "every": Field(0, NOT_NEGATIVE),
  },
  # timing (--mode=bench)
  "bench": {
    "only": (),  # names in lengthgen_jax/benchmark/cases.py; () = all
    # runs of each case, of which the median counts
    "repeats": Field(5, POSITIVE),
    # seconds after which no case is started
    "budget": Field(900.0, POSITIVE),
    # decimal digits
    "lengths": Field((60, 200, 1000, 3000, 10_000), integers(1)),
    # numbers of threads in the comparison with PyTorch
    "threads": Field((1, 2), integers(1)),
  },
  "eval": {
    # decimal digits
    "lengths": Field((6, 10, 20, 60), integers(1, allow_empty=False)),
    # arithmetic: equal, unequal, carry, chain, nines, zeros, short, repeated;
    # sort: uniform, repeats, sorted, reversed, all_equal, two_values,
    # near_ties, multiplicity, mean_multiplicity; increment: uniform, nines,
    # repeated; modular, permutations: uniform, all_equal, lone; dyck: walks,
    # broken, deep, uniform; copy, reverse: uniform, all_equal;
    # mqmtar: pairs, near_keys
    "test_sets": Field(("equal",), not_empty),
    # repeats: number of distinct items, and how often each occurs
    "repeated_items": Field(3, POSITIVE),
    "repetitions": Field((1, 2, 4, 8), integers(1)),
    # unequal of multiply_long: digits of the factor b beside those of a
    "multipliers": Field((3, 61), integers(1)),
    # multiplicity, mean_multiplicity: how often each value that occurs does,
    # exactly or on average
    "multiplicities": Field((1, 2, 4, 8, 16), integers(1)),
    # chain: places that a carry crosses
    "chains": Field((1, 2, 4, 8, 16, 32), integers(1)),
    # whether the task's hard and odd inputs are tested too, and how many of
    # each kind
    "stress": False,
    "stress_samples": Field(200, POSITIVE),
    # bound of the search for the longest length with exact match of at least
    # 99 % (by the lower bound), on every test set; 0 = no search
    "frontier": Field(0, NOT_NEGATIVE),
    # per length; 299 right of 299 are 99 %
    "frontier_samples": Field(299, ENOUGH_SAMPLES),
    # samples per length and seed: one number, or one for each length
    "samples": Field((1000,), integers(1)),
    "checkpoint": "last",  # last, best (by validation), or a step
    "seed": Field(0, INT32),  # of the test samples
    # of a construction: numbers of significant bits; for each of them the
    # longest list length that is sorted is searched; () = no search
    "precisions": Field((), integers(2)),
    # whether outputs are decoded freely too: rows em_end_blind and edit
    "free_running": False,
    # predict: whether intermediate results are printed too (multiply_long: the
    # running sums)
    "scratchpad": False,
    # of attention scores at once; 0 = 16 on CPU, else 1024
    "memory_mb": Field(0, NOT_NEGATIVE),
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
  """Returns the default config of a task: a small vanilla model.

  It has the sections of all tasks, so that its field `task` can be changed. An
  unknown task is refused by `check_fields`.
  """
  sections = {
    task_class.section: {
      field.name: field.default for field in dataclasses.fields(task_class)
    }
    for task_class in TASKS.values()
  }
  config = ConfigDict(_defaults(TRAINING_FIELDS | READING_FIELDS) | sections)
  config.task = task
  if task in TASKS:
    config.eval.test_sets = tuple(TASKS[task].test_sets)[:1]
  for section in RETRAIN_SECTIONS:
    # A placeholder is None, and takes values of its type only.
    config.retrain[section] = {
      name: config_dict.placeholder(type(value))
      for name, value in config[section].items()
      if f"{section}.{name}" not in CALIBRATED
    }
  config.retrain.update_from_flattened_dict(RETRAIN)
  return config


def _defaults(fields: dict[str, Any]) -> dict[str, Any]:
  """Returns the default of each field; a field may be a section, a Field or a
  default itself."""
  defaults = {}
  for name, field in fields.items():
    if isinstance(field, dict):
      defaults[name] = _defaults(field)
    else:
      defaults[name] = field.default if isinstance(field, Field) else field
  return defaults


def parse_preset(
  preset: str,
  first: Collection[str],
  methods: Collection[str],
  options: Collection[str],
) -> tuple[str, str, list[str]]:
  """Splits a preset FIRST[,METHOD][,OPTION...] into its names.

  Args:
    preset: as it is typed.
    first: the valid first names: tasks, hints or methods.
    methods: at most one of them follows, by default the first one; () = none.
    options: any of them follow.

  Raises:
    ValueError: a name is unknown, or there are two methods.
  """
  name, *others = preset.split(",")
  if name not in first:
    raise ValueError(f"preset {preset!r}: {name!r} is none of {(*first,)}")
  chosen = [other for other in others if other in methods]
  unknown = set(others) - {*methods, *options}
  if len(chosen) > 1 or unknown:
    one_method = f"at most one of {(*methods,)} and " if methods else ""
    raise ValueError(
      f"preset {preset!r}: after {name!r}, name {one_method}any of {options}"
    )
  method = next(iter(chosen or methods), "")
  return name, method, [other for other in others if other in options]


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
  """Returns the config of the second stage of ABC, which retrains.

  It is that of the first stage, but for the changes in `config.retrain`.

  Args:
    config: the config of the whole run.
    seeds: the seeds whose models interpolated in the first stage.
    file: the calibrated bias of these seeds; None before it is calibrated.
  """
  config = copy.deepcopy(config)
  changes = {
    name: value
    for name, value in leaves(config.retrain)
    # A name without a dot is a setting of the stage, and no field of the first.
    if value is not None and "." in name
  } | {
    "bias.kind": "file" if file else "none",
    "bias.file": str(file or ""),
    "method": "abc",
    "seeds": tuple(seeds),
  }
  if config.mesh and len(seeds) % config.mesh[0]:
    changes["mesh"] = ()  # it was for more seeds
  config.update_from_flattened_dict(changes)
  return config


# All restricted fields by name, like "train.steps".
FIELDS = {
  name: field
  for name, field in leaves(TRAINING_FIELDS | READING_FIELDS)
  if isinstance(field, Field)
}


def check_fields(config: ConfigDict) -> None:
  """Checks every field by itself.

  Raises:
    UsageError: one line that names the field and what is valid.
  """
  values = dict(leaves(config))
  missing = ", ".join(sorted(set(FIELDS) - set(values)))
  check(
    not missing,
    f"the config has no field {missing}; lengthgen_jax/config/fields.py has"
    " all there are",
  )
  for name, value in values.items():
    finite = not isinstance(value, float) or math.isfinite(value)
    check(finite, f"{name}={value}: must be finite")
  for name, field in FIELDS.items():
    field.check_value(name, values[name])


def check_has_effect(config: ConfigDict, name: str) -> None:
  """Checks that a field which was set, like "data.fixed_width", has an effect.

  Many fields have one only if another field has a certain value. An effect in
  one stage of --mode=abc, the first or the retraining, is enough.

  Raises:
    UsageError: the field has no effect; the message says when it has one.
  """
  section = name.partition(".")[0]
  tasks = [task for task in TASKS if TASKS[task].section == section]
  check(
    not tasks or config.task not in TASKS or config.task in tasks,
    f"{name} changes nothing here: it is for task={' or '.join(tasks)}",
  )
  field = FIELDS.get(name.removeprefix("retrain."))
  if field is None or field.when is None:
    return
  stages = [] if name.startswith("retrain.") else [config]
  if name not in CALIBRATED:
    stages.append(retrain_config(config, config.seeds, "bias.npz"))
  for stage in stages:
    check_choice("positions.kind", stage.positions.kind, POSITIONS)
    check_choice("train.optimizer", stage.train.optimizer, OPTIMIZERS)
    check_choice(
      "attention.normalizer", stage.attention.normalizer, NORMALIZERS
    )
  value = dict(leaves(config))[name]
  check(
    any(field.when.holds(stage) for stage in stages),
    f"{name}={value!r} changes nothing here: it is for {field.when.text()}",
  )
