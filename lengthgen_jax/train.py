"""Training: a pure chunk of steps for all seeds, and the loop around it."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lengthgen_jax import bias_check, optimizer, rng
from lengthgen_jax import experiment as experiments
from lengthgen_jax import state as states
from lengthgen_jax.progress import Log, StopSignal


class Trainer:
  """The compiled pieces of one training run."""

  def __init__(self, config, experiment, lines):
    """Prepares a run.

    Args:
      config: the whole config.
      experiment: from `experiment.build`.
      lines: LineBias with leading axis R or 1.
    """
    self.config, self.experiment = config, experiment
    self.seeds = jnp.array(config.seeds, jnp.int32)
    self.optimizer = optimizer.make(config.train)
    lessons = len(experiment.lessons)  # an attempt has whole rounds
    self.attempt_steps = -(-config.train.steps // lessons) * lessons
    spread = lambda x: jnp.broadcast_to(
      x, (len(config.seeds),) + jnp.shape(x)[1:]
    )
    self.lines = jax.tree.map(spread, lines)

  @partial(jax.jit, static_argnums=(0, 1))
  def init(self, attempt: int = 0) -> states.TrainState:
    """The state before the first step; other parameters for each attempt."""

    def one_seed(seed):
      params = self.experiment.init(seed, attempt)
      return params, self.optimizer.init(params)

    return states.create(*jax.lax.map(one_seed, self.seeds))

  def train_step(self, params, opt_state, seed, step, lesson, biases):
    """One gradient step of one seed; pure. The data are f(seed, step).

    Args:
      params, opt_state: of one seed.
      seed, step: traced.
      lesson: which heads learn from what, static.
      biases: a bias for each (head, size), from `biases`.

    Returns:
      params, opt_state (of idle heads untouched, but for Adam's count of steps,
      which is one for all), and each share's mean loss.
    """
    data_key = jax.random.fold_in(rng.stream(seed, "data"), step)
    drop_key = jax.random.fold_in(rng.stream(seed, "dropout"), step)

    def loss_fn(params):
      losses = [
        self._share_loss(params, share, biases, data_key, drop_key)
        for share in lesson
      ]
      weighted = [
        share.weight * x for share, x in zip(lesson, losses, strict=True)
      ]
      return sum(weighted), jnp.stack(losses)

    (_, losses), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
    old = params, opt_state
    updates, opt_state = self.optimizer.update(grads, opt_state, params)
    new = optax.apply_updates(params, updates), opt_state
    busy = {share.head for share in lesson}
    idle = [
      self.experiment.head_params(head)
      for head in self.experiment.heads
      if head not in busy
    ]
    return *states.keep(idle, old, new), losses

  def _share_loss(self, params, share, biases, data_key, drop_key):
    """Mean loss (nats per weighted token) of one head's examples."""
    total, weight = 0.0, 0.0
    for part in share.parts:
      batch = self.experiment.sample(data_key, share.head, part)
      bias = biases[share.head, part.size]
      summed, count = self.experiment.loss(
        params, batch, bias, share.head, drop_key
      )
      total, weight = total + summed, weight + count
    return total / weight

  def _run_seed(self, params, opt_state, seed, lines, step, rounds):
    """`rounds` rounds (each lesson once) of one seed."""
    lessons, heads = self.experiment.lessons, self.experiment.heads
    biases = self.biases(lines)
    times = np.zeros(len(heads))  # lessons of a round that train each head
    for lesson in lessons:
      for share in lesson:
        times[heads.index(share.head)] += 1

    def one_round(i, carry):
      params, opt_state, total = carry
      for k, lesson in enumerate(lessons):
        now = step + i * len(lessons) + k
        params, opt_state, losses = self.train_step(
          params, opt_state, seed, now, lesson, biases
        )
        index = np.array([heads.index(share.head) for share in lesson])
        total = total.at[index].add(losses)
      return params, opt_state, total

    params, opt_state, total = jax.lax.fori_loop(
      0, rounds, one_round, (params, opt_state, jnp.zeros(len(heads)))
    )
    step += rounds * len(lessons)
    em = self._validate(params, seed, step, biases)
    return params, opt_state, total / (rounds * times), em

  def biases(self, lines) -> dict:
    """One seed's bias for each (head, size) of training and validation."""
    experiment = self.experiment
    parts = {
      (share.head, part.size): part
      for lesson in (*experiment.lessons, experiment.validation)
      for share in lesson
      for part in share.parts
    }
    return {
      (head, size): experiment.part_bias(lines, head, part)
      for (head, size), part in parts.items()
    }

  def _validate(self, params, seed, step, biases):
    """In-range exact match [heads] on held-out examples."""
    key = jax.random.fold_in(rng.stream(seed, "eval"), step)
    result = []
    for share in self.experiment.validation:
      exact = []
      for part in share.parts:
        batch = self.experiment.sample(key, share.head, part, held_out=True)
        bias = biases[share.head, part.size]
        exact.append(self.experiment.hits(params, batch, bias, share.head)[1])
      result.append(jnp.concatenate(exact).mean())
    return jnp.stack(result)

  @partial(jax.jit, static_argnums=0)
  def chunk(self, state, rounds):
    """Runs `rounds` (traced) rounds of all seeds; returns (state, metrics)."""
    run = lambda *one: self._run_seed(*one, state.step, rounds)
    old = (state.params, state.opt_state)
    args = (*old, self.seeds, self.lines)
    nothing = jnp.full(len(self.experiment.heads), jnp.nan, jnp.float32)
    if self.config.train.seed_axis == "vmap":
      params, opt_state, loss, em = jax.vmap(run)(*args)
      done = state.done[:, None]
      loss, em = (jnp.where(done, nothing, x) for x in (loss, em))
    else:
      skip = lambda *one: (*one[:2], nothing, nothing)
      params, opt_state, loss, em = jax.lax.map(
        lambda x: jax.lax.cond(x[0], skip, run, *x[1]), (state.done, args)
      )
    task_loss, task_em = loss, em
    loss, em = loss.sum(axis=1), em[:, 0]  # the first head is the main task's
    finite = jnp.isfinite(loss)
    fresh = ~state.done & finite
    diverged = state.diverged | (~state.done & ~finite)
    step = state.step + rounds * len(self.experiment.lessons)
    params, opt_state = states.select(fresh, (params, opt_state), old)
    better = fresh & (em > state.best_em)
    target = em >= self.config.train.target_exact_match
    done = state.done | diverged | (fresh & target)
    new = state.replace(
      step=step,
      params=params,
      opt_state=opt_state,
      diverged=diverged,
      done=done,
      stopped_at=jnp.where(done & ~state.done, step, state.stopped_at),
      best_em=jnp.where(better, em, state.best_em),
      best_params=states.select(better, params, state.best_params),
    )
    return new, {"loss": task_loss, "em": task_em}

  @partial(jax.jit, static_argnums=(0, 2))
  def restart(self, state, attempt: int):
    """The state after an attempt: seeds that fit are done, others are fresh."""
    wanted = self.config.train.restart_below
    done = state.done | (state.best_em >= wanted)
    fresh = self.init(attempt)
    params, opt_state = states.select(
      done,
      (state.params, state.opt_state),
      (fresh.params, fresh.opt_state),
    )
    return state.replace(
      params=params,
      opt_state=opt_state,
      done=done,
      stopped_at=jnp.where(done & ~state.done, state.step, state.stopped_at),
    )


def abstract_state(trainer: Trainer):
  return jax.eval_shape(trainer.init)


class Interrupted(Exception):
  """SIGTERM or Ctrl-C: the run was saved at a chunk boundary."""


def run(
  config, experiment, lines, folder, report, initial=None
) -> states.TrainState:
  """Trains, resuming from the newest sound checkpoint of `folder`.

  Args:
    config: the whole config.
    experiment: from `experiment.build`.
    lines: LineBias with leading axis R or 1.
    folder: pathlib.Path of this run (or of a stage of it).
    report: function of one line of text.
    initial: per seed, parameters to start from instead of fresh ones.

  Returns:
    The final state.

  Raises:
    Interrupted: after SIGTERM or SIGINT, once the state is saved.
  """
  from lengthgen_jax.checkpoint import Checkpoints

  trainer = Trainer(config, experiment, lines)
  store = Checkpoints(folder / "checkpoints", config.checkpoint.keep)
  try:
    step, state = store.restore(abstract_state(trainer), report=report)
    if state is None:
      state = trainer.init()
      if initial is not None:
        params = jax.tree.map(lambda *x: jnp.stack(x), *initial)
        state = state.replace(params=params)
    else:
      report(f"resumed at step {step}")
    log = Log(trainer, folder, int(state.step))
    state = _loop(trainer, state, store, log, report)
    log.close()
  finally:
    store.close()
  return state


def _loop(trainer, state, store, log, report):
  """Chunks until all seeds are done or the steps are used up."""
  config = trainer.config
  saved = json.loads(config.to_json_best_effort())
  lesson_count = len(trainer.experiment.lessons)
  rounds = max(config.train.chunk // lesson_count, 1)
  length = trainer.attempt_steps
  last_saved = int(state.step)
  stop = StopSignal()
  with stop:
    while (
      int(state.step) < length * (1 + config.train.restarts)
      and not state.done.all()
    ):
      attempt, step = divmod(int(state.step), length)
      left = (length - step) // lesson_count
      before = np.asarray(state.done)
      state, values = trainer.chunk(state, min(rounds, left))
      log.write(state, values)
      restarted = rounds >= left and attempt < config.train.restarts
      if restarted:
        state = trainer.restart(state, attempt + 1)
      for line in _news(config, before, state, restarted):
        report(line)
      chunks = (int(state.step) - last_saved) // (rounds * lesson_count)
      if chunks >= config.checkpoint.every or stop.received:
        store.save(int(state.step), state, saved)
        last_saved = int(state.step)
      if stop.received:
        log.close()
        raise Interrupted(
          f"stopped at step {int(state.step)} of {config.train.steps}, saved;"
          " the same command goes on from there"
        )
    if last_saved != int(state.step):
      store.save(int(state.step), state, saved)
  return state


def _news(config, before, state, restarted=False) -> list[str]:
  """A line for every seed that was frozen, or starts again, after a chunk."""
  lines = []
  for r, seed in enumerate(config.seeds):
    if restarted and not state.done[r]:
      lines.append(
        f"seed {seed}: best EM {100 * float(state.best_em[r]):.1f} % at step"
        f" {int(state.step)}, below train.restart_below="
        f"{config.train.restart_below}; starts again from other parameters"
      )
    if before[r] or not state.done[r]:
      continue
    step = int(state.stopped_at[r])
    if state.diverged[r]:
      lines.append(
        f"seed {seed}: the loss is not finite at step {step}; frozen at its"
        " last finite parameters (try a lower train.learning_rate)"
      )
    else:
      em = 100 * float(state.best_em[r])
      lines.append(
        f"seed {seed}: target reached at step {step} (EM {em:.1f} %)"
      )
  return lines


def prepare(config, report=lambda line: None):
  """Experiment and LineBias of a config, checked against each other."""
  experiment = experiments.build(config)
  lines = experiments.make_lines(config, experiment.task)
  for note in bias_check.check_bias(experiment, lines, config.seeds):
    report(note)
  return experiment, lines
