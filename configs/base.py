"""Every field there is, with its default and what it means."""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
  """The defaults: a small vanilla encoder-decoder on addition."""
  return ConfigDict(
    {
      # successor, addition, multiply, parity, parity_classification
      "task": "addition",
      "method": "vanilla",  # a label for result rows and figures
      "seeds": (0,),  # trained together, one result row each
      "data": {
        "aligned": False,  # interleave the operands (ABS)
        # lengths: a uniform length per operand, then uniform digits;
        # permutation: the papers' integers below 2^20, split 7:1
        "numbers": "lengths",
        "train_length": 6,  # longest training length, decimal digits
        # natural: operands padded to the longest length + slack;
        # fixed: one width for training and test (the papers)
        "width": "natural",
        "slack": 2,  # zero digits before the longest operand (natural)
        # natural training widths, in turn; () = longest + slack, and one more
        # for every further phase of a cyclic index
        "widths": (),
        "fixed_width": 61,  # in digits; bits for parity follow from it
        "seed": 0,  # of the permutation
      },
      "model": {
        "emb_dim": 64,
        "num_heads": 8,
        "mlp_dim": 256,
        "num_encoder_layers": 1,  # 0 = identity encoder
        "num_decoder_layers": 2,
        "norm": "pre",  # pre, post, block_end, none
        "activation": "relu",  # relu, gelu
        "dropout_rate": 0.0,
        "dtype": "float32",  # of activations: float32, bfloat16
      },
      "positions": {
        "kind": "sinusoidal",  # none, sinusoidal, learned, rope
        "cyclic_period": 0,  # T of cyclic position indexing, 0 = off
        "source_anchor": "left",  # end that source positions count from
        "table": 512,  # rows of the learned table
      },
      "bias": {
        "kind": "none",  # none, window, alibi, file
        "file": "",  # an .npz with lines or matrices
        "window": 1,  # w, tokens on each side
        "sides": "both",  # both, previous (the less significant one alone)
        "stride": 0,  # source tokens per output row; 0 = the task's own
        "windowed_encoder": False,  # window encoder self-attention too
        "scale": 1.0,  # factor on the bias's open values
        "learned_scale": False,  # one more factor per layer and site, learned
        "closed": -1e9,  # of closed cells; above -1e5 they stay soft
        # leave the causal term to the bias, which may then show the future
        "allow_leak": False,
      },
      "train": {
        "steps": 1000,  # gradient steps
        "batch_size": 128,
        "learning_rate": 1e-3,
        "warmup_steps": 200,
        "schedule": "cosine",  # constant, cosine
        "clip_norm": 1.0,  # global gradient norm, 0 = off
        "adam_b1": 0.9,
        "adam_b2": 0.98,
        "adam_eps": 1e-8,
        "chunk": 100,  # steps per dispatch; logs and stops happen between
        "validation_samples": 512,  # in-range examples after every chunk
        # freeze a seed at this validation exact match; above 1 = never
        "target_exact_match": 2.0,
        "seed_axis": "loop",  # seeds in one step: vmap, or loop over them
      },
      "checkpoint": {
        "every": 4,  # chunks between checkpoints
        "keep": 2,  # newest checkpoints kept; each holds the best too
      },
      # ABC: how lines are read off the attention of the model above ...
      "calibration": {
        "lengths": (4, 5, 6),  # decimal digits; () draws training examples
        "samples": 500,  # for each width and length
        "quantity": "weights",  # weights (after softmax), scores (before)
        "scaled": True,  # scores divided by sqrt(head size)
        "lines": "operand",  # operand: anchored to segments; absolute: papers
        "directions": (-1, 0, 1),  # Δ in cross-attention
        "self_directions": (0, 1),  # Δ in self-attention
        "rows": "length",  # rows used: length (below the operands'), all
        "line": "mean",  # strength of a line: mean, sum
        "rule": "zscore",  # zscore (μ + κσ), mass (multiple of random)
        "kappa": 2.0,  # threshold in cross-attention
        "kappa_self": 0.87,  # threshold in self-attention
        "statistics": "all",  # μ and σ over all lines, or distinct
        "maximum": "head",  # subtract the max of: direction, head, none
        "min_cells": 0.5,  # least share of the rows that a line crosses
        "layers": "each",  # lines of each layer, or the last one's for all
        "empty_heads": "closed",  # heads without a line: closed, transparent
      },
      "abc": {
        "min_exact_match": 0.97,  # validation EM that counts as interpolated
        "example": "",  # input of the attention heat maps; "" = a short one
        "vanilla_longest": 60,  # longest test length of the vanilla model
      },
      # ... and what the model retrained with them changes
      "retrain": {
        "start": "fresh",  # parameters: fresh, interpolated
        "widths": (),  # as data.widths
        "model": {"num_encoder_layers": 0, "dropout_rate": 0.1},
        "positions": {"kind": "none"},
        "train": {
          "steps": 800,
          "learning_rate": 3e-3,
          "warmup_steps": 100,
          "target_exact_match": 2.0,
        },
      },
      "eval": {
        "lengths": (6, 10, 20, 60),  # decimal digits
        "test_sets": ("equal",),  # equal, unequal, carry
        # per length and seed: one number, or one for each length
        "samples": (1000,),
        "checkpoint": "last",  # last, best (by validation), or a step
        "seed": 0,  # of the test samples
        # also decode freely: rows em_end_blind and edit
        "free_running": False,
        "memory_mb": 0,  # attention scores at once; 0 = 16 on CPU, else 1024
      },
    }
  )
