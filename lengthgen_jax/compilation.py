"""This module configures compilation: the cache folder, fast unoptimized
compilation, and compilation in the background."""

import contextlib
import functools
import hashlib
import os
import pathlib
import platform
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import ParamSpec, TypeVar

import jax

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def set_cache(folder: str) -> None:
  """Sets the folder of JAX's compilation cache.

  Each kind of CPU has a subfolder, because programs compiled for one may not
  run on another. A folder that JAX has already, from JAX_COMPILATION_CACHE_DIR
  or an earlier call, takes precedence.

  Args:
    folder: the folder, which may begin with ~; if it is "", or ~ and there is
      no home folder, no cache is set.
  """
  if jax.config.values["jax_compilation_cache_dir"]:
    return
  folder = os.path.expanduser(folder)
  if folder and not folder.startswith("~"):
    cpuinfo, text = pathlib.Path("/proc/cpuinfo"), ""
    if cpuinfo.exists():
      text = cpuinfo.read_text(encoding="utf-8")
    features = {
      line
      for line in text.splitlines()
      if line.startswith(("flags", "Features"))
    }
    cpu = f"{platform.machine()}{platform.processor()}{sorted(features)}"
    name = hashlib.sha256(cpu.encode()).hexdigest()[:8]
    path = pathlib.Path(folder) / name
    jax.config.update("jax_compilation_cache_dir", str(path))
    # Cache every program, however quickly it compiles.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def jit_unoptimized(
  *static_argnums: int,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
  """Returns a decorator that jits functions whose calls take less time than
  optimizing their programs would.

  On a CPU their programs are compiled without LLVM's optimizations, in about a
  quarter of the time. The decorated functions must not be called inside another
  jitted function, where JAX allows no compiler options.

  Args:
    *static_argnums: the indices of static arguments, as in jax.jit.
  """

  def decorate(
    function: Callable[Parameters, Result],
  ) -> Callable[Parameters, Result]:
    @functools.cache
    def jitted() -> Callable:
      # To ask for the backend initializes it, so jax.jit is called at the first
      # call and not when a module is imported.
      options = None
      if jax.default_backend() == "cpu":
        options = {"xla_backend_optimization_level": 0}
      return jax.jit(
        function, static_argnums=static_argnums, compiler_options=options
      )

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
      return jitted()(*args, **kwargs)

    return call

  return decorate


@contextlib.contextmanager
def compile_in_background(programs: Iterable[object]) -> Iterator[None]:
  """Compiles programs on another thread, and waits for it at the end of the
  context.

  JAX's compilation cache is shared by all threads. If the context is left by
  an exception, the thread stops after the program that it is compiling.

  Args:
    programs: an iterator whose every step compiles one program. An error ends
      it silently.
  """
  stop_requested = threading.Event()

  def compile_programs() -> None:
    # Errors are ignored here: the same program fails again, with a report,
    # when the caller runs it.
    with contextlib.suppress(Exception):
      for _ in programs:
        if stop_requested.is_set():
          return

  thread = threading.Thread(target=compile_programs, daemon=True)
  thread.start()
  try:
    yield
  except BaseException:
    stop_requested.set()
    raise
  finally:
    thread.join()
