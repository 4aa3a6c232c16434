"""This script prints, as JSON, what a mesh of four devices changes.

  XLA_FLAGS=--xla_force_host_platform_device_count=4 python four_devices.py F

It leaves the run of a toy in the folder F. test_mesh.py reads what it prints.
"""

import dataclasses
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import untrained
from pytrees import max_difference, one
from toy_runs import toy_run

from lengthgen_jax import rng, sections
from lengthgen_jax.config import build
from lengthgen_jax.evaluation import mean_attention
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.training import loop, mesh
from lengthgen_jax.training.loop import TrainSpec

SEEDS = np.arange(4, dtype=np.int32)
CHUNKS, CHUNK = 2, 3  # of so many steps
BATCH = 44  # examples of a step, of which each of two devices has 22


def toys(folder) -> dict:
  """Trains a toy's seeds side by side, and returns how often training was
  compiled."""
  run = toy_run(folder, (2, 2), seed_axis="vmap")
  loop.train(run)
  return {"compiled": compiled(run.spec)}


def compiled(spec: TrainSpec) -> int:
  """Returns how often training was compiled."""
  return loop.over_seeds(loop.train_chunk, spec)._cache_size()


def models() -> dict:
  """Trains a small model in float64 on one device and on four, seeds in turn,
  and returns how these differ."""
  fields = {
    "model.dtype": "float64",
    "model.dropout_rate": 0.1,
    "model.norm": "none",  # less to compile
    "train.batch_size": BATCH,
    "train.chunk": CHUNK,
    "train.validation_samples": 30,  # which four devices do not divide
  }
  config = untrained.config(kind="decoder_only", fields=fields)
  jax.config.update("jax_enable_x64", True)
  experiment, ends, losses = build.build(config), [], []
  scaffold = build.make_scaffold(config, experiment)
  spec = TrainSpec(experiment, sections.Train(**config.train))
  start = loop.init_seeds(spec, SEEDS)
  for shape in ((1, 1), (2, 2)):
    device_mesh = mesh.make(shape, SEEDS, config.train.batch_size)
    spec = dataclasses.replace(spec, mesh=device_mesh)
    sharded = device_mesh.shard_seeds(start)
    train = loop.over_seeds(loop.train_chunk, spec)
    args = sharded, SEEDS, scaffold
    for _ in range(CHUNKS):
      states, metrics = train(args)
      losses.append(metrics.loss)
      args = states, SEEDS, scaffold
    ends.append(states.params)
  exported = jax.export.export(train, platforms=["cuda", "tpu"])(args)
  model = Model(experiment, {}, one(jax.tree.map(jnp.asarray, ends[0])))
  flat_mesh = device_mesh.for_one_seed()
  return {
    "dtypes": sorted({str(x.dtype) for x in jax.tree.leaves(ends)}),
    "lowered": [*exported.platforms, exported.nr_devices],
    "params": max_difference(*ends),
    "losses": max_difference(losses[:CHUNKS], losses[CHUNKS:]),
    "compiled": compiled(spec),
    "tests": tests(model, dataclasses.replace(model, mesh=flat_mesh)),
  }


def tests(on_one: Model, on_all: Model) -> dict:
  """Returns how a model's test results and sums of calibration on all devices
  differ from those on one."""
  experiment = on_one.experiment
  texts = (f"{n}+{999 - 70 * n}" for n in range(13))
  batch = untrained.typed(experiment, *texts)
  logits, _ = on_one.observe(batch)
  is_odd = np.arange(13)[:, None] % 2 == 1  # half of them are right
  target = jnp.where(is_odd, logits.argmax(-1), batch.target)
  batch = batch._replace(target=target)
  hits = [model.matches(batch) for model in (on_one, on_all)]
  args = experiment, "weights", on_one.params, {}, batch
  sums = [mean_attention._sums(model.mesh, *args) for model in (on_one, on_all)]
  return {
    "hits": max_difference(*hits),
    "correct": float(hits[0].mean()),
    "sums": max_difference(*sums),
    "counted": float(sums[0]["counted"]),
    "devices": len(sums[1]["counted"].devices()),
  }


if __name__ == "__main__":
  bits = jax.random.bits(jax.random.split(rng.stream(3, "data"))[1], (3,))
  report = {"toys": toys(pathlib.Path(sys.argv[1])), "bits": bits.tolist()}
  report["models"] = models()
  print(json.dumps(report))
