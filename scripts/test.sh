#!/usr/bin/env bash
# Builds, fetches what the tests compare with, runs every ctest. The last line is `N passed, N failed`.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p build

finish() {
  echo "$1 passed, $2 failed" | tee build/test_summary.txt
  [ "$2" -eq 0 ]
  exit
}

# Fetched while the compiler works.
{
  scripts/oracles.sh || echo "Tests that ask an oracle will say that it is missing."
  scripts/models.sh || echo "Tests that need those models will say that they are missing."
} &
# Configured anew, so that what has been installed since is found.
cmake --preset release && cmake --build build
status=$?
wait
if [ "$status" -ne 0 ]; then
  echo "The build failed."
  finish 0 1
fi

ctest --test-dir build --output-on-failure -j "${JOBS:-2}" | tee build/test.log
status=${PIPESTATUS[0]}
line=$(grep -E '^[0-9]+% tests passed' build/test.log)
if [[ $line =~ ([0-9]+)\ tests?\ failed\ out\ of\ ([0-9]+) ]]; then
  finish $((BASH_REMATCH[2] - BASH_REMATCH[1])) "${BASH_REMATCH[1]}"
fi
echo "ctest ended with status $status and no result."
finish 0 1
