"""The experiment: the tasks, data and model of one run."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import rng
from lengthgen_jax.attention import temperature
from lengthgen_jax.attention.biases import scaffold as scaffolds
from lengthgen_jax.attention.biases.scaffold import SiteMatrix
from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.attention.lines import MAX_SEGMENTS, SiteLines
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check
from lengthgen_jax.models.transformer import Biases, Counts, Inputs, Transformer
from lengthgen_jax.tasks import dataset, packing
from lengthgen_jax.tasks.task import Task, Width


class SiteInputs(NamedTuple):
  """What attention needs besides a batch, by site."""

  biases: Biases
  counts: Counts


def model_inputs(batch: packing.Batch) -> tuple[Inputs, Inputs | None]:
  """Returns the inputs of the decoder and the source, None in a decoder-only
  model."""
  inputs = Inputs(batch.inputs, batch.places, batch.keys, batch.rows)
  if batch.source is None:
    return inputs, None
  places, keys = batch.source_places, batch.source_keys
  assert places is not None and keys is not None
  return inputs, Inputs(batch.source, places, keys, keys)


@dataclasses.dataclass(frozen=True)
class Experiment:
  """The tasks, data and model of a run, which training does not change;
  hashable, as a static argument of compiled functions."""

  # the data set of each output head, the main task's first
  data: tuple[dataset.Dataset, ...]
  model: Transformer
  bias: scaffolds.BiasConfig  # how the scaffold is added to attention scores
  step_specs: tuple[dataset.StepSpec, ...]  # the gradient steps of a cycle
  # for every head, the held-out examples of each bucket
  validation: tuple[dataset.Share, ...]
  train_length: int  # the longest, as in configs: decimal digits or items
  # of all inputs under data.width=fixed; None: longer ones are wider
  fixed_width: int | None

  @property
  def kind(self) -> str:
    """The model's family, "decoder_only" or "encoder_decoder"."""
    return self.model.kind

  @property
  def task(self) -> Task:
    """The main task."""
    return self.data[0].task

  @property
  def output_heads(self) -> tuple[str, ...]:
    """The names of the output heads, one for each data set."""
    return tuple(data_set.name for data_set in self.data)

  def output_layer(self, head: str) -> str:
    """Returns the name of the output layer that a head has in the model."""
    return self.data[self.output_heads.index(head)].task.name

  @property
  def width_counts(self) -> tuple[int, ...]:
    """By output head, the number of widths that its batches take in turn."""
    return tuple(data_set.num_widths for data_set in self.data)

  @property
  def site_segments(self) -> dict[str, tuple[str, ...]]:
    """By attention site, the names of the keys' segments, by number."""
    source = self.task.segments
    if self.kind == "decoder_only":
      return {"self": (*source, "target", "start")}
    # The decoder has no keys in the prompt's segments, but these are numbered.
    target_segments = ("",) * len(source) + ("target", "start")
    return {"self": target_segments, "cross": source, "encoder": source}

  # Sizes.

  def width(self, lengths: Sequence[int], what: str) -> Width:
    """Returns the width that operands of these lengths, in the task's units,
    are padded to; a UsageError if they do not fit, or the table of positions.
    `what` are the operands in words, like "60 digits"."""
    most = (self.fixed_width or np.inf) - 1
    check(
      max(lengths) <= most,
      f"{what} do not fit data.width=fixed with W={self.fixed_width}, which"
      f" takes at most {most} {self.task.own_unit}",
    )
    width = self.fixed_width or self.task.padded_width(lengths)
    self.check_positions(width, what)
    return width

  def test_width(self, length: int, arguments: tuple = ()) -> Width:
    """Returns the width of tests of a length as in configs, in decimal digits
    or items; `arguments` are further ones of the test set."""
    lengths = self.task.operand_lengths(length, arguments)
    return self.width(lengths, f"{length} {self.task.unit}")

  def bound(self, width: Width, scaffold: dict) -> Width:
    """Returns the static `bound` of the Size of tests or typed inputs that have
    this width: the greatest width that their arrays have room for.

    Where arrays may be wider than needed, it is a power of two, at least 64, so
    that one compiled program serves many widths.
    """
    has_matrix = any(isinstance(x, SiteMatrix) for x in scaffold.values())
    if has_matrix or self.task.axes > 1 or self.fixed_width is not None:
      # A matrix ends there, a grid grows with the square, and a fixed width is
      # the only one.
      return width
    return max(1 << (int(np.max(width)) - 1).bit_length(), 64)

  def site_sizes(self, width: Width) -> dict[str, tuple[int, int]]:
    """Returns (number of rows, number of keys) by attention site at a width."""
    source = self.task.prompt_size(width)
    rows = self.task.output_size(width)
    if self.kind == "decoder_only":
      return {"self": (source + rows, source + rows)}
    return {
      "self": (rows, rows),
      "cross": (rows, source),
      "encoder": (source, source),
    }

  def check_scaffold(self, width: Width, scaffold: dict) -> None:
    """Raises UsageError if matrices are too small for the main task's inputs of
    a width."""
    for site, bias in scaffold.items():
      if isinstance(bias, SiteMatrix):  # lines fit every width
        bias.check_size(site, *self.site_sizes(width)[site])

  def check_positions(self, width: Width, what: str, start: int = 0) -> None:
    """Raises UsageError if a table of positions has too few rows for a width.

    `what` are the operands in words, like "60 digits"; `start` is the greatest
    number that training adds to all places at random.
    """
    config = self.model.config.positions
    encoding = POSITIONS[config.kind]
    is_cyclic = encoding.by_index and config.cyclic_period
    if not encoding.limited or is_cyclic:
      return
    if encoding.limited == "place":
      # One for each token of the longest segment, along one axis of a grid.
      longest, task = np.max(width) + 1, self.task
      if task.axes == 1:
        segment = -(-task.prompt_size(width) // len(task.segments))
        longest = max(longest, task.output_size(width), segment)
      needed = longest + start
    else:
      needed = max(max(size) for size in self.site_sizes(width).values())
    check(
      needed <= config.table,
      f"{what} need {needed} positions, but positions.table={config.table}",
    )

  def sample(
    self,
    key: jax.Array,
    head: str,
    part: dataset.Part,
    width_index: jax.Array | int = 0,
    held_out: bool = False,
    seed: jax.Array | int | None = None,
  ) -> packing.Batch:
    """Draws a batch of a head's task: one part of a gradient step, or of a
    validation if `held_out`. `width_index` counts modulo the number of widths;
    of `seed` see `Dataset.sample`."""
    index = self.output_heads.index(head)
    key = jax.random.fold_in(jax.random.fold_in(key, index), part.bucket)
    return self.data[index].sample(
      key, part.count, part.bucket, width_index, held_out, seed
    )

  def test_batch(
    self,
    test_set: str,
    seed: int,
    index_B: np.ndarray,
    length: int,
    scaffold: dict,
    arguments: tuple = (),
  ) -> packing.Batch:
    """Returns the examples `index_B` of a test set at a length (`test_width`),
    each a function of its index and the seed."""
    width = self.test_width(length, arguments)
    key = jax.random.fold_in(rng.stream(seed, "eval"), length)
    return dataset.test_batch(
      self.task,
      self.kind,
      test_set,
      key,
      jnp.asarray(index_B),
      np.array(self.task.operand_lengths(length, arguments)),
      np.asarray(width, np.int32),
      self.bound(width, scaffold),
      arguments,
    )

  def random_batch(
    self,
    key: jax.Array,
    index_B: Array,
    length: int | Array,
    width: int | Array,
    bound: Width,
  ) -> packing.Batch:
    """Returns examples of the task's first test set, each a function of its
    index and the key; `length` is in the task's units."""
    test_set = next(iter(self.task.test_sets))
    return dataset.test_batch(
      self.task, self.kind, test_set, key, index_B, length, width, bound, ()
    )

  # The model's inputs besides a batch.

  def supports_sparse(self, scaffold: dict) -> bool:
    """Returns whether attention may leave out the keys that are on no line, and
    compute no scores of them."""
    # Every site must have lines, the closed cells of -inf, and not too many
    # segments; transparent heads, encoders and encodings that add to scores
    # have no sparse form.
    sites = {"self"} if self.kind == "decoder_only" else {"self", "cross"}
    return (
      self.bias.closed == CLOSED
      and not self.model.config.num_encoder_layers
      and not POSITIONS[self.model.config.positions.kind].additive
      and sites <= set(scaffold)
      and all(
        isinstance(bias, SiteLines) and not np.any(bias.transparent)
        for bias in scaffold.values()
      )
      and all(len(self.site_segments[site]) <= MAX_SEGMENTS for site in sites)
    )

  def trains_sparse(self, scaffold: dict) -> bool:
    """Returns whether training follows the lines of all seeds: where that is
    supported and faster, but not in ragged tasks."""
    if not self.data[0].widths or not self.supports_sparse(scaffold):
      return False
    sizes = self.site_sizes(self.data[0].bound(0))
    return scaffolds.is_sparse_faster(scaffold, sizes)

  def site_inputs(
    self,
    scaffold: dict,
    batch: packing.Batch,
    decoding: bool = False,
    sparse: bool = False,
    noise: rng.Noise | None = None,
  ) -> SiteInputs:
    """Returns what attention needs besides a batch, or some rows of one.

    While `decoding` later outputs do not exist. `sparse` attention follows
    lines alone. Noise, of training, stretches the counts at random.
    """
    site_coordinates = {"self": (batch.rows, batch.keys)}
    if batch.source_keys is not None:
      site_coordinates["cross"] = (batch.rows, batch.source_keys)
      if self.model.config.num_encoder_layers:
        site_coordinates["encoder"] = (batch.source_keys, batch.source_keys)
    biases = {}
    for site, coordinates in site_coordinates.items():
      args = self.bias, scaffold, site, *coordinates
      biases[site] = (
        scaffolds.sparse_bias(*args)
        if sparse
        else scaffolds.dense_bias(*args, decoding)
      )
    config = self.model.config.temperature
    return SiteInputs(biases, temperature.site_counts(config, batch, noise))

  # The model.

  def init(self, seed: jax.Array | int) -> dict:
    """Returns a seed's random initial parameters, float32 at least."""
    # Of this batch, a single example, only the shapes matter.
    part = self.validation[0].parts[0]._replace(count=1)
    batch = self.sample(jax.random.key(0), self.task.name, part)
    # The 0 keeps the parameters of kept runs.
    key = jax.random.fold_in(rng.stream(seed, "init"), 0)
    (inputs, source), biases = model_inputs(batch), self.site_inputs({}, batch)
    params = self.model.init(
      key, inputs, biases.biases, source=source, counts=biases.counts
    )["params"]
    dtype = jnp.promote_types(jnp.float32, self.model.config.dtype)
    return jax.tree.map(lambda x: x.astype(dtype), params)

  def apply(
    self,
    params: dict,
    scaffold: dict,
    batch: packing.Batch,
    head: str,
    noise: rng.Noise | None = None,
    sparse: bool = False,
  ) -> tuple[jax.Array, dict]:
    """Returns teacher-forced logits [B, T, V] and activations, by the names of
    `Transformer`.

    With noise it runs as in training: with dropout, and with random positions
    and temperature counts where the config has them.
    """
    biases, counts = self.site_inputs(
      scaffold, batch, noise=noise, sparse=sparse
    )
    inputs, source = model_inputs(batch)
    outputs: Any = self.model.apply(
      {"params": params},
      inputs,
      biases,
      self.output_layer(head),
      source=source,
      counts=counts,
      noise=noise,
      mutable=["intermediates"],
    )
    logits, variables = outputs
    return logits, variables["intermediates"]

  def matches(
    self,
    params: dict,
    scaffold: dict,
    batch: packing.Batch,
    head: str,
    sparse: bool = False,
  ) -> jax.Array:
    """Returns which examples [B] of a batch are right: all scored tokens, the
    end token included. This is exact match.

    With teacher forcing it equals that of greedy decoding, by induction on the
    first error, unless a row sees later inputs.
    """
    logits, _ = self.apply(params, scaffold, batch, head, sparse=sparse)
    is_right = (logits.argmax(-1) == batch.target) | (batch.weight == 0)
    return jnp.all(is_right, axis=1)

  def idle_params(self, step_spec: dataset.StepSpec) -> set[str]:
    """Returns the names of the modules that a step does not train: the output
    layers of other heads."""
    trained = {self.output_layer(share.head) for share in step_spec}
    idle = {*self.model.output_heads} - trained
    return {f"logits_dense_{layer}" for layer in idle}
