"""Probes of sorting: on a model that was made by hand, whole and broken, and
projections against sums."""

import types

import jax
import numpy as np
import pytest
import untrained

from lengthgen_jax.errors import UsageError
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.probes import attention_probes, sorting_probes
from lengthgen_jax.probes.activations import Seen, activation, angles, names
from lengthgen_jax.probes.registry import PROBES, chosen, measured
from lengthgen_jax.tasks import dataset
from lengthgen_jax.tasks.packing import KINDS
from lengthgen_jax.tasks.sorting import Sort

V = 9
LISTS = ([3, 1, 7, 3, 9], [5, 5, 5, 5, 5], [9, 8, 2, 2, 1], [4, 9, 9, 9, 6])
SORTING = [
  n for n, p in PROBES.items() if p.of.__module__ == sorting_probes.__name__
]


class ByHand:
  """A depth-2 model that sorts as Theorem 5.1 says, as far as one sees.

  Dimensions are the tokens in the encoder basis, then those in the decoder
  basis.

  Attributes:
    stay: what the last MLP leaves of 1.2 that it should take from the
      identity.
    low: place of the minimum at `⊥`, counted from the smallest item.
    own: added to the token that a residual shows in the encoder basis.
    skip: added to the successor that an output shows before the last MLP.
  """

  sparse_plan = None
  scaffold = {}

  def __init__(self, stay=0.0, low=0, own=0, skip=0):
    self.stay, self.low, self.own, self.skip = stay, low, own, skip
    task = Sort(alphabet=V)
    self.experiment = types.SimpleNamespace(task=task, kind="decoder_only")
    unit = np.eye(2 * task.vocab_size, dtype=np.float32)
    self.encoder, self.decoder = np.split(unit, 2)
    self.params = {
      "token_embedder": {"embedding": self.encoder},
      "logits_dense_sort": {"kernel": self.decoder.T},
    }
    parsed = [(items, [len(items)]) for items in LISTS]
    n = len(LISTS[0])
    self.batch = dataset.typed_batch(task, "decoder_only", parsed, n, n)

  def observe(self, batch):
    held, said = np.asarray(batch.inputs), np.asarray(batch.target)
    n = len(LISTS[0])
    first = self.encoder[
      np.where(held <= V, (held - 1 + self.own) % V + 1, held)
    ]
    first = first * 2
    items = np.sort(held[:, :n], axis=1)
    first[:, n] += self.decoder[items[:, self.low]]
    before, after = first.copy(), first.copy()
    for b, row in np.ndindex(held[:, n + 1 :].shape):
      t, row = held[b, n + 1 + row], n + 1 + row
      greater = items[b][items[b] > t]
      if len(greater):
        shown = (greater[0] + self.skip - 1) % V + 1
        before[b, row] += self.decoder[shown]
        after[b, row] += self.decoder[greater[0]]
      # More of the token while copies are left.
      copies = 1.5 * (said[b, row] == t)
      before[b, row] += (1.2 + copies) * self.decoder[t]
      after[b, row] += (self.stay + copies) * self.decoder[t]
    blocks = [
      {"before_mlp": first, "after_mlp": first},
      {"before_mlp": before, "after_mlp": after},
    ]
    return None, {"decoder": {"blocks": blocks}, "encoder": {}}


def found(model) -> dict:
  """The first rate of every probe: of the place that its claim is about; for
  the last MLP, after it."""
  seen = Seen(model, model.batch, len(LISTS), len(LISTS[0]))
  probes = {name: PROBES[name] for name in SORTING}
  means = measured(probes, [seen])
  last = {"identity_removed": -1}
  return {
    name: list(own.values())[last.get(name, 0)].value
    for name, own in means.items()
  }


def test_probes_find_what_the_theorem_says():
  assert found(ByHand()) == dict.fromkeys(SORTING, 1.0)


BROKEN = {
  "minimum": {"low": 2},
  "copy": {"own": 1},
  "identity_successor": {"skip": 1},
  "identity_removed": {"stay": 2.0},
}


@pytest.mark.parametrize("name", BROKEN)
def test_probes_notice_what_is_broken(name):
  rates = found(ByHand(**BROKEN[name]))
  assert rates[name] < 0.6
  free = {"identity_lowered"} if name == "identity_removed" else set()
  for other in set(SORTING) - {name} - free:
    assert rates[other] == 1.0, other


def test_what_the_last_mlp_adds_to_the_identity_is_noticed():
  assert found(ByHand(stay=0.1))["identity_lowered"] == 1.0
  assert found(ByHand(stay=2.0))["identity_lowered"] < 0.5


def test_copies_are_those_given_and_those_said():
  """Of a head that sees all keys alike, and one that sees its own token."""
  model, n = ByHand(), len(LISTS[0])
  size = model.batch.inputs.shape[1]
  even = np.tril(np.ones((size, size))) / np.arange(1, size + 1)[:, None]
  weights = np.broadcast_to([even, np.eye(size)], (len(LISTS), 2, size, size))
  acts = {"decoder": {"blocks": [{"self": {"weights": weights}}]}}
  model.observe = lambda batch: (None, acts)
  seen = Seen(model, model.batch, len(LISTS), n)
  given, said = [], []
  for items in LISTS:
    for t, item in enumerate(sorted(items)[:-1]):
      seen_keys = n + t + 2  # the prompt, ⊥, outputs up to its own
      given.append(items.count(item) / seen_keys)
      said.append(sorted(items)[: t + 1].count(item) / seen_keys)
  evenly, own = attention_probes.copies_given(seen)
  assert evenly.value == pytest.approx(np.mean(given)) and own.value == 0
  evenly, own = attention_probes.copies_said(seen)
  assert evenly.value == pytest.approx(np.mean(said)) and own.value == 1
  assert (own.part, own.layer, own.head) == ("self", 0, 1)


def test_outputs_that_count_are_those_with_a_successor():
  model = ByHand()
  seen = Seen(model, model.batch, len(LISTS), len(LISTS[0]))
  for b, items in enumerate(LISTS):
    held, successor, counted = (own[b] for own in sorting_probes.outputs(seen))
    ordered = sorted(items)
    assert held.tolist() == ordered[:-1]
    for t, after, counts in zip(held, successor, counted, strict=True):
      greater = [item for item in ordered if item > t]
      assert counts == bool(greater)
      assert not counts or after == greater[0]


def test_passes_add_up():
  model = ByHand()
  whole = Seen(model, model.batch, 3, len(LISTS[0]))
  cut = lambda part: jax.tree.map(
    lambda x: x[part] if x.shape[:1] == (len(LISTS),) else x, model.batch
  )
  parts = [
    Seen(model, cut(slice(0, 2)), 2, len(LISTS[0])),
    Seen(model, cut(slice(2, 4)), 1, len(LISTS[0])),
  ]
  probes = {"identity_successor": PROBES["identity_successor"]}
  assert measured(probes, parts) == measured(probes, [whole])


# Projections, and names.


def seen_of(kind="decoder_only", task="sort", text="3 1 3 5", **fields):
  """An untrained model on what one types."""
  fields = {f"model.{name}": value for name, value in fields.items()}
  built = untrained.experiment(task, kind, fields)
  model = Model(built, {}, untrained.params(built))
  batch = untrained.typed(built, text)
  return Seen(model, batch, 1, 4)


def test_projections_are_sums_of_products():
  seen = seen_of(norm="none")
  x = seen.residual(0, "after_mlp")[0]
  table = np.asarray(seen.model.params["token_embedder"]["embedding"])
  head = seen.model.params["logits_dense_sort"]
  weights, offset = np.asarray(head["kernel"]), np.asarray(head["bias"])
  for basis in ("encoder", "decoder"):
    told = seen.project(x, basis)
    for t, v in np.ndindex(told.shape):
      vector = table[v] if basis == "encoder" else weights[:, v]
      wanted = sum(
        float(a) * float(b) for a, b in zip(x[t], vector, strict=True)
      )
      assert told[t, v] == pytest.approx(wanted, abs=1e-4)
  # Without normalization the last residual is what the logits are made of.
  np.testing.assert_allclose(told + offset, seen.logits[0], atol=1e-4)
  cosines = angles(table, weights.T)
  wanted = table[2] @ weights[:, 4]
  wanted /= np.linalg.norm(table[2]) * np.linalg.norm(weights[:, 4])
  assert cosines[2, 4] == pytest.approx(wanted, abs=1e-5)


BLOCK = ("self.scores", "self.weights", "before_mlp", "after_mlp")
CROSS = ("cross.scores", "cross.weights")
GOLDEN = {
  "decoder_only": {
    "decoder.embeddings",
    "decoder.output",
    *(f"decoder.blocks.{n}.{name}" for n in (0, 1) for name in BLOCK),
  }
}
GOLDEN["encoder_decoder"] = GOLDEN["decoder_only"] | {
  "encoder.embeddings",
  *(f"decoder.blocks.{n}.{name}" for n in (0, 1) for name in CROSS),
  *(f"encoder.blocks.0.{name}" for name in BLOCK),
}


@pytest.mark.parametrize("kind", KINDS)
def test_activations_have_these_names_and_no_others(kind):
  built = untrained.experiment(
    "addition", kind, {"model.num_decoder_layers": 2}
  )
  batch = untrained.typed(built, "12+34")
  shapes = jax.eval_shape(
    lambda: built.apply(built.init(0), {}, batch, "addition")[1]
  )
  assert set(names(shapes)) == GOLDEN[kind]
  assert len(names(shapes)) == len(GOLDEN[kind])
  for name in names(shapes):
    assert activation(shapes, name).shape[0] == 1
  for wrong in (
    "decoder.blocks.2.before_mlp",
    "decoder.blocks",
    "x",
    "decoder",
  ):
    with pytest.raises(UsageError) as refused:
      activation(shapes, wrong)
    words = str(refused.value)
    assert words.startswith(f"no activation {wrong!r}") and "\n" not in words
    assert all(name in words for name in GOLDEN[kind])


def test_probes_that_do_not_apply_are_refused_with_those_that_do():
  built = untrained.experiment("addition", "decoder_only")
  model = Model(built, {}, {})
  fit = chosen((), model, "probe.only", PROBES)
  assert "attention_own" in fit and "intact" in fit
  assert not {"minimum", "without_line"} & set(fit)
  for name, reason in (("minimum", "models that sort"), ("minimun", "choose")):
    with pytest.raises(UsageError, match=reason) as refused:
      chosen(("intact", name), model, "probe.only", PROBES)
    assert str(refused.value).endswith(f"choose from {', '.join(fit)}")
  only = chosen(("intact",), model, "probe.only", PROBES)
  assert list(only) == ["intact"]
