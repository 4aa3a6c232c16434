"""Trains, evaluates and queries transformers that generalize to longer inputs.

Examples:

  lengthgen --config=configs/quickstart.py --mode=abc --workdir=runs/quickstart
  lengthgen --config=configs/arithmetic.py:parity,window_cpi --workdir=runs/p \\
    '--config.seeds=(0,1,2)'
  lengthgen --mode=evaluate --workdir=runs/p '--config.eval.lengths=(6,100)'
  echo 123+456 | lengthgen --mode=predict --workdir=runs/quickstart
  echo 123+456 | lengthgen --mode=predict --model=addition
"""

import contextlib
import importlib
import io
import pathlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

from absl import app, flags, logging
from ml_collections import ConfigDict

from lengthgen_jax import hosts, stopwatch
from lengthgen_jax.errors import (
  Interrupted,
  UsageError,
  check,
  local_path,
  machine_error,
  workdir_path,
)


class Mode(NamedTuple):
  """A mode is a module of pipelines/, which is imported when it is run, so that
  --help does not wait for JAX."""

  text: str  # what it does
  # it writes in the workdir, and ends with a line of where the time went
  writes: bool = False
  takes_model: bool = False  # --model is for it
  takes_hosts: bool = False  # --multihost is for it
  flags: tuple[str, ...] = ()  # which are for it alone


MODES = {
  "train": Mode("train, then evaluate", writes=True, takes_hosts=True),
  "abc": Mode(
    "interpolate, calibrate, retrain, prune, certify, evaluate",
    writes=True,
    takes_hosts=True,
  ),
  "evaluate": Mode(
    "test a trained workdir", writes=True, takes_model=True, takes_hosts=True
  ),
  "predict": Mode(
    "answer the inputs on standard input, one a line",
    takes_model=True,
    flags=("input",),
  ),
  "calibrate": Mode(
    "write the bias that a trained workdir's attention shows",
    writes=True,
    takes_hosts=True,
  ),
  "certify": Mode(
    "prove that a trained workdir is right at every length, or find inputs"
    " where it is not",
    writes=True,
    takes_model=True,
    takes_hosts=True,
  ),
  "probe": Mode(
    "look inside a trained workdir: attention, projections, what is necessary;"
    " rows and figures",
    writes=True,
    takes_model=True,
  ),
  "bench": Mode("time this program on this device", writes=True),
  "report": Mode(
    "tables, figures and a page of all results below --workdir",
    takes_model=True,
  ),
  "config": Mode("print all fields of both stages"),
  "models": Mode("list the trained models that come with the package"),
  "export": Mode(
    "write a trained model of a workdir to --export_to",
    flags=("export_to", "seed"),
  ),
}

_CONFIG = flags.DEFINE_string(
  "config",
  None,
  "Config file, with a preset after a colon: configs/arithmetic.py:addition,"
  "window_cpi. Change fields with --config.field=value. May be left out if"
  " --workdir has been trained.",
)
_WORKDIR = flags.DEFINE_string(
  "workdir", None, "Folder of the run: checkpoints, results, figures."
)
_MODEL = flags.DEFINE_string(
  "model",
  None,
  "A trained model in place of a trained workdir: one that --mode=models lists,"
  " or FOLDER/NAME of an exported one. Results go to --workdir, by default"
  " ./NAME.",
)
_MODE = flags.DEFINE_enum(
  "mode",
  "train",
  list(MODES),
  "; ".join(f"{name}: {mode.text}" for name, mode in MODES.items()) + ".",
)
flags.DEFINE_string(
  "input",
  None,
  "predict: a file of inputs, one a line, instead of standard input.",
)
flags.DEFINE_string(
  "export_to", None, "export: FOLDER/NAME of the files NAME.npz and NAME.json."
)
flags.DEFINE_integer(
  "seed",
  None,
  "export: which seed; by default the one that is proved with the largest"
  " margin; if none is proved, the best by validation.",
)
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


def run() -> None:
  """Runs the program `lengthgen`."""
  for stream in sys.stdout, sys.stderr:
    if isinstance(stream, io.TextIOWrapper):  # it is None where it is closed
      stream.reconfigure(errors="replace")  # of signs that it cannot show
  # --help shows the flags and the docstring of the script that was started.
  for flag in flags.FLAGS.get_flags_for_module(__name__):
    flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
  sys.modules["__main__"].__doc__ = __doc__
  app.run(main, flags_parser=parse_flags)


def parse_flags(argv: list[str]) -> list[str]:
  """Parses the command line; returns the program's name, and "field=value" for
  every config field that is set. A wrong one ends the program with one line and
  exit code 2."""
  try:
    flags.FLAGS.set_gnu_getopt()  # flags may stand behind other words
    _, *words = flags.FLAGS(argv, known_only=True)
    assignments, words = split_assignments(words)
    # Words that remain are wrong, and absl knows which flags are like them.
    _, *words = flags.FLAGS([argv[0], *words])
    check(not words, f"{' '.join(words)!r} is no flag: see --help")
    return [argv[0], *assignments]
  except (flags.Error, ValueError) as error:
    fail(str(error).splitlines()[0], 2)


def split_assignments(words: list[str]) -> tuple[list[str], list[str]]:
  """Splits the words of a command line into "field=value" for each config field
  that is set, and all other words.

  A field is set by --config.field=value, --config.field value, and, if it is a
  switch, --config.field or --noconfig.field; the last value counts.
  """
  values, others, words = {}, [], [*words]
  while words:
    word = words.pop(0)
    name, equals, value = word.partition("=")
    match = re.fullmatch(r"--?(no)?config\.(.+)", name)
    if not match or match[1] and equals:
      others.append(word)
      continue
    if match[1]:
      value = "false"
    elif not equals:
      is_switch = not words or re.match(r"-[^\d.]", words[0])
      value = "true" if is_switch else words.pop(0)
    values[match[2]] = value
  return [f"{field}={value}" for field, value in values.items()], others


def fail(message: str, code: int) -> NoReturn:
  """Prints one line on standard error, and exits."""
  print(f"lengthgen: {message}", file=sys.stderr)
  sys.exit(code)


def main(argv: list[str]) -> None:
  """Runs the mode that the flags name, and exits the program.

  The exit code is that of the mode (1 if --mode=predict has no answer to some
  input, else 0); 1 after an error; 143 where SIGTERM or a first Ctrl-C made a
  training save and stop; and 130 after any other Ctrl-C.
  """
  logging.set_verbosity(logging.FATAL)  # hides the notes of libraries
  try:
    config, mode = chosen_config(argv[1:]), MODES[_MODE.value]
    with prepared(_MODE.value, config) as arguments:
      exit_code = mode_function(_MODE.value)(*arguments)
    if mode.writes and hosts.is_primary():
      print(stopwatch.line())
    sys.exit(exit_code)
  except UsageError as error:
    fail(str(error), 1)
  except Interrupted as stop:
    print(stop, file=sys.stderr)
    sys.exit(143)  # the exit code of a process that SIGTERM ended
  except BrokenPipeError:
    sys.exit(1)
  except KeyboardInterrupt:  # training saves at a first one
    sys.exit(130)
  except Exception as error:
    if line := machine_error(error):
      fail(line, 1)
    raise


def _workdir() -> pathlib.Path | None:
  path = _WORKDIR.value
  return workdir_path("--workdir", path) if path else None


def chosen_config(assignments: list[str]) -> ConfigDict | None:
  """Returns the config of --model, of --config, or that is saved in the
  workdir, after the command line's assignments "field=value"; None if there is
  none."""
  model, spec, workdir = _MODEL.value, _CONFIG.value, _workdir()
  check(model != "", "--model is empty: see --mode=models")
  check(
    model is None or spec is None,
    "--model has a config of its own: leave --config out",
  )
  from lengthgen_jax.config import files
  from lengthgen_jax.pretrained import files as pretrained

  if model is not None:
    if model.startswith("~"):
      model = str(local_path("--model", model))
    preset = pretrained.get_config(model)
  elif spec is not None:
    preset = files.load_config(spec)
  else:
    # A report needs none, and can be of runs of other versions.
    has_config = workdir and _MODE.value != "report"
    preset = files.saved_config(workdir) if has_config else None
  if preset is None:
    check(
      not assignments,
      "--config.field=... needs --config=FILE (or --model, or a trained"
      " --workdir)",
    )
    return None
  return files.with_assignments(preset, assignments)


@contextlib.contextmanager
def prepared(name: str, config: ConfigDict | None) -> Iterator[tuple]:
  """Prepares the workdir and the devices for a mode, and yields the arguments
  of its function; a workdir in which it writes is locked meanwhile."""
  mode, workdir = MODES[name], _workdir()
  values = flags.FLAGS.flag_values_dict()
  for other_name, other in MODES.items():
    for flag in set(other.flags) - set(mode.flags):
      check(values[flag] is None, f"--{flag} is for --mode={other_name}")
  if name == "models":
    yield ()
    return
  if name == "config":
    check(config is not None, "--config is missing")
    yield (config,)
    return
  model = config.pretrained if config is not None else ""
  folder = workdir or pathlib.Path(pathlib.Path(model).name)
  check(
    workdir or model,
    "--workdir is missing: name the folder of the run"
    " (or a trained model of the package: --model)",
  )
  check(
    config is not None or name == "report",
    f"--config is missing and {folder} has no config.json: name a config file"
    " like configs/quickstart.py, or a trained workdir",
  )
  check(
    not model or mode.takes_model,
    f"--model={model} is trained already: choose --mode="
    f"{_names('takes_model')}, or another workdir",
  )
  if name == "train" and config is not None:
    from lengthgen_jax.config import default_config

    one_stage = default_config().retrain
    check(
      config.retrain.to_dict() == one_stage.to_dict(),
      "this config says what ABC's second stage is like (config.retrain), and"
      " --mode=train has one stage: choose --mode=abc",
    )
  connect_hosts(mode)
  with contextlib.ExitStack() as stack:
    if config is not None and name != "report":
      from lengthgen_jax import compilation

      compilation.set_cache(config.compile_cache)
      start_devices()
    if config is not None:
      from lengthgen_jax.pipelines import workdir as workdirs

      if model and mode.writes:
        workdirs.open_workdir(config, folder, name)
      elif model and workdir:
        workdirs.is_of(config, folder)
      if mode.writes:
        stack.enter_context(workdirs.lock(folder))
    yield config, folder, *(values[flag] for flag in mode.flags)


def _names(trait: str) -> str:
  """Returns the names of the modes that have a trait, like "writes"."""
  return ", ".join(name for name in MODES if getattr(MODES[name], trait))


def mode_function(name: str) -> Callable[..., int]:
  return importlib.import_module(f"lengthgen_jax.pipelines.{name}").run


def start_devices() -> None:
  """Starts JAX's devices, so that a wrong JAX_PLATFORMS is found before any
  work."""
  import jax

  try:
    jax.devices()
  except (AssertionError, RuntimeError) as error:  # by the kind of device
    platforms = jax.config.values["jax_platforms"] or ""
    reason = str(error).partition("\n")[0] or "JAX has none"
    raise UsageError(
      f"JAX_PLATFORMS={platforms}: no such device here ({reason}); GPUs need"
      " jax[cuda12], TPUs jax[tpu]"
    ) from error


def connect_hosts(mode: Mode) -> None:
  """Connects this process to others under --multihost."""
  cluster = _COORDINATOR.value, _PROCESSES.value, _PROCESS.value
  if not _MULTIHOST.value:
    check(
      cluster == (None, None, None),
      "--coordinator, --processes and --process are for --multihost",
    )
    return
  check(mode.takes_hosts, f"--multihost is for --mode: {_names('takes_hosts')}")
  hosts.connect(*cluster)
