"""Fields of what reads a trained workdir, which say nothing of how it was
trained."""

FIELDS = {
  # proofs for every length (--mode=certify)
  "certify": {
    "max_cases": 1e9,  # more are refused
    "exhaustive": True,  # False: only up to the narrowest cases that fail
  },
  # looking inside (--mode=probe)
  "probe": {
    # inputs to draw, as one types them; () = the papers', or an example
    "inputs": (),
    "random_inputs": 0,  # and so many random ones of the training length
    "stage": "",  # of --mode=abc: interpolate, retrain, certify; "" = the last
    # names in lengthgen_jax/probes/registry.py and figures.py; () = all that
    # the model is for
    "only": (),
    "figures": (),
    "lengths": (),  # () = those of eval.lengths up to 100
    "samples": 128,  # inputs of each length
    # of what is knocked out or patched; 0 = the training length
    "causal_length": 0,
    # train the best seed again without each line of its bias in turn
    "retrain": False,
    # activations of the inputs to keep, like decoder.blocks.0.before_mlp
    "activations": (),
    # also while training, after so many chunks each time; 0 = never
    "every": 0,
  },
  # timing (--mode=bench)
  "bench": {
    "only": (),  # names in lengthgen_jax/benchmark/settings.py; () = all
    "repeats": 5,  # goes of each case, of which the median counts
    "budget": 900.0,  # seconds; what would take longer is left out
    "lengths": (60, 200, 1000, 3000, 10_000),  # decimal digits
    "threads": (1, 2),  # of the comparison with PyTorch
  },
  "eval": {
    "lengths": (6, 10, 20, 60),  # decimal digits
    # arithmetic: equal, unequal, carry, chain, nines, zeros, short, repeated;
    # sort: uniform, repeats, sorted, reversed, all_equal, two_values,
    # near_ties, multiplicity, mean_multiplicity; increment: uniform, nines,
    # repeated; modular, permutations: uniform, all_equal, lone; dyck: walks,
    # broken, deep, uniform; copy, reverse: uniform, all_equal
    "test_sets": ("equal",),
    # repeats: this many distinct items, each this many times
    "repeated_items": 3,
    "repetitions": (1, 2, 4, 8),
    # multiply_long's unequal: digits of b beside those of a
    "multipliers": (3, 61),
    # (mean_)multiplicity: how often every value that occurs does (on average)
    "multiplicities": (1, 2, 4, 8, 16),
    "chains": (1, 2, 4, 8, 16, 32),  # chain: places that a carry travels
    # also test the task's hard and odd inputs, so many of each kind
    "stress": False,
    "stress_samples": 200,
    # also find the longest length with exact match of at least 99 % (by the
    # lower bound) on every test set, looking so far; 0 = do not
    "frontier": 0,
    "frontier_samples": 299,  # per length; 299 right of 299 are 99 %
    # per length and seed: one number, or one for each length
    "samples": (1000,),
    "checkpoint": "last",  # last, best (by validation), or a step
    "seed": 0,  # of the test samples
    # of a construction: significant bits of numbers, with each of which the
    # longest lists that are sorted are found; () = not
    "precisions": (),
    # also decode freely: rows em_end_blind and edit
    "free_running": False,
    # predict: with the way there (multiply_long: the running sums)
    "scratchpad": False,
    "memory_mb": 0,  # attention scores at once; 0 = 16 on CPU, else 1024
  },
}
