"""What users add from files of their own, in the words of docs/extending.md."""

import dataclasses
import itertools
import re
import shlex

import command
import jax
import numpy as np
import pytest
from command import REPOSITORY, inside

from lengthgen_jax import register
from lengthgen_jax.attention.biases import BIASES
from lengthgen_jax.attention.normalizers import NORMALIZERS, Normalizer
from lengthgen_jax.attention.positions import POSITIONS
from lengthgen_jax.attention.temperature import TEMPERATURES, Temperature
from lengthgen_jax.config import build, default_config
from lengthgen_jax.pipelines import evaluate
from lengthgen_jax.probes.registry import PROBES
from lengthgen_jax.proofs.table import obstacle
from lengthgen_jax.tasks import HINTS, TASKS
from lengthgen_jax.tasks.arithmetic import Addition, ArithmeticTask
from lengthgen_jax.tasks.automata import Modular
from lengthgen_jax.tasks.dataset import Part
from lengthgen_jax.tasks.local_rules import Automaton, LocalRule

TEXT = (REPOSITORY / "docs" / "extending.md").read_text()
FILES = dict(re.findall(r"`(\w+\.py)`:\n\n```python\n(.*?)```", TEXT, re.S))
BLOCKS = re.findall(r"```bash\n(.*?)```", TEXT, re.S)
COMMANDS = "".join(BLOCKS).splitlines()
# Fields of a small model of one seed.
QUICK = "data.train_length=3 model.emb_dim=16 model.mlp_dim=32 seeds=(0,)"
QUICK += " model.num_decoder_layers=1 model.num_heads=2"


@pytest.fixture(autouse=True)
def _nothing_stays_registered():
  registries = (TASKS, POSITIONS, TEMPERATURES, NORMALIZERS, BIASES, PROBES)
  registries += (*HINTS.values(),)
  yield
  for registry in registries:
    for name in registry.origins:
      del registry[name]
    registry.origins.clear()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """An empty folder with the page's files."""
  path = tmp_path_factory.mktemp("extending")
  for name, text in FILES.items():
    (path / name).write_text(text)
  return path


def run(line: str, folder) -> str:
  """Runs a command of the page; returns what it prints."""
  *texts, words = [shlex.split(part) for part in line.split(" | ")]
  quick = "" if "--mode" in line else QUICK
  if "--mode=probe" in line:
    quick = 'probe.figures=("by_length",)'
  words += [f"--config.{field}" for field in quick.split()]
  text = " ".join(texts[0][1:]) + "\n" if texts else ""
  done = inside(*words[1:], text=text, folder=folder)
  # So short a training may answer with what is no output.
  assert done.returncode <= ("--mode=predict" in line), (line, done.stderr)
  return done.stdout


@pytest.mark.parametrize(
  "name", ["maximum.py", "carry_digits.py", "logarithmic.py", "cyclic.py"]
)
def test_commands_of_the_page_build(name, folder):
  """Training is the same for all, once there is an experiment."""
  (line,) = [line for line in COMMANDS if f"--config={name}" in line]
  with command.parsed(*shlex.split(line)[1:], folder=folder) as (_, config):
    experiment = build.build(config)
    scaffold = build.make_scaffold(config, experiment)
  params = str(jax.eval_shape(experiment.init, 0))
  if name == "maximum.py":
    assert experiment.output_heads == ("sort", "sort_maximum")
  if name == "carry_digits.py":
    assert scaffold["cross"].valid.any()
  if name == "logarithmic.py":
    assert "'scale': ShapeDtypeStruct(shape=()" in params


def run_commands(workdir: str, folder) -> list[str]:
  """Outputs of the page's commands of a workdir, in the page's order."""
  lines = [line for line in COMMANDS if f"--workdir={workdir}" in line]
  assert len(lines) == 2
  return [run(line, folder) for line in lines]


@pytest.fixture
def no_tests(no_training, no_figures, monkeypatch):
  """Leaves out training and the tests and figures that follow it."""
  monkeypatch.setattr(evaluate, "run", lambda config, folder: 0)


@pytest.mark.usefixtures("no_tests")
def test_registered_transducer_is_certified(folder):
  _, certified = run_commands("runs/tripling", folder)
  assert "every length" in certified or "wrong" in certified


@pytest.mark.usefixtures("no_tests")
def test_registered_probe_has_rows(folder):
  run_commands("runs/first_key", folder)
  workdir = folder / "runs/first_key"
  assert "first_key" in (workdir / "probes.jsonl").read_text()
  assert list((workdir / "figures" / "probes").glob("*.png"))


@pytest.mark.usefixtures("no_tests")
def test_workdir_names_what_registers_its_task(folder):
  """A registered task answers a line; without its file it is refused."""
  _, answer = run_commands("runs/sum", folder)
  assert len(answer.splitlines()) == 1
  (folder / "modular_sum.py").rename(folder / "renamed.py")
  del TASKS["modular_sum"]
  TASKS.origins.clear()
  words = "--mode=predict", "--workdir=runs/sum"
  line = command.refusal(inside(*words, text="1 2\n", folder=folder))
  assert "modular_sum.py" in line


def mine(parent: type, **members) -> type:
  """A user's subclass."""
  return type("Mine", (parent,), members)


class Undecorated(Modular):
  name, items = "undecorated", 3
  items: int


@dataclasses.dataclass(frozen=True)
class Extended(Modular):
  name = "extended"
  size: int = 3


BAD_TASKS = {
  "step must take (self, state, symbols), and not": mine(
    Addition, name="stepless", step=lambda self, state: state
  ),
  "'addition' exists already": Addition,
  "choose a name of letters": mine(Addition, name=""),
  "'stateless' has no states, step": mine(ArithmeticTask, name="stateless"),
  "'ruleless' has no cells, ": mine(LocalRule, name="ruleless"),
  "first_state must take (self, driver)": mine(
    Automaton, name="driverless", first_state=lambda self: 0
  ),
  "the test_sets of task 'listed' are no dict": mine(
    Addition, name="listed", test_sets=[1]
  ),
  "operator '=': choose": mine(Addition, name="signless", operator="="),
  "has fields (items): decorate it": Undecorated,
  "whose config section 'modular' it shares": Extended,
}
COUNTLESS = Temperature(value=lambda n, a, b: a * n)
BAD_PARTS = {
  "function of (section, spec), and not": (register.bias, lambda section: {}),
  "no subclass of PositionEncoding": (register.position_encoding, Addition),
  "counts=''; choose one of items, visible": (register.temperature, COUNTLESS),
  "weights of normalizer 'mine' is no function": (
    register.normalizer,
    Normalizer("softmax"),
  ),
  "is no Optimizer": (register.optimizer, lambda train: None),
}


def test_names_that_exist_and_things_that_lack_a_part_are_refused():
  for words, task in BAD_TASKS.items():
    with command.refuses(words):
      register.task(task)
  for words, (register_as, part) in BAD_PARTS.items():
    with command.refuses(words):
      register_as("mine", part)
  with command.refuses("'restricted' is that of random restrictions"):
    register.hint("reverse", "restricted", Modular)


# A step, the state before the first one, and the refusal.
STEPS = [
  (lambda self, state, symbols: (state + 1, symbols[0]), 0, "goes to 2, and"),
  (lambda self, state, symbols: (state, symbols["a"]), 0, "fails: TypeError"),
  (lambda self, state, symbols: (state, symbols[0] + 1), 0, "writes 10, and"),
  (Addition.step, 5, "starts in 5, and"),
]


def test_transducer_that_leaves_its_states_is_refused():
  for n, (step, start, words) in enumerate(STEPS):
    task = mine(Addition, name=f"mine_{n}", step=step, initial_state=start)
    register.task(task)
    with command.refuses(f"step(state, symbols) {words}"):
      build.build(default_config(task.name))


@pytest.mark.parametrize(
  ("name", "members", "words"),
  [
    ("cell_twice", {"cells": "011"}, "0 1 1 . ⊥ @ name several tokens alike"),
    ("cell_count", {"cells": 3}, "the names of its tokens: TypeError"),
    ("operand_of_all", {"operand_in": "all"}, "operand_in='all': choose one"),
    ("middle", {"anchor": "middle"}, "anchor='middle': choose one of left, "),
    (
      "no_row",
      {"operand_in": "own", "write": lambda *_: None},
      "returns None, and not the next state and a cell from 0 to 1",
    ),
  ],
)
def test_grid_that_does_not_fit_is_refused(name, members, words):
  register.task(mine(Automaton, name=name, **members))
  with command.refuses(words):
    build.build(default_config(name))


def test_calibration_of_the_page_finds_its_lines(capsys):
  """At 40 digits the rows of the sum see the digit of their own place: the
  first head of a, the second of b, and nothing else."""
  (script,) = re.findall(r"## Calibration.*?```python\n(.*?)```", TEXT, re.S)
  names = {}
  exec(compile(script, "page", "exec"), names)
  assert len(capsys.readouterr().out.splitlines()) == 2
  cells = np.argwhere(np.isfinite(names["dense"][0, 0])).tolist()
  heads = (0, 40), (1, 81)  # and the last digit of a head's operand
  places = itertools.product(heads, range(41))
  assert cells == [[head, 82 + i, last - i] for (head, last), i in places]


def test_operands_are_constrained_wherever_examples_are_made(folder):
  """Training, tests, its own usage, and what people type."""
  words = f"--config={folder / 'subtraction.py'}", "--workdir=unused"
  with command.parsed(*words, folder=folder) as (_, config):
    experiment = build.build(config)
  task = experiment.task
  batches = [experiment.sample(jax.random.key(0), task.name, Part(0, 64))]
  for name in ("equal", "nines"):
    args = 0, np.arange(64), 5, {}, ()
    batches.append(experiment.test_batch(name, *args))
  for batch in batches:
    tokens = np.asarray(batch.source), np.asarray(batch.target)
    for source, target in zip(*tokens, strict=True):
      text = task.decode(source).strip("$@")
      a, b = map(int, text.split("-"))
      assert int(task.render(target)) == a - b >= 0
  for text in ("500-123", task.usage):
    assert task.input_text(*task.parse(text)) == text
  with pytest.raises(ValueError, match="'3-5' has operands that subtraction"):
    task.parse("3-5")
  assert "subtraction excludes operands" in obstacle(task)
