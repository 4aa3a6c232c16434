"""This package makes scaffolds, biases that are data.

A scaffold is a dict from site ("self", "cross", "encoder") to lines or matrices
with a leading axis of seeds. An entry of BIASES is a function (config.bias,
ScaffoldSpec) -> scaffold.
"""

from collections.abc import Callable

from lengthgen_jax.attention.biases import file, window
from lengthgen_jax.errors import check
from lengthgen_jax.registry import Registry


def check_bias(name: str, function: Callable) -> None:
  """Raises UsageError if a bias is no function."""
  check(callable(function), f"register: bias {name!r} is no function")


BIASES = Registry(
  "bias",
  {
    "none": lambda section, spec: {},
    "window": window.window,
    "file": file.from_file,  # lines or matrices read from bias.file
  },
  check_bias,
)
