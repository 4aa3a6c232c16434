"""Defines token alphabets, and converts tokens from and to text."""

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  """Describes an ordered alphabet of one-character tokens.

  Attributes:
    symbols: one character per token id.
  """

  symbols: str

  def encode(self, text: str) -> list[int]:
    """Returns the token ids of `text`.

    Raises:
      ValueError: a character is not in the alphabet.
    """
    return [self.symbols.index(symbol) for symbol in text]

  def decode(self, ids: Iterable[int]) -> str:
    """Returns token ids as text."""
    return "".join(self.symbols[int(token)] for token in ids)


# The 15 tokens of the ABS/ABC paper (section 3), where a digit's id is its
# value, and `=`, which stands between prompt and output in one sequence. `$`
# starts a sequence, `&` ends an output, `@` is a key that does not exist.
ARITHMETIC = Vocabulary("0123456789+*$&@=")
