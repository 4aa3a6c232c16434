"""A run of seconds, for the tests: --config=tests/tiny.py[:PRESET]."""

from configs import arithmetic, increment, sorting

SEQUENCES = {"sort": sorting, "increment": increment}


def get_config(preset: str = "addition,window_cpi"):
  """A preset of configs/arithmetic.py, made tiny; or sort[,HINT...] and
  increment[,HINT...], a decoder-only run."""
  if preset.split(",")[0] in SEQUENCES:
    return sequences(*preset.split(","))
  config = arithmetic.get_config(preset)
  config.seeds = (0, 1)
  config.data.train_length = 2
  config.data.widths = (9,) if "parity" in config.task else (4,)
  config.model.update(emb_dim=16, num_heads=2, mlp_dim=32, num_decoder_layers=1)
  config.model.dropout_rate = 0.02
  config.train.update(
    steps=600,
    batch_size=32,
    learning_rate=1e-2,
    warmup_steps=10,
    schedule="constant",
    chunk=50,
    validation_samples=64,
    target_exact_match=2.0,
  )
  config.calibration.lengths = (1, 2)
  config.checkpoint.every = 2
  config.eval.update(lengths=(2,), samples=(64,), memory_mb=64)
  return config


def sequences(task: str, *hints):
  config = SEQUENCES[task].get_config()
  config.hints = hints
  config.seeds = (0, 1)
  config.data.train_length = 6
  config.data.update(shortest=1, short_longest=3, buckets=(3, 6))
  config.sort.alphabet = 5
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
