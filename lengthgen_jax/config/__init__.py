"""Configs: all fields, files of presets, and the experiments that they
describe."""

from lengthgen_jax.config.fields import default_config, parse_preset
from lengthgen_jax.config.files import load_config, load_presets

__all__ = ["default_config", "load_config", "load_presets", "parse_preset"]
