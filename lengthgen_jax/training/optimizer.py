"""This module makes Adam(W) with warm-up and a schedule, from the config."""

import dataclasses
from functools import partial

import optax

SCHEDULES = ("constant", "cosine")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
  """A TrainConfig says how a run is trained: the fields of config.train.

  config/fields.py explains them.
  """

  steps: int
  batch_size: int
  learning_rate: float
  warmup_steps: int
  schedule: str
  clip_norm: float
  adam_b1: float
  adam_b2: float
  adam_eps: float
  weight_decay: float
  chunk: int
  validation_samples: int
  target_exact_match: float
  restarts: int
  restart_below: float
  seed_axis: str
  replay_share: float = 0.0  # of a batch, where there is a set to replay


def schedule(train: TrainConfig) -> optax.Schedule:
  """Returns the learning rate by gradient step: linear warm-up, then the
  schedule."""
  if train.schedule == "cosine":
    return optax.warmup_cosine_decay_schedule(
      init_value=0.0,
      peak_value=train.learning_rate,
      warmup_steps=train.warmup_steps,
      decay_steps=max(train.steps, train.warmup_steps + 1),
    )
  return optax.linear_schedule(
    0.0 if train.warmup_steps else train.learning_rate,
    train.learning_rate,
    max(train.warmup_steps, 1),
  )


def make(train: TrainConfig) -> optax.GradientTransformation:
  """Returns Adam(W), after clipping by global norm if `clip_norm` is not
  zero."""
  make_adam = optax.adam
  if train.weight_decay:
    make_adam = partial(optax.adamw, weight_decay=train.weight_decay)
  adam = make_adam(
    schedule(train), b1=train.adam_b1, b2=train.adam_b2, eps=train.adam_eps
  )
  if not train.clip_norm:
    return adam
  return optax.chain(optax.clip_by_global_norm(train.clip_norm), adam)
