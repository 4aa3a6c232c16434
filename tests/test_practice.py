"""What may be certified, and training on what a certificate found wrong."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import untrained
from plain_lines import one_seed, random_lines

from lengthgen_jax.attention.biases.scaffold import SiteMatrix
from lengthgen_jax.attention.calibration import within_reach
from lengthgen_jax.attention.lines import (
  ANY,
  LEFT,
  RIGHT,
  WHOLE,
  Line,
  Lines,
  shared_lines,
)
from lengthgen_jax.certify.conditions import check_local
from lengthgen_jax.coordinates import segments
from lengthgen_jax.errors import UsageError
from lengthgen_jax.pipelines import runs
from lengthgen_jax.tasks import TASKS, dataset
from lengthgen_jax.training import loop, optimizer
from lengthgen_jax.training.train_step import TrainSpec, draw_batches

# Conditions.

OWN = Line(WHOLE, LEFT, 1, 0)
DIAGONAL = one_seed(shared_lines([OWN], 2))
DENSE = SiteMatrix(np.zeros((1, 2, 9, 9), np.float32))
STEEP = one_seed(shared_lines([Line(0, RIGHT, 2, 0)], 2))
CLEAR = DIAGONAL._replace(
  transparent=np.array([[False, False], [False, True]]),
  **{
    name: np.repeat(getattr(DIAGONAL, name), 2, 0)
    for name in DIAGONAL._fields
    if name != "transparent"
  },
)


def local(task="addition", scaffold=(), fields=()):
  """check_local of a tiny model, its lines replaced by site."""
  usual = {"positions.kind": "none", "model.num_encoder_layers": 0}
  built = untrained.experiment(task, fields=usual | dict(fields))
  own = {"self": DIAGONAL, "cross": DIAGONAL} | dict(scaffold)
  check_local(built, {site: x for site, x in own.items() if x is not None})


@pytest.mark.parametrize(
  ("arguments", "words"),
  [
    ({"task": "parity_classification"}, ("parity_classification", "transduc")),
    ({"task": "sort"}, ("sort is no transducer",)),
    ({"scaffold": {"self": None}}, ("self-attention has no lines",)),
    ({"scaffold": {"cross": None}}, ("cross-attention has no lines",)),
    (
      {"fields": {"model.num_encoder_layers": 1}},
      ("encoder-attention has no lines", "bias.windowed_encoder"),
    ),
    ({"scaffold": {"cross": DENSE}}, ("cross-attention has a dense bias",)),
    (
      {
        "scaffold": {"cross": CLEAR},
        "fields": {"model.num_decoder_layers": 2},
      },
      ("cross-attention, layer 1, head 1 is transparent", "empty_heads"),
    ),
    ({"scaffold": {"cross": STEEP}}, ("cross-attention moves 2 tokens",)),
    ({"fields": {"positions.kind": "sinusoidal"}}, ("positions.kind=none",)),
    ({"fields": {"positions.kind": "alibi"}}, ("positions.kind",)),
    (
      {"fields": {"positions.kind": "alibi", "positions.cyclic_period": 3}},
      ("positions.", "cyclic"),
    ),
    (
      {
        "task": "multiply_long",
        "fields": {"positions.kind": "learned", "positions.cyclic_period": 3},
      },
      ("running sums", "positions.kind=none"),
    ),
    ({"fields": {"temperature.kind": "log_items"}}, ("temperature.kind=none",)),
    ({"fields": {"bias.closed": -5.0}}, ("bias.closed=-1e9",)),
    ({"fields": {"bias.allow_leak": True}}, ("bias.allow_leak=False",)),
  ],
)
def test_what_cannot_be_certified_is_said_in_a_line(arguments, words):
  with pytest.raises(UsageError) as caught:
    local(**arguments)
  (line,) = str(caught.value).splitlines()
  for word in words:
    assert word in line


def test_lines_and_cyclic_indices_can_be_certified():
  local()
  encoder = {"model.num_encoder_layers": 1}
  local(scaffold={"encoder": DIAGONAL}, fields=encoder)
  for kind in ("sinusoidal", "learned"):
    cyclic = {"positions.kind": kind, "positions.cyclic_period": 3}
    local(fields=cyclic)
  none = one_seed(shared_lines([OWN], 2))
  cut = lambda x: x[:, :, :0] if x.ndim > 2 else x
  local(scaffold={"cross": type(none)(*map(cut, none))})  # no head has one
  aligned = {"arithmetic.aligned": True}
  local(scaffold={"cross": STEEP}, fields=aligned)


# Lines that keep what a row depends on small.


def kept(name: str, reach: int, sizes, lines, **fields):
  """`near` of lines (segment, anchor, M, c)."""
  segment, anchor, matrix, c = map(np.array, zip(*lines, strict=True))
  rows = np.full(len(lines), ANY)
  matrix, c = matrix[:, None, None], c[:, None]
  tested = Lines(rows, segment, anchor, matrix, c)
  found = within_reach(tested, segments(*sizes), TASKS[name](**fields), reach)
  assert found.shape == (2, len(lines))
  return [tuple(own) for own in found.T.tolist()]


YES, NO = (True, True), (False, False)


def test_outputs_are_near_and_fixed_places_are_marks():
  target = 2
  lines = {
    (target, LEFT, 1, -1): YES,  # the row's own input
    (target, LEFT, 1, -2): YES,
    (target, LEFT, 1, -3): NO,
    (target, LEFT, 0, 0): NO,  # the first output
    (target + 1, LEFT, 0, 0): (True, False),  # its state has seen digits
    (0, LEFT, 0, 0): YES,  # $
    (0, RIGHT, 0, 4): YES,
    (0, LEFT, 0, 1): NO,
    (0, RIGHT, 0, 0): NO,
    (1, LEFT, 0, 0): YES,  # +
    (1, RIGHT, 0, 0): NO,
    (1, RIGHT, 1, 3): YES,  # as far as it likes
    (0, LEFT, -1, 2): YES,
  }
  found = kept("addition", 1, (5, 5), lines)
  assert dict(zip(lines, found, strict=True)) == lines
  further = [(target, LEFT, 1, c) for c in (-3, -4)]
  assert kept("addition", 2, (5, 5), further) == [YES, NO]


def test_a_digit_that_all_places_share_is_near():
  found = kept("multiply", 1, (5, 2), [(1, RIGHT, 0, 0), (0, RIGHT, 0, 0)])
  assert found == [YES, NO]
  pairs = [(0, RIGHT, 0, c) for c in (0, 1, 2, 7, 8, 9)]
  found = kept("multiply", 1, (10,), pairs, aligned=True)
  assert found == [YES, NO, YES, NO, YES, YES]  # the digit, marks at the left


# Practice.

FAMILIES = ("encoder_decoder", "decoder_only")
IDS = ("inputs", "target", "source")


def examples(batch) -> list:
  """What every example of a batch is, all its tokens."""
  found = [np.asarray(getattr(batch, n)) for n in IDS if n != "source"]
  if batch.source is not None:
    found.append(np.asarray(batch.source))
  return [tuple(own) for own in np.concatenate(found, axis=1).tolist()]


# Of a task: fields, inputs, and the bound of their items.
SETS = {
  "addition": ({"data.widths": (4, 5)}, ["99+99", "1+2", "55+45"], 5),
  "modular": ({"data.train_length": 4}, ["6 6 1", "3", "5 4 0 2"], 4),
}


@pytest.mark.parametrize(
  "task, kind", [*(("addition", k) for k in FAMILIES), ("modular", FAMILIES[1])]
)
def test_a_share_of_a_batch_is_drawn_from_the_set(task, kind):
  fields, texts, bound = SETS[task]
  built = untrained.experiment(task, kind, fields)
  items, lengths = zip(*map(built.task.parse, texts), strict=True)
  items = [np.pad(x, [(0, 0), (0, bound - x.shape[1])]) for x in items]
  parsed = list(zip(items, lengths, strict=True))
  junk = np.full((2, len(items[0]), bound), 6, np.int32)
  replay = {
    "items": np.concatenate([items, junk]).astype(np.int32),
    "lengths": np.array([*lengths, lengths[0], lengths[0]], np.int32),
    "count": np.int32(3),
  }
  config = dataclasses.replace(
    optimizer.TrainConfig(**untrained.config(task, kind).train),
    replay_share=0.3,
  )
  step_spec, count = built.step_specs[0], 9  # of 32
  spec = TrainSpec(built, config)

  @jax.jit
  def batch_of(seed, step, replay):
    """What a step trains on."""
    (((batch, _),),) = draw_batches(spec, step_spec, seed, step, replay)
    return batch

  for step in (0, 1):
    plain = batch_of(1, step, None)
    mixed = batch_of(1, step, replay)
    own = dataset.typed_batch(built.task, kind, parsed, 4 + step, bound)
    found, known = examples(mixed), set(examples(own))
    assert set(found[:count]) == known and len(known) == 3
    assert found[count:] == examples(plain)[count:]
    jax.tree.map(
      lambda x, y: np.testing.assert_array_equal(x[-1], y[-1]), mixed, plain
    )
    # Where the tokens stand, each as where it was typed.
    at = [examples(own).index(one) for one in found[:count]]
    for name in (
      "rows",
      "keys",
      "places",
      "weight",
      "prompt_length",
      "first_scored",
    ):
      three = [jax.tree.leaves(getattr(x, name)) for x in (mixed, plain, own)]
      for now, before, typed in zip(*three, strict=True):
        each = len(now) == 32  # of every example, or of all
        wanted = typed[np.array(at)] if each else before
        np.testing.assert_array_equal(now[:count] if each else now, wanted)
    # A function of seed, step and set: nothing else, and of each.
    assert examples(batch_of(1, step, replay)) == found
    order = np.array([1, 0, 2, 3, 4])
    other = replay | {n: replay[n][order] for n in ("items", "lengths")}
    for again in (
      batch_of(2, step, replay),
      batch_of(1, step + 2, replay),
      batch_of(1, step, other),
    ):
      assert examples(again)[:count] != found[:count]


def a_run(folder, scaffold) -> loop.Run:
  config = untrained.config("addition", fields={"data.widths": (6,)})
  return loop.Run(
    experiment=untrained.experiment("addition", fields={"data.widths": (6,)}),
    train=optimizer.TrainConfig(**config.train),
    seeds=(3, 5, 7),
    scaffold=scaffold,
    folder=folder / "retrain",
    save_every=1,
    keep=1,
    config={},
    report=print,
  )


def test_a_round_trains_its_seeds_with_their_lines_on_their_inputs(tmp_path):
  inputs = {
    "7": {"failing": ["12+34"], "thin": ["1+1", "2+2", "3+30"]},
    "3": {"failing": ["5+6", "7+8"], "thin": ["9+9"]},
  }
  folder = tmp_path / "certify_1"
  folder.mkdir()
  (folder / runs.INPUTS).write_text(json.dumps(inputs))
  lines = random_lines(0, (3, 2, 2, 2), 1, (0, 1))
  section = untrained.config().practice
  section.update(steps=7, share=0.5)
  run = a_run(tmp_path, {"cross": lines, "self": shared_lines([OWN], 2)})
  found = runs.practice_run(section, run, folder)
  assert found.seeds == (7, 3) and found.folder == folder
  for name, own in found.scaffold["cross"]._asdict().items():
    np.testing.assert_array_equal(own, getattr(lines, name)[[2, 0]])
  assert found.scaffold["self"].shape == (1, 1, 2)  # one for all
  items, count = found.replay["items"], found.replay["count"]
  assert items.shape == (2, 6, 2, 6) and count.tolist() == [6, 3]
  task = run.experiment.task
  typed = [[task.input_text(x, 2) for x in own] for own in items]
  assert typed[0] == ["12+34"] * 3 + ["01+01", "02+02", "03+30"]
  assert typed[1][:3] == ["05+06", "07+08", "09+09"]
  assert not items[1, 3:].any() and not items[..., 2:].any()
  train = found.train
  assert (train.steps, train.replay_share) == (7, 0.5)
  assert train.learning_rate == section.learning_rate
  assert train.warmup_steps == 7 and train.restarts == 0
  assert train.target_exact_match > 1  # trains to the end
  assert run.replay is None and run.train.replay_share == 0
