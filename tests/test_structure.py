"""The shape of the project: who imports whom, and what an import does."""

import ast
import functools
import graphlib
import pathlib
import subprocess
import sys

import pytest
from command import REPOSITORY

PACKAGE, CONFIGS = REPOSITORY / "lengthgen_jax", REPOSITORY / "configs"
FILES = sorted(PACKAGE.rglob("*.py")) + sorted(CONFIGS.glob("*.py"))

# Every room, and the rooms of ours that it may import.
LEAVES = {
  "compilation",
  "stopwatch",
  "origin",
  "coordinates",
  "errors",
  "rng",
  "drawing",
  "hosts",
  "registry",
}
SMALL = {"compilation", "coordinates", "errors", "rng", "registry"}
MODEL = SMALL | {"tasks", "attention", "models", "experiment"}
READ = {"proofs", "probes", "construction", "evaluation"}
RULES = {leaf: set() for leaf in LEAVES} | {
  "drawing": {"hosts"},
  "hosts": {"errors"},
  "tasks": SMALL,
  "attention": SMALL | {"tasks"},
  "models": SMALL | {"attention", "tasks"},
  "experiment": SMALL | {"tasks", "attention", "models"},
  "memory": {"errors", "attention", "tasks", "experiment", "training"},
  "registry": {"errors"},
  "register": MODEL | {"probes", "training"},
  "config": MODEL | {"training"},
  "training": SMALL
  | {"tasks", "experiment", "results", "hosts", "attention", "stopwatch"},
  "results": {"errors", "drawing", "hosts"},
  "evaluation": MODEL | {"memory", "training"},
  "proofs": MODEL | {"evaluation"},
  "probes": MODEL | {"drawing", "evaluation"},
  "construction": MODEL | {"evaluation"},
  "pipelines": MODEL
  | LEAVES
  | READ
  | {"config", "training", "results"}
  | {"memory", "pretrained"},
  "pretrained": {"errors", "attention", "config", "experiment", "tasks"},
  "papers": {"errors", "config", "drawing", "probes", "results", "origin"},
  "main": {"errors", "config", "pipelines", "hosts"}
  | {"compilation", "stopwatch", "pretrained"},
  "__main__": {"main"},
  "__init__": {"pipelines"},
  "configs": {"config"},
}
MESH = {
  "lengthgen_jax.training.mesh.SINGLE_DEVICE",
  "lengthgen_jax.training.mesh.Mesh",
}
# Where a room may import no more of another than this.
ONLY = {
  ("attention", "tasks"): {
    "lengthgen_jax.tasks.packing.Batch",
    "lengthgen_jax.tasks.task.Task",
  },
  ("models", "tasks"): {"lengthgen_jax.tasks.packing.Batch"},
  ("training", "attention"): {
    "lengthgen_jax.attention.biases.scaffold.SparsePlan",
  },
  ("training", "results"): {"lengthgen_jax.results.records"},
  ("training", "tasks"): {
    "lengthgen_jax.tasks.packing",
    "lengthgen_jax.tasks.packing.Batch",
    "lengthgen_jax.tasks.dataset.Part",
    "lengthgen_jax.tasks.dataset.Share",
    "lengthgen_jax.tasks.dataset.StepSpec",
  },
  ("evaluation", "training"): MESH
  | {
    "lengthgen_jax.training.loop.Run",
    "lengthgen_jax.training.train_step.TrainState",
  },
  ("proofs", "evaluation"): {"lengthgen_jax.evaluation.trained.Model"},
  ("construction", "evaluation"): {
    "lengthgen_jax.evaluation.measures.longest_before_failure",
  },
  ("configs", "config"): {
    f"lengthgen_jax.config.{name}"
    for name in ("default_config", "load_presets", "parse_preset")
  },
}


def room(path: pathlib.Path) -> str:
  """ "tasks", "models", ... for files in a folder, the stem for others."""
  if path.parent == CONFIGS:
    return "configs"
  inside = path.relative_to(PACKAGE)
  return inside.parts[0] if len(inside.parts) > 1 else inside.stem


@functools.cache
def parse(path: pathlib.Path) -> ast.Module:
  return ast.parse(path.read_text())


def imported(tree, lazily: bool = True) -> set[str]:
  """Full names of what a file imports of ours: wherever in the file, or not in
  its functions."""
  names = set()
  for node in ast.walk(tree) if lazily else outside_functions(tree):
    if isinstance(node, ast.Import):
      names |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, "imports are absolute"
      names |= {f"{node.module}.{alias.name}" for alias in node.names}
  return {name for name in names if name.startswith("lengthgen_jax.")}


def outside_functions(tree):
  for node in ast.iter_child_nodes(tree):
    if not isinstance(node, ast.FunctionDef):
      yield node
      yield from outside_functions(node)


def test_every_room_has_a_rule():
  assert {room(path) for path in FILES} == set(RULES)


@pytest.mark.parametrize("importer", sorted(RULES))
def test_imports_run_one_way(importer):
  rooms = RULES[importer] | {importer, "__version__"}
  for path in FILES:
    if room(path) == importer:
      for name in imported(parse(path)):
        imported_room = name.split(".")[1]
        assert imported_room in rooms, f"{path} imports {name}"
        allowed = ONLY.get((importer, imported_room), {name})
        assert name in allowed, f"{path} imports {name}"


def test_files_have_no_cycle():
  modules = {}
  for path in FILES:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    modules[".".join(x for x in parts if x != "__init__")] = path
  module_of = lambda name: name if name in modules else name.rpartition(".")[0]
  graph = {
    module: set(map(module_of, imported(parse(path)))) - {module}
    for module, path in modules.items()
  }
  graphlib.TopologicalSorter(graph).prepare()


def test_main_and_the_package_import_runs_lazily():
  for stem in ("main", "__init__"):
    names = imported(parse(PACKAGE / f"{stem}.py"), lazily=False)
    quick = tuple(
      f"lengthgen_jax.{stem}" for stem in ("errors", "hosts", "stopwatch")
    )
    assert not {name for name in names if not name.startswith(quick)}


# What an import does.


def run(code: str) -> None:
  command = [sys.executable, "-B", "-c", code, "lengthgen", "--config=x"]
  done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr


def test_importing_the_package_does_nothing():
  run("""
import sys
before = list(sys.argv)
def forbid(event, arguments):
  writes = ("os.mkdir", "os.rename", "os.remove", "socket.connect")
  writes += ("subprocess.Popen", "os.putenv")
  assert event not in writes, (event, arguments)
  if event == "open":
    path, mode, flags = arguments
    assert mode is None or not set(mode) & set("wax+"), (path, mode)
    assert str(path).endswith((".py", ".pyc")), path
sys.addaudithook(forbid)
import lengthgen_jax
assert lengthgen_jax.load and lengthgen_jax.__version__
assert not {"jax", "numpy", "absl", "ml_collections"} & set(sys.modules)
assert sys.argv == before
""")


def test_importing_every_module_starts_no_device_and_parses_no_flags():
  run("""
import importlib, pkgutil, sys
before = list(sys.argv)
import lengthgen_jax
for module in pkgutil.walk_packages(lengthgen_jax.__path__, "lengthgen_jax."):
  importlib.import_module(module.name)
from absl import flags
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized()
assert not flags.FLAGS.is_parsed()
assert sys.argv == before
""")
