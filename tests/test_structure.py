"""The shape of the project: who imports whom, and what an import does."""

import ast
import pathlib
import subprocess
import sys

from command import REPOSITORY

PACKAGE, CONFIGS = REPOSITORY / "lengthgen_jax", REPOSITORY / "configs"
FILES = sorted(PACKAGE.rglob("*.py")) + sorted(CONFIGS.glob("*.py"))

# The floors of the house, the lowest first: a room may import those below it.
FLOORS = """
compilation coordinates errors origin rng stopwatch
hosts registry sections
drawing
tasks
attention
models
experiment
results
training
evaluation config
proofs probes construction pretrained
register
pipelines papers
main configs __init__
__main__
"""
FLOOR = {
  room: floor
  for floor, rooms in enumerate(FLOORS.split("\n"))
  for room in rooms.split()
}


def room(path: pathlib.Path) -> str:
  """ "tasks", "models", ... for files in a folder, the stem for others."""
  if path.parent == CONFIGS:
    return "configs"
  inside = path.relative_to(PACKAGE)
  return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def imported(path: pathlib.Path) -> set[str]:
  """Full names of what a file imports."""
  names = set()
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      names |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, "imports are absolute"
      names |= {f"{node.module}.{alias.name}" for alias in node.names}
  return names


def test_imports_run_one_way():
  for path in FILES:
    importer = room(path)
    for name in imported(path):
      package, other = f"{name}.".split(".")[:2]
      allowed = "", importer, "__version__"
      if package == PACKAGE.name and other not in allowed:
        assert FLOOR[other] < FLOOR[importer], f"{path} imports {name}"


def test_the_checker_shares_no_code_and_needs_numpy_alone():
  names = imported(PACKAGE / "proofs" / "checker.py")
  packages = {name.partition(".")[0] for name in names}
  assert packages - sys.stdlib_module_names == {"numpy"}


# What an import does.


def run(code: str) -> None:
  command = [sys.executable, "-B", "-c", code, "lengthgen", "--config=x"]
  done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr


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
