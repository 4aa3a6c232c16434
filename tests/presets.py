"""The files of presets in configs/, loaded once: `presets.sorting`, ..."""

import pathlib

from lengthgen_jax.config import load_presets

CONFIGS = pathlib.Path(__file__).parents[1] / "configs"
globals().update(
  {path.stem: load_presets(path) for path in sorted(CONFIGS.glob("*.py"))}
)
