"""This script tests models that come with the package on all small inputs.

It uses nothing of a proof: inputs are typed texts, answers are computed with
Python's integers, and outputs are those of the ordinary program in one
teacher-forced pass (if each right token has the largest logit, decoding returns
the same):

  python tests/small_inputs.py addition multiply parity
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

import lengthgen_jax
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.tasks import dataset

MOST = 1 << 20  # the most inputs of a model
BATCH = 1024  # inputs that are computed at once

Pairs = Iterator[tuple[str, str]]  # (input, answer), as people write them


def numbers(most: int, base: int = 10) -> range:
  """Returns all numbers with at most so many digits in a base that there are no
  more than `most` of them."""
  count = 1
  while count * base <= most:
    count *= base
  return range(count)


def lists(most: int, alphabet: int, answer: Callable[[tuple], list]) -> Pairs:
  """Yields all lists of numbers below `alphabet` up to some length, with the
  answers that a function gives.

  The length is the greatest for which there are no more than `most` of them.
  """
  length = 1
  while alphabet**length <= most:
    most -= alphabet**length
    for items in itertools.product(range(alphabet), repeat=length):
      yield " ".join(map(str, items)), " ".join(map(str, answer(items)))
    length += 1


def bits(most: int) -> Pairs:
  """Yields all strings of bits up to some length, at most `most` of them, with
  their parity."""
  for text, _ in lists(most, 2, list):
    yield text.replace(" ", ""), str(text.count("1") % 2)


def all_inputs(config, most: int) -> Pairs:
  """Returns all inputs of config.task up to some size, at most `most` of them,
  with their answers."""
  alphabet, p = config.copying.alphabet, config.modular.p
  pairs = itertools.product(numbers(int(most**0.5)), repeat=2)
  products = itertools.product(numbers(most // 10), range(10))
  tasks: dict[str, Callable[[], Pairs]] = {
    "successor": lambda: ((f"{a}", f"{a + 1}") for a in numbers(most)),
    "increment": lambda: ((f"{a}", f"{a + 1}") for a in numbers(most)),
    "addition": lambda: ((f"{a}+{b}", f"{a + b}") for a, b in pairs),
    "multiply": lambda: ((f"{a}*{b}", f"{a * b}") for a, b in products),
    "parity": lambda: bits(most),
    "modular": lambda: lists(most, p, lambda items: [sum(items) % p]),
    "copy": lambda: lists(most, alphabet, list),
    "reverse": lambda: lists(most, alphabet, lambda items: items[::-1]),
  }
  return tasks[config.task]()


def count_wrong(model: Model, pairs: Pairs) -> tuple[int, int]:
  """Returns how many inputs there are, and how many of them a model answers
  wrongly."""
  task, experiment = model.experiment.task, model.experiment
  by_width: dict[int | tuple[int, ...], list] = {}
  for text, answer in pairs:
    items, lengths = task.parse(text)
    width = model.padded_width(lengths)
    by_width.setdefault(width, []).append(((items, lengths), answer))
  count = wrong = 0
  for width, inputs in by_width.items():
    bound = experiment.bound(width, model.scaffold)
    for start in range(0, len(inputs), BATCH):
      parsed, answers = zip(*inputs[start : start + BATCH], strict=True)
      padded = [*parsed, *[parsed[-1]] * (BATCH - len(parsed))]
      batch = dataset.parsed_batch(task, experiment.kind, padded, width, bound)
      is_right = model.matches(batch)[: len(parsed)].tolist()
      is_output = np.asarray(batch.weight) > 0
      targets = np.asarray(batch.target)
      for i, (_, lengths) in enumerate(parsed):
        target = targets[i][is_output[i]].tolist()
        said = task.render_with_lengths(target, lengths, False)
        wrong += not (is_right[i] and said == answers[i])
      count += len(parsed)
  return count, wrong


def main(names: list[str], most: int) -> int:
  """Tests the models with these names on at most `most` inputs each, prints the
  results, and returns the exit code: 1 if an answer is wrong."""
  failed = False
  for name in names:
    start, loaded = time.perf_counter(), lengthgen_jax.load(name)
    pairs = all_inputs(loaded.config, most)
    count, wrong = count_wrong(loaded.model, pairs)
    seconds = time.perf_counter() - start
    print(f"{name}: {count:,} inputs, {wrong} wrong; {seconds:.0f} s")
    failed |= bool(wrong)
  return int(failed)


if __name__ == "__main__":
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("names", nargs="+", metavar="NAME")
  parser.add_argument("--most", type=int, default=MOST)
  arguments = parser.parse_args()
  sys.exit(main(arguments.names, arguments.most))
