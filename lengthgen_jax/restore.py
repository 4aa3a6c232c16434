"""Parameters of a trained run, one entry per seed."""

import jax

from lengthgen_jax.errors import check
from lengthgen_jax.train import Trainer, abstract_state


def load_state(config, experiment, lines, folder, report):
  """The training state that `eval.checkpoint` names.

  Raises:
    UsageError: there is no such checkpoint.
  """
  from lengthgen_jax.checkpoint import Checkpoints

  name = str(config.eval.checkpoint)
  check(
    (folder / "checkpoints").is_dir(),
    f"no checkpoint in {folder}: train it first (--mode=train)",
  )
  trainer = Trainer(config, experiment, lines)
  store = Checkpoints(folder / "checkpoints", config.checkpoint.keep)
  try:
    step, state = store.restore(
      abstract_state(trainer),
      step=int(name) if name.isdigit() else None,
      report=report,
    )
  finally:
    store.close()
  check(state is not None, f"no sound checkpoint in {folder}: train it first")
  return state


def seed_states(config, state) -> list[dict]:
  """Per seed: "seed", "params", "step", "stopped_at", "em" (validation)."""
  best = str(config.eval.checkpoint) == "best"
  params = state.best_params if best else state.params
  return [
    {
      "seed": int(seed),
      "params": jax.tree.map(lambda x, r=r: x[r], params),
      "step": int(state.step),
      "stopped_at": int(state.stopped_at[r]),
      "diverged": bool(state.diverged[r]),
      "em": float(state.best_em[r]),
    }
    for r, seed in enumerate(config.seeds)
  ]
