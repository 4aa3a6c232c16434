"""Lessons of a round, and what of tasks, data and mixing is refused."""

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


def test_alternating_lessons_are_steps_of_one_head_in_turn():
  lessons = mixing.step_specs(HEADS, SKEWED, 32, "alternate", ())
  assert [[share.head for share in lesson] for lesson in lessons] == [
    ["sort"],
    ["sort_successor"],
    ["sort_fill"],
  ]
  for (share,) in lessons:  # the whole batch, in its buckets
    assert share.weight == 1.0
    assert share.parts == (mixing.Part(0, 26), mixing.Part(1, 6))
  alone = mixing.step_specs(HEADS[:1], SKEWED, 32, "alternate", ())
  assert len(alone) == 1


def test_weighted_mixing_is_one_lesson_of_shares():
  (lesson,) = mixing.step_specs(HEADS, SKEWED, 100, "weighted", (3.0, 1.0, 1.0))
  assert [share.head for share in lesson] == [*HEADS]
  np.testing.assert_allclose([s.weight for s in lesson], [0.6, 0.2, 0.2])
  assert list(map(counts, lesson)) == [[48, 12], [16, 4], [16, 4]]
  (equal,) = mixing.step_specs(HEADS, SKEWED, 99, "weighted", ())
  np.testing.assert_allclose([s.weight for s in equal], 1 / 3)
  assert [sum(counts(share)) for share in equal] == [33, 33, 33]


@pytest.mark.parametrize("batch", (32, 33, 77))
def test_a_batch_is_whole_whatever_its_shares(batch):
  for weights in ((), (5, 2, 2)):
    (lesson,) = mixing.step_specs(HEADS, SKEWED, batch, "weighted", weights)
    assert sum(sum(counts(share)) for share in lesson) == batch
    assert all(isinstance(n, int) for share in lesson for n in counts(share))
  for (share,) in mixing.step_specs(HEADS, SKEWED, batch, "alternate", ()):
    assert sum(counts(share)) == batch


BAD_PLANS = {
  "weights of steps": ("alternate", (1.0, 1.0, 1.0), "mixing.kind=weighted"),
  "zero": ("weighted", (1.0, 1.0, 0.0), "leave a hint out"),
  "negative": ("weighted", (1.0, 1.0, -1.0), "above zero"),
  "no number": ("weighted", ("a", 1, 1), "above zero"),
  "missing": ("weighted", (1.0, 1.0), "sort_fill"),
  "too many": ("weighted", (1.0, 1.0, 1.0, 1.0), "sort_fill"),
  "a bucket left out": ("weighted", (30, 1, 1), "too few for every bucket"),
}


@pytest.mark.parametrize("case", BAD_PLANS)
def test_bad_plans_are_refused_in_one_line(case):
  kind, weights, words = BAD_PLANS[case]
  with pytest.raises(UsageError) as caught:
    mixing.step_specs(HEADS, SKEWED, 32, kind, weights)
  message = str(caught.value)
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


def test_a_config_becomes_lessons():
  experiment = build(sort_config())
  assert experiment.heads == HEADS
  assert [lesson[0].head for lesson in experiment.step_specs] == [*HEADS]
  assert [share.head for share in experiment.validation] == [*HEADS]
  assert {sum(counts(share)) for share in experiment.validation} == {512}
  config = sort_config()
  config.mixing.update(kind="weighted", weights=(2.0, 1.0, 1.0))
  ((main, *_),) = build(config).step_specs
  assert (main.weight, sum(counts(main))) == (0.5, 16)


def test_sizes_of_a_finite_set_are_split_over_the_tasks():
  config = sort_config()
  config.data.size = 100
  assert [own.size for own in build(config).data] == [34, 33, 33]


@pytest.mark.parametrize("task", HINTS)
def test_every_hint_can_be_asked_for(task):
  presets = {"sort": sorting, "increment": increment}
  config = presets[task].get_config()
  config.hints = tuple(HINTS[task])
  names = [hint.name for hint in HINTS[task].values()]
  assert build(config).heads == (TASKS[task].name, *names)


BAD = {
  "hint": ("hints", ("succesor",), "successor"),
  "hint twice": ("hints", ("fill", "fill"), "once"),
  "mixing": ("mixing.kind", "both", "alternate, weighted"),
  "weights": ("mixing.weights", (1.0, 1.0, 1.0), "mixing.kind=weighted"),
  "size": ("data.size", 95, "at least 96"),
  "too many": ("data.size", 1 << 31, "from 0 to 2147483647"),
  "no size": ("data.size", -1, "from 0"),
  "alphabet": ("sort.alphabet", 1, "at least 2"),
  "letters": ("sort.alphabet", 1 << 17, "at most 65536"),
  "gap": ("sort.count_gap", 1, "at least 2"),
  "ties": ("sort.count_ties", 1.5, "[0, 1]"),
  "repeats": ("sort.repeat_share", -0.1, "[0, 1]"),
  "width": ("data.width", "fixed", "choose 'natural'"),
  "widths": ("data.widths", (8,), "choose ()"),
  "numbers": ("data.numbers", "permutation", "choose 'lengths'"),
  "buckets": ("data.buckets", (5, 9), "data.train_length"),
  "falling buckets": ("data.buckets", (6, 3), "must rise"),
  "no bucket": ("data.buckets", (0, 6), "from 1 on"),
  "empty bucket": ("data.short_share", 1.0, "no length of 4 to 6 occurs"),
  "share": ("data.short_share", 1.5, "[0, 1]"),
  "shortest": ("data.shortest", 9, "shortest <= short_longest"),
  "batch": ("train.batch_size", 1, "every bucket"),
  "validation": ("train.validation_samples", 1, "every bucket"),
  "test set": ("eval.test_sets", ("equal",), "uniform"),
  "no test set": ("eval.test_sets", (), "at least one"),
  "no room": ("eval.repetitions", (9,), "eval.lengths=(4, 8)"),
  "no repetition": ("eval.repetitions", (), "eval.repetitions"),
  "items": ("eval.repeated_items", 6, "eval.repeated_items"),
  "length": ("eval.lengths", (0,), "from 1 on"),
}


def refusal(config, field, value) -> str:
  """The one line that a config with another value is refused with."""
  with config.unlocked():
    config.update_from_flattened_dict({field: value})
  with pytest.raises(UsageError) as caught:
    build(config)
  assert "\n" not in str(caught.value)
  return str(caught.value)


@pytest.mark.parametrize("case", BAD)
def test_bad_configs_of_sequences_are_refused_in_one_line(case):
  field, value, words = BAD[case]
  config = sort_config()
  build(config)
  assert words in refusal(config, field, value)


BAD_ARITHMETIC = {
  "task": ("task", "sum", "successor, addition"),
  "hints": ("hints", ("successor",), "tasks with hints are sort, increment"),
  "narrow": ("data.widths", (6,), "too narrow"),
  "no width": ("data.widths", (0,), "from 1 on"),
  "buckets": ("data.buckets", (3, 6), "choose ()"),
  "slack": ("arithmetic.slack", -1, "must not be negative"),
  "no slack": ("arithmetic.slack", 0, "one digit more"),
  "kind of numbers": ("data.numbers", "primes", "permutation"),
  "numbers": ("data.numbers", "permutation", "data.widths"),
  "test set": ("eval.test_sets", ("sorted",), "equal, unequal, carry"),
}


@pytest.mark.parametrize("case", BAD_ARITHMETIC)
def test_bad_configs_of_arithmetic_are_refused_in_one_line(case):
  field, value, words = BAD_ARITHMETIC[case]
  config = arithmetic.get_config("addition,vanilla")
  if case == "numbers":  # seven digits do not fit
    config.data.widths = (7,)
  build(config)
  assert words in refusal(config, field, value)


def test_a_test_must_fit_a_fixed_width():
  config = arithmetic.get_config("addition,vanilla,fixed")
  config.data.fixed_width = 20
  config.eval.lengths = (19,)
  build(config)
  message = refusal(config, "eval.lengths", (20,))
  assert "20 digits do not fit data.width=fixed with W=20" in message
