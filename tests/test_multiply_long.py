"""N digits times M: running sums, grids, their lines and what decodes them."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import plain_tasks as plain
import pytest
import untrained
from command import refuses
from presets import multiply_long

from lengthgen_jax.attention.calibration import (
  MeanAttention,
  Selection,
  candidate_lines,
  move_output_lines_to_first_layer,
  within_reach,
)
from lengthgen_jax.attention.lines import (
  LEFT,
  RIGHT,
  Lines,
  cells_on_line,
  of_seed,
)
from lengthgen_jax.config import build, default_config
from lengthgen_jax.evaluation import decode
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import attention_statistics, runs
from lengthgen_jax.tasks import TASKS, dataset
from lengthgen_jax.tasks.packing import KINDS
from lengthgen_jax.tasks.task import Size

TASK = TASKS["multiply_long"]()
A, B, TARGET, START = range(4)
NO, ONE = np.zeros((2, 2), int), np.eye(2, dtype=int)
J, K = np.diag([1, 0]), np.diag([0, 1])


def typed(texts, kind="encoder_decoder", bound=None):
  parsed = [TASK.parse(text) for text in texts]
  width = TASK.padded_width(parsed[0][1])
  return dataset.parsed_batch(TASK, kind, parsed, width, bound or width)


def digits(rng, n: int) -> str:
  return "".join(map(str, rng.integers(0, 10, n)))


# The task.


@pytest.mark.parametrize("n, m", [(1, 1), (5, 2), (37, 61), (200, 200)])
def test_running_sums_and_product_are_those_of_python(n, m):
  rng = np.random.default_rng(n)
  a = [digits(rng, n), "9" * n, "1".ljust(n, "0")]
  b = [digits(rng, m), "9" * m, "0" * (m - 1) + "1"]
  batch = typed([f"{x}*{y}" for x, y in zip(a, b, strict=True)])
  for x, y, ids in zip(a, b, np.asarray(batch.target), strict=True):
    assert TASK.decode(ids) == plain.running_sums(x, y) + "&"
    assert TASK.render_with_lengths(ids, (n, m)) == str(int(x) * int(y))


def test_running_sums_are_rendered_on_request():
  (ids,) = np.asarray(typed(["123*456"]).target)
  assert TASK.render_with_lengths(ids, (3, 3), True) == "738 688 560 -> 56088"
  with pytest.raises(ValueError, match="wrote 12 digits .* not 10"):
    TASK.render_with_lengths(ids, (4, 2))


def test_rows_of_a_grid_meet_their_digits():
  """Digit k of a and digit j of b; the row of `&` the operator."""
  n, m = 4, 2
  batch = typed(["1234*56"])
  rows, keys = batch.rows, batch.source_keys
  source = TASK.decode(np.asarray(batch.source[0]))
  places = [divmod(i, n + 1) for i in range(m * (n + 1) + 1)]
  assert np.array_equal(rows.left[0], places)
  assert np.array_equal(rows.right[0], [(m - j, n - k) for j, k in places])
  # A key's coordinates are those of the token it holds.
  assert np.array_equal(batch.keys.left[0, 1:], places[:-1])
  for (j, k), row in zip(places, range(len(places)), strict=True):
    for segment, symbol in ((A, "4321$"[k]), (B, "65*"[j])):
      place = np.where(segment == A, [0, k], [j, 0])
      at = (keys.segment[0] == segment) & (keys.right[0] == place).all(-1)
      (key,) = np.flatnonzero(at)
      assert source[key] == symbol, (row, segment)


def test_training_goes_through_squares_and_rectangles():
  config = multiply_long.get_config("window")
  sizes = ((2, 2), (3, 3), (4, 4), (4, 3), (3, 4))
  dataset = build.build(config).data[0]
  assert dataset.widths == sizes
  for turn, (n, m) in enumerate(sizes):
    batch = dataset.sample(jax.random.key(0), 64, 0, turn)
    assert (batch.weight.sum(axis=1) == m * (n + 1) + 1).all()
    for i in (0, 63):
      count = int(batch.prompt_length[i])
      source = np.asarray(batch.source)[i, :count].tolist()
      said = np.asarray(batch.target)[i, : m * (n + 1) + 1].tolist()
      assert TASK.symbols(said) == plain.plain_answer(TASK, source)
      a, b = plain.operand_texts(TASK.decode(source))
      assert (len(a), len(b)) == (n, m)
  counts = np.bincount(np.asarray(batch.source)[:, 1], minlength=10)
  assert counts[0] > 0  # leading zeros are among them


@functools.cache
def drawn(name: str, n: int, m: int) -> list:
  """Operands' texts of a test set."""
  size = Size(np.array([n, m]), np.array([n, m]), (n, m))
  draw = lambda key: TASK.test_sets[name](TASK, key, size)
  items = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 50))
  text = lambda digits, size: "".join(map(str, digits[:size][::-1]))
  return [(text(a, n), text(b, m)) for a, b in np.asarray(items).tolist()]


def test_test_sets_draw_the_numbers_that_they_name():
  for a, b in drawn("equal", 5, 3):
    assert len(str(int(a))) == 5 and len(str(int(b))) == 3
  nines = drawn("nines", 5, 3)
  assert {a for a, _ in nines} == {"99999"}
  assert 10 < sum(b == "999" for _, b in nines) < 40
  one = drawn("one", 5, 3)
  assert all(sorted(x)[-1] == "1" and x.count("0") == len(x) - 1
             for pair in one for x in pair)  # fmt: skip
  assert len(set(one)) > 8
  zeros = drawn("zeros", 60, 60)
  inside = "".join(x[1:-1] for pair in zeros for x in pair)
  assert 0.7 < inside.count("0") / len(inside) < 0.85
  assert all(x[0] != "0" for pair in zeros for x in pair)


def test_unequal_numbers_are_named_by_their_digits():
  section = default_config("multiply_long").eval
  section.multipliers = (3, 61)
  variants = TASK.variants("unequal", section, 61)
  assert variants == [("unequal_x3", (3,))]
  assert TASK.operand_lengths(37, (61,)) == (37, 61)
  assert TASK.operand_lengths(37, ()) == (37, 37)


# Bad input.


def test_a_product_too_long_for_memory_is_answered_by_an_error():
  text = f"{'1' * 9000}*{'1' * 9000}"
  error = model().answers([text])[0]
  assert "error: " in error and "9000 times 9000 digits take 81009001" in error
  assert len(error) < 200


# Lines.


@functools.cache
def model(kind="encoder_decoder"):
  """Nobody trained it; it looks at near cells."""
  fields = {
    "model.num_encoder_layers": 0,
    "model.num_decoder_layers": 2,
    "model.num_heads": 4,
    "positions.kind": "none",
    "bias.kind": "window",
  }
  config = untrained.config("multiply_long", kind, fields)
  experiment = build.build(config)
  # Without constants: what is said shall hang on the keys.
  params = jax.tree_util.tree_map_with_path(
    lambda path, x: 0.0 * x if path[-1].key == "bias" else x,
    untrained.params(experiment, seed=1),
  )
  scaffold = build.make_scaffold(config, experiment)
  return Model(experiment, of_seed(scaffold, 0), params)


def test_the_scaffold_sees_what_a_digit_hangs_on():
  """By gradient of nothing: by its open cells."""
  grid_model, batch = model(), typed(["1234*567"])
  bias = {
    site: np.asarray(lines.dense(rows, keys))[:, 0]
    for site, lines, rows, keys in (
      ("self", grid_model.scaffold["self"], batch.rows, batch.keys),
      ("cross", grid_model.scaffold["cross"], batch.rows, batch.source_keys),
    )
  }
  source = TASK.decode(np.asarray(batch.source[0]))
  said = {(j, k): 1 + 5 * j + k for j in range(3) for k in range(5)}
  for row, (j, k) in enumerate([*said, (3, 0)]):
    seen = {
      source[i] for i in np.flatnonzero((bias["cross"][0, :, row] == 0).any(0))
    }
    expected = {"4321$"[k], "765*"[j]} | ({"4321$"[k - 1]} if k else set())
    assert seen == expected
    cells = [(j, k - 1), (j - 1, k + 1), (j - 1, k)]
    keys = {said[cell] for cell in cells if cell in said}
    in_grid = bias["self"][:, :, row] == 0
    assert set(np.flatnonzero(in_grid[0].any(0))) == keys
    assert not in_grid[1].any()  # later a key is a state


def test_fewer_heads_share_the_cells():
  config = untrained.config("multiply_long", fields={"bias.kind": "window"})
  lines = build.make_scaffold(config, build.build(config))["cross"]
  assert lines.shape == (1, 1, 2) and lines.valid.sum() == 3


PLANTED = {
  "cross": [
    (A, RIGHT, K, (0, 0)),
    (A, RIGHT, K, (0, -1)),
    (B, RIGHT, J, (0, 0)),
  ],
  "self": [
    (TARGET, LEFT, ONE, (-1, 1)),
    (TARGET, LEFT, ONE, (-1, 0)),
    (TARGET, LEFT, ONE, (0, -1)),
  ],
}
STRAY = {  # a fixed digit; the first digit of every row before
  "cross": (A, RIGHT, NO, (0, 0)),
  "self": (TARGET, LEFT, J, (-1, 0)),
}


def one_line(segment, anchor, matrix, c) -> Lines:
  """A line of the output's rows, [1, 1, 1]."""
  make = lambda x: np.array(x, np.int32)[None, None, None]
  return Lines(*map(make, (TARGET, segment, anchor, matrix, c)))


def attention(lines, rows, keys, noise):
  """[1, H, T, S]: a head for each line, and noise."""
  weights_by_head = [
    np.asarray(cells_on_line(one_line(*line), rows, keys))[0, 0, 0]
    for line in lines
  ]
  weights = np.stack(weights_by_head) + 0.02 * noise.random((len(lines), 1, 1))
  weights = weights + 0.05 * noise.random(weights.shape)
  return (weights / weights.sum(-1, keepdims=True))[None].astype(np.float32)


@pytest.mark.parametrize("site", ("cross", "self"))
def test_planted_lines_of_two_axes_are_recovered(site):
  """At every size, and no other; fixed live digits are left out."""
  section = multiply_long.get_config("abc").calibration
  noise, means = np.random.default_rng(0), []
  lines = [*PLANTED[site], STRAY[site]]
  for n, m in ((4, 3), (3, 4)):
    batch = typed([f"{'1' * n}*{'1' * m}"])
    keys = batch.keys if site == "self" else batch.source_keys
    rows = jax.tree.map(np.asarray, batch.rows)
    weights = attention(lines, rows, keys, noise)
    means.append(MeanAttention(weights, rows.left[0, :, 0] < m, rows, keys))
  tested, verdict = attention_statistics.select_lines(
    section, TASK, means, site
  )
  for head, (segment, anchor, matrix, c) in enumerate(lines):
    recovered = [
      [np.array(field).tolist() for field in tested.take(i)]
      for i in np.flatnonzero(verdict.keep[0, head])
    ]
    planted = [TARGET, segment, anchor, matrix.tolist(), list(c)]
    assert recovered == ([planted] if head < 3 else []), (site, head)


def test_what_a_row_may_depend_on_is_near():
  batch = jax.tree.map(np.asarray, typed(["111*111"]))
  ends = {A, B}
  tested = candidate_lines(
    batch.rows, batch.keys, TARGET, (0, 1), False, ends, (-1, 0, 1)
  )
  early, later = within_reach(tested, batch.keys, TASK, 1)
  near = tested.intercept[early & (tested.segment == TARGET)]
  assert set(map(tuple, near.tolist())) == set(
    itertools.product((-1, 0, 1), repeat=2)
  )
  cross = candidate_lines(
    batch.rows, batch.source_keys, TARGET, (-1, 0, 1), False, ends
  )
  first_cross, _ = within_reach(cross, batch.source_keys, TASK, 1)
  moving = first_cross & cross.matrix.any((1, 2))
  places = np.c_[cross.segment, cross.intercept][moving].tolist()
  assert sorted(places) == [[A, 0, -1], [A, 0, 0], [A, 0, 1], [B, 0, 0]]
  assert np.array_equal(early, later | (tested.segment == START))


def test_lines_to_outputs_are_read_in_the_first_layer():
  """Of the heads that have them where any first has; other lines stay."""
  batch = jax.tree.map(np.asarray, typed(["111*111"]))
  tested = candidate_lines(
    batch.rows, batch.keys, TARGET, (0, 1), False, {A, B}, (-1, 0, 1)
  )
  shape = 3, 2, len(tested.segment)
  random = np.random.default_rng(0)
  keep = random.random(shape) < 0.4
  outputs = np.flatnonzero(tested.segment == TARGET)
  late, never = outputs[:2]
  keep[0, :, late], keep[1, :, late] = False, [True, False]
  keep[:, :, never] = False
  score = random.random(shape)
  verdict = Selection(score, score, score, keep, keep)
  first = move_output_lines_to_first_layer(verdict, tested, TASK.target_segment)
  others = tested.segment != TARGET
  assert np.array_equal(first.keep[..., others], keep[..., others])
  assert not first.keep[1:, :, ~others].any()
  for c in outputs:
    has = [n for n in range(3) if keep[n, :, c].any()]
    n = has[0] if has else 0
    assert np.array_equal(first.keep[0, :, c], keep[n, :, c])
    assert np.array_equal(first.score[0, :, c], score[n, :, c])
  assert first.keep[0, :, late].tolist() == [True, False]
  assert not first.keep[0, :, never].any()


# Both families, and decoding.


@pytest.mark.parametrize("kind", KINDS)
def test_room_behind_a_grid_changes_no_exact_match(kind):
  """Numbers of one size packed tight, and with PAD behind them."""
  grid_model, texts = model(kind), ["12*345", "99*999", "10*100"]
  tight, roomy = (typed(texts, kind, bound) for bound in (None, (4, 5)))
  right, exact = map(np.asarray, grid_model.matches(tight))
  again, exact_again = map(np.asarray, grid_model.matches(roomy))
  assert roomy.target.shape > tight.target.shape
  assert np.array_equal(exact, exact_again)
  assert np.array_equal(right, again[:, : right.shape[1]])
  assert 0 < right.mean() < 1


def test_a_ring_of_rows_decodes_as_the_whole_cache_does():
  grid_model = model()
  batch = typed(["314159*27182818", "999999*99999999"])
  window = grid_model.cache_window(batch)
  assert window == (1, 7)  # a row of the grid
  args = grid_model.experiment, grid_model.params, grid_model.scaffold, batch
  greedy = np.asarray(decode.greedy(*args, jnp.int32(57), None))
  stream = decode.stream(*args, jnp.int32(57), None, window)
  assert np.array_equal(greedy, stream)
  assert len(np.unique(greedy)) > 2


def test_a_cache_window_holds_every_key_of_its_lines():
  lines, batch = model().scaffold["self"], typed(["314159*271"])

  def ring(matrix, c):
    put = lambda old, new: np.broadcast_to(np.array(new, np.int32), old.shape)
    turned = lines._replace(
      matrix=put(lines.matrix, matrix), intercept=put(lines.intercept, c)
    )
    of_one_seed = jax.tree.map(lambda x: np.asarray(x)[None], turned)
    if of_one_seed.first_leak() is not None:
      return None
    return turned.cache_window(TARGET, batch.rows)

  assert ring(ONE, (-2, 0)) == (1, 14)
  diagonals = itertools.product((-1, 0, 1), (-1, 0, 1, 2))
  shifts = itertools.product(range(-2, 2), range(-3, 4))
  for diagonal, c in itertools.product(diagonals, shifts):
    matrix = np.diag(diagonal)
    window = ring(matrix, c)
    if window is None:
      continue
    first, recent = window
    for row in range(21):  # row r has the cell r, key p + 1 holds cell p
      place = matrix @ np.array(divmod(row, 7)) + np.array(c)
      key = int(place @ [7, 1]) + 1
      if place.min() >= 0 and place[1] < 7 and key <= row:
        assert key < first or row - key < recent, (matrix, c, row)


def test_a_run_needs_room_for_the_tests_that_it_has_alone(tmp_path):
  config = multiply_long.get_config("vanilla")
  config.positions.update(kind="learned", table=1000)
  config.eval.update(lengths=(100,), samples=(9,), multipliers=(3,))
  config.eval.test_sets = ("unequal",)  # 100 digits times 3
  runs.make_run(config, tmp_path)
  config.eval.stress = True
  with refuses("100 digits need 10101 positions", "positions.table=1000"):
    runs.make_run(config, tmp_path)
