"""What a model must be for a certificate: the lemma's conditions."""

import numpy as np

from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.attention.lines import WHOLE
from lengthgen_jax.errors import UsageError, check


def check_local(experiment, scaffold) -> None:
  """UsageError, one line that says what stands in the way of a certificate and
  what would remove it."""
  task, config = experiment.task, experiment.model.config
  check(
    task.transducer or task.axes > 1,
    f"certify: {task.name} is no transducer, its outputs depend on more than"
    " what comes before them; certified are tasks that state themselves as one",
  )
  sites = ["cross"] * ("cross" in experiment.model.sites) + ["self"]
  sites += ["encoder"] * bool(config.num_encoder_layers)
  for site in sites:
    check(
      site in scaffold,
      f"certify: {site}-attention has no lines, every key is open; train with"
      " a scaffold (--mode=abc, or bias.kind=window)"
      + (" and bias.windowed_encoder" if site == "encoder" else ""),
    )
    lines = scaffold[site]
    check(
      lines.lined,
      f"certify: {site}-attention has a dense bias, which ends somewhere;"
      " calibrate lines instead",
    )
    for layer, head in np.argwhere(np.asarray(lines.transparent)):
      raise UsageError(
        f"certify: {site}-attention, layer {layer}, head {head} is transparent,"
        " it sees everything; calibrate with calibration.empty_heads=closed"
      )
  reasons = (
    (config.temperature.kind != "none", "temperature.kind", "none"),
    (not config.positions.placeless, "positions.kind", "none"),
    (experiment.bias.closed != CLOSED, "bias.closed", "-1e9"),
    (experiment.bias.allow_leak, "bias.allow_leak", "False"),
  )
  for wrong, field, wanted in reasons:
    check(
      not wrong,
      f"certify: with this run's {field} a row depends on how long the input"
      f" is, or on what comes later; train with {field}={wanted}"
      + (" or a cyclic index" if field.startswith("pos") else ""),
    )
  check(
    task.axes == 1 or config.positions.kind == "none",
    "certify: running sums with a cyclic index are not covered by the proof;"
    " train with positions.kind=none",
  )
  check(
    experiment.kind == "encoder_decoder" or 2 not in task.strides,
    "certify: a decoder-only model reads aligned operands two tokens a digit,"
    " which the proof does not cover; choose arithmetic.aligned=False",
  )
  for site, lines in scaffold.items() if task.axes == 1 else ():
    _check_pace(task, site, lines)


def _check_pace(task, site: str, lines) -> None:
  """UsageError unless lines stay or move as fast as the digits."""
  # Tokens that a row advances in each segment, 0: one of fixed size.
  paces = dict(enumerate(task.strides)) if site != "encoder" else {}
  whole = max(1, *task.strides) if site == "cross" else 1
  valid = np.asarray(lines.valid)
  for segment, step in zip(
    np.asarray(lines.segment)[valid],
    np.abs(lines.matrix).max((-2, -1), initial=0)[valid],
    strict=True,
  ):
    pace = whole if segment == WHOLE else paces.get(int(segment), 1)
    check(
      step in (0, pace or 1),
      f"certify: a line of {site}-attention moves {step} tokens a row, the"
      f" digits {pace or 1}; calibrate with other calibration.directions",
    )
