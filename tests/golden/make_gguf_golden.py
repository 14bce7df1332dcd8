"""Writes gguf/: tiny llamas as GGUF files of each type, what transformers makes of the
numbers they hold, and a tokenizer's ids whose merges follow from scores.

    python make_gguf_golden.py

NAME.gguf            written by the package gguf. Types of 32 weights are encoded by it;
                     it has no encoder for Q4_K, Q5_K and Q6_K, so their blocks are drawn
NAME.safetensors     as in make_golden.py, from a folder with the decoded numbers in the
                     order of rows that transformers has
llama2_scores.bin    u32 FNV-1a of the ids of each 100 lines of tokenizers/lines.bin
Needs gguf (written with 0.19), and what make_golden.py needs.
"""
import json
import pathlib
import struct
import sys
import tempfile
import zlib

import gguf
import numpy as np
import safetensors.torch
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from tokenizers import Tokenizer
from transformers.tokenization_utils_base import generate_merges

import make_golden

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "gguf"

NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
         "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}

BASE = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
        "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 48, "max_position_embeddings": 64,
        "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
        "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
# Rows of 256 where the type asks for it, of 32 elsewhere (Q8_0 there, as in llama.cpp).
WIDE = {"hidden_size": 256, "intermediate_size": 32, "num_attention_heads": 4, "head_dim": 8}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32}

CASES = {
    "f32": (Type.F32, {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}),
    "f16": (Type.F16, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    "bf16": (Type.BF16, {"rope_scaling": LLAMA3, "head_dim": 16}),
    "q4_0": (Type.Q4_0, {"num_hidden_layers": 2}),
    "q4_1": (Type.Q4_1, {"tie_word_embeddings": False}),
    "q5_0": (Type.Q5_0, {"num_key_value_heads": 4}),
    "q5_1": (Type.Q5_1, {"num_key_value_heads": 1}),
    "q8_0": (Type.Q8_0, {"rope_theta": 500000.0}),
    "q4_k": (Type.Q4_K, WIDE),
    "q5_k": (Type.Q5_K, WIDE),
    "q6_k": (Type.Q6_K, {**WIDE, "tie_word_embeddings": False}),
}


# --- numbers ---------------------------------------------------------------------------

def draw_blocks(kind, rows, cols, std, rng):
    """Valid blocks whose weights have about that deviation and no offset."""
    n, size = rows * cols // 256, gguf.GGML_QUANT_SIZES[kind][1]
    b = rng.integers(0, 256, (n, size), dtype=np.uint8)
    if kind == Type.Q6_K:
        b[:, 192:208] = rng.integers(-100, 101, (n, 16), dtype=np.int8).view(np.uint8)
        d = (std / 1100 * rng.uniform(0.7, 1.3, n)).astype(np.float16)
        b[:, 208:210] = d.view(np.uint8).reshape(n, 2)
    else:
        half = 7.5 if kind == Type.Q4_K else 15.5
        d = (std / (40 * half) * rng.uniform(0.7, 1.3, n)).astype(np.float16)
        m = (d.astype(np.float32) * half).astype(np.float16)
        b[:, 0:2], b[:, 2:4] = d.view(np.uint8).reshape(n, 2), m.view(np.uint8).reshape(n, 2)
    return b.reshape(rows, -1)


def encode(x, kind, rng):
    """Bytes as the file holds them, and the numbers they stand for. Small integers and
    half-precision types come back as they went in."""
    if x.ndim == 1:
        return x, Type.F32, x
    if x.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]:
        kind = Type.Q8_0
    if kind in (Type.Q4_K, Type.Q5_K, Type.Q6_K):
        data = draw_blocks(kind, *x.shape, x.std(), rng)
    else:
        data = gguf.quants.quantize(x, kind)
    return data, kind, gguf.quants.dequantize(data, kind).astype(np.float32)


def turn(x, heads):
    """Rows of a head: halves side by side to pairs, as GGUF's llama has them."""
    return x.reshape(heads, 2, -1, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def turn_back(x, heads):
    return x.reshape(heads, -1, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


# --- files -----------------------------------------------------------------------------

def gguf_name(name):
    stem, kind = name.rsplit(".", 1)
    if stem in NAMES:
        return f"{NAMES[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.{kind}"


def llama3_divisors(c, d):
    r = c["rope_scaling"]
    f = 1 / c["rope_theta"] ** (np.arange(0, d, 2) / d)
    wave, n = 2 * np.pi / f, r["original_max_position_embeddings"]
    t = (n / wave - r["low_freq_factor"]) / (r["high_freq_factor"] - r["low_freq_factor"])
    mixed = 1 / ((1 - t) / r["factor"] + t)
    return np.where(wave < n / r["high_freq_factor"], 1.0,
                    np.where(wave > n / r["low_freq_factor"], r["factor"], mixed)
                    ).astype(np.float32)


def write_keys(w, c, head_dim):
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_rope_dimension_count(head_dim)
    w.add_vocab_size(c["vocab_size"])
    w.add_bos_token_id(c["bos_token_id"])
    w.add_eos_token_id(c["eos_token_id"])
    if "head_dim" in c:
        w.add_key_length(head_dim)
        w.add_value_length(head_dim)
    rope = c.get("rope_scaling", {})
    if rope.get("rope_type") == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope["factor"])
    if rope.get("rope_type") == "llama3":
        w.add_tensor("rope_freqs.weight", llama3_divisors(c, head_dim))


def make_model(name, kind, changes, folder):
    c = {**BASE, **changes}
    head_dim = c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
    (folder / "config.json").write_text(json.dumps(c))
    seed = zlib.crc32(name.encode())
    gen, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    w = gguf.GGUFWriter(OUT / f"{name}.gguf", "llama")
    write_keys(w, c, head_dim)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(folder))
    kept = {}
    for hf, t in model.state_dict().items():
        if hf == "lm_head.weight" and c["tie_word_embeddings"]:
            continue
        x = make_golden.draw(hf, t.shape, 1.5, gen).numpy()
        heads = {"q": c["num_attention_heads"], "k": c["num_key_value_heads"]}.get(
            hf.split("self_attn.")[-1][0] if "self_attn." in hf else "")
        data, stored, numbers = encode(turn(x, heads) if heads else x, kind, rng)
        w.add_tensor(gguf_name(hf), data, raw_dtype=stored)
        kept[hf] = torch.from_numpy(
            np.ascontiguousarray(turn_back(numbers, heads) if heads else numbers))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    safetensors.torch.save_file(kept, folder / "model.safetensors", {"format": "pt"})


def make_case(name, kind, changes):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        make_model(name, kind, changes, folder)
        gen = torch.Generator().manual_seed(len(name))
        sequences = [torch.randint(BASE["vocab_size"], (n,), generator=gen) for n in (23, 9)]
        rows = make_golden.rows_of(sequences, 5)
        expected, model = make_golden.expect(folder, sequences, rows)
        make_golden.report(name, expected)
        make_golden.store(OUT / f"{name}.safetensors", expected, False)
        make_golden.check_sensitivity(name, model, sequences, rows, expected)


# --- a tokenizer without merges ----------------------------------------------------------

def make_scores():
    """Scores that repeat, so that ties are broken too."""
    folder = HERE / "tokenizers"
    tree = json.loads((folder / "llama2" / "tokenizer.json").read_text())
    vocab = tree["model"]["vocab"]
    names = sorted(vocab, key=vocab.get)
    scores = {t: -(vocab[t] // 3) for t in names}
    skip = set(names[:3 + 256])
    merges = generate_merges(vocab, scores, skip)
    tree["model"]["merges"] = [list(m) for m in merges]
    tree["added_tokens"] = [{**t, "normalized": False} for t in tree["added_tokens"]]
    tok = Tokenizer.from_str(json.dumps(tree))
    data, lines, at = (folder / "lines.bin").read_bytes(), [], 0
    while at < len(data):
        n = struct.unpack_from("<H", data, at)[0]
        lines.append(data[at + 2:at + 2 + n].decode("utf-8", "replace"))
        at += 2 + n
    out = b""
    for first in range(0, len(lines), 100):
        h = 0x811C9DC5
        for e in tok.encode_batch(lines[first:first + 100]):
            for b in struct.pack(f"<{len(e.ids)}i", *e.ids):
                h = (h ^ b) * 0x01000193 & 0xFFFFFFFF
        out += struct.pack("<I", h)
    (OUT / "llama2_scores.bin").write_bytes(out)
    print(f"llama2_scores: {len(merges)} merges, {len(out) // 4} sums")


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    OUT.mkdir(exist_ok=True)
    make_scores()
    for name, (kind, changes) in CASES.items():
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            make_case(name, kind, changes)


if __name__ == "__main__":
    main()
