#!/bin/bash
# run.sh KAON FOLDER: `kaon quantize FOLDER` killed at many moments leaves no folder or a whole one under the name it was
# given, `--resume` ends in the same bytes, and a full disk gives one line of error and leaves nothing behind.
kaon=$1 folder=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
wrong=0
say() {
  echo "$1"
  wrong=1
}
quantize=("$kaon" quantize "$folder" --config config.json --calib "$folder/truth.npz" -q)
echo '{"scheme": "w4c", "algorithms": ["gptq"]}' > config.json

began=$(date +%s%N)
"${quantize[@]}" -o whole > /dev/null || exit 1
took=$(($(date +%s%N) - began))

moments=24
for i in $(seq $moments); do
  after=$(printf '%d.%09d' $((took * i / moments / 1000000000)) $((took * i / moments % 1000000000)))
  flags=()
  [ $((i % 2)) = 0 ] && flags=(--resume)
  timeout -s KILL "$after" "${quantize[@]}" -o out "${flags[@]}" > /dev/null 2>&1
  [ ! -e out ] || diff -r whole out || say "killed after $after s: not whole"
  if [ -e out ]; then rm -rf out; fi
done
"${quantize[@]}" -o out --resume > /dev/null || say "what killed runs left is not gone on with"
diff -r whole out || say "resumed: other bytes"
[ "$(ls)" = "$(printf 'config.json\nout\nwhole')" ] || say "left behind: $(ls)"

# Files may have 2 KiB: as on a full disk, room is asked for and not given.
(
  trap '' XFSZ
  ulimit -f 2
  exec "${quantize[@]}" -o full > out.txt 2> err.txt
)
[ $? = 1 ] || say "a full disk: ended with $?"
[ "$(grep -c . err.txt)" = 1 ] || say "a full disk: said $(cat err.txt)"
grep -q 'kaon: .*full.*: no room for [0-9]* bytes: ' err.txt || say "a full disk: said $(cat err.txt)"
[ -z "$(ls -d full* 2> /dev/null)" ] || say "a full disk: left $(ls -d full*)"
exit $wrong
