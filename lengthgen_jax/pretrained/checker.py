"""Proves, without the package, that a shipped model is right at every length:

  python checker.py addition.npz [more.npz ...] [--json]

A second opinion: it needs numpy alone, and shares no code and no argument with
lengthgen_jax/certify. docs/proofs.md has the theorem, a proof of the lemma on
sizes (the one step that no program checks), and of the bounds on rounding.

It prints `proved: N contexts, smallest margin m, rounding at most e`, the first
context that fails, or the condition that is not met. The exit code is 0 if all
models are proved, 1 if a context of one fails, else 2.

Shapes: U states, D model size, H heads, K head size, G keys, V tokens.
"""

import hashlib
import io
import itertools
import json
import pathlib
import re
import sys
import time
from typing import NamedTuple

import numpy as np

ANY, RIGHT = -1, 1  # row segment and anchor of a line
MAX_CLASSES = 100_000  # more kinds of rows are refused
CHUNK = 1 << 14  # states that are computed at once


class RefusedError(Exception):
  """A condition of the argument does not hold, or a file cannot be read."""


def require(condition, message):
  """Raises RefusedError unless the condition holds."""
  if not condition:
    raise RefusedError(message)


# 1. The model, and the conditions.

# Settings on which the network or a row's keys depend; then those that change
# nothing here, or that the parameters show. Any other setting is refused.
REQUIRED = {
  "model.kind": ("encoder_decoder", "decoder_only"),
  "model.norm": ("pre",),
  "model.norm_kind": ("layer",),
  "model.dense_bias": (True,),
  "model.activation": ("relu",),
  "model.dtype": ("float32",),
  "model.precision": ("highest",),
  "positions.kind": ("none",),
  "temperature.kind": ("none",),
  "attention.normalizer": ("softmax",),
  "bias.allow_leak": (False,),
  "bias.learned_scale": (False,),
}
FREE = """model.emb_dim model.num_heads model.mlp_dim model.num_encoder_layers
model.num_decoder_layers model.dropout_rate positions.cyclic_period
positions.source_anchor positions.table positions.random_start
positions.segments temperature.initial temperature.stretch bias.kind bias.file
bias.window bias.sides bias.windowed_encoder bias.scale bias.closed""".split()


class Line(NamedTuple):
  """Opens the key whose offset from the anchor's end of its segment is, along
  every axis, matrix · (the row's offset from the left) + intercept."""

  row_segment: int
  segment: int
  anchor: int
  matrix: list
  intercept: list
  value: float


def read(path):
  """Returns (arrays, config) of NAME.npz and NAME.json."""
  try:
    content = pathlib.Path(path).read_bytes()
    card = json.loads(pathlib.Path(path).with_suffix(".json").read_text())
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
      arrays = dict(file)
    config, digest = card["config"], card["sha256"]
  except Exception as error:  # a damaged file fails in one of many ways
    message = f"cannot be read: {type(error).__name__}: {error}"
    raise RefusedError(message.splitlines()[0]) from error
  same = hashlib.sha256(content).hexdigest() == digest
  require(same, "the file is not the one that its card describes (sha256)")
  return arrays, config


def check_config(config):
  """Refuses a model that is another function than the argument is about."""
  for section in ("model", "positions", "temperature", "attention", "bias"):
    for field, value in config.get(section, {}).items():
      name = f"{section}.{field}"
      require(name in REQUIRED or name in FREE, f"{name} is an unknown setting")
      valid = REQUIRED.get(name, (value,))
      require(value in valid, f"{name}={value}: the argument is for {valid}")
  require(config["bias"]["closed"] <= -1e5, "bias.closed: rows see every key")
  layers = config["model"]["num_encoder_layers"]
  is_single = config["model"]["kind"] == "decoder_only"
  require(is_single or layers == 0, f"there are {layers} encoder layers, not 0")


class Model:
  """A shipped model: task, network, and lines by site, layer and head."""

  def __init__(self, path):
    arrays, config = read(path)
    check_config(config)
    self.task = make_task(config)
    self.has_source = config["model"]["kind"] == "encoder_decoder"
    self.sites = ("self", "cross") if self.has_source else ("self",)
    self.network = Network(arrays, config, self.sites)
    size = self.network.layers, self.network.heads
    scale = float(config["bias"]["scale"])
    self.lines = {
      site: read_lines(arrays, site, size, scale) for site in self.sites
    }
    check_lines(self)

  def reach(self, axis):
    """Returns C of the lemma on sizes, along an axis."""
    layers = zip(*self.lines.values(), strict=True)
    heads = [list(itertools.chain(*layer)) for layer in layers]
    lines = [list(itertools.chain(*layer)) for layer in heads]
    largest = [max(abs(x.intercept[axis]) for x in layer) for layer in lines]
    return sum(largest) + len(largest) + max(largest) + 1


def read_lines(arrays, site, size, scale):
  """Returns the lines of a site, [layers][heads], each a list of Line."""
  names = [f"lines/{site}_{x}" for x in (*Line._fields, "valid", "transparent")]
  *fields, valid, transparent = (arrays[name] for name in names)
  fits = valid.shape[0] == 1 and valid.shape[1:3] in (size, (1, size[1]))
  require(fits, f"the lines of {site}-attention are of other layers or heads")
  require(not transparent.any(), f"{site}-attention: a head sees every key")
  lines = []
  for layer in range(size[0]):
    lines.append([[] for _ in range(size[1])])
    stored = layer % valid.shape[1]
    for head, k in np.argwhere(valid[0, stored]):
      *where, value = (field[0, stored, head, k].tolist() for field in fields)
      require(np.isfinite(value), f"{site}-attention: a bias is not finite")
      lines[-1][head].append(Line(*where, scale * value))
  return lines


def check_lines(model):
  """Refuses lines that the lemma on sizes does not cover."""
  task, output = model.task, model.task.operands
  order = [*range(output), output + 1, output]  # of segments in a sequence
  layers = range(model.network.layers)
  for site, layer in itertools.product(model.sites, layers):
    for line in itertools.chain(*model.lines[site][layer]):
      text = f"layer {layer}, {site}: the line {line[:5]}"
      require(len(line.intercept) == len(task.directions), f"{text}: axes")
      require(line.segment in order, f"{text} is not to one segment")
      from_end = line.segment == output and line.anchor == RIGHT
      require(not from_end, f"{text} counts from the output's end")
      for row in [output] if model.has_source else order:
        is_later = order.index(line.segment) > order.index(row)
        if line.row_segment not in (ANY, row) or site == "self" and is_later:
          continue
        for axis, directions in enumerate(task.directions):
          step, key = line.matrix[axis][axis], directions[line.segment]
          along = directions[row] * (-key if line.anchor == RIGHT else key)
          straight = sum(map(abs, line.matrix[axis])) == abs(step) <= 1
          alike = abs(step) == abs(along) or len(task.directions) == 1 or axis
          message = f"{text} does not move along with the columns"
          require(straight and step * along >= 0 and alike, message)


# 2. The tasks.


class Token(NamedTuple):
  """A token has an id, or a name that stands for any id, and offsets from both
  ends of its segment along every axis."""

  segment: int
  left: tuple
  right: tuple
  name: int | tuple


class Tape(NamedTuple):
  """A machine that reads a symbol in each column and writes a token: tokens
  [S, operands], next state and output [Q, S], and which states may end."""

  tokens: np.ndarray
  next: np.ndarray
  out: np.ndarray
  accept: np.ndarray


class Row(NamedTuple):
  """The row that says the output x columns after the first and y before the
  last one; of a grid, in its row j of m."""

  x: int
  y: int
  j: int = 0
  m: int = 0


def tabulate(start, symbols, step, accept=lambda state: True):
  """Returns the Tape of step(state, *symbol) -> (state, output)."""
  numbers, states, pairs = {start: 0}, [start], []
  for state in states:  # grows while it is read
    pairs.append([step(state, *symbol) for symbol in symbols])
    for other, _ in pairs[-1]:
      if other not in numbers:
        numbers[other] = len(states)
        states.append(other)
  following = [[numbers[other] for other, _ in row] for row in pairs]
  outputs = [[output for _, output in row] for row in pairs]
  tables = symbols, following, outputs, [accept(state) for state in states]
  return Tape(*map(np.array, tables))


def segment(number, names, axis=0, axes=1):
  """Returns the tokens of a segment, which extends along one axis."""
  along = lambda n: tuple(n if i == axis else 0 for i in range(axes))
  pairs, last = enumerate(names), len(names) - 1
  return [Token(number, along(i), along(last - i), name) for i, name in pairs]


def classes(reach, slack):
  """Returns every (x, y) up to the limit from which on all are alike."""
  sizes = range(2 * reach + 5 + slack)
  require(len(sizes) ** 2 <= MAX_CLASSES, f"lines lead {reach} columns far")
  return [Row(x, y) for x, y in itertools.product(sizes, repeat=2)]


def with_stars(columns, row, reach, slack):
  """Returns columns (allowed, names, star), where after a star any number of
  free columns may follow: those that tell apart the rows of one class."""
  limit, stars = 2 * reach + 4 + slack, set()
  stars |= {reach + 2} if row.x == limit else set()
  stars |= {row.x + reach + 2} if row.y == limit else set()
  return [(*column, i in stars) for i, column in enumerate(columns)]


class Sequences:
  """A task on columns: the digits of numbers padded to one width, the least
  significant first, or the items of a list.

  Numbers have a last column of marks: `$`, the operator, and the end of the
  output. Before it are `slack` columns of zeros.
  """

  def __init__(self, tapes, start, marks=(), slack=0, short=(), step=-1):
    self.tapes = tapes  # by the digit of a short operand, else {None: tape}
    self.start, self.marks, self.slack, self.short = start, marks, slack, short
    self.delimiter, self.operands = 15 if marks else start, len(marks) or 1
    # How the offset from the left grows with the column, in every segment: the
    # operands, the output, the start token; 0 if it is at most 1.
    prompt = (0 if k in short else step for k in range(self.operands))
    self.directions = [(*prompt, 1, 0)]

  def rows(self, reach):
    """Returns a row of every class."""
    least = 1 + self.slack if self.marks else 0
    rows = classes(reach[0], self.slack)
    return [row for row in rows if row.x + row.y >= least]

  def sequence(self, last, _):
    """Returns the tokens of prompt and output; the last column is given."""
    size, prompt = last + 1 - bool(self.marks), []
    for k, step in enumerate(self.directions[0][: self.operands]):
      names = [("in", k, p) for p in range(size - self.slack)]
      names = names + [0] * self.slack if step else [("in", k, 0)]
      prompt += segment(k, [*self.marks[k : k + 1], *names[:: step or 1]])
    names = [("out", p) for p in range(size)] + [13] * bool(self.marks)
    return prompt, segment(self.operands, names)

  def columns(self, row, reach):
    """Yields ({name: token}, tape, columns) for every short operand."""
    free = row.x + row.y + 1 - bool(self.marks) - self.slack
    long = [k for k in range(self.operands) if k not in self.short]
    for digit, tape in self.tapes.items():
      zero, columns = (tape.tokens == 0).all(axis=1), []
      for p in range(free + self.slack):
        names = (*(("in", k, p) for k in long), ("out", p))
        columns.append((zero if p >= free else zero | True, names))
      short = {("in", k, 0): digit for k in self.short}
      yield short, tape, with_stars(columns, row, reach[0], self.slack)


class Products:
  """Running sums of a product of N digits and M: row j of the grid is s_j =
  floor(s_(j-1) / 10) + a·b_j, and the last row is the end token.

  Column t of a tape has digit t - 1 of a and of s_j, and digit t of s_(j-1),
  which may be any number below 10·a, or 0.
  """

  operands, start, delimiter = 2, 12, 15
  directions = [(0, -1, 1, 0), (-1, 0, 1, 0)]

  def __init__(self):
    symbols = list(itertools.product(range(10), repeat=2))

    def step(b, state, a, s):
      carry, is_less, is_zero = state  # s is less than 10·a so far; both are 0
      carry, digit = divmod(s + a * b + carry, 10)
      is_less = is_less if s == a else s < a  # the highest difference decides
      return (carry, is_less, is_zero and s == a == 0), digit

    machine = lambda b: lambda *args: step(b, *args)
    first, ends = (0, False, True), lambda state: state[1] or state[2]
    self.tapes = [tabulate(first, symbols, machine(b), ends) for b in range(10)]

  def rows(self, reach):
    """Returns a row of every class: of the first row of the grid, of one in the
    middle, and of the end token's."""
    far, rows = 2 * reach[0] + 2, classes(reach[1], 0)
    places = itertools.product(((0, far), (far, 2 * far), (far, far)), rows)
    rows = [Row(row.x, row.y, *place) for place, row in places]
    return [r for r in rows if r.x + r.y >= 1 and (r.j < r.m or r.x == 0)]

  def sequence(self, last, m):
    """Returns the tokens of prompt and output."""
    a = [12, *(("in", 0, p) for p in reversed(range(last)))]
    b = [11, *(("in", 1, p) for p in reversed(range(m)))]
    output = [
      Token(2, (j, k), (m - j, last - k), ("out", j, k))
      for j, k in itertools.product(range(m), range(last + 1))
    ]
    end = Token(2, (m, 0), (0, last), 13)
    return segment(0, a, 1, 2) + segment(1, b, 0, 2), [*output, end]

  def columns(self, row, reach):
    """Yields ({name: token}, tape, columns) for every digit b_j; the end token
    has none."""
    last, j, is_end = row.x + row.y, row.j, row.j == row.m
    for b, tape in enumerate(self.tapes[: 1 if is_end else 10]):
      (no_a, no_s), columns = (tape.tokens == 0).T, []
      for t in range(last + 2):
        allowed = no_s | (0 < j and t <= last)
        allowed = allowed & (no_a | (0 < t <= last))
        a = ("in", 0, t - 1) if 0 < t <= last else None
        s = ("out", j - 1, t) if j and t <= last else None
        out = ("out", j, t - 1) if t and not is_end else None
        columns.append((allowed, (a, s, out)))
      short = {} if is_end else {("in", 1, j): b}
      yield short, tape, with_stars(columns, row, reach[1], 0)


def make_task(config):
  """Returns the task that a config names."""
  name, arithmetic = config["task"], config["arithmetic"]
  one = lambda size: [(i,) for i in range(size)]
  two = list(itertools.product(range(10), repeat=2))
  carry, twice = lambda total: divmod(total, 10), lambda x: (x, x)
  times = lambda b: lambda c, a: carry(c + a * b)
  numbers = {  # marks, first state, symbols, step
    "successor": ((12,), 1, one(10), lambda c, a: carry(c + a)),
    "addition": ((12, 10), 0, two, lambda c, a, b: carry(c + a + b)),
    "parity": ((12,), 0, one(2), lambda x, a: twice((x + a) % 2)),
    "multiply": ((12, 11), 0, one(10), times),
  }
  if name == "multiply_long":
    return Products()
  if name in numbers:
    require(not arithmetic["aligned"], "the digits of the operands alternate")
    require(config["data"]["width"] == "natural", "operands have a fixed width")
    marks, *machine, step = numbers[name]
    steps = {b: step(b) for b in range(10)} if step is times else {None: step}
    tapes = {digit: tabulate(*machine, step) for digit, step in steps.items()}
    short = (1,) if step is times else ()
    return Sequences(tapes, 12, marks, arithmetic["slack"], short)
  section = config.get("copying" if name == "reverse" else name, {})
  start, answer = 0, section.get("answer", "states")
  require(answer == "states", f"{name}.answer={answer}: not every state")
  if name in ("copy", "reverse"):
    size = count = config["copying"]["alphabet"]
    step = lambda state, item: (state, item)
  elif name == "modular":
    size = count = section["p"]
    step = lambda total, item: twice((total + item) % size)
  elif name == "permutations":
    things = range(int(section["group"][1:]))
    elements = list(itertools.permutations(things))
    number, size = {x: i for i, x in enumerate(elements)}, len(elements)
    count, product = size, lambda s, x: number[tuple(s[k] for k in x)]
    step = lambda s, x: twice(product(elements[s], elements[x]))
  elif name == "dyck":
    kinds, bound = len(section["brackets"]) // 2, section["bound"]
    stacks = [
      itertools.product(range(kinds), repeat=d) for d in range(bound + 1)
    ]
    states = [*itertools.chain(*stacks), None]  # None is "invalid"
    start, size, count = (), 2 * kinds, 2 * kinds + len(states)

    def step(stack, bracket):
      kind, closes = divmod(bracket, 2)
      if stack is not None and not closes:
        stack = (*stack, kind) if len(stack) < bound else None
      elif stack is not None:
        stack = stack[:-1] if stack[-1:] == (kind,) else None
      return stack, size + states.index(stack)
  else:
    raise RefusedError(f"task={name}: this checker does not state it")
  tapes = {None: tabulate(start, one(size), step)}
  return Sequences(tapes, count, step=-1 if name == "reverse" else 1)


# 3. What a row depends on.


class Layout:
  """The tokens of all sequences of one size, and where lines lead in them.

  Row i of attention holds token i of the sequence and says the one after it;
  its coordinates are those of the token that it says.
  """

  def __init__(self, model, last, m):
    task = model.task
    prompt, output = task.sequence(last, m)
    zero = (0,) * len(task.directions)
    mark = lambda name: Token(task.operands + 1, zero, zero, name)
    if model.has_source:
      keys = {"self": [mark(task.start), *output[:-1]], "cross": prompt}
      self.said = output
    else:
      whole = [*prompt, mark(task.delimiter), *output]
      keys, self.said = {"self": whole[:-1]}, whole[1:]
    self.keys, self.index, self.first = keys, {}, len(self.said) - len(output)
    for site, tokens in keys.items():
      for i, token in enumerate(tokens):
        self.index[site, token.segment, 0, token.left] = i
        self.index[site, token.segment, RIGHT, token.right] = i

  def row(self, row):
    """Returns the index of a row."""
    return self.first + row.j * (row.x + row.y + 1) + row.x

  def open_keys(self, site, lines, i):
    """Returns (key, bias) of the keys that a head's lines open in row i."""
    row, keys = self.said[i], {}
    for line in lines:
      if line.row_segment in (ANY, row.segment):
        moved = np.array(line.matrix) @ row.left + line.intercept
        where = site, line.segment, line.anchor, tuple(moved.tolist())
        key = self.index.get(where)
        if key is not None and (site == "cross" or key <= i):
          keys[key] = max(keys.get(key, line.value), line.value)
    return sorted(keys.items())


def receptive_field(model, layout, i):
  """Returns (nodes, names) of row i: how its last state is computed.

  A node is ("token", id or (v,) for what names[v] stands for, segment), or
  ("block", layer, the row's own node below, and for every head of every site
  its keys as (bias, node)); nodes are numbers of those before.
  """
  nodes, names, known = {}, {}, {}
  add = lambda *node: nodes.setdefault(node, len(nodes))

  def state(site, layer, i):
    if not layer:
      number, _, _, name = layout.keys[site][i]
      if isinstance(name, tuple):
        name = (names.setdefault(name, len(names)),)
      return add("token", name, min(number, model.task.operands))
    if (layer, i) not in known:
      own, heads = state("self", layer - 1, i), []
      for site in model.sites:
        below = 0 if site == "cross" else layer - 1
        for lines in model.lines[site][layer - 1]:
          keys = layout.open_keys(site, lines, i)
          heads.append(tuple((bias, state(site, below, k)) for k, bias in keys))
      known[layer, i] = add("block", layer - 1, own, tuple(heads))
    return known[layer, i]

  state("self", model.network.layers, i)
  return tuple(nodes), tuple(names)


# 4. Contexts: numbers whose digits are tokens.


def advance(before, tape, allowed, weights, star):
  """Returns the distinct (numbers, states) after a column; numbers grow by the
  tokens in it times their weights."""
  symbols, (numbers, states) = np.flatnonzero(allowed), before
  added = tape.tokens[symbols] @ np.array(weights[:-1], int)
  added = added + tape.out[:, symbols] * weights[-1]
  count = len(tape.next)
  choices = [np.unique(x) for x in added * count + tape.next[:, symbols]]
  pairs = [
    (numbers[states == q, None] * count + choices[q]).ravel()
    for q in np.unique(states)
  ]
  pairs = np.unique(np.concatenate(pairs))
  after = pairs // count, pairs % count
  if not star:
    return after
  free = tape, allowed | True, weights, False
  more = advance(after, *free)
  while True:
    pairs = np.union1d(after[0] * count + after[1], more[0] * count + more[1])
    if len(pairs) == len(after[0]):
      return after
    after = pairs // count, pairs % count
    more = advance(after, *free)


def contexts(task, row, reach, names, said, radix, memo):
  """Returns all contexts of a row, sorted: sums of token · radix^v over its
  names v, with the token that it must say as the last digit.

  `memo` holds the results of `advance`, equal ones once.
  """
  require(
    radix ** (len(names) + 1) < 1 << 54, f"a row sees {len(names)} tokens"
  )
  weight = {name: radix**v for v, name in enumerate(names)}
  weight[said] = weight.get(said, 0) + radix ** len(names)
  found = []
  for fixed, tape, columns in task.columns(row, reach):
    covered = set(fixed).union(*(names for _, names, _ in columns))
    others = [str(name) for name in names if name not in covered]
    require(not others, f"a row sees what its columns do not have: {others}")
    start = sum(weight.get(name, 0) * token for name, token in fixed.items())
    start += said * weight[said] if isinstance(said, int) else 0
    current = np.array([start]), np.array([0])
    for allowed, names, star in columns:
      weights = tuple(weight.get(name, 0) for name in names)
      step = id(tape), id(current), allowed.tobytes(), weights, star
      if step not in memo:
        after = advance(current, tape, allowed, weights, star)
        content = after[0].tobytes(), after[1].tobytes()
        memo[step] = memo.setdefault(content, after), current
      current = memo[step][0]
    numbers, states = current
    found.append(numbers[tape.accept[states]])
  return np.unique(np.concatenate(found))


# 5. The network in float64, and bounds on rounding.
#
# Beside every state x stands e: any float32 evaluation of the same formulas is
# at most e away from x (Euclidean distance), and so is exact arithmetic.
# docs/proofs.md derives each bound. Of float32 it is assumed that sums, products
# and quotients are rounded correctly (in any order, fused or not), and exp and
# rsqrt are within ULPS units in the last place.

UNIT = 2.0**-24 * (1 + 2.0**-20)  # with room for the roundings of float64
ULPS = 4
DEBUG = False
TINY = 2.0**-100  # more than all that underflow can lose


def gamma(n):
  """Returns the relative error of n roundings."""
  return n * UNIT / (1 - n * UNIT)


def length(x):
  """Returns Euclidean norms along the last axis."""
  return np.sqrt(np.einsum("...d,...d->...", x, x))


PARAMETER = r"""token_embedder/embedding|segment_embedder/embedding|
decoder_norm/(scale|bias)|logits_dense_\w+/(kernel|bias)|decoder_\d+/(
pre_(self_attention|cross_attention|mlp)_layer_norm/(scale|bias)|
(self|cross)_attention/(query|key|value|out)/(kernel|bias)|
mlp/w[io]/(kernel|bias))"""


class Network:
  """The network: embedding, blocks and output head."""

  def __init__(self, arrays, config, sites):
    self.layers = config["model"]["num_decoder_layers"]
    self.heads, self.sites = config["model"]["num_heads"], sites
    self.head, self.cache = f"logits_dense_{config['task']}", {}
    self.params = {}
    for name, array in arrays.items():
      if name.startswith("params/"):
        known = re.fullmatch(PARAMETER, name[7:], re.VERBOSE)
        require(known, f"{name}: no such parameter is known")
        fine = array.dtype == np.float32 and np.isfinite(array).all()
        require(fine, f"{name} is not finite float32")
        self.params[name[7:]] = array.astype(float)
    self.embedding = self.params["token_embedder/embedding"]

  def take(self, path, inputs):
    """Returns kernel and bias of a dense layer with so many inputs, and the
    norms of the kernel's groups of outputs, of the whole, and of |kernel|."""
    if path not in self.cache:
      kernel, bias = (self.params[f"{path}/{x}"] for x in ("kernel", "bias"))
      if path.endswith("out"):  # the heads are inputs
        kernel = kernel.reshape(-1, kernel.shape[-1])
      flat = kernel.reshape(len(kernel), -1)
      fits = len(kernel) == inputs and kernel.shape[1:] == bias.shape
      require(fits, f"params/{path} has another shape")
      if path.endswith("query"):
        kernel, flat, bias = (x * kernel.shape[-1] ** -0.5 for x in (kernel, flat, bias))
      groups = np.moveaxis(kernel, 1, 0) if kernel.ndim == 3 else flat[None]
      norm = np.linalg.norm(groups, 2, axis=(1, 2)) * (1 + 1e-9)
      self.cache[path] = kernel, bias, flat, norm
    return self.cache[path]

  def dense(self, path, x, e):
    """Returns outputs [U, ...], and bounds on the rounding of this layer alone
    along the last axis."""
    kernel, bias, flat, _ = self.take(path, x.shape[1])
    y = (x @ flat).reshape(-1, *bias.shape) + bias
    size = np.abs(x) @ np.abs(flat) + e[:, None] * length(flat.T)
    size = size.reshape(y.shape) + np.abs(bias)
    count = (x != 0).sum(axis=1) if path.endswith("wo") else x.shape[1]
    rounding = length(size)
    return y, gamma(len(flat) + 3) * rounding + TINY

  def normalize(self, path, x, e):
    """Returns the states after a layer normalization."""
    scale, bias = (self.params[f"{path}/{x}"] for x in ("scale", "bias"))
    require(scale.shape == bias.shape == x.shape[1:], f"{path} does not fit")
    largest, root, u = np.abs(scale).max(), x.shape[1] ** 0.5, gamma(x.shape[1] + 6)
    size = np.abs(x).mean(axis=1) + e / root
    square = (length(x) + e) ** 2 / len(scale)
    mean = x.mean(axis=1)
    x = x - mean[:, None]
    deviation = np.sqrt((x * x).mean(axis=1) + 1e-6)
    y = x / deviation[:, None] * scale + bias
    least = np.maximum(deviation - e / root, TINY)
    off = u * size  # the mean
    wrong = u * square + 2 * (np.abs(mean) + e / root + off) * off
    wrong = wrong / least**2 + 2 * UNIT
    wrong = np.where(wrong < 0.1, 0.55 * wrong, np.inf)  # the variance
    factor = (1 + wrong) * (1 + (2 * ULPS + 4) * UNIT) - 1
    local = root * (factor + off / least * (1 + factor) + 2 * UNIT)
    local = largest * (local + e / least) + 2 * UNIT * length(bias)
    return y, local + TINY

  def embed(self, token, segment):
    """Returns the states of tokens [U] below the first layer."""
    x, table = self.embedding[token], "segment_embedder/embedding"
    if table not in self.params:
      return x, np.zeros(len(x))
    x = x + self.params[table][segment]
    return x, UNIT * length(x) + TINY

  def key_value(self, layer, site, x, e):
    """Returns keys, values [U, H, K] with their own rounding [U, H], and the bound of what
    they are made from."""
    if site == "self":
      path = f"decoder_{layer}/pre_self_attention_layer_norm"
      x, e = self.normalize(path, x, e)
    path = f"decoder_{layer}/{site}_attention"
    return *self.dense(f"{path}/key", x, e), *self.dense(f"{path}/value", x, e), e

  def attend(self, path, x, e, heads, keys):
    """Returns the output of attention, where `heads` has for each head a list
    of (bias, key), and keys[key] is that of key_value."""
    query, lq = self.dense(f"{path}/query", x, e)
    wq, _, _, nq = self.take(f"{path}/query", x.shape[1])
    wk, _, _, nk = self.take(f"{path}/key", x.shape[1])
    wv = self.take(f"{path}/value", x.shape[1])[0]
    context, error = np.zeros_like(query), np.zeros_like(lq)
    wo, _, _, no = self.take(f"{path}/out", context[0].size)
    parts = wo.reshape(*query.shape[1:], -1)
    left, right = [], []
    shares, growth = {}, np.ones(len(x))
    for h, pairs in enumerate(heads):
      if not pairs:
        continue
      k, lk, v, lv = (np.stack([keys[i][n] if n % 2 == 0 else keys[i][n] for _, i in pairs], 1)[:, :, h] for n in range(4))
      ek = np.stack([keys[i][4] for _, i in pairs], 1)
      weights = np.ones((len(x), 1))
      error[:, h] = lv[:, 0]
      if len(pairs) > 1:
        bias, q = np.array([b for b, _ in pairs]), query[:, h]
        scores = np.einsum("uk,ugk->ug", q, k) + bias
        below = scores - scores.max(axis=1, keepdims=True)
        weights = np.exp(below)
        weights /= weights.sum(axis=1, keepdims=True)
        around = k - np.einsum("ug,ugk->uk", weights, k)[:, None]
        slope = around @ wq[:, h].T
        bound_k = nk[h] * ek + lk
        eq = (nq[h] * e + lq[:, h])[:, None]
        other = gamma(q.shape[1] + 3) * ((length(q)[:, None] + eq) * (length(k) + bound_k) + np.abs(bias))
        other += length(around) * lq[:, h, None] + length(q)[:, None] * lk
        other += length(q @ wk[:, h].T)[:, None] * ek + eq * bound_k
        all_ = length(slope) * e[:, None] + other
        more = UNIT * (np.abs(below) + 2 * all_.max(axis=1, keepdims=True) + 2.1 * ULPS)
        other, all_ = other + more, all_ + more
        most = np.minimum(all_.max(axis=1), 1.0)
        g = np.exp(4 * most)
        mean = np.einsum("ug,ugk->uk", weights, v)
        away = v - mean[:, None]
        spread = length(v - v.mean(axis=1, keepdims=True)).max(axis=1)
        varies = weights * (1 - weights)
        change = 2 * g * ((varies * other).sum(1) + (varies * all_**2).sum(1))
        change = np.where(most < 1, change, np.inf)
        theta = gamma(2 * len(bias) + 5)
        error[:, h] = change * spread + 2 * theta * (length(v) + nk[h]*0 + lv).max(axis=1)
        error[:, h] += (weights * lv).sum(1) * g
        growth = np.maximum(growth, g * (1 + 2 * theta))
        left += list(np.moveaxis(slope, 1, 0))
        right += list(np.moveaxis((weights[..., None] * away) @ parts[h], 1, 0))
      for n, (_, i) in enumerate(pairs):
        share = shares.setdefault(i, [[], 0.0])
        share[0].append(h)
        share[1] = np.maximum(share[1], weights[:, n])
      context[:, h] = np.einsum("ug,ugk->uk", weights, v)
    total = length(error)
    for i, (seen, weight) in shares.items():
      norm = np.linalg.norm(wv[:, seen].reshape(len(wv), -1), 2)
      total = total + growth * norm * weight * keys[i][4]
    context = context.reshape(len(x), -1)
    y, local = self.dense(f"{path}/out", context, total)
    jac = 0.0
    if left:
      a, b = np.stack(left, 1), np.stack(right, 1)
      m = (a @ a.transpose(0, 2, 1)) @ (b @ b.transpose(0, 2, 1))
      jac = np.maximum(np.einsum("urs,usr->u", m, m), 0) ** 0.25 * (1 + 1e-6)
    return y, local + no[0] * total + jac * e

  def block(self, layer, x, e, heads, keys):
    """Returns the states after a block."""
    for n, site in enumerate(self.sites):
      path = f"decoder_{layer}/{site}_attention"
      y, ey = self.normalize(
        f"decoder_{layer}/pre_{site}_attention_layer_norm", x, e
      )
      mine = heads[n * self.heads : (n + 1) * self.heads]
      some = {i: value for (i, s), value in keys.items() if s == site}
      y, ey2 = self.attend(path, y, ey, mine, some)
      if DEBUG: print(path, "e", e.max(), "ey", ey.max(), "out", ey2.max())
      x, e = add(x, e, y, ey2)
    y, ey = self.normalize(f"decoder_{layer}/pre_mlp_layer_norm", x, e)
    return add(x, e, *self.mlp(f"decoder_{layer}/mlp", y, ey))

  def mlp(self, path, x, e):
    names = "wi/kernel wi/bias wo/kernel wo/bias".split()
    w, b, v, c = (self.params[f"{path}/{name}"] for name in names)
    h = x @ w + b
    nw, nv = length(w.T), length(v)
    eh = gamma(len(w) + 2) * (np.abs(x) @ np.abs(w) + e[:, None] * nw + np.abs(b)) + TINY
    moved = nw * e[:, None] + eh
    on, unsure = h > moved, np.abs(h) <= moved
    degree = on + 0.5 * unsure
    a = np.maximum(h, 0)
    norm = np.linalg.norm(w, 2) * np.linalg.norm(v, 2)
    if True:
      jacobian = (degree[:, None] * w) @ v
      gram = jacobian @ jacobian.transpose(0, 2, 1)
      tight = np.sqrt(np.linalg.norm(gram, axis=(1, 2))) + 0.5 * unsure @ (nw * nv)
      norm = np.minimum(norm, tight)
    count = (h > -moved).sum(axis=1) + 3
    s2 = np.linalg.norm(v, 2)
    local = gamma(count) * length((a + moved*(degree > 0)) @ np.abs(v) + np.abs(c))
    local = local + s2 * length(eh * (degree > 0))
    if DEBUG: print("mlp e",e.max(),"norm",norm.max(),"local",local.max(), "unsure",unsure.sum(1).max())
    return a @ v + c, norm * e + local

  def logits(self, x, e, target):
    """Returns logits [U, V], and bounds on how wrong their differences from the
    logit of `target` [U] can be."""
    x, e = self.normalize("decoder_norm", x, e)
    if DEBUG: print("final e", e.max())
    y = self.dense(self.head, x, e)[0]
    kernel, bias, *_ = self.cache[self.head]
    pairs = length(kernel.T[:, None] - kernel.T)
    size = np.abs(x) @ np.abs(kernel) + e[:, None] * length(kernel.T) + np.abs(bias)
    size += size[np.arange(len(x)), target][:, None]
    bound = pairs[target] * e[:, None] * (1 + 1e-9)
    return y, bound + gamma(x.shape[1] + 3) * size + TINY


def add(x, e, y, ey):
  """Returns the sum of two states."""
  total = x + y
  return total, e + ey + UNIT * (length(total) + e + ey)


def evaluate(network, nodes, numbers, radix):
  """Yields (contexts, targets, logits, bounds) of the contexts of a receptive
  field, layer by layer, equal states once.

  Of a node, names[i] are the tokens that it depends on, parts[i] the distinct
  choices of them, and states[i] its states for each.
  """
  children, names, states = [], [], {}
  for kind, name, *own in nodes:
    keys = (
      [key for head in own[1] for _, key in head] if kind == "block" else []
    )
    children.append({own[0], *keys} if kind == "block" else set())
    first = set(name) if isinstance(name, tuple) else set()
    names.append(first.union(*(names[i] for i in children[-1])))

  def project(i, numbers):
    digits = (numbers // radix**v % radix * radix**v for v in names[i])
    return sum(digits, 0 * numbers)

  parts = {len(nodes) - 1: project(-1, numbers)}
  for i in reversed(range(len(nodes))):
    for child in children[i]:
      some = np.unique(project(child, parts[i]))
      parts[child] = np.union1d(parts.get(child, some), some)

  def compute(i, part):
    kind, name, *own = nodes[i]
    if kind == "token":
      token = part // radix ** name[0] if isinstance(name, tuple) else name
      return network.embed(token + 0 * part, own[0])
    where = {
      child: np.searchsorted(parts[child], project(child, part))
      for child in children[i]
    }
    keys = {}
    for n, head in enumerate(own[1]):
      site = network.sites[n // network.heads]
      for _, key in head:
        if (key, name, site) not in states:
          states[key, name, site] = network.key_value(name, site, *states[key])
        if (key, site) not in keys:
          keys[key, site] = [x[where[key]] for x in states[key, name, site]]
    x, e = states[own[0]]
    return network.block(name, x[where[own[0]]], e[where[own[0]]], own[1], keys)

  for i in range(len(nodes) - 1):
    chunks = range(0, len(parts[i]), CHUNK)
    found = [compute(i, parts[i][c : c + CHUNK]) for c in chunks]
    states[i] = [np.concatenate(x) for x in zip(*found, strict=True)]
  for c in range(0, len(numbers), CHUNK):
    part = numbers[c : c + CHUNK]
    target = part // radix ** len(names[-1])
    x, e = compute(len(nodes) - 1, parts[len(nodes) - 1][c : c + CHUNK])
    yield part, target, *network.logits(x, e, target)


# 6. The verdict.


def survey(model):
  """Returns {nodes: [(names, row, contexts), ...]}, all that rows see."""
  task, radix = model.task, len(model.network.embedding)
  reach = [model.reach(axis) for axis in range(len(task.directions))]
  layouts, memo, found = {}, {}, {}
  for row in task.rows(reach):
    size = row.x + row.y, row.m
    layout = layouts.setdefault(size, None) or Layout(model, *size)
    layouts[size] = layout
    nodes, names = receptive_field(model, layout, layout.row(row))
    said = layout.said[layout.row(row)].name
    numbers = contexts(task, row, reach, names, said, radix, memo)
    found.setdefault(nodes, []).append((names, row, numbers))
  return found


def check(path):
  """Returns the verdict on a model, a dict with "verdict" and "text"."""
  start, count, smallest, largest = time.time(), 0, np.inf, 0.0
  try:
    model = Model(path)
    radix = len(model.network.embedding)
    for nodes, rows in survey(model).items():
      numbers = np.concatenate([numbers for *_, numbers in rows])
      numbers = np.unique(numbers)
      count += len(numbers)
      for part, target, logits, bounds in evaluate(
        model.network, nodes, numbers, radix
      ):
        u = np.arange(len(part))
        margins = logits[u, target, None] - logits
        margins[u, target], bounds[u, target] = np.inf, 0
        smallest = min(smallest, margins.min())
        largest = max(largest, bounds.max())
        wrong = np.flatnonzero(~(margins > bounds).all(axis=1))
        if len(wrong):
          u = wrong[0]
          names, row, _ = next(r for r in rows if part[u] in r[2])
          tokens = [
            f"{n}={part[u] // radix**i % radix}" for i, n in enumerate(names)
          ]
          text = f"fails: {row}: after {tokens} it must say {target[u]}"
          text += (
            f", margin {margins[u].min():.3g}, rounding {bounds[u].max():.2g}"
          )
          return {"verdict": "fails", "text": text}
  except RefusedError as error:
    return {"verdict": "refused", "text": f"refused: {error}"}
  except KeyError as error:
    return {"verdict": "refused", "text": f"refused: there is no {error}"}
  seconds = time.time() - start
  text = f"proved: {count:,} contexts, smallest margin {smallest:.4g}, rounding at most {largest:.2g}"
  return {
    "verdict": "proved",
    "text": text,
    "contexts": count,
    "margin": smallest,
    "rounding": largest,
    "seconds": seconds,
  }


def main(arguments):
  """Checks the models that are named, and returns the exit code."""
  paths = [x for x in arguments if x != "--json"]
  results = {}
  for path in paths:
    results[path] = check(path)
    if "--json" not in arguments:
      print(f"{path}: {results[path]['text']}")
  if "--json" in arguments:
    print(json.dumps(results, indent=1))
  codes = {"proved": 0, "fails": 1, "refused": 2}
  return max((codes[x["verdict"]] for x in results.values()), default=2)


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
