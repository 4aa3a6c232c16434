"""Estimates of the memory that attention takes, lower bounds of what training
takes, and the memory of devices, in bytes."""

import os
from typing import Any

import jax
import jax.numpy as jnp

from lengthgen_jax.attention.biases.scaffold import SparsePlan
from lengthgen_jax.errors import check
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks.dataset import Part, Share
from lengthgen_jax.training.loop import Run

SPARSE_KEYS = 8  # keys per row that estimates assume for attention along lines


def device_bytes() -> int:
  """Returns the bytes of memory that the first device has; several CPU devices
  share that of the machine."""
  statistics = jax.local_devices()[0].memory_stats() or {}
  pages = os.sysconf("SC_PHYS_PAGES") // jax.local_device_count()
  return statistics.get("bytes_limit", pages * os.sysconf("SC_PAGE_SIZE"))


def attention_bytes(
  experiment: Experiment, width: Any, sparse_plan: SparsePlan | None
) -> int:
  """Returns the bytes that attention in one layer takes for one example.

  Dense attention has three float32 arrays [heads, rows, keys]: the scores, the
  scores plus bias, and the weights; of a decoder layer those of self- and of
  cross-attention count together. Attention along lines has them only for the
  heads that are dense nevertheless, and gathers a few keys per row for the
  others.

  Args:
    experiment: the experiment of the model.
    width: the width that operands are padded to; a pair for grids.
    sparse_plan: the plan of attention along lines; None for dense attention.
  """
  task, config = experiment.task, experiment.model.config
  source_keys, rows = task.prompt_size(width), task.output_size(width)
  if experiment.kind == "decoder_only":
    source_keys, rows = 0, source_keys + rows
  decoder_cells = rows * (rows + source_keys)
  encoder_cells = source_keys**2 if config.num_encoder_layers else 0
  num_bytes = 3 * 4 * config.num_heads * max(decoder_cells, encoder_cells)
  if sparse_plan is not None:
    num_bytes = num_bytes * sparse_plan.max_dense_heads // config.num_heads
    num_bytes += 4 * config.emb_dim * rows * SPARSE_KEYS
  return num_bytes


def check_test(example_bytes: int, memory_mb: int, size_text: str) -> None:
  """Checks that one example of a test can fit in the memory of a device.

  At least a sixth of its bytes must fit: in dense attention the largest of the
  arrays of `attention_bytes`, three for each of at most two sites, has as many.

  Args:
    example_bytes: the bytes of one example, from `attention_bytes`.
    memory_mb: config.eval.memory_mb, in MiB, no more than a device has.
    size_text: the size of an example in words, like "60 digits".

  Raises:
    UsageError: a device has less memory than `memory_mb`, or less than a sixth
      of `example_bytes`.
  """
  limit = device_bytes()
  check(
    memory_mb << 20 <= limit,
    f"eval.memory_mb={memory_mb}: a device has {limit >> 20} MiB, choose less",
  )
  least = example_bytes // 6
  check(
    least <= limit,
    f"eval: attention to one example of {size_text} takes at least"
    f" {_gib(least)}, and a device has {_gib(limit)}; choose shorter"
    " eval.lengths, or a shorter eval.frontier",
  )


def check_training(run: Run) -> None:
  """Checks that training can fit in the memory of a device.

  At least the train states, a batch, and the arrays that the backward pass of a
  gradient step needs must fit.

  Raises:
    UsageError: that is more than a device has.
  """
  along_seed, along_data = run.mesh.shape
  seeds_per_device = len(run.seeds) // along_seed
  state_bytes = tree_bytes(run.abstract_states) // along_seed
  seeds_at_once = seeds_per_device if run.train.seed_axis == "vmap" else 1
  is_sparse = run.sparse_plan is not None
  in_microbatches = jax.default_backend() == "cpu"
  batch_bytes, activation_bytes = (
    seeds_at_once * num_bytes // along_data
    for num_bytes in step_bytes(run.experiment, is_sparse, in_microbatches)
  )
  bytes_at_once = batch_bytes + activation_bytes
  limit = device_bytes()
  advice = "train.batch_size"
  if in_microbatches and activation_bytes > batch_bytes:
    advice = "data.train_length"  # those of one example
  if seeds_at_once > 1:
    advice += ", or choose train.seed_axis='loop'"
  if state_bytes > bytes_at_once:
    advice = "model.emb_dim or the number of seeds"
  least = state_bytes + bytes_at_once
  check(
    least <= limit,
    f"training takes at least {_gib(least)} on each device, which has"
    f" {_gib(limit)}: lower {advice}",
  )


def step_bytes(
  experiment: Experiment, is_sparse: bool, in_microbatches: bool
) -> tuple[int, int]:
  """Returns lower bounds of the bytes that one seed's largest gradient step
  takes: of its batch, and of the arrays that the backward pass needs at once.

  These are the inputs of dense layers, without those of cross-attention and of
  the output heads, and the float32 weights of dense attention.

  Args:
    experiment: what is trained.
    is_sparse: whether there is a plan of attention along lines; the weights of
      its dense heads are not counted.
    in_microbatches: whether the step is taken in microbatches, as on CPUs; then
      the arrays of a single example, the longest, are counted.
  """
  config, data_sets = experiment.model.config, experiment.data
  # A block has four dense inputs: attention's two and the MLP's two.
  bytes_per_row = config.mlp_dim + 3 * config.emb_dim
  bytes_per_row *= jnp.dtype(config.dtype).itemsize
  bytes_per_cell = 0 if is_sparse else 4 * config.num_heads
  key = jax.eval_shape(lambda: jax.random.key(0))

  def part_bytes(head: str, part: Part) -> tuple[int, int]:
    batch = jax.eval_shape(lambda key: experiment.sample(key, head, part), key)
    width = data_sets[experiment.heads.index(head)].bound(part.bucket)
    example_bytes = 0
    for site, (rows, keys) in experiment.site_sizes(width).items():
      layer_bytes = rows * keys * bytes_per_cell
      if site != "cross":  # the inputs of its dense layers are left out
        layer_bytes += rows * bytes_per_row
      is_encoder = site == "encoder"
      example_bytes += layer_bytes * (
        config.num_encoder_layers if is_encoder else config.num_decoder_layers
      )
    examples_at_once = 1 if in_microbatches else part.count
    return tree_bytes(batch), examples_at_once * example_bytes

  def spec_bytes(step_spec: tuple[Share, ...]) -> tuple[int, int]:
    batches, activations = zip(
      *(part_bytes(x.head, part) for x in step_spec for part in x.parts),
      strict=True,
    )
    at_once = max if in_microbatches else sum
    return sum(batches), at_once(activations)

  return max(map(spec_bytes, experiment.step_specs), key=sum)


def tree_bytes(tree: Any) -> int:
  """Returns the bytes of all arrays of a pytree."""
  return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _gib(size: int) -> str:
  return f"{size / 2**30:.1f} GiB"
