"""Puts the presets of configs/ into the package, as lengthgen_jax/configs.

All else is in pyproject.toml.
"""

from setuptools import find_packages, setup

setup(
  packages=[
    *find_packages(include=["lengthgen_jax*"]),
    "lengthgen_jax.configs",
  ],
  package_dir={"lengthgen_jax.configs": "configs"},
)
