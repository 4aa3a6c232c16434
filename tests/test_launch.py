"""The scripts of launch/, on machines that are not there."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
import sweep
from command import REPOSITORY

FLAGS = ["--config=configs/quickstart.py", "--config.seeds=(0, 1)"]
SCRIPTS = {
  "tpu_vm.sh": ["--spot", "name", "zone", "v5litepod-8"],
  "gpu.sh": ["me@host"],
  "slurm.sh": ["--nodes=2", "--gpus=4", "--sbatch=--partition=large"],
}
LENGTHGEN = "bin/lengthgen"
# In place of what the scripts call; it writes down each call.
TOOL = """#!{python}
import json, pathlib, sys
log = pathlib.Path("{log}")
calls = [json.loads(x) for x in log.read_text().splitlines()]
call = [pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]
log.write_text("".join(json.dumps(x) + "\\n" for x in [*calls, call]))
{answer}
"""


@pytest.fixture
def launch(tmp_path):
  """run(script, *words, answer): the script among such tools; its output, and
  the calls of tools. `answer` is Python, of `call` and the earlier `calls`."""
  log, tools = tmp_path / "log", tmp_path / "tools"
  tools.mkdir()
  path = f"{tools}{os.pathsep}{os.environ['PATH']}"

  def run(script, *words, answer="", code=0):
    if script != "slurm.sh" and not (REPOSITORY / ".git").exists():
      pytest.skip("it sends the last commit, and this is no clone")
    log.write_text("")
    text = TOOL.format(python=sys.executable, log=log, answer=answer)
    for name in ("gcloud", "ssh", "rsync", "sbatch"):
      (tools / name).write_text(text)
      (tools / name).chmod(0o755)
    command = [REPOSITORY / "launch" / script, *map(str, words)]
    env = os.environ | {"PATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == code, done.stderr
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    return done, calls

  return run


def runs_lengthgen(call: list[str]) -> bool:
  return any(LENGTHGEN in word for word in call)


def arguments_of_lengthgen(texts) -> list[str]:
  """The arguments of `lengthgen` in the one line of texts that runs it."""
  (line,) = [x for text in texts for x in text.splitlines() if LENGTHGEN in x]
  words = shlex.split(line)
  (place,) = [i for i, word in enumerate(words) if word.endswith(LENGTHGEN)]
  return words[place + 1 :]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_dry_run_prints_the_commands_and_runs_none(script, launch, tmp_path):
  workdir = tmp_path / "run"
  words = ["--dry-run", *SCRIPTS[script], workdir, "--", *FLAGS]
  done, calls = launch(script, *words)
  assert not calls and not workdir.exists()
  lines = [x for x in done.stderr.splitlines() if x.startswith("+ ")]
  assert lines and len(done.stderr.splitlines()) == len(lines)
  assert FLAGS[0] in done.stdout + done.stderr
  # A wrong line prints the usage, and runs nothing.
  done, calls = launch(script, "--bogus", *words, code=2)
  assert not calls and "--dry-run" in done.stderr


# A slice that does not exist, is preempted while it runs, and then lasts.
PREEMPTED = """
creations = [x for x in calls if "create" in x]
text = " ".join(call)
if "describe" in call:
  if not creations: sys.exit(1)
  runs = [x for x in calls if any("bin/lengthgen" in w for w in x)]
  lost = len(creations) == 1 and runs
  workers = "10.0.0.1;10.0.0.2"
  state = "PREEMPTED" if lost else "READY"
  print(workers if "networkEndpoints" in text else state)
if "bin/lengthgen" in text and len(creations) == 1: sys.exit(255)
"""


def test_a_preempted_slice_is_created_again(launch, tmp_path):
  words = ["--bucket=b/runs", *SCRIPTS["tpu_vm.sh"], tmp_path / "run"]
  _, calls = launch("tpu_vm.sh", *words, "--", *FLAGS, answer=PREEMPTED)
  steps = [
    next((w for w in ("create", "delete", "rsync") if w in call), "run")
    for call in calls
    if {"create", "delete", "rsync"} & set(call) or runs_lengthgen(call)
  ]
  assert steps == ["create", "run", "delete", "create", "run", "rsync"]
  first, second = filter(runs_lengthgen, calls)
  assert first == second and "--worker=all" in first
  expected = [*FLAGS, "--workdir=../bucket", "--multihost"]
  assert arguments_of_lengthgen(first) == expected


def test_results_of_a_gpu_machine_come_back_after_failure(launch, tmp_path):
  answer = 'if "bin/lengthgen" in call[-1]: sys.exit(143)'
  (tmp_path / "run").mkdir()
  words = ["me@host", tmp_path / "run", "--", *FLAGS]
  _, calls = launch("gpu.sh", *words, answer=answer, code=143)
  (command,) = filter(runs_lengthgen, calls)
  assert arguments_of_lengthgen(command)[:2] == FLAGS
  upload, download = (x for x in calls if x[:2] == ["rsync", "-a"])
  local, remote = upload[2:]
  assert local == f"{tmp_path}/run/" and download[2:] == [remote, local]
  assert remote.startswith("me@host:lengthgen/run_run_")
  assert calls.index(download) == len(calls) - 1


def test_a_stopped_slurm_job_is_queued_again(launch, tmp_path):
  """The job is run by a shell whose srun is stopped."""
  words = [*SCRIPTS["slurm.sh"], tmp_path / "run", "--", *FLAGS]
  job = launch("slurm.sh", "--dry-run", *words)[0].stdout
  srun = f"srun() {{ printf '%s\\n' \"$@\"; return $code; }}; cd {tmp_path}\n"
  for code, requeued in ((143, True), (1, False), (0, False)):
    text = f"code={code}; SLURM_JOB_ID=7\n{srun}"
    text += "again() { echo again; exit; }\n"
    text += job.replace("exec scontrol", "again")  # exec calls no function
    shell = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
    lines = shell.stdout.splitlines()
    assert ("again" in lines) == requeued
    assert shell.returncode == (0 if requeued else code)
    assert lines[2:4] == FLAGS and "--multihost" in lines
  _, ((_, *flags),) = launch("slurm.sh", *words)
  assert {"--nodes=2", "--ntasks-per-node=4", "--partition=large"} < set(flags)


# Sweeps.


# In place of lengthgen: writes its arguments beside the root of its workdir and
# fails at 1 of the grid.
CALLED = """
import pathlib, sys
(path,) = [x.partition("=")[2] for x in sys.argv if "--workdir" in x]
path, fails = pathlib.Path(path), "--config.eval.seed=1" in sys.argv
root = path if "--mode=report" in sys.argv else path.parent
if root != path: path.mkdir(exist_ok=True)
with open(root / "calls", "a") as log: print(*sys.argv[1:], file=log)
sys.exit(fails)
"""


def test_a_sweep_runs_what_is_not_done(tmp_path, monkeypatch, capsys):
  """It names what failed, and reports all; a dry run spreads the rest."""
  monkeypatch.setattr(sweep, "LENGTHGEN", (sys.executable, "-c", CALLED))
  words = [f"--root={tmp_path}", "--config=quickstart.py"]
  words.append("--grid=eval.seed=0,1,2")
  monkeypatch.setattr(sys, "argv", ["sweep.py", *words])
  good, bad, last = (job for job, _ in sweep.jobs(sweep.parse(words)))
  for points in ("012", "1"):
    with pytest.raises(SystemExit, match=f"failed: {bad}"):
      sweep.main()
    *lines, report = (tmp_path / "calls").read_text().splitlines()
    (tmp_path / "calls").unlink()
    assert [line[-1] for line in lines] == list(points)
    assert "--mode=report" in report
  assert not (bad / sweep.DONE).exists()
  (last / sweep.DONE).unlink()
  dry = [*words, "--devices=cuda:0,cuda:1", "--dry-run", "--"]
  capsys.readouterr()
  monkeypatch.setattr(sweep, "LENGTHGEN", ("lengthgen",))
  for seeds, places in (([], (0, 1)), (["--config.seeds=(0, 1)"], (0, 1, 0))):
    monkeypatch.setattr(sys, "argv", ["sweep.py", *dry, *seeds])
    sweep.main()  # with other seeds nothing is done
    out = capsys.readouterr().out.splitlines()
    assert (f"== {good} is done" in out) == (not seeds)
    lines = [shlex.split(x) for x in out if not x.startswith("==")]
    devices = [["env", f"CUDA_VISIBLE_DEVICES={n}"] for n in places]
    assert [line[:2] for line in lines] == devices
    assert all(line[len(line) - len(seeds) :] == seeds for line in lines)


def test_a_wrong_flag_is_refused_in_one_line(monkeypatch):
  for flag, words in (
    ("--devices=gpu:0", "--devices: 'gpu:0' must be"),
    ("--config=x/quickstart.py", "several points would share r/quickstart"),
    ("--config=absent.py", "--config=absent.py: no file"),
    ("--grid=positions.kind=rope,ropee", "positions.kind='ropee': choose"),
    (
      "--grid=train.steps=1,2 -- --config.train.steps=3",
      "--grid=train.steps=1,2: train.steps is also set",
    ),
  ):
    arguments = ["--root=r", "--config=quickstart.py", *flag.split()]
    monkeypatch.setattr(sys, "argv", ["sweep.py", *arguments])
    with pytest.raises(SystemExit, match=f"^sweep: {words}.*$"):
      sweep.main()


# In place of lengthgen: waits until all jobs have begun, then prints its place.
MEET = """
import os, pathlib, sys, time
path, *paths = map(pathlib.Path, sys.argv[1:])
path.write_text("")
for _ in range(10_000):
  if all(x.exists() for x in paths): break
  time.sleep(0.01)
print(os.environ["JAX_PLATFORMS"], os.environ.get("HOST"), os.getcwd())
sys.exit(path.name == "bad")
"""


@pytest.mark.skipif(not shutil.which("taskset"), reason="keeps to a core")
def test_jobs_run_at_once_on_devices_and_hosts(tmp_path, monkeypatch):
  tools = tmp_path / "tools"
  tools.mkdir()
  text = "#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\n"
  text += 'cd /; HOST=$1 exec sh -c "$2"\n'
  (tools / "ssh").write_text(text)
  (tools / "ssh").chmod(0o755)
  monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
  monkeypatch.setattr(sweep, "LENGTHGEN", (sys.executable, "-c", MEET))
  names = "one", "two", "bad"
  paths = {name: str(tmp_path / name) for name in names}
  commands = {x: [[paths[x], *paths.values()]] for x in names}
  jobs = [(tmp_path / f"run_{x}", commands[x]) for x in names]
  core = f"cpu:{min(os.sched_getaffinity(0))}"
  slots = [("", core), ("first", core), ("second", core)]
  codes = {path: code for path, code, _ in sweep.run_jobs(jobs, slots)}
  assert codes == {workdir: workdir.name == "run_bad" for workdir, _ in jobs}
  logs = [(workdir / "log.txt").read_text().split() for workdir, _ in jobs]
  assert {log[0] for log in logs} == {"cpu"}
  assert {log[1] for log in logs} == {"None", "first", "second"}
  assert {log[2] for log in logs} == {os.getcwd()}


def test_a_sweep_that_is_stopped_stops_its_runs(tmp_path):
  """SIGTERM ends every run, which saves, and nothing else begins."""
  child = tmp_path / "child"
  code = f"""
import pathlib, signal, sys
sys.path.insert(0, {str(REPOSITORY / "launch")!r})
import sweep
run = "import os, time; open({str(child)!r}, 'w').write(str(os.getpid()))"
sweep.LENGTHGEN = (sys.executable, "-c", run + "; time.sleep(60)")
jobs = [(pathlib.Path({str(tmp_path)!r}, str(n)), [[]]) for n in range(3)]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
list(sweep.run_jobs(jobs))
"""
  words = [sys.executable, "-c", code]
  process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
  while not (child.exists() and child.read_text()):
    assert process.poll() is None
    time.sleep(0.02)
  process.send_signal(signal.SIGTERM)
  assert process.wait(timeout=30) == 143
  with pytest.raises(ProcessLookupError):
    os.kill(int(child.read_text()), 0)
  assert process.stdout.read().splitlines() == [f"== {tmp_path / '0'}"]
