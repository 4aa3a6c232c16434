"""Arithmetic: configs/arithmetic.py:TASK[,METHOD][,fixed][,paper|released]

TASK     successor, addition, multiply, parity, parity_classification
METHOD   vanilla         sinusoidal positions, natural operand order (default)
         window          ABS: windowed bias, w=1, operands interleaved
         window_cpi      ABS: the same and cyclic position indexing, T=3
         nope_window     ABS: windowed bias without position encoding
         alibi, rope     baselines
         abc             ABC, with --mode=abc: vanilla first, then calibrated
fixed    one width for training and test, as in the papers (61 digits), and
         the papers' absolute lines
paper    the papers' hyper-parameters (implies fixed): model size 128, six
         decoder layers, learning rate 1e-5; for an accelerator, not a laptop
released the hyper-parameters and the calibration of the released ABC program
         (implies fixed); its leak is a field of its own, bias.allow_leak

  lengthgen --config=configs/arithmetic.py:parity,window_cpi --workdir=W1
  lengthgen --config=configs/arithmetic.py:parity,abc --mode=abc --workdir=W2
"""

from configs import base

TASKS = (
  "successor",
  "addition",
  "multiply",
  "parity",
  "parity_classification",
)
METHODS = (
  "vanilla",
  "window",
  "window_cpi",
  "nope_window",
  "alibi",
  "rope",
  "abc",
)
# Gradient steps of ABC's retraining.
RETRAIN_STEPS = {
  "addition": 700,
  "multiply": 900,
  "successor": 250,
  "parity": 150,
  "parity_classification": 150,
}
# Gradient steps of ABS. N×1's carry can be any digit; a successor's carry is
# rare beyond the first digits; parity has 20 rows to learn from.
STEPS = {"multiply": 3000, "successor": 2000, "parity": 600}
OPTIONS = ("fixed", "paper", "released")


def get_config(preset: str = "addition"):
  task, *words = preset.split(",")
  methods = [word for word in words if word in METHODS]
  unknown = [word for word in words if word not in METHODS + OPTIONS]
  if task not in TASKS:
    raise ValueError(f"preset {preset!r}: task {task!r} is none of {TASKS}")
  if unknown or len(methods) > 1:
    raise ValueError(
      f"preset {preset!r}: after the task, name at most one method of"
      f" {METHODS} and options of {OPTIONS}"
    )
  config = base.get_config(task)
  config.method = methods[0] if methods else "vanilla"
  set_method(config)
  if set(OPTIONS) & set(words):
    set_fixed(config)
  if "paper" in words or "released" in words:
    set_paper(config)
  if "released" in words:
    set_released(config)
  return config


def set_method(config) -> None:
  method = config.method
  if method in ("window", "window_cpi", "nope_window"):
    set_scaffold(config)
    return
  config.train.steps = 2000
  if method == "abc":
    set_abc(config)
    return
  config.train.target_exact_match = 0.995
  if method in ("alibi", "rope"):
    config.positions.kind = method


def set_abc(config) -> None:
  """ABC at natural width: interpolate and calibrate at three widths."""
  config.method = "vanilla"  # of the first stage; the second is "abc"
  longest = 20 if "parity" in config.task else config.data.train_length
  config.data.widths = tuple(longest + extra for extra in (2, 3, 4))
  config.train.update(steps=4000, learning_rate=3e-3, target_exact_match=0.995)
  config.eval.lengths = (6, 10, 20, 60, 200, 1000)
  config.eval.samples = (1000, 1000, 1000, 1000, 300, 100)
  config.retrain.train.steps = RETRAIN_STEPS[config.task]
  if config.task == "addition":
    # No digit matters to every row. A head that looks at one place always (in
    # two seeds of five there is one) keeps the retrained model from fitting.
    config.calibration.directions = (-1, 1)
  if config.task == "successor":
    # A carry lives on while all digits so far came out as 0. Most vanilla
    # models find that by looking at all of them, which is no line: keep none
    # in self-attention, and let its heads see everything.
    config.calibration.empty_heads = "transparent"
    config.calibration.kappa_self = 2.5
  if config.task == "multiply":  # its carry can be any digit
    config.model.num_decoder_layers = 3
    config.retrain.model.dropout_rate = 0.0
    config.retrain.train.learning_rate = 5e-3


def set_scaffold(config) -> None:
  """ABS at natural width: the encoder that passes tokens through, positions
  counted from the right end so that the phase is the same at every width."""
  config.arithmetic.aligned = True
  config.bias.kind = "window"
  config.model.update(num_encoder_layers=0, num_heads=4)
  config.positions.source_anchor = "right"
  config.train.steps = STEPS.get(config.task, 1200)
  config.train.learning_rate = 3e-3
  config.train.warmup_steps = 100
  if config.method == "window_cpi":
    config.positions.cyclic_period = 3
  if config.method == "nope_window":
    config.positions.kind = "none"


def set_fixed(config) -> None:
  """The papers' protocol: one width, and lines over the whole matrix.

  Nearly all rows say 0 for padding, and lines over them drown what the digits
  do; so only rows up to the operands' length count. The papers' κ fits here,
  where there are many lines.
  """
  config.data.width = "fixed"
  config.data.widths = ()
  config.calibration.update(
    lines="absolute",
    directions=(-1, 0, 1),
    kappa=4.5,
    empty_heads="closed",
  )
  config.retrain.train.steps = 1500
  if config.task == "successor":
    # The output before the previous one tells a carry; its line is faint.
    config.calibration.kappa_self = 0.3
    config.retrain.train.steps = 600
  config.eval.update(lengths=(6, 10, 20, 60), samples=(1000,))
  config.train.batch_size = 64  # of sequences that are seven times as long


def set_paper(config) -> None:
  """ABS paper, section 3: 256 epochs of 7/8 · 2^20 numbers. ABC, section 5."""
  config.data.numbers = "permutation"
  config.model.update(
    emb_dim=128,
    mlp_dim=512,
    num_encoder_layers=1,
    num_decoder_layers=6,
    norm="post",
    dropout_rate=0.3,
  )
  config.positions.source_anchor = "left"
  if config.method == "rope" and config.task == "addition":
    config.model.emb_dim = 512
  config.train.update(
    steps=256 * 1792,
    batch_size=512,
    learning_rate=1e-5,
    warmup_steps=0,
    schedule="constant",
    clip_norm=0.0,
    target_exact_match=1.0,
    chunk=512,
  )
  config.calibration.update(
    lengths=(),
    rows="all",
    kappa=4.5,
    kappa_self=0.87,
    maximum="direction",
    min_cells=0.0,
    layers="last",
    empty_heads="transparent",
  )
  config.retrain.model.update(num_encoder_layers=1, dropout_rate=0.3)
  config.retrain.positions.kind = config.positions.kind
  config.retrain.train.update(
    steps=256 * 1792 // 10, learning_rate=1e-5, warmup_steps=0, restarts=0
  )
  config.eval.update(lengths=(6, 10, 15, 20, 60), samples=(10000,))


def set_released(config) -> None:
  """What the released ABC program does where it differs from its paper."""
  config.model.num_encoder_layers = 0
  config.train.update(learning_rate=1e-4, adam_eps=1e-9)
  config.calibration.update(
    samples=1,
    directions=(-1,),
    self_directions=(1,),
    rows="length",
    line="sum",
    statistics="distinct",
    maximum="none",
  )
  config.retrain.model.num_encoder_layers = 0
  config.retrain.train.learning_rate = 1e-4
  config.eval.update(samples=(51,), free_running=True)
