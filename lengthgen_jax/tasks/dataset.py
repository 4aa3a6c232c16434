"""Training and test data: distributions of lengths, the examples of a gradient
step, data sets and their batches.

Examples are functions of seeds and indices and are never stored.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import rng
from lengthgen_jax.compilation import jit_unoptimized
from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check
from lengthgen_jax.tasks.arithmetic import ArithmeticTask
from lengthgen_jax.tasks.packing import Batch, map_examples, pack, restrict
from lengthgen_jax.tasks.task import (
  Example,
  Ids,
  Size,
  Task,
  Width,
  drawing,
  uniform_int,
)

POPULATION = 1 << 20  # the papers' interpolation set: integers below 2^20
NUM_TRAIN = POPULATION * 7 // 8  # the papers' 7:1 split
RESTRICTED = "restricted"  # the hint of random restrictions


@dataclasses.dataclass(frozen=True)
class Lengths:
  """The distribution of operands' lengths, in the task's units.

  It may be skewed to short ones (task hinting paper, section 3): it is uniform
  in shortest...short_longest, with a probability of `short_share` in all, and
  uniform in the longer ones up to `longest`.
  """

  shortest: int  # the ends of the two ranges, inclusive
  short_longest: int
  longest: int
  short_share: float  # the probability of the first, if the second has any
  # The greatest lengths of the buckets, ascending; the examples of a bucket are
  # padded to one size. The last one is `longest`.
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
    probability."""
    buckets = range(len(self.buckets))
    return split(total, [self._mass(bucket).sum() for bucket in buckets])

  def draw(self, numbers: jax.Array, bucket: int) -> jax.Array:
    """Returns lengths of a bucket, made from uniform numbers [...]."""
    mass = self._mass(bucket)
    edges = jnp.asarray(np.cumsum(mass / mass.sum())[:-1], jnp.float32)
    first, _ = self.bucket_range(bucket)
    return first + jnp.sum(numbers[..., None] >= edges, axis=-1)

  def draw_natural(
    self, numbers: jax.Array, longest: jax.Array, operands: Sequence[int]
  ) -> jax.Array:
    """Returns the lengths [O] of an example of the width that is natural for
    the longest: one of `operands` has it, the others any from the shortest on;
    `numbers` [O + 1] are uniform."""
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
  """The examples of one bucket in a head's share."""

  bucket: int
  count: int


class Share(NamedTuple):
  """The examples of one head in a gradient step or a validation."""

  head: str  # the output head's name, `Dataset.name`
  weight: float  # the factor on their mean loss; those of a step add up to 1
  parts: tuple[Part, ...]  # one of each bucket


StepSpec = tuple[Share, ...]  # all examples of a gradient step


def bucket_parts(lengths: Lengths, count: int) -> tuple[Part, ...]:
  """Splits `count` examples over the buckets, rounded to whole examples."""
  return tuple(itertools.starmap(Part, enumerate(lengths.bucket_counts(count))))


def step_specs(
  lengths: dict[str, Lengths],
  batch_size: int,
  kind: str,
  weights: Sequence[float],
) -> tuple[StepSpec, ...]:
  """Returns the gradient steps of a cycle, given the lengths of each head.

  They are one step for each task in turn (kind "alternate"; task hinting paper,
  section 4.1), or a single step on a batch that all tasks share by their
  weights, which () makes equal ("weighted").
  """
  if kind == "alternate":
    check(
      not weights,
      "mixing.weights is for mixing.kind=weighted; alternating steps have none",
    )
    return tuple(
      (Share(head, 1.0, bucket_parts(drawn, batch_size)),)
      for head, drawn in lengths.items()
    )
  weights = weights or (1.0,) * len(lengths)
  check(
    len(weights) == len(lengths)
    and all(isinstance(w, int | float) and w > 0 for w in weights),
    f"mixing.weights={weights}: one number above zero for each of"
    f" {', '.join(lengths)}; leave a hint out of hints to give it none",
  )
  shares = []
  for (head, drawn), weight, count in zip(
    lengths.items(), weights, split(batch_size, weights), strict=True
  ):
    # Without examples of a bucket, the distribution of lengths would differ.
    check(
      min(drawn.bucket_counts(count)) > 0,
      f"mixing.weights={weights}: {count} of a batch of {batch_size} are"
      f" {head}'s, too few for every bucket of {drawn.buckets}; raise its"
      " weight or train.batch_size, or choose fewer data.buckets",
    )
    parts = bucket_parts(drawn, count)
    shares.append(Share(head, weight / sum(weights), parts))
  return (tuple(shares),)


# Data sets.


@cache
def permutation(seed: int) -> np.ndarray:
  """Returns the integers below POPULATION, each once, in a random order that
  the seed chooses."""
  # The numbers of RandomState are the same in every version of numpy.
  order = np.random.RandomState(seed).permutation(POPULATION)
  return order.astype(np.int32)


@dataclasses.dataclass(frozen=True)
class Dataset:
  """The examples of one task, packed for one model family: functions of (data
  seed, task, bucket, width, index)."""

  task: Task
  kind: str  # the model family, one of packing.KINDS
  lengths: Lengths
  # What operands are padded to, which cycles of training take in turn; () in
  # ragged tasks.
  widths: tuple[Width, ...]
  natural: bool  # whether an example's width is that of its longest operand
  # "lengths" draws a length for every operand and lets the task draw its items
  # (held-out examples are fresh draws of the same kind); "permutation" draws
  # operands from the papers' set, a random permutation of the integers below
  # 2^20, split 7:1 into training and validation.
  numbers: str
  size: int  # the number of training examples, 0 for an endless stream
  seed: int
  # the number of inputs of a random restriction; 0: examples are whole
  num_kept: int = 0
  # In finetuning, (seed of the training, input text): a `share` of its batches
  # is drawn from these.
  counterexamples: tuple[tuple[int, str], ...] = ()
  share: float = 0.0

  @property
  def name(self) -> str:
    """The name of the output head: that of the task, unless examples are
    restricted; whole and restricted ones have the task's output layer."""
    return f"{self.task.name}_{RESTRICTED}" if self.num_kept else self.task.name

  @property
  def num_widths(self) -> int:
    """The number of widths that batches take in turn; 1 if operands are not
    padded."""
    return max(len(self.widths), 1)

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
    held_out: bool = False,
  ) -> Batch:
    """Returns the examples of these indices [B], uint32, or int32 in a finite
    set; an example depends on its index, not on its batch.

    Cycles of training take the widths in turn, by `width_index` modulo their
    number.
    """
    task, bound = self.task, self.bound(bucket)
    stream = "held_out" if held_out else "examples"
    root_key = rng.stream(self.seed, f"{stream}/{self.name}/{bucket}")
    width = self._width(width_index)

    def make_example(index: jax.Array) -> Example:
      # Few draws per example, because many take long to compile.
      key = jax.random.fold_in(root_key, index)
      num_lengths = task.operands + self.natural
      numbers, draw = drawing(key)(num_lengths), drawing(key, num_lengths)
      if self.numbers == "permutation":
        assert isinstance(task, ArithmeticTask)
        low, high = (NUM_TRAIN, POPULATION) if held_out else (0, NUM_TRAIN)
        value = low + uniform_int(numbers, high - low)
        # The numbers stand in for lengths, which `from_values` does not use.
        size = Size(numbers, width, bound)
        values = jnp.asarray(permutation(self.seed))[value]
        return task.from_values(values, draw, size)
      if self.natural:
        lengths = self.lengths.draw_natural(
          numbers, width - task.slack, task.long_operands
        )
      else:
        lengths = self.lengths.draw(numbers, bucket)
      return task.example(draw, Size(lengths, width, bound))

    batch = pack(self.kind, task, make_example, index_B)
    if not self.num_kept:
      return batch
    # The numbers of an example depend on its index alone, like the example.
    key = rng.stream(self.seed, f"{stream}/{self.name}/{bucket}/{RESTRICTED}")
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, index_B)
    shape = (1 + batch.inputs.shape[1],)
    numbers = jax.vmap(lambda key: jax.random.uniform(key, shape))(keys)
    return restrict(task, batch, self.num_kept, numbers)

  def sample(
    self,
    key: jax.Array,
    count: int,
    bucket: int,
    width_index: int | jax.Array = 0,
    held_out: bool = False,
    seed: int | jax.Array | None = None,
  ) -> Batch:
    """Draws `count` examples of a bucket uniformly with replacement, and with
    the seed of a training its counterexamples in place of some.

    Held-out examples come from a stream of their own, which is endless; with
    "permutation" their operands are the integers held out of training.
    """
    if self.size and not held_out:
      bucket_size = self.lengths.bucket_counts(self.size)[bucket]
      # The examples are split over the widths.
      bucket_size = max(bucket_size // self.num_widths, 1)
      index_B = jax.random.randint(key, (count,), 0, bucket_size)
    else:
      index_B = jax.random.bits(key, (count,), jnp.uint32)
    batch = self.examples(index_B, bucket, width_index, held_out)
    if seed is None or not self.counterexamples:
      return batch
    return self._with_counterexamples(batch, key, seed, width_index)

  def _with_counterexamples(
    self,
    batch: Batch,
    key: jax.Array,
    seed: int | jax.Array,
    width_index: int | jax.Array,
  ) -> Batch:
    """Returns a batch of the data set's only bucket in which counterexamples of
    a seed take the place of the first examples; at natural widths they are
    those of this width, in grids those with at least as many rows, and if there
    are none the batch stays as it is."""
    seeds, texts = zip(*self.counterexamples, strict=True)
    width, bound = self._width(width_index), self.bound(0)
    items, lengths = map(
      jnp.array, item_arrays(self.task, map(self.task.parse, texts), bound)
    )
    allowed = jnp.array(seeds) == seed
    if self.natural:
      allowed &= lengths.max(axis=1) == width - self.task.slack
    elif self.task.axes > 1:
      # Rows beyond the width are left out; missing ones would be padding.
      allowed &= lengths[:, 1] >= width[1]
      if self.task.operand_in == "own":  # its rows are laid out by their size
        allowed &= lengths[:, 0] == width[0]
    count = max(int(self.share * len(batch.inputs)), 1)
    key = jax.random.fold_in(key, count)
    p = allowed.astype(jnp.float32)
    drawn = jax.random.choice(key, len(texts), (count,), p=p)
    typed = _pack_items(
      self.task, self.kind, items[drawn], lengths[drawn], width, bound
    )
    overwrite = lambda old, new: old.at[:count].set(
      jnp.where(allowed.any(), new, old[:count])
    )
    return map_examples(overwrite, batch, typed)


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
  """Returns examples of a test set of a main task, each a function of `key` and
  its index in `index_B`.

  The length in the task's units and the width are one for all operands or [O],
  and traced; `bound` is the static one of the examples' Size, so that one
  program serves all lengths and widths up to it. `arguments` are further ones
  of the test set's function.
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
  """Returns a batch of inputs of a main task, (items, lengths) each as
  `task.parse` returns them; the items of a single operand may also be [n].

  They are padded to one width unless the task is ragged; `bound` is as in
  `test_batch`.
  """
  return _batch_of_items(
    task,
    kind,
    *item_arrays(task, parsed, bound),
    np.asarray(width, np.int32),
    bound,
  )


def item_arrays(
  task: Task, parsed: Iterable[tuple[Ids, Ids]], bound: Width
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the items [B, O, n] and lengths [B, O] of parsed inputs."""
  all_items, all_lengths = zip(*parsed, strict=True)
  lengths = np.array(all_lengths, np.int32)
  items = np.zeros((*lengths.shape, task.num_items(bound)), np.int32)
  for i, typed_items in enumerate(all_items):
    items[i, :, : np.shape(typed_items)[-1]] = typed_items
  return items, lengths


def _pack_items(
  task: Task,
  kind: str,
  items: Array,
  lengths: Array,
  width: Array,
  bound: Width,
) -> Batch:
  """Returns the examples of items [B, O, n] of lengths [B, O]."""
  make_example = lambda example_items, example_lengths: task.from_items(
    example_items, Size(example_lengths, width, bound)
  )
  return pack(kind, task, make_example, items, lengths)


_batch_of_items = jit_unoptimized(0, 1, 5)(_pack_items)  # for all widths
