"""Where a result comes from: the machine, versions of libraries and commit."""

import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess
from typing import Any

import lengthgen_jax

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
CODE = ("lengthgen_jax", "configs")  # folders whose files can change a result
# Packages whose versions can change a result.
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


def describe(device_kind: str) -> dict[str, Any]:
  """Returns the origin of what this process makes: "machine" (the processor,
  its cores and, unless JAX calls it "cpu", the device), "versions" ({name:
  version} of this package, PACKAGES and Python) and "commit"."""
  path = pathlib.Path("/proc/cpuinfo")
  is_linux = path.exists()
  text = path.read_text(encoding="utf-8") if is_linux else ""
  processors = re.findall(r"^model name\s*: (.*)", text, re.M)
  processor = processors[0] if processors else platform.machine()
  # The cores that this process may use, where the system says which.
  cores = len(os.sched_getaffinity(0)) if is_linux else os.cpu_count()
  machine = f"{processor}, {cores} cores"
  versions = {name: importlib.metadata.version(name) for name in PACKAGES}
  versions["python"] = platform.python_version()
  return {
    "machine": machine if device_kind == "cpu" else f"{machine}, {device_kind}",
    "versions": {"lengthgen_jax": lengthgen_jax.__version__} | versions,
    "commit": commit(),
  }


def commit() -> str:
  """Returns the commit of this clone as hex digits, with -dirty behind them if
  CODE was changed since; "unknown" if there is no git, or this is no clone."""
  head, top = git("rev-parse", "HEAD"), git("rev-parse", "--show-toplevel")
  # An installed package may lie in an environment within another clone.
  is_own = pathlib.Path(top.stdout.strip()).resolve() == REPOSITORY.resolve()
  if head.returncode or not is_own:
    return "unknown"
  changes = git("status", "--porcelain", "--", *CODE)
  return head.stdout.strip() + ("-dirty" if changes.stdout else "")


def git(*words: str) -> subprocess.CompletedProcess[str]:
  """Runs git in the repository, though it may fail, or there is none."""
  command = ["git", "-C", str(REPOSITORY), *words]
  try:
    return subprocess.run(command, capture_output=True, encoding="utf-8")
  except FileNotFoundError:
    return subprocess.CompletedProcess(command, 128, "", "")
