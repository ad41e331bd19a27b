#!/usr/bin/env bash
# Brings further real models for the tests into build/models, where the collection beside this repository has a script
# for it.
set -euo pipefail
cd "$(dirname "$0")/.."
more=../shared/models/more

if [ ! -e "$more" ]; then
  echo "models: no ../shared/models beside the repository" >&2
  exit 1
fi
# The oracles' Python has pip.
if ! PATH=$PWD/build/oracles/bin:$PATH bash "$more" build/models >/dev/null; then
  echo "models: could not be fetched (no network?)" >&2
  exit 1
fi
