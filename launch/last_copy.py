"""Draws how models that sort tell the last of several equal items from others.

  python launch/last_copy.py runs/best runs/softmax --lengths 20 200
  python launch/last_copy.py runs/best --samples=300 --figure=last_copy.png

The figure has a column of panels for each workdir, against the number of copies
of an item in the list. The first panel shows how much of the attention on
copies of the item is on outputs, in rows of its last copy and of the one before
it; the second how many keys that are no copies have a weight; the third the
share of the runs (all copies of an item, in the sorted list, but for the list's
largest item) in which the model is wrong. Attention is that of one head: the
one that, at the shortest length, best tells the last copy from the one before.
Of several seeds of a workdir, the best by validation is drawn. The numbers of
wrong runs are printed too.
"""

import argparse
import pathlib
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

import lengthgen_jax  # noqa: E402
from lengthgen_jax.errors import (  # noqa: E402
  Parser,
  UsageError,
  check,
  file_errors,
)
from lengthgen_jax.pipelines.training_probes import observations  # noqa: E402
from lengthgen_jax.probes import last_copy  # noqa: E402
from lengthgen_jax.probes.registry import SORTING  # noqa: E402


def main() -> int:
  """Runs the command line; returns the exit code, 1 if a flag or a workdir is
  wrong."""
  parser = Parser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  add = parser.add_argument
  add("workdirs", nargs="+", type=pathlib.Path, help="trained workdirs")
  add(
    "--lengths",
    nargs="+",
    type=int,
    default=[20, 200],
    help="items of a list, default 20 200",
  )
  add(
    "--samples",
    type=int,
    default=200,
    help="number of lists of each length, default 200",
  )
  add("--figure", type=pathlib.Path, default=pathlib.Path("last_copy.png"))
  try:
    args = parser.parse_args()
    check(min(args.lengths) >= 2, "--lengths: must be at least 2")
    check(args.samples >= 1, f"--samples={args.samples}: must be at least 1")
    check(
      args.figure.suffix == ".png", f"--figure={args.figure}: must be a .png"
    )
    models = {}
    for workdir in args.workdirs:
      model = lengthgen_jax.load(workdir).model
      check(SORTING.holds(model), f"{workdir}: only {SORTING.text} are drawn")
      models[str(workdir)] = {}
      for length in args.lengths:
        rows = last_copy.observe(observations(model, length, args.samples))
        models[str(workdir)][length] = rows
        for copies, (wrong, runs) in last_copy.errors_by_copies(rows).items():
          print(
            f"{workdir}, {length} items, {copies} copies: {wrong} of {runs}"
          )
    with file_errors(f"--figure={args.figure}: cannot be written"):
      print(last_copy.draw(models, args.figure))
  except UsageError as error:
    print(f"last_copy: {error}", file=sys.stderr)
    return 1
  return 0


if __name__ == "__main__":
  sys.exit(main())
