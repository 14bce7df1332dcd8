/* test_gguf.c - GGUF files against a strict reader of their container, weights that are
 * known one by one, and our own reading of GGUF. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "kernels/half.h"
#include "quant/formats/gguf_parts.h"
#include "quant/methods/kquant.h"
#include "tests/check.h"
#include "tests/quant/ref_llama.h"
#include "tests/quant/ref_written.h"

static Written run;

/* --- values and where they lie --- */

static const RefLlama GROUPED = {.hidden = 24, .inter = 20, .vocab = 11, .layers = 2,
                                 .heads = 6, .kv_heads = 2, .head_dim = 8, .bias = true};

/* HF's name of a tensor of the file. */
static const char *source_name(const char *name)
{
    static const char *const PAIRS[][2] = {
        {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"},
        {"output", "lm_head"}, {"attn_q", "self_attn.q_proj"}, {"attn_k", "self_attn.k_proj"},
        {"attn_v", "self_attn.v_proj"}, {"attn_output", "self_attn.o_proj"},
        {"ffn_gate", "mlp.gate_proj"}, {"ffn_up", "mlp.up_proj"},
        {"ffn_down", "mlp.down_proj"}, {"attn_norm", "input_layernorm"},
        {"ffn_norm", "post_attention_layernorm"},
    };
    static char out[128];
    char        middle[64], end[16];
    int         layer = -1;
    if (sscanf(name, "blk.%d.%63[^.].%15s", &layer, middle, end) != 3)
        sscanf(name, "%63[^.].%15s", middle, end);
    for (size_t i = 0; i < sizeof PAIRS / sizeof *PAIRS; i++)
        if (strcmp(PAIRS[i][0], middle) == 0) {
            char prefix[32] = "";
            if (layer >= 0)
                snprintf(prefix, sizeof prefix, "model.layers.%d.", layer);
            snprintf(out, sizeof out, "%s%s.%s", prefix, PAIRS[i][1], end);
            return out;
        }
    return "?";
}

/* Row of the source that row r must be: dims j and j + d/2 of a head become 2j, 2j + 1. */
static int64_t wanted_row(const char *name, int64_t r, int64_t d)
{
    if (!strstr(name, "attn_q.") && !strstr(name, "attn_k."))
        return r;
    for (int64_t j = 0; j < d / 2; j++)
        for (int64_t p = 0; p < 2; p++)
            if (r % d == 2 * j + p)
                return r / d * d + p * d / 2 + j;
    return -1;
}

static bool same_values(const RefGgufTensor *t, int64_t head_dim)
{
    const char *source = source_name(t->name);
    int64_t     K = t->n_dims == 2 ? t->ne[0] : 1, N = t->n_dims == 2 ? t->ne[1] : t->ne[0];
    for (int64_t r = 0; r < N; r++)
        for (int64_t k = 0; k < K; k++) {
            float x;
            memcpy(&x, t->data + 4 * (r * K + k), sizeof x);
            if (x != ref_llama_weight(source, wanted_row(t->name, r, head_dim) * K + k))
                return false;
        }
    return t->type == 0;
}

TEST(every_weight_in_its_place)
{
    T_RUNS(written_run(&run, ref_llama_write(&GROUPED, "grouped"), GGUF_F32, "grouped"));
    /* 3 of the model; of each layer 2 norms, 7 matrices, 7 biases */
    T_OK(run.file.n_tensors == 3 + 2 * 16);
    for (int i = 0; i < run.file.n_tensors; i++)
        if (!same_values(&run.file.tensors[i], GROUPED.head_dim))
            check_fail(__FILE__, __LINE__, "%s", run.file.tensors[i].name);
    const RefGgufTensor *down = ref_gguf_tensor(&run.file, "blk.1.ffn_down.weight");
    T_OK(down && down->n_dims == 2 && down->ne[0] == 20 && down->ne[1] == 24);
    T_OK(run.o.n_rows == 2 + 2 * 7 && run.o.rows[0].weight_error == 0);
    T_TEXT(run.o.rows[1].name, "model.layers.0.self_attn.q_proj.weight");
    T_OK(run.o.rows[2].n == 16 && run.o.rows[2].k == 24 && run.o.rows[2].bits == 32);
    written_close(&run);
}

TEST(keys_of_the_model)
{
    RefLlama m = GROUPED;
    m.config = "\"max_position_embeddings\": 77, \"rope_theta\": 5000.0, ";
    T_RUNS(written_run(&run, ref_llama_write(&m, "keys"), GGUF_Q8_0, "keys"));
    const RefGguf *f = &run.file;
    T_TEXT(ref_gguf_text(f, "general.architecture"), "llama");
    T_TEXT(ref_gguf_text(f, "general.name"), "keys");
    T_OK(ref_gguf_u32(f, "general.file_type") == 7);
    T_OK(ref_gguf_u32(f, "general.quantization_version") == 2);
    T_OK(ref_gguf_u32(f, "llama.context_length") == 77);
    T_OK(ref_gguf_u32(f, "llama.embedding_length") == 24);
    T_OK(ref_gguf_u32(f, "llama.block_count") == 2);
    T_OK(ref_gguf_u32(f, "llama.feed_forward_length") == 20);
    T_OK(ref_gguf_u32(f, "llama.attention.head_count") == 6);
    T_OK(ref_gguf_u32(f, "llama.attention.head_count_kv") == 2);
    T_OK(ref_gguf_u32(f, "llama.attention.key_length") == 8);
    T_OK(ref_gguf_u32(f, "llama.attention.value_length") == 8);
    T_OK(ref_gguf_u32(f, "llama.rope.dimension_count") == 8);
    T_OK(ref_gguf_u32(f, "llama.vocab_size") == 11);
    T_NEAR(ref_gguf_f32(f, "llama.rope.freq_base"), 5000, 0);
    T_NEAR(ref_gguf_f32(f, "llama.attention.layer_norm_rms_epsilon"), 1e-5f, 0);
    T_TEXT(ref_gguf_text(f, "tokenizer.ggml.model"), "none");
    T_OK(run.o.warning && strstr(run.o.warning, "no tokenizer.json"));
    written_close(&run);
}

/* --- encoding --- */

/* Bytes of t are those of kquant_encode on its rows. */
static bool same_blocks(const RefGgufTensor *t, BlockType type, int64_t head_dim,
                        const float *importance)
{
    const char *source = source_name(t->name);
    float       row[512];
    uint8_t     blocks[4 * 512];
    size_t      bytes = kquant_bytes(type, t->ne[0]);
    for (int64_t r = 0; r < t->ne[1]; r++) {
        for (int64_t k = 0; k < t->ne[0]; k++)
            row[k] = ref_llama_weight(source, wanted_row(t->name, r, head_dim) * t->ne[0] + k);
        kquant_encode(blocks, type, row, importance, t->ne[0]);
        if (memcmp(blocks, t->data + (size_t)r * bytes, bytes) != 0)
            return false;
    }
    return t->type == block_info(type)->id;
}

static const RefLlama WIDE = {.hidden = 256, .inter = 512, .vocab = 9, .layers = 8, .heads = 4,
                              .kv_heads = 2, .head_dim = 32, .tied = true};

TEST(rows_are_permuted_then_encoded)
{
    T_RUNS(written_run(&run, ref_llama_write(&WIDE, "wide"), GGUF_Q4_K_M, "wide"));
    static const struct {
        const char *name;
        BlockType   type;
    } WANT[] = {
        {"token_embd.weight", BLOCK_Q6_K},  // tied
        {"blk.0.attn_q.weight", BLOCK_Q4_K},   {"blk.0.attn_k.weight", BLOCK_Q4_K},
        {"blk.0.attn_v.weight", BLOCK_Q6_K},   {"blk.1.attn_v.weight", BLOCK_Q4_K},
        {"blk.3.ffn_down.weight", BLOCK_Q6_K}, {"blk.4.ffn_down.weight", BLOCK_Q4_K},
        {"blk.7.ffn_down.weight", BLOCK_Q6_K}, {"blk.5.attn_output.weight", BLOCK_Q5_0},
    };
    for (size_t i = 0; i < sizeof WANT / sizeof *WANT; i++) {
        const RefGgufTensor *t = ref_gguf_tensor(&run.file, WANT[i].name);
        T_OK(t);
        if (!same_blocks(t, WANT[i].type, WIDE.head_dim, NULL))
            check_fail(__FILE__, __LINE__, "%s", WANT[i].name);
    }
    T_OK(!ref_gguf_tensor(&run.file, "output.weight"));
    T_OK(run.o.rows[1].weight_error > 0.04 && run.o.rows[1].weight_error < 0.1);
    T_NEAR(run.o.rows[1].bits, 4.5, 0);
    written_close(&run);
}

TEST(importance_of_the_inputs_of_each_matrix)
{
    enum { LAYERS = 8 };
    static double        values[N_TAPS][512];
    static const double *of_taps[LAYERS * N_TAPS];
    float                narrow[512];
    const char          *path = written_path("weighed");
    for (int t = 0; t < N_TAPS; t++)
        for (int k = 0; k < 512; k++)
            values[t][k] = 0.01 + (k * (t + 3) % 17) * 0.3;
    for (int i = 0; i < LAYERS * N_TAPS; i++)
        of_taps[i] = values[i % N_TAPS];
    memset(&run, 0, sizeof run);
    T_STATUS_OK(written_write(&run, ref_llama_write(&WIDE, "wide"), GGUF_Q4_0, path, of_taps));
    T_RUNS(ref_gguf_open(&run.file, path));
    static const struct {
        const char *name;
        Tap         tap;
        BlockType   type;
    } WANT[] = {
        {"blk.0.attn_k.weight", TAP_QKV_IN, BLOCK_Q4_0},
        {"blk.1.attn_output.weight", TAP_O_IN, BLOCK_Q4_0},
        {"blk.2.ffn_up.weight", TAP_MLP_IN, BLOCK_Q4_0},
        {"blk.0.ffn_down.weight", TAP_DOWN_IN, BLOCK_Q4_1},  // first eighth
        {"blk.1.ffn_down.weight", TAP_DOWN_IN, BLOCK_Q4_0},
    };
    for (size_t i = 0; i < sizeof WANT / sizeof *WANT; i++) {
        for (int k = 0; k < 512; k++)
            narrow[k] = (float)values[WANT[i].tap][k];
        const RefGgufTensor *t = ref_gguf_tensor(&run.file, WANT[i].name);
        T_OK(t && same_blocks(t, WANT[i].type, WIDE.head_dim, narrow));
    }
    written_close(&run);
}

TEST(rows_that_are_no_whole_blocks)
{
    RefLlama m = {.hidden = 96, .inter = 100, .vocab = 7, .layers = 1, .heads = 3,
                  .kv_heads = 3, .head_dim = 32};
    T_RUNS(written_run(&run, ref_llama_write(&m, "odd"), GGUF_Q4_K_M, "odd"));
    const RefGgufTensor *q = ref_gguf_tensor(&run.file, "blk.0.attn_q.weight");
    const RefGgufTensor *down = ref_gguf_tensor(&run.file, "blk.0.ffn_down.weight");
    const RefGgufTensor *head = ref_gguf_tensor(&run.file, "output.weight");
    T_OK(q && same_blocks(q, BLOCK_Q5_0, 32, NULL));      // 96: not 256, but 32
    T_OK(head && same_blocks(head, BLOCK_Q8_0, 0, NULL)); // the head's own rule
    T_OK(down && down->type == 1);                        // 100: neither
    for (int i = 0; i < 100; i++) {
        uint16_t half;
        memcpy(&half, down->data + 2 * i, sizeof half);
        T_OK(half == f16_from_f32(ref_llama_weight("model.layers.0.mlp.down_proj.weight", i)));
    }
    written_close(&run);
}

/* --- which type --- */

static const char *choice(GgufType type, int role, int64_t layer, int64_t n_layers, int64_t K)
{
    GgufChoice c = {type, n_layers, .tied = false, .grouped = true, .importance = false};
    GgufStore  s = gguf_choose(&c, role, layer, K);
    return gguf_store_name(&s);
}

TEST(types_of_llama_quantize)
{
    /* 32 layers: the first 4, the last 4, and 6, 9, 12 ... between */
    for (int64_t l = 0; l < 32; l++) {
        bool more = l < 4 || l >= 28 || (l - 4) % 3 == 2;
        T_TEXT(choice(GGUF_Q4_K_M, W_V, l, 32, 4096), more ? "Q6_K" : "Q4_K");
        T_TEXT(choice(GGUF_Q5_K_M, W_DOWN, l, 32, 4096), more ? "Q6_K" : "Q5_K");
        T_TEXT(choice(GGUF_Q4_K_S, W_V, l, 32, 4096), l < 4 ? "Q5_K" : "Q4_K");
        T_TEXT(choice(GGUF_Q4_K_S, W_DOWN, l, 64, 4096), l < 8 ? "Q5_K" : "Q4_K");
        T_TEXT(choice(GGUF_Q4_K_M, W_O, l, 32, 4096), "Q4_K");
        T_TEXT(choice(GGUF_Q6_K, W_DOWN, l, 32, 4096), "Q6_K");
    }
    T_TEXT(choice(GGUF_Q4_K_S, W_V, 10, 80, 8192), "Q5_K");  // of the 70B kind
    T_TEXT(choice(GGUF_Q4_K_M, W_V, 10, 80, 8192), "Q5_K");
    T_TEXT(choice(GGUF_Q4_0, GGUF_ROLE_EMBED, 0, 4, 4096), "Q4_0");
    T_TEXT(choice(GGUF_Q4_0, GGUF_ROLE_HEAD, 0, 4, 4096), "Q6_K");
    T_TEXT(choice(GGUF_Q4_0, GGUF_ROLE_HEAD, 0, 4, 288), "Q8_0");  // no Q6_K of 288
    T_TEXT(choice(GGUF_Q8_0, GGUF_ROLE_HEAD, 0, 4, 4096), "Q8_0");
    T_TEXT(choice(GGUF_Q5_K_S, W_Q, 0, 4, 288), "Q5_1");
    T_TEXT(choice(GGUF_Q6_K, W_Q, 0, 4, 288), "Q8_0");
    T_TEXT(choice(GGUF_Q8_0, W_Q, 0, 4, 100), "F16");
    T_TEXT(choice(GGUF_BF16, GGUF_ROLE_HEAD, 0, 4, 100), "BF16");
}

TEST(names_of_types)
{
    GgufType t;
    T_STATUS_OK(gguf_type_parse(&t, "q4_k_m"));
    T_OK(t == GGUF_Q4_K_M);
    T_FAILS(gguf_type_parse(&t, "Q4_K"), ERR_USAGE, "Q4_K_S, Q4_K_M");
}

/* --- rotary embedding: what our reading of GGUF makes of it --- */

TEST(rotations_survive)
{
    static const char *const MODELS[] = {"rope_theta", "rope_linear", "rope_llama3",
                                         "rope_yarn", "rope_yarn_original",
                                         "rope_yarn_tuned", "rope_longrope"};
    enum { POSITIONS = 64, HALF = 64 };
    static float cs[2][POSITIONS * HALF], sn[2][POSITIONS * HALF];
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++) {
        char        folder[512];
        const char *path = written_path(MODELS[i]);
        snprintf(folder, sizeof folder, "%s/golden/models/%s", DQ_TESTS, MODELS[i]);
        T_RUNS(written_run(&run, folder, GGUF_F32, MODELS[i]));
        for (int side = 0; side < 2; side++) {
            ModelInfo info;
            T_STATUS_OK(model_info_open(&info, &run.arena, side ? path : folder));
            const ModelConfig *c = &info.config;
            T_OK(c->rope.dims / 2 <= HALF);
            T_STATUS_OK(rope_tables(&c->rope, c->max_positions, POSITIONS, POSITIONS, cs[side],
                                    sn[side]));
            T_OK(side == 0 || c->max_positions > 0);
            model_info_close(&info);
        }
        /* 64 positions times an angle that is off by an f32 rounding or two */
        for (int j = 0; j < POSITIONS * HALF; j++) {
            T_NEAR(cs[1][j], cs[0][j], 2e-5);
            T_NEAR(sn[1][j], sn[0][j], 2e-5);
        }
        written_close(&run);
    }
}

/* ggml multiplies a factor of its own, 1 + 0.1 ln 4, which the key corrects. */
TEST(attention_of_yarn)
{
    RefLlama m = GROUPED;
    m.config = "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"mscale\": 0.5, "
               "\"mscale_all_dim\": 2.0, \"beta_fast\": 16}, \"max_position_embeddings\": 64, ";
    T_RUNS(written_run(&run, ref_llama_write(&m, "yarn"), GGUF_F32, "yarn"));
    const RefGguf *f = &run.file;
    double         ln = log(4);
    T_TEXT(ref_gguf_text(f, "llama.rope.scaling.type"), "yarn");
    T_NEAR(ref_gguf_f32(f, "llama.rope.scaling.factor"), 4, 0);
    T_OK(ref_gguf_u32(f, "llama.rope.scaling.original_context_length") == 64);
    T_NEAR(ref_gguf_f32(f, "llama.rope.scaling.attn_factor"),
           (1 + 0.05 * ln) / (1 + 0.2 * ln) / (1 + 0.1 * ln), 1e-7);
    T_NEAR(ref_gguf_f32(f, "llama.rope.scaling.yarn_beta_fast"), 16, 0);
    T_NEAR(ref_gguf_f32(f, "llama.rope.scaling.yarn_beta_slow"), 1, 0);
    written_close(&run);
}

/* --- refusals and failures --- */

static Status write_golden(const char *model)
{
    char folder[512];
    snprintf(folder, sizeof folder, "%s/golden/models/%s", DQ_TESTS, model);
    return written_write(&run, folder, GGUF_Q8_0, written_path("x"), NULL);
}

TEST(what_the_llama_graph_cannot_say)
{
    memset(&run, 0, sizeof run);
    T_FAILS(write_golden("diff_gqa"), ERR_UNSUPPORTED, "write compressed-tensors");
    T_FAILS(write_golden("llama_bias_gelu_tanh"), ERR_UNSUPPORTED, "silu only");
    T_FAILS(write_golden("llama_mqa_relu"), ERR_UNSUPPORTED, "activation relu");
    T_FAILS(write_golden("rope_dynamic"), ERR_UNSUPPORTED, "rope_type dynamic");
    T_FAILS(write_golden("rope_yarn_mscale"), ERR_UNSUPPORTED, "truncate false");
    written_close(&run);
}

TEST(a_failed_run_leaves_nothing)
{
    RefLlama    m = GROUPED;
    const char *path = written_path("spoiled");
    memset(&run, 0, sizeof run);
    m.spoiled = "lm_head.weight";  // the last that is written
    m.spoil = NAN;
    T_FAILS(written_write(&run, ref_llama_write(&m, "bad"), GGUF_Q4_0, path, NULL), ERR_RANGE,
            "lm_head.weight[10,23] is NaN");
    T_OK(written_files("spoiled") == 0);
    m.spoil = 70000;
    T_FAILS(written_write(&run, ref_llama_write(&m, "bad"), GGUF_F16, path, NULL), ERR_RANGE,
            "lm_head.weight has weights beyond what F16 can hold");
    T_OK(written_files("spoiled") == 0);
    T_FAILS(written_write(&run, ref_llama_write(&m, "bad"), GGUF_F16, "/nowhere/x.gguf", NULL),
            ERR_IO, "/nowhere/x.gguf");
    written_close(&run);
}

TEST(what_is_there_is_kept_unless_asked)
{
    Layers      l;
    const char *path = written_path("there"), *folder = ref_llama_write(&GROUPED, "grouped");
    memset(&run, 0, sizeof run);
    GgufRow rows[64];
    T_STATUS_OK(layers_open(&l, &run.arena, folder));
    GgufOptions o = {.path = path, .type = GGUF_F16, .source = &l, .rows = rows};
    T_STATUS_OK(gguf_write(&run.arena, &o));
    T_FAILS(gguf_write(&run.arena, &o), ERR_USAGE, "is there already");
    o.overwrite = true;
    T_STATUS_OK(gguf_write(&run.arena, &o));
    /* a shard of the source, by mistake */
    char shard[600];
    snprintf(shard, sizeof shard, "%s/model.safetensors", folder);
    o.path = shard;
    T_FAILS(gguf_write(&run.arena, &o), ERR_USAGE, "no GGUF file");
    layers_close(&l);
    /* and a GGUF is no source */
    T_FAILS(written_write(&run, path, GGUF_Q8_0, written_path("again"), NULL), ERR_UNSUPPORTED,
            "config.json");
    written_close(&run);
}

TEST(every_allocation_may_fail)
{
    RefLlama    m = {.hidden = 32, .inter = 32, .vocab = 2010, .layers = 1, .heads = 1,
                     .kv_heads = 1, .head_dim = 32, .tied = true, .tokenizer = "splits",
                     .config = "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "
                               "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
                               "\"original_max_position_embeddings\": 64}, "};
    const char *folder = ref_llama_write(&m, "memory"), *path = written_path("memory");
    Status      s = ERR_MEMORY;
    int64_t     k = 0;
    while (s != OK) {
        Layers  l;
        Arena   a = {0};
        GgufRow rows[64];
        T_STATUS_OK(layers_open(&l, &a, folder));
        GgufOptions o = {.path = path, .type = GGUF_Q4_0, .source = &l, .rows = rows};
        arena_fail_at(++k);
        s = gguf_write(&a, &o);
        arena_fail_at(0);
        layers_close(&l);
        arena_close(&a);
        T_OK(s == OK || s == ERR_MEMORY);
        T_OK(written_files("memory.gguf") == (s == OK));
        T_OK(k < 10000);
    }
    T_OK(k > 20);
}

TEST(threads_do_not_change_the_bytes)
{
    static uint8_t first[1 << 20];
    size_t         n = 0;
    const char    *folder = ref_llama_write(&WIDE, "wide");
    for (int threads = 1; threads <= 3; threads += 2) {
        omp_set_num_threads(threads);
        T_RUNS(written_run(&run, folder, GGUF_Q4_0, "threads"));
        T_OK(threads == 1 ? run.file.n <= sizeof first * 8 : run.file.n == n);
        size_t part = run.file.n < sizeof first ? run.file.n : sizeof first;
        if (threads == 1)
            memcpy(first, run.file.bytes, part);
        T_OK(memcmp(first, run.file.bytes, part) == 0);
        n = run.file.n;
        written_close(&run);
    }
}
