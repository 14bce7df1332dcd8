"""The tiny checkpoints of make_variants.py: what each one's config.json says and why.

A case is a dict: `family` names the module in restate/ that computes it, `config` is
config.json word for word (None: no such file, as unilm's weights have none), `shapes`
gives the tensors; the rest as in cases.py. Keys that a file may leave out are left out
somewhere, and eps are large enough to be noticed somewhere.
"""
import math

V4 = {"torch_dtype": "bfloat16", "transformers_version": "4.46.1", "use_cache": True}
LAMBDA_NAMES = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")


def case(name, family, config, shapes, *, f32=("lambda_q", "lambda_k", "A_log"), gain=1.5,
         lengths=(37, 21), step=3):
    """f32: tensors with these in their names are stored in float32, the others in bfloat16."""
    return {"name": name, "family": family, "config": config, "shapes": shapes, "f32": f32,
            "gain": gain, "lengths": lengths, "step": step, "vocab": 101}


# --- unilm ---------------------------------------------------------------------------

def llama_block(hidden, inter, layers, attention):
    """Shapes of a model whose layers have these attention tensors."""
    shapes = {"model.embed_tokens.weight": [101, hidden]}
    for i in range(layers):
        prefix = f"model.layers.{i}."
        shapes[prefix + "input_layernorm.weight"] = [hidden]
        shapes.update({prefix + "self_attn." + n: s for n, s in attention.items()})
        shapes[prefix + "post_attention_layernorm.weight"] = [hidden]
        shapes[prefix + "mlp.gate_proj.weight"] = [inter, hidden]
        shapes[prefix + "mlp.up_proj.weight"] = [inter, hidden]
        shapes[prefix + "mlp.down_proj.weight"] = [hidden, inter]
    shapes["model.norm.weight"] = [hidden]
    shapes["lm_head.weight"] = [101, hidden]
    return shapes


def unilm_v1(name, hidden, H, KV, inter, layers, **rest):
    d = hidden // H // 2
    shapes = llama_block(hidden, inter, layers, {
        "q_proj.weight": [hidden, hidden], "k_proj.weight": [2 * KV * d, hidden],
        "v_proj.weight": [2 * KV * d, hidden], "out_proj.weight": [hidden, hidden],
        **{n: [d] for n in LAMBDA_NAMES}, "subln.weight": [2 * d]})
    return case(name, "unilm", None, shapes, **rest)


def unilm_v2(name, hidden, H, KV, d, inter, layers, **rest):
    shapes = llama_block(hidden, inter, layers, {
        "q_proj.weight": [2 * H * d, hidden], "k_proj.weight": [KV * d, hidden],
        "v_proj.weight": [KV * d, hidden], "o_proj.weight": [hidden, H * d],
        "lambda_proj.weight": [H, hidden]})
    return case(name, "unilm", None, shapes, **rest)


# --- Motif ---------------------------------------------------------------------------

def motif(name, hidden, N, K, inter, layers, *, head_dim=None, spelling="Motif", rest=None,
          **keys):
    config = {"architectures": ["MotifForCausalLM"], "model_type": spelling,
              "vocab_size": 101, "hidden_size": hidden, "intermediate_size": inter,
              "num_hidden_layers": layers, "num_attention_heads": N, "num_key_value_heads": K,
              "hidden_act": "poly_norm", "max_position_embeddings": 64, "use_bias": False,
              "rms_norm_eps": 1e-6, "attn_rms_norm_eps": 1e-5, "use_sliding_window": False,
              "bos_token_id": 1, "eos_token_id": 2, **V4, **keys}
    if head_dim:
        config["head_dim"] = head_dim
    config = {k: v for k, v in config.items() if v != "absent"}
    d, noise = head_dim or hidden // N, config.get("num_noise_heads", N // 2)
    shapes = llama_block(hidden, inter, layers, {
        "q_proj.weight": [N * d, hidden], "k_proj.weight": [K * d, hidden],
        "v_proj.weight": [K * d, hidden], "o_proj.weight": [hidden, 2 * (N - noise) * d],
        **{n: [d] for n in LAMBDA_NAMES}, "subln.weight": [2 * d]})
    for i in range(layers):
        shapes[f"model.layers.{i}.mlp.act_fn.weight"] = [3]
        shapes[f"model.layers.{i}.mlp.act_fn.bias"] = [1]
    if config.get("tie_word_embeddings"):
        del shapes["lm_head.weight"]
    return case(name, "motif", config, shapes, **(rest or {}))


# --- Phi-4-mini-flash ----------------------------------------------------------------

def phi4flash(name, hidden, N, K, inter, layers, *, expand=2, state=16, conv=4,
              ships_head=False, rest=None, **keys):
    config = {"architectures": ["Phi4FlashForCausalLM"], "model_type": "phi4flash",
              "vocab_size": 101, "hidden_size": hidden, "intermediate_size": inter,
              "num_hidden_layers": layers, "num_attention_heads": N, "num_key_value_heads": K,
              "hidden_act": "silu", "max_position_embeddings": 128, "embd_pdrop": 0.0,
              "resid_pdrop": 0.0, "attention_dropout": 0.0, "bos_token_id": 1,
              "eos_token_id": 2, "mlp_bias": False, "lm_head_bias": False, **V4, **keys}
    config = {k: v for k, v in config.items() if v != "absent"}
    half, d, E, rank = layers // 2, hidden // N, expand * hidden, math.ceil(hidden / 16)
    shapes = {"model.embed_tokens.weight": [101, hidden]}
    for i in range(layers):
        prefix = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[prefix + norm + ".weight"] = shapes[prefix + norm + ".bias"] = [hidden]
        shapes[prefix + "mlp.fc1.weight"] = [2 * inter, hidden]
        shapes[prefix + "mlp.fc2.weight"] = [hidden, inter]
        late = i >= half + 2
        if i % 2:
            rows = N * d if late else (N + 2 * K) * d
            a = {"Wqkv.weight": [rows, hidden], "Wqkv.bias": [rows],
                 "out_proj.weight": [hidden, hidden], "out_proj.bias": [hidden],
                 **{"inner_cross_attn." + n: [d] for n in LAMBDA_NAMES},
                 "inner_cross_attn.subln.weight": [2 * d]}
        elif late:
            a = {"in_proj.weight": [E, hidden], "out_proj.weight": [hidden, E]}
        else:
            a = {"in_proj.weight": [2 * E, hidden], "conv1d.weight": [E, 1, conv],
                 "conv1d.bias": [E], "x_proj.weight": [rank + 2 * state, E],
                 "dt_proj.weight": [E, rank], "dt_proj.bias": [E], "A_log": [E, state],
                 "D": [E], "out_proj.weight": [hidden, E]}
        shapes.update({prefix + "attn." + n: s for n, s in a.items()})
    shapes["model.final_layernorm.weight"] = shapes["model.final_layernorm.bias"] = [hidden]
    if ships_head or not config.get("tie_word_embeddings", True):
        shapes["lm_head.weight"] = [101, hidden]
    return case(name, "phi4flash", config, shapes, **(rest or {}))


def windows(layers, w):
    return [w if i < layers // 2 and i % 2 else None for i in range(layers)]


CASES = [
    # Each version 1 is written a second time as a DiffLlama, NAME_hf.
    unilm_v1("unilm_v1_mha", 32, 2, 2, 56, 2),
    unilm_v1("unilm_v1_gqa", 48, 4, 2, 24, 2),          # d 6, two heads to a value
    unilm_v2("unilm_v2_mha", 32, 3, 3, 10, 40, 2),
    unilm_v2("unilm_v2_gqa", 32, 4, 2, 12, 40, 2),      # H*d is not hidden

    motif("motif_mha", 32, 4, 4, 56, 2, tie_word_embeddings=True, rope_theta=10000.0),
    motif("motif_gqa", 48, 8, 4, 32, 2, spelling="motif", rope_theta=500000.0,
          tie_word_embeddings=False, attn_rms_norm_eps=1e-2, rms_norm_eps=1e-5,
          rest={"f32": ()}),
    motif("motif_untied", 32, 4, 2, 40, 2, head_dim=8, rope_theta="absent",
          rms_norm_eps=1e-2, use_bias="absent", use_sliding_window="absent"),
    motif("motif_yarn", 32, 2, 2, 40, 2, tie_word_embeddings=True, rope_theta=500000.0,
          rope_scaling={"rope_type": "yarn", "factor": 4.0},
          rest={"lengths": (63, 30), "gain": 1.2}),
    motif("motif_linear", 32, 4, 4, 40, 1, tie_word_embeddings=True, rope_theta=300.0,
          rope_scaling={"type": "linear", "factor": 2.5}),
    # Grouped: as the 12.7B, four signal heads to a noise head; then two; then two noise
    # heads to a pair of key heads.
    motif("motif_gda", 32, 10, 4, 40, 3, head_dim=8, num_noise_heads=2, k_ratio=1,
          rope_theta=1000000.0, tie_word_embeddings=False),
    motif("motif_gda_r2", 40, 6, 4, 40, 2, head_dim=12, num_noise_heads=2, spelling="motif",
          rope_theta=10000.0, tie_word_embeddings=False),
    motif("motif_gda_gqa", 32, 12, 4, 40, 2, head_dim=10, num_noise_heads=4, k_ratio=1,
          rope_theta=10000.0, tie_word_embeddings=True, rest={"f32": ()}),

    # As the hub has it: one window, nothing about Mamba, no rope_theta.
    phi4flash("phi4flash", 32, 8, 4, 40, 8, sliding_window=8, mb_per_layer=2,
              tie_word_embeddings=True, layer_norm_eps=1e-5),
    # As save_pretrained writes it: a window a layer, every key.
    phi4flash("phi4flash_list", 40, 4, 2, 24, 8, sliding_window=windows(8, 5),
              mb_per_layer=2, tie_word_embeddings=False, layer_norm_eps=1e-2, state=8, conv=3,
              mamba_d_state=8, mamba_d_conv=3, mamba_expand=2, mamba_dt_rank=3,
              mamba_conv_bias=True, mamba_proj_bias=False, rope_theta=10000.0),
    # As of later revisions: layer_types beside the window; two of each late layer.
    phi4flash("phi4flash_types", 32, 4, 4, 16, 12, sliding_window=8, mb_per_layer=2,
              layer_types=["sliding_attention" if w else "full_attention"
                           for w in windows(12, 8)],
              tie_word_embeddings=True, layer_norm_eps=1e-5, ships_head=True),
    # Nothing that the class knows by itself; no late layers.
    phi4flash("phi4flash_four", 32, 8, 4, 24, 4, num_key_value_heads="absent",
              hidden_act="absent", mlp_bias="absent", lm_head_bias="absent",
              resid_pdrop="absent", embd_pdrop="absent", attention_dropout="absent"),
]
