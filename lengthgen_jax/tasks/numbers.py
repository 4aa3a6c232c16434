"""Numbers as operands: tokens of their digits, and text."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from lengthgen_jax.errors import shown
from lengthgen_jax.tasks.task import Task, characters, expect
from lengthgen_jax.tasks.vocabulary import ARITHMETIC


class NumberTask(Task):
  """Digits in, digits out. A segment of the prompt is an operand with the token
  on its left; an output is closed by `&`.

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
  vocab_size = 15  # the papers'; `=` is a decoder-only model's alone
  start, end, pad, delimiter = ARITHMETIC.encode("$&@=")

  @property
  def shared(self) -> tuple[int, ...]:
    """Operands of one digit, which every place reads."""
    return (1,) if self.short_operand else ()

  def number(self, items, width, marks: str, segment: int, axis: int = 0):
    """The marks, then the operands' digits in turn, most significant first."""
    count, longest = items.shape
    place = jnp.arange(count * (longest + 1))
    digit = jnp.clip(width - place // count, 0, longest - 1)
    first = jnp.array(self.vocabulary.encode(marks), jnp.int32)
    ids = items[place % count, digit].at[:count].set(first)
    return self.run(ids, count * (width + 1), segment, axis, marks=count)

  @property
  def usage(self):
    if self.operands == 1:
      return "99999" if self.base == 10 else "0110"
    return f"123{self.operator}{4 if self.short_operand else 456}"

  def parse(self, text):
    """Digits [O, longest] of a typed expression, and its operands' lengths.

    Spaces are ignored.
    """
    what = "bits" if self.base == 2 else "digits"
    wanted = f"{self.name} takes {what} like {self.usage}"
    allowed = "0123456789"[: self.base] + self.operator
    kept = characters(text, allowed, wanted)
    parts = kept.split(self.operator) if self.operator else [kept]
    found, last = len(parts) - 1, len(parts[-1])
    for is_right, why in (
      (found + 1 == self.operands, f"has {found} operators {self.operator!r}"),
      (all(parts), "lacks an operand"),
      (
        not self.short_operand or last == 1,
        f"has a multiplier of {last} digits",
      ),
    ):
      expect(is_right, f"{shown(text)} {why}; {wanted}")
    lengths = [len(part) for part in parts]
    padded = (part[::-1].ljust(max(lengths), "0") for part in parts)
    items = np.array([list(map(int, own)) for own in padded], np.int32)
    return items, lengths

  def typed(self, items, length: int) -> str:
    """What a person types for digits [O, L] of so many places."""
    numbers = [
      own[: 1 if i in self.shared else length][::-1]
      for i, own in enumerate(items)
    ]
    return self.operator.join("".join(map(str, own)) for own in numbers)

  def symbols(self, ids):
    return list(self.vocabulary.decode(ids))

  def render(self, ids):
    """The answer in ordinary order without leading zeros."""
    tokens = self.vocabulary.decode(ids)
    body, end, _ = tokens.partition("&")
    expect(end, f"no end token '&' after {shown(body)}")
    expect(
      body and set(body) <= set("0123456789"[: self.base]),
      f"the model wrote {shown(body)}, which is no number",
    )
    return body[::-1].lstrip("0") or "0"
