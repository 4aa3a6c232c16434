"""Builds the experiment and the scaffold that a config describes, and checks
that its fields fit each other."""

import copy
import dataclasses
from collections.abc import Iterator
from typing import get_args

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
from lengthgen_jax.errors import check, check_choice, user_errors
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models.layers import ModelConfig
from lengthgen_jax.models.transformer import Transformer
from lengthgen_jax.tasks import HINTS, TASKS, dataset
from lengthgen_jax.tasks.dataset import RESTRICTED
from lengthgen_jax.tasks.grid import GridTask, row_machine
from lengthgen_jax.tasks.task import OperandUse, Task, Width


def build(config: ConfigDict) -> Experiment:
  """Returns the experiment that a config describes; UsageError if a field is
  not valid, or fields do not fit each other."""
  check_fields(config)
  tasks = _tasks(config)
  _check_fit(config, tasks[0])
  data_sets, train = _data_sets(config, tasks), config.train
  main, lengths_of = data_sets[0], {x.name: x.lengths for x in data_sets}
  for name in ("batch_size", "validation_samples"):
    for head, drawn in lengths_of.items():
      check(
        min(drawn.bucket_counts(train[name])) > 0,
        f"train.{name}={train[name]}: too few for an example of {head} in every"
        f" bucket of {drawn.buckets}; choose more, or fewer data.buckets, in"
        " each of which lengths occur",
      )
  layers = tuple(dict.fromkeys(task.name for task in tasks))
  is_soft = config.bias.closed > scaffolds.DENSE_CLOSED
  experiment = Experiment(
    data=data_sets,
    model=Transformer(_model_config(config, tasks), main.kind, layers),
    bias=scaffolds.BiasConfig(
      config.bias.closed if is_soft else CLOSED, config.bias.allow_leak
    ),
    step_specs=dataset.step_specs(
      lengths_of,
      train.batch_size,
      config.mixing.kind,
      tuple(config.mixing.weights),
    ),
    validation=tuple(
      dataset.Share(
        data_set.name,
        1.0,
        dataset.bucket_parts(
          data_set.lengths, -(-train.validation_samples // data_set.num_widths)
        ),
      )
      for data_set in data_sets
    ),
    train_length=config.data.train_length,
    fixed_width=(
      int(np.max(main.widths)) if config.data.width == "fixed" else None
    ),
  )
  list(input_widths(config, experiment))
  for test_set in config.eval.test_sets:
    lengths = config.eval.lengths
    check(
      any(tasks[0].variants(test_set, config.eval, n) for n in lengths),
      f"eval.test_sets: {test_set} has nothing to test at eval.lengths="
      f"{tuple(lengths)}; see eval.repetitions, eval.repeated_items,"
      " eval.multipliers and eval.chains",
    )
  return experiment


def input_widths(
  config: ConfigDict, experiment: Experiment
) -> Iterator[tuple[Experiment, Width]]:
  """Yields the greatest width of training of each task, with the experiment of
  that task alone, and those of all tests; UsageError if there are not enough
  positions for one."""
  random_start = POSITIONS[config.positions.kind].random_start
  start = config.positions.random_start - 1 if random_start else 0
  for data_set in experiment.data:  # the inputs of a hint may be longer
    alone = dataclasses.replace(experiment, data=(data_set,))
    longest = data_set.bound(-1)
    what = f"training inputs of {data_set.name}"
    alone.check_positions(longest, what, start)
    yield alone, longest
  section, task = config.eval, experiment.task
  for test_set in task.tested_sets(section):
    lengths = [("lengths", length) for length in section.lengths]
    if section.frontier and test_set in section.test_sets:
      lengths.append(("frontier", section.frontier))
    for field, length in lengths:
      with user_errors(f"eval.{field}"):
        for _, arguments in task.variants(test_set, section, length):
          yield experiment, experiment.test_width(length, arguments)


def make_scaffold(config: ConfigDict, experiment: Experiment) -> dict:
  """Returns the scaffold that config.bias describes: by attention site, lines
  or matrices with a leading axis of seeds, or of 1."""
  depths, heads = experiment.model.depths, experiment.model.config.num_heads
  spec = scaffolds.ScaffoldSpec(
    experiment.task,
    experiment.site_segments,
    depths,
    heads,
    tuple(config.seeds),
  )
  scaffold = biases.BIASES[config.bias.kind](config.bias, spec)
  kind = f"bias.kind={config.bias.kind!r}"
  check(
    isinstance(scaffold, dict)
    and all(
      isinstance(x, SiteLines | scaffolds.SiteMatrix) for x in scaffold.values()
    ),
    f"{kind}: its function must return a dict from a site to lines or a matrix,"
    ' like {"self": shared_lines(lines, heads)}',
  )
  for site, bias in scaffold.items():
    named = f"{kind}: {site}-attention"
    check(site in depths, f"{named}: this model has {', '.join(depths)}")
    (_, layers, bias_heads), depth = bias.shape, depths[site]
    check(
      layers in (1, depth) and bias_heads == heads,
      f"{named} has {layers} layers and {bias_heads} heads; this run has"
      f" {depth} (or 1) and {heads}",
    )
  if isinstance(lines := scaffold.get("self"), SiteLines):
    covers_output = np.isin(
      lines.segment, (experiment.task.target_segment, WHOLE)
    )
    is_right = lines.valid & covers_output & (lines.anchor != LEFT)
    check(
      not is_right.any(),
      f"{kind}: self has lines anchored right, but the"
      " output has no right end while decoding",
    )
  return scaffold


def _tasks(config: ConfigDict) -> list[Task]:
  """Returns the main task and those of the hints in config.hints; of random
  restrictions this is the main task again."""
  hints = HINTS.get(config.task, {})
  if RESTRICTED in config.hints:
    _check_restriction(config)
  if TASKS[config.task].needed is not Task.needed:
    hints = hints | {RESTRICTED: TASKS[config.task]}
  for hint in config.hints:
    choices = ", ".join(hints) or "no hints"
    check(hint in hints, f"hints={hint!r}: {config.task} has {choices}")
  classes = [TASKS[config.task], *(hints[hint] for hint in config.hints)]
  tasks = [task_class(**config[task_class.section]) for task_class in classes]
  names = [
    f"{task.name}_{hint}" if hint == RESTRICTED else task.name
    for hint, task in zip(("", *config.hints), tasks, strict=True)
  ]
  check(
    len(set(names)) == len(names),
    f"hints={config.hints}: of the tasks {', '.join(names)}, some would share"
    " an output head; name every hint once, and give each class a name of its"
    " own",
  )
  if config.task in TASKS.origins:
    _check_own_task(tasks[0])
  return tasks


def _check_own_task(task: Task) -> None:
  """Raises UsageError if a user's task has values that do not fit, which only
  an instance shows."""
  named = f"task={task.name!r}"
  check_choice(f"{named}: anchor", task.anchor, ("left", "right"))
  uses = get_args(OperandUse)
  check_choice(f"{named}: operand_in", task.operand_in, uses)
  with user_errors(f"{named}: the names of its tokens"):
    names = task.symbols(range(task.vocab_size))
    check(
      len({*names}) == len(names),
      f"{' '.join(names)} name several tokens alike",
    )
  if isinstance(task, GridTask):
    row_machine(task)
  elif task.states:
    _check_transducer(task)


def _check_transducer(task: Task) -> None:
  """Raises UsageError unless `step` of a user's transducer takes numpy arrays
  and JAX's, and returns states and outputs of the task, one for each."""
  symbols = [task.first_item + np.arange(task.base)] * task.operands
  state, *columns = np.meshgrid(np.array(task.states), *symbols)
  reason = f"task={task.name!r}: step(state, symbols)"
  with user_errors(f"{reason} fails"):
    next_state, output = task.step(state, columns)  # as certificates do
    zeros = jnp.zeros((task.operands, 1), jnp.int32)
    jax.eval_shape(task.transduce, zeros)  # as training does
  check(
    {np.shape(next_state), np.shape(output)} == {state.shape},
    f"{reason} must return two arrays of the shape of its arguments",
  )
  last = task.base if task.of_digits else task.delimiter
  for does, values, known in (
    ("starts in", task.initial_state, task.states),
    ("goes to", next_state, task.states),
    ("writes", output, range(task.first_item, last)),
  ):
    others = ", ".join(map(str, sorted({*np.ravel(values)} - {*known})))
    check(not others, f"{reason} {does} {others}, and the task has {known}")


def _check_fit(config: ConfigDict, task: Task) -> None:
  """Raises UsageError if fields do not fit each other or the task."""
  model, positions, bias = config.model, config.positions, config.bias
  initial, train = config.initial, config.train
  normalizer = config.attention.normalizer
  is_decoder_only = model.kind == "decoder_only"
  if initial.kind == "random":
    check(train.steps > 0, "train.steps=0: must be positive")
    check(
      not initial.noise,
      f"initial.noise={initial.noise} is for initial.kind='construction'",
    )
  else:
    check(
      bias.kind == "none",
      f"bias.kind={bias.kind!r}: initial.kind={initial.kind!r} must see every"
      " key; choose 'none'",
    )
  for name in config.eval.test_sets:
    check_choice("eval.test_sets", name, task.test_sets)
  any_task = [name for name in POSITIONS if not POSITIONS[name].of_digits]
  check(
    task.of_digits or positions.kind in any_task,
    f"positions.kind={positions.kind!r} counts places of digits in numbers, and"
    f" {task.name} has none: choose one of {', '.join(any_task)}",
  )
  head_size = model.emb_dim // model.num_heads
  check(
    positions.kind != "rope" or head_size % 2 == 0,
    f"positions.kind='rope' needs an even head size, not {head_size}"
    " (model.emb_dim / model.num_heads)",
  )
  check(
    not positions.segments or is_decoder_only or len(task.segments) > 1,
    f"positions.segments=True changes nothing: all of {task.name}'s prompt is"
    " one segment; it is for 'decoder_only', or a prompt of several segments",
  )
  is_leaky = bias.kind != "none" and bias.allow_leak
  check(
    not (is_leaky and POSITIONS[positions.kind].additive),
    f"bias.allow_leak: positions.kind={positions.kind!r} has no distance of"
    " later keys; choose positions without a bias on attention",
  )
  check(
    is_decoder_only or not NORMALIZERS[normalizer].depends_on_order,
    f"attention.normalizer={normalizer!r} depends on how far keys stand from"
    " the row, and the keys of cross-attention stand in another sequence:"
    " choose model.kind='decoder_only', or one of "
    + ", ".join(n for n, x in NORMALIZERS.items() if not x.depends_on_order),
  )


def _lengths(section: ConfigDict, task: Task) -> dataset.Lengths:
  """Returns the distribution of training lengths, with its buckets."""
  # data.train_length is in the unit of test lengths, which for parity are
  # decimal digits; `units` makes bits of them. The lengths below are in bits
  # already. In recall all of these count the context alone, and `units` adds
  # the queries.
  units = (lambda n: n) if task.own_unit == "bits" else task.units
  longest = task.units(section.train_length)
  shortest = units(section.shortest)
  short_longest = longest
  if section.short_longest:
    short_longest = units(section.short_longest)
  check(
    shortest <= short_longest <= longest,
    "data: wanted shortest <= short_longest <= train_length, not"
    f" {shortest}, {short_longest}, {longest} {task.own_unit}",
  )
  named = f"data.buckets={tuple(section.buckets)}"
  check(
    task.ragged or not section.buckets,
    f"{named}: all examples of {task.name} in a batch have one width; choose"
    " ()",
  )
  buckets = tuple(map(units, section.buckets)) or (longest,)
  is_rising = list(buckets) == sorted(set(buckets))
  check(
    is_rising and buckets[0] >= shortest and buckets[-1] == longest,
    f"{named}: must rise from at least data.shortest={section.shortest} to"
    f" data.train_length={section.train_length}, and are"
    f" {', '.join(map(str, buckets))} {task.own_unit}; choose () or"
    f" ({section.train_length},) for one",
  )
  return dataset.Lengths(
    shortest, short_longest, longest, section.short_share, buckets
  )


def _hint_lengths(config: ConfigDict, task: Task) -> dataset.Lengths:
  """Returns the distribution of the hints' lengths: as that of training, but up
  to mixing.hint_length."""
  section, longest = copy.deepcopy(config.data), config.mixing.hint_length
  if longest:
    named = f"mixing.hint_length={longest}"
    check(
      section.numbers == "lengths",
      f"{named} is for data.numbers='lengths', not {section.numbers!r}; or 0",
    )
    check(
      longest > section.train_length,
      f"{named}: must be above data.train_length={section.train_length}, or 0",
    )
    section.train_length = longest
    section.buckets += (longest,) if section.buckets else ()
  return _lengths(section, task)


def _data_sets(
  config: ConfigDict, tasks: list[Task]
) -> tuple[dataset.Dataset, ...]:
  """Returns the data sets of the main task and of the hints, whose examples may
  be longer; random restrictions are of longer ones alone."""
  data, main, kind = config.data, tasks[0], config.model.kind
  lengths, hint_lengths = _lengths(data, main), _hint_lengths(config, main)
  sizes = dataset.split(data.size, [1.0] * len(tasks))
  check(
    data.size == 0 or min(sizes) >= config.train.batch_size,
    f"data.size={data.size} among {len(sizes)} tasks leaves {min(sizes)}"
    " examples each, fewer than"
    f" train.batch_size={config.train.batch_size}; choose at least"
    f" {config.train.batch_size * len(sizes)}, or 0 for an endless stream",
  )
  data_sets = []
  for hint, task, size in zip(("", *config.hints), tasks, sizes, strict=True):
    own_lengths = hint_lengths if hint else lengths
    num_kept = 0
    if hint == RESTRICTED:
      longest, trained = hint_lengths.longest, lengths.longest
      own_lengths = dataset.Lengths(
        shortest=trained + 1,
        short_longest=longest,
        longest=longest,
        short_share=1.0,
        buckets=(longest,),
      )
      num_kept = main.prompt_size(trained) + main.output_size(trained)
    widths = _widths(data, main, own_lengths)
    natural = data.width == "natural" and bool(widths) and main.axes == 1
    data_sets.append(
      dataset.Dataset(
        task,
        kind,
        own_lengths,
        widths,
        natural,
        data.numbers,
        size,
        data.seed,
        num_kept,
      )
    )
  return tuple(data_sets)


def _check_restriction(config: ConfigDict) -> None:
  """Raises UsageError if examples of the task cannot be restricted."""
  named = f"hints={RESTRICTED!r}"
  having = [x for x in TASKS if TASKS[x].needed is not Task.needed]
  check(
    config.task in having,
    f"{named}: {config.task} does not say what an output depends on; it is for"
    f" {', '.join(having)}",
  )
  check(
    config.model.kind == "decoder_only",
    f"{named} is for model.kind='decoder_only'",
  )
  check(
    config.mixing.hint_length > 0,
    f"{named}: set mixing.hint_length, the length of the longest example that"
    f" is restricted, above data.train_length={config.data.train_length}",
  )
  check(
    config.bias.kind == "none",
    f"{named}: lines of bias.kind={config.bias.kind!r} count inputs that are"
    " left out; choose 'none'",
  )
  kinds = [
    kind
    for kind, encoding in POSITIONS.items()
    if not encoding.additive and not encoding.of_digits
  ]
  check(
    config.positions.kind in kinds,
    f"{named} keeps the places of a longer example, which"
    f" positions.kind={config.positions.kind!r} does not see; choose one of"
    f" {', '.join(kinds)}",
  )


def _widths(section: ConfigDict, task: Task, lengths: dataset.Lengths) -> tuple:
  """Returns the widths that training batches take in turn, in the task's units:
  those that operands are padded to, or in a grid the pairs of its operands'
  lengths; () for a ragged task."""
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
    return (width,)
  check(
    section.numbers == "lengths",
    "data.numbers='permutation' is for data.width='fixed'; choose 'lengths'",
  )
  if task.ragged:
    return ()
  check(
    section.short_longest == 0,
    f"data.short_longest={section.short_longest}: batches of {task.name} take"
    " every length in turn; choose 0",
  )
  check(
    task.axes > 1 or task.base == 2 or task.slack > 0,
    f"{task.section}.slack=0: answers to the longest operands may need one"
    " digit more",
  )
  return task.training_widths(range(lengths.shortest, lengths.longest + 1))


def _model_config(config: ConfigDict, tasks: list[Task]) -> ModelConfig:
  section, task = dict(config.model), tasks[0]
  size = task.vocab_size
  if section.pop("kind") == "decoder_only":
    size = max(size, task.delimiter + 1)
    section["num_encoder_layers"] = 0
  last_segment = max(task.target_segment for task in tasks)
  return ModelConfig(
    vocab_size=size,
    num_segments=1 + last_segment if config.positions.segments else 1,
    positions=PositionConfig(**config.positions),
    temperature=sections.Temperature(**config.temperature),
    attention=AttentionConfig(**config.attention),
    **section,
  )
