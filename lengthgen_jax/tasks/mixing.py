"""Decides which examples of which tasks each gradient step is made of.

A round of training is one or more gradient steps, a step is a share of examples
for one or more heads, and a share has parts of static size, one for each bucket
of lengths.
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
  """Returns the gradient steps of one round.

  They are strictly alternating steps (task hinting paper, section 4.1), or one
  step on a batch that all tasks share by weight.

  Args:
    heads: names of the tasks, the main one's first.
    lengths: of all tasks.
    batch_size: examples of a gradient step.
    kind: one of MIXING.
    weights: of the tasks, () for equal ones.

  Raises:
    UsageError: the weights are not valid, or leave a bucket empty.
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
