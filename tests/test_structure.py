"""The shape of the project: imports, config fields, presets, recipes."""

import ast
import dataclasses
import importlib
import itertools
import pathlib

import jax
import pytest
from command import REPOSITORY

from configs import arithmetic, base, increment, sorting
from lengthgen_jax import experiment as experiments

PACKAGE = REPOSITORY / "lengthgen_jax"
CONFIGS = REPOSITORY / "configs"
FILES = sorted(PACKAGE.rglob("*.py")) + sorted(CONFIGS.glob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in FILES}


def room(path: pathlib.Path) -> str:
  """ "tasks", "models", ... for files in a folder, the stem for others."""
  if path.parent == CONFIGS:
    return "configs"
  inside = path.relative_to(PACKAGE)
  return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def imported(tree) -> set[str]:
  """Full names of all modules (or their attributes) that a file imports,
  wherever in the file."""
  names = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      names |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, "imports are absolute"
      names |= {f"{node.module}.{alias.name}" for alias in node.names}
  return names


def rooms_imported(tree) -> set[str]:
  """The rooms of ours that a file imports."""
  names = [name.split(".") for name in imported(tree)]
  ours = {n[1] for n in names if n[0] == "lengthgen_jax" and len(n) > 1}
  ours -= {"__version__"}
  return ours | {"configs" for n in names if n[0] == "configs"}


# What each room may import of ours. `errors` is open to all but the leaves.
LEAVES = ("rng", "records", "metrics", "coordinates", "errors")
RULES = {leaf: set() for leaf in LEAVES} | {
  "__init__": set(),
  "configs": {"configs"},
  "saved": {"configs"},  # itself a config file, for --config
  "tasks": {"tasks", "coordinates", "errors"},
  "attention": {"attention", "coordinates", "errors"},
  "models": {"models", "attention", "coordinates", "errors"},
  "interpret": {"interpret"},
  "state": set(),
  "optimizer": set(),
  "checkpoint": {"errors"},
  "bias_file": {"attention", "errors"},
  "lessons": set(),
  "rows": {"metrics"},
}
RUNS = {"train", "evaluate", "calibrate", "abc", "predict", "report", "modes"}
RUNS |= {"main", "probe", "bench", "evaluate_sequences"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_imports_run_one_way(path):
  found, here = rooms_imported(TREES[path]), room(path)
  if here in RULES:
    assert found <= RULES[here], f"{path}: {found - RULES[here]}"
  if here not in RUNS | {"restore"}:
    assert not found & RUNS, f"{path} imports a run: {found & RUNS}"
  if here not in ("configs", "saved"):
    assert "configs" not in found
  assert "main" not in found


def test_imports_have_no_cycle():
  graph = {}
  for path, tree in TREES.items():
    graph.setdefault(room(path), set()).update(rooms_imported(tree))
  done, open_rooms = set(), []

  def visit(here):
    assert here not in open_rooms, open_rooms[open_rooms.index(here) :]
    if here in done:
      return
    open_rooms.append(here)
    for there in graph.get(here, ()):
      if there != here:
        visit(there)
    open_rooms.pop()
    done.add(here)

  for here in graph:
    visit(here)


def test_configs_import_ml_collections_only():
  for path, tree in TREES.items():
    if room(path) == "configs":
      roots = {name.split(".")[0] for name in imported(tree)}
      assert roots <= {"configs", "ml_collections"}, path


def test_one_file_imports_matplotlib():
  files = [
    path.name
    for path, tree in TREES.items()
    if any(name.split(".")[0] == "matplotlib" for name in imported(tree))
  ]
  assert files == ["plots.py"]


def test_no_file_is_a_drawer():
  stems = {path.stem for path in FILES}
  assert not stems & {"utils", "util", "common", "helpers", "misc"}


# Config fields.


def leaves(config, prefix=()):
  for name, value in config.items():
    if hasattr(value, "items"):
      yield from leaves(value, (*prefix, name))
    else:
      yield (*prefix, name)


def name_of(node) -> str | None:
  """`f` of `f`, and of `module.f`."""
  return getattr(node, "attr", getattr(node, "id", None))


class Reads(ast.NodeVisitor):
  """Collects the config fields that code reads, as tuples of names.

  Follows names: an expression is (a section of) the config if it is called
  `config` (or ends in `.config`), if it is a section of such an expression, or
  if it is a name bound to one, or a parameter that bears a section's name.
  A loop over a tuple of names (`for section in NAMES: config[section]`) reads
  what the tuple holds.
  """

  def __init__(self, tree, sections):
    self.sections = sections
    self.scopes = [{}]
    self.read, self.unpacked, self.merged = set(), [], []
    self.loop_names = {}
    self.constants = {
      node.targets[0].id: node.value
      for node in tree.body
      if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    self.visit(tree)

  def path(self, node):
    """The config path of an expression, None if it is something else."""
    if isinstance(node, ast.Name):
      for scope in reversed(self.scopes):
        if node.id in scope:
          return scope[node.id]
      return () if node.id == "config" else None
    if isinstance(node, ast.Attribute):
      inner = self.path(node.value)
      if inner is not None:
        return (*inner, node.attr)
      return () if node.attr == "config" else None
    if isinstance(node, ast.Call) and name_of(node.func) == "deepcopy":
      return self.path(node.args[0])
    if isinstance(node, ast.Subscript):
      inner = self.path(node.value)
      name = self.loop_names.get(getattr(node.slice, "id", None))
      name = getattr(node.slice, "value", name)
      if inner is not None and isinstance(name, str):
        return (*inner, name)
    return None

  def visit_FunctionDef(self, node):
    names = [a.arg for a in node.args.posonlyargs + node.args.args]
    self.scopes.append({n: (n,) for n in names if n in self.sections})
    self.generic_visit(node)
    self.scopes.pop()

  def visit_Assign(self, node):
    self.generic_visit(node)
    target, value = node.targets[0], node.value
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
      pairs = zip(target.elts, value.elts, strict=True)
    for to, what in pairs:
      if isinstance(to, ast.Name):
        self.scopes[-1][to.id] = self.path(what)

  def visit_Attribute(self, node):
    path = self.path(node)
    if path and isinstance(node.ctx, ast.Load):
      self.read.add(path)
    self.generic_visit(node)

  visit_Subscript = visit_Attribute

  def visit_Call(self, node):
    callee = name_of(node.func)
    for keyword in node.keywords:
      if keyword.arg is None and self.path(keyword.value):
        self.unpacked.append((self.path(keyword.value), callee))
    if callee == "update" and node.args and self.path(node.args[0]):
      to = self.path(node.func.value)
      self.merged.append((self.path(node.args[0]), to))
    self.generic_visit(node)

  def visit_For(self, node):
    """Once for each name of a constant tuple, else once."""
    names = self.constants.get(getattr(node.iter, "id", None))
    if not isinstance(names, ast.Tuple):
      self.generic_visit(node)
      return
    for name in names.elts:
      self.loop_names[node.target.id] = name.value
      for statement in node.body:
        self.visit(statement)
    del self.loop_names[node.target.id]


def dataclass_fields(name: str) -> set[str]:
  """Fields of a dataclass of ours, wherever it is."""
  for path, tree in TREES.items():
    for node in tree.body:
      if isinstance(node, ast.ClassDef) and node.name == name:
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        found = getattr(importlib.import_module(".".join(parts)), name)
        return {field.name for field in dataclasses.fields(found)}
  return set()


def fields_read(trees, config) -> set[tuple]:
  """The config's leaves that some code reads."""
  everything = [Reads(tree, set(config)) for tree in trees]
  read = set().union(*(one.read for one in everything))
  for one in everything:
    for path, callee in one.unpacked:
      read |= {(*path, field) for field in dataclass_fields(callee)}
  for one in everything:
    for source, to in one.merged:
      read |= {(*source, p[-1]) for p in read if p[:-1] == to}
  return read & set(leaves(config))


def test_every_config_field_is_read():
  trees = [tree for path, tree in TREES.items() if room(path) != "configs"]
  config = base.get_config()
  dead = set(leaves(config)) - fields_read(trees, config)
  assert not dead, [".".join(path) for path in dead]


def test_dead_fields_are_found():
  """The test above sees what it should, and no more."""
  code = """
NAMES = ("model",)
def f(config, train):
  model, rest = config.model, config
  g(**model)
  x = [config.task, train.steps, rest.eval.seed]
  check_positive(config, "train.chunk")
  rest = copy.deepcopy(config)
  for name in NAMES:
    rest[name].update(config.retrain[name])
class ModelConfig:
  def h(self):
    section = self.config.data
    section.slack = 3
    return section["width"]
"""
  config = base.get_config()
  wanted = {"task", "train.steps", "eval.seed", "data.width"}
  found = fields_read([ast.parse(code)], config)
  assert {".".join(path) for path in found} == wanted
  found = fields_read([ast.parse(code.replace("g(", "ModelConfig("))], config)
  found = {".".join(path) for path in found}
  assert {"model.norm", "retrain.model.dropout_rate"} < found - wanted
  assert not any(name.startswith("positions") for name in found)


@pytest.mark.parametrize("prefix", ["Model", "Position", "Bias"])
def test_every_field_of_a_dataclass_is_read(prefix):
  read = {
    node.attr
    for tree in TREES.values()
    for node in ast.walk(tree)
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
  }
  fields = dataclass_fields(prefix + "Config")
  assert fields and not fields - read


# Presets.


def presets():
  options = [
    combination
    for count in range(len(arithmetic.OPTIONS) + 1)
    for combination in itertools.combinations(arithmetic.OPTIONS, count)
  ]
  for task in arithmetic.TASKS:
    for method in arithmetic.METHODS:
      for combination in options:
        yield ",".join((task, method, *combination))


def sequence_presets():
  """Every hint with every set of options, with its config file."""
  for file in (sorting, increment):
    for hint in file.HINTS:
      for count in range(len(file.OPTIONS) + 1):
        for words in itertools.combinations(file.OPTIONS, count):
          yield file, ",".join((hint, *words))


def test_every_sequence_preset_builds():
  """And has a head for every task; nothing is compiled."""
  for file, preset in sequence_presets():
    config = file.get_config(preset)
    experiment = experiments.build(config)
    shapes = jax.eval_shape(lambda e=experiment: e.init(0))
    assert len(experiment.heads) == 1 + len(config.hints)
    for head in experiment.heads:
      assert experiment.head_params(head) in shapes, preset
    layers = sum(name.startswith("layers_") for name in shapes)
    assert layers == config.model.num_decoder_layers, preset
    if "paper" in preset:
      assert shapes["token_embedder"]["embedding"].shape[1] == 1024
    tempered = "temperature" in shapes["layers_0"]["self_attention"]
    assert tempered == ("tempered" in preset or "best" in preset)


def test_every_preset_builds():
  """And has parameters of some shape; nothing is compiled."""
  seen = set()
  for preset in presets():
    config = arithmetic.get_config(preset)
    experiment = experiments.build(config)
    lines = experiments.make_lines(config, experiment.task)
    assert (config.bias.kind == "window") == ("self" in lines), preset
    kind = (experiment.model, experiment.task.segment_names)
    if kind not in seen:
      shapes = jax.eval_shape(lambda e=experiment: e.init(0))
      layers = sum(name.startswith("decoder_") for name in shapes) - (
        "decoder_norm" in shapes
      )
      assert layers == config.model.num_decoder_layers, preset
      seen.add(kind)
  assert len(seen) > 10


@pytest.mark.parametrize(
  "path", [p for p in CONFIGS.glob("*.py") if p.stem != "base"], ids=str
)
def test_every_config_file_says_how_to_run_it(path):
  if path.stem == "__init__":
    return
  text = ast.get_docstring(TREES[path])
  assert f"lengthgen --config=configs/{path.name}" in text
  assert "--workdir=" in text


@pytest.mark.parametrize("paper", (False, True))
def test_every_study_is_a_sweep_of_configs_that_build(paper, monkeypatch):
  monkeypatch.syspath_prepend(str(REPOSITORY / "launch"))
  studies = importlib.import_module("studies")
  sweep = importlib.import_module("sweep")
  for study in studies.STUDIES:
    words = [study, "--root=root", *["--paper"] * paper]
    line = studies.parse([*words, "--", "--config.seeds=(0,)"])
    end = line.index("--")
    assert line[-1] == "--config.seeds=(0,)"
    line = line[2:end]
    values = [word.partition("=") for word in line]
    chosen = [v for flag, _, v in values if flag == "--config"]
    grids = [v for flag, _, v in values if flag == "--grid"]
    points = list(sweep.points(chosen, grids))
    assert len({sweep.name(*point) for point in points}) == len(points) > 2
    for path, fields in points:
      file, _, preset = path.partition(":")
      config = {"sorting": sorting, "increment": increment}[
        pathlib.Path(file).stem
      ].get_config(preset)
      for field, value in fields:
        old = config
        *sections, last = field.split(".")
        for section in sections:
          old = old[section]
        old[last] = type(old[last])(value)
      experiments.build(config)
