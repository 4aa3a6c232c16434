"""Train, evaluate and ask transformers that generalize to longer inputs.

Examples:

  lengthgen --config=configs/quickstart.py --mode=abc --workdir=runs/quickstart
  lengthgen --config=configs/arithmetic.py:parity,window_cpi --workdir=runs/p \\
    '--config.seeds=(0,1,2)'
  lengthgen --mode=evaluate --workdir=runs/p '--config.eval.lengths=(6,100)'
  echo 123+456 | lengthgen --mode=predict --workdir=runs/quickstart
"""

import importlib.util
import pathlib
import sys

from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from lengthgen_jax.errors import UsageError, check

MODES = (
  "train",
  "abc",
  "evaluate",
  "predict",
  "calibrate",
  "certify",
  "report",
)

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
_MODE = flags.DEFINE_enum(
  "mode",
  "train",
  MODES,
  "train: train, then evaluate; abc: interpolate, calibrate, retrain, evaluate;"
  " evaluate: test a trained workdir; predict: answer the"
  " expressions on standard input, one a line; calibrate: write the bias"
  " that a trained workdir's attention shows; certify: prove that a trained"
  " workdir is right at every length, or find inputs where it is not; report:"
  " one table and figures of all results below --workdir.",
)
_INPUT = flags.DEFINE_string(
  "input", None, "predict: a file of expressions instead of standard input."
)


def run() -> None:
  """The console script."""
  for name in ("config", "workdir", "mode", "input"):
    flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])
  sys.modules["__main__"].__doc__ = __doc__
  app.run(main, flags_parser=parse_flags)


def parse_flags(argv: list[str]) -> list[str]:
  """Parses the command line; one line and exit code 2 on any mistake."""
  try:
    # config_flags looks for overrides in sys.argv, not in what it is given.
    argv = sys.argv = fill_config(argv)
    check_override_names(argv)
    rest = flags.FLAGS(argv)
    check(len(rest) == 1, f"what is {' '.join(rest[1:])!r}? see --help")
    return rest
  except (UsageError, flags.Error, Exception) as error:
    fail(_one_line(error), 2)


def _one_line(error: Exception) -> str:
  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  if isinstance(error, UsageError | flags.Error | ValueError):
    return lines[0] if lines else repr(error)
  return f"{type(error).__name__}: {lines[0] if lines else ''}"


def fail(message: str, code: int) -> None:
  print(f"lengthgen: {message}", file=sys.stderr)
  sys.exit(code)


def _value(argv: list[str], name: str) -> str | None:
  """The last value of --name or -name, with `=` or as the next argument."""
  found = None
  for i, word in enumerate(argv):
    flag, equals, value = word.lstrip("-").partition("=")
    if word.startswith("-") and flag == name:
      found = value if equals else argv[i + 1] if i + 1 < len(argv) else ""
  return found


def fill_config(argv: list[str]) -> list[str]:
  """Puts --config first, where its overrides may follow in any order; the
  workdir's own config stands in if it was left out."""
  workdir, spec = _value(argv, "workdir"), _value(argv, "config")
  if spec is None:
    saved = pathlib.Path(workdir or "") / "config.json"
    if not workdir or not saved.is_file():
      return argv
    reader = pathlib.Path(__file__).parent / "config" / "saved.py"
    spec = f"{reader}:{saved}"
  rest = argv[1:]
  for i, word in enumerate(rest):
    if word in ("--config", "-config"):
      rest = rest[:i] + rest[i + 2 :]
      break
  rest = [w for w in rest if not w.lstrip("-").startswith("config=")]
  return [argv[0], f"--config={spec}", *rest]


def check_override_names(argv: list[str]) -> None:
  """UsageError for --config.x that names no field, with the fields there;
  whatever a config file raises about its preset passes through."""
  names = [
    word.lstrip("-").partition("=")[0].split(".")[1:]
    for word in argv[1:]
    if word.startswith(("--config.", "-config."))
  ]
  spec = _value(argv, "config")
  check(
    spec or not names,
    "--config.field=... needs --config=FILE (or a trained --workdir)",
  )
  config = load_config(spec) if spec else None
  for name in names:
    node = config
    for i, part in enumerate(name):
      fields = list(node.keys()) if hasattr(node, "keys") else []
      check(
        part in fields,
        f"--config.{'.'.join(name)}: no field {part!r};"
        f" {'.'.join(['config', *name[:i]])} has"
        f" {', '.join(fields) or 'no fields of its own'}",
      )
      node = node[part]


def load_config(spec: str) -> ConfigDict:
  """The config of FILE[:preset]; UsageError if there is none."""
  path, _, preset = spec.partition(":")
  check(pathlib.Path(path).is_file(), f"--config={spec}: no file {path}")
  module_spec = importlib.util.spec_from_file_location("config_file", path)
  module = importlib.util.module_from_spec(module_spec)
  module_spec.loader.exec_module(module)
  return module.get_config(*([preset] if preset else []))


def main(argv) -> None:
  del argv
  logging.set_verbosity(logging.ERROR)  # libraries' notes are not ours
  try:
    code = dispatch(_MODE.value, _CONFIG.value, _WORKDIR.value, _INPUT.value)
  except UsageError as error:
    fail(str(error), 1)
  except BrokenPipeError:
    code = 1
  except KeyboardInterrupt:  # outside of training, which saves first
    code = 130
  sys.exit(code)


def dispatch(
  mode: str, config: ConfigDict | None, workdir: str | None, source
) -> int:
  """Runs one mode; returns the exit code."""
  check(workdir, "--workdir is missing: name the folder of the run")
  check(
    config is not None or mode == "report",
    f"--config is missing and {workdir} has no config.json: name a config file"
    " like configs/quickstart.py, or a trained workdir",
  )
  check(source is None or mode == "predict", "--input is for --mode=predict")
  if config is not None:
    name_overrides(config, sys.argv[1:])
  run = importlib.import_module(f"lengthgen_jax.runs.{mode}").run
  more = (source,) if mode == "predict" else ()
  return run(config, pathlib.Path(workdir), *more)


# Overrides that make no other method of a run.
UNNAMED = ("seeds", "eval", "certify", "checkpoint", "method", "overrides")
UNNAMED += ("train.chunk", "train.seed_axis")


def name_overrides(config: ConfigDict, argv: list[str]) -> None:
  """Puts fields that differ from the preset of `argv` into config.overrides,
  by which results tell this run from others of its preset."""
  preset = load_config(_value(argv, "config"))
  found = dict(text.split("=", 1) for text in config.overrides)
  found |= _changed(config, preset, "")
  config.overrides = tuple(f"{name}={found[name]}" for name in sorted(found))


def _changed(config: ConfigDict, preset: ConfigDict, path: str) -> dict:
  """{field: value as text} of what differs and is part of a run's name."""
  found = {}
  for name, value in config.items():
    field = f"{path}{name}"
    if field in UNNAMED:
      continue
    if isinstance(value, ConfigDict):
      found |= _changed(value, preset[name], f"{field}.")
    elif value != preset[name]:
      found[field] = str(value).replace(" ", "")
  return found


if __name__ == "__main__":
  run()
