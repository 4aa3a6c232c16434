"""The folder of compiled programs, and fast compilation on CPUs."""

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import jax

Function = TypeVar("Function", bound=Callable)


def set_cache(folder: str) -> None:
  """Sets the folder of JAX's compilation cache, unless JAX has one already,
  from JAX_COMPILATION_CACHE_DIR or an earlier call; "" sets none, nor does ~
  where there is no home folder."""
  folder = os.path.expanduser(folder)
  is_set = jax.config.values["jax_compilation_cache_dir"]
  if is_set or not folder or folder.startswith("~"):
    return
  jax.config.update("jax_compilation_cache_dir", folder)
  # Cache every program, however quickly it compiles.
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def jit_unoptimized(*static_argnums: int) -> Callable[[Function], Function]:
  """Returns a decorator that jits functions whose calls take less time than
  optimizing their programs would: on a CPU they are compiled without LLVM's
  optimizations, in about a quarter of the time. They must not be called inside
  another jitted function."""

  def decorate(function: Any) -> Any:
    @functools.cache  # at the first call: to ask for the backend starts it
    def jitted() -> Callable:
      is_cpu = jax.default_backend() == "cpu"
      options = {"xla_backend_optimization_level": 0} if is_cpu else None
      return jax.jit(
        function, static_argnums=static_argnums, compiler_options=options
      )

    @functools.wraps(function)
    def call(*args, **kwargs):
      return jitted()(*args, **kwargs)

    return call

  return decorate
