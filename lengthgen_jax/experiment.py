"""An experiment: tasks, data, model and plan of one run, for both families."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lengthgen_jax import rng
from lengthgen_jax.attention import temperature
from lengthgen_jax.attention.biases import scaffold as scaffolds
from lengthgen_jax.attention.kernel import CLOSED
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.errors import check
from lengthgen_jax.models import pieces
from lengthgen_jax.models.decoder_only import DecoderOnly, Sites
from lengthgen_jax.models.encoder_decoder import EncoderDecoder
from lengthgen_jax.tasks import data, pack, plan

MODELS = {"encoder_decoder": EncoderDecoder, "decoder_only": DecoderOnly}


@dataclasses.dataclass(frozen=True)
class Experiment:
  """Everything that is fixed before the first step; hashable.

  Attributes:
    data: a DataSet per head, the main task's first.
    kind: the model's family.
    model: the flax module.
    bias: how the scaffold enters the scores.
    lessons: gradient steps of a round.
    validation: held-out examples of every head, at every width.
    train_length: longest training length, as people count it.
    fixed_width: W of `width=fixed`, None where longer inputs are wider.
  """

  data: tuple[data.DataSet, ...]
  kind: str
  model: DecoderOnly
  bias: scaffolds.BiasConfig
  lessons: tuple[plan.Lesson, ...]
  validation: tuple[plan.Share, ...]
  train_length: int
  fixed_width: int | None

  @property
  def task(self):
    """The main task."""
    return self.data[0].task

  @property
  def heads(self) -> tuple[str, ...]:
    return tuple(own.task.name for own in self.data)

  @property
  def turns(self) -> int:
    """After how many rounds widths repeat."""
    return max(len(self.data[0].widths), 1)

  @property
  def site_segments(self) -> dict[str, tuple[str, ...]]:
    """Attention sites, and the names of their keys' segments by number."""
    source = self.task.segments
    if self.kind == "decoder_only":
      return {"self": (*source, "target", "start")}
    own = ("",) * len(source) + ("target", "start")
    return {"self": own, "cross": source, "encoder": source}

  # Sizes.

  def width(self, lengths, what: str, advice: str):
    """What operands of these units (`what` in words) are padded to; UsageError
    if they cannot be, with `advice`, whose {} is the longest that fits."""
    fixed = self.fixed_width or 0
    width = fixed or self.task.padded(lengths)
    why = f"{what} do not fit data.width=fixed with W={fixed};"
    fits = not fixed or max(lengths) < fixed
    check(fits, f"{why} {advice.format(fixed - 1)}")
    self.check_positions(width, what)
    return width

  def test_width(self, length: int, how=()):
    """The same for a test length, as people count it, in a test set."""
    lengths, what = self.task.operand_lengths(length, how), self.task.unit
    advice = "choose shorter ones or a larger data.fixed_width"
    return self.width(lengths, f"{length} {what}", advice)

  def live(self, width):
    """How many places of a padded number may be other than zero."""
    slack = self.task.slack if self.task.axes == 1 else 0
    return width - (1 if self.fixed_width else slack)

  def bound(self, width, scaffold: dict):
    """A static size for tests of a width: one program serves many of them."""
    lined = all(own.lined for own in scaffold.values())
    if not lined or self.task.axes > 1 or self.fixed_width is not None:
      return width  # a matrix ends somewhere, a grid grows with the square
    return max(1 << (width - 1).bit_length(), 64)

  def site_sizes(self, width) -> dict[str, tuple[int, int]]:
    """Rows and keys of every attention site at a width."""
    source = self.task.prompt_size(width)
    rows = self.task.output_size(width)
    if self.kind == "decoder_only":
      return {"self": (source + rows, source + rows)}
    return {
      "self": (rows, rows),
      "cross": (rows, source),
      "encoder": (source, source),
    }

  def check_scaffold(self, width, scaffold: dict) -> None:
    """UsageError if matrices are too small for a width."""
    sizes = self.site_sizes(width)
    for site, own in scaffold.items():
      own.check_size(site, *sizes[site])

  def check_positions(self, width, what: str, start: int = 0) -> None:
    """UsageError if a table of positions has too few rows for a width."""
    config = self.model.config.positions
    limited = POSITIONS[config.kind].limited
    cyclic = config.kind == "learned" and config.cyclic_period
    longest = max(max(size) for size in self.site_sizes(width).values())
    needed = np.max(width) + 1 + start if limited == "place" else longest
    check(
      not limited or cyclic or needed <= config.table,
      f"{what} need {needed} positions, but positions.table={config.table}",
    )

  def sample(self, key, head: str, part: plan.Part, turn=0, held_out=False):
    """A batch of one part of a head's share."""
    index = self.heads.index(head)
    key = jax.random.fold_in(jax.random.fold_in(key, index), part.bucket)
    return self.data[index].sample(key, part.count, part.bucket, turn, held_out)

  def test_batch(
    self, test_set: str, seed: int, index_B, length: int, scaffold, how=()
  ):
    """Examples `index_B` of a test set at a length; each a function of its
    index and the seed."""
    width = self.test_width(length, how)
    key = jax.random.fold_in(rng.stream(seed, "eval"), length)
    return data.test_batch(
      self.task,
      self.kind,
      test_set,
      key,
      jnp.asarray(index_B),
      np.array(self.task.operand_lengths(length, how)),
      np.asarray(width, np.int32),
      self.bound(width, scaffold),
      how,
    )

  # What the model is told beside a batch.

  def lined(self, scaffold: dict) -> bool:
    """Whether attention need only visit the keys on lines, where heads have
    them: every site has lines, and nothing else is added to the scores."""
    sites = {"self"} if self.kind == "decoder_only" else {"self", "cross"}
    return (
      self.bias.closed == CLOSED
      and not self.model.config.num_encoder_layers
      and not POSITIONS[self.model.config.positions.kind].additive
      and sites <= set(scaffold)
      and all(own.lined for own in scaffold.values())
    )

  def followed(self, scaffold: dict):
    """`open_heads` of training, where lines make its steps faster."""
    widths = self.data[0].widths if self.lined(scaffold) else ()
    sizes = self.site_sizes(min(widths)) if widths else {}
    return scaffolds.followed(scaffold, sizes)

  def sites(self, scaffold, batch, decoding=False, open_heads=None, noise=None):
    """Biases and sizes of a batch's rows, for one seed's scaffold.

    Args:
      scaffold: lines or matrices by site.
      batch: a Batch, or some rows of one.
      decoding: whether later inputs do not exist yet.
      open_heads: (site, transparent heads by layer): visits the keys on lines
        alone in all other heads. None: every pair of row and key.
      noise: rng.Noise in training, which sizes are told with.
    """
    places = {"self": (batch.rows, batch.keys)}
    if batch.source is not None:
      places["cross"] = (batch.rows, batch.source_keys)
      if self.model.config.num_encoder_layers:
        places["encoder"] = (batch.source_keys, batch.source_keys)
    how, last = scaffolds.total, dict.fromkeys(places, decoding)
    if open_heads is not None:
      how, last = scaffolds.total_gathered, dict(open_heads)
    biases = {
      site: how(self.bias, scaffold, site, *where, last[site])
      for site, where in places.items()
    }
    config = self.model.config.temperature
    return Sites(biases, temperature.by_site(config, batch, noise))

  # The model.

  def init(self, seed, attempt=0):
    """Fresh parameters of a seed for its n-th attempt; both may be traced."""
    head, _, (part, *_) = self.lessons[0][0]
    batch = self.sample(jax.random.key(0), head, part._replace(count=1))
    key = jax.random.fold_in(rng.stream(seed, "init"), attempt)
    params = self.model.init(key, batch, self.sites({}, batch), head)["params"]
    own = jnp.promote_types(jnp.float32, self.model.config.dtype)
    return jax.tree.map(lambda x: x.astype(own), params)

  def apply(self, params, scaffold, batch, head: str, noise=None, **how):
    """Teacher-forced logits [B, T, V] and activations; as in training (dropout,
    random sizes and places) with rng.Noise. `how` as in `sites`."""
    sites = self.sites(scaffold, batch, noise=noise, **how)
    return self.model.apply({"params": params}, batch, sites, head, noise)

  def loss(self, params, scaffold, batch, head, key, open_heads=None, shards=1):
    """Summed cross-entropy (nats) as in training, and how many tokens."""
    noise = rng.Noise(key, jnp.arange(len(batch.inputs)))

    def summed(params, own, noise):
      args = scaffold, own, head, noise
      logits, _ = self.apply(params, *args, open_heads=open_heads)
      loss = optax.softmax_cross_entropy_with_integer_labels(logits, own.target)
      return (loss * own.weight).sum()

    lines = open_heads and scaffold
    count = pieces.count(self.model.config, batch, lines, shards)
    some = lambda cut: (pack.take(batch, cut), noise.take(cut))
    return pieces.total(summed, params, some, count), batch.weight.sum()

  def hits(self, params, scaffold, batch, head: str, **how):
    """Correct tokens [B, T] (True where nothing is scored) and exact match [B].

    Exact match is strict: every scored token counts, the end token included.
    From teacher-forced argmaxes it equals the exact match of greedy decoding,
    by induction on the first error, where no row sees a later input.
    """
    logits, _ = self.apply(params, scaffold, batch, head, **how)
    right = (logits.argmax(-1) == batch.target) | (batch.weight == 0)
    return right, jnp.all(right, axis=1)

  def idle_params(self, lesson: plan.Lesson) -> set[str]:
    """Parameters that a lesson leaves alone: other tasks' heads."""
    busy = {share.head for share in lesson}
    return {f"logits_dense_{h}" for h in self.heads if h not in busy}
