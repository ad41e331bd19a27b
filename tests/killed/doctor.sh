#!/bin/bash
# doctor.sh KAON MOMENTS MODEL FLAG...: `kaon doctor MODEL FLAG...` twice gives the same files but for times; so it does
# when it is killed at MOMENTS random moments and resumed. Used by hand: it takes MOMENTS + 2 whole runs.
kaon=$1 moments=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0
say() {
  echo "$1"
  wrong=1
}
asked=("$@")
doctor() {
  "$kaon" doctor "${asked[@]}" "$@" -q
}
# What must not differ; pages and the journal hold times in between.
facts() {
  for file in $(cd "$1" && find . -type f | LC_ALL=C sort); do
    case $file in
      *.html | *.jsonl) echo "$file" ;;
      */diagnosis.json) echo "$file" && sed -E 's/"(seconds|peak_mb)": [^,]*/"\1"/' "$1/$file" ;;
      *) echo "$file $(sha256sum < "$1/$file")" ;;
    esac
  done
}

began=$(date +%s%N)
doctor -o "$work/whole" | grep " as prescribed (" || exit 1
took=$((($(date +%s%N) - began) / 1000000))
facts "$work/whole" > "$work/expected"
doctor -o "$work/twice" > /dev/null || exit 1
facts "$work/twice" | diff "$work/expected" - || say "the same run twice: other findings"

RANDOM=7 # the same moments each time
for _ in $(seq "$moments"); do
  after=$((RANDOM * took / 32768))
  "$kaon" doctor "${asked[@]}" -o "$work/out" -q > /dev/null 2>&1 & # no function: its shell would be killed instead
  sleep "$((after / 1000)).$(printf %03d $((after % 1000)))"
  kill -KILL $! 2> /dev/null
  wait $! 2> /dev/null
  lines=0
  [ ! -e "$work/out/journal.jsonl" ] || lines=$(wc -l < "$work/out/journal.jsonl")
  doctor -o "$work/out" --resume > /dev/null || say "killed after $after ms: not gone on with"
  echo "killed after $after of $took ms, $lines lines in the journal"
  facts "$work/out" | diff "$work/expected" - || say "other findings"
  rm -rf "$work/out"
done
left=$(ls -A "$work" | grep -vxE 'whole|twice|expected')
[ -z "$left" ] || say "left behind: $left"
exit $wrong
