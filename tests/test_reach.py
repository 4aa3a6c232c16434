"""How far tests go beyond training, from rows and published marks."""

from rows import CERTIFIED, row, seeds

from lengthgen_jax.results import reach


def planted(*values, **fields):
  """Rows of three seeds with a median exact match at 6, 10, 20 ... digits."""
  found = []
  for length, value in zip((6, 10, 20, 60, 200), values, strict=False):
    found += seeds(100, value, 0, length=length, **fields)
  return found


def test_the_farthest_length_ends_where_the_median_seed_fails():
  rows = planted(100, 99, 100, 98, 100)
  mark = reach.farthest("addition", "ours", rows)
  assert (mark.trained, mark.tested, mark.exact) == (6, 20, 100)
  assert mark.n == rows[0]["n"] and mark.seeds.startswith("3")
  assert reach.farthest("addition", "ours", planted(98, 100, 100)) is None
  assert reach.farthest("addition", "ours", []) is None


def test_the_last_stage_and_the_first_test_set_count():
  rows = planted(100, 100, stage="retrain") + planted(100, stage="certify")
  assert reach.farthest("x", "y", rows).tested == 6
  rows = planted(100, 100) + planted(100, 100, 100, test_set="carry")
  assert reach.farthest("x", "y", rows).tested == 10
  hard = [one | {"stress": True} for one in planted(0, test_set="zeros")]
  assert reach.farthest("x", "y", hard + rows).tested == 10


def test_the_figure_and_the_table_have_every_mark(monkeypatch):
  monkeypatch.setattr(reach, "save", lambda figure, path: figure)
  ours = [reach.farthest("addition", "ours", planted(100, 100, 100))]
  others = [
    reach.Mark("addition", "theirs", 20, 100, 99.1, "digits"),
    reach.Mark("N×M", "others", 10, 20, None, "digits"),
  ]
  (axis,) = reach.reach_figure(ours, others, None, "how far").axes
  names = [label.get_text() for label in axis.get_yticklabels()]
  assert names == ["addition: ours", "addition: theirs", "N×M: others"]
  ends = [list(line.get_xdata()) for line in axis.get_lines()[:6:2]]
  assert ends == [[6, 20], [20, 100], [10, 20]]
  labels = [text.get_text() for text in axis.get_legend().get_texts()]
  assert labels == ["ours", "published"]
  reach.plt.close("all")
  head, *grid = reach.reach_grid(ours, others)
  assert [line[:2] for line in grid] == [
    ["addition", "**ours**"],
    ["addition", "theirs"],
    ["N×M", "others"],
  ]
  assert [line[head.index("exact match")] for line in grid] == [
    "100 %",
    "99.1 %",
    "not said",
  ]


def test_a_proof_is_said():
  proof = CERTIFIED | {"value": 1}
  mark = reach.farthest("addition", "ours", [row(length=60), proof])
  assert "∀" in mark.proof
  mark = reach.farthest("addition", "ours", [row(length=60), CERTIFIED])
  assert "∀" not in mark.proof
