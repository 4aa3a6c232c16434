"""Every preset of every config file builds."""

import itertools

import pytest
from presets import (
  arithmetic,
  asentmax,
  increment,
  multiply_long,
  quickstart,
  sorting,
  states,
)

from lengthgen_jax.config import build, files
from lengthgen_jax.errors import UsageError
from lengthgen_jax.pipelines import abc


def subsets(words):
  """Every choice of some words."""
  for count in range(len(words) + 1):
    yield from itertools.combinations(words, count)


def test_every_preset_of_arithmetic_builds():
  for task in arithmetic.TASKS:
    for method in arithmetic.METHODS:
      for words in subsets(arithmetic.OPTIONS):
        preset = ",".join((task, method, *words))
        if len(set(words) & set(arithmetic.PAPERS)) > 1:
          with pytest.raises(ValueError, match="at most one of"):
            arithmetic.get_config(preset)
          continue
        config = arithmetic.get_config(preset)
        experiment = build.build(config)
        scaffold = build.make_scaffold(config, experiment)
        one_sequence = "decoder_only" in words
        assert experiment.kind.endswith("only") == one_sequence
        sites = {"self"} if one_sequence else {"self", "cross"}
        assert set(scaffold) == (sites if "window" in method else set())
        natural = not set(words) - {"decoder_only"}
        assert (experiment.fixed_width is None) == natural, preset
        if method == "abc":
          abc.check_config(config)  # the second stage too


@pytest.mark.parametrize("file", (sorting, increment))
def test_every_preset_of_hints_builds(file):
  for hint in file.HINTS:
    for words in subsets(file.OPTIONS):
      config = file.get_config(",".join((hint, *words)))
      experiment = build.build(config)
      assert len(experiment.heads) == 1 + len(config.hints)
      shape = experiment.model.config
      assert (shape.emb_dim == 1024) == ("paper" in words)
      is_tempered = shape.temperature.kind != "none"
      assert is_tempered == ("tempered" in words)
      has_segments = bool({"segments", "best"} & set(words))
      assert shape.positions.segments == has_segments
      is_sparse = bool({"entmax", "best"} & set(words))
      assert (shape.attention.label == "entmax 1.5") == is_sparse


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


def test_quickstart_is_the_main_job():
  config = quickstart.get_config()
  assert config == arithmetic.get_config("addition,abc")
  abc.check_config(config)
  assert max(config.eval.lengths) == 1000


@pytest.mark.parametrize("words", ("", ",decoder_only"))
@pytest.mark.parametrize("method", multiply_long.METHODS)
def test_every_preset_of_products_builds(method, words):
  config = multiply_long.get_config(method + words)
  built = build.build(config)
  assert built.kind == ("decoder_only" if words else "encoder_decoder")
  sites = {"self"} if words else {"self", "cross"}
  scaffold = build.make_scaffold(config, built)
  assert set(scaffold) == (sites if method == "window" else set())
  if method == "abc":
    abc.check_config(config)


def test_finetuning_is_for_one_bucket():
  config = states.get_config("permutations,abc")
  config.retrain.data.buckets = (4, 20)
  with pytest.raises(UsageError, match="retrain.data.buckets"):
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
  for task in asentmax.TASKS:
    for method in asentmax.METHODS:
      for option in ("", ",paper", ",segments,entmax"):
        if task in asentmax.TASKS_OF_METHOD.get(method, asentmax.TASKS):
          config = asentmax.get_config(f"{task},{method}{option}")
          assert build.build(config).train_length == 64
          if method == "abc":
            abc.check_config(config)
        else:
          with pytest.raises(ValueError, match="is for"):
            asentmax.get_config(f"{task},{method}")
