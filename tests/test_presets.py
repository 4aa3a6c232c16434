"""Every preset of every config file builds."""

import itertools

import presets
import pytest
from presets import arithmetic, asentmax, local_rules, multiply_long, states

from lengthgen_jax.config import build, files
from lengthgen_jax.errors import UsageError
from lengthgen_jax.pipelines import abc


def built(file, *words):
  """The experiment and the scaffold of a preset, and of ABC the second stage
  too."""
  config = file.get_config(",".join(filter(None, words)))
  experiment = build.build(config)
  if "abc" in words and "final" not in words:
    abc.check_config(config)
  return experiment, build.make_scaffold(config, experiment)


def test_every_preset_of_arithmetic_builds():
  """Each task by two methods; each method and option of one task."""
  addition, two_methods = ("addition",), ("window", "abc")
  for task, method, option in (
    *itertools.product(arithmetic.TASKS, two_methods, ("",)),
    *itertools.product(addition, arithmetic.METHODS, ("",)),
    *itertools.product(addition, two_methods, arithmetic.OPTIONS),
  ):
    _, scaffold = built(arithmetic, task, method, option)
    is_only = option == "decoder_only"
    sites = {"self"} if is_only else {"self", "cross"}
    assert set(scaffold) == (sites if "window" in method else set())
  with pytest.raises(ValueError, match="at most one of"):
    built(arithmetic, "addition", "abc", *[*arithmetic.PAPERS][:2])


@pytest.mark.parametrize(
  "name", ("sorting", "increment", "reversing", "adding")
)
def test_every_preset_of_hints_builds(name):
  file = getattr(presets, name)
  hints = [*file.HINTS]
  for words in (*zip(hints), *itertools.product(hints[1:2], file.OPTIONS)):
    if words == ("restricted",):  # a restriction is of a longer list
      words += ("longer",)
    shape = built(file, *words)[0].model.config
    assert (shape.emb_dim == 1024) == ("paper" in words)
    assert (shape.temperature.kind != "none") == ("tempered" in words)
  if "longer" in file.OPTIONS:
    with pytest.raises(ValueError, match="is for a hint"):
      file.get_config("none,longer")


def test_every_preset_of_products_grids_and_states_builds():
  options = "", "decoder_only", "final"
  for words in itertools.product(multiply_long.METHODS, options[:2]):
    built(multiply_long, *words)
  for words in itertools.product(local_rules.TASKS, local_rules.METHODS):
    built(local_rules, *words)
  for words in itertools.product(states.TASKS, states.METHODS, options):
    task = built(states, *words)[0].task
    assert task.transducer == ("final" not in words)


def test_every_preset_of_asentmax_builds():
  for task, method in itertools.product(asentmax.TASKS, asentmax.METHODS):
    if task not in asentmax.TASKS_OF_METHOD.get(method, asentmax.TASKS):
      with pytest.raises(ValueError, match="is for"):
        built(asentmax, task, method)
      continue
    for option in ("", *(("paper", "segments,entmax") * (task == "sort"))):
      assert built(asentmax, task, method, option)[0].train_length == 64


def test_presets_are_found_from_any_folder(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  expected = arithmetic.get_config("addition")
  for spec in ("arithmetic.py:addition", "configs/arithmetic.py:addition"):
    assert files.load_config(spec).to_dict() == expected.to_dict()
  with pytest.raises(UsageError, match="no file other/arithmetic.py"):
    files.load_config("other/arithmetic.py:addition")
  # A file that is there comes first; a relative path is one beside the caller.
  (tmp_path / "arithmetic.py").write_text(
    "from lengthgen_jax.config import default_config\n"
    "get_config = lambda: default_config('sort')\n"
  )
  assert files.load_config("arithmetic.py").task == "sort"
  (tmp_path / "caller.py").write_text(
    "from lengthgen_jax.config import load_presets\n"
    "mine = load_presets('arithmetic.py')\n"
    "own = load_presets('sorting.py')\n"
  )
  (tmp_path / "elsewhere").mkdir()
  monkeypatch.chdir(tmp_path / "elsewhere")
  caller = files.load_presets(tmp_path / "caller.py")
  assert caller.mine.get_config().task == "sort" and caller.own.HINTS
  with pytest.raises(UsageError, match="load_presets: no file unknown.py"):
    files.load_presets("unknown.py")
