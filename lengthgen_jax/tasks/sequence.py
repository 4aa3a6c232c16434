"""What the decoder-only tasks share: packing, lengths, buckets, addresses.

An example is a prompt (its items, the delimiter `⊥`, and for some hints one
thing more) and an output, packed left and followed by PAD. Items are the
integers 1...V, PAD is 0, `⊥` is V + 1 and `c`, the carry marker, V + 2.
"""

import dataclasses
import zlib
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array

PAD = 0


class Sequences(NamedTuple):
  """Packed examples of one static length L.

  Attributes:
    tokens: [B, L] int32, inputs of every row.
    target: [B, L] int32, what each row must predict: the next token.
    weight: [B, L] float32, 1 exactly where that is an output.
    items: [B] int32, n: prompt items without `⊥`.
    prompt: [B] int32, tokens before the first output.
  """

  tokens: Array
  target: Array
  weight: Array
  items: Array
  prompt: Array


class Example(NamedTuple):
  """One example before packing; arrays longer than their length hold junk.

  Attributes:
    prompt: [P] int32 tokens, `prompt_length` of them count.
    output: [Q] int32 tokens, `output_length` of them count.
    items: n, prompt items without `⊥`.
  """

  prompt: Array
  prompt_length: Array
  output: Array
  output_length: Array
  items: Array


def below(number, n):
  """A uniform number in [0, 1) as an integer in [0, n), n up to 2^16.

  Numbers have 23 bits, so probabilities are exact to n/2^23.
  """
  return jnp.minimum((number * n).astype(jnp.int32), n - 1)


def ranks(number):
  """The place of each number in ascending order (a random permutation); by
  comparison, because XLA compiles a sort for seconds."""
  i = jnp.arange(number.shape[0])
  first = (number < number[:, None]) | (
    (number == number[:, None]) & (i < i[:, None])
  )
  return jnp.sum(first, axis=1)


def pack(example: Example, length: int) -> Sequences:
  """A Sequences row [L] of one example (vmap it for a batch)."""
  place = jnp.arange(length + 1)
  p, q = example.prompt_length, example.output_length
  near = lambda x, i: x[jnp.clip(i, 0, x.shape[0] - 1)]
  packed = jnp.where(
    place < p, near(example.prompt, place), near(example.output, place - p)
  )
  packed = jnp.where(place < p + q, packed, PAD).astype(jnp.int32)
  row = place[:-1]
  weight = (row >= p - 1) & (row < p + q - 1)
  return Sequences(
    packed[:-1],
    packed[1:],
    weight.astype(jnp.float32),
    jnp.asarray(example.items, jnp.int32),
    jnp.asarray(p, jnp.int32),
  )


@dataclasses.dataclass(frozen=True)
class SequenceTask:
  """A decoder-only task over the integers 1...V.

  Attributes:
    alphabet: V.
    repeat_share: part of the examples that draw from few distinct values.
    nines_share: increment: part of the examples that end in a run of 9s.
    count_gap: count hint: most by which one number outnumbers the other.
    count_ties: count hint: part of the even lengths at which they tie.
  """

  alphabet: int = 32
  repeat_share: float = 0.1
  nines_share: float = 0.3
  count_gap: int = 3
  count_ties: float = 0.5

  name: ClassVar[str]
  family: ClassVar[str] = "decoder_only"
  unit: ClassVar[str] = "items"

  # What a task defines.

  def draws(self, longest: int) -> int:
    """How many random numbers an example takes."""
    raise NotImplementedError

  def example(self, numbers, length, longest: int) -> Example:
    """One example.

    Args:
      numbers: [draws(longest)] uniform numbers in [0, 1).
      length: traced number of items.
      longest: its static bound.
    """
    raise NotImplementedError

  def packed_length(self, longest: int) -> int:
    """Tokens of the longest example with at most `longest` items."""
    raise NotImplementedError

  # Tokens.

  @property
  def delimiter(self) -> int:
    return self.alphabet + 1

  @property
  def vocab_size(self) -> int:
    return self.alphabet + 3

  # Examples.

  @partial(jax.jit, static_argnums=(0, 3))
  def sample(self, numbers_BxN, length_B, longest: int) -> Sequences:
    """A batch; every example is a function of its own numbers alone.

    Args:
      numbers_BxN: [B, draws(longest)] uniform numbers in [0, 1).
      length_B: [B] traced numbers of items.
      longest: static bound of the lengths.
    """
    size = self.packed_length(longest) - 1
    make = lambda numbers, n: pack(self.example(numbers, n, longest), size)
    return jax.vmap(make)(numbers_BxN, length_B)

  def answered(self, items, length) -> Example:
    """The example of given items [P], `length` of which count."""
    raise NotImplementedError

  # What a person types; hints are not asked by persons.

  def outputs(self, length: int) -> int:
    """Output tokens for a prompt of `length` items."""
    raise NotImplementedError

  def parse(self, text: str) -> list[int]:
    """Items of a typed prompt; ValueError with one line."""
    raise NotImplementedError

  def render(self, tokens) -> str:
    """Output tokens as a person writes them; ValueError if they are none."""
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Lengths:
  """Numbers of items, skewed to short ones (task hinting paper, section 3).

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

  def shares(self, total: int) -> list[int]:
    """`total` split over the buckets by their mass, largest remainders up."""
    mass = []
    for bucket in range(len(self.buckets)):
      first, last = self.bucket_range(bucket)
      mass.append(self.probability[first : last + 1].sum())
    return split(total, mass)

  def draw(self, number, bucket: int):
    """A length of a bucket from a uniform number in [0, 1)."""
    first, last = self.bucket_range(bucket)
    weight = self.probability[first : last + 1]
    edges = jnp.asarray(np.cumsum(weight / weight.sum())[:-1], jnp.float32)
    return first + jnp.sum(number >= edges)


def split(total: int, mass) -> list[int]:
  """Whole numbers that add up to `total`, in proportion to `mass`."""
  exact = total * np.asarray(mass) / np.sum(mass)
  found = np.floor(exact).astype(int)
  order = np.argsort(found - exact, kind="stable")
  found[order[: total - found.sum()]] += 1
  return found.tolist()


@dataclasses.dataclass(frozen=True)
class DataSet:
  """The examples of one task: finite and addressable, or an endless stream.

  Example `index` of a bucket is a function of (data seed, task, bucket, index):
  a hundred million of them take no disk. Each bucket holds its exact share.

  Attributes:
    task: a SequenceTask.
    lengths: their distribution.
    size: number of examples, 0 for an endless stream.
    seed: of the data.
  """

  task: SequenceTask
  lengths: Lengths
  size: int
  seed: int

  def bucket_size(self, bucket: int) -> int:
    """Examples of a bucket; 0 if the stream is endless."""
    return self.lengths.shares(self.size)[bucket]

  @partial(jax.jit, static_argnums=(0, 2, 3))
  def at(self, index_B, bucket: int, stream: str = "examples") -> Sequences:
    """Examples by index: the same ones whatever the batch is."""
    name = f"{stream}/{self.task.name}/{bucket}"
    root = jax.random.fold_in(
      jax.random.key(self.seed), zlib.crc32(name.encode())
    )
    longest = self.lengths.buckets[bucket]

    def one(index):
      key = jax.random.fold_in(root, index)
      # One draw an example: many small ones take long to compile.
      numbers = jax.random.uniform(key, (1 + self.task.draws(longest),))
      length = self.lengths.draw(numbers[0], bucket)
      return numbers[1:], length

    return self.task.sample(*jax.vmap(one)(index_B), longest)

  def sample(self, key, count: int, bucket: int, held_out=False) -> Sequences:
    """`count` examples of a bucket, drawn uniformly with replacement.

    Held-out examples come from another, endless stream.
    """
    if held_out:
      index = jax.random.bits(key, (count,), jnp.uint32)
      return self.at(index, bucket, "held_out")
    if not self.size:
      index = jax.random.bits(key, (count,), jnp.uint32)
    else:
      index = jax.random.randint(key, (count,), 0, self.bucket_size(bucket))
    return self.at(index, bucket)
