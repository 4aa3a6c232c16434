"""Increment with task hints: configs/increment.py:HINT[,tempered][,paper]

HINT     none or carry; gradient steps alternate between the task and the hint
tempered softmax temperature a·log(n+1), one learned a per layer
paper    the paper's size: depth 4, model size 1024, 16 heads, 100 000 steps

  lengthgen --config=configs/increment.py:carry,tempered --workdir=W
  echo 1999 | lengthgen --mode=predict --workdir=W
"""

from configs import sorting

HINTS = {"none": (), "carry": ("carry",)}
OPTIONS = ("tempered", "paper")


def get_config(preset: str = "none"):
  config, words = sorting.hinted("increment", preset, HINTS, OPTIONS)
  config.data.update(train_length=10, short_longest=4, buckets=(4, 10))
  config.model.num_decoder_layers = 4
  config.train.steps = 8000
  config.eval.update(test_sets=("uniform", "nines"), lengths=(10, 20, 50, 100))
  if "paper" in words:
    config.update_from_flattened_dict(sorting.PAPER)
  return config
