"""Motif Technologies' Motif-2.6B and Motif-2-12.7B: differential attention, grouped where
the config has num_noise_heads; PolyNorm in the MLP; lambda_init one layer late, so that the
first layer's is negative.

Read from Motif's own vLLM fork (vllm/model_executor/models/motif.py, 477e4d79, and
vllm/v1/attention/backends/grouped_diff_attn.py, 2b73efac) for facts.
"""
import torch

from . import blocks
from .blocks import Pair, Trace, differential, heads, linear, poly_norm, rms_norm, rotate

DEFAULTS = {"rms_norm_eps": 1e-6, "attn_rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "rope_scaling": None, "max_position_embeddings": 8192, "head_dim": None,
            "tie_word_embeddings": False, "num_noise_heads": None, "k_ratio": 1}


def settings(config):
    c = {**DEFAULTS, **config}
    c["num_key_value_heads"] = c.get("num_key_value_heads") or c["num_attention_heads"]
    if c["num_noise_heads"] is None:
        c["num_noise_heads"] = c["num_attention_heads"] // 2
        c["head_dim"] = c["head_dim"] or c["hidden_size"] // c["num_attention_heads"]
    if c["head_dim"] is None or c["k_ratio"] != 1 or c["hidden_act"] != "poly_norm":
        raise ValueError("needs head_dim, k_ratio 1 and poly_norm")
    return c


def head_pairs(N, noise, K):
    """q heads lie in groups, [signal.. noise] each; k heads in pairs, signal first. The
    differential heads are the signal heads in order."""
    r = N // noise - 1
    pairs = []
    for i in range(N - noise):
        group = i // r
        j = group // (noise // (K // 2))
        first = group * (r + 1)
        pairs.append(Pair(first + i % r, first + r, 2 * j, 2 * j + 1, j))
    return pairs


def attention(x, tensors, prefix, layer, c):
    d = c["head_dim"]
    q, k, v = (heads(linear(x, tensors, prefix + p), d) for p in ("q_proj", "k_proj", "v_proj"))
    cos_sin = blocks.angles(len(x), d, c["rope_theta"], c["rope_scaling"],
                            c["max_position_embeddings"])
    q, k = (rotate(t, *cos_sin, interleaved=False) for t in (q, k))
    v = torch.cat([v[:, 0::2], v[:, 1::2]], -1)   # [v_2j | v_2j+1]
    pairs = head_pairs(c["num_attention_heads"], c["num_noise_heads"], c["num_key_value_heads"])
    lam = blocks.lambda_of(tensors, prefix, layer - 1, x.dtype)
    got = differential(q, k, v, pairs, lam)
    y = blocks.finish(got.out, tensors[prefix + "subln.weight"], c["attn_rms_norm_eps"],
                      layer - 1)
    return linear(y, tensors, prefix + "o_proj"), got, lam


def forward(tensors, config, ids, dtype):
    c, trace = settings(config), Trace()
    eps = c["rms_norm_eps"]
    x = tensors["model.embed_tokens.weight"][ids]
    for layer in range(c["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        y = rms_norm(x, tensors[prefix + "input_layernorm.weight"], eps)
        y, got, lam = attention(y, tensors, prefix + "self_attn.", layer, c)
        x = x + y
        y = rms_norm(x, tensors[prefix + "post_attention_layernorm.weight"], eps)
        gate = poly_norm(linear(y, tensors, prefix + "mlp.gate_proj"),
                         tensors[prefix + "mlp.act_fn.weight"],
                         tensors[prefix + "mlp.act_fn.bias"])
        x = x + linear(gate * linear(y, tensors, prefix + "mlp.up_proj"),
                       tensors, prefix + "mlp.down_proj")
        trace.hidden.append(x)
        trace.attended.append(got)
        trace.absmax.append(got.absmax)
        trace.lam.append(lam)
    x = rms_norm(x, tensors["model.norm.weight"], eps)
    trace.logits = linear(x, tensors, "model.embed_tokens" if c["tie_word_embeddings"]
                          else "lm_head")
    return trace
