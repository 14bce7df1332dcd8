"""config.json and tensors of the models that random_checkpoint.py makes.

MODELS: NAME -> (function from config to tensors, config, number of parameters). A tensor is
(name, shape, dtype), in the order of the layers. Configs are the hub's where they could be
read; what is not sure about Motif's is said beside it.
"""
import math


def layers_key(c):
    return "n_layer" if "n_layer" in c else "num_hidden_layers"


def bf16(name, *shape):
    return name, list(shape), "BF16"


def f32(name, *shape):
    return name, list(shape), "F32"


# --- Llama and its kin ---------------------------------------------------------------

LAMBDAS = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")


def llama_like(c, *, qkv_bias=False, qk_norm=False, norm_bias=False, difference=False,
               value_rows=None, out_cols=None, subln=False, poly=False):
    h, i = c["hidden_size"], c["intermediate_size"]
    N, K = c["num_attention_heads"], c["num_key_value_heads"]
    d = c.get("head_dim") or h // N

    def norm(name):
        yield bf16(name + ".weight", h)
        if norm_bias:
            yield bf16(name + ".bias", h)

    yield bf16("model.embed_tokens.weight", c["vocab_size"], h)
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        yield from norm(p + "input_layernorm")
        for name, rows in (("q_proj", N * d), ("k_proj", K * d), ("v_proj", K * d)):
            yield bf16(p + f"self_attn.{name}.weight", rows, h)
            if qkv_bias:
                yield bf16(p + f"self_attn.{name}.bias", rows)
        yield bf16(p + "self_attn.o_proj.weight", h, out_cols or N * d)
        if qk_norm:
            yield bf16(p + "self_attn.q_norm.weight", d)
            yield bf16(p + "self_attn.k_norm.weight", d)
        if difference:
            for name in LAMBDAS:
                yield bf16(p + "self_attn." + name, d)
        if subln:
            yield bf16(p + "self_attn.subln.weight", 2 * d)
        yield from norm(p + "post_attention_layernorm")
        yield bf16(p + "mlp.gate_proj.weight", i, h)
        yield bf16(p + "mlp.up_proj.weight", i, h)
        yield bf16(p + "mlp.down_proj.weight", h, i)
        if poly:
            yield bf16(p + "mlp.act_fn.weight", 3)
            yield bf16(p + "mlp.act_fn.bias", 1)
    yield from norm("model.norm")
    if not c["tie_word_embeddings"]:
        yield bf16("lm_head.weight", c["vocab_size"], h)


def qwen2(c):
    return llama_like(c, qkv_bias=True)


def qwen3(c):
    return llama_like(c, qk_norm=True)


def stablelm(c):
    return llama_like(c, norm_bias=True)


def difflama(c):
    return llama_like(c, difference=True)


def motif(c):
    N = c["num_attention_heads"]
    noise = c.get("num_noise_heads", N // 2)
    d = c.get("head_dim") or c["hidden_size"] // N
    return llama_like(c, difference=True, subln=True, poly=True, out_cols=2 * (N - noise) * d)


# --- Phi-4-mini-flash ----------------------------------------------------------------

def phi4flash(c):
    h, i, L = c["hidden_size"], c["intermediate_size"], c["num_hidden_layers"]
    N, K, E, n, J = c["num_attention_heads"], c["num_key_value_heads"], 2 * h, 16, 4
    d, rank = h // N, math.ceil(h / 16)
    if L % 4:
        raise SystemExit(f"phi4flash: {L} layers, must be a multiple of 4")
    yield bf16("model.embed_tokens.weight", c["vocab_size"], h)
    for layer in range(L):
        p, late = f"model.layers.{layer}.", layer >= L // 2 + 2
        a = p + "attn."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield bf16(p + norm + ".weight", h)
            yield bf16(p + norm + ".bias", h)
        yield bf16(p + "mlp.fc1.weight", 2 * i, h)
        yield bf16(p + "mlp.fc2.weight", h, i)
        if layer % 2:
            rows = N * d if late else (N + 2 * K) * d
            yield bf16(a + "Wqkv.weight", rows, h)
            yield bf16(a + "Wqkv.bias", rows)
            yield bf16(a + "out_proj.weight", h, h)
            yield bf16(a + "out_proj.bias", h)
            for name in LAMBDAS:
                yield f32(a + "inner_cross_attn." + name, d)
            yield bf16(a + "inner_cross_attn.subln.weight", 2 * d)
            continue
        yield bf16(a + "in_proj.weight", E if late else 2 * E, h)
        yield bf16(a + "out_proj.weight", h, E)
        if not late:
            yield bf16(a + "conv1d.weight", E, 1, J)
            yield bf16(a + "conv1d.bias", E)
            yield bf16(a + "x_proj.weight", rank + 2 * n, E)
            yield bf16(a + "dt_proj.weight", E, rank)
            yield bf16(a + "dt_proj.bias", E)
            yield f32(a + "A_log", E, n)
            yield bf16(a + "D", E)
    yield bf16("model.final_layernorm.weight", h)
    yield bf16("model.final_layernorm.bias", h)


# --- older baselines -----------------------------------------------------------------

def module(name, rows, cols):
    """A linear layer with a bias."""
    yield bf16(name + ".weight", rows, cols)
    yield bf16(name + ".bias", rows)


def layer_norm(name, h):
    yield bf16(name + ".weight", h)
    yield bf16(name + ".bias", h)


def neox(c):
    h, i = c["hidden_size"], c["intermediate_size"]
    yield bf16("gpt_neox.embed_in.weight", c["vocab_size"], h)
    for layer in range(c["num_hidden_layers"]):
        p = f"gpt_neox.layers.{layer}."
        yield from layer_norm(p + "input_layernorm", h)
        yield from layer_norm(p + "post_attention_layernorm", h)
        yield from module(p + "attention.query_key_value", 3 * h, h)
        yield from module(p + "attention.dense", h, h)
        yield from module(p + "mlp.dense_h_to_4h", i, h)
        yield from module(p + "mlp.dense_4h_to_h", h, i)
    yield from layer_norm("gpt_neox.final_layer_norm", h)
    yield bf16("embed_out.weight", c["vocab_size"], h)


def gpt2(c):
    """The hub's own file has no prefix; matrices lie as [in, out]."""
    h = c["n_embd"]
    yield bf16("wte.weight", c["vocab_size"], h)
    yield bf16("wpe.weight", c["n_positions"], h)
    for layer in range(c["n_layer"]):
        p = f"h.{layer}."
        yield from layer_norm(p + "ln_1", h)
        for name, rows, cols in (("attn.c_attn", h, 3 * h), ("attn.c_proj", h, h)):
            yield bf16(p + name + ".weight", rows, cols)
            yield bf16(p + name + ".bias", cols)
        yield from layer_norm(p + "ln_2", h)
        for name, rows, cols in (("mlp.c_fc", h, 4 * h), ("mlp.c_proj", 4 * h, h)):
            yield bf16(p + name + ".weight", rows, cols)
            yield bf16(p + name + ".bias", cols)
    yield from layer_norm("ln_f", h)


def opt(c):
    h, i, w = c["hidden_size"], c["ffn_dim"], c["word_embed_proj_dim"]
    yield bf16("model.decoder.embed_tokens.weight", c["vocab_size"], w)
    yield bf16("model.decoder.embed_positions.weight", c["max_position_embeddings"] + 2, h)
    if w != h:
        yield bf16("model.decoder.project_out.weight", w, h)
        yield bf16("model.decoder.project_in.weight", h, w)
    for layer in range(c["num_hidden_layers"]):
        p = f"model.decoder.layers.{layer}."
        for name in ("k_proj", "v_proj", "q_proj", "out_proj"):
            yield from module(p + "self_attn." + name, h, h)
        yield from layer_norm(p + "self_attn_layer_norm", h)
        yield from module(p + "fc1", i, h)
        yield from module(p + "fc2", h, i)
        yield from layer_norm(p + "final_layer_norm", h)
    if c["do_layer_norm_before"]:
        yield from layer_norm("model.decoder.final_layer_norm", h)


# --- the table -----------------------------------------------------------------------

BF16 = {"torch_dtype": "bfloat16", "use_cache": True, "transformers_version": "4.46.1"}


def config(architecture, model_type, **keys):
    return {"architectures": [architecture], "model_type": model_type, **keys, **BF16}


def causal(family, vocab, h, i, layers, N, K, model_type=None, **keys):
    """The keys that Llama and its kin share."""
    return config(family + "ForCausalLM", model_type or family.lower(), vocab_size=vocab,
                  hidden_size=h, intermediate_size=i, num_hidden_layers=layers,
                  num_attention_heads=N, num_key_value_heads=K, **keys)


def opt_config(h, ffn, layers, heads, **keys):
    return config("OPTForCausalLM", "opt", **{
        "vocab_size": 50272, "hidden_size": h, "ffn_dim": ffn, "num_hidden_layers": layers,
        "num_attention_heads": heads, "word_embed_proj_dim": h, "max_position_embeddings": 2048,
        "activation_function": "relu", "do_layer_norm_before": True, "bos_token_id": 2,
        "eos_token_id": 2, "pad_token_id": 1, "_remove_final_layer_norm": False, **keys})


# Of Motif's values these are unsure: eps, rope_theta and max_position_embeddings of the
# 2.6B, eps, vocabulary and max_position_embeddings of the 12.7B.
MOTIF = {"model_type": "Motif", "hidden_act": "poly_norm", "rms_norm_eps": 1e-6,
         "attn_rms_norm_eps": 1e-5, "use_bias": False, "rope_scaling": None,
         "use_sliding_window": False, "attention_dropout": 0.0, "initializer_range": 2e-05}
SILU = {"hidden_act": "silu"}

MODELS = {
    "motif-2.6b": (motif, causal(
        "Motif", 219520, 2048, 8192, 32, 16, 16, **MOTIF, rope_theta=500000.0,
        max_position_embeddings=4096, tie_word_embeddings=True), 2_597_218_432),
    "motif-2-12.7b": (motif, causal(
        "Motif", 219520, 4096, 16384, 40, 40, 16, **MOTIF, head_dim=128, num_noise_heads=8,
        k_ratio=1, rope_theta=1000000.0, max_position_embeddings=32768,
        tie_word_embeddings=False), 12_703_860_896),
    "phi-4-mini-flash": (phi4flash, causal(
        "Phi4Flash", 200064, 2560, 10240, 32, 40, 20, **SILU, sliding_window=512,
        mb_per_layer=2, layer_norm_eps=1e-5, max_position_embeddings=262144, mlp_bias=False,
        lm_head_bias=False, attention_dropout=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
        bos_token_id=199999, eos_token_id=199999, pad_token_id=199999,
        tie_word_embeddings=True), 3_852_562_944),
    "difflama-0.3b-handcut": (difflama, causal(
        "DiffLlama", 128256, 2048, 8192, 16, 32, 8, **SILU, head_dim=64, rms_norm_eps=1e-5,
        rope_theta=500000.0, max_position_embeddings=131072, attention_bias=False,
        rope_scaling={"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                      "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        bos_token_id=128000, eos_token_id=128001, tie_word_embeddings=True), 1_235_818_496),
    "stablelm-3b-4e1t": (stablelm, causal(
        "StableLm", 50304, 2560, 6912, 32, 32, 32, **SILU, layer_norm_eps=1e-5,
        partial_rotary_factor=0.25, rope_theta=10000, max_position_embeddings=4096,
        use_qkv_bias=False, bos_token_id=0, eos_token_id=0,
        tie_word_embeddings=False), 2_795_443_200),
    "openllama-3b-v2": (llama_like, causal(
        "Llama", 32000, 3200, 8640, 26, 32, 32, **SILU, rms_norm_eps=1e-6,
        max_position_embeddings=2048, bos_token_id=1, eos_token_id=2,
        tie_word_embeddings=False), 3_426_473_600),
    "mistral-7b": (llama_like, causal(
        "Mistral", 32000, 4096, 14336, 32, 32, 8, **SILU, rms_norm_eps=1e-5,
        rope_theta=10000.0, sliding_window=4096, max_position_embeddings=32768,
        bos_token_id=1, eos_token_id=2, tie_word_embeddings=False), 7_241_732_096),
    "qwen2.5-0.5b": (qwen2, causal(
        "Qwen2", 151936, 896, 4864, 24, 14, 2, **SILU, rms_norm_eps=1e-6, rope_theta=1e6,
        max_position_embeddings=32768, use_sliding_window=False, sliding_window=32768,
        max_window_layers=24, bos_token_id=151643, eos_token_id=151643,
        tie_word_embeddings=True), 494_032_768),
    "qwen2.5-1.5b": (qwen2, causal(
        "Qwen2", 151936, 1536, 8960, 28, 12, 2, **SILU, rms_norm_eps=1e-6, rope_theta=1e6,
        max_position_embeddings=131072, use_sliding_window=False, sliding_window=131072,
        max_window_layers=28, bos_token_id=151643, eos_token_id=151643,
        tie_word_embeddings=True), 1_543_714_304),
    "qwen3-0.6b": (qwen3, causal(
        "Qwen3", 151936, 1024, 3072, 28, 16, 8, **SILU, head_dim=128, rms_norm_eps=1e-6,
        rope_theta=1e6, max_position_embeddings=40960, attention_bias=False,
        use_sliding_window=False, sliding_window=None, max_window_layers=28,
        bos_token_id=151643, eos_token_id=151645, tie_word_embeddings=True), 596_049_920),
    "pythia-1.4b": (neox, config(
        "GPTNeoXForCausalLM", "gpt_neox", vocab_size=50304, hidden_size=2048,
        intermediate_size=8192, num_hidden_layers=24, num_attention_heads=16,
        hidden_act="gelu", rotary_pct=0.25, rotary_emb_base=10000, layer_norm_eps=1e-5,
        use_parallel_residual=True, max_position_embeddings=2048, bos_token_id=0,
        eos_token_id=0, tie_word_embeddings=False), 1_414_647_808),
    "gpt2": (gpt2, config(
        "GPT2LMHeadModel", "gpt2", vocab_size=50257, n_embd=768, n_layer=12, n_head=12,
        n_positions=1024, n_ctx=1024, activation_function="gelu_new",
        layer_norm_epsilon=1e-5, bos_token_id=50256, eos_token_id=50256), 124_439_808),
    "opt-125m": (opt, opt_config(768, 3072, 12, 12), 125_239_296),
    "opt-1.3b": (opt, opt_config(2048, 8192, 24, 32), 1_315_758_080),
    "opt-350m": (opt, opt_config(1024, 4096, 24, 16, word_embed_proj_dim=512,
                                 do_layer_norm_before=False), 331_196_416),
}
