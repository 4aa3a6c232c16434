"""Hunts for models that the checker takes although its lemmas do not hold.

Each draw is a small random model with random lines, a function of its number.
If the checker does not refuse it, then whole inputs, many of them far wider
than the largest sizes that are enumerated, must have in every row the receptive
field of the row's class, one of the contexts that are enumerated for it, and in
the ordinary program the margins that the checker computes for this context:

  python tests/certificate_hunt.py --first=0 --draws=1000
"""

import argparse
import collections
import functools
import sys

import jax
import numpy as np
import untrained

from lengthgen_jax.attention.lines import ANY, LEFT, RIGHT, WHOLE, SiteLines
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import certify, export
from lengthgen_jax.pretrained import files
from lengthgen_jax.proofs import checker
from lengthgen_jax.tasks import dataset
from lengthgen_jax.tasks.local_rules import LocalRule
from lengthgen_jax.tasks.task import Size, drawing

# All batches are padded to one width, so that a form has one program.
WIDEST, WIDEST_GRID = 52, (36, 5)
LARGEST_LIMIT = 30  # of row classes; draws that lead farther are left out
INPUTS, LINES = 4, 3  # of a batch; of a head, at most
TOLERANCE = 1e-3  # of margins, beside the bound, relative to the largest logit
BASE = {"model.num_decoder_layers": 2, "model.num_encoder_layers": 0}
BASE |= {"positions.kind": "none", "copying.alphabet": 3, "modular.p": 3}
BASE |= {"turing.machine": "1RB1LC_1LA0RB", "insertion_sort.alphabet": 3}
BASE |= {"base.source": 3, "base.target": 4}
BASE |= {"dyck.brackets": "()[]", "dyck.bound": 2, "permutations.group": "S3"}
FAMILIES = "encoder_decoder", "decoder_only"
SEGMENTS = {"positions.segments": True}
ALTERNATING = {"arithmetic.aligned": True}


def cyclic(period, anchor):
  """Returns the fields of positions that repeat."""
  fields = {"positions.kind": "sinusoidal", "positions.cyclic_period": period}
  return fields | {"positions.source_anchor": anchor}


# (task, family, config fields). Draws of one form share a compiled program.
SEQUENCES = "successor addition multiply parity copy modular dyck increment"
FORMS = [
  *((task, kind, {}) for task in SEQUENCES.split() for kind in FAMILIES),
  ("permutations", FAMILIES[0], {}),
  ("reverse", FAMILIES[0], {}),
  ("reverse", FAMILIES[1], SEGMENTS),
  ("successor", FAMILIES[0], cyclic(3, "right")),
  ("copy", FAMILIES[0], cyclic(2, "left") | {"model.num_decoder_layers": 1}),
  ("parity", FAMILIES[1], cyclic(2, "left") | SEGMENTS),
  ("addition", FAMILIES[1], SEGMENTS | {"arithmetic.slack": 1}),
  ("modular", FAMILIES[1], {"model.num_decoder_layers": 3}),
  ("addition", FAMILIES[0], ALTERNATING),
  ("addition", FAMILIES[1], ALTERNATING | cyclic(3, "right")),
  ("multiply", FAMILIES[0], ALTERNATING | cyclic(3, "left")),
  ("multiply", FAMILIES[1], ALTERNATING),
  *[("multiply_long", FAMILIES[0], {})] * 3,
  *[("multiply_long", FAMILIES[1], SEGMENTS)] * 2,
  *((task, FAMILIES[0], {}) for task in checker.GRIDS),
  *((task, FAMILIES[1], SEGMENTS) for task in checker.GRIDS),
]


@functools.cache
def form_of(index):
  """Returns (experiment, compiled program, config and table of a card)."""
  task, kind, fields = FORMS[index]
  config = untrained.config(task, kind, BASE | fields)
  experiment = untrained.build(config)
  config.bias.kind = "file"
  lines = random_lines(np.random.default_rng(0), experiment, 0, 0)
  model = Model(experiment, lines, untrained.params(experiment))
  _, settings, table = certify.exported(config, model)
  program = jax.jit(lambda *args: experiment.apply(*args, head=task)[0])
  return experiment, program, settings, table


def random_line(rng, task, keys, reach, wildness):
  """Returns the first five fields of a line to one of the segments `keys`: most
  are like those that calibration finds, and some intercepts as large as
  `reach`; with a probability of `wildness` it is any line at all."""
  axes, output = task.axes, task.target_segment
  pick = lambda *choices: int(rng.choice(choices))
  row, key, anchor = output, pick(*keys), LEFT
  slope, c = np.ones(axes, int), rng.choice([0, 0, 1, -1], axes)
  if key > output:
    slope, c = 0 * slope, 0 * c
  elif key == output:
    c[-1] = -pick(0, 1, 1, 2) if axes == 1 else c[-1]
    c[:-1] = -pick(0, 0, 1)
  elif axes > 1:  # along its axis; a first row is seen from itself alone
    anchor = RIGHT if task.anchor == "right" else LEFT
    slope = np.isin([0, 1], task.segment_axes[key]).astype(int)
    c = c * [0, slope[1]]
    slope[0] |= slope[1] and task.operand_in == "first"
  else:
    anchor = pick(LEFT, RIGHT, RIGHT)
    along = (anchor == LEFT) == (task.anchor == "left")
    slope *= pick(0, 1, 1, 1) * (1 if along else -1)
    slope *= 1 + getattr(task, "interleaved", False)
  if rng.random() < 0.1:
    c[-1] = rng.integers(-reach, reach + 1)
  matrix = np.diag(slope)
  if rng.random() < wildness:
    row, anchor = pick(output, output, ANY, 0), pick(LEFT, RIGHT)
    key = pick(*range(output + 2), *[WHOLE] * (axes == 1))
    matrix = rng.integers(-1, 3, (axes, axes)) * rng.integers(2, size=axes)
    c = rng.integers(-3, 4, axes)
  return row, key, anchor, matrix, c


def random_lines(rng, experiment, reach, wildness):
  """Returns one seed's SiteLines by site; some heads are closed, as after
  pruning. The last arguments are those of `random_line`."""
  task, config, scaffold = experiment.task, experiment.model.config, {}
  shape = config.num_decoder_layers, config.num_heads, LINES
  is_packed, output = experiment.kind == "decoder_only", task.target_segment
  for site in sorted({"self", "cross"} & {*experiment.model.depths}):
    keys = [*range(output)] * 2 * (is_packed or site == "cross")
    keys += [output, output + 1] * (site == "self")
    args, count = (rng, task, keys, reach, wildness), np.prod(shape)
    lines = [random_line(*args) for _ in range(count)]
    fields = [
      np.array(x, np.int32).reshape(*shape, *np.shape(x)[1:])
      for x in zip(*lines, strict=True)
    ]
    value = np.float32(rng.integers(-2, 2, shape) / 2)
    valid = rng.random(shape) < rng.choice([0.4, 0.7])
    valid &= (rng.random(shape[:2]) < 0.85)[..., None]
    is_open = rng.random(shape[:2]) < wildness / 4
    scaffold[site] = SiteLines(*fields, value, valid, is_open)
  return scaffold


def widest(task):
  """Returns the static width of batches."""
  return WIDEST_GRID if task.axes > 1 else WIDEST


def random_inputs(rng, task):
  """Returns parsed inputs of one random size."""
  longest = WIDEST - task.slack
  n, m = int(rng.choice([rng.integers(1, 9), rng.integers(1, longest + 1)])), 0
  if task.axes > 1:
    n, m = (int(rng.integers(1, size + 1)) for size in widest(task))
  if isinstance(task, LocalRule):
    size, keys = Size(np.array([n, m]), np.array([n, m]), (n, m)), range(INPUTS)
    seed = int(rng.integers(1 << 30))
    draws = (drawing(jax.random.key(seed + key)) for key in keys)
    return [(np.asarray(task.draw_items(x, size)), [n, m]) for x in draws]
  high = task.first_item + task.base
  shape = INPUTS, task.operands, max(n, m)
  items = rng.integers(task.first_item, high, shape)
  # Long runs of the greatest digit, over which numbers carry.
  items[rng.random(shape) < rng.choice([0, 0.9], (INPUTS, 1, 1))] = high - 1
  return [(x, [n, m] if m else [n] * task.operands) for x in items]


def draw(number):
  """Returns (random generator, index of the form, Model) of a draw."""
  rng = np.random.default_rng([20261127, number])
  form = int(rng.integers(len(FORMS)))
  reach, wildness = int(rng.choice([0, 1, 3, 6])), rng.choice([0, 0, 0, 0.1])
  experiment, *_ = form_of(form)
  lines = random_lines(rng, experiment, reach, wildness)
  params = untrained.params(experiment, number)
  return rng, form, Model(experiment, lines, params)


def exported(form, model):
  """Returns the arguments of checker.prove."""
  arrays = files.to_arrays(model.params, export.bias_arrays(model))
  return arrays, *form_of(form)[2:]


def hunt(number):
  """Returns what became of a draw: "refused", "left out" or the number of rows
  that were compared.

  Raises:
    AssertionError: the checker takes the model, and a lemma does not hold.
  """
  rng, form, model = draw(number)
  try:
    checked = checker.Model(*exported(form, model))
    if checked.class_limit > LARGEST_LIMIT:
      return "left out"
    checker.receptive_fields(checked, checker.Contexts(checked))
  except ValueError:
    return "refused"
  return compare_inputs(rng, form_of(form), model, checked, number % 2 > 0)


def compare_inputs(rng, form, model, checked, is_tight):
  """Compares the rows of random inputs with their classes; returns how many
  rows there are."""
  experiment, program, *_ = form
  contexts, classes = checker.Contexts(checked), {*checker.row_classes(checked)}
  compared = 0

  @functools.cache
  def field_and_plans(row_class):
    assert row_class in classes, f"{row_class} is no class of rows"
    nodes, names = checker.receptive_field_of(checked, row_class)
    return nodes, [*contexts.plans(row_class, names)]

  for _ in range(3):
    parsed = random_inputs(rng, experiment.task)
    bound = widest(experiment.task)
    batch = batch_of(experiment, parsed, bound)
    logits = np.asarray(program(model.params, model.scaffold, batch), float)
    found = collections.defaultdict(list)
    for i, row, nodes, ids in contexts_of(checked, parsed[0][1], batch):
      shown, plans = field_and_plans(class_of(checked, *row))
      assert nodes == shown, f"row {row} has a receptive field of its own"
      codes = code_of(checked, ids)
      for seen in ids.T.tolist():
        is_known = any(is_run(contexts, plan, seen) for plan in plans)
        assert is_known, f"row {row} has a context that is not enumerated"
      found[nodes] += [*zip(codes, logits[:, i], strict=True)]
    for nodes, rows in found.items():
      compare(checked, nodes, rows, is_tight)
      compared += len(rows)
  return compared


def is_run(contexts, plan, seen):
  """Returns whether a plan has a context with the tokens `seen`."""
  accepting = contexts.arrays[plan.accepting]
  num_states, weight = len(accepting), contexts.radix ** np.arange(len(seen))
  states, code = {0}, plan.code
  for step in plan.steps:
    growth = contexts.growth(plan.short, step)
    is_read = sum(w // weight % contexts.radix for w in step.weights)
    more = sum(seen * weight * is_read)
    after = np.concatenate([growth[q] for q in states] or [[]]).astype(int)
    states = {*(after[after // num_states == more] % num_states).tolist()}
    code += more
  return code == sum(seen * weight) and any(accepting[q] > 0 for q in states)


def batch_of(experiment, parsed, bound):
  """Returns the batch of parsed inputs of one size."""
  width = experiment.task.padded_width(parsed[0][1])
  args = experiment.task, experiment.kind, parsed, width, bound
  return dataset.parsed_batch(*args)


def contexts_of(checked, lengths, batch):
  """Yields (its index, (x, y, j, m), receptive field, the tokens [V, B] of its
  variables) of each row of the output, of a batch of inputs of some lengths."""
  task, (n, *_) = checked.task, lengths
  size = n + task.slack - (not task.marks), 0
  if task.is_grid:
    in_output = np.asarray(batch.rows.segment)[0] == task.num_operands
    ends = np.asarray(batch.rows.left)[0][in_output].max(axis=0)
    size = int(ends[1]), int(ends[0]) + 1 - task.is_product
  layout, values = checked.layout(*size), {}
  tokens = [(layout.keys["self"], batch.inputs)]
  tokens.append((layout.predicted, batch.target))
  if checked.has_source:
    tokens.append((layout.keys["cross"], batch.source))
  for of_site, ids in tokens:
    for token, column in zip(of_site, np.asarray(ids).T, strict=False):
      known = token.id if isinstance(token.id, int) else column
      same = (values.setdefault(token.id, column) == column).all()
      assert same and (known == column).all(), f"{token} is another token"
  rows = [*enumerate(layout.predicted)][layout.first_output_row :]
  for i, token in rows:
    x, j = token.left[-1], token.left[0] if task.is_grid else 0
    row = x, size[0] - x, j, size[1]
    nodes, names = checker.receptive_field_of(checked, row)
    yield i, row, nodes, np.array([values[name] for name in names], int)


def code_of(checked, ids):
  """Returns the codes [B] of tokens [V, B]."""
  radix = len(checked.embedding)
  return (ids * radix ** np.arange(len(ids))[:, None]).sum(axis=0)


def class_of(checked, x, y, j, m):
  """Returns the class of a row: the one of those enumerated that stands for it
  (lemma 1)."""
  limit, period = checked.class_limit, checked.period
  clip = lambda n: n if n < limit else limit + (n - limit) % period
  if m:
    far = 2 * sum(checked.span[:-1]) + 2
    if j == m:
      j, m = far, far
    elif j > checked.task.is_first:
      j, m = far, 2 * far
    else:
      m = far
  return clip(x), clip(y), j, m


def compare(checked, nodes, rows, is_tight):
  """Compares the program's logits in rows [(code, logits [V])] of a receptive
  field with the checker's margins."""
  codes, logits = map(np.array, zip(*rows, strict=True))
  chunks = [*checker.evaluate(checked, nodes, codes, is_tight)]
  _, targets, margins, bounds = map(np.concatenate, zip(*chunks, strict=True))
  own = logits[np.arange(len(targets)), targets][:, None] - logits
  margins[np.isinf(margins)] = 0  # of the target itself
  difference, size = np.abs(own - margins), max(1.0, np.abs(logits).max())
  close = np.minimum(bounds + 1e-5, TOLERANCE * size)
  words = f"margins differ by {difference.max():.2g}"
  assert (difference <= close).all(), words


def main(first, draws):
  """Prints the table of some draws; returns the exit code."""
  table = collections.Counter(draws=draws, disagreements=0)
  for number in range(first, first + draws):
    try:
      outcome = hunt(number)
    except AssertionError as error:
      print(f"draw {number}: {error}", flush=True)
      outcome = "disagreements"
    if isinstance(outcome, int):
      table["rows compared"] += outcome
      outcome = "accepted"
    table[outcome] += 1
  print(dict(table))
  return int(table["disagreements"] > 0)


if __name__ == "__main__":
  parser = argparse.ArgumentParser()
  parser.add_argument("--first", type=int, default=0)
  parser.add_argument("--draws", type=int, default=100)
  sys.exit(main(**vars(parser.parse_args())))
