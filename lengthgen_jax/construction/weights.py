"""Weights that sort, as Theorem 5.1 of the task hinting paper says they exist.

The source is appendix A of that paper. The parameters are those of a
decoder-only model of two layers and two heads; they are written down and not
trained, and sort every list of up to N items (`longest`) of an alphabet of q.
The division of work among the heads is the paper's, whose text lacks most
formulas, so the numbers here are derived below from what they must achieve. The
residual stream has 3q + 2 dimensions, whose values are zero or about one unless
stated otherwise:

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
the output: at a row of output s, n_s copies of item s and m_s of output s (its
own among them) score alike, so that the input's share is n_s / (n_s + m_s).
Head 2 says the successor: only items greater than the row's own score, the
smaller of them higher. `⊥` sees itself alone. The last MLP takes a fixed amount
from next s where output s is one.

Next s of a row's own item stays positive while copies of it are left. `copies`
says how:
"share" is the paper's: next s gets g times the input's share, which is 1/2 if
none are left and else at least 1/2 + 1/(4N-2). With g = 4(2N-1) and 1 + g/2
taken away, 0 or at least 2 remain, beside a successor of 1.
"difference" gives copies in the output the value -1: next s gets g times
(n_s - m_s) / (n_s + m_s), which is 0 or at least 1/(2N-1). With g = 2(2N-1) and
1 taken away the same remains. Floating-point numbers are finest near 0.

Scores. For a list of n items scores are multiplied by a·log(n+1) with a =
sqrt(K), K being the size of a head, so a key that scores d less than another
has (n+1)^-d of its weight. A row sees at most 2n other keys: those that score d
less have together ε <= 2n (n+1)^-d, or 4·3^-d: short lists are the hardest
(lists of one item aside).

  gap d: between what heads look at and the rest. At rows of the output, `after`
  is 1 - ε, so their tokens keep ε of item s: next s is off by gε, what is taken
  away included. Tokens that differ add up to gε. With normalization rows differ
  in scale by ε and in scores by dε: the weights of n_s and of m_s copies by a
  factor (n+1)^(dε), and next s is off by g dε log(n+1)/2, and gε. In all that
  is at most gε(3 + 0.55d), or 1/8 for d = ceil(log3 g) + 6 <= 36.
  STEP: between an item and the next greater one; 4 makes ε <= 0.05.

So next s of the row's own item is at most 1/8 or at least 2 - 1/8, and that of
its successor between 0.8 and 1.2; the greatest item has no successor, and
head 2 adds no more there than elsewhere.
Weights, except a and the scale of layer normalization, are integers of at most
max(4q, 8N, 18): O(log q + log N) bits.

Layer normalization ("block_end"): dimensions are doubled with their negatives,
so that their mean is 0. After layer 1 every row holds two ones (its token, and
what it says; that is why `after` is cleared), so its variance is 4/D, which the
scale parameter multiplies back. After layer 2 rows are scaled as they come,
which changes no argmax.

Precision. Numbers of p significant bits (bfloat16: 8, float32: 24) are 2^-p
apart above 1/2, and attention sums weights in float32 or wider.
"share" tells 1/2 + 1/(4N-2) from 1/2 if 4N-2 <= 2^p: N = 64 in bfloat16.
Beyond that, rounding decides; N = 65 fails. Adding N weights up to 1/2
one by one, each time off by up to 2^-26, errs by N 2^-26 < 1/(8N) up to
N = 2 896. "difference" needs no p: equal weights are added and then taken away,
so that roundings cancel but for those where the sum crosses a power of two,
some 2^-25 < 1/(16N) up to N = 2^20. Scores 4(q - t) of neighbours, rounded
twice, must not meet: q <= 2^(p-1).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from lengthgen_jax.errors import check, check_choice
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.models.layers import ModelConfig
from lengthgen_jax.tasks.sorting import Sort

COPIES = ("difference", "share")
STEP = 4
LOGIT = 8.0  # of one unit of next s; any would do, with 8 training starts well


class Dimensions(NamedTuple):
  """The residual stream's dimensions by what they hold, each an index or q
  indices, q being the size of the alphabet.

  With layer normalization the stream is doubled, and these are in its first
  half.

  Attributes:
    item: the indices of item s.
    end: the index of `⊥`, which is q.
    after: the index of `after`.
    output: the indices of output s.
    next_item: the indices of next s.
    size: how many dimensions there are.
  """

  item: np.ndarray
  end: int
  after: int
  output: np.ndarray
  next_item: np.ndarray
  size: int


def dimensions(alphabet: int) -> Dimensions:
  """Returns the dimensions for an alphabet of this size."""
  items = np.arange(alphabet)
  return Dimensions(
    item=items,
    end=alphabet,
    after=alphabet + 1,
    output=alphabet + 2 + items,
    next_item=2 * alphabet + 2 + items,
    size=3 * alphabet + 2,
  )


def parameters(
  experiment: Experiment, longest: int, copies: str = "difference"
) -> dict:
  """Returns parameters with which the experiment's model sorts, in a pytree
  like that of Experiment.init. All that the construction does not use is zero,
  such as the output heads of hints.

  Args:
    experiment: one whose task is sort and whose model has the construction's
      shape.
    longest: N, the most items that are sorted.
    copies: how the model tells whether copies are left, one of COPIES.

  Raises:
    UsageError: the task is not sort, the model has another shape, or its
      numbers are too coarse.
  """
  task, config = check_shape(experiment), experiment.model.config
  alphabet = task.alphabet
  check_precision(config, alphabet, longest, copies)
  shapes = jax.eval_shape(lambda: experiment.init(0))
  params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
  dims, is_share = dimensions(alphabet), copies == "share"
  # These are g and d of the derivation above.
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


# Kernels are [D, H, K] for query, key and value, and [H, K, D] for out; heads
# hold items in their first dimensions, and `⊥` in the next one.


def _after_and_minimum(attention: dict, dims: Dimensions, gap: float) -> None:
  """Writes the attention of layer 1 in place.

  The first head writes `after` at `⊥` and behind it; the second writes to
  next s the row's own token, and the minimum at `⊥`. `gap` is d of the
  derivation above.
  """
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
  """Writes layer 1's MLP in place; it moves item s to output s after `⊥`.

  Hidden unit s is relu(item s + after - 1); the last one is `after`, which is
  taken away from `after` itself.
  """
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
  """Writes the attention of layer 2 in place.

  The first head compares the copies of an item in the input and in the output;
  the second outputs the item's successor.

  Args:
    attention: the parameters.
    dims: the dimensions of the residual stream.
    gap: d of the derivation above.
    gain: g of the derivation above.
    copy_value: the value of copies in the output; those in the input have 1.
  """
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
  """Writes layer 2's MLP in place; it takes `amount` from next s where output s
  is one."""
  alphabet = dims.end
  mlp["wi"]["kernel"][dims.output, :alphabet] = np.eye(alphabet)
  mlp["wo"]["kernel"][:alphabet, dims.next_item] = -amount * np.eye(alphabet)


def _kernels(attention: dict) -> list[np.ndarray]:
  """Returns the kernels of query, key, value and out."""
  return [attention[n]["kernel"] for n in ("query", "key", "value", "out")]


def _double(params: dict, size: int) -> None:
  """Makes every layer add to the second half of the residual stream the
  negative of what it adds to the first half, in place. Only normalizations read
  the second half.

  `size` is the size of a half. The scales of the normalizations are written,
  too.
  """
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
  """Returns the task if the experiment's model has the construction's shape.

  Raises:
    UsageError: the task is not sort, or the model has another shape; the
      message says what is needed.
  """
  config, task = experiment.model.config, experiment.task
  field = "initial.kind='construction'"
  message = f"{field} sorts; set task='sort' and model.kind='decoder_only'"
  check(isinstance(task, Sort) and experiment.kind == "decoder_only", message)
  assert isinstance(task, Sort)
  check_choice(f"{field}: model.norm", config.norm, ("none", "block_end"))
  size, doubled = dimensions(task.alphabet).size, config.norm == "block_end"
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
    "bias.learned_scale": (config.learned_bias_scale, False),
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
  """Returns the length up to which the derivation shows that the construction
  sorts lists with numbers of a dtype.

  The bounds are derived under "Precision" at the top of this module; `copies`
  is one of COPIES.
  """
  if copies == "difference":
    return 2**20
  significant_bits = 1 - np.log2(float(jnp.finfo(dtype).eps))
  return min(int(2**significant_bits + 2) // 4, 2896)


def factor_dtype(config: ModelConfig) -> str:
  """Returns the name of the dtype to which a device may round the factors of a
  model's products: accelerators do unless the precision is "highest"."""
  return config.dtype if config.precision == "highest" else "bfloat16"


def check_precision(
  config: ModelConfig, alphabet: int, longest: int, copies: str
) -> None:
  """Checks that a model's numbers are fine enough to sort.

  Args:
    config: the model, whose dtype and precision round its numbers.
    alphabet: q, how many items there are.
    longest: N, the length of the longest list.
    copies: one of COPIES.

  Raises:
    UsageError: they are too coarse; the message says what they suffice for.
  """
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
