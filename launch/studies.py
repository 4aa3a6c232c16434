"""The scaling studies of the task hinting paper, each by name.

  python launch/studies.py hints --root=runs/hints -- '--config.seeds=(0,1,2)'
  python launch/studies.py data --paper --root=runs/data

data        sizes of the finite data set: standard, hinted, tempered
depth       2 to 12 layers (CPU size: 1 to 4)
hints       each hint, and all at once
temperature every temperature, with and without the successor hint
positions   position encodings for sorting
repeats     exact match against repetitions of a few items
increment   standard, hinted, tempered

--paper is the paper's size, for an accelerator; without it a study is sized for
two CPU cores. It is a call of launch/sweep.py, which is printed, and can be
given again after a stop.
"""

import argparse
import pathlib
import shlex
import subprocess
import sys

SORTING = "configs/sorting.py:"
# Config presets and grids of each study, at CPU size and at the paper's.
STUDIES = {
  "data": (
    ["none", "successor", "none,tempered"],
    {"data.size": ("10000,100000,1000000", "1000000,10000000,160000000")},
  ),
  "depth": (
    ["none", "none,tempered"],
    {"model.num_decoder_layers": ("1,2,4", "2,4,6,8,12")},
  ),
  "hints": (
    ["none", "successor", "count", "fill", "predecessor", "minimum", "all"],
    {},
  ),
  "temperature": (
    ["none", "successor"],
    {
      "temperature.kind": 2
      * ("none,log_items,log_visible,one_plus_log,scalable,fixed",)
    },
  ),
  "positions": (
    ["none"],
    {"positions.kind": 2 * ("none,sinusoidal,learned,rope",)},
  ),
  "repeats": (
    ["none", "none,repeats", "none,tempered,repeats"],
    {},
  ),
  "increment": (["none", "carry", "none,tempered", "carry,tempered"], {}),
}
FLAGS = {"repeats": ["--config.eval.test_sets=('uniform','repeats')"]}


def main() -> None:
  line = parse(sys.argv[1:])
  print(shlex.join(line), flush=True)
  sys.exit(subprocess.run(line).returncode)


def parse(words: list[str]) -> list[str]:
  """The command that a command line asks for."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument("study", choices=STUDIES)
  parser.add_argument("--root", type=pathlib.Path, required=True)
  parser.add_argument("--paper", action="store_true")
  usage = parser.format_usage().removeprefix("usage: ").strip()
  parser.usage = f"{usage} [-- FLAG_OF_EVERY_RUN ...]"
  end = words.index("--") if "--" in words else len(words)
  args = parser.parse_args(words[:end])
  line = command(args.study, args.root, args.paper)
  return [*line, "--", *FLAGS.get(args.study, []), *words[end + 1 :]]


def command(study: str, root: pathlib.Path, paper: bool) -> list[str]:
  """The sweep that a study is."""
  presets, grids = STUDIES[study]
  file = "configs/increment.py:" if study == "increment" else SORTING
  sweep = pathlib.Path(__file__).with_name("sweep.py")
  line = [sys.executable, str(sweep), f"--root={root}"]
  line += [f"--config={file}{p}{',paper' if paper else ''}" for p in presets]
  line += [f"--grid={field}={v[paper]}" for field, v in grids.items()]
  return line


if __name__ == "__main__":
  main()
