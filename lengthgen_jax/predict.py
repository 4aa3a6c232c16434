"""Answers to expressions and prompts that a person types."""

import sys

import numpy as np

from lengthgen_jax import bias_check, coordinates
from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.errors import UsageError
from lengthgen_jax.models import decode

BATCH = 64  # expressions decoded together


class SequencePredictor:
  """Greedy completion of prompts by a decoder-only model."""

  def __init__(self, experiment, lines, params):
    self.experiment, self.lines, self.params = experiment, lines, params

  def answers(self, texts: list[str]) -> list[str]:
    """One line for each text: the answer, or `error: ...`."""
    results: list[str] = [""] * len(texts)
    by_length: dict[int, list] = {}
    task = self.experiment.task
    for i, text in enumerate(texts):
      try:
        items = task.parse(text.strip())
        needed = task.packed_length(len(items)) - 1
        self.experiment.check_positions(needed, f"{len(items)} {task.unit}")
        by_length.setdefault(len(items), []).append((i, items))
      except (ValueError, UsageError) as error:
        results[i] = f"error: {error}"
    for length, found in by_length.items():
      for start in range(0, len(found), BATCH):
        part = found[start : start + BATCH]
        told = self._complete([items for _, items in part], length)
        for (i, _), tokens in zip(part, told, strict=True):
          try:
            results[i] = task.render(tokens)
          except ValueError as error:
            results[i] = f"error: {error}"
    return results

  def _complete(self, prompts: list[list[int]], length: int):
    """Output tokens of prompts of one length; compiled per power of two."""
    task = self.experiment.task
    outputs = task.outputs(length)
    bound = 1 << max(length + outputs, 15).bit_length()
    limit = self.experiment.model.config.positions.limit()
    bound = min(bound, limit or bound)
    rows = 1 << (len(prompts) - 1).bit_length()
    tokens = np.zeros((rows, bound), np.int32)
    tokens[: len(prompts), :length] = prompts
    tokens[:, length] = task.delimiter
    told = decode.complete(
      self.experiment,
      self.params,
      self.lines,
      tokens,
      length + 1,
      length,
      outputs,
      head=task.name,
      bound=bound,
    )
    return np.asarray(told)[: len(prompts), length + 1 :][:, :outputs]


class Predictor:
  """Greedy decoding of expressions with one seed's parameters."""

  def __init__(self, experiment, lines, params):
    self.experiment, self.lines, self.params = experiment, lines, params

  def answers(self, texts: list[str]) -> list[str]:
    """One line for each text: the answer, or `error: ...`."""
    results: list[str] = [""] * len(texts)
    by_width: dict[int, list] = {}
    for i, text in enumerate(texts):
      try:
        operands = self.experiment.task.parse(text.strip())
        width = self._width(operands)
        by_width.setdefault(width, []).append((i, operands))
      except (ValueError, UsageError) as error:
        results[i] = f"error: {error}"
    for width, items in by_width.items():
      for start in range(0, len(items), BATCH):
        part = items[start : start + BATCH]
        told = self._decode([operands for _, operands in part], width)
        for (i, _), tokens in zip(part, told, strict=True):
          results[i] = self._render(tokens)
    return results

  def _width(self, operands) -> int:
    longest = max(len(digits) for digits in operands)
    fixed = self.experiment.fixed_width
    if fixed is None:
      width = longest + self.experiment.task.slack
      self.experiment.check_positions(width, f"{longest} digits")
    elif longest < fixed:
      width = fixed
    else:
      raise ValueError(
        f"{longest} digits do not fit data.width=fixed with W={fixed}; this"
        f" model takes at most {fixed - 1}"
      )
    for name, value in self.lines.items():
      if name.endswith("_dense"):
        bias_check.check_size(self.experiment, name, value, width)
    return width

  def _decode(self, parsed, width: int):
    """Token rows of expressions at width W; compiled per power of two."""
    task = self.experiment.task
    bound = 1 << max(width - 1, 15).bit_length()
    if any(name.endswith("_dense") for name in self.lines):
      bound = width  # a matrix ends somewhere
    keys = coordinates.pad(
      task.coordinates(width), len(task.coordinates(bound).segment)
    )
    rows = 1 << (len(parsed) - 1).bit_length()
    batch = task.encode_text(parsed + parsed[-1:] * (rows - len(parsed)), width)
    pad = task.vocabulary.id(task.vocabulary.pad)
    short = len(keys.segment) - batch.source.shape[1]
    out = decode.greedy(
      self.experiment.model,
      self.params,
      self.lines,
      np.pad(batch.source, ((0, 0), (0, short)), constant_values=pad),
      keys,
      task.target_length(width),
      bias_rows=self.experiment.biases,
      bound=task.target_length(bound),
      end=task.vocabulary.id(task.vocabulary.end),
      pad=pad,
    )
    return np.asarray(out)[: len(parsed)]

  def _render(self, tokens) -> str:
    vocabulary = self.experiment.task.vocabulary
    text = vocabulary.decode(tokens).rstrip(vocabulary.pad)
    try:
      return self.experiment.task.render(text)
    except ValueError as error:
      return f"error: {error}"


def run(experiment, lines, seed_states, source, out=None) -> int:
  """Answers every line of `source`; returns 1 if any line failed, else 0.

  A terminal is answered line by line, anything else as a whole.
  """
  out = out or sys.stdout
  sound = [s for s in enumerate(seed_states) if not s[1]["diverged"]]
  r, chosen = max(sound or enumerate(seed_states), key=lambda s: s[1]["em"])
  print(
    f"answering with seed {chosen['seed']}, step {chosen['step']}"
    f" (validation EM {100 * chosen['em']:.1f} %)",
    file=sys.stderr,
  )
  kind = PREDICTORS[experiment.task.family]
  predictor = kind(experiment, of_seed(lines, r), chosen["params"])
  failed = False
  groups = ([line] for line in source) if source.isatty() else [list(source)]
  for group in groups:
    for answer in predictor.answers([line.rstrip("\n") for line in group]):
      failed |= answer.startswith("error:")
      print(answer, file=out, flush=True)
  return int(failed)


PREDICTORS = {
  "encoder_decoder": Predictor,
  "decoder_only": SequencePredictor,
}
