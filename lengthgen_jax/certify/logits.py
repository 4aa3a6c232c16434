"""This module computes the logits of attention rows in two ways.

LayerwiseLogits computes them for all contexts of a receptive field, layer by
layer. A state is the residual stream of one token after one layer. A state that
is the same in many contexts is computed once and stored in a table; a token of
a context, and each key that it attends to, is an index into such a table. The
blocks are those of the model, run on one token and the few keys that it attends
to. DenseLogits runs the whole model on whole inputs with dense attention, also
where evaluation attends along lines: this is the *dense path*.

Every state comes with its *error*: a bound on the rounding of its computation,
as certify.rounding defines it. Beside the logits of a context stand the errors
of the right token's logit minus each of them.

No integer here can overflow. Contexts are uint8, and a Transducer refuses a
task of more than 256 values. Indices into tables fit in int32: a table of 2^31
states would not fit in memory. The values of several columns are combined into
one int64 number, or into several where one is too small.

Shapes: B contexts, R states of a table, D model size, H heads, K head size, G
keys that a token attends to, V tokens of the vocabulary.
"""

import copy
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED, DenseBias
from lengthgen_jax.attention.lines import SiteLines
from lengthgen_jax.certify import rounding
from lengthgen_jax.certify.receptive_fields import Node, ReceptiveField, Size
from lengthgen_jax.certify.transducer import Transducer
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models.layers import Block, ModelConfig, normalization
from lengthgen_jax.tasks import dataset, packing
from lengthgen_jax.training.mesh import SINGLE_DEVICE, Mesh

CHUNK_SIZE = 1 << 15  # contexts that are computed at once
PRECISE_CHUNK_SIZE = 1 << 10  # the same in float64, where groups have size 1
# Consecutive contexts that share a bound on an MLP's slope; most of their
# digits are equal. They divide all ROW_SIZES.
GROUP, FINE_GROUP = 64, 4
MAX_TABLE_ROWS = 1 << 17  # the most states of a table that serves all chunks
ROW_SIZES = 1 << 10, 1 << 15, 1 << 18  # lengths that arrays are padded to
BLOCK_ROWS = 1 << 15  # states that a block computes at once
KEY_SIZES = 4, 16  # the same as ROW_SIZES, for the number of keys G
DENSE_BATCH = 32  # inputs that the whole model computes at once

# (stack, layer, index of the token); a stack is "encoder" or "decoder", and its
# layer 0 is the input.
StateKey = tuple[str, int, int]


class Table:
  """A Table holds states of one layer, and their keys and values.

  Attributes:
    states: [R or more, D], padded.
    errors: [R or more], their errors (certify.rounding).
    key_values: {(name of a block, site): the result of `key_value`}, as far as
      it has been computed.
  """

  def __init__(
    self, states: jax.Array | np.ndarray, errors: jax.Array | np.ndarray
  ):
    """Pads the states [R, D] and errors [R] to one of few sizes."""
    self.states = _padded(np.asarray(states))
    self.errors = _padded(np.asarray(errors))
    self.key_values = {}

  def key_value(self, model: "LayerwiseLogits", name: str, site: str) -> tuple:
    """Returns (keys, values, their InputBounds) for an attention site of a
    block: [H, R or more, K] both, and the bounds [R or more] on the inputs of
    the projections. They are computed once.

    Args:
      model: the LayerwiseLogits with the parameters and gains.
      name: the name of the block, like "decoder_0".
      site: "self" or "cross".
    """
    if (name, site) not in self.key_values:
      params, gains = model.params, model.gains
      norm = "encoder_norm" if site == "cross" else None
      self.key_values[name, site] = _key_value(
        model.model.config,
        (params[name], params.get(norm)),
        (gains[name].get("pre_self_attention_layer_norm"), gains.get(norm)),
        self.states,
        self.errors,
        site,
      )
    return self.key_values[name, site]


def joined(parts: Sequence[tuple]) -> Table:
  """Returns one Table of several results, without their padding.

  `parts` are pairs ((states [R or more, D], errors [R or more]), R).
  """
  # JAX would compile a program for every number of states.
  cut = [[np.asarray(x)[:count] for x in both] for both, count in parts]
  return Table(*map(np.concatenate, zip(*cut, strict=True)))


# For each token a Table with its states, and [B] the index of its state in
# every context of a chunk.
StateRows = dict[StateKey, tuple[Table, np.ndarray]]


class LayerwiseLogits:
  """LayerwiseLogits computes the logits of contexts, layer by layer.

  Attributes:
    experiment: the experiment that the model belongs to.
    model: the flax module.
    params: the parameters of one seed.
    head: the name of the output head, which is that of the main task.
    transducer: the Transducer of that task.
    chunk_size: how many contexts are computed at once.
    mesh: the devices that contexts are split over.
    group: how many contexts share a bound on an MLP's slope (rounding.mlp);
      None if errors are not bounded, and infinite.
    gains: what blocks, normalizations and the output head do to errors, by the
      names of their parameters (rounding.model_gains).
    inputs: by stack ("decoder", "encoder"), a Table of the embeddings, at
      ModelConfig.input_index.
  """

  def __init__(
    self,
    experiment: Experiment,
    params: dict,
    transducer: Transducer,
    chunk_size: int = CHUNK_SIZE,
    *,
    mesh: Mesh = SINGLE_DEVICE,
    group: int | None = GROUP,
  ):
    """Computes the gains, and the embedding of every token at every phase of a
    cyclic index in every segment."""
    self.experiment, self.model = experiment, experiment.model
    self.params, self.mesh = params, mesh
    self.head, self.transducer = experiment.task.name, transducer
    self.chunk_size, self.group = chunk_size, group
    self.gains = rounding.model_gains(params, self.head)
    self.inputs = {
      stack: Table(*_inputs(self.model, params, site))
      for stack, site in (("decoder", "self"), ("encoder", "cross"))
      if site in self.model.sites
    }

  @functools.cached_property
  def finer(self) -> "LayerwiseLogits":
    """The same with a bound on an MLP's slope for every FINE_GROUP contexts:
    most errors are smaller, in three times the time."""
    finer = copy.copy(self)
    finer.group = FINE_GROUP
    return finer

  @functools.cached_property
  def in_float64(self) -> "LayerwiseLogits":
    """The same in float64, with a bound on an MLP's slope for each context:
    errors are smaller by a factor of 2 to 10, in twenty times the time."""
    config = dataclasses.replace(self.model.config, dtype="float64")
    model = self.model.clone(config=config)
    return LayerwiseLogits(
      dataclasses.replace(self.experiment, model=model),
      jax.tree.map(lambda x: np.asarray(x, np.float64), self.params),
      self.transducer,
      min(self.chunk_size, PRECISE_CHUNK_SIZE),
      mesh=self.mesh,
      group=1,
    )

  @functools.cached_property
  def without_bounds(self) -> "LayerwiseLogits":
    """The same with infinite errors, in a third of the time."""
    without = copy.copy(self)
    without.group = None
    return without

  def precise(
    self, field: ReceptiveField, contexts: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns what `__call__` does, computed `in_float64`."""
    with jax.enable_x64(True):
      return self.in_float64(field, contexts)

  def __call__(
    self, field: ReceptiveField, contexts: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns the logits of the field's row in contexts [B, columns], and their
    errors, both [B, V], as in `chunk_logits`."""
    starts = range(self.chunk_size, len(contexts), self.chunk_size)
    chunks = np.split(contexts, starts)
    results = self.chunk_logits(field, chunks, len(contexts))
    _, logits, errors = zip(*results, strict=True)
    return np.concatenate(logits), np.concatenate(errors)

  def chunk_logits(
    self, field: ReceptiveField, chunks: Iterable[np.ndarray], count: int
  ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields (contexts, logits, errors) of every chunk.

    Logits and errors are [B, V]. The error at token v is that of the right
    token's logit minus that of v (rounding.difference_gain).

    A chunk is yielded after the next one has been dispatched to the devices.

    Args:
      field: the receptive field of the row.
      chunks: contexts [B, columns].
      count: about how many contexts the chunks have; with fewer of them, fewer
        layers are tabulated.
    """
    row, previous = _FieldRow(self, field, count), None
    for contexts in chunks:
      current = contexts, row.logits(contexts)
      if previous:
        yield _unpadded(*previous)
      previous = current
    if previous:
      yield _unpadded(*previous)


def _unpadded(
  contexts: np.ndarray, outputs: tuple[jax.Array, jax.Array]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns a chunk's contexts, and their logits and errors without padding."""
  logits, errors = (np.array(x)[: len(contexts)] for x in outputs)
  return contexts, logits, errors


class _FieldRow:
  """The row of one receptive field, whose logits are computed in chunks.

  Attributes:
    layerwise: the model's LayerwiseLogits.
    field: the receptive field.
    columns: by StateKey, the columns of contexts that a state depends on,
      sorted.
    tables: by (stack, layer), for the lowest layers, a Table of their states in
      all contexts, and for each token the index of its first state.
  """

  def __init__(
    self, layerwise: LayerwiseLogits, field: ReceptiveField, count: int
  ):
    """Tabulates the lowest layers, as long as their tokens have few states in
    all contexts together; `count` is the number of contexts to come."""
    self.layerwise, self.field = layerwise, field
    self.columns = _columns(field, layerwise.model.config.num_encoder_layers)
    self.tables: dict[tuple[str, int], tuple[Table, dict[int, int]]] = {}
    base = layerwise.transducer.values
    for stack, layer, nodes in field.layers[:-1]:
      sizes = [base ** len(self.columns[stack, layer, i]) for i, _ in nodes]
      if sum(sizes) > min(MAX_TABLE_ROWS, 2 * count):
        break
      parts, starts, start = [], {}, 0
      for (i, node), size in zip(nodes, sizes, strict=True):
        columns = self.columns[stack, layer, i]
        contexts = np.zeros((size, len(field.columns)), np.uint8)
        values = np.indices((base,) * len(columns), np.uint8)
        contexts[:, columns] = values.reshape(len(columns), size).T
        below = self._table_rows(contexts)
        outputs = self._states(stack, layer, node, below)
        parts.append((outputs, size))
        starts[i], start = start, start + size
      self.tables[stack, layer] = joined(parts), starts

  def logits(self, contexts: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Returns logits and errors, [B or more, V], in contexts [B, columns]."""
    state_rows = self._table_rows(contexts)
    for stack, layer, nodes in self.field.layers[:-1]:
      if (stack, layer) not in self.tables:
        state_rows |= self._layer_rows(
          stack, layer, nodes, contexts, state_rows
        )
    stack, layer, ((_, node),) = self.field.layers[-1]
    outputs = self._states(stack, layer, node, state_rows)
    model, answers = self.layerwise, self.field.right_tokens(contexts)
    padding = len(outputs[0]) - len(answers)
    answers = np.pad(answers, (0, padding), mode="edge")
    return _output_logits(
      model.model, model.head, model.params, model.gains, answers, *outputs
    )

  def _table_rows(self, contexts: np.ndarray) -> StateRows:
    """Returns the states of the inputs and of the tabulated layers.

    The index of a state in a layer's table is that of its token's first state,
    plus the `code` of its columns.
    """
    layerwise, state_rows = self.layerwise, {}
    for stack, tokens in self.field.tokens:
      for i, token in enumerate(tokens):
        column = self.field.columns.get(token.key)
        values = token.id if column is None else contexts[:, column]
        # An index into the table does not fit in the uint8 of contexts.
        values = np.broadcast_to(np.int64(values), len(contexts))
        row = layerwise.model.config.input_index(
          values, token.phase, token.segment
        )
        state_rows[stack, 0, i] = layerwise.inputs[stack], row.astype(np.int32)
    for (stack, layer), (table, starts) in self.tables.items():
      for i, start in starts.items():
        columns = self.columns[stack, layer, i]
        row = start + code(contexts, columns, layerwise.transducer.values)
        state_rows[stack, layer, i] = table, row
    return state_rows

  def _layer_rows(
    self,
    stack: str,
    layer: int,
    nodes: tuple,
    contexts: np.ndarray,
    below: StateRows,
  ) -> StateRows:
    """Returns the states after a layer of a stack, in a new table.

    A token's state is computed once for all contexts that are equal in the
    columns on which it depends.

    Args:
      stack: "encoder" or "decoder".
      layer: the number of the layer, counted from 1.
      nodes: the (index of a token, Node) pairs of the layer.
      contexts: [B, columns].
      below: the states of all lower layers.
    """
    rows, parts, start = {}, [], 0
    base = self.layerwise.transducer.values
    for i, node in nodes:
      columns = self.columns[stack, layer, i]
      first, inverse = distinct(contexts, columns, base)
      outputs = self._states(stack, layer, node, below, first)
      parts.append((outputs, len(first)))
      rows[stack, layer, i] = start + inverse
      start += len(first)
    table = joined(parts)
    return {key: (table, row) for key, row in rows.items()}

  def _states(
    self,
    stack: str,
    layer: int,
    node: Node,
    below: StateRows,
    selected: np.ndarray | slice = slice(None),
  ) -> tuple[jax.Array | np.ndarray, jax.Array | np.ndarray]:
    """Returns the states [B or more, D] of a token after a layer, and their
    errors [B or more], in the B contexts that `selected` takes from `below`."""
    layerwise, name = self.layerwise, f"{stack}_{layer - 1}"
    config, params = layerwise.model.config, layerwise.params
    # By site, the (stack, layer) that has the states of the keys, and the open
    # keys.
    sites = {"self": ((stack, layer - 1), node.self_keys)}
    if stack == "decoder" and "cross" in layerwise.model.sites:
      sites["cross"] = ("encoder", config.num_encoder_layers), node.cross_keys
    previous, rows = below[stack, layer - 1, node.previous]
    rows, keys, indices, biases = rows[selected], {}, {}, {}
    for site, (key_layer, open_keys) in sites.items():
      size = len(_padded(np.zeros(max(len(open_keys), 1)), KEY_SIZES))
      bias = np.full((config.num_heads, size), CLOSED, np.float32)
      index = np.zeros((len(rows), size), np.int32)
      # All keys of a site are in one table; without an open key any will do.
      table = layerwise.inputs["decoder"]
      for k, (i, bias_by_head) in enumerate(open_keys):
        table, key_row = below[*key_layer, i]
        index[:, k], bias[:, k] = key_row[selected], bias_by_head
      keys[site] = table.key_value(layerwise, name, site)
      indices[site], biases[site] = index, bias
    mesh, tables = layerwise.mesh, (previous.states, previous.errors, keys)
    weights, parts = (params[name], layerwise.gains[name]), []
    for start in range(0, len(rows), BLOCK_ROWS):
      part = lambda x, start=start: _padded(x[start : start + BLOCK_ROWS])
      key_rows = {site: part(index) for site, index in indices.items()}
      inputs = _gather(mesh, *tables, part(rows), key_rows)
      static = mesh, config, layerwise.group
      parts.append(_block(*static, *weights, *inputs, biases))
    if len(parts) == 1:
      return parts[0]
    states, errors = map(np.concatenate, zip(*parts, strict=True))
    return states, errors


def _columns(
  field: ReceptiveField, encoder_depth: int
) -> dict[StateKey, list[int]]:
  """Returns the columns of contexts that each state depends on, sorted.

  A state depends on the columns of all states that it is computed from; an
  input depends on the column of its token, if that is a digit or an output.
  `encoder_depth` is the number of encoder layers.
  """
  columns: dict[StateKey, set[int]] = {}
  for stack, tokens in field.tokens:
    for i, token in enumerate(tokens):
      column = field.columns.get(token.key)
      columns[stack, 0, i] = set() if column is None else {column}
  for stack, layer, nodes in field.layers:
    for i, node in nodes:
      self_states = [node.previous, *(state for state, _ in node.self_keys)]
      cross_states = [state for state, _ in node.cross_keys]
      columns[stack, layer, i] = set().union(
        *(columns[stack, layer - 1, state] for state in self_states),
        *(columns["encoder", encoder_depth, state] for state in cross_states),
      )
  return {key: sorted(state_columns) for key, state_columns in columns.items()}


def distinct(
  contexts: np.ndarray, columns: Sequence[int], base: int
) -> tuple[np.ndarray, np.ndarray]:
  """Finds the distinct values that some columns have together, as np.unique
  finds rows.

  Args:
    contexts: [B, all columns].
    columns: the indices of these columns.
    base: one more than the largest value, at least 2.

  Returns:
    (first, inverse): the index of the first context with each distinct choice
    of values, and for every context [B] the number of its choice.
  """
  size = 63 // (base - 1).bit_length()  # values in a word
  parts = [columns[k : k + size] for k in range(0, len(columns), size)]
  words = [code(contexts, part, base) for part in parts or [[]]]
  codes = words[0] if len(words) == 1 else np.stack(words, axis=1)
  axis = 0 if len(words) > 1 else None
  _, first, inverse = np.unique(
    codes, return_index=True, return_inverse=True, axis=axis
  )
  return first, inverse.reshape(-1)


def code(contexts: np.ndarray, columns: Sequence[int], base: int) -> np.ndarray:
  """Returns the values of some columns as one int64 number for each context, of
  which they are the digits in this base; the first column is the highest one.

  Callers give so few columns that it is less than 2^63.
  """
  number = np.zeros(len(contexts), np.int64)
  for column in columns:
    number = base * number + contexts[:, column]
  return number


def _padded(array: np.ndarray, sizes: Sequence[int] = ()) -> np.ndarray:
  """Pads an array, by repeating its last row, to the next larger one of these
  sizes (by default ROW_SIZES) or, beyond them, to a power of two, so that few
  programs are compiled."""
  count = len(array)
  larger = [size for size in sizes or ROW_SIZES if size >= count]
  rows = larger[0] if larger else 1 << (count - 1).bit_length()
  return np.concatenate([array, np.repeat(array[-1:], rows - count, 0)])


@partial(jax.jit, static_argnums=(0, 2))
def _inputs(model, params, site: str):
  """Returns the states before the first layer, by segment, phase and token:
  [segments·T·V, D] for a period T, and their errors [segments·T·V].

  `site` is "self" for inputs of the decoder and "cross" for the source, as in
  Transformer.embed.
  """
  method = model.every_token
  states = model.apply({"params": params}, site, method=method)[0]
  return states, rounding.embeddings(model.config, states)


# Position encodings of certified models do not rotate queries and keys.
_unrotated = lambda x: x


@partial(jax.jit, static_argnums=(0, 5))
def _key_value(config: ModelConfig, params, gains, states, errors, site: str):
  """Returns the keys and values [H, R, K] of R states for one site of a block,
  and the InputBounds [R] of their projections.

  Args:
    config: the hyper-parameters of the model.
    params: those of the block, and for cross-attention those of the encoder's
      last normalization; None if there is none.
    gains: those of the normalizations before the keys and values of self- and
      cross-attention; None if there is none.
    states: [R, D].
    errors: [R].
    site: "self" or "cross".
  """
  block_params, norm = params
  block = Block(config, cross="cross_attention" in block_params)
  norm_gain = gains[0 if site == "self" else 1]
  inputs = rounding.layer_inputs(config, norm_gain, states, errors)
  if norm is not None:
    states = normalization(config).apply({"params": norm}, states)
  method = getattr(block, f"{site}_key_value")
  key_values = block.apply(
    {"params": block_params}, states[None], _unrotated, method=method
  )
  key, value = jax.tree.map(lambda x: x[0], key_values)
  return key, value, inputs


@partial(jax.jit, static_argnums=0)
def _gather(mesh: Mesh, states, errors, keys, rows, key_rows):
  """Returns the states [B, D] of a token in B contexts, their errors [B], and
  by site the keys and values [B, H, G, K] that it sees, with their InputBounds
  [B, G].

  It is compiled apart from `_block`, because it is compiled again for every
  size of a table, which takes no time; to compile a block takes seconds.

  Args:
    mesh: the devices that contexts are split over.
    states, errors: [R, D] and [R], of the token.
    keys: by site, keys, values [H, R, K] and their InputBounds [R].
    rows: [B], the indices of the token's states.
    key_rows: by site, [B, G], the indices of the keys that it sees.
  """
  rows, key_rows = mesh.shard_batch((rows, key_rows))
  at_keys = {}
  for site, (key, value, inputs) in keys.items():
    index = key_rows[site]
    key, value = (x[:, index].swapaxes(0, 1) for x in (key, value))
    inputs = jax.tree.map(lambda x, index=index: x[index], inputs)
    at_keys[site] = key, value, inputs
  return states[rows], errors[rows], at_keys


@partial(jax.jit, static_argnums=(0, 1, 2))
def _block(
  mesh: Mesh,
  config: ModelConfig,
  group: int | None,
  params,
  gains,
  x,
  error,
  at_keys,
  biases,
):
  """Returns the states [B, D] of one token after a block, in B contexts, and
  their errors [B].

  Args:
    mesh: the devices that contexts are split over.
    config: the hyper-parameters of the model.
    group: how many contexts share a bound on the MLP's slope; None for infinite
      errors.
    params: the parameters of the block.
    gains: its gains (rounding.block_gains).
    x, error, at_keys: what `_gather` returns.
    biases: by site, [H, G], those of the keys.
  """
  (outputs, acts), sublayers = Block(config, cross="cross" in at_keys).apply(
    {"params": params},
    x[:, None],
    _unrotated,
    {site: at_keys[site][:2] for site in at_keys},
    {site: DenseBias(bias[None, :, None]) for site, bias in biases.items()},
    dict.fromkeys(at_keys),
    None,
    capture_intermediates=True,
  )
  if group is None:
    return mesh.replicate((outputs[:, 0], jnp.full_like(error, jnp.inf)))
  error = rounding.block(
    config,
    params,
    gains,
    x,
    error,
    at_keys,
    biases,
    acts,
    sublayers["intermediates"],
    group=group,
  )
  return mesh.replicate((outputs[:, 0], error))


@partial(jax.jit, static_argnums=(0, 1))
def _output_logits(model, head: str, params, gains, answers, x, error):
  """Returns the logits [B, V] of states x [B, D] with an error [B], and their
  errors [B, V] as in LayerwiseLogits.chunk_logits; `answers` [B] are the right
  tokens."""
  bound = model.bind({"params": params})
  norm = gains.get("decoder_norm")
  inputs = rounding.layer_inputs(model.config, norm, x, error)
  if model.config.norm == "pre":
    x = bound.decoder_norm(x)
  of_answers = lambda gain: gain[answers] if gain.ndim else gain
  gain = jax.tree.map(of_answers, gains[f"logits_dense_{head}"])
  errors = rounding.dense(gain, inputs)
  return bound.logits_dense[head](x), errors


class DenseLogits:
  """DenseLogits computes the logits of whole inputs with the whole model.

  Attributes:
    experiment: the experiment that the model belongs to.
    bound: the largest size of inputs, to which all are padded.
  """

  def __init__(
    self,
    experiment: Experiment,
    scaffold: dict[str, SiteLines],
    params: dict,
    bound: Size,
    *,
    mesh: Mesh = SINGLE_DEVICE,
  ):
    """Prepares the forward pass of one seed, with its lines and parameters."""
    self.experiment, self.bound = experiment, bound
    self._apply = partial(_dense_logits, experiment, mesh, params, scaffold)

  def __call__(
    self, items: np.ndarray, size: Size
  ) -> tuple[packing.Batch, np.ndarray]:
    """Returns (batch, logits [B, T, V]) of B inputs of one size, for T rows.

    Inputs are computed DENSE_BATCH at a time, so that one compiled program
    serves all, and its arrays fit in a CPU's cache.

    Args:
      items: [B, operands, W], the digits of the inputs as token ids, in the
        order of Task.from_items; W is `size`, in a grid the larger of both.
      size: what the operands are padded to.
    """
    task, kind, count = self.experiment.task, self.experiment.kind, len(items)
    nonzero_places = self.experiment.nonzero_places(np.asarray(size))
    lengths = np.broadcast_to(nonzero_places, task.operands)
    repeats = -count % DENSE_BATCH
    filled = np.concatenate([items, items[-1:].repeat(repeats, 0)])
    parsed = [(digits, lengths) for digits in filled]
    batch = dataset.parsed_batch(task, kind, parsed, size, self.bound)
    select = partial(packing.take, jax.device_get(batch))
    logits = [
      self._apply(select(lambda x, n=n: x[n : n + DENSE_BATCH]))
      for n in range(0, count, DENSE_BATCH)
    ]
    return select(lambda x: x[:count]), np.concatenate(logits)[:count]


@partial(jax.jit, static_argnums=(0, 1))
def _dense_logits(
  experiment: Experiment,
  mesh: Mesh,
  params: dict,
  scaffold: dict[str, SiteLines],
  batch: packing.Batch,
) -> jax.Array:
  """Returns the logits [B, T, V] of a batch, on every device of the mesh."""
  head, batch = experiment.task.name, mesh.shard_batch(batch)
  return mesh.replicate(experiment.apply(params, scaffold, batch, head)[0])
