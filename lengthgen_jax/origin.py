"""Where a result comes from: the machine, the versions and the commit."""

import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess
from typing import Any

import lengthgen_jax

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
CODE = ("lengthgen_jax", "configs")
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


def describe(device_kind: str) -> dict[str, Any]:
  """Returns the fields "machine", "versions" and "commit" of what is made now.

  Args:
    device_kind: JAX's name of the device, like "cpu".
  """
  info = pathlib.Path("/proc/cpuinfo")
  text = info.read_text() if info.exists() else ""
  names = re.findall(r"^model name\s*: (.*)", text, re.M)
  cores = len(os.sched_getaffinity(0)) if text else os.cpu_count()
  machine = f"{names[0] if names else platform.machine()}, {cores} cores"
  versions = {name: importlib.metadata.version(name) for name in PACKAGES}
  versions["python"] = platform.python_version()
  return {
    "machine": machine if device_kind == "cpu" else f"{machine}, {device_kind}",
    "versions": {"lengthgen_jax": lengthgen_jax.__version__} | versions,
    "commit": commit(),
  }


def commit() -> str:
  """Returns the commit of this clone, with -dirty if its code was changed;
  "unknown" where it is no clone."""
  head = git("rev-parse", "HEAD")
  if head is None or head.returncode:
    return "unknown"
  changes = git("status", "--porcelain", "--", *CODE)
  return head.stdout.strip() + ("-dirty" if changes and changes.stdout else "")


def git(*words: str) -> subprocess.CompletedProcess[str] | None:
  """Runs git in the repository; returns None where there is no git."""
  command = ["git", "-C", str(REPOSITORY), *words]
  try:
    return subprocess.run(command, capture_output=True, text=True)
  except FileNotFoundError:
    return None
