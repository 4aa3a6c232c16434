"""Does a bias fit the model, and does it hide the future?"""

import jax

from lengthgen_jax.attention import biases, lines
from lengthgen_jax.errors import UsageError, check


def check_bias(experiment, bias: dict, seeds) -> list[str]:
  """Refuses a bias that does not fit the model or shows the future.

  Args:
    experiment: the model it is meant for.
    bias: LineBias or matrices with leading axis R or 1.
    seeds: the seeds of the run.

  Returns:
    Lines about rows with nothing open, if there are any.

  Raises:
    UsageError: one line that names the site, layer, head and cell.
  """
  config = experiment.model.config
  notes = []
  for name, value in bias.items():
    site, _, is_dense = name.partition("_")
    shape = value.shape if is_dense else value.transparent.shape
    encoder = site == "encoder"
    layers = config.num_encoder_layers if encoder else config.num_decoder_layers
    check(
      shape[0] in (1, len(seeds))
      and shape[1] in (1, layers)
      and shape[2] == config.num_heads,
      f"bias.file: {site} has {shape[0]} seeds, {shape[1]} layers and"
      f" {shape[2]} heads; this run has {len(seeds)}, {layers} (or 1) and"
      f" {config.num_heads}",
    )
    if site == "self" and not experiment.bias.allow_leak:
      _refuse_leak(value, is_dense)
    for width in experiment.static_sizes:
      if is_dense:
        check_size(experiment, name, value, width)
      notes += _dead_rows(experiment, name, value, width)
  return notes


def _refuse_leak(value, is_dense) -> None:
  found = lines.leak_dense(value) if is_dense else lines.leak(value)
  if found is not None:
    seed, layer, head, row, column = found
    raise UsageError(
      f"bias leaks the future: site self, seed {seed}, layer {layer}, head"
      f" {head}, row {row} sees column {column}; repair it, or ask for it by"
      " --config.bias.allow_leak=true"
    )


def check_size(experiment, name: str, matrix, width: int) -> None:
  """UsageError if a matrix has too few rows or columns for a width."""
  rows, keys = experiment.rows_and_keys(name.partition("_")[0], width)
  check(
    len(rows) <= matrix.shape[-2] and len(keys.segment) <= matrix.shape[-1],
    f"bias.file: {name.partition('_')[0]} is {matrix.shape[-2]} x"
    f" {matrix.shape[-1]}, but width {width} needs {len(rows)} x"
    f" {len(keys.segment)}",
  )


def _dead_rows(experiment, name: str, value, width: int) -> list[str]:
  """A line if rows of this bias have nothing open at width W."""
  site = name.partition("_")[0]
  if site == "encoder":
    return []
  rows, keys = experiment.rows_and_keys(name.partition("_")[0], width)
  heads = experiment.model.config.num_heads
  dead = 0
  for r in range(len(jax.tree.leaves(value)[0])):
    own = lines.of_seed({name: value}, r)
    total = biases.total(experiment.bias, own, site, heads, rows, keys)
    dead += int((total == biases.CLOSED).all(axis=-1).sum())
  if not dead:
    return []
  return [
    f"bias: {dead} rows of {site}-attention have nothing open at width {width};"
    " their context is zero"
  ]
