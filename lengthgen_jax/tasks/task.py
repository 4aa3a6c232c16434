"""Defines the interface of tasks: a task makes examples, and knows nothing of
model families."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import quoted


class Tokens(NamedTuple):
  """Holds a run of tokens and where they stand; what lies behind `length` is
  junk.

  Attributes:
    ids: [n] int32.
    length: traced, how many of the n tokens count.
    segment: [n] int32, which part of the sequence each token belongs to.
    left, right: [n, A] int32, offsets from the segment's ends.
    digit: [n] bool, whether a token is more than a mark between segments.
  """

  ids: Array
  length: Array
  segment: Array
  left: Array
  right: Array
  digit: Array


class Example(NamedTuple):
  """Holds one example, before it is packed for a model.

  Attributes:
    prompt: the tokens that the model reads.
    output: the tokens that it is to write, the given ones first.
    given: how many tokens of the output the model gets, which are not scored.
  """

  prompt: Tokens
  output: Tokens
  given: Array


class Size(NamedTuple):
  """Says how large an example is to be.

  Attributes:
    lengths: [O] traced, digits or items of each operand.
    width: traced, what operands are padded to (tasks with a width): one for
      all, or [O].
    longest: static bound of all of them, or a bound of each.
  """

  lengths: Array
  width: Array
  longest: int | tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Task:
  """This is the base class of tasks; its dataclass fields are its section of
  the config.

  A subclass must set every class attribute that has no value here.

  Attributes:
    name: in results and on the command line.
    section: name of the task's section of the config.
    unit: what lengths count.
    segments: tuple of names of the prompt's segments.
    test_sets: dict by name of functions (task, key, size, *arguments) -> items.
    stress_sets: names of the test sets with hard or odd inputs.
    single_input_sets: names of the test sets with one input of each length.
    operands: how many numbers an example has.
    axes: number of the coordinates' axes, 2 for grids.
    segment_axes: of a grid, the axis of each of the prompt's segments.
    ragged: whether examples of a batch differ in length, or have one width.
    of_digits: whether segments are numbers, least significant digit last.
    transducer: whether the outputs are those of a transducer; see arithmetic.
    end: id that closes an output, None if its length is known.
    vocab_size, pad: of all models' tokens.
    start: first input of an encoder-decoder's decoder.
    delimiter: what follows the prompt in a decoder-only model.
    strides: tokens of each segment that an output row advances, or ().
    anchor: the end of each segment that the first output row reads, "right"
      (numbers, from the least significant digit on) or "left".
    slack: places that `width=natural` puts before the longest operand.
    usage: an example of what a person types.
  """

  unit: ClassVar[str] = "items"
  operands: ClassVar[int] = 1
  axes: ClassVar[int] = 1
  segment_axes: ClassVar[tuple[int, ...]] = ()
  ragged: ClassVar[bool] = True
  of_digits: ClassVar[bool] = False
  transducer: ClassVar[bool] = False
  end: ClassVar[int | None] = None
  strides: ClassVar[tuple[int, ...]] = ()
  anchor: ClassVar[str] = "right"
  slack: ClassVar[int] = 0
  stress_sets: ClassVar[tuple[str, ...]] = ()
  single_input_sets: ClassVar[tuple[str, ...]] = ()

  # The methods that every task defines.

  def num_random(self, longest: int | tuple[int, ...]) -> int:
    """Returns how many random numbers an example takes."""

  def example(self, numbers: jax.Array, size: Size) -> Example:
    """Returns a training example, made of uniform numbers in [0, 1)
    [num_random(longest)]."""

  def from_items(self, items: jax.Array, size: Size) -> Example:
    """Returns the example of given items (digits of operands, items of a
    list)."""

  # Sizes, and conversion from and to text. Hints need no text, because people
  # type inputs of main tasks only.

  def prompt_size(self, longest: int | tuple[int, ...]) -> int:
    """Returns the number of tokens of the longest prompt."""
    return _shapes(self, longest).prompt.ids.shape[0]

  def output_size(self, longest: int | tuple[int, ...]) -> int:
    """Returns the number of tokens of the longest output."""
    return _shapes(self, longest).output.ids.shape[0]

  def units(self, length: int) -> int:
    """Converts a length as people count it to the task's own units."""
    return length

  def bits(self, length: int) -> int | None:
    """Converts a length as people count it to bits; None unless the task is
    about bits."""
    return None

  def natural_width(self, length: int) -> int:
    """Returns the width that operands of `length` units are padded to."""
    return length

  def padded_width(self, lengths: Sequence[int]) -> int | tuple[int, ...]:
    """Returns the width of operands of these units: one for all, or a tuple."""
    return self.natural_width(max(lengths))

  def training_widths(self, widths: tuple[int, ...]) -> tuple:
    """Returns the widths that operands are padded to in training, in turn, made
    of data.widths."""
    return widths

  def operand_lengths(self, length: int, arguments: tuple) -> tuple[int, ...]:
    """Returns the units of each operand in a test set with these further
    arguments."""
    return (self.units(length),) * self.operands

  def num_test_samples(self, length: int, samples: int) -> int:
    """Returns how many samples there can be of a length, at most `samples`."""
    return samples

  def variants(
    self, test_set: str, section, length: int
  ) -> list[tuple[str, tuple]]:
    """Returns (row's name, further arguments) of each variant of a test set;
    `section` is config.eval."""
    return [(test_set, ())]

  def parse(self, text: str):
    """Returns the items of a typed line and the lengths of its operands.

    Raises:
      ValueError: the line is no input of the task.
    """

  def render(self, ids: Sequence[int] | np.ndarray) -> str:
    """Returns an output as people write it.

    Raises:
      ValueError: the tokens are no output of the task; the message is one line.
    """

  def render_sized(
    self,
    ids: Sequence[int] | np.ndarray,
    lengths: Sequence[int],
    work: bool = False,
  ) -> str:
    """Returns what `render` does, given the operands' lengths; with `work`,
    intermediate results precede it."""
    return self.render(ids)

  def symbols(self, ids: Sequence[int] | np.ndarray) -> list[str]:
    """Returns each token as people write it."""
    return [str(int(token)) for token in ids]

  @property
  def figure_input(self) -> str:
    """Returns the input that the papers draw, or another example."""
    return self.usage

  # Segments.

  @property
  def target_segment(self) -> int:
    """Returns the number of the output's segment; the start token's is one
    more."""
    return len(self.segments)

  def segment_tokens(
    self,
    ids: Array,
    length: int | Array,
    segment: int,
    axis: int = 0,
    marks: int = 0,
  ) -> Tokens:
    """Returns the tokens of one segment along one axis; the first `marks` of
    them are no digits."""
    place = jnp.arange(ids.shape[0])
    along = jnp.arange(self.axes) == axis
    spread = lambda x: (x[:, None] * along).astype(jnp.int32)
    return Tokens(
      jnp.asarray(ids, jnp.int32),
      jnp.asarray(length, jnp.int32),
      jnp.full(place.shape, segment, jnp.int32),
      spread(place),
      spread(length - 1 - place),
      place >= marks,
    )


@functools.cache
def _shapes(task: Task, longest: int | tuple[int, ...]) -> Example:
  """Returns the shapes of an example, of which nothing is computed."""
  make_example = lambda numbers, *size: task.example(
    numbers, Size(*size, longest)
  )
  numbers = jax.ShapeDtypeStruct((task.num_random(longest),), jnp.float32)
  lengths = jax.ShapeDtypeStruct((task.operands,), jnp.int32)
  return jax.eval_shape(make_example, numbers, lengths, 0)


def join(*parts: Tokens, spare: int = 0) -> Tokens:
  """Concatenates runs of tokens; `spare` of the places that they could fill are
  left out."""
  place = jnp.arange(sum(len(part.ids) for part in parts) - spare)
  source, first, start = place, 0, 0
  for part in parts:
    values = first + jnp.minimum(place - start, len(part.ids) - 1)
    source = jnp.where(place >= start, values, source)
    first, start = first + len(part.ids), start + part.length
  # The length of each part has no axis of tokens to concatenate along.
  fields = [part._replace(length=None) for part in parts]
  joined = jax.tree.map(
    lambda *values: jnp.concatenate(values)[source], *fields
  )
  return joined._replace(length=jnp.asarray(start, jnp.int32))


def below(number: jax.Array, n: int | Array) -> jax.Array:
  """Returns a uniform number in [0, 1) as an integer in [0, n), for n up to
  2^16.

  Numbers have 23 bits, so probabilities are exact to n/2^23.
  """
  return jnp.minimum((number * n).astype(jnp.int32), n - 1)


def expect(condition, message: str) -> None:
  """Raises ValueError(message) unless the condition holds: for what people type
  and models write."""
  if not condition:
    raise ValueError(message)


def characters(text: str, allowed: str, expected: str) -> str:
  """Returns what a person typed, without spaces.

  Raises:
    ValueError: there is nothing, or a character that is not allowed; the
      message is one line that ends with `expected`.
  """
  content = "".join(text.split())
  expect(content, f"empty line; {expected}")
  bad = next((symbol for symbol in content if symbol not in allowed), None)
  expect(bad is None, f"{quoted(text)} has the character {bad!r}; {expected}")
  return content
