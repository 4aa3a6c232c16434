"""Position encodings, by the name that positions.kind has.

Users register their own beside these (lengthgen_jax.register).
"""

from lengthgen_jax.attention.positions.absolute import (
  Learned,
  Rope,
  Sinusoidal,
  SinusoidalCoordinates,
)
from lengthgen_jax.attention.positions.encoding import PositionEncoding
from lengthgen_jax.attention.positions.extras import (
  Abacus,
  Coupling,
  Fire,
  Randomized,
)
from lengthgen_jax.attention.positions.relative import T5, Alibi, Nape
from lengthgen_jax.errors import check
from lengthgen_jax.registry import Registry, check_methods


def check_encoding(name: str, encoding: type) -> None:
  """Raises UsageError if what a user registers is no subclass of
  PositionEncoding, or one of its methods has other parameters than there."""
  check(
    isinstance(encoding, type) and issubclass(encoding, PositionEncoding),
    f"register: position encoding {name!r} is no subclass of PositionEncoding",
  )
  check_methods(f"position encoding {name!r}", encoding, PositionEncoding)


POSITIONS = Registry(
  "position encoding",
  {
    "none": PositionEncoding,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rope": Rope,
    "alibi": Alibi,
    "nape": Nape,
    "coordinates": SinusoidalCoordinates,
    "t5": T5,
    "fire": Fire,
    "abacus": Abacus,
    "coupling": Coupling,
    "randomized": Randomized,
  },
  check_encoding,
)
