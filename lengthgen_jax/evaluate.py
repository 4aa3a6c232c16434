"""Accuracy by test length: rows, a table and a figure."""

import math
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import lengthgen_jax
from lengthgen_jax import bias_check, metrics, records, rng
from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.models import decode
from lengthgen_jax.saved import config_hash
from lengthgen_jax.tasks.data import sample_test, test_size

SPARSE_KEYS = 8  # keys of a row that a sparse pass reckons with


def run(config, experiment, lines, seed_states, folder, stage: str) -> list:
  """Evaluates every seed, merges the rows into `folder`/results.jsonl.

  Args:
    config: the whole config; its `eval` section says what to test.
    experiment: from `experiment.build`.
    lines: LineBias with leading axis R or 1.
    seed_states: from `restore.seed_states`, one entry per seed.
    folder: where results.jsonl is.
    stage: "train", or the stage of a pipeline that trained the parameters.

  Returns:
    The rows of this evaluation.
  """
  widths = [experiment.test_width(n) for n in config.eval.lengths]
  for name, value in lines.items():
    if name.endswith("_dense"):
      bias_check.check_size(experiment, name, value, max(widths))
  rows = []
  for r, seed_state in enumerate(seed_states):
    own_lines = of_seed(lines, r)
    base = row_base(config, experiment, seed_state, stage)
    for test_set in config.eval.test_sets:
      for length in config.eval.lengths:
        clock = time.perf_counter()
        found = evaluate_length(
          config, experiment, own_lines, seed_state["params"], test_set, length
        )
        rows += [base | row for row in found]
        exact = found[0]
        seconds = time.perf_counter() - clock
        print(
          f"seed {base['seed']}, {test_set}, {length} digits:"
          f" EM {100 * exact['value']:.1f} % of {exact['n']}"
          f" ({exact['n'] / seconds:.0f} samples/s with compilation)",
          file=sys.stderr,
        )
  records.merge(folder / "results.jsonl", rows)
  return rows


def row_base(config, experiment, seed_state, stage: str) -> dict:
  """The conditions of a row: everything but what was measured."""
  return {
    "task": config.task,
    "method": config.method,
    "stage": stage,
    "family": experiment.task.family,
    "width": config.data.width,
    "slack": config.data.slack if config.data.width == "natural" else None,
    "train_length": config.data.train_length,
    "train_data": config.data.numbers,
    "seed": seed_state["seed"],
    "step": seed_state["step"],
    "checkpoint": str(config.eval.checkpoint),
    "stopped_at": seed_state["stopped_at"],
    "leak": config.bias.allow_leak,
    "config_hash": config_hash(config),
    "version": lengthgen_jax.__version__,
    "position": None,
  }


def evaluate_length(
  config, experiment, lines, params, test_set: str, length: int
) -> list[dict]:
  """Rows of one test set at one length (decimal digits), EM first."""
  task = experiment.task
  width, units = experiment.test_width(length), task.units(length)
  asked = samples_at(config, length)
  samples = test_size(length, asked)
  key = jax.random.fold_in(rng.stream(config.eval.seed, "eval"), length)
  batch = _draw(task, test_set, key, asked, units, width)
  sparse = experiment.is_sparse(lines)
  passes = math.ceil(asked / chunk_size(config, experiment, width, sparse))
  size = math.ceil(asked / passes)
  token, exact = [], []
  for start in range(0, samples, size):
    part = _rows(batch, start, size)
    found = _hits(experiment, params, lines, part, width, sparse)
    token.append(np.asarray(found[0])[: samples - start])
    exact.append(np.asarray(found[1])[: samples - start])
  token, exact = np.concatenate(token), np.concatenate(exact)
  where = {
    "test_set": test_set,
    "length": length,
    "bits": units if task.base == 2 else None,
  }
  by_position = token.mean(axis=0)
  rows = [
    _row(where, "em", exact.sum(), samples),
    _row(where, "token", token.sum(), token.size, teacher_forced=True),
    {
      **where,
      "metric": "position",
      "teacher_forced": True,
      "n": samples,
      "correct": None,
      "value": float(by_position.min()),
      "lower_bound": None,
      "by_position": [round(float(x), 6) for x in by_position],
    },
  ]
  if config.eval.free_running:
    rows += free_running(
      experiment, lines, params, batch, samples, size, width, where
    )
  return rows


def free_running(
  experiment, lines, params, batch, samples: int, size: int, width: int, where
) -> list[dict]:
  """Rows that need decoding: end-blind exact match and edit distance.

  End-blind is the released ABC program's metric: rows are decoded to the
  target's length whatever they say, every end token is deleted, and zeros in
  front of the number are forgiven.
  """
  task = experiment.task
  end = task.vocabulary.id(task.vocabulary.end)
  keys = task.coordinates(width)
  blind, distance, length = 0, 0, 0
  for start in range(0, samples, size):
    part = _rows(batch, start, size)
    out = decode.greedy(
      experiment.model,
      params,
      lines,
      part.source,
      keys,
      task.target_length(width),
      bias_rows=experiment.biases,
      bound=task.target_length(width),
      end=end,
      pad=task.vocabulary.id(task.vocabulary.pad),
      stop=False,
    )
    pairs = zip(np.asarray(out), np.asarray(part.target), strict=True)
    for told, truth in list(pairs)[: samples - start]:
      blind += _number(told, end) == _number(truth, end)
      wanted = metrics.until_end(truth, end)
      distance += metrics.edit_distance(metrics.until_end(told, end), wanted)
      length += len(wanted)
  return [
    _row(where, "em_end_blind", blind, samples),
    {
      **where,
      "metric": "edit",
      "teacher_forced": False,
      "n": samples,
      "correct": None,
      "value": distance / length,
      "lower_bound": None,
    },
  ]


def _number(tokens, end: int) -> list[int]:
  """Digits of a reversed number without end tokens and leading zeros."""
  kept = [int(t) for t in tokens if t != end]
  while kept and kept[-1] == 0:
    kept.pop()
  return kept


def _row(where: dict, metric: str, correct, n, teacher_forced=False) -> dict:
  correct, n = int(correct), int(n)
  bound = None if teacher_forced else metrics.lower_bound(correct, n)
  return {
    **where,
    "metric": metric,
    "teacher_forced": teacher_forced,
    "n": n,
    "correct": correct,
    "value": correct / n,
    "lower_bound": bound,
  }


@partial(jax.jit, static_argnames=("task", "test_set", "samples", "width"))
def _draw(task, test_set, key, samples, length, width):
  return sample_test(task, test_set, key, samples, length, width)


@partial(jax.jit, static_argnames=("experiment", "width", "sparse"))
def _hits(experiment, params, lines, batch, width, sparse=False):
  batch = batch._replace(coordinates=experiment.task.coordinates(width))
  make = experiment.gathered_biases if sparse else experiment.full_biases
  bias = make(lines, width)
  return experiment.hits(params, batch, bias)


def _rows(batch, start: int, size: int):
  """`size` examples from `start`, the last one repeated at the end."""
  index = np.minimum(np.arange(start, start + size), len(batch.source) - 1)
  take = lambda x: jnp.take(x, index, axis=0)
  return batch._replace(
    source=take(batch.source),
    target=take(batch.target),
    weight=take(batch.weight),
    length=take(batch.length),
  )


def chunk_size(config, experiment, width: int, sparse=False) -> int:
  """Examples per pass, so that attention stays within eval.memory_mb.

  Counts scores, logits and weights of one layer's two sites in float32; of a
  sparse bias, what stands on a few lines.
  """
  targets = experiment.task.target_length(width)
  sources = len(experiment.task.coordinates(width).segment)
  cells = targets * (targets + sources)
  if config.model.num_encoder_layers:
    cells = max(cells, sources * sources)
  per_sample = 3 * 4 * config.model.num_heads * cells
  if sparse:
    per_sample = 4 * config.model.emb_dim * targets * SPARSE_KEYS
  # What fits a CPU's cache is twice as fast as what fits its memory.
  usual = 16 if jax.default_backend() == "cpu" else 1024
  budget = config.eval.memory_mb or usual
  return max((budget << 20) // per_sample, 1)


def samples_at(config, length: int) -> int:
  """eval.samples for a length in eval.lengths."""
  samples = config.eval.samples
  many = len(samples) > 1
  return samples[config.eval.lengths.index(length)] if many else samples[0]
