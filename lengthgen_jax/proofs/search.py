"""Finds inputs with given contexts, and tries the program on them.

The checker (checker.py) lists the contexts of a model: for each receptive
field, all tokens that a row can see together with the token that it must say.
It names them by codes, numbers with one digit for each variable. Here a context
becomes a whole input that has it, by a walk through the transducer of the task.
The program's own answers to such inputs show that a model is wrong, and are a
second opinion about one that is proved. Shapes: U contexts, S symbols and Q
states of the transducer, P columns, K operands.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.proofs import checker
from lengthgen_jax.tasks import dataset

# Right contexts with a smaller margin than THIN_MARGIN, in logits, are trained
# on beside those that fail: of each kind at most MAX_CONTEXTS, those with the
# smallest margins.
THIN_MARGIN, MAX_CONTEXTS = 4.0, 4096
INPUTS_PER_FAILURE = 8  # to train on, for one failing context, or fewer
MAX_CELLS = 1 << 24  # U·Q·S of one walk
PRODUCTS_TRIED = 20_000  # random products among which a context is looked for
BATCH_SIZE = 128  # inputs that the program is tried on at once


class Input(NamedTuple):
  """An input as Task.parse returns it."""

  items: np.ndarray  # [K, n] of all operands
  lengths: list[int]  # of each operand


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
    # The same model, as the checker has it.
    self.checked = checker.Model(arrays, config, table)
    self.contexts = checker.Contexts(self.checked)
    # {receptive field: [(row class, names of variables, plans), ...]}
    self.fields = checker.receptive_fields(self.checked, self.contexts)

  def batches(self) -> Iterator[tuple[tuple, np.ndarray]]:
    """Yields (receptive field, codes [U]) of all contexts, each one once."""
    for nodes, rows in self.fields.items():
      plans = dict.fromkeys(plan for *_, plans in rows for plan in plans)
      for codes in self.contexts.batches([*plans]):
        yield nodes, codes

  def find_wrong(self, rng: np.random.Generator, exhaustive: bool) -> Findings:
    """Looks for contexts that fail, and for inputs on which the program is
    wrong because of them; unless `exhaustive`, in no receptive field after one
    with failing contexts. `rng` chooses the rest of the inputs."""
    contexts, wrong, smallest, last = 0, 0, np.inf, None
    fails, thin = [], []
    for nodes, codes in self.batches():
      if wrong and not exhaustive and nodes != last:
        break
      last, kept = nodes, fails + thin
      with np.errstate(all="ignore"):
        chunks = [*checker.evaluate(self.checked, nodes, codes, False)]
      for codes, _, differences, _ in chunks:
        margins = np.nan_to_num(differences.min(axis=1), nan=-np.inf)
        contexts, smallest = contexts + len(codes), min(smallest, margins.min())
        wrong += int((margins <= 0).sum())
        is_thin = margins < THIN_MARGIN
        for margin, code in zip(margins[is_thin], codes[is_thin], strict=True):
          kept.append((float(margin), int(code), nodes))
      kept.sort(key=lambda x: x[:2])
      fails = [x for x in kept if x[0] <= 0][:MAX_CONTEXTS]
      thin = [x for x in kept if x[0] > 0][:MAX_CONTEXTS]
    inputs = self.inputs(fails, rng)
    is_wrong = ~(self.margins(inputs) > 0)
    texts = {self.text(x) for x in itertools.compress(inputs, is_wrong)}
    count = MAX_CONTEXTS // max(len(fails), 1)
    repeated = fails * min(max(count, 1), INPUTS_PER_FAILURE)
    to_train = [
      [self.text(x) for x in self.inputs(some, rng, as_in_training=True)]
      for some in (repeated, thin if fails else [])
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

  def lookalikes(self) -> tuple[tuple, list[str]] | None:
    """Returns a row that must say different tokens where it sees the same, of
    those among the first contexts of each receptive field, None if there is
    none: the names of the variables that it sees, and last of the one that it
    must say; and two inputs as people type them."""
    done = set()
    for nodes, codes in self.batches():
      _, names, _ = self.fields[nodes][0]
      if nodes in done:
        continue
      done.add(nodes)
      seen = codes % len(self.checked.embedding) ** (len(names) - 1)
      order = np.argsort(seen, kind="stable")
      same = np.flatnonzero(np.diff(seen[order]) == 0)
      if len(same):
        pair = codes[order[same[0] : same[0] + 2]]
        inputs = self.draw(nodes, pair, np.random.default_rng(0))
        texts = [self.text(x) if x else "a longer input" for x in inputs]
        return names, texts
    return None

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
    items, lengths = typed
    if not self.checked.task.is_grid:
      return self.model.experiment.task.input_text(items, lengths[0])
    numbers = zip(items, lengths, strict=True)
    return "*".join("".join(map(str, x[:n][::-1])) for x, n in numbers)

  # From contexts to inputs.

  def inputs(
    self,
    contexts: list[tuple],
    rng: np.random.Generator,
    as_in_training: bool = False,
  ) -> list[Input]:
    """Returns inputs of each (margin, code, receptive field), where `draw`
    finds one."""
    by_field = {}
    for _, code, nodes in contexts:
      by_field.setdefault(nodes, []).append(code)
    drawn = (
      self.draw(nodes, np.array(codes), rng, as_in_training)
      for nodes, codes in by_field.items()
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
    length up to that of training."""
    inputs: list[Input | None] = [None] * len(codes)
    rows = [row[:2] for row in self.fields[nodes]]
    find = self._products if self.checked.task.is_grid else self._sequences
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
    return inputs

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
    lengths = [length] * task.num_operands
    pairs = zip(items, is_found, strict=True)
    return [Input(x, lengths) if is_found else None for x, is_found in pairs]

  def _walk(self, row_class, names, codes, rng):
    """Walks through the transducer along the tokens of contexts; returns the
    tokens [U, P, K] of the long operands in each column, those of the short
    operand [U], and which contexts there is a walk for [U]."""
    task, radix = self.checked.task, len(self.checked.embedding)
    choices, columns = task.columns(*row_class)
    tokens = {
      name: codes // radix**v % radix
      for v, name in enumerate(names)
      if isinstance(name, tuple)
    }
    first = next(iter(task.transducers.values()))
    shape = len(codes), len(columns), first.symbols.shape[1]
    symbols, shorts = np.zeros(shape, int), np.zeros(len(codes), int)
    is_found = np.zeros(len(codes), bool)
    for choice in rng.permutation(len(choices)):
      digit, fixed = choices[choice]
      fits = ~is_found
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

  def _products(
    self, row_class, names, codes, rng, as_in_training
  ) -> list[Input | None]:
    """Returns products with contexts at a row of their running sums."""
    if as_in_training:
      return [self._product(row_class, names, x, rng) for x in codes.tolist()]
    x, y, j, m = row_class
    symbols, shorts, is_found = self._walk(row_class, names, codes, rng)
    n, inputs = x + y, []
    to_number = lambda digits: int("".join(map(str, digits[::-1].tolist())))
    for columns, b, has_input in zip(symbols, shorts, is_found, strict=True):
      if not has_input:
        inputs.append(None)
        continue
      a, total = to_number(columns[1:-1, 0]), to_number(columns[:-1, 1])
      # Further digits of b make the row before what the context needs: n + 2 of
      # them can make any sum.
      before = n + 2 if j else 0
      lower = -(-total * 10 ** (before - 1) // a) if before and a else 0
      digits = [*map(int, str(lower).zfill(before)[::-1])] if before else []
      digits += [b, int(rng.integers(10))] if j < m else []
      items = np.zeros((2, max(n, len(digits))), int)
      items[0, :n], items[1, : len(digits)] = columns[1:-1, 0], digits
      inputs.append(Input(items, [n, len(digits)]))
    return inputs

  def _product(self, row_class, names, code, rng) -> Input | None:
    """Returns a product of the longest operands of training, of PRODUCTS_TRIED
    random ones, that has a context; its row is the first, the last, or that of
    the end token, as in the row class."""
    n_and_m = self.model.experiment.data[0].bound(0)
    assert isinstance(n_and_m, tuple)
    x, y, j, m = row_class
    n, count = n_and_m
    if x + y > n or j and count < 2:
      return None
    row = 0 if not j else count if j == m else count - 1
    radix = len(self.checked.embedding)
    tokens = [code // radix**v % radix for v in range(len(names))]
    a, b = (rng.integers(0, 10, (PRODUCTS_TRIED, k)) for k in (x + y, count))
    sums = {}  # {(row of the grid, digit): token}
    for name, token in zip(names, tokens, strict=True):
      if isinstance(name, int):  # a mark
        continue
      kind, number, *place = name
      if kind == "out":
        sums[row + number - j, place[0]] = token
      elif number:
        b[:, row] = token
      else:
        a[:, place[0]] = token
    weights = 10 ** np.arange(x + y)
    total, fits = np.zeros(PRODUCTS_TRIED, int), np.ones(PRODUCTS_TRIED, bool)
    for k in range(count):
      total = total // 10 + (a @ weights) * b[:, k]
      for (of_row, digit), token in sums.items():
        if of_row == k:
          fits &= total // 10**digit % 10 == token
    if not fits.any():
      return None
    first, items = fits.argmax(), np.zeros((2, max(x + y, count)), int)
    items[0, : x + y], items[1, :count] = a[first], b[first]
    return Input(items, [x + y, count])


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
