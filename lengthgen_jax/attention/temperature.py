"""This module multiplies scores by a temperature that grows with the length.

softmax(τ·scores + bias), where τ = a·log n keeps attention as sharp on long
inputs as on short ones (task hinting paper, sections 4.3 and 5). The paper
leaves open what n is; each choice is a kind here. n never counts padding, and
the bias is not scaled.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check
from lengthgen_jax.registry import Registry
from lengthgen_jax.rng import Noise
from lengthgen_jax.tasks.packing import Batch


class Temperature(NamedTuple):
  """A Temperature is one way to set τ.

  Attributes:
    counts: what n counts: "items" of the prompt, or "visible" keys of each row;
      "" if there is no τ.
    per_head: whether every head of a layer learns an a (and b) of its own.
    offset: whether there is a second parameter, b.
    learned: whether parameters are trained.
    projections: how many numbers of each row and head are computed from the
      row's hidden state, by a dense layer: they are b, [projections, B, T, H].
    value: function (n, a, b) -> τ.
  """

  counts: str = ""
  per_head: bool = False
  offset: bool = False
  learned: bool = True
  projections: int = 0
  value: Callable[..., jax.Array] | None = None


scaled_log = lambda n, a, b: a * jnp.log(n + 1.0)


def adaptive(n: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
  """Returns δ + β·log(n+1)^γ, β = softplus(b[0]) and γ = 2·tanh(b[1]).

  This is the factor of ASEntmax (Vasylenko et al. 2025). β and γ are computed
  for each row and head from its hidden state. Here δ = a is learned for each
  head, n + 1 stands in the place of n, so that a first row has a finite factor,
  and all heads have it; the paper leaves out those of NAPE that have ALiBi.
  """
  beta, gamma = jax.nn.softplus(b[0]), 2.0 * jnp.tanh(b[1])
  return a + beta * jnp.log(n + 1.0) ** gamma


def check_temperature(name: str, temperature: Temperature) -> None:
  """Raises UsageError unless a Temperature with a value is registered."""
  check(
    isinstance(temperature, Temperature) and temperature.value,
    f"register: temperature {name!r} is no Temperature with a value",
  )


TEMPERATURES = Registry(
  "temperature",
  {
    "none": Temperature(),
    # The paper's a·log(n+1), where n counts the prompt's items.
    "log_items": Temperature("items", value=scaled_log),
    # The same, where n counts the keys up to a row's own. That is what a row
    # sees without a scaffold: no row knows what comes later.
    "log_visible": Temperature("visible", value=scaled_log),
    "one_plus_log": Temperature(
      "items", value=lambda n, a, b: 1.0 + a * jnp.log(n + 1.0)
    ),
    # Scalable softmax (Nakanishi 2025): per head a·log n + b, n visible keys.
    "scalable": Temperature(
      "visible",
      per_head=True,
      offset=True,
      value=lambda n, a, b: a * jnp.log(n) + b,
    ),
    "fixed": Temperature("items", learned=False, value=scaled_log),
    "asentmax": Temperature(
      "visible", per_head=True, projections=2, value=adaptive
    ),
  },
  check_temperature,
)


@dataclasses.dataclass(frozen=True)
class TemperatureConfig:
  """A TemperatureConfig says which temperature is used, and where it starts.

  Attributes:
    kind: a name in TEMPERATURES.
    initial: first value of a, and its only one if it is not learned.
    stretch: s, a factor on n; in training there is another one in 1/s...s.
  """

  kind: str = "none"
  initial: float = 0.5
  stretch: float = 1.0


def site_counts(
  config: TemperatureConfig, batch: Batch, noise: Noise | None = None
) -> Mapping[str, Array | None]:
  """Returns n at every attention site, [B or 1, T or 1]; None if the kind of
  temperature has no n.

  In a decoder-only model n is what the kind counts. In an encoder-decoder n is
  the number of keys that a row sees: self-attention sees only outputs, and
  cross-attention only the prompt.

  n is multiplied by s = `config.stretch`, and in training (`noise` is not None)
  by one more factor for each example, log-uniform in 1/s...s. So a model is
  trained at all temperatures of n to s²n, and the temperatures of inputs that
  are s times as long as those of training are among them. This is ours; it is
  like randomized position encodings (Ruoss et al. 2023).
  """
  kind_counts = TEMPERATURES[config.kind].counts
  visible = batch.rows.index[None] + 1
  items = batch.prompt_length[:, None]
  if batch.source is None:
    counts = {"self": visible if kind_counts == "visible" else items}
  else:
    counts = {"self": visible, "cross": items, "encoder": items}
  if not kind_counts:
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
  config: TemperatureConfig,
  n_BxT: Array | None,
  a: jax.Array | float | None,
  b: jax.Array | None,
) -> jax.Array | None:
  """Returns the factor of the scores, [B, H or 1, T, 1] float32, or None.

  Args:
    config: the temperature.
    n_BxT: from `site_counts`; None without a temperature.
    a, b: the layer's parameters, [] or [H]; b may be [projections, B, T, H].
  """
  if n_BxT is None:
    return None
  n = jnp.asarray(n_BxT, jnp.float32)[..., None]  # [B, T, heads or 1]
  return TEMPERATURES[config.kind].value(n, a, b).swapaxes(1, 2)[..., None]
