"""Length generalization of transformers in JAX/Flax.

`load("addition")` is the door from Python to the models that come with the
package, `load(workdir)` to what the command line trained.
"""

import os

# Proofs multiply small matrices, for which one thread is three times as fast.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__version__ = "0.3.0"


def load(source, seed: int | None = None, stage: str = ""):
  """Loads a trained model: one of the package, or that of a workdir.

  Args:
    source: a name that `lengthgen --mode=models` lists, the path FOLDER/NAME of
      an exported model, or a workdir, whose last stage is loaded: of --mode=abc
      the retrained model, finetuned if it was.
    seed: one of the workdir's seeds; None takes the best by validation.
    stage: of a workdir of --mode=abc "interpolate", "retrain" or "finetune".

  Returns:
    A LoadedModel: predict(texts), model (answers, exact_match, attention,
    lines), config, certificate and data_sheet.

  Raises:
    UsageError: there is no such model, its files are damaged, nothing was
      trained in the workdir, or not this seed or stage.
  """
  from lengthgen_jax.pipelines import workdir

  return workdir.load(source, seed, stage)
