"""This script is one of two processes that train a toy together.

  python one_of_two.py PORT INDEX FOLDER

They train until a stop signal on a mesh with the processes along `seed`, and
then on with the processes along `data`, until another one. PORT is where
process 0 listens, INDEX is 0 or 1, and FOLDER is the run's folder.
"""

import pathlib
import sys

import toy
from toy_runs import ENDLESS, SEEDS, toy_run

from lengthgen_jax import hosts
from lengthgen_jax.errors import Interrupted
from lengthgen_jax.training import loop

if __name__ == "__main__":
  port, index, folder = sys.argv[1:]
  hosts.connect(f"127.0.0.1:{port}", 2, int(index))
  for shape in ((2, 1), (1, 2)):
    fates = (toy.CONVERGING,) * len(SEEDS)
    run = toy_run(pathlib.Path(folder), shape, 10**6, fates, steps=ENDLESS)
    try:
      loop.train(run)
    except Interrupted as stop:
      print(stop, file=sys.stderr)
