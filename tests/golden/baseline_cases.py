"""The tiny baselines: what each one's config.json says and why it is here.

A case is a dict. `config` is written as config.json word for word, so that old and
new spellings and their gaps are on disk. The rest says how the file is made:
  stored   dtype of the weights on disk: "F32", "BF16"
  gain     of the queries' and keys' weights: the spread of the attention logits
  lengths  of the sequences
  step     every step-th row of the results is kept
  maps     True: keep the softmax maps of the first sequence
  windows  keys a query of each layer sees at most, itself included; None: no window
  rename   (prefix in transformers' state_dict, prefix on disk) pairs
  head     True: lm_head.weight is on disk although it is tied
  buffers  True: tensors on disk that old files carry and no reader needs
  twin     name of the case whose weights and results these are, in another spelling
"""
from cases import V4, V5


def case(name, config, *, stored="BF16", gain=1.5, lengths=(37, 21), step=3, maps=False,
         windows=None, rename=(), head=False, buffers=False, twin=None):
    config = {k: v for k, v in config.items() if v != "absent"}
    return {"name": name, "config": config, "stored": stored, "gain": gain,
            "lengths": lengths, "step": step, "maps": maps, "windows": windows,
            "rename": rename, "head": head, "buffers": buffers, "twin": twin}


def gated(kind, arch, spelling, keys):
    """What the Llama-like ones have in common."""
    return {"architectures": [arch], "model_type": kind, "hidden_size": 32,
            "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": 101, "max_position_embeddings": 128,
            "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1,
            "eos_token_id": 2, **spelling, **keys}


def mistral(spelling, **keys):
    return gated("mistral", "MistralForCausalLM", spelling, {"rms_norm_eps": 1e-5, **keys})


def qwen2(spelling, **keys):
    return gated("qwen2", "Qwen2ForCausalLM", spelling, {"rms_norm_eps": 1e-6, **keys})


def qwen3(spelling, **keys):
    return gated("qwen3", "Qwen3ForCausalLM", spelling,
                 {"rms_norm_eps": 1e-6, "head_dim": 16, "attention_bias": False, **keys})


def stablelm(spelling, **keys):
    return gated("stablelm", "StableLmForCausalLM", spelling,
                 {"layer_norm_eps": 1e-5, "use_qkv_bias": False, **keys})


def stablelm_epoch(**keys):
    return gated("stablelm_epoch", "StableLMEpochForCausalLM", V4, keys)


def gpt_neox(spelling, **keys):
    return {"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox",
            "hidden_size": 32, "intermediate_size": 72, "num_hidden_layers": 2,
            "num_attention_heads": 2, "vocab_size": 101, "max_position_embeddings": 40,
            "hidden_act": "gelu", "layer_norm_eps": 1e-5, "use_parallel_residual": True,
            "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 0,
            **spelling, **keys}


def gpt2(spelling, **keys):
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 32,
            "n_head": 4, "n_layer": 2, "n_positions": 40, "n_ctx": 40, "vocab_size": 101,
            "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
            "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "bos_token_id": 100,
            "eos_token_id": 100, **spelling, **keys}


def opt(spelling, **keys):
    return {"architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 32,
            "ffn_dim": 72, "num_hidden_layers": 2, "num_attention_heads": 4,
            "vocab_size": 101, "max_position_embeddings": 40, "do_layer_norm_before": True,
            "word_embed_proj_dim": 32, "activation_function": "relu", "dropout": 0.1,
            "layerdrop": 0.0, "prefix": "</s>", "pad_token_id": 1, "bos_token_id": 2,
            "eos_token_id": 2, **spelling, **keys}


def rope(theta=10000.0, **keys):
    return {"rope_theta": theta, "rope_type": "default", **keys}


EMBED_OUT = (("lm_head.", "embed_out."),)   # on disk; transformers 5 renames it on the way

CASES = [
    case("mistral_window", mistral(V4, sliding_window=8, rope_theta=10000.0),
         maps=True, lengths=(21, 37), windows=[8, 8]),
    case("mistral_full", mistral(V5, sliding_window=None, head_dim=12,
                                 rope_parameters=rope(1000000.0))),
    # Keys missing: a window of 4096, 8 key-value heads, epsilon 1e-6.
    case("mistral_defaults", mistral(
        V4, sliding_window="absent", num_key_value_heads="absent", rms_norm_eps="absent",
        hidden_act="absent", num_attention_heads=16, head_dim=4, rope_theta=10000.0)),
    # A window that the shorter sequence fits into, heads wider than hidden / heads.
    case("mistral_window_wide", mistral(V5, sliding_window=24, head_dim=20,
                                        rope_parameters=rope()), windows=[24, 24]),

    # As the small Qwen2.5 are: a window is named and not used.
    case("qwen2_tied", qwen2(V4, tie_word_embeddings=True, use_sliding_window=False,
                             sliding_window=4, max_window_layers=1, rope_theta=1000000.0)),
    case("qwen2_window_v4", qwen2(V4, num_hidden_layers=3, use_sliding_window=True,
                                  sliding_window=8, max_window_layers=1, rope_theta=10000.0),
         maps=True, lengths=(21, 37), windows=[None, 8, 8]),
    # layer_types is there, so max_window_layers says nothing.
    case("qwen2_window_v5", qwen2(
        V5, num_hidden_layers=3, use_sliding_window=True, sliding_window=6,
        max_window_layers=28, rope_parameters=rope(1000000.0),
        layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
        windows=[6, None, 6]),

    case("qwen3_tied", qwen3(V4, tie_word_embeddings=True, rope_theta=1000000.0,
                             use_sliding_window=False, sliding_window=None,
                             max_window_layers=2, rope_scaling=None)),
    case("qwen3_bias_window", qwen3(
        V5, attention_bias=True, use_sliding_window=True, sliding_window=8,
        max_window_layers=0, layer_types=["full_attention", "sliding_attention"],
        rope_parameters=rope(1000000.0)), maps=True, lengths=(21, 37), windows=[None, 8]),
    # head_dim is missing: 128, whatever hidden / heads may be.
    case("qwen3_defaults", qwen3(V4, head_dim="absent", attention_bias="absent",
                                 num_attention_heads=2, num_key_value_heads=1,
                                 num_hidden_layers=1, rope_theta=1000000.0)),

    # Heads of 16, of which 4 rotate: the default where nothing is said.
    case("stablelm_partial", stablelm(V4, hidden_size=48, num_attention_heads=3,
                                      num_key_value_heads=3, rope_theta=10000)),
    case("stablelm_half", stablelm(V5, use_qkv_bias=True, layer_norm_eps=1e-2,
                                   rope_parameters=rope(partial_rotary_factor=0.5))),
    # The 12B's switches, then each of them without the other.
    case("stablelm_qk_norm_parallel", stablelm(
        V4, qk_layernorm=True, use_parallel_residual=True, partial_rotary_factor=0.5,
        rope_theta=10000), maps=True, lengths=(21, 37)),
    case("stablelm_qk_norm", stablelm(V4, qk_layernorm=True, partial_rotary_factor=0.25,
                                      tie_word_embeddings=True, rope_theta=10000)),
    case("stablelm_parallel", stablelm(V5, use_parallel_residual=True, use_qkv_bias=True,
                                       rope_parameters=rope(partial_rotary_factor=1.0))),
    # The same two files as their authors' own code of 2023 spelled them. transformers
    # maps none of these keys, so the results are its results for the twin.
    case("stablelm_epoch", stablelm_epoch(norm_eps=1e-2, rope_pct=0.5, use_qkv_bias=True,
                                          rope_theta=10000), twin="stablelm_half"),
    case("stablelm_epoch_2023", stablelm_epoch(
        hidden_size=48, num_attention_heads=3, num_heads=3, num_key_value_heads=3,
        norm_eps=1e-5, rope_pct=0.25, rope_theta=10000, rotary_scaling_factor=1.0),
        buffers=True, twin="stablelm_partial"),

    # Pythia of 2023: masks and frequencies shipped.
    case("neox_parallel", gpt_neox(V4, rotary_pct=0.25, rotary_emb_base=10000),
         buffers=True, rename=EMBED_OUT, maps=True, lengths=(21, 37)),
    case("neox_serial", gpt_neox(V5, use_parallel_residual=False, hidden_act="gelu_new",
                                 rope_parameters=rope(500.0, partial_rotary_factor=1.0)),
         rename=EMBED_OUT),
    case("neox_tied", gpt_neox(V4, attention_bias=False, hidden_act="gelu_fast", rotary_pct=0.5,
                               tie_word_embeddings=True, rotary_emb_base=2000,
                               layer_norm_eps=1e-2)),

    # The first GPT-2: no prefix, masks shipped. Later files have the prefix.
    case("gpt2_plain", gpt2(V4), rename=(("transformer.", ""),), buffers=True, maps=True,
         lengths=(21, 37)),
    case("gpt2_prefix", gpt2(V4, n_inner=None, layer_norm_epsilon=1e-2), head=True),
    case("gpt2_inner_untied", gpt2(V5, n_inner=40, tie_word_embeddings=False,
                                   activation_function="relu"), stored="F32"),
    case("gpt2_inverse", gpt2(V4, scale_attn_by_inverse_layer_idx=True, n_layer=3, n_inner=40)),

    case("opt_pre_norm", opt(V4), head=True, maps=True, lengths=(21, 37)),
    # As OPT-350M is: norms after the sums, a narrow embedding.
    case("opt_post_norm", opt(V4, do_layer_norm_before=False, word_embed_proj_dim=20,
                              num_hidden_layers=3),
         rename=(("model.decoder.", "decoder."),)),
    # As Galactica is.
    case("opt_bare", opt(V4, enable_bias=False, layer_norm_elementwise_affine=False,
                         activation_function="gelu", word_embed_proj_dim="absent")),
    case("opt_no_final_norm", opt(V5, _remove_final_layer_norm=True, enable_bias=True,
                                  activation_function="gelu", tie_word_embeddings=False)),
]
