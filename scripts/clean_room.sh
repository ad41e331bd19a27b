#!/usr/bin/env bash
# Runs the README's two commands where nothing is installed: a bare Debian root with make, git and ca-certificates, a
# clone of HEAD, and ../shared where it is. Says which command failed, with the end of its log. Needs root.
#   clean_room.sh [COMMAND...]   other commands in their place
set -euo pipefail
cd "$(dirname "$0")/.."
suite=bookworm
logs=build/clean-room

# The part that mounts: in a mount namespace of its own, so that its mounts end with it, however it ends.
if [ "${1:-}" = --inside ]; then
  root=$2
  shift 2
  mount --rbind /dev "$root/dev"
  mount --rbind /proc "$root/proc"
  if [ -d ../shared ]; then
    mount --bind ../shared "$root/work/shared"
    mount -o remount,bind,ro "$root/work/shared"
  fi
  # What reaches the network from this machine reaches it from there.
  settings=()
  while IFS= read -r -d '' setting; do
    [[ $setting =~ ^([a-zA-Z]*_proxy|PIP_[A-Z_]*|JOBS)= ]] && settings+=("$setting")
  done < <(env -0)
  for command in "$@"; do
    log=$logs/$(tr -cs '[:alnum:]\n' _ <<<"$command").log
    echo "clean-room: $command ($log)"
    if ! chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "${settings[@]}" \
      sh -c "cd /work/kaon && $command" >"$log" 2>&1 </dev/null; then
      tail -n 40 "$log"
      echo "clean-room: '$command' failed; all it said is in $log" >&2
      exit 1
    fi
    tail -n 1 "$log"
  done
  echo "clean-room: passed"
  exit 0
fi

if [ "$(id -u)" -ne 0 ]; then
  echo "clean-room: needs root, to make a root filesystem and to mount into it" >&2
  exit 1
fi
[ $# -gt 0 ] || set -- "make quickstart" "make test"
[ -z "$(git status --porcelain)" ] || echo "clean-room: HEAD is tried, without what is not committed"

mkdir -p $logs
room=$(mktemp -d "${TMPDIR:-/var/tmp}/kaon-clean-room.XXXXXX")
trap 'rm -rf --one-file-system "$room"' EXIT
trap 'exit 130' INT TERM HUP
root=$room/root

echo "clean-room: a bare $suite in $root"
sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
  [ ! -s "$file" ] || sources+=("$file")
done
if ! mmdebstrap --mode=root --variant=minbase --include=make,git,ca-certificates "$suite" "$root" "${sources[@]}" \
  >$logs/mmdebstrap.log 2>&1; then
  tail -n 20 $logs/mmdebstrap.log
  echo "clean-room: no root could be made; all mmdebstrap said is in $logs/mmdebstrap.log" >&2
  exit 1
fi
for file in /etc/resolv.conf /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
  [ ! -e $file ] || cp -L $file "$root$file"
done
mkdir -p "$root/work/shared"
git clone -q --no-checkout . "$root/work/kaon"
git -C "$root/work/kaon" checkout -q --detach "$(git rev-parse HEAD)"
[ -d ../shared ] || rmdir "$root/work/shared"

unshare --mount --propagation private -- "$PWD/scripts/clean_room.sh" --inside "$root" "$@"
