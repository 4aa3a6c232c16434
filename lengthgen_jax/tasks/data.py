"""Which examples there are: lengths, and endless, finite or permuted sets."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import rng
from lengthgen_jax.tasks import digits, pack
from lengthgen_jax.tasks.task import Size, Task

NUMBERS = ("lengths", "permutation")


@dataclasses.dataclass(frozen=True)
class Lengths:
  """Lengths of operands, maybe skewed to short ones (task hinting paper,
  section 3).

  `short_share` of the mass lies equally on shortest...short_longest, the rest
  equally on the lengths up to `longest`.

  Attributes:
    shortest, short_longest, longest: ends of the two ranges, inclusive.
    short_share: mass of the first.
    buckets: upper ends of static buckets, the last one `longest`.
  """

  shortest: int
  short_longest: int
  longest: int
  short_share: float
  buckets: tuple[int, ...]

  @property
  def probability(self) -> np.ndarray:
    """[longest + 1] probability of every length."""
    lengths = np.arange(self.longest + 1)
    short = (lengths >= self.shortest) & (lengths <= self.short_longest)
    long = lengths > self.short_longest
    if not long.any():
      return short / short.sum()
    share = self.short_share
    return share * short / short.sum() + (1 - share) * long / long.sum()

  def bucket_range(self, bucket: int) -> tuple[int, int]:
    """First and last length of a bucket."""
    first = self.buckets[bucket - 1] + 1 if bucket else self.shortest
    return first, self.buckets[bucket]

  def _mass(self, bucket: int) -> np.ndarray:
    """Probability of every length of a bucket."""
    first, last = self.bucket_range(bucket)
    return self.probability[first : last + 1]

  def shares(self, total: int) -> list[int]:
    """`total` split over the buckets by their mass, largest remainders up."""
    buckets = range(len(self.buckets))
    return split(total, [self._mass(bucket).sum() for bucket in buckets])

  def draw(self, numbers, bucket: int):
    """Lengths of a bucket from uniform numbers [...] in [0, 1)."""
    mass = self._mass(bucket)
    edges = jnp.asarray(np.cumsum(mass / mass.sum())[:-1], jnp.float32)
    first, _ = self.bucket_range(bucket)
    return first + jnp.sum(numbers[..., None] >= edges, axis=-1)


def split(total: int, mass) -> list[int]:
  """Whole numbers that add up to `total`, in proportion to `mass`."""
  exact = total * np.asarray(mass) / np.sum(mass)
  found = np.floor(exact).astype(int)
  order = np.argsort(found - exact, kind="stable")
  found[order[: total - found.sum()]] += 1
  return found.tolist()


def widest(widths):
  """The least width that none of some widths exceeds."""
  found = np.max(widths, axis=0).tolist()
  return tuple(found) if isinstance(found, list) else found


@dataclasses.dataclass(frozen=True)
class DataSet:
  """The examples of one task, packed for one family.

  Example `index` of a bucket is a function of (data seed, task, bucket, index):
  a hundred million of them take no disk. Each bucket holds its exact share.

  Attributes:
    task: a Task.
    kind: the family that examples are packed for.
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

  def longest(self, bucket: int):
    """What the examples of a bucket are padded to."""
    return widest(self.widths) if self.widths else self.lengths.buckets[bucket]

  def bucket_size(self, bucket: int) -> int:
    """Examples of a bucket; 0 if the stream is endless."""
    return self.lengths.shares(self.size)[bucket]

  @partial(jax.jit, static_argnums=(0, 2, 4))
  def at(self, index_B, bucket: int, turn=0, stream="examples") -> pack.Batch:
    """Examples by index: the same ones whatever the batch is.

    Args:
      index_B: [B] uint32.
      bucket: which bucket, static.
      turn: which of the widths, traced; counted modulo their number.
      stream: "examples" or "held_out".
    """
    task, longest = self.task, self.longest(bucket)
    root = rng.stream(self.seed, f"{stream}/{task.name}/{bucket}")
    widths = jnp.array(self.widths or (0,))
    width = widths[turn % len(widths)]

    def make(index):
      # One draw an example: many small ones take long to compile.
      count = task.operands + task.draws(longest)
      key = jax.random.fold_in(root, index)
      numbers = jax.random.uniform(key, (count,), jnp.float32)
      first, rest = numbers[: task.operands], numbers[task.operands :]
      if self.numbers == "permutation":
        size = Size(first, width, longest)
        return task.from_values(self._values(first, stream), rest, size)
      size = Size(self.lengths.draw(first, bucket), width, longest)
      return task.example(rest, size)

    return pack.batch(self.kind, task, make, index_B)

  def _values(self, number_O, stream: str):
    """Integers of the papers' set."""
    parts = {
      "examples": (0, digits.TRAIN_SHARE),
      "held_out": (digits.TRAIN_SHARE, digits.POPULATION),
    }
    low, high = parts[stream]
    index = low + (number_O * (high - low)).astype(jnp.int32)
    return digits.permuted(jnp.minimum(index, high - 1), self.seed)

  def sample(self, key, count: int, bucket: int, turn=0, held_out=False):
    """`count` examples of a bucket, drawn uniformly with replacement.

    Held-out examples come from another, endless stream.
    """
    if self.size and not held_out:
      index = jax.random.randint(key, (count,), 0, self.bucket_size(bucket))
    else:
      index = jax.random.bits(key, (count,), jnp.uint32)
    return self.at(index, bucket, turn, "held_out" if held_out else "examples")

  def replayed(self, batch, replay: dict, key, count: int, turn):
    """The batch, its first `count` examples drawn from a set instead.

    Args:
      batch: of the task's one bucket.
      replay: "items" [n, operands, longest], "lengths" [n, operands] and
        "count", how many of the n there are.
      key: of the draw.
      count: static.
      turn: as in `at`.
    """
    widths, longest = jnp.array(self.widths or (0,)), self.longest(0)
    width = widths[turn % len(widths)]
    index = jax.random.randint(key, (count,), 0, replay["count"])
    make = lambda own, n: self.task.answered(own, Size(n, width, longest))
    drawn = replay["items"][index], replay["lengths"][index]
    own = pack.batch(self.kind, self.task, make, *drawn)
    put = partial(jax.tree.map, lambda old, new: old.at[:count].set(new))
    found = {}
    for name, old, new in zip(batch._fields, batch, own, strict=True):
      if name not in pack.PLACED:
        found[name] = put(old, new)
      elif self.task.ragged and old is not None:
        # Others' coordinates are those of all examples of a width.
        rest = put(old._replace(index=()), new._replace(index=()))
        found[name] = rest._replace(index=old.index)
    return batch._replace(**found)


@partial(jax.jit, static_argnums=(0, 1, 2, 7, 8))
def test_batch(
  task, kind: str, test_set: str, key, index_B, length, width, longest, how
) -> pack.Batch:
  """Examples of a test set; example i is a function of (key, i).

  Args:
    task: a main task.
    kind: the family that examples are packed for.
    test_set: in task.test_sets.
    key: PRNG key.
    index_B: [B] int32.
    length: traced, of every operand in the task's units, or [O].
    width: traced, what operands are padded to, or [O].
    longest: static bound of both.
    how: further arguments of the test set, static.
  """
  lengths = jnp.broadcast_to(jnp.asarray(length), task.operands)
  size = Size(lengths, width, longest)

  def make(index):
    one = jax.random.fold_in(key, index)
    items = task.test_sets[test_set](task, one, size, *how)
    return task.answered(items.astype(jnp.int32), size)

  return pack.batch(kind, task, make, index_B)


def typed_batch(task, kind: str, parsed: list, width, longest):
  """What persons typed, of one size, as a batch.

  Args:
    task, kind: a main task and the family.
    parsed: (items, lengths) of `task.parse`.
    width: what operands are padded to.
    longest: static bound.
  """
  most, width = int(np.max(longest)), np.asarray(width, np.int32)
  room = lambda x: [(0, 0)] * (np.ndim(x) - 1) + [(0, most - np.shape(x)[-1])]
  items = np.stack([np.pad(own, room(own)) for own, _ in parsed])
  lengths = np.array([found for _, found in parsed], np.int32)
  return _answered(task, kind, items.astype(np.int32), lengths, width, longest)


@partial(jax.jit, static_argnums=(0, 1, 5))
def _answered(task, kind: str, items, lengths, width, longest) -> pack.Batch:
  """Examples of given items as a batch: one program for all widths."""
  make = lambda own, length: task.answered(own, Size(length, width, longest))
  return pack.batch(kind, task, make, items, lengths)
