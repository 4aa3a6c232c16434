"""Runs that cannot be calibrated say so at once."""

import pytest
import untrained

from lengthgen_jax.errors import UsageError
from lengthgen_jax.pipelines.calibrate import check_config
from lengthgen_jax.tasks.packing import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_ends_of_operands_take_two_widths_to_tell_apart(kind):
  fields = {"calibration.lengths": (1, 2), "data.widths": (4,)}
  for changes, words in (
    ({}, "at one width: train with two or more data.widths"),
    ({"calibration.lengths": (3,)}, "3 exceeds data.train_length=2"),
    ({"data.widths": (4, 5)}, ""),
    ({"calibration.lines": "absolute"}, ""),
    ({"data.width": "fixed", "data.widths": ()}, ""),
  ):
    config = untrained.config("addition", kind, fields | changes)
    built = untrained.experiment("addition", kind, fields | changes)
    if not words:
      check_config(config, built)
      continue
    with pytest.raises(UsageError, match=words) as error:
      check_config(config, built)
    assert "\n" not in str(error.value)


def test_outputs_at_no_fixed_place_have_no_lines():
  fields = {"calibration.lengths": (1, 2)}
  config = untrained.config("sort", "decoder_only", fields)
  built = untrained.experiment("sort", "decoder_only", fields)
  with pytest.raises(UsageError, match="task='sort'.*no lines"):
    check_config(config, built)
