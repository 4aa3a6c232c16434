"""From a config to task, model and biases: the only room that knows both."""

import dataclasses
import hashlib
import json

import jax
import jax.numpy as jnp
import optax

from lengthgen_jax import bias_file, coordinates, metrics, rng
from lengthgen_jax.attention import biases, positions
from lengthgen_jax.attention.biases import BIASES
from lengthgen_jax.errors import check, check_choice
from lengthgen_jax.models import config as model_config
from lengthgen_jax.models.encoder_decoder import EncoderDecoder
from lengthgen_jax.tasks import TASKS
from lengthgen_jax.tasks.data import NUMBERS, TEST_SETS, Interpolation

WIDTHS = ("natural", "fixed")


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
  check_choice("task", config.task, TASKS)
  check_choice("data.numbers", config.data.numbers, NUMBERS)
  check_choice("data.width", config.data.width, WIDTHS)
  check_choice("bias.kind", config.bias.kind, BIASES)
  check(config.seeds, "seeds=(): name at least one seed, like (0,)")
  check_integers(config, "seeds", least=0)
  check(
    len(set(config.seeds)) == len(config.seeds),
    f"seeds={tuple(config.seeds)}: name every seed once",
  )
  check(config.eval.test_sets, "eval.test_sets=(): name at least one")
  for name in config.eval.test_sets:
    check_choice("eval.test_sets", name, TEST_SETS)
  check(config.eval.lengths, "eval.lengths=(): name at least one, like (6,)")
  check_integers(config, "eval.lengths eval.samples data.widths", least=1)
  checkpoint = str(config.eval.checkpoint)
  check(
    checkpoint in ("last", "best") or checkpoint.isdigit(),
    f"eval.checkpoint={checkpoint!r}: choose last, best or the number of a"
    " step",
  )
  check_positive(
    config,
    "data.train_length data.fixed_width model.emb_dim model.num_heads"
    " model.mlp_dim model.num_decoder_layers positions.table train.steps"
    " train.batch_size train.learning_rate train.chunk"
    " train.validation_samples checkpoint.every checkpoint.keep eval.memory_mb",
  )
  check_positive(
    config,
    "data.slack model.num_encoder_layers positions.cyclic_period bias.window"
    " train.warmup_steps train.clip_norm",
    or_zero=True,
  )
  check(
    len(config.eval.samples) in (1, len(config.eval.lengths)),
    f"eval.samples={tuple(config.eval.samples)}: one positive number, or one"
    f" for each of eval.lengths={tuple(config.eval.lengths)}",
  )
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
  )


def check_positive(config, names: str, or_zero: bool = False) -> None:
  for name in names.split():
    value = _field(config, name)
    check(
      value > 0 or or_zero and value == 0,
      f"{name}={value}: must {'not be negative' if or_zero else 'be positive'}",
    )


def check_integers(config, names: str, least: int) -> None:
  """UsageError unless the fields are tuples of int32 numbers >= least."""
  for name in names.split():
    value = tuple(_field(config, name))
    check(
      all(isinstance(n, int) and least <= n < 1 << 31 for n in value),
      f"{name}={value}: must be integers from {least} on",
    )


def _field(config, name: str):
  for part in name.split("."):
    config = config[part]
  return config


def _model_config(config, vocabulary) -> model_config.ModelConfig:
  model, place = config.model, config.positions
  check_choice("model.norm", model.norm, model_config.NORMS)
  check_choice("model.activation", model.activation, model_config.ACTIVATIONS)
  check_choice("model.dtype", model.dtype, model_config.DTYPES)
  check_choice("positions.kind", place.kind, positions.POSITIONS)
  check_choice(
    "positions.source_anchor", place.source_anchor, positions.ANCHORS
  )
  check(
    model.emb_dim % model.num_heads == 0,
    f"model.num_heads={model.num_heads} does not divide"
    f" model.emb_dim={model.emb_dim}",
  )
  check(
    place.kind != "rope" or (model.emb_dim // model.num_heads) % 2 == 0,
    f"positions.kind='rope' needs an even head size, not"
    f" {model.emb_dim // model.num_heads} (model.emb_dim / model.num_heads)",
  )
  check(
    0.0 <= model.dropout_rate < 1.0,
    f"model.dropout_rate={model.dropout_rate}: must be in [0, 1)",
  )
  return model_config.ModelConfig(
    vocab_size=len(vocabulary),
    start_token=vocabulary.id(vocabulary.start),
    learned_bias_scale=config.bias.learned_scale,
    positions=positions.PositionConfig(**place),
    **model,
  )


def _bias_config(config) -> biases.BiasConfig:
  section = config.bias
  closed = section.closed
  if closed <= bias_file.DENSE_CLOSED:
    closed = float("-inf")
  check(section.scale > 0, f"bias.scale={section.scale}: must be positive")
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
    widths = tuple(config.data.widths) or (longest + config.data.slack,)
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


# Fields that may change between training a workdir and reading it again.
READING_FIELDS = ("eval",)


def differences(config, saved: dict, sections) -> list[str]:
  """Fields of the given sections whose values differ, "name: ours, theirs"."""
  ours = json.loads(config.to_json_best_effort())
  lines = []
  for section in sections:
    for name, mine, theirs in _leaves(section, ours, saved):
      if mine != theirs:
        lines.append(f"{name}={mine!r} but {theirs!r} there")
  return lines


def _leaves(name: str, ours: dict, saved: dict):
  mine, theirs = ours.get(name), saved.get(name)
  if not isinstance(mine, dict):
    yield name, mine, theirs
    return
  for key in sorted(set(mine) | set(theirs or {})):
    yield f"{name}.{key}", mine.get(key), (theirs or {}).get(key)


def config_hash(config) -> str:
  """Eight hex digits of everything but the evaluation fields."""
  fields = json.loads(config.to_json_best_effort())
  for name in READING_FIELDS:
    fields.pop(name)
  text = json.dumps(fields, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:8]
