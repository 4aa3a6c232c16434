"""docs/inside.md names what is in a model, and docs/example.ipynb runs."""

import itertools
import json
import re

import jax
import pytest
import untrained
from command import REPOSITORY
from flax.traverse_util import flatten_dict

from lengthgen_jax.drawing import plt
from lengthgen_jax.tasks.packing import KINDS

DOCS = REPOSITORY / "docs"
PAGE = (DOCS / "inside.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([\w./]+)` \| ([A-Z ]+) \| ?(.*)\|$", re.M)
WORDS = {"STACK": ("decoder", "encoder"), "SITE": ("self", "cross"), "N": "01"}


def documented(mark: str) -> dict[str, str]:
  """{name: letters of its shape} of the parameters ("/") or activations."""
  shapes = {}
  for name, letters, text in ROW.findall(PAGE):
    if (mark == "/") != ("/" in name):
      continue
    others = re.findall(r"`(\w+)`", text.partition("also ")[2])
    others = [re.sub("query|scale", x, name) for x in others if x != "post_"]
    values = itertools.product(*WORDS.values())
    pairs = itertools.product([name, *others], values)
    for sibling, words in pairs:
      for word, value in zip(WORDS, words, strict=True):
        sibling = re.sub(rf"(?<![A-Z]){word}(?![A-Z])", value, sibling)
      shapes[sibling.replace("TASK", "addition")] = letters
  return shapes


@pytest.mark.parametrize("kind", KINDS)
def test_names_and_shapes_are_as_documented(kind):
  fields = {"model.num_decoder_layers": 2, "model.num_encoder_layers": 2}
  fields = fields if kind == "encoder_decoder" else {}
  experiment = untrained.experiment("addition", kind, fields)
  batch = untrained.typed(experiment, "12+34", "56+78")
  params = jax.eval_shape(lambda: experiment.init(0))
  run = lambda params: experiment.apply(params, {}, batch, "addition")
  _, acts = jax.eval_shape(run, params)
  vocab_size = experiment.model.config.vocab_size
  sizes = {"B": 2, "D": 16, "H": 2, "K": 8, "F": 32, "V": vocab_size}
  sizes["T"] = batch.inputs.shape[1]
  sizes["S"] = 0 if batch.source is None else batch.source.shape[1]
  names = flatten_dict(acts, sep=".")
  for mark, found in (("/", flatten_dict(params, sep="/")), (".", names)):
    shapes = documented(mark)
    assert set(found) <= set(shapes)
    if kind == "encoder_decoder":  # all that the page names are there
      missing = {x for x in set(shapes) - set(found) if "encoder" not in x}
      assert not missing
    for name, x in found.items():
      assert x.shape == tuple(sizes[y] for y in shapes[name].split()), name


def test_the_notebook_runs(capsys):
  notebook = json.loads((DOCS / "example.ipynb").read_text(encoding="utf-8"))
  names = {}
  for cell in notebook["cells"]:
    if cell["cell_type"] == "code":
      exec(compile("".join(cell["source"]), "example.ipynb", "exec"), names)
  plt.close("all")
  answers, exact, figures, *ablated = capsys.readouterr().out.splitlines()
  assert "1000" in answers and "100000000" in answers
  assert exact == "{6: 1.0, 20: 1.0}"
  assert figures == "['cross', 'self']"
  assert any(float(line.split()[1]) < 1 for line in ablated)
