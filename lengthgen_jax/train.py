"""Training: a pure chunk of steps for all seeds, and the loop around it."""

import json
import pathlib
import signal
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lengthgen_jax import bias_check, optimizer, records, rng
from lengthgen_jax import experiment as experiments
from lengthgen_jax import state as states
from lengthgen_jax.errors import check_choice

SEED_AXES = ("vmap", "loop")


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
    spread = lambda x: jnp.broadcast_to(
      x, (len(config.seeds),) + jnp.shape(x)[1:]
    )
    self.lines = jax.tree.map(spread, lines)

  @partial(jax.jit, static_argnums=0)
  def init(self) -> states.TrainState:
    """The state before the first step."""

    def one_seed(seed):
      params = self.experiment.init(seed)
      return params, self.optimizer.init(params)

    return states.create(*jax.lax.map(one_seed, self.seeds))

  def train_step(self, params, opt_state, seed, step, width: int, bias):
    """One gradient step of one seed; pure. The batch is f(seed, step)."""
    config = self.config.train
    data_key = jax.random.fold_in(rng.stream(seed, "data"), step)
    drop_key = jax.random.fold_in(rng.stream(seed, "dropout"), step)
    batch = self.experiment.data.sample(data_key, config.batch_size, width)
    loss, grads = jax.value_and_grad(self.experiment.loss)(
      params, batch, bias, drop_key
    )
    updates, opt_state = self.optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss

  def _run_seed(self, params, opt_state, seed, lines, step, rounds):
    """`rounds` rounds (one step at every width) of one seed."""
    widths = self.experiment.widths
    biases = [self.experiment.full_biases(lines, w) for w in widths]

    def one_round(i, carry):
      params, opt_state, total = carry
      for k, width in enumerate(widths):
        now = step + i * len(widths) + k
        params, opt_state, loss = self.train_step(
          params, opt_state, seed, now, width, biases[k]
        )
        total += loss
      return params, opt_state, total

    params, opt_state, total = jax.lax.fori_loop(
      0, rounds, one_round, (params, opt_state, jnp.float32(0.0))
    )
    step += rounds * len(widths)
    em = self._validate(params, seed, step, biases)
    return params, opt_state, total / (rounds * len(widths)), em

  def _validate(self, params, seed, step, biases):
    """In-range exact match on held-out numbers, the mean over widths."""
    key = jax.random.fold_in(rng.stream(seed, "eval"), step)
    samples = self.config.train.validation_samples
    exact = []
    for width, bias in zip(self.experiment.widths, biases, strict=True):
      batch = self.experiment.data.sample(key, samples, width, held_out=True)
      exact.append(self.experiment.hits(params, batch, bias)[1].mean())
    return jnp.stack(exact).mean()

  @partial(jax.jit, static_argnums=0)
  def chunk(self, state, rounds):
    """Runs `rounds` (traced) rounds of all seeds; returns (state, metrics)."""
    run = lambda *one: self._run_seed(*one, state.step, rounds)
    old = (state.params, state.opt_state)
    args = (*old, self.seeds, self.lines)
    nothing = jnp.float32(jnp.nan)
    if self.config.train.seed_axis == "vmap":
      params, opt_state, loss, em = jax.vmap(run)(*args)
      loss, em = (jnp.where(state.done, nothing, x) for x in (loss, em))
    else:
      skip = lambda *one: (*one[:2], nothing, nothing)
      params, opt_state, loss, em = jax.lax.map(
        lambda x: jax.lax.cond(x[0], skip, run, *x[1]), (state.done, args)
      )
    finite = jnp.isfinite(loss)
    fresh = ~state.done & finite
    diverged = state.diverged | (~state.done & ~finite)
    step = state.step + rounds * len(self.experiment.widths)
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
    return new, {"loss": loss, "em": em}


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
    log = Log(config, folder, int(state.step))
    state = _loop(trainer, state, store, log, report)
    log.close()
  finally:
    store.close()
  return state


def _loop(trainer, state, store, log, report):
  """Chunks until all seeds are done or the steps are used up."""
  config = trainer.config
  saved = json.loads(config.to_json_best_effort())
  width_count = len(trainer.experiment.widths)
  rounds = max(config.train.chunk // width_count, 1)
  last_saved = int(state.step)
  stop = StopSignal()
  with stop:
    while int(state.step) < config.train.steps and not state.done.all():
      step = int(state.step)
      left = -(-(config.train.steps - step) // width_count)
      before = np.asarray(state.done)
      state, values = trainer.chunk(state, min(rounds, left))
      log.write(state, values)
      for line in _news(config, before, state):
        report(line)
      chunks = (int(state.step) - last_saved) // (rounds * width_count)
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


def _news(config, before, state) -> list[str]:
  """A line for every seed that was frozen in this chunk."""
  lines = []
  for r, seed in enumerate(config.seeds):
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


class StopSignal:
  """Remembers SIGTERM and SIGINT while training; the loop saves and leaves."""

  def __init__(self):
    self.received = False

  def __enter__(self):
    self._old = {
      number: signal.signal(number, self._handle)
      for number in (signal.SIGTERM, signal.SIGINT)
    }

  def _handle(self, number, frame):
    if self.received and number == signal.SIGINT:
      raise KeyboardInterrupt  # a second Ctrl-C does not wait
    self.received = True

  def __exit__(self, *error):
    for number, handler in self._old.items():
      signal.signal(number, handler)


class Log:
  """Progress bar, metrics.jsonl and TensorBoard."""

  def __init__(self, config, folder: pathlib.Path, step: int):
    from tensorboardX import SummaryWriter
    from tqdm import tqdm

    self.config, self.path = config, folder / "metrics.jsonl"
    records.drop_after(self.path, step)
    self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=step)
    self.bar = tqdm(
      total=config.train.steps,
      initial=step,
      unit="step",
      desc=folder.name,
      file=sys.stderr,
      dynamic_ncols=True,
    )
    self.rate = optimizer.schedule(config.train)
    self.clock = time.perf_counter()

  def write(self, state, values) -> None:
    """Logs one chunk: a row per seed that still trains."""
    step = int(state.step)
    values = jax.device_get(values)  # waits for the chunk
    seconds = time.perf_counter() - self.clock
    self.clock += seconds
    rows = []
    for r, seed in enumerate(self.config.seeds):
      row = {
        "step": step,
        "seed": seed,
        "loss": float(values["loss"][r]),
        "em": float(values["em"][r]),
        "learning_rate": float(self.rate(step)),
        "seconds": seconds,
      }
      if np.isfinite(row["loss"]):
        rows.append(row)
        for name in ("loss", "em", "learning_rate"):
          self.board.add_scalar(f"seed{seed}/{name}", row[name], step)
    records.append(self.path, rows)
    if rows:
      loss = np.median([row["loss"] for row in rows])
      em = np.median([row["em"] for row in rows])
      self.bar.set_postfix_str(f"loss {loss:.4f}, EM {100 * em:.1f} %")
    self.bar.update(step - self.bar.n)

  def close(self) -> None:
    self.bar.close()
    self.board.close()


def prepare(config, report=lambda line: None):
  """Experiment and LineBias of a config, checked against each other."""
  check_choice("train.schedule", config.train.schedule, optimizer.SCHEDULES)
  check_choice("train.seed_axis", config.train.seed_axis, SEED_AXES)
  experiment = experiments.build(config)
  lines = experiments.make_lines(config, experiment.task)
  for note in bias_check.check_bias(
    experiment, lines, config.seeds, experiment.widths
  ):
    report(note)
  return experiment, lines
