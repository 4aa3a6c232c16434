"""This module computes τ, a factor on the scores that grows with the length.

In softmax(τ·scores + bias), τ = a·log n keeps attention as sharp on long inputs
as on short ones (task hinting paper, sections 4.3 and 5; its "temperature" is a
factor, not a divisor). The paper leaves open what n is; each choice is a kind
here. n never counts PAD, and τ does not scale the bias. Shapes: B batch, T
rows, H heads.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lengthgen_jax import sections
from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check
from lengthgen_jax.registry import Registry, check_arguments
from lengthgen_jax.rng import Noise
from lengthgen_jax.tasks.packing import Batch

COUNTS = "items", "visible"  # what n may count


class Temperature(NamedTuple):
  """A Temperature is one way to compute τ, from n, a parameter a and perhaps b.

  Attributes:
    counts: what n counts in a decoder-only model: "items", the tokens of the
      prompt, or "visible", the keys up to each row's own; "" if there is no τ.
    per_head: whether every head of a layer has an a (and b) of its own.
    offset: whether there is a second parameter, b.
    learned: whether a is trained; if not, it stays at its initial value.
    projections: how many numbers a dense layer computes for each row and head
      from the row's hidden state; if any, they are b.
    value: function (n, a, b) -> τ [B or 1, T or 1, H or 1]. n is [B or 1, T or
      1, 1]; a is [H] if per_head and learned, else []; b is [H] or [] by
      per_head if `offset`, [projections, B, T, H] with projections, and else
      None. The function is None if there is no τ.
  """

  counts: str = ""
  per_head: bool = False
  offset: bool = False
  learned: bool = True
  projections: int = 0
  value: Callable[..., jax.Array] | None = None


def scaled_log(n: jax.Array, a: jax.Array, b: jax.Array | None) -> jax.Array:
  """Returns a·log(n+1) (task hinting paper, section 5); b is not used.

  Shapes are those of `Temperature.value`.
  """
  del b
  return a * jnp.log(n + 1.0)


def adaptive(n: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
  """Returns δ + β·log(n+1)^γ, β = softplus(b[0]) and γ = 2·tanh(b[1]).

  This is the factor of ASEntmax (Vasylenko et al. 2025), in which the hidden
  state of a row decides β and γ of each head. It differs from the paper's: δ =
  a is learned for each head; n + 1 stands in the place of n, because log 1 = 0
  to a negative power is infinite in a first row; and with NAPE positions, which
  give half of the heads ALiBi, all heads have the factor, in the paper only
  those without ALiBi.
  """
  beta, gamma = jax.nn.softplus(b[0]), 2.0 * jnp.tanh(b[1])
  return a + beta * jnp.log(n + 1.0) ** gamma


def check_temperature(name: str, temperature: Temperature) -> None:
  """Raises UsageError unless `temperature`, registered as `name`, is a
  Temperature with a function `value` of (n, a, b), one of COUNTS, and at most
  one of `offset` and `projections`, each of which would be b."""
  check(
    isinstance(temperature, Temperature),
    f"register: temperature {name!r} is no Temperature",
  )
  what = f"the value of temperature {name!r}"
  check_arguments(what, temperature.value, "n", "a", "b")
  counts = temperature.counts
  check(
    counts in COUNTS,
    f"register: temperature {name!r}: counts={counts!r}; choose one of"
    f" {', '.join(COUNTS)}",
  )
  check(
    not (temperature.offset and temperature.projections),
    f"register: temperature {name!r}: b is either the offset or projections;"
    " choose one",
  )


TEMPERATURES = Registry(
  "temperature",
  {
    "none": Temperature(),
    # The paper's a·log(n+1), where n counts the prompt's tokens.
    "log_items": Temperature("items", value=scaled_log),
    # The same, where n counts the keys up to a row's own: what a causal row
    # sees without a scaffold.
    "log_visible": Temperature("visible", value=scaled_log),
    "one_plus_log": Temperature(
      "items", value=lambda n, a, b: 1.0 + scaled_log(n, a, b)
    ),
    # Scalable softmax (Nakanishi 2025).
    "scalable": Temperature(
      "visible",
      per_head=True,
      offset=True,
      value=lambda n, a, b: a * jnp.log(n) + b,
    ),
    # As log_items, with an a that stays at its initial value.
    "fixed": Temperature("items", learned=False, value=scaled_log),
    "asentmax": Temperature(
      "visible", per_head=True, projections=2, value=adaptive
    ),
  },
  check_temperature,
)


def site_counts(
  config: sections.Temperature, batch: Batch, noise: Noise | None = None
) -> Mapping[str, Array | None]:
  """Returns n [B or 1, T or 1] by attention site; each is None if there is no
  temperature.

  In a decoder-only model n is what the kind counts. In an encoder-decoder n is,
  for every kind, the number of keys that a row sees without a scaffold: the
  start token and the outputs before its own in the decoder's self-attention,
  the prompt's tokens elsewhere.

  n is multiplied by s = `config.stretch`, and in training by one more factor
  for each example, log-uniform in 1/s...s. So a model is trained at the
  temperatures of n to s²n, among which are those that inputs s times as long
  have in tests. This is ours; it is like randomized position encodings (Ruoss
  et al. 2023).

  Args:
    config: the temperature.
    batch: the examples.
    noise: what the random factors are drawn from; None outside of training.
  """
  counted = TEMPERATURES[config.kind].counts
  visible = batch.rows.index[None] + 1
  items = batch.prompt_length[:, None]
  if batch.source is None:
    counts = {"self": visible if counted == "visible" else items}
  else:
    counts = {"self": visible, "cross": items, "encoder": items}
  if not counted:
    return dict.fromkeys(counts)
  if config.stretch == 1.0:
    return counts
  counts = {site: n * config.stretch for site, n in counts.items()}
  if noise is None:
    return counts
  exponent = noise.fold_in("stretch").draw(
    lambda key: jax.random.uniform(key, (1,), minval=-1.0, maxval=1.0)
  )
  factor = jnp.exp(exponent * jnp.log(config.stretch))
  return {site: n * factor for site, n in counts.items()}


def tau(
  config: sections.Temperature,
  n_BxT: Array | None,
  a: jax.Array | float | None,
  b: jax.Array | None,
) -> jax.Array | None:
  """Returns τ, [B or 1, H or 1, T or 1, 1] float32 or wider, or None, which is
  a factor of 1, if there is no temperature.

  Args:
    config: the temperature.
    n_BxT: [B or 1, T or 1], n of the site, from `site_counts`; None if there is
      no temperature.
    a, b: the parameters that the function `value` of the Temperature takes.
  """
  if n_BxT is None:
    return None
  n = jnp.asarray(n_BxT, jnp.float32)[..., None]
  return TEMPERATURES[config.kind].value(n, a, b).swapaxes(1, 2)[..., None]
