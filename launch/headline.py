"""The tables of README.md show a few of the archived rows."""

from typing import NamedTuple

from lengthgen_jax.errors import check
from lengthgen_jax.results import summary, tables


class Part(NamedTuple):
  """A part is one of the tables.

  Attributes:
    title: heading of the first column.
    lengths: headings of the columns of exact match.
    lines: (task, method, run, stage) of each line; stage "" is the run's last.
    test_set: whose exact match is shown, "" for the first one of a run.
  """

  title: str
  lengths: tuple[int, ...]
  lines: list[tuple[str, str, str, str]]
  test_set: str = ""


DIGITS = (6, 10, 20, 60, 200, 1000)
PARTS = (
  Part(
    "digits in training: 6 (parity: 20 bits)",
    DIGITS,
    [
      ("addition", "vanilla", "addition-abc", "interpolate"),
      ("addition", "**ABC**", "addition-abc", ""),
      ("successor", "**ABC**", "successor-abc", ""),
      ("N×1", "**ABC**", "multiply-abc", ""),
      ("parity", "**ABC**", "parity-abc", ""),
      ("addition", "ABS (+w=1 +T=3)", "addition-window_cpi", ""),
      ("successor", "ABS (+w=1 +T=3)", "successor-window_cpi", ""),
      ("N×1", "ABS (+w=1 +T=3)", "multiply-window_cpi", ""),
      ("parity", "ABS (+w=1 +T=3)", "parity-window_cpi", ""),
      ("addition, one sequence", "**ABC**", "addition-abc-decoder_only", ""),
      ("successor, one sequence", "**ABC**", "successor-abc-decoder_only", ""),
      ("N×1, one sequence", "**ABC**", "multiply-abc-decoder_only", ""),
      ("parity, one sequence", "**ABC**", "parity-abc-decoder_only", ""),
    ],
  ),
  Part(
    "N×M, 4×4 in training",
    (4, 6, 10, 20, 40, 100),
    [
      ("N×N", "vanilla", "multiply_long-abc", "interpolate"),
      ("N×N", "**ABC**", "multiply_long-abc", ""),
      ("N×N", "window by hand", "multiply_long-window", ""),
      ("N×N, one sequence", "**ABC**", "multiply_long-abc-decoder_only", ""),
    ],
  ),
  Part(
    "sorting, 20 items in training",
    (20, 30, 50, 100),
    [
      ("alphabet 32", "standard, 16 000 steps", "sort-none", ""),
      ("alphabet 32", "tempered, 16 000 steps", "sort-none-tempered", ""),
      ("alphabet 32", "**best**, 48 000 steps", "sort-none-best", ""),
      (
        *("alphabet 32", "**best**, 96 000 steps"),
        *("sort-none-best-train.steps=96000", ""),
      ),
      (
        *("alphabet 32", "**best**, 96 000 steps, temperature not learned"),
        *("sort-none-best-temperature.kind=fixed-train.steps=96000", ""),
      ),
    ],
  ),
  Part(
    "32 to 64 items in training, as ASEntmax",
    (64, 128, 256, 512, 4096),
    [
      ("sort, alphabet 32", "RoPE", "asentmax-sort-rope", ""),
      ("sort, alphabet 32", "**best**", "asentmax-sort-best", ""),
      ("copy", "RoPE", "asentmax-copy-rope", ""),
      ("copy", "**ABC**", "asentmax-copy-abc", ""),
      ("reverse", "RoPE", "asentmax-reverse-rope", ""),
      ("reverse", "**ABC**", "asentmax-reverse-abc", ""),
    ],
  ),
  Part(
    "increment, 10 digits in training",
    (10, 20, 100, 1000),
    [
      ("runs of 9s", "tempered", "increment-none-tempered", ""),
      ("runs of 9s", "**ABC**, one sequence", "increment-none-abc", ""),
    ],
    "nines",
  ),
  Part(
    "states, 20 items in training",
    (20, 60, 200, 2000),
    [
      ("S5, every prefix", "vanilla", "permutations-abc", "interpolate"),
      ("S5, every prefix", "**ABC**", "permutations-abc", ""),
      ("sums mod 7", "**ABC**", "modular-abc", ""),
      ("Dyck, depth 8", "**ABC**", "dyck-abc", ""),
    ],
  ),
)
START = "<!-- tables: python launch/tables.py --pages -->\n"
END = "<!-- end of tables -->\n"


def put(text: str, kept_runs: dict[str, tuple[dict, list[dict]]]) -> str:
  """Returns README's text with the tables between its two marks.

  Args:
    text: of README.md.
    kept_runs: (head, rows) of archived runs, by name.

  Raises:
    UsageError: a mark is missing.
  """
  before, start, tail = text.partition(START)
  _, end, after = tail.partition(END)
  check(start and end, f"README.md: has no {(start and END or START).strip()}")
  tables = "\n".join(
    markdown for part in PARTS if (markdown := table(part, kept_runs))
  )
  return f"{before}{START}\n{tables}\n{END}{after}"


def table(part: Part, kept_runs: dict[str, tuple[dict, list[dict]]]) -> str:
  """Returns a part as Markdown; lines of runs that are not archived are left
  out, and a part without lines is "".

  Args:
    part: the table.
    kept_runs: (head, rows) of archived runs, by name.
  """
  lengths = [f"{n:,}".replace(",", " ") for n in part.lengths]
  head = [part.title, "method", "seeds", *lengths, "∀"]
  lines = [head, ["---"] * len(head)]
  for task, method, run, stage in part.lines:
    line = summary.final_line(
      kept_runs.get(run, ({}, []))[1], stage, part.test_set
    )
    if line is not None:
      cells = [cell(line.cells.get(n)) for n in part.lengths]
      proved = len(line.proved_seeds) or ""
      lines.append([task, method, line.seed_count, *cells, f"{proved}"])
  text = "".join(f"| {' | '.join(row)} |\n" for row in lines)
  return text if len(lines) > 2 else ""


def cell(seeds: summary.Cell | None) -> str:
  """Returns the exact match in % of the median seed and, where it differs, of
  the worst one; a dash where nothing was measured."""
  if seeds is None:
    return "–"
  say = lambda value: tables.percent(value).removesuffix(".0")
  return tables.with_worst(seeds, say)
