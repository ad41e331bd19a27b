#!/usr/bin/env bash
# run_console.sh KAON DOCUMENT: runs each line `$ command` of the document's ```console blocks, in order, in one fresh
# folder from which examples/ can be seen. Fails where a command does.
set -uo pipefail
kaon=$1
document=$(realpath "$2")
if ! dpkg -s dataset-fashion-mnist >/dev/null 2>&1 && [ -z "${KAON_DATA:-}" ]; then
  echo "no Fashion-MNIST (apt install dataset-fashion-mnist): the commands of $document were not run"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
mkdir bin
ln -s "$(realpath "$kaon")" bin/kaon
ln -s "$(dirname "$document")/../examples" examples
export PATH="$folder/bin:$PATH"
count=0
while IFS= read -r command; do
  echo "\$ $command"
  bash -c "$command" || { echo "failed: $command"; exit 1; }
  count=$((count + 1))
done < <(sed -n '/^```console/,/^```$/p' "$document" | sed -n 's/^\$ //p')
[ "$count" -gt 0 ] || { echo "$document has no commands"; exit 1; }
echo "$count commands ran"
