"""This module makes the table and the figure of the results of --mode=bench."""

import itertools
import pathlib

from lengthgen_jax.drawing import plt, save

# The columns of numbers: {heading: function}. A function takes a row of
# bench.json and the peak FLOP/s.
COLUMNS = {
  "ms": lambda row, peak: 1e3 * row["seconds"] / max(row["steps"], 1),
  "steps/s": lambda row, peak: row["steps"] / row["seconds"],
  "samples/s": lambda row, peak: row["samples"] / row["seconds"],
  "tokens/s": lambda row, peak: row["tokens"] / row["seconds"],
  "GFLOP/s": lambda row, peak: row["flops"] / row["seconds"] / 1e9,
  "of peak %": lambda row, peak: 100 * row["flops"] / row["seconds"] / peak,
  "CPUs": lambda row, peak: row["cpu_seconds"] / row["seconds"],
  "compile s": lambda row, peak: row["compile_seconds"],
  "MB": lambda row, peak: row["memory"] / 1e6,
}
LEGEND = """\
ms is the time of a step, or of a run where there are no steps. tokens are the
rows of the decoder. GFLOP/s counts matrix products, and "of peak %" compares it
with the fastest product of square matrices on this device, in the dtype and the
precision of --config. CPUs is how many were busy on average."""


def table(results: dict) -> str:
  """Returns the contents of bench.json as text: the device, a table of the
  cases, the legend, ratios of times between variants, and what was left out.

  Args:
    results: what `bench.measure` returns.
  """
  peak = results["peak_flops"]
  table_rows = [["benchmark", "", "length", *COLUMNS]]
  for row in results["rows"]:
    length = "" if row["length"] is None else str(row["length"])
    values = [_number(value(row, peak)) for value in COLUMNS.values()]
    table_rows.append([row["benchmark"], row["variant"], length, *values])
  widths = [max(map(len, column)) for column in zip(*table_rows, strict=True)]
  lines = [
    "  ".join(
      # The benchmark and the variant are words, the other columns numbers.
      cell.ljust(width) if i < 2 else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()
    for cells in table_rows
  ]
  device = (
    f"{results['device']}, {results['cpus']} CPUs (load {results['load']:.1f}),"
    f" jax {results['jax']}: at most {peak / 1e9:.0f} GFLOP/s"
  )
  skipped = [
    f"left out: {title}: {reason}"
    for title, reason in results["skipped"].items()
  ]
  ratios = _ratios(results["rows"])
  return "\n".join([device, *lines, LEGEND, *ratios, *skipped])


def _number(value: float) -> str:
  """Returns a number with three significant digits, or all before the decimal
  point; "-" for zero."""
  if not value:
    return "-"
  return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def _ratios(rows: list[dict]) -> list[str]:
  """Returns lines of text that compare the variants of a benchmark at a length.

  Each says how many times as long as the first variant another one takes for a
  sample.
  """
  groups = {}
  for row in rows:
    key = row["benchmark"], row["length"], bool(row["steps"])
    groups.setdefault(key, []).append(row)
  lines = []
  for (benchmark, length, _), (first, *others) in groups.items():
    for other in others:
      samples = max(other["samples"], 1) / max(first["samples"], 1)
      wall, cpu = (
        other[name] / first[name] / samples
        for name in ("seconds", "cpu_seconds")
      )
      where = "" if length is None else f" at {length}"
      lines.append(
        f"{benchmark}{where}: {other['variant']} takes {wall:.2f} times as long"
        f" as {first['variant']} ({cpu:.2f} in CPU time)"
      )
  return lines


def draw_by_length(results: dict, path: pathlib.Path) -> pathlib.Path | None:
  """Draws the time per token against length.

  Args:
    results: what `bench.measure` returns.
    path: the path of the PNG.

  Returns:
    The path; None, without a figure, if no variant of a benchmark was timed at
    two lengths.
  """
  curves: dict[str, list[tuple[int, float]]] = {}
  for row in results["rows"]:
    if row["length"] is not None:
      name = f"{row['benchmark']}, {row['variant']}"
      point = row["length"], 1e6 * row["seconds"] / row["tokens"]
      curves.setdefault(name, []).append(point)
  curves = {name: points for name, points in curves.items() if len(points) > 1}
  if not curves:
    return None
  figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
  markers = itertools.cycle("os^vDPX*")
  for marker, (name, points) in zip(markers, curves.items(), strict=False):
    lengths, times = zip(*sorted(points), strict=True)
    axes.loglog(lengths, times, marker=marker, label=name)
  ticks = sorted({length for points in curves.values() for length, _ in points})
  axes.set_xticks(ticks, [f"{length:g}" for length in ticks])
  axes.minorticks_off()
  axes.set_xlabel("digits")
  axes.set_ylabel("microseconds per token")
  axes.set_title(results["device"], fontsize=10)
  axes.legend(fontsize=8)
  return save(figure, path)
