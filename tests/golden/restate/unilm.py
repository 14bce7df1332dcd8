"""microsoft/unilm's DIFF attention, versions 1 (flash form) and 2, in a block as Llama's:
pre-RMSNorm, SwiGLU, final norm, no biases, interleaved RoPE.

There is no config: the tensors' shapes say everything but the base of RoPE and the eps.
Version 1 has lambda_q1.., version 2 lambda_proj.
"""
import torch

from . import blocks
from .blocks import Pair, Trace, differential, heads, linear, rms_norm, rotate, swiglu

THETA, EPS = 10000.0, 1e-5


def layers(tensors):
    return 1 + max(int(n.split(".")[2]) for n in tensors if n.startswith("model.layers."))


def attention_1(x, tensors, prefix, depth):
    d = len(tensors[prefix + "lambda_q1"])
    q, k = (heads(linear(x, tensors, prefix + p), d) for p in ("q_proj", "k_proj"))
    v = heads(linear(x, tensors, prefix + "v_proj"), 2 * d)
    cos_sin = blocks.angles(len(x), d, THETA)
    q, k = (rotate(t, *cos_sin, interleaved=True) for t in (q, k))
    H, KV = q.shape[1] // 2, v.shape[1]
    pairs = []
    for h in range(H):
        g = h // (H // KV)
        pairs.append(Pair(2 * h, 2 * h + 1, 2 * g, 2 * g + 1, g))
    lam = blocks.lambda_of(tensors, prefix, depth, x.dtype)
    got = differential(q, k, v, pairs, lam)
    y = blocks.finish(got.out, tensors[prefix + "subln.weight"], EPS, depth)
    return linear(y, tensors, prefix + "out_proj"), got, lam


def attention_2(x, tensors, prefix):
    H = len(tensors[prefix + "lambda_proj.weight"])
    d = tensors[prefix + "o_proj.weight"].shape[1] // H
    q, k, v = (heads(linear(x, tensors, prefix + p), d) for p in ("q_proj", "k_proj", "v_proj"))
    cos_sin = blocks.angles(len(x), d, THETA)
    q, k = (rotate(t, *cos_sin, interleaved=True) for t in (q, k))
    pairs = []
    for h in range(H):
        g = h // (H // k.shape[1])   # both maps of a head look at the same keys
        pairs.append(Pair(2 * h, 2 * h + 1, g, g, g))
    lam = torch.sigmoid(linear(x, tensors, prefix + "lambda_proj"))
    got = differential(q, k, v, pairs, lam)
    return linear(got.out.flatten(1), tensors, prefix + "o_proj"), got, lam


def forward(tensors, config, ids, dtype):
    """config is not looked at."""
    trace = Trace()
    x = tensors["model.embed_tokens.weight"][ids]
    for layer in range(layers(tensors)):
        prefix = f"model.layers.{layer}."
        y = rms_norm(x, tensors[prefix + "input_layernorm.weight"], EPS)
        if prefix + "self_attn.lambda_proj.weight" in tensors:
            y, got, lam = attention_2(y, tensors, prefix + "self_attn.")
        else:
            y, got, lam = attention_1(y, tensors, prefix + "self_attn.", layer)
        x = x + y
        y = rms_norm(x, tensors[prefix + "post_attention_layernorm.weight"], EPS)
        y = swiglu(linear(y, tensors, prefix + "mlp.gate_proj"),
                   linear(y, tensors, prefix + "mlp.up_proj"))
        x = x + linear(y, tensors, prefix + "mlp.down_proj")
        trace.hidden.append(x)
        trace.attended.append(got)
        trace.absmax.append(got.absmax)
        trace.lam.append(lam)
    x = rms_norm(x, tensors["model.norm.weight"], EPS)
    trace.logits = linear(x, tensors, "lm_head")
    return trace


# --- to the layout of transformers' DiffLlama ----------------------------------------

def even_then_odd(n):
    return [*range(0, n, 2), *range(1, n, 2)]


def to_diffllama(tensors):
    """Version 1 as (tensors, config) of DiffLlama: the same function. float32 holds the
    products of bfloat16 weights exactly."""
    out = {}
    for name, t in tensors.items():
        part = name.split(".")[-2]
        if part in ("q_proj", "k_proj"):
            # Halves of a pair go to the halves of the head list, RoPE pairs likewise.
            d = len(tensors[name.replace(part + ".weight", "lambda_q1")])
            t = t.unflatten(0, (-1, d))
            t = t[even_then_odd(t.shape[0])][:, even_then_odd(d)].flatten(0, 1)
        elif part == "v_proj":
            d = len(tensors[name.replace(part + ".weight", "lambda_q1")])
            t = t.unflatten(0, (-1, d))
            t = t[even_then_odd(t.shape[0])].flatten(0, 1)
        elif part == "out_proj":
            # DiffLlama's norm has no weight; the next product takes it over.
            w = tensors[name.replace("out_proj", "subln")]
            t = t.float() * w.float().repeat(t.shape[1] // len(w))
            name = name.replace("out_proj", "o_proj")
        elif part == "subln":
            continue
        out[name] = t.float()
    first = "model.layers.0."
    d = len(out[first + "self_attn.lambda_q1"])
    vocab, hidden = out["model.embed_tokens.weight"].shape
    return out, {
        "architectures": ["DiffLlamaForCausalLM"], "model_type": "diffllama",
        "vocab_size": vocab, "hidden_size": hidden,
        "intermediate_size": len(out[first + "mlp.gate_proj.weight"]),
        "num_hidden_layers": layers(out),
        "num_attention_heads": len(out[first + "self_attn.q_proj.weight"]) // d,
        "num_key_value_heads": len(out[first + "self_attn.k_proj.weight"]) // d,
        "head_dim": d, "rms_norm_eps": EPS, "rope_theta": THETA, "hidden_act": "silu",
        "tie_word_embeddings": False, "attention_bias": False,
        "max_position_embeddings": 128, "torch_dtype": "float32"}
