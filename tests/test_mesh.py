"""Seeds and examples split over devices change results by rounding alone."""

import json
import os
import shutil
import subprocess
import sys

import jax
import pytest
from command import REPOSITORY, changed
from pytrees import max_difference
from toy_runs import toy_run

from lengthgen_jax import rng
from lengthgen_jax.config import fields, files
from lengthgen_jax.pipelines import workdir
from lengthgen_jax.training import loop, mesh

DEVICES = 4


@pytest.fixture(scope="module")
def four(tmp_path_factory):
  """The report of four_devices.py; "run" is the folder of a toy's run."""
  flag = f"--xla_force_host_platform_device_count={DEVICES}"
  tests = REPOSITORY / "tests"
  env = os.environ | {
    "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} {flag}",
    "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{tests}",
    # What keys stand for, which the config alone is to decide.
    "JAX_THREEFRY_PARTITIONABLE": "0",
    "JAX_DEFAULT_PRNG_IMPL": "rbg",
    "JAX_RANDOM_SEED_OFFSET": "1",
  }
  folder = tmp_path_factory.mktemp("four") / "run"
  command = [sys.executable, tests / "four_devices.py", folder]
  done = subprocess.run(command, env=env, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout) | {"run": folder}


# On four devices.


def test_a_model_trained_on_four_devices_has_the_parameters_of_one(four):
  """Five steps in float64, with dropout, validation and seeds in turn; it could
  be trained on accelerators."""
  models = four["models"]
  assert models["dtypes"] == ["float64"]
  assert models["params"] < 1e-8
  assert models["losses"] < 1e-10
  assert models["lowered"] == ["cuda", "tpu", DEVICES]


def test_the_environment_does_not_change_what_a_key_stands_for(four):
  key = jax.random.split(rng.stream(3, "data"))[1]
  assert four["bits"] == jax.random.bits(key, (3,)).tolist()


def test_tests_and_calibration_are_the_same_on_four_devices(four):
  """Of 13 examples, which four devices do not divide."""
  tests = four["models"]["tests"]
  assert tests["devices"] == DEVICES
  assert tests["hits"] == 0 and 0 < tests["correct"] < 1
  assert tests["sums"] < 1e-10 and tests["counted"] == 6


def test_a_mesh_is_one_compile_whatever_becomes_of_its_seeds(four):
  """Chunks of seeds in turn; a run with checkpoints of seeds side by side."""
  assert four["models"]["compiled"] == four["toys"]["compiled"] == 1


def test_a_run_goes_on_on_another_number_of_devices(four, tmp_path):
  whole = loop.load(toy_run(four["run"]), "last")
  folder = tmp_path / "run"
  shutil.copytree(four["run"], folder)
  for step in (40, 60):
    shutil.rmtree(folder / "checkpoints" / str(step))
  states = loop.train(toy_run(folder))
  assert states.step.tolist() == whole.step.tolist() == [60, 20, 60, 60]
  assert max_difference(states, whole) < 1e-4
  assert jax.tree.leaves(states.params)[0].devices() == {jax.devices()[0]}


# The choice of a mesh, as if there were more devices.


def test_as_many_seeds_as_divide_and_the_batch_over_the_rest():
  """Of six devices with four seeds, three do not divide the batch."""
  shapes = {(1, 5): (1, 1), (8, 2): (2, 4), (8, 6): (2, 4), (6, 4): (2, 1)}
  for (devices, seeds), shape in shapes.items():
    assert mesh.default_shape(devices, seeds, 128) == shape


def test_fewer_seeds_take_another_mesh_where_theirs_does_not_divide_them():
  """As in retraining, when a seed did not interpolate."""
  config = changed("mesh=(2, 1)", "seeds=(0, 1)")
  assert fields.retrain_config(config, (0, 1), None).mesh == (2, 1)
  assert fields.retrain_config(config, (1,), None).mesh == ()


def test_the_mesh_is_no_part_of_what_a_run_is(tmp_path):
  """It may be resumed and read on other devices."""
  config = changed("mesh=(1, 1)")
  workdir.open_workdir(config, tmp_path, "train")
  saved = files.saved_config(tmp_path)
  assert saved.mesh == () and not files.differences(config, saved)
  assert files.config_hash(config) == files.config_hash(saved)
