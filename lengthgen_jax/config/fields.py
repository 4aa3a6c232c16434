"""All fields of a config: defaults, meanings, and what they may be.

The section of a task (arithmetic, sort, increment ...) has the fields of the
task's dataclass. Presets (configs/) start from `default_config`. Whether fields
fit each other is checked where the experiment is built (build.py).
"""

import copy
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
from lengthgen_jax.tasks import HINTS, TASKS, task_fields
from lengthgen_jax.tasks.dataset import MIXING, NUMBERS
from lengthgen_jax.tasks.packing import KINDS
from lengthgen_jax.tasks.task import Task
from lengthgen_jax.training.optimizer import OPTIMIZERS, SCHEDULES
from lengthgen_jax.training.train_step import SEED_AXES


class Condition(NamedTuple):
  """A Condition says when a field changes anything.

  Attributes:
    holds: function of a whole config that is true if the condition holds.
    text: function that returns the condition in words, for a message.
  """

  holds: Callable[[ConfigDict], Any]
  text: Callable[[], str]


class Field(NamedTuple):
  """A Field is a config field for which not every value is valid, or which does
  not always have an effect.

  Attributes:
    default: its value unless it is set.
    check_value: function of (name, value) that raises UsageError if the value
      is not valid.
    when: the condition under which the field has an effect; None means always.
  """

  default: Any
  check_value: Callable[[str, Any], None] = lambda name, value: None
  when: Condition | None = None


def number(
  message: str, is_valid: Callable[[Any], bool]
) -> Callable[[str, Any], None]:
  """Returns a function of (name, value) that raises UsageError, with a message
  that says what is valid, unless `is_valid(value)`."""
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
    """Raises UsageError, which names the choices, if the value is not one."""
    check_choice(name, value, self.choices)


def integers(
  smallest: int, allow_empty: bool = True
) -> Callable[[str, Any], None]:
  """Returns a check, as `number` does, that a value is a tuple of integers from
  `smallest` to 2^31 - 1, and not empty unless `allow_empty` is set."""

  def check_value(name: str, value: Sequence) -> None:
    numbers = tuple(value)
    check(
      all(isinstance(x, int) and smallest <= x < 1 << 31 for x in numbers),
      f"{name}={numbers}: must be integers from {smallest} on, below 2^31",
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
  """Returns the condition that an attribute of the class of positions.kind is
  true."""
  return Condition(
    lambda config: getattr(POSITIONS[config.positions.kind], attribute),
    lambda: (
      "positions.kind="
      + " or ".join(n for n in POSITIONS if getattr(POSITIONS[n], attribute))
    ),
  )


def optimizers(attribute: str) -> Condition:
  """Returns the condition that an attribute of train.optimizer's Optimizer is
  true."""
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
    lambda: f"a {name} other than 'none'",
  )


def above_zero(name: str) -> Condition:
  """Returns the condition that another field is positive."""
  return Condition(
    lambda config: operator.attrgetter(name)(config) > 0,
    lambda: f"{name} above 0",
  )


ENCODER = equals("model.kind", "encoder_decoder")
LIMITED = encodings("limited")
# A cyclic index needs no more rows than its period.
WITH_TABLE = Condition(
  lambda config: (
    LIMITED.holds(config)
    and not (
      POSITIONS[config.positions.kind].by_index
      and config.positions.cyclic_period
    )
  ),
  lambda: f"{LIMITED.text()}, learned only with positions.cyclic_period=0",
)
CONSTRUCTED = equals("initial.kind", "construction")
WINDOW = equals("bias.kind", "window")
WINDOW_OF_SEQUENCE = Condition(
  lambda config: WINDOW.holds(config) and TASKS[config.task].axes == 1,
  lambda: "bias.kind='window' and a task without a grid",
)
WINDOWED_ENCODER = Condition(
  lambda config: (
    WINDOW_OF_SEQUENCE.holds(config) and config.model.num_encoder_layers
  ),
  lambda: f"{WINDOW_OF_SEQUENCE.text()}, and model.num_encoder_layers above 0",
)
FROM_FILE = equals("bias.kind", "file")
FIXED_WIDTH = equals("data.width", "fixed")
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
PRUNED = Condition(
  lambda config: config.prune.enabled, lambda: "prune.enabled=True"
)
SHORT_LENGTHS = above_zero("data.short_longest")
HINTS_CHOSEN = Condition(
  lambda config: bool(config.hints), lambda: "runs with hints"
)
WEIGHTED = Condition(
  lambda config: config.hints and config.mixing.kind == "weighted",
  lambda: "runs with hints and mixing.kind='weighted'",
)

SCRATCHPAD = Condition(
  lambda config: (
    TASKS[config.task].render_with_lengths is not Task.render_with_lengths
  ),
  lambda: "a task that shows intermediate results, like multiply_long",
)

# The sections whose fields `retrain` has again, for ABC's second stage; where
# one is None, it has the first stage's value.
RETRAIN_SECTIONS = (
  "data",
  "model",
  "positions",
  "temperature",
  "attention",
  "bias",
  "train",
)
# The fields of these sections that `retrain` lacks: calibration decides them.
CALIBRATED = ("bias.kind", "bias.file")

# The fields that decide how a run is trained, except for the tasks' sections. A
# comment stands above its field or beside it.
TRAINING_FIELDS = {
  # a name in lengthgen_jax/tasks/__init__.py
  "task": Field("addition", OneOf(TASKS)),
  "method": "vanilla",  # a label for result rows and figures
  # fields that the command line changed; filled in by the program
  "overrides": (),
  # files that registered what is not the package's; filled in by the program
  "registered_by": (),
  # the name or path of the trained model that is used in place of a trained
  # workdir; filled in by the program (--model)
  "pretrained": "",
  # trained together; each has result rows of its own
  "seeds": Field((0,), integers(0, allow_empty=False)),
  # devices along seeds and along data, like (2, 4); () = as many seeds as
  # divide the devices, and the batch over the rest
  "mesh": Field((), integers(1)),
  # folder of JAX's compilation cache, so that the next run starts at once;
  # "" = none, as where there is no home folder for ~
  "compile_cache": "~/.cache/lengthgen_jax",
  "data": {
    # lengths: a length is drawn for each operand, then its digits or items;
    # permutation: the papers' integers below 2^20, split 7:1 into training and
    # validation
    "numbers": Field("lengths", OneOf(NUMBERS)),
    # longest training length, in decimal digits or items (for parity the next
    # two are in bits); a fraction short_share of the lengths is uniform in
    # shortest...short_longest, the others in what is longer; with
    # short_longest=0 all are uniform
    "train_length": Field(6, POSITIVE),
    "shortest": Field(1, POSITIVE),
    "short_longest": Field(0, NOT_NEGATIVE),
    "short_share": Field(0.8, SHARE, when=SHORT_LENGTHS),
    # greatest lengths of ranges, to which examples are padded, in tasks whose
    # operands are not padded to a width; every batch has examples of each; () =
    # one range
    "buckets": Field((), integers(1)),
    # natural: operands are padded to the length of the longest + slack, in
    # training (whose batches take the lengths in turn) and in tests;
    # fixed: one width for training and test (the papers)
    "width": Field("natural", OneOf(("natural", "fixed"))),
    # in digits; bits for parity follow from it
    "fixed_width": Field(61, POSITIVE, when=FIXED_WIDTH),
    "size": Field(0, INT32),  # examples of the finite data set, 0 = endless
    # seed of the examples: of the permutation, the finite data set, or the
    # endless stream
    "seed": Field(0, INT32),
  },
  # auxiliary tasks with heads of their own. sort: successor, count, fill,
  # predecessor, minimum; increment: carry
  "hints": (),
  "mixing": {
    # alternate: tasks have gradient steps in turn; weighted: they share every
    # batch
    "kind": Field("alternate", OneOf(MIXING), when=HINTS_CHOSEN),
    "weights": Field((), when=WEIGHTED),  # main task first; () = equal
  },
  "model": {
    # encoder_decoder, decoder_only
    "kind": Field("encoder_decoder", OneOf(KINDS)),
    "emb_dim": Field(64, POSITIVE),
    "num_heads": Field(8, POSITIVE),
    "mlp_dim": Field(256, POSITIVE),
    # 0 = the encoder passes embeddings through; decoder_only models have none
    "num_encoder_layers": Field(1, NOT_NEGATIVE, when=ENCODER),
    "num_decoder_layers": Field(2, POSITIVE),
    # pre, post, block_end, none
    "norm": Field("pre", OneOf(layers.NORMS)),
    # layer, rms
    "norm_kind": Field("layer", OneOf(layers.NORM_KINDS), when=NORMALIZED),
    "dense_bias": True,  # whether dense layers have biases
    "activation": Field("relu", OneOf(layers.ACTIVATIONS)),  # relu, gelu
    "dropout_rate": Field(0.0, BELOW_ONE),
    # of activations: float32, bfloat16; float64, of parameters too
    "dtype": Field("float32", OneOf(layers.DTYPES)),
    # of matrix products: default, high, highest (all the same on a CPU)
    "precision": Field("highest", OneOf(layers.PRECISIONS)),
  },
  "positions": {
    # none; encodings of the index: sinusoidal, learned, rope, alibi, nape
    # (ALiBi in half of the heads), t5, fire, randomized; encodings of places,
    # which an output shares with its operands' digits: coordinates (sinusoids),
    # abacus and coupling (learned)
    "kind": Field("sinusoidal", OneOf(POSITIONS)),
    # T of cyclic position indexing, 0 = off
    "cyclic_period": Field(0, NOT_NEGATIVE, when=encodings("by_index")),
    # the end from which the index of source tokens is counted
    "source_anchor": Field("left", OneOf(ANCHORS), when=ENCODER),
    # rows of a learned table; randomized: how many positions to draw from
    "table": Field(512, POSITIVE, when=WITH_TABLE),
    # in training, places count from a number drawn below this
    "random_start": Field(100, POSITIVE, when=encodings("random_start")),
    # whether a learned vector of its token's segment (an operand, the output)
    # is added to every input
    "segments": False,
  },
  # a factor on attention scores, before the bias is added
  "temperature": {
    # none; a·log(n+1): log_items, fixed (a is not learned) and log_visible;
    # one_plus_log: 1 + a·log(n+1); scalable: a·log n + b per head; asentmax:
    # a + β·log(n+1)^γ per head, β and γ from the hidden state. In decoder-only
    # models n is the number of the prompt's tokens, but that of the keys that a
    # row sees with log_visible, scalable and asentmax
    "kind": Field("none", OneOf(TEMPERATURES)),
    "initial": Field(0.5, when=TEMPERED),  # first value of a
    # n is multiplied by this s, in training by a random factor in 1...s²
    "stretch": Field(1.0, AT_LEAST_ONE, when=TEMPERED),
  },
  # how scores become weights
  "attention": {
    # softmax; with exact zeros: entmax, sparsemax; stick_breaking (of
    # decoder-only models)
    "normalizer": Field("softmax", OneOf(NORMALIZERS)),
    # of entmax; 2 would be sparsemax
    "alpha": Field(1.5, ABOVE_ONE, when=WITH_ALPHA),
  },
  # the parameters before the first step
  "initial": {
    # random; construction: weights that sort, of Theorem 5.1 of the task
    # hinting paper (train.steps=0 leaves them as they are)
    "kind": Field("random", OneOf(("random", "construction"))),
    # the most items that the construction is to sort
    "longest": Field(1000, POSITIVE, when=CONSTRUCTED),
    # how it computes whether copies of an item are left: by their difference in
    # number, or by their share (as in the paper)
    "copies": Field(
      "difference", OneOf(("difference", "share")), when=CONSTRUCTED
    ),
    # standard deviation of normal noise on the construction's parameters
    "noise": Field(0.0, NOT_NEGATIVE),
  },
  "bias": {
    "kind": Field("none", OneOf(BIASES)),  # none, window, file
    "file": Field("", when=FROM_FILE),  # an .npz with lines or matrices
    "window": Field(1, NOT_NEGATIVE, when=WINDOW),  # w, tokens on each side
    # both, previous (the earlier rows' side alone)
    "sides": Field("both", OneOf(SIDES), when=WINDOW_OF_SEQUENCE),
    # whether the encoder's self-attention has a window too
    "windowed_encoder": Field(False, when=WINDOWED_ENCODER),
    # factor on the bias in open cells
    "scale": Field(1.0, POSITIVE, when=BIASED),
    # whether each layer and site learns one more factor
    "learned_scale": Field(False, when=BIASED),
    # bias in closed cells; at -1e5 and below it is -inf
    "closed": Field(-1e9, NOT_POSITIVE, when=BIASED),
    # whether the bias takes the place of the causal mask, so that rows may see
    # the future, as in the released ABC program
    "allow_leak": Field(False, when=BIASED),
  },
  "train": {
    "steps": Field(1000, NOT_NEGATIVE),  # gradient steps
    "batch_size": Field(128, POSITIVE),
    # adam (AdamW with train.weight_decay), lion; muon (for the kernels of
    # attention and MLP, with NAdam for all other parameters)
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
    # gradient steps that are dispatched at once; a run is logged, validated and
    # stopped between chunks
    "chunk": Field(100, POSITIVE),
    # held-out examples of each task after every chunk, split over its widths
    "validation_samples": Field(512, POSITIVE),
    # a seed stops at this validation exact match; above 1 = never
    "target_exact_match": Field(2.0, POSITIVE),
    # how often, at most, a seed starts again from other parameters, if it
    # diverged or its validation exact match stayed below restart_below
    "restarts": Field(0, NOT_NEGATIVE),
    "restart_below": Field(0.99, SHARE, when=RESTARTED),
    # how a step trains several seeds: loop, or vmap; with vmap rounding depends
    # on which seeds still train, so a resumed run may differ in the last bits
    "seed_axis": Field("loop", OneOf(SEED_AXES)),
  },
  "checkpoint": {
    "every": Field(4, POSITIVE),  # chunks between checkpoints
    # newest checkpoints kept; each has the best parameters so far too
    "keep": Field(2, POSITIVE),
  },
  # ABC: how lines are found in the attention of the first stage's model
  "calibration": {
    # in the units of data.train_length; () draws lengths as in training
    "lengths": Field((4, 5, 6), integers(1)),
    "samples": Field(500, POSITIVE),  # for each width and length
    # weights (after softmax), scores (before)
    "quantity": Field("weights", OneOf(("weights", "scores"))),
    "scaled": Field(True, when=SCORES),  # scores divided by sqrt(head size)
    # operand: anchored to segments; absolute: papers
    "lines": Field("operand", OneOf(("operand", "absolute"))),
    # Δ, tokens per row: of lines to the prompt, and of lines to outputs
    "directions": Field((-1, 0, 1), directions),
    "self_directions": Field((0, 1), directions),
    # 0: any line; n: lines to a fixed place only if a mark or the single digit
    # of N×1 stands there, to outputs at most n rows back, and to operands only
    # if they move by one digit per row, so that receptive fields are small
    # enough for certificates
    "reach": Field(0, NOT_NEGATIVE),
    # rows that count: length (those of the operands' length), all
    "rows": Field("length", OneOf(("length", "all"))),
    # strength of a line: mean, sum
    "line": Field("mean", OneOf(CALIBRATION_CHOICES["line"])),
    # a line is kept if its strength exceeds: zscore: μ + κσ; mass (of weights):
    # κ times that of random cells
    "rule": Field("zscore", OneOf(CALIBRATION_CHOICES["rule"])),
    "kappa": 2.0,  # κ in cross-attention
    "kappa_self": 0.87,  # κ in self-attention
    # μ and σ over: all lines, distinct strengths, long lines (see min_cells)
    "statistics": Field("all", OneOf(CALIBRATION_CHOICES["statistics"])),
    # the maximum that is subtracted from strengths: of a direction, of a head,
    # none
    "maximum": Field("head", OneOf(CALIBRATION_CHOICES["maximum"])),
    # least share of the rows that count which a line must cross
    "min_cells": Field(0.5, SHARE),
    # least share of a row's attention that a head's lines must hold together,
    # or else they are dropped
    "min_share": Field(0.0, SHARE, when=MEAN_WEIGHTS),
    # each (each layer has its own lines), last (all have the last layer's)
    "layers": Field("each", OneOf(CALIBRATION_CHOICES["layers"])),
    # heads without a line: closed, transparent
    "empty_heads": Field("closed", OneOf(CALIBRATION_CHOICES["empty_heads"])),
  },
  "abc": {
    # least validation exact match of a model that interpolates
    "min_exact_match": Field(0.97, SHARE),
    # input whose attention is drawn, as one types it; "" = a short one
    "example": "",
    # longest test length of the vanilla model
    "vanilla_longest": Field(60, NOT_NEGATIVE),
  },
  # what ABC's second stage, the training with calibrated lines, changes: any
  # field of the sections in RETRAIN_SECTIONS
  "retrain": {
    # initial parameters: fresh, interpolated (the first stage's)
    "start": Field("fresh", OneOf(("fresh", "interpolated"))),
  },
  # after training (with --mode=abc, after the second stage): certify; train
  # wrong models on inputs on which they are wrong; certify again
  "finetune": {
    # the most rounds of finetuning; 0 = no certificate either
    "rounds": Field(0, NOT_NEGATIVE),
    "steps": Field(300, POSITIVE, when=FINETUNED),  # of each round
    # of the first round
    "learning_rate": Field(1e-3, POSITIVE, when=FINETUNED),
    # the learning rate of a round / that of the round before
    "rate_decay": Field(1.0, POSITIVE, when=FINETUNED),
    # share of such inputs among the main task's examples in a batch
    "share": Field(0.25, SHARE, when=FINETUNED),
  },
}
# The fields of certificates, probes, timing and tests. They do not affect
# training, except for `certify` and `prune` in rounds of finetuning.
READING_FIELDS = {
  # proofs for every length (--mode=certify)
  "certify": {
    "max_contexts": Field(10**7, POSITIVE),  # a model with more is not tried
    # whether a wrong model's contexts are tried after the first receptive field
    # with wrong ones
    "exhaustive": True,
    # whether the program is tried on whole inputs with the contexts of every
    # model that is proved, at most 30,000; it takes up to a minute a seed, five of N×M
    "second_opinion": False,
  },
  # before a model is certified, lines of its bias that it does not need are
  # closed, so that there are fewer cases
  "prune": {
    # whether that is done, and whether lines that are closed stay so in every
    # mode
    "enabled": True,
    # least smallest margin on held-out examples without these lines / that with
    # all lines
    "margin_share": Field(0.9, SHARE, when=PRUNED),
  },
  # looking inside (--mode=probe)
  "probe": {
    # inputs whose attention is drawn, as one types them; () = the papers', or
    # an example, unless there are random ones
    "inputs": (),
    # how many random inputs of training length are drawn too
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
    # timed calls of each case, of which the median counts
    "repeats": Field(5, POSITIVE),
    # whether a trace of jax.profiler is written to W/trace
    "trace": False,
  },
  "eval": {
    # in decimal digits or items
    "lengths": Field((6, 10, 20, 60), integers(1, allow_empty=False)),
    # arithmetic: equal, unequal, carry, chain, nines, zeros, short, repeated;
    # multiply_long: equal, unequal, nines, one, zeros;
    # sort: uniform, repeats, sorted, reversed, all_equal, two_values,
    # near_ties, multiplicity, mean_multiplicity; increment: uniform, nines,
    # repeated; modular, permutations: uniform, all_equal, lone; dyck: walks,
    # broken, deep, uniform; copy, reverse: uniform, all_equal;
    # mqmtar: pairs, near_keys
    "test_sets": Field(("equal",), not_empty),
    # repeats: number of distinct items, and how often each occurs
    "repeated_items": Field(3, POSITIVE),
    "repetitions": Field((1, 2, 4, 8), integers(1)),
    # unequal of multiply_long: how many digits the factor b has
    "multipliers": Field((3, 61), integers(1)),
    # multiplicity, mean_multiplicity: how often each value that occurs at all
    # occurs, exactly or on average
    "multiplicities": Field((1, 2, 4, 8, 16), integers(1)),
    # chain: places that a carry crosses
    "chains": Field((1, 2, 4, 8, 16, 32), integers(1)),
    # whether the task's hard and odd inputs are tested too, and how many of
    # each kind
    "stress": False,
    "stress_samples": Field(200, POSITIVE),
    # greatest length of the search for the longest one up to which exact match
    # is at least 99 % (by the lower bound), on every test set that is sampled
    # at every length; 0 = no search
    "frontier": Field(0, NOT_NEGATIVE),
    # per length; 299 right of 299 prove 99 %
    "frontier_samples": Field(299, ENOUGH_SAMPLES),
    # samples per length and seed: one number, or one for each length
    "samples": Field((1000,), integers(1)),
    # whether results replace earlier ones of more samples too
    "replace": False,
    "checkpoint": "last",  # last, best (by validation), or a step
    "seed": Field(0, INT32),  # of the test samples
    # of a construction: numbers of significant bits, for each of which the
    # length of the longest lists that it sorts is looked for; () = no search
    "precisions": Field((), integers(2)),
    # whether outputs are decoded freely too, for rows em_end_blind and edit
    "free_running": False,
    # predict: whether intermediate results are printed too (multiply_long: the
    # running sums)
    "scratchpad": Field(False, when=SCRATCHPAD),
    # MiB of each device for attention; 0 = 16 on a CPU, else 1024
    "memory_mb": Field(0, NOT_NEGATIVE),
  },
}
# What `retrain` changes of the first stage by default.
RETRAIN = {
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
  """Returns the default config of a task, that of a small vanilla model.

  It has the sections of all tasks, so that its field `task` can be changed; but
  eval.test_sets names the first test set of the task that is given here, and
  may have to be changed too. `check_fields` refuses an unknown task.

  Raises:
    UsageError: a registered task has a section that is called like another
      field of the config.
  """
  hint_classes = (hint for hints in HINTS.values() for hint in hints.values())
  sections = {
    task_class.section: task_fields(task_class)
    for task_class in (*TASKS.values(), *hint_classes)
  }
  defaults = _defaults(TRAINING_FIELDS | READING_FIELDS)
  taken = ", ".join(sorted(set(defaults) & set(sections)))
  check(
    not taken,
    f"register: every config has its own {taken}; call a task's section"
    " otherwise",
  )
  config = ConfigDict(defaults | sections)
  config.task = task
  if task in TASKS:
    config.eval.test_sets = tuple(TASKS[task].test_sets)[:1]
  for section in RETRAIN_SECTIONS:
    # A placeholder is None, and takes only values of its type.
    config.retrain[section] = {
      name: config_dict.placeholder(type(value))
      for name, value in config[section].items()
      if f"{section}.{name}" not in CALIBRATED
    }
  config.retrain.update_from_flattened_dict(RETRAIN)
  return config


def _defaults(fields: dict[str, Any]) -> dict[str, Any]:
  """Returns the default of each field by name; `fields` has a section, a Field
  or the default itself for each."""
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
    first: the valid names of FIRST: tasks, hints or methods.
    methods: the valid names of METHOD, of which the first is the default; () if
      there is no METHOD.
    options: the valid names of OPTION.

  Returns:
    The first name, the method ("" if there is none) and the options.

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

  It is that of the first stage with the changes in `config.retrain`.

  Args:
    config: the config of the whole run.
    seeds: the seeds of the second stage: those of the calibrated bias or, as
      long as there is no bias, all seeds of the run.
    file: the path of the bias of these seeds, which is not read here; None for
      no bias.
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


# Every Field by its full name, like "train.steps".
FIELDS = {
  name: field
  for name, field in leaves(TRAINING_FIELDS | READING_FIELDS)
  if isinstance(field, Field)
}


def check_fields(config: ConfigDict) -> None:
  """Checks every field by itself: that floats are finite, also in tuples, and
  that each field of this module is there, has a value, and is valid.

  Raises:
    UsageError: a field is absent, or a value is not valid; of such a value the
      message says what is valid.
  """
  fields = dict(leaves(TRAINING_FIELDS | READING_FIELDS))
  values = dict(leaves(config))
  missing = ", ".join(sorted(set(fields) - set(values)))
  check(
    not missing,
    f"the config has no field {missing}; lengthgen_jax/config/fields.py has"
    " all there are",
  )
  for name, value in values.items():
    numbers = value if isinstance(value, tuple) else (value,)
    finite = all(math.isfinite(x) for x in numbers if isinstance(x, float))
    check(finite, f"{name}={value}: must be finite")
  for name, field in fields.items():
    check(values[name] is not None, f"{name}=None: must have a value")
    if isinstance(field, Field):
      field.check_value(name, values[name])


def check_has_effect(config: ConfigDict, name: str) -> None:
  """Checks that a field which was set, like "data.fixed_width", has an effect.

  Many fields have one only if another field has a certain value. An effect in
  one stage of --mode=abc is enough, whatever the mode is, which is not known
  here.

  Args:
    config: the whole config.
    name: the full name of the field.

  Raises:
    UsageError: the field has no effect, and the message says when it has one;
      or a field that decides this, like positions.kind, is not valid.
  """
  section = name.partition(".")[0]
  tasks = [task for task in TASKS if TASKS[task].section == section]
  check(
    not tasks or config.task not in TASKS or config.task in tasks,
    f"{name} changes nothing here: it is for task={' or '.join(tasks)}",
  )
  if config.task in tasks:
    hint = TASKS[config.task].hint_of_field.get(name.partition(".")[2])
    check(
      hint is None or hint in config.hints,
      f"{name} changes nothing here: it is for hints with {hint!r}",
    )
  field = FIELDS.get(name.removeprefix("retrain."))
  if field is None or field.when is None:
    return
  # retrain_config divides by the first number of the mesh.
  FIELDS["mesh"].check_value("mesh", config.mesh)
  stages = [] if name.startswith("retrain.") else [config]
  if name not in CALIBRATED:
    stages.append(retrain_config(config, config.seeds, "bias.npz"))
  for stage in stages:
    check_choice("task", stage.task, TASKS)
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
