"""What users add from files of their own, in the words of docs/extending.md."""

import dataclasses
import itertools
import re
import shlex

import command
import jax
import numpy as np
import optax
import pytest
import untrained
from command import REPOSITORY, inside, refuses

from lengthgen_jax import register, sections
from lengthgen_jax.attention.normalizers import NORMALIZERS, Normalizer
from lengthgen_jax.attention.temperature import Temperature
from lengthgen_jax.config import build, default_config, fields
from lengthgen_jax.pipelines import abc, evaluate
from lengthgen_jax.proofs.table import obstacle
from lengthgen_jax.registry import REGISTRIES
from lengthgen_jax.tasks.arithmetic import Addition, ArithmeticTask
from lengthgen_jax.tasks.automata import Modular
from lengthgen_jax.tasks.dataset import Part
from lengthgen_jax.tasks.local_rules import Automaton, LocalRule
from lengthgen_jax.training.optimizer import Optimizer, make_optimizer

TEXT = (REPOSITORY / "docs" / "extending.md").read_text()
FILES = dict(re.findall(r"`(\w+\.py)`:\n\n```python\n(.*?)```", TEXT, re.S))
BLOCKS = re.findall(r"```bash\n(.*?)```", TEXT, re.S)
COMMANDS = "".join(BLOCKS).splitlines()
# Fields of a small model of one seed.
QUICK = "data.train_length=3 model.emb_dim=16 model.mlp_dim=32 seeds=(0,)"
QUICK += " model.num_decoder_layers=1 model.num_heads=2"


def forget() -> None:
  """Leaves nothing registered, as in a new process."""
  for registry in REGISTRIES:
    for name in registry.origins:
      del registry[name]
    registry.origins.clear()


@pytest.fixture(autouse=True)
def _nothing_stays_registered():
  yield
  forget()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """An empty folder with the page's files."""
  path = tmp_path_factory.mktemp("extending")
  for name, text in FILES.items():
    (path / name).write_text(text)
  return path


def run(line: str, folder) -> str:
  """Runs a command of the page as in a process of its own; returns what it
  prints."""
  forget()
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
  forget()
  words = "--mode=predict", "--workdir=runs/sum"
  line = command.refusal(inside(*words, text="1 2\n", folder=folder))
  assert "modular_sum.py" in line
  saved = folder / "runs/sum/config.json"
  saved.write_text(saved.read_text().replace("modular_sum.py", "renamed.py"))
  (line,) = [x for x in COMMANDS if "--mode=predict --workdir=runs/sum" in x]
  assert run(line, folder) == answer


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


def test_a_normalizer_and_an_optimizer_of_ones_own_are_used():
  softmax = NORMALIZERS["softmax"].weights
  half = lambda logits, key_positions, config: (
    softmax(logits, key_positions, config) / 2
  )
  register.normalizer("half", Normalizer(half))
  register.optimizer("still", Optimizer(lambda train: optax.set_to_zero()))
  names = {"attention.normalizer": "half", "train.optimizer": "still"}
  config = untrained.config(fields=names)
  experiment = build.build(config)
  params = untrained.params(experiment)
  batch = untrained.typed(experiment, "12+34")
  _, acts = experiment.apply(params, {}, batch, "addition")
  sums = acts["decoder_0"]["cross_attention"]["weights"].sum(-1)
  np.testing.assert_allclose(sums, 0.5, rtol=1e-5)
  optimizer = make_optimizer(sections.Train(optimizer="still", warmup_steps=0))
  updates, _ = optimizer.update(params, optimizer.init(params), params)
  assert not any(map(np.any, jax.tree.leaves(updates)))
  with command.refuses("train.adam_b1=", "changes nothing here"):
    fields.check_has_effect(config, "train.adam_b1")


@pytest.mark.parametrize("returned", (None, {"self": []}))
def test_a_bias_of_ones_own_must_be_a_scaffold(returned):
  register.bias("broken", lambda section, spec: returned)
  with refuses("must return a dict from a site to lines or a matrix"):
    untrained.model(fields={"bias.kind": "broken"})


def test_a_bias_of_ones_own_may_read_the_window():
  register.bias("wide", lambda section, spec: {})
  config = untrained.config(fields={"bias.kind": "wide", "bias.window": 2})
  fields.check_has_effect(config, "bias.window")


def test_abc_of_a_task_of_ones_own_can_begin(folder):
  (text,) = re.findall(r"\n```\n(from lengthgen_jax.*?)```", TEXT, re.S)
  head = FILES["tripling.py"].partition("\n\ndef get_config")[0]
  (folder / "tripling_abc.py").write_text(f"{head}\n\n{text}")
  for spec in ("tripling_abc.py", "cyclic.py:abc"):
    words = f"--config={spec}", "--mode=abc", "--workdir=unused"
    with command.parsed(*words, folder=folder) as (_, config):
      abc.check_config(config)


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
  ("members", "words"),
  [
    ({"cells": "011"}, "0 1 1 . ⊥ @ name several tokens alike"),
    ({"cells": 3}, "the names of its tokens: TypeError"),
    ({"operand_in": "all"}, "operand_in='all': choose one"),
    ({"anchor": "middle"}, "anchor='middle': choose one of left, "),
    (
      {"operand_in": "own", "write": lambda *_: None},
      "returns None, and not the next state and a cell from 0 to 1",
    ),
    (
      {"first_state": lambda self, driver: None},
      "first_state must not return None",
    ),
    (
      {"first_state": lambda self, driver: []},
      "first_state(2,): TypeError: unhashable",
    ),
    ({"accepts": lambda self, state: {}[2]}, "accepts((0, 0),): KeyError"),
    ({"ahead": 2}, "ahead=2: choose one of 0, 1"),
    ({"write": lambda *_: ([], 0)}, "unhashable"),
    ({"write": lambda *_: {}[2]}, "write((0, 0), 2, 0): KeyError"),
    ({"write": lambda *_: (0, 3)}, "returns (0, 3), and not the next state"),
    ({"write": lambda *_: 0}, "returns 0, and not the next state"),
    ({"write": lambda _, x, *__: ((x[0] + 1,), 0)}, "more than 4096 states"),
  ],
)
def test_grid_that_does_not_fit_is_refused(members, words):
  register.task(mine(Automaton, name="grid", **members))
  with command.refuses(words):
    build.build(default_config("grid"))


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
