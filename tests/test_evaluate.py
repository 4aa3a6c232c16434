"""Exact match is that of decoding; rows are replaced; metrics are right."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params
from scipy import stats
from tiny import get_config

from lengthgen_jax import (
  coordinates,
  evaluate,
  metrics,
  records,
  report,
  restore,
  tables,
  train,
)
from lengthgen_jax.models import decode

WIDTH = 4


@pytest.fixture(scope="module")
def model(trained_model):
  """(experiment, lines, params) of a seed that is half trained."""
  _, experiment, lines, state = trained_model
  params = jax.tree.map(lambda x: x[0], state.params)
  return experiment, jax.tree.map(lambda x: x[0], lines), params


def random_model(preset: str, temperature: str = "none", **model):
  """(experiment, lines, params) without training, so that outputs vary."""
  config = get_config(preset)
  config.model.update(model)
  config.temperature.kind = temperature
  experiment, lines = train.prepare(config)
  own = jax.tree.map(lambda x: x[0], lines)
  return experiment, own, random_params(experiment)


def silence_end(experiment, params):
  """The same parameters, but the end token is never said."""
  end = end_of(experiment)
  bias = params["logits_dense"]["bias"].at[end].set(-1e9)
  return params | {"logits_dense": params["logits_dense"] | {"bias": bias}}


def end_of(experiment) -> int:
  return experiment.task.vocabulary.id(experiment.task.vocabulary.end)


def pad_of(experiment) -> int:
  return experiment.task.vocabulary.id(experiment.task.vocabulary.pad)


def examples(experiment, samples: int = 256, length: int = 2):
  task = experiment.task
  lengths = jnp.full((samples, task.operands), length)
  draw = jax.jit(lambda: task.sample(jax.random.key(3), lengths, WIDTH, True))
  return draw()


def greedy(experiment, lines, params, batch, extra: int = 0, stop=True):
  """Cached decoding, `extra` PAD keys and cache rows more than needed."""
  rows = experiment.task.target_length(WIDTH)
  pad = pad_of(experiment)
  source = np.pad(batch.source, ((0, 0), (0, extra)), constant_values=pad)
  keys = experiment.task.coordinates(WIDTH)
  return np.asarray(
    decode.greedy(
      experiment.model,
      params,
      lines,
      source,
      coordinates.pad(keys, len(keys.segment) + extra),
      rows,
      bias_rows=experiment.biases,
      bound=rows + extra,
      end=end_of(experiment),
      pad=pad,
      stop=stop,
    )
  )


def uncached(experiment, lines, params, batch):
  """Greedy decoding by the definition: a whole forward pass for each row."""

  @jax.jit
  def forward(told):
    bias = experiment.full_biases(lines, WIDTH)
    again = batch._replace(
      target=told, coordinates=experiment.task.coordinates(WIDTH)
    )
    logits, _ = experiment.model.apply({"params": params}, again, bias)
    return logits.argmax(-1)

  told = np.zeros(batch.target.shape, np.int32)
  for row in range(told.shape[1]):
    told[:, row] = np.asarray(forward(told))[:, row]
  return told


def teacher_forced(model, batch):
  experiment, lines, params = model
  found = evaluate._hits(experiment, params, lines, batch, WIDTH)
  return [np.asarray(x) for x in found]


def test_teacher_forced_exact_match_is_that_of_decoding(model):
  experiment, lines, params = model
  batch = examples(experiment)
  token, exact = teacher_forced(model, batch)
  told = greedy(experiment, lines, params, batch)
  assert (exact == (told == batch.target).all(axis=1)).all()
  assert 5 < exact.sum() < 251  # some right and some wrong
  # Up to the first mistake, and at it, the two are the same row by row.
  sound = np.cumprod(np.pad(token, ((0, 0), (1, 0)), constant_values=1), 1)
  right = told == np.asarray(batch.target)
  assert (right == token)[sound[:, :-1] == 1].all()


def test_wrong_end_token_alone_is_a_mistake(model):
  experiment, lines, params = model
  batch = examples(experiment)
  token, exact = teacher_forced(model, batch)
  silent = silence_end(experiment, params)
  silent_token, silent_exact = teacher_forced(
    (experiment, lines, silent), batch
  )
  told = greedy(experiment, lines, silent, batch)
  right = told == np.asarray(batch.target)
  assert exact.any() and not silent_exact.any()
  assert (silent_token[exact, :-1]).all() and (right[exact, :-1]).all()
  assert not silent_token[:, -1].any() and not right[:, -1].any()


MODELS = {
  "half trained": None,
  "encoder, rope": partial(
    random_model, "addition,rope", num_encoder_layers=1, norm="post"
  ),
  "encoder, alibi": partial(
    random_model, "addition,alibi", num_decoder_layers=2, norm="block_end"
  ),
  "temperature": partial(
    random_model,
    "addition,vanilla",
    temperature="log_items",
    num_encoder_layers=1,
  ),
}


@pytest.mark.parametrize("name", MODELS)
def test_cache_and_padding_change_no_token(name, model):
  experiment, lines, params = MODELS[name]() if MODELS[name] else model
  batch = examples(experiment, samples=64)
  wanted = uncached(experiment, lines, params, batch)
  rows = wanted.shape[1]
  padded = greedy(experiment, lines, params, batch, extra=5, stop=False)
  assert (padded[:, :rows] == wanted).all()
  assert (padded[:, rows:] == pad_of(experiment)).all()
  assert len({tuple(row) for row in wanted}) > 3

  stopped = greedy(experiment, lines, params, batch)
  after_end = np.cumsum(wanted == end_of(experiment), axis=1) > 0
  after_end = np.pad(after_end, ((0, 0), (1, 0)))[:, :-1]
  wanted = np.where(after_end, pad_of(experiment), wanted)
  assert (stopped == wanted).all()


def plain_edit_distance(a, b) -> int:
  """Levenshtein by the textbook."""
  table = np.zeros((len(a) + 1, len(b) + 1), int)
  table[:, 0] = np.arange(len(a) + 1)
  table[0] = np.arange(len(b) + 1)
  for i in range(1, len(a) + 1):
    for j in range(1, len(b) + 1):
      table[i, j] = min(
        table[i - 1, j] + 1,
        table[i, j - 1] + 1,
        table[i - 1, j - 1] + (a[i - 1] != b[j - 1]),
      )
  return int(table[-1, -1])


def test_edit_distance_is_levenshtein():
  random = np.random.default_rng(0)
  for _ in range(200):
    a, b = (random.integers(0, 3, random.integers(0, 9)) for _ in "ab")
    assert metrics.edit_distance(a, b) == plain_edit_distance(a, b)
  assert metrics.edit_distance([], [1, 2]) == 2
  assert metrics.edit_distance([1, 2], []) == 2


def test_until_end():
  assert metrics.until_end(np.array([1, 2, 9, 3]), 9) == [1, 2]
  assert metrics.until_end(np.array([1, 2]), 9) == [1, 2]


def test_lower_bound_is_clopper_pearson():
  assert metrics.lower_bound(51, 51) == pytest.approx(0.943, abs=5e-4)
  assert metrics.lower_bound(299, 299) >= 0.99 > metrics.lower_bound(298, 298)
  assert metrics.lower_bound(0, 10) == 0.0
  for correct, n in ((1, 1), (1, 10), (37, 50), (999, 1000), (1000, 1000)):
    bound = metrics.lower_bound(correct, n)
    # At the bound, so many successes have a probability of 5 %.
    assert stats.binom.sf(correct - 1, n, bound) == pytest.approx(0.05)


def test_memory_does_not_change_rows(trained_model, model):
  config = get_config()
  config.eval.update(samples=(60,), lengths=(20,), free_running=True)
  experiment, lines, params = model
  found = []
  for megabytes in (1, 64):
    config.eval.memory_mb = megabytes
    size = evaluate.chunk_size(config, experiment, 22)
    assert (size < 60) == (megabytes == 1)
    assert megabytes > 1 or 60 % size  # the last chunk is filled up
    found.append(
      evaluate.evaluate_length(config, experiment, lines, params, "equal", 20)
    )
  # Not to the bit: sums run in another order at another batch size.
  assert found[0] == found[1]


def test_free_running_rows(model):
  config = get_config()
  config.eval.update(samples=(90,), free_running=True)
  experiment, lines, params = model
  rows = evaluate.evaluate_length(config, experiment, lines, params, "equal", 2)
  rows = {row["metric"]: row for row in rows}
  assert set(rows) == {"em", "token", "position", "em_end_blind", "edit"}
  assert rows["em_end_blind"]["correct"] >= rows["em"]["correct"] > 0
  assert rows["em"]["n"] == 90
  assert 0 < rows["edit"]["value"] < 1
  worst = min(rows["position"]["by_position"])
  assert rows["position"]["value"] == pytest.approx(worst, abs=1e-6)

  silent = silence_end(experiment, params)
  rows = evaluate.evaluate_length(config, experiment, lines, silent, "equal", 2)
  rows = {row["metric"]: row for row in rows}
  assert rows["em"]["correct"] == 0


def test_end_blind_forgives_the_end_and_leading_zeros_only():
  number = partial(evaluate._number, end=13)
  truth = number([3, 2, 1, 0, 13])
  assert number([3, 2, 1, 0, 0]) == truth == number([3, 2, 1, 13, 13])
  assert number([3, 13, 2, 1, 0]) == truth
  assert number([0, 3, 2, 1, 13]) != truth
  assert number([3, 2, 1, 14, 13]) != truth


def test_small_lengths_have_fewer_numbers(model):
  experiment, lines, params = model
  config = get_config()
  rows = evaluate.evaluate_length(config, experiment, lines, params, "equal", 1)
  assert rows[0]["n"] == 9


def test_lengths_share_one_compile_at_fixed_width():
  config = get_config("successor,window_cpi")
  config.data.width = "fixed"
  config.data.fixed_width = 12
  config.eval.update(lengths=(2, 5, 11), samples=(16,))
  experiment, lines = train.prepare(config)
  params = jax.tree.map(
    lambda x: jnp.ones(x.shape, x.dtype),
    jax.eval_shape(lambda: experiment.init(0)),
  )
  own = jax.tree.map(lambda x: x[0], lines)
  size, drawn = evaluate._hits._cache_size(), evaluate._draw._cache_size()
  for length in config.eval.lengths:
    evaluate.evaluate_length(config, experiment, own, params, "equal", length)
  assert evaluate._hits._cache_size() == size + 1
  assert evaluate._draw._cache_size() == drawn + 1


def test_rows_are_replaced_by_key(trained_model, tmp_path):
  config, experiment, lines, state = trained_model
  config = get_config()
  config.eval.lengths = (1, 2)
  seed_states = restore.seed_states(config, state)
  run = partial(evaluate.run, folder=tmp_path, stage="train")
  rows = run(config, experiment, lines, seed_states)
  assert {row["seed"] for row in rows} == {0, 1}
  assert {row["length"] for row in rows} == {1, 2}
  assert all(set(records.KEY) <= set(row) for row in rows)
  path = tmp_path / "results.jsonl"
  assert records.read(path) == rows

  spoiled = [row | {"value": -1.0} for row in rows]
  other = rows[-1] | {"eval_seed": 1}  # other samples
  records.write(path, [other, *spoiled])
  config.eval.lengths = (2,)
  again = run(config, experiment, lines, seed_states)
  found = records.read(path)
  assert len(found) == len(rows) + 1
  assert other in found
  assert [row for row in found if row["value"] >= 0] == [other, *again]
  assert {row["length"] for row in found if row["value"] < 0} == {1}


def test_a_torn_line_ends_a_log(tmp_path):
  path = tmp_path / "metrics.jsonl"
  path.write_text('{"step": 1}\n{"step": 2}\n{"st')
  assert records.read(path) == [{"step": 1}, {"step": 2}]
  records.drop_after(path, 1)
  records.append(path, [{"step": 2}])
  assert records.read(path) == [{"step": 1}, {"step": 2}]


def test_table_has_a_line_per_seed_and_the_median(trained):
  rows = records.read(trained / "results.jsonl")
  text = tables.of_run(rows).splitlines()
  assert text[0].startswith("addition: exact match in % by length in digits")
  names = [line.split()[:3] for line in text[3:]]
  assert names == [["window_cpi", "equal", s] for s in ("0", "1", "median")]


def test_report_draws_numbers_that_were_varied(trained, tmp_path):
  """Between runs of one method, not what sets the methods apart."""
  rows = records.read(trained / "results.jsonl")
  runs = [("a", 0, 32), ("a", 9, 32), ("b", 0, 64), ("b", 9, 64)]
  for i, (method, size, batch_size) in enumerate(runs):
    config = get_config()
    config.sequences.size, config.train.batch_size = size, batch_size
    folder = tmp_path / str(i)
    records.write(
      folder / "results.jsonl", [row | {"method": method} for row in rows]
    )
    records.write_text(folder / "config.json", config.to_json_best_effort())
  table = report.run(tmp_path)
  assert len(table.splitlines()) == 2 + len(runs)
  figures = {path.name for path in (tmp_path / "figures").iterdir()}
  assert figures == {
    "addition_natural.png",
    "addition_natural_equal_by_size.png",
  }
