"""The flags of a run on several hosts, and what they do."""

import contextlib

from absl import flags

from lengthgen_jax import hosts
from lengthgen_jax.errors import check

_MULTIHOST = flags.DEFINE_bool(
  "multihost",
  False,
  "Run as one of several processes, on a TPU slice or under SLURM; elsewhere"
  " name --coordinator, --processes and --process too.",
)
_COORDINATOR = flags.DEFINE_string(
  "coordinator", None, "multihost: HOST:PORT of the first process."
)
_PROCESSES = flags.DEFINE_integer(
  "processes", None, "multihost: how many there are.", lower_bound=1
)
_PROCESS = flags.DEFINE_integer(
  "process", None, "multihost: which one this is, from 0."
)
_CONNECT = flags.DEFINE_integer(
  "connect_timeout", 300, "multihost: seconds to wait for all.", lower_bound=1
)
FLAGS = ("multihost", "coordinator", "processes", "process", "connect_timeout")
MODES = ("train", "abc", "evaluate", "calibrate", "certify")


def multihost_context(mode: str) -> contextlib.AbstractContextManager:
  """Returns a context in which this process is one of several, if flags say so.

  Args:
    mode: The value of --mode.

  Raises:
    UsageError: A flag is missing, is one too many, or has an impossible value.
  """
  settings = _COORDINATOR.value, _PROCESSES.value, _PROCESS.value
  if not _MULTIHOST.value:
    is_given = [value is not None for value in settings]
    check(
      not any(is_given),
      "--coordinator, --processes and --process are for --multihost",
    )
    return contextlib.nullcontext()
  check(mode in MODES, f"--multihost is for --mode: {', '.join(MODES)}")
  return hosts.multihost_context(*settings, _CONNECT.value)
