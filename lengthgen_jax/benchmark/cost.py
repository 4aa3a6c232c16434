"""What a function costs before it is compiled: read off its jaxpr."""

import collections
import math
from typing import NamedTuple

import jax


class Product(NamedTuple):
  """A matrix product: what dot_general is told."""

  left: tuple
  right: tuple
  dimensions: tuple
  precision: object
  dtypes: tuple

  @property
  def flops(self) -> float:
    """Additions and multiplications."""
    (contracted, _), (shared, _) = self.dimensions
    inside = math.prod(self.left[axis] for axis in (*contracted, *shared))
    return 2.0 * math.prod(self.left) * math.prod(self.right) / inside


class Cost(NamedTuple):
  """What one call does.

  Attributes:
    flops: additions and multiplications of matrix products.
    written: bytes of every intermediate, were nothing fused.
    largest: bytes of the largest of them.
    equations: of the program, which is what compiling takes time for.
    products: how often each Product is taken.
  """

  flops: float
  written: float
  largest: int
  equations: int
  products: collections.Counter


def cost(function, arguments: tuple, loops: tuple = ()) -> Cost:
  """The cost of function(*arguments).

  Args:
    function: jittable.
    arguments: arrays, or their shapes.
    loops: how often loops without a static count go round, by depth; once
      where it says nothing.
  """
  closed = jax.make_jaxpr(function)(*arguments)
  return _of(closed.jaxpr, loops)


def _of(jaxpr, loops: tuple) -> Cost:
  flops, written, largest, count = 0.0, 0.0, 0, 0
  products = collections.Counter()
  for equation in jaxpr.eqns:
    sizes = [_bytes(v.aval) for v in equation.outvars]
    times, inner = _inside(equation, loops)
    count += 1
    if equation.primitive.name == "dot_general":
      own = _product(equation)
      products[own] += 1
      flops += own.flops
    if not inner:
      written += sum(sizes)
    largest = max(largest, *sizes, 0)
    for part in inner:
      flops += times * part.flops
      written += times * part.written
      largest = max(largest, part.largest)
      count += part.equations
      for name, often in part.products.items():
        products[name] += int(times * often)
  return Cost(flops, written, largest, count, products)


def _inside(equation, loops: tuple):
  """How often an equation runs what is inside it, and the costs of that; of
  several branches, the one that costs most."""
  name, told = equation.primitive.name, equation.params
  if name == "cond":
    found = [_of(branch.jaxpr, loops) for branch in told["branches"]]
    return 1, [max(found, key=lambda one: (one.flops, one.written))]
  times, deeper = 1, loops
  if name == "while":
    times, deeper = (*loops, 1)[0], loops[1:]
  elif name == "scan":
    times = told["length"]
  parts = [getattr(own, "jaxpr", own) for own in told.values()]
  parts = [own for own in parts if hasattr(own, "eqns")]
  return times, [_of(own, deeper) for own in parts]


def _bytes(aval) -> int:
  size = math.prod(getattr(aval, "shape", ()))
  return size * getattr(getattr(aval, "dtype", None), "itemsize", 4)


def _product(equation) -> Product:
  left, right = (v.aval for v in equation.invars)
  told = equation.params
  return Product(
    left.shape,
    right.shape,
    told["dimension_numbers"],
    told["precision"],
    (left.dtype, right.dtype, told["preferred_element_type"]),
  )
