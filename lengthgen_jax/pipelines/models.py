"""This is --mode=models: it lists the models that come with the package."""

import pandas as pd

from lengthgen_jax.pretrained import files
from lengthgen_jax.results import tables


def run() -> int:
  """Prints a table of the models; returns the exit code."""
  print(table([files.read(name)[0] for name in files.names()]))
  return 0


def table(cards: list[dict]) -> str:
  """Returns a Markdown table of the models that cards (NAME.json) describe."""
  lines = []
  for card in cards:
    margin = (card["certificate"] or {}).get("margin")
    line = {name: card[name] for name in ("name", "task", "family")} | {
      "parameters": f"{card['parameters']:,}",
      "proof": proof(card),
      "margin": "" if margin is None else f"{margin:.3g}",
    }
    lines.append(line)
  return tables.to_markdown(pd.DataFrame(lines))


def proof(card: dict) -> str:
  """Returns how it is known that a model is right at every length: "∀" if it is
  proved, "measured", or that the certificate is of another model."""
  if card["certificate"] == files.OTHER_MODEL:
    return files.OTHER_MODEL["verdict"]
  is_proved = card["certificate"] and card["certificate"]["outcome"] == 1
  return "∀" if is_proved else "measured"
