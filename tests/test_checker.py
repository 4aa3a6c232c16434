"""The checker proves correct models, rejects mutants, and agrees with the
program."""

import collections
import dataclasses
import itertools
import json
import subprocess
import sys
import types

import certificate_hunt as hunt
import checker_fuzz
import elementary_functions
import numpy as np
import pytest

from lengthgen_jax.pretrained import files
from lengthgen_jax.proofs import checker
from lengthgen_jax.proofs.table import table as table_of
from lengthgen_jax.tasks import TASKS

SHIPPED = sorted(files.FOLDER.glob("*.npz"))
LEFT, RIGHT = 0, 1  # anchors of lines


def shipped(name):
  """Arrays, config and table of a model of the package, to be changed."""
  return checker.read(files.FOLDER / f"{name}.npz")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_model(path, monkeypatch):
  """It is proved again; of a large one every context is counted, and about a
  thousand are tried, which is no proof."""
  card = json.loads(path.with_suffix(".json").read_text())
  if card["task"] == "sort":
    assert checker.prove_file(path)["verdict"] == "refused"
    return
  certificate, batches = card["certificate"], checker.Contexts.of_fields
  stride, counts = 1 + certificate["contexts"] // 1100, []

  def some(contexts, fields):
    for nodes, codes in batches(contexts, fields):
      counts.append(len(codes))
      yield nodes, codes[::stride]

  monkeypatch.setattr(checker.Contexts, "of_fields", some)
  report = checker.prove_file(path)
  assert report["verdict"] == "proved", report["text"]
  assert sum(counts) == certificate["contexts"]
  expected = pytest.approx(certificate["margin"], rel=1e-4)
  is_sampled = stride > 1 and report["margin"] > certificate["margin"]
  assert is_sampled or report["margin"] == expected


def renamed(task):
  """A change of the name of the task parity."""

  def change(arrays, config):
    config["task"] = task
    for part in ("kernel", "bias"):
      array = arrays.pop(f"{HEAD}/{part}")
      arrays[f"params/logits_dense_{task}/{part}"] = array

  return change


def test_the_table_of_a_card_is_that_of_a_users_task():
  """Those of the package are stated by the checker, which reads no other."""
  arrays, config, table = shipped("parity")
  verdict = lambda *model: checker.prove(*model)["verdict"]
  assert verdict(arrays, config, None) == "proved"
  arrays, config = dict(arrays), config | {"mine": {"alphabet": 2}}
  renamed("mine")(arrays, config)
  report = checker.prove(arrays, config, table)
  assert report["verdict"] == "proved"
  assert "against the transducer of the card" in report["text"]
  assert verdict(arrays, config, None) == "refused"
  for name, value in {"marks": [11], "direction": 1, "machines": []}.items():
    assert verdict(arrays, config, table | {name: value}) != "proved"
  (machine,) = table["machines"]
  changes = {"short": 1, "next": [[1, 0]] * 2, "accepting": [True, False]}
  for name, value in changes.items():
    changed = table | {"machines": [machine | {name: value}]}
    assert verdict(arrays, config, changed) != "proved"
  # The names of states mean nothing.
  third = {"next": [[0, 1], [1, 2], [2, 1]], "accepting": [True] * 3}
  third["outputs"] = [*machine["outputs"], machine["outputs"][0]]
  same = table | {"machines": [machine | third]}
  assert verdict(arrays, config, same) == "proved"


def test_one_machine_reads_a_first_row_that_is_given():
  """Of two, one might accept a first row that the other does not."""
  _, config, table = shipped("automaton")
  num_tokens = 2 + max(table["start"], table["delimiter"])
  checker.Task(table, num_tokens, True)
  (machine,) = table["machines"]
  table["machines"].append(machine | {"short": num_tokens - 1})
  with pytest.raises(ValueError, match="do not fit"):
    checker.Task(table, num_tokens, True)


def test_sums_have_room_for_their_carry():
  arrays, config, table = shipped("successor")
  config["arithmetic"]["slack"] = 0
  report = checker.prove(arrays, config, table | {"slack": 0})
  assert report["verdict"] == "refused" and "slack" in report["text"]


def test_contexts_are_tried_few_at_a_time(monkeypatch):
  """Together they are all, which are counted before the first is tried."""
  model, calls = shipped("increment"), []
  certificate = files.read("increment")[0]["certificate"]
  monkeypatch.setattr(checker, "BATCH_SIZE", 30)
  progress = lambda margins, total: calls.append((margins, total))
  report = checker.prove(*model, progress=progress)
  assert report["contexts"] == certificate["contexts"]
  assert report["margin"] == pytest.approx(certificate["margin"], rel=1e-4)
  assert {total for _, total in calls} == {report["contexts"]}
  margins = np.concatenate([margins for margins, _ in calls])
  assert len(margins) == report["contexts"]
  assert margins.min() == report["margin"]
  assert max(len(margins) for margins, _ in calls) <= 30


# Mutants of a model that finds the parity of bits: changes of (arrays, config),
# by name.


def entry(name, index, value):
  """A change of some entries of an array."""

  def change(arrays, config):
    arrays[name][index] = value

  return change


def edited(name, function):
  """A change of an array, of which the function returns the new one."""
  return lambda arrays, _: arrays.update({name: function(arrays.get(name))})


def line(site="cross", heads=(1, 6), indices=(0, 1), **fields):
  """A change of lines of the first layer; by default of those, one in each of
  two heads, that lead to a row's own bit."""

  def change(arrays, config):
    for name, value in fields.items():
      arrays[f"lines/{site}_{name}"][:, 0, heads, indices] = value

  return change


def second_line(**fields):
  """A change that adds a line to all heads of the first layer, stronger than
  all others; by default it leads to a row's own bit."""
  own = {"row_segment": 1, "segment": 0, "anchor": RIGHT, "matrix": 1}
  own |= {"intercept": 0, "value": 50.0, "valid": True}

  def change(arrays, config):
    for name in own:
      x = arrays[f"lines/cross_{name}"]
      more = np.zeros_like(x[:, :, :, :1])
      arrays[f"lines/cross_{name}"] = np.concatenate([x, more], axis=3)
    line(heads=slice(None), indices=-1, **(own | fields))(arrays, config)

  return change


def setting(section="", **fields):
  """A change of a section of the config, or of the config itself."""
  part = lambda config: config[section] if section else config
  return lambda _, config: part(config).update(fields)


def all_of(*changes):
  """A change that is several ones."""
  return lambda *model: [change(*model) for change in changes]


EMBEDDING = "params/token_embedder/embedding"
HEAD = "params/logits_dense_parity"
NORM = "params/decoder_norm/scale"
WO = "params/decoder_0/mlp/wo/kernel"
VALUE = "params/decoder_0/self_attention/value"
CROSS_VALUE = "params/decoder_0/cross_attention/value/kernel"
copied_token = lambda x: x[[1, *range(1, len(x))]]
FAILS = {
  "a token like another": edited(EMBEDDING, copied_token),
  "another task": renamed("successor"),
  "an output that is always preferred": entry(f"{HEAD}/bias", 3, 99),
  "a line one column to the left": line(intercept=1),
  "a line to one column for all rows": line(matrix=0),
  "a stronger line far to the left": second_line(intercept=7),
  "a stronger line far to the right": second_line(intercept=-7),
  "the other end's column": second_line(anchor=LEFT, matrix=0, intercept=7),
  "swapped values of heads": edited(CROSS_VALUE, lambda x: np.flip(x, 1)),
}
# Weights that a processor may take for zero.
UNDECIDED = all_of(
  edited(NORM, lambda x: np.float32(x * 2.0**14)),
  edited(f"{HEAD}/kernel", lambda x: np.float32(x.astype(float) * 2**-140)),
  edited(f"{HEAD}/bias", np.zeros_like),
)
first_feature = lambda x: x[..., :1]
REFUSED = {
  # PAD, which no row reads, has a constant state: its deviation is nothing
  # beside its mean, so that rounding can turn it into anything.
  "what no row reads overflows": entry(EMBEDDING, 14, 2.0**15),
  "a line for rows of the prompt alone": line(row_segment=0),
  "a line too far for its row classes": second_line(intercept=1000),
  "a closed head is opened": entry("lines/cross_transparent", (0, 0, 1), True),
  "a line against the digits": line(anchor=LEFT),
  "a steeper line": line(matrix=2),
  "a line over the whole sequence": line(segment=-2),
  "a line from the output's end": line(
    site="self", valid=True, segment=1, anchor=RIGHT
  ),
  "a bias that is no number": line(value=np.nan),
  "lines without a meta": lambda arrays, _: arrays.pop("lines/meta"),
  "lines of another seed": setting(seeds=[9]),
  # numpy takes the byte 2 for True, XLA for False.
  "truth values of other bytes": edited(
    "lines/cross_valid", lambda x: (2 * x.view(np.uint8)).view(bool)
  ),
  "a task without a proof": renamed("parity_classification"),
  "lines in int8": edited("lines/cross_intercept", lambda x: x.astype("i1")),
  "lines to broadcast": edited("lines/cross_value", lambda x: x[:, :, :1]),
  "values of another head size": all_of(
    *(edited(f"{VALUE}/{x}", first_feature) for x in ("kernel", "bias"))
  ),
  "an unknown parameter": edited("params/x", lambda _: np.float32([1])),
  "a parameter that is no number": entry(WO, (0, 0), np.nan),
  "a field in another section": setting(train={"bias.closed": -9.0}),
  "an unknown section": setting(experts={}),
  "hints": setting(hints=["carry"]),
  "another normalizer": setting("attention", normalizer="entmax"),
  "no position is named": lambda _, config: config["positions"].pop("kind"),
  "a number where there is a truth value": setting("bias", allow_leak=0),
  "closed cells are open a little": setting("bias", closed=-9.0),
  "sinusoids": setting("positions", kind="sinusoidal"),
  "a fixed width": setting("data", width="fixed"),
  "an encoder": setting("model", num_encoder_layers=1),
  "a setting of a later version": setting("model", experts=4),
  "another number of heads": setting("model", num_heads=4),
  "one layer more": setting("model", num_decoder_layers=3),
}
MUTANTS = {name: ("fails", change) for name, change in FAILS.items()}
MUTANTS |= {name: ("refused", change) for name, change in REFUSED.items()}
MUTANTS["weights that may be zero"] = "undecided", UNDECIDED


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_not_proved(name):
  (expected, change), (arrays, config, table) = MUTANTS[name], shipped("parity")
  change(arrays, config)
  report = checker.prove(arrays, config, table)
  assert report["verdict"] == expected, report["text"]
  assert "\n" not in report["text"]


def test_a_line_too_far_for_the_rows_of_a_grid_is_refused():
  arrays, config, table = shipped("automaton")
  i, *_ = np.argwhere(arrays["lines/self_valid"])
  start = dict(segment=3, anchor=LEFT, matrix=0)
  for name, value in (start | {"intercept": [1000, 0]}).items():
    arrays[f"lines/self_{name}"][tuple(i)] = value
  report = checker.prove(arrays, config, table)
  assert "lines lead too far" in report["text"]


def test_the_layout_of_operands_is_a_condition_and_one_operand_has_one():
  for task, verdict in (("addition", "refused"), ("parity", "proved")):
    arrays, config, table = shipped(task)
    config["arithmetic"]["aligned"] = True
    report = checker.prove(arrays, config, table)
    assert report["verdict"] == verdict, report["text"]


def test_a_damaged_file_is_refused(tmp_path):
  path, (arrays, config, table) = tmp_path / "model.npz", shipped("parity")
  checker_fuzz.write(path, arrays, {"config": config, "table": table})
  assert checker.prove_file(path)["verdict"] == "proved"
  content = path.read_bytes()
  other = (files.FOLDER / "copy.npz").read_bytes()
  for damaged in (content[:-100], other, b"no arrays"):
    path.write_bytes(damaged)
    assert checker.prove_file(path)["verdict"] == "refused"
  path.write_bytes(content)
  path.with_suffix(".json").unlink()
  assert checker.prove_file(path)["verdict"] == "refused"


def test_the_script_runs_alone_and_exits_by_the_worst_verdict(tmp_path):
  right, wrong = files.FOLDER / "parity.npz", tmp_path / "wrong.npz"
  arrays, config, table = shipped("parity")
  FAILS["an output that is always preferred"](arrays, config)
  checker_fuzz.write(wrong, arrays, {"config": config, "table": table})

  def run(*arguments):
    command = [sys.executable, "-I", checker.__file__, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

  completed = run(right)
  assert completed.returncode == 0
  assert "proved: 10 contexts" in completed.stdout
  completed = run(right, wrong)
  assert completed.returncode == 1
  verdicts = [x.split(": ")[1] for x in completed.stdout.splitlines()]
  assert verdicts == ["proved", "fails"]
  assert run(right, tmp_path / "missing.npz").returncode == 2


# The tasks, and what rows may see.


@pytest.mark.parametrize(("sees_last", "period"), [(False, 1), (True, 2)])
def test_contexts_of_all_sizes(sees_last, period):
  """For random transducers that accept some of their states, and rows that see
  the first column, two around them and maybe the last; if positions have a
  period, for all sizes of one phase."""
  rng, num_states, limit = np.random.default_rng(0), 4, 6
  last = lambda size: size + (size >= limit) * period * num_states
  sizes_of = lambda size: range(size, last(size) + 1, period)

  def seen_by(x, y):
    variables = [("in", 0, 0), ("in", 0, x), ("out", x - 1)]
    variables += [("in", 0, x + y)] if sees_last else []
    return tuple(dict.fromkeys(v for v in variables if v[-1] >= 0))

  def runs_of(transducer, x, y):
    """The codes of all runs over x + y + 1 columns that are accepted."""
    weights = {v: 2**i for i, v in enumerate((*seen_by(x, y), ("out", x)))}
    pairs = {(0, 0)}
    for p in range(x + y + 1):
      weight_in, weight_out = (
        weights.get(v, 0) for v in (("in", 0, p), ("out", p))
      )
      added = weight_in * np.arange(2) + weight_out * transducer.outputs
      pairs = {
        (code + added[state, symbol], transducer.next_states[state, symbol])
        for code, state in pairs
        for symbol in (0, 1)
      }
    return {code for code, state in pairs if transducer.accepting[state]}

  for counts in (True, False, True, False):  # columns, modulo num_states
    counter = (np.arange(num_states)[:, None] + [1, 1]) % num_states
    random = rng.integers(num_states, size=(num_states, 2))
    transducer = checker.Transducer(
      np.array([[0], [1]]),
      counter if counts else random,
      rng.integers(2, size=(num_states, 2)),
      rng.random(num_states) < 0.5,
    )

    def columns(x, y):
      every_symbol = np.array([True, True])
      variables = ((("in", 0, p), ("out", p)) for p in range(x + y + 1))
      return [(None, {})], [(every_symbol, v) for v in variables]

    model = types.SimpleNamespace(
      embedding=[0, 1], span=[1], class_limit=limit, period=period
    )
    model.task = types.SimpleNamespace(columns=columns)
    model.task.transducers = {None: transducer}
    contexts = checker.Contexts(model)
    for x, y in itertools.product(range(limit + period), repeat=2):
      plans = [*contexts.plans((x, y), (*seen_by(x, y), ("out", x)))]
      codes = np.concatenate([*map(contexts.run, plans)])
      sizes = itertools.product(sizes_of(x), sizes_of(y))
      expected = set().union(*(runs_of(transducer, *size) for size in sizes))
      assert sorted(codes.tolist()) == sorted(expected), (x, y)


def test_lines_to_the_short_operand_of_a_grid():
  """From b's left end against the rows, a line opens `*` in row 0 alone, so
  that row 1 sees what no row of the enumerated classes sees. A line that all
  rows have to `*` reads one embedding, but to the digit beside it a variable,
  and above the first layer of a single sequence the state of a row."""
  model = checker.Model(*shipped("multiply_long"))

  def is_covered(anchor, slope, row=0):
    line = checker.Line(2, 1, anchor, [[slope, 0], [0, 0]], [row, 0], 0.0)
    return checker.is_covered(model, line)

  assert is_covered(RIGHT, 1)
  assert not is_covered(LEFT, -1)
  assert is_covered(LEFT, 0)
  assert not is_covered(LEFT, 0, row=1)
  assert not is_covered(RIGHT, 0)


# The ordinary program.


def same_tables(table, config, num_tokens) -> bool:
  """Whether a table has the layout of the task that a config names, one of
  checker.STATED, and its machines the same outputs and accepting states for all
  sequences of symbols: states may have other numbers.

  The table has to fit `num_tokens`, the size of a model's vocabulary.
  """
  stated = checker.stated_table(config)
  names = {*stated} - {"machines"}
  is_same = all(table.get(name) == stated[name] for name in names)
  # A wrong table whose rows could not follow one another is refused.
  try:
    tasks = [checker.Task(x, num_tokens, True) for x in (table, stated)]
  except ValueError:
    return False
  own, other = (task.transducers for task in tasks)
  is_same &= [*own] == [*other]
  for digit, transducer in own.items() if is_same else ():
    known, pairs = {(0, 0)}, [(0, 0)]  # machines begin in state 0
    for p, q in pairs:  # grows while it is read
      is_same &= transducer.accepting[p] == other[digit].accepting[q]
      is_same &= (transducer.outputs[p] == other[digit].outputs[q]).all()
      rows = transducer.next_states[p], other[digit].next_states[q]
      new = {*zip(*(row.tolist() for row in rows), strict=True)} - known
      pairs += new
      known |= new
  return is_same


# Fields of tasks, besides the default of each.
OTHERS = [
  ("automaton", {"rule": 30}),
  ("turing", {"machine": "0LB1RA2RA_2RZ2RZ1LB"}),
  ("insertion_sort", {"alphabet": 4}),
  ("base", {"source": 3, "target": 5}),
  ("divide", {"divisor": 3}),
  ("dyck", {"brackets": "()[]{}", "bound": 2}),
]
STATED = [(name, {}) for name in checker.STATED.split()] + OTHERS


@pytest.mark.parametrize(("name", "fields"), STATED)
def test_the_tasks_are_the_programs(name, fields):
  task = TASKS[name](**fields)
  config = {"task": name, task.section: dataclasses.asdict(task)}
  num_tokens = max(task.vocab_size, task.delimiter + 1)
  assert same_tables(table_of(task), config, num_tokens)


def test_halving_is_by_two_whatever_a_card_says():
  task = TASKS["divide"](divisor=3)
  config = {"task": "halving", "halving": {"divisor": 3}}
  assert not same_tables(table_of(task), config, task.vocab_size)


# Draws of the hunt that are accepted, the first with a source. Together they
# have both families, grids, segments, interleaved operands, and positions that
# repeat.
DRAWS = 85, 53, 52, 30


@pytest.mark.parametrize("number", DRAWS)
def test_the_checker_agrees_with_the_program(number):
  assert hunt.hunt(number) > 50


# The bounds on rounding.


@pytest.fixture
def model():
  """A small model that nobody trained."""
  _, form, untrained_model = hunt.draw(DRAWS[0])
  return checker.Model(*hunt.exported(form, untrained_model))


def largest_change(function, x, e):
  """Returns the largest change of a function of hidden states x [S, D] that all
  move by e, among the leading singular directions of its Jacobian."""
  steps = 1e-6 * np.eye(x.size).reshape(-1, *x.shape)
  moves = [(function(x + s) - function(x - s)).ravel() for s in steps]
  _, _, directions = np.linalg.svd(np.array(moves).T)
  directions = directions[:3].reshape(3, *x.shape)
  directions /= np.linalg.norm(directions, axis=2, keepdims=True)
  return max(
    np.linalg.norm(function(x + sign * e * d) - function(x))
    for d in directions
    for sign in (-1, 1)
  )


@pytest.mark.parametrize("e", [1e-5, 3e-2])
def test_the_bounds_hold_in_the_worst_directions(e, model):
  """An error of a layer's inputs never changes its outputs by more than the
  bound, and by a fifth of it or more in the worst direction."""
  rng, zero = np.random.default_rng(1), np.zeros(1)
  target, attention = np.array([3]), "decoder_0/cross_attention"
  ratios = collections.defaultdict(list)

  def read(x, e, states, states_e, heads):
    """Attention of row x to keys that have one hidden state each."""
    values = [model.key_value(0, "cross", y[None], states_e) for y in states]
    keys = {k: (value, slice(None)) for k, value in enumerate(values)}
    return [y[0] for y in model.attend(attention, x, e, heads, keys)]

  for count in (1, 2, 4) * 2:
    x, key, *others = rng.normal(size=(4, 1, 16))
    some = np.concatenate([key, *others])
    # Several keys of the first head and another of the second are rounded each
    # in its own way, even where they are one hidden state.
    same = np.repeat(key, count + 1, axis=0)
    own = [(0.0, k) for k in range(count)], [(0.0, count)]
    mixed = [(0.3, 0), (0.0, 1)], [(0.0, 1), (0.2, 2)]
    margins = lambda x, e: [y[0, 4:5] for y in model.margins(x, e, target)]
    functions = {
      "queries": (x, lambda x, e, y=some, h=mixed: read(x, e, y, zero, h)),
      "keys": (same, lambda y, e, x=x, h=own: read(x, zero, y, e, h)),
      "mlp": (x, lambda x, e: model.mlp("decoder_0/mlp", x, e, False)),
      "tight mlp": (x, lambda x, e: model.mlp("decoder_0/mlp", x, e, True)),
      "normalize": (x, model.normalize),
      "margins": (x, margins),
    }
    for name, (states, function) in functions.items():
      change = largest_change(lambda y, f=function: f(y, zero)[0], states, e)
      ratios[name].append(change / function(states, np.array([e]))[1])
    assert ratios["tight mlp"][-1] >= ratios["mlp"][-1]
  for name, values in ratios.items():
    assert max(values) <= 1, name
    assert e < 1e-4 or max(values) > 0.2, (name, max(values))


def test_hidden_states_that_might_overflow_have_no_bound(model):
  x, zero = np.random.default_rng(1).normal(size=(1, 16)), np.zeros(1)
  assert np.isfinite(model.normalize(2.0**39 * x, zero)[1])
  assert np.isinf(model.normalize(2.0**41 * x, zero)[1])


def rounded(x, bits=16):
  """Rounds to `bits` significant bits."""
  mantissa, exponent = np.frexp(x)
  return np.ldexp(np.round(mantissa * 2.0**bits), exponent - bits)


def sum_in_order(terms):
  """A sum along the last axis, term by term, each result rounded."""
  total = np.zeros(terms.shape[:-1])
  for i in range(terms.shape[-1]):
    total = rounded(total + rounded(terms[..., i]))
  return total


def test_the_bounds_hold_for_coarse_arithmetic(model, monkeypatch):
  """Hidden states that are computed with every operation rounded to 16 bits
  stay within the bounds for that unit of rounding."""
  monkeypatch.setattr(checker, "UNIT", 2.0**-16)
  x = rounded(np.random.default_rng(2).normal(size=(20, 16)))
  model.params.update({y: rounded(z) for y, z in model.params.items()})
  states = model.normalize(x, np.zeros(20))

  def norm(name, x):
    scale, bias = (model.params[f"{name}/{s}"] for s in ("scale", "bias"))
    mean = rounded(sum_in_order(x) / 16)
    square = rounded(sum_in_order(x * x) / 16)
    variance = rounded(square - rounded(mean * mean))
    factor = rounded(1 / np.sqrt(rounded(variance + 1e-6)))[:, None]
    y = rounded(rounded(x - mean[:, None]) * rounded(factor * scale))
    return rounded(y + bias)

  dense = lambda name, x: rounded(
    sum_in_order(x[:, None] * model.params[f"{name}/kernel"].T)
    + model.params[f"{name}/bias"]
  )
  y = dense(model.output_head, norm("decoder_norm", x))
  exact, bound = model.dense(model.output_head, *states)
  _, _, norms, _ = model.dense_weights(model.output_head)
  change = np.linalg.norm(y - exact[:, 0], axis=1)
  assert (change <= checker.l2(bound[:, 0]) + norms * states[1]).all()

  hidden = dense("decoder_0/mlp/wi", norm("decoder_0/pre_mlp_layer_norm", x))
  y = dense("decoder_0/mlp/wo", np.maximum(hidden, 0))
  for is_tight in (False, True):
    exact, bound = model.mlp("decoder_0/mlp", *states, is_tight)
    change = np.linalg.norm(y - exact, axis=1)
    assert (change <= bound).all() and (change > 1e-3 * bound).all()


@pytest.mark.parametrize("name", elementary_functions.TRIALS)
def test_functions_are_as_accurate_as_is_assumed(name):
  assert 0 < elementary_functions.largest_error(name, 9973) <= checker.ULPS


def test_what_is_proved_of_damaged_files_is_right(monkeypatch):
  monkeypatch.setattr(checker_fuzz, "LENGTHS", (13,))
  table = checker_fuzz.hunt(18, 4)
  assert not table["proved and wrong"], table
  # The draws are of both kinds: files that are refused, and others.
  assert table["refused"] > 2 and table["proved and right"] > 0
