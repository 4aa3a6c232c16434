"""Trains, evaluates and queries transformers that generalize to longer inputs.

Examples:

  lengthgen --config=configs/quickstart.py --mode=abc --workdir=runs/quickstart
  lengthgen --config=configs/arithmetic.py:parity,window_cpi --workdir=runs/p \\
    '--config.seeds=(0,1,2)'
  lengthgen --mode=evaluate --workdir=runs/p '--config.eval.lengths=(6,100)'
  echo 123+456 | lengthgen --mode=predict --workdir=runs/quickstart
  echo 123+456 | lengthgen --mode=predict --model=addition
"""

import argparse
import contextlib
import importlib
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from lengthgen_jax import hosts, stopwatch
from lengthgen_jax.errors import Interrupted, UsageError, check, out_of_memory

# Each mode is a module of pipelines/, but "bench" is one of benchmark/. It is
# imported when it is run, so that --help does not wait for JAX.
MODES = {
  "train": "train, then evaluate",
  "abc": "interpolate, calibrate, retrain, certify, evaluate",
  "evaluate": "test a trained workdir",
  "predict": "answer the inputs on standard input, one a line",
  "calibrate": "write the bias that a trained workdir's attention shows",
  "certify": "prove that a trained workdir is right at every length, or find"
  " inputs where it is not",
  "probe": "look inside a trained workdir: attention, projections, what is"
  " necessary; rows and figures",
  "bench": "time this program on this device",
  "report": "tables, figures and a page of all results below --workdir",
  "models": "list the trained models that come with the package",
  "export": "write a trained model of a workdir to --export_to",
}

_CONFIG = config_flags.DEFINE_config_file(
  "config",
  None,
  "Config file, with a preset after a colon: configs/arithmetic.py:addition,"
  "window_cpi. Change fields with --config.field=value. May be left out if"
  " --workdir has been trained.",
  lock_config=True,
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
  "; ".join(f"{mode}: {text}" for mode, text in MODES.items()) + ".",
)
_INPUT = flags.DEFINE_string(
  "input",
  None,
  "predict: a file of inputs, one a line, instead of standard input.",
)
_EXPORT_TO = flags.DEFINE_string(
  "export_to", None, "export: FOLDER/NAME of the files NAME.npz and NAME.json."
)
_SEED = flags.DEFINE_integer(
  "seed",
  None,
  "export: which seed; by default one that most checkers proved, of these the"
  " one with the largest margin; if none is proved, the best by validation.",
)
_METRIC = flags.DEFINE_enum(
  "metric", None, ("em", "edit"), "report: show this metric alone."
)
_TASKS = flags.DEFINE_list("tasks", None, "report: show these tasks alone.")
_LENGTHS = flags.DEFINE_list(
  "lengths", None, "report: show these lengths alone."
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
_CONNECT_TIMEOUT = flags.DEFINE_integer(
  "connect_timeout",
  300,
  "multihost: seconds to wait for all processes.",
  lower_bound=1,
)
# Modes that end with a line of where the time went.
TIMED_MODES = ("train", "abc", "evaluate", "calibrate", "certify", "probe")
# Modes that --model is for.
PRETRAINED_MODES = ("evaluate", "predict", "certify", "probe", "report")
# Modes that --multihost is for.
MULTIHOST_MODES = ("train", "abc", "evaluate", "calibrate", "certify")


def run() -> None:
  """Runs the program `lengthgen`."""
  # --help shows the flags and the docstring of the script that was started.
  for flag in flags.FLAGS.get_flags_for_module(__name__):
    flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
  sys.modules["__main__"].__doc__ = __doc__
  app.run(main, flags_parser=parse_flags)


def parse_flags(argv: list[str]) -> list[str]:
  """Parses the command line.

  If it is wrong, the program ends with one line and exit code 2. (A --flagfile
  that cannot be opened fails before, when this module is imported.)

  Args:
    argv: the program's name and its arguments.

  Returns:
    The arguments that are no flags: the program's name alone.
  """
  try:
    # config_flags looks for overrides in sys.argv, not in its argument.
    sys.argv = move_config_first(argv)
    arguments = flags.FLAGS(sys.argv)
    check(
      len(arguments) == 1,
      f"{' '.join(arguments[1:])!r} is no flag: see --help",
    )
    return arguments
  except Exception as error:
    fail(_one_line(error), 2)


def _one_line(error: Exception) -> str:
  """Returns the first line of an error's message, after the name of its class
  unless the message is meant for users."""
  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  if isinstance(error, UsageError | flags.Error | ValueError):
    return lines[0] if lines else repr(error)
  return f"{type(error).__name__}: {lines[0] if lines else ''}"


def fail(message: str, code: int) -> NoReturn:
  """Prints a message of one line on standard error, and exits with a code."""
  print(f"lengthgen: {message}", file=sys.stderr)
  sys.exit(code)


def move_config_first(argv: list[str]) -> list[str]:
  """Returns the command line with --config before the overrides of its fields,
  as config_flags needs it.

  If it has no --config, the config of --model or the one that is saved in the
  workdir is put there.

  Args:
    argv: the program's name and its arguments.

  Raises:
    UsageError: --model is empty or beside --config, there is no config for the
      overrides, its file does not exist, or an override is of an unknown field.
    Exception: whatever the config file raises if its preset is wrong.
  """
  parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
  names = ("config", "model", "workdir")
  for name in names:
    parser.add_argument(f"--{name}", nargs="?", const="")
  # Like absl, it takes one dash as well as two.
  single_dash = re.compile(f"-({'|'.join(names)})(=|$)")
  options, other_arguments = parser.parse_known_args(
    [f"-{word}" if single_dash.match(word) else word for word in argv[1:]]
  )
  saved_path = pathlib.Path(options.workdir or "", "config.json")
  package = pathlib.Path(__file__).parent
  if options.model is not None:
    check(options.model, "--model is empty: see --mode=models")
    check(
      options.config is None,
      "--model has a config of its own: leave --config out",
    )
    options.config = f"{package / 'pretrained' / 'files.py'}:{options.model}"
  if options.config is None and options.workdir and saved_path.is_file():
    options.config = f"{package / 'config' / 'files.py'}:{saved_path}"
  overrides = [
    argument.lstrip("-").partition("=")[0].removeprefix("config.")
    for argument in other_arguments
    if argument.startswith(("--config.", "-config."))
  ]
  check(
    options.config or not overrides,
    "--config.field=... needs --config=FILE (or --model, or a trained"
    " --workdir)",
  )
  if options.config is not None:
    from lengthgen_jax.config import files

    files.check_overrides(options.config, overrides)
  leading_flags = [
    f"--{name}={value}"
    for name, value in vars(options).items()
    if value is not None
  ]
  return [argv[0], *leading_flags, *other_arguments]


def main(argv: list[str]) -> None:
  """Runs the mode that the flags name, and exits the program.

  The exit code is that of the mode (1 if --mode=predict has no answer to some
  input, else 0); 1 after an error; 143 where SIGTERM or a first Ctrl-C made a
  training or certification save and stop; and 130 after any other Ctrl-C.

  Args:
    argv: what `parse_flags` returned; it is not used.
  """
  del argv
  logging.set_verbosity(logging.ERROR)  # hides the notes of libraries
  try:
    sys.exit(dispatch(_MODE.value, chosen_config(), _WORKDIR.value))
  except UsageError as error:
    fail(str(error), 1)
  except Interrupted as stop:
    print(stop, file=sys.stderr)
    sys.exit(143)  # the exit code of a process that SIGTERM ended
  except BrokenPipeError:
    sys.exit(1)
  except KeyboardInterrupt:  # training and certification save at a first one
    sys.exit(130)
  except Exception as error:
    if line := out_of_memory(error):
      fail(line, 1)
    raise


def chosen_config() -> ConfigDict | None:
  """Returns the config with the command line's changes; None if there is none.

  Its field `overrides` lists the changes that results show beside the method:
  those of the command line, and those that a saved config lists already.

  Raises:
    UsageError: a field was changed that has no effect with the other fields, or
      that the program fills in; or a field that decides whether another one has
      an effect, like positions.kind, is not valid.
  """
  config = _CONFIG.value
  if config is not None:
    from lengthgen_jax.config import files

    flag: Any = flags.FLAGS["config"]  # absl's type knows no config_filename
    files.name_overrides(config, flag.config_filename)
  return config


def dispatch(mode: str, config: ConfigDict | None, workdir: str | None) -> int:
  """Runs one mode; returns the exit code.

  Args:
    mode: one of MODES.
    config: the config; None if neither the command line names one nor the
      workdir has one.
    workdir: the value of --workdir; None if the command line lacks it.

  Raises:
    UsageError: a flag is missing, invalid or for another mode; the workdir
      holds something else than the model's results; or the mode raised it.
  """
  check_flags(mode)
  if mode == "models":
    return mode_function(mode)()
  model = config.pretrained if config is not None else ""
  has_workdir = bool(workdir)
  workdir = workdir or pathlib.Path(model).name
  check(
    workdir,
    "--workdir is missing: name the folder of the run"
    " (or a trained model of the package: --model)",
  )
  check(
    config is not None or mode == "report",
    f"--config is missing and {workdir} has no config.json: name a config file"
    " like configs/quickstart.py, or a trained workdir",
  )
  folder = pathlib.Path(workdir)
  if config is not None:
    from lengthgen_jax import compilation

    compilation.set_cache(config.compile_cache)
    if model:
      open_pretrained(mode, config, folder, has_workdir)
  extra_arguments = {
    "predict": (_INPUT.value,),
    "export": (_EXPORT_TO.value, _SEED.value),
    "report": (_METRIC.value, _TASKS.value or (), _LENGTHS.value or ()),
  }
  stopwatch.watch_compilation()
  with multihost_context(mode):
    arguments = config, folder, *extra_arguments.get(mode, ())
    exit_code = mode_function(mode)(*arguments)
  if mode in TIMED_MODES and hosts.is_primary():
    print(stopwatch.STOPWATCH.line())
  return exit_code


def mode_function(mode: str) -> Callable[..., int]:
  """Returns the function `run` of a mode, which returns the exit code."""
  package = "benchmark" if mode == "bench" else "pipelines"
  return importlib.import_module(f"lengthgen_jax.{package}.{mode}").run


def check_flags(mode: str) -> None:
  """Raises UsageError if a flag is for another mode, or --export_to is missing.
  Other flags are checked where they are used."""
  for flag, only_mode in (
    (_INPUT, "predict"),
    (_EXPORT_TO, "export"),
    (_SEED, "export"),
    (_METRIC, "report"),
    (_TASKS, "report"),
    (_LENGTHS, "report"),
  ):
    check(
      flag.value is None or mode == only_mode,
      f"--{flag.name} is for --mode={only_mode}",
    )
  check(
    mode != "export" or _EXPORT_TO.value,
    "--export_to is missing: name FOLDER/NAME of the files",
  )


def open_pretrained(
  mode: str, config: ConfigDict, folder: pathlib.Path, has_workdir: bool
) -> None:
  """Checks that a mode can use a pretrained model, and prepares the workdir for
  what the mode writes.

  Args:
    mode: one of MODES.
    config: the config of the model.
    folder: the workdir.
    has_workdir: whether the command line names the workdir.

  Raises:
    UsageError: the mode cannot, or the workdir holds something else.
  """
  check(
    mode in PRETRAINED_MODES,
    f"--model={config.pretrained} is trained already: choose --mode="
    f"{', '.join(PRETRAINED_MODES)}, or another workdir",
  )
  from lengthgen_jax.pipelines import workdir

  if mode not in ("predict", "report"):  # these two write no rows
    workdir.open_pretrained(config, folder)
  elif has_workdir:
    workdir.check_usable(folder, config.pretrained)


def multihost_context(mode: str) -> contextlib.AbstractContextManager:
  """Returns a context that connects this process to others under --multihost,
  and does nothing without it.

  Args:
    mode: one of MODES.

  Raises:
    UsageError: a flag must not be set; or, when the context is entered, one is
      missing or has an invalid value.
  """
  cluster = _COORDINATOR.value, _PROCESSES.value, _PROCESS.value
  if not _MULTIHOST.value:
    check(
      cluster == (None, None, None),
      "--coordinator, --processes and --process are for --multihost",
    )
    return contextlib.nullcontext()
  check(
    mode in MULTIHOST_MODES,
    f"--multihost is for --mode: {', '.join(MULTIHOST_MODES)}",
  )
  return hosts.multihost_context(*cluster, _CONNECT_TIMEOUT.value)


if __name__ == "__main__":
  run()
