"""microsoft/Phi-4-mini-flash-reasoning (SambaY): Mamba-1, sliding-window, full and cross
differential attention, gated memory units; LayerNorm, no RoPE.

Facts from the hub's configuration_phi4flash.py and modeling_phi4flash.py of July 2025 and
vllm/model_executor/models/phi4flash.py (03356f8c).
"""
import math

import torch

from . import blocks
from .blocks import Pair, Trace, differential, heads, layer_norm, linear, swiglu, wide

# Of the class Phi4FlashConfig: what a file leaves out.
DEFAULTS = {"vocab_size": 51200, "hidden_size": 2560, "intermediate_size": 9216,
            "num_hidden_layers": 32, "num_attention_heads": 40, "num_key_value_heads": 4,
            "layer_norm_eps": 1e-5, "tie_word_embeddings": True, "sliding_window": 2047,
            "mb_per_layer": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2}
SUBLN_EPS = 1e-5   # fixed

MAMBA, MEMORY, SLIDING, FULL, GMU, CROSS = "mamba", "memory", "sliding", "full", "gmu", "cross"


def layer_kinds(L, mb_per_layer=2):
    """Layers of the first half alternate; then one Mamba that leaves its memory, one full
    attention that leaves its keys and values; all later ones use those two."""
    if mb_per_layer != 2 or L % 4:
        raise ValueError("mb_per_layer 2 and a multiple of 4 layers: no other is defined")
    half = L // 2
    kinds = [MAMBA if i % 2 == 0 else SLIDING for i in range(half)] + [MEMORY, FULL]
    return kinds + [GMU if i % 2 == 0 else CROSS for i in range(half + 2, L)]


def settings(config):
    c = {**DEFAULTS, **config}
    c["kinds"] = layer_kinds(c["num_hidden_layers"], c["mb_per_layer"])
    if c["num_key_value_heads"] is None:
        c["num_key_value_heads"] = c["num_attention_heads"]
    if not isinstance(c["sliding_window"], list):
        window = c["sliding_window"]
        c["sliding_window"] = [window if k == SLIDING else None for k in c["kinds"]]
    c["head_dim"] = c["hidden_size"] // c["num_attention_heads"]
    # Never read from the config by the model, whatever mamba_dt_rank says.
    c["dt_rank"] = math.ceil(c["hidden_size"] / 16)
    return c


# --- the mixers; memory and shared (k, v) are handed on from layer to layer ----------

def mamba(x, tensors, prefix, c, leaves_memory):
    u, z = linear(x, tensors, prefix + "in_proj").chunk(2, -1)
    u = blocks.causal_conv(u, tensors[prefix + "conv1d.weight"][:, 0],
                           tensors[prefix + "conv1d.bias"])
    n = c["mamba_d_state"]
    dt, B, C = linear(u, tensors, prefix + "x_proj").split([c["dt_rank"], n, n], -1)
    y = blocks.selective_scan(u, dt @ tensors[prefix + "dt_proj.weight"].T, B, C,
                              tensors[prefix + "A_log"], tensors[prefix + "D"],
                              tensors[prefix + "dt_proj.bias"])
    # The memory is rounded before the gate is put on; elsewhere the scan gates by itself.
    memory = y.to(x.dtype)
    y = swiglu(z, memory) if leaves_memory else swiglu(z, y).to(x.dtype)
    return linear(y, tensors, prefix + "out_proj"), memory


def memory_unit(x, tensors, prefix, memory):
    return linear(swiglu(linear(x, tensors, prefix + "in_proj"), memory), tensors,
                  prefix + "out_proj")


def attention(x, tensors, prefix, layer, c, shared):
    """shared: (k, v) of another layer, then Wqkv makes q alone."""
    N, K, d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    q = heads(linear(x, tensors, prefix + "Wqkv"), d)
    if shared is None:
        q, k, v = q.split([N, K, K], 1)
        shared = k, torch.cat([v[:, 0::2], v[:, 1::2]], -1)
    k, v = shared
    pairs = []
    for h in range(N // 2):
        j = h // (N // K)
        pairs.append(Pair(2 * h, 2 * h + 1, 2 * j, 2 * j + 1, j))
    inner = prefix + "inner_cross_attn."
    lam = blocks.lambda_of(tensors, inner, layer, x.dtype)
    reach = c["sliding_window"][layer] if c["kinds"][layer] == SLIDING else None
    got = differential(q, k, v, pairs, lam, reach)
    y = blocks.finish(got.out, tensors[inner + "subln.weight"], SUBLN_EPS, layer)
    return linear(y, tensors, prefix + "out_proj"), got, lam, shared


def forward(tensors, config, ids, dtype):
    c, trace = settings(config), Trace()

    def norm(x, name):   # the input is rounded first, where the residual is float32
        return layer_norm(x.to(dtype), tensors[name + ".weight"], tensors[name + ".bias"],
                          c["layer_norm_eps"])

    x = tensors["model.embed_tokens.weight"][ids]
    memory = shared = None
    for layer, kind in enumerate(c["kinds"]):
        prefix = f"model.layers.{layer}."
        y = norm(x, prefix + "input_layernorm")
        got, lam = None, 0.0
        if kind in (MAMBA, MEMORY):
            y, m = mamba(y, tensors, prefix + "attn.", c, kind == MEMORY)
            memory = m if kind == MEMORY else memory
        elif kind == GMU:
            y = memory_unit(y, tensors, prefix + "attn.", memory)
        else:
            y, got, lam, kv = attention(y, tensors, prefix + "attn.", layer, c,
                                        shared if kind == CROSS else None)
            shared = kv if kind == FULL else shared
        # From the first Mamba layer on the residual stream is float32.
        x = (wide(x) if kind in (MAMBA, MEMORY, GMU) else x) + y
        y = norm(x, prefix + "post_attention_layernorm")
        gate, y = linear(y, tensors, prefix + "mlp.fc1").chunk(2, -1)
        x = x + linear(swiglu(gate, y), tensors, prefix + "mlp.fc2")
        trace.hidden.append(x)
        trace.attended.append(got)
        trace.absmax.append(got.absmax if got else torch.zeros(c["num_attention_heads"]))
        trace.lam.append(lam)
    x = norm(x, "model.final_layernorm")
    trace.logits = linear(x, tensors, "model.embed_tokens" if c["tie_word_embeddings"]
                          else "lm_head")
    return trace
