#!/usr/bin/env bash
# lookups.sh [PYTHON]: instructions of one lookup from Python. Needs gcc and valgrind; PYTHON has ringhash.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${1:-$here/../../.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -O2 -shared -fPIC "$here/mark.c" -o "$work/mark.so"
OPENBLAS_NUM_THREADS=1 PYTHONHASHSEED=0 valgrind -q --tool=callgrind --instr-atstart=no \
    --callgrind-out-file="$work/out" "$python" "$here/lookups.py" "$work/mark.so"
for number in $(seq 1 99); do
    [ -e "$work/out.$number" ] || break
    awk '/^desc: Trigger: Client Request: / { sub(/^desc: Trigger: Client Request: /, ""); name = $0 }
        /^(totals|summary): / { total = $2 }
        END { if (name) printf "%-20s %8.1f\n", name, total / 2000 }' "$work/out.$number"
done
