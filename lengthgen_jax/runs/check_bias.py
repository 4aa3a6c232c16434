"""Does a scaffold fit the model, and does it hide the future?"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.errors import UsageError
from lengthgen_jax.tasks.plan import Part


def check_bias(experiment, scaffold: dict, lengths) -> list[str]:
  """Refuses a scaffold that does not fit or shows the future.

  Args:
    experiment: the model it is meant for.
    scaffold: lines or matrices with leading axis R or 1.
    lengths: test lengths that it must cover.

  Returns:
    Lines about rows with nothing open, if there are any.

  Raises:
    UsageError: one line that names the site, layer, head and cell.
  """
  if "self" in scaffold and not experiment.bias.allow_leak:
    found = scaffold["self"].leak()
    if found is not None:
      seed, layer, head, row, column = found
      raise UsageError(
        f"bias leaks the future: site self, seed {seed}, layer {layer}, head"
        f" {head}, row {row} sees column {column}; repair it, or ask for it by"
        " --config.bias.allow_leak=true"
      )
  if not scaffold:
    return []
  for length in lengths:
    experiment.check_scaffold(experiment.test_width(length), scaffold)
  notes = []
  for batch in _training_batches(experiment):
    notes += _dead_rows(experiment, scaffold, batch)
  return notes


def _training_batches(experiment) -> list:
  """One example of the main task at every width or in the widest bucket."""
  head = experiment.task.name
  bucket = len(experiment.data[0].lengths.buckets) - 1
  return [
    experiment.sample(jax.random.key(0), head, Part(bucket, 1), turn)
    for turn in range(experiment.turns)
  ]


def _dead_rows(experiment, scaffold: dict, batch) -> list[str]:
  """A line for every site where rows that are scored have nothing open."""
  notes = []
  scored = np.asarray(batch.weight[0]) > 0
  count = max(len(jax.tree.leaves(own)[0]) for own in scaffold.values())
  shut = [_shut(experiment, of_seed(scaffold, r), batch) for r in range(count)]
  for site in sorted(set(scaffold) - {"encoder"}):
    dead = sum(int(own[site][..., scored].sum()) for own in shut)
    if dead:
      notes.append(
        f"bias: {dead} rows of {site}-attention have nothing open among"
        f" {int(scored.sum())} outputs; their context is zero"
      )
  return notes


@partial(jax.jit, static_argnums=0)
def _shut(experiment, own: dict, batch) -> dict:
  """Whether rows have nothing open, by site, with one seed's scaffold."""
  biases = experiment.sites(own, batch).biases
  return {
    site: jnp.all(biases[site].values == CLOSED, axis=-1)
    for site in set(own) - {"encoder"}
  }
