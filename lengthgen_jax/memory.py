"""This module estimates what attention and training take, and what a device
has.

All sizes are in bytes.
"""

import os

import jax
import jax.numpy as jnp

from lengthgen_jax.attention.biases.scaffold import SparsePlan
from lengthgen_jax.errors import check

LINED_KEYS = 8  # keys of a row that a pass along lines reckons with


def of_device() -> int:
  """Returns a device's memory; if one CPU holds several devices, each one's
  share."""
  statistics = jax.local_devices()[0].memory_stats() or {}
  pages = os.sysconf("SC_PHYS_PAGES") // jax.local_device_count()
  return statistics.get("bytes_limit", pages * os.sysconf("SC_PAGE_SIZE"))


def of_example(experiment, width: int, sparse_plan: SparsePlan | None) -> int:
  """Returns the size of one layer's scores, logits and weights, of one example.

  They are in float32. Along lines, the size is that of the arrays on a few
  keys.

  Args:
    experiment: the Experiment whose model it is.
    width: what the operands are padded to.
    sparse_plan: of attention along lines, or None.
  """
  task, config = experiment.task, experiment.model.config
  sources, rows = task.prompt_size(width), task.output_size(width)
  if experiment.kind == "decoder_only":
    sources, rows = 0, sources + rows
  cells = max(
    rows * (rows + sources), sources**2 * bool(config.num_encoder_layers)
  )
  size = 3 * 4 * config.num_heads * cells
  if sparse_plan is not None:
    size = size * sparse_plan.most_dense_heads // config.num_heads
    size += 4 * config.emb_dim * rows * LINED_KEYS
  return size


def check_pass(per_example: int, memory_mb: int, what: str) -> None:
  """Raises UsageError if a test cannot fit a device, whatever the batch.

  One of the three arrays of `of_example` must fit.

  Args:
    per_example: from of_example.
    memory_mb: config.eval.memory_mb.
    what: names in words what is tested.
  """
  limit = of_device()
  check(
    memory_mb << 20 <= limit,
    f"eval.memory_mb={memory_mb}: a device has {limit >> 20}, choose less",
  )
  least = per_example // 3
  check(
    least <= limit,
    f"eval.lengths: attention to one example of {what} takes at least"
    f" {_gib(least)}, and a device has {_gib(limit)}; choose shorter ones",
  )


def check_training(run) -> None:
  """Raises UsageError if training cannot fit a device, by the least that it
  takes.

  That is the states, a batch, and what the backward pass of a gradient step
  needs.

  Args:
    run: a loop.Run.
  """
  seeds, data = run.mesh.shape
  seeds_per_device = len(run.seeds) // seeds
  states = _size(run.abstract_states) // seeds
  seeds_at_once = seeds_per_device if run.train.seed_axis == "vmap" else 1
  step_size = (
    seeds_at_once
    * _of_step(run.experiment, run.sparse_plan is not None)
    // data
  )
  limit = of_device()
  advice = "train.batch_size"
  if seeds_at_once > 1:
    advice += ", or choose train.seed_axis='loop'"
  if states > step_size:
    advice = "model.emb_dim or the number of seeds"
  check(
    states + step_size <= limit,
    f"training takes at least {_gib(states + step_size)} on each device, which"
    f" has {_gib(limit)}: lower {advice}",
  )


def _of_step(experiment, is_sparse: bool) -> int:
  """Returns what one seed's gradient step needs.

  That is a batch and, of what the backward pass of a microbatch takes, the
  inputs of dense layers and, where attention visits every key, its weights
  in float32.
  """
  config, data_sets = experiment.model.config, experiment.data
  depth = {"encoder": config.num_encoder_layers}
  # A block has four dense inputs: attention's two and the MLP's two.
  bytes_per_row = config.mlp_dim + 3 * config.emb_dim
  bytes_per_row *= jnp.dtype(config.dtype).itemsize
  bytes_per_pair = 0 if is_sparse else 4 * config.num_heads
  key = jax.eval_shape(lambda: jax.random.key(0))

  def of_part(head: str, part) -> int:
    batch = jax.eval_shape(lambda key: experiment.sample(key, head, part), key)
    width = data_sets[experiment.heads.index(head)].longest(part.bucket)
    examples_at_once = 1 if jax.default_backend() == "cpu" else part.count
    return _size(batch) + examples_at_once * sum(
      depth.get(site, config.num_decoder_layers)
      * rows
      * (bytes_per_pair * keys + bytes_per_row * (site != "cross"))
      for site, (rows, keys) in experiment.site_sizes(width).items()
    )

  return max(
    sum(
      of_part(share.head, part) for share in step_spec for part in share.parts
    )
    for step_spec in experiment.step_specs
  )


def _size(tree) -> int:
  """Returns the size of all arrays of a pytree."""
  return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _gib(size: int) -> str:
  return f"{size / 2**30:.1f} GiB"
