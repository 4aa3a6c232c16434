"""Position encodings by name: a line each here."""

from lengthgen_jax.attention.positions import (
  encoding,
  learned,
  relative,
  rope,
  sinusoidal,
)

POSITIONS = {
  "none": encoding.PositionEncoding,
  "sinusoidal": sinusoidal.Sinusoidal,
  "learned": learned.Learned,
  "rope": rope.Rope,
  "alibi": relative.Alibi,
  "coordinates": sinusoidal.Coordinates,
  "t5": relative.T5,
  "fire": relative.Fire,
  "abacus": learned.Abacus,
  "coupling": learned.Coupling,
  "randomized": sinusoidal.Randomized,
}
