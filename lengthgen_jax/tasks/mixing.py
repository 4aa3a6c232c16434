"""Plans one round of training.

A round is a sequence of lessons; a lesson is one gradient step on one or more
heads; a head's share of it comes in parts of static size.
"""

from collections.abc import Sequence
from typing import NamedTuple

from lengthgen_jax.errors import check
from lengthgen_jax.tasks.dataset import Lengths, split

MIXING = ("alternate", "weighted")


class Part(NamedTuple):
  """This is a part of a head's share: `count` examples of one bucket."""

  bucket: int
  count: int


class Share(NamedTuple):
  """Describes the examples that one head contributes to a gradient step.

  Attributes:
    head: name of the task.
    weight: of its mean loss.
    parts: where its examples come from.
  """

  head: str
  weight: float
  parts: tuple[Part, ...]


StepSpec = tuple[Share, ...]


def bucket_parts(lengths: Lengths, count: int) -> tuple[Part, ...]:
  """Splits `count` examples over the buckets, shares rounded to whole
  examples."""
  return tuple(
    Part(bucket, examples)
    for bucket, examples in enumerate(lengths.shares(count))
  )


def step_specs(
  heads: Sequence[str],
  lengths: Lengths,
  batch: int,
  kind: str,
  weights: Sequence[float],
) -> tuple[StepSpec, ...]:
  """Returns the lessons of one round.

  They are strictly alternating steps (task hinting paper, section 4.1), or one
  step on a batch that all tasks share by weight.

  Args:
    heads: names of the tasks, the main one's first.
    lengths: of all tasks.
    batch: examples of a gradient step.
    kind: "alternate" or "weighted".
    weights: of the tasks, () for equal ones.

  Raises:
    UsageError: the weights are not valid, or leave a bucket empty.
  """
  if kind == "alternate":
    check(
      not weights,
      "mixing.weights is for mixing.kind=weighted; alternating steps have none",
    )
    all_parts = bucket_parts(lengths, batch)
    return tuple((Share(head, 1.0, all_parts),) for head in heads)
  weights = weights or (1.0,) * len(heads)
  check(
    len(weights) == len(heads)
    and all(isinstance(w, int | float) and w > 0 for w in weights),
    f"mixing.weights={weights}: one number above zero for each of"
    f" {', '.join(heads)}; leave a hint out of hints to give it none",
  )
  counts = split(batch, weights)
  for head, count in zip(heads, counts, strict=True):
    # Without examples of a bucket, the distribution of lengths would differ.
    check(
      min(lengths.shares(count)) > 0,
      f"mixing.weights={weights}: {count} of a batch of {batch} are {head}'s,"
      f" too few for every bucket of {lengths.buckets}; raise its weight or"
      " train.batch_size, or choose fewer data.buckets",
    )
  shares = (
    Share(head, weight / sum(weights), bucket_parts(lengths, count))
    for head, weight, count in zip(heads, weights, counts, strict=True)
  )
  return (tuple(shares),)
