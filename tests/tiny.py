"""This config file describes runs of seconds, for the tests:
--config=tests/tiny.py[:PRESET]."""

from lengthgen_jax.config import default_config, load_presets

arithmetic = load_presets("arithmetic.py")
SEQUENCES = {
  "sort": load_presets("sorting.py"),
  "increment": load_presets("increment.py"),
}


def get_config(preset: str = "addition,window_cpi"):
  """Returns a tiny config.

  Args:
    preset: one of configs/arithmetic.py; or sort[,HINT...] or
      increment[,HINT...] for a decoder-only model.
  """
  if preset.split(",")[0] in SEQUENCES:
    return sequences(*preset.split(","))
  config = shrink(arithmetic.get_config(preset))
  config.model.dropout_rate = 0.02
  config.train.update(
    steps=600, warmup_steps=10, chunk=50, target_exact_match=2.0
  )
  config.calibration.lengths = (1, 2)
  config.checkpoint.every = 2
  config.eval.update(lengths=(2,), samples=(64,))
  return config


def sequences(task: str, *hints):
  """Returns a tiny config of a task in SEQUENCES, with some of its hints, and
  with training data in two buckets."""
  config = shrink(SEQUENCES[task].get_config())
  config.hints = hints
  config.data.update(
    train_length=6, shortest=1, short_longest=3, buckets=(3, 6)
  )
  config.train.update(steps=60, chunk=20)
  config.checkpoint.every = 1
  config.eval.update(test_sets=("uniform",), lengths=(4, 8), samples=(32,))
  return config


def of_kind(task: str, kind: str):
  """Returns a tiny config of any task for either family of models."""
  config = shrink(default_config(task))
  config.model.kind = kind
  config.eval.update(lengths=(3,), samples=(32,))
  return config


def shrink(config):
  """Returns a config after it was given a small model, short inputs and small
  batches, in place."""
  config.seeds = (0, 1)
  config.data.update(train_length=2, buckets=())
  config.sort.alphabet = 5
  if config.task == "multiply_long":
    config.data.shortest = 2
  config.model.update(emb_dim=16, num_heads=2, mlp_dim=32, num_decoder_layers=1)
  config.train.update(
    batch_size=32,
    learning_rate=1e-2,
    warmup_steps=0,
    schedule="constant",
    validation_samples=64,
  )
  config.eval.memory_mb = 64
  return config
