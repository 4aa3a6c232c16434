"""Length generalization of transformers: ABS, ABC, hinting, in JAX/Flax."""

__version__ = "0.1.0"
