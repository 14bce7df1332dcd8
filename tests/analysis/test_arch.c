/* test_arch.c - what the rows of the architecture table make of a config.json: their own
 * defaults, their own names, and what they refuse. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/model/config.h"
#include "analysis/model/rows.h"
#include "tests/check.h"

static Arena arena;

/* The file with the architecture's name and these further members. */
static Status parse(Config *c, const char *arch, const char *type, const char *members)
{
    char text[2048];
    arena_close(&arena);
    snprintf(text, sizeof text, "{\"architectures\":[\"%s\"],\"model_type\":\"%s\",%s}", arch,
             type, members);
    return config_parse(c, &arena, "m/config.json", text, strlen(text));
}

#define SIZES "\"vocab_size\":101,\"hidden_size\":64,\"intermediate_size\":96," \
              "\"num_hidden_layers\":4,\"num_attention_heads\":8"
#define MISTRAL "MistralForCausalLM", "mistral"
#define QWEN2 "Qwen2ForCausalLM", "qwen2"
#define QWEN3 "Qwen3ForCausalLM", "qwen3"
#define STABLELM "StableLmForCausalLM", "stablelm"
#define EPOCH "StableLMEpochForCausalLM", "stablelm_epoch"
#define ALPHA "StableLMAlphaForCausalLM", "stablelm_alpha"
#define NEOX "GPTNeoXForCausalLM", "gpt_neox"
#define GPT2 "GPT2LMHeadModel", "gpt2"
#define OPT "OPTForCausalLM", "opt"
#define MOTIF "MotifForCausalLM", "Motif"
#define PHI "Phi4FlashForCausalLM", "phi4flash"
#define POLY ",\"hidden_act\":\"poly_norm\""

/* --- windows --- */

static bool windows_are(const Config *c, int64_t a, int64_t b, int64_t d, int64_t e)
{
    const LayerConfig *l = c->model.layers;
    return l[0].reach == a && l[1].reach == b && l[2].reach == d && l[3].reach == e;
}

TEST(mistral_has_a_window_unless_told_otherwise)
{
    Config c;
    T_STATUS_OK(parse(&c, MISTRAL, SIZES));
    T_OK(windows_are(&c, 4096, 4096, 4096, 4096));
    T_OK(c.model.n_groups == 8 && c.model.norm_eps == 1e-6);
    T_STATUS_OK(parse(&c, MISTRAL, SIZES ",\"sliding_window\":null,"
                                   "\"num_key_value_heads\":2"));
    T_OK(windows_are(&c, 0, 0, 0, 0) && c.model.n_groups == 2);
    T_STATUS_OK(parse(&c, MISTRAL, SIZES ",\"sliding_window\":7"));
    T_OK(windows_are(&c, 7, 7, 7, 7));
    T_FAILS(parse(&c, MISTRAL, SIZES ",\"sliding_window\":0"), ERR_UNSUPPORTED,
            "m/config.json: sliding_window: 0 keys, expected null for none");
    /* the class does not look at layer_types */
#define FULL4 ",\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\"," \
              "\"full_attention\"]"
    T_STATUS_OK(parse(&c, MISTRAL, SIZES FULL4 ",\"sliding_window\":null"));
    T_FAILS(parse(&c, MISTRAL, SIZES FULL4), ERR_UNSUPPORTED,
            "layer_types: expected one kind for all layers, that of sliding_window");
}

TEST(qwen_has_windows_in_some_layers)
{
    Config c;
#define Q SIZES ",\"num_key_value_heads\":4"
    T_STATUS_OK(parse(&c, QWEN2, Q ",\"sliding_window\":9,\"max_window_layers\":1"));
    T_OK(windows_are(&c, 0, 0, 0, 0) && c.keys.qkv_bias && !c.keys.attention_bias);
    T_STATUS_OK(parse(&c, QWEN2, Q ",\"use_sliding_window\":true,\"sliding_window\":9,"
                                 "\"max_window_layers\":3"));
    T_OK(windows_are(&c, 0, 0, 0, 9));
    T_STATUS_OK(parse(&c, QWEN3, Q ",\"use_sliding_window\":true,\"sliding_window\":5,"
                                 "\"max_window_layers\":3,\"layer_types\":[\"full_attention\","
                                 "\"sliding_attention\",\"full_attention\","
                                 "\"sliding_attention\"]"));
    T_OK(windows_are(&c, 0, 5, 0, 5) && c.model.head_dim == 128 && c.model.qk_norm);
    T_FAILS(parse(&c, QWEN2, Q ",\"layer_types\":[\"full_attention\"]"), ERR_SHAPE,
            "m/config.json: layer_types is not a list of num_hidden_layers, 4");
    T_FAILS(parse(&c, QWEN2, Q ",\"layer_types\":[\"full_attention\",\"full_attention\","
                             "\"chunked\",\"full_attention\"]"), ERR_UNSUPPORTED,
            "layer_types[2] is \"chunked\"");
    T_FAILS(parse(&c, QWEN2, Q ",\"layer_types\":[\"full_attention\",\"full_attention\","
                             "\"full_attention\",\"sliding_attention\"]"), ERR_FORMAT,
            "layer_types[3] is sliding_attention, but there is no sliding_window");
    T_STATUS_OK(parse(&c, QWEN2, SIZES ",\"num_key_value_heads\":null"));
    T_OK(c.model.n_groups == 8);
    T_STATUS_OK(parse(&c, QWEN2, Q ",\"sliding_window\":0"));   // not used
    T_FAILS(parse(&c, QWEN2, Q ",\"use_sliding_window\":true,\"sliding_window\":0"),
            ERR_UNSUPPORTED, "sliding_window: 0 keys");
    /* the class's own number, 32, stands for a missing key */
    T_FAILS(parse(&c, QWEN2, SIZES), ERR_SHAPE, "num_key_value_heads, 32");
}

/* --- LayerNorm, partial RoPE --- */

TEST(stablelm_turns_a_quarter_of_a_head)
{
    Config c;
#define S SIZES ",\"num_key_value_heads\":8"
    T_STATUS_OK(parse(&c, STABLELM, S));
    T_OK(c.model.rope.dims == 2 && c.model.centred && c.model.residual == RESIDUAL_PRE);
    T_STATUS_OK(parse(&c, STABLELM, S ",\"partial_rotary_factor\":0.5,\"layer_norm_eps\":1e-3,"
                                    "\"use_parallel_residual\":true,\"norm_eps\":0.5,"
                                    "\"rope_pct\":1.0"));
    T_OK(c.model.rope.dims == 4 && c.model.norm_eps == 1e-3);
    T_OK(c.model.residual == RESIDUAL_PARALLEL);
    T_STATUS_OK(parse(&c, STABLELM, S ",\"rope_parameters\":{\"rope_theta\":100,"
                                    "\"partial_rotary_factor\":1.0}"));
    T_OK(c.model.rope.dims == 8 && c.model.rope.theta == 100);
    T_FAILS(parse(&c, STABLELM, S ",\"partial_rotary_factor\":0.4"), ERR_SHAPE,
            "RoPE turns 3 of 8 dims of a head");
    T_STATUS_OK(parse(&c, EPOCH, S ",\"rope_pct\":0.5,\"norm_eps\":1e-2"));
    T_OK(c.model.rope.dims == 4 && c.model.norm_eps == 1e-2);
    T_FAILS(parse(&c, EPOCH, S ",\"rotary_scaling_factor\":2"), ERR_UNSUPPORTED,
            "m/config.json: rotary_scaling_factor: expected 1");
    T_FAILS(parse(&c, EPOCH, S ",\"num_heads\":4"), ERR_UNSUPPORTED, "num_heads: expected");
    T_FAILS(parse(&c, EPOCH, S ",\"use_qkv_bias\":1"), ERR_FORMAT, "use_qkv_bias is 1");
    T_STATUS_OK(parse(&c, EPOCH, S ",\"use_qkv_bias\":true"));
    T_OK(c.keys.qkv_bias && !c.keys.bias_by_file);
    T_STATUS_OK(parse(&c, EPOCH, S ",\"use_qkv_bias\":null"));
    T_OK(c.keys.bias_by_file);
}

TEST(stablelm_alpha_has_a_width_that_follows)
{
    Config c;
    T_STATUS_OK(parse(&c, ALPHA, "\"vocab_size\":101,\"hidden_size\":2560,\"num_heads\":32,"
                                 "\"num_hidden_layers\":2"));
    T_OK(c.model.inter == 6912 && c.model.n_heads == 32 && c.model.rope.dims == 20);
    T_OK(c.model.residual == RESIDUAL_PARALLEL);
    /* q, k, v of head 1 follow those of head 0; the gate is the second half */
    T_OK(rows_source(&c, W_K, W_QKV, 80) == 3 * 80 + 80);
    T_OK(rows_source(&c, W_GATE, W_GATE_UP, 1) == 6913);
    T_OK(rows_source(&c, W_UP, W_GATE_UP, 1) == 1);
}

TEST(neox_reads_the_names_of_its_class)
{
    Config c;
    T_STATUS_OK(parse(&c, NEOX, SIZES ",\"rotary_emb_base\":500,\"rotary_pct\":1.0"));
    T_OK(c.model.rope.theta == 500 && c.model.rope.dims == 8 && !c.model.gated);
    T_OK(c.model.residual == RESIDUAL_PARALLEL && c.model.act == ACT_GELU);
    T_FAILS(parse(&c, NEOX, SIZES ",\"rope_theta\":500"), ERR_UNSUPPORTED,
            "rope_theta: is not rotary_emb_base, which is what counts");
    T_FAILS(parse(&c, NEOX, SIZES ",\"partial_rotary_factor\":1.0"), ERR_UNSUPPORTED,
            "partial_rotary_factor: is not rotary_pct");
    T_FAILS(parse(&c, NEOX, SIZES ",\"num_key_value_heads\":4"), ERR_UNSUPPORTED,
            "num_key_value_heads: expected num_attention_heads");
}

/* Code that divides for the width of a head still makes angles of head_dim. */
TEST(head_dim_is_refused_where_it_would_be_overlooked)
{
    Config c;
    T_STATUS_OK(parse(&c, STABLELM, S ",\"head_dim\":8"));
    T_STATUS_OK(parse(&c, NEOX, SIZES ",\"rotary_pct\":0.5,\"head_dim\":null"));
    T_FAILS(parse(&c, STABLELM, S ",\"head_dim\":16"), ERR_UNSUPPORTED,
            "m/config.json: head_dim is 16, but StableLmForCausalLM takes hidden_size / "
            "num_attention_heads, 8");
    T_FAILS(parse(&c, NEOX, SIZES ",\"rotary_pct\":0.5,\"head_dim\":4"), ERR_UNSUPPORTED,
            "head_dim is 4");
    T_FAILS(parse(&c, NEOX, SIZES ",\"rotary_pct\":0.5,\"head_dim\":\"8\""), ERR_UNSUPPORTED,
            "head_dim is no number");
}

/* --- learned positions --- */

TEST(gpt2_and_opt_learn_positions)
{
    Config c;
#define G "\"vocab_size\":101,\"n_embd\":64,\"n_layer\":4,\"n_head\":8,\"n_positions\":40"
    T_STATUS_OK(parse(&c, GPT2, G));
    T_OK(c.model.inter == 256 && c.model.n_positions == 40 && c.model.first_position == 0);
    T_OK(c.model.rope.dims == 0 && c.model.tied && c.model.act == ACT_GELU_TANH);
    T_OK(c.model.layers[3].scale == 1);
    T_STATUS_OK(parse(&c, GPT2, G ",\"scale_attn_by_inverse_layer_idx\":true,"
                                "\"scale_attn_weights\":false"));
    T_NEAR(c.model.layers[3].scale, sqrt(8) / 4, 1e-15);
    T_FAILS(parse(&c, GPT2, G ",\"add_cross_attention\":true"), ERR_UNSUPPORTED,
            "add_cross_attention: true is not supported");
    T_FAILS(parse(&c, GPT2, G ",\"activation_function\":\"quick_gelu\""), ERR_UNSUPPORTED,
            "activation_function is \"quick_gelu\", expected silu");
    /* nothing turns: a head may have an odd width */
    T_STATUS_OK(parse(&c, GPT2, "\"vocab_size\":101,\"n_embd\":20,\"n_layer\":2,\"n_head\":4"));
    T_OK(c.model.head_dim == 5);
#define O "\"vocab_size\":101,\"hidden_size\":64,\"ffn_dim\":96,\"num_hidden_layers\":4," \
          "\"num_attention_heads\":8,\"max_position_embeddings\":40"
    T_STATUS_OK(parse(&c, OPT, O));
    T_OK(c.model.n_positions == 42 && c.model.first_position == 2 && c.keys.final_norm);
    T_OK(c.model.residual == RESIDUAL_PRE && c.model.tied && c.model.act == ACT_RELU);
    T_STATUS_OK(parse(&c, OPT, O ",\"do_layer_norm_before\":false,\"enable_bias\":false,"
                               "\"word_embed_proj_dim\":16"));
    T_OK(c.model.residual == RESIDUAL_POST && !c.keys.final_norm && !c.keys.mlp_bias);
    T_OK(c.keys.embed_dim == 16);
    T_STATUS_OK(parse(&c, OPT, O ",\"_remove_final_layer_norm\":true"));
    T_OK(!c.keys.final_norm && c.model.residual == RESIDUAL_PRE);
}

/* --- differential --- */

TEST(motif_shifts_lambda_and_shares_noise)
{
    Config c;
#define M SIZES POLY ",\"num_key_value_heads\":4"
    T_STATUS_OK(parse(&c, MOTIF, M));
    T_OK(c.model.n_heads == 4 && c.model.n_groups == 2 && c.model.n_signals == 1);
    T_OK(c.model.poly && c.arch->lambda_shift == -1 && c.model.head_norm_eps == 1e-5);
    T_STATUS_OK(parse(&c, MOTIF, "\"vocab_size\":101,\"hidden_size\":64,"
                                 "\"intermediate_size\":96,\"num_hidden_layers\":4,"
                                 "\"num_attention_heads\":10,\"head_dim\":8,"
                                 "\"num_noise_heads\":2,\"num_key_value_heads\":4" POLY));
    T_OK(c.model.n_heads == 8 && c.model.n_signals == 4 && c.model.n_groups == 2);
    T_OK(model_query_heads(&c.model) == 10 && model_out_width(&c.model) == 128);
    /* an odd number of heads: three groups of two signals and their noise */
    T_STATUS_OK(parse(&c, MOTIF, "\"vocab_size\":101,\"hidden_size\":64,"
                                 "\"intermediate_size\":96,\"num_hidden_layers\":4,"
                                 "\"num_attention_heads\":9,\"head_dim\":8,"
                                 "\"num_noise_heads\":3,\"num_key_value_heads\":6" POLY));
    T_OK(c.model.n_heads == 6 && c.model.n_signals == 2 && c.model.n_groups == 3);
    T_OK(model_query_heads(&c.model) == 9);
    T_FAILS(parse(&c, MOTIF, "\"vocab_size\":101,\"hidden_size\":72,\"intermediate_size\":96,"
                             "\"num_hidden_layers\":4,\"num_attention_heads\":9,"
                             "\"num_key_value_heads\":9" POLY), ERR_SHAPE,
            "num_attention_heads is 9, expected an even number");
    T_FAILS(parse(&c, MOTIF, SIZES POLY ",\"num_noise_heads\":2,\"head_dim\":8,"
                             "\"num_key_value_heads\":8"), ERR_SHAPE,
            "to be a multiple of half of num_key_value_heads, 8");
    T_FAILS(parse(&c, MOTIF, M ",\"partial_rotary_factor\":0.5"), ERR_UNSUPPORTED,
            "partial_rotary_factor is 0.5, expected 1");
    T_FAILS(parse(&c, MOTIF, M ",\"num_noise_heads\":3,\"head_dim\":8"), ERR_SHAPE,
            "num_noise_heads is 3, expected to divide num_attention_heads, 8");
    T_FAILS(parse(&c, MOTIF, M ",\"num_noise_heads\":4,\"k_ratio\":2,\"head_dim\":8"),
            ERR_UNSUPPORTED, "k_ratio is 2, expected 1");
    T_FAILS(parse(&c, MOTIF, M ",\"use_bias\":true"), ERR_UNSUPPORTED, "use_bias: true");
    T_FAILS(parse(&c, MOTIF, M ",\"q_lora_rank\":512"), ERR_UNSUPPORTED,
            "q_lora_rank: Motif-3 and its kin");
    T_FAILS(parse(&c, MOTIF, SIZES ",\"hidden_act\":\"silu\""), ERR_UNSUPPORTED,
            "hidden_act: expected poly_norm");
    T_FAILS(parse(&c, MOTIF, SIZES POLY ",\"num_key_value_heads\":1"), ERR_SHAPE,
            "num_key_value_heads is 1, expected an even number");
}

TEST(unilm_shares_keys_between_the_maps_of_a_head)
{
    Config c;
#define SECOND "UnilmDiff2ForCausalLM", "unilm_diff2"
    T_STATUS_OK(parse(&c, SECOND, SIZES ",\"num_key_value_heads\":2"));
    T_OK(c.model.n_heads == 4 && c.model.n_groups == 2 && c.model.value_dim == 8);
    T_OK(c.model.lambda_rows && c.model.shared_keys && c.model.head_norm_eps < 0);
    T_FAILS(parse(&c, SECOND, SIZES ",\"num_key_value_heads\":8"), ERR_SHAPE,
            "num_attention_heads is 8, expected a multiple of twice num_key_value_heads, 8");
}

TEST(only_motif_has_polynorm)
{
    Config c;
    T_FAILS(parse(&c, MISTRAL, SIZES POLY), ERR_UNSUPPORTED, "hidden_act is \"poly_norm\"");
}

TEST(names_that_say_too_little_are_refused)
{
    Config c;
    T_FAILS(parse(&c, "DiffLlamaForCausalLM", "diff_llama", SIZES), ERR_UNSUPPORTED,
            "model_type is \"diff_llama\"");
    T_FAILS(parse(&c, "DragonForCausalLM", "dragon", SIZES), ERR_UNSUPPORTED,
            "architecture \"DragonForCausalLM\" is not supported");
}

/* --- layers of several kinds --- */

TEST(phi4flash_maps_its_layers)
{
    static const Mixer WANTED[8] = {MIX_MAMBA, MIX_ATTENTION, MIX_MAMBA,  MIX_ATTENTION,
                                    MIX_MAMBA, MIX_ATTENTION, MIX_MEMORY, MIX_CROSS};
#define P "\"vocab_size\":101,\"hidden_size\":64,\"intermediate_size\":96," \
          "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"num_hidden_layers\":8"
    Config c;
    T_STATUS_OK(parse(&c, PHI, P ",\"sliding_window\":5"));
    for (int64_t l = 0; l < 8; l++) {
        T_OK(c.model.layers[l].mixer == WANTED[l]);
        T_OK(c.model.layers[l].reach == (l == 1 || l == 3 ? 5 : 0));
        T_OK(c.model.layers[l].keys_of == (l == 7 ? 5 : l) || l == 6);
        T_OK(model_attends(&c.model, l) == (l % 2 == 1));
    }
    T_OK(c.model.inner == 128 && c.model.rank == 4 && c.model.n_states == 16);
    T_OK(c.model.rope.dims == 0 && c.model.centred && c.model.tied);
    T_STATUS_OK(parse(&c, PHI, P));
    T_OK(c.model.layers[1].reach == 2047 && c.model.layers[5].reach == 0);
    T_STATUS_OK(parse(&c, PHI, P ",\"sliding_window\":[null,6,null,7,null,null,null,null]"));
    T_OK(c.model.layers[1].reach == 6 && c.model.layers[3].reach == 7);
    T_FAILS(parse(&c, PHI, P ",\"sliding_window\":[1,2]"), ERR_SHAPE,
            "sliding_window has 2 entries");
    T_FAILS(parse(&c, PHI, P ",\"sliding_window\":[null,6,null,7,null,null,null,8]"),
            ERR_UNSUPPORTED, "sliding_window[7] is for a layer without keys of its own");
    T_FAILS(parse(&c, PHI, P ",\"sliding_window\":0"), ERR_FORMAT, "from 1 on");
#define TYPES(c, e) ",\"layer_types\":[\"full_attention\",\"sliding_attention\"," \
                    "\"full_attention\",\"" c "_attention\",\"full_attention\",\"" e \
                    "_attention\",\"full_attention\",\"full_attention\"]"
    T_STATUS_OK(parse(&c, PHI, P TYPES("sliding", "full")));
    T_FAILS(parse(&c, PHI, P TYPES("full", "full")), ERR_UNSUPPORTED,
            "layer_types[3] is \"full_attention\", but sliding_window gives that layer a window");
    T_FAILS(parse(&c, PHI, P TYPES("sliding", "sliding")), ERR_UNSUPPORTED,
            "layer_types[5] is \"sliding_attention\", but sliding_window gives that layer no");
    T_FAILS(parse(&c, PHI, P ",\"layer_types\":[]"), ERR_SHAPE, "layer_types is not a list of");
    T_FAILS(parse(&c, PHI, P ",\"mb_per_layer\":4"), ERR_UNSUPPORTED, "mb_per_layer is 4");
    T_FAILS(parse(&c, PHI, P ",\"mamba_dt_rank\":5"), ERR_UNSUPPORTED,
            "mamba_dt_rank is neither \"auto\" nor hidden_size / 16, 4");
    T_FAILS(parse(&c, PHI, P ",\"mamba_conv_bias\":false"), ERR_UNSUPPORTED,
            "mamba_conv_bias: false is not supported");
}

/* --- what a file may leave out --- */

TEST(defaults_are_those_of_each_class)
{
    static const struct {
        const char *arch, *type, *members;
        double      norm_eps, head_norm_eps, theta;   // theta 0: nothing turns
        int64_t     max_positions, bos, eos;
        Activation  act;
        bool        tied;
    } ROWS[] = {
        {MISTRAL, SIZES, 1e-6, -1, 1e4, 131072, 1, 2, ACT_SILU, false},
        {QWEN2, Q, 1e-6, -1, 1e4, 32768, -1, -1, ACT_SILU, false},
        {QWEN3, Q, 1e-6, -1, 1e4, 32768, -1, -1, ACT_SILU, false},
        {STABLELM, S, 1e-5, -1, 1e4, 4096, 0, 0, ACT_SILU, false},
        {EPOCH, S, 1e-5, -1, 1e4, 4096, 0, 2, ACT_SILU, false},
        {ALPHA, SIZES ",\"num_heads\":8", 1e-5, -1, 1e4, 4096, 0, 0, ACT_SILU, false},
        {NEOX, SIZES, 1e-5, -1, 1e4, 2048, 0, 2, ACT_GELU, false},
        {GPT2, "\"vocab_size\":101,\"n_embd\":64,\"n_layer\":4,\"n_head\":8", 1e-5, -1, 0, 1024,
         50256, 50256, ACT_GELU_TANH, true},
        {OPT, SIZES ",\"ffn_dim\":96", 1e-5, -1, 0, 2048, 2, 2, ACT_RELU, true},
        {MOTIF, SIZES POLY, 1e-6, 1e-5, 1e4, 8192, -1, -1, ACT_SILU, false},
        {PHI, P, 1e-5, 1e-5, 0, 4096, 1, 2, ACT_SILU, true},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        Config c;
        T_STATUS_OK(parse(&c, ROWS[i].arch, ROWS[i].type, ROWS[i].members));
        const ModelConfig *m = &c.model;
        T_OK(m->norm_eps == ROWS[i].norm_eps && m->head_norm_eps == ROWS[i].head_norm_eps);
        T_OK(m->rope.theta == ROWS[i].theta && m->max_positions == ROWS[i].max_positions);
        T_OK(m->bos == ROWS[i].bos && m->eos == ROWS[i].eos && m->tied == ROWS[i].tied);
        T_OK(m->poly || m->act == ROWS[i].act);
    }
    Config c;
    T_STATUS_OK(parse(&c, NEOX, SIZES));
    T_OK(c.model.rope.dims == 2);   // a quarter
    T_STATUS_OK(parse(&c, QWEN2, "\"vocab_size\":101,\"hidden_size\":64,\"intermediate_size\":96,"
                                 "\"num_hidden_layers\":30,\"num_attention_heads\":32,"
                                 "\"use_sliding_window\":true"));
    T_OK(c.model.layers[27].reach == 0 && c.model.layers[28].reach == 4096);
    /* of the two eps each is read by its own name */
    T_STATUS_OK(parse(&c, MOTIF, M ",\"rms_norm_eps\":1e-3,\"attn_rms_norm_eps\":1e-2"));
    T_OK(c.model.norm_eps == 1e-3 && c.model.head_norm_eps == 1e-2);
    T_STATUS_OK(parse(&c, PHI, P ",\"layer_norm_eps\":1e-3"));
    T_OK(c.model.norm_eps == 1e-3 && c.model.head_norm_eps == 1e-5);
}

/* Switches of code that does not look at them, or that is not built. */
TEST(switches_that_no_one_reads_are_refused)
{
    static const struct {
        const char *arch, *type, *members, *words;
    } ROWS[] = {
        {PHI, P ",\"mlp_bias\":true", "mlp_bias: true is not supported"},
        {PHI, P ",\"lm_head_bias\":true", "lm_head_bias: true is not supported"},
        {PHI, P ",\"mamba_proj_bias\":true", "mamba_proj_bias: true is not supported"},
        {PHI, "\"vocab_size\":101,\"hidden_size\":64,\"intermediate_size\":96,"
              "\"num_attention_heads\":8,\"num_hidden_layers\":6", "with 6 layers, expected 2"},
        {MOTIF, M ",\"qkv_bias\":true", "use_bias: true"},
        {MOTIF, M ",\"attention_bias\":true", "use_bias: true"},
        {MOTIF, M ",\"use_sliding_window\":true", "use_sliding_window: true"},
        {MOTIF, M ",\"kv_lora_rank\":512", "kv_lora_rank: Motif-3"},
        {MOTIF, M ",\"n_routed_experts\":8", "n_routed_experts: Motif-3"},
        {MOTIF, M ",\"num_experts\":8", "num_experts: Motif-3"},
        {MOTIF, M ",\"attention_cls\":\"x\"", "attention_cls: Motif-3"},
        {MOTIF, M ",\"diff_v2\":true", "diff_v2: Motif-3"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        Config c;
        T_FAILS(parse(&c, ROWS[i].arch, ROWS[i].type, ROWS[i].members), ERR_UNSUPPORTED,
                ROWS[i].words);
    }
    Config c;   // every head a noise head
    T_FAILS(parse(&c, MOTIF, M ",\"num_noise_heads\":8"), ERR_SHAPE, "num_noise_heads is 8");
}
