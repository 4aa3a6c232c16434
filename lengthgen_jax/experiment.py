"""From a config to task, model and biases: the only room that knows both."""

import dataclasses
import hashlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lengthgen_jax import bias_file, coordinates, metrics, rng
from lengthgen_jax.attention import biases, positions
from lengthgen_jax.attention import lines as lines_module
from lengthgen_jax.attention.biases import BIASES
from lengthgen_jax.errors import UsageError, check, check_choice
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
  check(
    len(set(config.seeds)) == len(config.seeds),
    f"seeds={tuple(config.seeds)}: name every seed once",
  )
  for name in config.eval.test_sets:
    check_choice("eval.test_sets", name, TEST_SETS)
  check_positive(
    config,
    "data.train_length data.fixed_width model.emb_dim model.num_heads"
    " model.mlp_dim model.num_decoder_layers positions.table train.steps"
    " train.batch_size train.learning_rate train.chunk"
    " train.validation_samples checkpoint.every checkpoint.keep eval.memory_mb",
  )
  check(
    len(config.eval.samples) in (1, len(config.eval.lengths))
    and min(config.eval.samples) > 0,
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
    check(length >= 1, f"eval.lengths: {length} is no length")
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


def check_bias(experiment: Experiment, bias: dict, seeds, widths) -> list[str]:
  """Refuses a bias that does not fit the model or shows the future.

  Args:
    experiment: the model it is meant for.
    bias: LineBias or matrices with leading axis R or 1.
    seeds: the seeds of the run.
    widths: static widths it must cover.

  Returns:
    Lines about rows with nothing open, if there are any.

  Raises:
    UsageError: one line that names the site, layer, head and cell.
  """
  config = experiment.model.config
  notes = []
  for name, value in bias.items():
    site, _, is_dense = name.partition("_")
    shape = value.shape if is_dense else value.transparent.shape
    layers = (
      config.num_encoder_layers
      if site == "encoder"
      else config.num_decoder_layers
    )
    check(
      shape[0] in (1, len(seeds))
      and shape[1] in (1, layers)
      and shape[2] == config.num_heads,
      f"bias.file: {site} has {shape[0]} seeds, {shape[1]} layers and"
      f" {shape[2]} heads; this run has {len(seeds)}, {layers} (or 1) and"
      f" {config.num_heads}",
    )
    if site == "self" and not experiment.bias.allow_leak:
      _refuse_leak(value, is_dense)
    for width in widths:
      notes += _dead_rows(experiment, name, value, width)
  return notes


def _refuse_leak(value, is_dense) -> None:
  found = (
    lines_module.leak_dense(value) if is_dense else lines_module.leak(value)
  )
  if found is not None:
    seed, layer, head, row, column = found
    raise UsageError(
      f"bias leaks the future: site self, seed {seed}, layer {layer}, head"
      f" {head}, row {row} sees column {column}; repair it, or ask for it by"
      " --config.bias.allow_leak=true"
    )


def _dead_rows(experiment, name: str, value, width: int) -> list[str]:
  """A line if rows of this bias have nothing open at width W."""
  site, _, is_dense = name.partition("_")
  task = experiment.task
  rows = np.arange(task.target_length(width))
  keys = task.coordinates(width)
  if site != "cross":
    keys = coordinates.target(rows)
  if is_dense:
    fits = len(rows) <= value.shape[3] and len(keys.segment) <= value.shape[4]
    check(
      fits,
      f"bias.file: {site} is {value.shape[3]} x {value.shape[4]}, but width"
      f" {width} needs {len(rows)} x {len(keys.segment)}",
    )
  if site == "encoder":
    return []
  dead = 0
  for r in range(len(value if is_dense else value.transparent)):
    own = {name: jax.tree.map(lambda x, r=r: x[r], value)}
    total = biases.total(
      experiment.bias, own, site, value_heads(value, is_dense), rows, keys
    )
    dead += int((total == biases.CLOSED).all(axis=-1).sum())
  if not dead:
    return []
  return [
    f"bias: {dead} rows of {site}-attention have nothing open at width {width};"
    " their context is zero"
  ]


def value_heads(value, is_dense) -> int:
  return value.shape[2] if is_dense else value.transparent.shape[2]


def check_positive(config, names: str) -> None:
  for name in names.split():
    value = config
    for part in name.split("."):
      value = value[part]
    check(value > 0, f"{name}={value}: must be positive")


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
