"""This module computes a view's logits for many contexts, layer by layer.

States that are equal are computed once: a state is a row of a table, and an
attention's keys are numbers of rows. The blocks are the model's own, run on one
row and the few keys that it sees.

No number here can wrap. Contexts are bytes, and a Transducer refuses a task of
more than 256 values. Rows of tables are int32: a table has a row for each node
and context of a chunk at most (PASS times a few dozen), or TABLE rows. Numbers
of inputs are computed as int64 from tokens and phases; states are told apart by
as many 64-bit words as their columns take; sizes are Python integers.
"""

from collections.abc import Iterable, Iterator
from functools import partial

import jax
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED, DenseBias
from lengthgen_jax.certify.receptive_fields import Node, ReceptiveField
from lengthgen_jax.certify.transducer import Transducer
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models.layers import Block, ModelConfig, normalization
from lengthgen_jax.training.mesh import SINGLE_DEVICE, Mesh

PASS = 1 << 15  # contexts that are computed at once
TABLE = 1 << 17  # the most rows of tables that are made once for all contexts
ROWS = 1 << 10, 1 << 15, 1 << 18  # sizes that arrays are filled up to
KEYS = 4, 16  # sizes that the keys of a row are filled up to


class Table:
  """A table holds states [R, D] of one layer, and their keys and values.

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


class States:
  """The states of one model's parameters give the logits of views.

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
    size: int = PASS,
    *,
    mesh: Mesh = SINGLE_DEVICE,
  ):
    """Computes the states before the first layer, for every token."""
    self.model, self.params, self.mesh = experiment.model, params, mesh
    self.head, self.transducer, self.size = (
      experiment.task.name,
      transducer,
      size,
    )
    self.inputs = {
      stack: Table(_inputs(self.model, params, site))
      for stack, site in (("decoder", "self"), ("encoder", "cross"))
      if site in self.model.sites
    }

  def logits(self, view: ReceptiveField, contexts: np.ndarray) -> np.ndarray:
    """Returns [B, V] logits of the view's row for contexts [B, columns]."""
    chunks = np.split(contexts, range(self.size, len(contexts), self.size))
    results = self.of_chunks(view, chunks, len(contexts))
    return np.concatenate([logits for _, logits in results])

  def of_chunks(
    self, view: ReceptiveField, chunks: Iterable[np.ndarray], count: int
  ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields (contexts, logits) of every chunk of `count` contexts in all.

    It is one chunk behind, so that the next one is computed meanwhile.
    """
    columns, previous = self._columns(view), None
    tables = self._small_tables(view, columns, count)
    stack, last, ((_, node),) = view.layers[-1]
    for contexts in chunks:
      state_rows = self._known(view, contexts, columns, tables)
      for *layer, nodes in view.layers[:-1]:
        if tuple(layer) not in tables:
          state_rows |= self._layer(
            *layer, nodes, state_rows, contexts, columns
          )
      states = self._states(stack, last, node, state_rows, slice(None))
      current = contexts, _finish(self.model, self.head, self.params, states)
      if previous:
        yield previous[0], np.array(previous[1])[: len(previous[0])]
      previous = current
    if previous:
      yield previous[0], np.array(previous[1])[: len(previous[0])]

  def _layer(self, stack, n, nodes, state_rows, contexts, columns) -> dict:
    """Returns {(stack, n, i): (table, numbers)} for the contexts of a chunk."""
    numbers, states, offset = {}, [], 0
    for i, node in nodes:
      first, same = self._distinct(contexts, columns[stack, n, i])
      states.append(
        self._states(stack, n, node, state_rows, first)[: len(first)]
      )
      numbers[stack, n, i] = offset + same
      offset += len(first)
    table = Table(np.concatenate(states))
    return {key: (table, number) for key, number in numbers.items()}

  def _small_tables(self, view: ReceptiveField, columns, count: int) -> dict:
    """Returns {(stack, n): (table, {i: first row})} of small layers.

    These are the layers whose states are few for all contexts that there could
    be.
    """
    tables, width = {}, len(view.columns(self.transducer.shared))
    for stack, n, nodes in view.layers[:-1]:
      base = self.transducer.values
      sizes = [base ** len(columns[stack, n, i]) for i, _ in nodes]
      if sum(sizes) > min(TABLE, 2 * count):
        return tables
      states, starts = [], {}
      for (i, node), size in zip(nodes, sizes, strict=True):
        grid = np.zeros((size, width), np.uint8)
        shape = (base,) * len(columns[stack, n, i])
        values = np.indices(shape, np.uint8).reshape(len(shape), size)
        grid[:, columns[stack, n, i]] = values.T
        state_rows = self._known(view, grid, columns, tables)
        starts[i] = sum(map(len, states))
        states.append(
          self._states(stack, n, node, state_rows, slice(None))[:size]
        )
      tables[stack, n] = Table(np.concatenate(states)), starts
    return tables

  def _known(
    self, view: ReceptiveField, contexts, columns, tables: dict
  ) -> dict:
    """Returns {(stack, n, i): (table, numbers)} of the inputs and of `tables`.

    A state's number in those tables is what its columns hold.
    """
    state_rows = self._start(view, contexts)
    for key, (table, starts) in tables.items():
      for i, start in starts.items():
        state_rows[*key, i] = (
          table,
          start + self._code(contexts, columns[*key, i]),
        )
    return state_rows

  def _start(self, view: ReceptiveField, contexts) -> dict:
    """Returns {(stack, 0, i): (table, numbers)} of every input."""
    size, state_rows = self.model.config.vocab_size, {}
    columns = view.columns(self.transducer.shared)
    for stack, tokens in view.tokens:
      for i, token in enumerate(tokens):
        column = columns.get(token.key)
        values = token.which if column is None else contexts[:, column]
        # Numbers of rows are wider than the bytes of contexts.
        values = np.broadcast_to(np.int64(values), len(contexts))
        number = values + size * token.phase
        state_rows[stack, 0, i] = self.inputs[stack], number.astype(np.int32)
    return state_rows

  def _distinct(self, contexts, columns):
    """Finds the distinct choices of values in some columns.

    Returns:
      (first, same): the context where each choice is met first, and the number
      of every context's choice.
    """
    size = 63 // (self.transducer.values - 1).bit_length()  # values in a word
    parts = [columns[k : k + size] for k in range(0, len(columns), size)]
    words = [self._code(contexts, part) for part in parts or [[]]]
    code = words[0] if len(words) == 1 else np.stack(words, axis=1)
    axis = 0 if len(words) > 1 else None
    _, first, same = np.unique(
      code, return_index=True, return_inverse=True, axis=axis
    )
    return first, same.reshape(-1)

  def _code(self, contexts, columns):
    """Returns the columns' values as one number for each context.

    It is below 2^63, since a word has no more columns and a small table no more
    rows.
    """
    code = np.zeros(len(contexts), np.int64)
    for column in columns:
      code = self.transducer.values * code + contexts[:, column]
    return code

  def _columns(self, view: ReceptiveField) -> dict:
    """Returns the columns that every state depends on, sorted."""
    columns, sources = view.columns(self.transducer.shared), {}
    for stack, tokens in view.tokens:
      for i, token in enumerate(tokens):
        used = columns.get(token.key)
        sources[stack, 0, i] = set() if used is None else {used}
    depth = self.model.config.num_encoder_layers
    for stack, n, nodes in view.layers:
      for i, node in nodes:
        of_self = (
          sources[stack, n - 1, k]
          for k in (node.previous, *dict(node.self_keys))
        )
        of_cross = (sources["encoder", depth, k] for k in dict(node.cross_keys))
        sources[stack, n, i] = set().union(*of_self, *of_cross)
    return {key: sorted(used) for key, used in sources.items()}

  def _states(
    self,
    stack: str,
    n: int,
    node: Node,
    state_rows: dict,
    pick: np.ndarray | slice,
  ):
    """Returns a node's states [B or more, D] in the B picked contexts."""
    config, name = self.model.config, f"{stack}_{n - 1}"
    memory = "encoder", config.num_encoder_layers
    sites = {"self": ((stack, n - 1), node.self_keys)}
    if stack == "decoder" and "cross" in self.model.sites:
      sites["cross"] = memory, node.cross_keys
    start, rows = state_rows[stack, n - 1, node.previous]
    rows, keys, numbers, biases = rows[pick], {}, {}, {}
    for site, (below, seen) in sites.items():
      size = len(_filled(np.zeros(max(len(seen), 1)), KEYS))
      bias = np.full((config.num_heads, size), CLOSED, np.float32)
      index = np.zeros((len(rows), size), np.int32)
      table = self.inputs["decoder"]
      for k, (i, values) in enumerate(seen):
        table, number = state_rows[*below, i]
        index[:, k], bias[:, k] = number[pick], values
      keys[site] = table.key_value(config, self.params, name, site)
      numbers[site], biases[site] = _filled(index), bias
    seen = keys, numbers, biases
    args = self.params[name], start.states, _filled(rows), *seen
    return _block(self.mesh, config, *args)


def _filled(array, sizes=ROWS):
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
def _block(mesh: Mesh, config: ModelConfig, params, states, rows, *seen):
  """Returns the states [B, D] after a block of rows `rows` [B] of `states`.

  `seen` are by site: keys and values, the numbers [B, K] of those that a row
  sees, and their biases.
  """
  keys, numbers, biases = seen
  rows, numbers = mesh.shard_batch((rows, numbers))
  select_keys = lambda site: tuple(
    x[:, numbers[site]].swapaxes(0, 1) for x in keys[site]
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
