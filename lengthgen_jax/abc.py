"""ABC end to end: interpolate, calibrate, retrain, evaluate.

One workdir, three stages, each skipped when done and resumed when cut off:
W/interpolate (a vanilla model), W/calibrate (its attention as lines), W/retrain
(a fresh model with those lines as its bias).
"""

import copy
import pathlib

import numpy as np

from lengthgen_jax import (
  bias_file,
  calibrate,
  evaluate,
  records,
  restore,
  train,
)
from lengthgen_jax import experiment as experiments
from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.errors import UsageError, check, check_choice
from lengthgen_jax.interpret import plots

STAGES = ("interpolate", "calibrate", "retrain")
STARTS = ("fresh", "interpolated")
RETRAIN_SECTIONS = ("model", "positions", "train")


def retrain_config(config, seeds, file: pathlib.Path):
  """The config of the retraining stage, for the seeds that interpolated."""
  config = copy.deepcopy(config)
  config.unlock()
  for section in RETRAIN_SECTIONS:
    config[section].update(config.retrain[section])
  config.data.widths = config.retrain.widths
  config.bias.kind = "file"
  config.bias.file = str(file)
  config.method = "abc"
  config.seeds = tuple(seeds)
  config.lock()
  return config


def check_config(config) -> None:
  """UsageError for any mistake that a later stage would run into."""
  calibrate.check_config(config)
  check_choice("retrain.start", config.retrain.start, STARTS)
  later = retrain_config(config, config.seeds, pathlib.Path())
  later.bias.kind = "none"  # there is no file yet
  experiments.build(later)
  check(
    config.retrain.start == "fresh"
    or experiments.build(config).model == experiments.build(later).model,
    "retrain.start='interpolated' needs the same model and positions in"
    " retrain.* as in the first stage; make them equal, or choose 'fresh'",
  )
  parse_example(config, experiments.build(config).task)


def parse_example(config, task):
  """Operands of abc.example; UsageError if it is no expression."""
  try:
    return task.parse(config.abc.example or task.usage)
  except ValueError as error:
    raise UsageError(f"abc.example: {error}") from error


def run(config, workdir: pathlib.Path, report) -> None:
  """Runs the stages that are not done yet.

  Raises:
    UsageError: no seed interpolated, or no line passed.
    train.Interrupted: after SIGTERM, once the stage was saved.
  """
  experiment, lines = train.prepare(config)
  folder = workdir / "interpolate"
  train.run(config, experiment, lines, folder, report)
  seed_states = interpolated(config, experiment, folder, report)
  if not bias_path(workdir).exists():
    calibrate.run(
      config, experiment, lines, seed_states, workdir / "calibrate", report
    )
  new, experiment, lines = retrain_parts(config, workdir)
  initial = None
  if config.retrain.start == "interpolated":
    initial = [s["params"] for s in seed_states]
  train.run(new, experiment, lines, workdir / "retrain", report, initial)


def interpolated(config, experiment, folder, report) -> list[dict]:
  """The seeds whose best validation EM reaches abc.min_exact_match.

  Raises:
    UsageError: there is none.
  """
  lines = experiments.make_lines(config, experiment.task)
  state = restore.load_state(best(config), experiment, lines, folder, report)
  states = restore.seed_states(best(config), state)
  wanted = config.abc.min_exact_match
  good = [s for s in states if s["em"] >= wanted and not s["diverged"]]
  for s in states:
    if s not in good:
      report(
        f"seed {s['seed']} did not interpolate (EM {100 * s['em']:.1f} %,"
        f" abc.min_exact_match={wanted}); dropped"
      )
  top = max(s["em"] for s in states)
  check(
    good,
    f"no seed interpolated: the best validation EM is {100 * top:.1f} %, below"
    f" abc.min_exact_match={wanted}; train longer, or lower it with"
    f" --config.abc.min_exact_match={max(top - 0.005, 0.0):.3f}",
  )
  return good


def best(config):
  """The config reading the best parameters instead of the last."""
  config = copy.deepcopy(config)
  config.eval.checkpoint = "best"
  return config


def bias_path(workdir: pathlib.Path) -> pathlib.Path:
  return workdir / "calibrate" / "bias.npz"


def retrain_parts(config, workdir: pathlib.Path):
  """(config, experiment, LineBias) of the retrained model of a workdir.

  Raises:
    UsageError: calibration was not run yet.
  """
  file = bias_path(workdir)
  check(
    file.exists(),
    f"--workdir={workdir}: no {file.name} yet; run --mode=abc to the end",
  )
  _, meta = bias_file.load(file)
  new = retrain_config(config, meta["seeds"], file)
  return new, *train.prepare(new)


def training_times(workdir: pathlib.Path) -> str:
  """Seconds that both trainings took, all seeds together, and their ratio."""
  seconds = []
  for stage in ("interpolate", "retrain"):
    rows = records.read(workdir / stage / "metrics.jsonl")
    seconds.append(sum({r["step"]: r["seconds"] for r in rows}.values()))
  first, second = seconds
  return (
    f"training: interpolation {first:.0f} s, retraining {second:.0f} s"
    f" ({second / first:.2f} of it), compilation included"
  )


def evaluate_all(config, workdir: pathlib.Path, report) -> list[dict]:
  """Rows of the vanilla and of the retrained model."""
  rows = []
  experiment, lines = train.prepare(config)
  vanilla = copy.deepcopy(config)
  longest = config.abc.vanilla_longest
  vanilla.eval.lengths = tuple(n for n in config.eval.lengths if n <= longest)
  new, new_experiment, new_lines = retrain_parts(config, workdir)
  for stage, c, e, own in (
    ("interpolate", vanilla, experiment, lines),
    ("retrain", new, new_experiment, new_lines),
  ):
    state = restore.load_state(c, e, own, workdir / stage, report)
    states = restore.seed_states(c, state)
    rows += evaluate.run(c, e, own, states, workdir, stage)
  return rows


def figures(config, rows, workdir: pathlib.Path) -> list[pathlib.Path]:
  """EM by length, calibrated biases, mean attention, one input's attention."""
  folder = workdir / "figures"
  made = [
    plots.by_length(
      rows,
      folder / "accuracy_by_length.png",
      f"{config.task}, width={config.data.width}: vanilla and ABC",
    )
  ]
  experiment, lines = train.prepare(config)
  new, new_experiment, new_lines = retrain_parts(config, workdir)
  seed = new.seeds[0]
  width = max(experiment.widths)
  bias = new_experiment.full_biases(of_seed(new_lines, 0), width)
  tokens = source_labels(experiment.task, width)
  for site in ("cross", "self"):
    made.append(
      plots.matrices(
        np.asarray(bias[site]),
        folder / f"bias_{site}.png",
        f"calibrated {site}-attention bias, seed {seed}, W={width}"
        " (white: closed; each head its own scale)",
        tokens if site == "cross" else None,
      )
    )
  attention = np.load(workdir / "calibrate" / "attention.npz")
  for site in ("cross", "self"):
    made.append(
      plots.matrices(
        attention[f"{site}_{seed}"],
        folder / f"attention_mean_{site}.png",
        f"mean {site}-attention {config.calibration.quantity} of the"
        f" interpolated model, seed {seed}",
        tokens if site == "cross" else None,
      )
    )
  return made + attention_figures(config, experiment, lines, workdir, folder)


def source_labels(task, width: int) -> list[str]:
  """What stands at every source key, like "$", "a3", "+", "b1"."""
  keys = task.coordinates(width)
  labels = []
  for segment, left, right in zip(*map(list, keys), strict=True):
    name = task.segment_names[segment]
    first = task.operator if segment else task.vocabulary.start
    labels.append(first if left == 0 else f"{name}{right + 1}")
  return labels


def attention_figures(config, experiment, lines, workdir, folder) -> list:
  """Heat maps of the vanilla model's last decoder layer on abc.example."""
  task = experiment.task
  text = config.abc.example or task.usage
  parsed = parse_example(config, task)
  width = experiment.fixed_width or max(
    max(experiment.widths), max(map(len, parsed)) + task.slack
  )
  batch = task.encode_text([parsed], width)
  state = restore.load_state(
    best(config), experiment, lines, workdir / "interpolate", print
  )
  params = restore.seed_states(best(config), state)[0]["params"]
  _, acts = experiment.model.apply(
    {"params": params}, batch, experiment.full_biases(lines, width)
  )
  last = acts["decoder"]["blocks"][-1]
  tokens = list(task.vocabulary.decode(batch.source[0]))
  answer = list(task.vocabulary.decode(batch.target[0]))
  inputs = [task.vocabulary.start, *answer[:-1]]
  return [
    plots.matrices(
      np.asarray(last[site]["weights"]),
      folder / f"attention_example_{site}.png",
      f"{site}-attention of the vanilla model's last decoder layer on {text}",
      tokens if site == "cross" else inputs,
      answer,
    )
    for site in ("cross", "self")
  ]
