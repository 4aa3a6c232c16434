"""This package makes scaffolds, biases that are data: one file each, one line
here.

A scaffold is a dict from site ("self", "cross", "encoder") to lines or matrices
with a leading axis of seeds. A registry entry is a function (section, shape) ->
scaffold: `section` is config.bias, `shape` a Shape.
"""

from lengthgen_jax.attention.biases import file, window

BIASES = {
  "none": lambda section, shape: {},
  "window": window.window,
  "file": file.from_file,  # lines or matrices read from bias.file
}
