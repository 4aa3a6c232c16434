"""Defines training and test sets: distributions of lengths, and batches of
examples.

A data set is an endless stream, a finite set, or the papers' permutation of the
integers. Its examples are functions of seeds and indices and are never stored.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import rng
from lengthgen_jax.coordinates import Array
from lengthgen_jax.tasks import digits, packing
from lengthgen_jax.tasks.task import Size, Task

NUMBERS = ("lengths", "permutation")


@dataclasses.dataclass(frozen=True)
class Lengths:
  """Describes a distribution of operands' lengths, maybe skewed to short ones
  (task hinting paper, section 3).

  `short_share` of the mass lies equally on shortest...short_longest, the rest
  equally on the lengths up to `longest`.

  Attributes:
    shortest, short_longest, longest: ends of the two ranges, inclusive.
    short_share: mass of the first range.
    buckets: upper ends of static buckets, the last one `longest`.
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
    """Returns the first and the last length of a bucket."""
    first = self.buckets[bucket - 1] + 1 if bucket else self.shortest
    return first, self.buckets[bucket]

  def _mass(self, bucket: int) -> np.ndarray:
    """Returns the probability of every length of a bucket."""
    first, last = self.bucket_range(bucket)
    return self.probability[first : last + 1]

  def shares(self, total: int) -> list[int]:
    """Splits `total` over the buckets in proportion to their mass; the largest
    remainders are rounded up."""
    buckets = range(len(self.buckets))
    return split(total, [self._mass(bucket).sum() for bucket in buckets])

  def draw(self, numbers: jax.Array, bucket: int) -> jax.Array:
    """Returns lengths of a bucket, made of uniform numbers [...] in [0, 1)."""
    mass = self._mass(bucket)
    edges = jnp.asarray(np.cumsum(mass / mass.sum())[:-1], jnp.float32)
    first, _ = self.bucket_range(bucket)
    return first + jnp.sum(numbers[..., None] >= edges, axis=-1)


def split(total: int, mass: Sequence[float] | np.ndarray) -> list[int]:
  """Returns whole numbers that add up to `total`, in proportion to `mass`."""
  exact_counts = total * np.asarray(mass) / np.sum(mass)
  counts = np.floor(exact_counts).astype(int)
  order = np.argsort(counts - exact_counts, kind="stable")
  counts[order[: total - counts.sum()]] += 1
  return counts.tolist()


def widest(widths) -> int | tuple[int, ...]:
  """Returns the least width that none of the given widths exceeds."""
  width = np.max(widths, axis=0).tolist()
  return tuple(width) if isinstance(width, list) else width


@dataclasses.dataclass(frozen=True)
class DataSet:
  """Makes the examples of one task, packed for one model family.

  Example `index` of a bucket is a function of (data seed, task, bucket, index):
  a hundred million of them take no disk. Each bucket holds its exact share.

  Attributes:
    task: the task that makes the examples.
    kind: the model family that examples are packed for.
    lengths: their distribution, in the task's units.
    widths: what operands are padded to, in turn, a number or one for each; ()
      in ragged tasks.
    numbers: "lengths" draws a length for every operand, then uniform digits
      (validation is fresh draws of the same kind); "permutation" is the
      papers' set, a random permutation of the integers below 2^20 split 7:1
      into training and validation.
    size: number of examples, 0 for an endless stream.
    seed: of the data.
  """

  task: Task
  kind: str
  lengths: Lengths
  widths: tuple[int, ...]
  numbers: str
  size: int
  seed: int

  def longest(self, bucket: int) -> int | tuple[int, ...]:
    """Returns the static size that the examples of a bucket are padded to."""
    return widest(self.widths) if self.widths else self.lengths.buckets[bucket]

  def bucket_size(self, bucket: int) -> int:
    """Returns the number of examples of a bucket; 0 if the stream is
    endless."""
    return self.lengths.shares(self.size)[bucket]

  @partial(jax.jit, static_argnums=(0, 2, 4))
  def at(
    self,
    index_B: jax.Array,
    bucket: int,
    width_index: int | jax.Array = 0,
    stream: str = "examples",
  ) -> packing.Batch:
    """Returns the examples of the given indices, which are the same in every
    batch.

    Args:
      index_B: [B] uint32.
      bucket: which bucket, static.
      width_index: which of the widths, traced; counted modulo their number.
      stream: "examples" or "held_out".
    """
    task, longest = self.task, self.longest(bucket)
    root_key = rng.stream(self.seed, f"{stream}/{task.name}/{bucket}")
    widths = jnp.array(self.widths or (0,))
    width = widths[width_index % len(widths)]

    def make_example(index):
      # One draw per example, because many small draws take long to compile.
      count = task.operands + task.num_random(longest)
      key = jax.random.fold_in(root_key, index)
      numbers = jax.random.uniform(key, (count,), jnp.float32)
      operand_numbers, example_numbers = (
        numbers[: task.operands],
        numbers[task.operands :],
      )
      if self.numbers == "permutation":
        size = Size(operand_numbers, width, longest)
        return task.from_values(
          self._values(operand_numbers, stream), example_numbers, size
        )
      size = Size(self.lengths.draw(operand_numbers, bucket), width, longest)
      return task.example(example_numbers, size)

    return packing.pack(self.kind, task, make_example, index_B)

  def _values(self, number_O: jax.Array, stream: str) -> jax.Array:
    """Returns integers of the papers' set, made of uniform numbers [O]."""
    ranges = {
      "examples": (0, digits.TRAIN_SHARE),
      "held_out": (digits.TRAIN_SHARE, digits.POPULATION),
    }
    low, high = ranges[stream]
    index = low + (number_O * (high - low)).astype(jnp.int32)
    return digits.permuted(jnp.minimum(index, high - 1), self.seed)

  def sample(
    self,
    key: jax.Array,
    count: int,
    bucket: int,
    width_index: int | jax.Array = 0,
    held_out: bool = False,
  ) -> packing.Batch:
    """Draws `count` examples of a bucket uniformly with replacement.

    Held-out examples come from another, endless stream.
    """
    if self.size and not held_out:
      index = jax.random.randint(key, (count,), 0, self.bucket_size(bucket))
    else:
      index = jax.random.bits(key, (count,), jnp.uint32)
    return self.at(
      index, bucket, width_index, "held_out" if held_out else "examples"
    )

  def with_replay(
    self,
    batch: packing.Batch,
    replay: dict[str, jax.Array],
    key: jax.Array,
    count: int,
    width_index: int | jax.Array,
  ) -> packing.Batch:
    """Returns the batch with its first `count` examples drawn from a set
    instead.

    Args:
      batch: of the task's one bucket.
      replay: "items" [n, operands, longest], "lengths" [n, operands] and
        "count", how many of the n there are.
      key: PRNG key of the draw.
      count: how many examples are replaced, static.
      width_index: which of the widths, as in `at`.
    """
    widths, longest = jnp.array(self.widths or (0,)), self.longest(0)
    width = widths[width_index % len(widths)]
    index = jax.random.randint(key, (count,), 0, replay["count"])
    make_example = lambda items, lengths: self.task.from_items(
      items, Size(lengths, width, longest)
    )
    drawn = replay["items"][index], replay["lengths"][index]
    replayed = packing.pack(self.kind, self.task, make_example, *drawn)
    overwrite = partial(jax.tree.map, lambda old, new: old.at[:count].set(new))
    fields = {}
    for name, old, new in zip(batch._fields, batch, replayed, strict=True):
      if name not in packing.COORDINATE_FIELDS:
        fields[name] = overwrite(old, new)
      elif self.task.ragged and old is not None:
        # In tasks that are not ragged, all examples of a width have the same
        # coordinates.
        coordinates = overwrite(old._replace(index=()), new._replace(index=()))
        fields[name] = coordinates._replace(index=old.index)
    return batch._replace(**fields)


@partial(jax.jit, static_argnums=(0, 1, 2, 7, 8))
def test_batch(
  task: Task,
  kind: str,
  test_set: str,
  key: jax.Array,
  index_B: Array,
  length: int | Array,
  width: int | Array,
  longest: int | tuple[int, ...],
  arguments: tuple,
) -> packing.Batch:
  """Returns examples of a test set; example i is a function of (key, i).

  Args:
    task: a main task.
    kind: the model family that examples are packed for.
    test_set: in task.test_sets.
    key: PRNG key.
    index_B: [B] int32.
    length: traced, of every operand in the task's units, or [O].
    width: traced, what operands are padded to, or [O].
    longest: static bound of both.
    arguments: further arguments of the test set, static.
  """
  lengths = jnp.broadcast_to(jnp.asarray(length), task.operands)
  size = Size(lengths, width, longest)

  def make_example(index):
    example_key = jax.random.fold_in(key, index)
    items = task.test_sets[test_set](task, example_key, size, *arguments)
    return task.from_items(items.astype(jnp.int32), size)

  return packing.pack(kind, task, make_example, index_B)


def typed_batch(
  task: Task,
  kind: str,
  parsed: list,
  width: int | tuple[int, ...] | np.ndarray,
  longest: int | tuple[int, ...],
) -> packing.Batch:
  """Returns a batch of the inputs that people typed, all of one width.

  Args:
    task, kind: a main task and the model family.
    parsed: (items, lengths) of `task.parse`.
    width: what operands are padded to.
    longest: static bound.
  """
  size, width = int(np.max(longest)), np.asarray(width, np.int32)
  padding = lambda x: (
    [(0, 0)] * (np.ndim(x) - 1) + [(0, size - np.shape(x)[-1])]
  )
  items = np.stack(
    [np.pad(typed_items, padding(typed_items)) for typed_items, _ in parsed]
  )
  lengths = np.array([typed_lengths for _, typed_lengths in parsed], np.int32)
  return _answered(task, kind, items.astype(np.int32), lengths, width, longest)


@partial(jax.jit, static_argnums=(0, 1, 5))
def _answered(
  task: Task,
  kind: str,
  items: np.ndarray,
  lengths: np.ndarray,
  width: np.ndarray,
  longest: int | tuple[int, ...],
) -> packing.Batch:
  """Returns the examples of given items as a batch; one program serves all
  widths."""
  make_example = lambda example_items, length: task.from_items(
    example_items, Size(length, width, longest)
  )
  return packing.pack(kind, task, make_example, items, lengths)
