#!/usr/bin/env bash
# budget.sh [--update] [NVCC] - what ptxas makes of each kernel, against budget.txt: a change of
# registers or of shared memory is an edit to that file; stack and spills are errors.
# Registers are those of one nvcc: of another, only stack and spills are looked at.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
file=$root/tests/cuda/budget.txt
update=
if [ "${1:-}" = --update ]; then
    update=yes
    shift
fi
nvcc=${1:-nvcc}
if ! command -v "$nvcc" > /dev/null; then
    echo "SKIP: no nvcc"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Of one file: a line a kernel and architecture. The flags are those of kernels/cuda.cmake.
measure() {
    local name
    name=$(basename "$1" .cu)
    "$nvcc" -std=c++17 -O3 -DNDEBUG -fmad=false -I"$root" -lineinfo -Xptxas=-v \
        -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=sm_90 \
        -c "$1" -o "$work/$name.o" 2> "$work/$name.log" || {
        cat "$work/$name.log" >&2
        return 1
    }
    awk -v file="$name" '
        # _Z11tile_kernelILi64ELb1EEv8AttnCall -> tile_kernel<64,1>; at: place in m
        function word(    n) {
            match(substr(m, at), /^[0-9]+/)
            n = substr(m, at, RLENGTH) + 0
            at += RLENGTH + n
            return substr(m, at - n, n)
        }
        function literal(    value) {       # after L: a type, a value, E
            if (substr(m, at, 1) ~ /[0-9]/)
                word()
            else
                at++
            match(substr(m, at), /^[^E]*/)
            value = substr(m, at, RLENGTH)
            at += RLENGTH + 1
            sub(/^n/, "-", value)
            return value
        }
        function argument(    c) {
            c = substr(m, at, 1)
            if (c ~ /[0-9]/)
                return word() arguments()
            at++
            if (c == "L")
                return literal()
            return c == "f" ? "float" : c == "d" ? "double" : c == "i" ? "int" : c
        }
        function arguments(    list) {
            if (substr(m, at, 1) != "I")
                return ""
            for (at++; at <= length(m) && substr(m, at, 1) != "E";)
                list = list (list == "" ? "" : ",") argument()
            at++
            return "<" list ">"
        }
        function short() {
            at = 3                          # after _Z, and L of what is local to its file
            if (substr(m, at, 1) == "L")
                at++
            return word() arguments()
        }
        /Compiling entry function/ {
            split($0, part, "\047")
            m = part[2]
            arch = part[4]
            kernel = short()
        }
        /bytes stack frame/ { stack = $1; spills = $5 + $9 }
        /: Used [0-9]+ registers/ {
            shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
            match($0, /Used [0-9]+/)
            print file "." kernel, arch, substr($0, RSTART + 5, RLENGTH - 5), stack, spills,
                  shared
        }' "$work/$name.log"
}

# Two at a time: each takes seconds of one core.
for source in "$root"/kernels/cuda/*.cu; do
    name=$(basename "$source" .cu)
    (measure "$source" > "$work/$name.lines" || touch "$work/failed") &
    while [ "$(jobs -r | wc -l)" -ge 2 ]; do
        wait -n
    done
done
wait
[ -e "$work/failed" ] && exit 1
version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
{
    echo "# Kernels as nvcc $version makes them; tests/cuda/budget.sh --update writes this."
    echo "# kernel, architecture, registers, bytes of stack, of spills, of static shared memory"
    cat "$work"/*.lines | LC_ALL=C sort
} > "$work/budget.txt"

bad=$(awk '!/^#/ && ($4 || $5)' "$work/budget.txt")
if [ -n "$bad" ]; then
    printf 'stack or spills:\n%s\n' "$bad"
    exit 1
fi
if [ -n "$update" ]; then
    cp "$work/budget.txt" "$file"
    exit 0
fi
if [ "$(head -n 1 "$file")" != "$(head -n 1 "$work/budget.txt")" ]; then
    echo "no stack and no spills; registers of nvcc $version are not those of budget.txt"
    exit 0
fi
diff "$file" "$work/budget.txt" && exit 0
echo "< was agreed on, > is; tests/cuda/budget.sh --update agrees to that"
exit 1
