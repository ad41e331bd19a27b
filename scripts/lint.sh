#!/usr/bin/env bash
# clang-format and clang-tidy. A build folder of its own: clang-tidy cannot read GCC's precompiled headers.
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
cmake -G Ninja -S . -B $build -DCMAKE_CXX_COMPILER=clang++-16 -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
  -DKAON_THREADS=std -DKAON_TESTS=OFF -DKAON_BENCH=OFF >$build.log || { cat $build.log; exit 1; }
# The OpenMP backend is not part of this build: clang has no omp.h of its own here. libtorch's headers do not compile
# with clang in C++20 mode (they use vectors of an incomplete type), so only what is said about src/ counts.
log=$build/clang-tidy.log
printf '%s\n' "${files[@]}" | grep -E '^src/.*\.cpp$' | grep -vE '_test\.cpp$|parallel_openmp\.cpp$' |
  xargs -P "${JOBS:-2}" -n 1 clang-tidy-16 --quiet -p $build --extra-arg=-ferror-limit=0 >$log 2>/dev/null || true
if grep -E "^$PWD/src/[^ ]+: (warning|error):" $log | sort -u; then
  exit 1
fi
echo "lint: clean"
