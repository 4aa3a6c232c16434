"""This module writes down weights that sort, as Theorem 5.1 says they exist.

The source is appendix A of the task hinting paper. The parameters are those of
a decoder-only model of two layers and two heads; they are written down and not
trained, and sort every list of up to N items (`longest`) of an alphabet of q.
Which head does what is the paper's; its text lost most formulas, so numbers
follow from what they must achieve, below. The residual stream has 3q + 2
coordinates, which are zero or about one unless stated otherwise:

  item s     a token s, embedded               (q, and one more for `⊥`)
  after      the token stands behind `⊥`       (1)
  output s   a token s behind `⊥`              (q)
  said s     how much s is to be said next     (q)

Layer 1, head 1 looks at equal tokens and, twice as strongly, at `⊥`, from where
it copies `after`. Head 2 copies: equal tokens say themselves, and `⊥`, to which
smaller items score higher, says the minimum. The MLP moves item s to output s
where relu(item s + after - 1) is one, and clears `after`.

Layer 2, head 1 compares what the input and the output have of a token s: at a
row of output s, n_s copies of item s and m_s of output s (its own among them)
score alike, so that the input's share is n_s / (n_s + m_s). Head 2 says the
successor: greater items score, smaller ones higher. `⊥` sees itself alone. The
last MLP takes a fixed amount from said s where output s is one.

The identity survives that while copies are left. `copies` says how:
"share" is the paper's: said s gets g times the input's share, which is 1/2 if
none are left and else at least 1/2 + 1/(4N-2). With g = 4(2N-1) and 1 + g/2
taken away, 0 or at least 2 remain, beside a successor of 1.
"difference" gives copies in the output the value -1: said s gets g times
(n_s - m_s) / (n_s + m_s), which is 0 or at least 1/(2N-1). With g = 2(2N-1) and
1 taken away the same remains. Floating-point numbers are finest about 0.

Scores. Temperature is a·log(n+1) with a = sqrt(K), so a key that scores d less
than another has (n+1)^-d of its weight. A row sees at most 2n other keys: those
that score d less have together ε <= 2n (n+1)^-d, or 4·3^-d: short lists are the
hardest, but for those of one item, where nothing is to be compared.

  gap d between what heads look at and the rest. At rows of the output `after`
  is 1 - ε, so their tokens keep ε of item s: said s is off by gε, what is taken
  away included. Tokens that differ add up to gε. With normalization rows differ
  in scale by ε and in scores by dε: the weights of n_s and of m_s copies by a
  factor (n+1)^(dε), and said s is off by g dε log(n+1)/2, and gε. In all that
  is at most gε(3 + 0.55d), or 1/8 for d = ceil(log3 g) + 6 <= 36.
  STEP between an item and the next greater one: 4 makes ε <= 0.05.

So the identity is at most 1/8 or at least 2 - 1/8, and the successor between
0.8 and 1.2; the greatest item has none, but says no more than that of others.
Weights, but for a, are integers of at most max(4q, 8N): O(log q + log N) bits.

Layer normalization ("block_end"): coordinates are doubled with their negatives,
so that their mean is 0. Behind layer 1 every row holds two ones (its token, and
what it says; that is why `after` is cleared), so its variance is 4/D, which the
scale parameter multiplies back. Behind layer 2 rows are scaled as they come,
which changes no argmax.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from lengthgen_jax.construction import limits
from lengthgen_jax.experiment import Experiment

STEP = 4
COPIES = ("difference", "share")
LOGIT = (
  8.0  # logit of one unit of `said`; any would do, 8 is easy to train from
)


class Places(NamedTuple):
  """The places are coordinates of the residual stream (of its first half, if
  doubled).

  Attributes:
    item: those of item s.
    end: the one of `⊥`.
    after: the one that says that the token stands behind `⊥`.
    output: those of output s.
    said: those of how much s is to be said next.
    size: how many coordinates there are.
  """

  item: np.ndarray
  end: int  # of `⊥`
  after: int
  output: np.ndarray
  said: np.ndarray
  size: int


def places(alphabet: int) -> Places:
  """Returns the coordinates for an alphabet of so many items."""
  q, s = alphabet, np.arange(alphabet)
  return Places(s, q, q + 1, q + 2 + s, 2 * q + 2 + s, 3 * q + 2)


def parameters(
  experiment: Experiment, longest: int, copies: str = "difference"
) -> dict:
  """Returns parameters of the experiment's model that sort; hints' heads are
  zero.

  Args:
    experiment: one whose task is sort and whose model has the construction's
      shape.
    longest: N, the most items that are sorted.
    copies: how it is told whether copies are left, difference or share.

  Raises:
    UsageError: the model has another shape, or its numbers are too coarse.
  """
  config, task = experiment.model.config, experiment.task
  limits.check_shape(experiment, places(task.alphabet).size)
  limits.check_precision(config, task.alphabet, longest, copies)
  shapes = jax.eval_shape(lambda: experiment.init(0))
  params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
  at, q = places(task.alphabet), task.alphabet
  share = copies == "share"
  gain = (4.0 if share else 2.0) * (2 * longest - 1)
  gap = np.ceil(np.log(gain) / np.log(3)) + 6
  embedding = params["token_embedder"]["embedding"]
  embedding[1 : q + 1, at.item] = np.eye(q)
  embedding[task.delimiter, at.end] = 1.0
  logits = params[f"logits_dense_{task.name}"]["kernel"]
  logits[at.said, 1 : q + 1] = LOGIT * np.eye(q)
  first, second = params["decoder_0"], params["decoder_1"]
  for block in (first, second):
    block["self_attention"]["temperature"] += np.sqrt(config.head_dim)
  _copy_and_minimum(first["self_attention"], at, gap)
  _mark(first["mlp"], at)
  _count_and_successor(second["self_attention"], at, gap, (gain, share))
  _remove(second["mlp"], at, 1.0 + share * gain / 2)
  if config.norm == "block_end":
    _double(params, at.size)
  return jax.tree.map(jnp.asarray, params)


# Kernels are [D, H, K] for query, key and value, and [H, K, D] for out; heads
# hold symbols in their first coordinates, and `⊥` in the next one.


def _copy_and_minimum(attention: dict, at: Places, gap: float) -> None:
  """Writes layer 1's heads: the one finds `after`, the other says copies and
  the minimum."""
  query, key, value, out = _kernels(attention)
  q, eye = at.end, np.eye(at.end)
  key[at.item, :, :q] = eye[:, None]
  query[at.item, :, :q] = gap * eye[:, None]
  key[at.end, 0, q] = 1.0
  query[at.item, 0, q] = 2 * gap
  query[at.end, 0, q] = gap
  value[at.end, 0, q] = out[0, q, at.after] = 1.0
  query[at.end, 1, :q] = STEP * (q - np.arange(q))
  value[at.item, 1, :q] = eye
  out[1, :q, at.said] = eye


def _mark(mlp: dict, at: Places) -> None:
  """Writes layer 1's MLP, which moves item s to output s behind `⊥`."""
  wi, wo, q = mlp["wi"]["kernel"], mlp["wo"]["kernel"], at.end
  wi[at.item, :q] = np.eye(q)
  wi[at.after] = 1.0
  mlp["wi"]["bias"][:q] = -1.0
  wo[:q, at.item] = -np.eye(q)
  wo[:q, at.output] = np.eye(q)
  wo[q, at.after] = -1.0


def _count_and_successor(
  attention: dict, at: Places, gap: float, gain_and_share: tuple[float, bool]
) -> None:
  """Writes layer 2's heads: the one compares copies, the other says the
  successor."""
  query, key, value, out = _kernels(attention)
  q, eye, (gain, share) = at.end, np.eye(at.end), gain_and_share
  key[at.item, :, :q] = eye[:, None]
  key[at.end, :, q] = 1.0
  query[at.end, :, q] = gap
  key[at.output, 0, :q] = eye
  query[at.output, 0, :q] = gap * eye
  value[at.output, 0, :q] = 0.0 if share else -eye
  order = np.tile(STEP * (q - np.arange(q)), (q, 1))
  query[at.output, 1, :q] = np.triu(order, 1)  # of greater items
  value[at.item, :, :q] = eye[:, None]
  out[0, :q, at.said] = gain * eye
  out[1, :q, at.said] = eye


def _remove(mlp: dict, at: Places, amount: float) -> None:
  """Writes layer 2's MLP, which takes `amount` from said s where output s is
  one."""
  q = at.end
  mlp["wi"]["kernel"][at.output, :q] = np.eye(q)
  mlp["wo"]["kernel"][:q, at.said] = -amount * np.eye(q)


def _kernels(attention):
  """Returns the kernels of query, key, value and out."""
  return (attention[n]["kernel"] for n in ("query", "key", "value", "out"))


def _double(params, size: int):
  """Writes everything once more, negative; what is read is the first half."""
  written = [params["token_embedder"]["embedding"]]
  for block in (params["decoder_0"], params["decoder_1"]):
    written.append(block["self_attention"]["out"]["kernel"])
    written.append(block["mlp"]["wo"]["kernel"])
    scale = block["block_end_layer_norm"]["scale"]
    scale[:] = np.sqrt(4 / len(scale) + nn.LayerNorm.epsilon)
  for kernel in written:
    kernel[..., size:] = -kernel[..., :size]
