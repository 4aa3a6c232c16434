"""This module runs the console script `lengthgen`, in a process of its own or
inside this one."""

import contextlib
import importlib
import io
import pathlib
import subprocess
import sys
from unittest import mock

import pytest
from absl import flags
from tiny import get_config

from lengthgen_jax import main
from lengthgen_jax.errors import UsageError

REPOSITORY = pathlib.Path(__file__).parents[1]
SCRIPT = pathlib.Path(sys.executable).with_name("lengthgen")
TINY = "--config=tests/tiny.py"


def run(*arguments, env=None) -> subprocess.CompletedProcess:
  """Runs `lengthgen ARGUMENTS` in the repository's root, in a process of its
  own, with nothing on its standard input; returns it with its output as text.
  """
  return subprocess.run(
    [SCRIPT, *map(str, arguments)],
    cwd=REPOSITORY,
    stdin=subprocess.DEVNULL,
    capture_output=True,
    encoding="utf-8",
    env=env,
    timeout=900,
  )


def inside(
  *arguments, text: str = "", folder: pathlib.Path = REPOSITORY
) -> subprocess.CompletedProcess:
  """Does what `run` does, but in this process, where compiled programs are used
  again.

  Args:
    *arguments: of the command line.
    text: what stands on standard input.
    folder: the folder in which the command runs.
  """
  out, err, code = io.StringIO(), io.StringIO(), 0
  before = sys.stdin
  try:
    data = text.encode("utf-8", "surrogateescape")
    sys.stdin = io.TextIOWrapper(io.BytesIO(data), "utf-8")
    with (
      contextlib.redirect_stdout(out),
      contextlib.redirect_stderr(err),
      _flags(*arguments, folder=folder) as argv,
    ):
      main.main(argv)
  except SystemExit as leave:
    code = leave.code
  finally:
    sys.stdin = before
  return subprocess.CompletedProcess(
    arguments, code, out.getvalue(), err.getvalue()
  )


def succeeds(*arguments, **options) -> subprocess.CompletedProcess:
  """Returns what `inside` returns of a command, which must succeed."""
  done = inside(*arguments, **options)
  assert done.returncode == 0, done.stderr
  return done


@contextlib.contextmanager
def parsed(*arguments, folder: pathlib.Path = REPOSITORY):
  """Returns a context in which the flags of a command line are parsed as main
  does, with the value (mode, config)."""
  with _flags(*arguments, folder=folder) as argv:
    yield main._MODE.value, main.chosen_config(argv[1:])


@contextlib.contextmanager
def _flags(*arguments, folder: pathlib.Path):
  """Returns a context with what main.parse_flags returns in a folder."""
  argv = sys.argv
  try:
    with contextlib.chdir(folder):
      sys.argv = ["lengthgen", *map(str, arguments)]
      yield main.parse_flags(sys.argv)
  finally:
    sys.argv = argv
    for flag in flags.FLAGS.get_flags_for_module(main.__name__):
      flag.unparse()


def refusal(done: subprocess.CompletedProcess) -> str:
  """Returns the line of standard error of a refused command.

  It fails unless this line is all output, and the exit code is not 0.
  """
  assert done.returncode != 0, done.stdout + done.stderr
  lines = done.stderr.splitlines()
  assert len(lines) == 1, done.stderr
  assert lines[0].startswith("lengthgen: "), done.stderr
  assert not done.stdout
  return lines[0]


@contextlib.contextmanager
def refuses(*words: str):
  """Returns a context that fails unless a UsageError is raised in it, of one
  line that has all of the words."""
  with pytest.raises(UsageError) as caught:
    yield caught
  (line,) = str(caught.value).splitlines()
  for word in words:
    assert word in line


@contextlib.contextmanager
def noted():
  """Returns a context that gives a list of the notes that are printed in it."""
  lines = []
  with mock.patch("lengthgen_jax.hosts.print_note", lines.append):
    yield lines


def refused(mode: str, config, workdir) -> str:
  """Returns the message of the UsageError with which a mode refuses a
  config."""
  with refuses() as caught:
    module = importlib.import_module(f"lengthgen_jax.pipelines.{mode}")
    module.run(config, workdir)
  return str(caught.value)


def contents(folder: pathlib.Path) -> dict[pathlib.Path, bytes]:
  """Returns {path: bytes} of every file below a folder."""
  files = [path for path in folder.rglob("*") if path.is_file()]
  return {path: path.read_bytes() for path in files}


def changed(
  *assignments: str, preset="addition,window_cpi", get_config=get_config
):
  """Returns the config of a preset after some assignments.

  Args:
    *assignments: each "FIELD=VALUE", with a Python literal or 1e999 (infinity).
    preset: the name of the preset.
    get_config: the function that returns its config; tiny.get_config by
      default.
  """
  config = get_config(preset)
  with config.unlocked():
    for assignment in assignments:
      name, _, value = assignment.partition("=")
      config.update_from_flattened_dict({name: eval(value, {})})
  return config
