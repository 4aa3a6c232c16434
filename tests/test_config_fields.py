"""Every field of the config changes something."""

import copy

import pytest
from command import refuses
from ml_collections import ConfigDict
from pytrees import leaf_bytes

from lengthgen_jax.config import build, default_config, fields
from lengthgen_jax.tasks import TASKS
from lengthgen_jax.training.optimizer import TrainConfig


def leaves(config, prefix=()):
  """The names of all fields, as tuples."""
  for name, value in config.items():
    if hasattr(value, "items"):
      yield from leaves(value, (*prefix, name))
    else:
      yield (*prefix, name)


# Changes something.

HINTED = {"task": "sort", "hints": ("fill",)}
# Under which other fields a field means something, by its name or section.
WHERE = {
  "data.fixed_width": ({"data.width": "fixed", "eval.lengths": (6,)}),
  "data.numbers": {"data.width": "fixed"},
  "data.short_longest": {"data.width": "fixed"},
  "data.short_share": {"data.width": "fixed", "data.short_longest": 3},
  "data.buckets": {"task": "sort"},
  "attention.alpha": {"attention.normalizer": "entmax"},
  "hints": {"task": "sort"},
  "mixing.kind": HINTED,
  "mixing.weights": HINTED | {"mixing.kind": "weighted"},
  "bias": {"bias.kind": "window"},
} | {kind.section: {"task": task} for task, kind in TASKS.items()}
# Other values, where nothing near the default can be.
OTHER = {
  "data.width": "fixed",
  "data.buckets": (3, 6),
  "data.size": 1000,
  "data.short_longest": 3,
  "data.train_length": 5,
  "data.shortest": 2,
  "hints": ("fill",),
  "mixing.weights": (3, 1),
  "model.emb_dim": 32,
  "model.num_heads": 4,
  "positions.kind": "alibi",
  "attention.alpha": 1.25,
  "bias.kind": "window",
  "bias.closed": -5.0,
  "temperature.stretch": 2.0,
  "sort.repeat_values": "log_uniform",
  "modular.answer": "final",
  "permutations.answer": "final",
  "permutations.group": "S3",
  "dyck.answer": "final",
  "dyck.brackets": "[]",
  "mqmtar.alphabet": 100,
  "mqmtar.key_length": 1,
  "mqmtar.value_length": 1,
}
BUILT = ("data", "hints", "mixing", "model", "positions", "temperature", "bias")
BUILT += ("attention",)
BUILT += (*sorted({task.section for task in TASKS.values()}), "train")
FIELDS = [
  ".".join(path)
  for path in leaves(default_config())
  if path[0] in BUILT and path != ("bias", "file")  # of test_bias_files.py
]


def other(field: str, value):
  """Another value that a field can have."""
  if field in OTHER:
    return OTHER[field]
  restricted = fields.FIELDS.get(field)
  for choice in getattr(restricted and restricted.check_value, "choices", ()):
    if choice != value:
      return choice
  if isinstance(value, bool):
    return not value
  return value + 1 if isinstance(value, int) else value / 2 + 0.01


def parts(config: ConfigDict):
  """What a run is made of."""
  experiment = build.build(config)
  scaffold = build.make_scaffold(config, experiment)
  return experiment, leaf_bytes(scaffold), TrainConfig(**config.train)


def after(config: ConfigDict, changes: dict) -> ConfigDict:
  config = copy.deepcopy(config)
  with config.unlocked():
    config.update_from_flattened_dict(changes)
  return config


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_changes_what_a_run_is_made_of(field):
  section = field.partition(".")[0]
  where = WHERE.get(field, WHERE.get(section, {}))
  if field == "bias.kind":
    where = {}
  config = after(default_config(where.get("task", "addition")), where)
  value = config
  for name in field.split("."):
    value = value[name]
  changed = after(config, {field: other(field, value)})
  assert parts(changed) != parts(config)
  assert parts(config) == parts(copy.deepcopy(config))


# Where a field with a condition changes nothing, and where it does. The second
# stage of ABC has no positions, no encoder, and a bias from a file.
NOTHING = {
  "prune.margin_share": {"prune.enabled": False},
  "model.num_encoder_layers": {"model.kind": "decoder_only"},
  "model.norm_kind": {"model.norm": "none"},
  "positions.source_anchor": {"model.kind": "decoder_only"},
  "positions.cyclic_period": {"positions.kind": "alibi"},
  "calibration.min_share": {"calibration.quantity": "scores"},
  "train.restart_below": {"retrain.train.restarts": 0},
  **dict.fromkeys(
    ("train.adam_b1", "train.adam_b2", "train.adam_eps"),
    {"train.optimizer": "lion"},
  ),
}
SOMETHING = {
  "train.adam_learning_rate": {"train.optimizer": "muon"},
  "data.fixed_width": {"data.width": "fixed"},
  "data.numbers": {"data.width": "fixed"},
  "data.short_longest": {"data.width": "fixed"},
  "data.short_share": {"data.width": "fixed", "data.short_longest": 3},
  "eval.scratchpad": {"task": "multiply_long"},
  "mixing.kind": HINTED,
  "mixing.weights": HINTED | {"mixing.kind": "weighted"},
  "attention.alpha": {"attention.normalizer": "entmax"},
  "positions.table": {"positions.kind": "learned"},
  "positions.random_start": {"positions.kind": "abacus"},
  "temperature": {"temperature.kind": "log_items"},
  "initial": {"initial.kind": "construction"},
  "bias": {"bias.kind": "window"},
  "bias.file": {"bias.kind": "file"},
  "finetune": {"finetune.rounds": 1},
  "calibration.scaled": {"calibration.quantity": "scores"},
}


@pytest.mark.parametrize(
  "name", [name for name, field in fields.FIELDS.items() if field.when]
)
def test_field_that_changes_nothing_is_refused(name):
  section = name.partition(".")[0]
  config = default_config()
  in_any_bias = {f"bias.{x}" for x in ("scale", "learned_scale", "closed")}
  if name not in in_any_bias | {"bias.allow_leak"}:  # the second stage has one
    with refuses(f"{name}=", "changes nothing here"):
      fields.check_has_effect(after(config, NOTHING.get(name, {})), name)
  changes = SOMETHING.get(name, SOMETHING.get(section, {}))
  fields.check_has_effect(after(config, changes), name)


def test_the_rows_of_a_table_that_a_cyclic_index_does_not_read_are_refused():
  config = after(
    default_config(),
    {"positions.kind": "learned", "positions.cyclic_period": 3},
  )
  with refuses("positions.table=", "positions.cyclic_period=0"):
    fields.check_has_effect(config, "positions.table")


def test_a_field_without_a_value_is_refused():
  config = default_config()
  config.train.steps = None  # ConfigDict takes it for every type
  with refuses("train.steps=None", "must have a value"):
    fields.check_fields(config)


def test_field_of_another_task_is_refused():
  with refuses("sort.alphabet", "it is for task=sort"):
    fields.check_has_effect(default_config(), "sort.alphabet")
  fields.check_has_effect(default_config("sort"), "sort.alphabet")


def test_field_of_a_hint_that_is_not_trained_is_refused():
  config = after(default_config("sort"), {"hints": ("successor",)})
  fields.check_has_effect(config, "sort.asks_single")
  with refuses("sort.count_gap", "it is for hints with 'count'"):
    fields.check_has_effect(config, "sort.count_gap")


def test_an_unknown_task_is_refused_by_name():
  config = after(default_config(), {"task": "none", "bias.kind": "window"})
  with refuses("task='none'", "choose one of"):
    fields.check_has_effect(config, "bias.sides")


def test_every_field_of_the_second_stage_reaches_it():
  config = default_config()
  for path in leaves(config.retrain):
    if len(path) == 1:
      continue
    section, name = path
    value = other(".".join(path), config[section][name])
    changed = after(config, {f"retrain.{section}.{name}": value})
    later = fields.retrain_config(changed, (3,), "bias.npz")
    assert later[section][name] == value != config[section][name], path
    assert changed[section][name] == config[section][name]
    assert (later.bias.kind, later.bias.file) == ("file", "bias.npz")
    assert later.seeds == (3,) and later.method == "abc"
  assert set(fields.RETRAIN_SECTIONS) <= set(config.retrain)
  no_steps = after(config, {"retrain.train.steps": 0})
  with refuses("train.steps=0"):
    build.build(fields.retrain_config(no_steps, (0,), ""))
