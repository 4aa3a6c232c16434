"""Tests of decoder-only models: exact match and edit distance by length."""

import math
from functools import partial

import jax
import numpy as np

from lengthgen_jax import metrics, rng
from lengthgen_jax.models import decode
from lengthgen_jax.rows import (
  by_position,
  counted,
  measured,
  samples_at,
  usual_memory,
)
from lengthgen_jax.tasks import stress


def evaluate_length(
  config, experiment, lines, params, test_set: str, length: int
) -> list[dict]:
  """Rows of one test set at one length (items), EM first."""
  if test_set != "repeats":
    return _measure(
      config, experiment, lines, params, test_set, length, test_set
    )
  rows = []
  items = config.eval.repeated_items
  for times in config.eval.repetitions:
    # As many as there is room for: the longest prompts repeat the most.
    if items * times <= length and items <= experiment.task.alphabet:
      name = f"repeats_{items}x{times}"
      rows += _measure(
        config,
        experiment,
        lines,
        params,
        test_set,
        length,
        name,
        (items, times),
      )
  return rows


def _measure(
  config, experiment, lines, params, test_set, length: int, name: str, how=()
) -> list[dict]:
  key = jax.random.fold_in(rng.stream(config.eval.seed, "eval"), length)
  samples = samples_at(config, length)
  batch = stress.sample(experiment.task, test_set, key, samples, length, how)
  passes = math.ceil(samples / chunk_size(config, experiment, length))
  size = math.ceil(samples / passes)
  token, exact, distance = [], [], 0
  for start in range(0, samples, size):
    part = jax.tree.map(lambda x, i=start: x[i : i + size], batch)
    found = _hits(experiment, params, lines, part)
    wanted = np.asarray(part.weight) > 0
    token.append(np.asarray(found[0])[wanted].reshape(len(wanted), -1))
    exact.append(np.asarray(found[1]))
    if config.eval.free_running:
      distance += edit_distances(experiment, params, lines, part, length)
  token, exact = np.concatenate(token), np.concatenate(exact)
  where = {"test_set": name, "length": length, "bits": None}
  rows = [
    counted(where, "em", exact.sum(), samples),
    counted(where, "token", token.sum(), token.size, teacher_forced=True),
    by_position(where, token),
  ]
  if config.eval.free_running:
    outputs = experiment.task.outputs(length)
    value = distance / (samples * outputs)
    rows.append(measured(where, "edit", value, samples))
  return rows


def edit_distances(experiment, params, lines, batch, length: int) -> int:
  """Summed edit distances of free-running outputs to the truth."""
  task = experiment.task
  prompt, outputs = length + 1, task.outputs(length)
  told = decode.complete(
    experiment,
    params,
    lines,
    batch.tokens[:, :prompt],
    prompt,
    length,
    outputs,
    head=task.name,
    bound=prompt + outputs - 1,
  )
  told = np.asarray(told)[:, prompt : prompt + outputs]
  truth = np.asarray(batch.target)[np.asarray(batch.weight) > 0]
  truth = truth.reshape(len(told), outputs)
  pairs = zip(told, truth, strict=True)
  return sum(metrics.edit_distance(a, b) for a, b in pairs)


@partial(jax.jit, static_argnums=0)
def _hits(experiment, params, lines, batch):
  bias = experiment.row_bias(lines, batch.tokens.shape[1])
  return experiment.hits(params, batch, bias, experiment.heads[0])


def chunk_size(config, experiment, length: int) -> int:
  """Examples per pass, so that scores, logits and weights of one layer stay
  within eval.memory_mb."""
  rows = experiment.task.packed_length(length) - 1
  per_sample = attention_bytes(config.model.num_heads, rows)
  return max((usual_memory(config) << 20) // per_sample, 1)


def attention_bytes(heads: int, rows: int) -> int:
  """Scores, logits and weights of one layer and one example, in float32."""
  return 3 * 4 * heads * rows * rows
