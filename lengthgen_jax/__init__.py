"""Length generalization of transformers in JAX/Flax.

`load("addition")` is the door from Python to the models that come with the
package, `load(workdir)` to what the command line trained.
"""

import os

# Proofs multiply small matrices, for which one thread is three times as fast.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__version__ = "0.3.0"


def load(source, seed: int | None = None, stage: str = ""):
  """Loads a trained model: one that `lengthgen --mode=models` lists,
  FOLDER/NAME of an exported one, or a workdir's.

  Of a workdir the last stage counts, or `stage` ("interpolate", "retrain" or
  "finetune" of --mode=abc), and `seed`, by default the best by validation. A
  LoadedModel has predict(texts), model (answers, exact_match, attention,
  lines), config, certificate and data_sheet. UsageError says that there is no
  such model, seed or stage, or that files are damaged.
  """
  from lengthgen_jax.pipelines import workdir

  return workdir.load(source, seed, stage)
