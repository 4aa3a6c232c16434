"""Sorting with task hints:
configs/sorting.py:HINT[,tempered][,repeats][,best][,paper]

HINT     none, successor, count, fill, predecessor, minimum, or all (successor,
         count and fill); gradient steps alternate between sorting and the hint
tempered softmax temperature a·log(n+1), one learned a per layer
repeats  60 % of the examples draw from few distinct values, instead of 10 %
         (at the paper's size: 10 % instead of none, our reading)
best     what goes furthest on two cores: temperature on the keys that a row
         sees, stretched at random, repeats, half of the lengths beyond 5
         (else 20 %) and 48 000 steps: 99 % at 50 items in ten minutes on one
         core; with --config.train.steps=96000, in 21, 99 % at 100
paper    the paper's size: alphabet 100, model size 1024, 16 heads, 100 000
         steps; for an accelerator, not a laptop

  lengthgen --config=configs/sorting.py:successor,tempered --workdir=W
  echo 5 3 9 3 | lengthgen --mode=predict --workdir=W
"""

from configs import base

HINTS = {
  "none": (),
  "successor": ("successor",),
  "count": ("count",),
  "fill": ("fill",),
  "predecessor": ("predecessor",),
  "minimum": ("minimum",),
  "all": ("successor", "count", "fill"),
}
OPTIONS = ("tempered", "repeats", "best", "paper")


def get_config(preset: str = "none"):
  hint, *words = preset.split(",")
  if hint not in HINTS:
    raise ValueError(f"preset {preset!r}: hint {hint!r} is none of {[*HINTS]}")
  unknown = [word for word in words if word not in OPTIONS]
  if unknown:
    raise ValueError(
      f"preset {preset!r}: after the hint, name options of {OPTIONS}"
    )
  config = base.get_config("sort")
  config.hints = HINTS[hint]
  set_decoder_only(config)
  config.data.update(
    train_length=20, shortest=2, short_longest=5, buckets=(5, 20)
  )
  config.method = "+".join([hint, *(w for w in words if w != "paper")])
  config.eval.update(
    test_sets=("uniform",),
    lengths=(20, 30, 50, 100),
    samples=(1000,),
    free_running=True,
  )
  if "tempered" in words:
    config.temperature.kind = "log_items"
  if {"repeats", "best"} & set(words):
    config.sort.repeat_share = 0.6
  if "best" in words:
    config.temperature.update(kind="log_visible", stretch=6.0)
    config.data.short_share = 0.5
    config.train.update(steps=48_000, warmup_steps=1000)
  if "paper" in words:
    set_paper(config)
    config.sort.repeat_share = 0.1 if "repeats" in words else 0.0
  return config


def set_decoder_only(config) -> None:
  """A small decoder-only model without positions."""
  config.model.update(
    kind="decoder_only",
    num_encoder_layers=0,
    num_heads=4,
    activation="gelu",
  )
  config.positions.kind = "none"
  config.train.update(
    steps=16_000,  # many small ones go further than few large ones
    batch_size=32,
    learning_rate=3e-3,
    warmup_steps=500,
    chunk=1000,
  )


def set_paper(config) -> None:
  """Task hinting paper, section 3; sizes that its text lost are our reading."""
  config.sort.alphabet = 100
  config.data.size = 160_000_000
  config.model.update(
    emb_dim=1024,
    num_heads=16,
    mlp_dim=2048,
    norm_kind="rms",
    dense_bias=False,
  )
  config.train.update(
    steps=100_000,
    batch_size=1024,
    learning_rate=1e-5,
    clip_norm=0.0,
    chunk=100,
  )
