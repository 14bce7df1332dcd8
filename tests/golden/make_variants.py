"""Writes the golden files of models that transformers has no class for.

    python make_variants.py               every case of variant_cases.py -> variants/NAME/
    python make_variants.py NAME...       these only
    python make_variants.py --check       recompute, compare with what is on disk, check the
                                          restatements themselves; writes nothing

variants/NAME/: config.json (not for unilm's), model.safetensors, expected.safetensors with
the tensors that make_golden.py describes, computed by restate/ in float64 from the stored
weights and kept in float32. lambda [L] is left out where lambda differs by token, and is 0,
as are the rows of logit_absmax [L,N], for layers without attention. bf16_loss is that of
the restatement run in bfloat16.

The restatements were compared once with the published code itself, its CUDA calls replaced
by plain sums, in float64: the hub's modeling_phi4flash.py gives all logits and hidden states
of phi4flash* to 5e-8 (the rounding of the file); unilm's multihead_flashdiff_2 and version 2
and Motif's own grouped_diff_attn give the attention of unilm_* and motif_* to 5e-16.

Needs what make_golden.py needs.
"""
import argparse
import importlib
import json
import math
import sys
import zlib

import safetensors.torch
import torch

import make_golden
import variant_checks
import variant_cases
from make_golden import rows_of, worst, worst_hidden
from restate import unilm

VARIANTS = make_golden.HERE / "variants"
# (lambda_q1 . lambda_k1, lambda_q2 . lambda_k2): above 1, below 0, in between.
LAMBDAS = [(0.9, 0.1), (0.1, 0.8), (0.2, 0.3)]


# --- weights -------------------------------------------------------------------------

def draw(name, shape, gain, gen):
    """Values large enough for every tensor to matter in the logits."""
    x = torch.randn(shape, generator=gen)
    if name.endswith("act_fn.weight"):
        return torch.tensor([0.5, -0.4, 0.7]) + 0.1 * x
    if name.endswith("act_fn.bias"):
        return 0.4 + 0.1 * x
    if name.endswith(("norm.weight", "subln.weight", ".D")):
        return 1 + 0.3 * x.clamp(-2, 2)
    if name.endswith("A_log"):
        return torch.log(torch.arange(1.0, shape[1] + 1)) + 0.3 * x
    if name.endswith("dt_proj.bias"):
        return -1.5 + x   # delta of about 0.05 to 1
    if name.endswith("bias"):
        return 0.3 * x
    if "embed_tokens" in name:
        return x
    if "conv1d" in name:
        return x / math.sqrt(shape[-1])
    if "q_proj" in name or "k_proj" in name or "Wqkv" in name:
        return x * gain / math.sqrt(shape[-1])
    return x / math.sqrt(shape[-1])


def set_lambdas(tensors, gen):
    """Vectors of random direction with the wished dot products."""
    stems = sorted({n[:-2] for n in tensors if n.endswith("lambda_q1")},
                   key=lambda n: int(n.split(".")[2]))
    for i, stem in enumerate(stems):
        for number, dot in zip("12", LAMBDAS[i % 3]):
            q = 0.5 * torch.randn(tensors[stem + "q1"].shape, generator=gen)
            k = 0.5 * torch.randn(q.shape, generator=gen)
            k += q * (dot - q @ k) / (q @ q)
            tensors[stem + "q" + number], tensors[stem + "k" + number] = q, k


def make_tensors(case):
    gen = torch.Generator().manual_seed(zlib.crc32(case["name"].encode()))
    tensors = {name: draw(name, shape, case["gain"], gen)
               for name, shape in case["shapes"].items()}
    set_lambdas(tensors, gen)
    return {name: t if any(f in name for f in case["f32"]) else t.bfloat16()
            for name, t in tensors.items()}


# --- running a restatement -----------------------------------------------------------

def in_dtype(tensors, dtype):
    """As the published code loads it: what it keeps in float32 stays so in bfloat16."""
    kept = dtype == torch.bfloat16 and ("lambda_q", "lambda_k", "A_log")
    return {name: t.float() if kept and any(k in name for k in kept) else t.to(dtype)
            for name, t in tensors.items()}


@torch.no_grad()
def run(case, tensors, sequences, dtype):
    forward = importlib.import_module("restate." + case["family"]).forward
    tensors = in_dtype(tensors, dtype)
    traces = [forward(tensors, case["config"], ids, dtype) for ids in sequences]
    got = {"logits": torch.cat([t.logits for t in traces]),
           "hidden": torch.cat([torch.stack([h.to(t.hidden[-1].dtype) for h in t.hidden])
                                for t in traces], 1),
           "logit_absmax": torch.stack([torch.stack(
               [a.to(torch.float64) for a in t.absmax]) for t in traces]).amax(0)}
    if not torch.is_tensor(traces[0].lam[0]) or traces[0].lam[0].ndim == 0:
        got["lambda"] = torch.tensor([float(v) for v in traces[0].lam], dtype=torch.float64)
    return {name: t.double() for name, t in got.items()}


def expect(case, tensors, sequences, rows):
    got = run(case, tensors, sequences, torch.float64)
    single, coarse = (run(case, tensors, sequences, t) for t in (torch.float32, torch.bfloat16))
    loss = [[worst(g["logits"], got["logits"]), worst_hidden(g["hidden"], got["hidden"])]
            for g in (single, coarse)]
    got["logits"], got["hidden"] = got["logits"][rows], got["hidden"][:, rows]
    got = {name: t.float() for name, t in got.items()}
    got["bf16_loss"] = torch.tensor(loss[1])
    got["ids"] = torch.cat(sequences).int()
    got["start"] = torch.tensor([0] + [len(s) for s in sequences]).cumsum(0).int()
    got["rows"] = torch.tensor(rows, dtype=torch.int32)
    print(f"{case['name']}: logits to {got['logits'].abs().max():.1f}, attention logits to "
          f"{got['logit_absmax'].max():.1f}, f32 loses {loss[0][0]:.1e}, bf16 "
          f"{loss[1][0]:.1e} and {loss[1][1]:.1e}", flush=True)
    return {name: t.contiguous() for name, t in got.items()}


def check_sensitivity(case, tensors, sequences, rows, expected):
    """Every tensor changes the logits by far more than the tests allow for."""
    tied = "lm_head.weight" in tensors and (case["config"] or {}).get("tie_word_embeddings")
    for name, t in tensors.items():
        if tied and name == "lm_head.weight":
            continue
        changed = {**tensors, name: (t.float().roll(1, dims=-1) * 1.1).to(t.dtype)}
        got = run(case, changed, sequences, torch.float64)["logits"][rows]
        change = worst(got, expected["logits"].double())
        if not change > 1e-3:
            sys.exit(f"{case['name']}: {name} changes the logits by {change:.1e} only")


# --- the files -----------------------------------------------------------------------

def write(folder, config, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    if config:
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tensors = {name: t.contiguous() for name, t in tensors.items()}
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def store(folder, expected, check):
    path = folder / "expected.safetensors"
    if not check:
        safetensors.torch.save_file(expected, path)
        return
    kept = safetensors.torch.load_file(path)
    if kept.keys() != expected.keys():
        sys.exit(f"{path}: has {sorted(kept)}, not {sorted(expected)}")
    for name, t in expected.items():
        # Roundings to bfloat16 may fall elsewhere on another machine.
        bound = 0.2 if name == "bf16_loss" else 1e-6
        variant_checks.need(f"{path}: {name}", worst(t.float(), kept[name].float()), bound)


def make_diffllama(case, tensors, expected, check):
    """The same weights as transformers reads them: the same numbers must come out."""
    folder = VARIANTS / (case["name"] + "_hf")
    converted, config = unilm.to_diffllama(tensors)
    if not check:
        write(folder, config, converted)
    N = expected["logit_absmax"].shape[1]
    expected = {**expected, "logit_absmax":
                expected["logit_absmax"][:, unilm.even_then_odd(N)].contiguous()}
    variant_checks.same_as_transformers(folder, expected)
    store(folder, expected, check)


def make_case(case, check):
    folder = VARIANTS / case["name"]
    tensors = make_tensors(case)
    if tensors_differ(folder, tensors) and check:
        sys.exit(f"{folder}: its weights are not those of this script")
    if not check:
        write(folder, case["config"], tensors)
    gen = torch.Generator().manual_seed(len(case["name"]))
    sequences = [torch.randint(case["vocab"], (n,), generator=gen) for n in case["lengths"]]
    rows = rows_of(sequences, case["step"])
    expected = expect(case, tensors, sequences, rows)
    store(folder, expected, check)
    check_sensitivity(case, tensors, sequences, rows, expected)
    if case["name"].startswith("unilm_v1"):
        make_diffllama(case, tensors, expected, check)
    if check:
        variant_checks.check_case(case, in_dtype(tensors, torch.float64), sequences[0])


def tensors_differ(folder, tensors):
    path = folder / "model.safetensors"
    if not path.exists():
        return True
    kept = safetensors.torch.load_file(path)
    return kept.keys() != tensors.keys() or any(
        not torch.equal(kept[n], tensors[n]) for n in kept)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("names", nargs="*")
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(1)  # one order of summation, so the same bytes every time
    if args.check and not args.names:
        variant_checks.check_blocks()
    for case in variant_cases.CASES:
        if not args.names or case["name"] in args.names:
            make_case(case, args.check)


if __name__ == "__main__":
    main()
