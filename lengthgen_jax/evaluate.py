"""Accuracy by test length: rows, a table and a figure."""

import math
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import lengthgen_jax
from lengthgen_jax import (
  bias_check,
  evaluate_sequences,
  metrics,
  records,
  rng,
)
from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.models import decode
from lengthgen_jax.rows import (
  by_position,
  counted,
  measured,
  samples_at,
  usual_memory,
)
from lengthgen_jax.saved import config_hash
from lengthgen_jax.tasks.data import sample_test, test_size


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
  measure = MEASURES[experiment.task.family]
  check_widths(config, experiment, lines)
  rows = []
  for r, seed_state in enumerate(seed_states):
    own_lines = of_seed(lines, r)
    base = row_base(config, experiment, seed_state, stage)
    for test_set in config.eval.test_sets:
      for length in config.eval.lengths:
        clock = time.perf_counter()
        found = measure(
          config, experiment, own_lines, seed_state["params"], test_set, length
        )
        rows += [base | row for row in found]
        seconds = time.perf_counter() - clock
        exact = [row for row in found if row["metric"] == "em"]
        speed = sum(row["n"] for row in exact) / seconds
        for row in exact:
          print(
            f"seed {base['seed']}, {row['test_set']}, {length}"
            f" {experiment.task.unit}: EM {100 * row['value']:.1f} % of"
            f" {row['n']} ({speed:.0f} samples/s with compilation)",
            file=sys.stderr,
          )
  records.merge(folder / "results.jsonl", rows)
  return rows


def check_widths(config, experiment, lines) -> None:
  """UsageError if the model or its bias cannot take a length in
  eval.lengths."""
  widths = [experiment.test_width(n) for n in config.eval.lengths]
  for name, value in lines.items():
    if name.endswith("_dense"):
      bias_check.check_size(experiment, name, value, max(widths))


def row_base(config, experiment, seed_state, stage: str) -> dict:
  """The conditions of a row: everything but what was measured."""
  natural = config.data.width == "natural"
  data = config.data.numbers
  if experiment.task.family == "decoder_only":
    natural = False
    data = str(config.sequences.size or "endless")
  return {
    "task": config.task,
    "method": config.method,
    "stage": stage,
    "family": experiment.task.family,
    "width": config.data.width,
    "slack": config.data.slack if natural else None,
    "train_length": config.data.train_length,
    "train_data": data,
    "seed": seed_state["seed"],
    "eval_seed": config.eval.seed,
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
  rows = [
    counted(where, "em", exact.sum(), samples),
    counted(where, "token", token.sum(), token.size, teacher_forced=True),
    by_position(where, token),
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
    counted(where, "em_end_blind", blind, samples),
    measured(where, "edit", distance / length, samples),
  ]


def _number(tokens, end: int) -> list[int]:
  """Digits of a reversed number without end tokens and leading zeros."""
  kept = [int(t) for t in tokens if t != end]
  while kept and kept[-1] == 0:
    kept.pop()
  return kept


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
  return max((usual_memory(config) << 20) // per_sample, 1)


SPARSE_KEYS = 8  # keys of a row that a sparse pass reckons with
MEASURES = {
  "encoder_decoder": evaluate_length,
  "decoder_only": evaluate_sequences.evaluate_length,
}
