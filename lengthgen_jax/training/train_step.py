"""This module is the training step as pure functions, of one seed and of many.

A gradient step is `draw_batches`, then `train_step`: `loss_fn`, its gradient,
and `update_params`. It trains one or more output heads: a share is the examples
of one of them, and consists of parts, batches of one static size each. A round
is the steps until every head has had its turn; a chunk is many rounds and
`validate` at its end. An attempt is a training from new initial parameters. The
functions before `over_seeds` are for one seed; those under "Many seeds" are for
all of them, and the loop calls these.
"""

import dataclasses
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from lengthgen_jax import rng
from lengthgen_jax.attention.biases.scaffold import SparsePlan
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.tasks import packing
from lengthgen_jax.tasks.dataset import Part, StepSpec
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.training import optimizer
from lengthgen_jax.training.mesh import SINGLE_DEVICE, Mesh

# Seeds are trained side by side, or one after the other.
SEED_AXES = ("vmap", "loop")
# What the largest activations of a block may take on a CPU in a microbatch.
CACHE_BYTES = 3 << 20


@dataclasses.dataclass(frozen=True)
class TrainSpec:
  """A TrainSpec is the static argument of compiled training steps.

  It is hashable.

  Attributes:
    experiment: The tasks, data and model.
    train: The optimizer, its schedule, and the conditions to stop.
    sparse_plan: The plan of attention along lines; None for dense attention.
    mesh: The devices.
  """

  experiment: Experiment
  train: optimizer.TrainConfig
  sparse_plan: SparsePlan | None = None
  mesh: Mesh = SINGLE_DEVICE

  @property
  def steps_per_round(self) -> int:
    """Returns the number of gradient steps of a round."""
    return len(self.experiment.step_specs)

  @property
  def attempt_steps(self) -> int:
    """Returns the number of gradient steps of an attempt: train.steps, rounded
    up to whole rounds."""
    return -(-self.train.steps // self.steps_per_round) * self.steps_per_round

  @property
  def chunk_rounds(self) -> int:
    """Returns the number of rounds of a chunk."""
    return max(self.train.chunk // self.steps_per_round, 1)

  @property
  def chunk_steps(self) -> int:
    """Returns the number of gradient steps of a chunk."""
    return self.chunk_rounds * self.steps_per_round


class TrainState(struct.PyTreeNode):
  """A TrainState is the state of one seed's training, as checkpoints hold it.

  Attributes:
    step: int32, the number of gradient steps, summed over all attempts.
    attempt: int32, the number of restarts with other initial parameters.
    attempt_start: int32, the step at which this attempt began.
    params, opt_state: The parameters and the optimizer's state.
    done: bool, whether training has ended: at the target exact match, after the
      last step, or because the seed diverged.
    diverged: bool, whether the loss or the parameters became non-finite; the
      parameters are then those before that chunk.
    stopped_at: int32, the step at which the seed reached the target or
      diverged, -1 if it has done neither.
    best_em: float32, the main task's best exact match in validation, over all
      attempts, without the chunks that diverged; -1 before any other.
    best_step: int32, the step of that validation.
    best_params: The parameters at that step.
  """

  step: jax.Array
  attempt: jax.Array
  attempt_start: jax.Array
  params: dict
  opt_state: optax.OptState
  done: jax.Array
  diverged: jax.Array
  stopped_at: jax.Array
  best_em: jax.Array
  best_step: jax.Array
  best_params: dict


class ChunkMetrics(NamedTuple):
  """ChunkMetrics are those of one seed in a chunk, NaN if it was done before.

  Attributes:
    loss: [heads], the mean training loss (nats per scored token).
    em: [heads], the exact match, a fraction, on held-out examples of training
      lengths at the end of the chunk.
  """

  loss: jax.Array
  em: jax.Array


class Status(NamedTuple):
  """A Status is what the host reads from the devices after each chunk.

  Attributes:
    state: The states [R] of all seeds, without parameters and optimizer state.
    metrics: The metrics [R, heads] of the chunk.
  """

  state: TrainState
  metrics: ChunkMetrics


def init_state(
  spec: TrainSpec,
  seed: jax.Array | int,
  attempt: jax.Array | int = 0,
  params: dict | None = None,
) -> TrainState:
  """Returns the state before the first step, with an attempt's parameters, or
  with `params` where they are given."""
  if params is None:
    params = spec.experiment.init(seed, attempt)
  return TrainState(
    step=jnp.int32(0),
    attempt=jnp.int32(attempt),
    attempt_start=jnp.int32(0),
    params=params,
    opt_state=optimizer.make_optimizer(spec.train).init(params),
    done=jnp.array(False),
    diverged=jnp.array(False),
    stopped_at=jnp.int32(-1),
    best_em=jnp.float32(-1.0),
    best_step=jnp.int32(0),
    best_params=jax.tree.map(jnp.copy, params),
  )


def restart_state(
  spec: TrainSpec, state: TrainState, seed: jax.Array
) -> TrainState:
  """Returns a state that begins its next attempt with other parameters."""
  return init_state(spec, seed, state.attempt + 1).replace(
    step=state.step,
    attempt_start=state.step,
    best_em=state.best_em,
    best_step=state.best_step,
    best_params=state.best_params,
  )


# A gradient step.


def draw_batches(
  spec: TrainSpec,
  step_spec: StepSpec,
  seed: jax.Array,
  step: jax.Array,
  replay: dict | None = None,
) -> list[list[tuple[Batch, jax.Array]]]:
  """Draws the examples of a gradient step: for each share of the step, a batch
  and the key of its noise (dropout, random positions and counts) for each part.

  Args:
    spec, step_spec: Static arguments; the others are traced.
    seed, step: The examples are a function of these two.
    replay: Inputs from which a fraction (train.replay_share) of the main task's
      examples is drawn: "items" [n, operands, longest] and "lengths" [n,
      operands], of which only the first "count" are valid; or None.
  """
  experiment = spec.experiment
  data_key = jax.random.fold_in(rng.stream(seed, "data"), step)
  noise_key = jax.random.fold_in(rng.stream(seed, "dropout"), step)
  width_index = step // spec.steps_per_round  # every round has the next width
  batches = []
  for share in step_spec:
    # Each head and part has noise of its own.
    head_index = experiment.heads.index(share.head)
    head_key = jax.random.fold_in(noise_key, head_index)
    parts = []
    for part in share.parts:
      batch = experiment.sample(data_key, share.head, part, width_index)
      if replay is not None and head_index == 0:
        count = int(spec.train.replay_share * part.count)
        replay_key = jax.random.fold_in(data_key, count)
        batch = experiment.data[0].with_replay(
          batch, replay, replay_key, count, width_index
        )
      part_key = jax.random.fold_in(head_key, part.bucket)
      parts.append((spec.mesh.shard_batch(batch), part_key))
    batches.append(parts)
  return batches


def loss_fn(
  params: dict,
  spec: TrainSpec,
  step_spec: StepSpec,
  batches: list[list[tuple[Batch, jax.Array]]],
  scaffold: dict,
) -> tuple[jax.Array, jax.Array]:
  """Returns the loss of a gradient step, and each share's mean loss [shares].

  The loss is the weighted sum of the shares' means (nats per scored token).
  """
  weighted_loss, losses = 0.0, []
  for share, parts in zip(step_spec, batches, strict=True):
    loss_sum, token_count = 0.0, 0.0
    for batch, noise_key in parts:
      loss_sum += batch_loss(
        params, spec, batch, share.head, noise_key, scaffold
      )
      token_count += batch.weight.sum()
    losses.append(loss_sum / token_count)
    weighted_loss += share.weight * losses[-1]
  return jnp.asarray(weighted_loss), jnp.stack(losses)


def batch_loss(
  params: dict,
  spec: TrainSpec,
  batch: Batch,
  head: str,
  noise_key: jax.Array,
  scaffold: dict,
) -> jax.Array:
  """Returns the loss (nats) summed over the scored tokens of a batch.

  If the batch is split into microbatches, the gradient of each is computed
  along with its loss, so that memory holds the activations of one microbatch
  only.
  """
  noise = rng.Noise(noise_key, jnp.arange(len(batch.inputs)))
  num_batches = num_microbatches(spec, batch, scaffold)

  def loss_sum(params: dict, batch: Batch, noise: rng.Noise) -> jax.Array:
    return spec.experiment.loss_sum(
      params, scaffold, batch, head, noise, spec.sparse_plan
    )

  if num_batches == 1:
    return loss_sum(params, batch, noise)

  def microbatch_loss(params: dict, i: jax.Array) -> jax.Array:
    # Strided, so that an axis that a mesh splits stays split.
    take_examples = lambda x: x.reshape(-1, num_batches, *x.shape[1:])[:, i]
    return loss_sum(
      params, packing.take(batch, take_examples), noise.take(take_examples)
    )

  @jax.custom_vjp
  def batch_loss_sum(params: dict) -> jax.Array:
    return loss_and_grads_sum(params)[0]

  # The forward pass also computes the gradients and saves them as residuals.
  def loss_and_grads_sum(params: dict) -> tuple[jax.Array, dict]:
    def add_microbatch(carry, i):
      loss_and_grads = jax.value_and_grad(microbatch_loss)(params, i)
      return jax.tree.map(jnp.add, carry, loss_and_grads), None

    zeros = jax.tree.map(jnp.zeros_like, params)
    dtype = jnp.result_type(jnp.float32, *jax.tree.leaves(params))
    initial_carry = jnp.zeros((), dtype), zeros
    index = jnp.arange(num_batches)
    sums, _ = jax.lax.scan(add_microbatch, initial_carry, index)
    return sums

  def backward(grads: dict, factor: jax.Array) -> tuple[dict]:
    return (jax.tree.map(lambda x: x * factor, grads),)

  batch_loss_sum.defvjp(loss_and_grads_sum, backward)
  return batch_loss_sum(params)


def num_microbatches(spec: TrainSpec, batch: Batch, scaffold: dict) -> int:
  """Returns the number of equal microbatches that a batch is split into.

  On a CPU a block's largest activations in a microbatch should fit in the
  cache, because the step would wait for memory otherwise. A batch is not split
  on accelerators, or if the devices along `data` do not divide it.
  """
  if jax.default_backend() != "cpu":
    return 1
  examples, shards = len(batch.inputs), spec.mesh.shape[1]
  per_shard = examples // shards if examples % shards == 0 else 1
  example_bytes = spec.experiment.activation_bytes(
    batch, scaffold, spec.sparse_plan
  )
  most_examples = max(CACHE_BYTES // example_bytes, 1)
  return next(
    count
    for count in range(1, per_shard + 1)
    if per_shard % count == 0 and per_shard // count <= most_examples
  )


def update_params(
  spec: TrainSpec,
  step_spec: StepSpec,
  params: dict,
  opt_state: optax.OptState,
  grads: dict,
) -> tuple[dict, optax.OptState]:
  """Returns parameters and optimizer state after an update by gradients.

  The parameters and moments of heads that the step does not train are left
  unchanged. Adam's step count is shared by all parameters.
  """
  updates, new_opt_state = optimizer.make_optimizer(spec.train).update(
    grads, opt_state, params
  )
  new_params = optax.apply_updates(params, updates)
  idle = spec.experiment.idle_params(step_spec)
  return keep_named(idle, (params, opt_state), (new_params, new_opt_state))


def train_step(
  spec: TrainSpec,
  step_spec: StepSpec,
  params: dict,
  opt_state: optax.OptState,
  batches: list[list[tuple[Batch, jax.Array]]],
  scaffold: dict,
) -> tuple[dict, optax.OptState, jax.Array]:
  """Takes one gradient step of one seed.

  Args:
    spec, step_spec: Static arguments; the others are traced.
    params, opt_state: The parameters and the optimizer's state before the step.
    batches: What `draw_batches` returns.
    scaffold: The attention bias of this seed, by site.

  Returns:
    The parameters and the optimizer's state after the step, and each share's
    mean loss before it [shares] (nats per scored token).
  """
  gradient_fn = jax.value_and_grad(loss_fn, has_aux=True)
  (_, losses), grads = gradient_fn(params, spec, step_spec, batches, scaffold)
  return *update_params(spec, step_spec, params, opt_state, grads), losses


def validate(
  spec: TrainSpec,
  params: dict,
  seed: jax.Array,
  step: jax.Array,
  scaffold: dict,
) -> jax.Array:
  """Returns each head's exact match [heads], a fraction, on held-out examples.

  It is the mean over all widths of training.
  """
  experiment = spec.experiment
  key = jax.random.fold_in(rng.stream(seed, "eval"), step)

  def exact_match(width_index: jax.Array, head: str, part: Part) -> jax.Array:
    """Returns the exact match [B] of a part of one head's examples, all of one
    width."""
    width_key = jax.random.fold_in(key, width_index)
    batch = experiment.sample(width_key, head, part, width_index, held_out=True)
    _, exact_B = experiment.matches(
      params,
      scaffold,
      spec.mesh.shard_batch(batch),
      head,
      sparse_plan=spec.sparse_plan,
    )
    return exact_B

  def exact_match_by_head(width_index: jax.Array) -> jax.Array:
    """Returns the exact match [heads] at one width."""
    matches = [
      [exact_match(width_index, share.head, part) for part in share.parts]
      for share in experiment.validation
    ]
    return jnp.stack(
      [jnp.concatenate(parts).mean(dtype=jnp.float32) for parts in matches]
    )

  widths = jnp.arange(experiment.num_widths)
  return jax.lax.map(exact_match_by_head, widths).mean(axis=0)


# A chunk of gradient steps.


def train_chunk(
  spec: TrainSpec,
  state: TrainState,
  seed: jax.Array,
  scaffold: dict,
  rounds: jax.Array | int,
  replay: dict | None = None,
) -> tuple[TrainState, ChunkMetrics]:
  """Trains a seed for `rounds` rounds, or to the end of its attempt.

  A seed that is done is not changed.

  Returns:
    The new state, and the metrics of the chunk.
  """
  attempt_end = state.attempt_start + spec.attempt_steps
  rounds = jnp.minimum(
    rounds, (attempt_end - state.step) // spec.steps_per_round
  )

  def skip(state: TrainState) -> tuple[TrainState, ChunkMetrics]:
    nan = jnp.full(len(spec.experiment.heads), jnp.nan)
    return state, ChunkMetrics(nan, nan.astype(jnp.float32))

  def train(state: TrainState) -> tuple[TrainState, ChunkMetrics]:
    params, opt_state, loss = train_rounds(
      spec, state, seed, scaffold, rounds, replay
    )
    step = state.step + rounds * spec.steps_per_round
    em = validate(spec, params, seed, step, scaffold)
    metrics = ChunkMetrics(loss, em)
    return end_chunk(spec, state, step, params, opt_state, metrics), metrics

  return jax.lax.cond(state.done, skip, train, state)


def train_rounds(
  spec: TrainSpec,
  state: TrainState,
  seed: jax.Array,
  scaffold: dict,
  rounds: jax.Array,
  replay: dict | None,
) -> tuple[dict, optax.OptState, jax.Array]:
  """Takes the gradient steps of some rounds; arguments as in `train_chunk`.

  Returns:
    The parameters, the optimizer's state, and each head's mean loss [heads].
  """
  step_specs, heads = spec.experiment.step_specs, spec.experiment.heads
  # The heads that each step of a round trains, and for each head the number of
  # steps of a round that train it.
  head_indices = [
    np.array([heads.index(share.head) for share in step_spec])
    for step_spec in step_specs
  ]
  steps_by_head = np.bincount(
    np.concatenate(head_indices), minlength=len(heads)
  )

  def train_round(i: jax.Array, carry: tuple) -> tuple:
    params, opt_state, loss_sums = carry
    for k, step_spec in enumerate(step_specs):
      step = state.step + i * len(step_specs) + k
      batches = draw_batches(spec, step_spec, seed, step, replay)
      params, opt_state, losses = train_step(
        spec, step_spec, params, opt_state, batches, scaffold
      )
      loss_sums = loss_sums.at[head_indices[k]].add(losses)
    return params, opt_state, loss_sums

  params, opt_state, loss_sums = jax.lax.fori_loop(
    0,
    rounds,
    train_round,
    (state.params, state.opt_state, jnp.zeros(len(heads))),
  )
  return params, opt_state, loss_sums / (rounds * steps_by_head)


def end_chunk(
  spec: TrainSpec,
  state: TrainState,
  step: jax.Array,
  params: dict,
  opt_state: optax.OptState,
  metrics: ChunkMetrics,
) -> TrainState:
  """Returns the state after a chunk, from the state before it and the results.

  If the loss or the parameters are not finite, the parameters and the
  optimizer's state of before the chunk are restored, and the seed is done. It
  is also done if it has reached the target, or at the end of its attempt.
  `step` is the step at the end of the chunk.
  """
  em = metrics.em[0]
  # A chunk of no steps (train.steps=0) has NaN as its loss, and may be sound.
  is_sound = jnp.isfinite(metrics.loss.sum()) | (step == state.step)
  is_sound &= is_finite(params)
  params, opt_state = select(
    is_sound, (params, opt_state), (state.params, state.opt_state)
  )
  is_better = is_sound & (em > state.best_em)
  reached_target = is_sound & (em >= spec.train.target_exact_match)
  used_up = step - state.attempt_start >= spec.attempt_steps
  return state.replace(
    step=step,
    params=params,
    opt_state=opt_state,
    done=~is_sound | reached_target | used_up,
    diverged=~is_sound,
    stopped_at=jnp.where(~is_sound | reached_target, step, -1),
    best_em=jnp.where(is_better, em, state.best_em),
    best_step=jnp.where(is_better, step, state.best_step),
    best_params=select(is_better, params, state.best_params),
  )


# Many seeds.


def over_seeds(
  function: Callable, axis: str, mesh: Mesh = SINGLE_DEVICE
) -> Callable:
  """Maps a function of one seed's arguments: returns the function of those of R
  seeds, stacked [R, ...], which are split over `mesh`; `axis` is one of
  SEED_AXES."""
  if axis == "vmap":
    return mesh.shard_map_seeds(jax.vmap(function))
  return mesh.shard_map_seeds(
    lambda *stacked: jax.lax.map(
      lambda arguments: function(*arguments), stacked
    )
  )


@partial(jax.jit, static_argnums=0)
def init_seeds(
  spec: TrainSpec, seed_R: jax.Array, params: dict | None = None
) -> TrainState:
  """Returns the states before the first step, with random parameters or with
  `params`, which have a leading axis R.

  They are computed on one device, so that they are the same to the last bit
  whatever the mesh.
  """
  init = lambda seed, params: init_state(spec, seed, params=params)
  return over_seeds(init, "loop")(seed_R, params)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def train_seeds(
  spec: TrainSpec,
  states: TrainState,
  seed_R: jax.Array,
  scaffold: dict,
  rounds: jax.Array | int,
  replay: dict | None = None,
) -> tuple[TrainState, Status]:
  """Trains every seed that is not done for up to `rounds` rounds, and validates
  it.

  Args:
    spec: The static argument; all others are traced.
    states: The states [R, ...] of R seeds, whose buffers are donated to the
      result.
    seed_R: The R seeds.
    scaffold: The scaffold, with a leading axis R, or 1 if all seeds share it.
    rounds: The greatest number of rounds.
    replay: The replay sets of `draw_batches`, with a leading axis R.

  Returns:
    The new states [R, ...], and the Status of the chunk.
  """
  broadcast_to_seeds = lambda x: jnp.broadcast_to(
    x, (len(seed_R), *jnp.shape(x)[1:])
  )
  train_seed = lambda state, seed, seed_scaffold, seed_replay: train_chunk(
    spec, state, seed, seed_scaffold, rounds, seed_replay
  )
  map_seeds = over_seeds(train_seed, spec.train.seed_axis, spec.mesh)
  states, metrics = map_seeds(
    states, seed_R, jax.tree.map(broadcast_to_seeds, scaffold), replay
  )
  metrics = spec.mesh.replicate(metrics)
  return states, Status(without_params(spec.mesh, states), metrics)


def without_params(mesh: Mesh, states: TrainState) -> TrainState:
  """Returns the states [R] without parameters and optimizer state, copied to
  every host.

  They are copies because the buffers of the states are donated to the next
  chunk.
  """
  small = states.replace(params=None, opt_state=None, best_params=None)
  return mesh.replicate(jax.tree.map(jnp.copy, small))


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def restart_seeds(
  spec: TrainSpec, states: TrainState, seed_R: jax.Array, mask_R: np.ndarray
) -> TrainState:
  """Returns the states [R, ...], of which those that `mask_R` marks begin their
  next attempt."""

  def restart_if(
    state: TrainState, seed: jax.Array, is_marked: jax.Array
  ) -> TrainState:
    restart_seed = partial(restart_state, spec)
    stay = lambda state, seed: state
    return jax.lax.cond(is_marked, restart_seed, stay, state, seed)

  return over_seeds(restart_if, "loop", spec.mesh)(states, seed_R, mask_R)


def train_unfinished_seeds(
  spec: TrainSpec,
  states: TrainState,
  seed_R: jax.Array,
  scaffold: dict,
  done_R: np.ndarray,
  rounds: jax.Array | int,
  replay: dict | None = None,
) -> tuple[TrainState, Status]:
  """Does what `train_seeds` does, at less cost when many of the seeds are done.

  Under vmap a seed that is done costs as much as any other. So the chunk is
  compiled again for the least power of two that holds the unfinished seeds, if
  that is at most half of all. This is not done if seeds are split over devices.
  `done_R` is a mask on the host of the seeds that are done; the other arguments
  are those of `train_seeds`.
  """
  count = len(seed_R)
  # The least power of two that is not below the number of unfinished seeds.
  size = 1 << int(max(count - done_R.sum() - 1, 0)).bit_length()
  is_vmapped = spec.train.seed_axis == "vmap" and spec.mesh.shape[0] == 1
  if not is_vmapped or size > count // 2:
    return train_seeds(spec, states, seed_R, scaffold, rounds, replay)
  picked = np.argsort(done_R, kind="stable")[:size]  # unfinished first
  pick = lambda x: x[picked] if len(x) > 1 else x  # 1: shared by all seeds
  picked_states, picked_scaffold, picked_replay = jax.tree.map(
    pick, (states, scaffold, replay)
  )
  picked_states, picked_status = train_seeds(
    spec, picked_states, seed_R[picked], picked_scaffold, rounds, picked_replay
  )
  put = lambda old, new: old.at[picked].set(new)
  states = jax.tree.map(put, states, picked_states)
  nan = jnp.full((count, len(spec.experiment.heads)), jnp.nan)
  metrics = jax.tree.map(partial(put, nan), picked_status.metrics)
  return states, Status(without_params(spec.mesh, states), metrics)


# Pytrees.


def select(condition: jax.Array, on_true: Any, on_false: Any) -> Any:
  """Returns `on_true` or `on_false`, pytrees of the same structure.

  A branch compiles in three quarters of the time that an element-wise selection
  of every leaf takes.
  """
  return jax.lax.cond(
    condition, lambda x, y: x, lambda x, y: y, on_true, on_false
  )


def is_finite(tree: Any) -> jax.Array:
  """Tells whether every number of a pytree is finite."""
  return jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)]).all()


def keep_named(names: Collection[str], old: Any, new: Any) -> Any:
  """Returns `new`, but `old` wherever a leaf's path has one of these names.

  They are names of modules, which occur in the paths of parameters and of the
  optimizer's moments alike.
  """

  def choose(path: tuple, old_leaf: Any, new_leaf: Any) -> Any:
    is_kept = any(
      isinstance(key, jax.tree_util.DictKey) and key.key in names
      for key in path
    )
    return old_leaf if is_kept else new_leaf

  return jax.tree_util.tree_map_with_path(choose, old, new)
