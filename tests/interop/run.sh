#!/usr/bin/env bash
# run.sh - writes the example pair in every format and loads each in transformers.
#   bash tests/interop/run.sh PYTHON [FOLDER]
# PYTHON has torch, transformers, compressed-tensors, gptqmodel, optimum, gguf.
# Not part of the tests: it needs several GB of packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=$1
out=${2:-$(mktemp -d)}
program=build/release/diffquant
cmake --build --preset release --target diffquant --target logits -- -s
text=(--text tests/pair/heldout.txt --windows 32 --max-tokens 20000)

# write NAME MODEL OPTION...: a checkpoint out/MODEL-NAME
write() {
    local name=$1 model=$2
    shift 2
    "$program" quantize "tests/pair/$model" -o "$out/$model-$name" --quiet --force "$@" |
        tail -n 2 | head -n 1
}

for model in diff base; do
    write w4-g32-gptq "$model" --bits 4 --group 32 "${text[@]}"
    write w4-g64-asym "$model" --bits 4 --group 64 --asym
    write w4-channel "$model" --bits 4 --group channel
    write w8 "$model" --bits 8
    write w8-g128 "$model" --bits 8 --group 128 --method rtn
    write w6-g64 "$model" --bits 6 --group 64
    write w6-wide "$model" --bits 6 --group 64 --wide6
    write int8 "$model" --format int8
    write mixed "$model" --target-bits 5.5 --group 64
    write rotated "$model" --bits 4 --group 64 --rotate "${text[@]}"
    write awq "$model" --bits 4 --group 64 --awq "${text[@]}"
    write gptq4 "$model" --format gptq --bits 4 --group 64 "${text[@]}" --floats f16
    write gptq8 "$model" --format gptq --bits 8 --group 128 --floats f16
done
for type in F16 Q8_0 Q6_K Q5_K_M Q4_K_M Q4_K_S Q4_0 Q4_1; do
    write "$type.gguf" base --gguf-type "$type"
done
"$python" tests/interop/check_logits.py build/release/logits tests/pair/diff \
    tests/pair/heldout.txt "$out"/*
