"""All sections of a config: every field with its default, meaning and valid
values.

A section refuses an invalid value by a UsageError that names the field. The
sections of tasks are the tasks themselves. Names that users may add to, like
positions.kind, are checked where the registries are known (config/fields.py).
"""

import dataclasses
import math
from typing import (
  Annotated,
  Any,
  ClassVar,
  Literal,
  NamedTuple,
  Self,
  dataclass_transform,
  get_args,
  get_origin,
)

from lengthgen_jax.errors import check, check_choice

INT32 = (1 << 31) - 1


class Range(NamedTuple):
  """The numbers from `low` to `high` without `but`; `text` says so."""

  text: str
  low: float = -math.inf
  high: float = math.inf
  but: tuple[float, ...] = ()


POSITIVE = Range("must be positive", low=0, but=(0,))
NOT_NEGATIVE = Range("must not be negative", low=0)
FROM_ONE = Range("must be integers from 1 on, below 2^31", 1, INT32)
Count = Annotated[int, Range("must be positive, below 2^31", 1, INT32)]
CountOrNone = Annotated[  # 0 is none
  int, Range("must not be negative, nor 2^31 or more", 0, INT32)
]
Seed = Annotated[int, Range(f"must be from 0 to {INT32}", 0, INT32)]
Rate = Annotated[float, POSITIVE]
Fraction = Annotated[float, Range("must be in [0, 1]", 0, 1)]
BelowOne = Annotated[float, Range("must be in [0, 1)", 0, 1, but=(1,))]
# A text among the rules of a tuple says that it must not be empty.
Sizes = Annotated[tuple[int, ...], FROM_ONE]
SomeSizes = Annotated[tuple[int, ...], FROM_ONE, "name at least one, like (1,)"]
Directions = Annotated[tuple[int, ...], "name integers, like (0, 1)"]

Kind = Literal["encoder_decoder", "decoder_only"]


def check_value(name: str, value: Any, hint: Any) -> None:
  """Raises UsageError, which names the field, unless a value is there, finite,
  and one of its annotation: of a Literal, or in every Range."""
  kind, *rules = get_args(hint) if get_origin(hint) is Annotated else (hint,)
  values = value if isinstance(value, tuple) else (value,)
  check(value is not None, f"{name}=None: must have a value")
  is_finite = all(math.isfinite(x) for x in values if isinstance(x, float))
  check(is_finite, f"{name}={value}: must be finite")
  if get_origin(kind) is Literal:
    check_choice(name, value, get_args(kind))
  if kind == tuple[int, ...]:
    is_valid = all(type(x) is int for x in values)
    check(is_valid, f"{name}={value}: must be integers")
  for rule in rules:
    if isinstance(rule, str):
      check(value, f"{name}=(): {rule}")
      continue
    _, low, high, but = rule
    is_valid = all(low <= x <= high and x not in but for x in values)
    check(is_valid, f"{name}={value}: {rule.text}")


def check_values(section: Any) -> None:
  """Checks every field of a section of a config."""
  for field in dataclasses.fields(section):
    name = f"{section.section}.{field.name}".lstrip(".")
    check_value(name, getattr(section, field.name), field.type)


@dataclass_transform(frozen_default=True)
@dataclasses.dataclass(frozen=True)
class Section:
  """The base class of sections, which makes each a frozen dataclass, and checks
  every field."""

  section: ClassVar[str] = ""  # its name in the config, that of the class

  def __init_subclass__(cls, **kwargs):
    dataclasses.dataclass(frozen=True, **kwargs)(cls)
    if cls.__base__ is Section and "section" not in vars(cls):
      cls.section = cls.__name__.lower()

  def __post_init__(self):
    check_values(self)

  @classmethod
  def of(cls, values: Any) -> Self:
    """Returns the section that a mapping of all its values describes."""
    fields = {}
    for field in dataclasses.fields(cls):
      value, default = values[field.name], field.default
      is_section = isinstance(default, Section)
      fields[field.name] = type(default).of(value) if is_section else value
    return cls(**fields)


class Data(Section):
  """What models are trained on."""

  # lengths: a length is drawn for each operand, then its digits or items;
  # permutation: the papers' integers below 2^20, split 7:1 into training and
  # validation
  numbers: Literal["lengths", "permutation"] = "lengths"
  # longest training length, in decimal digits or items (for parity the next
  # two are in bits); a fraction short_share of the lengths is uniform in
  # shortest...short_longest, the others in what is longer; with
  # short_longest=0 all are uniform
  train_length: Count = 6
  shortest: Count = 1
  short_longest: CountOrNone = 0
  short_share: Fraction = 0.8
  # greatest lengths of ranges, to which examples are padded, in tasks whose
  # operands are not padded to a width; every batch has examples of each; () =
  # one range
  buckets: Sizes = ()
  # natural: operands are padded to the length of the longest + slack, in
  # training (whose batches take the lengths in turn) and in tests;
  # fixed: one width for training and test (the papers)
  width: Literal["natural", "fixed"] = "natural"
  fixed_width: Count = 61  # in digits; bits for parity follow from it
  size: Seed = 0  # examples of the finite data set, 0 = endless
  # of the examples: of the permutation, the finite data set, or the endless
  # stream
  seed: Seed = 0


class Mixing(Section):
  """How the main task and its hints share training."""

  # alternate: tasks have gradient steps in turn; weighted: they share every
  # batch
  kind: Literal["alternate", "weighted"] = "alternate"
  weights: tuple[float, ...] = ()  # main task first; () = equal
  # longest length of the hints' examples, above data.train_length and in its
  # units (of restrictions: before they are cut); 0 = data.train_length
  hint_length: CountOrNone = 0


class Shape(Section):
  """The size and layers of a model; names follow Flaxformer."""

  section = "model"

  emb_dim: Count = 64
  num_heads: Count = 8
  mlp_dim: Count = 256
  # 0 = the encoder passes embeddings through; decoder_only models have none
  num_encoder_layers: CountOrNone = 1
  num_decoder_layers: Count = 2
  # where layer normalization stands: before each sublayer (pre, with one more
  # at the end), after its residual sum (post), once at the end of each block
  # (block_end), or nowhere
  norm: Literal["pre", "post", "block_end", "none"] = "pre"
  # layer; rms (T5: no mean, no offset)
  norm_kind: Literal["layer", "rms"] = "layer"
  dense_bias: bool = True  # whether dense layers have biases (T5's do not)
  activation: Literal["relu", "gelu"] = "relu"
  dropout_rate: BelowOne = 0.0  # on embeddings and every sublayer's output
  # of activations; parameters, scores, softmax and logits are float32 at least
  dtype: Literal["float32", "bfloat16", "float64"] = "float32"
  # of matrix products; below highest, GPUs and TPUs round the factors of
  # float32 products
  precision: Literal["default", "high", "highest"] = "highest"

  def __post_init__(self):
    super().__post_init__()
    check(
      self.emb_dim % self.num_heads == 0,
      f"model.num_heads={self.num_heads} does not divide"
      f" model.emb_dim={self.emb_dim}",
    )


class Model(Shape):
  """A model: its family and its shape."""

  kind: Kind = "encoder_decoder"


class Positions(Section):
  """How positions are encoded."""

  # none; encodings of the index: sinusoidal, learned, rope, alibi, nape (ALiBi
  # in half of the heads), t5, fire, randomized; encodings of places, which an
  # output shares with its operands' digits: coordinates (sinusoids), abacus and
  # coupling (learned)
  kind: str = "sinusoidal"
  # T of cyclic position indexing (ABS paper, section 4.2): encodings with
  # `by_index` encode i mod T in place of index i; 0 = off
  cyclic_period: CountOrNone = 0
  # The end from which the index of source tokens is counted, but in ALiBi, T5
  # and FIRE, where it is the left. Outputs begin with the least significant
  # digit, so only with "right" is the difference between the index of an output
  # and that of its digit the same at every width, and only in the last segment
  # (aligned and one-operand sources have no other).
  source_anchor: Literal["left", "right"] = "left"
  # rows of a learned table; randomized: how many positions to draw from
  table: Count = 512
  # of t5: all distances from this one on share a bucket, so it should be one
  # that training has
  max_distance: Annotated[int, Range("must be at least 17", 17)] = 128
  # in training, places are shifted by a number drawn from 0 to random_start - 1
  # (abacus, coupling), so that a longer input's places have been seen
  random_start: Count = 100
  # whether a learned vector of its token's segment (an operand, the output) is
  # added to every input, whatever the kind
  segments: bool = False


class Temperature(Section):
  """A factor on attention scores, before the bias is added."""

  # none; a·log(n+1): log_items, fixed (a is not learned) and log_visible;
  # one_plus_log: 1 + a·log(n+1); scalable: a·log n + b per head; asentmax:
  # a + β·log(n+1)^γ per head, β and γ from the hidden state. In decoder-only
  # models n is the number of the prompt's tokens, but that of the keys that a
  # row sees with log_visible, scalable and asentmax
  kind: str = "none"
  initial: float = 0.5  # first value of a
  # n is multiplied by this s, in training by a random factor in 1...s²
  stretch: Annotated[float, Range("must be at least 1", 1)] = 1.0


class Attention(Section):
  """How scores become weights."""

  # softmax; with exact zeros: entmax, sparsemax; stick_breaking (of
  # decoder-only models)
  normalizer: str = "softmax"
  # of entmax: the greater, the sparser are the weights
  alpha: Annotated[
    float,
    Range("must be above 1 (softmax), at most 2 (sparsemax)", 1, 2, but=(1,)),
  ] = 1.5


class Initial(Section):
  """The parameters before the first step."""

  # random; construction: weights that sort, of Theorem 5.1 of the task hinting
  # paper (train.steps=0 leaves them as they are)
  kind: Literal["random", "construction"] = "random"
  longest: Count = 1000  # the most items that the construction is to sort
  # how it computes whether copies of an item are left: by their difference in
  # number, or by their share (as in the paper)
  copies: Literal["difference", "share"] = "difference"
  # standard deviation of normal noise on the construction's parameters
  noise: Annotated[float, NOT_NEGATIVE] = 0.0


class Bias(Section):
  """The bias that is added to attention scores."""

  kind: str = "none"  # none, window, file
  file: str = ""  # an .npz with lines or matrices
  # w: how many inputs of the output before its newest a row sees
  window: CountOrNone = 1
  # how many digits (pairs, if interleaved) or items of the prompt it sees on
  # either side of its own; not in grids
  input_window: CountOrNone = 0
  # bias in closed cells; at -1e5 and below it is -inf
  closed: Annotated[float, Range("must not be positive", high=0)] = -1e9
  # whether the bias takes the place of the causal mask, so that rows may see
  # the future, as in the released ABC program
  allow_leak: bool = False


class Train(Section):
  """How a run is trained."""

  steps: CountOrNone = 1000  # gradient steps
  batch_size: Count = 128
  # adam (AdamW with weight_decay), lion; muon (for the kernels of attention and
  # MLP, with NAdam for all other parameters)
  optimizer: str = "adam"
  learning_rate: Rate = 1e-3
  # of the parameters that Muon leaves to NAdam; 0 = learning_rate
  adam_learning_rate: Annotated[float, NOT_NEGATIVE] = 0.0
  warmup_steps: CountOrNone = 200
  schedule: Literal["constant", "cosine"] = "cosine"
  # global gradient norm, 0 = off
  clip_norm: Annotated[float, NOT_NEGATIVE] = 1.0
  adam_b1: BelowOne = 0.9
  adam_b2: BelowOne = 0.98
  adam_eps: float = 1e-8
  # decoupled from the gradient; it is multiplied by the learning rate
  weight_decay: Annotated[float, NOT_NEGATIVE] = 0.0
  # gradient steps that are dispatched at once; a run is logged, validated and
  # stopped between chunks
  chunk: Count = 100
  # held-out examples of each task after every chunk, split over its widths
  validation_samples: Count = 512
  # a seed stops at this validation exact match; above 1 = never
  target_exact_match: Rate = 2.0
  # how a step trains several seeds; with vmap rounding depends on which seeds
  # still train, so a resumed run may differ in the last bits
  seed_axis: Literal["loop", "vmap"] = "loop"


class Checkpoint(Section):
  """What is kept of a run."""

  every: Count = 4  # chunks between checkpoints
  # newest checkpoints kept; each has the best parameters so far too
  keep: Count = 2


class Calibration(Section):
  """ABC: how lines are found in the attention of the first stage's model."""

  # in the units of data.train_length; () draws lengths as in training
  lengths: Sizes = (4, 5, 6)
  samples: Count = 500  # for each width and length
  # weights (after softmax), scores (before)
  quantity: Literal["weights", "scores"] = "weights"
  # operand: anchored to segments; absolute: papers
  lines: Literal["operand", "absolute"] = "operand"
  # Δ, tokens per row: of lines to the prompt, and of lines to outputs
  directions: Directions = (-1, 0, 1)
  self_directions: Directions = (0, 1)
  # 0: any line; n: only lines for which a certificate can try all contexts: to
  # a fixed place if a mark or the single digit of N×1 stands there, to outputs
  # at most n before the row's own input, and to operands if they move by one
  # digit per row; on a grid, to cells at most n rows and n cells away
  reach: CountOrNone = 0
  # rows that count: length (those of the operands' length), all
  rows: Literal["length", "all"] = "length"
  line: Literal["mean", "sum"] = "mean"  # strength of a line
  # a line is kept if its strength exceeds μ + κσ
  kappa: float = 2.0  # κ in cross-attention
  kappa_self: float = 0.87  # κ in self-attention
  # least score (strength - μ)/σ of a kept line under every condition (a width
  # and a length), as a share of its head's best
  best_share: Fraction = 0.0
  # μ and σ over: all lines, distinct strengths, long lines (see min_cells)
  statistics: Literal["all", "distinct", "long"] = "all"
  # the maximum that is subtracted from strengths: of a direction, of a head,
  # none
  maximum: Literal["direction", "head", "none"] = "head"
  # least share of the rows that count which a line must cross
  min_cells: Fraction = 0.5
  # each (each layer has its own lines), last (all have the last layer's)
  layers: Literal["each", "last"] = "each"
  # heads without a line
  empty_heads: Literal["closed", "transparent"] = "closed"


class Abc(Section):
  """ABC's first stage, which interpolates."""

  # least validation exact match of a model that interpolates
  min_exact_match: Fraction = 0.97
  # input whose attention is drawn, as one types it; "" = a short one
  example: str = ""
  # longest test length of the vanilla model
  vanilla_longest: CountOrNone = 60


class Retrain(Section):
  """ABC's second stage, the training with calibrated lines.

  The config has in this section what the stage changes of the first one, by
  section.
  """


class Finetune(Section):
  """What follows training (with --mode=abc, the second stage): certify; train
  wrong models on inputs on which they are wrong; certify again."""

  # the most rounds of finetuning; 0 = no certificate either
  rounds: CountOrNone = 0
  steps: Count = 300  # of each round
  learning_rate: Rate = 1e-3  # of the first round
  # the learning rate of a round / that of the round before
  rate_decay: Rate = 1.0
  # share of such inputs among the main task's examples in a batch
  share: Annotated[
    float, Range("must be above 0, at most 1", 0, 1, but=(0,))
  ] = 0.25


class Certify(Section):
  """Proofs for every length."""

  max_contexts: Count = 10_000_000  # a model with more is not tried
  # whether a wrong model's contexts are tried after the first receptive field
  # with wrong ones
  exhaustive: bool = True
  # whether the program is tried on whole inputs with the contexts of every
  # model that is proved, at most 30,000 (of a user's task it always is); it
  # takes up to a minute a seed, five of N×M
  second_opinion: bool = False


class Prune(Section):
  """Before a model is certified, lines of its bias that it does not need are
  closed, so that there are fewer contexts."""

  # whether that is done, and whether lines that are closed stay so in every
  # mode
  enabled: bool = True
  # least smallest margin on held-out examples without these lines / that with
  # all lines
  margin_share: Fraction = 0.9


class Probe(Section):
  """Looking inside a model."""

  # inputs whose attention is drawn, as one types them; () = the papers', or an
  # example
  inputs: tuple[str, ...] = ()
  stage: str = (
    ""  # of --mode=abc: interpolate, retrain, finetune; "" = the last
  )
  # names in lengthgen_jax/probes/registry.py and figures.py; () = all that
  # apply to the model
  only: tuple[str, ...] = ()
  figures: tuple[str, ...] = ()
  # () = those of eval.lengths up to 100; interventions (what is knocked out or
  # patched) have inputs of the training length
  lengths: Sizes = ()
  samples: Count = 128  # inputs of each length


class Bench(Section):
  """Timing."""

  repeats: Count = 5  # timed calls of each case, of which the median counts
  # whether a trace of jax.profiler is written to W/trace
  trace: bool = False


class Eval(Section):
  """Tests."""

  lengths: SomeSizes = (6, 10, 20, 60)  # in decimal digits or items
  # arithmetic: equal, unequal, carry, chain, nines, zeros, short, repeated;
  # multiply_long: equal, unequal, nines, one, zeros;
  # sort: uniform, repeats, sorted, reversed, all_equal, two_values, near_ties;
  # increment: uniform, nines, repeated; modular, permutations: uniform,
  # all_equal, lone; dyck: walks, broken, deep, uniform; copy, reverse: uniform,
  # all_equal; mqmtar: pairs, near_keys
  test_sets: Annotated[tuple[str, ...], "name at least one"] = ("equal",)
  # repeats: number of distinct items, and how often each occurs
  repeated_items: Count = 3
  repetitions: Sizes = (1, 2, 4, 8)
  # unequal of multiply_long: how many digits the factor b has
  multipliers: Sizes = (3, 61)
  chains: Sizes = (1, 2, 4, 8, 16, 32)  # chain: places that a carry crosses
  # whether the task's hard and odd inputs are tested too, and how many of each
  # kind
  stress: bool = False
  stress_samples: Count = 200
  # greatest length of the search for the longest one up to which exact match is
  # at least 99 % (by the lower bound), on every test set that is sampled at
  # every length; 0 = no search
  frontier: CountOrNone = 0
  # per length; 299 right of 299 prove 99 %
  frontier_samples: Annotated[
    int, Range("must be at least 299: fewer cannot prove 99 %", 299)
  ] = 299
  # samples per length and seed: one number, or one for each length
  samples: Sizes = (1000,)
  replace: bool = False  # whether results replace earlier ones of more samples
  checkpoint: str = "last"  # last, best (by validation), or a step
  seed: Seed = 0  # of the test samples
  # whether outputs are decoded freely too, for rows em_end_blind and edit
  free_running: bool = False
  # predict: whether intermediate results are printed too: of grids, all rows
  scratchpad: bool = False
  # MiB of each device for attention; 0 = 16 on a CPU, else 1024
  memory_mb: CountOrNone = 0

  def __post_init__(self):
    super().__post_init__()
    checkpoint = self.checkpoint
    check(
      checkpoint in ("last", "best")
      or (checkpoint.isascii() and checkpoint.isdigit()),
      f"eval.checkpoint={checkpoint!r}: choose last, best or the number of a"
      " step",
    )
    check(
      len(self.samples) in (1, len(self.lengths)),
      f"eval.samples={self.samples}: one positive number, or one for each of"
      f" eval.lengths={self.lengths}",
    )


class Config(Section):
  """A whole config, but for the sections of tasks."""

  section = ""

  task: str = "addition"  # a name in lengthgen_jax/tasks/__init__.py
  method: str = "vanilla"  # a label for result rows and figures
  # Filled in by the program: the fields that the command line changed; files
  # that registered what is not the package's; and the name or path of the
  # trained model that is used in place of a trained workdir (--model).
  overrides: tuple[str, ...] = ()
  registered_by: tuple[str, ...] = ()
  pretrained: str = ""
  # trained together; each has result rows of its own
  seeds: Annotated[
    tuple[int, ...],
    Range("must be integers from 0 on, below 2^31", 0, INT32),
    "name at least one, like (0,)",
  ] = (0,)
  # devices along seeds and along data, like (2, 4); () = as many seeds as
  # divide the devices, and the batch over the rest
  mesh: Sizes = ()
  # folder of JAX's compilation cache, so that the next run starts at once; "" =
  # none, as where there is no home folder for ~
  compile_cache: str = "~/.cache/lengthgen_jax"
  # auxiliary tasks with heads of their own. addition: no_carry, carry_only;
  # sort: successor, count, fill, predecessor, minimum; increment: carry;
  # reverse: copy, shifted. sort, copy, reverse: restricted, random restrictions
  # of longer examples, with the main task's output layer
  hints: tuple[str, ...] = ()
  data: Data = Data()
  mixing: Mixing = Mixing()
  model: Model = Model()
  positions: Positions = Positions()
  temperature: Temperature = Temperature()
  attention: Attention = Attention()
  initial: Initial = Initial()
  bias: Bias = Bias()
  train: Train = Train()
  checkpoint: Checkpoint = Checkpoint()
  calibration: Calibration = Calibration()
  abc: Abc = Abc()
  retrain: Retrain = Retrain()
  finetune: Finetune = Finetune()
  # The fields of certificates, probes, timing and tests do not affect training,
  # except for those of `certify` and `prune` in rounds of finetuning.
  certify: Certify = Certify()
  prune: Prune = Prune()
  probe: Probe = Probe()
  bench: Bench = Bench()
  eval: Eval = Eval()

  def __post_init__(self):
    super().__post_init__()
    check(
      len(set(self.seeds)) == len(self.seeds),
      f"seeds={self.seeds}: name every seed once",
    )
    check(
      len(self.mesh) in (0, 2),
      f"mesh={self.mesh}: devices along seeds and along data, like (2, 4); or"
      " ()",
    )
