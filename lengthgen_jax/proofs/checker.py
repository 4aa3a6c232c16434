"""Proves, without the package, that a shipped model is right at every length:

  python checker.py addition.npz [parity.npz ...]

It needs numpy alone, and shares no code with the program. docs/proofs.md has
the theorem and its lemmas. The exit code is 0 if all models are proved; else
the largest of 1, if a model is wrong in a context or has a margin whose sign
rounding might change, and 2, which says nothing about a model, if a file cannot
be read, a condition of the proof is not met or no file is named. Shapes: U
contexts, D model size, H heads, K head size, G keys of a row (of a dense layer:
groups of outputs), V tokens.
"""

import concurrent.futures
import functools
import hashlib
import io
import itertools
import json
import os
import pathlib
import re
import sys
import zipfile
from collections import namedtuple

# Its matrices are small: one thread is three times as fast as two.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402

# 1. The file, and the conditions. NAME=VALUES must hold, in JSON; NAME= is not
# checked, because it has no effect, is read below or follows from the arrays.
SETTINGS = """model.norm="pre" model.norm_kind="layer" model.dense_bias=true
model.activation="relu" model.dtype="float32" model.precision="highest"
model.kind="encoder_decoder"|"decoder_only" model.num_encoder_layers=
model.num_decoder_layers= model.emb_dim= model.num_heads= model.mlp_dim=
model.dropout_rate= positions.kind="none"|"sinusoidal"
positions.segments=true|false positions.cyclic_period= positions.source_anchor=
positions.table= positions.max_distance= positions.random_start=
temperature.kind="none" temperature.initial= temperature.stretch=
attention.normalizer="softmax" attention.alpha=
bias.kind="file" bias.file="" bias.allow_leak=false
bias.closed= bias.window= bias.input_window="""
# Grids of local rules: how the operand that lies along the cells is used, and
# how many cells the machine reads ahead (see Task).
GRIDS = {
  **{"automaton": ("first", 1), "turing": ("first", 1)},
  **{"halving": ("first", 0), "divide": ("first", 0)},
  **{"insertion_sort": ("", 0), "base": ("", 0)},
  **{"many_addends": ("own", 0), "outer_product": ("own", 1)},
}
SEGMENTS = {"": ["items"], "first": ["row", "steps"], "own": ["rows", "steps"]}
# What else a config may have: sections of tasks, and what has no effect.
OTHERS = f"""task seeds hints data method overrides registered_by pretrained
mesh compile_cache mixing initial train checkpoint calibration abc retrain
finetune certify prune probe bench eval arithmetic multiply_long sort increment
modular permutations dyck copying mqmtar {" ".join(GRIDS)}"""
# The shapes of parameters: sizes D of the model, F of the MLP, H heads, K of a
# head, V tokens, S segments; `*` is an attention site of a block.
ENDS = "token_embedder/embedding=VD decoder_norm/scale=D decoder_norm/bias=D"
SITE = """pre_*_layer_norm/scale=D pre_*_layer_norm/bias=D */query/kernel=DHK
*/query/bias=HK */key/kernel=DHK */key/bias=HK */value/kernel=DHK
*/value/bias=HK */out/kernel=HKD */out/bias=D"""
MLP = """pre_mlp_layer_norm/scale=D pre_mlp_layer_norm/bias=D mlp/wi/kernel=DF
mlp/wi/bias=F mlp/wo/kernel=FD mlp/wo/bias=D"""
Line = namedtuple("Line", "row_segment segment anchor matrix intercept value")
# By field of lines, as they are in the file: the type, and the number of axes
# of A entries.
FIELDS = {
  **{"row_segment": ("<i4", 0), "segment": ("<i4", 0), "anchor": ("<i4", 0)},
  **{"matrix": ("<i4", 2), "intercept": ("<i4", 1), "value": ("<f4", 0)},
  **{"valid": ("|b1", 0), "transparent": ("|b1", 0)},
}
LEFT, RIGHT = 0, 1  # anchors
WHOLE, ANY = -2, -1  # as a key segment, all keys; as a row segment, all rows
MAX_CLASSES = 10**5  # of the rows of a model
MAX_ROWS = 10**3  # of a grid, until they are far from the first
CHUNK_SIZE = 1 << 11  # contexts that are evaluated at once
BATCH_SIZE = 1 << 14  # contexts whose states below the last are kept
MAX_RUNS = 1 << 25  # of one plan
# A bound above this share of a margin is computed again, more tightly.
SMALL_SHARE = 0.5
THREADS = concurrent.futures.ThreadPoolExecutor(2)
# Unit roundoff of float32; 2^-20 of it covers the float64 roundings of bounds.
UNIT = 2.0**-24 * (1 + 2.0**-20)
ULPS = 4  # bounds the error of exp, rsqrt, pow, sin and cos, in last places
TINY = 2.0**-60  # more than underflow can change
# Parameters, the values of lines, and hidden states are smaller than these.
MAX_PARAMETER, MAX_VALUE, MAX_STATE = 2.0**16, 2.0**100, 2.0**40
MAX_SIZE = 1 << 11  # inputs of a layer, tokens, layers and heads are fewer
MAX_PERIOD = 16  # of a cyclic index
NORM_SLACK = 1 + 1e-9  # for the roundings of float64 in a norm
gamma = lambda n: n * UNIT / (1 - n * UNIT)  # the relative error of n roundings
l2 = lambda x: np.sqrt(np.einsum("...d,...d->...", x, x))  # the Euclidean norm


def require(condition, message):
  """Raises ValueError unless a condition of the proof holds."""
  if not condition:
    raise ValueError(message)


def read(path):
  """Returns (arrays, config, table) of NAME.npz and its card, NAME.json."""
  try:
    content = pathlib.Path(path).read_bytes()
    text = pathlib.Path(path).with_suffix(".json").read_text(encoding="utf-8")
    card, archive = json.loads(text), zipfile.ZipFile(io.BytesIO(content))
    arrays = dict(np.load(io.BytesIO(content), allow_pickle=False))
    config, table, digest = (card[x] for x in ("config", "table", "sha256"))
  except Exception as error:  # a damaged file fails in one of many ways
    raise ValueError(f"cannot be read: {error!r}") from error
  is_same_file = hashlib.sha256(content).hexdigest() == digest
  require(is_same_file, "the file is not that of its card (sha256)")
  has_arrays = sorted(archive.namelist()) == sorted(f"{x}.npy" for x in arrays)
  require(has_arrays, "the file has an array twice, or what is no array")
  return arrays, config, table


def check_config(config):
  """Checks that all names of a config are plain ones of known sections, and
  that its settings are those that the proof is for."""
  settings = dict(re.findall(r"([\w.]+)=(\S*)", SETTINGS))
  sections = {name.partition(".")[0] for name in settings}
  is_package_task = config["task"] in f"{STATED} {UNSTATED}".split()
  # A user's task may have a section of its own.
  own = {*config} - {*sections, *OTHERS.split()}
  is_known = not own or len(own) == 1 and not is_package_task
  require(is_known, f"config: the sections {sorted(own)} are not known")
  for section, fields in config.items():
    require_plain(section, fields)
    for field, value in fields.items() if isinstance(fields, dict) else ():
      name, text = f"{section}.{field}", json.dumps(value)
      is_known = section not in sections or name in settings
      require(is_known, f"{name} is an unknown setting")
      valid = settings.pop(name, "")
      is_valid = not valid or text in valid.split("|")
      require(is_valid, f"{name}={text}: the proof is for {valid}")
  missing = [name for name, valid in settings.items() if valid]
  require(not missing, f"config: lacks {missing}")
  model, seeds = config["model"], config["seeds"]
  has_encoder = model["kind"] != "decoder_only" and model["num_encoder_layers"]
  require(not has_encoder, "model.num_encoder_layers: there is an encoder")
  require(config["bias"]["closed"] <= -1e5, "bias.closed: rows see every key")
  require(config["data"]["width"] == "natural", "inputs have a fixed width")
  require(config["hints"] == [], "hints: the model has heads for them")
  has_one_seed = len(seeds) == 1 and type(seeds[0]) is int
  require(has_one_seed, f"seeds={seeds}: the proof is of one")
  period = config["positions"].get("cyclic_period")
  is_cyclic = type(period) is int and 0 < period <= MAX_PERIOD
  is_placeless = config["positions"]["kind"] == "none" or is_cyclic
  require(is_placeless, "positions.cyclic_period: positions do not repeat")
  for name in ("emb_dim", "mlp_dim", "num_heads", "num_decoder_layers"):
    is_size = type(model[name]) is int and 0 < model[name] < MAX_SIZE
    require(is_size, f"model.{name}={model[name]}: is not 1 to {MAX_SIZE - 1}")


def require_plain(name, value):
  """Checks that a name, and all names below it, are plain: without a dot."""
  require(name.isidentifier(), f"config: {name!r} is no plain name")
  for field in value if isinstance(value, dict) else ():
    require_plain(field, value[field])


def parameter_shapes(model):
  """Returns {name: shape} of all parameters of a Model."""
  section, tokens = model.config["model"], "params/token_embedder/embedding"
  sizes = {"D": section["emb_dim"], "F": section["mlp_dim"], "H": model.heads}
  sizes |= {"K": sizes["D"] // sizes["H"], "S": model.task.output + 1}
  sizes["V"] = len(model.arrays.get(tokens, ()))
  require(sizes["V"] < MAX_SIZE, f"{sizes['V']} tokens are too many")
  sites = [SITE.replace("*", f"{site}_attention") for site in model.sites]
  block = " ".join([*sites, MLP]).split()
  blocks = itertools.product(range(model.layers), block)
  names = [*ENDS.split(), *(f"decoder_{layer}/{x}" for layer, x in blocks)]
  names += [f"{model.output_head}/kernel=DV", f"{model.output_head}/bias=V"]
  has_segments = model.config["positions"]["segments"]
  names += ["segment_embedder/embedding=SD"] * has_segments
  forms = (name.split("=") for name in names)
  return {f"params/{x}": tuple(map(sizes.get, axes)) for x, axes in forms}


def check_arrays(model):
  """Checks that a file has the arrays of the canonical form, and no others."""
  arrays, axes = model.arrays, len(model.task.directions)
  parameters = parameter_shapes(model)
  forms = {name: ("<f4", shape) for name, shape in parameters.items()}
  forms |= {"lines/schema": ("<i4", ()), "lines/meta": ("<U", ())}
  for site in model.sites:
    valid = arrays.get(f"lines/{site}_valid", np.zeros(0))
    # The lines of one layer may serve all layers.
    leading = {(1, n, model.heads) for n in (1, model.layers)}
    fits = valid.ndim == 4 and valid.shape[:3] in leading
    require(fits, f"lines/{site}_valid is of other seeds, layers or heads")
    for field, (dtype, count) in FIELDS.items():
      shape = valid.shape + (axes,) * count
      shape = shape[:3] if field == "transparent" else shape
      forms[f"lines/{site}_{field}"] = dtype, shape
  others = sorted({*arrays} ^ {*forms})
  require(not others, f"{others}: unknown, or missing")
  for name, form in forms.items():
    actual = arrays[name].dtype.str[: len(form[0])], arrays[name].shape
    require(actual == form, f"{name} is {actual}, not {form}")
    # Of other bytes programs make different truth values.
    is_plain = form[0] != "|b1" or (arrays[name].view(np.uint8) <= 1).all()
    require(is_plain, f"{name} has bytes other than 0 and 1")
  for name in parameters:
    is_valid = (np.abs(arrays[name]) < MAX_PARAMETER).all()  # NaN is not
    require(is_valid, f"{name} is not of numbers, or they are too large")
  require(arrays["lines/schema"] == 2, "lines/schema: is not 2")
  prompt = model.task.segments
  # Beside a source, the decoder's keys have the prompt's segments as numbers
  # alone.
  keys = [""] * len(prompt) if model.has_source else prompt
  sites = {"self": [*keys, "target", "start"]}
  sites |= {"cross": prompt, "encoder": prompt} if model.has_source else {}
  meta = json.loads(str(arrays["lines/meta"]))
  fits = meta == {"seeds": model.config["seeds"], "sites": sites}
  require(fits, f"lines/meta: the seeds or sites are others: {meta}")


def read_lines(model, site):
  """Returns the lines of a site, [layers][heads], a list of Lines each: along
  every axis, a line opens the key whose offset from the anchor's end of its
  segment is matrix · (the row's offset from the left) + intercept. Numbers are
  Python's, which do not overflow."""
  of_site = lambda name: model.arrays[f"lines/{site}_{name}"]
  is_open = of_site("transparent").any()
  require(not is_open, f"{site}-attention: a head is open to every key")
  fields, valid = [of_site(x)[0] for x in Line._fields], of_site("valid")[0]
  lines = [[[] for _ in range(model.heads)] for _ in range(model.layers)]
  for layer, heads in enumerate(lines):
    i, where = layer % len(valid), f"layer {layer}, {site}"
    for h, k in np.argwhere(valid[i]):
      line = Line(*(field[i, h, k].tolist() for field in fields))
      text = f"{where}: the lemma on sizes is not for line {[*line]}"
      for part in parts_of(model, site, line):
        require(is_covered(model, part), text)
        heads[h].append(part)
  return lines


def parts_of(model, site, line):
  """Returns a line as lines that each lead from the output to one segment. In a
  decoder with a source all rows are the output's, and a diagonal over all keys
  is a line to the outputs (key k + 1 is output k) and one to the start token.
  """
  output = model.task.output
  if model.has_source and line.row_segment == ANY:
    line = line._replace(row_segment=output)
  is_whole = model.has_source and site == "self" and line.segment == WHOLE
  if not is_whole or line.matrix != [[1]] or line.anchor != LEFT:
    return [line]
  to_output = line._replace(segment=output, intercept=[line.intercept[0] - 1])
  return [to_output, line._replace(segment=output + 1)]


def is_covered(model, line):
  """Returns whether lemma 1 covers a line.

  It leads from rows of the output to one segment, to the output only from its
  left end, and its value is smaller than MAX_VALUE. Its matrix is diagonal.
  From one column to the next, the key moves on by the tokens of a column, in
  the same direction, or stays. From one row of a grid to the next, it moves by
  one row in a segment that has a token for each, else stays. There are two
  exceptions: to an operand that is the first row a line leads from this row
  alone; and the mark that an operand begins with may be seen from anywhere,
  because its state depends on nothing else.
  """
  axes, output = model.task.directions, model.task.output
  is_right = line.anchor == RIGHT
  covered = line.row_segment == output and abs(line.value) < MAX_VALUE
  covered &= 0 <= line.segment <= output + 1 and line.anchor in (LEFT, RIGHT)
  if not covered or line.segment == output and is_right:
    return False
  is_first = not is_right and not any([*sum(line.matrix, []), *line.intercept])
  if is_first and model.task.marks and line.segment < output:
    return True
  for axis, directions in enumerate(axes):
    row, step = line.matrix[axis], directions[line.segment]
    step *= -1 if is_right else 1
    slopes = (0, step) if step else (-1, 0, 1)
    if axis < len(axes) - 1:  # from one row of a grid to the next
      slopes = (step,) if step >= 0 else ()
      if model.task.is_first and line.segment == 0:  # the operand is row 0
        slopes = (-1, 1) if line.intercept[axis] == 0 else ()
    covered &= row[axis] in slopes and sum(map(abs, row)) == abs(row[axis])
  return covered


def distinct(x):
  """Returns the distinct of some integers, none of which is negative, sorted
  (np.unique is slow here)."""
  x = np.sort(x, kind="stable")
  return x[np.diff(x, prepend=-1) > 0]


# 2. The tasks. A card has the table of its task's transducer, a finite machine
# that reads a symbol in each column (the tokens of all long operands there) and
# writes a token. A Token has offsets from both ends of its segment; its id is
# an int, or a tuple that names a variable: a token that differs from input to
# input. A row class (x, y, j, m) is all rows that predict the output token with
# x columns before it and y after it, in row j of a grid of m rows (m of m: the
# end token's row; 0 of 0: no grid); large x and y stand for all above of the
# same phase.
Transducer = namedtuple("Transducer", "symbols next_states outputs accepting")
Token = namedtuple("Token", "segment left right id")
PLUS, TIMES, START, END, DELIMITER = 10, 11, 12, 13, 15  # `+*$&=` of numbers
TABLE = """layout segments marks start delimiter end slack direction symbols
machines"""
GRID = "ahead operand"  # what the table of a grid has as well
COPY = -1  # stands for the token of a transducer that copies
# The package's tasks: those for which there is no proof, and those stated here.
UNSTATED = "sort mqmtar parity_classification"
STATED = f"""successor addition parity multiply multiply_long increment copy
reverse modular permutations dyck {" ".join(GRIDS)}"""


def integers(values, shape, limit):
  """Returns an array of integers of a table, which must be from 0 to limit - 1;
  a None in its shape stands for any size."""
  x, text = np.array(values), f"the table has no {shape} integers below {limit}"
  fits = x.dtype == int and x.ndim == len(shape)
  sizes = zip(shape, x.shape, strict=fits)
  fits = fits and all(n in (None, m) for n, m in sizes)
  fits = fits and 0 <= x.min(initial=0) <= x.max(initial=0) < limit
  require(fits, f"{text}: {values!r:.40}")
  return x


def segment_tokens(segment, ids, axis=0, axes=1):
  """Returns the Tokens of a segment, which extends along one axis."""
  offset = lambda n: tuple(n if i == axis else 0 for i in range(axes))
  pairs, last = enumerate(ids), len(ids) - 1
  return [Token(segment, offset(i), offset(last - i), x) for i, x in pairs]


class Task:
  """A task on columns, as its table describes it.

  Of sequences, columns are the digits of numbers padded to one width, the least
  significant first, or the items of a list. Numbers have a last column of marks
  (`$`, the operator, the end of the output), and before it `slack` columns of
  zeros. (The task `increment` has no marks and one slack column, whose zero has
  no token in the prompt, and whose output is the last.) Two operands may be
  interleaved in one segment: both marks, then a token of each for every column;
  that of a short operand is always the same.

  A grid is an output of rows of cells, from 0 on. A transducer writes a row: it
  reads the row above (zeros above the first), and behind it `ahead` zeros, and
  writes a cell for each but the first `ahead`. There is one for each token of
  the last operand, of which every row has one. Another `operand` extends along
  the cells: "first", the first row is a copy of it; "own", it has a row for
  each row, and "every", all rows have the same one, of which the transducer
  reads the cell for the one that is written. "every" is a product: the last
  cell has none of the operand's, and an end token stands where another row
  would begin. "" is no other operand.

  Attributes:
    segments: the names of the prompt's segments, one for each operand unless
      two are interleaved. The output's has the number `output`.
    num_long, num_read: how many operands are long, and of how many of these a
      transducer reads a token in a column. (An operand that is a first row it
      reads as the row above.)
    slack, ahead, min_last_column: the columns of zeros, the cells that are read
      ahead, and the last column of the shortest input.
    marks: the token before each operand; () if there are none.
    end: the token after the last output, if there are marks.
    first: the token before the first output.
    transducers: {`short`: its Transducer}; `short` is a digit of the short
      operand, a token that drives a row, COPY, or None if there is none of
      these. A Transducer has the tokens of each symbol, symbols [S, operands],
      whose first, `zeros`, has zeros alone; next_states and outputs [Q, S]; and
      accepting [Q], whether a state may be the last. State 0 is the first.
    directions: for each axis, how the offset from the left grows with the
      column in each segment (of the prompt, the output, the start token): by
      +1, -1, or 0 in a short segment of at most two tokens; by ±2 if operands
      are interleaved.
    accepts_all: whether all inputs are accepted; in a grid, whether every row
      that can be the one above is.
  """

  def __init__(self, table, num_tokens, has_source):
    is_table = isinstance(table, dict)
    self.is_grid = is_table and table.get("layout") == "grid"
    names = {*TABLE.split(), *(GRID if self.is_grid else "").split()}
    fits = is_table and {*table} == names
    require(fits, "the card has no table of a transducer")
    tokens = lambda values, *shape: integers(values, shape, num_tokens)
    operand, self.direction = table.get("operand"), table["direction"]
    self.is_first, self.is_own = operand == "first", operand == "own"
    self.is_product = operand == "every"
    self.is_interleaved = table["layout"] == "interleaved"
    self.segments, self.output = table["segments"], len(table["segments"])
    self.num_operands = self.output + self.is_interleaved
    self.first = tokens(table["start" if has_source else "delimiter"]).item()
    self.marks = [tokens(x).item() for x in table["marks"]]
    self.has_marks, self.end = len(self.marks) > 0, table["end"]
    self.slack = integers(table["slack"], (), 100).item()
    self.ahead = integers(table.get("ahead", 0), (), 2).item()
    symbols, self.transducers = tokens(table["symbols"], None, None), {}
    self.zeros = symbols[0].tolist()
    for machine in table["machines"]:
      accepting = np.array(machine["accepting"])
      size = len(accepting), len(symbols)
      next_states = integers(machine["next"], size, len(accepting))
      tables = symbols, next_states, tokens(machine["outputs"], *size)
      self.transducers[machine["short"]] = Transducer(*tables, accepting)
      fits &= accepting.dtype == bool
    shorts, machines = [*self.transducers], [*self.transducers.values()]
    has_short = shorts != [None]
    self.num_long = self.num_operands - has_short
    self.num_read = self.num_long * (not self.is_first)  # in each column
    self.min_last_column = self.slack + self.has_marks
    num_shorts = len(tokens(shorts, None)) if has_short else 1
    fits &= num_shorts == len(table["machines"])
    fits &= len(self.marks) in (0, self.num_operands)
    fits &= len(self.marks) == 2 or not self.is_interleaved
    fits &= tokens(self.end) >= 0 if self.marks else self.end is None
    fits &= table["layout"] in ("grid", "sequence", "interleaved")
    fits &= symbols.shape[1] == self.num_read + self.is_grid
    fits &= self.direction in (1, -1)
    # For lemma 1 an operand is at most one column shorter than the output.
    has_ends = self.slack < 2 or self.has_marks
    require(has_ends, "slack: without marks it is 0 or 1")
    long = self.output - (has_short and not self.is_interleaved)  # segments
    directions = [self.direction * (1 + self.is_interleaved)] * long
    directions += [0] * (self.output - long)
    self.directions = [(*directions, 1, 0)]
    self.accepts_all = all(x.accepting.all() for x in machines)
    cells = range(symbols[:, -1].max() + 1)  # of a grid
    if self.is_grid:
      fits &= has_short and operand in ("", "first", "every", "own")
      fits &= self.num_operands == 1 + (operand != "")
      # Else a first row might be accepted by some of them alone.
      fits &= not self.is_first or len(machines) == 1
      fits &= self.has_marks == self.is_product and not self.slack
      fits &= self.direction == (-1 if self.is_product else 1)
      along_rows = [int(self.is_own)] * long
      self.directions.insert(0, (*along_rows, self.direction, 1, 0))
      pairs = itertools.product(cells, repeat=symbols.shape[1])
      is_full = [*map(tuple, symbols.tolist())] == [*pairs]
      is_full &= all(x.outputs.max() < len(cells) for x in machines)
      text = "cells are not counted from 0, or combinations are missing"
      require(is_full, text)
    require(fits, "the parts of the card's table do not fit one another")
    if self.is_grid and not (self.is_own or self.is_product):
      self.check_rows()
      self.accepts_all = True
    if self.is_first:
      cells = np.array([cells])
      copy = symbols, 0 * cells, cells, np.array([True])
      self.transducers[COPY] = Transducer(*copy)

  def check_rows(self):
    """Checks that the transducers accept all rows that can be the one above:
    those of zeros, as a machine of one state writes them, and, if they accept
    the row above, those that they write. (That they accept a first row that is
    given is a condition on inputs.)"""
    writers = [*self.transducers.values()]
    key_of = lambda x: (x.next_states.tobytes(), x.accepting.tobytes())
    readers = {key_of(x): x for x in writers}.values()
    zeros = 0 * writers[0].outputs[:1]
    if not self.is_first:
      writers.append(Transducer(None, zeros, zeros, np.array([True])))
    for writer, reader in itertools.product(writers, readers):
      # Whether the writer can be in state p when what reads its row is in q.
      reached = np.zeros((len(writer.accepting), len(reader.accepting)), bool)
      # After the first symbol, for which no cell is written if it is `ahead`.
      after = reader.next_states[0, writer.outputs[0]]
      p, q = writer.next_states[0], after * (not self.ahead)
      while not reached[p, q].all():
        reached[p, q] = True
        p, q = np.nonzero(reached)
        after = reader.next_states[q[:, None], writer.outputs[p]]
        p, q = writer.next_states[p], after
      p, q = np.nonzero(reached)
      for _ in range(self.ahead):  # behind the row
        after = reader.next_states[q, writer.outputs[p, 0]]
        p, q = writer.next_states[p, 0], reader.next_states[after, 0]
      fits = (~writer.accepting[p] | reader.accepting[q]).all()
      require(fits, "a row cannot be the one above")

  def sequence(self, last_column, num_rows):
    """Returns the Tokens of prompt and output; num_rows is of grids alone."""
    size, operands, prompt = last_column + 1 - self.has_marks, [], []

    def cells(segment, name, last_row):
      for j, k in itertools.product(range(num_rows), range(last_column + 1)):
        ends = last_row - j, last_column - k
        yield Token(segment, (j, k), ends, (*name, j, k))

    for k in range(self.num_operands):
      ids = [("in", k, p) for p in range(num_rows if self.is_grid else 1)]
      if k < self.num_long:
        ids = [("in", k, p) for p in range(size - self.slack)]
        ids += self.zeros[k : k + 1] * (self.slack * self.has_marks)
      elif self.is_interleaved:
        ids *= size
      operands.append([*self.marks[k : k + 1], *ids[:: self.direction]])
    if self.is_interleaved:
      operands = [[*itertools.chain(*zip(*operands, strict=True))]]
    for k, ids in enumerate(operands):
      axis = int(self.is_grid and k < self.num_long)
      tokens = segment_tokens(k, ids, axis, len(self.directions))
      is_own = self.is_own and k == 0
      prompt += cells(0, ("in", 0), num_rows - 1) if is_own else tokens
    if not self.is_grid:
      ids = [("out", p) for p in range(size)] + [self.end] * self.has_marks
      return prompt, segment_tokens(self.output, ids)
    tokens = [*cells(self.output, ("out",), num_rows - 1 + self.has_marks)]
    end = Token(self.output, (num_rows, 0), (0, last_column), self.end)
    return prompt, tokens + [end] * self.has_marks

  def columns(self, x, y, j, num_rows):
    """Returns (choices, columns). A choice is (`short`, {variable: token} of
    what it fixes), and the end token's row has none. A column is (a mask of the
    symbols that can stand there, the variables of their tokens and, last, of
    the output that is written there; None where there is no variable)."""
    is_row = j < num_rows or not self.is_grid
    shorts, variable = [*self.transducers], ("in", self.num_long, j)
    if self.is_first:
      shorts.remove(COPY)
    fixed = lambda x: {variable: x} if is_row and x is not None else {}
    choices = [(short, fixed(short)) for short in shorts]
    symbols, columns = self.transducers[shorts[0]].symbols, []
    if self.is_first and not j:
      every = np.ones(len(symbols), bool)
      copies = [(("in", 0, t), ("out", 0, t)) for t in range(x + y + 1)]
      return [(COPY, x) for _, x in choices], [(every, x) for x in copies]
    size, row = x + y + 1 - self.has_marks, (j,) * self.is_grid
    num_cells = x + y + 1 if self.is_grid else size
    for t in range(num_cells + self.ahead):
      k = t - self.ahead  # where the output is written
      is_read = 0 <= k < size - self.slack
      place = (j, k) if self.is_own else (k,)
      # None: a zero, of slack or ahead, which is no variable.
      names = [
        ("in", i, *place) if is_read else None for i in range(self.num_read)
      ]
      if self.is_grid:
        names.append(("out", j - 1, t) if j and t < num_cells else None)
      is_token = [name is not None for name in names]
      allowed = (is_token | (symbols == self.zeros)).all(axis=1)
      out = ("out", *row, k) if k >= 0 and is_row else None
      columns.append((allowed, (*names, out)))
    return choices if is_row else choices[:1], columns


def tabulate(short, start, symbols, step, accept):
  """Returns the machine of step(short, state, *symbol) -> (next state, output),
  of those states that can be reached from the first one."""
  states, rows = {start: 0}, []
  for state in (queue := [start]):  # grows while it is read
    rows.append([step(short, state, *symbol) for symbol in symbols])
    for after, _ in rows[-1]:
      if after not in states:
        states[after] = len(queue)
        queue.append(after)
  next_states = [[states[x] for x, _ in row] for row in rows]
  outputs = [[output for _, output in row] for row in rows]
  machine = {"short": short, "next": next_states, "outputs": outputs}
  return machine | {"accepting": [accept(state) for state in states]}


def stated_table(config):
  """Returns the table of the task that a config names, as it is stated here.

  A machine has a `step` (digit of the short operand or token that drives a row,
  state, *symbol) -> (next state, output); from the state None on, no row above
  can go on. Symbols are all tuples of `read` tokens of the `size` from `low`
  on; `more` tokens come after them.
  """
  name, size, read, low, more = config["task"], 10, 1, 0, 0
  is_number = name in ("successor", "addition", "parity", "multiply")
  section = "copying" if name in ("copy", "reverse") else name
  section = config["arithmetic" if is_number else section]
  shorts, start, twice = [None], lambda short: 0, lambda state: (state, state)
  accept = lambda state: state is not None
  if name in ("successor", "addition", "many_addends", "outer_product"):
    size = 2 if name == "outer_product" else 10
    read = 1 if name == "successor" else 2
    start = lambda short: int(name == "successor")
    step = lambda short, carry, *digits: divmod(carry + sum(digits), size)
  elif name == "multiply":
    shorts = range(10)
    step = lambda b, carry, a: divmod(carry + a * b, 10)
  elif name in ("parity", "modular"):
    size = 2 if name == "parity" else section["p"]
    step = lambda short, total, item: twice((total + item) % size)
  elif name in ("copy", "reverse"):
    size = section["alphabet"]
    step = lambda short, state, item: (state, item)
  elif name == "increment":  # digit d has the token d + 1, and padding 0
    low, start = 1, lambda short: 1
    step = lambda short, c, a: ((c + a - 1) // 10, (c + a - 1) % 10 + 1)
  elif name == "permutations":
    elements = list(itertools.permutations(range(int(section["group"][1:]))))
    size, index_of = len(elements), {x: i for i, x in enumerate(elements)}
    product = lambda s, x: index_of[tuple(elements[s][k] for k in elements[x])]
    step = lambda short, state, item: twice(product(state, item))
  elif name == "dyck":
    kinds, capacity = range(len(section["brackets"]) // 2), section["bound"]
    stacks = [itertools.product(kinds, repeat=n) for n in range(capacity + 1)]
    stacks = [*itertools.chain(*stacks), "invalid"]
    size, more, start = 2 * len(kinds), len(stacks), lambda short: ()

    def step(short, stack, bracket):
      kind, closes = divmod(bracket, 2)
      fits = stack[-1:] == (kind,) if closes else len(stack) < capacity
      after = stack[:-1] if closes else (*stack, kind)
      stack = after if fits and stack != "invalid" else "invalid"
      return stack, size + stacks.index(stack)

  elif name == "multiply_long":
    read, shorts, start = 2, range(10), lambda b: (0, False, True)
    accept = lambda state: state[1] or state[2]

    def step(b, state, a, s):
      # By the columns so far: is_less, whether s is below 10·a; is_zero,
      # whether both are 0. Digit a stands in the column after its own.
      carry, is_less, is_zero = state
      carry, digit = divmod(s + a * b + carry, 10)
      is_less = is_less if s == a else s < a  # the highest difference decides
      return (carry, is_less, is_zero and s == a == 0), digit

  elif name == "automaton":
    size, start = 2, lambda tick: (0, 0)

    def step(tick, state, right):
      bit = section["rule"] >> (4 * state[0] + 2 * state[1] + right) & 1
      return (state[1], right), bit

  elif name == "turing":
    rows = section["machine"].split("_")
    num_symbols = len(rows[0]) // 3
    states = {chr(ord("A") + i): row for i, row in enumerate(rows)}
    halting = {x for row in rows for x in row[2::3]} - {*states}
    names = [*states, *sorted(halting)]
    size, start = num_symbols * (1 + len(names)), lambda tick: (0, 0, False)

    def act(cell):  # what is written, the direction, and the state; or nothing
      head, symbol = divmod(cell, num_symbols)
      row = states.get(names[head - 1], "") if head else ""
      return row[3 * symbol : 3 * symbol + 3]

    def step(tick, state, right):
      if state is None or state[2] and right >= num_symbols:
        return None, 0
      before, own, behind = map(act, (*state[:2], right))
      after = int(own[0]) if own else state[1]
      for action, side in ((before, "R"), (behind, "L")):
        if action[1:2] == side:
          after += num_symbols * (1 + names.index(action[2]))
      return (state[1], right, state[2] or right >= num_symbols), after

  elif name == "insertion_sort":
    size = section["alphabet"] + 1
    shorts = range(1, size)
    order = lambda cell: cell or size  # an empty cell, 0, comes last

    def step(item, left, above):  # left: the cell before, 0 if there is none
      if left is None or order(above) < left:
        return None, 0
      return order(above), min(order(above), max(left, item)) % size

  elif name in ("halving", "divide"):
    divisor = 2 if name == "halving" else section["divisor"]
    step = lambda tick, rest, digit: divmod(10 * rest + digit, divisor)[::-1]
  else:  # base
    size, shorts = section["target"], range(section["source"])
    start = lambda digit: digit
    step = lambda digit, carry, above: divmod(
      section["source"] * above + carry, size
    )
  all_states = section.get("answer", "states") == "states"
  require(all_states, f"{name}.answer: the model must output every state")
  operand, _ = GRIDS.get(name, ("", 0))
  if operand:  # a tick, the token after the cells, drives every row
    shorts, more = [size], 1
  symbols = [*map(list, itertools.product(range(low, low + size), repeat=read))]
  machines = [tabulate(x, start(x), symbols, step, accept) for x in shorts]
  first = low + size + more
  forward = "copy", "modular", "permutations", "dyck", *GRIDS
  table = {"symbols": symbols, "machines": machines, "marks": [], "end": None}
  table |= {"start": first, "delimiter": first, "layout": "sequence"}
  table |= {"slack": low, "direction": 1 if name in forward else -1}
  table["segments"] = SEGMENTS[operand]
  if is_number or name == "multiply_long":
    marks = {"addition": [PLUS], "successor": [], "parity": []}
    marks = [START, *marks.get(name, [TIMES])]
    table |= {"marks": marks, "segments": ["a", "b"][: len(marks)], "end": END}
    table |= {"start": START, "delimiter": DELIMITER}
  if is_number:
    is_wide = section["slack"] or name == "parity"
    require(is_wide, "arithmetic.slack: an answer may need one digit more")
    table["slack"] = section["slack"]
    has_pairs = name in ("addition", "multiply")
    if section["aligned"] is not False and has_pairs:
      table |= {"layout": "interleaved", "segments": ["pairs"]}
  if name in GRIDS or name == "multiply_long":
    operand, ahead = GRIDS.get(name, ("every", 1))
    table |= {"layout": "grid", "ahead": ahead, "operand": operand}
  return table


# 3. What a row depends on. Row i of attention holds token i of a sequence and
# predicts the next one; its coordinates are those of the token it predicts.


class Layout:
  """The tokens of all sequences of one size, and where lines lead in them.

  Their columns are 0 to `last_column`. `num_rows` is the number of rows of a
  grid, without the end token's, and 0 if there is no grid; all other rows here
  are those of attention.

  Attributes:
    keys: {site: the Tokens that its keys hold}.
    predicted: the Tokens that the rows predict.
    first_output_row: the row that predicts the first output.
    key_at: {(site, segment, anchor, offset): the index of the key there}.
  """

  def __init__(self, model, last_column, num_rows):
    task = model.task
    prompt, output = task.sequence(last_column, num_rows)
    zero = (0,) * len(task.directions)
    start_token = Token(task.output + 1, zero, zero, task.first)
    self.first_output_row = 0 if model.has_source else len(prompt)
    tokens = [*prompt[: self.first_output_row], start_token, *output]
    self.keys, self.predicted = {"self": tokens[:-1]}, tokens[1:]
    self.keys["cross"], self.key_at = prompt, {}  # for a source
    for site, tokens in self.keys.items():
      for key, token in enumerate(tokens):
        self.key_at[site, token.segment, LEFT, token.left] = key
        self.key_at[site, token.segment, RIGHT, token.right] = key

  def open_keys(self, site, lines, i):
    """Returns the (key, bias) pairs that a head's lines open in row i."""
    row, biases = self.predicted[i], {}
    for line in lines:
      if line.row_segment == row.segment:
        slopes = map(sum, line.matrix)  # it is diagonal
        parts = zip(slopes, row.left, line.intercept, strict=True)
        offset = tuple(slope * x + c for slope, x, c in parts)
        key = self.key_at.get((site, line.segment, line.anchor, offset))
        if key is not None and (site == "cross" or key <= i):
          biases[key] = max(biases.get(key, line.value), line.value)
    return sorted(biases.items())


# A receptive field is how the last hidden state of a row is computed, as nodes
# that refer to earlier ones by their index. A Leaf is a token's embedding; id
# is None if it is a variable's; the phase is the index modulo the period of
# positions. A Block is the output of a layer's block:
# residual is the same row's node below, heads has ((site, h), ((bias, key),
# ...)) for every head. A key is (its node, its number among the keys that the
# block's heads see): two keys may have one node, but need not be rounded alike.
# `variables` are the indices of the variables that a node depends on,
# `children` those of the nodes that it refers to.
Leaf = namedtuple("Leaf", "variables children segment id phase")
Block = namedtuple("Block", "variables children layer residual heads")


def receptive_field(model, layout, i, is_below_copy=False):
  """Returns (nodes, names) of row i, where names[v] is variable v's. Below a
  first row that is a copy of an operand, the operand has this row's names."""
  nodes, names, period = {}, {}, model.period
  add_node = lambda node: nodes.setdefault(node, len(nodes))

  @functools.cache
  def add_node_of(site, layer, i):
    if not layer:
      segment, _, _, token_id = layout.keys[site][i]
      # A start token or delimiter has the vector of the output's segment.
      segment, variables = min(segment, model.task.output), ()
      if isinstance(token_id, tuple):
        if is_below_copy and token_id[:2] == ("in", 0):
          token_id = "out", 0, *token_id[2:]
        variables, token_id = (names.setdefault(token_id, len(names)),), None
      is_from_right = site == "cross" and model.counts_from_right
      phase = (len(layout.keys[site]) - 1 - i if is_from_right else i) % period
      return add_node(Leaf(variables, (), segment, token_id, phase))
    residual, heads, numbers = add_node_of("self", layer - 1, i), {}, {}
    for site in model.sites:
      below = 0 if site == "cross" else layer - 1
      for h, lines in enumerate(model.lines[site][layer - 1]):
        heads[site, h] = ()
        for k, bias in layout.open_keys(site, lines, i):
          number = numbers.setdefault((site, k), len(numbers))
          heads[site, h] += ((bias, (add_node_of(site, below, k), number)),)
    pairs = itertools.chain(*heads.values())
    children = {residual, *(node for _, (node, _) in pairs)}
    node_list = list(nodes)
    variables = {v for k in children for v in node_list[k].variables}
    sets = tuple(sorted(variables)), tuple(sorted(children))
    return add_node(Block(*sets, layer - 1, residual, tuple(heads.items())))

  add_node_of("self", model.layers, i)
  return tuple(nodes), tuple(names)


# 4. Contexts, as codes: the integers sum of token_v · V^v over variables v.
# While columns are read, a run is code · Q + q, for a code and a state q of Q.
# A Plan says how contexts of a row class are found: from the code of what is
# fixed, a run takes a step for every column that the row sees (`moves`: which
# states columns before it lead to; `allowed`: a mask of symbols; `weights`: by
# what its tokens count in the code), and must end in an accepting state.
# Row classes with equal plans have equal contexts.
Plan = namedtuple("Plan", "code short steps accepting")
Step = namedtuple("Step", "moves allowed weights")


class Contexts:
  """Finds the contexts of a model's rows. Plans name arrays by their keys in
  `arrays`, so that equal ones are equal."""

  def __init__(self, model):
    self.model, self.radix, self.arrays = model, len(model.embedding), {}
    self.moves_of = functools.cache(self.moves_of)
    self.then = functools.cache(self.then)
    self.growth = functools.cache(self.growth)

  def key(self, array):
    """Returns the key of an array, the same for an equal one."""
    key = array.shape, array.tobytes()
    self.arrays[key] = array
    return key

  def then(self, first, second):
    """Returns the key of the moves (float32 [Q, Q], 1 where a state leads to
    another) of two runs of columns, or the states [Q] that lead to some."""
    product = self.arrays[first] @ self.arrays[second]
    return self.key(np.float32(product > 0))

  def moves_of(self, short, columns):
    """Returns the key of the moves of some columns: for each (key of a
    mask, whether it stands for 1, 1 + T, 1 + 2T, ... columns of its kind, where
    T is the period)."""
    transducer = self.model.task.transducers[short]
    num_states = len(transducer.accepting)
    if not columns:
      return self.key(np.eye(num_states, dtype=np.float32))
    *before, (allowed, is_repeatable) = columns
    moves = np.zeros((num_states, num_states), np.float32)
    after = transducer.next_states[:, self.arrays[allowed]]
    moves[np.arange(num_states)[:, None], after] = 1
    one, many = self.key(moves), None
    all_moves = self.then(self.moves_of(short, tuple(before)), one)
    period = functools.reduce(self.then, [one] * self.model.period)
    # Until more columns lead to nothing new.
    while is_repeatable and all_moves != many:
      many = all_moves
      union = self.arrays[many] + self.arrays[self.then(many, period)]
      all_moves = self.key(np.float32(union > 0))
    return all_moves

  def plans(self, row_class, names):
    """Returns the plans of a row class, whose variables are `names`; the last
    one is what it must predict, which no row sees."""
    task, span, target = self.model.task, self.model.span[-1], names[-1]
    known = {target: target} if isinstance(target, int) else {}  # no variable
    weights = {name: self.radix**v for v, name in enumerate(names)}
    # The columns that stand for many columns of their kind: lemma 2.
    x, y, *_ = row_class
    sizes_and_columns = (x, span + 2), (y, x + span + 2)
    limit = self.model.class_limit
    repeatable = [c for size, c in sizes_and_columns if size >= limit]
    choices, columns = task.columns(*row_class)
    seen, unseen = [], ()
    for i, (allowed, variables) in enumerate(columns):
      of_column = tuple(weights.get(x, 0) for x in variables)
      if any(of_column):
        require(i not in repeatable, "a row sees a column that is many")
        seen.append((unseen, self.key(allowed), of_column))
        unseen = ()
      else:
        unseen += ((self.key(allowed), i in repeatable),)
    for short, fixed in choices:
      fixed = fixed | known
      covered = {*fixed}.union(*(variables for _, variables in columns))
      others = [str(name) for name in names if name not in covered]
      require(not others, f"a row sees what its columns do not have: {others}")
      accepting = task.transducers[short].accepting.astype(np.float32)
      num_codes = self.radix ** len(names) * len(accepting)
      require(num_codes < 1 << 63, f"a row sees too many tokens: {len(names)}")
      code = sum(weights.get(x, 0) * token for x, token in fixed.items())
      steps = [Step(self.moves_of(short, x), *step) for x, *step in seen]
      last = self.then(self.moves_of(short, unseen), self.key(accepting))
      yield Plan(code, short, tuple(steps), last)

  def growth(self, short, step):
    """Returns by how much a step changes a run of each state: arrays of
    distinct numbers."""
    transducer = self.model.task.transducers[short]
    allowed, num_states = self.arrays[step.allowed], len(transducer.accepting)
    *weights, last = step.weights
    growth = transducer.symbols[allowed] @ np.array(weights, np.int64)
    growth = growth + transducer.outputs[:, allowed] * last
    growth = growth * num_states + transducer.next_states[:, allowed]
    return [distinct(growth[x > 0].ravel()) for x in self.arrays[step.moves]]

  def run(self, plan):
    """Returns the codes of a plan's contexts, distinct and sorted."""
    accepting = self.arrays[plan.accepting] > 0
    num_states, runs = len(accepting), np.array([plan.code * len(accepting)])
    for step in plan.steps:
      growth, states = self.growth(plan.short, step), runs % num_states
      after = [(runs[states == q] - q, x) for q, x in enumerate(growth)]
      size = sum(len(x) * len(y) for x, y in after)
      require(size <= MAX_RUNS, f"a row has more than {MAX_RUNS:,} runs")
      runs = distinct(np.concatenate([np.add.outer(*x).ravel() for x in after]))
    return distinct(runs[accepting[runs % num_states]] // num_states)

  def describe(self, code, rows):
    """Returns a row class, of those of a receptive field, that has a context,
    and its tokens in words."""
    has_code = lambda row: any(code in self.run(plan) for plan in row[2])
    row_class, names, _ = next(filter(has_code, rows))
    tokens = code // self.radix ** np.arange(len(names)) % self.radix
    pairs = zip(names[:-1], tokens[:-1], strict=True)
    return row_class, " ".join(f"{name}={token}" for name, token in pairs)

  def of_fields(self, fields):
    """Yields (receptive field, codes) of all contexts, each one once and at
    most BATCH_SIZE together, of what `receptive_fields` returns."""
    for nodes, rows in fields.items():
      plans = dict.fromkeys(plan for *_, plans in rows for plan in plans)
      codes = distinct(np.concatenate([*map(self.run, plans)]))
      for start in range(0, len(codes), BATCH_SIZE):
        yield nodes, codes[start : start + BATCH_SIZE]


# 5. The network in float64, and bounds on rounding (lemma 3). Every hidden
# state x [U, D] comes with e [U]: any float32 evaluation of the same formulas
# is at most e away from x (Euclidean distance).


def add(x, e, y, y_error):
  """Returns the sum of two hidden states, and its error."""
  return x + y, e + y_error + UNIT * (l2(x + y) + e + y_error) + TINY


class Model:
  """A shipped model: its task, its lines, and its network."""

  def __init__(self, arrays, config, table):
    check_config(config)
    self.arrays, self.config, section = arrays, config, config["model"]
    self.layers = section["num_decoder_layers"]
    self.heads = section["num_heads"]
    self.has_source = section["kind"] == "encoder_decoder"
    self.sites = ("self", "cross") if self.has_source else ("self",)
    self.output_head = f"logits_dense_{config['task']}"
    # Positions are sinusoids of the index modulo the period.
    positions = config["positions"]
    has_positions = positions["kind"] == "sinusoidal"
    self.period = positions["cyclic_period"] if has_positions else 1
    self.counts_from_right = positions.get("source_anchor") == "right"
    vocabulary = arrays.get("params/token_embedder/embedding", ())
    form = len(vocabulary), self.has_source
    self.is_stated = config["task"] in STATED.split()
    is_known = config["task"] not in UNSTATED.split()
    require(is_known, f"task={config['task']!r} is not stated here")
    table = stated_table(config) if self.is_stated else table
    self.task = Task(table, *form)
    is_closed = self.task.accepts_all or self.is_stated
    require(is_closed, "a row cannot be the one above, or an input is left out")
    check_arrays(self)
    self.params = {
      name.removeprefix("params/"): array.astype(float)
      for name, array in arrays.items()
      if name.startswith("params/")
    }
    self.dense_weights = functools.cache(self.dense_weights)
    self.kernel_products = functools.cache(self.kernel_products)
    self.layout = functools.cache(functools.partial(Layout, self))
    self.embedding = self.params["token_embedder/embedding"]
    size = self.embedding.shape[1]
    rate = 1e4 ** (-np.arange(0, size, 2) / size)
    angle = np.arange(self.period)[:, None] * rate
    waves = np.concatenate([np.sin(angle), np.cos(angle)], axis=1)[:, :size]
    self.waves = waves * has_positions
    # 20·T·u for each of the numbers, of pow, its exponent, the product and sin.
    self.waves_e = (4 * ULPS + 4) * self.period * UNIT * size**0.5
    self.waves_e *= has_positions
    require(not (self.task.is_grid and has_positions), "positions of a grid")
    self.lines = {x: read_lines(self, x) for x in self.sites}
    # By axis, how far lines and layers lead (C in docs/proofs.md); the last
    # axis is that of columns. From the limit on, x and y of a row class stand
    # for all above that differ by multiples of the period.
    self.span = [*map(self.find_span, range(len(self.task.directions)))]
    self.class_limit = 2 * self.span[-1] + 4 + self.task.slack

  def find_span(self, axis):
    """Returns C of lemma 1 along an axis."""
    farthest = []
    for sites in zip(*self.lines.values(), strict=True):  # of one layer
      lines = itertools.chain(*itertools.chain(*sites))
      farthest.append(max((abs(x.intercept[axis]) for x in lines), default=0))
    return sum(farthest) + self.layers + max(farthest) + 1

  def dense_weights(self, path):
    """Returns a dense layer's kernel [I, G, O] of I inputs and G groups of O
    outputs (the heads, else one), its bias [G, O], bounds [G] on the spectral
    norms of the groups' kernels, and float32 [I + 2, G · O], whose product with
    (|inputs|, their error, 1) bounds the layer's own rounding. A query's are
    scaled by K^-0.5. The scale and the bias of a layer normalization are taken
    as part of the layers that read it."""
    kernel, bias = (self.params[f"{path}/{x}"] for x in ("kernel", "bias"))
    if path.endswith("/out"):  # the heads are inputs
      kernel = kernel.reshape(-1, kernel.shape[-1])
    if kernel.ndim == 2:
      kernel, bias = kernel[:, None], bias[None]
    size = np.abs(bias)
    norm = "decoder_norm" if path == self.output_head else ""
    if re.fullmatch(".*/(query|wi)|.*self_attention/(key|value)", path):
      norm = "{}/pre_{}_layer_norm".format(*path.split("/"))
    if norm:
      scale, shift = (self.params[f"{norm}/{x}"] for x in ("scale", "bias"))
      bias = bias + np.tensordot(shift, kernel, 1)
      size = size + np.tensordot(np.abs(shift), np.abs(kernel), 1)
      kernel = kernel * scale[:, None, None]
    if path.endswith("/query"):
      root = kernel.shape[-1] ** 0.5
      kernel, bias, size = kernel / root, bias / root, size / root
    norms = np.linalg.norm(np.moveaxis(kernel, 1, 0), 2, axis=(1, 2))
    # A thousandth more covers what is computed of it in float32: sums of at
    # most 2^11 + 1 terms, a norm, and underflow.
    flat = kernel.reshape(len(kernel), -1)
    factors = [np.abs(flat), l2(flat.T)[None], size.reshape(1, -1)]
    # Further roundings: bias 1, the norm's scale and bias 2, query's scale 2.
    rounding = 1.001 * gamma(len(flat) + 6) * np.concatenate(factors)
    rounding[-1] += 1.001 * TINY
    return kernel, bias, norms * NORM_SLACK, rounding.astype(np.float32)

  def dense(self, path, x, e):
    """Returns outputs [U, G, O] of a dense layer, and float32 bounds [U, G, O]
    on its own rounding, without what it does to the error e of its inputs."""
    kernel, bias, _, rounding = self.dense_weights(path)
    y = (x @ kernel.reshape(len(kernel), -1)).reshape(-1, *bias.shape) + bias
    inputs = np.column_stack([np.abs(x), e, np.ones(len(x))])
    return y, (inputs.astype(np.float32) @ rounding).reshape(y.shape)

  def project(self, path, x, e):
    """Returns outputs [U, G, O] of a dense layer, and the error [U, G] of each
    group of them."""
    y, rounding = self.dense(path, x, e)
    norms = self.dense_weights(path)[2]
    return y, norms * e[:, None] + l2(rounding)

  def normalize(self, x, e):
    """Returns hidden states after a layer normalization without its scale and
    bias, and their errors."""
    root, rounding = x.shape[1] ** 0.5, gamma(x.shape[1] + 6)
    mean, mean_square = x.mean(axis=1), ((l2(x) + e) / root) ** 2
    # `rounding` is of a mean; t is the relative error of the variance.
    mean_error = rounding * (np.abs(x).mean(axis=1) + e / root)
    max_mean = np.abs(mean) + e / root + mean_error
    x = x - mean[:, None]
    deviation = np.sqrt((x * x).mean(axis=1) + 1e-6)
    # No deviation is smaller than that of a constant state, 10^-3.
    min_deviation = np.maximum(deviation - e / root, 0.999e-3)
    variance_error = rounding * mean_square + 2 * max_mean * mean_error
    t = variance_error / min_deviation**2 + 2 * UNIT
    # 1 / sqrt(1 - t) is at most 1 + 0.55 t for t < 0.1.
    is_bounded = (t < 0.1) & (mean_square < MAX_STATE**2)  # no sum overflows
    factor_error = np.where(is_bounded, 0.55 * t, np.inf)
    factor_error = (1 + factor_error) * (1 + (2 * ULPS + 4) * UNIT) - 1
    mean_error = mean_error / min_deviation * (1 + factor_error)
    own_error = root * (factor_error + mean_error + 2 * UNIT) + TINY
    return x / deviation[:, None], own_error + e / min_deviation

  def embed(self, token, segment, phase):
    """Returns hidden states of tokens [U] below the first layer, and errors."""
    x, table = self.embedding[token], "segment_embedder/embedding"
    e, added = np.zeros(len(x)), [self.waves[phase]] if self.waves.any() else []
    if table in self.params:
      added.insert(0, self.params[table][segment])
    for vector in added:
      x = x + vector
      e = e + UNIT * (l2(x) + e) + TINY
    return x, e + self.waves_e * (1 + UNIT)

  def key_value(self, layer, site, x, e):
    """Returns (keys [U, H, K], their errors [U, H], values, their errors)."""
    path = f"decoder_{layer}/{site}_attention"
    if site == "self":
      x, e = self.normalize(x, e)
    keys = self.project(f"{path}/key", x, e)
    return *keys, *self.project(f"{path}/value", x, e)

  def attend(self, path, x, e, heads, keys):
    """Returns the output of attention, and its error; docs/proofs.md has the
    lemma. `heads` has for each head ((bias, key), ...), and keys[key] is the
    result of `key_value` and which of it [U] the rows see. Of one head, q [U,
    K], k and v [U, G, K] are the query, the keys and the values, and y_e is the
    error of y."""
    queries, queries_e = self.project(f"{path}/query", x, e)
    heads_read, error = queries * 0, queries_e * 0
    # A head without keys reads zero.
    for h in (h for h, pairs in enumerate(heads) if pairs):
      biases, indices = zip(*heads[h], strict=True)
      seen = [[y[u, h] for y in arrays] for arrays, u in map(keys.get, indices)]
      k, k_e, v, v_e = (np.stack(ys, axis=1) for ys in zip(*seen, strict=True))
      q, q_e = queries[:, h], queries_e[:, h, None]
      q_norm = l2(q)[:, None]
      scores = np.einsum("uk,ugk->ug", q, k) + biases
      scores -= scores.max(axis=1, keepdims=True)
      weights = np.exp(scores)
      weights /= weights.sum(axis=1, keepdims=True)
      k_mean, v_mean = (np.einsum("ug,ugk->uk", weights, y) for y in (k, v))
      # Errors of scores, without q's error times k_mean, which all share; then
      # those of exp and of second order. `spread` is 2r of the lemma.
      size = (q_norm + q_e) * (l2(k) + k_e) + np.abs(biases)
      score_e = l2(k - k_mean[:, None]) * q_e + (q_norm + q_e) * k_e
      score_e += gamma(q.shape[1] + 3) * size
      size = np.abs(scores) + 2 * score_e.max(axis=1, keepdims=True)
      score_e += UNIT * (size + 2.1 * ULPS) + TINY
      if len(indices) == 1:  # its weight is 1, whatever its score is
        score_e = 0 * scores
      max_e = score_e.max(axis=1)
      growth = np.exp(np.where(max_e < 1, 4 * max_e, np.inf))[:, None]
      score_e += growth * score_e**2
      # Errors of what the head reads: by scores, by values, by rounding (twice,
      # because exp may underflow and 1 - weights loses digits).
      spread = 2 * l2(v - v.mean(axis=1, keepdims=True)).max(axis=1)
      sum_r = 2 * gamma(2 * len(indices) + 5)
      error[:, h] = spread * (weights * (1 - weights) * score_e).sum(axis=1)
      error[:, h] += (growth * (1 + sum_r) * weights * v_e).sum(axis=1)
      error[:, h] += sum_r * (l2(v) + v_e).max(axis=1)
      heads_read[:, h] = v_mean
    heads_read = heads_read.reshape(len(x), -1)
    y, error = self.project(f"{path}/out", heads_read, l2(error))
    return y[:, 0], error[:, 0]

  def kernel_products(self, path):
    """Returns the inner products of the hidden units' kernels in an MLP, each
    unit's of inputs times that of outputs, [units, units] float32."""
    wi, wo = (self.dense_weights(f"{path}/{x}")[0][:, 0] for x in ("wi", "wo"))
    return ((wi.T @ wi) * (wo @ wo.T)).astype(np.float32)

  def mlp(self, path, x, e, is_tight):
    """Returns the output of an MLP, and its error."""
    wi, _, wi_norm, _ = self.dense_weights(f"{path}/wi")
    wo, bo, wo_norm, _ = self.dense_weights(f"{path}/wo")
    wi, wo, wi_norms = wi[:, 0], wo[:, 0], l2(wi[:, 0].T)
    norms_product = (1.001 * wi_norms * l2(wo)).astype(np.float32)
    hidden, rounding = (y[:, 0] for y in self.dense(f"{path}/wi", x, e))
    hidden_error = wi_norms * e[:, None] + rounding
    sign_unknown = (np.abs(hidden) <= hidden_error).astype(np.float32)
    active = (hidden >= -hidden_error).astype(np.float32)  # or may be
    slopes = active - np.float32(0.5) * sign_unknown  # relu's: 1, 0 or 0.5
    # The spectral norms of the Jacobians, or their Frobenius norms, which are
    # larger and follow from the inner products of the units' kernels.
    if is_tight:
      norms = [np.linalg.norm((wi * slope) @ wo, 2) for slope in slopes]
    else:  # in float32, whose own error is `extra`
      products = self.kernel_products(path)
      squares = np.einsum("uh,uh->u", slopes @ products, slopes)
      extra = gamma(2 * len(wo) + 8) * (slopes @ norms_product) ** 2
      norms = np.sqrt(np.maximum(squares, 0.0) + extra)
    # 2e-6 covers six roundings to float32, and of those to float64 at most 2^13
    # in a square, as each layer has fewer than 2^11 inputs; 2^-50 underflow.
    radius = 0.5 * (sign_unknown @ norms_product)
    radius += 2e-6 * norms_product.sum() + 2.0**-50
    hidden = np.maximum(hidden, 0)
    size = l2(hidden + hidden_error * active)[:, None] * l2(wo.T) * NORM_SLACK
    size += np.abs(bo)  # an inner product is at most the product of norms
    norm = np.minimum(wi_norm * wo_norm, norms + radius)
    error = norm * e + wo_norm * l2(rounding * active)
    # Zeros add nothing.
    error += gamma(active.sum(axis=1, dtype=float) + 3) * l2(size)
    return hidden @ wo + bo, error + TINY

  def block(self, layer, x, e, heads, keys, is_tight):
    """Returns the hidden states after a block, and their errors; `heads` is
    {(site, h): ((bias, key), ...)}, `keys` has those of `attend` by site."""
    for site in self.sites:
      path = f"decoder_{layer}/{site}_attention"
      heads_and_keys = [heads[site, h] for h in range(self.heads)], keys[site]
      y = self.attend(path, *self.normalize(x, e), *heads_and_keys)
      x, e = add(x, e, *y)
    y = self.mlp(f"decoder_{layer}/mlp", *self.normalize(x, e), is_tight)
    return add(x, e, *y)

  @np.errstate(all="ignore")
  def margins(self, x, e, target):
    """Returns how far the logit of `target` [U] is above each [U, V], infinite
    for the target itself, and bounds on the errors of these differences."""
    x, e = self.normalize(x, e)
    columns = self.dense_weights(self.output_head)[0][:, 0].T
    distance = l2(columns[:, None] - columns) * NORM_SLACK
    y, rounding = (z[:, 0] for z in self.dense(self.output_head, x, e))
    at_target = np.arange(len(x)), target
    rounding += rounding[at_target][:, None]
    margins = y[at_target][:, None] - y
    margins[at_target], rounding[at_target] = np.inf, 0
    return margins, distance[target] * e[:, None] + rounding


def evaluate(model, nodes, codes, is_tight):
  """Yields (codes, targets, margins, bounds) of the contexts of a receptive
  field, in chunks; the bounds are smaller and take longer if `is_tight`. Every
  node but the last is computed once for each distinct choice of its variables:
  choices[i] are the codes of these, and hidden[i] is (x, e) of node i for each.
  The last one is computed once for each of `codes`, which name the target too.
  """
  radix, root, hidden = len(model.embedding), len(nodes) - 1, []
  choices = {i: codes[:0] for i in range(root)} | {root: codes}

  def restrict(k, codes):  # to the variables of node k
    digits = (codes // radix**v % radix * radix**v for v in nodes[k].variables)
    return sum(digits, 0 * codes)

  for i in range(root, -1, -1):
    for k in nodes[i].children:
      choices[k] = distinct(np.append(choices[k], restrict(k, choices[i])))

  key_value_of = functools.cache(lambda k, *x: model.key_value(*x, *hidden[k]))

  @np.errstate(all="ignore")  # an infinite bound proves nothing
  def compute(i, start):  # (x, e) for a chunk of node i's choices
    node, chunk = nodes[i], choices[i][start : start + CHUNK_SIZE]
    if isinstance(node, Leaf):
      token = chunk // radix ** node.variables[0] if node.variables else node.id
      return model.embed(token + 0 * chunk, node.segment, node.phase)
    positions, keys = {}, {site: {} for site in model.sites}
    for k in node.children:
      positions[k] = np.searchsorted(choices[k], restrict(k, chunk))
    for (site, _), pairs in node.heads:
      for key in {key for _, key in pairs} - set(keys[site]):
        arrays = key_value_of(key[0], node.layer, site)
        keys[site][key] = arrays, positions[key[0]]
    x, e = (x[positions[node.residual]] for x in hidden[node.residual])
    return model.block(node.layer, x, e, dict(node.heads), keys, is_tight)

  for i in range(root):
    starts = range(0, len(choices[i]), CHUNK_SIZE)
    chunks = [compute(i, start) for start in starts]
    hidden.append([np.concatenate(x) for x in zip(*chunks, strict=True)])
  for start in range(0, len(codes), CHUNK_SIZE):
    chunk = codes[start : start + CHUNK_SIZE]
    target = chunk // radix ** len(nodes[root].variables)
    yield chunk, target, *model.margins(*compute(root, start), target)


# 6. The verdict.


def receptive_field_of(model, row_class):
  """Returns (receptive field, names) of a row class; the last name is that of
  the token that it must predict."""
  x, y, j, m = row_class
  layout = model.layout(x + y, m)
  i = layout.first_output_row + j * (x + y + 1) + x
  is_below_copy = j > 0 and model.task.is_first
  nodes, names = receptive_field(model, layout, i, is_below_copy)
  return nodes, (*names, layout.predicted[i].id)


def row_classes(model):
  """Yields all row classes."""
  task = model.task
  sizes = range(model.class_limit + model.period)
  far = 2 * sum(model.span[:-1]) + 2
  is_small = len(sizes) ** 2 < MAX_CLASSES and far < MAX_ROWS
  require(is_small, f"lines lead too far: {model.span}")
  # Rows (j, m) of a grid: the first; one far from both ends; the end token's;
  # and row 1 if row 0 is an operand, which it may see through row 0.
  grid_rows = [(0, far), (far, 2 * far)] if task.is_grid else [(0, 0)]
  grid_rows += [(far, far)] * task.is_product + [(1, far)] * task.is_first
  for x, y, (j, m) in itertools.product(sizes, sizes, grid_rows):
    last_column, is_end = x + y, task.is_product and j == m
    # Left out: what is shorter than any input; and the end token's row has one
    # column.
    if last_column >= task.min_last_column and not (is_end and x):
      yield x, y, j, m


def receptive_fields(model, contexts):
  """Returns {receptive field: [(row class, names, plans), ...]} of all row
  classes."""
  fields = {}
  for row_class in row_classes(model):
    nodes, names = receptive_field_of(model, row_class)
    plans = [*contexts.plans(row_class, names)]
    fields.setdefault(nodes, []).append((row_class, names, plans))
  return fields


def check_unread(model):
  """Checks that no number overflows in rows that no line leads from: those of a
  prompt and of what comes after the output, functions of their token. Other
  rows have a weight of 0 for them, but 0·∞ is not 0."""
  tokens, places = np.arange(len(model.embedding)), model.task.output + 1
  places = itertools.product(range(places), range(model.period))
  states = [model.embed(tokens, *place) for place in places]
  x, e = map(np.concatenate, zip(*states, strict=True))
  heads = dict.fromkeys(itertools.product(model.sites, range(model.heads)), ())
  for layer in range(model.layers):
    x, e = model.block(layer, x, e, heads, dict.fromkeys(model.sites), True)
  is_finite = np.isfinite(model.normalize(x, e)[1]).all()
  require(is_finite, "rows that no line leads from might overflow")


def check_contexts(model, limit, progress):
  """Evaluates all contexts of a model; returns what `prove` does."""
  contexts, batches, total = Contexts(model), [], 0
  fields = receptive_fields(model, contexts)
  for batch in contexts.of_fields(fields):
    batches.append(batch)
    total += len(batch[1])
    require(total <= limit, f"there are more than {limit:,} contexts")
  require(total, "no input has a context")

  def check(batch):
    """Returns the receptive field, the codes that are not proved, the margins
    of all codes, and the largest bound of one that is proved."""
    nodes, codes = batch
    margins, largest = [], 0.0
    for is_tight in (False, True):
      unproved, share = [codes[:0]], 1 if is_tight else SMALL_SHARE
      for chunk, _, *arrays in evaluate(model, nodes, codes, is_tight):
        proved = (share * arrays[0] > arrays[1]).all(axis=1)
        largest = float(arrays[1][proved].max(initial=largest))
        unproved.append(chunk[~proved])
        if not is_tight:
          margins.append(arrays[0].min(axis=1))
      codes = np.concatenate(unproved)
    return nodes, codes, np.concatenate(margins), largest

  figures = {"contexts": 0, "margin": np.inf, "rounding": 0.0}
  for nodes, codes, margins, largest in THREADS.map(check, batches):
    progress(margins, total)
    figures["contexts"] += len(margins)
    figures["margin"] = float(margins.min(initial=figures["margin"]))
    figures["rounding"] = max(figures["rounding"], largest)
    # The first context that is not proved, if there is one.
    for code, target, *arrays in evaluate(model, nodes, codes[:1], True):
      margin, bound = arrays[0].min(), arrays[1].max()
      row, seen = contexts.describe(code, fields[nodes])
      verdict = "fails" if margin <= 0 else "undecided"
      text = f"{verdict}: rows of class {row} must say {target[0]} after"
      text += f" {seen}: margin {margin:.3g}, rounding {bound:.2g}"
      return figures | {"verdict": verdict, "text": text}
  text = "proved: {contexts:,} contexts, smallest margin {margin:.4g}, rounding"
  text = (text + " at most {rounding:.2g}").format(**figures)
  text += "" if model.is_stated else ", against the transducer of the card"
  return figures | {"verdict": "proved", "text": text}


def prove(
  arrays, config, table, limit=10**9, progress=lambda margins, total: None
):
  """Checks all contexts of a model.

  Args: what the two files of a model have: the arrays of its npz by name, and
  the config and the table of its card; the most contexts that are checked; and
  a function that is called with the margins of some contexts, and the number of
  all, as the work goes on.

  Returns a dict: "verdict" ("proved", "fails", "undecided" or "refused"),
  "text" (a line that begins with the verdict, and names the context that it is
  of, or the condition that is not met) and, unless it is refused, "contexts",
  "margin" (the smallest) and "rounding" (the largest bound of a context that is
  proved). It ends after the first contexts of which one is not proved, and the
  verdict is of the first of these.
  """
  try:
    with np.errstate(all="ignore"):  # an infinite bound proves nothing
      model = Model(arrays, config, table)
      check_unread(model)
      return check_contexts(model, limit, progress)
  except ValueError as error:
    return {"verdict": "refused", "text": f"refused: {error}"}
  except (MemoryError, RecursionError) as error:
    return {"verdict": "refused", "text": f"refused: too large: {error!r}"}
  except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
    return {"verdict": "refused", "text": f"refused: no such model: {error!r}"}


def prove_file(path):
  """Returns what `prove` does, of the model in the file `path` (.npz)."""
  try:
    return prove(*read(path))
  except ValueError as error:
    return {"verdict": "refused", "text": f"refused: {error}"}


if __name__ == "__main__":
  codes = {"proved": 0, "fails": 1, "undecided": 1, "refused": 2}
  paths = sys.argv[1:]
  worst = 0 if paths else 2
  if not paths:
    print("refused: name one or more files MODEL.npz, each beside MODEL.json")
  # Two at a time, because few contexts do not keep two threads busy.
  with concurrent.futures.ProcessPoolExecutor(2) as pool:
    for path, result in zip(paths, pool.map(prove_file, paths), strict=True):
      print(f"{path}: {result['text']}", flush=True)
      worst = max(worst, codes[str(result["verdict"])])
  sys.exit(worst)
