"""A stopwatch says in one line where the time of a command went.

Each second of the main thread belongs to one phase: the innermost one that is
open. What JAX spends on tracing and compiling counts as "compiling", whichever
phase needs the program. What is compiled on another thread, while the main one
goes on, does not count.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Iterator

COMPILING, OTHER = "compiling", "other"
# The events that JAX measures when it traces, lowers and compiles a program.
EVENTS = "/jax/core/compile/"


class Stopwatch:
  """A Stopwatch adds up the seconds of phases.

  Attributes:
    seconds: The seconds of every phase, in the order in which they began.
  """

  def __init__(self, start: float | None = None):
    """Starts the clock; `start` is a value of time.perf_counter()."""
    now = time.perf_counter()
    self.seconds: dict[str, float] = {}
    self._open_phases = [OTHER]
    self._last = now if start is None else start
    # The intervals of compilation that were counted; an event ends after those
    # that it contains.
    self._compiled: list[tuple[float, float]] = []
    self._uncounted = 0.0

  def _add(self) -> None:
    """Adds the seconds since the last call to the innermost open phase."""
    now = time.perf_counter()
    name = self._open_phases[-1]
    passed = now - self._last - self._uncounted
    self.seconds[name] = self.seconds.get(name, 0.0) + passed
    self._last, self._uncounted = now, 0.0

  @contextlib.contextmanager
  def phase(self, name: str) -> Iterator[None]:
    """Counts the seconds inside of the context as a phase's."""
    self._add()
    self._open_phases.append(name)
    try:
      yield
    finally:
      self._add()
      self._open_phases.pop()

  def add_compilation(
    self, event: str, duration_secs: float, **kwargs: str | int
  ) -> None:
    """Moves the seconds of an event of compilation out of the open phase."""
    is_main = threading.current_thread() is threading.main_thread()
    if not event.startswith(EVENTS) or not is_main:
      return
    end = time.perf_counter()
    start, contained = end - duration_secs, 0.0
    while self._compiled and self._compiled[-1][0] >= start:
      inner_start, inner_end = self._compiled.pop()
      contained += inner_end - inner_start
    self._compiled.append((start, end))
    added = max(duration_secs - contained, 0.0)
    self.seconds[COMPILING] = self.seconds.get(COMPILING, 0.0) + added
    self._uncounted += added

  def line(self) -> str:
    """Returns the line: the sum, and each phase that took half a second."""
    self._add()
    others = self.seconds.pop(OTHER, 0.0)
    shown = {k: v for k, v in self.seconds.items() if v >= 0.5}
    total = others + sum(self.seconds.values())
    rest = total - sum(shown.values())
    parts = [f"{name} {seconds:.0f}" for name, seconds in shown.items()]
    return f"time: {total:.0f} s = {' + '.join([*parts, f'other {rest:.0f}'])}"


STOPWATCH = Stopwatch()  # of this process
phase = STOPWATCH.phase


@functools.cache  # JAX would report everything twice after a second call
def watch_compilation() -> None:
  """Lets JAX report to the stopwatch what it compiles from now on."""
  from jax import monitoring

  monitoring.register_event_duration_secs_listener(STOPWATCH.add_compilation)
