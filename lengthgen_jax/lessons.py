"""What one round of training consists of, for every family of tasks.

A round is a sequence of lessons; a lesson is one gradient step on one or more
heads; a head's share of it comes in parts of static size.
"""

from typing import NamedTuple


class Part(NamedTuple):
  """`count` examples of one static size: a width W, or a bucket's number."""

  size: int
  count: int


class Share(NamedTuple):
  """What one head contributes to a gradient step.

  Attributes:
    head: name of the task.
    weight: of its mean loss.
    parts: where its examples come from.
  """

  head: str
  weight: float
  parts: tuple[Part, ...]


Lesson = tuple[Share, ...]
