#!/usr/bin/env bash
# deps.sh PURPOSE...: installs the packages of packages.txt that are missing; touches nothing when none is.
set -euo pipefail
list=$(dirname "$0")/packages.txt

wanted=$(for purpose in "$@"; do sed -n "s/^$purpose: //p" "$list"; done | tr '\n' ' ')
if ! command -v dpkg-query >/dev/null; then
  echo "deps: not a Debian system; what is needed goes there by these names: $wanted" >&2
  exit 0
fi
missing=()
for package in $wanted; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "deps: installing ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "deps: neither root nor sudo; please install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
