"""Timing: costs, groups in turns, what is left out, what is shown."""

import collections
import dataclasses
import json

import command
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lengthgen_jax.benchmark import bench, cost, device, report, timing
from lengthgen_jax.benchmark.settings import BENCHES
from lengthgen_jax.benchmark.timing import Case

X, Y = jnp.ones((4, 8, 16)), jnp.ones((4, 16, 32))
ONE = 2 * 4 * 8 * 16 * 32  # operations of X @ Y


def test_products_are_counted_as_often_as_they_are_taken():
  """In loops, branches, and in what differentiation makes of them."""

  def scanned(x, y):
    return jax.lax.scan(lambda c, _: (c + (x @ y).sum(), None), 0.0, None, 5)

  def looped(x, y, n):
    body = lambda i, c: c + (x @ y).sum()
    inner = lambda i, c: c + jax.lax.fori_loop(0, n + 1, body, 0.0)
    return jax.lax.fori_loop(0, n, inner, 0.0)

  def branched(x, y, n):
    twice = lambda x, y: (x @ y + x @ y).sum()
    return jax.lax.cond(n > 0, lambda x, y: x.sum(), twice, x, y)

  gradient = jax.grad(lambda x, y: (x @ y).sum() ** 2, argnums=(0, 1))
  wanted = {
    1: (lambda x, y: x @ y, (X, Y), ()),
    3: (gradient, (X, Y), ()),
    5: (scanned, (X, Y), ()),
    2: (branched, (X, Y, 1), ()),
    12: (looped, (X, Y, 3), (3, 4)),
    4: (looped, (X, Y, 4), (4,)),  # of an inner loop, once
  }
  for times, (function, arguments, loops) in wanted.items():
    found = cost.cost(jax.jit(function), arguments, loops)
    assert found.flops == times * ONE, (times, found.flops)
    assert sum(k.flops * n for k, n in found.products.items()) == found.flops
    assert found.largest >= 4 * 4 * 8 * 32
  compiled = jax.jit(lambda x, y: x @ y).lower(X, Y).compile()
  assert compiled.cost_analysis()["flops"] == ONE  # as XLA counts


def test_products_alone_are_timed_by_shape(monkeypatch):
  """Each once, until the rest is little; what is not timed goes as fast."""
  small = lambda x, y: (x[:, :1, :1] @ y[:, :1, :1]).sum() + (x @ y).sum()
  loops = lambda x, y: jax.lax.fori_loop(
    0, 6, lambda i, c: c + small(x, y), 0.0
  )
  products = cost.cost(loops, (X, Y)).products
  assert sorted(products.values()) == [6, 6]
  timed = []

  def alone(own):
    timed.append(own)
    return 2.0

  monkeypatch.setattr(device, "_alone", alone)
  assert device.of_products(products) == pytest.approx(12.0, rel=1e-2)
  assert [own.flops for own in timed] == [ONE]
  assert device.of_products(collections.Counter()) == 0.0
  monkeypatch.undo()
  assert 0 < device.of_products(products) < 60


def clocked(monkeypatch, seconds: dict):
  """Functions of nothing that take so long by a clock of their own."""
  now, order = [0.0], []

  def make(name):
    def go():
      order.append(name)
      now[0] += seconds[name]

    return go

  monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
  subjects = [Case("bench", name, make(name), guess=1.0) for name in seconds]
  return subjects, order


def test_cases_take_turns_and_medians_count(monkeypatch):
  subjects, order = clocked(monkeypatch, {"a": 1.0, "b": 3.0})
  ready = [timing.prepare(own) for own in subjects]
  order.clear()
  timing.in_turns(ready, 3, 100.0)
  assert order == ["a", "b"] * 3
  assert [own.seconds for own in ready] == [1.0, 3.0]
  ready[0].wall[:] = [1.0, 50.0, 2.0]
  assert ready[0].seconds == 2.0
  # Less often where it takes long, twice at least.
  order.clear()
  timing.in_turns([timing.prepare(own) for own in subjects], 9, 9.0)
  assert order == ["a", "b"] * 4
  order.clear()
  timing.in_turns([timing.prepare(own) for own in subjects], 9, 0.0)
  assert order == ["a", "b"] * 3


def test_a_case_is_compiled_apart_from_its_goes():
  own = Case("b", "", lambda x: (x @ x).sum(), (jnp.ones((64, 64)),), samples=3)
  ready = timing.prepare(own)
  timing.in_turns([ready], 2, 1.0)
  found = timing.row(ready, own.cost())
  assert found["goes"] == len(ready.wall) == 2
  assert found["flops"] == 2 * 64**3 and found["samples"] == 3
  assert 0 < found["fastest"] <= found["seconds"] <= found["slowest"]
  assert found["compile_seconds"] > found["seconds"]
  assert found["memory"] >= 64 * 64 * 4
  json.dumps(found)


GB = 1 << 30


def test_what_does_not_fit_is_left_out_by_name(monkeypatch):
  monkeypatch.setattr(device, "free_memory", lambda: 8.0 * GB)
  guess = bench.Guess({"flops": 1e9, "bytes": 1e9})
  large = cost.Cost(0.0, 0.0, 5 * GB, 0, collections.Counter())
  slow = cost.Cost(1e11, 0.0, 0, 0, collections.Counter())
  fine = cost.Cost(1e9, 0.0, 0, 0, collections.Counter())
  make = lambda way, length=None: Case("name", way, abs, (1,), length=length)
  group = [(make("large", 60), large), (make("slow"), slow), (make("a"), fine)]
  group += [(make(way), fine) for way in "bcd"]
  kept, skipped = bench.fitting(group, guess, 10.0)
  assert [own.way for own, _ in kept] == ["a", "b", "c"]
  assert set(skipped) == {"name 60 large", "name slow", "name d"}
  assert "10 GB" in skipped["name 60 large"]
  assert "300 s" in skipped["name slow"]
  assert "bench.budget" in skipped["name d"]
  # What took twice as long as expected makes later cases so.
  guess.learn(9.0, 18.0)
  assert guess(*kept[0]) == pytest.approx(6.0)
  guess.learn(6.0, 6.0)
  assert guess(*kept[0]) == pytest.approx(3.0 * 24 / 12)


def test_a_case_that_fails_is_left_out_and_the_rest_goes_on():
  def fail():
    raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory\nmore")

  subjects = [Case("b", "bad", fail), Case("b", "good", lambda: None)]
  settings = command.get_config().bench
  rows, skipped = bench.timed([(own, None) for own in subjects], settings)
  assert [row["way"] for row in rows] == ["good"]
  assert skipped == {"b bad": "RESOURCE_EXHAUSTED: Out of memory"}


def test_threads_are_kept_to_and_given_back():
  import os

  before = os.sched_getaffinity(0)
  with timing.on_threads(1):
    assert len(os.sched_getaffinity(0)) == 1
  assert os.sched_getaffinity(0) == before


def row(way, seconds, length=None, **more):
  found = {
    "bench": "b",
    "way": way,
    "length": length,
    "seconds": seconds,
    "fastest": seconds,
    "slowest": seconds,
    "goes": 3,
    "cpu_seconds": seconds,
    "steps": 2,
    "samples": 10,
    "tokens": 100,
    "flops": 1e9,
    "compile_seconds": 1.5,
    "memory": 3e6,
    "threads": 0,
  }
  return found | more


def test_the_table_says_rates_and_ratios(tmp_path):
  found = {
    "device": "A",
    "cpus": 2,
    "load": 0.5,
    "jax": "1",
    "ceiling": {"flops": 1e10, "bytes": 1e9},
    "rows": [row("x", 0.5, 60), row("y", 1.0, 60), row("x", 5.0, 600)],
    "skipped": {"b 600 y": "takes too long"},
  }
  text = report.table(found)
  lines = text.splitlines()
  (first,) = [x.split() for x in lines if x.split()[:3] == ["b", "x", "60"]]
  # ms of a step, steps, samples, tokens and GFLOP per second, of 10 GFLOP/s
  assert first[:9] == ["b", "x", "60", "250", "4", "20", "200", "2", "20"]
  assert "b at 60: y takes 2.00 times as long as x" in text
  assert "left out: b 600 y: takes too long" in text
  path = report.by_length(found, tmp_path / "bench.png")
  assert path.stat().st_size > 10_000
  assert report.by_length(found | {"rows": [row("x", 1.0)]}, path) is None


def test_a_bench_in_one_command(tmp_path, monkeypatch):
  """Of the tiny config's own training step."""
  monkeypatch.setattr(device, "SIZES", (64,))
  monkeypatch.setattr(device, "_alone", lambda own: 1e-6)
  done = command.inside(
    command.TINY,
    "--mode=bench",
    f"--workdir={tmp_path}",
    "--config.bench.only=('config',)",
    "--config.bench.repeats=2",
  )
  assert done.returncode == 0, done.stderr
  assert "1 cases, about" in done.stderr
  assert {path.name for path in tmp_path.iterdir()} == {"bench.json"}
  found = json.loads((tmp_path / "bench.json").read_text())
  (own,) = found["rows"]
  assert own["bench"] == "--config" and own["goes"] == 2
  assert own["samples"] == 32 * own["steps"] and own["product_seconds"] > 0
  assert not found["skipped"] and found["ceiling"]["flops"] > 1e8
  assert own["way"] in done.stdout and "of peak %" in done.stdout


def test_an_unknown_bench_is_refused(tmp_path):
  config = command.get_config()
  config.bench.only = ("main", "nothing")
  line = command.refused("bench", config, tmp_path)
  assert "bench.only" in line and all(name in line for name in BENCHES)


def test_too_little_time_leaves_everything_out(tmp_path, monkeypatch):
  """Nothing is compiled: each bench says what it would take."""
  rates = {"flops": 1e6, "bytes": 1e6}
  monkeypatch.setattr(device, "ceiling", lambda dtype: rates)
  monkeypatch.setattr(timing, "prepare", None)
  monkeypatch.setattr(bench, "prepare", None)
  config = command.get_config()
  config.bench.update(only=("fixed", "evaluate"), budget=1e-3)
  assert bench.run(config, tmp_path) == 0
  found = json.loads((tmp_path / "bench.json").read_text())
  assert not found["rows"] and len(found["skipped"]) == 4
  assert all("bench.budget" in why for why in found["skipped"].values())
  assert np.all(["width 61" in x or "60" in x for x in found["skipped"]])


@pytest.mark.parametrize("kind", ("stock", "fast"))
def test_the_peer_has_our_parameters_and_learns(kind):
  """Where PyTorch is: as many numbers as our model, and a falling loss."""
  pytest.importorskip("torch")
  from lengthgen_jax.benchmark import subjects, torch_step

  own = subjects.papers()
  shape = own.experiment.model.config
  ours = jax.tree.leaves(jax.eval_shape(lambda: own.experiment.init(0)))
  modules, _ = getattr(torch_step, kind)(shape)
  theirs = sum(x.numel() for x in modules.parameters())
  assert theirs == sum(x.size for x in ours)
  small = dataclasses.replace(
    shape, emb_dim=16, mlp_dim=32, num_heads=2, num_decoder_layers=1
  )
  draw = np.random.default_rng(0).integers
  batch = [draw(0, 15, (4, n)) for n in (9, 5, 5)]
  train = dataclasses.replace(own.train, learning_rate=1e-2)
  go = torch_step.step(kind, small, train, batch, 1)
  losses = [go() for _ in range(60)]
  assert losses[0] > 2.5 and losses[-1] < 0.6 * losses[0]
