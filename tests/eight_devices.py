"""What a mesh of devices changes, as JSON: for a process of its own.

  XLA_FLAGS=--xla_force_host_platform_device_count=8 python eight_devices.py F

leaves the run of a toy in F.
"""

import dataclasses
import json
import pathlib
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import untrained
from pytrees import far
from toy_runs import toy_run

from lengthgen_jax.config import build
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import attention_statistics
from lengthgen_jax.training import loop, mesh, optimizer, train_step
from lengthgen_jax.training.train_step import TrainSpec

SEEDS = jnp.arange(4, dtype=jnp.int32)
STEPS = 50
BATCH = 88  # of which each of four devices has 22
CACHE = 60_000  # bytes; 11 examples fit


def unsplit(states, shape) -> list[str]:
  """Leaves whose shards are not one part of the seeds each, the same on all
  devices along `data`."""
  return [
    jax.tree_util.keystr(path)
    for path, x in jax.tree.leaves_with_path(states)
    if {s.data.shape[0] for s in x.addressable_shards} != {len(x) // shape[0]}
    or len({str(s.index) for s in x.addressable_shards}) != shape[0]
    or len(x.addressable_shards) != shape[0] * shape[1]
  ]


def toys(folder) -> dict:
  """A toy trained on two meshes, the first time in F."""
  before = train_step.train_seeds._cache_size()
  first = loop.train(toy_run(folder, (2, 4)))
  run = toy_run(folder.with_name("vmap"), (4, 2))
  train = dataclasses.replace(run.train, seed_axis="vmap")
  second = loop.train(dataclasses.replace(run, train=train))
  return {
    "compiled": train_step.train_seeds._cache_size() - before,
    "unsplit": unsplit(first, (2, 4)) + unsplit(second, (4, 2)),
    "apart": far(first, second),
  }


def models() -> dict:
  """A small model in float64, trained on one device and on eight."""
  config = untrained.config(
    kind="decoder_only",
    fields={
      "model.dtype": "float64",
      "model.dropout_rate": 0.1,
      "train.batch_size": BATCH,
      "train.validation_samples": 30,  # which no four devices divide
    },
  )
  jax.config.update("jax_enable_x64", True)
  built, found, ends, losses = build.build(config), {}, [], []
  scaffold = build.make_scaffold(config, built)
  spec = TrainSpec(built, optimizer.TrainConfig(**config.train))
  share = built.step_specs[0][0]
  batch = built.sample(jax.random.key(0), share.head, share.parts[0])
  train_step.CACHE_BYTES = CACHE
  start = train_step.init_seeds(spec, SEEDS)
  for shape in ((1, 1), (2, 4)):
    own = mesh.make(shape, SEEDS, config.train.batch_size)
    spec = dataclasses.replace(spec, mesh=own)
    placed = own.shard_seeds(jax.tree.map(jnp.copy, start))
    args = placed, SEEDS, scaffold, jnp.int32(STEPS)
    compiled = train_step.train_seeds.lower(spec, *args).compile()
    states, status = compiled(*args)
    ends.append(states.params)
    losses.append(status.metrics.loss)
    text = compiled.as_text()
    found[f"batches {shape}"] = len(re.findall(r"\[(88|44)[,\]]", text))
    found[f"shares {shape}"] = len(re.findall(r"\[(22|11)[,\]]", text))
    count = train_step.num_microbatches(spec, batch, {})
    found[f"microbatches {shape}"] = count
  export = jax.jit(lambda *args: train_step.train_seeds(spec, *args))
  there = jax.export.export(export, platforms=["cuda", "tpu"])(*args)
  one = Model(built, {}, jax.tree.map(lambda x: jnp.asarray(x[0]), ends[0]))
  return found | {
    "dtypes": sorted({str(x.dtype) for x in jax.tree.leaves(ends)}),
    "lowered": [*there.platforms, there.nr_devices],
    "unsplit": unsplit(states, (2, 4)),
    "params": far(*ends),
    "losses": far(*losses),
    "asked": asked(one, dataclasses.replace(one, mesh=own.for_one_seed())),
  }


def asked(one: Model, all_devices: Model) -> dict:
  """What a model says in tests and calibration, on one device and on all."""
  built = one.experiment
  batch = built.test_batch("equal", 0, np.arange(13), 3, {})
  hits = [own.hits(batch) for own in (one, all_devices)]
  right = hits[0][0] | (np.arange(13) % 2)[:, None]  # half of them count
  solved = batch._replace(weight=jnp.where(right, 0.0, batch.weight))
  args = built, "weights", one.params, {}, solved, False
  sums = [
    attention_statistics._sums(own.mesh, *args) for own in (one, all_devices)
  ]
  return {
    "hits": far(*hits),
    "right": float(hits[0][0].mean()),
    "sums": far(*sums),
    "solved": float(sums[0]["solved"]),
    "devices": len(sums[1]["solved"].devices()),
    "whole": all(x.is_fully_replicated for x in jax.tree.leaves(sums[1])),
  }


if __name__ == "__main__":
  found = {"toys": toys(pathlib.Path(sys.argv[1])), "models": models()}
  print(json.dumps(found))
