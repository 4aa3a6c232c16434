"""From an interpolated model to a bias file: collect attention, keep lines."""

import json
import pathlib
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import lengthgen_jax
from lengthgen_jax import bias_file, rng
from lengthgen_jax.attention import calibration, lines, relative
from lengthgen_jax.coordinates import target
from lengthgen_jax.errors import UsageError, check, check_choice
from lengthgen_jax.tasks.batch import Batch
from lengthgen_jax.tasks.data import sample_test

SITES = ("self", "cross")
QUANTITIES = ("weights", "scores")
LINES = ("operand", "absolute")
ROWS = ("length", "all")


def check_config(config) -> None:
  """UsageError for a calibration field that cannot be."""
  section = config.calibration
  check_choice("calibration.quantity", section.quantity, QUANTITIES)
  check_choice("calibration.lines", section.lines, LINES)
  check_choice("calibration.rows", section.rows, ROWS)
  for name, choices in calibration.CHOICES.items():
    check_choice(f"calibration.{name}", section[name], choices)
  longest = config.data.train_length
  for length in section.lengths:
    check(
      0 < length <= longest,
      f"calibration.lengths: {length} exceeds data.train_length={longest}",
    )


def conditions(config, experiment) -> list[tuple[int, int | None]]:
  """(width, length in units) to collect at; length None draws from training."""
  lengths = [experiment.task.units(n) for n in config.calibration.lengths]
  return [(w, n) for w in experiment.widths for n in lengths or [None]]


def collect(config, experiment, own, params, width: int, length, seed):
  """Mean attention of solved samples under one condition.

  Args:
    config: the whole config.
    experiment: of the interpolated model.
    own: LineBias of this seed's model (empty for vanilla).
    params: its parameters.
    width: W.
    length: units of every operand; None draws training examples.
    seed: of the samples.

  Returns:
    dict with "self" and "cross" mean and "self_std", "cross_std" arrays
    [N, H, T, S], and "solved", the share of samples that were solved.
  """
  section = config.calibration
  key = jax.random.fold_in(rng.stream(seed, "calibration"), width)
  count = section.samples
  if length is None:
    batch = experiment.data.sample(key, count, width)
  else:
    batch = sample_test(
      experiment.task,
      "equal",
      jax.random.fold_in(key, length),
      count,
      length,
      width,
    )
  size = min(count, 250)
  sums, solved = None, 0.0
  for start in range(0, count, size):
    part = (
      batch.source[start : start + size],
      batch.target[start : start + size],
      batch.weight[start : start + size],
    )
    found = _sums(experiment, params, own, part, width, section.quantity)
    sums = found if sums is None else jax.tree.map(jnp.add, sums, found)
  solved = float(sums.pop("solved"))
  scale = experiment.model.config.head_dim**0.5
  scale = 1.0 if section.scaled or section.quantity == "weights" else scale
  result = {"solved": solved / count}
  for site in SITES:
    mean = sums[site] / max(solved, 1.0)
    variance = sums[site + "_square"] / max(solved, 1.0) - mean**2
    result[site] = scale * mean
    result[site + "_std"] = scale * jnp.sqrt(jnp.maximum(variance, 0.0))
  return result


@partial(jax.jit, static_argnames=("experiment", "width", "quantity"))
def _sums(experiment, params, own, part, width, quantity):
  """Sums over solved samples of attention and its square, per site."""
  source, wanted, weight = part
  batch = Batch(
    source, wanted, weight, None, experiment.task.coordinates(width)
  )
  bias = experiment.full_biases(own, width)
  logits, acts = experiment.model.apply({"params": params}, batch, bias)
  exact = jnp.all((logits.argmax(-1) == wanted) | (weight == 0), axis=1)
  sums = {"solved": exact.sum().astype(jnp.float32)}
  for site in SITES:
    values = jnp.stack([b[site][quantity] for b in acts["decoder"]["blocks"]])
    pick = exact.astype(jnp.float32)
    sums[site] = jnp.einsum("nbhts,b->nhts", values, pick)
    sums[site + "_square"] = jnp.einsum("nbhts,b->nhts", values**2, pick)
  return sums


def calibrate_seed(config, experiment, collected, site: str):
  """Verdicts on one site's candidates, from `collect` per condition."""
  section, task = config.calibration, experiment.task
  places = conditions(config, experiment)
  causal = site == "self"
  arrays = []
  for (width, length), found in zip(places, collected, strict=True):
    rows = jnp.arange(found[site].shape[2])
    keys = target(rows) if causal else task.coordinates(width)
    limit = length or task.units(config.data.train_length)
    used = rows < limit if section.rows == "length" else rows >= 0
    arrays.append(calibration.Condition(found[site], used, keys))
  largest = max(arrays, key=lambda c: c.attention.shape[3])
  directions = section.self_directions if causal else section.directions
  tested = calibration.candidates(
    jax.tree.map(np.asarray, largest.keys),
    largest.attention.shape[2],
    directions,
    absolute=section.lines == "absolute" and not causal,
    both_anchors=not causal,
  )
  rule = calibration.Rule(
    line=section.line,
    rule=section.rule,
    threshold=section.kappa_self if causal else section.kappa,
    statistics=section.statistics,
    maximum=section.maximum,
    min_cells=section.min_cells,
  )
  run = jax.jit(calibration.calibrate, static_argnames=("causal", "rule"))
  return tested, run(arrays, tested, causal=causal, rule=rule)


def run(config, experiment, bias, seed_states, folder, report) -> dict:
  """Calibrates every seed and writes `folder`/bias.npz.

  Args:
    config: config of the interpolated model.
    experiment: of the interpolated model.
    bias: its own LineBias, the same for all seeds (empty for vanilla).
    seed_states: from `restore.seed_states`.
    folder: where bias.npz, relative.npz and attention.npz go.
    report: function of one line of text.

  Returns:
    LineBias with axis R.

  Raises:
    UsageError: no line passes in any head of any seed.
  """
  check_config(config)
  clock = time.perf_counter()
  verdicts = {site: [] for site in SITES}
  tested, attention = {}, {}
  own = lines.of_seed(bias, 0)
  for seed_state in seed_states:
    collected = [
      collect(
        config,
        experiment,
        own,
        seed_state["params"],
        width,
        length,
        seed_state["seed"],
      )
      for width, length in conditions(config, experiment)
    ]
    shares = [100 * found["solved"] for found in collected]
    report(
      f"seed {seed_state['seed']}: collected {config.calibration.samples}"
      f" samples at each of {len(collected)} conditions, solved"
      f" {min(shares):.1f} to {max(shares):.1f} %"
    )
    for site in SITES:
      tested[site], verdict = calibrate_seed(
        config, experiment, collected, site
      )
      verdicts[site].append(jax.device_get(verdict))
      name = f"{site}_{seed_state['seed']}"
      attention[name] = np.asarray(collected[-1][site])
      attention[name + "_std"] = np.asarray(collected[-1][site + "_std"])
  section = config.calibration
  found = {
    site: calibration.compact(
      tested[site], verdicts[site], section.layers, section.empty_heads
    )
    for site in SITES
  }
  if not any(site.valid.any() for site in found.values()):
    best = max(v.score.max() for v in verdicts["cross"])
    raise UsageError(
      f"calibration: no line passes calibration.kappa={section.kappa} in any"
      f" head (the best cross score is {best:.2f}); lower it, or train longer"
    )
  names = {"self": ("target",), "cross": experiment.task.segment_names}
  describe(tested, verdicts, seed_states, names, section, report)
  folder.mkdir(parents=True, exist_ok=True)
  relative.save(folder / "relative.npz", found)
  np.savez_compressed(folder / "attention.npz", **attention)
  # Last, and in one go: where there is a bias, calibration is done.
  save(config, experiment, found, seed_states, folder)
  seconds = time.perf_counter() - clock
  report(f"calibrated {len(seed_states)} seeds in {seconds:.0f} s")
  return found


def describe(tested, verdicts, seed_states, names: dict, section, report):
  """Reports every head: its lines with z-scores, or its best candidate.

  Args:
    tested: Candidates of every site.
    verdicts: a Verdict per seed, for every site.
    seed_states: from `restore.seed_states`.
    names: segment names of every site.
    section: config.calibration.
    report: function of one line of text.
  """
  unit = {"zscore": "z", "mass": "times random"}[section.rule]
  for r, seed_state in enumerate(seed_states):
    for site, lines_C in tested.items():
      verdict = verdicts[site][r]
      for n, h in np.ndindex(verdict.keep.shape[:2]):
        score, strength = verdict.score[n, h], verdict.strength[n, h]
        kept = np.flatnonzero(verdict.keep[n, h])
        kept = kept[np.argsort(-strength[kept])]
        phrases = [
          f"{lines.phrase(*(x[c] for x in lines_C), names[site])}"
          f" ({strength[c]:.2f}, {unit} {score[c]:.1f})"
          for c in kept
        ]
        report(
          f"seed {seed_state['seed']} {site} layer {n} head {h}: "
          + (
            "; ".join(phrases)
            or f"{section.empty_heads} (best {unit} {score.max():.1f})"
          )
        )


def save(config, experiment, bias, seed_states, folder: pathlib.Path) -> None:
  bias_file.save(
    folder / "bias.npz",
    bias,
    {
      "version": lengthgen_jax.__version__,
      "seeds": [s["seed"] for s in seed_states],
      "segments": list(experiment.task.segment_names),
      "conditions": conditions(config, experiment),
      "calibration": json.loads(config.calibration.to_json_best_effort()),
    },
  )
