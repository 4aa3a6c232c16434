"""Users add tasks, hints, position encodings, biases, temperatures,
normalizers, optimizers and probes from files of their own: a config file, or a
module that it imports.

Registered things work wherever the built-in ones do: in configs, training,
predictions, probes and reports, and in certificates, but for position
encodings, temperatures and normalizers. A workdir remembers the files that
registered what it was trained with, and runs them again when it is read
(docs/extending.md).

Every function returns what it registers. It raises UsageError for a name that
is no identifier, or that the package or another file has registered, and for a
thing of another type, or without required attributes or parameters.
"""

from lengthgen_jax.attention.biases import BIASES
from lengthgen_jax.attention.normalizers import NORMALIZERS
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.attention.temperature import TEMPERATURES
from lengthgen_jax.errors import check, check_choice
from lengthgen_jax.probes.registry import PROBES
from lengthgen_jax.registry import Registry
from lengthgen_jax.tasks import HINTS, TASKS, check_task
from lengthgen_jax.tasks.dataset import RESTRICTED
from lengthgen_jax.tasks.task import Task
from lengthgen_jax.training.optimizer import OPTIMIZERS


def task(task_class: type[Task]) -> type[Task]:
  """Registers a task under its attribute `name`; usable as a decorator."""
  return TASKS.register(getattr(task_class, "name", ""), task_class)


def hint(main: str, name: str, task_class: type[Task]) -> type[Task]:
  """Registers a hint, an auxiliary task with the tokens of the registered task
  `main`, for config.hints=(name,)."""
  check_choice("register: hint of", main, TASKS)
  check(
    name != RESTRICTED,
    f"register: hint of {main} {name!r} is that of random restrictions, of"
    " every task that says what an output depends on; choose another name",
  )
  if main not in HINTS:
    HINTS[main] = Registry(f"hint of {main}", {}, check_task)
  return HINTS[main].register(name, task_class)


# Each of the others takes a name and what is registered under it.
position_encoding = POSITIONS.register  # a subclass of PositionEncoding
# A function of the config's section `bias` and a ScaffoldSpec (what the model
# and the task require), which returns the scaffold: {attention site: SiteLines
# or SiteMatrix}, with a leading axis of seeds, or of 1 if all share it.
bias = BIASES.register
temperature = TEMPERATURES.register  # a Temperature: a factor on scores
# A Normalizer, which turns attention logits (temperature times scores plus
# bias) into weights.
normalizer = NORMALIZERS.register
optimizer = OPTIMIZERS.register  # an Optimizer
probe = PROBES.register  # a Probe, by the metric that its result rows have
