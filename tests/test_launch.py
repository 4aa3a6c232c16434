"""The scripts of launch/, on machines that are not there."""

import importlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
from command import REPOSITORY

FLAGS = ["--config=configs/quickstart.py", "--config.seeds=(0, 1)"]
SCRIPTS = {
  "tpu_vm.sh": ["--spot", "name", "zone", "v5litepod-8"],
  "gpu.sh": ["me@host"],
  "slurm.sh": ["--nodes=2", "--gpus=4", "--sbatch=--partition=large"],
}
RUN = "bin/lengthgen"
# What the scripts call; it says that it was, and with what.
TOOL = """#!{python}
import json, pathlib, sys
log = pathlib.Path("{log}")
calls = [json.loads(x) for x in log.read_text().splitlines()]
call = [pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]
log.write_text("".join(json.dumps(x) + "\\n" for x in [*calls, call]))
{answer}
"""


@pytest.fixture
def launch(tmp_path, monkeypatch):
  """run(script, *words, answer): the script among tools that are none; what it
  printed, and the calls of tools. `answer` is Python, of `call` and `calls`."""
  log, tools = tmp_path / "log", tmp_path / "tools"
  tools.mkdir()
  path = f"{tools}{os.pathsep}{os.environ['PATH']}"

  def run(script, *words, answer="", code=0):
    log.write_text("")
    text = TOOL.format(python=sys.executable, log=log, answer=answer)
    for name in ("gcloud", "ssh", "rsync", "sbatch"):
      (tools / name).write_text(text)
      (tools / name).chmod(0o755)
    done = subprocess.run(
      [REPOSITORY / "launch" / script, *map(str, words)],
      capture_output=True,
      text=True,
      env=os.environ | {"PATH": path},
    )
    assert done.returncode == code, done.stderr
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    return done, calls

  return run


def words_of(line: str) -> list[str]:
  """A line as a shell splits it."""
  script = f"printf '%s\\0' {line}"
  done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
  return done.stdout.split("\0")[:-1]


def told(lines) -> list[str]:
  """What lengthgen is told in the one of these lines that runs it."""
  (line,) = [x for text in lines for x in text.splitlines() if RUN in x]
  words = shlex.split(line)
  return words[next(i for i, x in enumerate(words) if x.endswith(RUN)) + 1 :]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_dry_run_prints_the_commands_and_runs_none(script, launch, tmp_path):
  workdir = tmp_path / "run"
  args = ["--dry-run", *SCRIPTS[script], workdir, "--", *FLAGS]
  done, calls = launch(script, *args)
  assert not calls and not workdir.exists()
  lines = [x for x in done.stderr.splitlines() if x.startswith("+ ")]
  assert lines and len(done.stderr.splitlines()) == len(lines)
  words = [word for line in lines for word in words_of(line[2:])]
  assert told([done.stdout, *words])[:2] == FLAGS


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_wrong_line_is_told_how_to_write_it(script, launch):
  own = SCRIPTS[script]
  for words in ([], [*own, "run"], ["--bogus", *own, "run", "--", *FLAGS]):
    done, calls = launch(script, *words, code=2)
    assert not calls
    assert "--dry-run" in done.stderr


# A slice that is not there, is preempted while it runs, and then lasts.
PREEMPTED = """
made = [x for x in calls if "create" in x]
said = " ".join(call)
if "describe" in call:
  if not made: sys.exit(1)
  runs = [x for x in calls if any("bin/lengthgen" in w for w in x)]
  lost = len(made) == 1 and runs
  workers = "10.0.0.1;10.0.0.2"
  state = "PREEMPTED" if lost else "READY"
  print(workers if "networkEndpoints" in said else state)
if "bin/lengthgen" in said and len(made) == 1: sys.exit(255)
"""


def test_a_slice_that_is_preempted_is_made_again_and_the_run_goes_on(
  launch, tmp_path
):
  args = ["--bucket=b/runs", *SCRIPTS["tpu_vm.sh"], tmp_path / "run"]
  args += ["--", *FLAGS]
  done, calls = launch("tpu_vm.sh", *args, answer=PREEMPTED)
  doing = [
    next((w for w in ("create", "delete", "rsync") if w in call), "run")
    for call in calls
    if {"create", "delete", "rsync"} & set(call)
    or any("bin/lengthgen" in word for word in call)
  ]
  assert doing == ["create", "run", "delete", "create", "run", "rsync"]
  runs = [x for x in calls if any("bin/lengthgen" in w for w in x)]
  assert runs[0] == runs[1] and "--worker=all" in runs[0]
  wanted = [*FLAGS, "--workdir=../bucket", "--multihost"]
  assert told(runs[0]) == wanted


def test_a_command_that_fails_is_not_taken_for_a_preemption(launch, tmp_path):
  """Its code is the script's; several workers without a bucket are refused."""
  answer = """
said = " ".join(call)
if "networkEndpoints" in said: print("10.0.0.1")
elif "describe" in call: print("READY")
if "bin/lengthgen" in said: sys.exit(3)
"""
  args = [*SCRIPTS["tpu_vm.sh"], tmp_path / "run", "--", *FLAGS]
  _, calls = launch("tpu_vm.sh", *args, answer=answer, code=3)
  assert not any("create" in call for call in calls)
  last = calls[-1]  # what there is comes back all the same
  assert "scp" in last and str(tmp_path / "run") in last
  two = answer.replace('"10.0.0.1"', '"10.0.0.1;10.0.0.2"')
  done, calls = launch("tpu_vm.sh", *args, answer=two, code=2)
  assert "--bucket" in done.stderr
  assert not any("lengthgen.tar.gz" in w for call in calls for w in call)


def test_results_of_a_gpu_machine_come_back_even_if_the_command_fails(
  launch, tmp_path
):
  answer = 'if "bin/lengthgen" in call[-1]: sys.exit(143)'
  (tmp_path / "run").mkdir()
  args = ["me@host", tmp_path / "run", "--", *FLAGS]
  _, calls = launch("gpu.sh", *args, answer=answer, code=143)
  sent, back = (x for x in calls if x[:2] == ["rsync", "-a"])
  here, there = f"{tmp_path}/run/", "me@host:lengthgen/run_run/"
  assert sent[2:] == [here, there] and back[2:] == [there, here]
  assert calls.index(back) == len(calls) - 1


def test_a_job_that_was_told_to_stop_is_queued_again(launch, tmp_path):
  """What SLURM is handed, run by a shell whose srun is stopped."""
  args = [*SCRIPTS["slurm.sh"], tmp_path / "run", "--", *FLAGS]
  done, _ = launch("slurm.sh", "--dry-run", *args)
  job = done.stdout
  srun = f"srun() {{ printf '%s\\n' \"$@\"; return $code; }}; cd {tmp_path}\n"
  for code, queued in ((143, True), (1, False), (0, False)):
    head = f"code={code}; SLURM_JOB_ID=7\n{srun}"
    head += "again() { echo again; exit; }\n"
    text = job.replace("exec scontrol", "again")  # exec calls no function
    ran = subprocess.run(
      ["bash", "-c", head + text], capture_output=True, text=True
    )
    lines = ran.stdout.splitlines()
    assert ("again" in lines) == queued
    assert ran.returncode == (0 if queued else code)
    assert lines[2:4] == FLAGS and "--multihost" in lines
  _, calls = launch("slurm.sh", *args)
  ((_, *words),) = calls
  assert {"--nodes=2", "--ntasks-per-node=4", "--partition=large"} < set(words)


# Sweeps.


@pytest.fixture
def sweep(monkeypatch):
  monkeypatch.syspath_prepend(str(REPOSITORY / "launch"))
  return importlib.import_module("sweep")


def test_a_sweep_spreads_points_and_leaves_out_what_is_done(
  sweep, tmp_path, monkeypatch, capsys
):
  args = [f"--root={tmp_path}", "--config=c.py:a", "--grid=x.y=1,2,3"]
  args += ["--devices=cuda:0,cuda:1", "--dry-run"]
  words = ["sweep.py", *args, "--", "--config.seeds=(0, 1)"]
  monkeypatch.setattr(sys, "argv", words)
  sweep.main()
  lines = [shlex.split(x) for x in capsys.readouterr().out.splitlines()]
  assert [line[:2] for line in lines] == [
    ["env", f"CUDA_VISIBLE_DEVICES={n}"] for n in (0, 1, 0)
  ]
  assert [line[-2:] for line in lines] == [
    [f"--config.x.y={n}", "--config.seeds=(0, 1)"] for n in (1, 2, 3)
  ]
  assert not list(tmp_path.iterdir())
  jobs = list(sweep.jobs(sweep.parse(words[1:])))
  workdir, own = jobs[1]
  workdir.mkdir()
  sweep.end(workdir, own)
  sweep.main()
  out = capsys.readouterr().out
  assert f"{workdir} is done" in out and out.count("CUDA_VISIBLE") == 2
  monkeypatch.setattr(sys, "argv", [*words, "--config.eval.seed=1"])
  sweep.main()  # another job is not done
  assert capsys.readouterr().out.count("CUDA_VISIBLE") == 3


def test_points_of_two_files_have_two_workdirs(sweep, tmp_path):
  args = [f"--root={tmp_path}", "--config=a.py:x", "--config=b.py:x"]
  names = [path.name for path, _ in sweep.jobs(sweep.parse(args))]
  assert names == ["a-x", "b-x"]
  args = [f"--root={tmp_path}", "--config=a.py:x,y", "--config=a.py"]
  names = [path.name for path, _ in sweep.jobs(sweep.parse(args))]
  assert names == ["x-y", "a"]


def test_a_sweep_remembers_what_ended_well(sweep, tmp_path, monkeypatch):
  """And says what failed; the report is of all."""
  monkeypatch.setattr(sweep, "LENGTHGEN", (sys.executable, "-c", CODE))
  words = [f"--root={tmp_path}", "--config=c.py:a", "--grid=x.y=0,1"]
  monkeypatch.setattr(sys, "argv", ["sweep.py", *words])
  with pytest.raises(SystemExit) as left:
    sweep.main()
  good, bad = (workdir for workdir, _ in sweep.jobs(sweep.parse(words)))
  assert left.value.code == f"failed: {bad}"
  assert (good / sweep.ENDED).exists() and not (bad / sweep.ENDED).exists()
  told = (tmp_path / "calls").read_text().splitlines()
  assert [x.split()[0] for x in told] == ["--config=c.py:a"] * 2 + [
    "--mode=report"
  ]
  with pytest.raises(SystemExit):
    sweep.main()
  told = (tmp_path / "calls").read_text().splitlines()[3:]
  assert len(told) == 2 and "--config.x.y=1" in told[0]


# Says what it was told beside the root of its workdir; 1 of the grid fails.
CODE = """
import pathlib, sys
(path,) = [x.partition("=")[2] for x in sys.argv if "--workdir" in x]
path, one = pathlib.Path(path), "--config.x.y=1" in sys.argv
root = path if "--mode=report" in sys.argv else path.parent
if root != path: path.mkdir(exist_ok=True)
with open(root / "calls", "a") as log: print(*sys.argv[1:], file=log)
sys.exit(one)
"""


@pytest.mark.parametrize("device", ("gpu:0", "cuda", "cuda:x"))
def test_a_device_that_is_none_is_refused(sweep, device, capsys):
  args = ["--root=r", "--config=c", f"--devices={device}"]
  with pytest.raises(SystemExit):
    sweep.parse(args)
  assert device in capsys.readouterr().err.splitlines()[-1]


# Waits until all three have begun, then says where it is.
MEET = """
import os, pathlib, sys, time
own, *all_ = map(pathlib.Path, sys.argv[1:])
own.write_text("")
while not all(x.exists() for x in all_): time.sleep(0.01)
print(os.environ["JAX_PLATFORMS"], os.environ.get("HOST"), os.getcwd())
sys.exit(own.name == "bad")
"""


@pytest.mark.skipif(not shutil.which("taskset"), reason="keeps to a core")
def test_jobs_run_at_once_on_devices_and_hosts(sweep, tmp_path, monkeypatch):
  tools = tmp_path / "tools"
  tools.mkdir()
  text = "#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\n"
  text += 'cd /; HOST=$1 exec sh -c "$2"\n'
  (tools / "ssh").write_text(text)
  (tools / "ssh").chmod(0o755)
  monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
  monkeypatch.setattr(sweep, "LENGTHGEN", (sys.executable, "-c", MEET))
  names = ("one", "two", "bad")
  began = [str(tmp_path / name) for name in names]
  jobs = [
    (tmp_path / f"run_{name}", [own, *began])
    for name, own in zip(names, began, strict=True)
  ]
  core = f"cpu:{min(os.sched_getaffinity(0))}"
  places = [("", core), *sweep.slots((core,), ("first", "second"))]
  codes = {workdir: code for workdir, code, _ in sweep.run(jobs, places)}
  assert codes == {workdir: workdir.name == "run_bad" for workdir, _ in jobs}
  logs = [(workdir / "log.txt").read_text().split() for workdir, _ in jobs]
  assert {log[0] for log in logs} == {"cpu"}
  assert {log[1] for log in logs} == {"None", "first", "second"}
  assert {log[2] for log in logs} == {os.getcwd()}


def test_a_place_without_its_tool_fails_and_does_not_hang(
  sweep, tmp_path, monkeypatch
):
  monkeypatch.setenv("PATH", str(tmp_path))
  ((_, code, _),) = sweep.run([(tmp_path / "a", [])], [("host", "")])
  assert code == 127


def test_a_sweep_that_is_stopped_stops_its_runs(tmp_path):
  """SIGTERM ends every run, which saves, and nothing else begins."""
  child = tmp_path / "child"
  code = f"""
import pathlib, signal, sys
sys.path.insert(0, {str(REPOSITORY / "launch")!r})
import sweep
run = "import os, time; open({str(child)!r}, 'w').write(str(os.getpid()))"
sweep.LENGTHGEN = (sys.executable, "-c", run + "; time.sleep(60)")
jobs = [(pathlib.Path({str(tmp_path)!r}, str(n)), []) for n in range(3)]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
list(sweep.run(jobs))
"""
  process = subprocess.Popen(
    [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
  )
  while not (child.exists() and child.read_text()):
    assert process.poll() is None
    time.sleep(0.02)
  process.send_signal(signal.SIGTERM)
  assert process.wait(timeout=30) == 143
  with pytest.raises(ProcessLookupError):
    os.kill(int(child.read_text()), 0)
  assert process.stdout.read().splitlines() == [f"== {tmp_path / '0'}"]
