"""Things to time, and how they are timed: in turns, so that a busy machine is
as unkind to one as to the other."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable

import jax
import numpy as np

from lengthgen_jax.benchmark import device
from lengthgen_jax.benchmark.cost import Cost, cost

GB = 1 << 30


@dataclasses.dataclass
class Case:
  """One thing to time.

  Attributes:
    name: of the bench, in rows.
    way: what tells it from the bench's other cases.
    function: jittable; or, with no `arguments`, a function of nothing that
      ends when its work is done.
    arguments: of the function.
    steps, samples, tokens: of one go.
    length: as people count it, where that is what is varied.
    loops: see cost.cost.
    guess: seconds of a go, for a function of nothing.
    flops: of the same, where they are known.
    memory: bytes that such a function is known to need.
    threads: of the machine that it may use, 0 for all.
  """

  name: str
  way: str
  function: Callable
  arguments: tuple = ()
  steps: int = 0
  samples: int = 0
  tokens: int = 0
  length: int | None = None
  loops: tuple = ()
  guess: float = 1.0
  flops: float = 0.0
  memory: int = 0
  threads: int = 0

  @property
  def title(self) -> str:
    length = "" if self.length is None else str(self.length)
    return " ".join(filter(None, (self.name, length, self.way)))

  def cost(self) -> Cost | None:
    if not self.arguments:
      return None
    return cost(self.function, self.arguments, self.loops)


@dataclasses.dataclass
class Ready:
  """A case that is compiled.

  Attributes:
    case: it.
    go: runs it once, to the end.
    compile_seconds: tracing and compiling, or the first go's excess.
    memory: bytes that the program needs at once; 0 if nobody can tell.
    wall, cpu: seconds of every go, by clock and of all its threads.
  """

  case: Case
  go: Callable
  compile_seconds: float
  memory: int
  wall: list = dataclasses.field(default_factory=list)
  cpu: list = dataclasses.field(default_factory=list)

  @property
  def seconds(self) -> float:
    """The median go."""
    return float(np.median(self.wall))


def prepare(case: Case) -> Ready:
  """Compiles a case, and runs it once.

  Raises:
    MemoryError: it needs more than there is.
  """
  with on_threads(case.threads):
    clock = time.perf_counter()
    if not case.arguments:
      case.function()
      return Ready(case, case.function, time.perf_counter() - clock, 0)
    compiled = jax.jit(case.function).lower(*case.arguments).compile()
    seconds = time.perf_counter() - clock
    size, memory = compiled.memory_analysis(), 0
    if size is not None:
      memory = size.temp_size_in_bytes + size.argument_size_in_bytes
      memory += size.output_size_in_bytes - size.alias_size_in_bytes
    free = device.free_memory()
    if memory > free:
      raise MemoryError(f"needs {memory / GB:.0f} GB, {free / GB:.0f} free")
    go = lambda: jax.block_until_ready(compiled(*case.arguments))
    go()
    return Ready(case, go, seconds, memory)


def in_turns(cases: list[Ready], repeats: int, seconds: float) -> None:
  """Times every case `repeats` times, one after the other and again; less often
  (twice at least) where that takes more than `seconds`."""
  start = time.perf_counter()
  for turn in range(repeats):
    if turn > 1 and time.perf_counter() - start > seconds:
      return
    for own in cases:
      with on_threads(own.case.threads):
        wall, cpu = time.perf_counter(), time.process_time()
        own.go()
        own.wall.append(time.perf_counter() - wall)
        own.cpu.append(time.process_time() - cpu)
  for own in cases:
    if not own.case.arguments and not own.case.flops:
      # A first go compiles what it needs.
      own.compile_seconds = max(own.compile_seconds - own.seconds, 0.0)


def row(ready: Ready, cost: Cost | None) -> dict:
  """What bench.json says of a case that was timed."""
  case, seconds = ready.case, ready.seconds
  flops = case.flops if cost is None else cost.flops
  found = {
    "bench": case.name,
    "way": case.way,
    "length": case.length,
    "seconds": seconds,  # of one go, the median
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
    # How long its matrix products take alone.
    found["product_seconds"] = device.of_products(cost.products)
  return found


@contextlib.contextmanager
def on_threads(count: int):
  """Keeps all threads of this process on `count` CPUs (0: as they are)."""
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
  for thread in os.listdir("/proc/self/task"):
    with contextlib.suppress(ProcessLookupError):
      os.sched_setaffinity(int(thread), cpus)
