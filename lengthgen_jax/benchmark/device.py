"""What a device is and can do: matrix products and memory, measured."""

import collections
import os
import time

import jax
import jax.numpy as jnp
import numpy as np

GOES = 5
SIZES = (1024, 2048)  # of square matrices


def about() -> dict:
  """Names and numbers of the machine, to stand in what was measured on it."""
  cpus = os.cpu_count()
  if hasattr(os, "sched_getaffinity"):
    cpus = len(os.sched_getaffinity(0))
  own = jax.devices()[0]
  return {
    "device": own.device_kind if own.platform != "cpu" else processor(),
    "devices": jax.device_count(),
    "cpus": cpus,
    "load": os.getloadavg()[0],
    "jax": jax.__version__,
  }


def processor() -> str:
  """The CPU's name, as its system has it."""
  try:
    with open("/proc/cpuinfo") as file:
      names = [x for x in file if x.startswith("model name")]
    return names[0].partition(":")[2].strip()
  except (OSError, IndexError):
    return "CPU"


def free_memory() -> float:
  """Bytes that arrays may still take."""
  found = jax.devices()[0].memory_stats() or {}
  if "bytes_limit" in found:
    return found["bytes_limit"] - found["bytes_in_use"]
  try:
    with open("/proc/meminfo") as file:
      words = [x.split() for x in file if x.startswith("MemAvailable")]
    return 1024.0 * int(words[0][1])
  except (OSError, IndexError):
    return float("inf")


def seconds(function, *arguments) -> float:
  """The best of a few goes, after compilation."""
  run = jax.jit(function)
  jax.block_until_ready(run(*arguments))
  found = []
  for _ in range(GOES):
    clock = time.perf_counter()
    jax.block_until_ready(run(*arguments))
    found.append(time.perf_counter() - clock)
  return min(found)


def ceiling(dtype: str) -> dict:
  """{"flops", "bytes"} per second: of the best square matrix product, and what
  a copy writes."""
  rates = []
  for size in SIZES:
    x = jnp.ones((size, size), dtype)
    rates.append(2 * size**3 / seconds(lambda x: x @ x, x))
  x = jnp.ones((1 << 24,), jnp.float32)
  return {"flops": max(rates), "bytes": x.nbytes / seconds(lambda x: x + 1, x)}


def of_products(products: collections.Counter) -> float:
  """Seconds that a program's matrix products take by themselves.

  Each shape is timed alone, in order of its work, until 2 % of all are left,
  which are taken to go as fast.

  Args:
    products: how often each cost.Product is taken.
  """
  work = {own: often * own.flops for own, often in products.items()}
  total, done, spent = sum(work.values()), 0.0, 0.0
  for own in sorted(work, key=work.get, reverse=True):
    if done < 0.98 * total:
      done += work[own]
      spent += products[own] * _alone(own)
  return spent * total / done if done else 0.0


def _alone(own) -> float:
  left, right, out = own.dtypes
  product = lambda x, y: jax.lax.dot_general(
    x, y, own.dimensions, own.precision, out
  )
  draw = lambda shape, dtype: jnp.asarray(
    np.random.default_rng(0).normal(size=shape), dtype
  )
  return seconds(product, draw(own.left, left), draw(own.right, right))
