"""Test sets are what they say, at every length, in one compilation."""

import collections
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import plain_tasks as plain
import pytest
from plain_tasks import MAIN

from configs import base
from lengthgen_jax.tasks.task import Size

SAMPLES, NEAR, FAR = 100, 10, 1000

# What they promise of a prompt's numbers, as a whole.


def big(task, texts, length):
  """Whether operands have exactly `length` digits, the single one aside."""
  least, most = task.base ** (length - 1), task.base**length
  values = [int(text, task.base) for text in texts]
  digit = values.pop() if task.short_operand else 0
  return 0 <= digit <= 9 and all(least <= value < most for value in values)


def check_equal(task, operands, length):
  assert all(big(task, texts, length) for texts in operands)
  if task.operands == 2:
    assert len({a == b for a, b in operands}) == 2 or length > 1


def check_unequal(task, operands, length):
  if task.operands == 1 or task.short_operand:
    return check_equal(task, operands, length)
  sizes = np.array([[len(str(int(x))) for x in pair] for pair in operands])
  assert (sizes.max(axis=1) == length).all()
  for side in (0, 1):
    other = sizes[sizes[:, 1 - side] == length, side]
    if length < 10:
      assert set(other) == set(range(1, length + 1))
    else:
      assert other.min() < length / 3 and 2 * length / 3 < other.max()


def check_carry(task, operands, length):
  values = [[int(text, task.base) for text in texts] for texts in operands]
  if task.base == 2:
    assert {value.bit_count() for (value,) in values} == {1}
    assert max(value for (value,) in values) < 2**length
  elif task.short_operand:
    assert {a for a, _ in values} == {10**length - 1}
    assert {d for _, d in values} == set(range(2, 10))
  else:
    one = 1 if task.operands == 1 else 0
    assert {sum(value) + one for value in values} == {10**length}


def check_uniform(task, lists, length):
  least = 1 if task.of_digits else 0  # a number has no leading zero
  assert {items[0] for items in lists} >= set(range(1, 10))
  assert min(items[0] for items in lists) >= least
  if length > 1:
    rest = set(itertools.chain(*(items[1:] for items in lists)))
    assert rest == set(range(0 if task.of_digits else 1, 10))


def check_repeats(task, lists, length, items, times):
  for own in lists:
    counts = collections.Counter(own).values()
    assert sum(count >= times for count in counts) >= items
  firsts = {own.index(max(own)) for own in lists}
  assert len(firsts) > 2  # shuffled


def check_nines(task, lists, length):
  runs = {len(s) - len(s.rstrip("9")) for s in ("".join(map(str, x)) for x in lists)}
  assert min(runs) == 1 or length == 1
  if length < 10:
    assert runs >= set(range(1, length + 1))
  check_uniform(task, [x for x in lists if set(x[:1]) != {9}] + [[9]], 1)


PROMISES = {
  "equal": check_equal,
  "unequal": check_unequal,
  "carry": check_carry,
  "uniform": check_uniform,
  "repeats": check_repeats,
  "sorted": lambda task, lists, length: check_order(lists, sorted),
  "reversed": lambda task, lists, length: check_order(
    lists, lambda x: sorted(x)[::-1]
  ),
  "all_equal": lambda task, lists, length: check_order(
    lists, lambda x: x[:1] * len(x)
  ),
  "nines": check_nines,
}


def check_order(lists, order):
  assert all(items == order(items) for items in lists)
  assert len({items[0] for items in lists}) > 3


SAMPLES, FAR = 128, 1000


@functools.cache
def tested(form: str):
  """A jitted sampler of all test sets of a task at a traced length, its cells
  (test set, how) and a list that grows when it is traced."""
  task, traces = MAIN[form], []
  section = base.get_config(task.name).eval
  section.repetitions = (1, 2)
  cells = [
    (name, how)
    for name in task.test_sets
    for _, how in task.variants(name, section, 10)
  ]
  bounds = (task.natural_width(task.units(n)) for n in (10, FAR))

  def sample(key, length):
    traces.append(length)
    keys = jax.random.split(key, SAMPLES)
    lengths, width = jnp.full(task.operands, length), task.natural_width(length)
    near, far = (
      jnp.stack([
        jax.vmap(
          lambda one, n=name, h=how, s=size: task.test_sets[n](task, one, s, *h)
        )(keys)
        for name, how in cells
      ])
      for size in (Size(lengths, width, bound) for bound in bounds)
    )
    size = Size(lengths, width, far.shape[-1])
    answer = lambda items: task.answered(items, size)
    return jax.vmap(jax.vmap(answer))(far), near, far

  bounds = tuple(bounds)
  return jax.jit(sample), cells, traces


def prompts_tested(form, length, seed=0):
  """By test set and its arguments: [SAMPLES] of (prompt, output) ids."""
  task = MAIN[form]
  sample, cells, _ = tested(form)
  found, near, far = jax.tree.map(
    np.asarray, sample(jax.random.key(seed), task.units(length))
  )
  if length <= 10:
    inside = task.units(length)
    assert (near[..., :inside] == far[..., :inside]).all(), "not its bound's"
  section = base.get_config(task.name).eval
  section.repetitions = (1, 2)
  return {
    cell: [
      plain.parts(jax.tree.map(lambda x, k=k: x[k], found), i)
      for i in range(SAMPLES)
    ]
    for k, cell in enumerate(cells)
    if cell[1] in [how for _, how in task.variants(cell[0], section, length)]
  }
