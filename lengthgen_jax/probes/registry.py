"""All probes.

A probe is a function of a model on a batch (Seen), and an entry of PROBES.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from lengthgen_jax.errors import check
from lengthgen_jax.probes import attention_probes, interventions, sorting_probes
from lengthgen_jax.probes.activations import Mean, Seen
from lengthgen_jax.registry import Registry


class Need(NamedTuple):
  """A condition that says which models a probe or a figure is for.

  Attributes:
    words: the models, in words.
    holds: a function of a trained.Model, whether it is one of them.
  """

  words: str
  holds: Callable[[Any], bool]


def _has_digits(model) -> bool:
  """Returns whether the output has a digit for each place of the operands."""
  task = model.experiment.task
  is_long = task.output_size(8) >= 8
  return task.of_digits and bool(task.states) and is_long


def _has_lines(model) -> bool:
  """Returns whether the bias of any site is lines."""
  return any(site_bias.supports_sparse for site_bias in model.scaffold.values())


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
  """A probe that the config can name by the metric of its rows.

  Attributes:
    of: a function of a Seen that yields Means.
    need: which models it is for.
    title: what its value is, for figures.
    by_length: whether it runs at every length, rather than at one alone.
    watched: whether it runs while a model trains, if the config wants that.
  """

  of: Callable[[Seen], Iterator[Mean]]
  need: Need
  title: str
  by_length: bool = False
  watched: bool = False


# All probes, by the metric of their rows.
def check_probe(name: str, probe: Probe) -> None:
  """Raises UsageError if a thing is no probe."""
  check(isinstance(probe, Probe), f"register: probe {name!r} is no Probe")


PROBES = Registry(
  "probe",
  {
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
    "without_line": Probe(
      interventions.without_line, LINES, "EM without a line"
    ),
    "enough_lines": Probe(
      interventions.enough_lines, LINES, "EM with few lines that are enough"
    ),
    "patched": Probe(
      interventions.patched, ALL, "EM with one residual of another input"
    ),
  },
  check_probe,
)


def chosen(
  names: Iterable[str], model, field: str, registry: dict[str, Any]
) -> dict[str, Any]:
  """Returns the entries of a registry that a field of the config names.

  Args:
    names: the field's value; () for all entries that are for the model.
    model: a trained.Model.
    field: name of the field, for messages.
    registry: entries with a `need`, by name.

  Raises:
    UsageError: there is no such entry, or it is for other models.
  """
  applicable = {
    n: entry for n, entry in registry.items() if entry.need.holds(model)
  }
  choices = f"choose from {', '.join(applicable)}"
  for name in names:
    check(name in registry, f"{field}={name!r}: {choices}")
    check(
      name in applicable,
      f"{field}={name!r} is for {registry[name].need.words}, not this one:"
      f" {choices}",
    )
  return {name: applicable[name] for name in names} if names else applicable


def measured(
  probes: dict[str, Probe], passes: Iterable[Seen]
) -> dict[str, dict[tuple, Mean]]:
  """Returns what probes measure, with the means of all passes added up.

  Args:
    probes: by name, like PROBES.
    passes: batches of one length.

  Returns:
    {name: {where: Mean}}, without means of nothing.
  """
  means = {name: {} for name in probes}
  for seen in passes:
    for name, probe in probes.items():
      for mean in probe.of(seen):
        if mean.count:
          earlier = means[name].get(mean.where)
          means[name][mean.where] = mean if earlier is None else earlier + mean
  return means
