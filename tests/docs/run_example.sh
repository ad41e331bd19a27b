#!/usr/bin/env bash
# run_example.sh PROGRAM: the library's quickstart on a part of the data, in a folder of its own.
set -euo pipefail
if ! dpkg -s dataset-fashion-mnist >/dev/null 2>&1 && [ -z "${KAON_DATA:-}" ]; then
  echo "no Fashion-MNIST (apt install dataset-fashion-mnist): the example was not run"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$1" 1 10000 | tee out.txt
for scheme in float w8 w8a8c w4g32; do
  grep -qE "^$scheme +accuracy 0\.[78]" out.txt || { echo "$scheme: no accuracy above 0.7"; exit 1; }
done
ls model.onnx model.w8.onnx model.w8a8c.onnx model.w4g32.onnx
