"""Associative recall: prompts and answers against plain Python."""

import collections
import functools

import jax
import jax.numpy as jnp
import plain_tasks as plain
import pytest
from command import refuses
from presets import asentmax

from lengthgen_jax.config import build
from lengthgen_jax.tasks import TASKS
from lengthgen_jax.tasks.task import Size

COUNT = 300
TASK = TASKS["mqmtar"](alphabet=5, key_length=2, value_length=3, queries=3)
BOUND = TASK.units(60)


@functools.partial(jax.jit, static_argnums=0)
def draw(test_set: str, units):
  """COUNT examples, in room for BOUND items."""
  size = Size(units[None], 0, BOUND)
  make = lambda key: TASK.from_items(
    TASK.test_sets[test_set](TASK, key, size), size
  )
  return jax.vmap(make)(jax.random.split(jax.random.key(1), COUNT))


def prompts(test_set: str, context: int):
  """(prompt, output) of COUNT examples, as lists of token names, for contexts
  of 6 to 60 tokens."""
  example = jax.device_get(draw(test_set, jnp.array(TASK.units(context))))
  examples = [plain.split_example(example, i)[::2] for i in range(COUNT)]
  return [tuple(map(TASK.symbols, both)) for both in examples]


def split(prompt: list[str]):
  """(token names of the context, keys, values, queries) of a prompt."""
  context, *queries = " ".join(prompt).split(" > ")
  blocks = map(str.strip, context.split("."))
  pairs = [x.split(" : ") for x in blocks if x]
  return context.split(), *zip(*pairs, strict=True), queries


@pytest.mark.parametrize("context", (7, 60))
@pytest.mark.parametrize("test_set", TASK.test_sets)
def test_prompts_have_distinct_pairs_and_their_answers(test_set, context):
  # How often each pair is queried, by its index; where the first pair begins.
  query_counts, first_starts = collections.Counter(), set()
  num_pairs = max(context * 8 // 10 // TASK.pair_size, 1)
  for prompt, output in prompts(test_set, context):
    assert output == plain.recalled(prompt)  # and no pair occurs twice
    tokens, keys, values, queries = split(prompt)
    assert len(tokens) == context and len(queries) == TASK.queries
    assert len(keys) == num_pairs
    assert {len(key.split()) for key in keys} == {2}
    assert {len(value.split()) for value in values} == {3}
    query_counts.update(map(keys.index, queries))
    first_starts.add(next(i for i, token in enumerate(tokens) if token != "."))
    if test_set == "near_keys":
      places = [map(int, key.split()) for key in keys]
      numbers = [TASK.alphabet * a + b for a, b in places]
      assert max(numbers) - min(numbers) == num_pairs - 1
  expected = TASK.queries * COUNT / num_pairs
  assert len(query_counts) == num_pairs
  assert all(0.7 < n / expected < 1.3 for n in query_counts.values())
  block = context // num_pairs
  assert first_starts == set(range(block - TASK.pair_size + 1))


def test_lengths_of_a_config_count_the_context_alone():
  config = asentmax.get_config("mqmtar")
  experiment = build.build(config)
  task, lengths = experiment.task, experiment.data[0].lengths
  assert (lengths.shortest, lengths.longest) == (32 + 12, 64 + 12)
  assert [task.fitting_pairs(n) for n in (32, 64, 4096)] == [4, 8, 546]
  assert task.output_size(100) == 12 and task.units(1) == 6 + 12


def test_more_words_than_there_are_cannot_be_drawn():
  with refuses("mqmtar.value_length=4", "words"):
    TASKS["mqmtar"](value_length=4)
