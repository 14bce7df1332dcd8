#!/usr/bin/env bash
# demo.sh - builds diffquant and compares the two example models with it.
#   bash reports/demo.sh [FOLDER]     results go to FOLDER, "out" if none is given
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash reports/deps.sh
cmake --preset release >/dev/null
cmake --build --preset release -j "$(nproc)" --target diffquant -- --no-print-directory -s
exec build/release/diffquant compare tests/pair/diff tests/pair/base \
    --text tests/pair/heldout.txt --task tests/pair/retrieval.jsonl -o "${1:-out}"
