"""launch/card.py, which does about an hour of runs on one accelerator, tested
on the CPU."""

import json
import pathlib

import card
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from command import REPOSITORY


def test_runs_exist_and_an_estimate_is_of_a_run_s_steps():
  jobs = card.tables.jobs_of([*card.RUNS], "paper", {})
  assert [job.run.name for job in jobs] == [*card.RUNS]
  run = jobs[0].run._replace(config="tests/tiny.py", mode="train", fields={})
  steps, flops = card.estimate(run)
  assert steps == card.load_config("tests/tiny.py").train.steps and flops > 0


def test_devices_pass_if_they_compute_the_same(monkeypatch, capsys):
  monkeypatch.setattr(card, "COMPARED", ("tests/tiny.py",))
  monkeypatch.chdir(REPOSITORY)
  assert card.main(["--numerics"]) == 0
  _, loss, gradients = capsys.readouterr().out.splitlines()
  assert loss.split()[:2] == ["loss", "0.00e+00"]
  assert gradients.split()[:2] == ["gradients", "0.00e+00"]

  # A result that changes from call to call stands for a wrong device.
  calls = []

  def drift(x):
    calls.append(1)
    return x + np.float32(1e-3 * len(calls))

  drifting = lambda x: (x, jax.pure_callback(drift, x, x))
  for wrong in (drifting, lambda x: (x, jnp.log(-x))):
    result = wrong, np.ones(3, np.float32)
    monkeypatch.setattr(card, "loss_and_gradients", lambda _, x=result: x)
    assert card.main(["--numerics"]) == 1


@pytest.mark.parametrize(("margins", "code"), [((2, 2), 0), ((2, 2.1), 1)])
def test_certificates_are_compared(margins, code, tmp_path, monkeypatch, capfd):
  """Each is made anew."""
  monkeypatch.setattr(card.sys, "executable", "true")
  left = [*margins]

  def certify(arguments, **environment):
    folder = pathlib.Path(arguments[-1].removeprefix("--workdir="))
    folder.mkdir(exist_ok=True)
    with (folder / "certificate.json").open("x") as file:
      json.dump({"0": {"margin": left.pop(0)}}, file)
    assert environment == ({} if left else {"JAX_PLATFORMS": "cpu"})
    return 0

  monkeypatch.setattr(card, "lengthgen", certify)
  assert card.check_numerics(tmp_path) == code
  line = f"margin on this device 2.000000, on the CPU {margins[1]:.6f}\n"
  assert capfd.readouterr().out == line
