"""Proves, without the package, that a shipped model is right at every length:

  python checker.py addition.npz [more.npz ...] [--json]

A second opinion: it needs numpy alone, and shares no code and no argument with
lengthgen_jax/certify. docs/proofs.md has the theorem and its lemmas. The exit
code is 0 if all models are proved, 1 if a context of one fails or has a margin
that rounding might turn, 2 if a condition is not met. Shapes: U states, D model
size, H heads, K head size, G keys, V tokens.
"""

import hashlib
import io
import itertools
import json
import pathlib
import re
import sys
import time

import numpy as np

# 1. The model, and the conditions. Settings with the value that the proof is
# for, and those that change nothing here or that the arrays show.
SETTINGS = """model.norm=pre model.norm_kind=layer model.dense_bias=True
model.activation=relu model.dtype=float32 model.precision=highest bias.file=
model.kind=encoder_decoder|decoder_only positions.kind=none model.emb_dim=
temperature.kind=none attention.normalizer=softmax attention.alpha= bias.kind=
bias.allow_leak=False bias.learned_scale=False bias.scale= bias.closed=
model.num_heads= model.mlp_dim= model.num_encoder_layers= bias.sides=
model.num_decoder_layers= model.dropout_rate= positions.cyclic_period=
positions.source_anchor= positions.table= positions.random_start= bias.window=
positions.segments= temperature.initial= temperature.stretch=
bias.windowed_encoder="""
PARAMETER = r"""token_embedder/embedding|segment_embedder/embedding|
(decoder_norm|decoder_\d+/pre_\w+_layer_norm)/(scale|bias)|
(logits_dense_\w+|decoder_\d+/(mlp/w[io]|(self|cross)_attention/
(query|key|value|out)))/(kernel|bias)"""
LINE = "row_segment", "segment", "anchor", "matrix", "intercept", "value"
ANY, RIGHT = -1, 1  # row segment and anchor of a line
MAX_CLASSES, MAX_CONTEXTS = 10**5, 3 * 10**8  # more are refused
CHUNK, TIGHT = 1 << 13, 50_000  # states at once; with the tighter bounds
UNIT = 2.0**-24 * (1 + 2.0**-20)  # float32's, with room for those of float64
ULPS, TINY = 4, 2.0**-100  # of exp and rsqrt; all that underflow can lose
SAFE = 1 + 1e-9  # for norms that are computed themselves
gamma = lambda n: n * UNIT / (1 - n * UNIT)  # the relative error of n roundings
length = lambda x: np.sqrt(np.einsum("...d,...d->...", x, x))


class RefusedError(Exception):
  """A condition of the proof does not hold, or a file cannot be read."""


def require(condition, message):
  """Raises RefusedError unless the condition holds."""
  if not condition:
    raise RefusedError(message)


def read(path):
  """Returns (arrays, config) of NAME.npz and NAME.json."""
  try:
    content = pathlib.Path(path).read_bytes()
    card = json.loads(pathlib.Path(path).with_suffix(".json").read_text())
    arrays = dict(np.load(io.BytesIO(content), allow_pickle=False))
    config, digest = card["config"], card["sha256"]
  except Exception as error:  # a damaged file fails in one of many ways
    raise RefusedError(f"cannot be read: {error!r}") from error
  same = hashlib.sha256(content).hexdigest() == digest
  require(same, "the file is not the one that its card describes (sha256)")
  settings = dict(re.findall(r"([\w.]+)=(\S*)", SETTINGS))
  if config["model"]["kind"] == "encoder_decoder":
    settings["model.num_encoder_layers"] = "0"
  for section in ("model", "positions", "temperature", "attention", "bias"):
    for field, value in config.get(section, {}).items():
      name = f"{section}.{field}"
      require(name in settings, f"{name} is a setting that is not known here")
      valid = settings.pop(name)
      fits = not valid or str(value) in valid.split("|")
      require(fits, f"{name}={value}: the proof is for {valid}")
  require(config["bias"]["closed"] <= -1e5, "bias.closed: rows see every key")
  settings.pop("attention.normalizer", None)  # it may be left out
  require(not any(settings.values()), f"the card lacks some of {[*settings]}")
  return arrays, config


def read_lines(model, arrays, site, scale):
  """Returns the lines of a site, [layers][heads], each a list of lines as in
  LINE: the key's offset from the anchor's end of its segment is, along every
  axis, matrix · (the row's offset from the left) + intercept."""
  *fields, valid = (arrays[f"lines/{site}_{x}"] for x in (*LINE, "valid"))
  is_open = arrays[f"lines/{site}_transparent"].any()
  require(not is_open, f"{site}-attention: a head is open to every key")
  sizes = valid.shape[0], valid.shape[2], valid.shape[1] in (1, model.layers)
  fits = sizes == (1, model.heads, True)
  require(fits, f"the lines of {site}-attention are of other layers or heads")
  lines = [[[] for _ in range(model.heads)] for _ in range(model.layers)]
  for layer, heads in enumerate(lines):
    stored = layer % valid.shape[1]
    for head, k in np.argwhere(valid[0, stored]):
      line = [field[0, stored, head, k].tolist() for field in fields]
      text = f"layer {layer}, {site}: the lemma on sizes is not for line {line}"
      require(is_covered(model, site, *line), text)
      heads[head].append((*line[:5], line[5] * scale))
  return lines


def is_covered(model, site, row_segment, segment, anchor, matrix, shift, value):
  """Returns whether the lemma on sizes is for a line."""
  axes, output = model.task.directions, model.task.operands
  order = [*range(output), output + 1, output]  # of segments in a sequence
  from_end = segment == output and anchor == RIGHT
  if len(shift) != len(axes) or segment not in order or from_end:
    return False
  fine = np.isfinite(value)
  for row in [output] if model.has_source else order:
    is_later = site == "self" and order.index(segment) > order.index(row)
    if row_segment in (ANY, row) and not is_later:
      for axis, directions in enumerate(axes):
        step, key = matrix[axis][axis], directions[segment]
        straight = sum(map(abs, matrix[axis])) == abs(step) <= 1
        along = step * directions[row] * (-key if anchor == RIGHT else key) >= 0
        # Axis 0 of two counts the rows of a grid, which must be alike.
        alike = axis == len(axes) - 1 or abs(step) == abs(key)
        fine &= straight and along and alike
  return fine


def distinct(x):
  """Returns the distinct numbers, sorted (np.unique is slow here)."""
  x = np.sort(x)
  return x[np.append(x[:1] == x[:1], x[1:] != x[:-1])]


# 2. The tasks. A tape is a machine that reads a symbol in each column and
# writes a token, as tables: tokens [S, operands], next state and output [Q, S],
# and which states may be the last. A token is (segment, offset from the left,
# from the right, id); a tuple in place of the id is a name that stands for any
# id. A row (x, y, j, m) says the output x columns after the first and y before
# the last one; of a grid, in its row j of m.


def tabulate(start, symbols, step, accept=lambda state: True):
  """Returns the tape of step(state, *symbol) -> (state, output)."""
  states, pairs = [start], []
  for state in states:  # grows while it is read
    pairs.append([step(state, *symbol) for symbol in symbols])
    states += dict.fromkeys(x for x, _ in pairs[-1] if x not in states)
  following = [[states.index(x) for x, _ in row] for row in pairs]
  outputs = [[output for _, output in row] for row in pairs]
  ends = [accept(state) for state in states]
  return tuple(map(np.array, (symbols, following, outputs, ends)))


def segment(number, names, axis=0, axes=1):
  """Returns the tokens of a segment, which extends along one axis."""
  along = lambda n: tuple(n if i == axis else 0 for i in range(axes))
  pairs, last = enumerate(names), len(names) - 1
  return [(number, along(i), along(last - i), name) for i, name in pairs]


class Sequences:
  """A task on columns: the digits of numbers padded to one width, the least
  significant first, or the items of a list. Numbers have a last column of marks
  (`$`, the operator, the end of the output), and before it `slack` zeros, which
  without marks are no tokens."""

  def __init__(self, tapes, start, marks=(), slack=0, step=-1):
    self.tapes = tapes  # by the digit of the short operand, else {None: tape}
    self.start, self.marks, self.slack = start, marks, slack
    self.delimiter, self.operands = 15 if marks else start, len(marks) or 1
    self.long = 1 if len(tapes) > 1 else self.operands
    self.least = slack + bool(marks)  # the last column of the shortest
    # How the offset from the left grows with the column in every segment: of
    # operands, the output, the start token; 0 if it is at most 1.
    prompt = (step if k < self.long else 0 for k in range(self.operands))
    self.directions = [(*prompt, 1, 0)]

  def sequence(self, last, _):
    """Returns the tokens of prompt and output, by the last column."""
    size, prompt = last + 1 - bool(self.marks), []
    for k, step in enumerate(self.directions[0][: self.operands]):
      names = [("in", k, p) for p in range(size - self.slack)]
      zeros = [0] * self.slack * bool(self.marks)
      names = names + zeros if step else [("in", k, 0)]
      prompt += segment(k, [*self.marks[k : k + 1], *names[:: step or 1]])
    names = [("out", p) for p in range(size)] + [13] * bool(self.marks)
    return prompt, segment(self.operands, names)

  def columns(self, x, y, *_):
    """Yields ({name: token}, tape, columns) for every short operand; a column
    is (symbols that can stand there, names of its tokens, the output last)."""
    free = x + y + 1 - bool(self.marks) - self.slack
    for digit, tape in self.tapes.items():
      zero, columns = np.arange(len(tape[0])) == 0, []
      for p in range(free + self.slack):
        names = *(("in", k, p) for k in range(self.long)), ("out", p)
        columns.append((zero | (p < free), names))
      yield {} if digit is None else {("in", 1, 0): digit}, tape, columns


class Products:
  """Running sums of a product of N digits and M: row j of the grid is s_j =
  floor(s_(j-1) / 10) + a·b_j, and row M the end token. Column t has digit t - 1
  of a and of s_j, and digit t of s_(j-1), any number below 10·a, or 0."""

  operands, start, delimiter, slack, least = 2, 12, 15, 0, 1
  directions = [(0, -1, 1, 0), (-1, 0, 1, 0)]

  def __init__(self):
    def step(b, state, a, s):
      carry, is_less, is_zero = state  # s is less than 10·a so far; both are 0
      carry, digit = divmod(s + a * b + carry, 10)
      is_less = is_less if s == a else s < a  # the highest difference decides
      return (carry, is_less, is_zero and s == a == 0), digit

    symbols = list(itertools.product(range(10), repeat=2))
    machine = lambda b: lambda *args: step(b, *args)
    first, ends = (0, False, True), lambda state: state[1] or state[2]
    self.tapes = [tabulate(first, symbols, machine(b), ends) for b in range(10)]

  def sequence(self, last, m):
    """Returns the tokens of prompt and output."""
    a = [12, *(("in", 0, p) for p in reversed(range(last)))]
    b = [11, *(("in", 1, p) for p in reversed(range(m)))]
    cells = itertools.product(range(m), range(last + 1))
    output = [(2, (j, k), (m - j, last - k), ("out", j, k)) for j, k in cells]
    prompt = segment(0, a, 1, 2) + segment(1, b, 0, 2)
    return prompt, [*output, (2, (m, 0), (0, last), 13)]

  def columns(self, x, y, j, m):
    """Yields ({name: token}, tape, columns) for every digit b_j, if any."""
    last = x + y
    for b, tape in enumerate(self.tapes[: 10 if j < m else 1]):
      (no_a, no_s), columns = (tape[0] == 0).T, []
      for t in range(last + 2):
        a = ("in", 0, t - 1) if 0 < t <= last else None
        s = ("out", j - 1, t) if j and t <= last else None
        out = ("out", j, t - 1) if t and j < m else None
        columns.append(((no_a | bool(a)) & (no_s | bool(s)), (a, s, out)))
      yield {("in", 1, j): b} if j < m else {}, tape, columns


def make_task(config):
  """Returns the task that a config names."""
  name, start = config["task"], 0
  one, twice = lambda size: [(i,) for i in range(size)], lambda x: (x, x)
  carry = lambda total: divmod(total, 10)
  times = lambda b: lambda c, a: carry(c + a * b)
  pairs = list(itertools.product(range(10), repeat=2))
  numbers = {  # marks, first state, symbols, step
    "successor": ((12,), 1, one(10), lambda c, a: carry(c + a)),
    "addition": ((12, 10), 0, pairs, lambda c, a, b: carry(c + a + b)),
    "parity": ((12,), 0, one(2), lambda x, a: twice((x + a) % 2)),
    "multiply": ((12, 11), 0, one(10), times),
  }
  if name == "multiply_long":
    return Products()
  if name == "increment":  # a digit's token is one more
    step = lambda c, a: ((c + a - 1) // 10, (c + a - 1) % 10 + 1)
    tape = tabulate(1, one(11)[1:], step)
    return Sequences({None: tape}, 11, slack=1)
  lists = "copy", "reverse", "modular", "permutations", "dyck"
  require(name in (*numbers, *lists), f"task={name} is not stated here")
  if name in numbers:
    section, (marks, first, symbols, step) = config["arithmetic"], numbers[name]
    require(not section["aligned"], "the digits of the operands alternate")
    require(config["data"]["width"] == "natural", "operands have a fixed width")
    steps = {b: step(b) for b in range(10)} if step is times else {None: step}
    tapes = {b: tabulate(first, symbols, step) for b, step in steps.items()}
    return Sequences(tapes, 12, marks, section["slack"])
  section = config["copying" if name in ("copy", "reverse") else name]
  every = section.get("answer", "states") == "states"
  require(every, f"{name}.answer: not every state is said")
  if name == "permutations":
    elements = list(itertools.permutations(range(int(section["group"][1:]))))
    number, size = {x: i for i, x in enumerate(elements)}, len(elements)
    product = lambda s, x: number[tuple(elements[s][k] for k in elements[x])]
    count, step = size, lambda s, x: twice(product(s, x))
  elif name == "dyck":
    kinds, bound = range(len(section["brackets"]) // 2), section["bound"]
    stacks = [itertools.product(kinds, repeat=n) for n in range(bound + 1)]
    stacks = [*itertools.chain(*stacks), None]  # None is "invalid"
    start, size, count = (), 2 * len(kinds), 2 * len(kinds) + len(stacks)

    def step(stack, bracket):
      kind, closes = divmod(bracket, 2)
      if stack is not None:
        fits = stack[-1:] == (kind,) if closes else len(stack) < bound
        stack = (stack[:-1] if closes else (*stack, kind)) if fits else None
      return stack, size + stacks.index(stack)
  else:
    size = count = section["p" if name == "modular" else "alphabet"]
    step = lambda state, item: (state, item)  # copy, reverse
    if name == "modular":
      step = lambda total, item: twice((total + item) % size)
  tapes = {None: tabulate(start, one(size), step)}
  return Sequences(tapes, count, step=-1 if name == "reverse" else 1)


# 3. What a row depends on. Row i of attention holds token i of a sequence and
# says the next one; its coordinates are those of the token that it says.


class Layout:
  """The tokens of all sequences of one size, and where lines lead in them."""

  def __init__(self, model, last, m):
    task, (prompt, output) = model.task, model.task.sequence(last, m)
    zero = (0,) * len(task.directions)
    mark = lambda name: (task.operands + 1, zero, zero, name)
    if model.has_source:
      keys = {"self": [mark(task.start), *output[:-1]], "cross": prompt}
      self.said = output
    else:
      whole = [*prompt, mark(task.delimiter), *output]
      keys, self.said = {"self": whole[:-1]}, whole[1:]
    self.keys, self.index, self.first = keys, {}, len(self.said) - len(output)
    for site, tokens in keys.items():
      for i, (number, left, right, _) in enumerate(tokens):
        self.index[site, number, 0, left] = i
        self.index[site, number, RIGHT, right] = i

  def open_keys(self, site, lines, i):
    """Returns the (key, bias) that a head's lines open in row i."""
    (number, left, _, _), keys = self.said[i], {}
    for row_segment, key_segment, anchor, matrix, intercept, value in lines:
      if row_segment in (ANY, number):
        moves = [sum(map(int.__mul__, factors, left)) for factors in matrix]
        offset = tuple(map(int.__add__, moves, intercept))
        key = self.index.get((site, key_segment, anchor, offset))
        if key is not None and (site == "cross" or key <= i):
          keys[key] = max(keys.get(key, value), value)
    return sorted(keys.items())


def receptive_field(model, layout, i):
  """Returns (nodes, names) of row i: how its last state is computed.

  A node is (variables, segment, id) of a token, where id is None if it is the
  variable's, which stands for names[variable]; or (variables, layer, the row's
  own node below, for every head of every site its keys as (bias, node)). Nodes
  are numbers of those before.
  """
  nodes, names, known = {}, {}, {}
  add = lambda *node: nodes.setdefault(node, len(nodes))

  def state(site, layer, i):
    if not layer:
      number, _, _, name = layout.keys[site][i]
      number, seen = min(number, model.task.operands), ()
      if isinstance(name, tuple):
        seen, name = (names.setdefault(name, len(names)),), None
      return add(seen, number, name)
    if (layer, i) not in known:
      own, heads = state("self", layer - 1, i), []
      for site in model.sites:
        below = 0 if site == "cross" else layer - 1
        for lines in model.lines[site][layer - 1]:
          keys = layout.open_keys(site, lines, i)
          heads.append(tuple((bias, state(site, below, k)) for k, bias in keys))
      children, records = [own, *(k for x in heads for _, k in x)], list(nodes)
      seen = {variable for k in children for variable in records[k][0]}
      known[layer, i] = add(tuple(sorted(seen)), layer - 1, own, tuple(heads))
    return known[layer, i]

  state("self", model.layers, i)
  return tuple(nodes), tuple(names)


# 4. Contexts: numbers whose digits are tokens.


def advance(before, tape, allowed, weights, star):
  """Returns the distinct (numbers, states) after a column; numbers grow by the
  tokens in it times their weights."""
  (tokens, following, outputs, _), (numbers, states) = tape, before
  symbols, count = np.flatnonzero(allowed), len(following)
  added = tokens[symbols] @ np.array(weights[:-1], int)
  added = added + outputs[:, symbols] * weights[-1]
  choices = [distinct(x) for x in added * count + following[:, symbols]]
  few = len(numbers) * max(map(len, choices)) < MAX_CONTEXTS
  require(few, "rows have too many contexts")
  pairs = (numbers[states == q, None] * count + choices[q] for q in set(states))
  pairs = distinct(np.concatenate([x.ravel() for x in pairs]))
  while star:  # add what more free columns lead to
    after = advance(np.divmod(pairs, count), tape, allowed, weights, False)
    more = distinct(np.append(pairs, after[0] * count + after[1]))
    star, pairs = len(more) > len(pairs), more
  return np.divmod(pairs, count)


def contexts(model, row, names, said, reach, memo):
  """Returns all contexts of a row, sorted: sums of token · V^v over its names
  v, with the token that it must say as the last digit. `memo` holds results of
  `advance`, equal ones once."""
  radix, limit = len(model.embedding), 2 * reach + 4 + model.task.slack
  fits = radix ** (len(names) + 1) < 1 << 54
  require(fits, f"a row sees {len(names)} tokens")
  weight, found = {name: radix**v for v, name in enumerate(names)}, []
  weight[said] = weight.get(said, 0) + radix ** len(names)
  # Any number of free columns may follow these: the row stands for its class.
  stars = {reach + 2} if row[0] == limit else set()
  stars |= {row[0] + reach + 2} if row[1] == limit else set()
  for fixed, tape, columns in model.task.columns(*row):
    covered = set(fixed).union(*(names for _, names in columns))
    others = [str(name) for name in names if name not in covered]
    require(not others, f"a row sees what its columns do not have: {others}")
    start = sum(weight.get(name, 0) * token for name, token in fixed.items())
    start += said * weight[said] if isinstance(said, int) else 0
    now = memo.setdefault(start, (np.array([start]), np.array([0])))
    for i, (allowed, column) in enumerate(columns):
      weights = tuple(weight.get(name, 0) for name in column)
      step = id(tape), id(now), allowed.tobytes(), weights, i in stars
      if step not in memo:
        after = advance(now, tape, allowed, weights, i in stars)
        content = hashlib.sha256(after[0].tobytes() + after[1].tobytes())
        memo[step] = memo.setdefault(content.digest(), after)
      now = memo[step]
    found.append((now, tape[3]))
  all_of = tuple(id(now) for now, _ in found)
  if all_of not in memo:
    ends = (now[0][accept[now[1]]] for now, accept in found)
    memo[all_of] = distinct(np.concatenate([*ends]))
  return memo[all_of]


# 5. The network in float64, and bounds on rounding. Beside every state x stands
# e: any float32 evaluation of the same formulas is at most e away from x
# (Euclidean distance): lemma 3.


def spectral(m, size):
  """Returns bounds on the norms of matrices J from JJᵀ [U, N, N], or from what
  has its eigenvalues and is a product of matrices of this size (for the
  roundings of float64): the eighth root of the trace of m⁴."""
  square = m @ m
  trace = np.einsum("uij,uji->u", square, square) + 1e-12 * size**4
  return np.maximum(trace, 0) ** 0.125 * SAFE


def add(x, e, y, ey):
  """Returns the sum of two states."""
  require(x.shape == y.shape, "the parameters are not of one model size")
  return x + y, e + ey + UNIT * (length(x + y) + e + ey)


class Model:
  """A shipped model: its task, its lines, and its network."""

  def __init__(self, path):
    arrays, config = read(path)
    self.task, section = make_task(config), config["model"]
    names = "num_decoder_layers", "num_heads"
    self.layers, self.heads = map(section.get, names)
    self.has_source = section["kind"] == "encoder_decoder"
    self.sites = ("self", "cross") if self.has_source else ("self",)
    self.head, self.params = f"logits_dense_{config['task']}", {}
    for name, array in arrays.items():
      if name.startswith("params/"):
        known = re.fullmatch(PARAMETER, name[7:], re.VERBOSE)
        require(known, f"{name}: no such parameter is known")
        fine = array.dtype == np.float32 and np.isfinite(array).all()
        require(fine, f"{name} is not finite float32")
        self.params[name[7:]] = array.astype(float)
    self.embedding, self.cache = self.params["token_embedder/embedding"], {}
    largest = max(self.task.start, self.task.delimiter - self.has_source)
    require(len(self.embedding) > largest, "the task has more tokens")
    scale = float(config["bias"]["scale"])
    self.lines = {x: read_lines(self, arrays, x, scale) for x in self.sites}

  def reach(self, axis):
    """Returns C of the lemma on sizes, along an axis."""
    farthest = [0] * self.layers
    for site in self.lines.values():
      for layer, heads in enumerate(site):
        shifts = [abs(line[4][axis]) for head in heads for line in head]
        farthest[layer] = max(farthest[layer], *shifts, 0)
    return sum(farthest) + self.layers + max(farthest) + 1

  def weights(self, path, inputs):
    """Returns a dense layer's kernel [I, G, O], for G groups of outputs (the
    heads, else one), its bias [G, O], and the kernel's norms [G]."""
    if path not in self.cache:
      kernel, bias = (self.params[f"{path}/{x}"] for x in ("kernel", "bias"))
      if path.endswith("out"):  # the heads are inputs
        kernel = kernel.reshape(-1, kernel.shape[-1])
      if kernel.ndim == 2:
        kernel, bias = kernel[:, None], bias[None]
      groups = self.heads if path.endswith(("query", "key", "value")) else 1
      fits = kernel.shape == (inputs, *bias.shape) and len(bias) == groups
      require(fits, f"params/{path} has another shape")
      if path.endswith("query"):
        kernel, bias = (x * x.shape[-1] ** -0.5 for x in (kernel, bias))
      norms = np.linalg.norm(np.moveaxis(kernel, 1, 0), 2, axis=(1, 2)) * SAFE
      self.cache[path] = kernel, bias, norms
    return self.cache[path]

  def dense(self, path, x, e):
    """Returns outputs [U, G, O], and bounds [U, G] on what this layer rounds,
    beside what it does to the errors e of its inputs."""
    kernel, bias, _ = self.weights(path, x.shape[1])
    flat = kernel.reshape(len(kernel), -1)
    size = np.abs(x) @ np.abs(flat) + e[:, None] * length(flat.T)
    size = length(size.reshape(-1, *bias.shape) + np.abs(bias))
    y = (x @ flat).reshape(-1, *bias.shape) + bias
    return y, gamma(len(flat) + 3) * size + TINY

  def normalize(self, path, x, e):
    """Returns the states after a layer normalization."""
    scale, bias = (self.params[f"{path}/{x}"] for x in ("scale", "bias"))
    require(scale.shape == bias.shape == x.shape[1:], f"{path} does not fit")
    root, u, mean = x.shape[1] ** 0.5, gamma(x.shape[1] + 6), x.mean(axis=1)
    square = ((length(x) + e) / root) ** 2
    off = u * (np.abs(x).mean(axis=1) + e / root)  # error of the mean
    x = x - mean[:, None]
    deviation = np.sqrt((x * x).mean(axis=1) + 1e-6)
    y = x / deviation[:, None] * scale + bias
    least = np.maximum(deviation - e / root, TINY)
    wrong = u * square + 2 * (np.abs(mean) + e / root + off) * off
    wrong = wrong / least**2 + 2 * UNIT  # error of the variance, relative
    wrong = np.where(wrong < 0.1, 0.55 * wrong, np.inf)
    factor = (1 + wrong) * (1 + (2 * ULPS + 4) * UNIT) - 1
    local = root * (factor + off / least * (1 + factor) + 2 * UNIT)
    error = np.abs(scale).max() * (local + e / least)
    return y, error + 2 * UNIT * length(bias) + TINY

  def embed(self, token, segment):
    """Returns the states of tokens [U] below the first layer."""
    x, table = self.embedding[token], "segment_embedder/embedding"
    if table not in self.params:
      return x, np.zeros(len(x))
    x = x + self.params[table][segment]
    return x, UNIT * length(x) + TINY

  def key_value(self, layer, site, x, e):
    """Returns keys and values [U, H, K], each with its rounding [U, H], and the
    error [U] of what they are made from."""
    path = f"decoder_{layer}/{{}}{site}_attention{{}}".format
    if site == "self":
      x, e = self.normalize(path("pre_", "_layer_norm"), x, e)
    key = self.dense(path("", "/key"), x, e)
    return *key, *self.dense(path("", "/value"), x, e), e

  def attend(self, path, x, e, heads, keys):
    """Returns the output of attention; `heads` has for each head a list of
    (bias, key), and keys[key] is the result of `key_value`."""
    query, rounded = self.dense(f"{path}/query", x, e)
    (wq, _, nq), (wk, _, nk), (wv, _, nv) = (
      self.weights(f"{path}/{name}", x.shape[1])
      for name in ("query", "key", "value")
    )
    context, (error, linear) = query * 0, np.zeros((2, *rounded.shape))
    wo, _, no = self.weights(f"{path}/out", context[0].size)
    wo = wo.reshape(*context.shape[1:], -1)
    left, right, shares, growth = [], [], {}, np.ones(len(x))
    for h, pairs in ((h, x) for h, x in enumerate(heads) if x):  # others are 0
      *made, ek = zip(*(keys[i] for _, i in pairs), strict=True)
      k, lk, v, lv = (np.stack([y[:, h] for y in z], axis=1) for z in made)
      q, lq, ek = query[:, h], rounded[:, h, None], np.stack(ek, axis=1)
      bias = np.array([bias for bias, _ in pairs])
      scores = np.einsum("uk,ugk->ug", q, k) + bias
      below = scores - scores.max(axis=1, keepdims=True)
      weights = np.exp(below)
      weights /= weights.sum(axis=1, keepdims=True)
      average, v_average = (np.einsum("ug,ugk->uk", weights, z) for z in (k, v))
      around = k - average[:, None]
      slope = around @ wq[:, h].T  # derivatives of the scores
      bk, bq = nk[h] * ek + lk, nq[h] * e[:, None] + lq
      size = (length(q)[:, None] + bq) * (length(k) + bk) + np.abs(bias)
      other = gamma(q.shape[1] + 3) * size + length(around) * lq + bq * bk
      other += length(q)[:, None] * lk + length(q @ wk[:, h].T)[:, None] * ek
      moved = length(slope) * e[:, None] + other
      most = moved.max(axis=1, keepdims=True)
      last = UNIT * (np.abs(below) + 2 * most + 2.1 * ULPS) + TINY
      other, moved = other + last, moved + last
      most = moved.max(axis=1)
      more = np.exp(np.where(most < 1, 4 * most, np.inf))
      change = weights * (1 - weights) * (other + more[:, None] * moved**2)
      spread = length(v - v.mean(axis=1, keepdims=True)).max(axis=1)
      theta = gamma(2 * len(pairs) + 5)
      growth = np.maximum(growth, more * (1 + 2 * theta))
      context[:, h], error[:, h] = v_average, 2 * spread * change.sum(axis=1)
      error[:, h] += 2 * theta * (length(v) + nv[h] * ek + lv).max(axis=1)
      error[:, h] += growth * (weights * lv).sum(axis=1)
      linear[:, h] = 2 * spread * (weights * (1 - weights) * moved).sum(axis=1)
      for n, (_, i) in enumerate(pairs):
        seen, weight = shares.setdefault(i, ([], np.zeros(len(x))))
        seen.append(h)
        np.maximum(weight, weights[:, n], out=weight)
      if len(pairs) > 1:  # the output moves by right · (left · the error of x)
        away = weights[..., None] * (v - v_average[:, None])
        left, right = [*left, slope], [*right, away @ wo[h]]
    total = length(error)
    for i, (seen, weight) in shares.items():
      norm = np.linalg.norm(wv[:, seen].reshape(len(wv), -1), 2) * SAFE
      total += growth * norm * weight * keys[i][4]
    size = total + length(linear)
    y, local = self.dense(f"{path}/out", context.reshape(len(x), -1), size)
    error = local[:, 0] + no * total
    if left:
      grams = [z @ z.transpose(0, 2, 1) for z in map(np.hstack, (left, right))]
      sizes = [np.linalg.norm(gram, axis=(1, 2)) for gram in grams]
      error += spectral(np.matmul(*grams), np.multiply(*sizes)) * e
    return y[:, 0], error

  def mlp(self, path, x, e, is_tight):
    """Returns the output of an MLP."""
    w, b, w_norm = self.weights(f"{path}/wi", x.shape[1])
    v, bias, v_norm = self.weights(f"{path}/wo", w.shape[2])
    (w, v), hidden = (w[:, 0], v[:, 0]), x @ w[:, 0] + b
    into, out = length(w.T), length(v)
    size = np.abs(x) @ np.abs(w) + e[:, None] * into + np.abs(b)
    local = gamma(len(w) + 3) * size + TINY
    moved = into * e[:, None] + local
    unsure, norm = np.abs(hidden) <= moved, w_norm * v_norm
    share = (hidden > moved) + 0.5 * unsure  # derivatives of relu
    if is_tight:
      slopes = ((w * row) @ v for row in share)
      tight = [spectral((j @ j.T)[None], 0)[0] for j in slopes] + 1e-9 * norm
      norm = np.minimum(norm, tight + 0.5 * unsure @ (into * out))
    active = share > 0
    size = (np.maximum(hidden, 0) + moved * active) @ np.abs(v) + np.abs(bias)
    error = norm * e + v_norm * length(local * active)
    error += gamma(active.sum(axis=1) + 3) * length(size)  # zeros add nothing
    return np.maximum(hidden, 0) @ v + bias, error + TINY

  def block(self, layer, x, e, heads, keys, is_tight):
    """Returns the states after a block; `keys` is by site."""
    for n, site in enumerate(self.sites):
      path = f"decoder_{layer}/{{}}{site}_attention{{}}".format
      normal = self.normalize(path("pre_", "_layer_norm"), x, e)
      some = heads[n * self.heads : (n + 1) * self.heads]
      x, e = add(x, e, *self.attend(path("", ""), *normal, some, keys[site]))
    normal = self.normalize(f"decoder_{layer}/pre_mlp_layer_norm", x, e)
    return add(x, e, *self.mlp(f"decoder_{layer}/mlp", *normal, is_tight))

  def logits(self, x, e, target):
    """Returns logits [U, V], and bounds on the errors of their differences from
    the logit of `target` [U]."""
    x, e = self.normalize("decoder_norm", x, e)
    kernel, bias, _ = self.weights(self.head, x.shape[1])
    kernel = kernel[:, 0]
    distance = length(kernel.T[:, None] - kernel.T) * SAFE
    size = np.abs(x) @ np.abs(kernel) + np.abs(bias)
    size += e[:, None] * length(kernel.T)
    size += size[np.arange(len(x)), target, None]
    error = distance[target] * e[:, None] + gamma(len(kernel) + 3) * size
    return x @ kernel + bias, error + TINY


def evaluate(model, nodes, numbers, tight):
  """Yields (contexts, targets, logits, bounds) of the contexts of a receptive
  field, layer by layer, equal states once: parts[i] are the distinct choices of
  the variables of node i, states[i] its states for each (of at most `tight`,
  with the tighter bounds)."""
  radix, root, states, caches = len(model.embedding), len(nodes) - 1, [], {}

  def project(i, numbers):
    digits = (numbers // radix**v % radix * radix**v for v in nodes[i][0])
    return sum(digits, 0 * numbers)

  def children(i):
    _, _, own, *heads = nodes[i]
    return {own, *(k for x in heads[0] for _, k in x)} if heads else ()

  parts = {root: project(root, numbers)}
  for i in range(root, -1, -1):
    for child in children(i):
      some = np.append(parts.get(child, numbers[:0]), project(child, parts[i]))
      parts[child] = distinct(some)

  def compute(i, part):
    seen, layer, own, *heads = nodes[i]
    if not heads:
      token = part // radix ** seen[0] if seen else own + 0 * part
      return model.embed(token, layer)
    find = lambda i: np.searchsorted(parts[i], project(i, part))
    where = {child: find(child) for child in children(i)}
    keys = {site: {} for site in model.sites}
    for n, head in enumerate(heads[0]):
      site = model.sites[n // model.heads]
      for _, k in head:
        if (k, layer, site) not in caches:
          caches[k, layer, site] = model.key_value(layer, site, *states[k])
        if k not in keys[site]:
          keys[site][k] = [x[where[k]] for x in caches[k, layer, site]]
    x, e = (x[where[own]] for x in states[own])
    return model.block(layer, x, e, heads[0], keys, len(parts[i]) <= tight)

  for i in range(root):
    pieces = (parts[i][c : c + CHUNK] for c in range(0, len(parts[i]), CHUNK))
    found = [compute(i, piece) for piece in pieces]
    states.append([np.concatenate(x) for x in zip(*found, strict=True)])
  for c in range(0, len(numbers), CHUNK):
    part = numbers[c : c + CHUNK]
    target = part // radix ** len(nodes[root][0])
    last = compute(root, parts[root][c : c + CHUNK])
    yield part, target, *model.logits(*last, target)


# 6. The verdict.


def survey(model):
  """Returns {nodes: [(row, names, contexts), ...]}: all that rows can see."""
  task, layouts, memo, found = model.task, {}, {}, {}
  *rows, reach = (model.reach(axis) for axis in range(len(task.directions)))
  limit, far = 2 * reach + 4 + task.slack, 2 * sum(rows) + 2
  require(limit**2 < MAX_CLASSES, f"lines lead {reach} columns far")
  places = ((0, far), (far, 2 * far), (far, far)) if rows else ((0, 0),)
  sizes = range(limit + 1)
  for x, y, (j, m) in itertools.product(sizes, sizes, places):
    if x + y < task.least or rows and j == m and x:
      continue
    if (x + y, m) not in layouts:
      layouts[x + y, m] = Layout(model, x + y, m)
    layout = layouts[x + y, m]
    i = layout.first + j * (x + y + 1) + x
    nodes, names = receptive_field(model, layout, i)
    row, said = (x, y, j, m), layout.said[i][3]
    numbers = contexts(model, row, names, said, reach, memo)
    found.setdefault(nodes, []).append((row, names, numbers))
  return found


def prove(path):
  """Returns what is found of a model: verdict, text, and the figures."""
  model, start, verdict, text = Model(path), time.time(), "proved", ""
  count, smallest, largest, radix = 0, np.inf, 0.0, len(model.embedding)
  for nodes, rows in survey(model).items():
    sets = {id(numbers): numbers for *_, numbers in rows}
    numbers = distinct(np.concatenate(list(sets.values())))
    count += len(numbers)
    for tight in (0, TIGHT):  # what is not proved yet, with tighter bounds
      rest, text, verdict = [numbers[:0]], "", "proved"
      for part, *results in evaluate(model, nodes, numbers, tight):
        (target, logits, bounds), u = results, np.arange(len(part))
        margins = logits[u, target, None] - logits
        margins[u, target], bounds[u, target] = np.inf, 0
        proved = (margins > bounds).all(axis=1)
        rest.append(part[~proved])
        smallest = min(smallest, margins.min())
        largest = max(largest, bounds[proved].max(initial=0))
        for u in np.flatnonzero(~proved)[: not text]:
          row, names, _ = next(row for row in rows if part[u] in row[2])
          tokens = part[u] // radix ** np.arange(len(names)) % radix
          seen, least = map("{}={}".format, names, tokens), margins[u].min()
          verdict = "fails" if least <= 0 else "undecided"
          text = f": row {row} must say {target[u]} after {' '.join(seen)}:"
          text += f" margin {least:.3g}, rounding {bounds[u].max():.2g}"
      numbers = np.concatenate(rest)
      if not text:
        break
    if text:
      break
  if not text:
    text = f": {count:,} contexts, smallest margin {smallest:.4g}"
    text += f", rounding at most {largest:.2g}"
  figures = {"contexts": count, "margin": smallest, "rounding": largest}
  figures["seconds"] = time.time() - start
  return {"verdict": verdict, "text": verdict + text, **figures}


def check(path):
  """Returns what `prove` does, or which condition is not met."""
  try:
    with np.errstate(all="ignore"):  # a bound that is infinite fails
      return prove(path)
  except RefusedError as error:
    return {"verdict": "refused", "text": f"refused: {error}"}
  except (KeyError, IndexError, ValueError) as error:
    return {"verdict": "refused", "text": f"refused: no such model: {error!r}"}


if __name__ == "__main__":
  files = [x for x in sys.argv[1:] if x != "--json"]
  results: dict[str, dict] = {}
  for file in files:
    results[file] = check(file)
    if "--json" not in sys.argv:
      print(f"{file}: {results[file]['text']}", flush=True)
  if "--json" in sys.argv:
    print(json.dumps(results, indent=1))
  codes = {"proved": 0, "fails": 1, "undecided": 1, "refused": 2}
  sys.exit(max((codes[x["verdict"]] for x in results.values()), default=2))
