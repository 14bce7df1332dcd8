#!/usr/bin/env python3
"""Loads checkpoints that diffquant wrote in transformers and compares logits.

    check_logits.py LOGITS_PROGRAM TOKENIZER_FOLDER TEXT CHECKPOINT...

LOGITS_PROGRAM is build/release/logits. CHECKPOINT is a folder, or a .gguf file.
Needs torch and transformers, with compressed-tensors, gptqmodel or gguf as the format
asks. Asymmetric folders are compared by their weights instead, unpacked with the functions
of compressed-tensors 0.20, which unpacks but does not load them. Prints the largest
difference of any logit as a share of the largest logit; exit status 1 where it is above
2e-3. Where inputs are rounded as well (int8), a value that lies a rounding error from the
middle of two codes takes another code here than there, and all that follows differs by
what a code is worth (over 200 tokens of the pair transformers in f32 and in f64 differ by
1.5e-2 and 2.0e-2 of a logit in this way, f32 here and there by 1.5e-2 and 1.7e-2): there
single tokens are run, and the limit is for the median of them.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

LIMIT = 2e-3


def ours(program, checkpoint, ids):
    with tempfile.TemporaryDirectory() as folder:
        ids_file, out = pathlib.Path(folder, "ids"), pathlib.Path(folder, "out")
        ids_file.write_text(" ".join(map(str, ids)))
        subprocess.run([program, checkpoint, ids_file, out], check=True)
        return np.fromfile(out, dtype=np.float32).reshape(len(ids), -1)


def groups_of(folder):
    config = json.loads(pathlib.Path(folder, "config.json").read_text())
    groups = config.get("quantization_config", {}).get("config_groups", {})
    return list(groups.values())


def by_weights(folder):
    return any(not g["weights"]["symmetric"] for g in groups_of(folder))


def plain_model(folder):
    """The architecture with weights decoded outside of any quantizer."""
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
    bits = groups_of(folder)[0]["weights"]["num_bits"]
    t = {}
    for file in pathlib.Path(folder).glob("*.safetensors"):
        t.update(load_file(file))
    for scale in [n for n in t if n.endswith(".weight_scale")]:
        m = scale.removesuffix("_scale")
        s, zero = t.pop(scale).float(), t.pop(m + "_zero_point", None)
        if m + "_packed" in t:
            shape = torch.Size(t.pop(m + "_shape").tolist())
            q = unpack_from_int32(t.pop(m + "_packed"), bits, shape).float()
        else:
            q = t[m].float()
        n, k = q.shape
        if zero is not None:
            zero = unpack_from_int32(zero, bits, torch.Size([n, s.shape[1]]), packed_dim=0)
            q = (q.view(n, s.shape[1], -1) - zero.float()[:, :, None]).view(n, k)
        t[m] = (q.view(n, s.shape[1], -1) * s[:, :, None]).view(n, k)
    config = AutoConfig.from_pretrained(folder)
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32,
                                             attn_implementation="eager")
    missing, left = model.load_state_dict(t, strict=False)
    assert not left and set(missing) <= {"lm_head.weight"}, (missing, left)
    model.tie_weights()
    return model


def theirs(checkpoint, ids):
    path = pathlib.Path(checkpoint)
    where = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
    folder = path.parent if path.suffix == ".gguf" else path
    if not where and by_weights(folder):
        model = plain_model(folder)
    else:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", **where)
    with torch.no_grad():
        return model.eval()(torch.tensor([ids])).logits[0].float().numpy()


def rounds_inputs(checkpoint):
    return pathlib.Path(checkpoint).is_dir() and any(
        g["input_activations"] for g in groups_of(checkpoint))


def share(program, checkpoint, ids):
    a, b = ours(program, checkpoint, ids), theirs(checkpoint, ids)
    return float(np.abs(a - b).max() / np.abs(b).max())


def main():
    program, tokenizer, text, *checkpoints = sys.argv[1:]
    words = pathlib.Path(text).read_text()[:4000]
    ids = AutoTokenizer.from_pretrained(tokenizer)(words).input_ids[:200]
    worst = 0.0
    for checkpoint in checkpoints:
        if rounds_inputs(checkpoint):
            off = float(np.median([share(program, checkpoint, [i]) for i in ids[:15]]))
        else:
            off = share(program, checkpoint, ids)
        # NaN must not pass for a small difference
        worst = max(worst, off if off == off else float("inf"))
        print(f"{checkpoint}: {off:.2e}")
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    sys.exit(not worst <= LIMIT)


if __name__ == "__main__":
    main()
