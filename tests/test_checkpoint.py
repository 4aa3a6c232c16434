"""Checkpoints come back bit by bit, or are not used."""

import shutil

import jax
import jax.numpy as jnp
import optax
import pytest
from command import contents, noted, refuses
from pytrees import leaf_bytes

from lengthgen_jax.training.checkpoint import Checkpoints


def state_at(step: int) -> dict:
  """A small state, another one for every step."""
  noise = jax.random.normal(jax.random.key(step), (2, 3))
  params = {
    "dense": {"kernel": noise, "bias": noise[0].astype(jnp.bfloat16)},
    "scale": jnp.array([jnp.nan, -0.0, jnp.inf]),
  }
  return {
    "step": jnp.int32(step),
    "params": params,
    "opt_state": optax.adam(1e-3).init(params),
    "done": jnp.array([True, False]),
    "nothing": None,
  }


ABSTRACT = jax.eval_shape(lambda: state_at(0))


def open_store(folder) -> Checkpoints:
  """The checkpoints in a folder, as training opens them."""
  return Checkpoints(folder, keep=2, seeds=(0,), writes=True)


@pytest.fixture
def store(tmp_path):
  store = open_store(tmp_path / "checkpoints")
  yield store
  store.close()


@pytest.fixture
def two_steps(tmp_path):
  """The steps 20 and 40, opened as modes that read do."""
  folder = tmp_path / "checkpoints"
  store = open_store(folder)
  for step in (20, 40):
    store.save(step, state_at(step))
  store.close()
  return Checkpoints(folder, keep=2, seeds=(0,))


def assert_restores(store, saved_step: int, **options) -> list[str]:
  """Restoring gives what was saved at a step, and changes nothing on disk;
  returns the notes."""
  before = contents(store.folder.parent)
  with noted() as lines:
    step, state = store.restore(ABSTRACT, **options)
  assert contents(store.folder.parent) == before
  saved = state_at(saved_step)
  assert step == saved_step
  assert jax.tree.structure(state) == jax.tree.structure(saved)
  assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))
  assert leaf_bytes(state) == leaf_bytes(saved)
  return lines


def names(store) -> list[str]:
  return sorted(path.name for path in store.folder.iterdir())


def damage(store, step: int) -> None:
  """Cuts the files with the arrays of a step in half."""
  for path in (store.folder / str(step)).rglob("d/*"):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def refusal(store, abstract=ABSTRACT, **options) -> str:
  """The one line with which `restore` refuses; nothing on disk changes."""
  before = contents(store.folder.parent)
  with refuses() as caught:
    store.restore(abstract, **options)
  assert contents(store.folder.parent) == before
  return str(caught.value)


def test_the_newest_are_kept_and_a_step_there_already_is_replaced(store):
  for step in (8, 9, 10, 11):
    store.save(step, state_at(step))
  store.save(11, state_at(11) | {"done": jnp.array([True, True])})
  store.close()
  assert store.restore(ABSTRACT)[1]["done"].all()
  assert store.steps() == [10, 11]
  assert names(store) == ["10", "11"]


def test_a_checkpoint_that_cannot_be_restored_is_passed_over(two_steps):
  """And training that goes on from the one before replaces it, even if it saves
  at other steps."""
  assert not assert_restores(two_steps, 20, step=20)
  damage(two_steps, 40)
  (line,) = assert_restores(two_steps, 20)
  folder = two_steps.folder
  assert line.startswith(f"checkpoint 40 in {folder} cannot be restored (")
  assert line.endswith("; using the one before") and "\n" not in line
  line = refusal(two_steps, step=40)
  assert line.startswith("checkpoint 40 in ")
  assert line.endswith("choose last, best or one of 20, 40")
  store = open_store(two_steps.folder)
  assert_restores(store, 20)
  store.save(30, state_at(30))
  store.close()
  assert names(store) == ["20", "30"]
  assert not assert_restores(store, 30)


def test_a_checkpoint_that_was_half_written_is_none(two_steps):
  """A process was killed while it saved step 50."""
  half = two_steps.folder / "50.orbax-checkpoint-tmp"
  shutil.copytree(two_steps.folder / "40", half)
  reader = Checkpoints(two_steps.folder, keep=2, seeds=(0,))
  assert not assert_restores(reader, 40)
  store = open_store(two_steps.folder)
  store.save(60, state_at(60))
  store.close()
  assert names(store) == ["40", "60"] and not assert_restores(store, 60)


def test_a_reader_follows_a_training_that_goes_on(two_steps):
  """All steps that the reader had listed are gone when it restores."""
  store = open_store(two_steps.folder)
  for step in (60, 80):
    store.save(step, state_at(step))
  store.close()
  assert_restores(two_steps, 80)


def test_another_structure_is_refused_with_the_names_and_stays(two_steps):
  fewer, scale = state_at(0), "params/scale float32[3]"
  del fewer["params"]["scale"]
  extra = state_at(0) | {"extra": jnp.ones(2)}
  other = state_at(0)
  other["params"]["scale"] = jnp.ones((3, 4), int)
  cases = [
    (extra, "lacks extra float32[2]"),
    (fewer, f"has {scale}"),
    (other, f"has {scale}; lacks params/scale int32[3, 4]"),
  ]
  for abstract, words in cases:
    line = refusal(two_steps, abstract)
    assert line.startswith("checkpoint 40 in ")
    assert line.endswith(f"is of another structure: it {words}")
  line = refusal(two_steps, {str(i): fewer["step"] for i in range(99)})
  assert len(line) < len(str(two_steps.folder)) + 300
  other_seed = Checkpoints(two_steps.folder, keep=2, seeds=(1,))
  assert refusal(other_seed).endswith("is of seeds [0] and not [1]")


def test_a_step_that_is_missing_is_refused(two_steps, tmp_path):
  choices = "choose last, best or one of 20, 40"
  assert refusal(two_steps, step=7) == f"eval.checkpoint=7: {choices}"
  empty = Checkpoints(tmp_path / "empty", keep=2, seeds=(0,))
  assert "eval.checkpoint=7" in refusal(empty, step=7)
  assert empty.restore(ABSTRACT) == (None, None)
  assert not empty.folder.exists()
