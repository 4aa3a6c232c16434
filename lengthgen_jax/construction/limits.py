"""This module checks that a model and its numbers fit the construction.

The construction is that of Theorem 5.1.

Numbers of p significant bits (bfloat16: 8, float32: 24) are 2^-p apart above
1/2, and attention sums weights in float32 whatever the others are.
copies="share" tells 1/2 + 1/(4N-2) from 1/2 if 4N-2 <= 2^p: N = 64 in bfloat16.
Beyond, it is for roundings to decide (against 65).
Adding N weights up to 1/2 one by one, each time off by up to 2^-26, errs by
N 2^-26 < 1/(8N) up to N = 2 896.
copies="difference" needs no p: equal weights are added and then taken away, so
that roundings cancel but for those where the sum crosses a power of two, some
2^-25 < 1/(16N) up to N = 2^20.
Scores 4(q - t) of neighbours, rounded twice, must not meet: q <= 2^(p-1).
"""

import jax.numpy as jnp
import numpy as np

from lengthgen_jax.errors import check, check_choice
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models.layers import ModelConfig


def check_shape(experiment: Experiment, size: int) -> None:
  """Checks that a model has the construction's shape.

  Args:
    experiment: the experiment that the model belongs to.
    size: how many coordinates are needed without normalization.

  Raises:
    UsageError: the model has another shape; it says which is needed.
  """
  config, task = experiment.model.config, experiment.task
  what = "initial.kind='construction'"
  check(
    task.name == "sort" and experiment.kind == "decoder_only",
    f"{what}: it sorts; set task='sort' and model.kind='decoder_only'",
  )
  check_choice(f"{what}: model.norm", config.norm, ("none", "block_end"))
  doubled = config.norm == "block_end"
  required = {
    "model.num_decoder_layers": (config.num_decoder_layers, 2),
    "model.num_heads": (config.num_heads, 2),
    "model.emb_dim": (config.emb_dim, size + (size if doubled else size % 2)),
    "model.mlp_dim": (config.mlp_dim, task.alphabet + 1),
    "model.activation": (config.activation, "relu"),
    "model.norm_kind": (config.norm_kind, "layer"),
    "model.dense_bias": (config.dense_bias, True),
    "bias.learned_scale": (config.learned_bias_scale, False),
    "positions.kind": (config.positions.kind, "none"),
    "temperature.kind": (config.temperature.kind, "log_items"),
    "temperature.stretch": (config.temperature.stretch, 1.0),
  }
  for name, (value, right) in required.items():
    dimension = f" of sort.alphabet={task.alphabet}" if "_dim" in name else ""
    check(
      value == right,
      f"{what}: {name}={value!r}, but that{dimension} has {right!r}",
    )


def most_items(dtype: str, copies: str) -> int:
  """Returns the most items that numbers of a type can sort."""
  bits = 1 - np.log2(float(jnp.finfo(dtype).eps))
  return min(int(2**bits + 2) // 4, 2896) if copies == "share" else 1 << 20


def check_precision(
  config: ModelConfig, alphabet: int, longest: int, copies: str
) -> None:
  """Checks that a model's numbers can hold a length and an alphabet.

  Args:
    config: the model's config, with its dtype and precision.
    alphabet: q, how many items there are.
    longest: N, the most items of a list.
    copies: how it is told whether copies are left, difference or share.

  Raises:
    UsageError: they cannot.
  """
  # Accelerators round the factors of a product unless its precision is highest.
  dtype = config.dtype if config.precision == "highest" else "bfloat16"
  most, size = most_items(dtype, copies), int(1 / jnp.finfo(dtype).eps)
  check(
    alphabet <= size,
    f"sort.alphabet={alphabet}: scores of {dtype} tell at most"
    f" {size} items of the construction apart; choose"
    " fewer, or model.dtype='float32' and model.precision='highest'",
  )
  check(
    longest <= most,
    f"initial.longest={longest}: {dtype} holds at most {most} items with"
    f" initial.copies={copies!r}; choose fewer, initial.copies='difference', or"
    " model.dtype='float32' and model.precision='highest'",
  )
