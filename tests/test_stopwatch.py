"""The stopwatch: every second belongs to one phase."""

import pytest

from lengthgen_jax import stopwatch


def test_a_second_belongs_to_the_innermost_phase(monkeypatch):
  clock = [100.0]
  monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: clock[0])
  monkeypatch.setattr(stopwatch, "_seconds", {})
  monkeypatch.setattr(stopwatch, "_last", clock[0])
  clock[0] += 1
  with pytest.raises(ZeroDivisionError), stopwatch.phase("tests"):
    clock[0] += 2
    with stopwatch.phase("figures"):
      clock[0] += 4
    clock[0] += 8
    raise ZeroDivisionError
  clock[0] += 16
  assert stopwatch.line() == "time: 31 s = other 17 + tests 10 + figures 4"
