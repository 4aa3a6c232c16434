"""ABC on addition: 6 digits in training, 1 000 at test, and a proof for every
length.

A vanilla transformer learns addition, its attention is calibrated into a bias,
a fresh model is trained with that bias and certified, and both are tested.

  lengthgen --config=configs/quickstart.py --mode=abc --workdir=runs/quickstart
"""

from lengthgen_jax.config import load_presets

arithmetic = load_presets("arithmetic.py")


def get_config():
  """Returns the config of ABC on addition."""
  return arithmetic.get_config("addition,abc")
