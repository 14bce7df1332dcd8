"""The tiny checkpoints: what each one's config.json says and why it is here.

A case is a dict. `config` is written as config.json word for word, so both
spellings (transformers v4 and v5) and all their gaps are on disk; the rest says
how the weights are drawn and stored:
  stored   dtype of the tensors on disk: "F32", "F16", "BF16"
  shards   number of files; more than 1 writes an index
  gain     of q_proj and k_proj: the spread of the attention logits
  lengths  of the sequences, which share one batch
  step     every step-th row of the results is kept
  maps     True: keep the raw softmax maps of the first sequence
  odd_kv   True: needs transformers 4, whose eager code pairs value heads across
           groups; later versions refuse an odd number of key-value heads
  copies   tensors written although a reader must not need or must skip them
"""

# (lambda_q1 . lambda_k1, lambda_q2 . lambda_k2) of layers 0, 1, 2: lambda above 1,
# below 0, and in between.
LAMBDAS = [(0.9, 0.1), (0.1, 0.8), (0.2, 0.3)]

V4 = {"torch_dtype": "float32", "transformers_version": "4.49.0", "use_cache": True,
      "initializer_range": 0.02}
V5 = {"dtype": "float32", "transformers_version": "5.24.0", "use_cache": True}


def config(kind, spelling, **keys):
    arch = {"diffllama": "DiffLlamaForCausalLM", "llama": "LlamaForCausalLM"}[kind]
    c = {"architectures": [arch], "model_type": kind, "hidden_size": 32,
         "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4,
         "vocab_size": 101, "max_position_embeddings": 128, "hidden_act": "silu",
         "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "attention_bias": False,
         "bos_token_id": 1, "eos_token_id": 2, **spelling}
    c.update(keys)
    return {k: v for k, v in c.items() if v != "absent"}


def case(name, kind, spelling, *, stored="BF16", shards=1, gain=1.5, lengths=(37, 21),
         step=3, maps=False, odd_kv=False, copies=(), **keys):
    return {"name": name, "config": config(kind, spelling, **keys), "stored": stored,
            "shards": shards, "gain": gain, "lengths": lengths, "step": step, "maps": maps,
            "odd_kv": odd_kv, "copies": copies}


def diff(name, spelling=V5, **keys):
    return case(name, "diffllama", spelling, **keys)


def llama(name, spelling=V5, **keys):
    return case(name, "llama", spelling, **keys)


def rope(kind, theta=10000.0, **keys):
    return {"rope_type": kind, "rope_theta": theta, **keys}


# Heads wide enough for the RoPE variants to differ in every frequency band.
WIDE = {"num_key_value_heads": 2, "head_dim": 16}
NARROW = {**WIDE, "num_hidden_layers": 1, "intermediate_size": 40}
SHORT = [1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0]
LONG = [1.0, 1.3, 1.9, 2.7, 3.6, 4.8, 6.1, 8.0]

CASES = [
    # Heads of the differential model.
    diff("diff_mha", V4, num_key_value_heads=None, rope_theta=10000.0, rope_scaling=None,
         mlp_bias=False, pretraining_tp=1, maps=True),
    diff("diff_gqa", num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=4,
         head_dim=12, rope_parameters=rope("default"), lambda_std_dev=0.1, maps=True,
         lengths=(19, 40)),
    diff("diff_gqa_two", V4, num_attention_heads=8, num_key_value_heads=2, rope_theta=10000.0),
    diff("diff_gqa_six", num_attention_heads=12, num_key_value_heads=6, head_dim=6),
    diff("diff_mqa", V4, num_key_value_heads=1, odd_kv=True, maps=True),
    diff("diff_odd_kv", V4, num_attention_heads=6, num_key_value_heads=3, head_dim=10,
         odd_kv=True),
    diff("diff_odd_kv_wide", V4, num_attention_heads=12, num_key_value_heads=3, head_dim=8,
         odd_kv=True, rope_theta=1000.0),
    diff("diff_one_head", num_attention_heads=2, num_key_value_heads=2, lengths=(1, 40)),
    diff("diff_d20", hidden_size=48, num_attention_heads=6, num_key_value_heads=2, head_dim=20,
         intermediate_size=88),
    diff("diff_d100", num_attention_heads=2, num_key_value_heads=2, head_dim=100,
         num_hidden_layers=1),
    # Its other switches.
    diff("diff_bias_gelu", attention_bias=True, hidden_act="gelu", stored="F32",
         num_key_value_heads=2),
    diff("diff_tied_gelu_new", V4, tie_word_embeddings=True, hidden_act="gelu_new",
         rms_norm_eps=1e-2, num_key_value_heads=2),
    diff("diff_f16_shards", V4, stored="F16", shards=3, num_hidden_layers=3, vocab_size=130),
    # Longer than any tile of keys or queries, with maxima that move from tile to tile.
    diff("diff_long", gain=3.0, lengths=(300, 1, 129), step=23, num_key_value_heads=2,
         max_position_embeddings=512),
    # Outputs for several blocks of columns of a product, none of them even.
    diff("diff_wide", hidden_size=40, intermediate_size=300, vocab_size=331, head_dim=22,
         num_attention_heads=6, num_key_value_heads=6, num_hidden_layers=1, step=9),
    diff("diff_large_logits", gain=4.6, num_key_value_heads=2, head_dim=16),
    diff("diff_llama3", V4, rope_theta=500000.0, lengths=(63, 30), **WIDE,
         rope_scaling={"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                       "original_max_position_embeddings": 64, "rope_type": "llama3"}),
    diff("diff_yarn", rope_parameters=rope("yarn", factor=4.0), lengths=(63, 30), **WIDE),

    # The plain model. The first is a file of 2023: keys missing, buffers shipped.
    llama("llama_2023", V4, stored="F16", num_key_value_heads="absent", attention_bias="absent",
          rms_norm_eps=1e-6, copies=("rotary_emb.inv_freq",)),
    llama("llama_gqa", num_key_value_heads=2, rope_parameters=rope("default"), maps=True,
          mlp_bias=False, eos_token_id=[2, 3]),
    llama("llama_mqa_relu", V4, num_key_value_heads=1, hidden_act="relu"),
    llama("llama_gqa_three", hidden_size=36, num_attention_heads=6, num_key_value_heads=3,
          head_dim=10, vocab_size=97),
    llama("llama_d100", V4, num_attention_heads=2, num_key_value_heads=1, head_dim=100,
          num_hidden_layers=1),
    llama("llama_bias_gelu_tanh", attention_bias=True, mlp_bias=True, stored="F32",
          hidden_act="gelu_pytorch_tanh", num_key_value_heads=2),
    llama("llama_tied_shipped", V4, tie_word_embeddings=True, copies=("lm_head.weight",),
          rms_norm_eps=1e-2),
    llama("llama_bf16_shards", shards=2, num_hidden_layers=3),
    llama("llama_long", V4, gain=3.0, lengths=(1100,), step=59, num_key_value_heads=2,
          head_dim=16, rope_theta=500000.0, max_position_embeddings=2048, num_hidden_layers=1),
    llama("llama_large_logits", V4, gain=4.6, num_key_value_heads=2, head_dim=16),

    # RoPE (architectures: one row each; long and short in one batch where it matters).
    llama("rope_theta", V4, rope_theta=300.0, **NARROW),
    llama("rope_linear", V4, rope_scaling={"type": "linear", "factor": 2.5}, **NARROW),
    llama("rope_dynamic", V4, rope_scaling={"type": "dynamic", "factor": 4.0}, **NARROW,
          max_position_embeddings=32, lengths=(70, 21)),
    llama("rope_dynamic_v5", rope_parameters=rope("dynamic", factor=2.0), **NARROW,
          max_position_embeddings=32, lengths=(32, 33)),
    llama("rope_yarn", V4, rope_scaling={"type": "yarn", "factor": 8.0}, lengths=(63, 30),
          **NARROW),
    llama("rope_yarn_original", lengths=(63, 30), **NARROW, max_position_embeddings=256,
          rope_parameters=rope("yarn", factor=8.0, original_max_position_embeddings=64)),
    llama("rope_yarn_tuned", lengths=(63, 30), **NARROW,
          rope_parameters=rope("yarn", factor=8.0, attention_factor=1.25, beta_fast=4.0,
                               beta_slow=0.5, original_max_position_embeddings=64)),
    llama("rope_yarn_mscale", lengths=(63, 30), **NARROW,
          rope_parameters=rope("yarn", factor=8.0, mscale=1.4, mscale_all_dim=0.6,
                               truncate=False, original_max_position_embeddings=64)),
    llama("rope_llama3", lengths=(63, 30), **NARROW,
          rope_parameters=rope("llama3", 1000.0, factor=8.0, low_freq_factor=1.0,
                               high_freq_factor=4.0, original_max_position_embeddings=64)),
    # As Phi-3 has it: the original length outside, the factor is the ratio of the two.
    llama("rope_longrope", V4, lengths=(63, 30), **NARROW, max_position_embeddings=128,
          original_max_position_embeddings=32,
          rope_scaling={"type": "longrope", "short_factor": SHORT, "long_factor": LONG}),
    llama("rope_longrope_v5", lengths=(33, 32), **NARROW,
          rope_parameters=rope("longrope", short_factor=SHORT, long_factor=LONG,
                               attention_factor=1.1, original_max_position_embeddings=32)),
]
