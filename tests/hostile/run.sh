#!/bin/sh
# run.sh KAON FILES LIST: runs the command on files that were made to break it. Each line of LIST is
#   CODE | WORDS OF STDERR | ARGUMENTS
# and the command must end with CODE within 60 s, in 2 GiB, having said one line on stderr that holds WORDS (none for
# code 0). FILES is where the arguments' @ points to.
kaon=$1 files=$2 list=$3
if [ ! -d "$files" ]; then
  echo "$files is not there: nothing was run"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ran=0 wrong=0
while IFS='|' read -r code words arguments; do
  case $code in '' | '#'*) continue ;; esac
  code=$(echo $code)
  words=$(echo "$words" | sed 's/^ *//; s/ *$//')
  command=$(echo "$arguments" | sed "s#@#$files/#g; s#%#$work/#g")
  (cd "$work" && eval "timeout 60 $kaon $command --memory 2048" >out 2>err)
  got=$?
  lines=$(grep -c . "$work/err")
  ran=$((ran + 1))
  problem=
  [ "$got" = "$code" ] || problem="ended with $got, not $code"
  if [ "$code" = 1 ]; then
    [ "$lines" = 1 ] || problem="$problem; $lines lines on stderr"
    grep -qF -- "$words" "$work/err" || problem="$problem; '$words' was not said"
  fi
  if [ -n "$problem" ]; then
    wrong=$((wrong + 1))
    echo "kaon$arguments: $problem"
    head -c 400 "$work/err"
  fi
done <"$list"
echo "$ran commands, $wrong went wrong"
[ "$wrong" = 0 ]
