"""Where arrays are: every sharding of the program.

A mesh has two axes. Seeds are split over `seed`: a device holds and trains its
own and hears nothing of the others. A batch's examples are split over `data`:
all its devices hold a seed's parameters, and sum their gradients. What is drawn
is a function of seed, step and place in the batch, and each device draws its
own part of it: the mesh changes results by rounding alone.
"""

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from lengthgen_jax import hosts
from lengthgen_jax.errors import check

SEED, DATA = "seed", "data"


@dataclasses.dataclass(frozen=True)
class Mesh:
  """Devices by seed and data; hashable, so static under jit.

  Attributes:
    grid: None for one device, on which nothing is split or constrained.
  """

  grid: jax.sharding.Mesh | None = None

  @property
  def shape(self) -> tuple[int, int]:
    """Devices along `seed` and along `data`."""
    return (1, 1) if self.grid is None else self.grid.devices.shape

  @property
  def count(self) -> int:
    return math.prod(self.shape)

  @property
  def flat(self) -> "Mesh":
    """The same devices, all along `data`: for one seed after the other."""
    if self.grid is None:
      return self
    return _of(self.grid.devices.reshape(1, -1))

  def fit(self, seeds: int, batch: int) -> "Mesh":
    """The same devices for a part of the seeds."""
    if seeds % self.shape[0] == 0:
      return self
    shape = _usual(self.count, seeds, batch)
    _check_hosts(shape, self.count)
    devices = self.grid.devices.reshape(-1)[: math.prod(shape)]
    return _of(devices.reshape(shape))

  # In compiled functions.

  def over_seeds(self, function):
    """A function of stacked arguments [R, ...], on every device of its own
    seeds alone."""
    if self.grid is None:
      return function
    return jax.shard_map(
      function,
      mesh=self.grid,
      in_specs=PartitionSpec(SEED),
      out_specs=PartitionSpec(SEED),
      axis_names={SEED},
      check_vma=False,
    )

  def split(self, batch):
    """A batch (a tuple, examples first in its first field) whose examples are
    split over `data`; what all of them share is left alone."""
    if self.grid is None:
      return batch
    count, over = len(batch[0]), self._over(DATA)
    split = lambda x: jax.lax.with_sharding_constraint(x, over)
    of_each = lambda x: jnp.ndim(x) and len(x) == count
    return jax.tree.map(lambda x: split(x) if of_each(x) else x, batch)

  def whole(self, tree):
    """Arrays that every device, and so every host, holds whole."""
    if self.grid is None:
      return tree
    return jax.lax.with_sharding_constraint(tree, self._over())

  # On the host.

  def of_seeds(self, abstract):
    """Shapes and dtypes [R, ...] with their sharding."""
    if self.grid is None:
      return abstract
    over = self._over(SEED)
    return jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=over), abstract
    )

  def place(self, tree):
    """Arrays [R, ...], the same on every host, split over `seed`."""
    if self.grid is None:
      return tree
    over = self._over(SEED)

    def put(x):
      x = np.asarray(x)
      return jax.make_array_from_callback(x.shape, over, lambda part: x[part])

    return jax.tree.map(put, tree)

  def read(self, tree):
    """Arrays as numbers, on every host."""
    if self.grid is None:
      return tree
    return jax.device_get(_whole(self, tree))

  def any_host(self, flag: bool):
    """Whether any host says so, on its way: all must ask alike."""
    over, own = self._over((SEED, DATA)), np.array([flag])
    flags = jax.make_array_from_callback((self.count,), over, lambda _: own)
    return _any(self, flags)

  def _over(self, *spec):
    return NamedSharding(self.grid, PartitionSpec(*spec))


ONE = Mesh()


@partial(jax.jit, static_argnums=0)
def _whole(mesh: Mesh, tree):
  return mesh.whole(tree)


@partial(jax.jit, static_argnums=0)
def _any(mesh: Mesh, flags):
  return mesh.whole(flags.any())


class Vote:
  """Whether any host says yes: each learns of it one call later, all of them at
  the same call, and none waits for the others."""

  def __init__(self, mesh: Mesh):
    self.mesh, self.on_its_way = mesh, False

  def __call__(self, flag: bool) -> bool:
    if not hosts.several():
      return flag
    known, self.on_its_way = self.on_its_way, self.mesh.any_host(flag)
    return bool(known)


def make(shape, seeds, batch: int) -> Mesh:
  """The mesh that a config asks for.

  Args:
    shape: config.mesh: devices along `seed` and `data`; () for as many seeds as
      divide the devices, and as much data as divides what is left.
    seeds: R of them.
    batch: config.train.batch_size.

  Raises:
    UsageError: seeds, batch or devices are not divided by it.
  """
  devices = jax.devices()
  usual = _usual(len(devices), len(seeds), batch)
  advice = f"choose for example {usual}, or ()"
  own = tuple(shape) or usual
  check(
    len(seeds) % own[0] == 0,
    f"mesh={own}: {own[0]} does not divide the {len(seeds)} seeds; {advice}",
  )
  check(
    batch % own[1] == 0,
    f"mesh={own}: {own[1]} does not divide train.batch_size={batch}; {advice}",
  )
  size = math.prod(own)
  check(
    len(devices) % size == 0,
    f"mesh={own}: {size} does not divide the {len(devices)} devices here;"
    f" {advice}",
  )
  _check_hosts(own, len(devices))
  if size == 1:
    return ONE
  types = (AxisType.Auto,) * 2
  return Mesh(jax.make_mesh(own, (SEED, DATA), types, devices=devices[:size]))


def _check_hosts(shape, devices: int) -> None:
  """UsageError for several hosts of which some have nothing to do."""
  size = math.prod(shape)
  check(
    size == devices or not hosts.several(),
    f"mesh={shape}: {size} of {devices} devices, but --multihost uses all:"
    " change mesh, seeds or train.batch_size",
  )


def _usual(devices: int, seeds: int, batch: int) -> tuple[int, int]:
  """As many seeds as divide the devices, as much data as divides the rest."""
  first = math.gcd(seeds, devices)
  rest = devices // first
  return first, max(n for n in range(1, rest + 1) if rest % n == 0 == batch % n)


def _of(devices) -> Mesh:
  """The mesh of devices [seed, data]."""
  if devices.size == 1:
    return ONE
  grid = jax.sharding.Mesh(devices, (SEED, DATA), (AxisType.Auto,) * 2)
  return Mesh(grid)
