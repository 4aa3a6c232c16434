"""This module compiles programs and times them in turns, so that other load on
the machine slows all of them alike."""

import contextlib
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend import core

from lengthgen_jax import memory

GIB = 1 << 30
# Sizes of the square matrices of `peak_flops`, on a CPU and on an accelerator,
# which needs more than a CPU to be busy.
SQUARE_SIZES = {True: (1024, 2048), False: (2048, 8192)}


class Case(NamedTuple):
  """A Case is a function to time.

  Attributes:
    benchmark: what is timed, as the table names it; several cases share it.
    variant: what distinguishes the case from the others of the benchmark, ""
      for nothing.
    function: a function that jax.jit can compile; or, where `arguments` is
      empty, a function without arguments that returns when it is done.
    arguments: the arguments of the function.
    length: the length of the inputs in digits or items, as the table shows it;
      None to show none.
    steps, samples, tokens: how many gradient steps, examples and decoder rows
      one call processes, for rates; 0 for those that are not counted.
    trip_count: how often the body of the function's one while loop runs, in
      which all of its matrix products are; 1 if it has no while loop, 0 if
      FLOPs are not counted.
    threads: the number of CPUs that a call may use, 0 for all.
    memory: the bytes that a function without arguments needs.
  """

  benchmark: str
  variant: str
  function: Callable[..., Any]
  arguments: tuple = ()
  length: int | None = None
  steps: int = 0
  samples: int = 0
  tokens: int = 0
  trip_count: int = 0
  threads: int = 0
  memory: int = 0

  @property
  def title(self) -> str:
    """Returns the benchmark, the length and the variant as one text."""
    length = "" if self.length is None else str(self.length)
    return " ".join(filter(None, (self.benchmark, length, self.variant)))


class Program(NamedTuple):
  """A Program is a case that was compiled and has run once.

  Attributes:
    case: the case.
    run: runs the program once and waits for its results.
    compile_seconds: the time of tracing and compilation, 0 for a function
      without arguments.
    flops: the FLOPs of the matrix products of a run, 0 if they are not counted.
    memory: the bytes of arguments, results and temporaries, by XLA's account;
      of a function without arguments, `Case.memory`.
    wall_seconds, cpu_seconds: the times of the timed runs; `time_in_turns`
      appends them. CPU seconds are those of all threads together.
  """

  case: Case
  run: Callable[[], Any]
  compile_seconds: float
  flops: float
  memory: int
  wall_seconds: list[float]
  cpu_seconds: list[float]


def compile_case(case: Case) -> Program:
  """Compiles a case, if its function has arguments, and runs it once.

  Raises:
    MemoryError: the program needs more memory than is free.
    RuntimeError: it cannot be compiled or run.
  """
  with limit_cpus(case.threads):
    seconds, flops, needed, run = 0.0, 0.0, case.memory, case.function
    if case.arguments:
      start = time.perf_counter()
      traced = jax.jit(case.function).trace(*case.arguments)
      compiled = traced.lower().compile()
      seconds = time.perf_counter() - start
      flops = case.trip_count * matmul_flops(traced.jaxpr.jaxpr)
      if usage := compiled.memory_analysis():
        needed = usage.temp_size_in_bytes + usage.argument_size_in_bytes
        needed += usage.output_size_in_bytes - usage.alias_size_in_bytes
      run = lambda: jax.block_until_ready(compiled(*case.arguments))
    there = sum(  # the bytes of arguments that are in memory already
      x.nbytes
      for x in jax.tree.leaves(case.arguments)
      if isinstance(x, jax.Array)
    )
    missing, free = needed - there, memory.free_bytes()
    if missing > free:
      raise MemoryError(f"needs {missing / GIB:.0f} GiB, {free / GIB:.0f} free")
    run()
    return Program(case, run, seconds, flops, needed, [], [])


def matmul_flops(jaxpr: core.Jaxpr) -> float:
  """Returns the FLOPs of all matrix products in a jaxpr.

  The body of a scan counts as often as it runs, and that of a while loop once,
  because its number of iterations is not known; of a `cond` the costliest
  branch counts. XLA's own cost analysis would count the body of a scan once,
  but on a CPU a gradient step may be a scan over microbatches.
  """
  flops = 0.0
  for equation in jaxpr.eqns:
    inner_flops = [
      matmul_flops(getattr(inner, "jaxpr", inner))  # it may be a ClosedJaxpr
      for inner in core.jaxprs_in_params(equation.params)
    ]
    match equation.primitive.name:
      case "dot_general":
        (contracting_dims, _), _ = equation.params["dimension_numbers"]
        left, result = equation.invars[0].aval, equation.outvars[0].aval
        assert isinstance(left, ShapedArray) and isinstance(result, ShapedArray)
        num_terms = math.prod(left.shape[axis] for axis in contracting_dims)
        flops += 2.0 * num_terms * math.prod(result.shape)
      case "cond":
        flops += max(inner_flops)
      case "scan":
        flops += equation.params["length"] * sum(inner_flops)
      case _:
        flops += sum(inner_flops)
  return flops


def time_in_turns(
  programs: list[Program], repeats: int, deadline: float
) -> None:
  """Runs every program once in each of `repeats` rounds, and appends its times
  to the program.

  The first round is always run; no other begins after the deadline, a reading
  of time.perf_counter().
  """
  for repeat in range(repeats):
    if repeat and time.perf_counter() > deadline:
      return
    for program in programs:
      with limit_cpus(program.case.threads):
        wall, cpu = time.perf_counter(), time.process_time()
        program.run()
        program.wall_seconds.append(time.perf_counter() - wall)
        program.cpu_seconds.append(time.process_time() - cpu)


def make_row(program: Program) -> dict:
  """Returns the row of bench.json for a program that was timed; all times are
  in seconds, and the memory is in bytes."""
  case = program.case
  return {
    "benchmark": case.benchmark,
    "variant": case.variant,
    "length": case.length,
    "seconds": float(np.median(program.wall_seconds)),  # of one run
    "fastest": min(program.wall_seconds),
    "slowest": max(program.wall_seconds),
    "repeats": len(program.wall_seconds),
    "cpu_seconds": float(np.median(program.cpu_seconds)),
    "steps": case.steps,
    "samples": case.samples,
    "tokens": case.tokens,
    "flops": program.flops,
    "compile_seconds": program.compile_seconds,
    "memory": program.memory,
    "threads": case.threads,
  }


@contextlib.contextmanager
def limit_cpus(count: int) -> Iterator[None]:
  """Returns a context in which all threads of this process are bound to the
  first `count` of the CPUs that it may use; for 0, one that changes nothing.

  It works on Linux alone.
  """
  if not count:
    yield
    return
  allowed = sorted(os.sched_getaffinity(0))
  _bind(allowed[:count])
  try:
    yield
  finally:
    _bind(allowed)


def _bind(cpus: list[int]) -> None:
  """Binds all threads of this process to the CPUs with these numbers."""
  for thread in os.listdir("/proc/self/task"):
    with contextlib.suppress(ProcessLookupError):  # the thread has ended
      os.sched_setaffinity(int(thread), cpus)


# The device.


def describe_device(dtype: str, precision: str) -> dict:
  """Returns the fields of bench.json that describe this machine; matrix
  products are timed for its "peak_flops".

  Args:
    dtype, precision: of the matrix products of `peak_flops`.
  """
  device = jax.devices()[0]
  is_cpu = device.platform == "cpu"
  has_affinity = hasattr(os, "sched_getaffinity")
  return {
    "device": cpu_name() if is_cpu else device.device_kind,
    "devices": jax.device_count(),
    "cpus": len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count(),
    "load": os.getloadavg()[0],  # over the last minute
    "jax": jax.__version__,
    "peak_flops": peak_flops(dtype, precision),
  }


def cpu_name() -> str:
  """Returns the model name of the CPU that Linux gives, "CPU" elsewhere."""
  file = pathlib.Path("/proc/cpuinfo")
  lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
  names = [line for line in lines if line.startswith("model name")]
  return names[0].partition(":")[2].strip() if names else "CPU"


def peak_flops(dtype: str, precision: str) -> float:
  """Returns the FLOP/s of the fastest product of two square matrices, which it
  measures for each of this device's SQUARE_SIZES.

  Args:
    dtype: the dtype of the matrices.
    precision: JAX's precision of the product, like "highest".
  """
  rates = []
  square = partial(jnp.matmul, precision=precision)
  for size in SQUARE_SIZES[jax.default_backend() == "cpu"]:
    x = jnp.ones((size, size), dtype)
    case = Case("peak", "", square, (x, x), trip_count=1)
    compiled = compile_case(case)
    time_in_turns([compiled], 5, math.inf)
    rates.append(compiled.flops / min(compiled.wall_seconds))
  return max(rates)
