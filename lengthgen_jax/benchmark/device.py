"""A device is described and measured: matrix products and memory."""

import collections
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.benchmark.cost import Product

GOES = 5  # timed runs of a function
SIZES = (1024, 2048)  # of square matrices


def about() -> dict:
  """Returns the names and numbers of the machine that bench.json records."""
  cpus = os.cpu_count()
  if hasattr(os, "sched_getaffinity"):
    cpus = len(os.sched_getaffinity(0))
  first = jax.devices()[0]
  return {
    "device": first.device_kind if first.platform != "cpu" else processor(),
    "devices": jax.device_count(),
    "cpus": cpus,
    "load": os.getloadavg()[0],
    "jax": jax.__version__,
  }


def processor() -> str:
  """Returns the name of the CPU as the operating system has it."""
  try:
    with open("/proc/cpuinfo") as file:
      names = [line for line in file if line.startswith("model name")]
    return names[0].partition(":")[2].strip()
  except (OSError, IndexError):
    return "CPU"


def free_memory() -> float:
  """Returns how many bytes arrays may still take; infinity if unknown."""
  stats = jax.devices()[0].memory_stats() or {}
  if "bytes_limit" in stats:
    return stats["bytes_limit"] - stats["bytes_in_use"]
  try:
    with open("/proc/meminfo") as file:
      words = [line.split() for line in file if line.startswith("MemAvailable")]
    return 1024.0 * int(words[0][1])
  except (OSError, IndexError):
    return float("inf")


def seconds(function: Callable[..., Any], *arguments: Any) -> float:
  """Returns the shortest of GOES runs of a function after its compilation."""
  run = jax.jit(function)
  jax.block_until_ready(run(*arguments))
  durations = []
  for _ in range(GOES):
    clock = time.perf_counter()
    jax.block_until_ready(run(*arguments))
    durations.append(time.perf_counter() - clock)
  return min(durations)


def ceiling(dtype: str) -> dict[str, float]:
  """Measures {"flops", "bytes"} per second: of the fastest square matrix
  product, and of what an elementwise program writes."""
  rates = []
  for size in SIZES:
    x = jnp.ones((size, size), dtype)
    rates.append(2 * size**3 / seconds(lambda x: x @ x, x))
  x = jnp.ones((1 << 24,), jnp.float32)
  return {"flops": max(rates), "bytes": x.nbytes / seconds(lambda x: x + 1, x)}


def of_products(products: collections.Counter[Product]) -> float:
  """Returns the seconds that a program's matrix products take by themselves.

  Each distinct product is timed alone, in order of its work, until 2 % of all
  work is left, which is assumed to go as fast.

  Args:
    products: how often each Product is computed.
  """
  work = {product: count * product.flops for product, count in products.items()}
  total, done, spent = sum(work.values()), 0.0, 0.0
  for product in sorted(work, key=work.get, reverse=True):
    if done < 0.98 * total:
      done += work[product]
      spent += products[product] * _alone(product)
  return spent * total / done if done else 0.0


def _alone(product: Product) -> float:
  """Returns the seconds of one matrix product of random arrays."""
  left, right, out = product.dtypes
  multiply = lambda x, y: jax.lax.dot_general(
    x, y, product.dimensions, product.precision, out
  )
  draw = lambda shape, dtype: jnp.asarray(
    np.random.default_rng(0).normal(size=shape), dtype
  )
  return seconds(multiply, draw(product.left, left), draw(product.right, right))
