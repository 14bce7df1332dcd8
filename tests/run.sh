#!/usr/bin/env bash
# run.sh - builds and tests diffquant: a release build, then one with sanitizers.
#   bash tests/run.sh [release|sanitize]     both if none is named
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash reports/deps.sh
# Two tests at once share the cores: a thread that waits must not spin.
export OMP_WAIT_POLICY=passive
for preset in ${1:-release sanitize}; do
    echo "== $preset"
    cmake --preset "$preset" >/dev/null
    cmake --build --preset "$preset" -j "$(nproc)" -- --no-print-directory -s
    ctest --preset "$preset" -j "$(nproc)"
done
