"""Pruning closes the lines that a trained model does not need.

A row depends on all tokens that paths of open lines lead to. A certificate
tries all values of these tokens, so that one line which is there by chance can
multiply its contexts, and a trained model may well do without. `Paths`
estimates the number of contexts from the cells that lines open at one size;
`prune` closes lines as long as that number falls and the model stays as good.
Shapes: N layers, H heads, K lines of a head, L open lines of all heads and
sites, T inputs of the decoder, S source tokens, A = T + S tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from lengthgen_jax.attention import kernel
from lengthgen_jax.attention.lines import Lines, SiteLines, cells_of_each
from lengthgen_jax.coordinates import Coordinates

Scaffold = dict[str, SiteLines]  # the lines [N or 1, H, K] of one seed, by site


class Entry(NamedTuple):
  """One line of one head: [layer, head, index] of a site's SiteLines."""

  site: str
  layer: int
  head: int
  index: int


def entries(scaffold: Scaffold, depths: dict[str, int]) -> list[Entry]:
  """Returns the L lines of a model; those that all layers share count in each.
  `depths` has the number of layers of each site."""
  return [
    Entry(site, layer, *where)
    for site, lines in scaffold.items()
    for layer in range(depths[site])
    for where in np.argwhere(kernel.entry(lines.valid, layer)).tolist()
  ]


def line(scaffold: Scaffold, entry: Entry) -> Lines:
  """Returns the line of an entry, without leading axes."""
  lines = kernel.entry(scaffold[entry.site].lines, entry.layer)
  return lines.take((entry.head, entry.index))


def close(
  scaffold: Scaffold, closed: Sequence[Entry], depths: dict[str, int]
) -> Scaffold:
  """Returns a scaffold without some lines; sites that lose one have lines of
  their own in each layer."""
  scaffold = dict(scaffold)
  for site in {entry.site for entry in closed}:
    layers = [kernel.entry(scaffold[site], i) for i in range(depths[site])]
    lines = jax.tree.map(lambda *x: np.stack(x), *layers)
    for entry in closed:
      if entry.site == site:
        lines.valid[entry.layer, entry.head, entry.index] = False
    scaffold[site] = lines
  return scaffold


class Paths:
  """What the rows of a model depend on, at one size, by its L `entries`."""

  def __init__(
    self,
    scaffold: Scaffold,
    depths: dict[str, int],
    coordinates: dict[str, tuple[Coordinates, Coordinates]],
    scored: np.ndarray,
    varies: np.ndarray,
    base: int,
  ):
    """Reads off the cells of every line.

    `coordinates` are those of rows and keys by site, `scored` the indices of
    the rows whose output counts, `varies` [A] the tokens that differ from input
    to input (those of the decoder come first), `base` how many values a token
    may have.
    """
    self.entries = entries(scaffold, depths)
    self._depths, self._scored = depths, scored
    self._varies, self._log_base = np.asarray(varies), np.log(base)
    self._lines = [line(scaffold, entry) for entry in self.entries]
    # By site and layer, the numbers of its lines, and their cells [L, T, S].
    self._numbers, self._cells = {}, {}
    sites = np.array([site for site, *_ in self.entries])
    layers = np.array([layer for _, layer, *_ in self.entries])
    for site, (rows, keys) in coordinates.items():
      of_site = np.flatnonzero(sites == site)
      cells = np.zeros((len(of_site), len(rows.index), len(keys.index)), bool)
      if len(of_site):
        fields = zip(*(self._lines[i] for i in of_site), strict=True)
        cells[:] = cells_of_each(Lines(*map(np.stack, fields)), rows, keys)
      if site == "self":
        cells &= np.asarray(keys.index <= rows.index[:, None])
      for layer in range(depths[site]):
        is_here = layers[of_site] == layer
        self._numbers[site, layer] = of_site[is_here]
        self._cells[site, layer] = cells[is_here]

  def _dependencies(
    self, is_open: np.ndarray
  ) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns which tokens the states below each layer, and after the last one,
    are functions of, [T, A] each; and the same of the source, [S, A]."""
    rows = self._cells["self", 0].shape[1]
    state, source = np.split(np.eye(len(self._varies), dtype=bool), [rows])
    states = [state]
    for layer in range(self._depths["self"]):
      for site, keys in (("self", state), ("cross", source)):
        if (site, layer) in self._cells:
          lines = is_open[self._numbers[site, layer]]
          opened = self._cells[site, layer][lines].any(axis=0)
          state = state | (opened.astype(float) @ keys > 0)
      states.append(state)
    return states, source

  def log_contexts(self, is_open: np.ndarray) -> float:
    """Returns about the logarithm of how many contexts all rows have with the
    lines `is_open` [L]: a token that a row depends on may have any value."""
    states, _ = self._dependencies(is_open)
    counts = (states[-1][self._scored] & self._varies).sum(axis=1)
    return float(np.logaddexp.reduce(counts * self._log_base))

  def groups(self, is_open: np.ndarray) -> set[frozenset[int]]:
    """Returns the groups of open lines that are closed together: for each
    token, a row's lines that lead there; and the lines with one equation, in a
    site, in a layer, and in a head."""
    groups, by_equation = set(), {}
    states, source = self._dependencies(is_open)
    for i in np.flatnonzero(is_open).tolist():
      site, layer, *_ = self.entries[i]
      equation = site, *(np.asarray(x).tobytes() for x in self._lines[i])
      for key in (equation, (layer, *equation)):
        by_equation.setdefault(key, set()).add(i)
      groups.add(frozenset({i}))
    groups |= set(map(frozenset, by_equation.values()))
    # Those of the first, a middle and the last row.
    some = self._scored[[0, len(self._scored) // 2, -1]]
    leads = np.zeros((len(is_open), len(some), self._varies.sum()), bool)
    for (site, layer), cells in self._cells.items():
      keys = source if site == "cross" else states[layer]
      of_rows = cells[:, some].astype(float)
      is_led = of_rows @ keys[:, self._varies].astype(float) > 0
      leads[self._numbers[site, layer]] = is_led
    leads = leads.reshape(len(is_open), -1) * is_open[:, None]
    for members in np.unique(leads, axis=1).T:
      groups.add(frozenset(np.flatnonzero(members).tolist()))
    return groups - {frozenset()}

  def savings(
    self, is_open: np.ndarray
  ) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Yields the groups whose closing lowers `log_contexts`, as ascending
    numbers of lines, with what it is then; the lowest and the smallest first.
    """
    now, savings = self.log_contexts(is_open), []
    for group in self.groups(is_open):
      after = is_open.copy()
      after[list(group)] = False
      if (cost := self.log_contexts(after)) < now:
        savings.append((cost, len(group), tuple(sorted(group))))
    for cost, _, group in sorted(savings):
      yield cost, group


def prune(
  paths: Paths, is_as_good: Callable[[list[Entry]], bool]
) -> list[Entry]:
  """Returns the lines that nothing needs.

  Again and again the group whose closing saves the most contexts is closed, of
  those without which the model `is_as_good`, a function of all lines that are
  to be closed. A group that has been needed once is needed from then on, and so
  is every group that holds it.
  """
  is_open, needed = np.ones(len(paths.entries), bool), []
  to_close = lambda is_open: [
    paths.entries[i] for i in np.flatnonzero(~is_open).tolist()
  ]

  def closes(group: tuple[int, ...]) -> bool:
    if any(known <= set(group) for known in needed):
      return False
    without = is_open.copy()
    without[list(group)] = False
    if is_as_good(to_close(without)):
      return True
    needed.append(set(group))
    return False

  while True:
    group = next((g for _, g in paths.savings(is_open) if closes(g)), None)
    if group is None:
      return to_close(is_open)
    is_open[list(group)] = False
