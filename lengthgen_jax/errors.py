"""The one error a user sees: a single line, no traceback."""


class UsageError(Exception):
  """Something the user gave cannot work; the message says what is valid."""


def check_choice(field: str, value, choices) -> None:
  """Raises UsageError unless `value` is one of `choices`."""
  if value not in choices:
    valid = ", ".join(str(choice) for choice in choices)
    raise UsageError(f"{field}={value!r}: choose one of {valid}")


def check(condition, message: str) -> None:
  """Raises UsageError(message) unless the condition holds."""
  if not condition:
    raise UsageError(message)
