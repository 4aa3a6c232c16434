"""What the logits of a row depend on, at every width: finitely many views.

A *view* is everything that the logits of one row are a function of: which
states meet which states in which head of which layer and with what bias, and
which tokens stand at the bottom of it, up to renaming. It is read off the open
cells of the model's own biases at one width, from the row down: a row's state
after a layer is a function of its state before and of the states (not the
tokens) at the keys that it sees.

Lemma. Let every site have lines alone, closed elsewhere (-inf), every step M be
0 or ± the tokens of a place, no temperature, no position encoding but of index
mod T, and nothing behind its row visible. Let C be the sum over the layers of
the largest |c|, D = 2C + marks + slack + g, where g and p are how long an
unseen gap must be to forget how long it is (interpret.tape). Then every row at
every width W > 3D has the view, and the reachable contexts, of a row at a
smaller width.

Proof. Follow lines down from row i: every place met is 0, i, W - i or W, up to
a distance of C. Whether a cell is open, and in which order two places stand, is
a comparison of two such places, up to the width of marks and padding; so as
long as the gaps between those four stay above D - g, comparisons do not change,
and as long as unseen gaps stay above g, neither do contexts. If W > 3D, one of
the gaps min(i, W - i) and |W - 2i| is above D and can be shortened by T·p (both
ends of it by T·p, so that indices keep their phase), without any other change.
Repeat until W <= 3D + 2·T·p. So the views of all widths up to there are the
views of all widths. At width=fixed there is one width, and nothing to prove.

A context holds what the truth says at earlier outputs: greedy decoding shows
the same until its first error, and a first error is an error in a context.
"""

from typing import NamedTuple

import numpy as np

from lengthgen_jax.interpret.layout import Layout, depths, layout
from lengthgen_jax.interpret.tape import Place, Skip, Tape


class Node(NamedTuple):
  """A state after a layer, and what it was made of.

  Attributes:
    own: the state before the layer, by number among the stack's inputs.
    near: ((state, bias by head), ...) of self-attention.
    far: the same of cross-attention.
  """

  own: int
  near: tuple
  far: tuple


class View(NamedTuple):
  """What the logits of a row are a function of.

  Attributes:
    tokens: by stack ("encoder", "decoder"), the Token of every input met.
    layers: ((stack, layer, nodes), ...) from the bottom up, nodes (position
      among the inputs, Node); the last one is the row.
    steps: the places that matter, for interpret.tape.
    asked: which of the steps' columns is what the row must say; None where that
      is the end token.
  """

  tokens: tuple
  layers: tuple
  steps: tuple
  asked: int | None

  def columns(self, shared) -> dict:
    """Column of the contexts by a Token's key; `shared` are the operands of one
    digit."""
    keys = [("given", operand, -1) for operand in shared]
    places = [step for step in self.steps if isinstance(step, Place)]
    for number, step in enumerate(places):
      keys += [("given", operand, number) for operand in step.reads]
      keys += [("said", 0, number)] * step.says
    return {key: column for column, key in enumerate(keys)}


class Example(NamedTuple):
  """A row that has a view.

  Attributes:
    width: W.
    row: position of the row in the decoder.
    place: of the output that it must say; W is the end token's.
    places: that matter, in order.
  """

  width: int
  row: int
  place: int
  places: tuple[int, ...]


def view(experiment, tape: Tape, at: Layout, row: int, place: int):
  """(View, Example) of a row.

  Args:
    experiment: whose model it is.
    tape: of its task.
    at: the layout of the row's width.
    row: position of the row.
    place: of the output that the row must say.
  """
  depth = depths(experiment)
  need = {("decoder", depth["decoder"]): {row}}
  order = [("decoder", n) for n in range(depth["decoder"], 0, -1)]
  order += [("encoder", n) for n in range(depth["encoder"], 0, -1)]
  for stack, n in order:
    below = need.setdefault((stack, n - 1), set())
    memory = need.setdefault(("encoder", depth["encoder"]), set())
    for i in need.get((stack, n), ()):
      near, far = _seen(at, stack, n, i)
      below |= {i} | {key for key, _ in near}
      memory |= {key for key, _ in far}
  inputs = {
    stack: sorted(need.get((stack, 0), ())) for stack in ("encoder", "decoder")
  }
  number = {
    stack: {i: k for k, i in enumerate(own)} for stack, own in inputs.items()
  }
  layers = []
  for stack, n in reversed(order):
    own, below = number["encoder"], number[stack]
    nodes = []
    for i in sorted(need.get((stack, n), ())):
      near, far = _seen(at, stack, n, i)
      renamed = Node(
        below[i],
        tuple((below[key], bias) for key, bias in near),
        tuple((own[key], bias) for key, bias in far),
      )
      nodes.append((below[i], renamed))
    if nodes:  # nobody looks at an encoder that no row sees
      layers.append((stack, n, tuple(nodes)))
  tokens = {s: [at.tokens[s][i] for i in own] for s, own in inputs.items()}
  steps, asked, places = _steps(tape, at, tokens, place)
  renamed = tuple(
    (s, tuple(t._replace(place=places.get(t.place, -1)) for t in own))
    for s, own in tokens.items()
  )
  own = View(renamed, tuple(layers), steps, asked)
  return own, Example(at.width, row, place, tuple(places))


def _seen(at: Layout, stack: str, n: int, i: int):
  """Open cells of a row in a layer, of self- and of cross-attention."""
  if stack == "encoder":
    return at.cells[stack, "encoder", n - 1, i], ()
  far = at.cells.get((stack, "cross", n - 1, i), ())
  return at.cells[stack, "self", n - 1, i], far


def _steps(tape: Tape, at: Layout, tokens: dict, place: int):
  """The places that matter, as steps; which column is asked; and the number of
  every place."""
  width, live = at.width, at.live
  reads, said = {}, set()
  for token in (*tokens["encoder"], *tokens["decoder"]):
    if token.kind == "given" and token.which not in tape.shared:
      reads.setdefault(token.place, set()).add(token.which)
    if token.kind == "said":
      said.add(token.place)
  places = sorted(set(reads) | said | ({place} if place < width else set()))
  steps, asked, columns, after = [], None, len(tape.shared), 0
  for now in places:
    if now > after:
      zeros = max(now - max(after, live), 0)
      steps.append(tape.shorten(Skip(now - after - zeros, zeros)))
    own = tuple(sorted(reads.get(now, ())))
    says = now in said or now == place
    steps.append(Place(own, says, now >= live))
    columns += len(own) + says
    if now == place:
      asked = columns - 1
    after = now + 1
  return tuple(steps), asked, {p: k for k, p in enumerate(places)}


def widths(experiment, scaffold, tape: Tape) -> range:
  """The widths whose views are the views of all."""
  if experiment.fixed_width is not None:
    return range(experiment.fixed_width, experiment.fixed_width + 1)
  task = experiment.task
  reach = 0
  for site, lines in scaffold.items():
    shifts = np.where(lines.valid[..., None], np.abs(lines.intercept), 0)
    layers = shifts.reshape(len(shifts), -1).max(axis=1, initial=0)
    depth = depths(experiment)["encoder" if site == "encoder" else "decoder"]
    reach += int(layers.sum() if len(layers) > 1 else depth * layers[0])
  first, period = tape.settles
  period *= experiment.model.config.positions.cyclic_period or 1
  smallest = task.natural_width(1)
  marks = 2 + smallest  # and padding
  most = 3 * (2 * reach + marks + first) + 2 * period
  return range(smallest, most + 1)


def views(experiment, scaffold, tape: Tape) -> dict:
  """Every View there is, with the Examples that have it, narrowest first."""
  found = {}
  sizes = widths(experiment, scaffold, tape)
  for width in sizes:
    at = layout(experiment, scaffold, width, sizes[-1])
    for row, place in at.rows:
      own, example = view(experiment, tape, at, row, place)
      found.setdefault(own, []).append(example)
  return found
