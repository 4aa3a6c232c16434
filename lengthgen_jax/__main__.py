"""`python -m lengthgen_jax` is the program `lengthgen`."""

from lengthgen_jax.main import run

if __name__ == "__main__":
  run()
