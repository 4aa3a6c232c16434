#!/usr/bin/env bash
# Creates a TPU VM, installs the project on it and runs one lengthgen command:
#   launch/tpu_vm.sh NAME ZONE TYPE -- --config=... --workdir=PATH
# The same command that runs on a laptop runs there; jax finds the chips.
set -euo pipefail
if [ $# -lt 5 ] || [ "$4" != "--" ]; then
  echo "usage: $0 NAME ZONE TYPE -- LENGTHGEN_FLAGS" >&2
  exit 2
fi
name=$1 zone=$2 type=$3
shift 4
root=$(cd "$(dirname "$0")/.." && pwd)
gcloud compute tpus tpu-vm describe "$name" --zone="$zone" >/dev/null 2>&1 ||
  gcloud compute tpus tpu-vm create "$name" --zone="$zone" \
    --accelerator-type="$type" --version=tpu-ubuntu2204-base
git -C "$root" archive --format=tar.gz HEAD >/tmp/lengthgen.tar.gz
gcloud compute tpus tpu-vm scp /tmp/lengthgen.tar.gz "$name": \
  --zone="$zone" --worker=all
flags=$(printf '%q ' "$@")
gcloud compute tpus tpu-vm ssh "$name" --zone="$zone" --worker=all --command="
  set -e; mkdir -p lengthgen && tar xzf lengthgen.tar.gz -C lengthgen
  cd lengthgen && python3 -m venv .venv && . .venv/bin/activate
  pip install -q -e '.[tpu]' && lengthgen $flags"
