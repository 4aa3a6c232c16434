"""From a config to the tasks, data, model and lessons of a decoder-only run."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import coordinates, metrics, rng
from lengthgen_jax.attention import biases, temperature
from lengthgen_jax.errors import check, check_choice
from lengthgen_jax.lessons import Lesson, Part, Share
from lengthgen_jax.models.decoder_only import DecoderOnly
from lengthgen_jax.tasks import HINTS, SEQUENCES
from lengthgen_jax.tasks.sequence import DataSet, Lengths, split

MIXING = ("alternate", "weighted")
# Fields that say nothing about a decoder-only task, and their defaults.
ARITHMETIC_ONLY = {
  "data.aligned": False,
  "data.numbers": "lengths",
  "data.width": "natural",
  "data.widths": (),
  "model.num_encoder_layers": 0,
  "bias.stride": 0,
  "bias.windowed_encoder": False,
}


@dataclasses.dataclass(frozen=True)
class SequenceExperiment:
  """Everything that is fixed before the first step; hashable.

  Attributes:
    data: a DataSet per head, the main task's first.
    heads: their names.
    model: the flax module.
    bias: how the scaffold enters the scores.
    lessons: gradient steps of a round.
    validation: held-out examples of every head.
  """

  data: tuple[DataSet, ...]
  heads: tuple[str, ...]
  model: DecoderOnly
  bias: biases.BiasConfig
  lessons: tuple[Lesson, ...]
  validation: tuple[Share, ...]

  @property
  def task(self):
    """The main task."""
    return self.data[0].task

  def head_params(self, head: str) -> str:
    """Name of a head's own parameters."""
    return f"logits_dense_{head}"

  def data_of(self, head: str) -> DataSet:
    """The examples of a head's task."""
    return self.data[self.heads.index(head)]

  def sample(self, key, head: str, part: Part, held_out=False):
    """A batch of one bucket."""
    key = jax.random.fold_in(key, self.heads.index(head))
    key = jax.random.fold_in(key, part.size)
    return self.data_of(head).sample(key, part.count, part.size, held_out)

  def part_bias(self, lines, head: str, part: Part) -> dict:
    """Bias of a pass over one bucket of a head's examples."""
    data = self.data_of(head)
    longest = data.lengths.buckets[part.size]
    return self.row_bias(lines, data.task.packed_length(longest) - 1)

  @property
  def static_sizes(self) -> tuple[int, ...]:
    """Sequence lengths that a bias must cover in training."""
    longest = self.data[0].lengths.longest
    return (max(d.task.packed_length(longest) for d in self.data) - 1,)

  def rows_and_keys(self, site: str, length: int):
    """Row numbers and key Coordinates of the attention matrix."""
    check(
      site == "self",
      f"bias.file has a bias for {site}-attention, but {self.task.name} has a"
      " decoder with self-attention only",
    )
    rows = np.arange(length)
    return rows, coordinates.target(rows)

  def row_bias(self, lines, length: int) -> dict:
    """Bias of a whole teacher-forced pass over `length` rows."""
    rows = jnp.arange(length)
    return self.biases(lines, rows, rows)

  def biases(self, lines, row_T, target_rows) -> dict:
    """Bias of rows `row_T` of one seed: [N or 1, H, T, S]."""
    keys = coordinates.target(target_rows)
    heads = self.model.config.num_heads
    return {"self": biases.total(self.bias, lines, "self", heads, row_T, keys)}

  def with_sizes(self, bias: dict, items_B, row_T) -> dict:
    """A bias and n of the temperature: never more than an example's own."""
    config = self.model.config.temperature
    n = temperature.sizes(config, items_B[:, None], row_T[None] + 1)
    return bias | {"sizes": {"self": n}}

  def apply(self, params, batch, bias: dict, head: str, key=None):
    """Teacher-forced logits [B, L, V] and activations; as in training (dropout,
    jittered sizes) with a key."""
    count, length = batch.tokens.shape
    bias = self.with_sizes(bias, batch.items, jnp.arange(length))
    if key is not None:
      config = self.model.config.temperature
      part_key = jax.random.fold_in(key, length)
      sizes = temperature.jittered(config, bias["sizes"], part_key, count)
      bias = bias | {"sizes": sizes}
    return self.model.apply(
      {"params": params},
      batch.tokens,
      bias,
      head,
      key is not None,
      rngs=None if key is None else {"dropout": key},
    )

  def init(self, seed, attempt: int = 0):
    """Fresh parameters of a seed (may be traced) for its n-th attempt."""
    share = self.lessons[0][0]
    part = Part(share.parts[0].size, 1)
    batch = self.sample(jax.random.key(0), share.head, part)
    bias = self.part_bias({}, share.head, part)
    rows = jnp.arange(batch.tokens.shape[1])
    bias = self.with_sizes(bias, batch.items, rows)
    key = rng.stream(seed, f"init{attempt or ''}")
    return self.model.init(key, batch.tokens, bias, share.head)["params"]

  def loss(self, params, batch, bias, head: str, key):
    """Summed cross-entropy (nats) with dropout on, and how many tokens."""
    logits, _ = self.apply(params, batch, bias, head, key)
    return metrics.cross_entropy(logits, batch.target, batch.weight)

  def hits(self, params, batch, bias, head: str):
    """Teacher-forced correct tokens [B, L] and exact match [B]."""
    logits, _ = self.apply(params, batch, bias, head)
    return metrics.hits(logits.argmax(-1), batch.target, batch.weight)

  def test_width(self, length: int) -> int:
    """Rows that a test on `length` items needs; UsageError if it cannot be."""
    needed = self.task.packed_length(length) - 1
    self.check_positions(needed, f"eval.lengths: {length} items")
    return needed

  def check_positions(self, length: int, what: str) -> None:
    """UsageError if a learned table has too few rows."""
    limit = self.model.config.positions.limit()
    check(
      limit is None or length <= limit,
      f"{what} need {length} positions, but positions.table={limit}",
    )


def build(config, model_config, bias_config) -> SequenceExperiment:
  """Assembles the experiment of a checked config.

  Args:
    config: the whole config.
    model_config: function (vocab_size, start_token) -> ModelConfig.
    bias_config: BiasConfig.

  Raises:
    UsageError: one line that names the field and the valid choices.
  """
  _check_decoder_only(config)
  section = config.sequences
  names = (config.task, *config.hints)
  for hint in config.hints:
    check_choice("hints", hint, HINTS[config.task])
  check(
    len(set(names)) == len(names),
    f"hints={tuple(config.hints)}: name every hint once",
  )
  lengths = make_lengths(config)
  kinds = [SEQUENCES[config.task]]
  kinds += [HINTS[config.task][hint] for hint in config.hints]
  tasks = [_make_task(config, kind) for kind in kinds]
  sizes = split(section.size, [1.0] * len(tasks))
  data = [
    DataSet(task, lengths, size, config.data.seed)
    for task, size in zip(tasks, sizes, strict=True)
  ]
  heads = tuple(task.name for task in tasks)
  _check_size(config, lengths, sizes)
  experiment = SequenceExperiment(
    data=tuple(data),
    heads=heads,
    model=DecoderOnly(model_config(tasks[0].vocab_size, 0), heads),
    bias=bias_config,
    lessons=_lessons(config, lengths, heads),
    validation=tuple(
      Share(head, 1.0, _parts(lengths, config.train.validation_samples))
      for head in heads
    ),
  )
  longest = max(task.packed_length(lengths.longest) for task in tasks) - 1
  experiment.check_positions(longest, "training sequences")
  for length in config.eval.lengths:
    experiment.test_width(length)
  _check_repeats(config)
  return experiment


def _check_decoder_only(config) -> None:
  for name, wanted in ARITHMETIC_ONLY.items():
    section, field = name.split(".")
    found = config[section][field]
    check(
      found == wanted,
      f"{name}={found!r} is for arithmetic; {config.task} has a decoder only:"
      f" choose {wanted!r}",
    )


def _check_repeats(config) -> None:
  if "repeats" not in config.eval.test_sets:
    return
  items, times = config.eval.repeated_items, tuple(config.eval.repetitions)
  alphabet = config.sequences.alphabet
  check(
    items <= alphabet,
    f"eval.repeated_items={items}: more than sequences.alphabet={alphabet}",
  )
  longest = max(config.eval.lengths)
  check(
    times and items * min(times) <= longest,
    f"eval.repetitions={times} of eval.repeated_items={items} fit none of"
    f" eval.lengths={tuple(config.eval.lengths)}; choose some, like (1, 2)",
  )


def _make_task(config, kind):
  section = config.sequences
  alphabet = 10 if config.task == "increment" else section.alphabet
  return kind(
    alphabet=alphabet,
    repeat_share=section.repeat_share,
    nines_share=section.nines_share,
    count_gap=section.count_gap,
    count_ties=section.count_ties,
  )


def make_lengths(config) -> Lengths:
  """The distribution of training lengths, and its buckets."""
  section, longest = config.sequences, config.data.train_length
  check(
    section.shortest <= section.short_longest <= longest,
    "sequences: wanted shortest <= short_longest <= data.train_length, not"
    f" {section.shortest}, {section.short_longest}, {longest}",
  )
  check(
    0.0 <= section.short_share <= 1.0,
    f"sequences.short_share={section.short_share}: must be in [0, 1]",
  )
  buckets = tuple(section.buckets) or (longest,)
  check(
    list(buckets) == sorted(set(buckets))
    and buckets[0] >= section.shortest
    and buckets[-1] == longest,
    f"sequences.buckets={buckets}: must rise from at least shortest="
    f"{section.shortest} to data.train_length={longest}",
  )
  found = Lengths(
    section.shortest,
    section.short_longest,
    longest,
    section.short_share,
    buckets,
  )
  for bucket, last in enumerate(buckets):
    first = found.bucket_range(bucket)[0]
    check(
      found.probability[first : last + 1].sum() > 0,
      f"sequences.buckets={buckets}: no length of {first} to {last} occurs",
    )
  return found


def _check_size(config, lengths: Lengths, sizes) -> None:
  size, batch = config.sequences.size, config.train.batch_size
  check(
    size == 0 or min(sizes) >= batch,
    f"sequences.size={size} among {len(sizes)} tasks leaves {min(sizes)}"
    f" examples each, fewer than train.batch_size={batch}; choose at least"
    f" {batch * len(sizes)}, or 0 for an endless stream",
  )
  for name, count in (
    ("train.batch_size", batch),
    ("train.validation_samples", config.train.validation_samples),
  ):
    check(
      min(lengths.shares(count)) > 0,
      f"{name}={count}: too few for a share of every bucket of"
      f" {lengths.buckets}; choose more, or fewer sequences.buckets",
    )


def _parts(lengths: Lengths, count: int) -> tuple[Part, ...]:
  """`count` examples in their buckets, shares rounded to whole examples."""
  return tuple(Part(i, n) for i, n in enumerate(lengths.shares(count)))


def _lessons(config, lengths: Lengths, heads) -> tuple[Lesson, ...]:
  """Strictly alternating steps (task hinting paper, section 4.1), or one step
  on a batch that all tasks share by weight."""
  batch, weights = config.train.batch_size, tuple(config.mixing.weights)
  kind = config.mixing.kind
  check_choice("mixing.kind", kind, MIXING)
  if kind == "alternate":
    check(
      not weights,
      "mixing.weights is for mixing.kind=weighted; alternating steps have none",
    )
    parts = _parts(lengths, batch)
    return tuple((Share(head, 1.0, parts),) for head in heads)
  weights = weights or (1.0,) * len(heads)
  check(
    len(weights) == len(heads)
    and all(isinstance(w, int | float) and w > 0 for w in weights),
    f"mixing.weights={weights}: one number above zero for each of"
    f" {', '.join(heads)}; leave a hint out of hints to give it none",
  )
  shares = []
  counts = split(batch, weights)
  for head, weight, count in zip(heads, weights, counts, strict=True):
    parts = _parts(lengths, count)
    # A bucket left out would be another distribution of lengths.
    check(
      all(part.count for part in parts),
      f"mixing.weights={weights}: {count} of a batch of {batch} are {head}'s,"
      f" too few for every bucket of {lengths.buckets}; raise its weight or"
      " train.batch_size, or choose fewer sequences.buckets",
    )
    shares.append(Share(head, weight / sum(weights), parts))
  return (tuple(shares),)
