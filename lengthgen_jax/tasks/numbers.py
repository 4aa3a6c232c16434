"""The base class of tasks whose operands are numbers: tokens of their digits,
and text."""

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check, quoted
from lengthgen_jax.tasks.task import Ids, OperandPlace, Task, Tokens

# The 15 tokens of the ABS/ABC paper (section 3), where a digit's id is its
# value, and `=`, which stands between prompt and output in one sequence. `$`
# starts a sequence, `&` ends an output, `@` is PAD.
TOKENS = "0123456789+*$&@="


def number_text(digits: str) -> str:
  """Returns a number whose least significant digit comes first as people write
  it."""
  return digits[::-1].lstrip("0") or "0"


class NumberTask(Task):
  """The base class of tasks that read digits and write digits.

  A segment of the prompt is an operand with the token on its left, or all
  operands together if their digits alternate; an output is closed by `&`.
  """

  # The character between two operands; "" for one operand. One that is not
  # among TOKENS has the id of `+`.
  operator: ClassVar[str] = ""
  unit = "digits"
  ragged = False
  of_digits = True
  base = 10
  vocab_size = 15  # the papers' tokens; only decoder-only models add `=`
  start, end, pad, delimiter = map(TOKENS.index, "$&@=")

  @property
  def token_names(self) -> str:
    return (
      TOKENS if self.operator in TOKENS else TOKENS.replace("+", self.operator)
    )

  def constrain(self, items: jax.Array) -> jax.Array:
    """Returns operands [operands, n] that fulfill the task's constraint, made
    from any, and those that do as they are; by default none are excluded.

    All examples are made through it, and a typed expression that it would
    change is refused.
    """
    return items

  @property
  def is_constrained(self) -> bool:
    return type(self).constrain is not NumberTask.constrain

  def operand_place(self, segment: int, left: int, right: int) -> OperandPlace:
    return (segment, right) if left else None

  def number_tokens(
    self,
    items: Array,
    width: int | Array,
    marks: str,
    segment: int,
    axis: int = 0,
  ) -> Tokens:
    """Returns the tokens of one segment: its marks, as many as operands, then
    `width` digits of each operand, most significant first and in turn."""
    count, longest = items.shape
    place = jnp.arange(count * (longest + 1))
    digit = jnp.clip(width - place // count, 0, longest - 1)
    mark_ids = jnp.array(self.encode(marks), jnp.int32)
    ids = jnp.asarray(items)[place % count, digit].at[:count].set(mark_ids)
    return self.segment_tokens(ids, count * (width + 1), segment, axis, count)

  @property
  def usage(self) -> str:
    if self.operands == 1:
      return "99999" if self.base == 10 else "0110"
    second = [4, 0, 0] if self.short_operand else [6, 5, 4]
    items = _allowed(self, np.array([[3, 2, 1], second]))
    return self.input_text(items, [3, 1 if self.short_operand else 3])

  def parse(self, text: str) -> tuple[np.ndarray, list[int]]:
    expected = f"{self.name} takes {self.own_unit} like {self.usage}"
    expression = "".join(text.split())
    check(expression, f"empty line; {expected}")
    characters = "0123456789"[: self.base] + self.operator
    wrong = next((x for x in expression if x not in characters), None)
    check(
      wrong is None, f"{quoted(text)} has the character {wrong!r}; {expected}"
    )
    parts = expression.split(self.operator) if self.operator else [expression]
    lengths = [len(part) for part in parts]
    problem = None
    if len(parts) != self.operands:
      problem = f"has {len(parts) - 1} operators {self.operator!r}"
    elif not all(parts):
      problem = "lacks an operand"
    elif self.short_operand and lengths[-1] != 1:
      problem = f"has a multiplier of {lengths[-1]} digits"
    check(not problem, f"{quoted(text)} {problem}; {expected}")
    padded = (part[::-1].ljust(max(lengths), "0") for part in parts)
    items = np.array([list(map(int, operand)) for operand in padded], np.int32)
    check(
      np.array_equal(items, _allowed(self, items)),
      f"{quoted(text)} has operands that {self.name} excludes; {expected}",
    )
    return items, lengths

  def input_text(self, items: np.ndarray, lengths: Sequence[int]) -> str:
    return self.operator.join(
      "".join(map(str, number[:n][::-1]))
      for number, n in zip(items, lengths, strict=True)
    )

  def encode(self, text: str) -> list[int]:
    """Returns the token ids of a text."""
    return [*map(self.token_names.index, text)]

  def decode(self, ids: Ids) -> str:
    """Returns token ids as text."""
    return "".join(self.symbols(ids))

  def render(self, ids: Ids) -> str:
    return number_text(self.output_digits(ids))

  def output_digits(self, ids: Ids) -> str:
    """Returns the digits of an output in the order in which it was written.

    Raises:
      ValueError: there is no end token, or it does not follow digits alone.
    """
    digits, end, _ = self.decode(ids).partition("&")
    check(end, f"no end token '&' after {quoted(digits)}")
    check(
      digits and set(digits) <= set("0123456789"[: self.base]),
      f"the model wrote {quoted(digits)}, which is no number",
    )
    return digits


def _allowed(task: NumberTask, items: np.ndarray) -> np.ndarray:
  """Returns what `task.constrain` makes of typed operands."""
  if not task.is_constrained:
    return items
  constrain = jax.jit(type(task).constrain, static_argnums=0)
  return np.asarray(constrain(task, items))
