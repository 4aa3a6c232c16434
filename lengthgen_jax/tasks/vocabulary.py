"""Token alphabets and their string form."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Vocabulary:
  """An ordered alphabet of one-character tokens.

  Attributes:
    symbols: one character per token id.
    start: the character fed to the decoder first and put before the source.
    end: the character that closes a target.
    pad: the character of keys that do not exist.
  """

  symbols: str
  start: str = "$"
  end: str = "&"
  pad: str = "@"

  def __len__(self) -> int:
    return len(self.symbols)

  def id(self, symbol: str) -> int:
    return self.symbols.index(symbol)

  def encode(self, text: str) -> list[int]:
    """Token ids of `text`; ValueError on a character outside the alphabet."""
    return [self.symbols.index(symbol) for symbol in text]

  def decode(self, ids) -> str:
    return "".join(self.symbols[int(i)] for i in ids)


# The 15 tokens of the ABS/ABC paper (section 3), where a digit's id is its
# value, and `=`, which stands between prompt and output in one sequence.
ARITHMETIC = Vocabulary("0123456789+*$&@=")
