"""Increment and its carry hint (task hinting paper, section 3.2)."""

from reprlib import repr as shown

import jax.numpy as jnp

from lengthgen_jax.tasks.sequence import Example, SequenceTask, below


class Increment(SequenceTask):
  """A number plus one, least significant digit first, one digit more.

  Digit d is item d + 1, so V is 10. The first digit is not 0.

  `1 9 9 ⊥` -> `0 0 2 0`; `4 2 ⊥` -> `3 4 0`.
  """

  name = "increment"
  unit = "digits"

  def draws(self, longest):
    return 2 + longest

  def example(self, numbers, length, longest):
    digits = below(numbers[2:], 10)
    digits = digits.at[0].set(1 + below(numbers[2], 9))
    run = below(numbers[1], length) + 1
    run = jnp.where(numbers[0] < self.nines_share, run, 0)
    place = length - 1 - jnp.arange(longest)  # 0 is least significant
    return self.answered(jnp.where(place < run, 9, digits) + 1, length)

  def answered(self, items, length):
    output, _ = self._sum(items, length)
    return Example(
      self._prompt(items, length), length + 1, output, length + 1, length
    )

  def _prompt(self, items, length):
    padded = jnp.pad(items, (0, 1))
    place = jnp.arange(padded.shape[0])
    return jnp.where(place == length, self.delimiter, padded)

  def _sum(self, items, length):
    """Output items [P + 1], least significant first, and carries [P + 1]: what
    goes into each place."""
    place = jnp.arange(items.shape[0] + 1)
    at = jnp.clip(length - 1 - place, 0, items.shape[0] - 1)
    digits = jnp.where(place < length, items[at] - 1, 0)
    nine = (digits == 9) & (place < length)
    before = jnp.cumprod(nine.astype(jnp.int32))
    carries = jnp.concatenate([jnp.ones((1,), jnp.int32), before[:-1]])
    return (digits + carries) % 10 + 1, carries

  def packed_length(self, longest):
    return 2 * longest + 2

  def outputs(self, length):
    return length + 1

  def parse(self, text):
    wanted = "increment takes digits like 1999"
    if not text:
      raise ValueError(f"empty line; {wanted}")
    bad = next((c for c in text if c not in "0123456789"), None)
    if bad is not None:
      raise ValueError(f"{shown(text)} has the character {bad!r}; {wanted}")
    return [int(c) + 1 for c in text]

  def render(self, tokens):
    digits = [int(token) - 1 for token in tokens]
    for digit in digits:
      if not 0 <= digit <= 9:
        raise ValueError(
          f"the model wrote token {digit + 1}, which is no digit"
        )
    return "".join(map(str, digits[::-1])).lstrip("0") or "0"


class CarryHint(Increment):
  """The same output, each digit followed by the carry marker and the carry
  that goes into the next place.

  `1 9 ⊥` -> `0 c 1 2 c 0 0 c 0`; `4 2 ⊥` -> `3 c 0 4 c 0 0 c 0`.
  """

  name = "increment_carry"

  def answered(self, items, length):
    output, carries = self._sum(items, length)
    out = jnp.concatenate([carries[1:], jnp.zeros((1,), jnp.int32)]) + 1
    out = jnp.where(jnp.arange(out.shape[0]) < length, out, 1)
    marker = jnp.full_like(output, self.delimiter + 1)
    output = jnp.stack([output, marker, out], axis=1).reshape(-1)
    return Example(
      self._prompt(items, length), length + 1, output, 3 * length + 3, length
    )

  def packed_length(self, longest):
    return longest + 1 + 3 * (longest + 1)

  def outputs(self, length):
    return 3 * length + 3
