"""Every field of the config is read, and changes something."""

import ast
import copy
import dataclasses
import importlib
import pathlib

import numpy as np
import pytest
from command import REPOSITORY
from ml_collections import ConfigDict
from source import TREES, room

from configs import base
from lengthgen_jax.config import build, check, stages
from lengthgen_jax.errors import UsageError
from lengthgen_jax.tasks import TASKS
from lengthgen_jax.training.optimizer import TrainConfig


def leaves(config, prefix=()):
  """The names of all fields, as tuples."""
  for name, value in config.items():
    if hasattr(value, "items"):
      yield from leaves(value, (*prefix, name))
    else:
      yield (*prefix, name)


# Read somewhere.

# Which section a parameter called `section` is, by room.
SECTIONS = {"attention": "bias", "tasks": "eval", "config": "eval"}
SECTIONS |= {"pipelines": "calibration", "benchmark": "calibration"}


def name_of(node) -> str | None:
  """`f` of `f`, and of `module.f`."""
  return getattr(node, "attr", getattr(node, "id", None))


class Reads(ast.NodeVisitor):
  """Collects the config fields that code reads, as tuples of names.

  Follows names: an expression is (a section of) the config if it is called
  `config` (or ends in `.config`), if it is a section of such an expression, or
  if it is a name bound to one, or a parameter called `section`.

  Attributes:
    read: fields that are read by name.
    unpacked: (section, callable) of every `callable(**section)`.
  """

  def __init__(self, tree, section: str = ""):
    self.section = section
    self.scopes = [{}]
    self.read, self.unpacked = set(), []
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
    if isinstance(node, ast.Call) and name_of(node.func) in (
      "dict",
      "deepcopy",
    ):
      return self.path(node.args[0]) if node.args else None
    if isinstance(node, ast.Subscript):
      inner, name = self.path(node.value), getattr(node.slice, "value", None)
      if inner is not None and isinstance(name, str):
        return (*inner, name)
    return None

  def visit_FunctionDef(self, node):
    names = [a.arg for a in node.args.posonlyargs + node.args.args]
    own = (self.section,) if self.section else None
    self.scopes.append({n: own for n in names if n == "section"})
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
    if callee == "pop" and self.path(node.func.value) is not None:
      self.read.add((*self.path(node.func.value), node.args[0].value))
    for keyword in node.keywords:
      if keyword.arg is None and self.path(keyword.value):
        self.unpacked.append((self.path(keyword.value), callee))
    self.generic_visit(node)


def dataclass_fields(name: str) -> set[str]:
  """Fields of a dataclass of ours, wherever it is."""
  for path, tree in TREES.items():
    for node in tree.body:
      if isinstance(node, ast.ClassDef) and node.name == name:
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        found = getattr(importlib.import_module(".".join(parts)), name)
        if dataclasses.is_dataclass(found):
          return {field.name for field in dataclasses.fields(found)}
  return set()


def fields_read(readers, config) -> set[tuple]:
  """The config's leaves that some code reads."""
  read = set().union(*(one.read for one in readers))
  for one in readers:
    for path, callee in one.unpacked:
      read |= {(*path, field) for field in dataclass_fields(callee)}
  return read & set(leaves(config))


def section_of(path: pathlib.Path, config) -> str:
  """What `section` is in a file: a mode's section has the mode's name, and
  practice is what replay.py does."""
  stem = {"replay": "practice"}.get(path.stem, path.stem)
  of_mode = room(path) in ("pipelines", "benchmark") and stem in config
  return stem if of_mode else SECTIONS.get(room(path), "")


def test_every_config_field_is_read():
  """Other than to check it. Tasks are built of their sections whole, and the
  second stage of ABC of a loop; these are tested below."""
  config = base.get_config()
  readers = [
    Reads(tree, section_of(path, config))
    for path, tree in TREES.items()
    if room(path) != "configs" and path.name != "check.py"
  ]
  whole = {*(task.section for task in TASKS.values()), "retrain"}
  dead = {
    path
    for path in set(leaves(config)) - fields_read(readers, config)
    if path[0] not in whole or path[0] == "retrain" and len(path) == 2
  }
  assert not dead, [".".join(path) for path in sorted(dead)]


def test_dead_fields_are_found():
  """The test above sees what it should, and no more."""
  code = """
def f(config, train, section):
  model, rest = config.model, config
  g(**model)
  x = [config.task, train.steps, rest.eval.seed, section.kappa]
  check_positive(config, "train.chunk")
  own = dict(config.checkpoint)
  own.pop("every")
class C:
  def h(self):
    section = self.config.data
    section.seed = 3
    return section["width"]
"""
  config = base.get_config()
  wanted = {"task", "eval.seed", "data.width", "checkpoint.every"}
  found = fields_read([Reads(ast.parse(code))], config)
  assert {".".join(path) for path in found} == wanted
  found = fields_read([Reads(ast.parse(code), "calibration")], config)
  assert ("calibration", "kappa") in found
  code = code.replace("g(", "ModelConfig(")
  found = fields_read([Reads(ast.parse(code))], config)
  found = {".".join(path) for path in found} - wanted
  assert {"model.norm", "model.dropout_rate"} < found
  assert all(name.startswith("model.") for name in found)


def test_every_field_of_a_dataclass_is_read():
  read = {
    node.attr
    for tree in TREES.values()
    for node in ast.walk(tree)
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
  }
  names = set()
  for tree in TREES.values():
    for node in ast.walk(tree):
      if isinstance(node, ast.ClassDef):
        names |= dataclass_fields(node.name)
  assert {"emb_dim", "random_start", "learning_rate", "alphabet"} < names
  assert not names - read


# Changes something.

# Under which other fields a field means something, by its name or section.
WHERE = {
  "data.fixed_width": ({"data.width": "fixed", "eval.lengths": (6,)}),
  "data.short_share": {"data.short_longest": 3},
  "data.buckets": {"task": "sort"},
  "hints": {"task": "sort"},
  "mixing.kind": {"task": "sort", "hints": ("fill",)},
  "mixing.weights": {
    "task": "sort",
    "hints": ("fill",),
    "mixing.kind": "weighted",
  },
  "bias": {"bias.kind": "window"},
} | {kind.section: {"task": task} for task, kind in TASKS.items()}
# Other values, where nothing near the default can be.
OTHER = {
  "data.width": "fixed",
  "data.buckets": (3, 6),
  "data.widths": (11, 12),
  "data.size": 1000,
  "data.short_longest": 3,
  "data.train_length": 5,
  "data.shortest": 2,
  "hints": ("fill",),
  "mixing.weights": (3, 1),
  "model.emb_dim": 32,
  "model.num_heads": 4,
  "positions.kind": "alibi",
  "bias.kind": "window",
  "bias.closed": -5.0,
  "temperature.stretch": 2.0,
  "modular.answer": "final",
  "permutations.answer": "final",
  "permutations.group": "S3",
  "dyck.answer": "final",
  "dyck.brackets": "[]",
}
BUILT = ("data", "hints", "mixing", "model", "positions", "temperature", "bias")
BUILT += (*sorted({task.section for task in TASKS.values()}), "train")
FIELDS = [
  ".".join(path)
  for path in leaves(base.get_config())
  if path[0] in BUILT and path != ("bias", "file")  # of test_bias_files.py
]


def other(field: str, value):
  """Another value that a field can have."""
  if field in OTHER:
    return OTHER[field]
  for choice in check.CHOICES.get(field, ()):
    if choice != value:
      return choice
  if isinstance(value, bool):
    return not value
  return value + 1 if isinstance(value, int) else value / 2 + 0.01


def made(config: ConfigDict):
  """What a run is made of."""
  experiment = build.build(config)
  scaffold = build.make_scaffold(config, experiment)
  arrays = {
    site: [(x.shape, x.tobytes()) for x in map(np.asarray, own)]
    for site, own in scaffold.items()
  }
  return experiment, arrays, TrainConfig(**config.train)


def after(config: ConfigDict, changes: dict) -> ConfigDict:
  config = copy.deepcopy(config)
  with config.unlocked():
    config.update_from_flattened_dict(changes)
  return config


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_changes_what_a_run_is_made_of(field):
  section = field.partition(".")[0]
  where = WHERE.get(field, WHERE.get(section, {}))
  if field == "bias.kind":
    where = {}
  config = after(base.get_config(where.get("task", "addition")), where)
  value = config
  for name in field.split("."):
    value = value[name]
  changed = after(config, {field: other(field, value)})
  assert made(changed) != made(config)
  assert made(config) == made(copy.deepcopy(config))


def test_every_field_of_the_second_stage_reaches_it():
  config = base.get_config()
  for path in leaves(config.retrain):
    if len(path) == 1:
      continue
    section, name = path
    value = other(".".join(path), config[section][name])
    changed = after(config, {f"retrain.{section}.{name}": value})
    found = stages.retrain_config(changed, (0,), "bias.npz")
    assert found[section][name] == value != config[section][name], path
    assert changed[section][name] == config[section][name]
  missing = set(base.STAGED) - set(config.retrain)
  assert not missing
  with pytest.raises(UsageError, match="train.steps=0"):
    build.build(
      stages.retrain_config(after(config, {"retrain.train.steps": 0}), (0,), "")
    )
