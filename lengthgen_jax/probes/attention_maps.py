"""Inputs that are drawn, and pictures of the attention to them."""

from typing import NamedTuple

import numpy as np

from lengthgen_jax.drawing import grid, scale, title
from lengthgen_jax.errors import check
from lengthgen_jax.probes.activations import Seen

LONGEST = 64  # tokens of a sequence that labels can be read of
MANY = 40  # beyond which leading zeros are cut


class Input(NamedTuple):
  """What was typed, and what a model shows of it.

  Attributes:
    text: as typed.
    seen: a Seen of this one input.
  """

  text: str
  seen: Seen

  @property
  def rows(self):
    """Decoder rows that are drawn: those that see something."""
    sees = sum(own[0].sum(axis=(0, 2)) for _, _, own in self.seen.attention())
    found = _live(self.seen, self.seen.at.rows)
    return found[sees[found] > 0]

  @property
  def held(self) -> list[str]:
    """What they hold."""
    return self.seen.task.symbols(self.seen.at.inputs[0, self.rows])

  @property
  def said(self) -> list[str]:
    """What they must say."""
    return self.seen.task.symbols(self.seen.at.target[0, self.rows])

  def keys(self, site: str):
    """Keys of an attention site that are drawn."""
    at = self.seen.at
    return _live(self.seen, at.keys if site == "self" else at.source_keys)

  def tokens(self, site: str) -> list[str]:
    """What these keys hold."""
    at = self.seen.at
    own = at.inputs if site == "self" else at.source
    return self.seen.task.symbols(own[0, self.keys(site)])

  def weights(self, site: str):
    """Softmax weights [N, H, T, S] of a site, of what is drawn."""
    stack, name = (
      ("encoder", "self") if site == "encoder" else ("decoder", site)
    )
    blocks = self.seen.acts[stack]["blocks"]
    found = np.stack([np.asarray(own[name]["weights"][0]) for own in blocks])
    rows = self.keys(site) if site == "encoder" else self.rows
    return found[:, :, rows][..., self.keys(site)]

  @property
  def sites(self) -> list[str]:
    """Attention sites that this model has."""
    acts = self.seen.acts
    own = acts["decoder"]["blocks"][0]
    found = [site for site in ("cross", "self") if site in own]
    return found + ["encoder"] * bool(acts["encoder"].get("blocks"))


def _live(seen: Seen, at):
  """Numbers of the places that are drawn: all, or without leading zeros if
  there are too many."""
  segment, left, right = at.segment[0], at.left[0, :, 0], at.right[0, :, 0]
  there = segment >= 0
  if there.sum() > MANY and seen.task.of_digits:
    target = segment == seen.task.target
    strides = np.array([*seen.task.strides, 1, 1])  # tokens of a place
    place = right // np.maximum(strides[segment], 1)
    there &= np.where(target, left, place) <= seen.length
    there |= np.where(target, right, left) == 0
  return np.flatnonzero(there & (segment >= 0))


def check_size(own: Input) -> None:
  """UsageError if an input is longer than a picture can show."""
  sites = ["self"] + ["cross"] * (own.seen.at.source is not None)
  most = max(len(own.keys(site)) for site in sites)
  check(
    most <= LONGEST,
    f"probe.inputs: {own.text!r} makes a sequence of {most} tokens, and figures"
    f" show at most {LONGEST}: choose a shorter one",
  )


# Attention.


def attention_size(own: Input, site: str) -> tuple:
  """Inches of a picture of a site's attention."""
  layers, heads, rows, keys = own.weights(site).shape
  cell = 0.055 + 0.02 * max(map(len, own.tokens(site)))
  wide, high = max(cell * keys, 1.1), max(cell * rows, 0.9)
  return 1.1 + heads * (wide + 0.12), 0.85 + layers * (high + 0.25)


def attention(canvas, size, own: Input, site: str) -> None:
  """Softmax weights: a row of panels per layer, a panel per head."""
  values, keys = own.weights(site), own.tokens(site)
  layers, heads = values.shape[:2]
  # Rows of one sequence are also keys: what they hold tells them apart.
  holds = site == "encoder" or own.seen.at.source is None
  rows = keys if site == "encoder" else own.held if holds else own.said
  margins = (0.45, 0.6, 0.4, 0.45)
  axes = grid(canvas, layers, heads, size, margins, (0.12, 0.25))
  for (n, h), axis in np.ndenumerate(axes):
    image = axis.imshow(
      values[n, h], cmap="Blues", vmin=0, vmax=1, aspect="auto"
    )
    axis.set_title(f"layer {n} head {h}", fontsize=6, pad=2)
    ticks(axis.set_xticks, keys if n == layers - 1 else [])
    ticks(axis.set_yticks, rows if h == 0 else [])
    axis.tick_params(length=1, pad=1)
    axis.spines[:].set_color("0.8")
  scale(canvas, size, image, margins, "attention weight")
  canvas.supxlabel(
    "key: the token it holds", fontsize=7, y=0.05 / size[1], va="bottom"
  )
  beside = "row: the token it " + ("holds" if holds else "must say")
  canvas.supylabel(beside, fontsize=7, x=0.05 / size[0], ha="left")
  title(canvas, size, f"{site}-attention on {own.text}")


def ticks(set_ticks, labels, size: float = 5) -> None:
  set_ticks(range(len(labels)), labels, fontsize=size)
