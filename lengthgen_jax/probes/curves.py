"""Curves of probes, against length and against training steps."""

import numpy as np

from lengthgen_jax.drawing import grid, plt, title
from lengthgen_jax.probes.ablation_charts import of_metric, where

STYLES = ("-", "--", ":", "-.")


# Against length.


def by_length_size(titles: dict[str, str]) -> tuple[float, float]:
  """Returns the size in inches of the chart of `by_length`."""
  return 1.7 + 3.0 * len(titles), 3.1


def by_length(
  canvas: plt.FigureBase,
  size: tuple[float, float],
  rows: list[dict],
  titles: dict[str, str],
  seed: int,
) -> None:
  """Draws probes against length, a panel per metric.

  A probe of heads has a thin curve for each head of one seed; any other has the
  median of all seeds, with their range.

  Args:
    canvas, size: where to draw, and its size in inches.
    rows: of probes, of all seeds.
    titles: of the panels, by metric.
    seed: whose heads are drawn.
  """
  rows = [row for row in rows if row["metric"] in titles]
  kinds = list(dict.fromkeys(map(where, rows)))
  margins, gaps = (0.4, 1.4, 0.45, 0.55), (0.4, 0.1)
  axes = grid(canvas, 1, len(titles), size, margins, gaps)[0]
  for axis, (metric, words) in zip(axes, titles.items(), strict=True):
    series = of_metric(rows, metric)
    by_head = series[0]["head"] is not None
    series = (
      [row for row in series if row["seed"] == seed] if by_head else series
    )
    _lines(axis, series, kinds)
    lengths = sorted({row["length"] for row in series})
    axis.set_xscale("log")
    axis.set_xticks(lengths, list(map(str, lengths)))
    axis.minorticks_off()
    train_length = series[0]["train_length"]
    axis.axvline(train_length, color="0.6", linestyle=":", linewidth=1)
    axis.set_title(words + (f", seed {seed}" if by_head else ""), fontsize=8)
    if max(row["value"] for row in series) <= 1:
      axis.set_ylim(-0.03, 1.03)
    axis.set_xlabel(f"length ({series[0]['unit']})", fontsize=7)
    axis.tick_params(labelsize=6)
  _legend(axes, kinds)
  title(canvas, size, "probes against length (dotted: trained up to)")


def _legend(axes: np.ndarray, kinds: list[str]) -> None:
  """Draws one legend for all axes, right of the last."""
  lines = {line.get_label(): line for axis in axes for line in axis.get_lines()}
  labels = [kind for kind in kinds if kind in lines]
  style = {"fontsize": 6.5, "frameon": False, "loc": "center left"}
  axes[-1].legend(
    [lines[kind] for kind in labels],
    labels,
    bbox_to_anchor=(1.02, 0.5),
    **style,
  )


def _color(kinds: list[str], row: dict) -> str:
  """Returns the color of a row's place in the model."""
  return f"C{kinds.index(where(row)) % 10}"


def _style(kinds: list[str], row: dict) -> str:
  """Returns the line style of a row's place in the model."""
  return STYLES[kinds.index(where(row)) % len(STYLES)]


def _lines(axis: plt.Axes, rows: list[dict], kinds: list[str]) -> None:
  """Draws a curve per place and head, the median of seeds against length.

  The area around it is the range of seeds.
  """
  groups = {}
  for row in rows:
    groups.setdefault((where(row), row["head"]), []).append(row)
  for (kind, head), series in groups.items():
    lengths = sorted({row["length"] for row in series})
    values = [
      [record["value"] for record in series if record["length"] == length]
      for length in lengths
    ]
    axis.plot(
      lengths,
      list(map(np.median, values)),
      color=_color(kinds, series[0]),
      linestyle=_style(kinds, series[0]),
      linewidth=1.4 if head is None else 0.9,
      marker="o",
      markersize=2.5,
      label=kind,
      clip_on=False,
    )
    lows, highs = list(map(min, values)), list(map(max, values))
    axis.fill_between(
      lengths,
      lows,
      highs,
      color=_color(kinds, series[0]),
      alpha=0.15,
      linewidth=0,
    )


# While training.


def by_step_size(rows: list[dict]) -> tuple[float, float]:
  """Returns the size in inches of the chart of `by_step`."""
  return 7.5, 2.6 + 2.3 * len({row["metric"] for row in rows})


def by_step(
  canvas: plt.FigureBase,
  size: tuple[float, float],
  metrics: list[dict],
  rows: list[dict],
  titles: dict[str, str],
  name: str,
) -> None:
  """Draws loss and exact match against step, and the probes below them.

  Probes are those that ran while the model trained; each has a panel, with a
  thin curve per seed and head.

  Args:
    canvas, size: where to draw, and its size in inches.
    metrics: rows of metrics.jsonl.
    rows: of the probes.
    titles: of the probes, by metric.
    name: of the run.
  """
  watched = list(dict.fromkeys(row["metric"] for row in rows))
  kinds = list(dict.fromkeys(map(where, rows)))
  margins = (0.6, 1.5, 0.45, 0.5)
  axes = grid(canvas, 1 + len(watched), 1, size, margins, (0.1, 0.25))[:, 0]
  em_axis = axes[0].twinx()
  for seed in sorted({row["seed"] for row in metrics}):
    series = of_seed(metrics, seed)
    steps = [row["step"] for row in series]
    axes[0].plot(steps, [row["loss"] for row in series], "C3", linewidth=1)
    em_axis.plot(
      steps, [100 * row["em"] for row in series], "C0--", linewidth=1
    )
  axes[0].set_yscale("log")
  axes[0].set_ylabel("loss (nats, red)", fontsize=7)
  em_axis.set_ylabel("validation EM (%, blue)", fontsize=7)
  for axis, metric in zip(axes[1:], watched, strict=True):
    groups = {}
    for row in of_metric(rows, metric):
      groups.setdefault((where(row), row["seed"], row["head"]), []).append(row)
    for (kind, _, _), series in groups.items():
      steps, values = (
        [row[field] for row in series] for field in ("step", "value")
      )
      color = _color(kinds, series[0])
      axis.plot(steps, values, color=color, linewidth=0.9, label=kind)
    axis.set_ylabel(titles[metric], fontsize=7)
  for axis in (*axes, em_axis):
    axis.tick_params(labelsize=6)
    axis.set_xlim(0, max(row["step"] for row in metrics))
  _legend(axes, kinds)
  axes[-1].set_xlabel("step", fontsize=7)
  title(canvas, size, f"what forms while it trains ({name})")


def of_seed(rows: list[dict], seed: int) -> list[dict]:
  """Returns the rows of one seed."""
  return [row for row in rows if row["seed"] == seed]
