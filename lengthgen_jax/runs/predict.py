"""--mode=predict: answers to what a person types."""

import pathlib
import sys

from ml_collections import ConfigDict

from lengthgen_jax.errors import UsageError, check, reading
from lengthgen_jax.runs import workdir as workdirs
from lengthgen_jax.tasks.data import typed_batch
from lengthgen_jax.trained import Model

BATCH = 64  # expressions decoded together
MEMORY = 4 << 30  # bytes that attention to prompts may take at once


def run(config: ConfigDict, workdir: pathlib.Path, source) -> int:
  """Answers a file, or standard input; returns the exit code."""
  workdirs.check_trained(config, workdir)
  config, made = workdirs.answering(config, workdir)
  model = choose(workdirs.load(made, config.eval.checkpoint))
  print(
    f"answering with seed {model.seed}, step {model.step}"
    f" (validation EM {100 * model.em:.1f} %)",
    file=sys.stderr,
  )
  if source is None:
    sys.stdin.reconfigure(errors="replace")
    return answer_all(model, sys.stdin)
  with reading(f"--input={source}:"):
    file = open(source, errors="replace")
  with file:
    return answer_all(model, file)


def choose(models: list[Model]) -> Model:
  """The best seed by validation, a diverged one if there is no other."""
  sound = [model for model in models if not model.diverged]
  return max(sound or models, key=lambda model: model.em)


def answer_all(model: Model, source, out=None) -> int:
  """Answers every line of `source`; returns 1 if any line failed, else 0.

  A terminal is answered line by line, anything else as a whole.
  """
  out = out or sys.stdout
  failed = False
  groups = ([line] for line in source) if source.isatty() else [list(source)]
  for group in groups:
    for answer in answers(model, [line.rstrip("\n") for line in group]):
      failed |= answer.startswith("error:")
      print(answer, file=out, flush=True)
  return int(failed)


def answers(model: Model, texts: list[str]) -> list[str]:
  """One line for each text: the answer, or `error: ...`."""
  results: list[str] = [""] * len(texts)
  by_width: dict[int, list] = {}
  for i, text in enumerate(texts):
    try:
      parsed = model.experiment.task.parse(text.strip())
      by_width.setdefault(_width(model, parsed[1]), []).append((i, parsed))
    except (ValueError, UsageError) as error:
      results[i] = f"error: {error}"
  for width, found in by_width.items():
    size = _batch_size(model, width)
    for start in range(0, len(found), size):
      part = found[start : start + size]
      told = _decode(model, [parsed for _, parsed in part], width)
      for (i, _), ids in zip(part, told, strict=True):
        try:
          results[i] = model.experiment.task.render(ids)
        except ValueError as error:
          results[i] = f"error: {error}"
  return results


def _width(model: Model, lengths: list[int]) -> int:
  """What operands of these lengths are padded to; UsageError if they cannot
  be answered."""
  experiment, task = model.experiment, model.experiment.task
  longest = max(lengths)
  if experiment.fixed_width is not None:
    check(
      longest < experiment.fixed_width,
      f"{longest} {task.unit} do not fit data.width=fixed with"
      f" W={experiment.fixed_width}; this model takes at most"
      f" {experiment.fixed_width - 1}",
    )
    width = experiment.fixed_width
  else:
    width = task.natural_width(longest)
  experiment.check_positions(width, f"{longest} {task.unit}")
  check(
    _batch_size(model, width),
    f"{longest} {task.unit} are too many: attention to them would take more"
    f" than {MEMORY >> 30} GiB at once",
  )
  experiment.check_scaffold(width, model.scaffold)
  return width


def _batch_size(model: Model, width: int) -> int:
  """How many texts are decoded together: a power of two, or none."""
  experiment, task = model.experiment, model.experiment.task
  bound = experiment.bound(width, model.scaffold)
  config = experiment.model.config
  cells = task.prompt_size(bound)
  if experiment.kind == "decoder_only":
    cells = (cells + task.output_size(bound)) ** 2
  elif config.num_encoder_layers:
    cells = cells**2
  found = MEMORY // (3 * 4 * config.num_heads * cells)
  return min(1 << found.bit_length() >> 1, BATCH)


def _typed(model: Model, parsed: list, width: int):
  experiment = model.experiment
  bound = experiment.bound(width, model.scaffold)
  return typed_batch(experiment.task, experiment.kind, parsed, width, bound)


def _decode(model: Model, parsed: list, width: int) -> list[list[int]]:
  """Output tokens of each parsed text; compiled per power of two."""
  rows = 1 << (len(parsed) - 1).bit_length()
  batch = _typed(model, parsed + parsed[-1:] * (rows - len(parsed)), width)
  task = model.experiment.task
  told = model.greedy(batch, stop=task.end)[: len(parsed)]
  lengths = batch.weight.sum(axis=1).astype(int)
  return [
    own[:length].tolist() for own, length in zip(told, lengths, strict=False)
  ]
