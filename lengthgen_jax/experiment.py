"""From a config to task, model and biases: the only room that knows both."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import (
  bias_file,
  coordinates,
  metrics,
  rng,
  sequence_experiment,
)
from lengthgen_jax.attention import biases, positions, temperature
from lengthgen_jax.attention.biases import BIASES
from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.attention.lines import is_sparse
from lengthgen_jax.config_check import check_fields
from lengthgen_jax.errors import check
from lengthgen_jax.lessons import Part, Share
from lengthgen_jax.models.config import ModelConfig
from lengthgen_jax.models.encoder_decoder import EncoderDecoder
from lengthgen_jax.sequence_experiment import SequenceExperiment
from lengthgen_jax.tasks import ARITHMETIC, HINTS, SEQUENCES
from lengthgen_jax.tasks.data import Interpolation


@dataclasses.dataclass(frozen=True)
class Experiment:
  """Everything that is fixed before the first step; hashable.

  Attributes:
    task: where examples come from.
    data: the in-range examples.
    widths: static widths that training cycles through.
    fixed_width: W of `width=fixed`, None for `width=natural`.
    model: the flax module.
    bias: how the scaffold enters the scores.
    batch_size: examples of a gradient step.
    validation_samples: held-out examples at every width.
  """

  task: object
  data: Interpolation
  widths: tuple[int, ...]
  fixed_width: int | None
  model: EncoderDecoder
  bias: biases.BiasConfig
  batch_size: int
  validation_samples: int

  def test_width(self, length: int) -> int:
    """W for a test length in decimal digits; UsageError if it cannot be."""
    if self.fixed_width is None:
      width = self.task.natural_width(length)
    else:
      width = self.fixed_width
      check(
        self.task.units(length) < width,
        f"eval.lengths: {length} digits do not fit data.width=fixed with"
        f" W={width}; choose shorter lengths or a larger data.fixed_width",
      )
    self.check_positions(width, f"eval.lengths: {length} digits")
    return width

  def check_positions(self, width: int, what: str) -> None:
    """UsageError if a learned table has too few rows for this width."""
    limit = self.model.config.positions.limit()
    needed = max(
      len(self.task.coordinates(width).segment), self.task.target_length(width)
    )
    check(
      limit is None or needed <= limit,
      f"{what} need {needed} positions, but positions.table={limit}",
    )

  def biases(self, lines, row_T, keys, target_rows) -> dict:
    """Bias of every site for rows `row_T` of one seed: [N or 1, H, T, S]."""
    heads = self.model.config.num_heads
    make = lambda site, rows, site_keys: biases.total(
      self.bias, lines, site, heads, rows, site_keys
    )
    result = {
      "self": make("self", row_T, coordinates.target(target_rows)),
      "cross": make("cross", row_T, keys),
    }
    if self.model.config.num_encoder_layers:
      whole = keys.absolute()
      result["encoder"] = make("encoder", whole.left, whole)
    return result | {"sizes": self.sizes(row_T, keys)}

  def sizes(self, row_T, keys) -> dict:
    """n of the softmax temperature at every site: source tokens, and in
    decoder self-attention the keys that a row sees."""
    config = self.model.config.temperature
    source = jnp.sum(jnp.asarray(keys.segment) >= 0)[None, None]
    before = row_T[None] + 1
    return {
      "self": temperature.sizes(config, before, before),
      "cross": temperature.sizes(config, source, source),
      "encoder": temperature.sizes(config, source, source),
    }

  @property
  def static_sizes(self) -> tuple[int, ...]:
    """Widths that a bias must cover in training."""
    return self.widths

  def rows_and_keys(self, site: str, width: int):
    """Row numbers and key Coordinates of a site's matrix at width W."""
    rows = np.arange(self.task.target_length(width))
    if site == "cross":
      return rows, self.task.coordinates(width)
    return rows, coordinates.target(rows)

  def full_biases(self, lines, width: int) -> dict:
    """Biases of a whole teacher-forced pass at width W, for one seed."""
    rows = jnp.arange(self.task.target_length(width))
    keys = self.task.coordinates(width)
    return self.biases(lines, rows, keys, rows)

  def is_sparse(self, lines) -> bool:
    """Whether attention need only visit the keys on the lines."""
    closed = self.bias.closed == CLOSED
    encoder = self.model.config.num_encoder_layers
    return closed and not encoder and is_sparse(lines)

  def gathered_biases(self, lines, width: int) -> dict:
    """`full_biases` of a bias that `is_sparse`, at a cost linear in W."""
    rows = jnp.arange(self.task.target_length(width))
    keys = {
      "self": coordinates.target(rows),
      "cross": self.task.coordinates(width),
    }
    gathered = {
      site: biases.total_gathered(self.bias, lines, site, rows, keys[site])
      for site in keys
    }
    return gathered | {"sizes": self.sizes(rows, keys["cross"])}

  def init(self, seed, attempt: int = 0):
    """Fresh parameters of a seed (may be traced) for its n-th attempt."""
    width = min(self.widths)
    batch = self.data.sample(jax.random.key(0), 1, width)
    return self.model.init(
      rng.stream(seed, f"init{attempt or ''}"),
      batch,
      self.full_biases({}, width),
    )["params"]

  heads = ("",)  # one output layer, which bears no task's name

  def head_params(self, head: str) -> str:
    return "logits_dense"

  @property
  def lessons(self) -> tuple:
    """A gradient step at every width."""
    parts = [Part(width, self.batch_size) for width in self.widths]
    return tuple((Share("", 1.0, (part,)),) for part in parts)

  @property
  def validation(self) -> tuple:
    parts = [Part(width, self.validation_samples) for width in self.widths]
    return (Share("", 1.0, tuple(parts)),)

  def sample(self, key, head: str, part: Part, held_out=False):
    """A batch of one width."""
    return self.data.sample(key, part.count, part.size, held_out)

  def part_bias(self, lines, head: str, part: Part) -> dict:
    return self.full_biases(lines, part.size)

  def loss(self, params, batch, bias, head: str, key):
    """Summed cross-entropy (nats) with dropout on, and how many tokens."""
    config, count = self.model.config.temperature, len(batch.source)
    sizes = temperature.jittered(config, bias["sizes"], key, count)
    bias = bias | {"sizes": sizes}
    logits, _ = self.model.apply(
      {"params": params}, batch, bias, True, rngs={"dropout": key}
    )
    return metrics.cross_entropy(logits, batch.target, batch.weight)

  def hits(self, params, batch, bias, head: str = ""):
    """Teacher-forced correct tokens [B, T] and exact match [B]."""
    logits, _ = self.model.apply({"params": params}, batch, bias)
    return metrics.hits(logits.argmax(-1), batch.target, batch.weight)


def build(config) -> Experiment | SequenceExperiment:
  """Validates a config and assembles the experiment of its family.

  Raises:
    UsageError: one line that names the field and the valid choices.
  """
  check_fields(config)
  if config.task in SEQUENCES:
    model_config = partial(make_model_config, config)
    return sequence_experiment.build(config, model_config, bias_config(config))
  check(
    not config.hints,
    f"hints={tuple(config.hints)}: {config.task} has none; tasks with hints are"
    f" {', '.join(HINTS)}",
  )
  task = ARITHMETIC[config.task](
    aligned=config.data.aligned, slack=config.data.slack
  )
  vocabulary = task.vocabulary
  start = vocabulary.id(vocabulary.start)
  model = EncoderDecoder(make_model_config(config, len(vocabulary), start))
  experiment = Experiment(
    task=task,
    data=Interpolation(
      task, config.data.numbers, config.data.train_length, config.data.seed
    ),
    widths=_widths(config, task),
    fixed_width=_fixed_width(config, task),
    model=model,
    bias=bias_config(config),
    batch_size=config.train.batch_size,
    validation_samples=config.train.validation_samples,
  )
  for width in experiment.widths:
    experiment.check_positions(width, f"data: width {width}")
  for length in config.eval.lengths:
    experiment.test_width(length)
  _check_stride(config, task)
  return experiment


def make_lines(config, task) -> dict:
  """The LineBias of a config: windows, a file's, or nothing."""
  if config.bias.kind == "file":
    return bias_file.load(config.bias.file)[0]
  make = BIASES[config.bias.kind].lines
  if make is None:
    return {}
  cross = task.family == "encoder_decoder"
  made = make(
    task.strides if cross else (),
    config.bias.window,
    config.model.num_heads,
    config.bias.windowed_encoder,
    config.bias.sides,
  )
  return made if cross else {"self": made["self"]}


def make_model_config(config, vocab_size: int, start_token: int) -> ModelConfig:
  return ModelConfig(
    vocab_size=vocab_size,
    start_token=start_token,
    learned_bias_scale=config.bias.learned_scale,
    positions=positions.PositionConfig(**config.positions),
    temperature=temperature.TemperatureConfig(**config.temperature),
    **config.model,
  )


def bias_config(config) -> biases.BiasConfig:
  section = config.bias
  closed = section.closed
  if closed <= bias_file.DENSE_CLOSED:
    closed = CLOSED
  return biases.BiasConfig(
    section.kind, section.scale, closed, section.allow_leak
  )


def _fixed_width(config, task) -> int | None:
  if config.data.width == "natural":
    return None
  return task.units(config.data.fixed_width - 1) + 1


def _widths(config, task) -> tuple[int, ...]:
  longest = task.units(config.data.train_length)
  if config.data.width == "fixed":
    widths = (_fixed_width(config, task),)
  else:
    # Trained at W = 8 alone with T = 3, some seeds learn that `&` comes at row
    # 2 mod 3 and fail at W = 22: every phase of the last row must be seen.
    phases = range(max(config.positions.cyclic_period, 1))
    widths = tuple(config.data.widths) or tuple(
      longest + config.data.slack + phase for phase in phases
    )
    check(
      task.base == 2 or task.slack > 0,
      "data.slack=0: sums of the longest operands need one digit more",
    )
  if config.data.numbers == "permutation":
    longest = 20 if task.base == 2 else 7
  for width in widths:
    check(
      width > longest or task.base == 2 and width == longest,
      f"data.widths: {width} is too narrow for answers to operands of"
      f" {longest} {'bits' if task.base == 2 else 'digits'}",
    )
  return widths


def _check_stride(config, task) -> None:
  stride = config.bias.stride
  check(
    stride in (0, max(task.strides)),
    f"bias.stride={stride}: {task.name}, data.aligned={task.aligned}, advances"
    f" {max(task.strides)} source tokens per output row; choose that or 0",
  )
