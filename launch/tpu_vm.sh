#!/usr/bin/env bash
# Runs one lengthgen command on all workers of a TPU slice, until it is done:
#   launch/tpu_vm.sh [OPTIONS] NAME ZONE TYPE WORKDIR -- --config=... [--mode=...]
# Creates the slice NAME, of accelerator type TYPE, if there is none, installs
# the last commit on every worker, runs, and brings the workdir back. If the
# slice is preempted, it is created again and the run goes on: from its last
# checkpoint in the bucket, or, without a bucket, from the workdir as it was
# here.
#   --bucket=NAME/PATH  a folder of a storage bucket, as the workdir of all
#                       workers; a slice of several workers needs one
#   --spot              a preemptible slice, at a lower price
#   --version=IMAGE     the image of the workers (tpu-ubuntu2204-base)
#   --attempts=N        how often the slice may be created (20)
#   --delete            deletes the slice after success; else it stays and costs
#   --dry-run           prints the commands and runs none of them
# Not yet tried on a TPU.
set -euo pipefail
usage() {
  sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

bucket='' spot='' version=tpu-ubuntu2204-base attempts=20 delete='' dry=''
while [ $# -gt 0 ] && [ "${1#--}" != "$1" ]; do
  case $1 in
  --bucket=?*) bucket=${1#*=} ;;
  --spot) spot=--spot ;;
  --version=?*) version=${1#*=} ;;
  --attempts=?*) attempts=${1#*=} ;;
  --delete) delete=1 ;;
  --dry-run) dry=1 ;;
  *) usage ;;
  esac
  shift
done
[ $# -ge 6 ] && [ "$5" = "--" ] || usage
name=$1 zone=$2 type=$3 workdir=$4
shift 5
root=$(cd "$(dirname "$0")/.." && pwd)
archive=$(mktemp --suffix=.tar.gz)
trap 'rm -f "$archive"' EXIT
tpu=(gcloud compute tpus tpu-vm)
flags=$(printf '%q ' "$@")

say() { # prints a command, then runs it unless --dry-run is set
  echo "+$(printf ' %q' "$@")" >&2
  [ -n "$dry" ] || "$@"
}

state() { # prints READY, PREEMPTED, ...; nothing if there is no slice
  "${tpu[@]}" describe "$name" --zone="$zone" --format='value(state)' \
    2>/dev/null || true
}

workers() { # prints the number of workers
  "${tpu[@]}" describe "$name" --zone="$zone" \
    --format='value(networkEndpoints[].ipAddress)' | tr ';' '\n' | wc -l
}

on_all() { # runs a line of shell on every worker
  say "${tpu[@]}" ssh "$name" --zone="$zone" --worker=all --command="$1"
}

# Creates the slice unless it is READY, and sets fresh if it is new; fails if it
# cannot be created, for example for want of capacity.
create() {
  local now=''
  fresh=''
  [ -n "$dry" ] || now=$(state)
  case $now in
  READY) return ;;
  '') ;;
  *) say "${tpu[@]}" delete "$name" --zone="$zone" --quiet || return ;;
  esac
  say "${tpu[@]}" create "$name" --zone="$zone" \
    --accelerator-type="$type" --version="$version" ${spot:+"$spot"} || return
  fresh=1
}

install() { # installs the last commit and brings the workdir to every worker
  say git -C "$root" archive --format=tar.gz --output="$archive" HEAD
  say "${tpu[@]}" scp "$archive" "$name:lengthgen.tar.gz" --zone="$zone" \
    --worker=all
  # The image has Python 3.10; uv brings a newer one.
  on_all "set -e
mkdir -p lengthgen && tar xzf lengthgen.tar.gz -C lengthgen
cd lengthgen && python3 -m pip install -q --user uv
[ -d .venv ] || python3 -m uv venv -q --python 3.11 .venv
python3 -m uv pip install -q -e '.[tpu]'"
  if [ -n "$bucket" ]; then
    on_all "set -e
keys=/usr/share/keyrings/cloud.google.asc packages=https://packages.cloud.google.com/apt
command -v gcsfuse >/dev/null || {
  curl -fsSL \$packages/doc/apt-key.gpg | sudo tee \$keys >/dev/null
  echo \"deb [signed-by=\$keys] \$packages gcsfuse-\$(lsb_release -cs) main\" |
    sudo tee /etc/apt/sources.list.d/gcsfuse.list
  sudo apt-get update -q && sudo apt-get install -qy gcsfuse; }
mkdir -p bucket
mountpoint -q bucket ||
  gcsfuse --implicit-dirs --only-dir=${bucket#*/} ${bucket%%/*} bucket"
  elif [ -n "$fresh" ] && [ -d "$workdir" ]; then
    say "${tpu[@]}" scp --recurse "$workdir" "$name:lengthgen/run" \
      --zone="$zone" --worker=all
  fi
}

bring_back() { # copies the workdir to this machine
  say mkdir -p "$workdir"
  if [ -n "$bucket" ]; then
    say gcloud storage rsync --recursive "gs://$bucket" "$workdir"
  else
    say "${tpu[@]}" scp --recurse "$name:lengthgen/run/." "$workdir" \
      --zone="$zone" --worker=0
  fi
}

for attempt in $(seq "$attempts"); do
  if ! create; then
    echo "$0: $name was not created, attempt $attempt of $attempts" >&2
    sleep 60
    continue
  fi
  count=1
  [ -z "$bucket" ] || count=2 # a dry run assumes several with a bucket
  [ -n "$dry" ] || count=$(workers)
  if [ "$count" -gt 1 ] && [ -z "$bucket" ]; then
    echo "$0: $name has $count workers, which share a workdir: name one with" \
      "--bucket=NAME/PATH" >&2
    exit 2
  fi
  install
  command="cd lengthgen && .venv/bin/lengthgen $flags"
  command+="--workdir=$([ -n "$bucket" ] && echo ../bucket || echo run)"
  [ "$count" = 1 ] || command+=' --multihost'
  code=0
  on_all "$command" || code=$?
  if [ "$code" = 0 ]; then
    bring_back
    [ -z "$delete" ] || say "${tpu[@]}" delete "$name" --zone="$zone" --quiet
    exit 0
  fi
  now=$(state)
  if [ "$now" = READY ]; then # the command failed, not the slice
    bring_back || true
    exit "$code"
  fi
  echo "$0: $name is ${now:-gone}, attempt $attempt of $attempts" >&2
done
exit 1
