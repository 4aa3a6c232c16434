"""Bias files: calibrated lines, written by `save`, or dense matrices of other
programs.

Shapes: R seeds, N layers, H heads, K lines of a head, T rows of the decoder and
S source tokens.
"""

import json
import os
import pathlib
import zipfile
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from lengthgen_jax.attention.biases.scaffold import (
  DENSE_CLOSED,
  Scaffold,
  ScaffoldSpec,
  SiteMatrix,
)
from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.attention.lines import SiteLines
from lengthgen_jax.errors import UsageError, check, file_errors

SCHEMA = 2  # the version of the format of calibrated lines
SITES = ("self", "cross", "encoder")
# In the file of a trained model the names of the lines' arrays begin with this.
LINES_PREFIX = "lines/"


def save(
  path: str | os.PathLike, scaffold: dict[str, SiteLines], meta: dict
) -> None:
  """Writes lines [R, N or 1, H, K] and their metadata to an .npz file, all of
  it or nothing.

  The array of a site's field is named SITE_FIELD, like `self_segment`. `meta`
  is a dict that JSON can hold, with at least "seeds", the R seeds, and "sites",
  the names of the keys' segments by site, like {"cross": ["a", "b"]}.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name("new_" + path.name)
  np.savez_compressed(
    temporary, allow_pickle=False, **to_arrays(scaffold, meta)
  )
  os.replace(temporary, path)


def to_arrays(scaffold: dict[str, SiteLines], meta: dict) -> dict[str, Any]:
  """Returns the arrays that `save` writes, by name."""
  arrays = {"schema": np.int32(SCHEMA), "meta": np.array(json.dumps(meta))}
  for site, lines in scaffold.items():
    for field, value in lines._asdict().items():
      arrays[f"{site}_{field}"] = np.asarray(value)
  return arrays


def read(path: str | os.PathLike) -> tuple[dict, dict]:
  """Returns (arrays by name, meta) of a .npz file; meta is empty unless the
  file holds lines. Of a trained model (lengthgen_jax/pretrained) that has
  lines, the lines alone are returned."""
  with file_errors(f"bias.file={path}: cannot be read"):
    with open(path, "rb") as data:
      is_zip = zipfile.is_zipfile(data)
    check(is_zip, f"bias.file={path}: is no .npz file")
    with np.load(path) as file:
      is_model = any(name.startswith(LINES_PREFIX) for name in file)
      prefix = LINES_PREFIX if is_model else ""
      arrays = {
        name.removeprefix(prefix): file[name]
        for name in file
        if name.startswith(prefix)
      }
  if not is_model and "schema" not in arrays:
    return arrays, {}
  return arrays, check_lines(f"bias.file={path}: {prefix}", arrays)


def from_file(section: ConfigDict, spec: ScaffoldSpec) -> Scaffold:
  """Reads the scaffold from `section.file`.

  A file has either lines [R, N or 1, H, K] or the matrices of another program:
  `self` [1 or N, H, T, T], `cross` [1 or N, H, T, S], in which cells with
  values <= -1e5 are closed. A file of lines lists its seeds, and each seed of
  the run takes its own lines. Lines of a single seed, and matrices, are used
  for all seeds of the run.
  """
  path = section.file
  arrays, meta = read(path)
  if meta:
    return _site_lines(path, arrays, meta, spec)
  return _site_matrices(path, arrays)


def check_lines(what: str, arrays: dict[str, np.ndarray]) -> dict:
  """Checks that arrays have the form of a bias file of lines, and returns its
  meta; `what` begins the message of a UsageError.

  They are `schema`, an int32; `meta`, a text of JSON that names the seeds and
  the sites; and for one or more sites all fields of SiteLines: int32, but
  `value` float32 and finite, `valid` and `transparent` bool. All fields of a
  site have the leading shape [R, N or 1, H, K] of its `valid` (`transparent`
  the same without K), whatever numpy would broadcast. Entries of `matrix` are
  below 2^8 in size, those of `intercept` below 2^24, so that no index of a key
  overflows.
  """
  schema = arrays.get("schema", np.array(0))
  check(
    (schema.dtype, schema.shape) == (np.int32, ()) and schema == SCHEMA,
    f"{what}schema {schema}, this program reads {SCHEMA}; calibrate again",
  )
  meta = arrays.get("meta", np.array(0))
  is_text = meta.dtype.kind == "U" and not meta.shape
  check(is_text, f"{what}meta: is no text")
  try:
    meta = json.loads(str(meta))
  except ValueError as error:
    raise UsageError(f"{what}meta: is no JSON") from error
  is_meta = isinstance(meta, dict) and (
    isinstance(meta.get("seeds"), list) and isinstance(meta.get("sites"), dict)
  )
  check(is_meta, f"{what}meta: has no seeds, or no sites")
  types = {"value": np.float32, "valid": np.bool_, "transparent": np.bool_}
  limits = {"matrix": 1 << 8, "intercept": 1 << 24, "value": np.inf}
  known = {"schema", "meta"}
  for site in SITES:
    valid = arrays.get(f"{site}_valid")
    if valid is None:
      continue
    check(
      site in meta["sites"]
      and valid.ndim == 4
      and len(valid) == len(meta["seeds"]),
      f"{what}{site}_valid: must be [seeds, layers, heads, lines], of a site"
      " and the seeds in meta",
    )
    num_axes = np.shape(arrays.get(f"{site}_intercept", 0))[-1:]
    tails = {"matrix": num_axes * 2, "intercept": num_axes}
    for field in SiteLines._fields:
      name, last = f"{site}_{field}", 3 if field == "transparent" else 4
      known.add(name)
      check(name in arrays, f"{what}{site} has no {field}")
      array, dtype = arrays[name], np.dtype(types.get(field, np.int32))
      shape = valid.shape[:last] + tails.get(field, ())
      check(
        (array.dtype, array.shape) == (dtype, shape),
        f"{what}{name}: is {array.dtype} {array.shape}, not {dtype} {shape}",
      )
      is_small = np.abs(array.astype(float)) < limits.get(field, np.inf)
      check(is_small.all(), f"{what}{name}: has too large a number, or none")
  check(len(known) > 2, f"{what}SITE_valid: no site has lines")
  unknown = sorted({*arrays} - known)
  check(not unknown, f"{what}{', '.join(unknown)}: no such array is known")
  return meta


def _site_lines(
  path: str, arrays: dict, meta: dict, spec: ScaffoldSpec
) -> Scaffold:
  """Returns the lines by site, with the run's seeds along the first axis, or a
  single seed that serves them all."""
  saved_seeds = meta["seeds"]
  seeds = saved_seeds if len(saved_seeds) == 1 else spec.seeds
  missing = [seed for seed in seeds if seed not in saved_seeds]
  check(
    not missing,
    f"bias.file={path}: has lines of seeds {saved_seeds}, none of"
    f" {', '.join(map(str, missing))}; choose seeds among them",
  )
  order, scaffold = [saved_seeds.index(seed) for seed in seeds], {}
  for site in SITES:
    if f"{site}_segment" not in arrays:
      continue
    lines = SiteLines(
      *(arrays[f"{site}_{field}"][order] for field in SiteLines._fields)
    )
    axes = lines.intercept.shape[-1]
    check(
      axes == spec.task.axes,
      f"bias.file={path}: {site} has lines over {axes} axes, this task's places"
      f" have {spec.task.axes}",
    )
    segments = spec.site_segments.get(site)
    check(
      segments is None or tuple(meta["sites"][site]) == segments,
      f"bias.file={path}: {site} has segments {meta['sites'][site]}, this run"
      f" {list(segments or ())}",
    )
    scaffold[site] = lines
  return scaffold


def _site_matrices(path: str, arrays: dict) -> Scaffold:
  sites = [site for site in ("self", "cross") if site in arrays]
  check(
    sites,
    f"bias.file={path}: has {', '.join(arrays) or 'nothing'}; expected `self`"
    " [1 or N, H, T, T] and `cross` [1 or N, H, T, S], or the bias.npz of a"
    " calibration",
  )
  scaffold: Scaffold = {}
  for site in sites:
    values = arrays[site]
    check(
      values.ndim == 4,
      f"bias.file={path}: {site} has shape {values.shape}; expected [1 or N, H,"
      f" T, {'T' if site == 'self' else 'S'}]",
    )
    is_valid = (values < np.inf).all()  # NaN is not
    check(is_valid, f"bias.file={path}: {site} holds NaN or inf")
    values = np.where(values <= DENSE_CLOSED, CLOSED, values)
    scaffold[site] = SiteMatrix(values.astype(np.float32)[None])
  return scaffold
