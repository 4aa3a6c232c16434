"""Fields of the config that change nothing are refused."""

import copy
from typing import get_args, get_type_hints

import pytest
from command import refuses
from ml_collections import ConfigDict

from lengthgen_jax.config import build, default_config, fields
from lengthgen_jax.sections import Config

# Other values, where nothing near the default can be.
OTHER = {
  "data.width": "fixed",
  "data.buckets": (3, 6),
  "data.size": 1000,
  "data.short_longest": 3,
  "data.train_length": 5,
  "data.shortest": 2,
  "model.emb_dim": 32,
  "model.num_heads": 4,
  "positions.kind": "alibi",
  "attention.alpha": 1.25,
  "temperature.stretch": 2.0,
}


def other(field: str, value):
  """Another value that a field can have."""
  if field in OTHER:
    return OTHER[field]
  section, _, name = field.partition(".")
  hints = get_type_hints(type(getattr(Config(), section, Config())))
  choices = fields.REGISTRIES.get(field) or get_args(hints.get(name))
  for choice in choices if isinstance(value, str) else ():
    if choice != value:
      return choice
  if isinstance(value, bool):
    return not value
  return value + 1 if isinstance(value, int) else value / 2 + 0.01


def after(config: ConfigDict, changes: dict) -> ConfigDict:
  config = copy.deepcopy(config)
  with config.unlocked():
    config.update_from_flattened_dict(changes)
  return config


# Fields that change nothing in either stage of ABC with some values of other
# fields (of which the last is named), and do with others.
EFFECTS = {
  "data.fixed_width": ({}, {"data.width": "fixed"}),
  "model.norm_kind": ({"model.norm": "none"}, {}),
  "positions.table": ({}, {"positions.kind": "learned"}),
  "train.adam_eps": ({"train.optimizer": "lion"}, {}),
  "retrain.train.adam_b1": ({"retrain.train.optimizer": "lion"}, {}),
  "finetune.steps": ({}, {"finetune.rounds": 1}),
  "prune.margin_share": ({"prune.enabled": False}, {}),
  "sort.count_gap": (
    {"task": "sort", "hints": ("fill",)},
    {"task": "sort", "hints": ("count",)},
  ),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_a_field_that_changes_nothing_is_refused(name):
  nothing, something = EFFECTS[name]
  config = after(default_config(), {"retrain.train.adam_b1": 0.5})
  with refuses(f"{name}=", "changes nothing here: it is for"):
    fields.check_has_effect(after(config, nothing), name)
  fields.check_has_effect(after(config, something), name)


def test_an_effect_in_the_second_stage_is_enough():
  fields.check_has_effect(default_config(), "bias.allow_leak")


def test_a_field_without_a_value_is_refused():
  config = default_config()
  config.train.steps = None  # ConfigDict takes it for every type
  with refuses("train.steps=None", "must have a value"):
    fields.check_fields(config)


def test_every_field_of_the_second_stage_reaches_it():
  config, changes = default_config(), {}
  for section in fields.RETRAIN_SECTIONS:
    for name, value in config[section].items():
      field = f"{section}.{name}"
      if field not in fields.CALIBRATED:
        changes[field] = other(field, value)
        assert changes[field] != value, field
  changed = after(config, {f"retrain.{x}": y for x, y in changes.items()})
  later = fields.retrain_config(changed, (3,), "bias.npz")
  for field, value in changes.items():
    section, name = field.split(".")
    assert later[section][name] == value, field
    assert changed[section][name] == config[section][name], field
  assert (later.bias.kind, later.bias.file) == ("file", "bias.npz")
  assert later.seeds == (3,) and later.method == "abc"
  no_steps = after(config, {"retrain.train.steps": 0})
  with refuses("train.steps=0"):
    build.build(fields.retrain_config(no_steps, (0,), ""))
