"""Writes the golden files of checkpoints whose weights have few bits.

    python make_packed_golden.py            -> packed/NAME/

Needs torch, safetensors, transformers 5, compressed-tensors (written with 0.20.1) and
gptqmodel (7.7.0): the numbers are what these packages decompress their own files to.
Written here, by formats.md, is only what they no longer write: padded words of
compressed-tensors 0.17, and weight_g_idx.

Folders of loose matrices, NAME = compressed, gptq_*:
  config.json           quantization_config and no more
  model.safetensors     the packed tensors
  decoded.safetensors   <module>.weight in the dtype the package decodes to
Folders of whole tiny models, NAME = diff_*, llama_*, opened by transformers too:
  expected.safetensors  ids [T] int32, logits [T,V] float32 of transformers, in float32,
                        with activations as they are
"""
import copy
import json
import pathlib

import safetensors.torch
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent / "packed"


# --- compressed-tensors --------------------------------------------------------------

def qparams(w, args):
    """Scale and zero point of each row, group or the whole, in w's dtype."""
    N, K = w.shape
    if args.strategy == "tensor":
        rows = w.reshape(1, -1)
    elif args.strategy == "channel":
        rows = w
    else:
        rows = w.reshape(N, K // args.group_size, args.group_size)
    low, high = rows.amin(-1, keepdim=args.strategy == "channel"), \
        rows.amax(-1, keepdim=args.strategy == "channel")
    scale, zero = calculate_qparams(low, high, args)
    if args.strategy == "tensor":
        scale, zero = scale.reshape(1), zero.reshape(1)
    return scale.to(w.dtype), zero.to(torch.int8)


def compress(w, scheme):
    """The tensors of one module and the weight that the package makes of them."""
    scale, zero = qparams(w, scheme.weights)
    compressor = BaseCompressor.get_value_from_registry(scheme.format)
    state = {"weight": w, "weight_scale": scale}
    if not scheme.weights.symmetric:
        state["weight_zero_point"] = zero
    state = compressor.compress(state, scheme)
    # the package's classes keep names of enums where the config has texts
    return state, compressor.decompress(state, scheme)["weight"]


def scheme_of(targets, bits, strategy, group=None, symmetric=True, form="pack-quantized"):
    args = QuantizationArgs(num_bits=bits, strategy=strategy, group_size=group,
                            symmetric=symmetric)
    return QuantizationScheme(targets=targets, weights=args, format=form)


def scheme_json(scheme):
    return {"targets": scheme.targets, "format": str(scheme.format.value if hasattr(
        scheme.format, "value") else scheme.format), "input_activations": None,
        "output_activations": None, "weights": {
            "num_bits": scheme.weights.num_bits, "type": "int",
            "symmetric": scheme.weights.symmetric, "strategy": scheme.weights.strategy,
            "group_size": scheme.weights.group_size, "dynamic": False, "actorder": None,
            "block_structure": None, "observer": "minmax", "observer_kwargs": {}}}


def draw(shape, gen, dtype):
    x = torch.randn(shape, generator=gen) * torch.rand(shape[0], 1, generator=gen) * 0.2
    return (x + 0.01).to(dtype)


def words(values):
    """Python integers below 2^32 as int32."""
    return torch.tensor([v - (1 << 32) if v >> 31 else v for v in values], dtype=torch.int32)


def pack_padded(q, bits):
    """Rows of codes, floor(32 / bits) a word (compressed-tensors 0.17)."""
    n, per = q.shape[1], 32 // bits
    rows = []
    for row in q.tolist():
        u = [v + (1 << (bits - 1)) for v in row]
        rows.append([sum(x << (bits * i) for i, x in enumerate(u[at:at + per]))
                     for at in range(0, n, per)])
    return torch.stack([words(r) for r in rows])


def padded_module(gen, bits, group):
    """Six bits as 0.17 wrote them, asymmetric: zero points are padded down the rows."""
    w = draw((23, 96), gen, torch.bfloat16)
    args = QuantizationArgs(num_bits=bits, strategy="group", group_size=group,
                            symmetric=False)
    scale, zero = qparams(w, args)
    wide = zero.repeat_interleave(group, 1).float()
    half = 1 << (bits - 1)
    q = torch.clamp(torch.round(w.float() / scale.repeat_interleave(group, 1).float() + wide),
                    -half, half - 1)
    decoded = (q - wide).to(w.dtype) * scale.repeat_interleave(group, 1)
    return {"weight_packed": pack_padded(q.int(), bits), "weight_scale": scale,
            "weight_shape": torch.tensor(w.shape),
            "weight_zero_point": pack_padded(zero.int().T.contiguous(), bits).T.contiguous(),
            }, decoded


def indexed_module(gen, group, uneven=False):
    """Columns whose group is given: weight_g_idx."""
    w = draw((19, 64), gen, torch.float16)
    index = torch.arange(64, dtype=torch.int32) // group
    if uneven:
        index[:5] = 1
    index = index[torch.randperm(64, generator=gen)]
    scale = torch.stack([w[:, index == g].abs().amax(1) for g in range(64 // group)], 1)
    scale = (scale.float() / 7.5).to(torch.float16)
    wide = scale[:, index.long()]
    q = torch.clamp(torch.round(w.float() / wide.float()), -8, 7)
    return {"weight_packed": pack_padded(q.int(), 4), "weight_scale": scale,
            "weight_shape": torch.tensor(w.shape), "weight_g_idx": index,
            }, q.to(w.dtype) * wide


def write(folder, config, tensors, **others):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    meta = {"format": "pt"}
    contiguous = {k: v.contiguous() for k, v in tensors.items()}
    safetensors.torch.save_file(contiguous, folder / "model.safetensors", meta)
    for name, more in others.items():
        safetensors.torch.save_file({k: v.contiguous() for k, v in more.items()},
                                    folder / f"{name}.safetensors", meta)


def compressed_config(groups, form, ignore):
    return {"quant_method": "compressed-tensors", "format": form,
            "quantization_status": "compressed", "config_groups": groups, "ignore": ignore,
            "kv_cache_scheme": None, "global_compression_ratio": None}


MATRICES = [  # bits, strategy, group, symmetric, format, dtype, N, K
    (4, "group", 32, True, "pack-quantized", torch.bfloat16, 24, 96),
    (4, "group", 32, False, "pack-quantized", torch.float16, 21, 96),
    (4, "channel", None, True, "pack-quantized", torch.float32, 17, 37),
    (4, "channel", None, False, "pack-quantized", torch.bfloat16, 9, 45),
    (4, "tensor", None, True, "pack-quantized", torch.bfloat16, 5, 40),
    (8, "group", 16, False, "pack-quantized", torch.float32, 11, 48),
    (8, "channel", None, True, "pack-quantized", torch.bfloat16, 13, 41),
    (6, "group", 32, True, "pack-quantized", torch.bfloat16, 24, 96),
    (6, "group", 32, False, "pack-quantized", torch.bfloat16, 23, 96),
    (2, "group", 32, True, "pack-quantized", torch.float16, 7, 64),
    (3, "channel", None, False, "pack-quantized", torch.float16, 35, 33),
    (5, "group", 32, False, "pack-quantized", torch.bfloat16, 33, 64),
    (7, "channel", None, True, "pack-quantized", torch.bfloat16, 6, 1001),
    (8, "channel", None, True, "int-quantized", torch.bfloat16, 12, 40),
    (8, "channel", None, False, "naive-quantized", torch.float16, 12, 39),
    (6, "group", 8, True, "naive-quantized", torch.bfloat16, 10, 40),
    (8, "tensor", None, False, "naive-quantized", torch.float32, 8, 24),
    (4, "group", 16, False, "naive-quantized", torch.bfloat16, 10, 48),
]


def compressed(gen):
    tensors, decoded, groups = {}, {}, {}

    def add(name, scheme, state, weight):
        groups[f"group_{len(groups)}"] = scheme_json(scheme)
        decoded[f"{name}.weight"] = weight
        tensors.update({f"{name}.{k}": v for k, v in state.items()})

    for bits, strategy, group, symmetric, form, dtype, N, K in MATRICES:
        short = {"pack-quantized": "p", "int-quantized": "i", "naive-quantized": "n"}[form]
        name = f"m.{short}{bits}_{strategy}{group or ''}{'' if symmetric else '_asym'}"
        scheme = scheme_of([name], bits, strategy, group, symmetric, form)
        add(name, scheme, *compress(draw((N, K), gen, dtype), scheme))
    for bits in (3, 6):
        add(f"m.padded{bits}", scheme_of([f"m.padded{bits}"], bits, "group", 32, False),
            *padded_module(gen, bits, 32))
    for name, uneven in (("m.indexed", False), ("m.uneven", True)):
        scheme = scheme_of([f"re:m[.]{name[2:]}$"], 4, "group", 16)
        add(name, scheme, *indexed_module(gen, 16, uneven))
        groups[f"group_{len(groups) - 1}"]["weights"]["actorder"] = "group"
    config = compressed_config(groups, "mixed-precision", ["m.plain"])
    tensors["m.plain.weight"] = draw((3, 5), gen, torch.float32)
    write(HERE / "compressed", {"quantization_config": config}, tensors, decoded=decoded)


# --- GPTQ ----------------------------------------------------------------------------

def gptq_module(gen, bits, group, symmetric, order, N, K, v1):
    """Packed by gptqmodel; a low zero point of 0 borrows in v1 where not symmetric."""
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module
    from gptqmodel.quantization.config import QuantizeConfig
    module = TorchLinear(bits=bits, group_size=group, sym=symmetric, desc_act=order,
                         in_features=K, out_features=N, register_buffers=True)
    top = (1 << bits) - 1
    index = torch.arange(K, dtype=torch.int32) // (group if group > 0 else K)
    if order:
        index = index[torch.randperm(K, generator=gen)]
    G = int(index.max()) + 1
    scales = (torch.rand((N, G), generator=gen) * 0.05 + 0.01).half().float()
    zeros = torch.full((N, G), (top + 1) // 2) if symmetric else \
        torch.randint(0, top + 1, (N, G), generator=gen)
    codes = torch.randint(0, top + 1, (N, K), generator=gen)
    linear = torch.nn.Linear(K, N, bias=False)
    linear.weight.data = scales[:, index.long()] * (codes - zeros[:, index.long()])
    module.pack_original(linear, scales, zeros, g_idx=index)
    if v1:
        module.qzero_format(format=2)
        convert_gptq_v2_to_v1_format_module(module, QuantizeConfig(bits=bits,
                                                                   group_size=group))
    state = {k: getattr(module, k) for k in ("qweight", "qzeros", "scales", "g_idx")}
    wide = state["scales"].float()[index.long()].T
    return state, wide * (codes - zeros[:, index.long()]).float()


def gptq(gen, name, bits, group, symmetric, v1, order=False, N=32, K=96, spelling=None):
    state, decoded = gptq_module(gen, bits, group, symmetric, order, N, K, v1)
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric,
              "desc_act": order, "damp_percent": 0.01, "true_sequential": True,
              spelling or "checkpoint_format": "gptq" if v1 else "gptq_v2"}
    write(HERE / name, {"quantization_config": config},
          {f"m.x.{k}": v for k, v in state.items()}, decoded={"m.x.weight": decoded})


# --- whole models --------------------------------------------------------------------

def model_tensors(arch, config, gen):
    model = AutoModelForCausalLM.from_config(config)
    out = {}
    for name, p in model.state_dict().items():
        x = torch.randn(p.shape, generator=gen)
        if "norm" in name:
            x = 1 + 0.3 * x.clamp(-2, 2)
        elif "embed_tokens" in name:
            pass
        elif "lambda" in name:
            x = 0.2 * x
        else:
            x = 2 * x / p.shape[-1] ** 0.5
        out[name] = x.to(torch.bfloat16)
    return out


SIZES = dict(vocab_size=40, hidden_size=64, intermediate_size=96, num_hidden_layers=1,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
             rms_norm_eps=1e-5, tie_word_embeddings=False)


def model_json(arch, kind, quant, sizes):
    return {"architectures": [arch], "model_type": kind, "torch_dtype": "bfloat16",
            "hidden_act": "silu", "rope_theta": 10000.0, **SIZES, **sizes,
            "quantization_config": quant}


def logits_of(folder, ids):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 attn_implementation="eager")
    with torch.no_grad():
        return model(ids[None].long()).logits[0].float()


def whole(name, arch, kind, make, quant, gen):
    config = AutoConfig.for_model(kind, **SIZES)
    tensors = {}
    for key, w in model_tensors(arch, config, gen).items():
        tensors.update(make(key, w))
    weights_only = copy.deepcopy(quant)  # transformers would quantize activations as well
    if quant["format"] == "int-quantized":
        weights_only["format"] = "naive-quantized"
    for group in weights_only["config_groups"].values():
        group["input_activations"] = None
        group["format"] = weights_only["format"]  # else it would guess pack-quantized
    write(HERE / name, model_json(arch, kind, weights_only, {}), tensors)
    ids = torch.randint(0, 40, (23,), generator=gen, dtype=torch.int32)
    logits = logits_of(HERE / name, ids)
    write(HERE / name, model_json(arch, kind, quant, {}), tensors,
          expected={"ids": ids, "logits": logits})


def diff_compressed(gen):
    """Attention in 4 bits and groups, MLP in 8 bits a channel, one matrix in floats.
    Symmetric: transformers 5.24 with compressed-tensors 0.20.1 expects zero points
    unpacked, and refuses its own."""
    attention = scheme_of(["re:.*self_attn[.](q|k|v|o)_proj"], 4, "group", 32)
    mlp = scheme_of(["Linear"], 8, "channel", None, True)
    skip = ["lm_head", "model.layers.0.mlp.up_proj"]
    groups = {"group_0": scheme_json(attention), "group_1": scheme_json(mlp)}

    def make(key, w):
        module = key.removesuffix(".weight")
        if w.ndim != 2 or "embed" in key or module in skip:
            return {key: w}
        scheme = attention if "self_attn" in key else mlp
        return {f"{module}.{k}": v for k, v in compress(w, scheme)[0].items()}

    whole("diff_compressed", "DiffLlamaForCausalLM", "diffllama", make,
          compressed_config(groups, "pack-quantized", skip), gen)


def llama_int8(gen):
    """W8A8 with activations of each token on the fly."""
    scheme = scheme_of(["Linear"], 8, "channel", None, True, "int-quantized")
    group = scheme_json(scheme)
    del group["format"]
    group["input_activations"] = {"num_bits": 8, "type": "int", "symmetric": True,
                                  "strategy": "token", "dynamic": True, "observer": None}

    def make(key, w):
        module = key.removesuffix(".weight")
        if w.ndim != 2 or "embed" in key or module == "lm_head":
            return {key: w}
        return {f"{module}.{k}": v for k, v in compress(w, scheme)[0].items()}

    whole("llama_int8", "LlamaForCausalLM", "llama", make,
          compressed_config({"group_0": group}, "int-quantized", ["lm_head"]), gen)


def llama_gptq(gen):
    """By gptqmodel, in the order of activations, with biases; the config is in a file of its
    own. Logits are of the decoded weights."""
    sizes = dict(hidden_size=32, intermediate_size=64, num_attention_heads=2,
                 num_key_value_heads=1, head_dim=16, attention_bias=True)
    config = AutoConfig.for_model("llama", **{**SIZES, **sizes})
    tensors, plain = {}, {}
    for key, w in model_tensors("LlamaForCausalLM", config, gen).items():
        module = key.removesuffix(".weight")
        if w.ndim != 2 or "embed" in key or module == "lm_head":
            tensors[key] = w.half()
            plain[key] = w.half().float()
            continue
        state, plain[key] = gptq_module(gen, 4, 16, True, True, *w.shape, True)
        tensors.update({f"{module}.{k}": v for k, v in state.items()})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    model.load_state_dict(plain)
    ids = torch.randint(0, 40, (23,), generator=gen, dtype=torch.int32)
    with torch.no_grad():
        logits = model(ids[None].long()).logits[0]
    folder = HERE / "llama_gptq"
    info = model_json("LlamaForCausalLM", "llama", None, sizes)
    write(folder, info, tensors, expected={"ids": ids, "logits": logits})
    (folder / "quantize_config.json").write_text(json.dumps({
        "bits": 4, "group_size": 16, "sym": True, "desc_act": True, "damp_percent": 0.01,
        "static_groups": False, "true_sequential": True, "model_name_or_path": None,
        "model_file_base_name": "model", "quant_method": "gptq",
        "checkpoint_format": "gptq"}, indent=1) + "\n")


if __name__ == "__main__":
    compressed(torch.Generator().manual_seed(1))
    gptq(torch.Generator().manual_seed(2), "gptq_4_v1", 4, 32, True, True)
    gptq(torch.Generator().manual_seed(3), "gptq_4_asym_v1", 4, 32, False, True,
         spelling="format")
    gptq(torch.Generator().manual_seed(4), "gptq_4_asym_v2", 4, 32, False, False)
    gptq(torch.Generator().manual_seed(5), "gptq_8_order", 8, 16, False, False, order=True)
    gptq(torch.Generator().manual_seed(6), "gptq_4_row", 4, -1, True, True, K=64)
    gptq(torch.Generator().manual_seed(7), "gptq_3_v1", 3, 32, False, True)
    gptq(torch.Generator().manual_seed(8), "gptq_2_short", 2, 64, False, False, K=96)
    diff_compressed(torch.Generator().manual_seed(9))
    llama_int8(torch.Generator().manual_seed(10))
    llama_gptq(torch.Generator().manual_seed(11))
