"""Several hosts run one program: which process this is, and where they meet.

Every host runs the same program and the same compiled functions in the same
order, each on its part of the arrays. They share the workdir's file system. The
first one alone prints, but for the line with which a process ends, and writes
files, but for the arrays of checkpoints; what it writes, the others read.
"""

import contextlib
import ctypes
import os
import re
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from typing import NoReturn

from lengthgen_jax.errors import Interrupted, UsageError, check, exhausted

HEARTBEAT = 30  # seconds without a sign of life after which a process is lost
LOST = (
  f"another process ended, or gave no sign of life for {HEARTBEAT} s; the same"
  " command on all hosts goes on from what is saved"
)

# Whether this process is one of several. While it is not, JAX is not asked how
# many processes there are, because that would start its devices.
_is_connected = False


def is_multihost() -> bool:
  """Returns whether the program runs in more than one process."""
  if not _is_connected:
    return False
  import jax

  return jax.process_count() > 1


def is_primary() -> bool:
  """Returns whether this is the process that writes and prints."""
  if not _is_connected:
    return True
  import jax

  return jax.process_index() == 0


def barrier(name: str) -> None:
  """Waits until every process has reached the barrier of this name, so that
  what the first one wrote before it is complete; nothing in a single process.
  """
  if is_multihost():
    from jax.experimental import multihost_utils

    multihost_utils.sync_global_devices(name)


@contextlib.contextmanager
def multihost_context(
  coordinator: str | None,
  processes: int | None,
  process: int | None,
  connect_timeout: int,
) -> Iterator[None]:
  """Makes this process one of several; it stays one after the context.

  If another one ends, this one ends too, with a message of one line and exit
  code 1. An error of its own, inside the context or while connecting, also ends
  it with exit code 1, and its traceback is printed unless it is a UsageError,
  one of too little memory or one of JAX's runtime. KeyboardInterrupt ends it
  with exit code 130 and no message. No error but Interrupted leaves the
  context.

  Args:
    coordinator: HOST:PORT of the first process; None where a TPU slice or SLURM
      knows this and the next two.
    processes: their number.
    process: the index of this one, from 0.
    connect_timeout: seconds to wait for the others.

  Raises:
    UsageError: some of the three are missing, or a value is impossible.
    Interrupted: all processes were interrupted.
  """
  _check_flags(coordinator, processes, process)
  address = f"--coordinator={coordinator}" if coordinator else "the coordinator"
  ending = _Ending(
    f"{address} did not answer within {connect_timeout} s, or not all processes"
    " came (--connect_timeout)"
  )
  try:
    _connect(coordinator, processes, process, connect_timeout)
    ending.message = LOST
    if is_multihost() and is_primary():
      ending.prefix = "\n"  # below the progress bar
    interruption = None
    try:
      yield
    except Interrupted as error:  # in all processes, at the same step
      interruption = error
    barrier("end")
  except BaseException as error:
    ending.exit_for_error(error)
  ending.close()
  if interruption is not None:
    raise interruption


def _check_flags(
  coordinator: str | None, processes: int | None, process: int | None
) -> None:
  """Raises UsageError for flags that are incomplete or impossible."""
  if coordinator is None and processes is None and process is None:
    return
  if coordinator is None or processes is None or process is None:
    raise UsageError(
      "--coordinator, --processes and --process go together: name all three, or"
      " none on a TPU slice or under SLURM"
    )
  host, _, port = coordinator.rpartition(":")
  check(
    host and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16,
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
  connect_timeout: int,
) -> None:
  """Connects this process to the others; the standard output of all but the
  first is discarded.

  Raises:
    UsageError: without flags, JAX finds no TPU slice or SLURM job that names
      the hosts; the port of the first process is taken; or JAX was started or
      connected before. If the others are silent or refuse the connection, JAX
      ends this process instead, and `_Ending` prints one line that says so.
  """
  global _is_connected
  import jax

  if coordinator and process == 0:
    # On a port that is taken, JAX would end with a segmentation fault.
    try:
      with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", int(coordinator.rpartition(":")[2])))
    except OSError as error:
      raise UsageError(
        f"--coordinator={coordinator}: {error.strerror} on this host; choose"
        " another port"
      ) from error
  # The preemption service would keep SIGTERM to itself.
  jax.config.update("jax_enable_preemption_service", False)
  try:
    jax.distributed.initialize(
      coordinator,
      processes,
      process,
      initialization_timeout=connect_timeout,
      heartbeat_timeout_seconds=HEARTBEAT,
    )
  except ValueError as error:
    raise UsageError(
      "--multihost: no TPU slice and no SLURM here that names the hosts: name"
      " --coordinator, --processes and --process"
    ) from error
  except RuntimeError as error:
    reason = str(error).splitlines()[0]
    address = f"--coordinator={coordinator}" if coordinator else "--multihost"
    raise UsageError(f"{address}: {reason}") from error
  _is_connected = True
  if not is_primary():
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115


class _Ending:
  """An _Ending prints one line when this process ends because another has.

  JAX's runtime aborts this process then, after pages on standard error. What is
  not Python's output goes to a log file instead, and the line is printed by a
  handler of SIGABRT. (JAX's own callback takes no Python function: jaxlib
  0.10.)

  Attributes:
    message: what the line says.
    prefix: what is printed before the line.
    log: the path of the log file.
  """

  def __init__(self, message: str):
    self.message, self.prefix = message, ""
    log_descriptor, self.log = tempfile.mkstemp(".log", "lengthgen_process_")
    self._standard_error = os.dup(2)
    sys.stdout.flush()
    sys.stderr.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    os.dup2(log_descriptor, 1)
    os.dup2(log_descriptor, 2)
    abort = lambda signal_number: self.exit_lost()
    self._handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(abort)
    ctypes.CDLL(None).signal(signal.SIGABRT, self._handler)

  def close(self) -> None:
    """Deletes the log file, and leaves SIGABRT to the system again."""
    ctypes.CDLL(None).signal(signal.SIGABRT, None)
    os.unlink(self.log)

  def exit_for_error(self, error: BaseException) -> NoReturn:
    """Ends this process because of an exception in it, which may be that of the
    runtime about the end of another process."""
    if isinstance(error, KeyboardInterrupt):
      os.unlink(self.log)
      os._exit(130)
    message = exhausted(error) or str(error)
    if isinstance(error, UsageError):
      if is_multihost() and is_primary():
        time.sleep(2)  # let the others report it too
    elif not exhausted(error):
      message = "".join(traceback.format_exception(error))
      # The runtime's errors, of whatever class, begin like "UNKNOWN: ...".
      if re.match("[A-Z_]+: ", str(error)):
        os.write(2, message.encode())
        self.exit_lost()
    os.unlink(self.log)
    self._exit(f"lengthgen: {message}\n")

  def exit_lost(self) -> NoReturn:
    """Ends this process because another one has ended."""
    self._exit(f"{self.prefix}lengthgen: {self.message} (log: {self.log})\n")

  def _exit(self, text: str) -> NoReturn:
    """Prints a text and ends this process without the runtime's shutdown, which
    would wait for the other processes."""
    os.write(self._standard_error, text.encode())
    os._exit(1)
