"""Every preset of every config file builds."""

import itertools

import pytest
from presets import (
  arithmetic,
  asentmax,
  increment,
  multiply_long,
  sorting,
  states,
)

from lengthgen_jax.config import build, files
from lengthgen_jax.errors import UsageError
from lengthgen_jax.pipelines import abc


def test_every_preset_of_arithmetic_builds():
  """Each task by two methods; each method and option of one task."""
  words = itertools.product(arithmetic.TASKS, ("window", "abc"), ("",))
  methods = itertools.product(("addition",), arithmetic.METHODS, ("",))
  options = itertools.product(
    ("addition",), ("window", "abc"), arithmetic.OPTIONS
  )
  for task, method, option in (*words, *methods, *options):
    config = arithmetic.get_config(f"{task},{method},{option}".strip(","))
    experiment = build.build(config)
    scaffold = build.make_scaffold(config, experiment)
    is_only = option == "decoder_only"
    sites = {"self"} if is_only else {"self", "cross"}
    assert set(scaffold) == (sites if "window" in method else set())
    if method == "abc":
      abc.check_config(config)  # the second stage too
  two = ",".join(("addition", "abc", *[*arithmetic.PAPERS][:2]))
  with pytest.raises(ValueError, match="at most one of"):
    arithmetic.get_config(two)


@pytest.mark.parametrize("file", (sorting, increment))
def test_every_preset_of_hints_builds(file):
  hints, options = list(file.HINTS), list(file.OPTIONS)
  words = [(hint, "") for hint in hints] + [(hints[1], x) for x in options]
  for hint, option in words:
    preset = f"{hint},{option}".strip(",")
    shape = build.build(file.get_config(preset)).model.config
    assert (shape.emb_dim == 1024) == (option == "paper")
    assert (shape.temperature.kind != "none") == (option == "tempered")


def test_presets_of_the_package_are_found_from_any_folder(
  tmp_path, monkeypatch
):
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


def test_every_preset_of_products_builds():
  for method in multiply_long.METHODS:
    for words in ("", ",decoder_only"):
      config = multiply_long.get_config(method + words)
      build.make_scaffold(config, build.build(config))
      if method == "abc":
        abc.check_config(config)


def test_every_preset_of_states_and_of_asentmax_builds():
  for task in states.TASKS:
    for method in states.METHODS:
      for option in ("", ",decoder_only", ",final"):
        config = states.get_config(f"{task},{method}{option}")
        built = build.build(config)
        assert built.task.transducer == (option != ",final")
        if method == "abc" and option != ",final":
          abc.check_config(config)
  options = "", ",paper", ",segments,entmax"
  for task in asentmax.TASKS:
    for method in asentmax.METHODS:
      for option in options if task == "sort" else options[:1]:
        if task in asentmax.TASKS_OF_METHOD.get(method, asentmax.TASKS):
          config = asentmax.get_config(f"{task},{method}{option}")
          assert build.build(config).train_length == 64
          if method == "abc":
            abc.check_config(config)
        else:
          with pytest.raises(ValueError, match="is for"):
            asentmax.get_config(f"{task},{method}")
