"""This module has a trained model of one seed: its answers to test sets and to
input texts."""

import dataclasses
import functools
import hashlib
import inspect
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention import pruning
from lengthgen_jax.attention.lines import SiteLines, of_seed
from lengthgen_jax.compilation import jit_unoptimized
from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check, check_choice
from lengthgen_jax.evaluation import decode
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models.centering import can_center, centered
from lengthgen_jax.models.transformer import blocks
from lengthgen_jax.tasks import dataset
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.tasks.task import Task
from lengthgen_jax.training.loop import Run, TrainState
from lengthgen_jax.training.mesh import SINGLE_DEVICE, Mesh

# Sequences of more rows are tested by decoding if that needs few keys in its
# cache, because one teacher-forced pass would not fit in memory.
MAX_TEACHER_FORCED = 1 << 16
SPARSE_KEYS = 8  # keys per row that estimates assume for attention along lines
MAX_ANSWER_BATCH = 64  # input texts that are decoded together
MAX_ANSWER_BYTES = 4 << 30  # memory of attention when input texts are decoded
# Up to this many cells of attention, decoding takes less time than the compiler
# would take to optimize its program.
MAX_UNOPTIMIZED_CELLS = 1 << 17


class EvalSpec(NamedTuple):
  """An EvalSpec is a test set at one length, and how it is sampled.

  Attributes:
    name: the name in result rows, like "unequal_x3", arguments included.
    test_set: the key of its function in the task's test_sets.
    arguments: further arguments of that function.
    samples: the number of samples asked for; it also sets the size of batches.
    memory_mb: the MiB that attention may take on each device; 0 for the
      default of `Model.batch_size`.
    count: how many samples are tested, if fewer exist.
  """

  name: str
  test_set: str
  arguments: tuple
  length: int
  samples: int
  seed: int = 0
  memory_mb: int = 0
  count: int | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
  """A Model is the trained model of one seed.

  Attributes:
    scaffold: the attention bias of this seed, lines or matrices by site.
    step: step of the checkpoint; for "best", the step at which this seed was
      best. After finetuning it is the sum of those of all its runs.
    stopped_at: step at which training of this seed stopped early, or -1.
    diverged: whether the loss or the parameters became non-finite in training;
      `params` are those from before.
    em: the best exact match in validation, a fraction; 0 if there was none.
    mesh: the devices that batches are split over.
  """

  experiment: Experiment
  scaffold: dict
  params: dict
  seed: int = 0
  step: int = 0
  stopped_at: int = -1
  diverged: bool = False
  em: float = 0.0
  mesh: Mesh = SINGLE_DEVICE

  @functools.cached_property
  def checksum(self) -> str:
    """A checksum, 16 hexadecimal digits, of all that a certificate depends on:
    parameters and scaffold by value, and settings of model, task and bias."""
    digest, experiment = hashlib.sha256(), self.experiment
    settings = experiment.kind, experiment.model.config, experiment.task
    width = experiment.fixed_width
    digest.update(repr((*settings, experiment.bias, width)).encode())
    trees = self.params, self.scaffold
    for path, leaf in jax.tree_util.tree_leaves_with_path(trees):
      digest.update(jax.tree_util.keystr(path).encode())
      digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()[:16]

  @property
  def is_sparse(self) -> bool:
    """Whether attention follows lines alone."""
    return self.experiment.supports_sparse(self.scaffold)

  def cache_window(self, batch: Batch) -> tuple[int, int] | None:
    """Returns the `cache_window` of `decode.stream`: how many of the first keys
    and of the latest ones are cached; None if all must be.

    A short cache is for encoder-decoders whose attention follows lines alone,
    with diagonal matrices, and sees no later outputs, without encoder layers,
    temperatures, and positions other than a cyclic index.
    """
    experiment = self.experiment
    config = experiment.model.config
    needs_few_keys = (
      self.is_sparse
      and experiment.kind == "encoder_decoder"
      and not experiment.bias.allow_leak
      and config.positions.placeless
      and config.temperature.kind == "none"
    )
    if not needs_few_keys:
      return None
    lines = self.scaffold["self"]
    matrix = np.asarray(lines.matrix)
    if (matrix * (1 - np.eye(matrix.shape[-1], dtype=int))).any():
      return None
    return lines.cache_window(experiment.task.target_segment, batch.rows)

  def batches(
    self, spec: EvalSpec, samples: np.ndarray | None = None
  ) -> Iterator[tuple[Batch, int]]:
    """Yields the batches of a test, or of some of its samples, and the number
    of examples in each: the last is padded with copies of its last example."""
    if samples is None:
      samples = np.arange(spec.samples if spec.count is None else spec.count)
    num_batches = math.ceil(spec.samples / self.batch_size(spec))
    size = math.ceil(spec.samples / num_batches)
    for start in range(0, len(samples), size):
      part = samples[start : start + size]
      index = np.pad(part, (0, size - len(part)), mode="edge")
      batch = self.experiment.test_batch(
        spec.test_set,
        spec.seed,
        index,
        spec.length,
        self.scaffold,
        spec.arguments,
      )
      yield batch, len(part)

  def batch_size(self, spec: EvalSpec) -> int:
    """Returns the most examples of a batch with which attention takes at most
    spec.memory_mb on each device (by default 16 MiB on a CPU, else 1 GiB), but
    at least one for each device."""
    experiment = self.experiment
    width = experiment.test_width(spec.length, spec.arguments)
    width = experiment.bound(width, self.scaffold)
    example_bytes = attention_bytes(experiment, width, self.is_sparse)
    # On a CPU, batches that fit the cache are twice as fast as larger ones.
    default_mb = 16 if jax.default_backend() == "cpu" else 1024
    memory_bytes = (spec.memory_mb or default_mb) << 20
    return max(memory_bytes // example_bytes, 1) * self.mesh.size

  def matches(self, batch: Batch) -> Array:
    """Returns which examples [B] of a batch of the main task are right.

    One teacher-forced pass says it (`Experiment.matches`). Outputs are decoded
    instead, for which all examples must have equally many scored tokens, if
    rows may see the answer (bias.allow_leak), or if they are too long for one
    pass to fit in memory and decoding needs a cache of few keys.
    """
    if not self.needs_decoding(batch):
      static_args = self.mesh, self.experiment, self.is_sparse
      return _matches(*static_args, self.params, self.scaffold, batch)
    targets = scored(batch, batch.target)
    outputs = self.greedy(batch, stop=None)[:, : targets.shape[1]]
    return (outputs == targets).all(axis=1)

  def margins(self, batch: Batch) -> np.ndarray:
    """Returns the smallest margin [B] of each example of the main task: how far
    a right token's logit is above the others; -inf if one is no number."""
    margins = _margins(self.experiment, self.params, self.scaffold, batch)
    return np.nan_to_num(np.asarray(margins), nan=-np.inf, posinf=np.inf)

  def needs_decoding(self, batch: Batch) -> bool:
    is_long = batch.inputs.shape[1] > MAX_TEACHER_FORCED
    return self.experiment.bias.allow_leak or (
      is_long and self.cache_window(batch) is not None
    )

  def greedy(self, batch: Batch, stop: int | None) -> np.ndarray:
    """Returns the outputs [B, T] of greedy decoding, up to the token `stop` if
    it is not None; see `decode.greedy`."""
    check(
      self.experiment.kind == "decoder_only"
      or not np.asarray(batch.first_scored).any(),
      f"outputs of {self.experiment.task.name} begin with given tokens, which"
      " only decoder-only models decode: choose model.kind='decoder_only'",
    )
    output_count = int(np.asarray(batch.weight).sum(axis=1).max())
    count, rows = batch.inputs.shape
    window = self.cache_window(batch)
    cells = count * rows * (sum(window) if window else rows)
    decode_all = _greedy
    if cells <= MAX_UNOPTIMIZED_CELLS:
      decode_all = _greedy_unoptimized
    static_args = self.mesh, self.experiment, stop, window
    traced_args = self.params, self.scaffold, batch, jnp.int32(output_count)
    return np.asarray(decode_all(*static_args, *traced_args))

  # Methods for people who use a model from Python.

  def __repr__(self) -> str:
    size = sum(np.size(x) for x in jax.tree.leaves(self.params))
    return (
      f"<{self.experiment.task.name}, {self.experiment.kind}, {size:,}"
      f" parameters, seed {self.seed}, step {self.step}>"
    )

  @property
  def lines(self) -> list[str]:
    """The lines of attention in words, like "cross layer 0 head 1: a:
    right-1·row = 0"."""
    return [
      f"{entry.site} layer {entry.layer} head {entry.head}:"
      f" {self.equation(entry)}"
      for entry in self.entries
    ]

  @property
  def entries(self) -> list[pruning.Entry]:
    """Where each line is in the scaffold; matrices have none."""
    scaffold = self.scaffold.items()
    lines = {site: x for site, x in scaffold if isinstance(x, SiteLines)}
    return pruning.entries(lines, self.experiment.model.depths)

  def equation(self, entry: pruning.Entry) -> str:
    """Returns a line in words."""
    segments = self.experiment.site_segments[entry.site]
    return pruning.line(self.scaffold, entry).describe(segments)

  def answers(
    self, texts: Iterable[str], scratchpad: bool = False
  ) -> list[str]:
    """Answers input texts; each answer is a line of text or `error: ...`, and
    begins with the intermediate results, if there are any, with `scratchpad`.

    Inputs of the same width are decoded in batches.

    Raises:
      ValueError: an input is no string.
    """
    task, answers = self.experiment.task, {}
    inputs_by_width: dict[int | tuple[int, ...], list] = {}
    for i, text in enumerate(texts):
      _check_text(text, task)
      try:
        items, lengths = task.parse(text.strip())
        width = self.padded_width(lengths)
        check(
          self._answer_batch_size(width),
          f"{max(lengths)} {task.own_unit} are too many: attention to them"
          f" would take more than {MAX_ANSWER_BYTES >> 30} GiB at once",
        )
        inputs_by_width.setdefault(width, []).append((i, (items, lengths)))
      except ValueError as error:
        answers[i] = f"error: {error}"
    for width, inputs in inputs_by_width.items():
      size = self._answer_batch_size(width)
      for start in range(0, len(inputs), size):
        indices, parsed = zip(*inputs[start : start + size], strict=True)
        outputs = self._decode_parsed(parsed, width)
        for i, (_, lengths), ids in zip(indices, parsed, outputs, strict=True):
          try:
            answers[i] = task.render_with_lengths(ids, lengths, scratchpad)
          except ValueError as error:
            answers[i] = f"error: {error}"
    return [answers[i] for i in sorted(answers)]

  def _answer_batch_size(self, width: int | tuple[int, ...]) -> int:
    """Returns how many inputs of a width are decoded together: the largest
    power of two up to MAX_ANSWER_BATCH with which the three float32 arrays of
    attention in one layer (scores, scores plus bias, weights) fit in
    MAX_ANSWER_BYTES; 0 if they do not fit for a single input."""
    experiment, task = self.experiment, self.experiment.task
    bound = experiment.bound(width, self.scaffold)
    config = experiment.model.config
    # The cells of one head that are computed at once: outputs come one by one,
    # but a decoder-only model's first pass, over the prompt, has all rows.
    prompt, output = task.prompt_size(bound), task.output_size(bound)
    cells = max(prompt, output)
    if experiment.kind == "decoder_only":
      cells = (prompt + output) ** 2
    elif config.num_encoder_layers:
      cells = max(cells, prompt**2)
    input_bytes = 3 * 4 * config.num_heads * cells
    count = MAX_ANSWER_BYTES // input_bytes
    power_of_two = 1 << count.bit_length() >> 1  # the largest up to `count`
    return min(power_of_two, MAX_ANSWER_BATCH)

  def _decode_parsed(
    self, parsed: Sequence[tuple], width: int | tuple[int, ...]
  ) -> list[list[int]]:
    """Returns the outputs for inputs of one width, parsed by `Task.parse`, each
    as long as the right output, with PAD after an end token.

    The batch is padded to a power of two, so that decoding is compiled for few
    batch sizes.
    """
    experiment, task = self.experiment, self.experiment.task
    size = 1 << (len(parsed) - 1).bit_length()
    padded = [*parsed, *[parsed[-1]] * (size - len(parsed))]
    # The width that arrays have room for, so that few programs are compiled.
    bound = experiment.bound(width, self.scaffold)
    batch = dataset.parsed_batch(task, experiment.kind, padded, width, bound)
    outputs = self.greedy(batch, stop=task.end)
    output_lengths = np.asarray(batch.weight).sum(axis=1).astype(int)
    return [
      outputs[i, : output_lengths[i]].tolist() for i in range(len(parsed))
    ]

  def exact_match(
    self,
    length: int,
    samples: int = 1000,
    test_set: str = "",
    seed: int = 0,
    arguments: tuple = (),
  ) -> float:
    """Returns the exact match, as a fraction, on random inputs of a length.

    Args:
      length: the length, in the unit of the task.
      samples: the number of inputs.
      test_set: a test set of the task, the first one by default.
      seed: seed of the inputs.
      arguments: further arguments of the test set, if it has any, like (61,)
        for "unequal" of long multiplication; only their number is checked.

    Raises:
      ValueError: an argument is none of the valid ones.
    """
    for field, value in (("length", length), ("samples", samples)):
      if not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{field}={value!r}: must be a whole number from 1 on")
    task = self.experiment.task
    name = test_set or next(iter(task.test_sets))
    check_choice("test_set", name, task.test_sets)
    _, _, _, *names = inspect.signature(task.test_sets[name]).parameters
    if len(arguments) != len(names):
      raise ValueError(
        f"arguments={arguments!r}: must be ({', '.join(names)}) for {name}"
      )
    spec = EvalSpec(name, name, arguments, length, samples, seed)
    exact = [self.matches(batch)[:count] for batch, count in self.batches(spec)]
    return float(np.concatenate(exact).mean())

  def text_batch(self, text: str) -> Batch:
    """Returns a batch of one input text, with its right output.

    Raises:
      ValueError: it is no string, or no input of the task.
      UsageError: it does not fit the model or its bias matrices.
    """
    experiment, task = self.experiment, self.experiment.task
    _check_text(text, task)
    parsed = task.parse(text)
    width = self.padded_width(parsed[1])
    return dataset.parsed_batch(task, experiment.kind, [parsed], width, width)

  def padded_width(self, lengths: list[int]) -> int | tuple[int, ...]:
    """Returns the width that operands of these lengths are padded to; raises
    UsageError if the model or its bias matrices do not take them."""
    size_text = f"{max(lengths)} {self.experiment.task.own_unit}"
    width = self.experiment.width(lengths, size_text)
    self.experiment.check_scaffold(width, self.scaffold)
    return width

  def observe(self, batch: Batch) -> tuple[jax.Array, dict]:
    """Returns teacher-forced logits [B, T, V] and activations."""
    head = self.experiment.task.name
    return _apply(self.experiment, self.params, self.scaffold, batch, head)

  def attention(self, text: str) -> tuple[Batch, list[dict[str, np.ndarray]]]:
    """Returns the batch of one input text (`text_batch`), and its attention
    weights {site: [H, T, S]} for each layer of the decoder."""
    _, acts = self.observe(batch := self.text_batch(text))
    return batch, [
      {
        site: np.asarray(block[f"{site}_attention"]["weights"][0])
        for site in ("self", "cross")
        if f"{site}_attention" in block
      }
      for block in blocks(acts)
    ]

  def without_head(self, layer: int, site: str, head: int) -> Self:
    """Returns a copy of the model, in which what a head of attention at a site
    ("self", "cross" or "encoder") has found is multiplied by zero."""
    transformer = self.experiment.model
    depths = {x: depth for x, depth in transformer.depths.items() if depth}
    check_choice("site", site, sorted(depths))
    check_choice("layer", layer, range(depths[site]))
    check_choice("head", head, range(transformer.config.num_heads))
    is_encoder = site == "encoder"
    stack, name = ("encoder", "self") if is_encoder else ("decoder", site)
    params = jax.tree.map(lambda x: x, self.params)  # copies its dictionaries
    out = params[f"{stack}_{layer}"][f"{name}_attention"]["out"]
    out["kernel"] = jnp.asarray(out["kernel"]).at[head].set(0.0)  # [H, K, D]
    return dataclasses.replace(self, params=params)


def scored(batch: Batch, values: Array) -> np.ndarray:
  """Returns the values [B, O] of the scored rows alone, of which all examples
  have equally many."""
  is_output = np.asarray(batch.weight) > 0
  return np.asarray(values)[is_output].reshape(len(is_output), -1)


def attention_bytes(experiment: Experiment, width: Any, sparse: bool) -> int:
  """Estimates the bytes that attention in one layer takes for one example.

  Dense attention has three float32 arrays [rows, keys]: the scores, the scores
  plus bias, and the weights; those of self- and cross-attention count together.
  `sparse` attention gathers a few keys per row.
  """
  config, sizes = experiment.model.config, experiment.site_sizes(width)
  rows, keys = sizes["self"]
  if sparse:
    return 4 * config.emb_dim * rows * SPARSE_KEYS
  cells = rows * (keys + sizes.get("cross", (0, 0))[1])
  if config.num_encoder_layers:
    cells = max(cells, sizes.get("encoder", (0, 0))[0] ** 2)
  return 12 * config.num_heads * cells


def _check_text(text: Any, task: Task) -> None:
  if not isinstance(text, str):
    raise ValueError(f"{text!r}: inputs are strings, like {task.usage!r}")


_apply = jax.jit(Experiment.apply, static_argnums=(0, 4))


@partial(jax.jit, static_argnums=0)
def _margins(
  experiment: Experiment, params: dict, scaffold: dict, batch: Batch
) -> jax.Array:
  """Computes `Model.margins`; NaN if a logit is no number."""
  logits, _ = experiment.apply(params, scaffold, batch, experiment.task.name)
  target = jnp.asarray(batch.target)[..., None]
  right = jnp.take_along_axis(logits, target, axis=-1)
  is_right = jnp.arange(logits.shape[-1]) == target
  margins = right - jnp.where(is_right, -jnp.inf, logits)
  scored = (jnp.asarray(batch.weight) > 0)[..., None]
  return jnp.where(scored, margins, jnp.inf).min(axis=(1, 2))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _matches(
  mesh: Mesh,
  experiment: Experiment,
  sparse: bool,
  params: dict,
  scaffold: dict,
  batch: Batch,
) -> jax.Array:
  """Computes `Model.matches` in one teacher-forced pass."""
  args = params, scaffold, mesh.shard_batch(batch), experiment.task.name
  return mesh.replicate(experiment.matches(*args, sparse=sparse))


def _greedy_outputs(
  mesh: Mesh,
  experiment: Experiment,
  stop: int | None,
  cache_window: tuple[int, int] | None,
  params: dict,
  scaffold: dict,
  batch: Batch,
  output_count: jax.Array,
) -> jax.Array:
  """Computes `Model.greedy`: `output_count` tokens of each example, or those up
  to the token `stop`, and PAD after them."""
  batch = mesh.shard_batch(batch)
  args = experiment, params, scaffold, batch, output_count, stop
  outputs = (
    decode.stream(*args, cache_window) if cache_window else decode.greedy(*args)
  )
  return mesh.replicate(outputs)


_greedy = jax.jit(_greedy_outputs, static_argnums=(0, 1, 2, 3))
_greedy_unoptimized = jit_unoptimized(0, 1, 2, 3)(_greedy_outputs)


# Models of a run.


def models(run: Run, states: TrainState, checkpoint: str) -> list[Model]:
  """Returns a Model for every seed of a run, each on all devices of the run,
  from the states [R, ...] of its seeds: with the parameters that were best in
  validation if `checkpoint` is "best".

  Those that have a bias of lines or matrices have centered parameters where
  models.centering allows it, for the sake of their proofs.
  """
  best = checkpoint == "best"
  params = states.best_params if best else states.params
  step, config = int(states.step.max()), run.experiment.model.config
  select = lambda r: _select_seed(params, r)
  if run.scaffold and can_center(config):
    select = lambda r: centered(config, _select_seed(params, r))
  return [
    Model(
      run.experiment,
      of_seed(run.scaffold, r),
      select(r),
      seed=int(seed),
      step=int(states.best_step[r]) if best else step,
      stopped_at=int(states.stopped_at[r]),
      diverged=bool(states.diverged[r]),
      em=max(float(states.best_em[r]), 0.0),
      mesh=run.mesh.for_one_seed(),
    )
    for r, seed in enumerate(run.seeds)
  ]


# One program takes all leaves.
_select_seed = jax.jit(of_seed)


def best(models: list[Model]) -> Model:
  """Returns the model with the best validation exact match; those that diverged
  count only if all did."""
  not_diverged = [model for model in models if not model.diverged]
  return max(not_diverged or models, key=lambda model: model.em)
