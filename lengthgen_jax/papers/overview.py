"""This module makes the tables of results in README.md, and the figure of how
far tests go beyond training."""

import pathlib
from typing import NamedTuple

from lengthgen_jax.errors import check
from lengthgen_jax.papers.provenance import Archive, rows_of
from lengthgen_jax.results import reach, summary, tables


class ReadmeRow(NamedTuple):
  """A row of one of README's tables.

  Attributes:
    task, method: the names in the first two columns.
    run: the name of the run whose exact match is shown.
    stage: the stage of the run, "" for its last one.
  """

  task: str
  method: str
  run: str
  stage: str = ""


class ReadmeTable(NamedTuple):
  """One of README's tables.

  Attributes:
    title: the heading of the first column.
    lengths: the test lengths, one for each column of exact match.
    rows: the rows.
    test_set: the test set that is shown, "" for the first one of a run.
  """

  title: str
  lengths: tuple[int, ...]
  rows: list[ReadmeRow]
  test_set: str = ""


ABS, ABC = "ABS (+w=1 +T=3)", "**ABC**"
README_TABLES = (
  ReadmeTable(
    "digits in training: 6 (parity: 20 bits)",
    (6, 10, 20, 60, 200, 1000),
    [
      ReadmeRow("addition", "vanilla", "addition-abc", "interpolate"),
      ReadmeRow("addition", ABC, "addition-abc"),
      ReadmeRow("successor", ABC, "successor-abc"),
      ReadmeRow("N×1", ABC, "multiply-abc"),
      ReadmeRow("parity", ABC, "parity-abc"),
      ReadmeRow("addition", ABS, "addition-window_cpi"),
      ReadmeRow("successor", ABS, "successor-window_cpi"),
      ReadmeRow("N×1", ABS, "multiply-window_cpi"),
      ReadmeRow("parity", ABS, "parity-window_cpi"),
      ReadmeRow("addition, one sequence", ABC, "addition-abc-decoder_only"),
      ReadmeRow("successor, one sequence", ABC, "successor-abc-decoder_only"),
      ReadmeRow("N×1, one sequence", ABC, "multiply-abc-decoder_only"),
      ReadmeRow("parity, one sequence", ABC, "parity-abc-decoder_only"),
    ],
  ),
  ReadmeTable(
    "N×M, 4×4 in training",
    (4, 6, 10, 20, 40, 100),
    [
      ReadmeRow("N×N", "vanilla", "multiply_long-abc", "interpolate"),
      ReadmeRow("N×N", ABC, "multiply_long-abc"),
      ReadmeRow("N×N", "window by hand", "multiply_long-window"),
      ReadmeRow(
        "N×N, one sequence, 5×5 in training",
        ABC,
        "multiply_long-abc-decoder_only",
      ),
    ],
  ),
  ReadmeTable(
    "sorting, 20 items in training",
    (20, 50, 100, 200, 300),
    [
      ReadmeRow("alphabet 32", "standard, 16 000 steps", "sort-none"),
      ReadmeRow("alphabet 32", "tempered, 16 000 steps", "sort-none-tempered"),
      ReadmeRow("alphabet 32", "**best**", "sort-none-best"),
    ],
  ),
  ReadmeTable(
    "32 to 64 items in training, as ASEntmax",
    (64, 128, 256, 512, 4096),
    [
      ReadmeRow("sort, alphabet 32", "RoPE", "asentmax-sort-rope"),
      ReadmeRow("sort, alphabet 32", "**best**", "asentmax-sort-best"),
      ReadmeRow("copy", "RoPE", "asentmax-copy-rope"),
      ReadmeRow("copy", ABC, "asentmax-copy-abc"),
      ReadmeRow("reverse", "RoPE", "asentmax-reverse-rope"),
      ReadmeRow("reverse", ABC, "asentmax-reverse-abc"),
    ],
  ),
  ReadmeTable(
    "increment, 10 digits in training",
    (10, 20, 100, 1000),
    [
      ReadmeRow("runs of 9s", "tempered", "increment-none-tempered"),
      ReadmeRow("runs of 9s", f"{ABC}, one sequence", "increment-none-abc"),
    ],
    "nines",
  ),
  ReadmeTable(
    "states, 20 items in training",
    (20, 60, 200, 2000),
    [
      ReadmeRow(
        "S5, every prefix", "vanilla", "permutations-abc", "interpolate"
      ),
      ReadmeRow("S5, every prefix", ABC, "permutations-abc"),
      ReadmeRow("sums mod 7", ABC, "modular-abc"),
      ReadmeRow("Dyck, depth 8", ABC, "dyck-abc"),
    ],
  ),
)
# The comments between which README.md has the tables.
START = "<!-- tables: python launch/tables.py --pages -->\n"
END = "<!-- end of tables -->\n"


def replace_tables(text: str, archive: Archive) -> str:
  """Returns README's text with new tables between the comments START and END.

  Raises:
    UsageError: a comment is missing, or END does not come after START.
  """
  before, start, tail = text.partition(START)
  check(start, f"README.md: has no {START.strip()}")
  _, end, after = tail.partition(END)
  check(end, f"README.md: has no {END.strip()} after {START.strip()}")
  parts = "\n".join(
    markdown
    for table in README_TABLES
    if (markdown := readme_table(table, archive))
  )
  return f"{before}{START}\n{parts}\n{END}{after}"


def readme_table(table: ReadmeTable, archive: Archive) -> str:
  """Returns one of README's tables as Markdown.

  Its last column, "∀", is the number of seeds whose models both checkers proved
  right at every length (nothing for 0); after it, in parentheses, comes the
  number of those that one checker alone proved. Runs without archived results
  of the stage and test set have no row; if none has any, the result is "".
  """
  headings = [f"{length:,}".replace(",", " ") for length in table.lengths]
  grid = [[table.title, "method", "seeds", *headings, "∀"]]
  for task, method, run, stage in table.rows:
    curve = summary.final_curve(rows_of(archive, run), stage, table.test_set)
    if curve is not None:
      cells = [cell_text(curve.cells.get(length)) for length in table.lengths]
      proofs = str(len(curve.proved_seeds) or "")
      if curve.seeds_proved_once:
        proofs += f" ({len(curve.seeds_proved_once)})"
      grid.append([task, method, curve.seeds_text, *cells, proofs.strip()])
  return tables.to_markdown(grid) + "\n" if len(grid) > 1 else ""


def cell_text(cell: summary.Cell | None) -> str:
  """Returns the exact match in % of the median seed and, where it differs, of
  the worst one; a dash where nothing was measured."""
  if cell is None:
    return "–"
  short = lambda value: tables.percent(value).removesuffix(".0")
  return tables.with_worst(cell, short)


# Task, method with its source, longest training length, test length, and exact
# match in % there; None if it was not published. The numbers are those of the
# papers, which call many of them approximate.
PUBLISHED: list[tuple[str, str, int, int, float | None]] = [
  ("successor", "ABS, ABC", 6, 60, 100),
  ("addition", "ABS, T=3", 6, 60, 100),
  ("addition", "ABC", 6, 60, 99.8),
  ("addition", "Abacus, looped (2405.17399)", 20, 100, 99.1),
  ("addition", "position coupling (2405.20671)", 30, 200, 95),
  ("addition", "FIRE, hints, best of 10 (2402.09371)", 40, 100, 98),
  ("N×1", "ABS, ABC", 6, 60, 100),
  ("N×1", "Turing programs (2407.03310)", 50, 100, 97),
  ("parity", "ABS", 6, 60, 100),
  ("N×M", "bi-level coupling, 20×15 (2410.15787)", 10, 20, None),
  ("sorting, 20 items", "task hinting", 20, 100, 92.6),
  ("sorting, 64 items", "ASEntmax (2506.16640)", 64, 128, 100),
  ("sorting, 64 items", "ASEntmax", 64, 256, 79.7),
  ("copy", "ASEntmax", 64, 4096, 86.6),
  ("reverse", "ASEntmax", 64, 512, 56.7),
]
# The task and the method of each of our runs in the figure.
REACH = {
  "successor-abc": ("successor", "ABC"),
  "successor-abc-decoder_only": ("successor", "ABC, one sequence"),
  "addition-window_cpi": ("addition", "ABS, T=3"),
  "addition-abc": ("addition", "ABC"),
  "addition-abc-decoder_only": ("addition", "ABC, one sequence"),
  "multiply-window_cpi": ("N×1", "ABS, T=3"),
  "multiply-abc": ("N×1", "ABC"),
  "multiply-abc-decoder_only": ("N×1", "ABC, one sequence"),
  "parity-window_cpi": ("parity", "ABS, T=3"),
  "parity-abc": ("parity", "ABC"),
  "parity-abc-decoder_only": ("parity", "ABC, one sequence"),
  "multiply_long-window": ("N×M", "window"),
  "multiply_long-abc": ("N×M", "ABC"),
  "multiply_long-abc-decoder_only": ("N×M", "ABC, one sequence"),
  "increment-none-abc": ("increment", "ABC, one sequence"),
  "sort-none-best": ("sorting, 20 items", "best"),
  "asentmax-sort-best": ("sorting, 64 items", "best"),
  "asentmax-copy-abc": ("copy", "ABC"),
  "asentmax-reverse-abc": ("reverse", "ABC"),
  "modular-abc": ("sums mod 7", "ABC"),
  "permutations-abc": ("S5", "ABC"),
  "dyck-abc": ("Dyck", "ABC"),
}


def reach_section(results: pathlib.Path, archive: Archive) -> str:
  """Draws how far beyond training our models and published ones are right, and
  returns the section on it of the index, results/README.md; "" where nothing of
  ours was measured, or nothing is right.

  Args:
    results: the folder of the pages; the figure is figures/reach.png in it.
    archive: the archived runs.
  """
  bars = [
    reach.farthest(task, method, rows_of(archive, run))
    for run, (task, method) in REACH.items()
  ]
  ours = [bar for bar in bars if bar]
  if not ours:
    return ""
  units = {bar.task: bar.unit for bar in ours}
  published = [
    reach.Bar(task, method, trained, tested, exact, units[task])
    for task, method, trained, tested, exact in PUBLISHED
    if task in units
  ]
  path = results / "figures" / "reach.png"
  reach.reach_figure(ours, published, path, "how far tests go beyond training")
  table = tables.to_markdown(reach.reach_grid(ours, published))
  return SECTION.format(figure=path.relative_to(results), table=table)


SECTION = """
## How far

The longest test length at which, as at all shorter ones, the median seed is
right in at least 99 % of its samples, of a run's last stage (∀: so many of the
seeds are proved right at every length by both checkers, ∀¹: by one); published
results stand at the lengths, and with the exact match if any, that their
authors give.

![test length against training length]({figure})

{table}
"""
