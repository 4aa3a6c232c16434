"""Every probe there is: one function of what was seen, and one line here."""

from collections.abc import Callable
from typing import NamedTuple

from lengthgen_jax.errors import check
from lengthgen_jax.probes import attention_probes, interventions, sorting_probes


class Need(NamedTuple):
  """What a probe or a figure is for: in words, and whether a Model is that."""

  words: str
  holds: Callable


def _has_digits(model) -> bool:
  """Whether the output has a digit for each place of the operands."""
  task = model.experiment.task
  long = task.output_size(8) >= 8
  return task.of_digits and task.axes == 1 and hasattr(task, "holds") and long


def _has_lines(model) -> bool:
  return any(own.lined for own in model.scaffold.values())


ALL = Need("every model", lambda model: True)
SORTING = Need(
  "decoder-only models that sort",
  lambda model: (
    model.experiment.kind == "decoder_only"
    and model.experiment.task.name == "sort"
  ),
)
DIGITS = Need("tasks that say a digit for every place", _has_digits)
LINES = Need("models whose attention bias is lines", _has_lines)


class Probe(NamedTuple):
  """A probe.

  Attributes:
    of: a function of a Seen that yields Means.
    need: which models it is for.
    title: what its value is, for figures.
    by_length: whether it is done at every length, not at one alone.
    watched: whether it is done while a model trains, if that is asked for.
  """

  of: Callable
  need: Need
  title: str
  by_length: bool = False
  watched: bool = False


# By the metric of their rows.
PROBES = {
  "minimum": Probe(
    sorting_probes.minimum, SORTING, "⊥ shows the minimum", True, True
  ),
  "identity_successor": Probe(
    sorting_probes.identity_successor,
    SORTING,
    "outputs show identity + successor",
    True,
    True,
  ),
  "copy": Probe(
    sorting_probes.copy, SORTING, "tokens show themselves", True, True
  ),
  "identity_removed": Probe(
    sorting_probes.identity_removed,
    SORTING,
    "the successor alone is left",
    True,
    True,
  ),
  "identity_lowered": Probe(
    sorting_probes.identity_lowered,
    SORTING,
    "last MLP lowers the identity",
    True,
    True,
  ),
  "copies_given": Probe(
    attention_probes.copies_given, SORTING, "attention on copies given", True
  ),
  "copies_said": Probe(
    attention_probes.copies_said, SORTING, "attention on copies said", True
  ),
  "attention_own": Probe(
    attention_probes.own_digits, DIGITS, "attention on own digits", True
  ),
  "attention_carry": Probe(
    attention_probes.carry_source,
    DIGITS,
    "attention on the carry's source",
    True,
  ),
  "attention_entropy": Probe(
    attention_probes.entropy, DIGITS, "entropy of attention (nats)", True
  ),
  "strongest_line": Probe(
    attention_probes.strongest_line,
    DIGITS,
    "z-score of the strongest line",
    False,
    True,
  ),
  "intact": Probe(interventions.intact, ALL, "EM, nothing changed"),
  "without_head": Probe(interventions.without_head, ALL, "EM without a head"),
  "without_line": Probe(interventions.without_line, LINES, "EM without a line"),
  "enough_lines": Probe(
    interventions.enough_lines, LINES, "EM with few lines that are enough"
  ),
  "patched": Probe(
    interventions.patched, ALL, "EM with one residual of another input"
  ),
}


def chosen(names, model, what: str, registry: dict) -> dict:
  """The entries of a registry that a field asks for, () for all that apply.

  Args:
    names: asked for.
    model: what they are for.
    what: the field.
    registry: of entries with a `need`.

  Raises:
    UsageError: there is no such entry, or it is for other models.
  """
  fit = {n: own for n, own in registry.items() if own.need.holds(model)}
  choices = f"choose from {', '.join(fit)}"
  for name in names:
    check(name in registry, f"{what}={name!r}: {choices}")
    check(
      name in fit,
      f"{what}={name!r} is for {registry[name].need.words}, not this one:"
      f" {choices}",
    )
  return {name: fit[name] for name in names} if names else fit


def measured(probes: dict, passes) -> dict:
  """{name: {where: Mean}} of some probes over passes (Seen) of one length."""
  found = {name: {} for name in probes}
  for seen in passes:
    for name, probe in probes.items():
      for mean in probe.of(seen):
        if mean.count:
          old = found[name].get(mean.where)
          found[name][mean.where] = mean if old is None else old + mean
  return found
