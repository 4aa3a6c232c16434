"""Presets of long multiplication, N digits times M: METHOD[,decoder_only].

Training batches have 2x2, 3x3, 4x4, 4x3 and 3x4 digits in turn; in one sequence
2x2, 3x3, 4x4, 5x5, 5x4 and 4x5.

METHOD        vanilla  sinusoids of a token's coordinates, digit k of sum j
              window   lines set by hand, to tokens that are near on this grid
              abc      ABC, with --mode=abc: vanilla first, then calibrated; the
                       default
decoder_only  prompt and running sums in one sequence, with segments

  lengthgen --config=configs/multiply_long.py:abc --mode=abc --workdir=W
  echo '123456789*987654321' | lengthgen --mode=predict --workdir=W

For each seed, one CPU core takes about 3 minutes for the vanilla model, and 15
for lines, by hand or calibrated, with rounds of finetuning and certificates.
"""

from lengthgen_jax.config import default_config, load_presets, parse_preset

local_rules = load_presets("local_rules.py")

SHARED = {
  "data.train_length": 4,
  "data.shortest": 2,
  "model.num_encoder_layers": 0,
  "model.num_decoder_layers": 3,
  "positions.kind": "coordinates",
  "train.batch_size": 96,
  "train.learning_rate": 2e-3,
  "train.steps": 6000,
  "train.chunk": 200,
  "train.validation_samples": 128,
  "train.target_exact_match": 0.985,
  "eval.lengths": (4, 6, 10, 20, 40, 100),
  "eval.samples": (1000, 1000, 1000, 500, 100, 20),
}
MUON = local_rules.MUON
# After these steps 4x4 digits are right, but not the rare contexts that occur
# in long numbers, on which rounds of finetuning train.
WITH_LINES = (
  local_rules.WITH_LINES | MUON | {"train.steps": 6000, "train.chunk": 1000}
)
FINETUNE = local_rules.FINETUNE | {
  "finetune.rounds": 10,
  "finetune.steps": 1500,
  # The rarest contexts are those of the largest and the smallest carries.
  "multiply_long.extreme_share": 0.5,
}
METHODS = {
  "vanilla": {},
  "window": WITH_LINES | FINETUNE | {"bias.kind": "window"},
  "abc": local_rules.ABC
  | FINETUNE
  | local_rules.retrain(WITH_LINES)
  | {"abc.vanilla_longest": 6, "calibration.lengths": (3, 4)},
}
# Vanilla models in one sequence need Muon and segments: trained on at most four
# digits, 65 % of products of 4x4 digits are right after 6 000 steps of Adam and
# 98.5 % after 4 600 of Muon. With at most four digits, some of them attend to
# digits 2 and 3 of the previous running sum, whatever k is, instead of digit k.
DECODER_ONLY = local_rules.DECODER_ONLY | MUON | {"data.train_length": 5}
# A vanilla model of three layers takes one digit of the previous running sum
# from the hidden state of the previous output instead of attending to that
# digit, so calibration finds no line for it; one of two layers attends to all
# digits that it needs.
TWO_LAYERS = {"model.num_decoder_layers": 2}
METHODS_DECODER_ONLY = {
  "vanilla": TWO_LAYERS,
  "window": {},
  "abc": TWO_LAYERS
  | {
    "calibration.lengths": (4, 5),
    "calibration.kappa_self": 3.3,
    # The second layer reads operands, so its MLP alone would have to combine
    # them with outputs. A third layer, whose heads are closed, adds an MLP.
    "retrain.model.num_decoder_layers": 3,
  },
}


def get_config(preset: str = "abc"):
  """Returns the config of a preset METHOD[,decoder_only]."""
  method, _, options = parse_preset(preset, METHODS, (), ("decoder_only",))
  changes = {"method": method} | SHARED | METHODS[method]
  if "decoder_only" in options:
    changes |= DECODER_ONLY | METHODS_DECODER_ONLY[method]
  return default_config("multiply_long", changes)
