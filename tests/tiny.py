"""A run of seconds, for the tests: --config=tests/tiny.py[:PRESET]."""

from configs import arithmetic


def get_config(preset: str = "addition,window_cpi"):
  """A preset of configs/arithmetic.py, made tiny."""
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
