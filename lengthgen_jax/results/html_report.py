"""This module makes a self-contained HTML page of results.

Each task has a table of its main methods. Variations of methods, other test
sets and edit distances are in tables that open with a click.
"""

import base64
import html
import pathlib
import re
from collections.abc import Iterable

from lengthgen_jax.results import summary, tables
from lengthgen_jax.results.summary import Curve

TEMPLATE = pathlib.Path(__file__).with_name("page.html")


def page(
  title: str,
  rows: list[dict],
  missing: Iterable[str] = (),
  figures: Iterable[pathlib.Path] = (),
) -> str:
  """Returns an HTML page with tables that a reader can sort and filter, and
  figures.

  Args:
    title: title of the page.
    rows: rows of any runs.
    missing: a line of text for each missing result.
    figures: PNGs to embed.
  """
  exact, edit = (
    summary.curves(rows, metric, ("task", "test_set"))
    for metric in ("em", "edit")
  )
  of_task = lambda curves, task: [
    curve for curve in curves if curve.rows[0]["task"] == task
  ]
  tasks = sorted({curve.rows[0]["task"] for curve in exact})
  links = [f'<a href="#{_escape(task)}">{_escape(task)}</a>' for task in tasks]
  parts = [f"<nav>{' '.join(links)}</nav>"]
  for task in tasks:
    parts.append(_section(task, of_task(exact, task), of_task(edit, task)))
  items = [f"<li>{_escape(text)}</li>" for text in missing]
  if items:
    parts.append(_fold(f"Missing ({len(items)})", f"<ul>{''.join(items)}</ul>"))
  images = []
  for path in figures:
    name = _escape(path.stem)
    source = base64.b64encode(path.read_bytes()).decode()
    images.append(
      f'<figure><img src="data:image/png;base64,{source}" alt="{name}">'
      f"<figcaption>{name}</figcaption></figure>"
    )
  if images:
    parts.append(_fold(f"Figures ({len(images)})", "".join(images)))
  versions = ", ".join(sorted({row["version"] for row in rows}))
  about = f"{len(rows):,} rows of lengthgen_jax {versions}."
  template = TEMPLATE.read_text(encoding="utf-8").replace(
    "{{title}}", _escape(title)
  )
  template = template.replace("{{about}}", _escape(about))
  return template.replace("{{results}}", "\n".join(parts))


def _section(task: str, exact: list[Curve], edit: list[Curve]) -> str:
  """Returns the HTML of one task, given its curves of exact match and of edit
  distance in the order of their rows.

  Methods with a space in their names are variations: config fields that were
  set, or "final" (configs/states.py), follow the name of the preset's method.
  """
  # The main test set is the one of most curves, those of eval.stress left out;
  # if several have as many, it is the one that the rows have first.
  test_sets = [
    curve.rows[0]["test_set"] for curve in exact if not curve.is_stress
  ]
  main_test_set = max(test_sets, key=test_sets.count, default=None)
  exact, edit = summary.sort(exact), summary.sort(edit)
  main, variations, others = [], [], []
  for curve in exact:
    row = curve.rows[0]
    if curve.is_stress or row["test_set"] != main_test_set:
      others.append(curve)
    elif " " in row["method"]:
      variations.append(curve)
    else:
      main.append(curve)
  if not main:
    main, variations = variations, []
  unit = summary.joined_values([curve.rows[0] for curve in exact], "unit")
  parts = [f'<section id="{_escape(task)}"><h2>{_escape(task)}</h2>']
  if main:
    test_set = _escape(main_test_set)
    parts += [
      f"<p>Exact match in % by length in {unit}, test set {test_set}</p>",
      _table(main, main_test_set),
    ]
  for name, curves in (
    ("Variations of config fields", variations),
    ("Other and hard inputs", others),
    ("Edit distance, % of the output", edit),
  ):
    if curves:
      parts.append(
        _fold(f"{name} ({len(curves)})", _table(curves, main_test_set))
      )
  return "\n".join([*parts, "</section>"])


def _fold(name: str, text: str) -> str:
  """Returns the HTML of a section that opens with a click on its name."""
  return f"<details><summary>{name}</summary>{text}</details>"


def _escape(text: str | None) -> str:
  """Returns a text with its characters that HTML reserves escaped."""
  return html.escape(str(text))


def _names(curve: Curve) -> tuple[str, str]:
  """Returns the two parts into which a table divides a curve's name.

  The first part is the first word of the method with the unusual settings that
  `summary.model_name` adds, like "abc (retrain) LEAK". The second part is what
  follows that word in the method, like config fields that were set, and the
  conditions in which the curve differs from others.
  """
  row = curve.rows[0]
  method, _, fields = row["method"].partition(" ")
  name = summary.model_name(row)
  conditions = curve.name.removeprefix(name).removeprefix(", ")
  name = name.replace(row["method"], method, 1)
  return name, ", ".join(text for text in (fields, conditions) if text)


def _table(curves: list[Curve], main_test_set: str | None) -> str:
  """Returns an HTML table with a row for each curve, a column for each length,
  and a column of test sets unless all are the main one."""
  lengths = sorted({length for curve in curves for length in curve.cells})
  bits = {row["length"]: row["bits"] for curve in curves for row in curve.rows}
  has_test_sets = any(
    curve.rows[0]["test_set"] != main_test_set for curve in curves
  )
  has_frontier = curves[0].rows[0]["metric"] == "em" and any(
    curve.frontier or curve.proof == " ∀" for curve in curves
  )
  headings = [
    "method",
    *["test set"] * has_test_sets,
    *(f"{n}<small>{bits[n]} bits</small>" if bits[n] else n for n in lengths),
    *["frontier"] * has_frontier,
    "seeds",
    "run",
  ]
  header = "".join(f'<th tabindex="0">{text}</th>' for text in headings)
  parts = [f'<div class="wide"><table><thead><tr>{header}</tr></thead><tbody>']
  for curve in curves:
    row, cells = curve.rows[0], curve.cells
    name, differences = map(_escape, _names(curve))
    differences = re.sub("([.=_])", r"\1<wbr>", differences)
    parts.append(f"\n<tr><th>{name}<small>{differences}</small></th>")
    if has_test_sets:
      parts.append(f"<td>{_escape(row['test_set'])}</td>")
    for length in lengths:
      median, _, rest = tables.cell_text(curve, length, "").partition(" ")
      percents = [
        tables.percent(row["value"])
        for row in curve.rows
        if row["length"] == length
      ]
      title = ""
      if percents:
        title = f' title="{" ".join(percents)}; n={cells[length].n}"'
      parts.append(f"<td{title}>{median}<small>{rest}</small></td>")
    if has_frontier:
      frontier = tables.frontier_text(curve).replace("(worst ", "(")
      parts.append(f"<td>{frontier}</td>")
    seeds, run = curve.seeds_text + curve.proof, _escape(row.get("run", ""))
    parts.append(f"<td>{seeds}</td><td>{run}</td></tr>")
  return "".join([*parts, "</tbody></table></div>"])
