"""Probes of sorting, on a model that was made by hand, whole and broken;
projections against sums; names of activations and of probes."""

import types

import jax
import numpy as np
import pytest
import untrained

from lengthgen_jax.errors import UsageError
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.probes import attention_probes, sorting_probes
from lengthgen_jax.probes.activations import (
  Observation,
  activation,
  activation_names,
)
from lengthgen_jax.probes.input_figures import cosines
from lengthgen_jax.probes.registry import PROBES, measure, select
from lengthgen_jax.tasks import dataset
from lengthgen_jax.tasks.packing import KINDS, take
from lengthgen_jax.tasks.sorting import Sort

V = 9
LISTS = ([3, 1, 7, 3, 9], [5, 5, 5, 5, 5], [9, 8, 2, 2, 1], [4, 9, 9, 9, 6])
N = len(LISTS[0])
RATES = [
  "minimum",
  "identity_successor",
  "copy",
  "identity_removed",
  "identity_lowered",
]


class Sorter:
  """A depth-2 model that sorts as Theorem 5.1 says, as far as one sees.

  Dimensions are the tokens in the encoder basis, then those in the decoder
  basis.

  Attributes:
    left: what the last MLP leaves of 1.2 that it should take from the identity.
    rank: which item `⊥` shows, 0 for the smallest.
    token_shift: added to the token that a residual shows in the encoder basis.
    successor_shift: added to the successor that an output shows before the last
      MLP.
  """

  def __init__(self, left=0.0, rank=0, token_shift=0, successor_shift=0):
    self.left, self.rank = left, rank
    self.token_shift, self.successor_shift = token_shift, successor_shift
    task = Sort(alphabet=V)
    self.experiment = types.SimpleNamespace(task=task, kind="decoder_only")
    unit = np.eye(2 * task.vocab_size, dtype=np.float32)
    self.encoder, self.decoder = np.split(unit, 2)
    self.params = {
      "token_embedder": {"embedding": self.encoder},
      "logits_dense_sort": {"kernel": self.decoder.T},
    }
    parsed = [(items, [N]) for items in LISTS]
    batch = dataset.typed_batch(task, "decoder_only", parsed, N, N)
    self.batch = jax.device_get(batch)

  def observe(self, batch):
    shift = lambda token, by: (token - 1 + by) % V + 1
    inputs, target = batch.inputs, batch.target
    shown = np.where(inputs <= V, shift(inputs, self.token_shift), inputs)
    first = 2 * self.encoder[shown]
    items = np.sort(inputs[:, :N], axis=1)
    first[:, N] += self.decoder[items[:, self.rank]]
    before, after = first.copy(), first.copy()
    for b, row in np.ndindex(inputs.shape):
      if row <= N:
        continue
      token = inputs[b, row]
      greater = items[b][items[b] > token]
      if len(greater):
        shown = shift(greater[0], self.successor_shift)
        before[b, row] += self.decoder[shown]
        after[b, row] += self.decoder[greater[0]]
      # More of the token while copies are left.
      copies = 1.5 * (target[b, row] == token)
      before[b, row] += (1.2 + copies) * self.decoder[token]
      after[b, row] += (self.left + copies) * self.decoder[token]
    blocks = [
      {"before_mlp": first, "after_mlp": first},
      {"before_mlp": before, "after_mlp": after},
    ]
    return None, {"decoder": {"blocks": blocks}, "encoder": {}}


def observed(model: Sorter) -> Observation:
  return Observation(model, model.batch, len(LISTS), N)


def rates(**faults) -> dict[str, float]:
  """The first rate of every probe, which its claim is about; of the last MLP
  the one after it."""
  probes = {name: PROBES[name] for name in RATES}
  means = measure(probes, [observed(Sorter(**faults))])
  values = {
    name: [mean.value for mean in by_location.values()]
    for name, by_location in means.items()
  }
  return {name: x[-(name == "identity_removed")] for name, x in values.items()}


def test_probes_find_what_the_theorem_says():
  assert rates() == dict.fromkeys(RATES, 1.0)


FAULTS = {
  "minimum": {"rank": 2},
  "copy": {"token_shift": 1},
  "identity_successor": {"successor_shift": 1},
  "identity_removed": {"left": 2.0},
}


@pytest.mark.parametrize("name", FAULTS)
def test_probes_notice_what_is_broken(name):
  values = rates(**FAULTS[name])
  assert values.pop(name) < 0.6
  if name == "identity_removed":
    assert values.pop("identity_lowered") < 0.5
  assert set(values.values()) == {1.0}


def test_a_remainder_of_the_identity_is_no_fault():
  assert rates(left=0.1)["identity_lowered"] == 1.0


def test_copies_are_those_in_the_prompt_and_in_the_outputs():
  """Of a head that sees all keys alike, and one that sees its own token."""
  model = Sorter()
  size = model.batch.inputs.shape[1]
  even = np.tril(np.ones((size, size))) / np.arange(1, size + 1)[:, None]
  weights = np.broadcast_to([even, np.eye(size)], (len(LISTS), 2, size, size))
  acts = {"decoder": {"blocks": [{"self": {"weights": weights}}]}}
  model.observe = lambda batch: (None, acts)
  in_prompt, in_outputs = [], []
  for items in LISTS:
    for t, item in enumerate(sorted(items)[:-1]):
      num_keys = N + t + 2  # the prompt, ⊥, outputs up to the row's own
      in_prompt.append(items.count(item) / num_keys)
      in_outputs.append(sorted(items)[: t + 1].count(item) / num_keys)
  evenly, itself = attention_probes.prompt_copies(observed(model))
  assert evenly.value == pytest.approx(np.mean(in_prompt))
  assert itself.value == 0
  evenly, itself = attention_probes.output_copies(observed(model))
  assert evenly.value == pytest.approx(np.mean(in_outputs))
  assert itself.value == 1
  assert (itself.part, itself.layer, itself.head) == ("self", 0, 1)


def test_outputs_that_count_are_those_with_a_successor():
  arrays = sorting_probes.output_items(observed(Sorter()))
  for items, *columns in zip(map(sorted, LISTS), *arrays, strict=True):
    assert columns[0].tolist() == items[:-1]
    for item, successor, has_successor in zip(*columns, strict=True):
      greater = [other for other in items if other > item]
      assert has_successor == bool(greater)
      assert not greater or successor == greater[0]


def test_batches_add_up():
  model = Sorter()
  parts = [
    Observation(
      model, take(model.batch, lambda x, part=part: x[part]), count, N
    )
    for part, count in ((slice(0, 2), 2), (slice(2, 4), 1))
  ]
  whole = Observation(model, model.batch, 3, N)
  probes = {"identity_successor": PROBES["identity_successor"]}
  assert measure(probes, parts) == measure(probes, [whole])


# Projections, and names.


def test_projections_are_inner_products():
  experiment = untrained.experiment(
    "sort", "decoder_only", {"model.norm": "none"}
  )
  model = Model(experiment, {}, untrained.params(experiment))
  batch = untrained.typed(experiment, "3 1 3 5")
  observation = Observation(model, batch, 1, 4)
  residual = observation.residual(0, "after_mlp")[0]
  embedding = np.asarray(model.params["token_embedder"]["embedding"])
  head = model.params["logits_dense_sort"]
  expected = np.einsum("td,vd->tv", residual, embedding)
  products = observation.project(residual, "encoder")
  np.testing.assert_allclose(products, expected, atol=1e-4)
  # Without normalization the last residual is what the logits are made of.
  products = observation.project(residual, "decoder")
  logits = products + np.asarray(head["bias"])
  np.testing.assert_allclose(logits, observation.logits[0], atol=1e-4)
  column = np.asarray(head["kernel"])[:, 4]
  expected = embedding[2] @ column
  expected /= np.linalg.norm(embedding[2]) * np.linalg.norm(column)
  cosine = cosines(*observation.bases.values())[2, 4]
  assert cosine == pytest.approx(expected, abs=1e-5)


BLOCK = ("self.scores", "self.weights", "before_mlp", "after_mlp")
CROSS = ("cross.scores", "cross.weights")
NAMES = {
  "decoder_only": {
    "decoder.embeddings",
    "decoder.output",
    *(f"decoder.blocks.{n}.{name}" for n in (0, 1) for name in BLOCK),
  }
}
NAMES["encoder_decoder"] = NAMES["decoder_only"] | {
  "encoder.embeddings",
  *(f"decoder.blocks.{n}.{name}" for n in (0, 1) for name in CROSS),
  *(f"encoder.blocks.0.{name}" for name in BLOCK),
}


@pytest.mark.parametrize("kind", KINDS)
def test_activations_have_these_names_and_no_others(kind):
  fields = {"model.num_decoder_layers": 2}
  experiment = untrained.experiment("addition", kind, fields)
  batch = untrained.typed(experiment, "12+34")
  acts = jax.eval_shape(
    lambda: experiment.apply(experiment.init(0), {}, batch, "addition")[1]
  )
  assert sorted(activation_names(acts)) == sorted(NAMES[kind])
  shape = activation(acts, "decoder.blocks.1.self.weights").shape
  assert shape == acts["decoder"]["blocks"][1]["self"]["weights"].shape
  for wrong in ("decoder.blocks.2.before_mlp", "decoder.blocks", "x"):
    with pytest.raises(UsageError) as refused:
      activation(acts, wrong)
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"no activation {wrong!r}")
    assert all(name in line for name in NAMES[kind])


def test_probes_that_do_not_apply_are_refused_with_those_that_do():
  model = Model(untrained.experiment("addition", "decoder_only"), {}, {})
  applicable = select((), model, "probe.only", PROBES)
  assert {"attention_own", "intact"} <= set(applicable)
  assert not {"minimum", "without_line"} & set(applicable)
  for name, reason in (("minimum", "models that sort"), ("minimun", "choose")):
    with pytest.raises(UsageError, match=reason) as refused:
      select(("intact", name), model, "probe.only", PROBES)
    choices = f"choose from {', '.join(applicable)}"
    assert str(refused.value).endswith(choices)
  assert list(select(("intact",), model, "probe.only", PROBES)) == ["intact"]
