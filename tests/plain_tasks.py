"""This module has all tasks and hints in their forms, examples of them, and
their answers by plain Python.

A form is a registered task or hint, with its operands interleaved or not
(arithmetic.aligned). ANSWERS has the answers of most; the others are tested by
the examples in their docstrings.
"""

import collections
import dataclasses
import functools
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.tasks import HINTS, TASKS
from lengthgen_jax.tasks.packing import pack
from lengthgen_jax.tasks.task import Example, Size, drawing

# Of the examples: the most units, the width that operands are padded to, the
# static bound of widths, and their number.
LONGEST, WIDTH, BOUND = 7, 9, 12
COUNT = 140

# (class of the hint, class of its main task), by the name of the hint.
HINT_KINDS = {
  hint.name: (hint, TASKS[main])
  for main, hints in HINTS.items()
  for hint in hints.values()
}


def make_task(kind, **fields):
  """Returns a task of a class with some fields, and small values of others that
  it has: an alphabet that fits one digit, keys and values of one token."""
  names = {field.name for field in dataclasses.fields(kind)}
  small = {"alphabet": 9, "key_length": 1, "value_length": 1, "queries": 1}
  small = {name: small[name] for name in names & small.keys()}
  return kind(**small | fields)


def forms_of(kind) -> dict:
  """Returns {name: task} of a class: with its default fields, and with its two
  operands interleaved if it can have that."""
  forms = {kind.name: make_task(kind)}
  if hasattr(kind, "aligned") and kind.operands == 2:
    forms[f"{kind.name}-aligned"] = make_task(kind, aligned=True)
  return forms


# All main tasks in their forms, and these with the hints, by name.
MAIN = {
  name: x for kind in TASKS.values() for name, x in forms_of(kind).items()
}
FORMS = MAIN | {name: make_task(kind) for name, (kind, _) in HINT_KINDS.items()}


# Examples.


class Drawn(NamedTuple):
  """A Drawn has examples of mixed lengths up to LONGEST, padded to BOUND.

  Attributes:
    example: an Example of arrays [COUNT, ...].
    lengths: [COUNT, O], the units of each of O operands.
  """

  example: Example
  lengths: np.ndarray


def _drawn(form: str, make) -> tuple:
  """Returns what `make` makes of a form's task, of a function that makes an
  example of a key and lengths, and of the keys and lengths of all of them; and
  the lengths."""
  task = FORMS[form]
  i = np.arange(COUNT)
  lengths = np.stack([i // LONGEST**k for k in range(task.operands)], axis=1)
  lengths = lengths % LONGEST + 1
  if task.own_unit != "bits":
    lengths = np.vectorize(task.units)(lengths)
  keys = jax.random.split(jax.random.key(3), COUNT)

  def make_example(key, example_lengths):
    size = Size(example_lengths, jnp.int32(WIDTH), BOUND)
    return task.example(drawing(key), size)

  draw = jax.jit(lambda *arguments: make(task, make_example, *arguments))
  drawn = draw(keys, jnp.asarray(lengths))
  return jax.tree.map(np.asarray, drawn), lengths


@functools.cache
def draw_examples(form: str) -> Drawn:
  """Returns the examples of a form, a key of FORMS."""
  return Drawn(*_drawn(form, lambda _, f, *arguments: jax.vmap(f)(*arguments)))


@functools.cache
def draw_batch(form: str, kind: str):
  """Returns the same examples as a Batch for a family of models."""
  batch, _ = _drawn(form, functools.partial(pack, kind))
  return batch


@functools.partial(jax.jit, static_argnums=0)
def from_items(task, items, lengths, width) -> Example:
  """Returns the example of items [operands, bound] and lengths [operands]."""
  return task.from_items(items, Size(lengths, width, items.shape[-1]))


def example_of_text(task, text: str):
  """Returns (prompt, output), lists of ids, of what a person types."""
  items, lengths = task.parse(text)
  spare = max(BOUND - items.shape[-1], 0)
  items = np.pad(items, [(0, 0), (0, spare)])
  example = from_items(task, items, np.array(lengths), WIDTH)
  add_axis = lambda x: np.asarray(x)[None]
  return split_example(jax.tree.map(add_axis, example), 0)[::2]


def split_example(example: Example, i: int):
  """Returns (prompt, given output, output to say) of example i, lists of
  ids."""
  prompt, output = (x.ids[i, : x.length[i]].tolist() for x in example[:2])
  count = len(example.prompt.ids)
  prefix = int(np.broadcast_to(example.prefix_length, count)[i])
  return prompt, output[:prefix], output[prefix:]


# Text.


def docstring_examples(kind) -> list[tuple[str, str]]:
  """Returns (prompt, output) of each "`prompt` -> `output`" in the docstring of
  a class."""
  return re.findall(r"`([^`]+)` -> `([^`]+)`", kind.__doc__)


def is_aligned(source: str) -> bool:
  """Returns whether the operands of an arithmetic source are interleaved."""
  return source[0] == "$" and not source[1].isdigit()


def operand_texts(source: str) -> list[str]:
  """Returns the digits of each operand of an arithmetic source, in the order in
  which they stand there."""
  assert source[0] == "$"
  if is_aligned(source):
    a, b = source[2::2], source[3::2]
    if source[1] == "*":  # the single digit stands beside every digit
      assert b == b[0] * len(b)
      b = b[0]
    return [a, b]
  return re.split(r"\D", source[1:])


def input_text(task, prompt) -> str:
  """Returns what a person would type for a prompt of these ids."""
  symbols = task.symbols(prompt)
  if task.operand_in == "own":
    digits, count = symbols[: symbols.index(".")], symbols.count(".")
    size = len(digits) // count
    rows = (digits[i : i + size] for i in range(0, len(digits), size))
    text = task.row_separator.join("".join(row[::-1]) for row in rows)
    return f"{text}*{size}"
  if getattr(task, "has_first_row", False):  # and a tick for each row
    row = symbols[: symbols.index(".")]
    return f"{' '.join(row)} * {len(symbols) - len(row) - 1}"
  if symbols[0] != "$":
    return " ".join(symbols)
  return task.operator.join(operand_texts("".join(symbols)))


# Answers.


def reversed_digits(value: int, width: int) -> str:
  """Returns the last `width` digits of a number, least significant first."""
  return str(value).zfill(width)[-width:][::-1]


def no_carry(a: str, b: str) -> str:
  """Returns the sums of the digits modulo 10, least significant first."""
  return "".join(
    str((int(x) + int(y)) % 10) for x, y in zip(a, b, strict=True)
  )[::-1]


def carry_only(a: str, b: str) -> str:
  """Returns the carry out of each place, least significant first."""
  ends = [10 ** (place + 1) for place in range(len(a))]
  return "".join(str(int(int(a) % n + int(b) % n >= n)) for n in ends)


def running_parity(bits: str) -> str:
  """Returns the parities of the last bit, the last two bits, and so on."""
  parity, out = 0, ""
  for bit in reversed(bits):
    parity ^= int(bit)
    out += str(parity)
  return out


def rarer(items):
  """Returns the rarer of one or two values in a list, `⊥` for a draw."""
  counts = collections.Counter(items).most_common()
  if len(counts) == 1:
    return [str(counts[0][0])]
  (_, most), (value, least) = counts
  return ["⊥"] if most == least else [str(value)]


def with_carries(digits):
  """Returns the digits of a number plus 1, least significant first, each with
  `c` and the carry after it."""
  carry, out = 1, []
  for digit in [*digits[::-1], 0]:
    out += [str((digit + carry) % 10), "c"]
    carry = (digit + carry) // 10
    out.append(str(carry))
  return out


def successor(items, item):
  """Returns the smallest of the items above one, `⊥` if there is none."""
  return [str(min((x for x in items if x > item), default="⊥"))]


def predecessor(items, item):
  """Returns the greatest of the items below one, `⊥` if there is none."""
  return [str(max((x for x in items if x < item), default="⊥"))]


def plus_one(digits):
  """Returns the digits of a number plus 1, least significant first."""
  total = int("".join(map(str, digits))) + 1
  return list(reversed_digits(total, len(digits) + 1))


def running_sums(a: str, b: str) -> str:
  """Returns the running sums of a times each digit of b, one place further each
  time, with the digits of each sum least significant first."""
  total, out = 0, ""
  for digit in reversed(b):
    total = total // 10 + int(a) * int(digit)
    out += str(total).zfill(len(a) + 1)[::-1]
  return out


def composed(words):
  """Returns the running products of permutations in one-line notation."""
  state, out = sorted(words[0]), []
  for word in words:
    state = [state[int(k) - 1] for k in word]
    out.append("".join(state))
  return out


def depths(text, bound=8):
  """Returns what Dyck says of one kind of brackets: the depth after each one;
  "invalid" from the first one on that closes none, or exceeds the bound."""
  depth, out = 0, []
  for bracket in text:
    depth += 1 if bracket == "(" else -1
    valid = 0 <= depth <= bound and out[-1:] != ["invalid"]
    out.append(str(depth) if valid else "invalid")
  return out


def recalled(words):
  """Returns the answers to the queries of a prompt, `>` before each; words are
  the prompt's tokens."""
  context, *queries = " ".join(map(str, words)).split(" > ")
  pairs = [part.split(" : ") for part in context.split(".") if part.strip()]
  values = {key.strip(): value.split() for key, value in pairs}
  assert len(values) == len(pairs)  # no key occurs twice
  assert len(set(map(tuple, values.values()))) == len(pairs)
  return [word for query in queries for word in (">", *values[query])]


# Functions that return the output by the name of a task: of arithmetic, from
# the digits of the operands; of other tasks, from the prompt's symbols (numbers
# as integers) and the given prefix of the output.
ANSWERS = {
  "successor": lambda a: reversed_digits(int(a) + 1, len(a)),
  "addition": lambda a, b: reversed_digits(int(a) + int(b), len(a)),
  "no_carry": no_carry,
  "carry_only": carry_only,
  "multiply": lambda a, b: reversed_digits(int(a) * int(b), len(a)),
  "multiply_long": running_sums,
  "parity": running_parity,
  "parity_classification": lambda a: str(a.count("1") % 2),
  "sort": lambda items, prefix: [str(x) for x in sorted(items)],
  "sort_successor": lambda items, prefix: successor(items, int(prefix[0])),
  "sort_predecessor": lambda items, prefix: predecessor(items, int(prefix[0])),
  "sort_minimum": lambda items, prefix: [str(min(items))],
  "sort_count": lambda items, prefix: rarer(items),
  "sort_fill": lambda items, prefix: (
    [str(items[0])] * (len(items) - len(prefix)) + ["⊥"]
  ),
  "increment": lambda items, prefix: plus_one(items),
  "increment_carry": lambda items, prefix: with_carries(items),
  "modular": lambda items, prefix: [
    str(sum(items[: i + 1]) % 7) for i in range(len(items))
  ],
  "permutations": lambda items, prefix: composed(list(map(str, items))),
  "dyck": lambda items, prefix: depths(items),
  "copy": lambda items, prefix: list(map(str, items)),
  "reverse": lambda items, prefix: list(map(str, items[::-1])),
  "reverse_shifted": lambda items, prefix: [  # of an alphabet of nine
    str(item % 9 + 1) for item in items[::-1]
  ],
  "mqmtar": lambda items, prefix: recalled(items),
}

# Main tasks whose answers people read as a number, and whole, as a list; of the
# others in ANSWERS they read the last symbol.
READ_AS_NUMBER = "successor", "addition", "multiply", "increment"
READ_AS_LIST = "sort", "copy", "reverse", "mqmtar"


def numbers(words):
  """Returns words, with those that are numbers as integers."""
  return [int(word) if word.isdecimal() else word for word in words]


def plain_answer(task, prompt, prefix=()) -> list[str]:
  """Returns the symbols to say after a prompt and a prefix of the output, both
  ids."""
  symbols = task.symbols(prompt)
  if symbols[0] == "$":
    return [*ANSWERS[task.name](*operand_texts("".join(symbols))), "&"]
  return list(ANSWERS[task.name](numbers(symbols), task.symbols(prefix)))


def plain_line(task, prompt) -> str:
  """Returns the answer to a prompt of ids as people write it."""
  if task.name == "multiply_long":  # the output is running sums
    a, b = operand_texts("".join(task.symbols(prompt)))
    return str(int(a) * int(b))
  words = [word for word in plain_answer(task, prompt) if word != "&"]
  if task.name in READ_AS_NUMBER:
    return str(int("".join(reversed(words))))
  return " ".join(words) if task.name in READ_AS_LIST else words[-1]
