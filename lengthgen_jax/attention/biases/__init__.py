"""This package makes scaffolds: the attention biases of a model, as data.

A scaffold is a dict from site ("self", "cross", "encoder") to SiteLines or a
SiteMatrix, with a leading axis of seeds, or of 1 if all seeds share it. An
entry of BIASES is a function (config.bias, ScaffoldSpec) -> scaffold.
"""

from lengthgen_jax.attention.biases import file, window
from lengthgen_jax.registry import Registry, check_arguments

BIASES = Registry(
  "bias",
  {
    "none": lambda section, spec: {},
    "window": window.window,
    "file": file.from_file,  # lines or matrices read from bias.file
  },
  lambda name, function: check_arguments(
    f"bias {name!r}", function, "section", "spec"
  ),
)
