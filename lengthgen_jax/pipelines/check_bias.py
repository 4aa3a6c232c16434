"""A check that a scaffold fits the model and hides the future."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.attention import kernel, lines
from lengthgen_jax.errors import UsageError
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import plan
from lengthgen_jax.tasks.pack import Batch


def check_bias(
  experiment: Experiment, scaffold: dict, lengths: Sequence[int]
) -> list[str]:
  """Refuses a scaffold that does not fit the model or shows the future.

  Args:
    experiment: The experiment that the scaffold is meant for.
    scaffold: Lines or matrices by site, with a leading axis R or 1.
    lengths: The test lengths that it must cover.

  Returns:
    Notes on rows that have no open cell, one line of text each.

  Raises:
    UsageError: The scaffold is refused; the message names the site, layer, head
      and cell.
  """
  if "self" in scaffold and not experiment.bias.allow_leak:
    leak = scaffold["self"].leak()
    if leak is not None:
      seed, layer, head, row, column = leak
      raise UsageError(
        f"bias leaks the future: site self, seed {seed}, layer {layer}, head"
        f" {head}, row {row} sees column {column}; repair it, or ask for it by"
        " --config.bias.allow_leak=true"
      )
  if not scaffold:
    return []
  for length in lengths:
    experiment.check_scaffold(experiment.test_width(length), scaffold)
  num_seeds = max(len(jax.tree.leaves(tree)[0]) for tree in scaffold.values())
  seed_scaffolds = [lines.of_seed(scaffold, r) for r in range(num_seeds)]
  widest = plan.Part(len(experiment.data[0].lengths.buckets) - 1, 1)
  notes = []
  for width_index in range(experiment.num_widths):  # at every width of training
    key, head = jax.random.key(0), experiment.task.name
    batch = experiment.sample(key, head, widest, width_index)
    scored_T = np.asarray(batch.weight[0]) > 0
    closed_masks = [_shut(experiment, tree, batch) for tree in seed_scaffolds]
    for site in sorted(closed_masks[0]):
      closed_count = sum(
        int(tree[site][..., scored_T].sum()) for tree in closed_masks
      )
      if closed_count:
        notes.append(
          f"bias: {closed_count} rows of {site}-attention have nothing open"
          f" among {int(scored_T.sum())} outputs; their context is zero"
        )
  return notes


@partial(jax.jit, static_argnums=0)
def _shut(
  experiment: Experiment, scaffold: dict, batch: Batch
) -> dict[str, jax.Array]:
  """Returns, by site, whether rows have no open cell with a seed's scaffold."""
  biases = experiment.sites(scaffold, batch).biases
  return {
    site: jnp.all(biases[site].values == kernel.CLOSED, axis=-1)
    for site in set(scaffold) - {"encoder"}
  }
