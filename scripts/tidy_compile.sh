#!/usr/bin/env bash
# tidy_compile.sh COMPILER ARGUMENT...: what the build of lint.sh runs in the place of the compiler. The source file goes
# through clang-tidy, and the object is an empty file that stands for "clean": ninja then knows from the dependencies
# what has to be looked at again.
set -euo pipefail
compiler=$1
shift
object= depfile= source= flags=()
while [ $# -gt 0 ]; do
  case $1 in
    -o) object=$2; shift ;;
    -MF) depfile=$2; shift ;;
    -c) source=$2; shift ;;
    -MT) shift ;;
    -MD) ;;
    *) flags+=("$1") ;;
  esac
  shift
done

root=$(cd "$(dirname "$0")/.." && pwd)
if [[ $(realpath "$source") == "$root"/src/* ]]; then
  # libtorch's headers do not compile with clang in C++20 mode (they use vectors of an incomplete type), so only what is
  # said about src/ counts.
  log=$(clang-tidy-16 --quiet --extra-arg=-ferror-limit=0 "$(realpath "$source")" -- "${flags[@]}" 2>/dev/null || true)
  if grep -E "^$root/src/[^ ]+: (warning|error):" <<<"$log" | sort -u; then
    exit 1
  fi
fi
"$compiler" "${flags[@]}" -M -MT "$object" -MF "$depfile" "$source" 2>/dev/null
: >"$object"
