"""Inputs that figures show, and charts of the attention to them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lengthgen_jax.coordinates import Coordinates
from lengthgen_jax.drawing import grid, plt, scale, title
from lengthgen_jax.errors import check
from lengthgen_jax.probes.activations import Seen

LONGEST = 64  # tokens of a sequence, of which labels can still be read
MANY = 40  # tokens of a sequence beyond which leading zeros are left out


class Input(NamedTuple):
  """An input that was typed, and a model on it.

  Attributes:
    text: the input as it was typed.
    seen: the model on a batch of this one input.
  """

  text: str
  seen: Seen

  @property
  def rows(self) -> np.ndarray:
    """Numbers of the decoder rows that are drawn, which attend to something."""
    totals = sum(
      weights[0].sum(axis=(0, 2)) for _, _, weights in self.seen.attention()
    )
    rows = _live(self.seen, self.seen.at.rows)
    return rows[totals[rows] > 0]

  @property
  def held(self) -> list[str]:
    """The tokens that the drawn rows hold."""
    return self.seen.task.symbols(self.seen.at.inputs[0, self.rows])

  @property
  def said(self) -> list[str]:
    """The tokens that the drawn rows must say."""
    return self.seen.task.symbols(self.seen.at.target[0, self.rows])

  def keys(self, site: str) -> np.ndarray:
    """Returns the numbers of an attention site's keys that are drawn."""
    at = self.seen.at
    return _live(self.seen, at.keys if site == "self" else at.source_keys)

  def tokens(self, site: str) -> list[str]:
    """Returns the tokens that the drawn keys of a site hold."""
    at = self.seen.at
    ids = at.inputs if site == "self" else at.source
    return self.seen.task.symbols(ids[0, self.keys(site)])

  def weights(self, site: str) -> np.ndarray:
    """Returns softmax weights [N, H, T, S] of a site's drawn rows and keys."""
    stack, name = (
      ("encoder", "self") if site == "encoder" else ("decoder", site)
    )
    blocks = self.seen.acts[stack]["blocks"]
    weights_NxHxTxS = np.stack(
      [np.asarray(block[name]["weights"][0]) for block in blocks]
    )
    rows = self.keys(site) if site == "encoder" else self.rows
    return weights_NxHxTxS[:, :, rows][..., self.keys(site)]

  @property
  def sites(self) -> list[str]:
    """The attention sites that the model has."""
    acts = self.seen.acts
    block = acts["decoder"]["blocks"][0]
    sites = [site for site in ("cross", "self") if site in block]
    return sites + ["encoder"] * bool(acts["encoder"].get("blocks"))


def _live(seen: Seen, coordinates: Coordinates) -> np.ndarray:
  """Returns the numbers of the places that are drawn.

  These are all places that hold a token, or without leading zeros if there are
  more than MANY.
  """
  segment, left, right = (
    coordinates.segment[0],
    coordinates.left[0, :, 0],
    coordinates.right[0, :, 0],
  )
  is_drawn = segment >= 0
  if is_drawn.sum() > MANY and seen.task.of_digits:
    is_target = segment == seen.task.target_segment
    strides = np.array([*seen.task.strides, 1, 1])  # tokens of a place
    place = right // np.maximum(strides[segment], 1)
    is_drawn &= np.where(is_target, left, place) <= seen.length
    is_drawn |= np.where(is_target, right, left) == 0
  return np.flatnonzero(is_drawn & (segment >= 0))


def check_size(example: Input) -> None:
  """Raises a UsageError if an input is longer than a figure can show."""
  sites = ["self"] + ["cross"] * (example.seen.at.source is not None)
  longest = max(len(example.keys(site)) for site in sites)
  check(
    longest <= LONGEST,
    f"probe.inputs: {example.text!r} makes a sequence of {longest} tokens, and"
    f" figures show at most {LONGEST}: choose a shorter one",
  )


# Attention.


def attention_size(example: Input, site: str) -> tuple[float, float]:
  """Returns the size in inches of the chart of a site's attention."""
  layers, heads, rows, keys = example.weights(site).shape
  cell = 0.055 + 0.02 * max(map(len, example.tokens(site)))
  width, height = max(cell * keys, 1.1), max(cell * rows, 0.9)
  return 1.1 + heads * (width + 0.12), 0.85 + layers * (height + 0.25)


def attention(
  canvas: plt.FigureBase,
  size: tuple[float, float],
  example: Input,
  site: str,
) -> None:
  """Draws softmax weights of a site, a row of panels per layer, one per head.

  Args:
    canvas, size: where to draw, and its size in inches.
    example: the input that is attended to.
    site: one of the sites of the model.
  """
  weights, keys = example.weights(site), example.tokens(site)
  layers, heads = weights.shape[:2]
  # Rows of a single sequence are keys too, and are labelled by what they hold.
  is_held = site == "encoder" or example.seen.at.source is None
  rows = (
    keys if site == "encoder" else example.held if is_held else example.said
  )
  margins = (0.45, 0.6, 0.4, 0.45)
  axes = grid(canvas, layers, heads, size, margins, (0.12, 0.25))
  for (layer, head), axis in np.ndenumerate(axes):
    image = axis.imshow(
      weights[layer, head], cmap="Blues", vmin=0, vmax=1, aspect="auto"
    )
    axis.set_title(f"layer {layer} head {head}", fontsize=6, pad=2)
    ticks(axis.set_xticks, keys if layer == layers - 1 else [])
    ticks(axis.set_yticks, rows if head == 0 else [])
    axis.tick_params(length=1, pad=1)
    axis.spines[:].set_color("0.8")
  scale(canvas, size, image, margins, "attention weight")
  canvas.supxlabel(
    "key: the token it holds", fontsize=7, y=0.05 / size[1], va="bottom"
  )
  row_title = "row: the token it " + ("holds" if is_held else "must say")
  canvas.supylabel(row_title, fontsize=7, x=0.05 / size[0], ha="left")
  title(canvas, size, f"{site}-attention on {example.text}")


def ticks(set_ticks: Callable, labels: list[str], size: float = 5) -> None:
  """Sets a label at every tick, in a font of `size` points."""
  set_ticks(range(len(labels)), labels, fontsize=size)
