"""Increment with task hints: configs/increment.py:HINT[,tempered][,paper]

HINT     none or carry; gradient steps alternate between the task and the hint
tempered softmax temperature a·log(n+1), one learned a per layer
paper    the paper's size: depth 4, model size 1024, 16 heads, 100 000 steps

  lengthgen --config=configs/increment.py:carry,tempered --workdir=W
  echo 1999 | lengthgen --mode=predict --workdir=W
"""

from configs import base, sorting

HINTS = {"none": (), "carry": ("carry",)}
OPTIONS = ("tempered", "paper")


def get_config(preset: str = "none"):
  hint, *words = preset.split(",")
  if hint not in HINTS:
    raise ValueError(f"preset {preset!r}: hint {hint!r} is none of {[*HINTS]}")
  if set(words) - set(OPTIONS):
    raise ValueError(
      f"preset {preset!r}: after the hint, name options of {OPTIONS}"
    )
  config = base.get_config("increment")
  config.hints = HINTS[hint]
  sorting.set_decoder_only(config)
  config.data.update(train_length=10, short_longest=4, buckets=(4, 10))
  config.model.num_decoder_layers = 4
  config.train.steps = 8000
  config.method = "+".join([hint, *(w for w in words if w != "paper")])
  config.eval.update(
    test_sets=("uniform", "nines"),
    lengths=(10, 20, 50, 100),
    samples=(1000,),
    free_running=True,
  )
  if "tempered" in words:
    config.temperature.kind = "log_items"
  if "paper" in words:
    sorting.set_paper(config)
  return config
