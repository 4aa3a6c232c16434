"""Parameters without training, drawn so that outputs vary."""

import jax
import jax.numpy as jnp
import numpy as np


def random_params(experiment):
  """Standard normal kernels and temperatures; scales 1, biases 0."""
  random = np.random.default_rng(1)

  def draw(path, x):
    if path[-1].key in ("scale", "bias"):
      return jnp.full(x.shape, float(path[-1].key == "scale"))
    return jnp.array(random.standard_normal(x.shape), x.dtype)

  shapes = jax.eval_shape(lambda: experiment.init(0))
  return jax.tree_util.tree_map_with_path(draw, shapes)
