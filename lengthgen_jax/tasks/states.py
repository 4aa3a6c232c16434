"""What tasks of state tracking share: every state is said, or the last one."""

import dataclasses

import jax.numpy as jnp

from lengthgen_jax.errors import check_choice
from lengthgen_jax.tasks.sequences import SequenceTask

ANSWERS = ("states", "final")


@dataclasses.dataclass(frozen=True)
class StateTask(SequenceTask):
  """A sequence of items, and the state that an automaton is in after each.

  Attributes:
    answer: "states", every prefix's state is said, in order; "final", the last
      one alone, which is no transducer over the outputs.
  """

  answer: str = "states"

  def __post_init__(self):
    check_choice(f"{self.section}.answer", self.answer, ANSWERS)

  @property
  def transducer(self):
    return self.answer == "states"

  @property
  def strides(self):
    return (1,) if self.transducer else ()

  def said(self, outputs, length):
    if self.transducer:
      return outputs, length
    return jnp.take(outputs, length - 1)[None], 1

  def render(self, ids):
    """The last state, which is the answer."""
    return super().render(ids).split()[-1]
