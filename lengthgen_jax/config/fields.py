"""The defaults of a config, its second stage, and checks of its fields.

lengthgen_jax/sections.py has all fields; the section of a task (arithmetic,
sort, increment ...) has those of the task's dataclass. Presets (configs/) start
from `default_config`. Whether fields fit each other is checked in build.py.
"""

import copy
import dataclasses
import math
import operator
import pathlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from ml_collections import ConfigDict

from lengthgen_jax.attention.biases import BIASES
from lengthgen_jax.attention.normalizers import NORMALIZERS
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.attention.temperature import TEMPERATURES
from lengthgen_jax.errors import check, check_choice
from lengthgen_jax.sections import Config, Sizes, check_value
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
  "train.restarts": 1,
}
# The fields of these sections that calibration decides.
CALIBRATED = ("bias.kind", "bias.file")
# Fields, or all others of a section, that change nothing where another field
# has this value.
NOTHING_WITH = {
  "mixing": ("hints", ()),
  "temperature": ("temperature.kind", "none"),
  "initial": ("initial.kind", "random"),
  "bias": ("bias.kind", "none"),
  "finetune": ("finetune.rounds", 0),
  "prune": ("prune.enabled", False),
  "data.short_share": ("data.short_longest", 0),
  "model.norm_kind": ("model.norm", "none"),
  "train.restart_below": ("train.restarts", 0),
}
# Fields that change nothing unless another field has this value.
ONLY_WITH = {
  "data.numbers": ("data.width", "fixed"),
  "data.fixed_width": ("data.width", "fixed"),
  "mixing.weights": ("mixing.kind", "weighted"),
  "model.num_encoder_layers": ("model.kind", "encoder_decoder"),
  "positions.source_anchor": ("model.kind", "encoder_decoder"),
  "bias.file": ("bias.kind", "file"),
  "bias.window": ("bias.kind", "window"),
  "bias.sides": ("bias.kind", "window"),
  "bias.windowed_encoder": ("bias.kind", "window"),
  "calibration.scaled": ("calibration.quantity", "scores"),
  "calibration.min_share": ("calibration.quantity", "weights"),
  "eval.scratchpad": ("task", "multiply_long"),
}
# Fields that change nothing unless the registered thing that another field
# names has this attribute.
ONLY_IF = {
  "positions.cyclic_period": ("positions.kind", "by_index"),
  "positions.table": ("positions.kind", "limited"),
  "positions.random_start": ("positions.kind", "random_start"),
  "attention.alpha": ("attention.normalizer", "has_alpha"),
  "train.adam_learning_rate": ("train.optimizer", "has_separate_adam_rate"),
  "train.adam_b1": ("train.optimizer", "uses_adam_fields"),
  "train.adam_b2": ("train.optimizer", "uses_adam_fields"),
  "train.adam_eps": ("train.optimizer", "uses_adam_fields"),
}


def default_config(task: str = "addition") -> ConfigDict:
  """Returns the default config of a task, that of a small vanilla model.

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
      f"preset {preset!r}: after {name!r}, name {one_method}any of {options}"
    )
  method = next(iter(chosen or methods), "")
  return name, method, [other for other in others if other in options]


def leaves(
  config: ConfigDict | dict, path: str = ""
) -> Iterator[tuple[str, Any]]:
  """Yields (name, value) of every field, like ("train.steps", 1000)."""
  for name, value in config.items():
    if hasattr(value, "items"):
      yield from leaves(value, f"{path}{name}.")
    else:
      yield f"{path}{name}", value


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
  config.update(method="abc", seeds=tuple(seeds))
  if config.mesh and len(seeds) % config.mesh[0]:
    config.mesh = ()  # it was for more seeds
  return config


def check_fields(config: ConfigDict) -> None:
  """Checks every field by itself: that it is there, has a value, finite where
  it is a float, and a valid one."""
  for name, value in leaves(config):
    check(value is not None, f"{name}=None: must have a value")
    for x in value if isinstance(value, tuple) else (value,):
      is_finite = not isinstance(x, float) or math.isfinite(x)
      check(is_finite, f"{name}={value}: must be finite")
  Config.of(config)
  for name, registry in REGISTRIES.items():
    check_choice(name, operator.attrgetter(name)(config), registry)


def check_has_effect(config: ConfigDict, name: str) -> None:
  """Checks that a field which was set, like "data.fixed_width", has an effect.

  Many fields have one only if another field has a certain value; the UsageError
  names it. An effect in one stage of --mode=abc is enough, whatever the mode
  is, which is not known here.
  """
  check_value("mesh", config.mesh, Sizes)  # retrain_config divides by it
  section, _, last = name.partition(".")
  tasks = [task for task in TASKS if TASKS[task].section == section]
  nothing = f"{name}={operator.attrgetter(name)(config)!r} changes nothing here"
  check(
    not tasks or config.task in tasks,
    f"{nothing}: it is for task={' or '.join(tasks)}",
  )
  if config.task in tasks:
    hint = TASKS[config.task].hint_of_field.get(last)
    check(
      hint is None or hint in config.hints,
      f"{nothing}: it is for hints with {hint!r}",
    )
  stages = [] if name.startswith("retrain.") else [config]
  if name not in CALIBRATED:
    stages.append(retrain_config(config, config.seeds, "bias.npz"))
  needs = [_need(stage, name.removeprefix("retrain.")) for stage in stages]
  check(not all(needs), f"{nothing}: it is for {needs[0]}")


def _need(config: ConfigDict, name: str) -> str:
  """Returns what a field lacks to change anything, in words; "" for nothing."""
  get = lambda field: operator.attrgetter(field)(config)
  if name in ONLY_WITH:
    other, value = ONLY_WITH[name]
    return "" if get(other) == value else f"{other}={value!r}"
  if name in ONLY_IF:
    other, attribute = ONLY_IF[name]
    things = REGISTRIES[other]
    has = [key for key in things if getattr(things[key], attribute)]
    # An unknown name is refused where the experiment is built.
    is_lacking = get(other) in set(things) - set(has)
    return f"{other}={' or '.join(has)}" if is_lacking else ""
  other, off = NOTHING_WITH.get(name) or NOTHING_WITH.get(
    name.partition(".")[0], (name, None)
  )
  is_off = other != name and get(other) == off
  return f"{other} other than {off!r}" if is_off else ""
