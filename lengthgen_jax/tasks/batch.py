"""What a task hands to a model: tokens, loss weights and key coordinates."""

from typing import NamedTuple

from lengthgen_jax.coordinates import Array, Coordinates


class Batch(NamedTuple):
  """A batch of sequence-to-sequence examples.

  Attributes:
    source: [B, S] int32.
    target: [B, T] int32, what each row must predict, end token included.
    weight: [B, T] float32, 1 where the loss and exact match look.
    length: [B] int32, length of the longest operand, in the task's units.
    coordinates: of the S source keys, shared by the whole batch.
  """

  source: Array
  target: Array
  weight: Array
  length: Array
  coordinates: Coordinates
