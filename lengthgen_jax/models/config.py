"""This module holds the model's hyper-parameters, which are validated once."""

import dataclasses

from lengthgen_jax.attention.positions.encoding import PositionConfig
from lengthgen_jax.attention.temperature import TemperatureConfig

NORMS = ("pre", "post", "block_end", "none")
NORM_KINDS = ("layer", "rms")
ACTIVATIONS = ("relu", "gelu")
DTYPES = ("float32", "bfloat16", "float64")
PRECISIONS = ("default", "high", "highest")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """A ModelConfig is the shape of a transformer; names follow Flaxformer.

  Attributes:
    vocab_size: V.
    emb_dim: D; num_heads: H; mlp_dim: F.
    num_encoder_layers: 0 is the identity encoder.
    num_decoder_layers: N.
    norm: where layer normalization stands: before each sublayer ("pre", with
      one more at the end), after its residual sum ("post"), once at the end of
      each block ("block_end"), or nowhere ("none").
    norm_kind: "layer" normalization, or "rms" (T5: no mean, no offset).
    dense_bias: whether dense layers add a bias (T5's do not).
    activation: "relu" or "gelu".
    dropout_rate: on embeddings and on every sublayer's output.
    dtype: of activations; parameters, scores, softmax and logits are float32 at
      least.
    precision: of matrix products; below "highest" GPUs and TPUs round the
      factors of float32 products.
    learned_bias_scale: whether each attention learns a factor on its bias.
    positions: the position encoding.
    temperature: of the softmax, in every attention.
  """

  vocab_size: int
  emb_dim: int
  num_heads: int
  mlp_dim: int
  num_encoder_layers: int
  num_decoder_layers: int
  norm: str
  norm_kind: str
  dense_bias: bool
  activation: str
  dropout_rate: float
  dtype: str
  precision: str
  learned_bias_scale: bool
  positions: PositionConfig
  temperature: TemperatureConfig

  @property
  def head_dim(self) -> int:
    """Returns the head size K = D / H."""
    return self.emb_dim // self.num_heads
