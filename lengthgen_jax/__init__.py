"""Length generalization of transformers in JAX/Flax.

`load(workdir)` is the door from Python to what the command line trained.
"""

__version__ = "0.2.0"


def load(workdir, seed: int | None = None):
  """The trained model of a workdir: of --mode=abc, the retrained one.

  Args:
    workdir: folder of a run.
    seed: one of its seeds; None takes the best by validation.

  Returns:
    A trained.Model: answers(texts), exact_match(length, samples),
    attention(text), lines.

  Raises:
    UsageError: nothing was trained there, or not this seed.
  """
  from lengthgen_jax.pipelines.workdir import open_model

  return open_model(workdir, seed)
