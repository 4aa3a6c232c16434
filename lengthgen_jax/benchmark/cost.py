"""The cost of a function is read off its jaxpr before it is compiled."""

import collections
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class Product(NamedTuple):
  """A Product holds the arguments of jax.lax.dot_general for a matrix product.

  Attributes:
    left, right: shapes of the two factors.
    dimensions: dimension_numbers: contracted axes, then batch axes, each of
      both factors.
    precision: of the product.
    dtypes: of the left factor, of the right one and of the result; the last is
      None where dot_general chooses it.
  """

  left: tuple[int, ...]
  right: tuple[int, ...]
  dimensions: tuple
  precision: jax.lax.PrecisionLike
  dtypes: tuple

  @property
  def flops(self) -> float:
    """Returns the number of additions and multiplications."""
    (contracted, _), (shared, _) = self.dimensions
    inside = math.prod(self.left[axis] for axis in (*contracted, *shared))
    return 2.0 * math.prod(self.left) * math.prod(self.right) / inside


class Cost(NamedTuple):
  """A Cost holds the work of one call of a function.

  Attributes:
    flops: additions and multiplications of matrix products.
    written: bytes of all intermediates together, if nothing were fused.
    largest: bytes of the largest intermediate.
    equations: number of equations in the jaxpr, which compilation time grows
      with.
    products: how often each Product is computed.
  """

  flops: float
  written: float
  largest: int
  equations: int
  products: collections.Counter[Product]


def cost(
  function: Callable[..., Any],
  arguments: tuple,
  loops: tuple[int, ...] = (),
) -> Cost:
  """Returns the cost of function(*arguments).

  Args:
    function: a function that jax.jit can compile.
    arguments: arrays, or their shapes.
    loops: trip counts of while loops whose count is not static, by depth; a
      loop deeper than these counts as one trip.
  """
  closed = jax.make_jaxpr(function)(*arguments)
  return _of(closed.jaxpr, loops)


def _of(jaxpr, loops: tuple[int, ...]) -> Cost:
  """Returns the cost of a jaxpr and of all jaxprs inside it."""
  flops, written, largest, count = 0.0, 0.0, 0, 0
  products = collections.Counter()
  for equation in jaxpr.eqns:
    sizes = [_bytes(v.aval) for v in equation.outvars]
    times, inner = _inside(equation, loops)
    count += 1
    if equation.primitive.name == "dot_general":
      product = _product(equation)
      products[product] += 1
      flops += product.flops
    if not inner:
      written += sum(sizes)
    largest = max(largest, *sizes, 0)
    for part in inner:
      flops += times * part.flops
      written += times * part.written
      largest = max(largest, part.largest)
      count += part.equations
      for name, repeats in part.products.items():
        products[name] += int(times * repeats)
  return Cost(flops, written, largest, count, products)


def _inside(equation, loops: tuple[int, ...]) -> tuple[int, list[Cost]]:
  """Returns how often an equation runs the jaxprs inside it, and their costs;
  of several branches, the cost of the most expensive one."""
  name, params = equation.primitive.name, equation.params
  if name == "cond":
    branches = [_of(branch.jaxpr, loops) for branch in params["branches"]]
    return 1, [max(branches, key=lambda one: (one.flops, one.written))]
  times, deeper = 1, loops
  if name == "while":
    times, deeper = (*loops, 1)[0], loops[1:]
  elif name == "scan":
    times = params["length"]
  parts = [getattr(param, "jaxpr", param) for param in params.values()]
  parts = [param for param in parts if hasattr(param, "eqns")]
  return times, [_of(param, deeper) for param in parts]


def _bytes(aval) -> int:
  """Returns the size of an abstract value in bytes."""
  size = math.prod(getattr(aval, "shape", ()))
  return size * getattr(getattr(aval, "dtype", None), "itemsize", 4)


def _product(equation) -> Product:
  """Returns the Product of a dot_general equation."""
  left, right = (v.aval for v in equation.invars)
  params = equation.params
  return Product(
    left.shape,
    right.shape,
    params["dimension_numbers"],
    params["precision"],
    (left.dtype, right.dtype, params["preferred_element_type"]),
  )
