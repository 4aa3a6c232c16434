"""Defines the base class of state tracking tasks: the model writes every state,
or the last one."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check_choice
from lengthgen_jax.tasks.sequences import SequenceTask

ANSWERS = ("states", "final")


@dataclasses.dataclass(frozen=True)
class StateTask(SequenceTask):
  """Asks for the state that an automaton is in after each item of a sequence.

  Attributes:
    answer: "states", the outputs are every prefix's state, in order; "final",
      the last one alone, which is no transducer over the outputs.
  """

  answer: str = "states"

  def __post_init__(self):
    check_choice(f"{self.section}.answer", self.answer, ANSWERS)

  @property
  def transducer(self) -> bool:
    return self.answer == "states"

  @property
  def strides(self) -> tuple[int, ...]:
    return (1,) if self.transducer else ()

  def said(
    self, outputs: jax.Array, length: int | Array
  ) -> tuple[jax.Array, int | Array]:
    if self.transducer:
      return outputs, length
    return jnp.take(outputs, length - 1)[None], 1

  def render(self, ids: Sequence[int] | np.ndarray) -> str:
    """Returns the last state, which is the answer."""
    return super().render(ids).split()[-1]
