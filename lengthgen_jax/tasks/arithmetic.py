"""What the arithmetic tasks share: formats, segments, sampling, parsing."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Coordinates, segments
from lengthgen_jax.tasks import digits
from lengthgen_jax.tasks.batch import Batch
from lengthgen_jax.tasks.vocabulary import ARITHMETIC


@dataclasses.dataclass(frozen=True)
class ArithmeticTask:
  """Digits in, digits of the answer out, least significant first.

  The source is `$` and the expression, operands left-padded with zeros to a
  common width W; the target is W reversed digits and `&`. A segment is an
  operand with the token on its left, so that the row which must say `&` has a
  key that marks the end of the number. The aligned form (ABS paper, section
  4.1) puts the operator first and interleaves the operands' digits.

  Attributes:
    aligned: whether a binary task interleaves its operands.
    slack: zero digits that `width=natural` puts before the longest operand.
  """

  aligned: bool = False
  slack: int = 2

  name: ClassVar[str]
  operator: ClassVar[str] = ""
  operands: ClassVar[int] = 1
  base: ClassVar[int] = 10
  short_operand: ClassVar[bool] = False  # the second operand is one digit
  family: ClassVar[str] = "encoder_decoder"
  unit: ClassVar[str] = "digits"

  vocabulary = ARITHMETIC

  # What a task defines.

  def answer(self, operands):
    """Digits [B, W] of the result, most significant first."""
    raise NotImplementedError

  def target_length(self, width: int) -> int:
    """T, the rows of the target, end token included."""
    return width + 1

  # Sizes.

  def units(self, length: int) -> int:
    """A length in decimal digits as digits or bits of one operand."""
    return length if self.base == 10 else math.ceil(length * math.log2(10))

  def natural_width(self, length: int) -> int:
    """W of `width=natural` for a length in decimal digits."""
    return self.units(length) + self.slack

  def is_digit(self, operand: int) -> bool:
    """Whether this operand is the single digit of N×1."""
    return operand == 1 and self.short_operand

  def operand_width(self, operand: int, width: int) -> int:
    return 1 if self.is_digit(operand) else width

  # Segments.

  @property
  def interleaved(self) -> bool:
    return self.aligned and self.operands == 2

  @property
  def segment_names(self) -> tuple[str, ...]:
    if self.interleaved:
      return ("pairs",)
    return ("a", "b")[: self.operands]

  @property
  def strides(self) -> tuple[int, ...]:
    """Tokens that one output row advances in each segment (0: stays)."""
    if self.interleaved:
      return (2,)
    return (1, 0 if self.short_operand else 1)[: self.operands]

  def coordinates(self, width: int) -> Coordinates:
    """Coordinates of the source keys at width W."""
    if self.interleaved:
      return segments(2 * width + 2)
    widths = [self.operand_width(i, width) for i in range(self.operands)]
    return segments(*(w + 1 for w in widths))

  # Examples.

  def source(self, operands):
    """[B, S] tokens of `$` and the expression."""
    batch = operands[0].shape[0]
    token = lambda s: jnp.full((batch, 1), self.vocabulary.id(s), jnp.int32)
    start = token(self.vocabulary.start)
    if self.operands == 1:
      return jnp.concatenate([start, operands[0]], axis=1)
    a, b = operands
    operator = token(self.operator)
    if self.interleaved:
      pairs = jnp.stack([a, jnp.broadcast_to(b, a.shape)], axis=2)
      return jnp.concatenate([start, operator, pairs.reshape(batch, -1)], 1)
    return jnp.concatenate([start, a, operator, b], axis=1)

  def encode(self, operands, length_B=None) -> Batch:
    """The batch of expressions whose operands have the given digits.

    Args:
      operands: a list of [B, W] int32 digit arrays ([B, 1] for the single
        digit), most significant first.
      length_B: length of the longest operand, for the record.
    """
    batch, width = operands[0].shape
    end = jnp.full((batch, 1), self.vocabulary.id(self.vocabulary.end))
    answer = self.answer(operands)[:, ::-1]
    target = jnp.concatenate([answer, end], axis=1).astype(jnp.int32)
    if length_B is None:
      length_B = jnp.full((batch,), width, jnp.int32)
    return Batch(
      source=self.source(operands).astype(jnp.int32),
      target=target,
      weight=jnp.ones(target.shape, jnp.float32),
      length=length_B,
      coordinates=self.coordinates(width),
    )

  def sample(self, key, length_BxO, width: int, exact: bool = False) -> Batch:
    """Examples with operands of the given lengths, drawn uniformly.

    Args:
      key: PRNG key.
      length_BxO: traced lengths of each operand in digits (bits for parity);
        the length of a single-digit operand is ignored.
      width: W, static.
      exact: whether leading digits must not be zero.
    """
    drawn, longest_B = [], 0
    for i, one in enumerate(jax.random.split(key, self.operands)):
      length_B = length_BxO[:, i]
      if self.is_digit(i):
        drawn.append(digits.draw(one, jnp.ones_like(length_B), 1, 10, False))
      else:
        drawn.append(digits.draw(one, length_B, width, self.base, exact))
        longest_B = jnp.maximum(longest_B, length_B)
    return self.encode(drawn, longest_B)

  def sample_values(self, key, value_BxO, width: int) -> Batch:
    """Examples from integers below 2^20 (the papers' interpolation set)."""
    drawn = []
    for i in range(self.operands):
      if self.is_digit(i):
        one = jnp.ones(value_BxO.shape[:1], jnp.int32)
        drawn.append(digits.draw(key, one, 1, 10, False))
      else:
        drawn.append(digits.from_value(value_BxO[:, i], width, self.base))
    return self.encode(drawn)

  # Text.

  @property
  def usage(self) -> str:
    """An example of an expression, for messages."""
    if self.operands == 1:
      return "99999" if self.base == 10 else "0110"
    return f"123{self.operator}{4 if self.short_operand else 456}"

  def parse(self, text: str) -> list[np.ndarray]:
    """Operands of a typed expression as digit arrays of their own lengths.

    Raises:
      ValueError: one line that names the text and what would be valid.
    """
    parts = text.split(self.operator) if self.operator else [text]
    allowed = "0123456789"[: self.base]
    what = "bits" if self.base == 2 else "digits"
    wanted = f"{self.name} takes {what} like {self.usage}"
    bad = next((c for c in text if c not in allowed + self.operator), None)
    if not text:
      raise ValueError(f"empty line; {wanted}")
    if bad is not None:
      raise ValueError(f"{text!r} has the character {bad!r}; {wanted}")
    if len(parts) != self.operands:
      found = len(parts) - 1
      raise ValueError(
        f"{text!r} has {found} operators {self.operator!r}; {wanted}"
      )
    if not all(parts):
      raise ValueError(f"{text!r} lacks an operand; {wanted}")
    if self.short_operand and len(parts[1]) != 1:
      raise ValueError(
        f"{text!r} has a multiplier of {len(parts[1])} digits; {wanted}"
      )
    return [np.array([int(c) for c in part], np.int32) for part in parts]

  def encode_text(self, parsed, width: int) -> Batch:
    """Batch of several parsed expressions padded to one width."""
    padded = []
    for i in range(self.operands):
      w = self.operand_width(i, width)
      padded.append(
        jnp.stack([np.pad(p[i], (w - len(p[i]), 0)) for p in parsed])
      )
    return self.encode(padded)

  def render(self, tokens: str) -> str:
    """Answer in ordinary order without leading zeros.

    Raises:
      ValueError: the tokens before `&` are no number.
    """
    body, end, _ = tokens.partition(self.vocabulary.end)
    if not end:
      raise ValueError(f"no end token {self.vocabulary.end!r} after {body!r}")
    if not body or not set(body) <= set("0123456789"[: self.base]):
      raise ValueError(f"the model wrote {body!r}, which is no number")
    return body[::-1].lstrip("0") or "0"
