"""This module says where arrays are: it makes every sharding of the program.

A mesh has two axes. Seeds are split over `seed`: a device holds and trains its
own seeds and needs nothing of the others. A batch's examples are split over
`data`: all its devices hold a seed's parameters, and sum their gradients. What
is drawn is a function of seed, step and place in the batch, and each device
draws its own part of it: the mesh changes results by rounding alone.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from lengthgen_jax import hosts
from lengthgen_jax.errors import check

SEED, DATA = "seed", "data"


@dataclasses.dataclass(frozen=True)
class Mesh:
  """A Mesh holds the devices by seed and data; hashable, so static under jit.

  Attributes:
    grid: None for one device, on which nothing is split or constrained.
  """

  grid: jax.sharding.Mesh | None = None

  @property
  def shape(self) -> tuple[int, int]:
    """Returns the number of devices along `seed` and along `data`."""
    return (1, 1) if self.grid is None else self.grid.devices.shape

  @property
  def count(self) -> int:
    """Returns the number of all devices."""
    return math.prod(self.shape)

  @property
  def flat(self) -> "Mesh":
    """Returns a mesh of the same devices, all along `data`: for one seed at a
    time."""
    if self.grid is None:
      return self
    return _of(self.grid.devices.reshape(1, -1))

  def fit(self, seeds: int, batch: int) -> "Mesh":
    """Returns a mesh of the same devices for a part of the seeds."""
    if seeds % self.shape[0] == 0:
      return self
    shape = _usual(self.count, seeds, batch)
    _check_hosts(shape, self.count)
    devices = self.grid.devices.reshape(-1)[: math.prod(shape)]
    return _of(devices.reshape(shape))

  # In compiled functions.

  def over_seeds(self, function: Callable) -> Callable:
    """Maps a function of stacked arguments [R, ...] over `seed`.

    Every device applies it to its own seeds alone.
    """
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

  def split(self, batch: Any) -> Any:
    """Returns a batch whose examples are split over `data`.

    The batch is a tuple, examples first in its first field. Arrays that all
    examples share are left alone.
    """
    if self.grid is None:
      return batch
    count, sharding = len(batch[0]), self._over(DATA)
    split = lambda x: jax.lax.with_sharding_constraint(x, sharding)
    has_examples = lambda x: jnp.ndim(x) and len(x) == count
    return jax.tree.map(lambda x: split(x) if has_examples(x) else x, batch)

  def whole(self, tree: Any) -> Any:
    """Returns arrays that every device, and so every host, holds whole."""
    if self.grid is None:
      return tree
    return jax.lax.with_sharding_constraint(tree, self._over())

  # On the host.

  def of_seeds(self, abstract: Any) -> Any:
    """Returns shapes and dtypes [R, ...] with their sharding over `seed`."""
    if self.grid is None:
      return abstract
    sharding = self._over(SEED)
    return jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
      abstract,
    )

  def place(self, tree: Any) -> Any:
    """Splits arrays [R, ...], the same on every host, over `seed`."""
    if self.grid is None:
      return tree
    sharding = self._over(SEED)

    def put(x):
      x = np.asarray(x)
      return jax.make_array_from_callback(
        x.shape, sharding, lambda index: x[index]
      )

    return jax.tree.map(put, tree)

  def read(self, tree: Any) -> Any:
    """Returns arrays as numbers, on every host."""
    if self.grid is None:
      return tree
    return jax.device_get(_whole(self, tree))

  def any_host(self, flag: bool) -> jax.Array:
    """Returns whether any host has the flag set, without waiting for the
    result.

    All hosts must make the same calls.
    """
    sharding, host_flag = self._over((SEED, DATA)), np.array([flag])
    flags = jax.make_array_from_callback(
      (self.count,), sharding, lambda _: host_flag
    )
    return _any(self, flags)

  def _over(self, *spec) -> NamedSharding:
    """Returns the sharding over these axes of the mesh."""
    return NamedSharding(self.grid, PartitionSpec(*spec))


ONE = Mesh()


@partial(jax.jit, static_argnums=0)
def _whole(mesh: Mesh, tree):
  """Gathers a pytree on every device."""
  return mesh.whole(tree)


@partial(jax.jit, static_argnums=0)
def _any(mesh: Mesh, flags):
  """Returns whether any flag is set, on every device."""
  return mesh.whole(flags.any())


class AnyHostFlag:
  """A AnyHostFlag tells every host whether any host says yes.

  Each learns of it one call later, all of them at the same call, and none waits
  for the others.
  """

  def __init__(self, mesh: Mesh):
    self.mesh, self.on_its_way = mesh, False

  def __call__(self, flag: bool) -> bool:
    """Votes, and returns the result of the call before; on one host, of this
    one."""
    if not hosts.is_multihost():
      return flag
    previous, self.on_its_way = self.on_its_way, self.mesh.any_host(flag)
    return bool(previous)


def make(shape: Sequence[int], seeds: Sequence[int], batch: int) -> Mesh:
  """Makes the mesh that a config asks for.

  Args:
    shape: config.mesh: devices along `seed` and `data`; () for as many seeds as
      divide the devices, and as much data as divides what is left.
    seeds: R of them.
    batch: config.train.batch_size.

  Raises:
    UsageError: seeds, batch or devices are not divided by it.
  """
  devices = jax.devices()
  default_shape = _usual(len(devices), len(seeds), batch)
  advice = f"choose for example {default_shape}, or ()"
  mesh_shape = tuple(shape) or default_shape
  check(
    len(seeds) % mesh_shape[0] == 0,
    f"mesh={mesh_shape}: {mesh_shape[0]} does not divide the {len(seeds)}"
    f" seeds; {advice}",
  )
  check(
    batch % mesh_shape[1] == 0,
    f"mesh={mesh_shape}: {mesh_shape[1]} does not divide"
    f" train.batch_size={batch}; {advice}",
  )
  size = math.prod(mesh_shape)
  check(
    len(devices) % size == 0,
    f"mesh={mesh_shape}: {size} does not divide the {len(devices)} devices"
    f" here; {advice}",
  )
  _check_hosts(mesh_shape, len(devices))
  if size == 1:
    return ONE
  types = (AxisType.Auto,) * 2
  return Mesh(
    jax.make_mesh(mesh_shape, (SEED, DATA), types, devices=devices[:size])
  )


def _check_hosts(shape: Sequence[int], devices: int) -> None:
  """Raises UsageError for several hosts of which some have nothing to do."""
  size = math.prod(shape)
  check(
    size == devices or not hosts.is_multihost(),
    f"mesh={shape}: {size} of {devices} devices, but --multihost uses all:"
    " change mesh, seeds or train.batch_size",
  )


def _usual(devices: int, seeds: int, batch: int) -> tuple[int, int]:
  """Returns as many seeds as divide the devices, as much data as divides the
  rest."""
  along_seed = math.gcd(seeds, devices)
  remaining = devices // along_seed
  return along_seed, max(
    n for n in range(1, remaining + 1) if remaining % n == 0 == batch % n
  )


def _of(devices: np.ndarray) -> Mesh:
  """Returns the mesh of an array of devices [seed, data]."""
  if devices.size == 1:
    return ONE
  grid = jax.sharding.Mesh(devices, (SEED, DATA), (AxisType.Auto,) * 2)
  return Mesh(grid)
