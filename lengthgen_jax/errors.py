"""The errors that a user sees: one line and no traceback."""

import argparse
import contextlib
import errno
import os
import pathlib
from collections.abc import Collection, Iterator
from reprlib import Repr
from typing import Any, NoReturn

_SHORT = Repr()
_SHORT.maxstring = 40
NO_SPACE = os.strerror(errno.ENOSPC)


class UsageError(ValueError):
  """Names an invalid field or input, and what is valid, in one line."""


class Interrupted(Exception):
  """SIGTERM or Ctrl-C stopped the run, whose progress is saved."""


class Parser(argparse.ArgumentParser):
  """An argument parser that reports a wrong command line in one line."""

  def __init__(self, text: str | None):
    formatter = argparse.RawTextHelpFormatter
    super().__init__(description=text, formatter_class=formatter)

  def error(self, message: str) -> NoReturn:
    raise UsageError(message)


def check(condition: Any, message: str) -> None:
  """Raises UsageError(message) unless the condition holds."""
  if not condition:
    raise UsageError(message)


def check_choice(field: str, value: Any, choices: Collection) -> None:
  """Raises UsageError unless `value` is one of `choices`."""
  valid = ", ".join(map(str, choices))
  check(value in choices, f"{field}={value!r}: choose one of {valid}")


def local_path(name: str, path: str | pathlib.Path) -> pathlib.Path:
  """Returns the path that a person typed for `name`, like "--workdir", with ~
  expanded; UsageError if it is a URL, or there is no home folder."""
  check(
    "://" not in str(path),
    f"{name}={path}: must be a local path; launch/tpu_vm.sh"
    " --bucket=NAME/PATH runs with a workdir in a storage bucket",
  )
  try:
    return pathlib.Path(path).expanduser()
  except RuntimeError as error:
    raise UsageError(f"{name}={path}: there is no home folder") from error


def workdir_path(name: str, path: str | pathlib.Path) -> pathlib.Path:
  """Returns `local_path` of a workdir, if checkpoints can be read from it."""
  workdir = local_path(name, path)
  absolute = str(workdir.absolute())
  check(
    not set(absolute) & set("[]*?\\"),
    f"{name}: choose a path without [ ] * ? and \\, which checkpoints cannot be"
    f" read from, not {absolute}",
  )
  return workdir


@contextlib.contextmanager
def user_errors(what: str) -> Iterator[None]:
  """Turns any error of a user's code in the context into UsageError, whose
  message is `what` and the first line of the error's, after the name of its
  class unless it is meant for users."""
  try:
    yield
  except Exception as error:
    line = (str(error).strip().splitlines() or [""])[0]
    if not line or not isinstance(error, ValueError):
      line = f"{type(error).__name__}: {line}"
    raise UsageError(f"{what}: {line}") from error


def machine_error(error: BaseException) -> str:
  """Returns a line for an error that comes from the machine: too little memory,
  or a file that cannot be written; "" for any other."""
  text = str(error)
  line = (text.splitlines() or ["out of memory"])[0].rstrip(". ")
  # Orbax's errors of a full disk are no OSError.
  if getattr(error, "errno", 0) == errno.ENOSPC or NO_SPACE in text:
    return f"{NO_SPACE}: free some; what was saved before is still there"
  if "RESOURCE_EXHAUSTED" in text or isinstance(error, MemoryError):
    fields = "train.batch_size, in tests eval.memory_mb or eval.lengths"
    return f"{line}. Lower {fields}, or another size that you chose"
  return line if isinstance(error, OSError) else ""


def quoted(text: str) -> str:
  """Returns a text that a person typed, in quotes and at most 40 characters."""
  return _SHORT.repr(text)


@contextlib.contextmanager
def file_errors(what: str) -> Iterator[None]:
  """Turns an error of reading or writing a file in the context into UsageError,
  whose message is `what` and the reason in parentheses."""
  try:
    yield
  except UsageError:
    raise
  except Exception as error:  # damaged files fail in many ways
    lines = str(error).splitlines() or [type(error).__name__]
    reason = getattr(error, "strerror", None) or lines[0]
    raise UsageError(f"{what} ({reason})") from error
