"""Damages files of models, and holds the checker's word against the program.

Each draw takes the files of a small model that comes with the package, damages
shapes, dtypes, names or values in them, and asks proofs/checker.py. What it
proves, the ordinary program must answer rightly. A draw is a function of its
number:

  python tests/checker_fuzz.py --first=0 --draws=2000
"""

import argparse
import collections
import contextlib
import hashlib
import json
import pathlib
import tempfile

import numpy as np

import lengthgen_jax
from lengthgen_jax.errors import UsageError
from lengthgen_jax.pretrained import files
from lengthgen_jax.proofs import checker

MODELS = "parity", "successor", "increment"
NUMBERS = -(1 << 31), -129, -128, -2, -1, 0, 1, 2, 127, 1 << 24, (1 << 31) - 1
FLOATS = np.nan, np.inf, -np.inf, 1e30, 1e6, -1e6, 0.0, 0.1, 1e-40
DTYPES = "i1", "u1", "i2", "i8", "u4", ">i4", "f2", "f8", ">f4", "?", "c8", "U"
METAS = "{}", "[]", "", '{"seeds": [], "sites": {}}', '{"seeds": [7]}'
VALUES = 0, 1, 2, True, False, "none", "", -1e9, -9.0, 1.0, 2.0, None, []
# What the program must say of these, at the lengths in training and far above.
LENGTHS = 1, 2, 3, 5, 8, 13, 21, 34, 55


def questions(model):
  """Returns {input: right answer}."""
  rng, base = np.random.default_rng(0), 2 if model == "parity" else 10
  lists = [rng.integers(base, size=n) for n in LENGTHS for _ in range(2)]
  lists += [np.full(n, base - 1) for n in LENGTHS]
  texts = ["".join(map(str, digits)) for digits in lists]
  if model == "parity":
    return {text: str(text.count("1") % 2) for text in texts}
  return {text: str(int(text) + 1) for text in texts if text[0] != "0"}


# Damages: functions of (rng, arrays, config). One that does not fit what an
# earlier one left may raise an error.


def one_of(rng, choices):
  return choices[int(rng.integers(len(choices)))]


def pick(rng, arrays, prefix=""):
  """Returns the name of an array, and the array; mostly one of the lines."""
  names = [name for name in sorted(arrays) if name.startswith(prefix)]
  lines = [name for name in names if name.startswith("lines/")]
  name = one_of(rng, lines if lines and rng.random() < 0.7 else names)
  return name, arrays[name]


def change_dtype(rng, arrays, config):
  name, array = pick(rng, arrays)
  arrays[name] = array.astype(one_of(rng, DTYPES))


def change_shape(rng, arrays, config):
  name, array = pick(rng, arrays)
  axis, other = rng.integers(max(array.ndim, 1), size=2).tolist()
  forms = (
    *(lambda: array[None], array.squeeze, lambda: array.swapaxes(axis, other)),
    lambda: np.take(array, [0], axis),
    lambda: np.concatenate([array, array], axis),
  )
  arrays[name] = one_of(rng, forms)()


def widen_lines(rng, arrays, config):
  """Repeats the lines of a site: a form like any other, if all fields are."""
  site = one_of(rng, ["self", "cross"])
  for field in checker.FIELDS:
    name = f"lines/{site}_{field}"
    if name in arrays and field != "transparent" and rng.random() < 0.95:
      arrays[name] = np.concatenate([arrays[name]] * 2, axis=3)


def change_name(rng, arrays, config):
  (name, array), (other, another) = pick(rng, arrays), pick(rng, arrays)
  if rng.random() < 0.5:
    moved = name.replace("self", "encoder").replace("_0", "_7")
    arrays[one_of(rng, [moved, "x", "params/", f"{name}.npy"])] = array
  elif rng.random() < 0.5:
    arrays[name], arrays[other] = another, array
  else:
    arrays.pop(name)


def change_value(rng, arrays, config):
  name, array = pick(rng, arrays, one_of(rng, ["lines/", "params/"]))
  index = tuple(int(rng.integers(size)) for size in array.shape)
  value = one_of(rng, FLOATS if array.dtype.kind == "f" else NUMBERS)
  arrays[name] = array = array.copy()
  array[one_of(rng, [index, index[:1], ...])] = np.array(value).astype(
    array.dtype
  )


def change_meta(rng, arrays, config):
  text = str(arrays.get("lines/meta", ""))
  edits = text.replace('"a"', '"b"'), text.replace("0", "1"), text[:-1]
  arrays["lines/meta"] = np.array(one_of(rng, [*METAS, *edits]))
  arrays["lines/schema"] = np.array(one_of(rng, [1, 2, 2, 2, 3]))


def change_parameters(rng, arrays, config):
  name, array = pick(rng, arrays, "params/")
  noise = rng.normal(size=array.shape) * 10.0 ** rng.uniform(-6, 0)
  factor = np.float32(10.0 ** rng.uniform(-3, 3))
  forms = (
    factor * array,
    array[rng.permutation(len(array))],
    array * (1 + noise),
  )
  arrays[name] = one_of(rng, forms).astype(array.dtype)


def add_noise(rng, arrays, config):
  """So little noise that most models stay right."""
  for name, array in arrays.items():
    if name.startswith("params/"):
      noise = 1 + 1e-4 * rng.normal(size=array.shape)
      arrays[name] = (array.astype(float) * noise).astype(array.dtype)


def change_config(rng, arrays, config):
  section = one_of(rng, ["model", "bias", "positions", "attention", "data"])
  field, value = one_of(rng, sorted(config[section])), one_of(rng, VALUES)
  dotted = f"{section}.{field}"  # a name that no section has
  places = (config[section], field), (config, dotted), (config["train"], dotted)
  place, name = one_of(rng, places)
  place[name] = value


DAMAGES = (
  *(change_dtype, change_shape, widen_lines, change_name, change_value),
  *(change_meta, change_parameters, add_noise, change_config),
)


def write(path, arrays, card):
  """Writes a model to path, .npz, and its card, which gets its sha256."""
  np.savez(path, **arrays)
  card = card | {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
  path.with_suffix(".json").write_text(json.dumps(card), encoding="utf-8")


def damaged(draw, folder):
  """Writes the files of a draw; returns (model, path of the npz)."""
  rng, model = np.random.default_rng(draw), MODELS[draw % len(MODELS)]
  source = files.FOLDER / f"{model}.json"
  card = json.loads(source.read_text(encoding="utf-8"))
  arrays = dict(np.load(source.with_suffix(".npz")))
  for _ in range(rng.integers(1, 4)):
    errors = contextlib.suppress(IndexError, TypeError, ValueError)
    with np.errstate(all="ignore"), errors:
      one_of(rng, DAMAGES)(rng, arrays, card["config"])
  path = pathlib.Path(folder) / f"{model}.npz"
  write(path, {name: array for name, array in arrays.items() if name}, card)
  return model, path


def judge(draw, folder):
  """Returns what became of a draw, as a column of the table."""
  model, path = damaged(draw, folder)
  result = checker.prove_file(path)
  assert "\n" not in result["text"], result["text"]
  if result["verdict"] != "proved":
    return str(result["verdict"])
  right = questions(model)
  try:
    answers = lengthgen_jax.load(path.with_suffix("")).predict([*right])
  except UsageError as error:
    print(f"draw {draw}: proved, but the program refuses it: {error}")
    return "proved, not read"
  if answers == [*right.values()]:
    return "proved and right"
  print(f"draw {draw}: proved and WRONG")
  return "proved and wrong"


def hunt(first, draws):
  """Returns {column of the table: number of draws}."""
  with tempfile.TemporaryDirectory() as folder:
    judged = (judge(draw, folder) for draw in range(first, first + draws))
    return collections.Counter(judged)


if __name__ == "__main__":
  parser = argparse.ArgumentParser()
  parser.add_argument("--first", type=int, default=0)
  parser.add_argument("--draws", type=int, default=2000)
  arguments = parser.parse_args()
  table = hunt(arguments.first, arguments.draws)
  print(f"draws {arguments.draws}, {dict(sorted(table.items()))}")
