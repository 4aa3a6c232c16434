"""The checker proves correct models, rejects mutants, and agrees with the
program."""

import functools
import hashlib
import itertools
import json
import pathlib
import subprocess
import sys
import types

import certificate_hunt as hunt
import elementary_functions
import numpy as np
import pytest
import untrained

from lengthgen_jax.attention.lines import SiteLines
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import export
from lengthgen_jax.pretrained import files
from lengthgen_jax.proofs import checker
from lengthgen_jax.proofs.table import table as table_of

SHIPPED = sorted(files.FOLDER.glob("*.npz"))
FAMILIES = "encoder_decoder", "decoder_only"
LEFT, RIGHT = 0, 1  # anchors of lines
WI, WO = "params/decoder_0/mlp/wi/kernel", "params/decoder_0/mlp/wo/kernel"
EMBEDDING = "params/token_embedder/embedding"


# Models, as arrays and a card.


def write(folder, model, name="model"):
  """Writes a model (arrays, config, table); returns the path of its npz."""
  arrays, config, table = model
  path = pathlib.Path(folder) / f"{name}.npz"
  np.savez(path, **arrays)
  digest = hashlib.sha256(path.read_bytes()).hexdigest()
  card = {"config": config, "table": table, "sha256": digest}
  path.with_suffix(".json").write_text(json.dumps(card), encoding="utf-8")
  return path


def task_of(config):
  """The task that a config names, as the checker states it."""
  has_source = config["model"]["kind"] == "encoder_decoder"
  return checker.make_task(checker.stated_table(config), 256, has_source)


def closed_model(task, kind="encoder_decoder", **fields):
  """A model that nobody trained, with random parameters and one layer, whose
  heads are closed, with some fields of the section `model`."""
  fields = {f"model.{name}": value for name, value in fields.items()}
  fields = hunt.BASE | {"model.num_decoder_layers": 1} | fields
  config = untrained.config(task, kind, fields)
  experiment = untrained.build(config)
  shape = 1, experiment.model.config.num_heads, 1
  lines = SiteLines(
    **{
      name: np.zeros(shape[: 3 - (name == "transparent")] + (1,) * axes, dtype)
      for name, (dtype, axes) in checker.FIELDS.items()
    }
  )
  sites = ("self", "cross") if kind == "encoder_decoder" else ("self",)
  scaffold = dict.fromkeys(sites, lines)
  model = Model(experiment, scaffold, untrained.params(experiment))
  arrays = files.to_arrays(model.params, export.bias_arrays(model))
  config.bias.kind, config.seeds = "file", (0,)
  settings = json.loads(json.dumps(config.to_dict(), default=list))
  arrays = {name: np.array(array) for name, array in arrays.items()}
  return arrays, settings, table_of(experiment.task)


@functools.cache
def table_model(task, kind):
  """A model that is right by construction, of a task whose output is a function
  of the previous output and of the token in the same column.

  Its hidden states are E(previous output) + shifted E(token); each hidden unit
  of its MLP stands for a pair of these and writes the output of the pair.
  """
  arrays, config, _ = closed_model(task, kind)
  count, stated_task = len(arrays[EMBEDDING]), task_of(config)
  transducer, first_token = stated_task.transducers[None], stated_task.first
  pairs, to_visit = {}, [(0, first_token)]
  for state, previous in to_visit:  # grows while it is read
    for symbol, (token,) in enumerate(transducer.symbols.tolist()):
      output = int(transducer.outputs[state, symbol])
      pairs[previous, token] = output
      after = int(transducer.next_states[state, symbol]), output
      to_visit += [] if after in to_visit else [after]
  # The last column of numbers holds `$`, and its output is the end.
  for previous, _ in [*pairs] if stated_task.marks else ():
    pairs[previous, stated_task.marks[0]] = checker.END
  size, third = 6 * count, 2 * count
  fields = {"emb_dim": size, "mlp_dim": len(pairs), "num_heads": 2}
  arrays, config, table = closed_model(task, kind, **fields)
  for name, array in arrays.items():
    if name.startswith("params/"):
      array[:] = name.endswith("scale")
  # Each feature and its negative, so that layer normalization subtracts 0.
  sign = np.concatenate([np.eye(count), -np.eye(count)], axis=1)
  arrays[EMBEDDING][:, :third] = sign
  # Of two heads, each with half of the features, the first writes the features
  # of the token in the same column into the second third of the state.
  # Self-attention reads keys whose norm is larger after normalization than in
  # the embedding, so what it writes is scaled back.
  site = "cross" if kind == "encoder_decoder" else "self"
  path, features = f"params/decoder_0/{site}_attention", range(third)
  arrays[f"{path}/value/kernel"][features, 0, features] = 1.0
  shrink = 1.0 if site == "cross" else (2 / size) ** 0.5
  arrays[f"{path}/out/kernel"][0, features, range(third, 2 * third)] = shrink
  # A feature that is 1 before normalization is this afterwards.
  active = (size / 4) ** 0.5
  for i, ((previous, token), output) in enumerate(pairs.items()):
    arrays[WI][[previous, third + token], i] = 1.0
    arrays[WO][i, 2 * third :] = 4 * sign[output] / active
  arrays["params/decoder_0/mlp/wi/bias"][:] = -1.5 * active
  arrays[f"params/logits_dense_{task}/kernel"][2 * third :] = sign.T
  anchor = RIGHT if stated_task.directions[0][0] < 0 else LEFT
  same_column = stated_task.num_operands, 0, anchor, 1, 0, 0.0, True
  names = *checker.Line._fields, "valid"
  for name, value in zip(names, same_column, strict=True):
    arrays[f"lines/{site}_{name}"][0, 0, 0] = value
  return arrays, config, table


def check_changed(folder, task="parity", kind="encoder_decoder", change=None):
  """The checker's report on a model that `change` has changed."""
  arrays, config, table = table_model(task, kind)
  arrays = {name: x.copy() for name, x in arrays.items()}
  config = json.loads(json.dumps(config))
  if change is not None:
    change(arrays, config)
  return checker.prove_file(write(folder, (arrays, config, table)))


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("task", ["reverse", "dyck", "parity"])
def test_what_is_right_by_construction_is_proved(tmp_path, task, kind):
  report = check_changed(tmp_path, task, kind)
  assert report["verdict"] == "proved", report
  assert report["margin"] > 100 * report["rounding"] > 0


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_model(path, monkeypatch):
  """It is proved again; of the largest ones, whose proofs take seconds, every
  context is counted and one of fifty is tried, which is no proof."""
  card = json.loads(path.with_suffix(".json").read_text())
  if card["task"] == "sort":
    assert checker.prove_file(path)["verdict"] == "refused"
    return
  certificate, batches = card["certificate"], checker.Contexts.batches
  is_large, counts = certificate["contexts"] > 50_000, []

  def some(contexts, plans):
    for codes in batches(contexts, plans):
      counts.append(len(codes))
      yield codes[::50] if is_large else codes

  monkeypatch.setattr(checker.Contexts, "batches", some)
  report = checker.prove_file(path)
  assert report["verdict"] == "proved", report["text"]
  # Each is counted before the first is tried, and when it is tried.
  assert sum(counts) == 2 * certificate["contexts"]
  if is_large:
    assert report["margin"] >= certificate["margin"]
  else:
    expected = pytest.approx(certificate["margin"], rel=1e-4)
    assert report["margin"] == expected


def renamed(task):
  """A change of the name of the task parity."""

  def change(arrays, config):
    config["task"] = task
    for part in ("kernel", "bias"):
      array = arrays.pop(f"{HEAD}/{part}")
      arrays[f"params/logits_dense_{task}/{part}"] = array

  return change


def test_the_table_of_a_card_is_the_task(tmp_path):
  """A task that the checker states must have its table; another one is proved
  against that of the card."""
  arrays, config, table = table_model("parity", "encoder_decoder")
  verdict = lambda *model: checker.prove(*model)["verdict"]
  assert verdict(arrays, config, table) == "proved"
  assert verdict(arrays, config, None) == "refused"
  arrays, mine = dict(arrays), dict(config)
  mine["mine"] = {"alphabet": 2}
  renamed("mine")(arrays, mine)
  report = checker.prove(arrays, mine, table)
  assert report["verdict"] == "proved"
  assert "against the transducer of the card" in report["text"]
  original = table_model("parity", "encoder_decoder")[0]
  for name, value in {"slack": 3, "marks": [11], "direction": 1}.items():
    assert verdict(original, config, table | {name: value}) == "refused"
  for name, value in {"short": 1, "next": [[1, 0], [1, 0]]}.items():
    (machine,) = table["machines"]
    changed = table | {"machines": [machine | {name: value}]}
    assert verdict(original, config, changed) == "refused"
    assert verdict(arrays, mine, changed) != "proved"
  # The names of states mean nothing.
  (machine,) = table["machines"]
  third = {"next": [[0, 1], [1, 2], [2, 1]], "accepting": [True] * 3}
  third["outputs"] = [*machine["outputs"], machine["outputs"][0]]
  same = table | {"machines": [machine | third]}
  assert verdict(original, config, same) == "proved"


def test_memory_does_not_grow_with_the_contexts(monkeypatch):
  """Contexts that are found few at a time are all of them, and are counted
  before the first is tried."""
  model, calls = checker.read(files.FOLDER / "increment.npz"), []
  expected = checker.prove(*model)
  monkeypatch.setattr(checker, "BATCH_SIZE", 30)
  progress = lambda margins, total: calls.append((margins, total))
  report = checker.prove(*model, progress=progress)
  assert report["contexts"] == expected["contexts"]
  assert report["margin"] == pytest.approx(expected["margin"])
  assert {total for _, total in calls} == {report["contexts"]}
  margins = np.concatenate([margins for margins, _ in calls])
  assert len(margins) == report["contexts"]
  assert margins.min() == report["margin"]
  assert max(len(margins) for margins, _ in calls) < 100
  calls.clear()
  limited = checker.prove(*model, report["contexts"] - 1, progress)
  assert limited["verdict"] == "refused" and not calls


# Mutants: changes of (arrays, config), by name.


def entry(name, index, value):
  """A change of some entries of an array."""

  def change(arrays, config):
    arrays[name][index] = value

  return change


def edited(name, function):
  """A change of an array, of which the function returns the new one; None if
  there is to be none."""

  def change(arrays, config):
    array = function(arrays.pop(name, None))
    arrays.update({name: array} if array is not None else {})

  return change


def line(index=0, site="cross", head=0, **fields):
  """A change of a line."""

  def change(arrays, config):
    for name, value in fields.items():
      arrays[f"lines/{site}_{name}"][:, :, head, index] = value

  return change


def second_line(**fields):
  """A change that opens a second line in the first head, stronger than the
  first."""

  def change(arrays, config):
    for name in (*checker.Line._fields, "valid"):
      x = arrays[f"lines/cross_{name}"]
      arrays[f"lines/cross_{name}"] = np.concatenate([x, x], axis=3)
    line(1, value=50.0, **fields)(arrays, config)

  return change


def setting(section="", **fields):
  """A change of a section of the config, or of the config itself."""

  def change(arrays, config):
    (config[section] if section else config).update(fields)

  return change


# Of an axis that is turned around, of another type, and of an array left out.
flipped = lambda name, axis: edited(name, lambda x: np.flip(x, axis))
cast = lambda name, dtype: edited(name, lambda x: x.astype(dtype))
drop = lambda name: edited(name, lambda x: None)


def all_of(*changes):
  """A change that is several ones."""

  def change(arrays, config):
    for each in changes:
      each(arrays, config)

  return change


def repeated(prefix, axis, count):
  """A change of all lines whose names have a prefix: along an axis, they have
  the first `count` entries of themselves, repeated."""

  def change(arrays, config):
    for name, x in arrays.items():
      if name.startswith(prefix) and x.ndim:
        twice = np.concatenate([x, x], axis)
        arrays[name] = np.take(twice, range(count), axis)

  return change


SEGMENT_EMBEDDING = "params/segment_embedder/embedding"
HEAD = "params/logits_dense_parity"
NORM = "params/decoder_norm/scale"
VALUE = "params/decoder_0/self_attention/value"
CROSS_VALUE = "params/decoder_0/cross_attention/value/kernel"
FAILS = {
  "the answer of one context": flipped(WO, 0),
  "one pair of tokens is not seen": entry(WO, 0, 0.0),
  "the end token's answer": entry(WO, -2, 0.0),
  "a token like another": edited(
    EMBEDDING, lambda x: x[[1, *range(1, len(x))]]
  ),
  "a start token like a bit": entry(EMBEDDING, (12, 12), -1.0),
  "an output that is always preferred": entry(f"{HEAD}/bias", 3, 99),
  "a norm of zeros": entry(NORM, ..., 0),
  "a line one column to the left": line(intercept=1),
  "a line to one column for all rows": line(matrix=0),
  "a stronger line far to the left": second_line(intercept=12),
  "a stronger line far to the right": second_line(intercept=-12),
  "a column that only wide numbers have": second_line(matrix=0, intercept=14),
  "a column from the other end": second_line(
    anchor=LEFT, matrix=0, intercept=13
  ),
  "swapped heads": all_of(
    *(flipped(f"lines/cross_{x}", 2) for x in (*checker.Line._fields, "valid"))
  ),
  "swapped values of heads": flipped(CROSS_VALUE, 1),
}
# Weights that a processor may take for zero.
UNDECIDED = all_of(
  edited(NORM, lambda x: np.float32(x * 2.0**15)),
  edited(f"{HEAD}/kernel", lambda x: np.float32(x.astype(float) * 2**-140)),
)
REFUSED = {
  "states far from zero, which float32 rounds": edited(
    EMBEDDING, lambda x: x + np.float32(6e4)
  ),
  "a state that overflows": all_of(
    *(edited(x, lambda x: x * np.float32(2**100)) for x in (EMBEDDING, WO))
  ),
  # PAD, which no row reads, has a constant state: its deviation is nothing
  # beside its mean, so that rounding can turn it into anything.
  "what no row reads overflows": entry(EMBEDDING, 14, 2.0**15),
  "a line for rows of the prompt alone": line(row_segment=0),
  "a line too far for its row classes": second_line(intercept=1000),
  "a closed head is opened": entry("lines/cross_transparent", (0, 0, 1), True),
  "a line against the digits": line(anchor=LEFT),
  "a steeper line": line(matrix=2),
  "a line that has no whole numbers": edited(
    "lines/cross_intercept", lambda x: x + 0.5
  ),
  "a line over the whole sequence": line(segment=-2),
  "a line from the output's end": line(
    site="self", valid=True, segment=1, anchor=RIGHT
  ),
  "a bias that is no number": line(value=np.nan),
  "lines without a meta": drop("lines/meta"),
  "a meta that names nothing": edited("lines/meta", lambda x: np.array("{}")),
  "lines of another seed": setting(seeds=[1]),
  "lines of a site that there is not": lambda arrays, _: arrays.update(
    {name.replace("cross", "encoder"): x for name, x in arrays.items()}
  ),
  "a field of lines in int8": cast("lines/cross_intercept", "i1"),
  "a valid that is 2": edited("lines/cross_valid", lambda x: 2 * np.int8(x)),
  "a field of lines that would be broadcast": edited(
    "lines/cross_value", lambda x: x[:, :, :1]
  ),
  "two seeds": repeated("lines/", 0, 2),
  "no lines of a site": drop("lines/cross_value"),
  "values of another head size": all_of(
    edited(f"{VALUE}/kernel", lambda x: x[..., :1]),
    edited(f"{VALUE}/bias", lambda x: x[..., :1]),
  ),
  "a segment embedder that the program lacks": edited(
    SEGMENT_EMBEDDING, lambda _: np.zeros((2, 90), np.float32)
  ),
  "a segment embedder that the file lacks": setting("positions", segments=True),
  "an unknown parameter": edited("params/x", lambda _: np.float32([1])),
  "a parameter that is no number": entry(WO, (0, 0), np.nan),
  "float64": cast(NORM, np.float64),
  "another task": renamed("successor"),
  "an unknown task": setting(task="sort"),
  "such a field in a section that has no effect": setting(
    train={"bias.closed": -9.0}
  ),
  "an unknown section": setting(experts={}),
  "hints": setting(hints=["carry"]),
  "another normalizer": setting("attention", normalizer="entmax"),
  "no position is named": lambda _, config: config["positions"].pop("kind"),
  "a number where there is a truth value": setting("bias", allow_leak=0),
  "rows see later outputs": setting("bias", allow_leak=True),
  "closed cells are open a little": setting("bias", closed=-9.0),
  "sinusoids": setting("positions", kind="sinusoidal"),
  "a temperature": setting("temperature", kind="fixed"),
  "a fixed width": setting("data", width="fixed"),
  "another norm": setting("model", norm_kind="rms"),
  "another activation": setting("model", activation="gelu"),
  "bfloat16": setting("model", dtype="bfloat16"),
  "TF32": setting("model", precision="default"),
  "an encoder": setting("model", num_encoder_layers=1),
  "a setting of a later version": setting("model", experts=4),
  "another number of heads": setting("model", num_heads=1),
  "one layer more": setting("model", num_decoder_layers=2),
}
MUTANTS = {name: ("fails", change) for name, change in FAILS.items()}
MUTANTS |= {name: ("refused", change) for name, change in REFUSED.items()}
MUTANTS["weights that may be zero"] = "undecided", UNDECIDED


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_not_proved(tmp_path, name):
  expected, change = MUTANTS[name]
  report = check_changed(tmp_path, change=change)
  assert report["verdict"] == expected, report["text"]
  assert "\n" not in report["text"]


def test_a_line_too_far_for_the_rows_of_a_grid_is_refused():
  arrays, config, table = checker.read(files.FOLDER / "automaton.npz")
  i, *_ = np.argwhere(arrays["lines/self_valid"])
  start = dict(segment=3, anchor=LEFT, matrix=0)
  for name, value in (start | {"intercept": [1000, 0]}).items():
    arrays[f"lines/self_{name}"][tuple(i)] = value
  report = checker.prove(arrays, config, table)
  assert "lines lead too far" in report["text"]


def test_interleaved_operands_are_refused_and_one_operand_is_not_interleaved():
  for task, verdict in (("addition", "refused"), ("parity", "proved")):
    arrays, config, table = checker.read(files.FOLDER / f"{task}.npz")
    config["arithmetic"]["aligned"] = True
    report = checker.prove(arrays, config, table)
    assert report["verdict"] == verdict, report["text"]


def test_a_segment_embedder_is_part_of_the_states(tmp_path):
  size = table_model("parity", "decoder_only")[0][EMBEDDING].shape[1]

  def report(value):
    vectors = np.zeros((2, size), np.float32)
    vectors[1, 0] = value
    embedder = edited(SEGMENT_EMBEDDING, lambda _: vectors)
    change = all_of(embedder, setting("positions", segments=True))
    return check_changed(tmp_path, "parity", "decoder_only", change)

  assert report(0.0)["verdict"] == "proved"
  assert report(0.01)["margin"] != report(0.0)["margin"]
  assert report(5.0)["verdict"] == "fails"


def test_a_damaged_file_is_refused(tmp_path):
  path = write(tmp_path, table_model("parity", "encoder_decoder"))
  other = write(tmp_path, table_model("parity", "decoder_only"), "other")
  for content in (path.read_bytes()[:-100], other.read_bytes(), b"no arrays"):
    path.write_bytes(content)
    assert checker.prove_file(path)["verdict"] == "refused"
  other.with_suffix(".json").unlink()
  assert checker.prove_file(other)["verdict"] == "refused"


def test_the_script_runs_alone_and_its_exit_code_is_that_of_the_worst_verdict(
  tmp_path,
):
  right = write(tmp_path, table_model("copy", "encoder_decoder"), "right")
  wrong_arrays, config, table = table_model("copy", "encoder_decoder")
  name = "params/decoder_0/mlp/wo/kernel"
  wrong_arrays = wrong_arrays | {name: 0 * wrong_arrays[name]}
  wrong = write(tmp_path, (wrong_arrays, config, table), "wrong")

  def run(*arguments):
    command = [sys.executable, "-I", checker.__file__, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

  completed = run(right)
  assert completed.returncode == 0
  assert "proved: 12 contexts" in completed.stdout
  completed = run(right, wrong)
  assert completed.returncode == 1
  lines = completed.stdout.splitlines()
  assert [line.split(": ")[1] for line in lines] == ["proved", "fails"]
  assert run(right, tmp_path / "missing.npz").returncode == 2


# The tasks, against plain Python arithmetic.


LONG = task_of(closed_model("multiply_long")[1])


def run_transducer(transducer, symbols):
  """(outputs, whether the final state is accepting) of a transducer that reads
  symbols, given by their numbers."""
  state, outputs = 0, []
  for symbol in symbols:
    outputs.append(int(transducer.outputs[state, symbol]))
    state = transducer.next_states[state, symbol]
  return outputs, bool(transducer.accepting[state])


def digits(number, size, base=10):
  return [number // base**i % base for i in range(size)]


def test_partial_sums_agree_with_python_integers():
  rng, transducers = np.random.default_rng(1), LONG.transducers
  for _ in range(300):
    a, b = int(rng.integers(0, 1000)), int(rng.integers(0, 10))
    previous_sum = int(rng.integers(0, 12 * a + 2))
    columns = zip([0, *digits(a, 4)], digits(previous_sum, 5), strict=True)
    symbols = [10 * x + y for x, y in columns]
    outputs, is_possible = run_transducer(transducers[b], symbols)
    assert outputs[1:] == digits(previous_sum // 10 + a * b, 4)
    assert is_possible == (previous_sum < 10 * a or previous_sum == a == 0)


@pytest.mark.parametrize(
  ("sees_last", "period", "batch_size"),
  [(True, 1, 1000), (False, 1, 1000), (True, 2, 10), (False, 3, 10)],
)
def test_contexts_are_those_of_the_runs_of_all_sizes(
  sees_last, period, batch_size, monkeypatch
):
  """For random transducers that accept some of their states, and rows that see
  the first column, two around them and maybe the last; if positions have a
  period, for all sizes of one phase; and if few contexts are found at once."""
  monkeypatch.setattr(checker, "BATCH_SIZE", batch_size)
  rng, num_states, limit = np.random.default_rng(0), 4, 6

  def seen_by(x, y):
    variables = [("in", 0, 0), ("in", 0, x), ("out", x - 1)]
    variables += [("in", 0, x + y)] if sees_last else []
    return tuple(dict.fromkeys(v for v in variables if v[-1] >= 0))

  def runs_of(transducer, x, y):
    """The codes of all runs over x + y + 1 columns that are accepted."""
    weights = {v: 2**i for i, v in enumerate((*seen_by(x, y), ("out", x)))}
    pairs = {(0, 0)}
    for p in range(x + y + 1):
      pairs = {
        (
          code
          + weights.get(("in", 0, p), 0) * symbol
          + weights.get(("out", p), 0) * transducer.outputs[state, symbol],
          transducer.next_states[state, symbol],
        )
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

    task = types.SimpleNamespace(
      columns=columns, transducers={None: transducer}
    )
    model = types.SimpleNamespace(
      embedding=[0, 1], span=[1], class_limit=limit, task=task, period=period
    )
    contexts = checker.Contexts(model)
    count = period * num_states
    sizes_of = lambda size, count=count: range(
      size, size + 1 + (size >= limit) * count, period
    )
    for x, y in itertools.product(range(limit + period), repeat=2):
      plans = [*contexts.plans((x, y), (*seen_by(x, y), ("out", x)))]
      codes = np.concatenate([*contexts.chunks(plans)])
      sizes = itertools.product(sizes_of(x), sizes_of(y))
      expected = set().union(*(runs_of(transducer, *size) for size in sizes))
      assert sorted(codes.tolist()) == sorted(expected), (x, y)


def test_lines_to_the_short_operand_of_a_grid():
  """From b's left end against the rows, a line opens `*` in row 0 alone, so
  that row 1 sees what no row of the enumerated classes sees. A line that all
  rows have to `*` reads one embedding, but to the digit beside it a variable,
  and above the first layer of a single sequence the state of a row."""
  arrays, config, table = table_model("parity", "encoder_decoder")
  model = checker.Model(arrays, config, table)
  model.task = LONG

  def is_covered(anchor, slope, row=0, site="cross", layer=1):
    line = checker.Line(2, 1, anchor, [[slope, 0], [0, 0]], [row, 0], 0.0)
    return checker.is_covered(model, site, layer, line)

  assert is_covered(RIGHT, 1)
  assert not is_covered(LEFT, -1)
  assert is_covered(LEFT, 0)
  assert not is_covered(LEFT, 0, row=1)
  assert not is_covered(RIGHT, 0)
  assert is_covered(LEFT, 0, site="self", layer=0)
  assert not is_covered(LEFT, 0, site="self")


# The ordinary program.


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("name", checker.STATED.split())
def test_the_tasks_are_the_programs(name, kind):
  config = untrained.config(name, kind)
  experiment = untrained.build(config)
  settings = json.loads(json.dumps(config.to_dict(), default=list))
  form = experiment.model.config.vocab_size, kind == "encoder_decoder"
  task = checker.make_task(table_of(experiment.task), *form)
  assert checker.is_stated(task, settings, *form)


# Draws of the hunt that are accepted. Together they have both families, grids,
# segments, and positions that repeat.
DRAWS = 20, 31, 5, 53, 1011


@pytest.mark.parametrize("number", DRAWS)
def test_the_checker_agrees_with_the_program(number):
  assert hunt.hunt(number) > 50


def test_a_wrong_checker_is_found(monkeypatch, capsys):
  """Wrong margins, bounds that hide them, and contexts that are left out."""
  number, evaluate = DRAWS[0], checker.evaluate

  def wrong(*arguments):
    for codes, targets, margins, bounds in evaluate(*arguments):
      yield codes, targets, margins + 0.5, bounds + 1.0

  def found() -> str:
    assert hunt.main(number, 1) == 1
    return capsys.readouterr().out

  with monkeypatch.context() as patch:
    patch.setattr(checker, "evaluate", wrong)
    assert f"draw {number}: margins differ by 0.5" in found()
  run = checker.Contexts.run
  few = lambda *arguments: run(*arguments)[:-1]
  monkeypatch.setattr(checker.Contexts, "run", few)
  assert "has a context that is not enumerated" in found()


# The bounds on rounding.


def largest_change(function, x, e):
  """Returns the largest change of a function of x [D] on the sphere of radius e
  around x, among the leading singular directions of its Jacobian."""
  step = 1e-6
  moves = [
    function(x + step * d) - function(x - step * d) for d in np.eye(len(x))
  ]
  _, _, directions = np.linalg.svd(np.array(moves).T / (2 * step))
  return max(
    np.linalg.norm(function(x + sign * e * d) - function(x))
    for d in directions[:3]
    for sign in (-1, 1)
  )


@pytest.mark.parametrize("e", [1e-5, 3e-2])
def test_the_bounds_hold_in_the_worst_directions(e):
  """An error of a layer's inputs never changes its outputs by more than the
  bound, and by a fifth of it or more in the worst direction."""
  model, rng = (
    checker.Model(*closed_model("addition")),
    np.random.default_rng(1),
  )
  error = np.array([e])
  names = "attend", "keys", "mlp", "tight mlp", "normalize", "margins"
  ratios = {name: [] for name in names}
  zero = np.zeros(1)
  for _ in range(12):
    x, *others = rng.normal(size=(3, 1, 16))
    path = "decoder_0/cross_attention"
    heads = [[(0.3, 0), (0.0, 1)], [(0.0, 1), (0.2, 2)]]
    tokens, exact = [x, *others], [zero] * 3

    def attend(hidden, e, tokens=tokens, errors=exact, path=path, heads=heads):
      pairs = zip(tokens, errors, strict=True)
      values = [model.key_value(0, "cross", *pair) for pair in pairs]
      keys = {k: (value, slice(None)) for k, value in enumerate(values)}
      return model.attend(path, hidden, e, heads, keys)

    bound = attend(x, error)[1]
    moved = largest_change(lambda z, f=attend: f(z[None], zero)[0][0], x[0], e)
    ratios["attend"].append(moved / bound[0])
    bound = attend(x, zero, tokens, [zero, error, zero])[1]
    change = lambda z, f=attend, x=x, y=others[1]: f(x, zero, [x, z[None], y])[
      0
    ][0]
    ratios["keys"].append(largest_change(change, others[0][0], e) / bound[0])
    mlp = functools.partial(model.mlp, "decoder_0/mlp")
    change = lambda z, f=mlp: f(z[None], zero, False)[0][0]
    moved = largest_change(change, x[0], e)
    ratios["mlp"].append(moved / mlp(x, error, False)[1][0])
    ratios["tight mlp"].append(moved / mlp(x, error, True)[1][0])
    assert ratios["tight mlp"][-1] >= ratios["mlp"][-1]
    norm = lambda z: model.normalize(z[None], zero)[0][0]
    moved = largest_change(norm, x[0], e)
    ratios["normalize"].append(moved / model.normalize(x, error)[1][0])
    target = np.array([3])
    margin = lambda z, t=target: model.margins(z[None], zero, t)[0][0, 4:5]
    moved = largest_change(margin, x[0], e)
    ratios["margins"].append(moved / model.margins(x, error, target)[1][0, 4])
  for name, values in ratios.items():
    assert max(values) <= 1, name
    assert e < 1e-4 or max(values) > 0.2, (name, max(values))


def test_keys_of_one_hidden_state_have_errors_of_their_own():
  """Because they need not be rounded alike: several keys of the first head, and
  another one of the second."""
  model, rng = (
    checker.Model(*closed_model("addition")),
    np.random.default_rng(1),
  )
  zero, e = np.zeros(1), 1e-5
  for count in (1, 2, 4):
    for _ in range(3):
      x, key = rng.normal(size=(2, 1, 16))
      heads = [[(0.0, (0, k)) for k in range(count)], [(0.0, (0, count))]]

      def attend(z, e, x=x, heads=heads):
        keys = {
          (0, k): (model.key_value(0, "cross", state[None], e), slice(None))
          for k, state in enumerate(z)
        }
        return model.attend("decoder_0/cross_attention", x, zero, heads, keys)

      states = np.repeat(key, count + 1, axis=0)
      bound = attend(states, np.array([e]))[1][0]
      output = lambda z, f=attend: f(z.reshape(-1, 16), zero)[0][0]
      moves = [
        output(states.ravel() + 1e-6 * d) - output(states.ravel() - 1e-6 * d)
        for d in np.eye(states.size)
      ]
      _, _, directions = np.linalg.svd(np.array(moves).T)
      for direction in directions[:3].reshape(3, count + 1, 16):
        move = e * direction / np.linalg.norm(direction, axis=1, keepdims=True)
        moved = output((states + move).ravel()) - output(states.ravel())
        assert np.linalg.norm(moved) <= bound


def test_hidden_states_that_might_overflow_have_no_bound():
  model, zero = checker.Model(*closed_model("addition")), np.zeros(1)
  x = np.random.default_rng(1).normal(size=(1, 16))
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


def test_the_bounds_hold_for_coarse_arithmetic(monkeypatch):
  """Hidden states that are computed with every operation rounded to 16 bits
  stay within the bounds for that unit of rounding."""
  model, rng = (
    checker.Model(*closed_model("addition")),
    np.random.default_rng(2),
  )
  monkeypatch.setattr(checker, "UNIT", 2.0**-16)
  zero = np.zeros(20)
  x = rounded(rng.normal(size=(20, 16)))
  for name, array in model.params.items():
    model.params[name] = rounded(array)

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
  hidden, error = model.normalize(x, zero)
  exact, bound = model.dense(model.output_head, hidden, error)
  _, _, norms, _ = model.dense_weights(model.output_head)
  change = np.linalg.norm(y - exact[:, 0], axis=1)
  assert (change <= checker.l2(bound[:, 0]) + norms * error).all()

  hidden = dense("decoder_0/mlp/wi", norm("decoder_0/pre_mlp_layer_norm", x))
  y = dense("decoder_0/mlp/wo", np.maximum(hidden, 0))
  for is_tight in (False, True):
    hidden = model.normalize(x, zero)
    exact, bound = model.mlp("decoder_0/mlp", *hidden, is_tight)
    change = np.linalg.norm(y - exact, axis=1)
    assert (change <= bound).all() and (change > 1e-3 * bound).all()


@pytest.mark.parametrize("name", elementary_functions.TRIALS)
def test_functions_are_as_accurate_as_is_assumed(name):
  assert 0 < elementary_functions.largest_error(name, 9973) <= checker.ULPS


def test_what_is_proved_of_damaged_files_is_right(monkeypatch):
  import checker_fuzz

  monkeypatch.setattr(checker_fuzz, "LENGTHS", (2, 13))
  table = checker_fuzz.hunt(6, 6)
  assert not table["proved and wrong"], table
  # The draws are of both kinds: files that are refused, and others.
  assert table["refused"] > 3 and table["proved and right"] > 0
