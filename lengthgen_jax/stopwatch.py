"""Where the time of a command went, in one line."""

import contextlib
import time
from collections.abc import Iterator

_seconds: dict[str, float] = {}
_open_phases = ["other"]
_last = time.perf_counter()


def _add_elapsed() -> None:
  """Adds the seconds since the last call to the innermost open phase."""
  global _last
  now, name = time.perf_counter(), _open_phases[-1]
  _seconds[name] = _seconds.get(name, 0.0) + now - _last
  _last = now


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
  """Counts the seconds inside the context, or the decorated function, for this
  phase, except those of a phase inside it."""
  _add_elapsed()
  _open_phases.append(name)
  try:
    yield
  finally:
    _add_elapsed()
    _open_phases.pop()


def line() -> str:
  """Returns a line of text: the total, and the seconds of each phase."""
  _add_elapsed()
  terms = [f"{name} {seconds:.0f}" for name, seconds in _seconds.items()]
  return f"time: {sum(_seconds.values()):.0f} s = {' + '.join(terms)}"
