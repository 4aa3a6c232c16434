"""Scaffolds on disk: whose seeds, and what does not fit."""

import types

import numpy as np
import pytest
import untrained
from plain_lines import INF, one_seed, places, random_lines, tokens

from lengthgen_jax.attention.biases import file
from lengthgen_jax.attention.biases.scaffold import (
  BiasConfig,
  ScaffoldSpec,
  dense_bias,
)
from lengthgen_jax.attention.lines import RIGHT, WHOLE
from lengthgen_jax.config.build import make_scaffold
from lengthgen_jax.errors import UsageError

SITES = {"self": ("", "", "target", "start"), "cross": ("a", "b")}
SHAPE = ScaffoldSpec(
  sites=SITES,
  layers=2,
  encoder_layers=0,
  heads=2,
  strides=(1, 1),
  target_segment=2,
  axes=1,
  seeds=(0,),
)


def about(**fields) -> ScaffoldSpec:
  return ScaffoldSpec(**vars(SHAPE) | fields)


def lines_of(seeds, axes=1, layers=2, heads=2) -> dict:
  """Other lines for every seed."""
  shape = (len(seeds), layers, heads, 3)
  own = (2, 3, WHOLE)
  return {
    "self": random_lines(1, shape, axes, own),
    "cross": random_lines(2, shape, axes, (0, 1), ends=(0, 1)),
  }


def saved(path, seeds, sites=SITES, **how) -> dict:
  bias = lines_of(seeds, **how)
  file.save(path, bias, {"seeds": list(seeds), "sites": sites})
  return bias


def read(path, **fields) -> dict:
  section = types.SimpleNamespace(file=str(path))
  return file.from_file(section, about(**fields))


def same(found, wanted) -> None:
  assert set(found) == set(wanted)
  for site, lines in wanted.items():
    for name, value in lines._asdict().items():
      other = getattr(found[site], name)
      assert np.array_equal(other, value) and other.dtype == value.dtype


def test_lines_come_back_as_they_were(tmp_path):
  bias = saved(tmp_path / "new folder" / "bias.npz", (3,))
  same(read(tmp_path / "new folder" / "bias.npz", seeds=(3,)), bias)
  _, meta = file.read(tmp_path / "new folder" / "bias.npz")
  assert meta["seeds"] == [3] and meta["sites"]["cross"] == ["a", "b"]
  assert [x.name for x in tmp_path.glob("*/*")] == ["bias.npz"]


def of(bias, *which) -> dict:
  """The lines of some seeds of a file, by their place."""
  take = lambda own: type(own)(*(x[list(which)] for x in own))
  return {site: take(own) for site, own in bias.items()}


def test_seeds_find_their_lines_by_name(tmp_path):
  path = tmp_path / "bias.npz"
  bias = saved(path, (0, 2))
  same(read(path, seeds=(0, 2)), bias)
  same(read(path, seeds=(2,)), of(bias, 1))
  same(read(path, seeds=(2, 0)), of(bias, 1, 0))
  for wanted in ((1,), (0, 1), (0, 1, 2)):
    with pytest.raises(UsageError, match=r"\[0, 2\], none of 1;"):
      read(path, seeds=wanted)


def test_a_file_of_one_seed_and_a_matrix_serve_all(tmp_path):
  bias = saved(tmp_path / "bias.npz", (7,))
  same(read(tmp_path / "bias.npz", seeds=(0, 1, 2)), bias)
  values = np.zeros((1, 2, 5, 5), np.float32)
  np.savez(tmp_path / "dense.npz", self=values)
  found = read(tmp_path / "dense.npz", seeds=(0, 1, 2))
  assert found["self"].shape == (1, 1, 2)


def test_a_matrix_of_lines_is_the_same_bias(tmp_path):
  rows, keys = places(tokens((2, 5))), places(tokens((0, 4), (1, 3)))
  own = one_seed(lines_of((0,))["cross"])
  matrix = np.asarray(own.dense(rows, keys))[:, 0]
  assert (matrix > -INF).any()
  wide = np.pad(matrix, [(0, 0), (0, 0), (0, 2), (0, 3)])  # larger than needed
  closed = np.where(wide == -INF, -1e6, wide).astype(np.float64)
  np.savez(tmp_path / "dense.npz", cross=closed)
  found = one_seed(read(tmp_path / "dense.npz")["cross"])
  for part in (rows, rows.rows(2, 2)):
    totals = [
      dense_bias(BiasConfig(), {"cross": x}, "cross", part, keys, False).values
      for x in (own, found)
    ]
    np.testing.assert_array_equal(*totals)


def right_in_self(path):
  bias = lines_of((0,))
  anchor = np.full_like(bias["self"].anchor, RIGHT)
  bias["self"] = bias["self"]._replace(anchor=anchor)
  file.save(path, bias, {"seeds": [0], "sites": SITES})


def schema_1(path):
  np.savez(path, schema=np.int32(1), meta="{}")


def without_matrix(path):
  saved(path, (0,))
  arrays = dict(np.load(path))
  del arrays["self_matrix"]
  np.savez(path, **arrays)


def half_a_file(path):
  saved(path, (0,))
  path.write_bytes(path.read_bytes()[:300])


matrix_of = lambda **arrays: lambda path: np.savez(path, **arrays)
other_names = SITES | {"cross": ("pairs", "b")}
BAD = {
  "nothing there": (lambda path: None, {}, "cannot be read"),
  "text": (lambda path: path.write_text("lines\n"), {}, "cannot be read"),
  "half a file": (half_a_file, {}, "cannot be read"),
  "schema": (schema_1, {}, "schema 1, this program reads 2"),
  "NaN": (
    matrix_of(cross=np.full((1, 2, 3, 4), np.nan)),
    {},
    "cross holds NaN",
  ),
  "no site": (matrix_of(other=np.zeros(3)), {}, "has other; wanted `self`"),
  "rank": (matrix_of(cross=np.zeros((3, 4))), {}, r"shape \(3, 4\); wanted"),
  "heads": (matrix_of(self=np.zeros((1, 3, 4, 4))), {}, "3 heads; this run"),
  "layers": (lambda path: saved(path, (0,), layers=3), {}, "has 3 layers"),
  "axes": (
    lambda path: saved(path, (0,), axes=2),
    {},
    "lines over 2 axes, this task's places have 1",
  ),
  "one axis": (lambda path: saved(path, (0,)), {"axes": 2}, "over 1 axes"),
  "site": (
    lambda path: saved(path, (0,)),
    {"sites": {"self": SITES["self"]}},
    "has a bias for cross-attention, but this model has self-attention",
  ),
  "segments": (
    lambda path: saved(path, (0,), sites=other_names),
    {},
    r"cross has segments \['pairs', 'b'\], this run \['a', 'b'\]",
  ),
  "field": (without_matrix, {}, "self has no matrix"),
  "right end": (right_in_self, {}, "no right end while decoding"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused_in_one_line(case, tmp_path):
  write, fields, words = BAD[case]
  write(tmp_path / "bad.npz")
  with pytest.raises(UsageError, match=words) as error:
    read(tmp_path / "bad.npz", **fields)
  assert "\n" not in str(error.value)
  assert str(error.value).startswith(f"bias.file={tmp_path / 'bad.npz'}: ")


def test_a_run_tells_a_file_what_it_is(tmp_path):
  """Seeds, axes, segments and heads of the config's own experiment."""
  fields = {"bias.kind": "file", "bias.file": str(tmp_path / "bias.npz")}
  config = untrained.config("addition", "decoder_only", fields)
  built = untrained.experiment("addition", "decoder_only", fields)
  own = {"self": lines_of((0, 1, 5), layers=1)["self"]}
  meta = {"seeds": [0, 5, 1], "sites": built.site_segments}
  file.save(tmp_path / "bias.npz", own, meta)
  assert config.seeds == (0, 1)
  same(make_scaffold(config, built), of(own, 0, 2))


def test_matrices_too_small_for_a_test_are_refused(tmp_path):
  np.savez(tmp_path / "dense.npz", self=np.zeros((1, 2, 9, 9)))
  fields = {"bias.kind": "file", "bias.file": str(tmp_path / "dense.npz")}
  config = untrained.config("addition", fields=fields)
  built = untrained.experiment("addition", fields=fields)
  scaffold = make_scaffold(config, built)
  built.check_scaffold(8, scaffold)
  with pytest.raises(UsageError, match="self is 9 x 9, but 10 x 10 are needed"):
    built.check_scaffold(9, scaffold)
