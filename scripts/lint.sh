#!/usr/bin/env bash
# clang-format and clang-tidy. A build folder of its own: clang-tidy cannot read GCC's precompiled headers. What was
# clean before and has not changed, headers included, is not looked at again.
#   lint.sh            checks
#   lint.sh --format   formats the files in place
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(find src tests bench fuzz tools -name '*.h' -o -name '*.cpp' | sort)

if [ "${1:-}" = --format ]; then
  exec clang-format-16 -i "${files[@]}"
fi
clang-format-16 --dry-run -Werror "${files[@]}"

build=build/lint
mkdir -p $build
# The OpenMP backend is not part of this build: clang has no omp.h of its own here.
cmake -G Ninja -S . -B $build -DCMAKE_CXX_COMPILER=clang++-16 -DCMAKE_CXX_COMPILER_LAUNCHER="$PWD/scripts/tidy_compile.sh" \
  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DKAON_THREADS=std -DKAON_TESTS=OFF -DKAON_BENCH=OFF -DKAON_TOGETHER=OFF >$build.log ||
  { cat $build.log; exit 1; }
# Other checks: every file is to be looked at again.
if ! cmp -s .clang-tidy $build/clang-tidy.used; then
  ninja -C $build -t clean >/dev/null
  cp .clang-tidy $build/clang-tidy.used
fi
log=$build/clang-tidy.log
if ! ninja -C $build -k 0 -j "${JOBS:-2}" lint >$log 2>&1; then
  findings=$(grep -oE "^$PWD/src/[^ ]+: (warning|error):.*" $log | sort -u || true)
  [ -n "$findings" ] || findings=$(tail -n 20 $log)
  echo "$findings"
  exit 1
fi
echo "lint: clean"
