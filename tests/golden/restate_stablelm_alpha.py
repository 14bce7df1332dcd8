"""StableLM-Base-Alpha v2 (model_type stablelm_alpha) from its formulas, and its golden.

    python restate_stablelm_alpha.py           -> baselines/stablelm_alpha/
    python restate_stablelm_alpha.py --check   recompute, compare with the disk, write nothing

transformers has no such class. For a token's row x [C], in every layer:
  y = LayerNorm(x)                         weight and bias, one norm to a layer
  q, k, v of head h: rows 3dh.., 3dh+d.., 3dh+2d.. of qkv_proj, d = C / num_heads
  q and k: the first int(d rotary_pct) dims rotate, first half against second
  x + out_proj(softmax(q.k / sqrt(d)) v) + mlp(y)
  mlp(y) = out_proj(a * silu(b)), a and b the first and second half of gate_proj y
then LayerNorm and lm_head. The width of the MLP is no key of config.json: 8C/3, cut to a
whole number and rounded up to a multiple of 256. No linear has a bias. With its rows
sorted it is StableLM with use_parallel_residual, whose class in transformers agrees.
Not verified on the published weights: the order of the rows of qkv_proj (a draft of a port
has q, k and v apart) and that silu takes the second half of gate_proj (there the first).
Computed in float64; make_golden.py says what expected.safetensors holds.
"""
import argparse
import json
import math
import sys
import zlib

import safetensors.torch
import torch
from torch.nn.functional import layer_norm, silu

from make_golden import HERE, report, rows_of, store, worst, worst_hidden

FOLDER = HERE / "baselines" / "stablelm_alpha"
LENGTHS, STEP, GAIN = (21, 37), 3, 1.5
CONFIG = {"architectures": ["StableLMAlphaForCausalLM"], "model_type": "stablelm_alpha",
          "hidden_size": 32, "num_heads": 2, "num_hidden_layers": 2, "vocab_size": 101,
          "max_position_embeddings": 128, "norm_eps": 1e-05, "hidden_act": "silu",
          "rotary_pct": 0.25, "rotary_emb_base": 10000, "rotary_scaling_factor": 1.0,
          "tie_word_embeddings": False, "use_cache": True, "bos_token_id": 0,
          "eos_token_id": 0, "initializer_range": 0.02, "torch_dtype": "float16",
          "transformers_version": "4.30.2"}


def mlp_width(hidden):
    return -(-int(8 * hidden / 3) // 256) * 256


def shapes():
    C, F, V = CONFIG["hidden_size"], mlp_width(CONFIG["hidden_size"]), CONFIG["vocab_size"]
    yield "transformer.embed.weight", (V, C)
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"transformer.layers.{layer}."
        yield at + "norm.weight", (C,)
        yield at + "norm.bias", (C,)
        yield at + "attention.qkv_proj.weight", (3 * C, C)
        yield at + "attention.out_proj.weight", (C, C)
        yield at + "mlp.gate_proj.weight", (2 * F, C)
        yield at + "mlp.out_proj.weight", (C, F)
    yield "transformer.final_norm.weight", (C,)
    yield "transformer.final_norm.bias", (C,)
    yield "lm_head.weight", (V, C)


def draw(name, shape, gen):
    x = torch.randn(shape, generator=gen)
    if name.endswith("bias"):
        return 0.3 * x
    if "norm" in name:
        return 1 + 0.3 * x.clamp(-2, 2)
    if "embed" in name:
        return x
    if "qkv_proj" in name:
        x.view(CONFIG["num_heads"], 3, -1)[:, :2] *= GAIN
    return x / math.sqrt(shape[-1])


def write_checkpoint():
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    gen = torch.Generator().manual_seed(zlib.crc32(b"stablelm_alpha"))
    tensors = {name: draw(name, shape, gen).bfloat16() for name, shape in shapes()}
    safetensors.torch.save_file(tensors, FOLDER / "model.safetensors", {"format": "pt"})


# --- the model -----------------------------------------------------------------------

def rotate(x, dims):
    """x [H,S,d]: dimension i turns against i + dims/2, for i below dims/2."""
    half = dims // 2
    i = torch.arange(half, dtype=torch.float64)
    turn = CONFIG["rotary_emb_base"] ** (-2 * i / dims)
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * turn
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:dims]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., dims:]], dim=-1)


def attention(w, at, y):
    """The output, the largest logit of each head and the maps [H,S,S] for y [S,C]."""
    S, C = y.shape
    d = C // CONFIG["num_heads"]
    qkv = (y @ w[at + "qkv_proj.weight"].T).view(S, -1, 3, d)
    q, k, v = qkv.permute(2, 1, 0, 3)
    dims = int(d * CONFIG["rotary_pct"])
    logits = rotate(q, dims) @ rotate(k, dims).transpose(1, 2) / math.sqrt(d)
    future = torch.ones(S, S, dtype=torch.bool).triu(1)
    maps = logits.masked_fill(future, -math.inf).softmax(dim=-1)
    out = (maps @ v).transpose(0, 1).reshape(S, C) @ w[at + "out_proj.weight"].T
    return out, logits.abs().masked_fill(future, 0).amax(dim=(1, 2)), maps


def mlp(w, at, y):
    a, b = (y @ w[at + "gate_proj.weight"].T).chunk(2, dim=-1)
    return (a * silu(b)) @ w[at + "out_proj.weight"].T


def norm(w, at, x):
    return layer_norm(x, x.shape[-1:], w[at + ".weight"], w[at + ".bias"], CONFIG["norm_eps"])


def forward(w, ids):
    """logits [S,V], hidden [L,S,C], logit_absmax [L,N], maps [L,N,S,S] of one sequence."""
    x = w["transformer.embed.weight"][ids]
    hidden, absmax, maps = [], [], []
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"transformer.layers.{layer}."
        y = norm(w, at + "norm", x)
        attended, largest, layer_maps = attention(w, at + "attention.", y)
        x = x + attended + mlp(w, at + "mlp.", y)
        hidden.append(x)
        absmax.append(largest)
        maps.append(layer_maps)
    logits = norm(w, "transformer.final_norm", x) @ w["lm_head.weight"].T
    return logits, torch.stack(hidden), torch.stack(absmax), torch.stack(maps)


def run(stored, sequences, dtype=torch.float64):
    w = {name: t.to(dtype) for name, t in stored.items()}
    each = [[t.double() for t in forward(w, ids)] for ids in sequences]
    logits, hidden, absmax, maps = zip(*each)
    return {"logits": torch.cat(logits), "hidden": torch.cat(hidden, dim=1),
            "logit_absmax": torch.stack(absmax).amax(dim=0), "maps": maps[0]}


# --- the golden ----------------------------------------------------------------------

def expect(stored, sequences, rows):
    got = run(stored, sequences)
    coarse = run(stored, sequences, torch.bfloat16)
    got["bf16_loss"] = torch.tensor([worst(coarse["logits"], got["logits"]),
                                     worst_hidden(coarse["hidden"], got["hidden"])])
    got["logits"], got["hidden"] = got["logits"][rows], got["hidden"][:, rows]
    got = {name: t.float().contiguous() for name, t in got.items()}
    ends = torch.tensor([0] + [len(s) for s in sequences]).cumsum(0)
    return got | {"ids": torch.cat(sequences).int(), "start": ends.int(),
                  "rows": torch.tensor(rows, dtype=torch.int32)}


def check_sensitivity(stored, sequences, rows, expected):
    """Every tensor changes the logits by far more than the tests allow for."""
    for name, t in stored.items():
        other = stored | {name: t.roll(1, dims=-1) * 1.1}
        change = worst(run(other, sequences)["logits"][rows], expected["logits"])
        if not change > 1e-3:
            sys.exit(f"{name} changes the logits by {change:.1e} only")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(1)  # one order of summation, so the same bytes every time
    if not args.check:
        write_checkpoint()
    stored = safetensors.torch.load_file(FOLDER / "model.safetensors")
    gen = torch.Generator().manual_seed(len("stablelm_alpha"))
    sequences = [torch.randint(CONFIG["vocab_size"], (n,), generator=gen) for n in LENGTHS]
    rows = rows_of(sequences, STEP)
    expected = expect(stored, sequences, rows)
    report("stablelm_alpha", expected)
    store(FOLDER / "expected.safetensors", expected, args.check)
    check_sensitivity(stored, sequences, rows, expected)


if __name__ == "__main__":
    main()
