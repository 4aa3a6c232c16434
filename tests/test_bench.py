"""Benchmarks: shapes, FLOPs, groups in turns, what is left out, the table."""

import dataclasses
import json

import command
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lengthgen_jax import memory
from lengthgen_jax.benchmark import bench, cases, report, timing
from lengthgen_jax.benchmark.timing import Case
from lengthgen_jax.config import build, fields, load_presets

X, Y = jnp.ones((4, 8, 16)), jnp.ones((4, 16, 32))
FLOPS = 2 * 4 * 8 * 16 * 32  # of X @ Y


def preset(file, *name):
  path = command.REPOSITORY / "configs" / f"{file}.py"
  return load_presets(path).get_config(*name)


def second_stage(config):
  return fields.retrain_config(config, (0,), None)


@pytest.mark.parametrize(
  ("task", "changes", "config", "stage"),
  [
    ("addition", cases.MAIN_JOB, ("quickstart",), None),
    ("addition", cases.MAIN_JOB, ("quickstart",), second_stage),
    (
      "addition",
      cases.MAIN_JOB_AT_WIDTH_61,
      ("arithmetic", "addition,abc,fixed"),
      second_stage,
    ),
    (
      "addition",
      cases.PAPERS,
      ("arithmetic", "addition,vanilla,released"),
      None,
    ),
    ("sort", cases.SORTING, ("sorting", "none,best"), None),
  ],
)
def test_shapes_that_are_timed_are_those_of_the_presets(
  task, changes, config, stage
):
  configs = cases.make_config(task, changes), preset(*config)
  timed, expected = map(stage, configs) if stage else configs
  assert build.build(timed) == build.build(expected)
  assert timed.train.batch_size == expected.train.batch_size
  assert timed.train.clip_norm == expected.train.clip_norm


def test_cases_are_programs_that_can_be_traced():
  """One of each kind; the others are of the same kinds and other shapes."""
  config = command.get_config()
  config.bench.update(lengths=(60,))
  workload = cases.make_workload(config)
  titles = []
  for name in ("config", "lengths", "decode"):
    for group in cases.BENCHMARKS[name](workload, config.bench):
      for case in group:
        jax.eval_shape(case.function, *case.arguments)
        assert case.samples and case.tokens >= case.samples
        titles.append(case.title)
  assert len(titles) == len(set(titles)) == 7


def test_matrix_products_are_counted_as_often_as_they_are_taken():
  """In scans and branches, and in what differentiation makes of them."""

  def scanned(x, y):
    return jax.lax.scan(lambda c, _: (c + (x @ y).sum(), None), 0.0, None, 5)

  def looped(x, y, n):
    return jax.lax.fori_loop(0, n, lambda i, c: c + (x @ y).sum(), 0.0)

  def branched(x, y, n):
    twice = lambda x, y: (x @ y + x @ y).sum()
    return jax.lax.cond(n > 0, lambda x, y: x.sum(), twice, x, y)

  gradient = jax.grad(lambda x, y: (x @ y).sum() ** 2, argnums=(0, 1))
  for products, function, arguments in (
    (1, lambda x, y: x @ y, (X, Y)),
    (3, gradient, (X, Y)),
    (5, scanned, (X, Y)),
    (2, branched, (X, Y, 1)),
    (1, looped, (X, Y, 3)),
  ):
    traced = jax.jit(function).trace(*arguments)
    assert timing.matmul_flops(traced.jaxpr.jaxpr) == products * FLOPS
  compiled = jax.jit(lambda x, y: x @ y).lower(X, Y).compile()
  assert compiled.cost_analysis()["flops"] == FLOPS  # as XLA counts


@pytest.fixture
def clock(monkeypatch):
  """A clock [seconds] that stands still unless a test moves it."""
  now = [0.0]
  monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
  return now


def test_cases_take_turns_and_medians_count(clock):
  order = []

  def case(variant, seconds):
    def run():
      order.append(variant)
      clock[0] += seconds

    return Case("name", variant, run)

  group = [case("a", 1.0), case("b", 3.0)]
  for repeats, deadline, rounds in ((3, 100.0, 3), (9, 9.0, 3), (9, -1.0, 1)):
    programs = [timing.compile_case(case) for case in group]
    order.clear()
    clock[0] = 0.0
    timing.time_in_turns(programs, repeats, deadline)
    assert order == ["a", "b"] * rounds
  assert [timing.make_row(x)["seconds"] for x in programs] == [1.0, 3.0]
  programs[0].wall_seconds[:] = [1.0, 50.0, 2.0]
  row = timing.make_row(programs[0])
  assert (row["fastest"], row["seconds"], row["slowest"]) == (1.0, 2.0, 50.0)


def test_arguments_that_are_in_memory_need_no_more_of_it(monkeypatch):
  matrix = jnp.ones((512, 512))
  monkeypatch.setattr(memory, "free_bytes", lambda: 1.5 * matrix.nbytes)
  program = timing.compile_case(Case("b", "", lambda x: x @ x, (matrix,)))
  assert program.memory >= 2 * matrix.nbytes


def test_what_fails_does_not_fit_or_is_late_is_left_out_by_name(
  clock, monkeypatch
):
  def fail():
    raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory\nmore")

  def be_slow():
    clock[0] = 901.0

  monkeypatch.setattr(memory, "free_bytes", lambda: 8.0 * timing.GIB)
  square = lambda x: x @ x
  matrix = jax.ShapeDtypeStruct((1 << 16, 1 << 16), "float32")  # 16 GiB
  group = [
    Case("b", "bad", fail),
    Case("b", "large", square, (matrix,), length=60),
    Case("b", "larger", fail, memory=10 * timing.GIB),
    Case("b", "slow", be_slow),
    Case("b", "late", fail),
  ]
  section = command.get_config().bench
  rows, skipped = bench.time_group(group, section, deadline=900.0)
  assert [row["variant"] for row in rows] == ["slow"]
  assert skipped == {
    "b bad": "RESOURCE_EXHAUSTED: Out of memory",
    "b 60 large": "needs 32 GiB, 8 free",
    "b larger": "needs 10 GiB, 8 free",
    "b late": "bench.budget=900 s are used up",
  }


def test_the_table_says_rates_and_ratios(tmp_path):
  def row(variant, seconds, length=None):
    case = Case("b", variant, abs, length=length, steps=2, samples=10)
    case = case._replace(tokens=100)
    run = 1.5, 1e9, 3_000_000, [seconds], [seconds]
    return timing.make_row(timing.Program(case, abs, *run))

  results = {
    "device": "A",
    "cpus": 2,
    "load": 0.5,
    "jax": "1",
    "peak_flops": 1e10,
    "rows": [row("x", 0.5, 60), row("y", 1.0, 60), row("x", 5.0, 600)],
    "skipped": {"b 600 y": "takes too long"},
  }
  text = report.table(results)
  words = next(x.split() for x in text.splitlines() if x.startswith("b  "))
  # ms of a step; steps, samples, tokens and GFLOP per second; of 10 GFLOP/s
  assert words[:9] == ["b", "x", "60", "250", "4", "20", "200", "2", "20"]
  assert words[9:] == ["1", "1.5", "3"]
  assert "b at 60: y takes 2.00 times as long as x" in text
  assert "left out: b 600 y: takes too long" in text
  path = report.draw_by_length(results, tmp_path / "bench.png")
  assert path.stat().st_size > 1000
  one_length = results | {"rows": [row("x", 1.0)]}
  assert report.draw_by_length(one_length, path) is None


def test_one_command_times_the_training_of_its_config(tmp_path, monkeypatch):
  monkeypatch.setattr(timing, "SQUARE_SIZES", {True: (64,)})
  done = command.inside(
    command.TINY,
    "--mode=bench",
    f"--workdir={tmp_path}",
    "--config.bench.only=('config',)",
    "--config.bench.repeats=2",
  )
  assert done.returncode == 0, done.stderr
  assert {path.name for path in tmp_path.iterdir()} == {"bench.json"}
  results = json.loads((tmp_path / "bench.json").read_text())
  (row,) = results["rows"]
  assert row["benchmark"] == "--config" and row["repeats"] == 2
  assert row["samples"] == 32 * row["steps"] and row["flops"] > 1e6
  assert not results["skipped"] and results["peak_flops"] > 1e8
  assert "of peak %" in done.stdout


def test_an_unknown_benchmark_is_refused(tmp_path):
  config = command.get_config()
  config.bench.only = ("main", "nothing")
  line = command.refused("bench", config, tmp_path)
  assert "bench.only" in line
  assert all(name in line for name in cases.BENCHMARKS)


def test_a_workdir_that_is_a_file_is_refused_before_anything_is_timed(tmp_path):
  path = tmp_path / "file"
  path.touch()
  assert "cannot write there" in command.refused(
    "bench", command.get_config(), path
  )


@pytest.mark.parametrize("kind", ("stock", "fast"))
def test_the_model_in_pytorch_has_our_parameters_and_learns(kind):
  """Where PyTorch is: as many numbers as our model, and a falling loss."""
  pytest.importorskip("torch")
  from lengthgen_jax.benchmark import torch_step

  ours = cases.papers_shape()
  shape = ours.experiment.model.config
  modules, _ = torch_step.MODELS[kind](shape)
  sizes = [x.size for x in jax.tree.leaves(ours.params())]
  assert sum(x.numel() for x in modules.parameters()) == sum(sizes)
  small = dataclasses.replace(
    shape, emb_dim=16, mlp_dim=32, num_heads=2, num_decoder_layers=1
  )
  draw = np.random.default_rng(0).integers
  batch = [draw(0, 15, (4, n)) for n in (9, 5, 5)]
  train = dataclasses.replace(ours.train, learning_rate=1e-2)
  step = torch_step.make_step(kind, small, train, batch, 1)
  losses = [step() for _ in range(60)]
  assert losses[0] > 2.5 and losses[-1] < 0.6 * losses[0]
