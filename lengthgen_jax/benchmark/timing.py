"""Cases are programs to time. They are timed in turns, so that other load on
the machine slows all of them alike."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from lengthgen_jax.benchmark import device
from lengthgen_jax.benchmark.cost import Cost, cost

GB = 1 << 30  # bytes


@dataclasses.dataclass
class Case:
  """A Case is a program to time.

  Attributes:
    name: of the bench, in rows.
    way: the variant; it differs between the cases of a bench.
    function: a function that jax.jit can compile; or, where `arguments` is
      empty, a function without arguments that ends when its work is done.
    arguments: of the function.
    steps, samples, tokens: numbers of these in one run.
    length: of the inputs, as people count it, where the bench varies it.
    loops: as in cost.cost.
    guess: expected seconds of a run of a function without arguments.
    flops: operations of such a run, 0 where they are not known.
    memory: bytes that such a function needs, 0 where they are not known.
    threads: number of CPUs that the run may use, 0 for all.
  """

  name: str
  way: str
  function: Callable[..., Any]
  arguments: tuple = ()
  steps: int = 0
  samples: int = 0
  tokens: int = 0
  length: int | None = None
  loops: tuple[int, ...] = ()
  guess: float = 1.0
  flops: float = 0.0
  memory: int = 0
  threads: int = 0

  @property
  def title(self) -> str:
    """Returns the name, the length and the variant as one text."""
    length = "" if self.length is None else str(self.length)
    return " ".join(filter(None, (self.name, length, self.way)))

  def cost(self) -> Cost | None:
    """Returns the cost of a run; None of a function without arguments."""
    if not self.arguments:
      return None
    return cost(self.function, self.arguments, self.loops)


@dataclasses.dataclass
class Ready:
  """A Ready is a case that is compiled and can be timed.

  Attributes:
    case: the case.
    go: runs the program once, to the end.
    compile_seconds: of tracing and compilation; of a function without
      arguments, the seconds that its first run took longer than the median.
    memory: bytes that the program needs at once; 0 if they are not known.
    wall, cpu: seconds of every run: wall-clock time, and CPU time of all
      threads.
  """

  case: Case
  go: Callable[[], Any]
  compile_seconds: float
  memory: int
  wall: list[float] = dataclasses.field(default_factory=list)
  cpu: list[float] = dataclasses.field(default_factory=list)

  @property
  def seconds(self) -> float:
    """Returns the median of the runs' wall-clock seconds."""
    return float(np.median(self.wall))


def prepare(case: Case) -> Ready:
  """Compiles a case and runs it once.

  Raises:
    MemoryError: the program needs more memory than is free.
  """
  with on_threads(case.threads):
    clock = time.perf_counter()
    if not case.arguments:
      case.function()
      return Ready(case, case.function, time.perf_counter() - clock, 0)
    compiled = jax.jit(case.function).lower(*case.arguments).compile()
    seconds = time.perf_counter() - clock
    usage, memory = compiled.memory_analysis(), 0
    if usage is not None:
      memory = usage.temp_size_in_bytes + usage.argument_size_in_bytes
      memory += usage.output_size_in_bytes - usage.alias_size_in_bytes
    free = device.free_memory()
    if memory > free:
      raise MemoryError(f"needs {memory / GB:.0f} GB, {free / GB:.0f} free")
    go = lambda: jax.block_until_ready(compiled(*case.arguments))
    go()
    return Ready(case, go, seconds, memory)


def in_turns(cases: list[Ready], repeats: int, seconds: float) -> None:
  """Times every case once in each round of `repeats` rounds; after two rounds
  no further one begins when `seconds` have passed."""
  start = time.perf_counter()
  for turn in range(repeats):
    if turn > 1 and time.perf_counter() - start > seconds:
      return
    for ready in cases:
      with on_threads(ready.case.threads):
        wall, cpu = time.perf_counter(), time.process_time()
        ready.go()
        ready.wall.append(time.perf_counter() - wall)
        ready.cpu.append(time.process_time() - cpu)
  for ready in cases:
    if not ready.case.arguments and not ready.case.flops:
      # The first run of such a function compiles what it needs.
      ready.compile_seconds = max(ready.compile_seconds - ready.seconds, 0.0)


def row(ready: Ready, cost: Cost | None) -> dict:
  """Returns the row of bench.json for a case that was timed.

  Args:
    ready: the case and its times.
    cost: of a run; None of a function without arguments.
  """
  case, seconds = ready.case, ready.seconds
  flops = case.flops if cost is None else cost.flops
  fields = {
    "bench": case.name,
    "way": case.way,
    "length": case.length,
    "seconds": seconds,  # of one run, the median
    "fastest": min(ready.wall),
    "slowest": max(ready.wall),
    "goes": len(ready.wall),
    "cpu_seconds": float(np.median(ready.cpu)),
    "steps": case.steps,
    "samples": case.samples,
    "tokens": case.tokens,
    "flops": flops,
    "compile_seconds": ready.compile_seconds,
    "memory": ready.memory,
    "threads": case.threads,
  }
  if cost is not None and case.steps and not case.threads:
    # The seconds that the matrix products take by themselves.
    fields["product_seconds"] = device.of_products(cost.products)
  return fields


@contextlib.contextmanager
def on_threads(count: int) -> Iterator[None]:
  """Binds all threads of this process to `count` CPUs inside a `with` block; 0
  leaves them as they are."""
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
  """Binds all threads of this process to the numbered CPUs."""
  for thread in os.listdir("/proc/self/task"):
    with contextlib.suppress(ProcessLookupError):
      os.sched_setaffinity(int(thread), cpus)
