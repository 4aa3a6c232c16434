"""This module has an attribute for each file of presets in configs/, which is
loaded once: `presets.sorting` has what configs/sorting.py defines."""

import pathlib

from lengthgen_jax.config import load_presets

CONFIGS = pathlib.Path(__file__).parents[1] / "configs"
globals().update(
  {path.stem: load_presets(path) for path in sorted(CONFIGS.glob("*.py"))}
)
