"""Exact match as text: one run on the screen, many runs in Markdown."""

from lengthgen_jax.results import schema, statistics


def of_run(rows: list[dict]) -> str:
  """Exact match by length: a line per method, test set and seed, and the
  median of the seeds, which says "k of R seeds" where R were asked for."""
  exact = schema.of_metric(rows, "em")
  if not exact:
    return "no exact match was measured"
  bits = {row["length"]: row["bits"] for row in exact}
  lengths = sorted(bits)
  unit = _all(exact, "unit")
  head = [str(n) for n in lengths]
  if any(bits.values()):
    unit += " (bits)"
    head = [f"{n} ({bits[n]})" for n in lengths]
  lines = [["method", "test set", "seed", *head]]
  for group in schema.groups(exact, shown=("test_set",)):
    name, test_set = group.name, group.rows[0]["test_set"]
    seeds = sorted({row["seed"] for row in group.rows})
    for seed in seeds:
      mine = [row for row in group.rows if row["seed"] == seed]
      cells = [_exact(_at(mine, n)) for n in lengths]
      lines.append([name, test_set, str(seed), *cells])
    if group.seeds != "1":
      of = f", {group.seeds} seeds" if " of " in group.seeds else ""
      cells = [_median(_at(group.rows, n)) for n in lengths]
      lines.append([name, test_set, "median" + of, *cells])
  return "\n".join(
    [
      f"{_all(exact, 'task')}: exact match in % by length in {unit}; in"
      " brackets the one-sided 95 % lower bound",
      f"trained on lengths up to {_all(exact, 'train_length')},"
      f" width={_all(exact, 'width')}, strict (every output token counted)",
      *_columns(lines),
    ]
  )


def _all(rows: list[dict], field: str) -> str:
  """A field's values, "natural" or "fixed or natural"."""
  return " or ".join(sorted({str(row[field]) for row in rows}))


def _at(rows: list[dict], length: int) -> list[dict]:
  return [row for row in rows if row["length"] == length]


def _exact(rows: list[dict]) -> str:
  """The cell of one seed, whose row is in `rows` if there is one."""
  if not rows:
    return "-"
  return f"{100 * rows[0]['value']:.1f}{_bound(rows[0])}"


def _median(rows: list[dict]) -> str:
  return f"{100 * statistics.median(rows):.1f}" if rows else "-"


def _bound(row: dict) -> str:
  bound = row["lower_bound"]
  return "" if bound is None else f" [{100 * bound:.1f}]"


def _columns(lines: list[list[str]]) -> list[str]:
  """Lines of cells: three names on the left, numbers on the right."""
  least = (26, 14, 6)
  widths = [
    max(least[i], *(len(line[i]) for line in lines)) for i in range(len(least))
  ]
  texts = []
  for line in lines:
    names = [n.ljust(w) for n, w in zip(line, widths, strict=False)]
    numbers = [cell.rjust(13) for cell in line[len(least) :]]
    texts.append(" ".join(names + numbers))
  return texts


def of_runs(rows: list[dict]) -> str:
  """Markdown: the median of seeds and, below 100 %, the worst seed.

  A cell also holds the worst seed's one-sided 95 % lower bound in brackets,
  and the number of its seeds where it is not that of the line. Rows of
  different conditions or runs never share a line; rows may name their `run`.
  """
  exact = schema.of_metric(rows, "em")
  lengths = sorted({row["length"] for row in exact})
  head = ["task", "method", "test set", "width", "run", "seeds"]
  head += [str(n) for n in lengths]
  lines = [_line(head), _line(["---"] * len(head))]
  shown = ("task", "test_set", "width", "run")
  for group in sorted(schema.groups(exact, shown=shown), key=_order):
    first = group.rows[0]
    cells = [
      first["task"],
      group.name,
      first["test_set"],
      str(first["width"]),
      first.get("run", ""),
      group.seeds,
    ]
    seeds = {row["seed"] for row in group.rows}
    cells += [_cell(_at(group.rows, n), len(seeds)) for n in lengths]
    lines.append(_line(cells))
  return "\n".join(lines)


def _order(group: schema.Group) -> tuple:
  first = group.rows[0]
  names = ("task", "method", "stage", "test_set", "width", "run")
  return *(str(first.get(name)) for name in names), first["step"]


def _cell(rows: list[dict], seeds: int) -> str:
  """Of one line at one length; `seeds` are the line's."""
  if not rows:
    return "–"
  median, worst = statistics.median(rows), statistics.worst(rows)
  text = f"{100 * median:.1f}"
  if len(rows) > 1 and worst["value"] < 0.9995 * median:
    text += f" (worst {100 * worst['value']:.1f})"
  text += _bound(worst)
  return text if len(rows) == seeds else f"{text} of {len(rows)}"


def _line(cells: list[str]) -> str:
  return "| " + " | ".join(cells) + " |"
