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

from lengthgen_jax.errors import UsageError
from lengthgen_jax.pretrained import files
from lengthgen_jax.proofs import checker

MODELS = "parity", "successor", "increment"
NUMBERS = -(1 << 31), -129, -128, -2, -1, 0, 1, 2, 127, 1 << 24, (1 << 31) - 1
DTYPES = "i1", "u1", "i2", "i8", "u4", ">i4", "f2", "f8", ">f4", "?", "c8", "U"
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


# Damages: functions of (rng, arrays, config).


def pick(rng, arrays, prefix=""):
  """Returns the name of an array, twice as often of the lines."""
  names = [name for name in sorted(arrays) if name.startswith(prefix)]
  lines = [name for name in names if name.startswith("lines/")]
  return str(rng.choice(lines if lines and rng.random() < 0.7 else names))


def change_dtype(rng, arrays, config):
  name = pick(rng, arrays)
  arrays[name] = arrays[name].astype(rng.choice(DTYPES))


def change_shape(rng, arrays, config):
  name = pick(rng, arrays)
  array, kind = arrays[name], rng.integers(5)
  axis = int(rng.integers(max(array.ndim, 1)))
  if kind == 0 or not array.ndim:
    array = array[None]
  elif kind == 1:
    array = np.take(array, [0], axis)
  elif kind == 2:
    array = np.concatenate([array, array], axis)
  elif kind == 3:
    array = np.swapaxes(array, axis, int(rng.integers(array.ndim)))
  else:
    array = array.squeeze()
  arrays[name] = array


def widen_lines(rng, arrays, config):
  """Repeats the lines of a site: a form like any other, if all fields are."""
  site = rng.choice(["self", "cross"])
  for field in checker.FIELDS:
    name = f"lines/{site}_{field}"
    if name in arrays and field != "transparent" and rng.random() < 0.95:
      arrays[name] = np.concatenate([arrays[name]] * 2, axis=3)


def change_name(rng, arrays, config):
  name, other, kind = pick(rng, arrays), pick(rng, arrays), rng.integers(4)
  if kind == 0:
    arrays.pop(name)
  elif kind == 1:
    arrays[name], arrays[other] = arrays[other], arrays[name]
  elif kind == 2:
    arrays[name.replace("self", "encoder").replace("_0", "_7")] = arrays[name]
  else:
    arrays[str(rng.choice(["x", "params/", f"{name}.npy"]))] = arrays[name]


def change_line(rng, arrays, config):
  name = pick(rng, arrays, "lines/")
  if not arrays[name].ndim or not arrays[name].size:
    return
  index = tuple(int(rng.integers(size)) for size in arrays[name].shape)
  value = rng.choice(NUMBERS)
  if arrays[name].dtype.kind == "f":
    value = rng.choice([np.nan, np.inf, -np.inf, 1e30, 1e6, -1e6, 0.0, 0.1])
  if rng.random() < 0.2:
    index = ...
  with np.errstate(all="ignore"):
    arrays[name] = arrays[name].copy()
    arrays[name][index] = np.array(value).astype(arrays[name].dtype)


def change_meta(rng, arrays, config):
  texts = "{}", "[]", "", '{"seeds": [], "sites": {}}', '{"seeds": [7]}'
  text = str(arrays.get("lines/meta", ""))
  edits = text.replace('"a"', '"b"'), text.replace("0", "1"), text[:-1]
  arrays["lines/meta"] = np.array(str(rng.choice([*texts, *edits])))
  if rng.random() < 0.2:
    arrays["lines/schema"] = np.array(rng.choice([1, 2, 3]))


def change_parameters(rng, arrays, config):
  name = pick(rng, {x: y for x, y in arrays.items() if x.startswith("params/")})
  array, kind = arrays[name].copy(), rng.integers(4)
  if kind == 0:
    array *= np.float32(10.0 ** rng.uniform(-3, 3))
  elif kind == 1:
    array[int(rng.integers(len(array)))] = rng.choice([0.0, 1e9, np.nan, 1e-40])
  elif kind == 2:
    array = array[rng.permutation(len(array))]
  else:
    array += array * rng.normal(size=array.shape) * 10.0 ** rng.uniform(-6, 0)
  arrays[name] = array.astype(arrays[name].dtype)


def add_noise(rng, arrays, config):
  """So little noise that most models stay right."""
  for name in arrays:
    if name.startswith("params/"):
      array = arrays[name].astype(float)
      array += 1e-4 * rng.normal(size=array.shape) * array
      arrays[name] = array.astype(arrays[name].dtype)


def change_config(rng, arrays, config):
  section = str(rng.choice(["model", "bias", "positions", "attention", "data"]))
  field = str(rng.choice(sorted(config[section])))
  values = [0, 1, 2, True, False, "none", "", -1e9, -9.0, 1.0, 2.0, None, []]
  value = values[int(rng.integers(len(values)))]
  kind = rng.integers(3)
  if kind == 0:
    config[section][field] = value
  elif kind == 1:  # a name with a dot
    config[f"{section}.{field}"] = value
  else:
    config["train"][f"{section}.{field}"] = value


DAMAGES = (
  *(change_dtype, change_shape, widen_lines, change_name, change_line),
  *(change_meta, change_parameters, add_noise, change_config),
)


def damaged(draw, folder):
  """Writes the files of a draw; returns (model, path of the npz)."""
  rng = np.random.default_rng(draw)
  model = MODELS[draw % len(MODELS)]
  source = files.FOLDER / f"{model}.json"
  card = json.loads(source.read_text(encoding="utf-8"))
  arrays = dict(np.load(source.with_suffix(".npz")))
  for _ in range(rng.integers(1, 4)):
    damage = DAMAGES[int(rng.integers(len(DAMAGES)))]
    # What an earlier damage left may be what this one cannot damage.
    errors = contextlib.suppress(IndexError, TypeError, ValueError)
    with np.errstate(all="ignore"), errors:
      damage(rng, arrays, card["config"])
  path = pathlib.Path(folder) / f"{model}.npz"
  np.savez(path, **{name: array for name, array in arrays.items() if name})
  card["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
  text = json.dumps(card)
  path.with_suffix(".json").write_text(text, encoding="utf-8")
  return model, path


def judge(draw, folder):
  """Returns what became of a draw, as a column of the table."""
  import lengthgen_jax

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
