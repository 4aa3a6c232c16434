"""The source of the package and the configs, parsed."""

import ast
import pathlib

from command import REPOSITORY

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


def imported(tree, lazily: bool = True) -> set[str]:
  """Full names of all modules (or their attributes) that a file imports:
  wherever in the file, or not in its functions."""
  names = set()
  for node in ast.walk(tree) if lazily else _outside_functions(tree):
    if isinstance(node, ast.Import):
      names |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, "imports are absolute"
      names |= {f"{node.module}.{alias.name}" for alias in node.names}
  return names


def _outside_functions(tree):
  for node in ast.iter_child_nodes(tree):
    if not isinstance(node, ast.FunctionDef):
      yield node
      yield from _outside_functions(node)
