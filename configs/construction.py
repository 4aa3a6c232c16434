"""Presets of weights that sort without training: ALPHABET,LONGEST[,OPTION...].

They are the construction of Theorem 5.1 of the task hinting paper.

ALPHABET items are 1...ALPHABET
LONGEST  the most items that are sorted
OPTION   norm   with layer normalization at the end of each block, in twice the
                width
         share  whether copies of an item are left is computed by their share,
                as in the paper, which needs more bits of precision

  lengthgen --config=configs/construction.py:10,1000 --workdir=W
  echo 5 3 9 3 | lengthgen --mode=predict --workdir=W

Training starts from these weights, here with noise, on lists of up to 20 items,
or up to LONGEST (but at least 6) if that is less:

  lengthgen --config=configs/construction.py:10,100 --workdir=W2 \\
    --config.train.steps=2000 --config.initial.noise=0.01
"""

from lengthgen_jax.config import default_config, load_presets

sorting = load_presets("sorting.py")
OPTIONS = ("norm", "share")


def get_config(preset: str = "10,1000"):
  """Returns the config of a preset ALPHABET,LONGEST[,OPTION...]."""
  numbers, options = preset.split(",")[:2], preset.split(",")[2:]
  if len(numbers) < 2 or not all(n.isdigit() and int(n) for n in numbers):
    raise ValueError(
      f"preset {preset!r}: name two positive numbers, ALPHABET,LONGEST, like"
      " 10,1000"
    )
  if set(options) - set(OPTIONS):
    raise ValueError(
      f"preset {preset!r}: after the numbers, name any of {OPTIONS}"
    )
  alphabet, longest = map(int, numbers)
  size = 3 * alphabet + 2  # the dimensions of the construction
  has_norm = "norm" in options
  # The longest list of training from these weights, and of validation.
  train_length = max(min(longest, 20), 6)
  lengths = (*(n for n in (10, 100, 1000) if n < longest), longest)
  num_values = min(3, alphabet, longest)
  changes = sorting.DECODER_ONLY | sorting.SHARED | sorting.TEMPERED
  changes |= {
    "method": f"construction:{preset}",
    "initial.kind": "construction",
    "initial.longest": longest,
    "initial.copies": "share" if "share" in options else "difference",
    "sort.alphabet": alphabet,
    "model.num_heads": 2,
    # Rounded up to an even number, because there are two heads.
    "model.emb_dim": 2 * size if has_norm else size + size % 2,
    "model.mlp_dim": alphabet + 1,
    "model.activation": "relu",
    "model.norm": "block_end" if has_norm else "none",
    "train.steps": 0,
    "train.learning_rate": 1e-3,
    "data.train_length": train_length,
    "data.buckets": (5, train_length),
    "eval.test_sets": ("uniform", "repeats", "all_equal"),
    "eval.lengths": lengths,
    "eval.samples": tuple(1000 if n < 1000 else 100 for n in lengths),
    "eval.repeated_items": num_values,
    "eval.repetitions": tuple(
      n // num_values for n in lengths if n >= num_values
    ),
    "eval.free_running": False,
  }
  return default_config("sort", changes)
