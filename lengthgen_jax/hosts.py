"""Several hosts run one program: which process this is, and where they meet.

Every host runs the same program and the same compiled functions in the same
order, each on its part of the arrays. They share the workdir's file system. The
first one alone prints and writes files, but for the arrays of checkpoints; what
it writes, the others read. If a process is lost, JAX ends the others.
"""

import os
import re
import sys

from tqdm import tqdm

from lengthgen_jax.errors import UsageError, check, user_errors


def is_primary() -> bool:
  """Returns whether this is the process that writes and prints; of a single one
  no device is started."""
  import jax

  return not jax.distributed.is_initialized() or jax.process_index() == 0


def print_note(line: str) -> None:
  """Prints a line on the first host's standard error, above a progress bar."""
  if is_primary():
    tqdm.write(line, file=sys.stderr)


def barrier(name: str) -> None:
  """Waits until every process is at the barrier of this name, so that what the
  first one wrote before it is complete."""
  from jax.experimental import multihost_utils

  multihost_utils.sync_global_devices(name)


def any_host(flag: bool) -> bool:
  """Returns whether any process has the flag set; all must call it."""
  from jax.experimental import multihost_utils

  return bool(multihost_utils.process_allgather(flag).any())


def connect(
  coordinator: str | None, processes: int | None, process: int | None
) -> None:
  """Makes this process one of several; the standard output of all but the first
  is discarded.

  `coordinator` is HOST:PORT of the first process, and `process` the index of
  this one, from 0; with the number of processes they are None where a TPU slice
  or SLURM knows them. After 300 seconds without the others JAX ends all.
  """
  if (coordinator, processes, process) != (None, None, None):
    if coordinator is None or processes is None or process is None:
      raise UsageError(
        "--coordinator, --processes and --process go together: name all three,"
        " or none on a TPU slice or under SLURM"
      )
    check(
      re.fullmatch(r".+:0*[1-9]\d{0,4}", coordinator),
      f"--coordinator={coordinator}: must be HOST:PORT, like 10.0.0.1:1234",
    )
    check(
      0 <= process < processes,
      f"--process={process}: must be from 0 to {processes - 1}, below"
      f" --processes={processes}",
    )
  import jax

  # The preemption service would keep SIGTERM to itself.
  jax.config.update("jax_enable_preemption_service", False)
  with user_errors(
    f"--multihost, --coordinator={coordinator} (where no TPU slice or SLURM"
    " names the hosts, name --coordinator, --processes and --process)"
  ):
    jax.distributed.initialize(coordinator, processes, process)
  if not is_primary():
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
