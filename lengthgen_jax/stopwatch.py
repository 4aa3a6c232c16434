"""A stopwatch says in one line where the time of a command went.

Each second of the main thread belongs to one phase: the innermost one that is
open, or "other" if none is. The time in which JAX traces and compiles counts as
"compiling", whichever phase needs the program. What is compiled on another
thread, while the main one goes on, does not count.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Iterator

COMPILING, OTHER = "compiling", "other"
# The prefix of JAX's events of tracing, lowering and compiling a program.
COMPILE_EVENTS = "/jax/core/compile/"


class Stopwatch:
  """A Stopwatch adds up the seconds of phases.

  Attributes:
    seconds: the seconds of every phase by name, "compiling" and "other" too.
  """

  def __init__(self):
    """Starts the clock."""
    self.seconds: dict[str, float] = {}
    self._open_phases = [OTHER]
    self._last = time.perf_counter()
    # The start and end of every compilation that is not part of another one.
    self._compilations: list[tuple[float, float]] = []
    self._compiling_since_last = 0.0

  def _add_elapsed(self) -> None:
    """Adds the seconds since the last call, without those of compilation, to
    the innermost open phase."""
    now = time.perf_counter()
    name = self._open_phases[-1]
    elapsed = now - self._last - self._compiling_since_last
    self.seconds[name] = self.seconds.get(name, 0.0) + elapsed
    self._last, self._compiling_since_last = now, 0.0

  @contextlib.contextmanager
  def phase(self, name: str) -> Iterator[None]:
    """Counts the seconds inside the context, or the decorated function, for the
    phase of this name, except those of a phase inside it and those in which JAX
    traces and compiles."""
    self._add_elapsed()
    self._open_phases.append(name)
    try:
      yield
    finally:
      self._add_elapsed()
      self._open_phases.pop()

  def add_compilation(
    self, event: str, duration_secs: float, **kwargs: str | int
  ) -> None:
    """Counts the seconds of a compilation that ends now as "compiling", and
    not for the open phase; a listener of jax.monitoring.

    Events of compilation contain others, which have ended and been counted
    before them; their seconds are not counted again.

    Args:
      event: the name of the event; those that do not begin with COMPILE_EVENTS
        and those of other threads are ignored.
      duration_secs: its seconds.
      **kwargs: further facts of the event, which are not used.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not event.startswith(COMPILE_EVENTS) or not is_main:
      return
    end = time.perf_counter()
    start, contained = end - duration_secs, 0.0
    while self._compilations and self._compilations[-1][0] >= start:
      inner_start, inner_end = self._compilations.pop()
      contained += inner_end - inner_start
    self._compilations.append((start, end))
    added = max(duration_secs - contained, 0.0)
    self.seconds[COMPILING] = self.seconds.get(COMPILING, 0.0) + added
    self._compiling_since_last += added

  def line(self) -> str:
    """Returns a line of text: the total, each phase of at least half a second,
    and all else as "other"."""
    self._add_elapsed()
    shown = {
      name: seconds
      for name, seconds in self.seconds.items()
      if name != OTHER and seconds >= 0.5
    }
    total = sum(self.seconds.values())
    shown[OTHER] = total - sum(shown.values())
    terms = [f"{name} {seconds:.0f}" for name, seconds in shown.items()]
    return f"time: {total:.0f} s = {' + '.join(terms)}"


STOPWATCH = Stopwatch()  # of this process
phase = STOPWATCH.phase


@functools.cache  # JAX would report everything twice after a second call
def watch_compilation() -> None:
  """Makes JAX report every compilation from now on to the stopwatch."""
  from jax import monitoring

  monitoring.register_event_duration_secs_listener(STOPWATCH.add_compilation)
