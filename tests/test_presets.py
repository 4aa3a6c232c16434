"""Every preset of every config file builds."""

import itertools

import pytest
from presets import arithmetic, increment, quickstart, sorting

from lengthgen_jax.config import build
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
      assert is_tempered == bool({"tempered", "best"} & set(words))


def test_quickstart_is_the_main_job():
  config = quickstart.get_config()
  assert config == arithmetic.get_config("addition,abc")
  abc.check_config(config)
  assert max(config.eval.lengths) == 1000
