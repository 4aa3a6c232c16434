"""The stopwatch: every second of the main thread belongs to one phase."""

import re
import threading
import time

import jax
import jax.numpy as jnp
import pytest

from lengthgen_jax import stopwatch
from lengthgen_jax.stopwatch import COMPILING, Stopwatch


@pytest.fixture
def watch(monkeypatch):
  """A stopwatch, and a clock that the test advances: watch.clock[0] += 1."""
  clock = [100.0]
  monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: clock[0])
  watch = Stopwatch()
  watch.clock = clock
  return watch


def seconds_of(line: str) -> dict[str, int]:
  """The seconds of each phase in the line, and the total as "time"."""
  total, phases = re.fullmatch(r"time: (\d+) s = (.*)", line).groups()
  pairs = [phase.rsplit(" ", 1) for phase in phases.split(" + ")]
  return {"time": int(total)} | {name: int(text) for name, text in pairs}


def test_a_second_belongs_to_the_innermost_phase(watch):
  watch.clock[0] += 1
  with watch.phase("tests"):
    watch.clock[0] += 2
    with watch.phase("figures"):
      watch.clock[0] += 4
    watch.clock[0] += 8
  watch.clock[0] += 16
  assert seconds_of(watch.line()) == {
    "time": 31,
    "tests": 10,
    "figures": 4,
    "other": 17,
  }


def test_a_phase_that_fails_is_closed(watch):
  with pytest.raises(ZeroDivisionError), watch.phase("tests"):
    watch.clock[0] += 2
    raise ZeroDivisionError
  watch.clock[0] += 3
  assert seconds_of(watch.line()) == {"time": 5, "tests": 2, "other": 3}


def test_compilation_is_taken_out_of_the_phase_that_needs_it(watch):
  """The seconds of an event inside another event count once."""
  event = "/jax/core/compile/jaxpr_trace_duration"
  with watch.phase("training"):
    watch.clock[0] += 5
    watch.add_compilation(event, 2.0)  # from 103 to 105
    watch.clock[0] += 1
    watch.add_compilation(event, 4.0)  # from 102 to 106
    watch.clock[0] += 10
    watch.add_compilation(event, 1.0)  # from 115 to 116
    watch.add_compilation("/jax/other", 9.0)
  assert seconds_of(watch.line()) == {
    "time": 16,
    "compiling": 5,
    "training": 11,
    "other": 0,
  }


def test_compilation_on_another_thread_does_not_count(watch):
  event = "/jax/core/compile/backend_compile_duration"
  thread = threading.Thread(target=watch.add_compilation, args=(event, 3.0))
  watch.clock[0] += 5
  thread.start()
  thread.join()
  assert seconds_of(watch.line()) == {"time": 5, "other": 5}


def test_jax_reports_what_it_compiles():
  stopwatch.watch_compilation()
  before = stopwatch.STOPWATCH.seconds.get(COMPILING, 0.0)
  start = time.perf_counter()
  jax.jit(lambda x: jnp.tanh(x) @ x + 17.25)(jnp.ones((3, 3)))
  elapsed = time.perf_counter() - start
  assert 0 < stopwatch.STOPWATCH.seconds[COMPILING] - before <= elapsed
