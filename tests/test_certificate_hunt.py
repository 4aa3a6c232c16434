"""A handful of the draws of certificate_hunt.py, which is run by hand for ten
thousand."""

import collections

import certificate_hunt
import pytest

# Two draws that were accepted and did not hold while a line over a prompt
# without marks was taken to move a place by less than its intercept; and a
# decoder-only model of fixed width.
DRAWS = (894, 1105, 25)


@pytest.mark.parametrize("number", DRAWS)
def test_what_is_accepted_holds(number):
  fate = certificate_hunt.hunt(number)
  assert fate == "held" or fate.startswith(("refused: ", "left out: "))


def test_draws_are_of_every_kind():
  """Every task, both families, encoders, cyclic indices, fixed widths; and the
  handful has some that are accepted, of both families."""
  forms = collections.Counter(map(certificate_hunt.draw_form, range(600)))
  assert set(forms) == set(certificate_hunt.FORMS)
  fields = {name for form in forms for name, _ in form.fields}
  wanted = {"positions.cyclic_period", "data.fixed_width", "arithmetic.aligned"}
  assert wanted | {"model.num_encoder_layers", "dyck.brackets"} <= fields
