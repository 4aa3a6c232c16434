"""Training and test data: distributions of lengths, the examples of a gradient
step, data sets and their batches.

A data set is an endless stream, a finite set, or the papers' permutation of the
integers. Its examples are functions of seeds and indices and are never stored.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import rng
from lengthgen_jax.compilation import jit_unoptimized
from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check
from lengthgen_jax.tasks.arithmetic import ArithmeticTask
from lengthgen_jax.tasks.packing import (
  COORDINATE_FIELDS,
  Batch,
  map_examples,
  pack,
)
from lengthgen_jax.tasks.task import (
  Example,
  Ids,
  Size,
  Task,
  Width,
  max_width,
  uniform_int,
)

PERMUTATION_BITS = 20  # the papers' interpolation set: integers below 2^20
POPULATION = 1 << PERMUTATION_BITS  # values that "permutation" orders
NUM_TRAIN = POPULATION * 7 // 8  # the papers' 7:1 split


@dataclasses.dataclass(frozen=True)
class Lengths:
  """Lengths is the distribution of operands' lengths, in the task's units.

  It may be skewed to short ones (task hinting paper, section 3): it is uniform
  in shortest...short_longest, with a probability of `short_share` in all, and
  uniform in the longer ones up to `longest`.

  Attributes:
    shortest, short_longest, longest: the ends of the two ranges, inclusive.
    short_share: the probability of the first range, if there is a second one.
    buckets: the greatest lengths of the buckets, ascending; the examples of a
      bucket are padded to one size. The last one is `longest`.
  """

  shortest: int
  short_longest: int
  longest: int
  short_share: float
  buckets: tuple[int, ...]

  @property
  def probability(self) -> np.ndarray:
    """Returns the probability of every length, [longest + 1]."""
    lengths = np.arange(self.longest + 1)
    is_short = (lengths >= self.shortest) & (lengths <= self.short_longest)
    is_long = lengths > self.short_longest
    if not is_long.any():
      return is_short / is_short.sum()
    share = self.short_share
    return (
      share * is_short / is_short.sum() + (1 - share) * is_long / is_long.sum()
    )

  def bucket_range(self, bucket: int) -> tuple[int, int]:
    """Returns the first and the last length of the bucket of this index."""
    first = self.buckets[bucket - 1] + 1 if bucket else self.shortest
    return first, self.buckets[bucket]

  def _mass(self, bucket: int) -> np.ndarray:
    """Returns the probability of every length of a bucket."""
    first, last = self.bucket_range(bucket)
    return self.probability[first : last + 1]

  def bucket_counts(self, total: int) -> list[int]:
    """Splits `total` examples over the buckets in proportion to their
    probability; the largest remainders are rounded up."""
    buckets = range(len(self.buckets))
    return split(total, [self._mass(bucket).sum() for bucket in buckets])

  def draw(self, numbers: jax.Array, bucket: int) -> jax.Array:
    """Returns lengths [...] of a bucket, made from uniform numbers [...] in
    [0, 1)."""
    mass = self._mass(bucket)
    edges = jnp.asarray(np.cumsum(mass / mass.sum())[:-1], jnp.float32)
    first, _ = self.bucket_range(bucket)
    return first + jnp.sum(numbers[..., None] >= edges, axis=-1)

  def draw_natural(
    self, numbers: jax.Array, longest: jax.Array, operands: Sequence[int]
  ) -> jax.Array:
    """Returns the lengths [O] of the operands of an example of natural width.

    One of the operands, drawn at random, is of the longest length, which the
    width is natural for; the others are uniform in shortest...longest.

    Args:
      numbers: [O + 1], uniform in [0, 1).
      longest: the length of the longest operand, traced.
      operands: the indices of the operands that may be the longest.
    """
    choice = jnp.array(operands)[uniform_int(numbers[0], len(operands))]
    span = longest - self.shortest + 1
    lengths = self.shortest + uniform_int(numbers[1:], span)
    return lengths.at[choice].set(longest)


def split(total: int, mass: Sequence[float] | np.ndarray) -> list[int]:
  """Returns whole numbers that add up to `total`, about in proportion to
  `mass`; the largest remainders are rounded up."""
  exact_counts = total * np.asarray(mass) / np.sum(mass)
  counts = np.floor(exact_counts).astype(int)
  order = np.argsort(counts - exact_counts, kind="stable")
  counts[order[: total - counts.sum()]] += 1
  return counts.tolist()


def widest(widths: Sequence[Width]) -> Width:
  """Returns the least width that none of these exceeds; of tuples, in each
  operand."""
  width = np.max(widths, axis=0).tolist()
  return tuple(width) if isinstance(width, list) else width


# The examples of a gradient step. A cycle of training is one or more gradient
# steps, each on the shares of one or more heads. A share has a part for each
# bucket of lengths; their sizes are static.


class Part(NamedTuple):
  """A Part is the examples of one bucket in a head's share.

  Attributes:
    bucket: the index of the bucket.
    count: the number of examples.
  """

  bucket: int
  count: int


class Share(NamedTuple):
  """A Share is the examples of one head in a gradient step or a validation.

  Attributes:
    head: the name of the output head, which is that of its task.
    weight: the factor on their mean loss; those of a step add up to 1. It is
      not used in validation.
    parts: one of each bucket.
  """

  head: str
  weight: float
  parts: tuple[Part, ...]


StepSpec = tuple[Share, ...]  # all examples of a gradient step


def bucket_parts(lengths: Lengths, count: int) -> tuple[Part, ...]:
  """Splits `count` examples over the buckets, rounded to whole examples."""
  return tuple(
    Part(bucket, part_count)
    for bucket, part_count in enumerate(lengths.bucket_counts(count))
  )


def step_specs(
  heads: Sequence[str],
  lengths: Lengths,
  batch_size: int,
  kind: str,
  weights: Sequence[float],
) -> tuple[StepSpec, ...]:
  """Returns the gradient steps of a cycle.

  They are one step for each task in turn ("alternate"; task hinting paper,
  section 4.1), or a single step on a batch that all tasks share by weight.

  Args:
    heads: the names of the tasks, the main one's first.
    lengths: the distribution of lengths, the same in all tasks.
    batch_size: the number of examples of a gradient step.
    kind: "alternate" or "weighted".
    weights: config.mixing.weights, a weight for each task, or () for equal
      ones.

  Raises:
    UsageError: there are weights that alternating steps do not have, or that
      are not valid, or that leave a task without examples of some bucket.
  """
  if kind == "alternate":
    check(
      not weights,
      "mixing.weights is for mixing.kind=weighted; alternating steps have none",
    )
    parts = bucket_parts(lengths, batch_size)
    return tuple((Share(head, 1.0, parts),) for head in heads)
  weights = weights or (1.0,) * len(heads)
  check(
    len(weights) == len(heads)
    and all(isinstance(w, int | float) and w > 0 for w in weights),
    f"mixing.weights={weights}: one number above zero for each of"
    f" {', '.join(heads)}; leave a hint out of hints to give it none",
  )
  shares = []
  for head, weight, count in zip(
    heads, weights, split(batch_size, weights), strict=True
  ):
    # Without examples of a bucket, the distribution of lengths would differ.
    check(
      min(lengths.bucket_counts(count)) > 0,
      f"mixing.weights={weights}: {count} of a batch of {batch_size} are"
      f" {head}'s, too few for every bucket of {lengths.buckets}; raise its"
      " weight or train.batch_size, or choose fewer data.buckets",
    )
    parts = bucket_parts(lengths, count)
    shares.append(Share(head, weight / sum(weights), parts))
  return (tuple(shares),)


# Data sets.


def permuted(index: jax.Array, seed: int) -> jax.Array:
  """Returns Π(index), elementwise, where the seed chooses the pseudo-random
  permutation Π of the integers below 2^20.

  Π is a Feistel network on two 10-bit halves, so that a training set of a
  million numbers is a function of (seed, index) and takes no memory.
  """
  half = PERMUTATION_BITS // 2
  mask = (1 << half) - 1
  index = index.astype(jnp.uint32)
  salt = jnp.uint32((seed * 0x85EBCA77) & 0xFFFFFFFF)

  def one_round(step, halves):
    left, right = halves
    mixed = right * jnp.uint32(0x9E3779B1) + salt
    mixed += step.astype(jnp.uint32) * jnp.uint32(0xC2B2AE3D)
    mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(0x2C1B3C6D)
    mixed = (mixed ^ (mixed >> 12)) * jnp.uint32(0x297A2D39)
    return right, left ^ ((mixed ^ (mixed >> 15)) & mask)

  halves = index >> half, index & mask
  left, right = jax.lax.fori_loop(0, 6, one_round, halves)
  return ((left << half) | right).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class Dataset:
  """A Dataset is the examples of one task, packed for one model family.

  Example `index` of a bucket is a function of (data seed, task, bucket, width,
  index), so that a hundred million of them take no disk.

  Attributes:
    task: the task that makes the examples.
    kind: the model family that examples are packed for, one of packing.KINDS.
    lengths: the distribution of their lengths, in the task's units.
    widths: the widths that operands are padded to, which cycles of training
      take in turn; () in ragged tasks.
    natural: whether an example's width is that of its longest operand.
    numbers: "lengths" draws a length for every operand and lets the task draw
      its items (held-out examples are fresh draws of the same kind);
      "permutation" draws operands from the papers' set, a random permutation of
      the integers below 2^20, split 7:1 into training and validation.
    size: the number of training examples, 0 for an endless stream.
    seed: the seed of the data.
  """

  task: Task
  kind: str
  lengths: Lengths
  widths: tuple[Width, ...]
  natural: bool
  numbers: str
  size: int
  seed: int

  def bound(self, bucket: int) -> Width:
    """Returns the `bound` of the Size of a bucket's examples; it is static."""
    return widest(self.widths) if self.widths else self.lengths.buckets[bucket]

  def _width(self, width_index: int | jax.Array) -> jax.Array:
    """Returns the width of this index, modulo the number of widths; it is a
    pair for grids, and 0 in ragged tasks."""
    widths = jnp.array(self.widths or (0,))
    return widths[width_index % len(widths)]

  @partial(jax.jit, static_argnums=(0, 2, 4))
  def examples(
    self,
    index_B: jax.Array,
    bucket: int,
    width_index: int | jax.Array = 0,
    stream: str = "examples",
  ) -> Batch:
    """Returns the examples of these indices.

    An example depends on its index, not on its batch.

    Args:
      index_B: [B] uint32, or int32 in a finite set.
      bucket: the index of the bucket of lengths, static.
      width_index: the index of the width, modulo the number of widths; training
        counts cycles, so that these take the widths in turn.
      stream: "examples" for training, or "held_out"; static.
    """
    task, bound = self.task, self.bound(bucket)
    root_key = rng.stream(self.seed, f"{stream}/{task.name}/{bucket}")
    width = self._width(width_index)
    num_random = task.num_random(max_width(bound))

    def make_example(index: jax.Array) -> Example:
      # One draw per example, because many small draws take long to compile.
      key = jax.random.fold_in(root_key, index)
      num_lengths = task.operands + self.natural
      shape = (num_lengths + num_random,)
      numbers = jax.random.uniform(key, shape, jnp.float32)
      length_numbers, example_numbers = jnp.split(numbers, [num_lengths])
      if self.numbers == "permutation":
        assert isinstance(task, ArithmeticTask)
        values = self._values(length_numbers, stream)
        # The numbers stand in for lengths, which `from_values` does not use.
        size = Size(length_numbers, width, bound)
        return task.from_values(values, example_numbers, size, POPULATION)
      if self.natural:
        lengths = self.lengths.draw_natural(
          length_numbers, width - task.slack, task.long_operands
        )
      else:
        lengths = self.lengths.draw(length_numbers, bucket)
      return task.example(example_numbers, Size(lengths, width, bound))

    return pack(self.kind, task, make_example, index_B)

  def _values(self, number_O: jax.Array, stream: str) -> jax.Array:
    """Returns integers [O] of a stream of the papers' set, made from uniform
    numbers [O]."""
    ranges = {
      "examples": (0, NUM_TRAIN),
      "held_out": (NUM_TRAIN, POPULATION),
    }
    low, high = ranges[stream]
    index = low + (number_O * (high - low)).astype(jnp.int32)
    return permuted(index, self.seed)

  def sample(
    self,
    key: jax.Array,
    count: int,
    bucket: int,
    width_index: int | jax.Array = 0,
    held_out: bool = False,
  ) -> Batch:
    """Draws `count` examples of a bucket uniformly with replacement.

    Held-out examples come from a stream of their own, which is endless; with
    "permutation" their operands are the integers held out of training.

    Args:
      key: PRNG key of the draw.
      count: the number of examples, static.
      bucket: the index of the bucket, static.
      width_index: the index of the width, as in `examples`.
      held_out: whether the examples are for validation.
    """
    if self.size and not held_out:
      bucket_size = self.lengths.bucket_counts(self.size)[bucket]
      if self.natural:  # the examples are split over the widths
        bucket_size //= len(self.widths)
      index_B = jax.random.randint(key, (count,), 0, bucket_size)
    else:
      index_B = jax.random.bits(key, (count,), jnp.uint32)
    stream = "held_out" if held_out else "examples"
    return self.examples(index_B, bucket, width_index, stream)

  def with_replay(
    self,
    batch: Batch,
    replay: dict[str, jax.Array],
    key: jax.Array,
    count: int,
    width_index: int | jax.Array,
  ) -> Batch:
    """Returns a batch in which examples that are drawn from a replay set take
    the place of the first `count`; at natural widths they are drawn from those
    of this width, and if there are none the batch stays as it is.

    Args:
      batch: a batch of the data set's only bucket.
      replay: the replay set's inputs as "items" [n, operands, max_length] and
        "lengths" [n, operands], of which the first "count" are valid.
      key: PRNG key of the draw.
      count: the number of examples to replace, static.
      width_index: the index of the width, as in `examples`.
    """
    width, bound = self._width(width_index), self.bound(0)
    longest = replay["lengths"].max(axis=1)
    allowed = jnp.arange(len(longest)) < replay["count"]
    if self.natural:
      allowed &= longest == width - self.task.slack
    total = jnp.cumsum(allowed)
    number = jax.random.randint(key, (count,), 1, total[-1] + 1)
    drawn = jnp.searchsorted(total, number)  # of this number among the allowed
    replayed = pack(
      self.kind,
      self.task,
      lambda items, lengths: self.task.from_items(
        items, Size(lengths, width, bound)
      ),
      replay["items"][drawn],
      replay["lengths"][drawn],
    )
    overwrite = lambda old, new: old.at[:count].set(
      jnp.where(allowed.any(), new, old[:count])
    )
    fields = batch._asdict()
    for name, new in replayed._asdict().items():
      if new is None:  # a field that this model family does not have
        continue
      if name not in COORDINATE_FIELDS:
        fields[name] = overwrite(fields[name], new)
      elif self.task.ragged:
        # In tasks that are not ragged, all examples of a width have the same
        # coordinates.
        fields[name] = map_examples(overwrite, fields[name], new)
    return Batch(**fields)


@jit_unoptimized(0, 1, 2, 7, 8)
def test_batch(
  task: Task,
  kind: str,
  test_set: str,
  key: jax.Array,
  index_B: Array,
  length: int | Array,
  width: int | Array,
  bound: Width,
  arguments: tuple,
) -> Batch:
  """Returns examples of a test set, each a function of `key` and its index.

  Args:
    task: a main task.
    kind: the model family that examples are packed for.
    test_set: the key of its function in task.test_sets.
    key: PRNG key of the test set.
    index_B: [B] int32, the indices of the examples.
    length: the length of operands in the task's units, one for all or [O];
      traced.
    width: the width that operands are padded to, one for all or [O]; traced.
    bound: the `bound` of the examples' Size, static, so that one program serves
      all lengths and widths up to it.
    arguments: further arguments of the test set's function, static.
  """
  lengths = jnp.broadcast_to(jnp.asarray(length), task.operands)
  size = Size(lengths, width, bound)

  def make_example(index: jax.Array) -> Example:
    example_key = jax.random.fold_in(key, index)
    items = task.test_sets[test_set](task, example_key, size, *arguments)
    return task.from_items(items.astype(jnp.int32), size)

  return pack(kind, task, make_example, index_B)


def parsed_batch(
  task: Task,
  kind: str,
  parsed: Sequence[tuple[Ids, Ids]],
  width: Width | np.ndarray,
  bound: Width,
) -> Batch:
  """Returns a batch of parsed input texts, padded to one width unless ragged.

  Args:
    task: a main task.
    kind: the model family that examples are packed for.
    parsed: for each input, (items, lengths) as `task.parse` returns them; the
      items of a single operand may also be [n].
    width: the width that operands are padded to, one for all or of each; not
      used in ragged tasks.
    bound: the `bound` of the examples' Size, static.
  """
  lengths = np.array([lengths for _, lengths in parsed], np.int32)
  items = np.zeros((*lengths.shape, max_width(bound)), np.int32)
  for i, (typed_items, _) in enumerate(parsed):
    items[i, :, : np.shape(typed_items)[-1]] = typed_items
  return _batch_of_items(
    task, kind, items, lengths, np.asarray(width, np.int32), bound
  )


@jit_unoptimized(0, 1, 5)
def _batch_of_items(
  task: Task,
  kind: str,
  items: np.ndarray,
  lengths: np.ndarray,
  width: np.ndarray,
  bound: Width,
) -> Batch:
  """Returns the examples of items [B, O, n] of lengths [B, O]; one program
  serves all widths."""
  make_example = lambda example_items, example_lengths: task.from_items(
    example_items, Size(example_lengths, width, bound)
  )
  return pack(kind, task, make_example, items, lengths)
