"""Prompts that decoder-only models are tested on."""

from functools import partial

import jax
import jax.numpy as jnp

from lengthgen_jax.tasks.sequence import Sequences, pack


def uniform(task, key, length: int):
  """Items drawn uniformly; a number's first digit is not 0 (item 1)."""
  least = jnp.ones(length, jnp.int32)
  if task.name == "increment":
    least = least.at[0].set(2)
  return jax.random.randint(key, (length,), least, task.alphabet + 1)


def ascending(task, key, length: int):
  """Uniform items in order."""
  return jnp.sort(uniform(task, key, length))


def descending(task, key, length: int):
  """Uniform items in reverse order."""
  return ascending(task, key, length)[::-1]


def all_equal(task, key, length: int):
  """One uniform item everywhere."""
  return jnp.broadcast_to(uniform(task, key, 1), (length,))


def nines(task, key, length: int):
  """A run of 9s (item 10) of random length at the end."""
  digit_key, run_key = jax.random.split(key)
  run = jax.random.randint(run_key, (), 1, length + 1)
  place = jnp.arange(length)[::-1]
  return jnp.where(place < run, 10, uniform(task, digit_key, length))


def repeats(task, key, length: int, items: int, times: int):
  """`items` distinct values, each `times` times, and uniform ones, shuffled
  (task hinting paper, section 6)."""
  few_key, rest_key, order_key = jax.random.split(key, 3)
  order = jax.random.permutation(few_key, task.alphabet) + 1
  few = jnp.repeat(order[:items], times)
  rest = uniform(task, rest_key, length)[len(few) :]
  return jax.random.permutation(order_key, jnp.concatenate([few, rest]))


# By name: function (task, key, length) -> items [length].
PROMPTS = {
  "uniform": uniform,
  "repeats": repeats,
  "sorted": ascending,
  "reversed": descending,
  "all_equal": all_equal,
  "nines": nines,
}
SEQUENCE_TEST_SETS = {
  "sort": ("uniform", "repeats", "sorted", "reversed", "all_equal"),
  "increment": ("uniform", "nines"),
}


@partial(jax.jit, static_argnums=(0, 1, 3, 4, 5))
def sample(
  task, name: str, key, count: int, length: int, how: tuple = ()
) -> Sequences:
  """`count` examples with `length` items (static) of a test set.

  Args:
    task: the main task.
    name: in PROMPTS.
    key: PRNG key.
    count: number of examples.
    length: items of every prompt.
    how: items and times of "repeats".
  """
  keys = jax.random.split(key, count)
  size = task.packed_length(length) - 1

  def one(key):
    items = PROMPTS[name](task, key, length, *how)
    return pack(task.answered(items, length), size)

  return jax.vmap(one)(keys)
