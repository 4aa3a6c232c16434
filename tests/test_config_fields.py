"""Fields of the config that change nothing are refused."""

import pytest
from command import refuses

from lengthgen_jax.config import build, default_config, fields

# Fields that change nothing in either stage of ABC with some values of other
# fields (of which the last is named), and do with others.
EFFECTS = {
  "data.fixed_width": ({}, {"data.width": "fixed"}),
  "model.norm_kind": ({"model.norm": "none"}, {}),
  "train.adam_eps": ({"train.optimizer": "lion"}, {}),
  "retrain.train.adam_b1": (
    {"retrain.train.adam_b1": 0.5, "retrain.train.optimizer": "lion"},
    {"retrain.train.adam_b1": 0.5},
  ),
  "finetune.steps": ({}, {"finetune.rounds": 1}),
  "eval.scratchpad": ({}, {"task": "many_addends"}),
  "sort.count_gap": (
    {"task": "sort", "hints": ("fill",)},
    {"task": "sort", "hints": ("count",)},
  ),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_a_field_that_changes_nothing_is_refused(name):
  nothing, something = (default_config(changes=x) for x in EFFECTS[name])
  with refuses(f"{name}=", "changes nothing here: it is for"):
    fields.check_has_effect(nothing, name)
  fields.check_has_effect(something, name)


# A field of each section that the second stage may change.
SECOND = {
  "data.train_length": 5,
  "model.mlp_dim": 32,
  "positions.kind": "alibi",
  "temperature.stretch": 2.0,
  "attention.alpha": 1.25,
  "train.steps": 7,
  "bias.closed": -7.0,
}


def test_the_second_stage_has_what_it_changes():
  config = default_config()
  changes = {f"retrain.{x}": y for x, y in SECOND.items()}
  changed = default_config(changes=changes)
  assert {x.partition(".")[0] for x in SECOND} == {*fields.RETRAIN_SECTIONS}
  later = fields.retrain_config(changed, (3,), "bias.npz")
  for field, value in SECOND.items():
    section, name = field.split(".")
    assert later[section][name] == value != config[section][name], field
    assert changed[section][name] == config[section][name], field
  assert (later.bias.kind, later.bias.file) == ("file", "bias.npz")
  assert later.seeds == (3,) and later.method == "abc"
  no_steps = default_config(changes={"retrain.train.steps": 0})
  with refuses("train.steps=0"):
    build.build(fields.retrain_config(no_steps, (0,), ""))
