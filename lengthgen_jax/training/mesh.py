"""The mesh of devices, and all shardings of the program.

A mesh has two axes. Seeds are split over `seed`: a device holds and trains its
own seeds and needs nothing of the others. A batch's examples are split over
`data`: all its devices hold a seed's parameters, and sum their gradients. What
is drawn is a function of seed, step and index in the batch, and each device
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
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from lengthgen_jax.errors import check

SEED, DATA = "seed", "data"


@dataclasses.dataclass(frozen=True)
class Mesh:
  """Devices by seed and data; hashable, so static under jit."""

  # None: one device, nothing is split
  jax_mesh: jax.sharding.Mesh | None = None

  @property
  def shape(self) -> tuple[int, int]:
    """The number of devices along `seed` and along `data`."""
    return (1, 1) if self.jax_mesh is None else self.jax_mesh.devices.shape

  @property
  def size(self) -> int:
    return math.prod(self.shape)

  def for_one_seed(self) -> "Mesh":
    """Returns a mesh of the same devices, all of them along `data`."""
    if self.jax_mesh is None:
      return self
    return _from_devices(self.jax_mesh.devices.reshape(1, -1))

  # In compiled functions.

  def shard_map_seeds(self, function: Callable) -> Callable:
    """Returns a function of arrays [R, ...], stacked over R seeds, that every
    device applies to its own seeds alone."""
    if self.jax_mesh is None:
      return function
    return jax.shard_map(
      function,
      mesh=self.jax_mesh,
      in_specs=PartitionSpec(SEED),
      out_specs=PartitionSpec(SEED),
      axis_names={SEED},
      check_vma=False,
    )

  def shard_batch(self, batch: Any) -> Any:
    """Returns a batch, a tuple whose first entry is [B, ...], with its examples
    split over `data`; arrays that all examples share stay as they are."""
    if self.jax_mesh is None:
      return batch
    count, sharding = len(batch[0]), self._sharding(DATA)

    def shard(x: jax.Array) -> jax.Array:
      if jnp.ndim(x) == 0 or len(x) != count:
        return x
      return jax.lax.with_sharding_constraint(x, sharding)

    return jax.tree.map(shard, batch)

  def replicate(self, tree: Any) -> Any:
    """Returns arrays that every device, and so every host, holds whole."""
    if self.jax_mesh is None:
      return tree
    return jax.lax.with_sharding_constraint(tree, self._sharding())

  # On the host.

  def shard_shapes(self, shapes: Any) -> Any:
    """Returns shapes and dtypes [R, ...] with their sharding over `seed`."""
    if self.jax_mesh is None:
      return shapes
    sharding = self._sharding(SEED)
    return jax.tree.map(lambda x: x.update(sharding=sharding), shapes)

  def shard_seeds(self, tree: Any) -> Any:
    """Splits arrays [R, ...], the same on every host, over `seed`."""
    sharding = None if self.jax_mesh is None else self._sharding(SEED)
    return jax.device_put(tree, sharding)

  def gather(self, tree: Any) -> Any:
    """Returns arrays that every host can read whole; numpy arrays stay as they
    are."""
    if self.jax_mesh is None:
      return tree
    gather = partial(multihost_utils.process_allgather, tiled=True)
    is_split = lambda x: isinstance(x, jax.Array)
    return jax.tree.map(lambda x: gather(x) if is_split(x) else x, tree)

  def _sharding(self, *spec: str) -> NamedSharding:
    """Returns the sharding of an array whose leading axes are split over these
    axes of the mesh; without arguments, that of one with copies everywhere."""
    assert self.jax_mesh is not None
    return NamedSharding(self.jax_mesh, PartitionSpec(*spec))


SINGLE_DEVICE = Mesh()


def make(shape: Sequence[int], seeds: Sequence[int], batch: int) -> Mesh:
  """Makes the mesh of config.mesh (devices along `seed` and `data`; () for
  `default_shape`) for config.seeds and train.batch_size; a UsageError if it
  does not divide these or the devices, or leaves over devices of several hosts.
  """
  devices = jax.devices()
  default = default_shape(len(devices), len(seeds), batch)
  advice = f"choose for example {default}, or ()"
  along_seed, along_data = mesh_shape = tuple(shape) or default
  size = along_seed * along_data
  for divisor, number, text in (
    (along_seed, len(seeds), f"the {len(seeds)} seeds"),
    (along_data, batch, f"train.batch_size={batch}"),
    (size, len(devices), f"the {len(devices)} devices here"),
  ):
    check(
      number % divisor == 0,
      f"mesh={mesh_shape}: {divisor} does not divide {text}; {advice}",
    )
  check(
    size == len(devices) or jax.process_count() == 1,
    f"a mesh of {mesh_shape} has {size} of {len(devices)} devices; --multihost"
    " uses all: change mesh, seeds or train.batch_size",
  )
  # In the order in which they are connected.
  ordered = jax.make_mesh(mesh_shape, (SEED, DATA), devices=devices[:size])
  return _from_devices(ordered.devices)


def default_shape(devices: int, seeds: int, batch: int) -> tuple[int, int]:
  """Returns (devices along `seed`, devices along `data`): the greatest common
  divisor of `seeds` and `devices`, and that of the quotient of `devices` by it
  and `batch`."""
  along_seed = math.gcd(seeds, devices)
  return along_seed, math.gcd(devices // along_seed, batch)


def _from_devices(devices: np.ndarray) -> Mesh:
  """Returns the mesh of an array of devices [seed, data]."""
  if devices.size == 1:
    return SINGLE_DEVICE
  return Mesh(jax.sharding.Mesh(devices, (SEED, DATA), (AxisType.Auto,) * 2))
