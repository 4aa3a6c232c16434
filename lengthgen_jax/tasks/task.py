"""Defines the base class of tasks, which make examples and know no model."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import quoted

Width = int | tuple[int, ...]  # one width of all operands, or one of each
Ids = Sequence[int] | Array  # token ids


class Tokens(NamedTuple):
  """Tokens are consecutive tokens and where they stand in their segments.

  Attributes:
    ids: [n] int32, of which those from `length` on are padding of any value.
    length: [] int32, the number of tokens.
    segment: [n] int32, the number of the segment that each token belongs to.
    left, right: [n, A] int32, the offsets from the first and from the last
      token of the segment, along each of A axes.
    digit: [n] bool, False for the marks that begin a segment (`$`, an operator,
      the start token or the delimiter), True for all other tokens.
  """

  ids: Array
  length: Array
  segment: Array
  left: Array
  right: Array
  digit: Array


class Example(NamedTuple):
  """An Example is a prompt and its output, before they are packed for a model.

  Attributes:
    prompt: The tokens that the model reads.
    output: A prefix that the model is given, then the tokens it must predict.
    prefix_length: The number of tokens of that prefix, which are not scored.
  """

  prompt: Tokens
  output: Tokens
  prefix_length: int | Array


class Size(NamedTuple):
  """A Size says how long an example is, and how much room it has.

  Attributes:
    lengths: [O] traced, the number of digits or items of each of O operands;
      that of N×1's single digit is not used.
    width: Traced, the width that operands are padded to, or [O] widths; not
      used in ragged tasks.
    bound: Static, the greatest width (in ragged tasks, the greatest length)
      that arrays have room for: of all operands, or a tuple of each one's.
  """

  lengths: jax.Array
  width: int | Array
  bound: Width

  @property
  def max_length(self) -> int:
    """Returns the size of the last axis of items, which is static."""
    return max_width(self.bound)


def max_width(width: Width) -> int:
  """Returns the width of the widest operand."""
  return max(width) if isinstance(width, tuple) else width


@dataclasses.dataclass(frozen=True)
class Task(abc.ABC):
  """This is the base class of tasks; their dataclass fields are a section of
  the config.

  Items are integers [operands, max_length]: the digits of numbers, least
  significant first, or the elements of a list, in the order in which the
  transducer reads them if there is one, else as in the prompt. The value of an
  item is from `first_item` to `first_item + base - 1`. Items beyond the length
  of an operand may have any value, but in arithmetic tasks they are 0.

  Attributes:
    name: The name in results and of the output head; of a main task, also the
      one in a config.
    section: The name of the task's config section.
    hint_of_field: By the name of a field of that section that a hint alone
      reads, the name of the hint.
    test_sets: By name, functions (task, key, size, *arguments) -> items
      [operands, max_length]; the first is the default.
    unit: The unit of lengths in a config, in words.
    operands: The number of numbers or lists in an example.
    axes: The number of axes of coordinates, 2 for grids.
    segment_axes: In a grid, the axis along which each segment of the prompt
      extends; () without a grid.
    ragged: Whether the examples of a batch differ in length. If False, a batch
      has one width.
    of_digits: Whether the prompt's segments are numbers, least significant
      digit last.
    first_item: The token id of the digit 0, or of the least item.
    anchor: The end of each prompt segment that the first output depends on:
      "right" (the least significant digits) or "left".
    shared_operands: The indices of operands of one digit, on which all outputs
      depend.
    initial_state: The initial state of the transducer, if the task has one.
  """

  name: ClassVar[str]
  section: ClassVar[str]
  hint_of_field: ClassVar[dict[str, str]] = {}
  test_sets: ClassVar[dict[str, Callable[..., jax.Array]]]
  unit: ClassVar[str] = "items"
  operands: ClassVar[int] = 1
  axes: ClassVar[int] = 1
  segment_axes: ClassVar[tuple[int, ...]] = ()
  ragged: ClassVar[bool] = True
  of_digits: ClassVar[bool] = False
  first_item: ClassVar[int] = 0
  anchor: ClassVar[str] = "right"
  shared_operands: ClassVar[tuple[int, ...]] = ()
  initial_state: ClassVar[int] = 0

  # Tokens and segments. A subclass has class attributes or properties in place
  # of the abstract ones.

  @property
  @abc.abstractmethod
  def segments(self) -> tuple[str, ...]:
    """Returns the names of the prompt's segments."""

  @property
  @abc.abstractmethod
  def vocab_size(self) -> int:
    """Returns the size of the vocabulary, to which a decoder-only model adds
    the delimiter if it is not among it."""

  @property
  @abc.abstractmethod
  def pad(self) -> int:
    """Returns the id of PAD, which fills up sequences."""

  @property
  @abc.abstractmethod
  def start(self) -> int:
    """Returns the id of the first input of an encoder-decoder's decoder."""

  @property
  @abc.abstractmethod
  def delimiter(self) -> int:
    """Returns the id that follows the prompt in a decoder-only model."""

  @property
  def end(self) -> int | None:
    """Returns the id of the end token; None if outputs have none, because the
    prompt says how long they are."""
    return None

  @property
  def target_segment(self) -> int:
    """Returns the number of the output's segment; that of the start token, or
    of the delimiter, is one more."""
    return len(self.segments)

  @property
  def strides(self) -> tuple[int, ...]:
    """Returns for each prompt segment by how many tokens the place that an
    output depends on moves from one output to the next.

    It is 1 in a number, or in a list whose items the outputs follow one by one,
    2 where the digits of two operands alternate, and 0 in a segment of one
    digit, on which all outputs depend. The tuple is () for grids, and where
    outputs depend on no fixed places of the prompt. There are two exceptions:
    parity_classification has the strides of parity although its label depends
    on all digits, and the hint increment_carry has those of increment although
    it writes three tokens for each digit.
    """
    return ()

  def segment_tokens(
    self,
    ids: Array,
    length: int | Array,
    segment: int,
    axis: int = 0,
    marks: int = 0,
  ) -> Tokens:
    """Returns the tokens of one segment.

    Args:
      ids: [L], of which those from `length` on are padding.
      length: how many tokens the segment has.
      segment: the number of the segment.
      axis: the axis of the coordinates along which it extends.
      marks: how many tokens at its beginning are no digits.
    """
    place = jnp.arange(ids.shape[0])
    is_axis = jnp.arange(self.axes) == axis
    along_axis = lambda x: (x[:, None] * is_axis).astype(jnp.int32)
    return Tokens(
      ids=jnp.asarray(ids, jnp.int32),
      length=jnp.asarray(length, jnp.int32),
      segment=jnp.full(place.shape, segment, jnp.int32),
      left=along_axis(place),
      right=along_axis(length - 1 - place),
      digit=place >= marks,
    )

  # Examples.

  @abc.abstractmethod
  def num_random(self, max_length: int) -> int:
    """Returns how many uniform random numbers an example is made from, if its
    operands have at most `max_length` items."""

  @abc.abstractmethod
  def example(self, numbers: jax.Array, size: Size) -> Example:
    """Returns the training example that is made from uniform random numbers
    [num_random] in [0, 1)."""

  @abc.abstractmethod
  def from_items(self, items: jax.Array, size: Size) -> Example:
    """Returns the example of given items [operands, max_length]."""

  # A task may describe itself as a transducer, which reads an item of each
  # operand at every place (its symbols) and writes one token.

  @property
  @abc.abstractmethod
  def base(self) -> int:
    """Returns how many values a digit or item can have."""

  @property
  def states(self) -> tuple[int, ...]:
    """Returns the transducer's states; () if there is none."""
    return ()

  @property
  def transducer(self) -> bool:
    """Returns whether the outputs are those of the transducer, in order."""
    return False

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    """Returns (next state, output token) from the state and a symbol of each
    operand, elementwise."""
    raise NotImplementedError

  def transduce(self, columns: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the outputs [n] of the transducer for symbols [operands, n], and
    the state after each."""

    def scan_step(state, symbols):
      state, output = self.step(state, tuple(symbols))
      return state, (jnp.asarray(output), jnp.asarray(state))

    start = jnp.int32(self.initial_state)
    return jax.lax.scan(scan_step, start, columns.T.astype(jnp.int32))[1]

  def operand_place(
    self, segment: int, left: int, right: int
  ) -> tuple[int, int] | None:
    """Returns (operand, place) of the prompt's token at these offsets in its
    segment; None if it is no digit or item."""
    return segment, left if self.anchor == "left" else right

  # Sizes.

  def prompt_size(self, bound: Width) -> int:
    """Returns the number of tokens of the longest prompt of a Size's bound."""
    return len(_shapes(self, bound).prompt.ids)

  def output_size(self, bound: Width) -> int:
    """Returns the number of tokens of the longest output of a Size's bound."""
    return len(_shapes(self, bound).output.ids)

  @property
  def own_unit(self) -> str:
    """The task's own unit in words: `unit`, but bits for parity."""
    return "bits" if self.of_digits and self.base == 2 else self.unit

  def units(self, length: int) -> int:
    """Converts a length of training or tests in a config (in decimal digits,
    or items) to the task's own units, which are bits for parity."""
    return self.total_units(length)

  def total_units(self, length: int) -> int:
    """Returns the length in units of an example whose length in a config comes
    to `length` units: more, if that leaves a part of the prompt out."""
    return length

  def bits(self, length: int) -> int | None:
    """Returns `units(length)` if the units are bits, else None."""
    return None

  @property
  def slack(self) -> int:
    """Returns how many more digits an output of natural width has than the
    longest operand; 0 for grids, whose operands are not padded.

    With `data.width=natural`, so many zeros are put before that operand, unless
    the task is ragged.
    """
    return 0

  def natural_width(self, length: int) -> int:
    """Returns the natural width of operands of `length` units; ragged ones are
    not padded, so it is their length."""
    return length if self.ragged else length + self.slack

  def padded_width(self, lengths: Sequence[int]) -> Width:
    """Returns the natural width of operands of these lengths in units: one for
    all, or a tuple of each one's."""
    return self.natural_width(max(lengths))

  @property
  def long_operands(self) -> tuple[int, ...]:
    """Returns the indices of the operands that have more than one digit."""
    return tuple(
      index
      for index in range(self.operands)
      if index not in self.shared_operands
    )

  def training_widths(self, lengths: Sequence[int]) -> tuple[Width, ...]:
    """Returns the widths that training batches have in turn, for these lengths
    of the longest operand in units; of grids, the sizes of the grids."""
    return tuple(map(self.natural_width, lengths))

  # Test sets.

  @property
  def stress_sets(self) -> tuple[str, ...]:
    """Returns the names of the test sets with hard or odd inputs."""
    return ()

  def tested_sets(self, section: Any) -> list[str]:
    """Returns the names of all test sets that config.eval, `section`, asks for:
    its own and, with eval.stress, those of `stress_sets`."""
    stress_sets = self.stress_sets if section.stress else ()
    return list(dict.fromkeys([*section.test_sets, *stress_sets]))

  @property
  def single_input_sets(self) -> tuple[str, ...]:
    """Returns the names of the test sets with a single input of each length."""
    return ()

  def operand_lengths(self, length: int, arguments: tuple) -> tuple[int, ...]:
    """Returns the `lengths` of a Size, in units, in a test of a length in a
    config; `arguments` are the test set's further ones."""
    return (self.units(length),) * self.operands

  def num_test_samples(self, length: int, samples: int) -> int:
    """Returns `samples`, or how many different inputs of a length there are if
    these are fewer."""
    return samples

  def variants(
    self, test_set: str, section: Any, length: int
  ) -> list[tuple[str, tuple]]:
    """Returns each variant of a test set as (its name in result rows, further
    arguments of the test set's function); `section` is config.eval."""
    return [(test_set, ())]

  # Text. Hints need none, because people type inputs of main tasks only.

  @property
  @abc.abstractmethod
  def usage(self) -> str:
    """Returns an example of what a person types."""

  @property
  def figure_input(self) -> str:
    """Returns what a person types for the input that the papers' figures show,
    or for an example of ours where they show none."""
    return self.usage

  @abc.abstractmethod
  def parse(self, text: str) -> tuple[np.ndarray, list[int]]:
    """Returns the items [operands, n] of a typed line, and the lengths of its
    operands, of which the longest is n.

    Digits of numbers are least significant first, with zeros after the last.

    Raises:
      ValueError: the line is no input of the task.
    """

  @abc.abstractmethod
  def input_text(self, items: np.ndarray, length: int) -> str:
    """Returns the line that a person types for the first `length` items
    [operands, n] of every operand."""

  @abc.abstractmethod
  def render(self, ids: Ids) -> str:
    """Returns an output as people write it.

    Raises:
      ValueError: the tokens are no output of the task; the message is one line.
    """

  def render_with_lengths(
    self,
    ids: Ids,
    lengths: Sequence[int],
    scratchpad: bool = False,
  ) -> str:
    """Returns what `render` does, for operands of these lengths.

    With `scratchpad`, tasks that override this method put intermediate results
    first.
    """
    return self.render(ids)

  @abc.abstractmethod
  def symbols(self, ids: Ids) -> list[str]:
    """Returns each token as people write it."""


@functools.cache
def _shapes(task: Task, bound: Width) -> Example:
  """Returns the shapes of an example, without computing it."""
  count = task.num_random(max_width(bound))
  return jax.eval_shape(
    lambda numbers, lengths: task.example(numbers, Size(lengths, 0, bound)),
    jax.ShapeDtypeStruct((count,), jnp.float32),
    jax.ShapeDtypeStruct((task.operands,), jnp.int32),
  )


def join(*parts: Tokens, spare: int = 0) -> Tokens:
  """Concatenates tokens, without the padding between them.

  The arrays of the result are as long as those of all parts together, less
  `spare`, which must be padding.
  """
  place = jnp.arange(sum(len(part.ids) for part in parts) - spare)
  source, first, start = place, 0, 0
  for part in parts:
    values = first + jnp.minimum(place - start, len(part.ids) - 1)
    source = jnp.where(place >= start, values, source)
    first, start = first + len(part.ids), start + part.length
  concatenate = lambda *arrays: jnp.concatenate(arrays)[source]
  return Tokens(
    ids=concatenate(*(part.ids for part in parts)),
    length=jnp.asarray(start, jnp.int32),
    segment=concatenate(*(part.segment for part in parts)),
    left=concatenate(*(part.left for part in parts)),
    right=concatenate(*(part.right for part in parts)),
    digit=concatenate(*(part.digit for part in parts)),
  )


def uniform_int(number: jax.Array, n: int | Array) -> jax.Array:
  """Makes uniform numbers in [0, 1) integers in [0, n), elementwise, for n up
  to 2^16.

  Numbers have 23 bits, so probabilities are exact to n/2^23.
  """
  return jnp.minimum((number * n).astype(jnp.int32), n - 1)


def expect(condition: Any, message: str) -> None:
  """Raises ValueError(message) unless the condition holds.

  It is for typed inputs and outputs of models; configs have errors.check.
  """
  if not condition:
    raise ValueError(message)


def typed_characters(text: str, allowed: str, expected: str) -> str:
  """Returns a typed line without its spaces, if all its characters are allowed.

  Args:
    text: The typed line.
    allowed: All characters that may occur in it, besides spaces.
    expected: The end of an error message, which says what to type.

  Raises:
    ValueError: The line is empty or has a character that is not allowed.
  """
  content = "".join(text.split())
  expect(content, f"empty line; {expected}")
  wrong = next((symbol for symbol in content if symbol not in allowed), None)
  expect(
    wrong is None, f"{quoted(text)} has the character {wrong!r}; {expected}"
  )
  return content
