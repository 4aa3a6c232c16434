"""The task of associative recall: values are looked up by keys."""

import dataclasses
import functools
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import check, quoted
from lengthgen_jax.sections import Range
from lengthgen_jax.tasks.items import ItemTask
from lengthgen_jax.tasks.sorting import ranks
from lengthgen_jax.tasks.task import Draw, Example, Size, drawing, uniform_int

# The most words of a length; a word is a key or a value. `uniform_int` draws no
# larger numbers.
MAX_WORDS = 1 << 16
# Separates a key from its value; fills the space between pairs; begins a query.
MARKS = (":", ".", ">")
WordLength = Annotated[int, Range("must be at least 1 and at most 16", 1, 16)]


def pairs(task: "Recall", key: jax.Array, size: Size) -> jax.Array:
  """Returns a prompt like those of training: uniform keys and values."""
  return task.draw_prompt(drawing(key), size)


def near_keys(task: "Recall", key: jax.Array, size: Size) -> jax.Array:
  """Returns a prompt whose keys are consecutive numbers in base V, so that most
  of them differ from the next one in the last token alone."""
  return task.draw_prompt(drawing(key), size, consecutive=True)


@dataclasses.dataclass(frozen=True)
class Recall(ItemTask):
  """Asks for the values that belong to some keys: multi-query multi-token
  associative recall, MQMTAR (ASEntmax, arXiv 2506.16640).

  The prompt is a context, pairs `key : value` with spaces `.` between them, and
  then the queries, each a `>` and a key. The output is a `>` and the value for
  each query. Lengths in a config count the tokens of the context, as in the
  paper; the lengths in a Size are those of the whole prompt. No key and no
  value occurs twice in a drawn context.

  `1 2 : 3 4 . > 1 2 > 1 2 > 1 2 > 1 2` -> `> 3 4 > 3 4 > 3 4 > 3 4`.

  The paper draws keys and values from 10 000 words each, which are fixed for a
  data set; here they are drawn from all words. In the paper the number of
  spaces before a pair has a hypergeometric distribution; here it is uniform.
  """

  # V, the number of symbols that words are made of
  alphabet: Annotated[int, Range("must be at least 2", 2)] = 256
  key_length: WordLength = 2  # in symbols
  value_length: WordLength = 2
  # how many keys are asked for, drawn with replacement
  queries: Annotated[int, Range("must be at least 1", 1)] = 4
  # the fraction of the context that pairs fill, each with one space behind it
  pair_share: Annotated[
    float, Range("must be above 0 and at most 1", 0, 1, but=(0,))
  ] = 0.8

  name = "mqmtar"
  test_sets = {"pairs": pairs, "near_keys": near_keys}
  expected_input = "pairs, queries"

  def __post_init__(self):
    super().__post_init__()
    for name in ("key_length", "value_length"):
      length = getattr(self, name)
      check(
        self.alphabet**length <= MAX_WORDS,
        f"mqmtar.{name}={length}: with mqmtar.alphabet={self.alphabet} there"
        f" are {self.alphabet}^{length} words, at most {MAX_WORDS} are drawn",
      )

  # Tokens.

  @property
  def base(self) -> int:
    return self.alphabet + len(MARKS)

  @functools.cached_property
  def token_names(self) -> tuple[str, ...]:
    return "@", *map(str, range(1, self.alphabet + 1)), *MARKS, "⊥"

  @property
  def mark_ids(self) -> range:
    """Returns the ids of MARKS."""
    return range(self.alphabet + 1, self.base + 1)

  # Sizes.

  @property
  def pair_size(self) -> int:
    """Returns how many tokens a pair has, with the space behind it."""
    return self.key_length + self.value_length + 2

  @property
  def query_size(self) -> int:
    """Returns how many tokens all queries have together."""
    return self.queries * (1 + self.key_length)

  def units(self, length: int) -> int:
    # Of a whole prompt, whose context has at least one pair.
    return max(length, self.pair_size) + self.query_size

  def fitting_pairs(self, context: int | Array) -> int | Array:
    """Returns how many pairs fill `pair_share` of `context` tokens."""
    per_mille = round(1000 * self.pair_share)
    return context * per_mille // (1000 * self.pair_size)

  # Examples.

  def draw_prompt(
    self, draw: Draw, size: Size, consecutive: bool = False
  ) -> jax.Array:
    """Returns a prompt [1, max_length] of the tokens that size.lengths says;
    `consecutive` keys are consecutive numbers in base V."""
    colon, space, query = self.mark_ids
    num_words = self.alphabet ** min(self.key_length, self.value_length)
    most_pairs = int(self.fitting_pairs(size.max_length - self.query_size))
    most_pairs = max(min(most_pairs, num_words), 1)
    numbers = draw(self.queries + 3 * most_pairs)
    query_numbers, numbers = jnp.split(numbers, [self.queries])
    key_numbers, value_numbers, place_numbers = numbers.reshape(-1, 3).T
    context = size.lengths[0] - self.query_size
    num_pairs = jnp.clip(self.fitting_pairs(context), 1, num_words)
    is_used = jnp.arange(len(key_numbers)) < num_pairs

    def draw_words(numbers, length, consecutive=False):
      # Uniform integers plus their ranks: in ascending order, each is larger
      # than the one before by at least one, so no two are equal.
      room = self.alphabet**length - num_pairs + 1
      lowest = numbers[0] if consecutive else numbers
      order = ranks(jnp.where(is_used, numbers, 1.0))
      words = uniform_int(lowest, room) + order
      # Their digits in base V, as symbols 1...V.
      powers = self.alphabet ** np.arange(length)[::-1]
      return words[:, None] // powers % self.alphabet + 1

    keys = draw_words(key_numbers, self.key_length, consecutive)
    values = draw_words(value_numbers, self.value_length)
    separators = jnp.full((len(keys), 1), colon)
    pair_tokens = jnp.concatenate([keys, separators, values], axis=1)
    # The context is split into equal blocks; what is left over are spaces at
    # its end. Each block has one pair, with a random number of spaces before it
    # and at least one behind it.
    block = context // num_pairs
    spaces_before = uniform_int(place_numbers, block - self.pair_size + 1)
    place = jnp.arange(size.max_length)
    pair = jnp.minimum(place // block, num_pairs - 1)
    offset = place - pair * block - spaces_before[pair]
    is_pair = (offset >= 0) & (offset < self.pair_size - 1)
    offset = jnp.clip(offset, 0, self.pair_size - 2)
    prompt = jnp.where(is_pair, pair_tokens[pair, offset], space)
    query_keys = keys[uniform_int(query_numbers, num_pairs)]
    query_tokens = jnp.insert(query_keys, 0, query, axis=1).ravel()
    query_place = jnp.clip(place - context, 0, self.query_size - 1)
    prompt = jnp.where(place < context, prompt, query_tokens[query_place])
    return prompt[None].astype(jnp.int32)

  def example(self, draw: Draw, size: Size) -> Example:
    return self.from_items(self.draw_prompt(draw, size), size)

  def from_items(self, items: jax.Array, size: Size) -> Example:
    (prompt,), length = items, size.lengths[0]
    colon, _, query = self.mark_ids
    context = length - self.query_size
    place = jnp.arange(size.max_length)
    from_place = lambda first, count: prompt[
      jnp.minimum(first + jnp.arange(count), size.max_length - 1)
    ]
    # As many tokens from every place on as a pair has without its space.
    windows = jax.vmap(lambda p: from_place(p, self.pair_size - 1))(place)
    keys, marks, values = jnp.split(
      windows, [self.key_length, self.key_length + 1], axis=1
    )
    is_pair = (marks[:, 0] == colon) & (place < context)
    queries = from_place(context, self.query_size)
    queries = queries.reshape(self.queries, -1)[:, None, 1:]
    is_queried = (queries == keys).all(axis=-1) & is_pair
    answers = values[jnp.argmax(is_queried, axis=1)]
    output = jnp.insert(answers, 0, query, axis=1).ravel()
    return self.make_example(prompt, length, output, len(output))

  # Text.

  @property
  def usage(self) -> str:
    key = " ".join(("1", "2")[i % 2] for i in range(self.key_length))
    value = " ".join(("2", "1")[i % 2] for i in range(self.value_length))
    return " ".join([f"{key} : {value} .", *[f"> {key}"] * self.queries])

  def parse(self, text: str) -> tuple[np.ndarray, list[int]]:
    items, lengths = super().parse(text)
    context, *queries = " ".join(self.symbols(items[0])).split(">")
    pairs = [part.split(":") for part in context.split(".") if part.strip()]
    expected = f"{self.name} takes {self.expected_input} like {self.usage}"
    sizes = [self.key_length, self.value_length]
    for pair in pairs:
      check(
        [len(word.split()) for word in pair] == sizes,
        f"{quoted(' : '.join(map(str.strip, pair)))} is no pair; {expected}",
      )
    check(
      len(queries) == self.queries,
      f"{len(queries)} queries, not {self.queries}; {expected}",
    )
    keys = [key.split() for key, _ in pairs]
    for query in map(str.split, queries):
      check(
        keys.count(query) == 1,
        f"{quoted(' '.join(query))} is not the key of one pair; {expected}",
      )
    return items, lengths
