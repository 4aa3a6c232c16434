"""A self-contained HTML page of results.

Each task has a table and a chart of its main methods. Variations of methods,
other test sets and edit distances are in sections that open by a click.
"""

import base64
import html
import math
import pathlib
import re
from collections.abc import Iterable

from lengthgen_jax.results import summary, tables
from lengthgen_jax.results.summary import Curve

TEMPLATE = pathlib.Path(__file__).with_name("page.html")
COLORS = [
  "#1f77b4",
  "#ff7f0e",
  "#2ca02c",
  "#d62728",
  "#9467bd",
  "#8c564b",
  "#e377c2",
  "#7f7f7f",
  "#bcbd22",
  "#17becf",
]
DASHES = ("", "6 3", "2 3")  # the next one when all colors are used
WIDTH, HEIGHT = 560, 260  # of a chart
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 10, 44  # margins of a chart


def page(
  title: str,
  rows: list[dict],
  missing: Iterable[str] = (),
  figures: Iterable[pathlib.Path] = (),
) -> str:
  """Returns a page with tables that sort and filter, and charts.

  Args:
    title: title of the page.
    rows: rows of any runs.
    missing: a line of text for each missing result.
    figures: PNGs to embed.
  """
  exact, edit = (
    summary.sort(summary.curves(rows, metric, ("task", "test_set")))
    for metric in ("em", "edit")
  )
  of_task = lambda curves, task: [
    curve for curve in curves if curve.rows[0]["task"] == task
  ]
  tasks = dict.fromkeys(curve.rows[0]["task"] for curve in exact)
  links = [f'<a href="#{_escape(task)}">{_escape(task)}</a>' for task in tasks]
  parts = [f"<nav>{' '.join(links)}</nav>"]
  parts += [_section(t, of_task(exact, t), of_task(edit, t)) for t in tasks]
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
  template = TEMPLATE.read_text().replace("{{title}}", _escape(title))
  template = template.replace("{{about}}", _escape(about))
  return template.replace("{{results}}", "\n".join(parts))


def _section(task: str, exact: list[Curve], edit: list[Curve]) -> str:
  """Returns the section of one task, given its curves of exact match and edit
  distance."""
  # The main test set is the one of most curves.
  test_sets = [
    curve.rows[0]["test_set"] for curve in exact if not curve.is_stress
  ]
  main_test_set = max(test_sets, key=test_sets.count, default=None)
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
  note = f"Exact match in % by length in {unit}"
  parts = [f'<section id="{_escape(task)}"><h2>{_escape(task)}</h2>']
  if main:
    parts += [f"<p>{note}, test set {_escape(main_test_set)}</p>"]
    parts.append(_table(main, main_test_set))
    parts.append(_fold("Chart", _chart(main, unit)))
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
  """Returns a section that opens by a click on its name."""
  return f"<details><summary>{name}</summary>{text}</details>"


def _escape(text: str | None) -> str:
  """Returns a text as HTML."""
  return html.escape(str(text))


def _names(curve: Curve) -> tuple[str, str]:
  """Returns the method of a curve, and the other conditions that it is named
  after."""
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
  bits = {r["length"]: r["bits"] for curve in curves for r in curve.rows}
  has_test_sets = any(
    curve.rows[0]["test_set"] != main_test_set for curve in curves
  )
  has_frontier = curves[0].rows[0]["metric"] == "em" and any(
    curve.frontier or curve.proof for curve in curves
  )
  headings = [
    "method",
    *["test set"] * has_test_sets,
    *(f"{n}<small>{bits[n]} bits</small>" if bits[n] else n for n in lengths),
    *["frontier"] * has_frontier,
    *("seeds", "run"),
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
    seeds, run = curve.seed_count + curve.proof, _escape(row.get("run", ""))
    parts.append(f"<td>{seeds}</td><td>{run}</td></tr>")
  return "".join([*parts, "</tbody></table></div>"])


def _chart(curves: list[Curve], unit: str) -> str:
  """Returns curves of exact match against length as SVG, with a legend.

  Points are medians of the seeds, bars reach from the worst seed's lower bound
  to the best seed.
  """
  lengths = sorted({n for curve in curves for n in curve.cells})
  low, high = math.log(lengths[0]), math.log(lengths[-1])
  span, right, bottom = high - low or 1, WIDTH - RIGHT, HEIGHT - BOTTOM
  x = lambda n: LEFT + 8 + (right - LEFT - 16) * (math.log(n) - low) / span
  y = lambda share: bottom - (bottom - TOP) * share
  parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
  for share in (0, 0.25, 0.5, 0.75, 1):
    parts.append(
      f'<path d="M{LEFT} {y(share):g}H{right}"/><text x="{LEFT - 6}"'
      f' y="{y(share) + 4:g}" text-anchor="end">{100 * share:g}</text>'
    )
  last = -math.inf
  for n in lengths:
    if x(n) - last >= 28:  # labels closer to each other would overlap
      last = x(n)
      parts.append(
        f'<text x="{last:.1f}" y="{bottom + 16}" text-anchor="middle">{n}'
        "</text>"
      )
  parts.append(
    f'<text x="{(LEFT + right) / 2:g}" y="{HEIGHT - 6}" text-anchor="middle">'
    f"test length ({unit})</text>"
  )
  legend = []
  for i, curve in enumerate(curves):
    color, dash = COLORS[i % 10], DASHES[i // 10 % len(DASHES)]
    name = _escape(", ".join(text for text in _names(curve) if text))
    points = [(x(n), y(cell.median)) for n, cell in curve.cells.items()]
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
    parts.append(
      f'<g style="--color: {color}"><path d="M{path}"'
      f' stroke-dasharray="{dash}"/>'
    )
    for (a, b), (n, cell) in zip(points, curve.cells.items(), strict=True):
      worst = cell.worst if cell.lower_bound is None else cell.lower_bound
      parts.append(
        f'<path d="M{a:.1f} {y(worst):.1f}V{y(cell.best):.1f}"/>'
        f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4"><title>{name}\n{n} {unit}:'
        f" {tables.cell_text(curve, n)}</title></circle>"
      )
    parts.append("</g>")
    seeds = curve.seed_count + (
      " seed" if curve.seed_count == "1" else " seeds"
    )
    legend.append(f'<li style="--color: {color}">{name} ({seeds})</li>')
  return f"{''.join(parts)}</svg><ul>{''.join(legend)}</ul>"
