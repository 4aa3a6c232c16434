"""Answers to what people type, by greedy decoding."""

from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.tasks.data import typed_batch

BATCH = 64  # expressions decoded together
MEMORY = 4 << 30  # bytes that attention to prompts may take at once


def answers(model, texts: list[str], work=False) -> list[str]:
  """One line for each text: the answer (`work`: and the way there), or
  `error: ...`."""
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
      for (i, (_, lengths)), ids in zip(part, told, strict=True):
        try:
          results[i] = model.experiment.task.spoken(ids, lengths, work)
        except ValueError as error:
          results[i] = f"error: {error}"
  return results


def _width(model, lengths: list[int]):
  """What operands of these lengths are padded to; UsageError if they cannot
  be answered."""
  experiment, task = model.experiment, model.experiment.task
  what = f"{max(lengths)} {task.unit}"
  width = experiment.width(lengths, what, "this model takes at most {}")
  check(
    _batch_size(model, width),
    f"{what} are too many: attention to them would take more than"
    f" {MEMORY >> 30} GiB at once",
  )
  experiment.check_scaffold(width, model.scaffold)
  return width


def _batch_size(model, width) -> int:
  """How many texts are decoded together: a power of two, or none."""
  experiment, task = model.experiment, model.experiment.task
  bound = experiment.bound(width, model.scaffold)
  config = experiment.model.config
  cells = max(task.prompt_size(bound), task.output_size(bound))
  if experiment.kind == "decoder_only":
    cells = (cells + task.output_size(bound)) ** 2
  elif config.num_encoder_layers:
    cells = cells**2
  found = MEMORY // (3 * 4 * config.num_heads * cells)
  return min(1 << found.bit_length() >> 1, BATCH)


def _decode(model, parsed: list, width) -> list[list[int]]:
  """Output tokens of each parsed text; compiled per power of two."""
  experiment, task = model.experiment, model.experiment.task
  rows = 1 << (len(parsed) - 1).bit_length()
  filled = parsed + parsed[-1:] * (rows - len(parsed))
  bound = experiment.bound(width, model.scaffold)
  batch = typed_batch(task, experiment.kind, filled, width, bound)
  told = model.greedy(batch, stop=task.end)
  lengths = batch.weight.sum(axis=1).astype(int)
  return [told[i, : lengths[i]].tolist() for i in range(len(parsed))]
