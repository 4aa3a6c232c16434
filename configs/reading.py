"""The fields of modes that read a trained workdir are defined here; they do not
affect training."""

FIELDS = {
  # proofs for every length (--mode=certify)
  "certify": {
    "max_cases": 1e9,  # a certificate of more cases is refused
    "exhaustive": True,  # False: stop at the narrowest cases that fail
  },
  # looking inside (--mode=probe)
  "probe": {
    # inputs whose attention is drawn, as one types them; () = the papers', or
    # an example
    "inputs": (),
    "random_inputs": 0,  # number of further random ones of training length
    "stage": "",  # of --mode=abc: interpolate, retrain, certify; "" = the last
    # names in lengthgen_jax/probes/registry.py and figures.py; () = all that
    # apply to the model
    "only": (),
    "figures": (),
    "lengths": (),  # () = those of eval.lengths up to 100
    "samples": 128,  # inputs of each length
    # length of the inputs of interventions (what is knocked out or patched);
    # 0 = the training length
    "causal_length": 0,
    # whether the best seed is trained again without each line of its bias
    "retrain": False,
    # activations that are saved for the inputs, like
    # decoder.blocks.0.before_mlp
    "activations": (),
    # chunks of training between probes during training; 0 = none
    "every": 0,
  },
  # timing (--mode=bench)
  "bench": {
    "only": (),  # names in lengthgen_jax/benchmark/settings.py; () = all
    "repeats": 5,  # runs of each case, of which the median counts
    "budget": 900.0,  # seconds; cases that would take longer are left out
    "lengths": (60, 200, 1000, 3000, 10_000),  # decimal digits
    "threads": (1, 2),  # numbers of threads in the comparison with PyTorch
  },
  "eval": {
    "lengths": (6, 10, 20, 60),  # decimal digits
    # arithmetic: equal, unequal, carry, chain, nines, zeros, short, repeated;
    # sort: uniform, repeats, sorted, reversed, all_equal, two_values,
    # near_ties, multiplicity, mean_multiplicity; increment: uniform, nines,
    # repeated; modular, permutations: uniform, all_equal, lone; dyck: walks,
    # broken, deep, uniform; copy, reverse: uniform, all_equal
    "test_sets": ("equal",),
    # repeats: number of distinct items, and how often each occurs
    "repeated_items": 3,
    "repetitions": (1, 2, 4, 8),
    # unequal of multiply_long: digits of the factor b beside those of a
    "multipliers": (3, 61),
    # multiplicity, mean_multiplicity: how often each value that occurs does,
    # exactly or on average
    "multiplicities": (1, 2, 4, 8, 16),
    "chains": (1, 2, 4, 8, 16, 32),  # chain: places that a carry crosses
    # whether the task's hard and odd inputs are tested too, and how many of
    # each kind
    "stress": False,
    "stress_samples": 200,
    # bound of the search for the longest length with exact match of at least
    # 99 % (by the lower bound), on every test set; 0 = no search
    "frontier": 0,
    "frontier_samples": 299,  # per length; 299 right of 299 are 99 %
    # samples per length and seed: one number, or one for each length
    "samples": (1000,),
    "checkpoint": "last",  # last, best (by validation), or a step
    "seed": 0,  # of the test samples
    # of a construction: numbers of significant bits; for each of them the
    # longest list length that is sorted is searched; () = no search
    "precisions": (),
    # whether outputs are decoded freely too: rows em_end_blind and edit
    "free_running": False,
    # predict: whether intermediate results are printed too (multiply_long: the
    # running sums)
    "scratchpad": False,
    "memory_mb": 0,  # of attention scores at once; 0 = 16 on CPU, else 1024
  },
}
