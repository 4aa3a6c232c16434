"""The main job: ABS on addition, 6 digits in training, 200 at test.

lengthgen --config=configs/quickstart.py --workdir=runs/quickstart
"""

from configs import arithmetic


def get_config():
  config = arithmetic.get_config("addition,window_cpi")
  config.eval.test_sets = ("equal", "unequal")
  config.eval.lengths = (6, 10, 20, 60, 200)
  return config
