#!/usr/bin/env bash
# Builds the fuzzers with clang and runs each until RUNS executions or SECONDS, starting from its committed corpus.
#   fuzz.sh RUNS SECONDS
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/fuzz

cmake -G Ninja -S . -B $build -DCMAKE_CXX_COMPILER=clang++-16 -DCMAKE_BUILD_TYPE=RelWithDebInfo -DKAON_FUZZ=ON \
  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DKAON_THREADS=std -DKAON_MIMALLOC=OFF -DKAON_TESTS=OFF \
  -DKAON_BENCH=OFF >$build.log || { cat $build.log; exit 1; }
cmake --build $build --target fuzzers
for fuzzer in "$build"/fuzzers/*; do
  name=$(basename "$fuzzer")
  found=$build/corpus/$name
  mkdir -p "$found"
  echo "fuzz: $name"
  "$fuzzer" -runs="$1" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$build/" "$found" "fuzz/corpus/$name" 2>&1 | tail -n 12
done
