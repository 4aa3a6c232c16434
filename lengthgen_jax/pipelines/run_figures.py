"""Figures of a run: biases, attention and margins; and how long it trained."""

import pathlib
from collections.abc import Iterator

import jax
import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax.coordinates import PAD, Coordinates
from lengthgen_jax.drawing import plt, save
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.pipelines import attention_statistics, runs
from lengthgen_jax.results import records
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.training import loop

MAX_LABELS = 45  # rows or keys whose labels can be read in a panel
# The names of segments in labels; other segments keep their own.
SHORT_NAMES = {"start": "^", "target": "y", "items": "x", "pairs": "p"}


def training_seconds(log: pathlib.Path) -> float:
  """Returns the seconds that the chunks of a training took, with validation.

  Where a training starts on a single device, the compilation of their program
  is not counted; on several devices, and where it is resumed, it is. Steps that
  were done again after an interruption count once.

  Args:
    log: the path of the training's metrics.jsonl.
  """
  seconds_by_step = {row["step"]: row["seconds"] for row in records.read(log)}
  return sum(seconds_by_step.values())


def training_times(folder: pathlib.Path) -> str:
  """Returns a line on how many seconds both trainings of --mode=abc took, for
  all seeds together, and their ratio.

  Args:
    folder: the workdir.
  """
  interpolation, retraining = (
    training_seconds(folder / stage / "metrics.jsonl")
    for stage in ("interpolate", "retrain")
  )
  text = (
    f"training: interpolation {interpolation:.0f} s, retraining"
    f" {retraining:.0f} s"
  )
  if not interpolation:  # its metrics.jsonl is gone
    return text
  return f"{text} ({retraining / interpolation:.2f} times that)"


# Biases and attention.


def draw_calibration(
  config: ConfigDict,
  folder: pathlib.Path,
  interpolation: loop.Run,
  model: Model,
) -> list[pathlib.Path]:
  """Draws the calibrated biases, the mean attention and one input's attention.

  Biases and mean attention are those of the first retrained seed; the input's
  attention is that of the first vanilla one.

  Args:
    config: the config of the workdir.
    folder: the workdir.
    interpolation: the training of the vanilla models.
    model: the first retrained seed's.

  Returns:
    The paths of the figures.
  """
  figures = folder / "figures"
  experiment, section = interpolation.experiment, config.calibration
  *_, condition = attention_statistics.conditions(section.lengths, experiment)
  batch = attention_statistics.sample_batch(
    experiment, model.seed, condition, condition.width, 0, 1
  )
  attention = np.load(folder / "calibrate" / "attention.npz")
  return [
    *draw_biases(model, batch, figures, f"W={condition.width}"),
    *(
      draw_matrices(
        # The arrays are padded to the widest condition; the padding comes last
        # and is left out.
        attention[f"{site}_{model.seed}"][
          ..., : len(batch.rows.index), : len(labels)
        ],
        figures / f"attention_mean_{site}.png",
        f"mean {site}-attention {section.quantity} of the"
        f" interpolated model, seed {model.seed}",
        labels,
      )
      for site, labels in _key_labels(experiment, batch)
    ),
    *_draw_example(config, interpolation, figures),
  ]


def draw_biases(
  model: Model, batch: Batch, folder: pathlib.Path, size_text: str
) -> list[pathlib.Path]:
  """Draws the bias of a model's scaffold at the rows and keys of a batch.

  Args:
    model: a trained model.
    batch: a batch of its main task.
    folder: where the figures go.
    size_text: the width or length of the batch, for the titles.

  Returns:
    The paths of the figures, one for each decoder site with a bias.
  """
  biases = jax.jit(model.experiment.site_inputs)(model.scaffold, batch).biases
  return [
    draw_matrices(
      np.asarray(biases[site].values)[:, 0],
      folder / f"bias_{site}.png",
      f"{site}-attention bias, seed {model.seed}, {size_text} (white: closed;"
      " each head its own scale)",
      labels,
      position_labels(model.experiment, "self", batch.rows),
    )
    for site, labels in _key_labels(model.experiment, batch)
    if site in model.scaffold
  ]


def draw_window(model: Model, folder: pathlib.Path) -> list[pathlib.Path]:
  """Draws the bias of a windowed model (ABS paper, figure 3) at the longest
  length of its training.

  Args:
    model: a trained model with a window as its bias, of a task with one axis.
    folder: the workdir, which has the figures in its folder `figures`.

  Returns:
    The paths of the figures, one for each decoder site with a bias.
  """
  experiment, length = model.experiment, model.experiment.train_length
  width, units = experiment.test_width(length), experiment.task.units(length)
  condition = attention_statistics.Condition(width, units)
  batch = attention_statistics.sample_batch(
    experiment, model.seed, condition, width, 0, 1
  )
  size_text = f"{length} {experiment.task.unit}"
  return draw_biases(model, batch, folder / "figures", size_text)


def _draw_example(
  config: ConfigDict, interpolation: loop.Run, folder: pathlib.Path
) -> Iterator[pathlib.Path]:
  """Draws one input's attention in the last decoder layer of the first vanilla
  seed; `folder` is where the figures go. Yields the path of each."""
  task = interpolation.experiment.task
  text = config.abc.example or task.usage
  batch, layers = runs.load(interpolation, "best")[0].attention(text)
  for site, weights in layers[-1].items():
    keys = batch.inputs if site == "self" else batch.source
    assert keys is not None
    yield draw_matrices(
      weights[None],
      folder / f"attention_example_{site}.png",
      f"{site}-attention of the vanilla model's last decoder layer on {text}",
      task.symbols(np.asarray(keys[0])),
      task.symbols(np.asarray(batch.target[0])),
    )


def _key_labels(
  experiment: Experiment, batch: Batch
) -> Iterator[tuple[str, list[str]]]:
  """Yields each attention site of the decoder and the labels of its keys."""
  for site in attention_statistics.sites(experiment):
    keys = batch.keys if site == "self" else batch.source_keys
    assert keys is not None
    yield site, position_labels(experiment, site, keys)


def position_labels(
  experiment: Experiment, site: str, keys: Coordinates
) -> list[str]:
  """Returns a label for every key, by the segment it stands in and its offset.

  Labels are like "a4" and "b1", digits counted from the right end; "x1" for the
  first item of a list, "y1" for the first output, "y1,1" on a grid, "a" for the
  mark that a segment begins with, and "" for padding.

  Args:
    experiment: its site_segments name the segments.
    site: the attention site whose segments these are.
    keys: the coordinates of the keys; or of rows, with "self" as their site.
  """
  task, labels = experiment.task, []
  for segment, left, right in zip(
    np.asarray(keys.segment[0]),
    np.asarray(keys.left[0]),
    np.asarray(keys.right[0]),
    strict=True,
  ):
    if segment == PAD:
      labels.append("")
      continue
    name = experiment.site_segments[site][segment]
    from_left = name == "target" or not task.of_digits
    # Numbers in ragged tasks have no mark.
    begins_with_mark = not (from_left or task.ragged)
    is_mark = begins_with_mark and not left.any()
    is_mark |= name == "start"
    # In a grid an operand extends along one axis, the output along both.
    number = ",".join(map(str, left + 1)) if from_left else right.sum() + 1
    labels.append(
      SHORT_NAMES.get(name, name) + ("" if is_mark else f"{number}")
    )
  return labels


def draw_matrices(
  values: np.ndarray,
  path: pathlib.Path,
  title: str,
  key_labels: list[str],
  row_labels: list[str] | None = None,
) -> pathlib.Path:
  """Draws a matrix for each layer and head, with a row of panels per layer.

  Heads of a single layer stand in rows of four if their number is a multiple of
  four. Each panel is scaled to its own finite range; -inf stays white.

  Args:
    values: the matrices [N, H, T, S] of N layers and H heads.
    path: where the PNG goes.
    title: the title above all panels.
    key_labels: labels of the S keys, drawn if there are at most MAX_LABELS.
    row_labels: labels of the T rows, drawn if there are at most MAX_LABELS.

  Returns:
    The path of the PNG.
  """
  layers, heads, num_rows, num_keys = values.shape
  columns = 4 if layers == 1 and heads % 4 == 0 else heads
  panel_rows = layers * heads // columns
  panel_width = min(max(num_keys / 11, 1.3), 4.0, 14.0 / columns)  # inches
  panel_height = panel_width * num_rows / num_keys
  figure, axes = plt.subplots(
    panel_rows,
    columns,
    figsize=(panel_width * columns, (panel_height + 0.4) * panel_rows + 0.6),
    squeeze=False,
    layout="constrained",
  )
  keys, rows = (
    labels if labels and len(labels) <= MAX_LABELS else []
    for labels in (key_labels, row_labels)
  )
  rotation = 90 if max(map(len, keys), default=0) > 1 else 0
  for axis in axes.flat:
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_color("0.7")
  for axis in axes[-1]:
    axis.set_xticks(range(len(keys)), keys, fontsize=5, rotation=rotation)
  for axis in axes[:, 0]:
    axis.set_yticks(range(len(rows)), rows, fontsize=5)
  for axis, (layer, head) in zip(
    axes.flat, np.ndindex(layers, heads), strict=True
  ):
    panel = np.ma.masked_invalid(values[layer, head])
    # A constant panel gets the color of its highest value.
    low = panel.min() - 1 if panel.min() == panel.max() else None
    axis.imshow(panel, cmap="viridis", aspect="auto", vmin=low)
    prefix = f"layer {layer} " if layers > 1 else ""
    axis.set_title(f"{prefix}head {head}", fontsize=6, pad=2)
  figure.suptitle(title, fontsize=9)
  figure.supxlabel("key", fontsize=8)
  figure.supylabel("row", fontsize=8)
  return save(figure, path)


# Certificates and the construction.


def draw_margins(
  histograms: dict[str, np.ndarray],
  edges: np.ndarray,
  path: pathlib.Path,
  title: str,
) -> pathlib.Path:
  """Draws a histogram of the margins of the cases tried for each certificate.

  Args:
    histograms: {title of the panel: number of cases in each interval}.
    edges: the histograms' edges; the first and the last are infinite.
    path: where the PNG goes.
    title: the title above all panels.

  Returns:
    The path of the PNG.
  """
  figure, axes = plt.subplots(
    len(histograms),
    1,
    figsize=(6, 1.9 * len(histograms) + 0.8),
    sharex=True,
    squeeze=False,
    layout="constrained",
  )
  # The outer intervals are drawn with a width of 1.
  edges = np.concatenate([[edges[1] - 1], edges[1:-1], [edges[-2] + 1]])
  colors = np.where(edges[:-1] < 0, "tab:red", "tab:blue")
  for axis, (name, counts) in zip(axes.flat, histograms.items(), strict=True):
    axis.bar(edges[:-1], counts, np.diff(edges), align="edge", color=colors)
    axis.set_yscale("log")
    axis.set_ylim(bottom=0.5)
    axis.set_ylabel("cases")
    axis.set_title(name, fontsize=7)
  occupied = np.flatnonzero(sum(histograms.values()))
  axes[0, 0].set_xlim(edges[occupied[0]] - 1, edges[occupied[-1]] + 2)
  axes[-1, 0].set_xlabel("margin: right logit - best wrong one")
  figure.suptitle(title, fontsize=9)
  return save(figure, path)


def draw_precision(
  rows: list[dict], path: pathlib.Path, title: str
) -> pathlib.Path:
  """Draws the longest lists that are sorted, against bits of precision.

  The model is the construction of Theorem 5.1 of the task hinting paper, in the
  variants weights.COPIES. The bits are the significant ones of its parameters
  and activations; scores and weights of attention are not rounded. The dotted
  line is the number of items that the variant "share" is derived to sort, with
  up to 13 bits; with more, that number is 2 896 (weights.max_items). A gray
  line is the greatest length that was tried with the variants it names.

  Args:
    rows: as `precision.longest_lists` returns them.
    path: where the PNG goes.
    title: the title of the figure.

  Returns:
    The path of the PNG.
  """
  figure, axis = plt.subplots(figsize=(5.5, 3.8), layout="constrained")
  for copies, marker in (("difference", "o"), ("share", "s")):
    of_variant = [row for row in rows if row["copies"] == copies]
    points = sorted((row["bits"], row["longest"]) for row in of_variant)
    label = f"copies left: {copies}"
    axis.plot(*np.transpose(points), marker=marker, markersize=5, label=label)
  bits = np.array(sorted({row["bits"] for row in rows}))
  label = "(2^bits + 2) / 4"
  axis.plot(bits, (2.0**bits + 2) / 4, ":", color="0.5", label=label)
  for tried in sorted({row["tried"] for row in rows}):
    variants = dict.fromkeys(r["copies"] for r in rows if r["tried"] == tried)
    label = f"longest tried: {', '.join(variants)}"
    axis.axhline(tried, color="0.8", linewidth=1, label=label)
  longest_tried = max(row["tried"] for row in rows)
  axis.set_yscale("log", base=2)
  axis.set_ylim(0.7, 2 * longest_tried)
  axis.set_xticks(bits)
  axis.set_xlabel("significant bits of parameters and activations")
  axis.set_ylabel("longest lists sorted (items)")
  axis.legend(fontsize=8)
  figure.suptitle(title, fontsize=10)
  return save(figure, path)
