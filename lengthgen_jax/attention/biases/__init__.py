"""This package makes scaffolds: the attention biases of a model, as data.

A scaffold is a dict from site ("self", "cross", "encoder") to SiteLines or a
SiteMatrix, with a leading axis of seeds, or of 1 if all seeds share it. An
entry of BIASES is a function (config.bias, ScaffoldSpec) -> scaffold.
"""

from collections.abc import Callable

from lengthgen_jax.attention.biases import file, window
from lengthgen_jax.registry import Registry, check_arguments


def check_bias(name: str, function: Callable) -> None:
  """Raises UsageError unless a function that a user registers can be called
  with config.bias and a ScaffoldSpec."""
  check_arguments(f"bias {name!r}", function, "section", "spec")


BIASES = Registry(
  "bias",
  {
    "none": lambda section, spec: {},
    "window": window.window,
    "file": file.from_file,  # lines or matrices read from bias.file
  },
  check_bias,
)
