"""The defaults of a config, its second stage, and checks of its fields.

lengthgen_jax/sections.py has all fields; the section of a task (arithmetic,
sort, increment ...) has those of the task's dataclass. Presets (configs/) start
from `default_config`. Whether fields fit each other is checked in build.py.
"""

import copy
import dataclasses
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from lengthgen_jax.attention.biases import BIASES
from lengthgen_jax.attention.normalizers import NORMALIZERS
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.attention.temperature import TEMPERATURES
from lengthgen_jax.errors import check, check_choice
from lengthgen_jax.sections import Config
from lengthgen_jax.tasks import HINTS, TASKS, task_fields
from lengthgen_jax.training.optimizer import OPTIMIZERS

# The registry of each field whose value is a registered name.
REGISTRIES = {
  "task": TASKS,
  "positions.kind": POSITIONS,
  "temperature.kind": TEMPERATURES,
  "attention.normalizer": NORMALIZERS,
  "bias.kind": BIASES,
  "train.optimizer": OPTIMIZERS,
}
# The sections that ABC's second stage may change. `config.retrain` has, by
# section, only those fields that it changes.
RETRAIN_SECTIONS = (
  "data",
  "model",
  "positions",
  "temperature",
  "attention",
  "bias",
  "train",
)
RETRAIN = {
  "model.num_encoder_layers": 0,
  "model.dropout_rate": 0.1,
  "positions.kind": "none",
  "train.steps": 800,
  "train.learning_rate": 3e-3,
  "train.warmup_steps": 50,
  "train.target_exact_match": 2.0,
}
# The fields of these sections that calibration decides.
CALIBRATED = ("bias.kind", "bias.file")
# What a field, and any field of a section, needs to change anything: that
# another field has a value (=), has another one (!=), has it among its values
# (with), or names what has an attribute (has).
NEEDS = {
  "mixing": "hints != ()",
  "temperature": "temperature.kind != none",
  "initial": "initial.kind = construction",
  "bias": "bias.kind != none",
  "finetune": "finetune.rounds != 0",
  "prune": "prune.enabled = True",
  "data.numbers": "data.width = fixed",
  "data.fixed_width": "data.width = fixed",
  "data.short_share": "data.short_longest != 0",
  "mixing.weights": "mixing.kind = weighted",
  "model.norm_kind": "model.norm != none",
  "model.num_encoder_layers": "model.kind = encoder_decoder",
  "positions.source_anchor": "model.kind = encoder_decoder",
  "positions.cyclic_period": "positions.kind has by_index",
  "positions.table": "positions.kind has limited",
  "positions.max_distance": "positions.kind = t5",
  "positions.random_start": "positions.kind has random_start",
  "attention.alpha": "attention.normalizer has has_alpha",
  "bias.file": "bias.kind = file",
  # A user's bias may read these two.
  "bias.window": "bias.kind != file",
  "bias.input_window": "bias.kind != file",
  "train.adam_learning_rate": "train.optimizer has has_separate_adam_rate",
  "train.adam_b1": "train.optimizer has uses_adam_fields",
  "train.adam_b2": "train.optimizer has uses_adam_fields",
  "train.adam_eps": "train.optimizer has uses_adam_fields",
  "eval.scratchpad": "task has has_scratchpad",
  "eval.multipliers": "task = multiply_long",
  "sort.count_gap": "hints with count",
  "sort.count_ties": "hints with count",
  "sort.asks_single": "hints with successor",
}


def default_config(
  task: str = "addition", changes: Mapping[str, Any] | None = None
) -> ConfigDict:
  """Returns the default config of a task, that of a small vanilla model, with
  `changes` of fields by their full names.

  It has the sections of all tasks, so that its field `task` can be changed; but
  then eval.test_sets, the first test set of the task that is given here, may
  have to be changed too. `check_fields` refuses an unknown task.
  """
  hint_classes = (hint for hints in HINTS.values() for hint in hints.values())
  sections = {
    task_class.section: task_fields(task_class)
    for task_class in (*TASKS.values(), *hint_classes)
  }
  defaults = dataclasses.asdict(Config())
  taken = ", ".join(sorted(set(defaults) & set(sections)))
  check(
    not taken,
    f"register: every config has its own {taken}; call a task's section"
    " otherwise",
  )
  config = ConfigDict(defaults | sections)
  config.task = task
  if task in TASKS:
    config.eval.test_sets = tuple(TASKS[task].test_sets)[:1]
  config.retrain.update({section: {} for section in RETRAIN_SECTIONS})
  config.retrain.update_from_flattened_dict(RETRAIN)
  config.update_from_flattened_dict(changes or {})
  return config


def parse_preset(
  preset: str,
  first: Collection[str],
  methods: Collection[str],
  options: Collection[str],
) -> tuple[str, str, list[str]]:
  """Splits a preset FIRST[,METHOD][,OPTION...] into the first name, the method
  and the options; ValueError names a wrong one.

  The other arguments are the valid names; the first of `methods` is the
  default, and without `methods` the method is "".
  """
  name, *others = preset.split(",")
  if name not in first:
    raise ValueError(f"preset {preset!r}: {name!r} is none of {(*first,)}")
  chosen = [other for other in others if other in methods]
  unknown = set(others) - {*methods, *options}
  if len(chosen) > 1 or unknown:
    one_method = f"at most one of {(*methods,)} and " if methods else ""
    raise ValueError(
      f"preset {preset!r}: after {name!r}, name {one_method}any of"
      f" {(*options,)}"
    )
  method = next(iter(chosen or methods), "")
  return name, method, [option for option in options if option in others]


def retrain_config(
  config: ConfigDict, seeds: Sequence[int], file: str | pathlib.Path | None
) -> ConfigDict:
  """Returns the config of ABC's second stage: that of the first with the
  changes in `config.retrain`.

  `seeds` are those of the calibrated bias in `file`, which is not read here, or
  all of the run as long as there is no bias (None).
  """
  config = copy.deepcopy(config)
  for section in RETRAIN_SECTIONS:
    config[section].update(config.retrain[section])
  config.bias.update(kind="file" if file else "none", file=str(file or ""))
  if len(seeds) < len(config.seeds):
    config.mesh = ()  # it was for more seeds
  config.update(method="abc", seeds=tuple(seeds))
  return config


def check_fields(config: ConfigDict) -> None:
  """Checks every field by itself: that it has a value, and a valid one."""
  Config.of(config)
  for name, registry in REGISTRIES.items():
    check_choice(name, config[name], registry)


def check_has_effect(config: ConfigDict, name: str) -> None:
  """Checks that a field which was set, like "data.fixed_width", has an effect.

  Many fields have one only if another field has a certain value; the UsageError
  names it. An effect in one stage of --mode=abc is enough, whatever the mode
  is, which is not known here.
  """
  section = name.partition(".")[0]
  tasks = [task for task in TASKS if TASKS[task].section == section]
  nothing = f"{name}={config[name]!r} changes nothing here"
  check(
    not tasks or config.task in tasks,
    f"{nothing}: it is for task={' or '.join(tasks)}",
  )
  stages = [] if name.startswith("retrain.") else [config]
  if name not in CALIBRATED:
    stages.append(retrain_config(config, config.seeds, "bias.npz"))
  field = name.removeprefix("retrain.")
  needs = [_unmet_need(stage, field) for stage in stages]
  check(not all(needs), f"{nothing}: it is for {needs[0]}")


def _unmet_need(config: ConfigDict, name: str) -> str:
  """Returns what a field lacks to change anything, in words; "" for nothing."""
  section = name.partition(".")[0]
  needs = (NEEDS[key] for key in (section, name) if key in NEEDS)
  return next(filter(None, (_unmet(config, name, x) for x in needs)), "")


def _unmet(config: ConfigDict, name: str, need: str) -> str:
  """Returns a need of a field if it is not met, else ""."""
  field, relation, wanted = need.split()
  value = config[field]
  if relation == "with":
    return "" if wanted in value else need
  if relation != "has":
    # A field may meet its own need, like finetune.rounds.
    holds = field == name or (str(value) == wanted) == (relation == "=")
    return "" if holds else need
  things = REGISTRIES[field]
  having = [key for key in things if getattr(things[key], wanted)]
  # An unknown name is refused where the experiment is built.
  holds = value in having or value not in things
  return "" if holds else f"{field} = {' or '.join(having)}"
