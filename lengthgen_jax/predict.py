"""Answers to expressions and prompts that a person types."""

import sys

import numpy as np

from lengthgen_jax import bias_check, coordinates
from lengthgen_jax.attention.lines import of_seed
from lengthgen_jax.errors import UsageError, check
from lengthgen_jax.evaluate_sequences import attention_bytes
from lengthgen_jax.models import decode

BATCH = 64  # expressions decoded together
MEMORY = 4 << 30  # bytes that attention to prompts may take at once


class Predictor:
  """Greedy decoding of what a person types, with one seed's parameters."""

  def __init__(self, experiment, lines, params):
    self.experiment, self.lines, self.params = experiment, lines, params

  def answers(self, texts: list[str]) -> list[str]:
    """One line for each text: the answer, or `error: ...`."""
    results: list[str] = [""] * len(texts)
    by_size: dict[int, list] = {}
    for i, text in enumerate(texts):
      try:
        parsed = self.experiment.task.parse(text.strip())
        by_size.setdefault(self._size(parsed), []).append((i, parsed))
      except (ValueError, UsageError) as error:
        results[i] = f"error: {error}"
    for size, found in by_size.items():
      batch = self._batch(size)
      for start in range(0, len(found), batch):
        part = found[start : start + batch]
        told = self._decode([parsed for _, parsed in part], size)
        for (i, _), tokens in zip(part, told, strict=True):
          try:
            results[i] = self._render(tokens)
          except ValueError as error:
            results[i] = f"error: {error}"
    return results

  def _size(self, parsed) -> int:
    """What is decoded together has the same size."""
    raise NotImplementedError

  def _batch(self, size: int) -> int:
    """How many texts of a size are decoded together."""
    return BATCH

  def _decode(self, parsed: list, size: int):
    """Output tokens of each parsed text; compiled per power of two."""
    raise NotImplementedError

  def _render(self, tokens) -> str:
    """An answer as text; ValueError if the tokens are none."""
    raise NotImplementedError


class PromptPredictor(Predictor):
  """Prompts of a decoder-only model."""

  def _size(self, parsed) -> int:
    task = self.experiment.task
    needed = task.packed_length(len(parsed)) - 1
    self.experiment.check_positions(needed, f"{len(parsed)} {task.unit}")
    for name, value in self.lines.items():
      if name.endswith("_dense"):
        bias_check.check_size(self.experiment, name, value, needed)
    check(
      self._batch(len(parsed)),
      f"{len(parsed)} {task.unit} are too many: attention to them would take"
      f" more than {MEMORY >> 30} GiB at once",
    )
    return len(parsed)

  def _bound(self, length: int) -> int:
    """Rows of the cache for prompts of a length."""
    needed = length + self.experiment.task.outputs(length)
    limit = self.experiment.model.config.positions.limit()
    if limit or any(name.endswith("_dense") for name in self.lines):
      return needed  # a table ends somewhere
    return 1 << max(needed, 15).bit_length()

  def _batch(self, length: int) -> int:
    heads = self.experiment.model.config.num_heads
    found = MEMORY // attention_bytes(heads, self._bound(length))
    return min(1 << found.bit_length() >> 1, BATCH)  # a power of two, or none

  def _decode(self, prompts, length: int):
    task = self.experiment.task
    outputs, bound = task.outputs(length), self._bound(length)
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

  def _render(self, tokens) -> str:
    return self.experiment.task.render(tokens)


class ExpressionPredictor(Predictor):
  """Expressions of an encoder-decoder."""

  def _size(self, operands) -> int:
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
    return self.experiment.task.render(text)


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
  "encoder_decoder": ExpressionPredictor,
  "decoder_only": PromptPredictor,
}
