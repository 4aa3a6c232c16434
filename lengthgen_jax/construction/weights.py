"""Weights that sort, as Theorem 5.1 of the task hinting paper says they exist.

docs/construction.md derives why. The residual stream has 3q + 2 dimensions,
whose values are zero or about one:

    item s     a token s, embedded               (q, and one more for `⊥`)
    after      the token is `⊥` or after it      (1)
    output s   a token s after `⊥`               (q)
    next s     how much s is to be output next   (q)

`⊥` is the delimiter between the list and the output.

Layer 1, head 1 looks at equal tokens and, twice as strongly, at `⊥`; what it
sees of `⊥` it writes to `after`. Head 2 writes to next s: at a row of token s,
s itself; at `⊥`, where smaller items score higher, the minimum. The MLP moves
item s to output s where relu(item s + after - 1) is one, and clears `after`.

Layer 2, head 1 compares how many copies of a token s are in the input and in
the output, by their share or (`copies`) by their difference, which is finer.
Head 2 says the successor: only items greater than the row's own score, the
smaller of them higher. `⊥` sees itself alone. The last MLP takes a fixed amount
from next s where output s is one, so that it stays positive while copies are
left.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from lengthgen_jax.errors import check, check_choice
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models.layers import ModelConfig
from lengthgen_jax.tasks.sorting import Sort

STEP = 4
LOGIT = 8.0  # of one unit of next s; any would do, with 8 training starts well


class Dimensions:
  """The indices of what the residual stream holds, by the size of the alphabet;
  with layer normalization they are in its first half."""

  def __init__(self, alphabet: int):
    self.item = np.arange(alphabet)  # of item s
    self.end = alphabet  # of `⊥`
    self.after = alphabet + 1
    self.output = alphabet + 2 + self.item
    self.next_item = 2 * alphabet + 2 + self.item
    self.size = 3 * alphabet + 2  # how many dimensions there are


def parameters(
  experiment: Experiment, longest: int, copies: str = "difference"
) -> dict:
  """Returns parameters with which the experiment's model sorts up to `longest`
  items, in a pytree like that of Experiment.init.

  All that the construction does not use is zero, such as the output heads of
  hints. A task, a shape of the model or numbers that do not do are a
  UsageError.
  """
  task, config = check_shape(experiment), experiment.model.config
  alphabet = task.alphabet
  check_precision(config, alphabet, longest, copies)
  shapes = jax.eval_shape(lambda: experiment.init(0))
  params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
  dims, is_share = Dimensions(alphabet), copies == "share"
  # These are g and d of docs/construction.md.
  gain = (4.0 if is_share else 2.0) * (2 * longest - 1)
  gap = np.ceil(np.log(gain) / np.log(3)) + 6
  embedding = params["token_embedder"]["embedding"]
  embedding[1 : alphabet + 1, dims.item] = np.eye(alphabet)
  embedding[task.delimiter, dims.end] = 1.0
  logits = params[f"logits_dense_{task.name}"]["kernel"]
  logits[dims.next_item, 1 : alphabet + 1] = LOGIT * np.eye(alphabet)
  first, second = params["decoder_0"], params["decoder_1"]
  for block in (first, second):
    block["self_attention"]["temperature"] += np.sqrt(config.head_dim)
  _after_and_minimum(first["self_attention"], dims, gap)
  _move_item_to_output(first["mlp"], dims)
  copy_value = 0.0 if is_share else -1.0
  _count_and_successor(second["self_attention"], dims, gap, gain, copy_value)
  _remove(second["mlp"], dims, 1.0 + is_share * gain / 2)
  if config.norm == "block_end":
    _double(params, dims.size)
  return jax.tree.map(jnp.asarray, params)


# What follows writes parameters in place. Kernels are [D, H, K] for query, key
# and value, and [H, K, D] for out; heads hold items in their first dimensions,
# and `⊥` in the next one.


def _after_and_minimum(attention: dict, dims: Dimensions, gap: float) -> None:
  """Layer 1's attention: `after`; and to next s the row's token or, at `⊥`, the
  minimum."""
  query, key, value, out = _kernels(attention)
  alphabet, eye = dims.end, np.eye(dims.end)
  key[dims.item, :, :alphabet] = eye[:, None]
  query[dims.item, :, :alphabet] = gap * eye[:, None]
  key[dims.end, 0, alphabet] = 1.0
  query[dims.item, 0, alphabet] = 2 * gap
  query[dims.end, 0, alphabet] = gap
  value[dims.end, 0, alphabet] = out[0, alphabet, dims.after] = 1.0
  query[dims.end, 1, :alphabet] = STEP * (alphabet - np.arange(alphabet))
  value[dims.item, 1, :alphabet] = eye
  out[1, :alphabet, dims.next_item] = eye


def _move_item_to_output(mlp: dict, dims: Dimensions) -> None:
  """Layer 1's MLP: moves item s to output s after `⊥`. Hidden unit s is
  relu(item s + after - 1); the last one is `after`, taken away from itself."""
  wi, wo = mlp["wi"]["kernel"], mlp["wo"]["kernel"]
  alphabet = dims.end
  wi[dims.item, :alphabet] = np.eye(alphabet)
  wi[dims.after] = 1.0
  mlp["wi"]["bias"][:alphabet] = -1.0
  wo[:alphabet, dims.item] = -np.eye(alphabet)
  wo[:alphabet, dims.output] = np.eye(alphabet)
  wo[alphabet, dims.after] = -1.0


def _count_and_successor(
  attention: dict, dims: Dimensions, gap: float, gain: float, copy_value: float
) -> None:
  """Layer 2's attention: compares copies in the input, of value 1, and in the
  output, of `copy_value`; and says the successor."""
  query, key, value, out = _kernels(attention)
  alphabet, eye = dims.end, np.eye(dims.end)
  key[dims.item, :, :alphabet] = eye[:, None]
  key[dims.end, :, alphabet] = 1.0
  query[dims.end, :, alphabet] = gap
  key[dims.output, 0, :alphabet] = eye
  query[dims.output, 0, :alphabet] = gap * eye
  value[dims.output, 0, :alphabet] = copy_value * eye
  order = np.tile(STEP * (alphabet - np.arange(alphabet)), (alphabet, 1))
  query[dims.output, 1, :alphabet] = np.triu(order, 1)  # of greater items
  value[dims.item, :, :alphabet] = eye[:, None]
  out[0, :alphabet, dims.next_item] = gain * eye
  out[1, :alphabet, dims.next_item] = eye


def _remove(mlp: dict, dims: Dimensions, amount: float) -> None:
  """Layer 2's MLP: takes `amount` from next s where output s is one."""
  alphabet = dims.end
  mlp["wi"]["kernel"][dims.output, :alphabet] = np.eye(alphabet)
  mlp["wo"]["kernel"][:alphabet, dims.next_item] = -amount * np.eye(alphabet)


def _kernels(attention: dict) -> list[np.ndarray]:
  return [attention[n]["kernel"] for n in ("query", "key", "value", "out")]


def _double(params: dict, size: int) -> None:
  """Makes every layer add the negative of what it adds to the first half of the
  residual stream, of this size, to the second, which only normalizations read;
  and writes their scales."""
  written = [params["token_embedder"]["embedding"]]
  for block in (params["decoder_0"], params["decoder_1"]):
    written.append(block["self_attention"]["out"]["kernel"])
    written.append(block["mlp"]["wo"]["kernel"])
    scale = block["block_end_layer_norm"]["scale"]
    scale[:] = np.sqrt(4 / len(scale) + nn.LayerNorm.epsilon)
  for kernel in written:
    kernel[..., size:] = -kernel[..., :size]


# What the construction needs.


def check_shape(experiment: Experiment) -> Sort:
  """Returns the task; raises UsageError unless it is sort and the model has the
  construction's shape."""
  config, task = experiment.model.config, experiment.task
  field = "initial.kind='construction'"
  message = f"{field} sorts; set task='sort' and model.kind='decoder_only'"
  check(isinstance(task, Sort) and experiment.kind == "decoder_only", message)
  assert isinstance(task, Sort)
  check_choice(f"{field}: model.norm", config.norm, ("none", "block_end"))
  size, doubled = Dimensions(task.alphabet).size, config.norm == "block_end"
  # Without doubling, an odd size is filled up, because two heads share it.
  emb_dim = 2 * size if doubled else size + size % 2
  required = {
    "model.num_decoder_layers": (config.num_decoder_layers, 2),
    "model.num_heads": (config.num_heads, 2),
    "model.emb_dim": (config.emb_dim, emb_dim),
    "model.mlp_dim": (config.mlp_dim, task.alphabet + 1),
    "model.activation": (config.activation, "relu"),
    # Without normalization its kind has no effect.
    "model.norm_kind": (config.norm_kind if doubled else "layer", "layer"),
    "model.dense_bias": (config.dense_bias, True),
    "positions.kind": (config.positions.kind, "none"),
    "positions.segments": (config.positions.segments, False),
    "attention.normalizer": (config.attention.normalizer, "softmax"),
    "temperature.kind": (config.temperature.kind, "log_items"),
    "temperature.stretch": (config.temperature.stretch, 1.0),
  }
  for name, (value, needed) in required.items():
    alphabet = f" with sort.alphabet={task.alphabet}" if "_dim" in name else ""
    check(
      value == needed,
      f"{field}: {name}={value!r}, but it needs {needed!r}{alphabet}",
    )
  return task


def max_items(dtype: str, copies: str) -> int:
  """Returns up to which length numbers of a dtype are derived to sort."""
  if copies == "difference":
    return 2**20
  significant_bits = 1 - np.log2(float(jnp.finfo(dtype).eps))
  return min(int(2**significant_bits + 2) // 4, 2896)


def factor_dtype(config: ModelConfig) -> str:
  """Returns the dtype to which a device may round the factors of a model's
  products: accelerators do unless the precision is "highest"."""
  return config.dtype if config.precision == "highest" else "bfloat16"


def check_precision(
  config: ModelConfig, alphabet: int, longest: int, copies: str
) -> None:
  """Raises UsageError unless a model's numbers are fine enough to sort."""
  dtype = factor_dtype(config)
  max_length = max_items(dtype, copies)
  max_alphabet = int(1 / jnp.finfo(dtype).eps)
  check(
    alphabet <= max_alphabet,
    f"sort.alphabet={alphabet}: scores in {dtype} tell at most {max_alphabet}"
    " items of the construction apart; choose fewer, or model.dtype='float32'"
    " and model.precision='highest'",
  )
  advice = ""
  if copies == "share" and longest <= max_items(dtype, "difference"):
    advice += ", or initial.copies='difference'"
  if longest <= max_items("float32", copies):
    advice += ", or model.dtype='float32' and model.precision='highest'"
  check(
    longest <= max_length,
    f"initial.longest={longest}: {dtype} suffices for at most {max_length}"
    f" items with initial.copies={copies!r}; choose fewer{advice}",
  )
