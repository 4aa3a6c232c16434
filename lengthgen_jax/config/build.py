"""Validates a config, and builds the experiment and the scaffold that it
describes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax import sections
from lengthgen_jax.attention import biases
from lengthgen_jax.attention.biases import scaffold as scaffolds
from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.attention.lines import LEFT, WHOLE, SiteLines
from lengthgen_jax.attention.normalizers import NORMALIZERS, AttentionConfig
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.attention.positions.encoding import PositionConfig
from lengthgen_jax.config.fields import check_fields
from lengthgen_jax.errors import UsageError, check, check_choice
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models.layers import ModelConfig
from lengthgen_jax.models.transformer import Transformer
from lengthgen_jax.tasks import HINTS, TASKS, dataset
from lengthgen_jax.tasks.task import Task


def build(config: ConfigDict) -> Experiment:
  """Returns the experiment that a config describes.

  Raises:
    UsageError: a field is not valid, or fields do not fit each other.
  """
  check_fields(config)
  _check_initial(config)
  _check_eval(config)
  _check_head_dim(config)
  tasks = _tasks(config)
  main_task, kind = tasks[0], config.model.kind
  _check_positions_and_encoder(config, main_task)
  _check_normalizer(config)
  num_segments = _num_segments(config, tasks)
  lengths = _lengths(config, main_task)
  widths, natural = _widths(config, main_task, lengths)
  sizes = dataset.split(config.data.size, [1.0] * len(tasks))
  datasets = tuple(
    dataset.Dataset(
      task,
      kind,
      lengths,
      widths,
      natural,
      config.data.numbers,
      size,
      config.data.seed,
    )
    for task, size in zip(tasks, sizes, strict=True)
  )
  _check_size(config, lengths, sizes)
  heads = tuple(task.name for task in tasks)
  per_width = -(-config.train.validation_samples // max(len(widths), 1))
  validation = dataset.bucket_parts(lengths, per_width)
  experiment = Experiment(
    data=datasets,
    model=Transformer(
      kind, _model_config(config, main_task, num_segments), heads
    ),
    bias=_bias_config(config),
    step_specs=dataset.step_specs(
      heads,
      lengths,
      config.train.batch_size,
      config.mixing.kind,
      tuple(config.mixing.weights),
    ),
    validation=tuple(dataset.Share(head, 1.0, validation) for head in heads),
    train_length=config.data.train_length,
    fixed_width=widths[0] if config.data.width == "fixed" else None,
  )
  random_start = POSITIONS[config.positions.kind].random_start
  start = config.positions.random_start - 1 if random_start else 0
  longest = dataset.widest(widths or lengths.buckets)
  for data_set in experiment.data:  # the inputs of a hint may be longer
    alone = dataclasses.replace(experiment, data=(data_set,))
    what = f"training inputs of {data_set.task.name}"
    alone.check_positions(longest, what, start)
  _check_tests(experiment, config.eval)
  return experiment


def make_scaffold(config: ConfigDict, experiment: Experiment) -> dict:
  """Returns the scaffold that config.bias describes: by attention site, lines
  or matrices with a leading axis of seeds, or of 1.

  Raises:
    UsageError: the bias does not fit the model.
  """
  model = experiment.model.config
  spec = scaffolds.ScaffoldSpec(
    experiment.task,
    experiment.site_segments,
    model.num_decoder_layers,
    model.num_encoder_layers,
    model.num_heads,
    tuple(config.seeds),
  )
  scaffold = biases.BIASES[config.bias.kind](config.bias, spec)
  sites = experiment.site_segments
  for site in scaffold:
    check(
      site in sites,
      f"bias.kind={config.bias.kind!r}: lines of {site}-attention, and this"
      f" model has {', '.join(sites)}",
    )
  if isinstance(lines := scaffold.get("self"), SiteLines):
    covers_output = np.isin(
      lines.segment, (experiment.task.target_segment, WHOLE)
    )
    is_right = lines.valid & covers_output & (lines.anchor != LEFT)
    check(
      not is_right.any(),
      f"bias.kind={config.bias.kind!r}: self has lines anchored right, but the"
      " output has no right end while decoding",
    )
  return scaffold


def _tasks(config: ConfigDict) -> list[Task]:
  """Returns the main task and those of its hints that config.hints names."""
  hints = HINTS.get(config.task, {})
  check(
    hints or not config.hints,
    f"hints={tuple(config.hints)}: {config.task} has none; tasks with hints are"
    f" {', '.join(HINTS)}",
  )
  for hint in config.hints:
    check_choice("hints", hint, hints)
  check(
    len(set(config.hints)) == len(config.hints),
    f"hints={tuple(config.hints)}: name every hint once",
  )
  classes = [TASKS[config.task], *(hints[hint] for hint in config.hints)]
  tasks = [task_class(**config[task_class.section]) for task_class in classes]
  names = [task.name for task in tasks]
  shared = [name for name in dict.fromkeys(names) if names.count(name) > 1]
  check(
    not shared,
    f"hints={tuple(config.hints)}: more than one of the tasks is called"
    f" {', '.join(shared)}, and would share its output head; give each class a"
    " name of its own",
  )
  if config.task in TASKS.origins and tasks[0].states:
    _check_transducer(tasks[0])
  return tasks


def _check_transducer(task: Task) -> None:
  """Raises UsageError if `step` of a user's transducer fails, on numpy arrays
  or where JAX traces it, returns arrays of another shape or an output that is
  no token id, or if the transducer begins in or goes to a state that `states`
  does not have."""
  symbols = [task.first_item + np.arange(task.base)] * task.operands
  state, *columns = np.meshgrid(np.array(task.states), *symbols)
  reason = f"task={task.name!r}: step(state, symbols)"
  try:
    next_state, output = task.step(state, columns)  # as certificates do
    zeros = jnp.zeros((task.operands, 1), jnp.int32)
    jax.eval_shape(task.transduce, zeros)  # as training does
  except Exception as error:
    line = (str(error).splitlines() or [""])[0]
    raise UsageError(
      f"{reason} fails with {type(error).__name__}: {line}"
    ) from error
  check(
    {np.shape(next_state), np.shape(output)} == {state.shape},
    f"{reason} must return two arrays of the shape of its arguments",
  )
  check(
    task.initial_state in task.states,
    f"task={task.name!r}: its initial state, {task.initial_state}, is not one"
    f" of states = {task.states}",
  )
  others = sorted(set(np.unique(next_state)) - set(task.states))
  check(
    not others,
    f"{reason} goes to {', '.join(map(str, others))}, which states ="
    f" {task.states} does not have",
  )
  foreign = sorted(set(np.unique(output)) - set(range(task.vocab_size)))
  check(
    not foreign,
    f"{reason} writes {', '.join(map(str, foreign))}, which is no token id:"
    f" these are 0 to {task.vocab_size - 1}",
  )


def _lengths(config: ConfigDict, task: Task) -> dataset.Lengths:
  """Returns the distribution of training lengths, with its buckets.

  Raises:
    UsageError: lengths or buckets are not in order, data.buckets is set for a
      task that has no buckets, or no length of a bucket occurs.
  """
  # data.train_length is in the unit of test lengths, which for parity are
  # decimal digits; `units` makes bits of them. The lengths below are in bits
  # already. In recall all of these count the context alone, and both `units`
  # and `total_units` add the queries.
  section, longest = config.data, task.units(config.data.train_length)
  shortest = task.total_units(section.shortest)
  short_longest = longest
  if section.short_longest:
    short_longest = task.total_units(section.short_longest)
  unit = task.own_unit
  if shortest != section.shortest:
    unit = "tokens in whole prompts"
  check(
    shortest <= short_longest <= longest,
    "data: wanted shortest <= short_longest <= train_length, not"
    f" {shortest}, {short_longest}, {longest} {unit}",
  )
  buckets = tuple(map(task.total_units, section.buckets)) or (longest,)
  check(
    task.ragged or not section.buckets,
    f"data.buckets={tuple(section.buckets)}: all examples of {task.name} in a"
    " batch have one width; choose ()",
  )
  check(
    list(buckets) == sorted(set(buckets))
    and buckets[0] >= shortest
    and buckets[-1] == longest,
    f"data.buckets={tuple(section.buckets)}: must rise from at least"
    f" data.shortest={section.shortest} to"
    f" data.train_length={section.train_length}, and are"
    f" {', '.join(map(str, buckets))} {unit}",
  )
  lengths = dataset.Lengths(
    shortest, short_longest, longest, section.short_share, buckets
  )
  for bucket, upper in enumerate(buckets):
    lower = lengths.bucket_range(bucket)[0]
    check(
      lengths.probability[lower : upper + 1].sum() > 0,
      f"data.buckets={tuple(section.buckets)}: no length of {lower} to {upper}"
      " occurs",
    )
  return lengths


def _widths(
  config: ConfigDict, task: Task, lengths: dataset.Lengths
) -> tuple[tuple, bool]:
  """Returns the widths that training batches take in turn, in the task's units,
  and whether each is natural, that of its examples' longest operand.

  They are those that operands are padded to, or in a grid the pairs of its
  operands' lengths; () for a ragged task.

  Raises:
    UsageError: a field of `data`, or the task's slack, does not fit the task.
  """
  section = config.data
  if section.width == "fixed":
    check(
      not task.ragged and task.axes == 1,
      f"data.width='fixed': {task.name} is not padded; choose 'natural'",
    )
    # Operands may have up to fixed_width - 1 decimal digits (of which `units`
    # makes bits for parity), and the answer may need one place more.
    width, longest = task.units(section.fixed_width - 1) + 1, lengths.longest
    if section.numbers == "permutation":  # integers below 2^20
      longest = 20 if task.base == 2 else 7
    check(
      width > longest or task.base == 2 and width == longest,
      f"data.fixed_width: a width of {width} is too narrow for answers to"
      f" operands of {longest} {'bits' if task.base == 2 else 'digits'}",
    )
    return (width,), False
  check(
    section.numbers == "lengths",
    "data.numbers='permutation' is for data.width='fixed'; choose 'lengths'",
  )
  if task.ragged:
    return (), False
  check(
    section.short_longest == 0,
    f"data.short_longest={section.short_longest}: batches of {task.name} take"
    " every length in turn; choose 0",
  )
  is_padded = task.axes == 1
  check(
    not is_padded or task.base == 2 or task.slack > 0,
    f"{task.section}.slack=0: answers to the longest operands may need one"
    " digit more",
  )
  every_length = range(lengths.shortest, lengths.longest + 1)
  return task.training_widths(every_length), is_padded


def _num_segments(config: ConfigDict, tasks: list[Task]) -> int:
  """Returns how many rows the segment embedding has, 1 if there is none.

  Raises:
    UsageError: all inputs at a site would get the same vector.
  """
  if not config.positions.segments:
    return 1
  task, kind = tasks[0], config.model.kind
  check(
    kind == "decoder_only" or len(task.segments) > 1,
    f"positions.segments=True changes nothing here: with model.kind={kind!r}"
    f" all of {task.name}'s prompt is one segment, and all outputs are another;"
    " it is for 'decoder_only', or a prompt of several segments",
  )
  return 1 + max(task.target_segment for task in tasks)


def _model_config(
  config: ConfigDict, task: Task, num_segments: int
) -> ModelConfig:
  """Returns the model's hyper-parameters for the vocabulary of the task."""
  section = dict(config.model)
  size = task.vocab_size
  if section.pop("kind") == "decoder_only":
    size = max(size, task.delimiter + 1)
    section["num_encoder_layers"] = 0
  return ModelConfig(
    vocab_size=size,
    num_segments=num_segments,
    learned_bias_scale=config.bias.learned_scale,
    positions=PositionConfig(**config.positions),
    temperature=sections.Temperature(**config.temperature),
    attention=AttentionConfig(**config.attention),
    **section,
  )


def _bias_config(config: ConfigDict) -> scaffolds.BiasConfig:
  """Returns how the scaffold is added to the attention scores. Closed cells
  have bias.closed, or -inf if that is at most DENSE_CLOSED."""
  section = config.bias
  soft = section.closed > scaffolds.DENSE_CLOSED
  return scaffolds.BiasConfig(
    scale=section.scale,
    closed=section.closed if soft else CLOSED,
    allow_leak=section.allow_leak,
  )


def _check_size(
  config: ConfigDict, lengths: dataset.Lengths, sizes: list[int]
) -> None:
  """Raises UsageError if the data or a batch are too small to be divided.

  Args:
    config: the config, whose data.size examples are divided among the tasks.
    lengths: the distribution of lengths, of which every bucket must have
      examples in a batch and in validation.
    sizes: how many of the data.size examples each task has.
  """
  size, batch = config.data.size, config.train.batch_size
  check(
    size == 0 or min(sizes) >= batch,
    f"data.size={size} among {len(sizes)} tasks leaves {min(sizes)}"
    f" examples each, fewer than train.batch_size={batch}; choose at least"
    f" {batch * len(sizes)}, or 0 for an endless stream",
  )
  for name, count in (
    ("train.batch_size", batch),
    ("train.validation_samples", config.train.validation_samples),
  ):
    check(
      min(lengths.bucket_counts(count)) > 0,
      f"{name}={count}: too few for an example of every bucket of"
      f" {lengths.buckets}; choose more, or fewer data.buckets",
    )


def _check_tests(experiment: Experiment, section: ConfigDict) -> None:
  """Raises UsageError if a length or a test set cannot be tested."""
  task = experiment.task
  lengths = [("lengths", length) for length in section.lengths]
  for test_set in task.tested_sets(section):
    if section.frontier and test_set in section.test_sets:
      tested = [*lengths, ("frontier", section.frontier)]
    else:
      tested = lengths
    for field, length in tested:
      try:
        for _, arguments in task.variants(test_set, section, length):
          experiment.test_width(length, arguments)
      except UsageError as error:
        raise UsageError(f"eval.{field}: {error}") from error
  for test_set in section.test_sets:
    check(
      any(task.variants(test_set, section, n) for n in section.lengths),
      f"eval.test_sets: {test_set} has nothing to test at eval.lengths="
      f"{tuple(section.lengths)}; see eval.repetitions, eval.repeated_items,"
      " eval.multiplicities, eval.multipliers and eval.chains",
    )


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
  kind = f"initial.kind={initial.kind!r}"
  check(
    config.bias.kind == "none",
    f"bias.kind={config.bias.kind!r}: {kind} must see every key; choose 'none'",
  )
  check(
    train.restarts == 0,
    f"train.restarts={train.restarts}: {kind} has no other start; choose 0",
  )


def _check_eval(config: ConfigDict) -> None:
  """Raises UsageError unless eval.test_sets are some of the task's."""
  test_sets = TASKS[config.task].test_sets
  check(test_sets, f"task={config.task!r} has no test set: its class needs one")
  for name in config.eval.test_sets:
    check_choice("eval.test_sets", name, test_sets)


def _check_positions_and_encoder(config: ConfigDict, task: Task) -> None:
  """Raises UsageError if the position encoding needs digits and the task has
  none, or the bias does not fit the positions, or has a window in the encoder
  and the model is decoder-only."""
  kind = config.positions.kind
  any_task = [name for name in POSITIONS if not POSITIONS[name].of_digits]
  check(
    task.of_digits or kind in any_task,
    f"positions.kind={kind!r} counts places of digits in numbers, and"
    f" {task.name} has none: choose one of {', '.join(any_task)}",
  )
  is_leaky = config.bias.kind != "none" and config.bias.allow_leak
  check(
    not (is_leaky and POSITIONS[kind].additive),
    f"bias.allow_leak: positions.kind={kind!r} has no distance of later keys;"
    " choose positions without a bias on attention",
  )
  decoder_only = config.model.kind == "decoder_only"
  check(
    not (decoder_only and config.bias.windowed_encoder),
    "bias.windowed_encoder=True: model.kind='decoder_only' has no encoder;"
    " choose False",
  )


def _check_normalizer(config: ConfigDict) -> None:
  """Raises UsageError if a normalizer needs an order of the keys that
  cross-attention does not have."""
  name = config.attention.normalizer
  check(
    not NORMALIZERS[name].depends_on_order
    or config.model.kind == "decoder_only",
    f"attention.normalizer={name!r} depends on how far keys stand from the row,"
    " and the keys of cross-attention stand in another sequence: choose"
    " model.kind='decoder_only', or one of "
    + ", ".join(n for n, x in NORMALIZERS.items() if not x.depends_on_order),
  )


def _check_head_dim(config: ConfigDict) -> None:
  """Raises UsageError if heads have an odd size that rotary positions cannot
  split."""
  model, positions = config.model, config.positions
  check(
    positions.kind != "rope" or (model.emb_dim // model.num_heads) % 2 == 0,
    f"positions.kind='rope' needs an even head size, not"
    f" {model.emb_dim // model.num_heads} (model.emb_dim / model.num_heads)",
  )
