"""This is --mode=models: it lists the models that come with the package."""

import pandas as pd

from lengthgen_jax.pretrained import files
from lengthgen_jax.results import records, tables


def run() -> int:
  """Prints a table of the models; returns the exit code."""
  print(table([files.read(name)[0] for name in files.names()]))
  return 0


def table(cards: list[dict]) -> str:
  """Returns a Markdown table of the models that cards (NAME.json) describe."""
  lines = []
  for card in cards:
    margin = smallest_margin(card)
    line = {name: card[name] for name in ("name", "task", "family")} | {
      "parameters": f"{card['parameters']:,}",
      "proof": proof(card),
      "margin": "" if margin is None else f"{margin:.3g}",
    }
    lines.append(line)
  return tables.to_markdown(pd.DataFrame(lines))


def proof(card: dict) -> str:
  """Returns how it is known that a model is right at every length.

  That is "∀" if both checkers proved it, "∀¹" and the name of the checker
  ("certify" or "second") if one did, and "measured" if it is not proved; or
  that the certificate is of another model.
  """
  if card["certificate"] == files.OTHER_MODEL:
    return files.OTHER_MODEL["verdict"]
  names = records.proved_by(card["certificate"], card["second_checker"])
  if len(names) == len(records.CHECKERS):
    return "∀"
  return f"∀¹ {names[0]}" if names else "measured"


def smallest_margin(card: dict) -> float | None:
  """Returns the smallest margin, in logits, that a checker found; None if no
  checker found one."""
  results = [card["certificate"], card["second_checker"]]
  margins = [result.get("margin") for result in results if result]
  return min((x for x in margins if x is not None), default=None)
