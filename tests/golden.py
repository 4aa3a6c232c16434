"""This module computes the golden table: numbers that no change of words or
structure may change.

tests/golden.json is the table, and tests/test_golden.py computes all of it
again. If a number differs, earlier runs cannot be repeated any more, or their
checkpoints and bias files cannot be read: parameters are drawn by their paths,
dropout by its module's path, examples by their task's name and everything by
the name of its stream, so whoever renames one of them sees it here. Where a
difference is wanted, the table is remade, and committed along with what changed
it:

  python tests/golden.py

Models are tiny, and the first steps are large; all else is as the preset has it
(task, data, positions, bias, temperature, normalization, optimizer), but for
the fields that are listed beside it. Integers and texts must be equal. Other
numbers must agree as far as processors and compilers do: the table is made with
all of XLA's optimizations, and the tests run with few.
"""

import json
import pathlib
import tempfile
from functools import partial

import flax
import jax
import numpy as np
import presets
import untrained
from plain_lines import opened, site_line
from pytrees import one

from lengthgen_jax import rng
from lengthgen_jax.attention import calibration
from lengthgen_jax.attention.biases import file
from lengthgen_jax.attention.lines import ANY, LEFT, RIGHT
from lengthgen_jax.config.fields import retrain_config
from lengthgen_jax.evaluation import mean_attention
from lengthgen_jax.pipelines import runs, train
from lengthgen_jax.training import loop

TABLE = pathlib.Path(__file__).with_name("golden.json")
STEPS = 4  # of training
EXAMPLES = 2  # of each batch in the table
KEY = 3  # the seed of the key of what is drawn from no stream

# {FILE:PRESET of configs/: {field: value} to change}. Those of TRAINED are
# trained for a few steps, in whose losses all else shows; of those of UNTRAINED
# a loss is enough.
TRAINED = {
  "arithmetic:multiply,window,paper": {"model.num_encoder_layers": 0},
  "sorting:successor,tempered": {"mixing.kind": "weighted", "data.buckets": ()},
  "asentmax:sort,ssmax,paper": {},
}
UNTRAINED = {
  "arithmetic:addition,window_cpi": {},
  "arithmetic:addition,decoder_only": {"positions.kind": "abacus"},
  "increment:carry,tempered": {
    "positions.kind": "coupling",
    "positions.table": 132,  # of which the hint needs all
    "temperature.stretch": 4.0,
  },
  "states:modular": {"positions.kind": "t5"},
  "states:permutations,decoder_only": {"positions.kind": "randomized"},
  "states:dyck,final": {"positions.kind": "fire"},
  "multiply_long:window": {},
  "asentmax:reverse": {
    "positions.kind": "learned",
    "model.num_decoder_layers": 2,
  },
  "construction:4,10": {"initial.noise": 0.01, "eval.test_sets": ("uniform",)},
}
# Presets of ABC, for which lines are calibrated and trained with.
CALIBRATED = ("arithmetic:addition,abc",)
# Training data: {name: (preset, {field: value} to change)}. Endless sets are in
# the entries of UNTRAINED.
SETS = {
  "finite": ("sorting:successor,tempered", {"data.size": 1000}),
  "permuted": ("arithmetic:multiply,window,paper", {"data.seed": 5}),
}
# Test sets by task.
TESTED = {
  "addition": ("equal", "carry"),
  "sort": ("uniform", "near_ties"),
  "increment": ("nines",),
  "dyck": ("deep",),
}
# {field: value} of every preset.
SMALL = {
  "seeds": (0,),
  "model.emb_dim": 16,
  "model.num_heads": 2,
  "model.mlp_dim": 32,
  "model.num_decoder_layers": 1,
  "positions.table": 128,
  "train.steps": 100,
  "train.batch_size": 8,
  "train.validation_samples": 8,
  "train.learning_rate": 1e-2,
  "train.warmup_steps": 1,
  "retrain.train.learning_rate": 1e-2,
  "retrain.train.warmup_steps": 1,
  "eval.lengths": (4,),
  "eval.samples": (10,),
}
# The last parts of the paths of parameters that are drawn alike everywhere.
COMMON = ("/kernel", "/bias", "/scale", "/embedding")


def entries() -> dict:
  """Returns {name: function} of the table's entries; the function, without
  arguments, computes the entry."""
  kinds = {
    "trained": (TRAINED, of_trained),
    "untrained": (UNTRAINED, of_untrained),
    "calibrated": (CALIBRATED, of_calibrated),
    "data set": (SETS, of_set),
    "test sets": (TESTED, of_tests),
  }
  return {
    f"{kind} {name}": lambda compute=compute, name=name: compute(name)
    for kind, (names, compute) in kinds.items()
    for name in names
  }


def configured(preset: str, changes: dict):
  """Returns the config of a preset, FILE:PRESET, with the fields of SMALL and
  some changes {field: value}."""
  name, words = preset.split(":")
  config = getattr(presets, name).get_config(words)
  values = SMALL | {"model.dropout_rate": config.model.dropout_rate or 0.1}
  if name == "construction":  # its weights decide the model's size
    values = {n: x for n, x in values.items() if not n.startswith("model.")}
  config.update_from_flattened_dict(values | changes)
  return config


def prepared(config) -> loop.Run:
  """Returns the loop.Run of a config, which writes nothing."""
  return runs.make_run(config, pathlib.Path("nowhere"))


# Entries.


def of_trained(preset: str) -> dict:
  """Returns the entry of a preset in TRAINED."""
  run = prepared(configured(preset, TRAINED[preset]))
  state = loop.init_state(run.spec, 0)
  return {
    "state": stored(state),
    "parameters": norms(state.params),
    "lines": lines(run.scaffold),
    "losses": losses(run, state),
  }


def of_untrained(preset: str) -> dict:
  """Returns the entry of a preset in UNTRAINED.

  Logits and losses are those of parameters that untrained.params draws, none of
  which is zero; a model's own initial ones take long to compile. Of the latter
  only those of positions, and others that are not COMMON, are in the entry.
  """
  config = configured(preset, UNTRAINED[preset])
  run = prepared(config)
  initial = train.initial_parameters(config, run)
  params = initial[0] if initial else untrained.params(run.experiment)
  rare = lambda path: "positions" in path or not path.endswith(COMMON)
  entry = {
    "shapes": {path: list(x.shape) for path, x in named(params).items()},
    "lines": lines(run.scaffold),
  } | answers(run, params)
  if initial:
    entry["parameters"] = norms(params)
  elif any(map(rare, entry["shapes"])):

    def fresh():
      pairs = named(run.experiment.init(0)).items()
      return {path: x for path, x in pairs if rare(path)}

    entry["parameters"] = norms(jax.jit(fresh)())
  return entry


def of_calibrated(preset: str) -> dict:
  """Returns the entry of a preset in CALIBRATED: lines of `planted` attention,
  and training with them."""
  config = configured(preset, {})
  run = prepared(config)
  experiment, section = run.experiment, config.calibration
  condition = mean_attention.conditions(section.lengths, experiment)[0]
  args = experiment, 0, condition, condition.width, 0, EXAMPLES
  batch = mean_attention.sample_batch(*args)
  bias, scores = {}, {}
  for site in mean_attention.sites(experiment):
    where = [planted(experiment, batch, site)], site
    args = section, experiment.task, *where
    tested_lines, selection = calibration.select_lines(*args)
    args = tested_lines, [selection], "each", section.empty_heads
    bias[site] = calibration.compact(*args)
    scores[site] = shown(selection.score)
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "bias.npz"
    about = {"seeds": [0], "sites": experiment.site_segments}
    file.save(path, bias, about)
    written, about = file.read(path)
    run = prepared(retrain_config(config, about["seeds"], path))
  state = loop.init_state(run.spec, 0)
  return {
    "samples": texts(batch),
    "scores": scores,
    "file": {name: shown(x) for name, x in written.items() if x.ndim},
    "about": about,
    "parameters": norms(state.params),
    "losses": losses(run, state),
  }


def planted(experiment, batch, site: str) -> calibration.MeanAttention:
  """Returns a MeanAttention of one layer and two heads, each along a line, with
  noise elsewhere.

  The lines lead to the last operand if the site's keys have it, else to earlier
  outputs.
  """
  target = experiment.task.target_segment
  rows = batch.rows
  keys = batch.keys if site == "self" else batch.source_keys
  rows, keys = jax.tree.map(np.asarray, (rows, keys))
  operand = target - 1 in keys.segment
  segment, anchor = (target - 1, RIGHT) if operand else (target, LEFT)
  generator = np.random.default_rng(0)
  heads = []
  for head in range(2):
    intercept = head if operand else -1 - head
    line = one(site_line(ANY, segment, anchor, 1, intercept))
    cells = opened(line, rows, keys)[0, 0, 0] == 0
    noise = generator.uniform(0, 0.05, cells.shape)
    heads.append(np.where(cells, 0.9 - 0.1 * head, noise))
  used = rows.segment[0] == target
  return calibration.MeanAttention(np.float32([heads]), used, rows, keys)


def of_set(name: str) -> dict:
  """Returns the entry of a name in SETS: examples of the main task by bucket,
  and examples that are held out."""
  preset, changes = SETS[name]
  experiment = prepared(configured(preset, changes)).experiment
  (head, _, parts), *_ = experiment.validation
  key = jax.random.key(KEY)

  def compute():
    batches = {}
    for part in (part._replace(count=EXAMPLES) for part in parts):
      batches[f"bucket {part.bucket}"] = experiment.sample(key, head, part)
    batches["held out"] = experiment.sample(key, head, part, held_out=True)
    return batches

  return {where: texts(batch) for where, batch in jax.jit(compute)().items()}


def of_tests(task: str) -> dict:
  """Returns the entry of a task in TESTED: the first examples of its test
  sets."""
  config = configured(f"default:{task}", {"eval.test_sets": TESTED[task]})
  experiment = prepared(config).experiment
  draw = lambda name: experiment.test_batch(
    name, 0, np.arange(EXAMPLES), config.eval.lengths[0], {}
  )
  return {name: texts(draw(name)) for name in TESTED[task]}


# Parts of entries.


def answers(run, params) -> dict:
  """Returns, for each output head, some examples, their logits, and their loss
  per token with dropout."""
  experiment, scaffold = run.experiment, one(run.scaffold)
  key = jax.random.key(KEY)

  def compute(params):
    heads = {}
    for head, _, (*_, part) in experiment.validation:
      batch = experiment.sample(key, head, part._replace(count=EXAMPLES))
      args = params, scaffold, batch, head
      noise = rng.Noise(key, np.arange(EXAMPLES))
      spec = loop.TrainSpec(experiment, run.train)
      loss = loop.loss(params, spec, scaffold, head, batch, noise)
      heads[head] = {
        "batch": batch,
        "logits": experiment.apply(*args)[0],
        "loss": loss / batch.weight.sum(),
      }
    return heads

  write = {"batch": texts, "logits": shown, "loss": number}
  return {
    f"head {head}": {name: write[name](x) for name, x in parts.items()}
    for head, parts in jax.jit(compute)(params).items()
  }


def losses(run, state) -> list:
  """Returns the losses of the heads that learn in each of the first STEPS."""

  @partial(jax.jit, static_argnums=0)
  def take_step(step_spec, params, opt_state, *args):
    return loop.train_step(run.spec, step_spec, params, opt_state, 0, *args)

  learning, rows = (state.params, state.opt_state), []
  scaffold, step_specs = one(run.scaffold), run.experiment.step_specs
  for i in range(STEPS):
    step_spec = step_specs[i % len(step_specs)]
    *learning, loss = take_step(step_spec, *learning, i, scaffold)
    rows.append(numbers(loss))
  return rows


def named(params) -> dict:
  """Returns {path: array} of parameters."""
  return flax.traverse_util.flatten_dict(params, sep="/")


def norms(params) -> dict:
  """Returns {path: [shape, norm]} of parameters."""
  norm = lambda x: number(np.linalg.norm(np.asarray(x, float)))
  return {path: [list(x.shape), norm(x)] for path, x in named(params).items()}


def stored(state) -> list:
  """Returns the paths of a training state's fields, as a checkpoint has them;
  a dict of parameters counts as one field."""
  is_leaf = lambda x: isinstance(x, dict)
  flat, _ = jax.tree_util.tree_flatten_with_path(state, is_leaf)
  return [jax.tree_util.keystr(path) for path, _ in flat]


def lines(scaffold) -> dict:
  """Returns a scaffold's arrays by the names that a bias file has for them."""
  return {
    f"{site}_{name}": shown(x)
    for site, each in scaffold.items()
    for name, x in each._asdict().items()
  }


def texts(batch) -> list:
  """Returns the inputs and targets of each example of a batch."""
  names = "source", "inputs", "target"
  arrays = {name: getattr(batch, name) for name in names}
  arrays = {x: np.asarray(y) for x, y in arrays.items() if y is not None}
  return [{x: shown(y[i]) for x, y in arrays.items()} for i in range(EXAMPLES)]


# Numbers as JSON has them.


def shown(x):
  """Returns an array of integers as one text; of an array of floats its shape,
  the norm of its finite numbers, and the first eight."""
  x = np.asarray(x)
  if x.dtype.kind != "f":
    return " ".join(map(str, x.astype(int).ravel()))
  finite = np.where(np.isfinite(x), x, 0.0)
  norm = number(np.linalg.norm(finite.astype(float)))
  return {"shape": list(x.shape), "norm": norm, "first": numbers(finite)[:8]}


def numbers(x) -> list:
  """Returns an array as a flat list of `number`."""
  return [number(value) for value in np.ravel(x)]


def number(x) -> float:
  """Returns a number rounded to eight significant digits."""
  return float(f"{float(x):.8g}")


def as_json(value) -> object:
  """Returns a value as JSON returns it after it was written and read."""
  return json.loads(json.dumps(value))


def write() -> None:
  """Remakes the table, with a line for each part of an entry, so that a diff is
  short."""
  blocks = []
  for name, compute in entries().items():
    parts = compute().items()
    rows = [f"  {json.dumps(k)}: {json.dumps(part)}" for k, part in parts]
    blocks.append(f"{json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n}")
  TABLE.write_text("{\n" + ",\n".join(blocks) + "\n}\n")


if __name__ == "__main__":
  jax.config.update("jax_platforms", "cpu")
  write()
