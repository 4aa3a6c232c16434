#!/usr/bin/env bash
# Runs one lengthgen command on a machine with GPUs that ssh reaches:
#   launch/gpu.sh [--dry-run] HOST WORKDIR -- --config=... [--mode=...]
# Copies the last commit and the workdir (if there is one) to lengthgen/ there,
# installs it, runs on all GPUs, and brings the workdir back, even if the
# command fails or is interrupted; then the same line goes on. Both ends need
# rsync.
# With HOST "-" the command runs here, in the environment .venv_gpu.
#   --dry-run  prints the commands and runs none of them
set -euo pipefail
usage() {
  sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

dry=''
if [ "${1:-}" = --dry-run ]; then
  dry=1
  shift
fi
[ $# -ge 4 ] && [ "$3" = "--" ] || usage
host=$1 workdir=$(realpath -m "$2")
shift 3
root=$(cd "$(dirname "$0")/.." && pwd)
flags=$(printf '%q ' "$@")

say() { # prints a command, then runs it unless --dry-run is set
  echo "+$(printf ' %q' "$@")" >&2
  [ -n "$dry" ] || "$@"
}

if [ "$host" = - ]; then
  cd "$root"
  [ -d .venv_gpu ] || say python3 -m venv .venv_gpu
  say .venv_gpu/bin/pip install -q -e '.[cuda]'
  say .venv_gpu/bin/lengthgen "$@" --workdir="$workdir"
  exit
fi

archive=$(mktemp --suffix=.tar.gz)
trap 'rm -f "$archive"' EXIT
# Workdirs of one name in different folders have different places there.
place=lengthgen/run_$(basename "$workdir")_$(cksum <<<"$workdir" | cut -d' ' -f1)
say git -C "$root" archive --format=tar.gz --output="$archive" HEAD
say rsync -q "$archive" "$host:lengthgen.tar.gz"
say ssh "$host" "set -e
mkdir -p $(printf '%q' "$place") && tar xzf lengthgen.tar.gz -C lengthgen
cd lengthgen && { [ -d .venv ] || python3 -m venv .venv; }
.venv/bin/pip install -q -e '.[cuda]'"
[ ! -d "$workdir" ] || say rsync -a "$workdir/" "$host:$place/"
code=0
# -t gives it a terminal, so that Ctrl-C reaches the command, which then saves.
say ssh -t "$host" "cd lengthgen &&
.venv/bin/lengthgen $flags --workdir=$(printf '%q' "${place#*/}")" || code=$?
say mkdir -p "$workdir"
say rsync -a "$host:$place/" "$workdir/"
exit "$code"
