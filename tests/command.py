"""The console script: in a process of its own, or inside this one."""

import ast
import contextlib
import importlib
import io
import pathlib
import signal
import subprocess
import sys

import jax
import pytest
from absl import flags
from tiny import get_config

from lengthgen_jax import main
from lengthgen_jax.errors import UsageError

# A shell's background jobs, and what they start, ignore Ctrl-C: not ours.
signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = pathlib.Path(__file__).parents[1]
SCRIPT = pathlib.Path(sys.executable).with_name("lengthgen")
TINY = "--config=tests/tiny.py"


@contextlib.contextmanager
def count_programs():
  """The names of all programs that JAX compiles inside of the context."""
  names, is_open = [], [True]

  def add(event: str, duration_secs: float, **metadata) -> None:
    if is_open and event.endswith("backend_compile_duration"):
      names.append(str(metadata.get("fun_name")))

  jax.monitoring.register_event_duration_secs_listener(add)
  try:
    yield names
  finally:
    is_open.clear()  # JAX keeps a listener for good


def start(*arguments, env=None) -> subprocess.Popen:
  """Starts `lengthgen ARGUMENTS` from the repository's root."""
  return subprocess.Popen(
    [SCRIPT, *map(str, arguments)],
    cwd=REPOSITORY,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    env=env,
  )


def finish(process, data: bytes = b"") -> subprocess.CompletedProcess:
  """Waits for the end of a started command; its output as text."""
  out, err = process.communicate(data, timeout=900)
  return subprocess.CompletedProcess(
    process.args, process.returncode, out.decode(), err.decode()
  )


def run(*arguments, text: str = "", env=None) -> subprocess.CompletedProcess:
  """Runs `lengthgen ARGUMENTS` with `text` on its standard input."""
  return finish(start(*arguments, env=env), text.encode())


def inside(
  *arguments, text: str = "", folder: pathlib.Path = REPOSITORY
) -> subprocess.CompletedProcess:
  """The same in this process, where what was compiled stays compiled."""
  out, err, code = io.StringIO(), io.StringIO(), 0
  before = sys.stdin
  try:
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8")
    with (
      contextlib.redirect_stdout(out),
      contextlib.redirect_stderr(err),
      parsed(*arguments, folder=folder),
    ):
      main.main([])
  except SystemExit as leave:
    code = leave.code
  finally:
    sys.stdin = before
  return subprocess.CompletedProcess(
    arguments, code, out.getvalue(), err.getvalue()
  )


@contextlib.contextmanager
def parsed(*arguments, folder: pathlib.Path = REPOSITORY):
  """The flags of a command line, as main sees them; (mode, config)."""
  argv = sys.argv
  try:
    with contextlib.chdir(folder):
      main.parse_flags(["lengthgen", *map(str, arguments)])
      yield main._MODE.value, main._CONFIG.value
  finally:
    sys.argv = argv
    # Each command line defines its own.
    for name in [n for n in flags.FLAGS if n.startswith("config.")]:
      delattr(flags.FLAGS, name)
    for flag in flags.FLAGS.get_flags_for_module(main.__name__):
      flag.unparse()


def refusal(done: subprocess.CompletedProcess) -> str:
  """The one line of a refused command; fails if there is more, or none."""
  assert done.returncode != 0, done.stdout + done.stderr
  lines = done.stderr.splitlines()
  assert len(lines) == 1, done.stderr
  assert lines[0].startswith("lengthgen: "), done.stderr
  assert not done.stdout
  return lines[0]


@contextlib.contextmanager
def refuses(*words: str):
  """Expects a UsageError of one line that has some words."""
  with pytest.raises(UsageError) as caught:
    yield caught
  (line,) = str(caught.value).splitlines()
  for word in words:
    assert word in line


def refused(mode: str, config, workdir) -> str:
  """What a mode says to a config it refuses; main prints it in one line."""
  with refuses() as caught:
    room = "benchmark" if mode == "bench" else "pipelines"
    module = importlib.import_module(f"lengthgen_jax.{room}.{mode}")
    module.run(config, workdir)
  return str(caught.value)


def contents(folder: pathlib.Path) -> dict[pathlib.Path, bytes]:
  """The bytes of every file below a folder."""
  files = [path for path in folder.rglob("*") if path.is_file()]
  return {path: path.read_bytes() for path in files}


def changed(
  *assignments: str, preset="addition,window_cpi", get_config=get_config
):
  """A preset, of a tiny config or of another file, after some `field=value`."""
  config = get_config(preset)
  with config.unlocked():
    for assignment in assignments:
      name, _, value = assignment.partition("=")
      value = eval(value, {}) if "1e999" in value else ast.literal_eval(value)
      config.update_from_flattened_dict({name: value})
  return config
