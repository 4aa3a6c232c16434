"""Gradient steps of a round, and what of tasks, data and mixing is refused."""

import numpy as np
import pytest
from presets import arithmetic, increment, sorting

from lengthgen_jax.config.build import build
from lengthgen_jax.errors import UsageError
from lengthgen_jax.tasks import HINTS, TASKS, mixing
from lengthgen_jax.tasks.dataset import Lengths

HEADS = ("sort", "sort_successor", "sort_fill")
SKEWED = Lengths(2, 5, 20, 0.8, (5, 20))


def counts(share) -> list[int]:
  return [part.count for part in share.parts]


def test_alternating_steps_are_of_one_head_in_turn():
  steps = mixing.step_specs(HEADS, SKEWED, 32, "alternate", ())
  assert [[share.head for share in step] for step in steps] == [
    ["sort"],
    ["sort_successor"],
    ["sort_fill"],
  ]
  for (share,) in steps:  # the whole batch, in its buckets
    assert share.weight == 1.0
    assert share.parts == (mixing.Part(0, 26), mixing.Part(1, 6))
  assert len(mixing.step_specs(HEADS[:1], SKEWED, 32, "alternate", ())) == 1


def test_weighted_mixing_is_one_step_of_shares():
  (step,) = mixing.step_specs(HEADS, SKEWED, 100, "weighted", (3.0, 1.0, 1.0))
  assert [share.head for share in step] == [*HEADS]
  np.testing.assert_allclose([s.weight for s in step], [0.6, 0.2, 0.2])
  assert list(map(counts, step)) == [[48, 12], [16, 4], [16, 4]]
  (equal,) = mixing.step_specs(HEADS, SKEWED, 99, "weighted", ())
  np.testing.assert_allclose([s.weight for s in equal], 1 / 3)
  assert [sum(counts(share)) for share in equal] == [33, 33, 33]


@pytest.mark.parametrize("batch", (32, 33, 77))
def test_a_batch_is_whole_whatever_its_shares(batch):
  for weights in ((), (5, 2, 2)):
    (step,) = mixing.step_specs(HEADS, SKEWED, batch, "weighted", weights)
    assert sum(sum(counts(share)) for share in step) == batch
    assert all(isinstance(n, int) for share in step for n in counts(share))
  for (share,) in mixing.step_specs(HEADS, SKEWED, batch, "alternate", ()):
    assert sum(counts(share)) == batch


@pytest.mark.parametrize(
  "kind, weights, words",
  [
    ("alternate", (1.0, 1.0, 1.0), "mixing.kind=weighted"),
    ("weighted", (1.0, 1.0, 0.0), "leave a hint out"),
    ("weighted", (1.0, 1.0, -1.0), "above zero"),
    ("weighted", ("a", 1, 1), "above zero"),
    ("weighted", (1.0, 1.0), "sort_fill"),
    ("weighted", (1.0, 1.0, 1.0, 1.0), "sort_fill"),
    ("weighted", (30, 1, 1), "too few for every bucket"),
  ],
)
def test_bad_weights_are_refused_in_one_line(kind, weights, words):
  with pytest.raises(UsageError) as error:
    mixing.step_specs(HEADS, SKEWED, 32, kind, weights)
  message = str(error.value)
  assert words in message and "mixing.weights" in message
  assert "\n" not in message


# From a config.


def sort_config():
  """A small run of sorting and two hints; nothing here compiles."""
  config = sorting.get_config()
  config.hints = ("successor", "fill")
  config.data.update(train_length=6, shortest=1, short_longest=3)
  config.data.buckets = (3, 6)
  config.sort.alphabet = 5
  config.eval.update(test_sets=("uniform", "repeats"), lengths=(4, 8))
  return config


def test_a_config_becomes_steps():
  experiment = build(sort_config())
  assert experiment.heads == HEADS
  assert [step[0].head for step in experiment.step_specs] == [*HEADS]
  assert [share.head for share in experiment.validation] == [*HEADS]
  assert {sum(counts(share)) for share in experiment.validation} == {512}
  config = sort_config()
  config.mixing.update(kind="weighted", weights=(2.0, 1.0, 1.0))
  ((main, *_),) = build(config).step_specs
  assert (main.weight, sum(counts(main))) == (0.5, 16)


def test_sizes_of_a_finite_set_are_split_over_the_tasks():
  config = sort_config()
  config.data.size = 100
  assert [data.size for data in build(config).data] == [34, 33, 33]


@pytest.mark.parametrize("task", HINTS)
def test_every_hint_can_be_asked_for(task):
  presets = {"sort": sorting, "increment": increment}
  config = presets[task].get_config()
  config.hints = tuple(HINTS[task])
  names = [hint.name for hint in HINTS[task].values()]
  assert build(config).heads == (TASKS[task].name, *names)


def check_refused(config, field, value, words):
  """Another value is refused in one line with these words."""
  build(config)
  with config.unlocked():
    config.update_from_flattened_dict({field: value})
  with pytest.raises(UsageError) as error:
    build(config)
  message = str(error.value)
  assert words in message and "\n" not in message


@pytest.mark.parametrize(
  "field, value, words",
  [
    ("hints", ("succesor",), "successor"),
    ("hints", ("fill", "fill"), "once"),
    ("mixing.kind", "both", "alternate, weighted"),
    ("mixing.weights", (1.0, 1.0, 1.0), "mixing.kind=weighted"),
    ("data.size", 95, "at least 96"),
    ("data.size", 1 << 31, "from 0 to 2147483647"),
    ("data.size", -1, "from 0"),
    ("sort.alphabet", 1, "at least 2"),
    ("sort.alphabet", 1 << 17, "at most 65536"),
    ("sort.count_gap", 1, "at least 2"),
    ("sort.count_ties", 1.5, "[0, 1]"),
    ("sort.repeat_share", -0.1, "[0, 1]"),
    ("data.width", "fixed", "choose 'natural'"),
    ("data.widths", (8,), "choose ()"),
    ("data.numbers", "permutation", "choose 'lengths'"),
    ("data.buckets", (5, 9), "data.train_length"),
    ("data.buckets", (6, 3), "must rise"),
    ("data.buckets", (0, 6), "from 1 on"),
    ("data.short_share", 1.0, "no length of 4 to 6 occurs"),
    ("data.short_share", 1.5, "[0, 1]"),
    ("data.shortest", 9, "shortest <= short_longest"),
    ("train.batch_size", 1, "every bucket"),
    ("train.validation_samples", 1, "every bucket"),
    ("eval.test_sets", ("equal",), "uniform"),
    ("eval.test_sets", (), "at least one"),
    ("eval.repetitions", (9,), "eval.lengths=(4, 8)"),
    ("eval.repetitions", (), "eval.repetitions"),
    ("eval.repeated_items", 6, "eval.repeated_items"),
    ("eval.lengths", (0,), "from 1 on"),
  ],
)
def test_bad_configs_of_sorting_are_refused(field, value, words):
  check_refused(sort_config(), field, value, words)


@pytest.mark.parametrize(
  "field, value, words",
  [
    ("task", "sum", "successor, addition"),
    ("hints", ("successor",), "tasks with hints are sort, increment"),
    ("data.widths", (6,), "too narrow"),
    ("data.widths", (0,), "from 1 on"),
    ("data.buckets", (3, 6), "choose ()"),
    ("arithmetic.slack", -1, "must not be negative"),
    ("arithmetic.slack", 0, "one digit more"),
    ("data.numbers", "primes", "permutation"),
    ("data.numbers", "permutation", "data.widths"),
    ("eval.test_sets", ("sorted",), "equal, unequal, carry"),
  ],
)
def test_bad_configs_of_arithmetic_are_refused(field, value, words):
  config = arithmetic.get_config("addition,vanilla")
  if value == "permutation":  # seven digits do not fit
    config.data.widths = (7,)
  check_refused(config, field, value, words)


def test_a_test_must_fit_a_fixed_width():
  config = arithmetic.get_config("addition,vanilla,fixed")
  config.data.fixed_width = 20
  config.eval.lengths = (19,)
  words = "20 digits do not fit data.width=fixed with W=20"
  check_refused(config, "eval.lengths", (20,), words)
