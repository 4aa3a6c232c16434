"""This package holds position encodings: one file each, and a line
here; users register theirs (lengthgen_jax.register)."""

from lengthgen_jax.attention.positions.abacus import Abacus
from lengthgen_jax.attention.positions.alibi import Alibi
from lengthgen_jax.attention.positions.coordinates import SinusoidalCoordinates
from lengthgen_jax.attention.positions.coupling import Coupling
from lengthgen_jax.attention.positions.encoding import PositionEncoding
from lengthgen_jax.attention.positions.fire import Fire
from lengthgen_jax.attention.positions.learned import Learned
from lengthgen_jax.attention.positions.randomized import Randomized
from lengthgen_jax.attention.positions.rope import Rope
from lengthgen_jax.attention.positions.sinusoidal import Sinusoidal
from lengthgen_jax.attention.positions.t5 import T5
from lengthgen_jax.errors import check
from lengthgen_jax.registry import Registry


def check_encoding(name: str, encoding: type) -> None:
  """Raises UsageError if a class is no position encoding."""
  check(
    isinstance(encoding, type) and issubclass(encoding, PositionEncoding),
    f"register: position encoding {name!r} is no subclass of PositionEncoding",
  )


POSITIONS = Registry(
  "position encoding",
  {
    "none": PositionEncoding,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rope": Rope,
    "alibi": Alibi,
    "coordinates": SinusoidalCoordinates,
    "t5": T5,
    "fire": Fire,
    "abacus": Abacus,
    "coupling": Coupling,
    "randomized": Randomized,
  },
  check_encoding,
)
