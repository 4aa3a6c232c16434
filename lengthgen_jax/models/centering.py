"""Takes the mean out of a transformer's hidden states.

Layer normalization subtracts the mean of a state, so that no row depends on it,
and training lets it drift. It costs accuracy: where a state is mostly its mean,
few digits of float32 are left for the rest, and bounds on rounding
(proofs/checker.py) are tens of times as large.
"""

import jax
import numpy as np

from lengthgen_jax.models.layers import ModelConfig

# The largest error of keys and values that may be left, as a share of the
# largest of them, and how many times as large the terms of their sums may
# become: larger ones cost digits.
TOLERANCE, GROWTH = 1e-9, 16
# The layers whose outputs are added to the residual stream.
RESIDUAL_OUTPUTS = (
  ("self_attention", "out"),
  ("cross_attention", "out"),
  ("mlp", "wo"),
)


def can_center(config: ModelConfig) -> bool:
  """Returns whether `centered` is for such a model.

  All that reads a hidden state must subtract its mean, but for cross-attention
  without encoder layers (`_center_embeddings`). Models with a temperature, or
  positions that do not repeat, have no certificates and are left as they are.
  """
  is_normalized = config.norm == "pre" and config.norm_kind == "layer"
  is_precise = config.dtype != "bfloat16"  # whose rounding would be seen
  has_proofs = config.positions.placeless and config.temperature.kind == "none"
  return is_normalized and is_precise and has_proofs


def centered(config: ModelConfig, params: dict) -> dict:
  """Returns one seed's parameters of the same function, up to the rounding of
  float32, whose embeddings and outputs of sublayers have mean zero.

  Position encodings that are added keep their mean, and so do embeddings where
  `_center_embeddings` cannot move them.
  """
  double = lambda x: np.asarray(x, np.float64)
  moved = jax.tree.map(double, params)
  for name, block in moved.items():
    if name.startswith(("encoder_", "decoder_")):
      for part, layer in RESIDUAL_OUTPUTS:
        for key, x in block.get(part, {}).get(layer, {}).items():
          block[part][layer][key] = x - x.mean(axis=-1, keepdims=True)
  _center_embeddings(config, moved)

  def put(new: np.ndarray, old: jax.Array) -> jax.Array:
    # Programs are compiled for arrays that are committed to devices, or not.
    sharding = old.sharding if old.committed else None
    return jax.device_put(new.astype(old.dtype), sharding)

  return jax.tree.map(put, moved, params)


def _center_embeddings(config: ModelConfig, params: dict) -> None:
  """Subtracts the mean of every row of the embeddings, in place.

  Without encoder layers, keys and values of cross-attention are linear in the
  embeddings themselves. What they lose is then added to their kernels: for
  embeddings E [V, D] with means m [V] and a kernel W [D, K], E'·W' = E·W holds
  for E' = E - m and W' = W + X, if E'·X = m·(the sums of W's columns). In a
  model with such cross-attention nothing is moved if that has no solution or
  one that costs digits, or if there are positions or segments.
  """
  blocks = [params[f"decoder_{i}"] for i in range(config.num_decoder_layers)]
  reads_source = any("cross_attention" in block for block in blocks)
  kernels = []
  if reads_source and not config.num_encoder_layers:
    if config.positions.kind != "none" or config.num_segments > 1:
      return
    embedding = params["token_embedder"]["embedding"]
    mean = embedding.mean(axis=-1, keepdims=True)
    tokens = embedding - mean
    inverse = np.linalg.pinv(tokens)
    for block in blocks:
      for part in ("key", "value"):
        dense = block["cross_attention"][part]
        kernel = dense["kernel"].reshape(len(dense["kernel"]), -1)
        lost = mean * kernel.sum(axis=0)
        added = inverse @ lost
        size = np.abs(embedding @ kernel).max()
        if np.abs(tokens @ added - lost).max() > TOLERANCE * size:
          return
        terms = np.abs(tokens) @ np.abs(kernel + added)
        before = np.abs(embedding) @ np.abs(kernel)
        if terms.max() > GROWTH * before.max():
          return
        kernels.append((dense, added))
  for dense, added in kernels:
    dense["kernel"] = dense["kernel"] + added.reshape(dense["kernel"].shape)
  for name in ("token_embedder", "segment_embedder"):
    for key, x in params.get(name, {}).items():
      params[name][key] = x - x.mean(axis=-1, keepdims=True)
