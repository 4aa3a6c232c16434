#!/usr/bin/env bash
# Creates a TPU VM (if there is none of that name), installs the last commit on
# it, runs one lengthgen command and copies the workdir back:
#   launch/tpu_vm.sh NAME ZONE TYPE WORKDIR -- --config=... [--mode=...]
# A run uses one chip, so a single-host TYPE such as v5litepod-1 is what it
# takes. The VM stays, and costs, until it is deleted:
#   gcloud compute tpus tpu-vm delete NAME --zone=ZONE
# Not yet tried on a TPU.
set -euo pipefail
if [ $# -lt 6 ] || [ "$5" != "--" ]; then
  echo "usage: $0 NAME ZONE TYPE WORKDIR -- LENGTHGEN_FLAGS" >&2
  exit 2
fi
name=$1 zone=$2 type=$3 workdir=$4
shift 5
root=$(cd "$(dirname "$0")/.." && pwd)
archive=$(mktemp --suffix=.tar.gz)
trap 'rm -f "$archive"' EXIT
on_vm="gcloud compute tpus tpu-vm"
$on_vm describe "$name" --zone="$zone" >/dev/null 2>&1 ||
  $on_vm create "$name" --zone="$zone" \
    --accelerator-type="$type" --version=tpu-ubuntu2204-base
git -C "$root" archive --format=tar.gz HEAD >"$archive"
$on_vm scp "$archive" "$name":lengthgen.tar.gz --zone="$zone" --worker=0
flags=$(printf '%q ' "$@")
# The image has Python 3.10; uv brings a newer one.
$on_vm ssh "$name" --zone="$zone" --worker=0 --command="
  set -e; mkdir -p lengthgen && tar xzf lengthgen.tar.gz -C lengthgen
  cd lengthgen && python3 -m pip install -q --user uv
  [ -d .venv ] || python3 -m uv venv -q --python 3.11 .venv
  python3 -m uv pip install -q -e '.[tpu]'
  .venv/bin/lengthgen $flags --workdir=run"
mkdir -p "$workdir"
$on_vm scp --recurse "$name":lengthgen/run/. "$workdir" \
  --zone="$zone" --worker=0
