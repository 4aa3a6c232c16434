"""Presets of a small vanilla model on any task: TASK.

lengthgen_jax/sections.py has all fields, with defaults and meanings.

  lengthgen --config=configs/default.py:copy --workdir=W
"""

from lengthgen_jax.config import default_config

get_config = default_config
