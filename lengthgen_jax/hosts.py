"""This module joins several hosts to one program: which one this is, where they
meet.

Every host runs the same program and the same compiled functions in the same
order, each on its part of the arrays. The first one alone writes files and
prints; what it writes, the others read: they share the workdir's file system.
"""

import contextlib
import ctypes
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator

from lengthgen_jax.errors import Interrupted, UsageError, check, out_of_memory

HEARTBEAT = 30  # seconds without a sign of life: a process counts as lost
LOST = (
  f"another process ended, or gave no sign of life for {HEARTBEAT} s; the same"
  " command on all hosts goes on from the last checkpoint"
)

_count, _index = 1, 0  # processes, and which one this is


def is_multihost() -> bool:
  """Tells whether the program runs in more than one process."""
  return _count > 1


def is_primary() -> bool:
  """Tells whether this is the process that writes and prints."""
  return _index == 0


def barrier(name: str) -> None:
  """Waits until every process is here, so that what the first one wrote is
  there."""
  if is_multihost():
    from jax.experimental import multihost_utils

    multihost_utils.sync_global_devices(name)


@contextlib.contextmanager
def multihost_context(
  coordinator: str | None,
  processes: int | None,
  process: int | None,
  seconds: int,
) -> Iterator[None]:
  """Makes this process one of several inside the context.

  However another one ends, this one ends with a line.

  Args:
    coordinator: HOST:PORT of the first process; None where a TPU slice or SLURM
      knows this and the next two.
    processes: how many there are.
    process: which one this is.
    seconds: how long the others are waited for at the start.

  Raises:
    UsageError: something is missing, or the cluster does not know it.
  """
  _check(coordinator, processes, process)
  where = f"--coordinator={coordinator}" if coordinator else "the coordinator"
  end = _End(
    f"{where} did not answer within {seconds} s, or not all processes came"
    " (--connect_timeout)"
  )
  try:
    _connect(coordinator, processes, process, seconds)
    end.line = LOST
    yield
    barrier("end")
  except Interrupted:  # all processes were interrupted, at the same place
    barrier("end")
    raise
  except BaseException as error:
    end.of(error)
  finally:
    os.unlink(end.log)


def _check(
  coordinator: str | None, processes: int | None, process: int | None
) -> None:
  """Raises UsageError for flags that cannot be."""
  given = [flag is not None for flag in (coordinator, processes, process)]
  check(
    all(given) or not any(given),
    "--coordinator, --processes and --process go together: name all three, or"
    " none on a TPU slice or under SLURM",
  )
  if coordinator is None:
    return
  host, _, port = coordinator.rpartition(":")
  check(
    host and port.isdigit() and int(port) < 1 << 16,
    f"--coordinator={coordinator}: must be HOST:PORT, like 10.0.0.1:1234",
  )
  check(
    0 <= process < processes,
    f"--process={process}: must be from 0 to {processes - 1}, below"
    f" --processes={processes}",
  )


def _connect(
  coordinator: str | None,
  processes: int | None,
  process: int | None,
  seconds: int,
) -> None:
  """Makes this process one of several."""
  global _count, _index
  import jax

  # The preemption service would keep SIGTERM to itself.
  jax.config.update("jax_enable_preemption_service", False)
  try:
    jax.distributed.initialize(
      coordinator,
      processes,
      process,
      initialization_timeout=seconds,
      heartbeat_timeout_seconds=HEARTBEAT,
    )
  except ValueError as error:
    raise UsageError(
      "--multihost: no TPU slice and no SLURM here that names the hosts: name"
      " --coordinator, --processes and --process"
    ) from error
  except RuntimeError as error:
    reason = str(error).splitlines()[0]
    raise UsageError(f"--coordinator={coordinator}: {reason}") from error
  _count, _index = jax.process_count(), jax.process_index()
  if not is_primary():
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115


class _End:
  """An _End ends this process with `line` if another process ends.

  JAX's runtime aborts the process then, after pages on standard error. Those go
  to a file, and the line is printed before the end. (Its callback for this
  takes no Python function: jaxlib 0.10.)
  """

  def __init__(self, line: str):
    self.line = line
    number, self.log = tempfile.mkstemp(".log", "lengthgen_process_")
    self._standard_error = os.dup(2)
    sys.stdout.flush(), sys.stderr.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    os.dup2(number, 1), os.dup2(number, 2)
    self._handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda _: self.lost())
    ctypes.CDLL(None).signal(signal.SIGABRT, self._handler)

  def of(self, error: BaseException) -> None:
    """Ends this process because of an error; the others hear of it."""
    if isinstance(error, KeyboardInterrupt):
      os._exit(130)
    message = out_of_memory(error) or str(error)
    if isinstance(error, UsageError):
      if is_multihost() and is_primary():
        time.sleep(2)  # let the others report it too
    elif not out_of_memory(error):
      message = "".join(traceback.format_exception(error))
      # The runtime's errors, of whatever class, begin like "UNKNOWN: ...".
      if re.match("[A-Z_]+: ", str(error)):
        os.write(2, message.encode())
        self.lost()
    os.unlink(self.log)
    self._say(message)

  def lost(self) -> None:
    """Ends this process because another one has ended."""
    bar = "\n" if is_multihost() and is_primary() else ""
    self._say(f"{self.line} (log: {self.log})", bar)

  def _say(self, line: str, before: str = "") -> None:
    """Ends this process with a line, without the runtime's shutdown.

    The shutdown would wait for the other processes.
    """
    os.write(self._standard_error, f"{before}lengthgen: {line}\n".encode())
    os._exit(1)
