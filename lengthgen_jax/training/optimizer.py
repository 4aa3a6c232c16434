"""Optimizers, and the schedule of the learning rate."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import optax
import optax.contrib
from optax.contrib import MuonDimensionNumbers

from lengthgen_jax.registry import Registry, entry_check
from lengthgen_jax.sections import Train


class Optimizer(NamedTuple):
  """One choice of train.optimizer; `make` takes the learning rate from
  `make_schedule`."""

  make: Callable[[Train], optax.GradientTransformation]
  uses_adam_fields: bool = False  # train.adam_b1, adam_b2 and adam_eps
  # leaves some parameters to NAdam, whose learning rate is
  # train.adam_learning_rate
  has_separate_adam_rate: bool = False


def make_schedule(train: Train, peak: float = 0.0) -> optax.Schedule:
  """Returns the learning rate as a function of the gradient step: a
  linear warm-up to `peak`, or to train.learning_rate if it is 0, then a
  constant rate or a cosine decay to 0 at train.steps, or one step after the
  warm-up if that is later."""
  peak = peak or train.learning_rate
  if train.schedule == "cosine":
    return optax.warmup_cosine_decay_schedule(
      init_value=0.0,
      peak_value=peak,
      warmup_steps=train.warmup_steps,
      decay_steps=max(train.steps, train.warmup_steps + 1),
    )
  return optax.linear_schedule(
    0.0 if train.warmup_steps else peak, peak, max(train.warmup_steps, 1)
  )


def adam(train: Train) -> optax.GradientTransformation:
  """Adam; AdamW if there is weight decay."""
  constructor = optax.adam
  if train.weight_decay:
    constructor = partial(optax.adamw, weight_decay=train.weight_decay)
  return constructor(
    make_schedule(train), b1=train.adam_b1, b2=train.adam_b2, eps=train.adam_eps
  )


def lion(train: Train) -> optax.GradientTransformation:
  """Lion (Chen et al. 2023)."""
  return optax.lion(make_schedule(train), weight_decay=train.weight_decay)


# Muon orthogonalizes the update of a kernel as a matrix. These are the input
# axes and the output axes of each kernel of attention (but for temperature) and
# MLP, with D features, H heads, K features per head and F hidden units.
MUON_KERNELS = {
  "query": MuonDimensionNumbers(0, (1, 2)),  # [D, H, K]
  "key": MuonDimensionNumbers(0, (1, 2)),
  "value": MuonDimensionNumbers(0, (1, 2)),
  "out": MuonDimensionNumbers((0, 1), 2),  # [H, K, D]
  "wi": MuonDimensionNumbers(0, 1),  # [D, F]
  "wo": MuonDimensionNumbers(0, 1),  # [F, D]
}


def muon_dimensions(params: optax.Params) -> optax.Params:
  """Returns a pytree like `params`: the axes of each kernel of MUON_KERNELS in
  a block, and None for all other parameters, which NAdam updates."""

  def dimensions(path: tuple, leaf: jax.Array) -> MuonDimensionNumbers | None:
    names = [getattr(key, "key", "") for key in path]
    # FIRE, which is in no block, has a layer "out" too.
    is_in_block = names[0].startswith(("encoder_", "decoder_"))
    if not is_in_block or names[-1] != "kernel":
      return None
    return MUON_KERNELS.get(names[-2])

  return jax.tree_util.tree_map_with_path(dimensions, params)


def muon(train: Train) -> optax.GradientTransformation:
  """Muon (Jordan 2024) for the kernels of attention and MLP, and NAdam for all
  other parameters.

  Three Newton-Schulz iterations with AOL (almost-orthogonal layer)
  preconditioning train as well as the usual five without it, at 0.6 times their
  cost (measured on a CPU).
  """
  return optax.contrib.muon(
    make_schedule(train),
    ns_steps=3,
    preconditioning="aol",
    eps=train.adam_eps,  # of NAdam alone: AOL has an eps of its own
    weight_decay=train.weight_decay,
    adam_b1=train.adam_b1,
    adam_b2=train.adam_b2,
    adam_weight_decay=train.weight_decay,
    adam_learning_rate=make_schedule(train, train.adam_learning_rate),
    muon_weight_dimension_numbers=muon_dimensions,
  )


OPTIMIZERS = Registry(
  "optimizer",
  {
    "adam": Optimizer(adam, uses_adam_fields=True),
    "muon": Optimizer(muon, uses_adam_fields=True, has_separate_adam_rate=True),
    "lion": Optimizer(lion),
  },
  entry_check(Optimizer, "make", "train"),
)


def make_optimizer(train: Train) -> optax.GradientTransformation:
  """Returns the optimizer that the config names, with gradients clipped by
  global norm first unless `clip_norm` is zero."""
  optimizer = OPTIMIZERS[train.optimizer].make(train)
  if not train.clip_norm:
    return optimizer
  return optax.chain(optax.clip_by_global_norm(train.clip_norm), optimizer)
