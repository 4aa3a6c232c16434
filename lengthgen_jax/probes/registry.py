"""The probes that a config can name, and how they are measured."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from lengthgen_jax.attention.lines import SiteLines
from lengthgen_jax.errors import check
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.probes import attention_probes, interventions, sorting_probes
from lengthgen_jax.probes.activations import Mean, Observation
from lengthgen_jax.registry import Registry, entry_check


class Requirement(NamedTuple):
  """Which models a probe or a figure is for."""

  text: str  # the models, in words
  holds: Callable[[Model], bool]


def _is_for_digits(model: Model) -> bool:
  task = model.experiment.task
  return task.of_digits and bool(task.states) and task.output_size(8) >= 8


ALL = Requirement("every model", lambda model: True)
SORTING = Requirement(
  "decoder-only models that sort",
  lambda model: (
    model.experiment.kind == "decoder_only"
    and model.experiment.task.name == "sort"
  ),
)
DIGITS = Requirement(
  "tasks whose transducer writes a digit for every place", _is_for_digits
)
LINES = Requirement(
  "models whose attention bias is lines",
  lambda model: any(isinstance(x, SiteLines) for x in model.scaffold.values()),
)


class Probe(NamedTuple):
  """An entry of PROBES, which probe.only can name."""

  measure: Callable[[Observation], Iterator[Mean]]
  requires: Requirement
  title: str  # what its value is, for figures and tables
  # measured at all of probe.lengths, and not at the training length alone
  by_length: bool = False
  # measured on the first batch of samples alone, because its means cannot be
  # added up over batches
  of_first_batch: bool = False


_rate = lambda measure, title: Probe(measure, SORTING, title, True)
# All probes, by the metric of their rows.
PROBES: Registry = Registry(
  "probe",
  {
    "minimum": _rate(sorting_probes.minimum, "⊥ shows the minimum"),
    "identity_successor": _rate(
      sorting_probes.identity_successor, "outputs show identity + successor"
    ),
    "copy": _rate(sorting_probes.copy, "tokens show themselves"),
    "identity_removed": _rate(
      sorting_probes.identity_removed, "the successor alone is left"
    ),
    "identity_lowered": _rate(
      sorting_probes.identity_lowered, "last MLP lowers the identity"
    ),
    "copies_given": Probe(
      attention_probes.prompt_copies, SORTING, "attention on copies given", True
    ),
    "copies_said": Probe(
      attention_probes.output_copies, SORTING, "attention on copies said", True
    ),
    "attention_own": Probe(
      attention_probes.same_place, DIGITS, "attention on own digits", True
    ),
    "attention_carry": Probe(
      attention_probes.carry, DIGITS, "attention on the carry's source", True
    ),
    "attention_entropy": Probe(
      attention_probes.entropy, DIGITS, "entropy of attention (nats)", True
    ),
    "intact": Probe(interventions.intact, ALL, "EM, nothing changed"),
    "without_head": Probe(interventions.without_head, ALL, "EM without a head"),
    "without_line": Probe(
      interventions.without_line, LINES, "EM without a line"
    ),
    "enough_lines": Probe(
      interventions.enough_lines,
      LINES,
      "EM with few lines that are enough",
      of_first_batch=True,
    ),
    "patched": Probe(
      interventions.patched, ALL, "EM with one residual of another input"
    ),
  },
  entry_check(Probe, "measure", "observation"),
)


def select(
  names: Iterable[str],
  model: Model,
  field: str,
  registry: dict[str, Any],
) -> dict[str, Any]:
  """Returns the probes or figures that a field of the config names, or all that
  are for the model; a name that is wrong, or for other models, is a UsageError.
  """
  applicable = {
    name: entry
    for name, entry in registry.items()
    if entry.requires.holds(model)
  }
  choices = f"choose from {', '.join(applicable)}"
  for name in names:
    check(name in registry, f"{field}={name!r}: {choices}")
    check(
      name in applicable,
      f"{field}={name!r} is for {registry[name].requires.text}, not this one:"
      f" {choices}",
    )
  return {name: applicable[name] for name in names} if names else applicable


def measure(
  probes: dict[str, Probe], observations: Iterable[Observation]
) -> dict[str, dict[tuple, Mean]]:
  """Returns what probes measure on batches of one length, added up: {name:
  {Mean.location: Mean}}, without means of no values."""
  means = {name: {} for name in probes}
  for index, observation in enumerate(observations):
    for name, probe in probes.items():
      if not (index and probe.of_first_batch):
        for mean in probe.measure(observation):
          if mean.count:
            before = means[name].get(mean.location)
            means[name][mean.location] = before + mean if before else mean
  return means
