"""This module has settings for all tests, and fixtures: one tiny trained
workdir for all tests that read one."""

import contextlib
import fcntl
import gc
import importlib.metadata
import os
import pathlib
import shutil
import sys
import tempfile

# These are set before numpy and jax are imported. Nearly all of the time goes
# into tracing and compilation, so programs are hardly optimized, and do not
# name the lines of Python that they come from. Those that take longest to
# compile are stored for other workers and for the commands that tests start; to
# store the others would take longer. Matrices are too small for threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
FLAGS = (
  "--xla_cpu_parallel_codegen_split_count=1 --xla_disable_hlo_passes="
  "hlo-verifier,simplify-while-loops,while-loop-invariant-code-motion,"
  "while-loop-constant-sinking,reshape-mover"
)
if importlib.metadata.version("jaxlib") < "0.11":  # later ones end at this flag
  FLAGS += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", FLAGS)
if "PYTEST_XDIST_WORKER" not in os.environ:  # the workers inherit it
  CACHE = tempfile.mkdtemp(prefix="lengthgen_jax_tests_")
  os.environ["JAX_COMPILATION_CACHE_DIR"] = CACHE
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")

import command  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402
from tiny import get_config  # noqa: E402

from lengthgen_jax.drawing import plt  # noqa: E402
from lengthgen_jax.pipelines import runs  # noqa: E402
from lengthgen_jax.results import figures  # noqa: E402
from lengthgen_jax.training import loop  # noqa: E402

# If the process has more bytes than this after a file of tests, compiled
# programs are freed.
MEMORY = 1.2e9

# Figures have few pixels; with a tight bounding box they would be drawn twice.
plt.rcParams.update({"savefig.dpi": 40, "savefig.bbox": None})


# The files that take longest, the longest first, so that with several workers
# none of them is left over for the end.
LONGEST = """
abc checker golden papers evaluation stream search register mesh pretrained
hosts multiply_long
"""

sys.path.append(str(command.REPOSITORY / "launch"))  # tests import its scripts


def pytest_configure(config):
  """Makes xdist give files to workers in the order of collection."""
  config.option.loadscopereorder = False


def pytest_unconfigure():
  """Removes the compiled programs that were stored."""
  if "PYTEST_XDIST_WORKER" not in os.environ:
    shutil.rmtree(CACHE, ignore_errors=True)


def pytest_collection_modifyitems(items):
  """Puts the tests of LONGEST first."""
  files = [f"test_{name}" for name in LONGEST.split()]
  rank = {name: index for index, name in enumerate(files)}
  items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


def collect_garbage() -> None:
  """Frees what is not in use, and keeps the rest out of later garbage
  collections, which would take a fifth of the time of tracing."""
  gc.collect()
  gc.freeze()


def pytest_collection_finish():
  """Makes garbage collections few and short."""
  collect_garbage()
  gc.set_threshold(50_000, 20, 100)


def resident_bytes() -> float:
  """Returns the bytes of memory of this process, infinite where the system does
  not say."""
  statm = pathlib.Path("/proc/self/statm")
  if not statm.exists():
    return float("inf")
  return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module", autouse=True)
def _compiled_programs_are_freed():
  """Frees the compiled programs of a file of tests, which take gigabytes and
  are rarely of use to the next one."""
  yield
  if resident_bytes() > MEMORY:
    jax.clear_caches()
    collect_garbage()


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
  """Returns a workdir that one command has trained and evaluated, without
  interruption.

  Its two seeds are half trained: some answers are right and some wrong. Of
  several workers one trains it, and the others copy it.
  """
  workdir = tmp_path_factory.mktemp("trained") / "run"

  def train() -> None:
    command.succeeds(command.TINY, f"--workdir={workdir}")

  if "PYTEST_XDIST_WORKER" not in os.environ:
    train()
    return workdir
  # The parent of a worker's folder is the session's.
  shared = tmp_path_factory.getbasetemp().parent / "trained"
  with shared.with_suffix(".lock").open("w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if shared.exists():
      shutil.copytree(shared, workdir)
    else:
      train()
      shutil.copytree(workdir, shared)
  return workdir


@pytest.fixture
def copied(trained, tmp_path):
  """Returns a copy of `trained` that a test may change."""
  return shutil.copytree(trained, tmp_path / "copied")


@pytest.fixture
def no_training(monkeypatch):
  """Saves the parameters that training starts from as those that it ends with:
  for tests of what comes after training, whatever a model has learned."""

  def train(run, initial=()):
    states = loop.init_seeds(run.spec, run.seeds, initial)
    with contextlib.closing(run.open_checkpoints(writes=True)) as checkpoints:
      checkpoints.save(run.spec.num_steps, states)
    return states

  monkeypatch.setattr(loop, "train", train)


@pytest.fixture
def no_figures(monkeypatch):
  """Leaves out the figures of results: for tests of rows."""
  monkeypatch.setattr(figures, "draw", lambda *_, **__: [])


@pytest.fixture(scope="session")
def trained_run(trained):
  """Returns the loop.Run of `trained`."""
  return runs.make_run(get_config(), trained)


@pytest.fixture(scope="session")
def trained_states(trained_run):
  """Returns the final states [R, ...] of `trained`, R seeds."""
  return loop.load(trained_run, "last")


@pytest.fixture(scope="session")
def trained_models(trained_run):
  """Returns a trained.Model for each seed of `trained`."""
  return runs.load(trained_run, "last")
