"""Figures of kept rows, methods named as the papers name them."""

import pathlib

from lengthgen_jax.results import figures, schema, squares

LINES = 8  # that one figure can tell apart


def draw(name: str, entries: list, kept: dict, folder, along="") -> list:
  """Figures of a table: by length for each task and width, on hard inputs, and
  against a field.

  Args:
    name: of the table, with which the files' names begin.
    entries: its rows.
    kept: as in `page`.
    folder: where the figures go.
    along: the field, "" if there is none.

  Returns:
    (caption, path of a PNG) of each.
  """
  apart = {}
  for entry in entries:
    for row in kept.get(entry.run, ({}, []))[1]:
      if row["stage"] == entry.stage and row["metric"] in ("em", "edit"):
        own = {"method": entry.model, "stage": "train", "run": entry.run}
        own |= {along: entry.value} if entry.value is not None else {}
        place = row["task"], row["width"]
        apart.setdefault(place, []).append(row | own)
  made = []
  for (task, width), rows in apart.items():
    start = f"{name}_{task}_{width}"
    title = f"{task}, width={width}"
    names = {
      (metric, what): f"{start}_{metric}_by_{what}"
      for metric, what in figures.NAMES
    }
    if len({row["method"] for row in rows}) > LINES:
      del names["em", "length"], names["edit", "length"]
      usual = [row for row in rows if figures.against(row) == "length"]
      path = pathlib.Path(folder) / f"{start}_em_by_model.png"
      made.append(squares.by_method(usual, path, title))
    made += figures.of_run(rows, folder, title, names)
    exact = [
      row | {"method": row["method"].partition(f", {short(along)}=")[0]}
      for row in schema.of_metric(rows, "em")
      if along in row and figures.against(row) == "length"
    ]
    if len({row[along] for row in exact}) > 1:
      path = pathlib.Path(folder) / f"{start}_by_{along}.png"
      made.append(figures.by_field(exact, path, title, along))
  return [(path.stem.replace("_", " "), path) for path in made]


def short(field: str) -> str:
  return field.rpartition(".")[2]
