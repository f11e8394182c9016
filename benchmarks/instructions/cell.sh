#!/usr/bin/env bash
# cell.sh: instructions that the comparison of a cell takes, with SSE2, with NEON and in the portable code.
#
# Each is run 1,000 and 3,000 times; half the difference of the instructions, less that of an empty comparison, is
# what one takes (and 2, which is about what the empty one does itself). Needs gcc and valgrind; for NEON
# aarch64-linux-gnu-gcc and qemu-aarch64-static.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
    echo '#include <stdint.h>'
    awk '/^    """$/ { inside = !inside; next } inside' "$here/../../src/ringhash/_cells.pxd"
} >"$work/cell.h"

executed() { # PROGRAM TIMES
    case $1 in
        *neon | *arm*) qemu-aarch64-static -singlestep -d nochain,exec -D "$work/log" "$1" "$2" || true
            wc -l <"$work/log" ;;
        *) { valgrind --tool=cachegrind --cache-sim=no \
            --cachegrind-out-file=/dev/null "$1" "$2" || true; } 2>&1 | sed -n 's/.*I *refs: *//p' | tr -d , ;;
    esac
}
cost() { echo $(($(executed "$1" 3000) - $(executed "$1" 1000))); }

count() { # NAME COMPILER FLAGS...
    local name=$1 compiler=$2
    shift 2
    command -v "$compiler" >/dev/null || { echo "$name: no $compiler here"; return; }
    "$compiler" -O3 -static -I"$work" "$@" "$here/cell.c" -o "$work/$name"
    "$compiler" -O3 -static -I"$work" "$@" -DEMPTY "$here/cell.c" -o "$work/empty-$name"
    awk -v name="$name" -v all="$(cost "$work/$name")" -v empty="$(cost "$work/empty-$name")" \
        'BEGIN { printf "%-14s %5.1f instructions\n", name, (all - empty) / 2000 }'
}
count sse2 gcc
count portable gcc -DRINGHASH_PORTABLE
count neon aarch64-linux-gnu-gcc
count arm-portable aarch64-linux-gnu-gcc -DRINGHASH_PORTABLE
