"""Parameters without training, drawn so that outputs vary."""

import jax
import jax.numpy as jnp
import numpy as np


def random_params(experiment):
  """Normal kernels that keep the size of what they multiply; scales 1, biases
  0, all else standard normal."""
  random = np.random.default_rng(1)

  def draw(path, x):
    name = path[-1].key
    if name in ("scale", "bias"):
      return jnp.full(x.shape, float(name == "scale"))
    size = 0.3 if name == "kernel" else 1.0
    return jnp.array(size * random.standard_normal(x.shape), x.dtype)

  shapes = jax.eval_shape(lambda: experiment.init(0))
  return jax.tree_util.tree_map_with_path(draw, shapes)
