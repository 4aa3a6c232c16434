"""What a task is: it makes examples, and knows nothing of model families."""

import dataclasses
import functools
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from lengthgen_jax.coordinates import Array
from lengthgen_jax.errors import shown


class Tokens(NamedTuple):
  """A run of tokens and where they stand; junk behind `length`.

  Attributes:
    ids: [n] int32.
    length: traced, how many count.
    segment: [n] int32, which part of the sequence.
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
  """One example, before it is packed for a model.

  Attributes:
    prompt: what is given.
    output: what is to be said, the given part of it first.
    given: how many tokens of the output are handed over, not scored.
  """

  prompt: Tokens
  output: Tokens
  given: Array


class Size(NamedTuple):
  """How large an example is to be.

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
  """A task; its dataclass fields are its section of the config.

  Every class attribute without a value here is for the task to set.

  Attributes:
    name: in results and on the command line.
    section: of the config.
    unit: what lengths count.
    segments: tuple of names of the prompt's segments.
    test_sets: dict of functions by name, (task, key, size, *how) -> items.
    stress: names of those with hard or odd inputs.
    alone: names of those with one input of each length.
    operands: numbers that an example has.
    axes: of the coordinates, 2 for grids.
    along: of a grid, the axis of each of the prompt's segments.
    ragged: whether examples of a batch differ in length, or have one width.
    of_digits: whether segments are numbers, least significant digit last.
    transducer: whether one says what is right; see arithmetic.
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
  along: ClassVar[tuple[int, ...]] = ()
  ragged: ClassVar[bool] = True
  of_digits: ClassVar[bool] = False
  transducer: ClassVar[bool] = False
  end: ClassVar[int | None] = None
  strides: ClassVar[tuple[int, ...]] = ()
  anchor: ClassVar[str] = "right"
  slack: ClassVar[int] = 0
  stress: ClassVar[tuple[str, ...]] = ()
  alone: ClassVar[tuple[str, ...]] = ()

  # What a task defines.

  def draws(self, longest: int) -> int:
    """How many random numbers an example takes."""

  def example(self, numbers, size: Size) -> Example:
    """A training example from uniform numbers [draws(longest)] in [0, 1)."""

  def answered(self, items, size: Size) -> Example:
    """The example of given items (digits of operands, items of a list)."""

  # Sizes, and what a person types; hints are not asked by persons.

  def prompt_size(self, longest: int) -> int:
    """Tokens of the longest prompt."""
    return _shapes(self, longest).prompt.ids.shape[0]

  def output_size(self, longest: int) -> int:
    """Tokens of the longest output."""
    return _shapes(self, longest).output.ids.shape[0]

  def units(self, length: int) -> int:
    """A length as people count it, in the task's own units."""
    return length

  def bits(self, length: int) -> int | None:
    """The same in bits, for tasks that are about bits."""
    return None

  def natural_width(self, length: int) -> int:
    """What operands of so many units are padded to."""
    return length

  def padded(self, lengths):
    """The width of operands of these units: one for all, or a tuple."""
    return self.natural_width(max(lengths))

  def sizes(self, widths: tuple[int, ...]) -> tuple:
    """What operands are padded to in training, in turn, of data.widths."""
    return widths

  def operand_lengths(self, length: int, how: tuple) -> tuple[int, ...]:
    """Units of each operand in a test set with these further arguments."""
    return (self.units(length),) * self.operands

  def test_size(self, length: int, samples: int) -> int:
    """How many samples there can be."""
    return samples

  def variants(self, test_set: str, section, length: int) -> list:
    """(row's name, further arguments) of each; `section` is config.eval."""
    return [(test_set, ())]

  def parse(self, text: str):
    """Items of a typed line, lengths of its operands; ValueError if none."""

  def render(self, ids) -> str:
    """An output as people write it; ValueError with one line if it is none."""

  def spoken(self, ids, lengths, work=False) -> str:
    """`render`, given the operands' lengths; `work`: with the way there."""
    return self.render(ids)

  def symbols(self, ids) -> list[str]:
    """Each token as people write it."""
    return [str(int(token)) for token in ids]

  @property
  def pictured(self) -> str:
    """The input that the papers draw, or another example."""
    return self.usage

  # Segments.

  @property
  def target(self) -> int:
    """Number of the output's segment; the start token's is one more."""
    return len(self.segments)

  def run(self, ids, length, segment: int, axis: int = 0, marks=0) -> Tokens:
    """Tokens of one segment along one axis, the first `marks` no digits."""
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
def _shapes(task: Task, longest: int) -> Example:
  """An example's shapes, of which nothing is computed."""
  make = lambda numbers, *size: task.example(numbers, Size(*size, longest))
  numbers = jax.ShapeDtypeStruct((task.draws(longest),), jnp.float32)
  lengths = jax.ShapeDtypeStruct((task.operands,), jnp.int32)
  return jax.eval_shape(make, numbers, lengths, 0)


def join(*parts: Tokens, spare: int = 0) -> Tokens:
  """One run after the other; `spare` places of their room are not needed."""
  place = jnp.arange(sum(len(part.ids) for part in parts) - spare)
  source, first, start = place, 0, 0
  for part in parts:
    own = first + jnp.minimum(place - start, len(part.ids) - 1)
    source = jnp.where(place >= start, own, source)
    first, start = first + len(part.ids), start + part.length
  # The length of each part is no field of tokens.
  fields = [part._replace(length=None) for part in parts]
  whole = jax.tree.map(lambda *own: jnp.concatenate(own)[source], *fields)
  return whole._replace(length=jnp.asarray(start, jnp.int32))


def below(number, n):
  """A uniform number in [0, 1) as an integer in [0, n), n up to 2^16.

  Numbers have 23 bits, so probabilities are exact to n/2^23.
  """
  return jnp.minimum((number * n).astype(jnp.int32), n - 1)


def expect(condition, message: str) -> None:
  """Raises ValueError(message) unless the condition holds: for what people
  type and models write."""
  if not condition:
    raise ValueError(message)


def characters(text: str, allowed: str, wanted: str) -> str:
  """What a person typed, without spaces.

  Raises:
    ValueError: there is nothing, or a character that is not allowed; one line
      that ends with `wanted`.
  """
  kept = "".join(text.split())
  expect(kept, f"empty line; {wanted}")
  bad = next((c for c in kept if c not in allowed), None)
  expect(bad is None, f"{shown(text)} has the character {bad!r}; {wanted}")
  return kept
