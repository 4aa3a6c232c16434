"""Every preset of every config file builds."""

import dataclasses
import itertools

import jax
import pytest
from presets import arithmetic, increment, quickstart, sorting

from lengthgen_jax.config import build
from lengthgen_jax.pipelines import abc


def subsets(words):
  """Every choice of some words."""
  for count in range(len(words) + 1):
    yield from itertools.combinations(words, count)


def one_layer(experiment):
  """The same, small: its shapes stand for those of all sizes."""
  config = dataclasses.replace(
    experiment.model.config,
    num_decoder_layers=1,
    vocab_size=9,
    emb_dim=16,
    num_heads=2,
    mlp_dim=8,
    dropout_rate=0.0,
    num_encoder_layers=min(experiment.model.config.num_encoder_layers, 1),
  )
  model = experiment.model.clone(config=config)
  return dataclasses.replace(experiment, model=model)


def test_every_preset_of_arithmetic_builds():
  """And has parameters of some shape; nothing is compiled."""
  seen = {}
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
        assert experiment.model.config.num_decoder_layers > 1
        one = one_layer(experiment)
        seen[one.model.clone(heads=()), one.task.segments] = one
  for experiment in seen.values():
    assert "decoder_0" in jax.eval_shape(lambda e=experiment: e.init(0))
  assert len(seen) > 10


@pytest.mark.parametrize("file", (sorting, increment))
def test_every_preset_of_hints_builds(file):
  """And has a head for every task; nothing is compiled."""
  seen = {}
  for hint in file.HINTS:
    for words in subsets(file.OPTIONS):
      config = file.get_config(",".join((hint, *words)))
      experiment = build.build(config)
      assert len(experiment.heads) == 1 + len(config.hints)
      paper = experiment.model.config.emb_dim == 1024
      assert paper == ("paper" in words)
      one = one_layer(experiment)
      seen[one.model, one.heads] = one, words
  for experiment, words in seen.values():
    shapes = jax.eval_shape(lambda e=experiment: e.init(0))
    for head in experiment.heads:
      idle = experiment.idle_params(experiment.step_specs[0])
      assert f"logits_dense_{head}" in idle | set(shapes)
    tempered = "temperature" in shapes["decoder_0"]["self_attention"]
    assert tempered == bool({"tempered", "best"} & set(words))


def test_quickstart_is_the_main_job():
  config = quickstart.get_config()
  assert config == arithmetic.get_config("addition,abc")
  abc.check_config(config)
  assert max(config.eval.lengths) == 1000
