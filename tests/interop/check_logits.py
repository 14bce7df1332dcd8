#!/usr/bin/env python3
"""Loads checkpoints that diffquant wrote in transformers and compares logits.

    check_logits.py LOGITS_PROGRAM TOKENIZER_FOLDER TEXT CHECKPOINT...

LOGITS_PROGRAM is build/release/logits. CHECKPOINT is a folder, or a .gguf file.
Needs torch and transformers, with compressed-tensors, gptqmodel or gguf as the format
asks. Prints the largest difference of any logit as a share of the largest logit; exit
status 1 where it is above 2e-3.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

LIMIT = 2e-3


def ours(program, checkpoint, ids):
    with tempfile.TemporaryDirectory() as folder:
        ids_file, out = pathlib.Path(folder, "ids"), pathlib.Path(folder, "out")
        ids_file.write_text(" ".join(map(str, ids)))
        subprocess.run([program, checkpoint, ids_file, out], check=True)
        return np.fromfile(out, dtype=np.float32).reshape(len(ids), -1)


def theirs(checkpoint, ids):
    path = pathlib.Path(checkpoint)
    where = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
    folder = path.parent if path.suffix == ".gguf" else path
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **where)
    with torch.no_grad():
        return model.eval()(torch.tensor([ids])).logits[0].float().numpy()


def main():
    program, tokenizer, text, *checkpoints = sys.argv[1:]
    words = pathlib.Path(text).read_text()[:4000]
    ids = AutoTokenizer.from_pretrained(tokenizer)(words).input_ids[:200]
    worst = 0.0
    for checkpoint in checkpoints:
        a, b = ours(program, checkpoint, ids), theirs(checkpoint, ids)
        share = float(np.abs(a - b).max() / np.abs(b).max())
        # NaN must not pass for a small difference
        worst = max(worst, share if share == share else float("inf"))
        print(f"{checkpoint}: {share:.2e}")
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    sys.exit(not worst <= LIMIT)


if __name__ == "__main__":
    main()
