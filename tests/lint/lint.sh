#!/usr/bin/env bash
# lint.sh - the rules of the house that a compiler does not check. Quiet if all hold.
set -u
export LC_ALL=C.UTF-8   # a character is a character, however many bytes
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
found=0
# complain RULE LINES: prints them when there are any
complain() {
    [ -z "$2" ] && return
    found=1
    printf '%s:\n%s\n' "$1" "$2"
}
floors=(kernels analysis quant reports)
sources=$(find "${floors[@]}" tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh')
kernels=$(find kernels -name '*.cu' -o -name '*.cuh')

# A floor includes itself and those before it; a sub-folder's headers are private.
allowed=
for floor in "${floors[@]}"; do
    allowed="${allowed:+$allowed|}$floor"
    complain "$floor includes a floor above it" "$(grep -rnE '#include "' "$floor" \
        --include='*.[ch]' --include='*.cu' --include='*.cuh' |
        grep -vE "#include \"($allowed)/")"
    for other in "${floors[@]}"; do
        [ "$floor" = "$other" ] && continue
        complain "$floor includes a private header of $other" \
            "$(grep -rnE "#include \"$other/[^\"]*/" "$floor" --include='*.[ch]')"
    done
done

code=$(printf '%s\n' $sources | grep -v '^tests/')
complain "memory from elsewhere than arena.c" "$(grep -nE \
    '\b(malloc|calloc|realloc|aligned_alloc|strdup|strndup|asprintf)\(' $code |
    grep -v '^kernels/arena.c:')"
complain "only reports/cli prints or exits" "$(grep -nE '\b(printf|puts|putchar|exit)\(' \
    $code | grep -vE '^(reports/cli/|kernels/status.c:)')"
complain "fast-math" "$(grep -rnE 'ffast-math|Ofast|use_fast_math' CMakeLists.txt \
    CMakePresets.json "${floors[@]}")"
complain "inline PTX outside cuda_ptx.cuh" "$(grep -nE '\basm\b' $kernels |
    grep -v '^kernels/cuda/cuda_ptx.cuh:')"
complain "a kernel launch that nobody checks" "$(for f in $kernels; do
    launches=$(grep -cE '<<<' "$f")
    [ "$(grep -cE 'cuda_launched\(' "$f")" -ge "$launches" ] || echo "$f"; done)"
complain "unfinished" "$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' $sources)"
complain "a backend's #ifdef above kernels" "$(grep -nE '#if.*CUDA' $code |
    grep -v '^kernels/')"
complain "a first line that does not name the file and its job" "$(for f in $sources; do
    head -n 1 "$f" | grep -qF "$(basename "$f") - " || echo "$f"; done)"
complain "file names that are not unique" "$(printf '%s\n' $sources |
    sed 's|.*/||' | sort | uniq -d)"
complain "lines over 100 characters" "$(grep -nE '^.{101,}' $sources)"
exit $found
