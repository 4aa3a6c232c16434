"""Greedy decoding of inputs that people type."""

from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.tasks.dataset import typed_batch

BATCH = 64  # the most texts that are decoded together
MEMORY = 4 << 30  # bytes that attention to prompts may take at once


def answers(model, texts: list[str], work: bool = False) -> list[str]:
  """Returns one line for each text: the answer, or `error: ...`.

  Args:
    model: a trained.Model.
    texts: inputs as people type them.
    work: whether answers show the intermediate steps too.
  """
  results: list[str] = [""] * len(texts)
  by_width: dict[int, list] = {}
  for i, text in enumerate(texts):
    try:
      parsed = model.experiment.task.parse(text.strip())
      by_width.setdefault(_width(model, parsed[1]), []).append((i, parsed))
    except (ValueError, UsageError) as error:
      results[i] = f"error: {error}"
  for width, pending in by_width.items():
    size = _batch_size(model, width)
    for start in range(0, len(pending), size):
      minibatch = pending[start : start + size]
      outputs = _decode(model, [parsed for _, parsed in minibatch], width)
      for (i, (_, lengths)), ids in zip(minibatch, outputs, strict=True):
        try:
          results[i] = model.experiment.task.render_sized(ids, lengths, work)
        except ValueError as error:
          results[i] = f"error: {error}"
  return results


def _width(model, lengths: list[int]) -> int | tuple[int, ...]:
  """Returns the width that operands of these lengths are padded to.

  Raises:
    UsageError: the model cannot answer inputs of these lengths.
  """
  experiment, task = model.experiment, model.experiment.task
  size_text = f"{max(lengths)} {task.unit}"
  width = experiment.width(lengths, size_text, "this model takes at most {}")
  check(
    _batch_size(model, width),
    f"{size_text} are too many: attention to them would take more than"
    f" {MEMORY >> 30} GiB at once",
  )
  experiment.check_scaffold(width, model.scaffold)
  return width


def _batch_size(model, width: int | tuple[int, ...]) -> int:
  """Returns how many texts are decoded together: a power of two, or 0."""
  experiment, task = model.experiment, model.experiment.task
  bound = experiment.bound(width, model.scaffold)
  config = experiment.model.config
  cells = max(task.prompt_size(bound), task.output_size(bound))
  if experiment.kind == "decoder_only":
    cells = (cells + task.output_size(bound)) ** 2
  elif config.num_encoder_layers:
    cells = cells**2
  count = MEMORY // (3 * 4 * config.num_heads * cells)
  return min(1 << count.bit_length() >> 1, BATCH)


def _decode(
  model, parsed: list, width: int | tuple[int, ...]
) -> list[list[int]]:
  """Decodes parsed texts of one width and returns the tokens of each output.

  Their number is padded to a power of two, which bounds how often decoding is
  compiled.
  """
  experiment, task = model.experiment, model.experiment.task
  size = 1 << (len(parsed) - 1).bit_length()
  padded = parsed + parsed[-1:] * (size - len(parsed))
  bound = experiment.bound(width, model.scaffold)
  batch = typed_batch(task, experiment.kind, padded, width, bound)
  outputs = model.greedy(batch, stop=task.end)
  lengths = batch.weight.sum(axis=1).astype(int)
  return [outputs[i, : lengths[i]].tolist() for i in range(len(parsed))]
