"""A decoder-only run of seconds: --config=tests/sequences.py:TASK[,HINT...]"""

import tiny

from configs import increment, sorting


def get_config(preset: str = "sort"):
  """TASK and its hints, made tiny; any other preset is tests/tiny.py's."""
  task, *hints = preset.split(",")
  files = {"sort": sorting, "increment": increment}
  if task not in files:
    return tiny.get_config(preset)
  config = files[task].get_config()
  config.hints = tuple(hints)
  config.seeds = (0, 1)
  config.data.train_length = 6
  config.sequences.update(
    alphabet=5, shortest=1, short_longest=3, buckets=(3, 6)
  )
  config.model.update(emb_dim=16, num_heads=2, mlp_dim=32, num_decoder_layers=1)
  config.train.update(
    steps=60,
    batch_size=32,
    learning_rate=1e-2,
    warmup_steps=0,
    schedule="constant",
    chunk=20,
    validation_samples=64,
  )
  config.checkpoint.every = 1
  config.eval.update(
    test_sets=("uniform",), lengths=(4, 8), samples=(32,), memory_mb=64
  )
  return config
