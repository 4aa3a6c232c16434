"""A round of practice trains on inputs that a certificate found wrong."""

import dataclasses
import json
import pathlib

import jax
import numpy as np

from lengthgen_jax.training import loop

INPUTS = "practice.json"  # the inputs of a round, by seed
UNMENDED = "unmended.json"  # the seeds that are wrong after all rounds


def practice_run(section, run: loop.Run, folder: pathlib.Path) -> loop.Run:
  """Returns the training of a round of practice.

  Args:
    section: The section config.practice.
    run: The training before any round.
    folder: The folder of the round, with the inputs of every seed that it
      trains.
  """
  practice = json.loads((folder / INPUTS).read_text())
  seeds = tuple(map(int, practice))
  task = run.experiment.task
  longest = int(np.max(run.experiment.data[0].longest(0)))
  sets, lengths = [], []
  for inputs in practice.values():
    repeats = max(len(inputs["thin"]) // max(len(inputs["failing"]), 1), 1)
    # About as many inputs fail as have thin margins.
    texts = inputs["failing"] * repeats + inputs["thin"]
    items, sizes = zip(*map(task.parse, texts), strict=True)
    pad = lambda x: np.pad(x, [(0, 0), (0, longest - x.shape[1])])
    sets.append(np.stack(list(map(pad, items))))
    lengths.append(np.array(sizes, np.int32))
  size = max(map(len, sets))
  fill = lambda x: np.pad(x, [(0, size - len(x)), *[(0, 0)] * (x.ndim - 1)])
  seed_indices = [run.seeds.index(seed) for seed in seeds]
  return dataclasses.replace(
    run,
    seeds=seeds,
    scaffold=jax.tree.map(
      lambda x: x[seed_indices] if len(x) > 1 else x, run.scaffold
    ),
    folder=folder,
    replay={
      "items": np.stack(list(map(fill, sets))),
      "lengths": np.stack(list(map(fill, lengths))),
      "count": np.array(list(map(len, sets)), np.int32),
    },
    train=dataclasses.replace(
      run.train,
      steps=section.steps,
      learning_rate=section.learning_rate,
      replay_share=section.share,
      warmup_steps=min(20, section.steps),
      restarts=0,
      target_exact_match=2.0,
    ),
    mesh=run.mesh.for_seeds(len(seeds), run.train.batch_size),
  )
