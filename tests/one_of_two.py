"""One of two processes that train a toy together, on different meshes: until a
stop signal, and then on.

  python one_of_two.py PORT INDEX FOLDER
"""

import pathlib
import sys

import toy
from toy_runs import ENDLESS, SEEDS, toy_run

from lengthgen_jax import hosts
from lengthgen_jax.errors import Interrupted
from lengthgen_jax.training import loop

if __name__ == "__main__":
  hosts.HEARTBEAT = 10  # the other one waits as long for the one that is killed
  port, index, folder = sys.argv[1:]
  with hosts.multihost_context(f"127.0.0.1:{port}", 2, int(index), 120):
    for shape in ((2, 1), (1, 2)):
      fine = (toy.CONVERGING,) * len(SEEDS)
      run = toy_run(pathlib.Path(folder), shape, ENDLESS, 10**6, fine)
      try:
        loop.train(run)
      except Interrupted as stop:
        print(stop, file=sys.stderr)
