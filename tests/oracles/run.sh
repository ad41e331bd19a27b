#!/bin/sh
# run.sh PYTHON SCRIPT ARGUMENTS...: runs the script, or says that there is no such Python.
if [ -x "$1" ]; then exec "$@"; fi
echo "no oracles: $1 does not exist (make $(basename "${1%/bin/python}") brings it); $(basename "$2") was not compared"
