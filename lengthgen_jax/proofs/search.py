"""Finds inputs with given contexts, and tries the program on them.

The checker (checker.py) lists the contexts of a model: for each receptive
field, all tokens that a row can see together with the token that it must say.
It names them by codes, numbers with one digit for each variable. Here a context
becomes a whole input that has it, by a walk through the transducer of the task.
The program's own answers to such inputs show that a model is wrong, and are a
second opinion about one that is proved. Shapes: U contexts, S symbols and Q
states of the transducer, P columns, K operands.
"""

import functools
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.proofs import checker
from lengthgen_jax.tasks import dataset
from lengthgen_jax.tasks.grid import GridTask
from lengthgen_jax.tasks.task import Size, drawing

# Right contexts with a smaller margin than THIN_MARGIN, in logits, are trained
# on beside those that fail: of each kind at most MAX_CONTEXTS, those with the
# smallest margins.
THIN_MARGIN, MAX_CONTEXTS = 4.0, 4096
INPUTS_PER_FAILURE = 8  # to train on, for one failing context, or fewer
MAX_CELLS = 1 << 24  # U·Q·S of one walk
INPUTS_TRIED = 20_000  # random grids among which a context is looked for
BATCH_SIZE = 128  # inputs that the program is tried on at once


class Input(NamedTuple):
  """An input as Task.parse returns it."""

  items: np.ndarray  # [K, n] of all operands
  lengths: list[int]  # of each operand


class Kept(NamedTuple):
  """A context that fails, or is right by a thin margin."""

  margin: float
  code: int
  field: tuple  # the receptive field


class Findings(NamedTuple):
  """What a search found in the contexts of a model."""

  contexts: int  # how many were evaluated
  wrong: int  # how many of them have a margin that is not positive
  margin: float  # the smallest
  # Inputs, as people type them, on which the program is wrong, the shortest
  # first.
  counterexamples: list[str]
  # Inputs no longer than in training that have a context which fails, or is
  # right by a thin margin.
  failing: list[str]
  thin: list[str]


class Search:
  """Finds contexts of one model, and inputs that have them."""

  def __init__(self, model: Model, arrays: dict, config: dict, table: dict):
    """Reads a model; `checker.prove` has the other arguments, and accepts
    them."""
    self.model = model  # as the program has it
    self._sample = functools.cache(self._sample)
    # The same model, as the checker has it.
    self.checked = checker.Model(arrays, config, table)
    self.contexts = checker.Contexts(self.checked)
    # {receptive field: [(row class, names of variables, plans), ...]}
    self.fields = checker.receptive_fields(self.checked, self.contexts)

  def batches(self) -> Iterator[tuple[tuple, np.ndarray]]:
    """Yields (receptive field, codes [U]) of all contexts, each one once."""
    return self.contexts.of_fields(self.fields)

  def find_wrong(self, rng: np.random.Generator, exhaustive: bool) -> Findings:
    """Looks for contexts that fail, and for inputs on which the program is
    wrong because of them; unless `exhaustive`, in no receptive field after one
    with failing contexts. `rng` chooses the rest of the inputs."""
    contexts, wrong, smallest, previous_field = 0, 0, np.inf, None
    fails: list[Kept] = []
    thin: list[Kept] = []
    for field, codes in self.batches():
      if wrong and not exhaustive and field != previous_field:
        break
      previous_field, kept = field, fails + thin
      for part, _, differences, _ in checker.evaluate(
        self.checked, field, codes, False
      ):
        margins = np.nan_to_num(differences.min(axis=1), nan=-np.inf)
        contexts, smallest = contexts + len(part), min(smallest, margins.min())
        wrong += int((margins <= 0).sum())
        is_thin = margins < THIN_MARGIN
        for margin, code in zip(margins[is_thin], part[is_thin], strict=True):
          kept.append(Kept(float(margin), int(code), field))
      kept.sort(key=lambda context: (context.margin, context.code))
      fails = [x for x in kept if x.margin <= 0][:MAX_CONTEXTS]
      thin = [x for x in kept if x.margin > 0][:MAX_CONTEXTS]
    inputs = self.inputs(fails, rng)
    is_wrong = ~(self.margins(inputs) > 0)
    texts = {self.text(x) for x in itertools.compress(inputs, is_wrong)}
    count = MAX_CONTEXTS // max(len(fails), 1)
    repeated = fails * min(max(count, 1), INPUTS_PER_FAILURE)
    to_train = [
      [self.text(x) for x in self.inputs(some, rng, as_in_training=True)]
      for some in (repeated, thin)
    ]
    shortest = sorted(texts, key=lambda text: (len(text), text))
    return Findings(contexts, wrong, float(smallest), shortest, *to_train)

  def second_opinion(self, rng: np.random.Generator, limit: int) -> dict:
    """Tries the program on whole inputs that together have all contexts, or
    about `limit` of these, drawn at random, if they are more.

    Returns {"contexts": how many were tried, "missing": for how many no input
    was found, "wrong": on how many inputs the program is wrong, "margin": its
    smallest margin on them}.
    """
    total = sum(len(codes) for _, codes in self.batches())
    tried, missing, wrong, smallest = 0, 0, 0, np.inf
    for nodes, codes in self.batches():
      if all(self._is_deep(row_class) for row_class, *_ in self.fields[nodes]):
        continue
      if total > limit:
        codes = codes[rng.random(len(codes)) < limit / total]
      inputs = [x for x in self.draw(nodes, codes, rng) if x is not None]
      margins = self.margins(inputs)
      missing += len(codes) - len(inputs)
      tried += len(margins)
      wrong += int((~(margins > 0)).sum())
      smallest = min(smallest, float(margins.min(initial=np.inf)))
    result = {"contexts": tried, "missing": missing, "wrong": wrong}
    return result | {"margin": smallest}

  # The program on inputs.

  def margins(self, inputs: list[Input]) -> np.ndarray:
    """Returns the smallest margin that the program has in each of U inputs."""
    experiment, by_width = self.model.experiment, {}
    for i, (_, lengths) in enumerate(inputs):
      width = experiment.task.padded_width(lengths)
      by_width.setdefault(width, []).append(i)
    result = np.zeros(len(inputs))
    bound = dataset.widest([*by_width]) if by_width else 0
    for width, numbers in by_width.items():
      for start in range(0, len(numbers), BATCH_SIZE):
        part = numbers[start : start + BATCH_SIZE]
        repeats = part[-1:] * (BATCH_SIZE - len(part))
        padded = [inputs[i] for i in part + repeats]
        args = experiment.task, experiment.kind, padded, width, bound
        batch = dataset.parsed_batch(*args)
        result[part] = self.model.margins(batch)[: len(part)]
    return result

  def text(self, typed: Input) -> str:
    return self.model.experiment.task.input_text(*typed)

  # From contexts to inputs.

  def inputs(
    self,
    contexts: list[Kept],
    rng: np.random.Generator,
    as_in_training: bool = False,
  ) -> list[Input]:
    """Returns inputs that have the contexts, where `draw` finds one."""
    by_field = {}
    for context in contexts:
      by_field.setdefault(context.field, []).append(context.code)
    drawn = (
      self.draw(field, np.array(codes), rng, as_in_training)
      for field, codes in by_field.items()
    )
    return [x for x in itertools.chain(*drawn) if x is not None]

  def draw(
    self,
    nodes: tuple,
    codes: np.ndarray,
    rng: np.random.Generator,
    as_in_training: bool = False,
  ) -> list[Input | None]:
    """Returns an input for each of U contexts of a receptive field, or None if
    none is found: among the shortest ones, or with `as_in_training` of any
    length up to that of training (of grids a random one, else a short one)."""
    inputs: list[Input | None] = [None] * len(codes)
    rows = [
      row[:2]
      for row in self.fields[nodes]
      if as_in_training or not self._is_deep(row[0])
    ]
    find = self._grids if self.checked.task.is_grid else self._sequences
    if as_in_training:
      rows = [rows[i] for i in rng.permutation(len(rows))]
    else:
      longer = [self._longer(rows, nodes, k) for k in (1, 2, 4, 8)]
      rows = [*rows, *itertools.chain(*longer)]
      rows.sort(key=lambda row: sum(row[0][:2]))
    for row_class, names in rows:
      todo = [i for i, x in enumerate(inputs) if x is None]
      if todo:
        drawn = find(row_class, names, codes[todo], rng, as_in_training)
        for i, x in zip(todo, drawn, strict=True):
          inputs[i] = x
    todo = [i for i, x in enumerate(inputs) if x is None]
    if as_in_training and self.checked.task.is_grid and todo:
      # A context that no random grid has may be that of a short one, which is
      # trained on at the widths that have no more rows.
      longest = np.max(self.model.experiment.data[0].widths, axis=0)
      for i, x in zip(todo, self.draw(nodes, codes[todo], rng), strict=True):
        if x and (x.lengths <= longest).all():
          inputs[i] = x
    return inputs

  def _is_deep(self, row_class: tuple) -> bool:
    """Returns whether rows of a class are below row 1 of a grid whose first row
    is an operand: what is above them cannot be typed."""
    return self.checked.task.is_first and row_class[2] > 1

  def _longer(self, rows: list[tuple], nodes: tuple, k: int) -> Iterator[tuple]:
    """Yields row classes k periods longer, for which rows that stand for longer
    ones stand too: they have the same receptive field."""
    limit, period = self.checked.class_limit, self.checked.period
    for (x, y, *grid), _ in rows:
      more = x + k * period * (x >= limit), y + k * period * (y >= limit)
      if more != (x, y):
        row_class = (*more, *grid)
        field, names = checker.receptive_field_of(self.checked, row_class)
        assert field == nodes, "a row class stands for others than it should"
        yield row_class, names

  def _sequences(
    self, row_class, names, codes, rng, as_in_training
  ) -> list[Input | None]:
    """Returns inputs [U] with contexts at a row, or None if its size has
    none."""
    task, experiment = self.checked.task, self.model.experiment
    length = len(task.columns(*row_class)[1]) - task.slack
    longest = experiment.task.units(experiment.train_length)
    if length < 1 or as_in_training and length > longest:
      return [None] * len(codes)
    symbols, shorts, is_found = self._walk(row_class, names, codes, rng)
    items = np.full((len(codes), task.num_operands, length), task.zeros[0])
    long = task.num_long
    items[:, :long] = symbols[:, :length].swapaxes(1, 2)
    if long < task.num_operands:
      items[:, long, 0] = shorts
    lengths = [length] * long + [1] * (task.num_operands - long)
    pairs = zip(items, is_found, strict=True)
    return [Input(x, lengths) if is_found else None for x, is_found in pairs]

  def _walk(self, row_class, names, codes, rng):
    """Walks through the transducer along the tokens of contexts; returns the
    tokens [U, P, K] of the long operands in each column, those of the short
    operand [U], and which contexts there is a walk for [U]."""
    task, radix = self.checked.task, len(self.checked.embedding)
    choices, columns = task.columns(*row_class)
    tokens = {name: codes // radix**v % radix for v, name in enumerate(names)}
    # A name that is a token's id, like the end token's, is no variable.
    is_possible = np.ones(len(codes), bool)
    for name in [name for name in tokens if isinstance(name, int)]:
      is_possible &= tokens.pop(name) == name
    first = next(iter(task.transducers.values()))
    shape = len(codes), len(columns), first.symbols.shape[1]
    symbols, shorts = np.zeros(shape, int), np.zeros(len(codes), int)
    is_found = np.zeros(len(codes), bool)
    for choice in rng.permutation(len(choices)):
      digit, fixed = choices[choice]
      fits = ~is_found & is_possible
      for name, token in fixed.items():
        fits &= tokens.get(name, token) == token
      transducer = task.transducers[digit]
      size = max(1, MAX_CELLS // transducer.outputs.size)
      todo = np.flatnonzero(fits)
      for part in np.split(todo, range(size, len(todo), size)):
        of_part = {name: values[part] for name, values in tokens.items()}
        args = transducer, columns, of_part, len(part), rng
        symbols[part], is_found[part] = walk(*args)
        shorts[part] = 0 if digit is None else digit
    return symbols, shorts, is_found

  def _grids(
    self, row_class, names, codes, rng, as_in_training
  ) -> list[Input | None]:
    """Returns inputs that have contexts at a row of attention in their grid."""
    if as_in_training:
      return self._of_training(row_class, names, codes, rng)
    *_, j, m = row_class
    checked, task = self.checked.task, self.model.experiment.task
    assert isinstance(task, GridTask)
    symbols, drivers, is_found = self._walk(row_class, names, codes, rng)
    ahead = task.ahead * (j > 0 or not checked.is_first)
    num_cells, inputs = symbols.shape[1] - ahead, []
    for columns, driver, found in zip(symbols, drivers, is_found, strict=True):
      above = columns[:num_cells, -1].tolist() if j else None
      operand = columns[ahead : ahead + num_cells, 0].tolist()
      driver = None if j == m else int(driver)
      items = found and task.items_with_row(above, operand, driver)
      length = num_cells - (task.operand_in == "every")
      inputs.append(padded(items, length) if items else None)
    return inputs

  def _of_training(self, row_class, names, codes, rng) -> list[Input | None]:
    """Returns inputs with as many rows as in training, of INPUTS_TRIED random
    ones, that have contexts in a row of their grid of the kind of the class:
    the first, the second below an operand, that of the end token, any other."""
    x, y, j, m = row_class
    inputs: list[Input | None] = [None] * len(codes)
    sample = self._sample(x + y + 1)
    if sample is None:
      return inputs
    items, grids, lengths = sample
    radix, last = len(self.checked.embedding), grids.shape[1]
    second = 1 + self.checked.task.is_first
    rows = range(last)[j : j + 1] if j < second else range(second, last)
    rows = [last] if j == m else rows
    for i, code in enumerate(codes.tolist()):
      tokens = [code // radix**v % radix for v in range(len(names))]
      for row in rng.permutation(list(rows)):
        fits = np.ones(len(items), bool)
        for name, token in zip(names, tokens, strict=True):
          if isinstance(name, int):  # a mark, or the end token
            continue
          kind, number, *place = name
          if kind == "out":
            fits &= grids[:, row + number - j, place[0]] == token
          elif number == self.checked.task.num_operands - 1:
            fits &= items[:, 1, row] == token
          else:  # of its own row, or of the row that all have
            first = row * (x + y + 1) if len(place) > 1 else 0
            fits &= items[:, 0, first + place[-1]] == token
        if fits.any():
          inputs[i] = Input(items[rng.choice(np.flatnonzero(fits))], lengths)
          break
    return inputs

  def _sample(self, num_cells: int) -> tuple | None:
    """Returns INPUTS_TRIED random inputs with rows of so many cells, as items,
    grids [U, J, K] and lengths; None if they are longer than in training."""
    experiment = self.model.experiment
    task, longest = experiment.task, np.max(experiment.data[0].widths, axis=0)
    assert isinstance(task, GridTask)
    has_last = task.operand_in == "every"  # a cell that no digit is for
    num_cells -= has_last
    if num_cells > longest[0]:
      return None
    lengths = [num_cells, int(longest[1])]
    size = Size(jnp.array(lengths), jnp.array(lengths), tuple(lengths))

    def draw(key):
      items = task.draw_items(drawing(key), size)
      return items, task.from_items(items, size).output.ids

    keys = jax.random.split(jax.random.key(0), INPUTS_TRIED)
    items, ids = jax.device_get(jax.jit(jax.vmap(draw))(keys))
    row_size = num_cells + has_last
    grids = ids[:, : lengths[1] * row_size].reshape(len(ids), -1, row_size)
    return items, grids, lengths


def padded(operands: list[list[int]], num_cells: int) -> Input:
  """Returns the input of the operands of a grid with so many cells in a row."""
  items = np.array([*itertools.zip_longest(*operands, fillvalue=0)]).T
  return Input(items, [num_cells, len(operands[1])])


def walk(transducer, columns, tokens, count, rng):
  """Returns (symbols [U, P, K], whether there is a walk [U]) of `count` = U
  random walks from the first to an accepting state.

  A column is a mask [S] of its symbols, and its variables, the output's last;
  `tokens` has {variable: the token [U] that it has}.
  """
  next_states, every = transducer.next_states, np.arange(count)

  def allowed(p):  # [U or 1, Q or 1, S]
    mask, (*of_symbols, output) = columns[p]
    cells = mask[None, None]
    for k, name in enumerate(of_symbols):
      if name in tokens:
        same = transducer.symbols[:, k] == tokens[name][:, None]
        cells = cells & same[:, None]
    if output in tokens:
      cells = cells & (transducer.outputs == tokens[output][:, None, None])
    return cells

  leads = [transducer.accepting[None]]  # [U or 1, Q], from the last column on
  for p in reversed(range(len(columns))):
    leads.append((allowed(p) & leads[-1][:, next_states]).any(axis=2))
  leads.reverse()
  is_found = np.broadcast_to(leads[0][:, 0], count)
  state, symbols = np.zeros(count, int), []
  for p in range(len(columns)):
    cells = allowed(p)
    cells = np.broadcast_to(cells, (count, len(next_states), cells.shape[2]))
    after = np.broadcast_to(leads[p + 1], (count, len(next_states)))
    cells = cells[every, state] & after[every[:, None], next_states[state]]
    symbol = (rng.random(cells.shape) * cells).argmax(axis=1)
    symbols.append(transducer.symbols[symbol])
    state = next_states[state, symbol]
  return np.stack(symbols, axis=1), is_found
