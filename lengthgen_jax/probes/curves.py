"""Curves of probes: against length, and while a model trains."""

import numpy as np

from lengthgen_jax.drawing import grid, title
from lengthgen_jax.probes.ablation_charts import of_metric, where

STYLES = ("-", "--", ":", "-.")


# Against length.


def by_length_size(titles: dict) -> tuple:
  return 1.7 + 3.0 * len(titles), 3.1


def by_length(canvas, size, rows: list[dict], titles: dict, seed: int) -> None:
  """Probes against length: of heads, each one of a seed, thin; else the median
  of all seeds, with their range.

  Args:
    canvas, size: to draw on.
    rows: of all seeds.
    titles: by metric.
    seed: whose heads.
  """
  rows = [row for row in rows if row["metric"] in titles]
  kinds = list(dict.fromkeys(map(where, rows)))
  margins, gaps = (0.4, 1.4, 0.45, 0.55), (0.4, 0.1)
  axes = grid(canvas, 1, len(titles), size, margins, gaps)[0]
  for axis, (metric, words) in zip(axes, titles.items(), strict=True):
    own = of_metric(rows, metric)
    by_head = own[0]["head"] is not None
    own = [row for row in own if row["seed"] == seed] if by_head else own
    _lines(axis, own, kinds)
    lengths = sorted({row["length"] for row in own})
    axis.set_xscale("log")
    axis.set_xticks(lengths, list(map(str, lengths)))
    axis.minorticks_off()
    trained = own[0]["train_length"]
    axis.axvline(trained, color="0.6", linestyle=":", linewidth=1)
    axis.set_title(words + (f", seed {seed}" if by_head else ""), fontsize=8)
    if max(row["value"] for row in own) <= 1:
      axis.set_ylim(-0.03, 1.03)
    axis.set_xlabel(f"length ({own[0]['unit']})", fontsize=7)
    axis.tick_params(labelsize=6)
  _legend(axes, kinds)
  title(canvas, size, "probes against length (dotted: trained up to)")


def _legend(axes, kinds: list) -> None:
  """One for all axes, right of the last."""
  lines = {line.get_label(): line for axis in axes for line in axis.get_lines()}
  named = [kind for kind in kinds if kind in lines]
  look = {"fontsize": 6.5, "frameon": False, "loc": "center left"}
  axes[-1].legend(
    [lines[kind] for kind in named], named, bbox_to_anchor=(1.02, 0.5), **look
  )


def _color(kinds: list, row: dict) -> str:
  return f"C{kinds.index(where(row)) % 10}"


def _style(kinds: list, row: dict) -> str:
  return STYLES[kinds.index(where(row)) % len(STYLES)]


def _lines(axis, rows: list[dict], kinds: list) -> None:
  """A line per place in the model against length: the median of seeds."""
  groups = {}
  for row in rows:
    groups.setdefault((where(row), row["head"]), []).append(row)
  for (kind, head), own in groups.items():
    at = sorted({row["length"] for row in own})
    values = [[r["value"] for r in own if r["length"] == n] for n in at]
    axis.plot(
      at,
      list(map(np.median, values)),
      color=_color(kinds, own[0]),
      linestyle=_style(kinds, own[0]),
      linewidth=1.4 if head is None else 0.9,
      marker="o",
      markersize=2.5,
      label=kind,
      clip_on=False,
    )
    low, high = list(map(min, values)), list(map(max, values))
    axis.fill_between(
      at, low, high, color=_color(kinds, own[0]), alpha=0.15, linewidth=0
    )


# While training.


def by_step_size(rows: list[dict]) -> tuple:
  return 7.5, 2.6 + 2.3 * len({row["metric"] for row in rows})


def by_step(canvas, size, metrics, rows, titles: dict, name: str) -> None:
  """Loss and exact match against step, and below them what was watched: a thin
  line per seed and head.

  Args:
    canvas, size: to draw on.
    metrics: rows of metrics.jsonl.
    rows: what was watched.
    titles: by metric.
    name: of the run.
  """
  watched = list(dict.fromkeys(row["metric"] for row in rows))
  kinds = list(dict.fromkeys(map(where, rows)))
  margins = (0.6, 1.5, 0.45, 0.5)
  axes = grid(canvas, 1 + len(watched), 1, size, margins, (0.1, 0.25))[:, 0]
  right = axes[0].twinx()
  for seed in sorted({row["seed"] for row in metrics}):
    own = of_seed(metrics, seed)
    steps = [row["step"] for row in own]
    axes[0].plot(steps, [row["loss"] for row in own], "C3", linewidth=1)
    right.plot(steps, [100 * row["em"] for row in own], "C0--", linewidth=1)
  axes[0].set_yscale("log")
  axes[0].set_ylabel("loss (nats, red)", fontsize=7)
  right.set_ylabel("validation EM (%, blue)", fontsize=7)
  for axis, metric in zip(axes[1:], watched, strict=True):
    groups = {}
    for row in of_metric(rows, metric):
      groups.setdefault((where(row), row["seed"], row["head"]), []).append(row)
    for (kind, _, _), own in groups.items():
      steps, values = ([row[of] for row in own] for of in ("step", "value"))
      color = _color(kinds, own[0])
      axis.plot(steps, values, color=color, linewidth=0.9, label=kind)
    axis.set_ylabel(titles[metric], fontsize=7)
  for axis in (*axes, right):
    axis.tick_params(labelsize=6)
    axis.set_xlim(0, max(row["step"] for row in metrics))
  _legend(axes, kinds)
  axes[-1].set_xlabel("step", fontsize=7)
  title(canvas, size, f"what forms while it trains ({name})")


def of_seed(rows: list[dict], seed: int) -> list[dict]:
  return [row for row in rows if row["seed"] == seed]
