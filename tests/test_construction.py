"""Theorem 5.1's construction sorts, as it says it does, and no further."""

import functools
import itertools

import command
import jax
import numpy as np
import pytest
from command import refused, succeeds
from flax.traverse_util import flatten_dict, unflatten_dict
from presets import construction as construction_presets

from lengthgen_jax.config import build
from lengthgen_jax.construction import weights
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import runs, train
from lengthgen_jax.probes.activations import Observation
from lengthgen_jax.probes.registry import PROBES, measure
from lengthgen_jax.tasks import dataset

Q, N = 4, 12
changed = functools.partial(
  command.changed, preset="4,12", get_config=construction_presets.get_config
)
# Every list of up to three items, and some of N: all equal, in order, in
# reverse, one value in all but one place, uniform.
ITEMS = 1, 2, 3, 4
SHORT = [s for n in (1, 2, 3) for s in itertools.product(ITEMS, repeat=n)]
RANDOM = np.random.default_rng(0).integers(1, Q + 1, (40, N))
ORDERED = np.arange(N) * Q // N + 1
REPEATED = [[3] * N, [1] * N, [4] + [2] * (N - 1), [3] * (N - 1) + [1]]
LISTS = [*SHORT, *REPEATED, ORDERED, ORDERED[::-1], [1, 2, 3, 4], *RANDOM]


@functools.cache
def built(preset, dtype="float32"):
  config = construction_presets.get_config(preset)
  config.model.dtype = dtype
  return build.build(config)


def packed(experiment, lists, longest=N):
  parsed = [([*map(int, items)], [len(items)]) for items in lists]
  args = experiment.task, experiment.kind, parsed, longest, longest
  return dataset.parsed_batch(*args)


def exact(experiment, params, batch):
  """Exact match [B]."""
  return Model(experiment, {}, params).matches(batch)


@pytest.mark.parametrize("copies", ["difference", "share"])
@pytest.mark.parametrize("preset", ("4,12", "4,12,norm"))
def test_the_construction_sorts_every_list(preset, copies):
  experiment = built(preset)
  params = weights.parameters(experiment, N, copies)
  right = exact(experiment, params, packed(experiment, LISTS))
  wrong = [LISTS[i] for i in np.flatnonzero(~right)]
  assert not wrong


# Probes.

MLP = "decoder_1/mlp/wi/kernel", weights.Dimensions(Q).output[1]
SUCCESSOR = "decoder_1/self_attention/query/kernel", np.s_[:, 1]
MINIMUM = "decoder_0/self_attention/value/kernel", np.s_[:, 1]
CLAIMED = {  # which of a probe's locations is claimed, and what it needs
  "minimum": (0, *MINIMUM),
  "copy": (0, "token_embedder/embedding", 3),
  "identity_successor": (0, *SUCCESSOR),
  "identity_removed": (-1, *MLP),
  "identity_lowered": (0, *MLP),
}


def broken(params, path, part):
  """The parameters with zeros in a part of one of them."""
  flat = flatten_dict(jax.tree.map(np.array, params), sep="/")
  assert np.abs(flat[path][part]).max() > 0
  flat[path][part] = 0
  return unflatten_dict(flat, sep="/")


def rates(params) -> dict:
  """The rate of each probe where the theorem claims it, on random lists without
  the item that nothing at all would show."""
  model = Model(built("4,12"), {}, params)
  items = np.maximum(RANDOM, 2)
  batch = packed(model.experiment, items)
  observation = Observation(model, batch, len(items), N)
  means = measure({name: PROBES[name] for name in CLAIMED}, [observation])
  found = {x: [mean.value for mean in y.values()] for x, y in means.items()}
  return {name: found[name][index] for name, (index, *_) in CLAIMED.items()}


def test_probes_find_what_the_theorem_claims():
  """And notice what a broken construction lacks."""
  params = weights.parameters(built("4,12"), N)
  assert rates(params) == dict.fromkeys(CLAIMED, 1.0)
  for name, (_, path, part) in CLAIMED.items():
    values = rates(broken(params, path, part))
    assert values[name] < 0.9, (name, values)


# Precision.


def test_shares_hold_as_many_items_as_bits_can_tell_apart():
  """64 in bfloat16, as derived, and not one more; differences hold more."""
  experiment = built("2,65", "bfloat16")
  most = weights.max_items("bfloat16", "share")
  assert most == 64

  def sorts(params, n: int) -> bool:
    lists = [[1] * k + [2] * (n - k) for k in (n, n // 2, n - 1, 1)]
    return exact(experiment, params, packed(experiment, lists, 65)).all()

  assert sorts(weights.parameters(experiment, most, "share"), most)
  fine = built("2,65")  # the same numbers, made where they are not refused
  coarse = weights.parameters(fine, most + 1, "share")
  assert not sorts(coarse, most + 1)
  assert sorts(weights.parameters(experiment, most + 1), most + 1)


# What is refused.

TRAIN = "train", "4,12"
SHARES = ("model.dtype='bfloat16'", "initial.longest=65")
TRAINED = "initial.kind='random'", "train.steps=1", "initial.noise=0.1"


REFUSED = (
  (*TRAIN, ("model.num_decoder_layers=3",), ("num_decoder_layers", "2")),
  (*TRAIN, ("model.norm='block_end'",), ("model.emb_dim", "28")),
  (*TRAIN, ("temperature.stretch=2.0",), ("temperature.stretch", "1.0")),
  (*TRAIN, ("initial.longest=2000000",), ("at most 1048576 items",)),
  (*TRAIN, TRAINED, ("initial.noise=0.1",)),
  ("train", "4,12,share", SHARES, ("at most 64 items", "'difference'")),
  ("train", "129,12", SHARES[:1], ("at most 128 items",)),
  ("abc", "4,12", (), ("initial.kind",)),
)


@pytest.mark.parametrize(("mode", "preset", "changes", "words"), REFUSED)
def test_what_it_cannot_do_is_refused(mode, preset, changes, words, tmp_path):
  line = refused(mode, changed(*changes, preset=preset), tmp_path / "run")
  assert all(word in line for word in words)
  assert not (tmp_path / "run").exists()


# From the command line.


def test_every_preset_has_the_constructions_shape():
  for alphabet, longest in ((2, 1), (10, 1000)):
    for words in (("norm",), ("share",)):
      preset = ",".join([str(alphabet), str(longest), *words])
      weights.check_shape(built(preset))
  for preset in ("10", "a,b", "10,0", "10,100,deep"):
    with pytest.raises(ValueError, match=preset):
      construction_presets.get_config(preset)


def test_every_seed_has_its_own_noise():
  config = changed("seeds=(0, 1)")
  run = runs.make_run(config, None)
  (plain, _) = train.initial_parameters(config, run)
  config.initial.noise = 0.1
  noisy = train.initial_parameters(config, run)
  flat = lambda tree: np.concatenate([x.ravel() for x in jax.tree.leaves(tree)])
  first, second = (flat(params) - flat(plain) for params in noisy)
  for noise in (first, second):
    assert 0.09 < noise.std() < 0.11
  assert abs(np.corrcoef(first, second)[0, 1]) < 0.1


def test_a_workdir_without_a_step_is_evaluated_and_asked(tmp_path):
  folder = tmp_path / "run"
  fields = "eval.lengths=(12,) eval.samples=(16,) eval.test_sets=('uniform',)"
  fields += " eval.free_running=False data.buckets=()"
  fields += " train.batch_size=8 train.validation_samples=16"
  flags = (f"--config.{field}" for field in fields.split())
  words = "--config=configs/construction.py:4,12", f"--workdir={folder}"
  done = succeeds(*words, *flags)
  assert "not trained" in done.stdout and "100.0" in done.stdout
  assert (folder / "checkpoints" / "0").is_dir()
  flags = "--mode=predict", f"--workdir={folder}"
  predicted = succeeds(*flags, text="3 1 4 1\n2\n")
  assert predicted.stdout == "1 1 3 4\n2\n"
  assert "step 0 (best validation EM 100.0 %)" in predicted.stderr
