"""A handful of the draws of certificate_hunt.py: what is accepted holds."""

import certificate_hunt
import pytest


# 894 and 1105 did not hold while a line over a prompt without marks was taken
# to move a place by less than its intercept; 25 is a decoder-only model of
# fixed width.
@pytest.mark.parametrize("number", (894, 1105, 25))
def test_what_is_accepted_holds(number):
  certificate_hunt.hunt(number)
