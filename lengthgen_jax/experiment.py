"""From a config to task, model and biases: the only room that knows both."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from lengthgen_jax import bias_file, coordinates, metrics, rng
from lengthgen_jax.attention import biases, positions
from lengthgen_jax.attention.biases import BIASES
from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.attention.lines import is_sparse
from lengthgen_jax.config_check import check_fields
from lengthgen_jax.errors import check
from lengthgen_jax.models import config as model_config
from lengthgen_jax.models.encoder_decoder import EncoderDecoder
from lengthgen_jax.tasks import TASKS
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
  """

  task: object
  data: Interpolation
  widths: tuple[int, ...]
  fixed_width: int | None
  model: EncoderDecoder
  bias: biases.BiasConfig

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
    return result

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
    return {
      site: biases.total_gathered(self.bias, lines, site, rows, keys[site])
      for site in keys
    }

  def init(self, seed):
    """Fresh parameters of one seed (seed may be traced)."""
    width = min(self.widths)
    batch = self.data.sample(jax.random.key(0), 1, width)
    return self.model.init(
      rng.stream(seed, "init"), batch, self.full_biases({}, width)
    )["params"]

  def loss(self, params, batch, bias, key):
    """Mean cross-entropy (nats per weighted token), dropout on."""
    logits, _ = self.model.apply(
      {"params": params}, batch, bias, True, rngs={"dropout": key}
    )
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, batch.target)
    return (loss * batch.weight).sum() / batch.weight.sum()

  def hits(self, params, batch, bias):
    """Teacher-forced correct tokens [B, T] and exact match [B]."""
    logits, _ = self.model.apply({"params": params}, batch, bias)
    return metrics.hits(logits.argmax(-1), batch.target, batch.weight)


def build(config) -> Experiment:
  """Validates a config and assembles the experiment.

  Raises:
    UsageError: one line that names the field and the valid choices.
  """
  check_fields(config)
  task = TASKS[config.task](
    aligned=config.data.aligned, slack=config.data.slack
  )
  model = EncoderDecoder(_model_config(config, task.vocabulary))
  experiment = Experiment(
    task=task,
    data=Interpolation(
      task, config.data.numbers, config.data.train_length, config.data.seed
    ),
    widths=_widths(config, task),
    fixed_width=_fixed_width(config, task),
    model=model,
    bias=_bias_config(config),
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
  return make(
    task.strides,
    config.bias.window,
    config.model.num_heads,
    config.bias.windowed_encoder,
    config.bias.sides,
  )


def _model_config(config, vocabulary) -> model_config.ModelConfig:
  return model_config.ModelConfig(
    vocab_size=len(vocabulary),
    start_token=vocabulary.id(vocabulary.start),
    learned_bias_scale=config.bias.learned_scale,
    positions=positions.PositionConfig(**config.positions),
    **config.model,
  )


def _bias_config(config) -> biases.BiasConfig:
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
