"""Scaffolds on disk: whose seeds, and what does not fit."""

import dataclasses
import types

import numpy as np
import pytest
import untrained
from command import refuses
from plain_lines import INF, places, random_lines, tokens
from pytrees import one

from lengthgen_jax.attention.biases import file, scaffold
from lengthgen_jax.attention.lines import RIGHT, WHOLE
from lengthgen_jax.config.build import make_scaffold
from lengthgen_jax.tasks import TASKS

SITES = {"self": ("", "", "target", "start"), "cross": ("a", "b")}
DEPTHS = {"self": 2, "cross": 2, "encoder": 0}
SPEC = scaffold.ScaffoldSpec(TASKS["addition"](), SITES, DEPTHS, 2, (0,))


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


def assert_same(found, expected, seeds=slice(None)) -> None:
  """Bit by bit; of some seeds of the expected lines, by their place."""
  assert set(found) == set(expected)
  for site, lines in expected.items():
    for name, value in lines._asdict().items():
      other = getattr(found[site], name)
      assert np.array_equal(other, value[seeds]) and other.dtype == value.dtype


def test_lines_come_back_as_they_were_and_seeds_find_theirs(tmp_path):
  path = tmp_path / "new folder" / "bias.npz"
  lines = save(path, (0, 2))
  assert [x.name for x in tmp_path.glob("*/*")] == ["bias.npz"]
  _, meta = file.read(path)
  assert meta["seeds"] == [0, 2] and meta["sites"]["cross"] == ["a", "b"]
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
  lines = one(lines_of((0,))["cross"])
  values = np.asarray(lines.dense(rows, keys))[:, 0]
  assert (values > -INF).any()
  wide = np.pad(values, [(0, 0), (0, 0), (0, 2), (0, 3)])  # more than needed
  closed = np.where(wide == -INF, -1e6, wide).astype(np.float64)
  np.savez(tmp_path / "dense.npz", cross=closed)
  matrix = one(read(tmp_path / "dense.npz")["cross"])
  config = scaffold.BiasConfig()
  for part in (rows, rows.slice(2, 2)):
    args = "cross", part, keys, False
    totals = [
      scaffold.dense_bias(config, {"cross": x}, *args).values
      for x in (lines, matrix)
    ]
    np.testing.assert_array_equal(*totals)


def without_matrix(path):
  save(path, (0,))
  arrays = dict(np.load(path))
  del arrays["self_matrix"]
  np.savez(path, **arrays)


def two_seeds_of_one(path):
  file.save(path, lines_of((0,)), {"seeds": [0, 1], "sites": SITES})


def half_a_file(path):
  save(path, (0,))
  path.write_bytes(path.read_bytes()[:300])


arrays_of = lambda **arrays: lambda path: np.savez(path, **arrays)
lines_like = lambda **fields: lambda path: save(path, (0,), **fields)
other_names = SITES | {"cross": ("pairs", "b")}
NO_SITES = '{"seeds": [0], "sites": {}}'
BAD = {  # what writes the file, and the refusal
  "half a file": (half_a_file, "is no .npz file"),
  "schema": (arrays_of(schema=np.int32(1), meta="{}"), "schema 1, this"),
  "NaN": (arrays_of(cross=np.full((1, 2, 3, 4), np.nan)), "cross holds NaN"),
  "infinite": (arrays_of(self=np.full((1, 2, 3, 3), np.inf)), "NaN or inf"),
  "no site": (
    arrays_of(schema=np.int32(2), meta=NO_SITES),
    "no site has lines",
  ),
  "seeds": (two_seeds_of_one, "self_valid: must be [seeds"),
  "axes": (lines_like(axes=2), "lines over 2 axes, this task's places have 1"),
  "segments": (lines_like(sites=other_names), "has segments ['pairs', 'b']"),
  "field": (without_matrix, "self has no matrix"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused_in_one_line(case, tmp_path):
  (write, words), path = BAD[case], tmp_path / "bad.npz"
  write(path)
  with refuses(words, f"bias.file={path}: "):
    read(path)


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


OTHERS = [
  ("decoder_only", "cross", (1, 2), ": this model has self"),
  ("encoder_decoder", "self", (1, 3), "has 1 layers and 3 heads"),
  ("encoder_decoder", "cross", (3, 2), "has 3 layers and 2 heads"),
]


@pytest.mark.parametrize(("kind", "site", "shape", "words"), OTHERS)
def test_a_bias_of_another_model_is_refused(kind, site, shape, words, tmp_path):
  np.savez(tmp_path / "bias.npz", **{site: np.zeros((*shape, 4, 4))})
  fields = {"bias.kind": "file", "bias.file": str(tmp_path / "bias.npz")}
  with refuses(f"bias.kind='file': {site}-attention", words):
    untrained.model("addition", kind, fields)
