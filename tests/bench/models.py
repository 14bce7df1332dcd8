"""Checkpoints of random weights in the shapes that bench.py times: config.json, bf16
safetensors and the tokenizer of tests/pair. Python's own library alone, some seconds a gigabyte.

    python3 models.py NAME FOLDER       names: llama135 diff135 llama1b diff1b llama16

llama135 has the shape of SmolLM2-135M; llama1b has 1.2 billion parameters, near Llama-3.2-1B's
shape. diff* are DIFF Transformers of as many parameters: heads of two maps, half as many.
llama16 is four of llama135's layers, for long texts.
"""
import array
import json
import pathlib
import random
import shutil
import struct
import sys

N_IDS = 4096   # of the tokenizer: larger vocabularies are padded
PAIR = pathlib.Path(__file__).resolve().parent.parent / "pair"
COMMON = {"hidden_act": "silu", "rms_norm_eps": 1e-5, "initializer_range": 0.02,
          "max_position_embeddings": 65536, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
          "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
          "bos_token_id": 1, "eos_token_id": 2}


def shape(hidden, inter, layers, heads, groups, head_dim, vocab):
    return {"hidden_size": hidden, "intermediate_size": inter, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": groups, "head_dim": head_dim,
            "vocab_size": vocab}


# DIFF: transformers' DiffLlama counts heads of head_dim, two of which make one pair.
SHAPES = {
    "llama135": ("llama", shape(576, 1536, 30, 9, 3, 64, 49152)),
    "diff135": ("diffllama", shape(576, 1536, 30, 12, 4, 48, 49152)),
    "llama1b": ("llama", shape(2048, 5632, 24, 32, 8, 64, 65536)),
    "diff1b": ("diffllama", shape(2048, 5632, 24, 32, 8, 64, 65536)),
    "llama16": ("llama", shape(576, 1536, 4, 9, 3, 64, N_IDS)),
}
TINY = shape(128, 256, 2, 4, 2, 32, N_IDS)   # of no meaning: to see that programs run
ARCHITECTURE = {"llama": "LlamaForCausalLM", "diffllama": "DiffLlamaForCausalLM"}


def tensors(kind, s):
    """Names and shapes in the order of the file."""
    C, F, d = s["hidden_size"], s["intermediate_size"], s["head_dim"]
    Q, K = s["num_attention_heads"] * d, s["num_key_value_heads"] * d
    yield "model.embed_tokens.weight", [s["vocab_size"], C]
    for i in range(s["num_hidden_layers"]):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", [C]
        for name, rows, cols in [("q_proj", Q, C), ("k_proj", K, C), ("v_proj", K, C),
                                 ("o_proj", C, Q)]:
            yield f"{at}self_attn.{name}.weight", [rows, cols]
        if kind == "diffllama":
            for name in ["q1", "k1", "q2", "k2"]:
                yield f"{at}self_attn.lambda_{name}", [d]
        yield at + "post_attention_layernorm.weight", [C]
        for name, rows, cols in [("gate_proj", F, C), ("up_proj", F, C), ("down_proj", C, F)]:
            yield f"{at}mlp.{name}.weight", [rows, cols]
    yield "model.norm.weight", [C]


def bf16(values):
    """Rounded to nearest, halves up: close enough for noise."""
    bits = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return array.array("H", ((b + 0x8000) >> 16 & 0xFFFF for b in bits)).tobytes()


def noise(table, rng, n):
    """n numbers of a table of normal ones, from a random place on, again and again."""
    while n > 0:
        start = rng.randrange(0, len(table) // 2) & ~1
        piece = table[start:start + min(2 * n, len(table) // 2)]
        yield piece
        n -= len(piece) // 2


def write(name, folder, tiny=False):
    kind, s = SHAPES[name]
    s = TINY if tiny else s
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"architectures": [ARCHITECTURE[kind]], "model_type": kind} | COMMON | s
    if kind == "diffllama":
        config["lambda_std_dev"] = 0.1
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    for f in ["tokenizer.json", "tokenizer_config.json"]:
        if (PAIR / "diff" / f).exists():
            shutil.copy(PAIR / "diff" / f, folder / f)
    header, at = {}, 0
    for tensor, dims in tensors(kind, s):
        size = 2 * dims[0] * (dims[1] if len(dims) > 1 else 1)
        header[tensor] = {"dtype": "BF16", "shape": dims, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = random.Random(1)
    table = bf16([rng.gauss(0, 0.02) for _ in range(1 << (12 if tiny else 20))])
    part = folder / "model.part"   # what is whole has the name that is looked for
    with open(part, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for tensor, item in header.items():
            n = (item["data_offsets"][1] - item["data_offsets"][0]) // 2
            if "norm" in tensor:
                f.write(bf16([1.0]) * n)
            else:
                f.writelines(noise(table, rng, n))
    part.rename(folder / "model.safetensors")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(__doc__)
    write(sys.argv[1], sys.argv[2])
