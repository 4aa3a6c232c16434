"""Scaffolds, biases that are data: one file each, and a line here.

A scaffold is a dict from site ("self", "cross", "encoder") to lines or matrices
with a leading axis of seeds. A registry entry is a function (section, about) ->
scaffold: `section` is config.bias, `about` a Shape.
"""

from lengthgen_jax.attention.biases import file, window

BIASES = {
  "none": lambda section, about: {},
  "window": window.window,
  "file": file.from_file,  # lines or matrices read from bias.file
}
