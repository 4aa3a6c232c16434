"""Registries: the things of one kind by name; users add theirs."""

import inspect
import os
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

from lengthgen_jax.errors import UsageError, check

REGISTRIES: list["Registry"] = []  # all of them
PACKAGE = pathlib.Path(__file__).parent
INSIDE = re.escape(f"{PACKAGE}{os.sep}") + "(?!configs)"


class Registry(dict):
  """A dict from names to things of one kind, in the order of registration."""

  def __init__(
    self,
    kind: str,
    things: dict[str, Any],
    check_entry: Callable[[str, Any], None],
  ):
    """Registers the package's own things, which are not checked.

    `kind` says what they are in messages ("task"); check_entry(name, thing)
    raises UsageError for a thing of another type, or that lacks an attribute or
    a parameter.
    """
    super().__init__(things)
    self.kind, self.check_entry = kind, check_entry
    # The files that registered users' things, by name.
    self.origins: dict[str, str] = {}
    REGISTRIES.append(self)

  def register(self, name: str, thing: Any) -> Any:
    """Adds a thing and returns it; UsageError if the name is no identifier or
    is taken, but the file that registered it may register it again."""
    path = caller_file()
    check(
      isinstance(name, str) and name.isidentifier(),
      f"register: {self.kind} {name!r}: choose a name of letters, digits and _"
      " that does not begin with a digit",
    )
    check(
      name not in self or self.origins.get(name) == path,
      f"register: {self.kind} {name!r} exists already, beside"
      f" {', '.join(self)}; choose another name",
    )
    self.check_entry(name, thing)
    self[name], self.origins[name] = thing, path
    return thing


def check_arguments(what: str, function: Any, *names: str) -> None:
  """Checks that a function takes as many positional arguments as there are
  `names`; `what` is the function in messages ("bias 'mine'")."""
  try:
    signature = inspect.signature(function)
  except (TypeError, ValueError) as error:  # the latter of some builtins
    raise UsageError(f"register: {what} is no function") from error
  check(
    can_bind(signature, *names),
    f"register: {what} must be a function of ({', '.join(names)}), and not of"
    f" {signature}",
  )


def entry_check(
  entry_class: type, function: str, *names: str
) -> Callable[[str, Any], None]:
  """Returns the `check_entry` of things of a class that have one function, an
  attribute of this name, which is called with `names`."""
  title = entry_class.__name__

  def check_entry(name: str, thing: Any) -> None:
    what = f"{title.lower()} {name!r}"
    check(isinstance(thing, entry_class), f"register: {what} is no {title}")
    check_arguments(
      f"the {function} of {what}", getattr(thing, function), *names
    )

  return check_entry


def check_methods(what: str, subclass: type, base: type) -> None:
  """Checks that the public methods of a user's subclass can be called with the
  names of the parameters that they have in `base`, unless there it takes any;
  `what` is the subclass in messages ("task 'mine'")."""
  for name, method in vars(base).items():
    if name.startswith("_") or not inspect.isfunction(method):
      continue
    signature = inspect.signature(getattr(subclass, name))
    parameters = inspect.signature(method).parameters
    has_any = any(x.kind == x.VAR_POSITIONAL for x in parameters.values())
    check(
      has_any or can_bind(signature, **dict.fromkeys(parameters)),
      f"register: {what}: {name} must take ({', '.join(parameters)}), and not"
      f" {signature}",
    )


def can_bind(signature: inspect.Signature, *args: Any, **kwargs: Any) -> bool:
  try:
    signature.bind(*args, **kwargs)
  except TypeError:
    return False
  return True


def registering_files() -> tuple[str, ...]:
  """Returns the files outside of the package that registered something."""
  files = {
    file for registry in REGISTRIES for file in registry.origins.values()
  }
  return tuple(sorted(files))


def caller_file() -> str:
  """Returns the path of the innermost calling file outside of the package."""
  frame = sys._getframe(1)
  # An installed package has its presets within it.
  while frame.f_back and re.match(INSIDE, frame.f_code.co_filename):
    frame = frame.f_back
  return str(pathlib.Path(frame.f_code.co_filename).resolve())
