"""N digits times M: running sums, grids, their lines and what decodes them."""

import functools
import itertools

import jax
import numpy as np
import plain_tasks as plain
import pytest
import untrained
from command import refuses
from plain_lines import planted
from presets import multiply_long

from lengthgen_jax.attention.calibration import MeanAttention, select_lines
from lengthgen_jax.attention.lines import LEFT, RIGHT
from lengthgen_jax.config import build
from lengthgen_jax.pipelines import runs
from lengthgen_jax.tasks import TASKS, dataset
from lengthgen_jax.tasks.task import Size

TASK = TASKS["multiply_long"]()
A, B, TARGET = range(3)
NO, ONE = np.zeros((2, 2), int), np.eye(2, dtype=int)
J, K = np.diag([1, 0]), np.diag([0, 1])


def typed(*texts):
  parsed = [TASK.parse(text) for text in texts]
  width = TASK.padded_width(parsed[0][1])
  return dataset.parsed_batch(TASK, "encoder_decoder", parsed, width, width)


# The task.


def test_running_sums_and_product_are_those_of_python():
  """Of many digits, and as people read them."""
  rng, n, m = np.random.default_rng(0), 37, 61
  random, other = ("".join(map(str, rng.integers(0, 10, k))) for k in (n, m))
  a = [random, "9" * n, "1".ljust(n, "0")]
  b = [other, "9" * m, "0" * (m - 1) + "1"]
  batch = typed(*(f"{x}*{y}" for x, y in zip(a, b, strict=True)))
  for x, y, ids in zip(a, b, np.asarray(batch.target), strict=True):
    assert TASK.decode(ids) == plain.running_sums(x, y) + "&"
    assert TASK.render_with_lengths(ids, (n, m)) == str(int(x) * int(y))
    with pytest.raises(ValueError, match="wrote .* digits .* not"):
      TASK.render_with_lengths(ids, (n, m + 1))


def test_training_goes_through_squares_and_rectangles():
  config = multiply_long.get_config("window")
  sizes = ((2, 2), (3, 3), (4, 4), (4, 3), (3, 4))
  dataset = build.build(config).data[0]
  assert dataset.widths == sizes
  for turn, (n, m) in enumerate(sizes):
    batch = dataset.sample(jax.random.key(0), 64, 0, turn)
    assert (batch.weight.sum(axis=1) == m * (n + 1) + 1).all()
    for source in np.asarray(batch.source)[[0, 63]].tolist():
      texts = plain.operand_texts(TASK.decode(source).rstrip("@"))
      assert [*map(len, texts)] == [n, m]
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


# Lines.


@functools.cache
def model():
  """Nobody trained it; it looks at near cells."""
  fields = {"bias.kind": "window", "positions.kind": "none"}
  fields |= {"model.num_encoder_layers": 0, "model.num_decoder_layers": 2}
  return untrained.model("multiply_long", fields=fields)


def test_the_scaffold_sees_what_a_digit_hangs_on():
  """By gradient of nothing: by its open cells."""
  scaffold, batch, bias = model().scaffold, typed("1234*567"), {}
  for site, keys in (("self", batch.keys), ("cross", batch.source_keys)):
    bias[site] = np.asarray(scaffold[site].dense(batch.rows, keys))[:, 0]
  source = TASK.decode(np.asarray(batch.source[0]))
  said = {(j, k): 1 + 5 * j + k for j in range(3) for k in range(5)}
  for row, (j, k) in enumerate([*said, (3, 0)]):
    cells = (bias["cross"][0, :, row] == 0).any(0)
    seen = {source[i] for i in np.flatnonzero(cells)}
    expected = {"4321$"[k], "765*"[j]} | ({"4321$"[k - 1]} if k else set())
    assert seen == expected
    cells = [(j, k - 1), (j - 1, k + 1), (j - 1, k)]
    keys = {said[cell] for cell in cells if cell in said}
    in_grid = bias["self"][:, :, row] == 0
    assert set(np.flatnonzero(in_grid[0].any(0))) == keys
    assert not in_grid[1].any()  # later a key is a state


TWO_OF_A = (A, RIGHT, K, (0, 0)), (A, RIGHT, K, (0, -1))
OUTPUTS = (-1, 1), (-1, 0), (0, -1)
PLANTED = {
  "cross": [*TWO_OF_A, (B, RIGHT, J, (0, 0))],
  "self": [(TARGET, LEFT, ONE, c) for c in OUTPUTS],
}
STRAY = {  # a fixed digit; the first digit of every row before
  "cross": (A, RIGHT, NO, (0, 0)),
  "self": (TARGET, LEFT, J, (-1, 0)),
}


def attention(site):
  """Mean attention [1, 4, T, S] at two sizes, a head for each planted line."""
  noise = np.random.default_rng(0)
  lines = [(TARGET, *line) for line in (*PLANTED[site], STRAY[site])]
  for n, m in ((4, 3), (3, 4)):
    batch = typed(f"{'1' * n}*{'1' * m}")
    keys = batch.keys if site == "self" else batch.source_keys
    rows, keys = jax.tree.map(np.asarray, (batch.rows, keys))
    weights = planted(lines, rows, keys, noise)
    yield MeanAttention(weights, rows.left[0, :, 0] < m, rows, keys)


@pytest.mark.parametrize("site", ("cross", "self"))
def test_planted_lines_of_two_axes_are_recovered(site):
  """At every size, and no other; fixed live digits are left out."""
  section = multiply_long.get_config("abc").calibration
  tested, verdict = select_lines(section, TASK, [*attention(site)], site)
  lines = [*PLANTED[site], STRAY[site]]
  for head, (segment, anchor, matrix, c) in enumerate(lines):
    kept = map(tested.take, np.flatnonzero(verdict.keep[0, head]))
    recovered = [[np.array(x).tolist() for x in line] for line in kept]
    planted_line = [TARGET, segment, anchor, matrix.tolist(), list(c)]
    assert recovered == ([planted_line] if head < 3 else []), (site, head)


def test_a_head_keeps_only_lines_that_are_nearly_as_strong_as_its_best():
  """With calibration.best_share; the first head attends along two lines."""
  section, means = multiply_long.get_config("abc").calibration, []
  for mean in attention("cross"):
    weights = mean.values.copy()
    weights[:, 0] = 0.7 * weights[:, 0] + 0.3 * weights[:, 1]
    means.append(mean._replace(values=weights))
  section.kappa, kept = 1.0, {}
  for section.best_share in (0.0, 0.2, 0.8):
    _, verdict = select_lines(section, TASK, means, "cross")
    kept[section.best_share] = verdict.keep[0]
  assert kept[0.0][0].sum() == kept[0.2][0].sum() == 2
  weaker = kept[0.0][0] & kept[0.0][1]  # the line of the second head
  assert (kept[0.8][0] == kept[0.0][0] & ~weaker).all() and weaker.any()
  assert (kept[0.8][1:] == kept[0.0][1:]).all()


# Decoding.


def test_a_cache_window_holds_every_key_of_its_lines():
  lines, batch = model().scaffold["self"], typed("314159*271")
  assert model().cache_window(batch) == (1, 7)  # a row of the grid

  def ring(matrix, c):
    put = lambda old, new: np.broadcast_to(np.array(new, np.int32), old.shape)
    fields = {"matrix": put(lines.matrix, matrix)}
    turned = lines._replace(intercept=put(lines.intercept, c), **fields)
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
