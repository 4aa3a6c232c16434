"""The base class of tasks, which make examples independently of the model."""

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
  """Consecutive tokens and where they stand in their segments.

  Attributes:
    ids: [n] int32, of which those from `length` on are padding of any value.
    length: traced, the number of tokens.
    segment: [n] int32, the number of the segment that each token belongs to.
    left, right: [n, A] int32, the offsets from both ends of the segment.
    digit: [n] bool, False for separators between segments.
  """

  ids: Array
  length: Array
  segment: Array
  left: Array
  right: Array
  digit: Array


class Example(NamedTuple):
  """One example, before it is packed for a model.

  Attributes:
    prompt: The tokens that the model reads.
    output: A prefix that the model is given, then the tokens it must predict.
    prefix_length: The number of tokens of the prefix, which are not scored.
  """

  prompt: Tokens
  output: Tokens
  prefix_length: int | Array


class Size(NamedTuple):
  """The size of an example.

  Attributes:
    lengths: [O] traced, the number of digits or items of each of O operands.
    width: Traced, the width that operands are padded to, or [O] widths; not
      used in ragged tasks.
    bound: Static, the greatest width (or length, in ragged tasks) that arrays
      have room for, of all operands or of each.
  """

  lengths: jax.Array
  width: int | Array
  bound: Width

  @property
  def max_length(self) -> int:
    """Returns the static size of the last axis of items."""
    return max_width(self.bound)


def max_width(width: Width) -> int:
  """Returns the width of the widest operand."""
  return max(width) if isinstance(width, tuple) else width


@dataclasses.dataclass(frozen=True)
class Task(abc.ABC):
  """The base class of tasks, whose dataclass fields are a config section.

  Items are integers [operands, max_length]: digits of numbers, least
  significant first, or the elements of a list in the order of reading. The
  first of them is `first_item`, 0 for most tasks. Those beyond the length of an
  operand may have any value.

  Attributes:
    name: The name in results and on the command line.
    section: The name of the task's config section.
    test_sets: By name, functions (task, key, size, *arguments) -> items.
    unit: The unit of lengths in a config.
    operands: The number of numbers or lists in an example.
    axes: The number of axes of coordinates, 2 for grids.
    segment_axes: In a grid, the axis of each segment of the prompt.
    ragged: Whether the examples of a batch differ in length. If False, they are
      padded to one width.
    of_digits: Whether segments are numbers, least significant digit last.
    first_item: The token id of the digit 0, or of the first of the items.
    anchor: The end of each prompt segment that the first output depends on:
      "right" (the least significant digits) or "left".
    shared_operands: The indices of operands of one digit, on which all outputs
      depend.
    initial_state: The initial state of the transducer, if the task has one.
  """

  name: ClassVar[str]
  section: ClassVar[str]
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

  # Tokens and segments. A subclass has attributes or properties of its own in
  # place of those that are not implemented here.

  @property
  @abc.abstractmethod
  def segments(self) -> tuple[str, ...]:
    """Returns the names of the prompt's segments."""

  @property
  @abc.abstractmethod
  def vocab_size(self) -> int:
    """Returns the number of tokens of all models."""

  @property
  @abc.abstractmethod
  def pad(self) -> int:
    """Returns the id that fills up sequences."""

  @property
  @abc.abstractmethod
  def start(self) -> int:
    """Returns the first input of an encoder-decoder's decoder."""

  @property
  @abc.abstractmethod
  def delimiter(self) -> int:
    """Returns the id that follows the prompt in a decoder-only model."""

  @property
  def end(self) -> int | None:
    """Returns the id that closes an output; None if its length is known."""
    return None

  @property
  def target_segment(self) -> int:
    """Returns the number of the output's segment; the start token's is one
    more."""
    return len(self.segments)

  @property
  def strides(self) -> tuple[int, ...]:
    """Returns the stride of each prompt segment: how many tokens lie between
    what one output depends on and what the next one depends on.

    It is () if outputs depend on no fixed places of the prompt.
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
      ids: [L] the tokens, of which those from `length` on are padding.
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
    """Returns how many uniform numbers an example is made from."""

  @abc.abstractmethod
  def example(self, numbers: jax.Array, size: Size) -> Example:
    """Returns the training example of numbers [num_random] in [0, 1)."""

  @abc.abstractmethod
  def from_items(self, items: jax.Array, size: Size) -> Example:
    """Returns the example of given items [operands, max_length]."""

  # A task may state itself as a transducer, which reads a symbol of each
  # operand at every place and writes one token. Symbols are items.

  @property
  @abc.abstractmethod
  def base(self) -> int:
    """Returns how many different digits or items there are."""

  @property
  def states(self) -> tuple[int, ...]:
    """Returns the transducer's states; () if there is none."""
    return ()

  @property
  def transducer(self) -> bool:
    """Returns whether the outputs are those of the transducer, in order."""
    return False

  def step(self, state: Array, symbols: Sequence[Array]) -> tuple[Array, Array]:
    """Returns (next state, output) from the state and a symbol of each operand,
    elementwise."""
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
    """Returns the number of tokens of the longest prompt."""
    return len(_shapes(self, bound).prompt.ids)

  def output_size(self, bound: Width) -> int:
    """Returns the number of tokens of the longest output."""
    return len(_shapes(self, bound).output.ids)

  def units(self, length: int) -> int:
    """Converts a length in a config (decimal digits, or items) to the task's
    own units: bits of numbers of so many digits, for parity."""
    return self.total_units(length)

  def total_units(self, length: int) -> int:
    """Returns how many units an example of so many has in all; more, if its
    prompt has a part that lengths in a config do not count."""
    return length

  def bits(self, length: int) -> int | None:
    """Returns `units(length)` if they are bits, else None."""
    return None

  @property
  def slack(self) -> int:
    """Returns how many outputs there are beyond the digits of the longest
    operand, before which `data.width=natural` puts as many zeros; no zeros in
    ragged tasks."""
    return 0

  def natural_width(self, length: int) -> int:
    """Returns the width that operands of `length` units are padded to; ragged
    ones are not."""
    return length if self.ragged else length + self.slack

  def padded_width(self, lengths: Sequence[int]) -> Width:
    """Returns the width for operands of these lengths in units: one for all,
    or a tuple."""
    return self.natural_width(max(lengths))

  def training_widths(self, widths: tuple[int, ...]) -> tuple[Width, ...]:
    """Returns the widths that training batches have in turn, of those in
    data.widths."""
    return widths

  # Test sets.

  @property
  def stress_sets(self) -> tuple[str, ...]:
    """Returns the names of the test sets with hard or odd inputs."""
    return ()

  @property
  def single_input_sets(self) -> tuple[str, ...]:
    """Returns the names of the test sets with one input of each length."""
    return ()

  def operand_lengths(self, length: int, arguments: tuple) -> tuple[int, ...]:
    """Returns the length in units of each operand in a test set with these
    further arguments."""
    return (self.units(length),) * self.operands

  def num_test_samples(self, length: int, samples: int) -> int:
    """Returns how many different inputs of a length there are, at most
    `samples`."""
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
    """Returns the input that the papers draw, or another example."""
    return self.usage

  @abc.abstractmethod
  def parse(self, text: str) -> tuple[np.ndarray, list[int]]:
    """Returns the items [operands, n] of a typed line, and the lengths of its
    operands.

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

    With `scratchpad`, tasks that write intermediate results put them first.
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
  """Concatenates tokens without the padding between them.

  The result has room for all parts at full size, less `spare` tokens.
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
  """Returns a uniform number in [0, 1) as an integer in [0, n), for n up to
  2^16.

  Numbers have 23 bits, so probabilities are exact to n/2^23.
  """
  return jnp.minimum((number * n).astype(jnp.int32), n - 1)


def expect(condition: Any, message: str) -> None:
  """Raises ValueError(message) unless the condition holds.

  It is for typed inputs and outputs of models, not for configs.
  """
  if not condition:
    raise ValueError(message)


def typed_characters(text: str, allowed: str, expected: str) -> str:
  """Removes spaces from a typed line and checks its characters.

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
