"""Checkpoints come back bit by bit, or are not used."""

import pathlib
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from command import contents, refuses
from flax import struct
from pytrees import leaf_bytes

from lengthgen_jax.training.checkpoint import Checkpoints, find_damage


class State(struct.PyTreeNode):
  step: jax.Array
  params: dict
  opt_state: optax.OptState
  done: jax.Array
  nothing: None = None


def state_at(step: int) -> State:
  """A small state, another one for every step."""
  noise = jax.random.normal(jax.random.key(step), (2, 3))
  params = {
    "dense": {"kernel": noise, "bias": noise[0].astype(jnp.bfloat16)},
    "scale": jnp.array([jnp.nan, -0.0, jnp.inf]),
  }
  return State(
    step=jnp.int32(step),
    params=params,
    opt_state=optax.adam(1e-3).init(params),
    done=jnp.array([True, False]),
  )


ABSTRACT = jax.eval_shape(lambda: state_at(0))


@pytest.fixture
def store(tmp_path):
  store = Checkpoints(tmp_path / "checkpoints", keep=2, seeds=(0,))
  yield store
  store.close()


@pytest.fixture
def two_steps(store):
  """A store with the steps 20 and 40, nothing in flight."""
  for step in (20, 40):
    store.save(step, state_at(step), {"a": [1]})
  store.restore(ABSTRACT)  # waits
  return store


def assert_restores(store, saved_step: int, **options) -> list[str]:
  """Restoring gives what was saved at a step; returns the reported lines."""
  lines = []
  step, state = store.restore(ABSTRACT, report=lines.append, **options)
  saved = state_at(saved_step)
  assert step == saved_step
  assert jax.tree.structure(state) == jax.tree.structure(saved)
  assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))
  assert leaf_bytes(state) == leaf_bytes(saved)
  return lines


def names(store) -> list[str]:
  return sorted(path.name for path in store.folder.iterdir())


def files(store, step: int) -> list[pathlib.Path]:
  paths = sorted((store.folder / str(step)).rglob("*"))
  return [path for path in paths if path.is_file()]


def flip(path: pathlib.Path, place: int) -> None:
  data = bytearray(path.read_bytes())
  data[place] ^= 1 << place % 8
  path.write_bytes(data)


def refusal(store, abstract=ABSTRACT, **options) -> str:
  """The one line with which `restore` refuses; nothing on disk changes."""
  before = contents(store.folder.parent)
  with refuses() as caught:
    store.restore(abstract, **options)
  assert contents(store.folder.parent) == before
  return str(caught.value)


def test_state_comes_back_bit_by_bit(two_steps):
  assert not assert_restores(two_steps, 40)
  assert not assert_restores(two_steps, 20, step=20)
  assert leaf_bytes(two_steps.restore(state_at(0))[1]) == leaf_bytes(
    state_at(40)
  )
  other = Checkpoints(two_steps.folder, keep=2, seeds=(0,))
  assert_restores(other, 40, repair=True)
  other.close()


def test_donated_buffers_are_saved_as_they_were_at_the_call(store):
  overwrite = jax.jit(
    lambda state: jax.tree.map(
      lambda x: ~x if x.dtype == bool else x * 0, state
    ),
    donate_argnums=0,
  )
  state = {"x": jnp.arange(1 << 18), "b": jnp.array([True]), "s": jnp.int32(7)}
  saved = leaf_bytes(state)
  store.save(1, state, {})
  for _ in range(5):
    state = overwrite(state)
  jax.block_until_ready(state)
  restored = store.restore(state)[1]
  assert leaf_bytes(restored) == saved
  overwrite(restored)
  assert leaf_bytes(store.restore(state)[1]) == saved


def test_saving_returns_before_the_files_are_written(store, monkeypatch):
  go_on = threading.Event()
  save = ocp.StandardCheckpointer.save

  def wait_and_save(*arguments, **options):
    assert go_on.wait(60)
    return save(*arguments, **options)

  monkeypatch.setattr(ocp.StandardCheckpointer, "save", wait_and_save)
  state = state_at(20).replace(done=np.array([True, False]))
  store.save(20, state, {})
  state.done[:] = False  # as if its buffer were used again
  assert store.steps() == []
  go_on.set()
  store.save(40, state_at(40), {})  # waits for the one before
  assert 20 in store.steps()
  assert_restores(store, 20, step=20)
  assert store.steps() == [20, 40]


def test_the_newest_are_kept_and_a_step_there_already_is_replaced(store):
  for step in (8, 9, 10, 11):
    store.save(step, state_at(step), {})
  store.save(11, state_at(11).replace(done=jnp.array([True, True])), {})
  assert store.restore(ABSTRACT)[1].done.all()
  assert store.steps() == [10, 11]
  assert names(store) == ["10", "11"]


def test_any_flipped_bit_and_any_missing_file_is_noticed(two_steps):
  paths = files(two_steps, 40)
  assert {"meta.json", "checksums.json"} < {path.name for path in paths}
  for path in paths:
    sound = path.read_bytes()
    for place in {0, len(sound) // 3, len(sound) // 2, len(sound) - 1}:
      if sound:
        flip(path, place)
        assert len(assert_restores(two_steps, 20)) == 1
        path.write_bytes(sound)
    path.unlink()
    (line,) = assert_restores(two_steps, 20)
    assert f"{path.name} is missing" in line
    path.write_bytes(sound)
  step_folder = two_steps.folder / "40"
  path = step_folder / "checksums.json"
  sound = path.read_bytes()
  for place in range(0, len(sound), 7):
    flip(path, place)
    assert find_damage(step_folder)
    path.write_bytes(sound)
  assert not assert_restores(two_steps, 40)


def test_reading_moves_no_damaged_checkpoint(two_steps):
  flip(files(two_steps, 40)[0], 1)
  before = contents(two_steps.folder.parent)
  (line,) = assert_restores(two_steps, 20)
  assert line.startswith(f"checkpoint 40 in {two_steps.folder} is damaged (")
  assert line.endswith("; using the one before")
  assert contents(two_steps.folder.parent) == before


def test_training_moves_damaged_checkpoints_aside(two_steps):
  aside = two_steps.folder.with_name("checkpoints_damaged")
  flip(files(two_steps, 40)[0], 1)
  (line,) = assert_restores(two_steps, 20, repair=True)
  assert f"moved to {aside / '40.0'}" in line
  assert two_steps.steps() == [20]

  two_steps.save(40, state_at(40), {})
  assert_restores(two_steps, 40, repair=True)
  for step in (20, 40):
    files(two_steps, step)[0].unlink()
  lines = []
  restored = two_steps.restore(ABSTRACT, report=lines.append, repair=True)
  assert restored == (None, None)
  assert lines[-1].endswith("none is left")
  moved = sorted(path.name for path in aside.iterdir())
  assert moved == ["20.0", "40.0", "40.1"]


@pytest.mark.parametrize("error", [MemoryError("full"), OSError("flaky")])
@pytest.mark.parametrize(
  "reader", [(ocp.StandardCheckpointer, "restore"), (pathlib.Path, "open")]
)
def test_other_errors_go_through_and_move_nothing(
  error, reader, two_steps, monkeypatch
):
  def fail(*_, **__):
    raise error

  before = contents(two_steps.folder.parent)
  with monkeypatch.context() as patch:
    patch.setattr(*reader, fail)
    with pytest.raises(type(error), match=str(error)):
      two_steps.restore(ABSTRACT, repair=True)
  assert contents(two_steps.folder.parent) == before
  assert_restores(two_steps, 40, repair=True)


def test_another_structure_is_refused_with_the_names_and_stays(two_steps):
  def with_params(**params):
    state = state_at(0)
    return state.replace(params=state.params | params)

  fewer = state_at(0)
  del fewer.params["scale"]
  cases = [
    (with_params(extra=jnp.ones(2)), "params/extra is missing"),
    (fewer, "params/scale is unexpected"),
    (
      with_params(scale=jnp.ones((3, 4))),
      "params/scale is float32[3] and not float32[3, 4]",
    ),
    (
      with_params(scale=jnp.ones(3, int)),
      "params/scale is float32[3] and not int32[3]",
    ),
  ]
  for abstract, words in cases:
    for options in ({}, {"repair": True}, {"step": 40}):
      line = refusal(two_steps, abstract, **options)
      assert line.startswith("checkpoint 40 in ")
      assert line.endswith(f"has another structure: {words}")
  line = refusal(two_steps, {str(i): fewer.step for i in range(99)})
  assert len(line) < len(str(two_steps.folder)) + 300


def test_named_step_that_is_missing_or_damaged_is_refused(two_steps, tmp_path):
  choices = "choose last, best or one of 20, 40"
  assert refusal(two_steps, step=7) == f"eval.checkpoint=7: {choices}"
  flip(files(two_steps, 40)[0], 1)
  for repair in (False, True):
    line = refusal(two_steps, step=40, repair=repair)
    assert f"checkpoint 40 in {two_steps.folder} is damaged (" in line
  empty = Checkpoints(tmp_path / "empty", keep=2, seeds=(0,))
  assert "none" in refusal(empty, step=7)
  assert empty.restore(ABSTRACT) == (None, None)
  empty.close()
  assert not empty.folder.exists()


def test_half_written_checkpoints_never_show_and_are_removed(two_steps):
  def leave_half():
    for name in (".60.writing", ".20.removed"):
      (two_steps.folder / name / "arrays").mkdir(parents=True)
      (two_steps.folder / name / "meta.json").write_text("{")

  leave_half()
  before = contents(two_steps.folder.parent)
  assert two_steps.steps() == [20, 40]
  assert_restores(two_steps, 40)
  assert contents(two_steps.folder.parent) == before
  assert_restores(two_steps, 40, repair=True)
  assert names(two_steps) == ["20", "40"]
  leave_half()
  two_steps.save(60, state_at(60), {})
  assert_restores(two_steps, 60)
  assert names(two_steps) == ["40", "60"]


def test_error_of_a_write_surfaces_at_the_next_save_or_close(
  two_steps, monkeypatch
):
  def fail(*_, **__):
    raise OSError("no space left")

  with monkeypatch.context() as patch:
    patch.setattr(ocp.StandardCheckpointer, "save", fail)
    two_steps.save(60, state_at(60), {})
    assert_restores(two_steps, 40)
    with pytest.raises(OSError, match="no space left"):
      two_steps.save(80, state_at(80), {})
    two_steps.save(80, state_at(80), {})
    with pytest.raises(OSError, match="no space left"):
      two_steps.close()
  assert two_steps.steps() == [20, 40]
  two_steps.close()
