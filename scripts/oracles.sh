#!/usr/bin/env bash
# Makes build/oracles, a Python environment with the pinned peers that tests and benchmarks compare with; with the
# argument `lm` build/oracles-lm, the large ones for language models, with `gptq` build/oracles-gptq. No test needs these.
set -euo pipefail
cd "$(dirname "$0")/.."
name=oracles${1:+-$1}
oracles=build/$name
pinned=scripts/$name.txt

! cmp -s "$pinned" "$oracles/pinned.txt" || exit 0
rm -rf "$oracles"
if python3 -m venv "$oracles" &&
   "$oracles/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 20 -r "$pinned"; then
  cp "$pinned" "$oracles/pinned.txt"
  echo "oracles: $oracles is ready"
else
  rm -rf "$oracles"
  echo "oracles: $oracles could not be installed (no network?)" >&2
  exit 1
fi
