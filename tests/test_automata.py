"""State tracking: the last state alone as the answer."""

import plain_tasks as plain
import pytest
from presets import states

from lengthgen_jax.config.build import build
from lengthgen_jax.errors import UsageError
from lengthgen_jax.pipelines import calibrate
from lengthgen_jax.tasks import TASKS


@pytest.mark.parametrize("name", ("modular", "permutations", "dyck"))
def test_the_final_answer_is_the_last_state(name):
  states_, final = (TASKS[name](answer=x) for x in ("states", "final"))
  text = {"modular": "3 5 6", "dyck": "(()"}.get(name, "21345 13245 54321")
  prompt, output = plain.example_of_text(states_, text)
  assert plain.example_of_text(final, text) == (prompt, output[-1:])
  assert states_.render(output) == final.render(output[-1:])
  assert states_.transducer and not final.transducer
  config = states.get_config(f"{name},vanilla,final")
  with pytest.raises(UsageError, match="no fixed place"):
    calibrate.check_config(config, build(config))
