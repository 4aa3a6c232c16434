#!/usr/bin/env bash
# Submits one lengthgen command to SLURM, as one process for each GPU:
#   launch/slurm.sh [OPTIONS] WORKDIR -- --config=... [--mode=...]
# The folder of this program, its .venv and WORKDIR must be on a file system
# that all nodes share. Two minutes before its time is up, the run is told to
# save, and is queued again, as it is after a preemption. Defaults are in
# parentheses:
#   --nodes=N      number of nodes (1)
#   --gpus=N       GPUs of each node (1); 0 for a run on CPUs
#   --time=T       time limit (24:00:00)
#   --sbatch=FLAG  a flag of sbatch, like --sbatch=--partition=NAME; repeatable
#   --dry-run      prints the job and the command, and submits nothing
# Not yet tried on a cluster.
set -euo pipefail
usage() {
  sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

nodes=1 gpus=1 time=24:00:00 more=() dry=''
while [ $# -gt 0 ] && [ "${1#--}" != "$1" ] && [ "$1" != -- ]; do
  case $1 in
  --nodes=?*) nodes=${1#*=} ;;
  --gpus=?*) gpus=${1#*=} ;;
  --time=?*) time=${1#*=} ;;
  --sbatch=?*) more+=("${1#*=}") ;;
  --dry-run) dry=1 ;;
  *) usage ;;
  esac
  shift
done
[ $# -ge 3 ] && [ "$2" = "--" ] || usage
workdir=$(realpath -m "$1")
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
flags=$(printf '%q ' "$@")
tasks=$((gpus > 0 ? gpus : 1))
several=''
if [ $((nodes * tasks)) -gt 1 ]; then several=' --multihost'; fi
command=(sbatch "--job-name=$(basename "$workdir")" "--nodes=$nodes"
  "--ntasks-per-node=$tasks" "--time=$time" --signal=TERM@120 --requeue
  --open-mode=append "--output=$workdir/slurm.log")
[ "$gpus" = 0 ] || command+=("--gpus-per-node=$gpus")
command+=("${more[@]}")

# 143: stopped by SIGTERM, after saving.
job="#!/usr/bin/env bash
cd $(printf '%q' "$root") || exit 1
srun --kill-on-bad-exit=1 .venv/bin/lengthgen $flags--workdir=$(printf '%q' \
  "$workdir")$several
code=\$?
[ \$code != 143 ] || exec scontrol requeue \"\$SLURM_JOB_ID\"
exit \$code"
echo "+$(printf ' %q' "${command[@]}")" >&2
if [ -n "$dry" ]; then
  echo "$job"
else
  mkdir -p "$workdir"
  echo "$job" | "${command[@]}"
fi
