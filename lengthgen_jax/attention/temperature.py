"""τ, a factor on the scores that grows with the length.

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
from lengthgen_jax.registry import Registry, entry_check
from lengthgen_jax.rng import Noise
from lengthgen_jax.tasks.packing import Batch

COUNTS = "items", "visible"  # what n may count


class Temperature(NamedTuple):
  """One way to compute τ, from n, a parameter a and perhaps b.

  `value` is a function (n, a, b) -> τ [B or 1, T or 1, H or 1]. n is [B or 1, T
  or 1, 1]; a is [H] if per_head and learned, else []; b is the second
  parameter, of the shape of a, if `offset`; [projections, B, T, H] with
  projections; else None.
  """

  # in a decoder-only model: "items", the tokens of the prompt, or "visible",
  # the keys up to each row's own; "" if there is no τ
  counts: str = ""
  # whether every head of a layer has an a (and b) of its own
  per_head: bool = False
  offset: bool = False  # whether there is a second parameter, b
  learned: bool = True  # whether a is trained, or stays at its initial value
  # how many numbers a dense layer makes of a row's hidden state for each head;
  # they are b
  projections: int = 0
  value: Callable[..., jax.Array] | None = None


def scaled_log(n: jax.Array, a: jax.Array, b: jax.Array | None) -> jax.Array:
  """Returns a·log(n+1) (task hinting paper, section 5); b is not used."""
  del b
  return a * jnp.log(n + 1.0)


def adaptive(n: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
  """Returns δ + β·log(n+1)^γ, β = softplus(b[0]) and γ = 2·tanh(b[1]).

  This is the factor of ASEntmax (Vasylenko et al. 2025), in which the hidden
  state of a row decides β and γ of each head. Here δ = a is learned for each
  head, and with NAPE positions, which give half of the heads ALiBi, all heads
  have the factor, in the paper only those without ALiBi.
  """
  beta, gamma = jax.nn.softplus(b[0]), 2.0 * jnp.tanh(b[1])
  # The paper has n: log 1 = 0 to a negative power is infinite in a first row.
  return a + beta * jnp.log(n + 1.0) ** gamma


def check_temperature(name: str, temperature: Temperature) -> None:
  """Raises UsageError unless what a user registers is a Temperature whose
  fields go together."""
  entry_check(Temperature, "value", "n", "a", "b")(name, temperature)
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

  With s = `config.stretch` a model is trained at the temperatures of n to s²n,
  among which are those that inputs s times as long have in tests. This is ours;
  it is like randomized position encodings (Ruoss et al. 2023).
  """
  counted = TEMPERATURES[config.kind].counts
  visible = batch.rows.index[None] + 1
  items = batch.prompt_length[:, None]
  # In an encoder-decoder n is, for every kind, the number of keys that a row
  # sees without a scaffold.
  if batch.source is None:
    counts = {"self": visible if counted == "visible" else items}
  else:
    counts = {"self": visible, "cross": items, "encoder": items}
  if not counted:
    return dict.fromkeys(counts)
  factor = 1.0
  if noise is not None:  # one for each example, log-uniform in 1/s...s
    exponent = noise.fold_in("stretch").draw(
      lambda key: jax.random.uniform(key, (1,), minval=-1.0, maxval=1.0)
    )
    factor = jnp.exp(exponent * jnp.log(config.stretch))
  return {site: n * config.stretch * factor for site, n in counts.items()}


def tau(
  config: sections.Temperature,
  n_BxT: Array | None,
  a: jax.Array | float | None,
  b: jax.Array | None,
) -> jax.Array | None:
  """Returns τ, [B or 1, H or 1, T or 1, 1] float32 or wider; None, a factor of
  1, without a temperature. a and b are as in Temperature.value."""
  if n_BxT is None:
    return None
  n = jnp.asarray(n_BxT, jnp.float32)[..., None]
  return TEMPERATURES[config.kind].value(n, a, b).swapaxes(1, 2)[..., None]
