"""The errors that a user sees: one line and no traceback."""

import argparse
import contextlib
import errno
import os
import zipfile
import zlib
from collections.abc import Collection, Iterator
from reprlib import Repr
from typing import Any, NoReturn

_SHORT = Repr()
_SHORT.maxstring = 40
NO_SPACE = os.strerror(errno.ENOSPC)


class UsageError(Exception):
  """A UsageError names an invalid field or input, and what is valid, in one
  line."""


class Interrupted(Exception):
  """SIGTERM or Ctrl-C stopped the run, whose progress is saved."""


class Parser(argparse.ArgumentParser):
  """An argument parser that reports a wrong command line in one line."""

  def error(self, message: str) -> NoReturn:
    """Raises UsageError instead of printing the usage."""
    raise UsageError(message)


def check(condition: Any, message: str) -> None:
  """Raises UsageError(message) unless the condition holds."""
  if not condition:
    raise UsageError(message)


def check_choice(field: str, value: Any, choices: Collection) -> None:
  """Raises UsageError, which names the field, unless `value` is one of
  `choices`."""
  valid = ", ".join(map(str, choices))
  check(value in choices, f"{field}={value!r}: choose one of {valid}")


def check_probability(field: str, value: float) -> None:
  """Raises UsageError, which names the field, unless `value` is in [0, 1]."""
  check(0.0 <= value <= 1.0, f"{field}={value}: must be in [0, 1]")


def exhausted(error: BaseException) -> str:
  """Returns a line for an error of too little space on the disk or of too
  little memory, "" for any other."""
  text = str(error)
  # Orbax's errors of this kind are no OSError.
  if getattr(error, "errno", 0) == errno.ENOSPC or NO_SPACE in text:
    return f"{NO_SPACE}: free some; what was saved before is still there"
  if "RESOURCE_EXHAUSTED" not in text and not isinstance(error, MemoryError):
    return ""
  first = (text.splitlines() or ["out of memory"])[0].rstrip(". ")
  return f"{first}. Lower train.batch_size or, in tests, eval.memory_mb"


def quoted(text: str) -> str:
  """Returns a text that a person typed, in quotes and at most 40 characters."""
  return _SHORT.repr(text)


@contextlib.contextmanager
def file_errors(what: str) -> Iterator[None]:
  """Turns an error of reading or writing a file in the context into UsageError,
  whose message is `what` and the reason in parentheses."""
  try:
    yield
  except (
    EOFError,
    OSError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
  ) as error:
    lines = str(error).splitlines() or [type(error).__name__]
    reason = getattr(error, "strerror", None) or lines[0]
    raise UsageError(f"{what} ({reason})") from error
