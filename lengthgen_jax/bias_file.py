"""Biases on disk: our lines, and dense matrices from elsewhere."""

import json
import os
import pathlib

import numpy as np

from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.attention.lines import LEFT, SiteLines
from lengthgen_jax.errors import UsageError, check

SCHEMA = 1
DENSE_CLOSED = -1e5  # values at or below this mean closed


def save(path, bias: dict, meta: dict) -> None:
  """Writes a LineBias: `self_*`, `cross_*` arrays and `meta` as JSON."""
  arrays = {
    f"{site}_{name}": np.asarray(value)
    for site, lines in bias.items()
    for name, value in lines._asdict().items()
  }
  arrays["schema"] = np.int32(SCHEMA)
  arrays["meta"] = np.array(json.dumps(meta))
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name("new_" + path.name)
  np.savez_compressed(temporary, **arrays)
  os.replace(temporary, path)


def load(path) -> tuple[dict, dict]:
  """(bias, meta) of a file.

  The bias maps "self" and "cross" to SiteLines [R, N or 1, H, K], or, for
  matrices from elsewhere (`self` [1 or N, H, T, T], `cross` [1 or N, H, T, S],
  values <= -1e5 closed), "self_dense" and "cross_dense" to [1, 1 or N, ...].

  Raises:
    UsageError: the file is missing, of another schema, or holds NaN.
  """
  try:
    with np.load(path) as file:
      arrays = dict(file)
  except (OSError, ValueError) as error:
    raise UsageError(f"bias.file={path}: cannot be read ({error})") from error
  for name, value in arrays.items():
    if value.dtype.kind == "f":
      check(not np.isnan(value).any(), f"bias.file={path}: {name} holds NaN")
  if "schema" not in arrays:
    return _dense(arrays, path), {}
  check(
    arrays["schema"] == SCHEMA,
    f"bias.file={path}: schema {arrays['schema']}, this program reads {SCHEMA}",
  )
  bias = {}
  for site in ("self", "cross", "encoder"):
    if f"{site}_segment" in arrays:
      bias[site] = SiteLines(
        *(arrays[f"{site}_{n}"] for n in SiteLines._fields)
      )
  if "self" in bias:
    check(
      not (bias["self"].valid & (bias["self"].anchor != LEFT)).any(),
      f"bias.file={path}: self has lines anchored right, but decoder inputs"
      " have no right end while decoding",
    )
  return bias, json.loads(str(arrays["meta"]))


def _dense(arrays: dict, path) -> dict:
  known = [site for site in ("self", "cross") if site in arrays]
  check(
    known,
    f"bias.file={path}: has {', '.join(arrays) or 'nothing'}; wanted `self`"
    " [1 or N, H, T, T] and `cross` [1 or N, H, T, S], or a saved bias.npz",
  )
  bias = {}
  for site in known:
    value = arrays[site]
    check(
      value.ndim == 4,
      f"bias.file={path}: {site} has shape {value.shape}; wanted [1 or N, H, T,"
      f" {'T' if site == 'self' else 'S'}]",
    )
    value = np.where(value <= DENSE_CLOSED, CLOSED, value)
    bias[f"{site}_dense"] = value[None].astype(np.float32)
  return bias
