"""Scaffolds on disk: whose seeds, and what does not fit."""

import dataclasses
import types

import numpy as np
import pytest
import untrained
from command import refuses
from plain_lines import INF, one_seed, places, random_lines, tokens

from lengthgen_jax.attention.biases import file
from lengthgen_jax.attention.biases.scaffold import (
  BiasConfig,
  ScaffoldSpec,
  dense_bias,
)
from lengthgen_jax.attention.lines import RIGHT, WHOLE
from lengthgen_jax.config.build import make_scaffold
from lengthgen_jax.tasks import TASKS

SITES = {"self": ("", "", "target", "start"), "cross": ("a", "b")}
SPEC = ScaffoldSpec(
  task=TASKS["addition"](),
  site_segments=SITES,
  num_decoder_layers=2,
  num_encoder_layers=0,
  num_heads=2,
  seeds=(0,),
)


def lines_of(seeds, axes=1, layers=2, heads=2) -> dict:
  """Other lines for every seed."""
  shape = (len(seeds), layers, heads, 3)
  return {
    "self": random_lines(1, shape, axes, (2, 3, WHOLE)),
    "cross": random_lines(2, shape, axes, (0, 1), ends=(0, 1)),
  }


def save(path, seeds, sites=SITES, **shape) -> dict:
  lines = lines_of(seeds, **shape)
  file.save(path, lines, {"seeds": list(seeds), "sites": sites})
  return lines


def read(path, **fields) -> dict:
  section = types.SimpleNamespace(file=str(path))
  return file.from_file(section, dataclasses.replace(SPEC, **fields))


def assert_same(scaffold, expected, seeds=slice(None)) -> None:
  """Bit by bit; of some seeds of the expected lines, by their place."""
  assert set(scaffold) == set(expected)
  for site, lines in expected.items():
    for name, value in lines._asdict().items():
      other = getattr(scaffold[site], name)
      assert np.array_equal(other, value[seeds]) and other.dtype == value.dtype


def test_lines_come_back_as_they_were(tmp_path):
  path = tmp_path / "new folder" / "bias.npz"
  lines = save(path, (3,))
  assert_same(read(path, seeds=(3,)), lines)
  _, meta = file.read(path)
  assert meta["seeds"] == [3] and meta["sites"]["cross"] == ["a", "b"]
  assert [x.name for x in tmp_path.glob("*/*")] == ["bias.npz"]


def test_seeds_find_their_lines_by_name(tmp_path):
  path = tmp_path / "bias.npz"
  lines = save(path, (0, 2))
  for seeds, order in (((0, 2), [0, 1]), ((2,), [1]), ((2, 0), [1, 0])):
    assert_same(read(path, seeds=seeds), lines, order)
  for seeds in ((1,), (0, 1), (0, 1, 2)):
    with refuses("[0, 2], none of 1;"):
      read(path, seeds=seeds)


def test_a_file_of_one_seed_and_a_matrix_serve_all(tmp_path):
  lines = save(tmp_path / "bias.npz", (7,))
  assert_same(read(tmp_path / "bias.npz", seeds=(0, 1, 2)), lines)
  values = np.zeros((1, 2, 5, 5), np.float32)
  np.savez(tmp_path / "dense.npz", self=values)
  matrices = read(tmp_path / "dense.npz", seeds=(0, 1, 2))
  assert matrices["self"].shape == (1, 1, 2)


def test_a_matrix_of_lines_is_the_same_bias(tmp_path):
  rows, keys = places(tokens((2, 5))), places(tokens((0, 4), (1, 3)))
  lines = one_seed(lines_of((0,))["cross"])
  values = np.asarray(lines.dense(rows, keys))[:, 0]
  assert (values > -INF).any()
  wide = np.pad(values, [(0, 0), (0, 0), (0, 2), (0, 3)])  # more than needed
  closed = np.where(wide == -INF, -1e6, wide).astype(np.float64)
  np.savez(tmp_path / "dense.npz", cross=closed)
  matrix = one_seed(read(tmp_path / "dense.npz")["cross"])
  for part in (rows, rows.slice(2, 2)):
    totals = [
      dense_bias(BiasConfig(), {"cross": x}, "cross", part, keys, False).values
      for x in (lines, matrix)
    ]
    np.testing.assert_array_equal(*totals)


def without_matrix(path):
  save(path, (0,))
  arrays = dict(np.load(path))
  del arrays["self_matrix"]
  np.savez(path, **arrays)


def half_a_file(path):
  save(path, (0,))
  path.write_bytes(path.read_bytes()[:300])


matrix_of = lambda **arrays: lambda path: np.savez(path, **arrays)
other_names = SITES | {"cross": ("pairs", "b")}
BAD = {
  "half a file": (half_a_file, {}, "cannot be read"),
  "schema": (
    lambda path: np.savez(path, schema=np.int32(1), meta="{}"),
    {},
    "schema 1, this program reads 2",
  ),
  "NaN": (
    matrix_of(cross=np.full((1, 2, 3, 4), np.nan)),
    {},
    "cross holds NaN",
  ),
  "heads": (matrix_of(self=np.zeros((1, 3, 4, 4))), {}, "3 heads; this run"),
  "layers": (lambda path: save(path, (0,), layers=3), {}, "has 3 layers"),
  "axes": (
    lambda path: save(path, (0,), axes=2),
    {},
    "lines over 2 axes, this task's places have 1",
  ),
  "site": (
    lambda path: save(path, (0,)),
    {"site_segments": {"self": SITES["self"]}},
    "has a bias for cross-attention, but this model has self-attention",
  ),
  "segments": (
    lambda path: save(path, (0,), sites=other_names),
    {},
    "cross has segments ['pairs', 'b'], this run ['a', 'b']",
  ),
  "field": (without_matrix, {}, "self has no matrix"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused_in_one_line(case, tmp_path):
  write, fields, words = BAD[case]
  write(tmp_path / "bad.npz")
  with refuses(words, f"bias.file={tmp_path / 'bad.npz'}: "):
    read(tmp_path / "bad.npz", **fields)


def test_self_lines_from_the_right_are_refused(tmp_path):
  fields = {"bias.kind": "file", "bias.file": str(tmp_path / "bias.npz")}
  config = untrained.config("addition", "decoder_only", fields)
  experiment = untrained.experiment("addition", "decoder_only", fields)
  lines = lines_of((0, 1), layers=1)["self"]
  anchor = np.full_like(lines.anchor, RIGHT)
  segment = np.full_like(lines.segment, experiment.task.target_segment)
  lines = lines._replace(anchor=anchor, segment=segment)
  meta = {"seeds": [0, 1], "sites": experiment.site_segments}
  file.save(tmp_path / "bias.npz", {"self": lines}, meta)
  with refuses("no right end while decoding"):
    make_scaffold(config, experiment)
