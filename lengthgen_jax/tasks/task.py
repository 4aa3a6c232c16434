"""The base class of tasks, which make examples and know no model."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lengthgen_jax import sections
from lengthgen_jax.coordinates import Array

Width = int | tuple[int, ...]  # one width of all operands, or one of each
Ids = Sequence[int] | Array  # token ids
Draw = Callable[[int], jax.Array]  # the first n of uniform numbers in [0, 1)
OperandUse = Literal["", "first", "every", "own"]
OperandPlace = tuple[int, int] | None  # (operand, place)
Variants = list[tuple[str, tuple]]  # (name in result rows, further arguments)


class Tokens(NamedTuple):
  """Consecutive tokens and where they stand in their segments."""

  ids: Array  # [n] int32; those from `length` on are padding of any value
  length: Array  # [] int32
  segment: Array  # [n] int32, the number of each token's segment
  left: Array  # [n, A] int32, the offset from the segment's first token
  right: Array  # [n, A] int32, from its last token
  # [n] bool, False for the marks that begin a segment: `$`, an operator, the
  # start token or the delimiter
  digit: Array


class Example(NamedTuple):
  """A prompt and its output, before they are packed for a model."""

  prompt: Tokens
  output: Tokens
  # first tokens of the output, given and not scored
  prefix_length: int | Array = 0


class Size(NamedTuple):
  """How long an example is, and how much room it has."""

  lengths: jax.Array  # [O] digits or items of each operand; not of a short one
  # what operands are padded to, one for all or [O]; not used in ragged tasks
  width: int | Array
  # static: the greatest width (if ragged, length) that arrays have room for
  bound: Width

  @property
  def max_length(self) -> int:
    """Returns the greatest width of an operand."""
    return int(np.max(self.bound))


@dataclasses.dataclass(frozen=True)
class Task(abc.ABC):
  """A sampler of examples, their tokens and text, and perhaps a transducer.

  The dataclass fields of a task are a section of the config; they must be what
  their annotations say (`sections.check_value`).

  Items are integers [operands, max_length]: the digits of numbers, least
  significant first, or the elements of a list, in the order in which the
  transducer reads them if there is one, else as in the prompt. Their values are
  from `first_item` to `first_item + base - 1`. Items beyond the length of an
  operand may have any value, but in arithmetic tasks they are 0.
  """

  # In results and of the output head; of a main task, also the one in a config.
  name: ClassVar[str]
  section: ClassVar[str]  # of the config; `name`, unless a base class has one
  # Functions (task, key, size, *arguments) -> items; the first is the default.
  test_sets: ClassVar[dict[str, Callable[..., jax.Array]]]
  unit: ClassVar[str] = "items"  # of lengths in a config, in words
  operands: ClassVar[int] = 1  # numbers or lists in an example
  # Whether the second is one digit, on which all outputs depend.
  short_operand: ClassVar[bool] = False
  axes: ClassVar[int] = 1  # of coordinates, 2 for grids
  # Of a grid, how its operand along the last axis, the first one, is used:
  # "first", its first row is the operand; "every", all rows depend on it;
  # "own", the operand has a row for each row of the grid; "" if there is none.
  operand_in: ClassVar[OperandUse] = ""
  ragged: ClassVar[bool] = True  # else all examples of a batch have one width
  # Whether the prompt's segments are numbers, least significant digit last.
  of_digits: ClassVar[bool] = False
  first_item: ClassVar[int] = 0  # the token id of the digit 0 or the least item
  # The end of a prompt's segment that the first output depends on: "right" (the
  # least significant digits) or "left".
  anchor: ClassVar[str] = "right"
  initial_state: ClassVar[int] = 0  # of the transducer
  # whether there are intermediate results to print (eval.scratchpad)
  has_scratchpad: ClassVar[bool] = False
  figure_input: ClassVar[str] = ""  # what the papers' figures show, as typed

  def __init_subclass__(cls, **keywords: Any) -> None:
    super().__init_subclass__(**keywords)
    if hasattr(cls, "name") and not hasattr(cls, "section"):
      cls.section = cls.name

  def __post_init__(self):
    sections.check_values(self)

  # Tokens and segments. A subclass has class attributes or properties in place
  # of the abstract ones.

  @property
  @abc.abstractmethod
  def token_names(self) -> Sequence[str]:
    """Returns every token as people write it, by id."""

  @property
  def vocab_size(self) -> int:
    """Returns the number of ids, to which a decoder-only model adds the
    delimiter if it is not among them."""
    return len(self.token_names)

  @property
  def pad(self) -> int:
    """Returns the id of PAD, which fills up sequences."""
    return self.token_names.index("@")

  @property
  def delimiter(self) -> int:
    """Returns the id that follows the prompt in a decoder-only model."""
    return self.token_names.index("⊥")

  @property
  def start(self) -> int:
    """Returns the id of the first input of an encoder-decoder's decoder."""
    return self.delimiter

  @property
  def end(self) -> int | None:
    """Returns the id of the end token; None if the prompt says how long the
    output is."""
    return None

  @property
  @abc.abstractmethod
  def segments(self) -> tuple[str, ...]:
    """Returns the names of the prompt's segments."""

  @property
  def segment_axes(self) -> tuple[tuple[int, ...], ...]:
    """Returns the axes of each segment of the prompt, if the output is a grid;
    else ()."""
    return ()

  @property
  def target_segment(self) -> int:
    """Returns the number of the output's segment; that of the start token, or
    of the delimiter, is one more."""
    return len(self.segments)

  @property
  def strides(self) -> tuple[int, ...]:
    """Returns for each prompt segment by how many tokens the place that an
    output depends on moves from one output to the next.

    It is 1 in a number or list, 2 where the digits of two operands alternate, 0
    for a short operand; () in grids, and where outputs depend on no fixed
    places.
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
    """Returns the first `length` of ids [n] as a segment along an axis of the
    coordinates, the first `marks` of which are no digits."""
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
  def example(self, draw: Draw, size: Size) -> Example:
    """Returns the training example that is made from uniform random numbers in
    [0, 1): `draw(n)` returns the first n of them."""

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

  def operand_place(self, segment: int, left: int, right: int) -> OperandPlace:
    """Returns where in the operands the prompt's token at these offsets in its
    segment stands; None if it is no digit or item."""
    return segment, left if self.anchor == "left" else right

  def needed(
    self,
    inputs: jax.Array,
    delimiter_index: Array,
    row: Array,
    target: Array,
  ) -> jax.Array:
    """Returns which inputs [T] of a decoder-only model decide that a row must
    say `target`, besides the row's own and the delimiter; inputs behind the row
    may be among them, and do not count.

    A ragged task that has it has the hint of random restrictions. A subclass
    whose outputs depend on other inputs overrides it.
    """
    raise NotImplementedError

  # Sizes.

  def num_items(self, bound: Width) -> int:
    """Returns the size of the last axis of items of a Size's bound."""
    return int(np.max(bound))

  def prompt_size(self, bound: Width) -> int:
    """Returns the number of tokens of the longest prompt of a Size's bound."""
    return len(_shapes(self, bound).prompt.ids)

  def output_size(self, bound: Width) -> int:
    """Returns the number of tokens of the longest output of a Size's bound."""
    return len(_shapes(self, bound).output.ids)

  @property
  def own_unit(self) -> str:
    """The unit of `units`: that of a config, but bits in base 2."""
    return "bits" if self.of_digits and self.base == 2 else self.unit

  def units(self, length: int) -> int:
    """Converts a length of a config (train_length or of tests) to that of an
    example: bits in base 2, or more items if a part of the prompt is not
    counted."""
    return length

  def bits(self, length: int) -> int | None:
    """Returns `units(length)` if the units are bits, else None."""
    return self.units(length) if self.own_unit == "bits" else None

  @property
  def slack(self) -> int:
    """Returns how many more digits an output has than the longest operand. At
    natural width as many zeros are put before it, unless the task is ragged."""
    return 0

  def natural_width(self, length: int) -> int:
    """Returns the natural width of operands of `length` units, or this length
    if they are ragged."""
    return length if self.ragged else length + self.slack

  def padded_width(self, lengths: Sequence[int]) -> Width:
    """Returns the natural width of operands of these lengths in units."""
    return self.natural_width(max(lengths))

  @property
  def long_operands(self) -> tuple[int, ...]:
    """Returns the indices of the operands that have more than one digit."""
    return tuple(range(self.operands - self.short_operand))

  def training_widths(self, lengths: Sequence[int]) -> tuple[Width, ...]:
    """Returns the widths that training batches have in turn, for these lengths
    of the longest operand in units."""
    return tuple(map(self.natural_width, lengths))

  # Test sets.

  @property
  def stress_sets(self) -> tuple[str, ...]:
    """Returns the names of the test sets with hard or odd inputs: by default
    all but the first."""
    return tuple(self.test_sets)[1:]

  def tested_sets(self, section: Any) -> list[str]:
    """Returns the names of all test sets that config.eval, `section`, asks
    for."""
    stress_sets = self.stress_sets if section.stress else ()
    return list(dict.fromkeys([*section.test_sets, *stress_sets]))

  def operand_lengths(self, length: int, arguments: tuple) -> tuple[int, ...]:
    """Returns the `lengths` of a Size in a test of a length in a config;
    `arguments` are the test set's further ones."""
    return (self.units(length),) * self.operands

  def num_test_samples(self, test_set: str, length: int, samples: int) -> int:
    """Returns `samples`, or fewer where a test set has few different inputs of
    a length."""
    return samples

  def variants(self, test_set: str, section: Any, length: int) -> Variants:
    """Returns the variants of a test set, of which config.eval, `section`, says
    the further arguments of its function."""
    return [(test_set, ())]

  # Text. Hints need none, because people type inputs of main tasks only.

  @property
  @abc.abstractmethod
  def usage(self) -> str:
    """Returns an example of what a person types."""

  @abc.abstractmethod
  def parse(self, text: str) -> tuple[np.ndarray, list[int]]:
    """Returns the items [operands, n] of a typed line, and the lengths of its
    operands, of which the longest is n; behind a shorter one there are zeros.

    Raises:
      ValueError: the line is no input of the task; the message is one line.
    """

  @abc.abstractmethod
  def input_text(self, items: np.ndarray, lengths: Sequence[int]) -> str:
    """Returns the line that a person types for operands [operands, n] of these
    lengths."""

  @abc.abstractmethod
  def render(self, ids: Ids) -> str:
    """Returns an output as people write it.

    Raises:
      ValueError: the tokens are no output of the task; the message is one line.
    """

  def render_with_lengths(
    self, ids: Ids, lengths: Sequence[int], scratchpad: bool = False
  ) -> str:
    """Returns what `render` does, for operands of these lengths, perhaps behind
    intermediate results, the scratchpad."""
    return self.render(ids)

  def symbols(self, ids: Ids) -> list[str]:
    """Returns each token as people write it."""
    names = self.token_names
    return [names[int(token)] for token in ids]


@functools.cache
def _shapes(task: Task, bound: Width) -> Example:
  """Returns the shapes of an example, without computing it."""
  draw = drawing(jax.random.key(0))
  return jax.eval_shape(
    lambda lengths: task.example(draw, Size(lengths, 0, bound)),
    jax.ShapeDtypeStruct((task.operands,), jnp.int32),
  )


def drawing(key: jax.Array, start: int = 0) -> Draw:
  """Returns a function of n that returns n uniform numbers in [0, 1), those of
  a key from the `start`-th on."""
  return lambda n: jax.random.uniform(key, (start + n,), jnp.float32)[start:]


def uniform_int(number: Array, n: int | Array) -> jax.Array:
  """Makes uniform numbers in [0, 1) integers in [0, n), elementwise.

  Numbers have 23 bits, so probabilities are exact to a share of n/2^23.
  """
  return jnp.minimum((number * n).astype(jnp.int32), n - 1)


def join(*parts: Tokens) -> Tokens:
  """Concatenates tokens, without the padding between them."""
  place = jnp.arange(sum(len(part.ids) for part in parts))
  source, first, start = place, 0, 0
  for part in parts:
    values = first + jnp.minimum(place - start, len(part.ids) - 1)
    source = jnp.where(place >= start, values, source)
    first, start = first + len(part.ids), start + part.length
  arrays = {
    name: jnp.concatenate([getattr(part, name) for part in parts])[source]
    for name in Tokens._fields
    if name != "length"
  }
  return Tokens(length=jnp.asarray(start, jnp.int32), **arrays)
