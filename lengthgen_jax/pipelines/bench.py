"""This is --mode=bench: it times a training step, evaluation and decoding of
the config's model, and a certificate, on the device at hand.

The parameters are random, on which times do not depend. The certificate is that
of the package's model of addition. bench.json, in the workdir, has what the
table shows.
"""

import json
import math
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend import core
from ml_collections import ConfigDict

import lengthgen_jax
from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.evaluation.trained import EvalSpec, Model
from lengthgen_jax.pipelines import runs
from lengthgen_jax.pretrained import files as pretrained
from lengthgen_jax.proofs import checker
from lengthgen_jax.results import records
from lengthgen_jax.training import loop, optimizer

EXAMPLES = 64  # at most so many are evaluated at once
PROVED = pretrained.FOLDER / "addition.npz"
HEADINGS = "ms", "rows/s", "GFLOP/s", "of peak %", "first call s"
LEGEND = """\
rows are those of the decoder. GFLOP/s counts matrix products, and "of peak %"
compares it with the fastest product of square matrices on this device, in the
model's dtype and precision. The first call compiles, unless compile_cache has
the program."""


class Case(NamedTuple):
  """A Case is what is timed.

  Attributes:
    name: the first column of the table.
    function: does it, and returns when it is done, or arrays that are ready
      then.
    count: how often it does what `name` says.
    rows: the number of decoder rows that it computes, 0 if these are not
      counted.
    flops: the FLOPs of its matrix products, 0 if these are not counted.
    once: whether the first call is timed, because nothing is compiled."""

  name: str
  function: Callable[[], Any]
  count: int = 1
  rows: int = 0
  flops: float = 0.0
  once: bool = False


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Prints the table and writes bench.json and, with bench.trace, what
  jax.profiler traces of each case; returns the exit code, 0."""
  timed_run, rows = runs.make_run(config, folder), []
  shape = timed_run.experiment.model.config
  peak = peak_flops(shape.dtype, shape.precision)
  results = {
    "version": lengthgen_jax.__version__,
    "jax": jax.__version__,
    "device": jax.devices()[0].device_kind,
    "cpus": os.cpu_count(),
    "rows": rows,
    "peak_flops": peak,
  }
  title = "{device}, {cpus} CPUs, jax {jax}: at most {giga:.0f} GFLOP/s"
  print(title.format(**results, giga=peak / 1e9))
  print(" " * 32 + "".join(f"{heading:>13}" for heading in HEADINGS))
  for case in cases(timed_run, config.eval.lengths):
    rows.append(measure(case, config.bench.repeats))
    print(table_line(rows[-1], peak), flush=True)
    if config.bench.trace:
      with jax.profiler.trace(folder / "trace" / case.name):
        jax.block_until_ready(case.function())
  records.write_text(folder / "bench.json", json.dumps(results, indent=1))
  print(f"{LEGEND}\nrows: {folder / 'bench.json'}")
  return 0


def cases(timed_run: loop.Run, lengths: tuple[int, ...]) -> Iterator[Case]:
  """Yields the cases of a run, tests at each of these lengths."""
  experiment, scaffold = timed_run.experiment, of_seed(timed_run.scaffold, 0)
  params = jax.jit(experiment.init)(0)
  yield training_steps(timed_run, params, scaffold)
  model = Model(experiment, scaffold, params)
  test_set = next(iter(experiment.task.test_sets))
  for length in lengths:
    spec = EvalSpec(test_set, test_set, (), length, samples=EXAMPLES)
    batch, examples = next(model.batches(spec))
    matches = lambda batch=batch: model.matches(batch)
    name = f"evaluation, {examples} of length {length}"
    yield Case(
      name,
      matches,
      rows=math.prod(batch.inputs.shape),
      flops=0 if model.needs_decoding(batch) else count_flops(matches),
    )
    batch, _ = next(model.batches(spec._replace(samples=1)))
    decode = lambda batch=batch: model.greedy(batch, stop=None)
    num_outputs = int((batch.weight > 0).sum())
    yield Case(f"decoding, length {length}", decode, rows=num_outputs)
  prove = lambda: checker.prove_file(PROVED)
  yield Case("certificate of addition", prove, once=True)


def training_steps(
  timed_run: loop.Run, params: dict, scaffold: dict, cycles: int = 10
) -> Case:
  """Returns the case of the gradient steps of some cycles of training of one
  seed, in one program."""
  experiment, spec = timed_run.experiment, timed_run.spec
  opt_state = optimizer.make_optimizer(timed_run.train).init(params)

  @jax.jit
  def train(learned: tuple, cycles: int) -> tuple:
    def train_cycle(index: jax.Array, learned: tuple) -> tuple:
      for step_spec in experiment.step_specs:
        # The cycle stands for the step: which examples are drawn does not
        # change the time.
        params, opt_state = learned
        params, opt_state, _ = loop.train_step(
          spec, step_spec, params, opt_state, 0, index, scaffold
        )
        learned = params, opt_state
      return learned

    return jax.lax.fori_loop(0, cycles, train_cycle, learned)

  rows = sum(  # of the decoder in a cycle
    math.prod(loop.draw_batch(spec, share.head, part, 0, 0)[0].inputs.shape)
    for step_spec in experiment.step_specs
    for share in step_spec
    for part in share.parts
  )
  step = lambda: train((params, opt_state), cycles)
  return Case(
    "training step",
    step,
    cycles * spec.steps_per_cycle,
    cycles * rows,
    # The number of cycles is an argument, so that they are counted once.
    cycles * count_flops(step),
  )


def measure(case: Case, repeats: int) -> dict[str, Any]:
  """Returns the row of a case; times are in seconds."""
  times = []
  for _ in range(1 if case.once else 1 + repeats):
    start = time.perf_counter()
    jax.block_until_ready(case.function())
    times.append(time.perf_counter() - start)
  return {
    "name": case.name,
    "seconds": statistics.median(times[1:] or times) / case.count,
    "rows": case.rows / case.count,
    "flops": case.flops / case.count,
    "first_call": times[0],
  }


def table_line(row: dict[str, Any], peak: float) -> str:
  """Returns a row as a line of the table."""
  rate = row["flops"] / row["seconds"]
  numbers = [1e3 * row["seconds"], row["rows"] / row["seconds"], rate / 1e9]
  numbers += [100 * rate / peak, row["first_call"]]
  text = lambda x: f"{x:.3g}" if 0 < x < 1000 else f"{x:.0f}" if x else "-"
  return f"{row['name']:<32}" + "".join(f"{text(x):>13}" for x in numbers)


def peak_flops(dtype: str, precision: str) -> float:
  """Returns the FLOP/s of the fastest product of two square matrices."""
  rates = []
  for size in (1024, 2048) if jax.default_backend() == "cpu" else (2048, 8192):
    x = jnp.ones((size, size), dtype)
    square = jax.jit(lambda x: jnp.matmul(x, x, precision=precision))
    case = Case("", lambda square=square, x=x: square(x))
    rates.append(2.0 * size**3 / measure(case, 5)["seconds"])
  return max(rates)


def count_flops(function: Callable[[], Any]) -> float:
  """Returns the FLOPs of all matrix products that a function takes."""
  return matmul_flops(jax.make_jaxpr(function)().jaxpr)


def matmul_flops(jaxpr: core.Jaxpr) -> float:
  """Returns the FLOPs of all matrix products in a jaxpr.

  The body of a scan counts as often as it runs, unlike in XLA's own analysis of
  costs, that of a while loop once; of a `cond` the costliest branch counts."""
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
