"""Checkpoints come back bit by bit, or are not used."""

import pathlib
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import struct

from lengthgen_jax.config.files import saved_config
from lengthgen_jax.errors import UsageError
from lengthgen_jax.training.checkpoint import Checkpoints, find_damage


class State(struct.PyTreeNode):
  step: jax.Array
  params: dict
  opt_state: object
  done: jax.Array
  nothing: object = None


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


def abstract():
  return jax.eval_shape(lambda: state_at(0))


@pytest.fixture
def store(tmp_path):
  store = Checkpoints(tmp_path / "checkpoints")
  yield store
  store.close()


@pytest.fixture
def two_steps(store):
  """A store with the steps 20 and 40, nothing in flight."""
  for step in (20, 40):
    store.save(step, state_at(step), {"a": [1]})
  store.restore(abstract())  # waits
  return store


def bits(tree) -> list:
  return [
    (x.dtype, x.shape, np.asarray(x).tobytes()) for x in jax.tree.leaves(tree)
  ]


def assert_state(found, step: int) -> None:
  """`found`, as `restore` returned it, is what was saved at a step."""
  wanted = state_at(step)
  assert found[0] == step
  assert jax.tree.structure(found[1]) == jax.tree.structure(wanted)
  assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(found[1]))
  assert bits(found[1]) == bits(wanted)


def contents(folder: pathlib.Path) -> dict:
  """Everything below a folder and beside it: names, and bytes of files."""
  return {
    path.relative_to(folder.parent): path.is_file() and path.read_bytes()
    for path in folder.parent.rglob("*")
  }


def files(store, step: int) -> list[pathlib.Path]:
  paths = sorted((store.folder / str(step)).rglob("*"))
  return [path for path in paths if path.is_file()]


def flip(path: pathlib.Path, place: int) -> None:
  data = bytearray(path.read_bytes())
  data[place] ^= 1 << place % 8
  path.write_bytes(data)


def message_of(function, *arguments, **options) -> str:
  """The one line with which a call is refused."""
  with pytest.raises(UsageError) as caught:
    function(*arguments, **options)
  assert "\n" not in str(caught.value)
  return str(caught.value)


def test_state_comes_back_bit_by_bit(two_steps):
  assert_state(two_steps.restore(abstract()), 40)
  assert_state(two_steps.restore(state_at(0), step=20), 20)
  other = Checkpoints(two_steps.folder)
  assert_state(other.restore(abstract(), repair=True), 40)
  other.close()


def test_donated_buffers_are_saved_as_they_were_at_the_call(store):
  overwrite = jax.jit(
    lambda state: jax.tree.map(
      lambda x: ~x if x.dtype == bool else x * 0, state
    ),
    donate_argnums=0,
  )
  state = {"x": jnp.arange(1 << 18), "b": jnp.array([True]), "s": jnp.int32(7)}
  wanted = bits(state)
  store.save(1, state, {})
  for _ in range(5):
    state = overwrite(state)
  jax.block_until_ready(state)
  found = store.restore(state)[1]
  assert bits(found) == wanted
  overwrite(found)
  assert bits(store.restore(state)[1]) == wanted


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
  assert_state(store.restore(abstract(), step=20), 20)
  assert store.steps() == [20, 40]


def test_the_newest_are_kept_and_a_step_there_already_is_replaced(store):
  for step in (8, 9, 10, 11):
    store.save(step, state_at(step), {})
  store.save(11, state_at(11).replace(done=jnp.array([True, True])), {})
  _, found = store.restore(abstract())
  assert found.done.all()
  assert store.steps() == [10, 11]
  names = sorted(path.name for path in store.folder.iterdir())
  assert names == ["10", "11"]


def test_any_flipped_bit_is_noticed(two_steps):
  paths = files(two_steps, 40)
  assert {"meta.json", "checksums.json"} < {path.name for path in paths}
  for path in paths:
    sound = path.read_bytes()
    for place in {0, len(sound) // 3, len(sound) // 2, len(sound) - 1}:
      if not sound:
        continue
      flip(path, place)
      lines = []
      assert_state(two_steps.restore(abstract(), report=lines.append), 20)
      assert len(lines) == 1
      path.write_bytes(sound)
  assert_state(two_steps.restore(abstract()), 40)


def test_no_flipped_bit_of_the_checksums_hides(two_steps):
  place = two_steps.folder / "40"
  path = place / "checksums.json"
  sound = path.read_bytes()
  for position in range(len(sound)):
    flip(path, position)
    assert find_damage(place)
    path.write_bytes(sound)
  assert not find_damage(place)


def test_a_deleted_file_is_noticed(two_steps):
  for path in files(two_steps, 40):
    sound = path.read_bytes()
    path.unlink()
    lines = []
    assert_state(two_steps.restore(abstract(), report=lines.append), 20)
    assert len(lines) == 1 and f"{path.name} is missing" in lines[0]
    path.write_bytes(sound)
  assert_state(two_steps.restore(abstract()), 40)


def test_reading_moves_no_damaged_checkpoint(two_steps):
  flip(files(two_steps, 40)[0], 1)
  before = contents(two_steps.folder)
  lines = []
  assert_state(two_steps.restore(abstract(), report=lines.append), 20)
  start = f"checkpoint 40 in {two_steps.folder} is damaged ("
  (line,) = lines
  assert line.startswith(start) and line.endswith("; using the one before")
  assert contents(two_steps.folder) == before


def test_training_moves_damaged_checkpoints_aside(two_steps):
  aside = two_steps.folder.with_name("checkpoints_damaged")
  flip(files(two_steps, 40)[0], 1)
  lines = []
  found = two_steps.restore(abstract(), report=lines.append, repair=True)
  assert_state(found, 20)
  assert len(lines) == 1 and f"moved to {aside / '40.0'}" in lines[0]
  assert two_steps.steps() == [20]

  two_steps.save(40, state_at(40), {})
  assert_state(two_steps.restore(abstract(), repair=True), 40)
  for step in (20, 40):
    files(two_steps, step)[0].unlink()
  found = two_steps.restore(abstract(), report=lines.append, repair=True)
  assert found == (None, None)
  assert lines[-1].endswith("none is left")
  names = sorted(path.name for path in aside.iterdir())
  assert names == ["20.0", "40.0", "40.1"]


@pytest.mark.parametrize("error", [MemoryError("full"), OSError("flaky")])
@pytest.mark.parametrize("place", ["orbax", "open"])
def test_other_errors_go_through_and_move_nothing(
  error, place, two_steps, monkeypatch
):
  def fail(*_, **__):
    raise error

  before = contents(two_steps.folder)
  with monkeypatch.context() as patch:
    if place == "orbax":
      patch.setattr(ocp.StandardCheckpointer, "restore", fail)
    else:
      patch.setattr(pathlib.Path, "open", fail)
    with pytest.raises(type(error), match=str(error)):
      two_steps.restore(abstract(), repair=True)
  assert contents(two_steps.folder) == before
  assert_state(two_steps.restore(abstract(), repair=True), 40)


def test_another_structure_is_refused_with_the_names_and_stays(two_steps):
  def other(**params):
    state = state_at(0)
    return state.replace(params=state.params | params)

  before = contents(two_steps.folder)
  less = state_at(0)
  del less.params["scale"]
  cases = [
    (other(extra=jnp.ones(2)), "params/extra is missing"),
    (less, "params/scale is unexpected"),
    (
      other(scale=jnp.ones((3, 4))),
      "params/scale is float32[3] and not float32[3, 4]",
    ),
    (
      other(scale=jnp.ones(3, int)),
      "params/scale is float32[3] and not int32[3]",
    ),
  ]
  for tree, words in cases:
    for options in ({}, {"repair": True}, {"step": 40}):
      message = message_of(two_steps.restore, tree, **options)
      assert message.endswith(f"has another structure: {words}")
      assert message.startswith("checkpoint 40 in ")
  message = message_of(
    two_steps.restore, {str(i): less.step for i in range(99)}
  )
  assert len(message) < len(str(two_steps.folder)) + 300
  assert contents(two_steps.folder) == before


def test_named_step_that_is_missing_or_damaged_is_refused(two_steps, tmp_path):
  before = contents(two_steps.folder)
  assert message_of(two_steps.restore, abstract(), step=7) == (
    "eval.checkpoint=7: choose last, best or one of 20, 40"
  )
  assert contents(two_steps.folder) == before
  flip(files(two_steps, 40)[0], 1)
  before = contents(two_steps.folder)
  for repair in (False, True):
    message = message_of(two_steps.restore, abstract(), step=40, repair=repair)
    assert f"checkpoint 40 in {two_steps.folder} is damaged (" in message
  assert contents(two_steps.folder) == before
  empty = Checkpoints(tmp_path / "empty")
  assert "none" in message_of(empty.restore, abstract(), step=7)
  assert empty.restore(abstract()) == (None, None)
  empty.close()
  assert not empty.folder.exists()


def test_half_written_checkpoints_never_show_and_are_removed(two_steps):
  def leave_half():
    for name in (".60.writing", ".20.removed"):
      (two_steps.folder / name / "arrays").mkdir(parents=True)
      (two_steps.folder / name / "meta.json").write_text("{")

  def names():
    return sorted(path.name for path in two_steps.folder.iterdir())

  leave_half()
  before = contents(two_steps.folder)
  assert two_steps.steps() == [20, 40]
  assert_state(two_steps.restore(abstract()), 40)
  assert contents(two_steps.folder) == before
  assert_state(two_steps.restore(abstract(), repair=True), 40)
  assert names() == ["20", "40"]
  leave_half()
  two_steps.save(60, state_at(60), {})
  assert_state(two_steps.restore(abstract()), 60)
  assert names() == ["40", "60"]


def test_error_of_a_write_surfaces_at_the_next_save_or_close(
  two_steps, monkeypatch
):
  def fail(*_, **__):
    raise OSError("no space left")

  with monkeypatch.context() as patch:
    patch.setattr(ocp.StandardCheckpointer, "save", fail)
    two_steps.save(60, state_at(60), {})
    assert_state(two_steps.restore(abstract()), 40)
    with pytest.raises(OSError, match="no space left"):
      two_steps.save(80, state_at(80), {})
    two_steps.save(80, state_at(80), {})
    with pytest.raises(OSError, match="no space left"):
      two_steps.close()
  assert two_steps.steps() == [20, 40]
  two_steps.close()


def test_config_of_a_run_is_read_back(tmp_path):
  assert saved_config(tmp_path) is None
  (tmp_path / "config.json").write_text('{"seeds": [7]}')
  assert saved_config(tmp_path).seeds == (7,)
