"""--mode=abc, end to end: interpolate, calibrate, retrain, evaluate.

One workdir, three stages, each skipped when done and resumed when cut off:
W/interpolate (a vanilla model), W/calibrate (its attention as lines), W/retrain
(a fresh model with those lines as its bias).
"""

import pathlib

import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax.config import build, stages
from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.interpret import plots
from lengthgen_jax.results import figures, records, tables
from lengthgen_jax.runs import INTERRUPTED, calibrate, collect
from lengthgen_jax.runs import evaluate as evaluation
from lengthgen_jax.runs import workdir as workdirs
from lengthgen_jax.training import loop
from lengthgen_jax.training.progress import Interrupted


def run(config: ConfigDict, workdir: pathlib.Path) -> int:
  """Runs the stages that are not done yet; returns the exit code.

  Raises:
    UsageError: no seed interpolated, or no line passed.
  """
  check_config(config)
  first = workdirs.prepare(config, workdir / "interpolate", workdirs.report)
  workdirs.open_workdir(config, workdir, "abc")
  try:
    loop.train(first)
    models = calibrate.interpolated(config, first)
    if not workdirs.bias_path(workdir).exists():
      calibrate.calibrate(config, models, workdir / "calibrate")
    new, second = workdirs.retrained(config, workdir)
    initial = None
    if config.retrain.start == "interpolated":
      initial = [m.params for m in models if m.seed in second.seeds]
    loop.train(second, initial)
  except Interrupted as stop:
    workdirs.report(str(stop))
    return INTERRUPTED
  return evaluate(config, workdir)


def check_config(config: ConfigDict) -> None:
  """UsageError for any mistake that a later stage would run into."""
  first = build.build(config)
  calibrate.check_config(config, first)
  later = stages.retrain_config(config, config.seeds, None)
  try:
    second = build.build(later)
  except UsageError as error:
    raise UsageError(f"in the second stage, retrain.*: {error}") from error
  if config.retrain.start == "interpolated":
    check(
      first.model == second.model,
      "retrain.start='interpolated' needs the same model and positions in"
      " retrain.* as in the first stage; make them equal, or choose 'fresh'",
    )
    check(
      later.train.restarts == 0,
      "retrain.start='interpolated' has one start for each seed, so none can"
      " start again: set retrain.train.restarts=0",
    )
  try:
    first.task.parse(config.abc.example or first.task.usage)
  except ValueError as error:
    raise UsageError(f"abc.example: {error}") from error


def evaluate(config: ConfigDict, workdir: pathlib.Path) -> int:
  """Tests the vanilla and the retrained model; table and figures."""
  rows = []
  vanilla = evaluation.up_to(config, config.abc.vanilla_longest)
  first = workdirs.prepare(config, workdir / "interpolate")
  new, second = workdirs.retrained(config, workdir)
  for stage, own, run in (
    ("interpolate", vanilla, first),
    ("retrain", new, second),
  ):
    if own.eval.lengths:
      models = workdirs.load(run, config.eval.checkpoint)
      rows += evaluation.evaluate(
        own, models, workdir, stage, len(config.seeds)
      )
  print(tables.of_run(rows))
  print(training_times(workdir))
  evaluation.tell(workdir, draw(config, rows, workdir, first, second))
  return 0


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


def draw(config: ConfigDict, rows, workdir, first, second) -> list:
  """EM by length, calibrated biases, mean attention, one input's attention."""
  folder = workdir / "figures"
  title = f"{evaluation.title(config)}: vanilla and ABC"
  made = figures.of_run(rows, folder, title)
  model = workdirs.load(second, "last")[0]
  seed, section = model.seed, config.calibration
  width, length = collect.conditions(config, first.experiment)[-1]
  batch = collect.samples(first.experiment, seed, width, length, 0, 1)
  biases = second.experiment.sites(model.scaffold, batch).biases
  attention = np.load(workdir / "calibrate" / "attention.npz")
  for site in collect.sites(first.experiment):
    keys = batch.keys if site == "self" else batch.source_keys
    names = labels(first.experiment, site, keys)
    made += [
      plots.matrices(
        np.asarray(biases[site].values)[:, 0],
        folder / f"bias_{site}.png",
        f"calibrated {site}-attention bias, seed {seed}, W={width}"
        " (white: closed; each head its own scale)",
        names,
      ),
      plots.matrices(
        attention[f"{site}_{seed}"],
        folder / f"attention_mean_{site}.png",
        f"mean {site}-attention {section.quantity} of the interpolated model,"
        f" seed {seed}",
        names,
      ),
    ]
  return made + attention_figures(config, first, folder)


def labels(experiment, site: str, keys) -> list[str]:
  """What stands at every key, like "a", "a4", "b1" (counted from the right end)
  and "y1" for the first output; a segment's mark has no number."""
  names = {"start": "^", "target": "y", "": ""}
  found = []
  for segment, left, right in zip(
    np.asarray(keys.segment[0]),
    np.asarray(keys.left[0, :, 0]),
    np.asarray(keys.right[0, :, 0]),
    strict=True,
  ):
    name = experiment.site_segments[site][segment]
    output = name == "target"
    number = left + 1 if output else right + 1
    mark = segment < 0 or left == 0 and not output
    found.append(names.get(name, name) + ("" if mark else str(number)))
  return found


def attention_figures(config: ConfigDict, first, folder) -> list:
  """Heat maps of a vanilla model's last decoder layer on abc.example."""
  task = first.experiment.task
  text = config.abc.example or task.usage
  batch, layers = workdirs.load(first, "best")[0].attention(text)
  made = []
  for site, weights in layers[-1].items():
    columns = batch.inputs if site == "self" else batch.source
    made.append(
      plots.matrices(
        weights[None],
        folder / f"attention_example_{site}.png",
        f"{site}-attention of the vanilla model's last decoder layer on {text}",
        task.symbols(columns[0]),
        task.symbols(batch.target[0]),
      )
    )
  return made
