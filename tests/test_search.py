"""The search finds inputs that have given contexts, and inputs on which a model
is wrong."""

import collections
import dataclasses
import functools
import itertools

import certificate_hunt as hunt
import jax
import numpy as np
import pytest

import lengthgen_jax
from lengthgen_jax.pipelines import certify
from lengthgen_jax.proofs.search import Search
from lengthgen_jax.tasks import dataset


@functools.cache
def search_of(name):
  """Returns the Search of a model of the package, or of a draw of the hunt."""
  if isinstance(name, int):
    _, form, model = hunt.draw(name)
    return Search(model, *hunt.exported(form, model))
  loaded = lengthgen_jax.load(name)
  return Search(loaded.model, *certify.exported(loaded.config, loaded.model))


def contexts_in(search, inputs):
  """Returns {(receptive field, code)} of each input, and asserts that a row has
  the receptive field of its class."""
  by_size, found = collections.defaultdict(list), [set() for _ in inputs]
  for number, (_, lengths) in enumerate(inputs):
    by_size[tuple(lengths)].append(number)
  experiment, checked = search.model.experiment, search.checked
  widest = dataset.widest([*map(experiment.task.padded_width, by_size)])
  size = max(map(len, by_size.values()))
  for lengths, numbers in by_size.items():
    # All batches have one shape, so that there is one program.
    padded = itertools.islice(itertools.cycle(numbers), size)
    parsed = [inputs[number] for number in padded]
    batch = hunt.batch_of(experiment, parsed, widest)
    for _, _, nodes, ids in hunt.contexts_of(checked, lengths, batch):
      codes = hunt.code_of(checked, ids).tolist()
      for number, code in zip(numbers, codes, strict=False):
        found[number].add((nodes, code))
  return found


def assert_drawn(search, drawn):
  """Asserts that each input of [(receptive field, code, input)] has the
  context."""
  contexts = contexts_in(search, [x for *_, x in drawn])
  for (nodes, code, _), of_input in zip(drawn, contexts, strict=True):
    assert (nodes, code) in of_input


# Draw 21 of the hunt has positions that repeat; in 1011 row 1 sees, through row
# 0, the operand that this is a copy of. No other row of a grid that copies an
# operand can be given a row above it.
@pytest.mark.parametrize("name", ["parity", "dyck", 21, 1011])
def test_every_context_has_an_input(name):
  search, rng, drawn = search_of(name), np.random.default_rng(0), []
  for nodes, codes in search.batches():
    codes = codes[:200].tolist()
    inputs = search.draw(nodes, np.array(codes), rng)
    rows = {j for (_, _, j, _), *_ in search.fields[nodes]}
    if search.checked.task.is_first and min(rows) > 1:
      assert inputs == [None] * len(codes)
      continue
    assert None not in inputs
    drawn += [(nodes, *pair) for pair in zip(codes, inputs, strict=True)]
  assert_drawn(search, drawn)


def test_shown_inputs_are_wrong_and_the_shortest_come_first():
  """3 and 4 are each other's answers. The numbers are no longer than in
  training where the model is to be trained on them."""
  loaded, head = lengthgen_jax.load("successor"), "logits_dense_successor"
  swap = lambda x: np.asarray(x)[..., [*range(3), 4, 3, *range(5, x.shape[-1])]]
  params = loaded.model.params
  params = params | {head: jax.tree.map(swap, params[head])}
  model = dataclasses.replace(loaded.model, params=params)
  search = Search(model, *certify.exported(loaded.config, model))
  found = search.find_wrong(np.random.default_rng(0), exhaustive=True)
  contexts = sum(len(codes) for _, codes in search.batches())
  assert found.contexts == contexts > found.wrong > 0 > found.margin
  texts = found.counterexamples
  assert texts == sorted(texts, key=lambda text: (len(text), text))
  answers = search.model.answers(texts[:8])
  for text, answer in zip(texts[:8], answers, strict=True):
    right = str(int(text) + 1)
    assert answer.lstrip("0") != right and set(right) & set("34")
  longest = search.model.experiment.train_length
  lengths = {len(text) for text in found.failing}
  assert max(lengths) <= longest and len(lengths) > 1
  assert all(set(str(int(x) + 1)) & set("34") for x in found.failing)
  # Without `exhaustive` it ends after the first receptive field that fails.
  first = search.find_wrong(np.random.default_rng(0), exhaustive=False)
  assert 0 < first.wrong < found.wrong and first.contexts < found.contexts


def test_a_right_model_is_trained_where_its_margins_are_thin(monkeypatch):
  search = search_of("parity")
  monkeypatch.setattr("lengthgen_jax.proofs.search.THIN_MARGIN", 8.5)
  found = search.find_wrong(np.random.default_rng(0), exhaustive=True)
  assert found.margin > 0 and not found.counterexamples + found.failing
  inputs = [search.model.experiment.task.parse(text) for text in found.thin]
  assert inputs and search.margins(inputs).max() < 8.5


def test_products_have_the_contexts_that_they_are_made_for(monkeypatch):
  """A context that none of the random grids has may be that of a short one."""
  monkeypatch.setattr("lengthgen_jax.proofs.search.INPUTS_TRIED", 20)
  search, rng = search_of("multiply_long"), np.random.default_rng(0)
  longest = np.max(search.model.experiment.data[0].widths, axis=0)
  drawn, num_rows = [], set()
  for nodes, rows in [*search.fields.items()][::2]:
    codes = search.contexts.run(rows[0][2][-1])
    codes = rng.permutation(codes)[:20]
    inputs = search.draw(nodes, codes, rng)
    in_training = search.draw(nodes, codes, rng, as_in_training=True)
    for code, x, y in zip(codes.tolist(), inputs, in_training, strict=True):
      drawn.append((nodes, code, x))
      if y is None:
        assert (x.lengths > longest).any()
      else:
        drawn.append((nodes, code, y))
        num_rows.add(y.lengths[1])
        assert (y.lengths <= longest).all()
  assert min(num_rows) < max(num_rows) == longest[1]
  assert_drawn(search, drawn)
