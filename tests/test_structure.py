"""The shape of the project: who imports whom, sizes, what an import does."""

import pathlib
import subprocess
import sys

import pytest
from command import REPOSITORY
from source import CONFIGS, FILES, PACKAGE, TREES, imported, room

# Every room, and the rooms of ours that it may import.
LEAVES = {
  "coordinates",
  "errors",
  "rng",
  "drawing",
  "hosts",
  "registry",
}
SMALL = {"coordinates", "errors", "rng", "registry"}
MODEL = SMALL | {"tasks", "attention", "models", "experiment"}
READ = {"certify", "probes", "construction", "evaluation"}
RULES = {leaf: set() for leaf in LEAVES} | {
  "drawing": {"hosts"},
  "hosts": {"errors"},
  "tasks": SMALL,
  "attention": SMALL | {"tasks"},
  "models": SMALL | {"attention", "tasks"},
  "experiment": SMALL | {"tasks", "attention", "models"},
  "memory": {"errors", "attention", "tasks", "experiment", "training"},
  "registry": {"errors"},
  "register": MODEL | {"probes"},
  "config": MODEL | {"training"},
  "training": {"errors", "rng", "tasks", "experiment", "results", "hosts"}
  | {"attention"},
  "results": {"errors", "drawing", "hosts"},
  "evaluation": MODEL | {"memory", "training"},
  "certify": MODEL | {"training", "evaluation"},
  "probes": MODEL | {"drawing"},
  "construction": MODEL | {"evaluation"},
  "pipelines": MODEL
  | LEAVES
  | READ
  | {"config", "training", "results"}
  | {"memory"},
  "papers": {"errors", "config", "pipelines", "probes", "results"},
  "benchmark": MODEL
  | LEAVES
  | {"evaluation", "config", "training"}
  | {"pipelines", "memory", "results"},
  "main": {"errors", "config", "pipelines", "benchmark", "hosts"},
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
  ("certify", "training"): MESH,
  ("certify", "evaluation"): {"lengthgen_jax.evaluation.trained.Model"},
  ("construction", "evaluation"): {
    "lengthgen_jax.evaluation.measures.longest_before",
  },
  ("configs", "config"): {
    f"lengthgen_jax.config.{name}"
    for name in ("default_config", "load_presets", "parse_preset")
  },
}


def rooms_imported(path: pathlib.Path) -> dict[str, set[str]]:
  """Full names of what a file imports of ours, by room, but for its own."""
  names_by_room = {}
  for name in imported(TREES[path]):
    parts = name.split(".")
    ours = parts[0] == "lengthgen_jax" and parts[1:] not in (
      [],
      ["__version__"],
    )
    imported_room = (
      parts[1] if ours else parts[0] if parts[0] == "configs" else ""
    )
    if imported_room and imported_room != room(path):
      names_by_room.setdefault(imported_room, set()).add(name)
  return names_by_room


def test_every_room_has_a_rule():
  assert {room(path) for path in FILES} == set(RULES)


@pytest.mark.parametrize("importer", sorted(RULES))
def test_imports_run_one_way(importer):
  for path in FILES:
    if room(path) != importer:
      continue
    for imported_room, names in rooms_imported(path).items():
      assert imported_room in RULES[importer], f"{path} imports {names}"
      allowed = ONLY.get((importer, imported_room), names)
      assert names <= allowed, f"{path} imports {names - allowed}"


def test_rules_have_no_cycle():
  done, open_rooms = set(), []

  def visit(importer):
    assert importer not in open_rooms, open_rooms[open_rooms.index(importer) :]
    if importer not in done:
      open_rooms.append(importer)
      for imported_room in RULES[importer]:
        visit(imported_room)
      open_rooms.pop()
      done.add(importer)

  for importer in RULES:
    visit(importer)


def test_files_of_a_room_have_no_cycle():
  modules = {}
  for path in FILES:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    inside = parts[:-1] if parts[-1] == "__init__" else parts
    modules[".".join(inside)] = path
  done, on_way = set(), []

  def visit(name):
    assert name not in on_way, on_way[on_way.index(name) :]
    if name in done:
      return
    on_way.append(name)
    for imported_name in imported(TREES[modules[name]], lazily=True):
      imported_module = (
        imported_name
        if imported_name in modules
        else imported_name.rpartition(".")[0]
      )
      if imported_module in modules and imported_module != name:
        visit(imported_module)
    on_way.pop()
    done.add(name)

  for name in modules:
    visit(name)


def test_checks_know_of_training_its_constants_only():
  for path in FILES:
    if room(path) == "config":
      for name in rooms_imported(path).get("training", ()):
        assert name.rpartition(".")[2].isupper(), name


def test_main_and_the_package_import_runs_lazily():
  for stem in ("main", "__init__"):
    tree = TREES[PACKAGE / f"{stem}.py"]
    names = imported(tree, lazily=False)
    ours = {name for name in names if name.startswith("lengthgen_jax")}
    quick = ("lengthgen_jax.errors.", "lengthgen_jax.hosts")
    assert not {name for name in ours if not name.startswith(quick)}


def test_configs_import_little():
  for path in CONFIGS.glob("*.py"):
    roots = {name.split(".")[0] for name in imported(TREES[path])}
    assert roots <= {"pathlib", "lengthgen_jax"}


def test_one_file_imports_matplotlib():
  files = [
    path
    for path, tree in TREES.items()
    if any(name.split(".")[0] == "matplotlib" for name in imported(tree))
  ]
  assert files == [PACKAGE / "drawing.py"]


def test_no_file_is_a_drawer():
  stems = {path.stem for path in FILES}
  assert not stems & {"utils", "util", "common", "helpers", "misc"}


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
