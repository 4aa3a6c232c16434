"""What each position encoding tells, alone and in a model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import untrained
from command import refuses
from plain_lines import places, tokens

from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.attention.positions.encoding import PositionConfig, sinusoid
from lengthgen_jax.coordinates import Coordinates
from lengthgen_jax.rng import Noise
from lengthgen_jax.tasks.packing import KINDS

D, HEADS, SIZE = 16, 2, 9
KEY = jax.random.key(1)


class Hooks:
  """An encoding's hooks with parameters of its own."""

  def __init__(self, kind: str, **fields):
    config = PositionConfig(kind, **fields)
    self.module = POSITIONS[kind](config, D, HEADS)

  def call(self, hook: str, *arguments, **params):
    variables = self.module.init(KEY, *arguments, method=hook)
    if params:
      variables = {"params": variables["params"] | params}
    return self.module.apply(variables, *arguments, method=hook)

  def embed(self, at, key=None, x=None):
    x = jnp.zeros((1, at.place.shape[1], D)) if x is None else x
    noise = None if key is None else Noise(key, jnp.arange(len(x)))
    return np.asarray(self.call("embed", x, at, noise))

  def rotate(self, x, at):
    return np.asarray(self.call("rotate", x, at))

  def bias(self, rows, keys, causal=True, **params):
    return np.asarray(self.call("bias", rows, keys, causal, **params))


def normal(seed, *shape):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def at_places(index=None, place=None, digit=None, size=SIZE):
  """Places of SIZE tokens, each at 0...8 unless told otherwise."""
  usual = np.arange(SIZE)
  place = usual if place is None else np.asarray(place)
  place = place.reshape(1, -1, 1) if place.ndim == 1 else place[None]
  return Coordinates(
    np.zeros(place.shape[:2], int),
    np.ones_like(place),  # all segments extend
    np.ones_like(place),
    usual if index is None else np.asarray(index),
    place,
    np.ones(place.shape[:2], bool) if digit is None else np.array([digit]),
    np.array([[size]]),
  )


def nearest(table, vectors) -> list[int]:
  """The row of a table that each vector is."""
  return np.abs(table - vectors[:, None]).max(-1).argmin(-1).tolist()


def test_coordinates_are_sinusoids_of_the_place():
  """Whatever the index is; of two axes each has half of the features."""
  place = np.array([3, 1, 0, 2, 4, 5, 8, 7, 6])
  vectors = Hooks("coordinates").embed(at_places(place=place))[0]
  np.testing.assert_allclose(vectors, sinusoid(place, D), atol=1e-6)
  grid = np.stack([place, place[::-1]], axis=-1)
  vectors = Hooks("coordinates").embed(at_places(place=grid))[0]
  halves = sinusoid(place, D // 2), sinusoid(place[::-1], D // 2)
  np.testing.assert_allclose(vectors, np.concatenate(halves, -1), atol=1e-6)


@pytest.mark.parametrize("kind", ("sinusoidal", "learned"))
def test_a_cyclic_index_is_the_same_a_period_later(kind):
  usual, hooks = np.arange(SIZE), Hooks(kind, cyclic_period=3)
  indices = usual, usual + 30, usual % 3, usual + 1
  first, later, reduced, moved = map(hooks.embed, map(at_places, indices))
  assert np.array_equal(first, later) and np.array_equal(first, reduced)
  assert np.abs(first - moved).max() > 1e-3


def test_rope_scores_depend_on_the_difference_alone():
  hooks = Hooks("rope")
  query, key = (normal(i, 1, HEADS, SIZE, 8) for i in range(2))

  def scores(row_shift, key_shift):
    rows = hooks.rotate(query, at_places(np.arange(SIZE) + row_shift))
    keys = hooks.rotate(key, at_places(np.arange(SIZE) + key_shift))
    return np.einsum("bhtk,bhsk->bhts", rows, keys)

  np.testing.assert_allclose(scores(37, 37), scores(0, 0), atol=1e-4)
  assert np.abs(scores(0, 1) - scores(0, 0)).max() > 0.1


# Biases.


def test_alibi_is_minus_slope_times_distance():
  rows, keys = places(tokens((0, SIZE))), places(tokens((0, 3), (1, 3)))
  for causal in (True, False):
    bias = Hooks("alibi").bias(rows, keys, causal)
    distance = np.abs(np.arange(6) - np.arange(SIZE)[:, None])
    for head, slope in enumerate((2.0**-4, 2.0**-8)):  # 2^(-8h/H), h = 1, 2
      np.testing.assert_allclose(bias[0, head], -slope * distance)


def t5_bucket(relative: int, farthest: int, causal: bool) -> int:
  """As mesh-tensorflow has it: relative is key - row."""
  buckets, first, n = 32, 0, -relative
  if causal:
    n = max(n, 0)
  else:
    buckets //= 2
    first, n = buckets * (n < 0), abs(n)
  exact = buckets // 2
  if n < exact:
    return first + n
  share = np.log(n / exact) / np.log(farthest / exact)
  # Whole numbers of steps are not rounded down.
  large = exact + int(share * (buckets - exact) + 1e-5)
  return first + min(large, buckets - 1)


@pytest.mark.parametrize("farthest", (128, 17))
@pytest.mark.parametrize("causal", (True, False))
def test_t5_buckets_are_the_published_ones(causal, farthest):
  index = np.arange(300)
  at = places(tokens((0, 300)))
  table = np.arange(64, dtype=np.float32).reshape(32, 2)
  hooks = Hooks("t5", max_distance=farthest)
  bias = hooks.bias(at, at, causal, table=table)[0]
  assert bias.shape == (2, 300, 300)
  for head in range(2):
    for row in (0, 140, 299):
      buckets = [t5_bucket(int(j) - row, farthest, causal) for j in index]
      assert np.array_equal(bias[head, row] // 2, buckets)
    assert np.array_equal(bias[head] % 2, np.full((300, 300), head))


@pytest.mark.parametrize("causal", (True, False))
def test_fire_normalizes_by_the_longer_of_row_and_threshold(causal):
  """ψ(max(i, L)); beyond causal sites i is the longest distance there is."""
  hooks, limit = Hooks("fire"), 4.0
  rows, keys = places(tokens((0, 12))), places(tokens((0, 8)), tokens((0, 6)))
  args = rows, keys, causal
  variables = hooks.module.init(KEY, *args, method="bias")
  fresh = jax.device_get(variables["params"])
  params = {"threshold": jnp.array(-limit), "rate": jnp.array(-0.3)}
  bias = hooks.bias(*args, **params)
  squash = lambda x: np.log(0.3 * x + 1.0)
  layer = lambda name, x: x @ fresh[name]["kernel"] + fresh[name]["bias"]
  for b, last in enumerate((7, 5)):
    for i, j in np.ndindex(12, last + 1):
      distance = max(i - j, 0) if causal else abs(i - j)
      longest = i if causal else max(i, last - i)
      share = squash(distance) / squash(max(longest, limit))
      hidden = np.maximum(layer("hidden", np.array([share])), 0)
      found = bias[b % len(bias), :, i, j]
      np.testing.assert_allclose(found, layer("out", hidden), atol=1e-5)


# Places.


def test_abacus_tells_places_of_digits_alone():
  hooks = Hooks("abacus", table=20)
  digit = [False, True, True, False, True, True, True, True, False]
  place = [2, 1, 0, 2, 1, 0, 0, 1, 2]
  vectors = hooks.embed(at_places(place=place, digit=digit))[0]
  assert np.all(vectors[~np.array(digit)] == 0)
  assert np.array_equal(vectors[1], vectors[4])
  assert np.array_equal(vectors[2], vectors[6])
  assert np.abs(vectors[1] - vectors[2]).max() > 1e-3
  marked = Hooks("coupling", table=20).embed(at_places(None, place, digit))[0]
  assert np.array_equal(marked[0], marked[8]) and np.any(marked[0])


@pytest.mark.parametrize("kind", ("abacus", "coupling"))
def test_places_start_at_random_in_training_alone(kind):
  """Each example at a number of its own, the same in source and target."""
  hooks = Hooks(kind, table=40, random_start=30)
  x = jnp.zeros((300, SIZE, D))
  table = hooks.embed(at_places(place=np.arange(40), index=np.arange(40)))[0]
  place_of = lambda vectors: nearest(table, vectors)
  target, source = at_places(), at_places(place=np.arange(SIZE)[::-1])
  drawn = place_of(hooks.embed(target, KEY, x)[:, 0])
  assert set(drawn) == set(range(30))
  assert place_of(hooks.embed(source, KEY, x)[:, -1]) == drawn
  assert place_of(hooks.embed(target, KEY, x)[:, 4]) == [n + 4 for n in drawn]
  other = hooks.embed(target, jax.random.key(2), x)
  assert place_of(other[:, 0]) != drawn
  assert set(place_of(hooks.embed(target, None, x)[:, 0])) == {0}


# Randomized positions.

HIGHEST = 64


def drawn_positions(hooks, at, key=None) -> list[int]:
  """Which of all positions each token got."""
  table = np.asarray(sinusoid(jnp.arange(HIGHEST), D))
  return nearest(table, hooks.embed(at, key)[0])


def test_randomized_positions_are_an_ordered_draw():
  """Without replacement, anew for each key, once for all in tests."""
  hooks = Hooks("randomized", table=HIGHEST)
  keys = map(jax.random.key, range(20))
  draws = [drawn_positions(hooks, at_places(), key) for key in keys]
  for draw in draws:
    assert draw == sorted(set(draw)) and len(draw) == SIZE
  assert len(set(map(tuple, draws))) == 20
  assert min(map(min, draws)) < 3 and max(map(max, draws)) > HIGHEST - 4
  # In tests; padding takes no position away.
  tested = drawn_positions(hooks, at_places())
  assert tested == drawn_positions(hooks, at_places())
  for positions in (tested, drawn_positions(hooks, at_places(size=5))[:5]):
    assert positions == sorted(set(positions))


# In a model: where counting starts, what a table holds.


@pytest.mark.parametrize("anchor", ("left", "right"))
def test_the_source_is_counted_from_its_anchor(anchor):
  fields = {"positions.source_anchor": anchor, "positions.kind": "sinusoidal"}
  experiment = untrained.experiment("addition", "encoder_decoder", fields)
  batch = untrained.typed(experiment, "12+34", longest=6)
  params = untrained.params(experiment)
  run = lambda: experiment.apply(params, {}, batch, "addition")
  acts = jax.jit(run)()[1]
  table = params["token_embedder"]["embedding"][np.asarray(batch.source[0])]
  sinusoids = (np.asarray(acts["source"])[0] - table)[:10]
  index = np.arange(10)[:: 1 if anchor == "left" else -1]
  np.testing.assert_allclose(sinusoids, sinusoid(index, 16), atol=1e-5)


@pytest.mark.parametrize("kind", [x for x in POSITIONS if POSITIONS[x].limited])
def test_a_table_too_short_is_refused(kind):
  """For training, starts included, and for every test."""
  # Width 4: 10 source tokens; places 0...4, and 29 starts. Test: width 5.
  train, test = (10, 12) if POSITIONS[kind].limited == "index" else (34, 6)

  def build(table: int):
    fields = {"positions.kind": kind, "positions.random_start": 30}
    fields |= {"positions.table": table, "eval.lengths": (3,)}
    return untrained.experiment("addition", fields=fields)

  words = f"of addition need {train} positions, but positions.table={train - 1}"
  with refuses(words):
    build(train - 1)
  if test > train:
    with refuses(f"3 digits need {test} positions"):
      build(test - 1)
  with refuses("positions.table"):
    build(max(train, test)).test_width(40)


def test_a_cyclic_table_has_rows_for_every_index():
  fields = {"positions.kind": "learned", "positions.table": 3}
  fields["positions.cyclic_period"] = 3
  untrained.experiment("addition", fields=fields).test_width(1000)


# Segments.


SEGMENTS = {"positions.segments": True, "positions.kind": "none"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_input_gets_its_tokens_segment_vector(kind):
  experiment = untrained.experiment("addition", kind, SEGMENTS)
  params = untrained.params(experiment)
  batch = untrained.typed(experiment, "12+34", "5+6", width=3, longest=5)
  vectors = np.asarray(params["segment_embedder"]["embedding"])
  words = np.asarray(params["token_embedder"]["embedding"])
  assert vectors.shape == (3, 16)
  apply = jax.jit(lambda x: experiment.apply(x, {}, batch, "addition"))
  _, acts = apply(params)
  stacks = [(acts["inputs"], batch.inputs, batch.places)]
  if kind == "encoder_decoder":
    stacks.append((acts["source"], batch.source, batch.source_places))
  for embedded, inputs, their_places in stacks:
    expected = words[inputs] + vectors[their_places.segment]
    np.testing.assert_allclose(embedded, expected, atol=1e-6)


def test_segments_that_change_nothing_are_refused():
  """They change nothing where every site of attention has one segment."""
  with refuses("positions.segments=True changes nothing", "decoder_only"):
    untrained.experiment("successor", "encoder_decoder", SEGMENTS)
