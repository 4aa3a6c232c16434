"""Defines the base class of tasks whose operands are numbers: tokens of their
digits, and text."""

from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import quoted
from lengthgen_jax.tasks.task import Task, Tokens, characters, expect
from lengthgen_jax.tasks.vocabulary import ARITHMETIC


class NumberTask(Task):
  """This is the base class of tasks that read digits and write digits.

  A segment of the prompt is an operand with the token on its left; an output is
  closed by `&`.

  Attributes:
    operator: between the operands.
    base: of their digits.
    short_operand: whether the second operand is one digit.
  """

  unit: ClassVar[str] = "digits"
  ragged: ClassVar[bool] = False
  of_digits: ClassVar[bool] = True
  operator: ClassVar[str] = ""
  base: ClassVar[int] = 10
  short_operand: ClassVar[bool] = False
  vocabulary = ARITHMETIC
  vocab_size = 15  # the papers' tokens; only decoder-only models add `=`
  start, end, pad, delimiter = ARITHMETIC.encode("$&@=")

  @property
  def shared_operands(self) -> tuple[int, ...]:
    """Returns the numbers of the operands of one digit, which every place
    reads."""
    return (1,) if self.short_operand else ()

  def number(
    self,
    items: Array,
    width: int | Array,
    marks: str,
    segment: int,
    axis: int = 0,
  ) -> Tokens:
    """Returns tokens of the marks, then of the operands' digits in turn, most
    significant first."""
    count, longest = items.shape
    place = jnp.arange(count * (longest + 1))
    digit = jnp.clip(width - place // count, 0, longest - 1)
    mark_ids = jnp.array(self.vocabulary.encode(marks), jnp.int32)
    ids = items[place % count, digit].at[:count].set(mark_ids)
    return self.segment_tokens(
      ids, count * (width + 1), segment, axis, marks=count
    )

  @property
  def usage(self) -> str:
    if self.operands == 1:
      return "99999" if self.base == 10 else "0110"
    return f"123{self.operator}{4 if self.short_operand else 456}"

  def parse(self, text: str) -> tuple[np.ndarray, list[int]]:
    """Returns the digits [O, longest] of a typed expression, and its operands'
    lengths.

    Spaces are ignored.

    Raises:
      ValueError: the text is no expression of this task.
    """
    unit = "bits" if self.base == 2 else "digits"
    expected = f"{self.name} takes {unit} like {self.usage}"
    allowed = "0123456789"[: self.base] + self.operator
    expression = characters(text, allowed, expected)
    parts = expression.split(self.operator) if self.operator else [expression]
    operator_count, last_length = len(parts) - 1, len(parts[-1])
    for is_valid, problem in (
      (
        operator_count + 1 == self.operands,
        f"has {operator_count} operators {self.operator!r}",
      ),
      (all(parts), "lacks an operand"),
      (
        not self.short_operand or last_length == 1,
        f"has a multiplier of {last_length} digits",
      ),
    ):
      expect(is_valid, f"{quoted(text)} {problem}; {expected}")
    lengths = [len(part) for part in parts]
    padded = (part[::-1].ljust(max(lengths), "0") for part in parts)
    items = np.array([list(map(int, operand)) for operand in padded], np.int32)
    return items, lengths

  def input_text(self, items: np.ndarray, length: int) -> str:
    """Returns the text that a person types for digits [O, L] of `length`
    places."""
    numbers = [
      number[: 1 if i in self.shared_operands else length][::-1]
      for i, number in enumerate(items)
    ]
    return self.operator.join("".join(map(str, number)) for number in numbers)

  def symbols(self, ids: Sequence[int] | np.ndarray) -> list[str]:
    return list(self.vocabulary.decode(ids))

  def render(self, ids: Sequence[int] | np.ndarray) -> str:
    """Returns the answer in ordinary order without leading zeros."""
    tokens = self.vocabulary.decode(ids)
    digits, end, _ = tokens.partition("&")
    expect(end, f"no end token '&' after {quoted(digits)}")
    expect(
      digits and set(digits) <= set("0123456789"[: self.base]),
      f"the model wrote {quoted(digits)}, which is no number",
    )
    return digits[::-1].lstrip("0") or "0"
