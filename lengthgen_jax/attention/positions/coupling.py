"""This module implements position coupling: related tokens share a position."""

from lengthgen_jax.attention.positions.abacus import Abacus


class Coupling(Abacus):
  """Coupling adds a vector for every place, operators and end tokens included.

  Cho et al. 2024: digits of the same significance, and the output made of them,
  have one position id; ids of an example start at one random number in
  training. Here a row bears the place of the digit that it must output.
  """

  marks = True
