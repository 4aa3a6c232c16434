"""--mode=bench: what is timed, FLOPs, medians, the table and its file."""

import json

import command
import jax
import jax.numpy as jnp

from lengthgen_jax.pipelines import bench
from lengthgen_jax.proofs import checker

X, Y = jnp.ones((4, 8, 16)), jnp.ones((4, 16, 32))
FLOPS = 2 * 4 * 8 * 16 * 32  # of X @ Y


def test_matrix_products_are_counted_as_often_as_they_are_taken():
  """In scans and branches, and in what differentiation makes of them."""

  def scanned(x, y):
    return jax.lax.scan(lambda c, _: (c + (x @ y).sum(), None), 0.0, None, 5)

  def branched(x, y, n):
    twice = lambda x, y: (x @ y + x @ y).sum()
    return jax.lax.cond(n > 0, lambda x, y: x.sum(), twice, x, y)

  gradient = jax.grad(lambda x, y: (x @ y).sum() ** 2, argnums=(0, 1))
  for products, function, arguments in (
    (1, lambda x, y: x @ y, (X, Y)),
    (3, gradient, (X, Y)),
    (5, scanned, (X, Y)),
    (2, branched, (X, Y, 1)),
  ):
    traced = jax.jit(function).trace(*arguments)
    assert bench.matmul_flops(traced.jaxpr.jaxpr) == products * FLOPS


def test_one_command_times_what_its_config_does(tmp_path, monkeypatch):
  proofs = []
  monkeypatch.setattr(checker, "prove_file", proofs.append)
  monkeypatch.setattr(bench, "peak_flops", lambda *_: 1e9)
  fields = "eval.lengths=(3,)", "eval.samples=(8,)", "bench.repeats=1"
  flags = (f"--config.{field}" for field in fields)
  words = command.TINY, "--mode=bench", f"--workdir={tmp_path}"
  done = command.succeeds(*words, *flags)
  results = json.loads((tmp_path / "bench.json").read_text())
  assert results["peak_flops"] == 1e9 and "of peak %" in done.stdout
  step, *tests, proof = results["rows"]
  names = [row["name"].replace("evaluation, 64 of", "of") for row in tests]
  assert names == ["of length 3", "decoding, length 3"]
  config = command.get_config()
  rows = config.data.train_length + 2 + 1  # with `&`
  assert step["name"] == "training step" and step["flops"] > 1e6
  assert step["rows"] == config.train.batch_size * rows
  assert tests[1]["rows"] == 6  # digits, slack and `&`
  assert len(proofs) == 1 and proof["seconds"] > 0
