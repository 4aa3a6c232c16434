"""The pipelines: a module with a function `run` for each --mode but "bench"
(benchmark/bench.py), and what these modules share."""
