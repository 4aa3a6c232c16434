"""This module computes the logits of rows in two ways.

LayerwiseLogits computes those of all contexts of a receptive field, layer by
layer. States that are equal are computed once: a state is a row of a table, and
an attention's keys are numbers of rows. The blocks are the model's own, run on
one row and the few keys that it sees. DenseLogits runs the whole model on whole
inputs, as the rest of the program does: the *dense path*.

No number here can wrap. Contexts are bytes, and a Transducer refuses a task of
more than 256 values. Rows of tables are int32: a table has a row for each node
and context of a chunk at most (CHUNK times a few dozen), or TABLE rows. Numbers
of inputs are computed as int64 from tokens and phases; states are told apart by
as many 64-bit words as their columns take; sizes are Python integers.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED, DenseBias
from lengthgen_jax.attention.lines import SiteLines
from lengthgen_jax.certify.receptive_fields import Node, ReceptiveField, Size
from lengthgen_jax.certify.transducer import Transducer
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models.layers import Block, ModelConfig, normalization
from lengthgen_jax.tasks import dataset, packing
from lengthgen_jax.training.mesh import SINGLE_DEVICE, Mesh

CHUNK = 1 << 15  # contexts that are computed at once
TABLE = 1 << 17  # the most rows of tables that are made once for all contexts
ROWS = 1 << 10, 1 << 15, 1 << 18  # sizes that arrays are filled up to
KEYS = 4, 16  # sizes that the keys of a row are filled up to
DENSE_INPUTS = 32  # inputs that the whole model computes at once

StateKey = tuple[str, int, int]  # stack, layer, and number among its inputs
Columns = dict[StateKey, list[int]]


class Table:
  """States [R, D] of one layer, and their keys and values.

  Attributes:
    states: [R or more, D], filled up.
    key_values: {(block's name, site): keys and values [H, R, K]}.
  """

  def __init__(self, states: jax.Array | np.ndarray):
    """Fills the states [R, D] up to one of few sizes."""
    self.states = _filled(np.asarray(states))
    self.key_values = {}

  def key_value(
    self, config: ModelConfig, params: dict, name: str, site: str
  ) -> tuple[jax.Array, jax.Array]:
    """Returns keys and values [H, R, K] for a block's site."""
    if (name, site) not in self.key_values:
      norm = params.get("encoder_norm") if site == "cross" else None
      self.key_values[name, site] = _key_value(
        config, params[name], norm, self.states, site
      )
    return self.key_values[name, site]


# Where the states of a node are: a Table, and its row for every context [B].
StateRows = dict[StateKey, tuple[Table, np.ndarray]]
# By (stack, layer): a Table for all contexts, and where in it a node's begin.
SmallTables = dict[tuple[str, int], tuple[Table, dict[int, int]]]


class LayerwiseLogits:
  """Logits of contexts, for one model's parameters.

  Attributes:
    model, params: the flax module, and the parameters of one seed.
    head: name of the main task.
    transducer: the Transducer of that task.
    size: how many contexts are computed at once.
    mesh: the devices that they are split over.
    inputs: the Table of every stack's inputs.
  """

  def __init__(
    self,
    experiment: Experiment,
    params: dict,
    transducer: Transducer,
    size: int = CHUNK,
    *,
    mesh: Mesh = SINGLE_DEVICE,
  ):
    """Computes the states before the first layer, for every token and phase."""
    self.model, self.params, self.mesh = experiment.model, params, mesh
    self.head, self.transducer = experiment.task.name, transducer
    self.size = size
    self.inputs = {
      stack: Table(_inputs(self.model, params, site))
      for stack, site in (("decoder", "self"), ("encoder", "cross"))
      if site in self.model.sites
    }

  def __call__(self, field: ReceptiveField, contexts: np.ndarray) -> np.ndarray:
    """Returns the row's logits [B, V] for contexts [B, columns]."""
    chunks = np.split(contexts, range(self.size, len(contexts), self.size))
    results = self.of_chunks(field, chunks, len(contexts))
    return np.concatenate([logits for _, logits in results])

  def of_chunks(
    self,
    field: ReceptiveField,
    chunks: Iterable[np.ndarray],
    count: int,
  ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields (contexts, logits) of every chunk of `count` contexts in all.

    It is one chunk behind, so that the next one is computed meanwhile.
    """
    columns, previous = self._columns(field), None
    tables = self._small_tables(field, columns, count)
    stack, last, ((_, node),) = field.layers[-1]
    for contexts in chunks:
      state_rows = self._known(field, contexts, columns, tables)
      for stack_below, n, nodes in field.layers[:-1]:
        if (stack_below, n) not in tables:
          layer = stack_below, n, nodes
          state_rows |= self._layer(*layer, state_rows, contexts, columns)
      states = self._states(stack, last, node, state_rows, slice(None))
      current = contexts, _finish(self.model, self.head, self.params, states)
      if previous:
        yield previous[0], np.array(previous[1])[: len(previous[0])]
      previous = current
    if previous:
      yield previous[0], np.array(previous[1])[: len(previous[0])]

  def _layer(
    self,
    stack: str,
    n: int,
    nodes: tuple,
    state_rows: StateRows,
    contexts: np.ndarray,
    columns: Columns,
  ) -> StateRows:
    """Returns where the states after a layer are, for a chunk's contexts."""
    rows, states, start = {}, [], 0
    for i, node in nodes:
      first, same = self.distinct(contexts, columns[stack, n, i])
      node_states = self._states(stack, n, node, state_rows, first)
      states.append(node_states[: len(first)])
      rows[stack, n, i] = start + same
      start += len(first)
    table = Table(np.concatenate(states))
    return {key: (table, row) for key, row in rows.items()}

  def _small_tables(
    self, field: ReceptiveField, columns: Columns, count: int
  ) -> SmallTables:
    """Returns the tables of the lowest layers, as far as their states are few
    for all contexts that there could be."""
    tables, base = {}, self.transducer.values
    width = len(field.columns)
    for stack, n, nodes in field.layers[:-1]:
      sizes = [base ** len(columns[stack, n, i]) for i, _ in nodes]
      if sum(sizes) > min(TABLE, 2 * count):
        return tables
      states, starts, start = [], {}, 0
      for (i, node), size in zip(nodes, sizes, strict=True):
        node_columns = columns[stack, n, i]
        shape = (base,) * len(node_columns)
        contexts = np.zeros((size, width), np.uint8)
        values = np.indices(shape, np.uint8).reshape(len(shape), size)
        contexts[:, node_columns] = values.T
        state_rows = self._known(field, contexts, columns, tables)
        node_states = self._states(stack, n, node, state_rows, slice(None))
        states.append(node_states[:size])
        starts[i], start = start, start + size
      tables[stack, n] = Table(np.concatenate(states)), starts
    return tables

  def _known(
    self,
    field: ReceptiveField,
    contexts: np.ndarray,
    columns: Columns,
    tables: SmallTables,
  ) -> StateRows:
    """Returns where the states of the inputs and of the small tables are.

    A state's row in a small table is the code of what its columns hold.
    """
    state_rows = self._input_rows(field, contexts)
    for (stack, n), (table, starts) in tables.items():
      for i, start in starts.items():
        code = self.code(contexts, columns[stack, n, i])
        state_rows[stack, n, i] = table, start + code
    return state_rows

  def _input_rows(
    self, field: ReceptiveField, contexts: np.ndarray
  ) -> StateRows:
    """Returns where the states of the inputs are."""
    vocab_size, state_rows = self.model.config.vocab_size, {}
    columns = field.columns
    for stack, tokens in field.tokens:
      for i, token in enumerate(tokens):
        column = columns.get(token.key)
        values = token.id if column is None else contexts[:, column]
        # Numbers of rows are wider than the bytes of contexts.
        values = np.broadcast_to(np.int64(values), len(contexts))
        row = values + vocab_size * token.phase
        state_rows[stack, 0, i] = self.inputs[stack], row.astype(np.int32)
    return state_rows

  def distinct(
    self, contexts: np.ndarray, columns: Sequence[int]
  ) -> tuple[np.ndarray, np.ndarray]:
    """Finds the distinct choices of values in some columns of contexts.

    Returns:
      (first, same): the context where each choice is met first, and the number
      of every context's choice.
    """
    size = 63 // (self.transducer.values - 1).bit_length()  # values in a word
    parts = [columns[k : k + size] for k in range(0, len(columns), size)]
    words = [self.code(contexts, part) for part in parts or [[]]]
    code = words[0] if len(words) == 1 else np.stack(words, axis=1)
    axis = 0 if len(words) > 1 else None
    _, first, same = np.unique(
      code, return_index=True, return_inverse=True, axis=axis
    )
    return first, same.reshape(-1)

  def code(self, contexts: np.ndarray, columns: Sequence[int]) -> np.ndarray:
    """Returns the columns' values as one number for each context.

    It is below 2^63, since a word has no more columns and a small table no more
    rows.
    """
    code = np.zeros(len(contexts), np.int64)
    for column in columns:
      code = self.transducer.values * code + contexts[:, column]
    return code

  def _columns(self, field: ReceptiveField) -> Columns:
    """Returns the columns that every state depends on, sorted."""
    columns = field.columns
    used: dict[StateKey, set[int]] = {}
    for stack, tokens in field.tokens:
      for i, token in enumerate(tokens):
        column = columns.get(token.key)
        used[stack, 0, i] = set() if column is None else {column}
    depth = self.model.config.num_encoder_layers
    for stack, n, nodes in field.layers:
      for i, node in nodes:
        self_states = (node.previous, *dict(node.self_keys))
        used[stack, n, i] = set().union(
          *(used[stack, n - 1, k] for k in self_states),
          *(used["encoder", depth, k] for k in dict(node.cross_keys)),
        )
    return {key: sorted(state_columns) for key, state_columns in used.items()}

  def _states(
    self,
    stack: str,
    n: int,
    node: Node,
    state_rows: StateRows,
    pick: np.ndarray | slice,
  ) -> jax.Array:
    """Returns a node's states [B or more, D] in the B picked contexts."""
    config, name = self.model.config, f"{stack}_{n - 1}"
    sites = {"self": ((stack, n - 1), node.self_keys)}
    if stack == "decoder" and "cross" in self.model.sites:
      sites["cross"] = ("encoder", config.num_encoder_layers), node.cross_keys
    previous, rows = state_rows[stack, n - 1, node.previous]
    rows, keys, key_rows, biases = rows[pick], {}, {}, {}
    for site, (below, open_keys) in sites.items():
      size = len(_filled(np.zeros(max(len(open_keys), 1)), KEYS))
      bias = np.full((config.num_heads, size), CLOSED, np.float32)
      index = np.zeros((len(rows), size), np.int32)
      table = self.inputs["decoder"]  # any, where no key is open
      for k, (i, bias_by_head) in enumerate(open_keys):
        table, key_row = state_rows[*below, i]
        index[:, k], bias[:, k] = key_row[pick], bias_by_head
      keys[site] = table.key_value(config, self.params, name, site)
      key_rows[site], biases[site] = _filled(index), bias
    args = self.params[name], previous.states, _filled(rows)
    return _block(self.mesh, config, *args, keys, key_rows, biases)


def _filled(array: np.ndarray, sizes: Sequence[int] = ROWS) -> np.ndarray:
  """Repeats the last row up to one of few sizes, so that few programs are
  compiled."""
  count = len(array)
  larger = [size for size in sizes if size >= count]
  rows = larger[0] if larger else 1 << (count - 1).bit_length()
  return np.concatenate([array, np.repeat(array[-1:], rows - count, 0)])


@partial(jax.jit, static_argnums=(0, 2))
def _inputs(model, params, site: str):
  """Returns the states [T·V, D] before the first layer, by phase and token.

  `site` is the attention site whose position encoding the states have.
  """
  method = model.every_token
  return model.apply({"params": params}, site, method=method)[0]


_unrotated = lambda x: x  # what positions do to queries and keys: nothing


@partial(jax.jit, static_argnums=(0, 4))
def _key_value(config: ModelConfig, params, norm, states, site: str):
  """Returns keys and values [H, R, K] of a block's site."""
  block = Block(config, cross="cross_attention" in params)
  if norm is not None:
    states = normalization(config).apply({"params": norm}, states)
  method = getattr(block, f"{site}_key_value")
  key_values = block.apply(
    {"params": params}, states[None], _unrotated, method=method
  )
  return jax.tree.map(lambda x: x[0], key_values)


@partial(jax.jit, static_argnums=(0, 1))
def _block(
  mesh: Mesh, config: ModelConfig, params, states, rows, keys, key_rows, biases
):
  """Returns the states [B, D] after a block of rows `rows` [B] of `states`.

  By site, `keys` are keys and values, `key_rows` [B, K] the numbers of those
  that a row sees, and `biases` [H, K] theirs.
  """
  rows, key_rows = mesh.shard_batch((rows, key_rows))
  select_keys = lambda site: tuple(
    x[:, key_rows[site]].swapaxes(0, 1) for x in keys[site]
  )
  outputs, _ = Block(config, cross="cross" in keys).apply(
    {"params": params},
    states[rows][:, None],
    _unrotated,
    {site: select_keys(site) for site in keys},
    {site: DenseBias(bias[None, :, None]) for site, bias in biases.items()},
    dict.fromkeys(keys),
    None,
  )
  return mesh.replicate(outputs[:, 0])


@partial(jax.jit, static_argnums=(0, 1))
def _finish(model, head: str, params, x):
  """Returns the logits [B, V] of states."""
  bound = model.bind({"params": params})
  if model.config.norm == "pre":
    x = bound.decoder_norm(x)
  return bound.logits_dense[head](x)


class DenseLogits:
  """Logits of whole inputs by the whole model.

  Attributes:
    experiment: the experiment that the model belongs to.
    bound: static bound of sizes.
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
    """Compiles the forward pass of one seed, with its lines and parameters."""
    self.experiment, self.bound = experiment, bound
    head = experiment.task.name
    forward = lambda batch: experiment.apply(params, scaffold, batch, head)[0]
    self._apply = jax.jit(
      lambda batch: mesh.replicate(forward(mesh.shard_batch(batch)))
    )

  def __call__(
    self, items: np.ndarray, size: Size
  ) -> tuple[packing.Batch, np.ndarray]:
    """Returns (batch, logits [B, T, V]) of inputs [B, operands, W].

    Inputs are computed a few at a time: one program serves for all, whose
    arrays fit a CPU's cache.
    """
    task, kind, count = self.experiment.task, self.experiment.kind, len(items)
    nonzero_places = self.experiment.nonzero_places(np.asarray(size))
    lengths = np.broadcast_to(nonzero_places, task.operands)
    repeats = -count % DENSE_INPUTS
    filled = np.concatenate([items, items[-1:].repeat(repeats, 0)])
    parsed = [(digits, lengths) for digits in filled]
    batch = dataset.typed_batch(task, kind, parsed, size, self.bound)
    select = partial(packing.take, jax.device_get(batch))
    logits = [
      self._apply(select(lambda x, n=n: x[n : n + DENSE_INPUTS]))
      for n in range(0, count, DENSE_INPUTS)
    ]
    return select(lambda x: x[:count]), np.concatenate(logits)[:count]


def in_float64(experiment: Experiment, params: dict) -> tuple[Experiment, dict]:
  """Returns the same model in float64; use it under jax.enable_x64."""
  config = dataclasses.replace(experiment.model.config, dtype="float64")
  model = experiment.model.clone(config=config)
  params = jax.tree.map(
    lambda x: jnp.asarray(np.asarray(x), jnp.float64), params
  )
  return dataclasses.replace(experiment, model=model), params
