#!/usr/bin/env bash
# install.sh - installs a build into an empty folder, and uses what is there: the
# program, the man page, and the library by its pkg-config file.
#   bash tests/install.sh BUILD_FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/usr" >/dev/null
"$work/usr/bin/diffquant" --version
test -s "$work/usr/share/man/man1/diffquant.1"
cat >"$work/use.c" <<'C'
#include <stdio.h>
#include "kernels/arena.h"
#include "analysis/model.h"
int main(int argc, char **argv)
{
    Arena     arena = {0};
    ModelInfo info;
    Backend   be;
    if (backend_open(&be, "cpu", 1) != OK)
        return 1;
    backend_close(&be);
    if (model_info_open(&info, &arena, argv[argc - 1]) != OK)
        return 1;
    printf("%s, %lld layers\n", info.arch, (long long)info.config.n_layers);
    model_info_close(&info);
    arena_close(&arena);
    return 0;
}
C
pc=$(find "$work/usr" -name diffquant.pc)
flags=$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --define-variable=prefix="$work/usr" \
    --define-variable=libdir="$(dirname "$(find "$work/usr" -name libdq_kernels.a)")" \
    --define-variable=includedir="$work/usr/include/diffquant" --cflags --libs diffquant)
# shellcheck disable=SC2086
gcc -std=gnu11 "$work/use.c" -o "$work/use" $flags
"$work/use" tests/golden/models/diff_gqa | grep "DiffLlamaForCausalLM, 3 layers"
