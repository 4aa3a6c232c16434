"""Associative recall: prompts and answers against plain Python."""

import collections

import jax
import jax.numpy as jnp
import plain_tasks as plain
import pytest
from presets import asentmax

from lengthgen_jax.config import build
from lengthgen_jax.errors import UsageError
from lengthgen_jax.tasks import TASKS
from lengthgen_jax.tasks.task import Size

COUNT = 300
TASK = TASKS["mqmtar"](alphabet=5, key_length=2, value_length=3, queries=3)
BOUND = TASK.units(60)


def prompts(test_set: str, context: int):
  """(prompt, output) of COUNT examples, as lists of token names, for contexts
  of 6 to 60 tokens."""
  size = Size(jnp.array([TASK.units(context)]), 0, BOUND)

  @jax.jit
  @jax.vmap
  def draw(key):
    items = TASK.test_sets[test_set](TASK, key, size)
    return TASK.from_items(items, size)

  example = draw(jax.random.split(jax.random.key(1), COUNT))
  examples = [plain.split_example(example, i)[::2] for i in range(COUNT)]
  return [tuple(map(TASK.symbols, both)) for both in examples]


def split(prompt: list[str]):
  """(token names of the context, [(key, value)], queries) of a prompt."""
  first = prompt.index(">")
  context = prompt[:first]
  blocks = " ".join(context).split(".")
  pairs = [tuple(x.split(" : ")) for x in map(str.strip, blocks) if x]
  queries = " ".join(prompt[first + 1 :]).split(" > ")
  return context, pairs, queries


@pytest.mark.parametrize("context", (7, 60))
@pytest.mark.parametrize("test_set", TASK.test_sets)
def test_prompts_have_distinct_pairs_and_their_values_are_the_answers(
  test_set, context
):
  # How often each pair is queried, by its index; where the first pair begins.
  query_counts, first_starts = collections.Counter(), set()
  for prompt, output in prompts(test_set, context):
    tokens, pairs, queries = split(prompt)
    assert len(tokens) == context and len(queries) == TASK.queries
    assert len(pairs) == max(context * 8 // 10 // TASK.pair_size, 1)
    for index, word_length in enumerate((2, 3)):
      column = [pair[index] for pair in pairs]
      assert len(set(column)) == len(column)
      assert {len(word.split()) for word in column} == {word_length}
    answers = [[">", *dict(pairs)[query].split()] for query in queries]
    assert output == [token for answer in answers for token in answer]
    query_counts.update(list(dict(pairs)).index(query) for query in queries)
    first_starts.add(next(i for i, token in enumerate(tokens) if token != "."))
    if test_set == "near_keys":
      numbers = [int(a) * 5 + int(b) for a, b in (k.split() for k, _ in pairs)]
      assert max(numbers) - min(numbers) == len(numbers) - 1
  num_pairs = len(query_counts)
  expected = TASK.queries * COUNT / num_pairs
  assert num_pairs == max(context * 8 // 10 // TASK.pair_size, 1)
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


@pytest.mark.parametrize(
  "field, value",
  (
    ("alphabet", 1),
    ("key_length", 0),
    ("value_length", 3),
    ("pair_share", 1.5),
  ),
)
def test_what_cannot_be_drawn_is_refused(field, value):
  with pytest.raises(UsageError, match=r"mqmtar\.\w+=.*: "):
    TASKS["mqmtar"](**{field: value})
