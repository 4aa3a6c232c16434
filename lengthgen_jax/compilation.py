"""How JAX compiles programs: where it keeps them, and how long it may take."""

import functools
import hashlib
import pathlib
import platform
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def set_cache(folder: str) -> None:
  """Sets the folder of JAX's compilation cache.

  Each kind of CPU has a subfolder, because its programs may not run on others.
  If JAX_COMPILATION_CACHE_DIR is set, it takes precedence.

  Args:
    folder: The folder; "" for no cache.
  """
  if folder and not jax.config.values["jax_compilation_cache_dir"]:
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    features = {
      line for line in lines if line.startswith(("flags", "Features"))
    }
    text = f"{platform.machine()}{platform.processor()}{sorted(features)}"
    name = hashlib.sha256(text.encode()).hexdigest()[:8]
    path = pathlib.Path(folder).expanduser() / name
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def jit_briefly(
  *static_argnums: int,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
  """Returns a decorator like jax.jit, for functions that run a few times.

  On a CPU their programs are compiled without LLVM's optimizations, in about a
  quarter of the time. They cannot be called inside of another jitted function.

  Args:
    *static_argnums: As in jax.jit.
  """

  def decorate(
    function: Callable[Parameters, Result],
  ) -> Callable[Parameters, Result]:
    @functools.cache
    def jitted() -> Callable:
      # The backend is not known before the first call.
      options = {"xla_backend_optimization_level": 0}
      is_cpu = jax.default_backend() == "cpu"
      return jax.jit(
        function,
        static_argnums=static_argnums,
        compiler_options=options if is_cpu else None,
      )

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
      return jitted()(*args, **kwargs)

    return call

  return decorate
