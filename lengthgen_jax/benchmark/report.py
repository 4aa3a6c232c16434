"""The results of a bench are shown as a table and a figure."""

import pathlib

from lengthgen_jax.drawing import plt, save

# Headings, and the functions of (row, peak FLOP/s) that fill the columns.
COLUMNS = (
  ("ms", lambda row, top: 1e3 * row["seconds"] / max(row["steps"], 1)),
  ("steps/s", lambda row, top: row["steps"] / row["seconds"]),
  ("samples/s", lambda row, top: row["samples"] / row["seconds"]),
  ("tokens/s", lambda row, top: row["tokens"] / row["seconds"]),
  ("GFLOP/s", lambda row, top: row["flops"] / row["seconds"] / 1e9),
  ("of peak %", lambda row, top: 100 * row["flops"] / row["seconds"] / top),
  ("products %", lambda row, top: products(row)),
  ("CPUs", lambda row, top: row["cpu_seconds"] / row["seconds"]),
  ("compile s", lambda row, top: row["compile_seconds"]),
  ("MB", lambda row, top: row["memory"] / 1e6),
)
LEGEND = """\
ms: of a step, or of a pass. tokens: decoder rows. GFLOP/s: of matrix products;
of peak: of the best square product here. products: share of the time that its
matrix products take by themselves. CPUs: those it had; fewer than it could use
if the machine was busy."""


def products(row: dict) -> float:
  """Returns the share of a row's time that matrix products alone take, in %."""
  return 100 * row.get("product_seconds", 0.0) / row["seconds"]


def table(results: dict) -> str:
  """Returns the contents of bench.json as text: a line for each row, the ratios
  of the cases that are compared, and what was left out."""
  top = results["ceiling"]["flops"]
  lines = [["bench", "", "length", *(name for name, _ in COLUMNS)]]
  for row in results["rows"]:
    length = "" if row["length"] is None else str(row["length"])
    values = [_number(value(row, top)) for _, value in COLUMNS]
    lines.append([row["bench"], row["way"], length, *values])
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  text = [
    "  ".join(
      word.ljust(width) if i < 2 else word.rjust(width)
      for i, (word, width) in enumerate(zip(line, widths, strict=True))
    ).rstrip()
    for line in lines
  ]
  head = (
    f"{results['device']}, {results['cpus']} CPUs (load {results['load']:.1f}),"
    f" jax {results['jax']}: {top / 1e9:.0f} GFLOP/s,"
    f" {results['ceiling']['bytes'] / 1e9:.1f} GB/s written"
  )
  skipped = [
    f"left out: {title}: {why}" for title, why in results["skipped"].items()
  ]
  return "\n".join([head, *text, LEGEND, *ratios(results["rows"]), *skipped])


def _number(value: float) -> str:
  """Returns a number of a cell in three digits, "-" for none."""
  if not value:
    return "-"
  return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def ratios(rows: list[dict]) -> list[str]:
  """Returns a line for each case that is compared with the first of its group:
  how many times as long it takes."""
  lines = []
  groups = {}
  for row in rows:
    key = row["bench"], row["length"], row["threads"], bool(row["steps"])
    groups.setdefault(key, []).append(row)
  for (name, length, *_), (first, *others) in groups.items():
    for other in others:
      where = "" if length is None else f" at {length}"
      first_time, time = (
        {k: x[k] / max(x["samples"], 1) for k in ("seconds", "cpu_seconds")}
        for x in (first, other)
      )
      wall, cpu = (time[k] / first_time[k] for k in time)
      lines.append(
        f"{name}{where}: {other['way']} takes {wall:.2f} times as long as"
        f" {first['way']} ({cpu:.2f} in CPU time)"
      )
  return lines


def by_length(results: dict, path: pathlib.Path) -> pathlib.Path | None:
  """Draws microseconds per token against length.

  Args:
    results: the contents of bench.json.
    path: of the PNG.

  Returns:
    The path, or None where no case has two lengths.
  """
  lines = {}
  for row in results["rows"]:
    if row["length"] is not None:
      name = f"{row['bench']}, {row['way']}"
      per_token = 1e6 * row["seconds"] / row["tokens"]
      lines.setdefault(name, []).append((row["length"], per_token))
  lines = {name: series for name, series in lines.items() if len(series) > 1}
  if not lines:
    return None
  figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
  for marker, (name, points) in zip(
    "os^vDPX*" * 9, lines.items(), strict=False
  ):
    axis.loglog(*zip(*sorted(points), strict=True), marker=marker, label=name)
  ticks = sorted({n for points in lines.values() for n, _ in points})
  axis.set_xticks(ticks, [f"{n:g}" for n in ticks])
  axis.minorticks_off()
  axis.set_xlabel("digits")
  axis.set_ylabel("microseconds per token")
  axis.set_title(results["device"], fontsize=10)
  axis.legend(fontsize=8)
  return save(figure, path)
