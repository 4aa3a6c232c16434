"""Training, from top to bottom: a run and its state, a gradient step, a chunk
of steps, and the loop around chunks.

A gradient step trains one or more output heads: a share is the examples of one
of them, in parts, batches of one static size each. A cycle is the steps until
every head has had its turn; a chunk is many cycles, and validation at their
end. The functions up to `validate` are of one seed; `over_seeds` maps a chunk
over all of them.
Specs, heads and parts are static arguments; all others are traced.
"""

import contextlib
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from lengthgen_jax import hosts, rng, stopwatch
from lengthgen_jax.errors import Interrupted, check
from lengthgen_jax.experiment import Experiment
from lengthgen_jax.sections import Checkpoint, Train
from lengthgen_jax.tasks import packing
from lengthgen_jax.tasks.dataset import Part, StepSpec
from lengthgen_jax.tasks.packing import Batch
from lengthgen_jax.training.checkpoint import Checkpoints
from lengthgen_jax.training.log import Log, stop_signals
from lengthgen_jax.training.mesh import SINGLE_DEVICE, Mesh
from lengthgen_jax.training.optimizer import make_optimizer, make_schedule

# What the largest activations of a block may take on a CPU in a microbatch.
CACHE_BYTES = 3 << 20

# A run, and the state of its training.


@dataclasses.dataclass(frozen=True)
class TrainSpec:
  """What compiled training depends on; hashable."""

  experiment: Experiment
  train: Train
  # whether attention follows lines alone
  sparse: bool = False
  mesh: Mesh = SINGLE_DEVICE

  @property
  def steps_per_cycle(self) -> int:
    """The number of gradient steps of a cycle."""
    return len(self.experiment.step_specs)

  @property
  def num_steps(self) -> int:
    """The number of gradient steps: train.steps, rounded up to whole cycles."""
    return -(-self.train.steps // self.steps_per_cycle) * self.steps_per_cycle

  @property
  def chunk_cycles(self) -> int:
    """The number of cycles of a chunk."""
    return max(self.train.chunk // self.steps_per_cycle, 1)


@dataclasses.dataclass(frozen=True)
class Run:
  """What is trained, and where it is stored."""

  experiment: Experiment
  train: Train
  seeds: tuple[int, ...]  # the R seeds, which are trained together
  scaffold: dict  # the bias by attention site, with a leading axis R or 1
  folder: pathlib.Path  # of checkpoints and logs
  checkpoint: Checkpoint
  sparse: bool = False
  mesh: Mesh = SINGLE_DEVICE

  @property
  def spec(self) -> TrainSpec:
    return TrainSpec(self.experiment, self.train, self.sparse, self.mesh)

  def open_checkpoints(self, writes: bool = False) -> Checkpoints:
    """Returns the run's checkpoints, which the caller must close."""
    folder = self.folder / "checkpoints"
    return Checkpoints(folder, self.checkpoint.keep, self.seeds, writes)


class TrainState(struct.PyTreeNode):
  """The state of one seed's training, or of R seeds with a leading axis R, as
  checkpoints hold it."""

  step: Any  # int32, the number of gradient steps
  params: dict
  opt_state: optax.OptState
  done: Any  # bool, at the target exact match, after the last step, or diverged
  # bool, the loss or the parameters became non-finite; the parameters are those
  # before that chunk
  diverged: Any
  # int32, the step at which the seed reached the target or diverged; -1 if it
  # did neither
  stopped_at: Any
  # float32, the main task's best exact match in validation; chunks that
  # diverged do not count; -1 before the first that does
  best_em: Any
  best_step: Any  # int32, the step of that validation
  best_params: dict  # the parameters at that step


@partial(jax.jit, static_argnums=0)
def init_state(
  spec: TrainSpec,
  seed: jax.Array | int,
  params: dict | None = None,
) -> TrainState:
  """Returns a seed's state before the first step, with `params` if they are
  given."""
  if params is None:
    params = spec.experiment.init(seed)
  return TrainState(
    step=jnp.int32(0),
    params=params,
    opt_state=make_optimizer(spec.train).init(params),
    done=jnp.array(False),
    diverged=jnp.array(False),
    stopped_at=jnp.int32(-1),
    best_em=jnp.float32(-1.0),
    best_step=jnp.int32(0),
    best_params=params,
  )


# A gradient step.


def draw_batch(
  spec: TrainSpec,
  head: str,
  part: Part,
  seed: jax.Array | int,
  step: jax.Array | int,
) -> tuple[Batch, rng.Noise]:
  """Draws a part of a head's examples of a gradient step, and their noise
  (dropout, random positions and counts): a function of seed and step, the
  number of gradient steps before this one.
  """
  experiment, index = spec.experiment, spec.experiment.output_heads.index(head)
  data_key = jax.random.fold_in(rng.stream(seed, "data"), step)
  width_index = step // spec.steps_per_cycle  # every cycle has the next width
  batch = experiment.sample(data_key, head, part, width_index, seed=seed)
  key = jax.random.fold_in(rng.stream(seed, "dropout"), step)
  key = jax.random.fold_in(jax.random.fold_in(key, index), part.bucket)
  noise = rng.Noise(key, jnp.arange(len(batch.inputs)))
  return spec.mesh.shard_batch(batch), noise


def loss(
  params: dict,
  spec: TrainSpec,
  scaffold: dict,
  head: str,
  batch: Batch,
  noise: rng.Noise,
) -> jax.Array:
  """Returns the cross-entropy (nats) summed over the scored tokens, with the
  noise of training."""
  logits, _ = spec.experiment.apply(
    params, scaffold, batch, head, noise, spec.sparse
  )
  nats = optax.softmax_cross_entropy_with_integer_labels(logits, batch.target)
  return (nats * batch.weight).sum()


def block_bytes(spec: TrainSpec, batch: Batch, scaffold: dict) -> int:
  """Estimates the bytes of a decoder block's largest activations for one
  example, at 4 bytes a number: the attention weights (along lines also the
  gathered keys and values, with gradients), and the hidden layer of the MLP."""
  config, rows = spec.experiment.model.config, batch.inputs.shape[1]
  # How many numbers each head has for a row.
  row_size = max(rows, 0 if batch.source is None else batch.source.shape[1])
  if spec.sparse:
    # For each line: the weight, the key, the value and both their gradients.
    num_lines = max(lines.value.shape[-1] for lines in scaffold.values())
    row_size = num_lines * (1 + 4 * config.head_dim)
  return 4 * rows * (config.num_heads * row_size + config.mlp_dim)


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
  most_examples = max(CACHE_BYTES // block_bytes(spec, batch, scaffold), 1)
  return next(
    count
    for count in range(1, per_shard + 1)
    if per_shard % count == 0 and per_shard // count <= most_examples
  )


def loss_and_grads(
  params: dict,
  spec: TrainSpec,
  scaffold: dict,
  head: str,
  batch: Batch,
  noise: rng.Noise,
) -> tuple[jax.Array, dict]:
  """Returns `loss` and its gradient, summed over microbatches."""
  count = num_microbatches(spec, batch, scaffold)
  if count == 1:
    return jax.value_and_grad(loss)(params, spec, scaffold, head, batch, noise)

  def add_microbatch(sums: tuple, i: jax.Array) -> tuple[tuple, None]:
    # Strided, so that an axis that a mesh splits stays split.
    take = lambda x: x.reshape(-1, count, *x.shape[1:])[:, i]
    part = packing.map_examples(take, batch)
    part_noise = noise._replace(index=take(noise.index))
    part_sums = jax.value_and_grad(loss)(
      params, spec, scaffold, head, part, part_noise
    )
    return jax.tree.map(jnp.add, sums, part_sums), None

  dtype = jnp.result_type(jnp.float32, *jax.tree.leaves(params))
  zeros = jnp.zeros((), dtype), jax.tree.map(jnp.zeros_like, params)
  sums, _ = jax.lax.scan(add_microbatch, zeros, jnp.arange(count))
  return sums


def train_step(
  spec: TrainSpec,
  step_spec: StepSpec,
  params: dict,
  opt_state: optax.OptState,
  seed: jax.Array | int,
  step: jax.Array | int,
  scaffold: dict,
) -> tuple[dict, optax.OptState, jax.Array]:
  """Takes a gradient step of the weighted sum of the shares' mean losses.

  Returns the parameters and the optimizer's state after the step, and each
  share's mean loss before it [shares] (nats per scored token).
  """
  add = partial(jax.tree.map, jnp.add)
  losses, grads = [], []
  for share in step_spec:
    sums = []
    for part in share.parts:
      batch, noise = draw_batch(spec, share.head, part, seed, step)
      part_sums = loss_and_grads(
        params, spec, scaffold, share.head, batch, noise
      )
      sums.append((batch.weight.sum(), *part_sums))
    token_count, loss_sum, share_grads = functools.reduce(add, sums)
    losses.append(loss_sum / token_count)
    scale = share.weight / token_count.astype(loss_sum.dtype)
    grads.append(optax.tree.scale(scale, share_grads))
  params, opt_state = update(
    spec, step_spec, params, opt_state, functools.reduce(add, grads)
  )
  return params, opt_state, jnp.stack(losses)


def update(
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
  updates, new_opt_state = make_optimizer(spec.train).update(
    grads, opt_state, params
  )
  new_params = optax.apply_updates(params, updates)
  idle = spec.experiment.idle_params(step_spec)

  def keep_idle(path: tuple, old: jax.Array, new: jax.Array) -> jax.Array:
    return old if {getattr(key, "key", "") for key in path} & idle else new

  return jax.tree_util.tree_map_with_path(
    keep_idle, (params, opt_state), (new_params, new_opt_state)
  )


# A chunk of gradient steps.


class Metrics(NamedTuple):
  """Those of a seed in a chunk; if it was done before, its loss is NaN."""

  loss: Any  # [heads], the mean training loss (nats per scored token)
  # [heads], exact match, a fraction, on held-out examples of training lengths
  # at the end of the chunk
  em: Any


def train_chunk(
  spec: TrainSpec, inputs: tuple[TrainState, jax.Array, dict]
) -> tuple[TrainState, Metrics]:
  """Trains a seed for a chunk, which is shorter at the end of training, and
  validates it; a seed that is done stays as it is.

  `inputs` are its state, the seed and its scaffold.
  """
  state, seed, scaffold = inputs
  experiment = spec.experiment
  cycles_left = (spec.num_steps - state.step) // spec.steps_per_cycle
  cycles = jnp.minimum(spec.chunk_cycles, cycles_left) * ~state.done
  widths = max(experiment.width_counts) * ~state.done  # that are validated
  # The heads that each step of a cycle trains.
  heads = [
    np.array([experiment.output_heads.index(share.head) for share in step_spec])
    for step_spec in experiment.step_specs
  ]

  def train_cycle(i: jax.Array, carry: tuple) -> tuple:
    params, opt_state, loss_sums = carry
    for k, step_spec in enumerate(experiment.step_specs):
      step = state.step + i * spec.steps_per_cycle + k
      params, opt_state, losses = train_step(
        spec, step_spec, params, opt_state, seed, step, scaffold
      )
      loss_sums = loss_sums.at[heads[k]].add(losses)
    return params, opt_state, loss_sums

  zeros = jnp.zeros(len(experiment.output_heads))
  params, opt_state, loss_sums = jax.lax.fori_loop(
    0, cycles, train_cycle, (state.params, state.opt_state, zeros)
  )
  step = state.step + cycles * spec.steps_per_cycle
  metrics = Metrics(
    loss=loss_sums / (cycles * np.bincount(np.concatenate(heads))),
    em=validate(spec, params, seed, step, scaffold, widths),
  )
  return end_chunk(spec, state, step, params, opt_state, metrics), metrics


def end_chunk(
  spec: TrainSpec,
  state: TrainState,
  step: jax.Array,
  params: dict,
  opt_state: optax.OptState,
  metrics: Metrics,
) -> TrainState:
  """Returns a seed's state after a chunk that ends at `step`, from that before
  it and its results.

  If the loss or the parameters are not finite, the parameters and the
  optimizer's state of before the chunk stay, and the seed is done. It is also
  done if it has reached the target, or after its last step.
  """
  em = metrics.em[0]
  # A chunk of no steps (train.steps=0) has NaN as its loss, and may be sound.
  has_loss = jnp.isfinite(metrics.loss).all() | (step == state.step)
  is_finite = [jnp.isfinite(x).all() for x in jax.tree.leaves(params)]
  is_sound = state.done | (has_loss & jnp.stack(is_finite).all())
  is_valid = is_sound & ~state.done
  is_better = is_valid & (em > state.best_em)
  reached = is_valid & (em >= spec.train.target_exact_match)

  params, opt_state = optax.tree.where(
    is_sound, (params, opt_state), (state.params, state.opt_state)
  )
  return state.replace(
    step=step,
    params=params,
    opt_state=opt_state,
    done=state.done | ~is_sound | reached | (step >= spec.num_steps),
    diverged=state.diverged | ~is_sound,
    stopped_at=jnp.where(~is_sound | reached, step, state.stopped_at),
    best_em=jnp.where(is_better, em, state.best_em),
    best_step=jnp.where(is_better, step, state.best_step),
    best_params=optax.tree.where(is_better, params, state.best_params),
  )


def validate(
  spec: TrainSpec,
  params: dict,
  seed: jax.Array,
  step: jax.Array,
  scaffold: dict,
  widths: jax.Array | int,
) -> jax.Array:
  """Returns each head's exact match [heads], a fraction, on held-out examples:
  the mean over its widths of training, of which none has more than `widths`."""
  experiment = spec.experiment
  width_counts = jnp.array(experiment.width_counts)
  key = jax.random.fold_in(rng.stream(seed, "eval"), step)

  def add_width(width_index: jax.Array, em: jax.Array) -> jax.Array:
    means, width_key = [], jax.random.fold_in(key, width_index)
    for share in experiment.validation:
      exact = []
      for part in share.parts:
        batch = spec.mesh.shard_batch(
          experiment.sample(
            width_key, share.head, part, width_index, held_out=True
          )
        )
        args = params, scaffold, batch, share.head, spec.sparse
        exact.append(experiment.matches(*args))
      means.append(jnp.concatenate(exact).mean(dtype=jnp.float32))
    return em + jnp.where(width_index < width_counts, jnp.stack(means), 0)

  zeros = jnp.zeros(len(experiment.output_heads), jnp.float32)
  em = jax.lax.fori_loop(0, widths, add_width, zeros)
  return em / width_counts


# All seeds.


@functools.cache
def over_seeds(function: Callable[[TrainSpec, Any], Any], spec: TrainSpec):
  """Returns, compiled, a function of the stacked inputs [R, ...] of R seeds:
  `function` of the spec and a seed's inputs, for every seed.

  Seeds are split over the devices along `seed`; those of a device are trained
  side by side or one after the other, as train.seed_axis says.
  """
  of_seed = partial(function, spec)
  of_seeds = partial(jax.lax.map, of_seed)
  if spec.train.seed_axis == "vmap":
    of_seeds = jax.vmap(of_seed)
  return jax.jit(spec.mesh.shard_map_seeds(of_seeds))


def init_seeds(
  spec: TrainSpec,
  seeds: Sequence[int],
  initial: Sequence[dict] = (),
) -> TrainState:
  """Returns the states [R, ...] before the first step, on the spec's devices,
  with `initial` parameters where they are given.

  They are computed on one device, so that they are the same to the last bit
  whatever the mesh.
  """
  on_one = dataclasses.replace(spec, mesh=SINGLE_DEVICE)
  states = [
    init_state(on_one, seed, params)
    for seed, params in itertools.zip_longest(seeds, initial)
  ]
  stacked = jax.tree.map(lambda *x: np.stack(x), *jax.device_get(states))
  return spec.mesh.shard_seeds(stacked)


def abstract_states(run: Run) -> TrainState:
  """Returns the shapes and dtypes of the states [R, ...]."""
  init = jax.vmap(partial(init_state, run.spec))
  return jax.eval_shape(init, np.array(run.seeds))


def read_numbers(mesh: Mesh, states: TrainState) -> TrainState:
  """Returns states whose fields but the parameters and the optimizer's state
  are numpy arrays, on every host."""
  names = "params", "opt_state", "best_params"
  large = {name: getattr(states, name) for name in names}
  numbers = mesh.gather(states.replace(**dict.fromkeys(large)))
  return jax.device_get(numbers).replace(**large)


def report_ended(run: Run, before: TrainState, states: TrainState) -> None:
  """Reports the seeds that diverged or reached the target in a chunk."""
  for r in np.flatnonzero(states.done & ~before.done):
    when = f"at step {states.stopped_at[r]}"
    if states.diverged[r]:
      hosts.print_note(
        f"seed {run.seeds[r]}: loss or parameters are not finite {when}; back"
        " to the last finite ones (try a lower train.learning_rate)"
      )
    elif states.stopped_at[r] >= 0:  # otherwise all its steps are used up
      hosts.print_note(
        f"seed {run.seeds[r]}: target reached {when}"
        f" (EM {100 * states.best_em[r]:.1f} %)"
      )


# The loop.


@stopwatch.phase("training")
def train(run: Run, initial: Sequence[dict] = ()) -> TrainState:
  """Trains until all seeds are done, resuming from the newest checkpoint that
  can be restored; returns the final states [R, ...].

  A run begins with each seed's `initial` parameters, or fresh ones. After
  SIGTERM or SIGINT the states are saved and Interrupted is raised; a checkpoint
  of another run is a UsageError.
  """
  spec, seeds = run.spec, np.array(run.seeds, np.int32)
  with contextlib.ExitStack() as stack:
    checkpoints = stack.enter_context(
      contextlib.closing(run.open_checkpoints(writes=True))
    )
    abstract = run.mesh.shard_shapes(abstract_states(run))
    last_step, states = checkpoints.restore(abstract)
    if states is None:
      states = init_seeds(spec, run.seeds, initial)
    else:
      hosts.print_note(f"resumed at step {last_step}")
    states = read_numbers(run.mesh, states)
    log = Log(
      run.folder,
      run.experiment.output_heads,
      make_schedule(run.train),
      spec.num_steps,
      dict(zip(run.seeds, states.step.tolist(), strict=True)),
    )
    stack.enter_context(contextlib.closing(log))
    signals = stack.enter_context(stop_signals())
    scaffold = jax.tree.map(
      lambda x: jnp.broadcast_to(x, (len(seeds), *x.shape[1:])), run.scaffold
    )
    chunk_count = max(states.step) // (spec.chunk_cycles * spec.steps_per_cycle)
    while not states.done.all():
      before, inputs = states, (states, seeds, scaffold)
      states, metrics = over_seeds(train_chunk, spec)(inputs)
      states = read_numbers(run.mesh, states)
      metrics = jax.device_get(run.mesh.gather(metrics))
      log.write(states, metrics)
      report_ended(run, before, states)
      chunk_count += 1
      stop = hosts.any_host(bool(signals))
      if stop or states.done.all() or chunk_count % run.checkpoint.every == 0:
        checkpoints.save(int(max(states.step)), states)
      if stop:
        raise Interrupted(
          f"stopped at step {max(states.step)} of {spec.num_steps}, saved; the"
          " same command goes on from there"
        )
  hosts.barrier("trained")
  return states


def load(run: Run, checkpoint: str) -> TrainState:
  """Returns the states [R, ...] of a trained run; nothing on disk is changed.

  `checkpoint` is the number of a step; or "last" or "best", which are the same
  here, the newest checkpoint that can be restored: its states hold both the
  last and the best parameters, of which the caller chooses. A checkpoint that
  is not there, cannot be restored or does not fit the run is a UsageError.
  """
  step = int(checkpoint) if checkpoint.isdigit() else None
  with contextlib.closing(run.open_checkpoints()) as checkpoints:
    _, states = checkpoints.restore(abstract_states(run), step)
  check(
    states is not None,
    f"no checkpoint in {run.folder}: train it first (--mode=train)",
  )
  return states
