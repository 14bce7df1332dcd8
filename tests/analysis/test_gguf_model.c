/* test_gguf_model.c - llamas of GGUF files: every type beside transformers, the order of
 * rows of q and k, keys as a config, what such files can get wrong. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/json.h"
#include "analysis/layers.h"
#include "analysis/model/gguf_source.h"
#include "analysis/model/source.h"
#include "kernels/half.h"
#include "tests/analysis/ref_checkpoint.h"
#include "tests/analysis/ref_golden.h"
#include "tests/analysis/ref_gguf.h"
#include "tests/check.h"

#define PATH ref_path("m.gguf")

enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q8_0 = 8, TYPE_BF16 = 30 };

static const char *const TYPES[] = {"f32",  "f16",  "bf16", "q4_0", "q4_1", "q5_0",
                                    "q5_1", "q8_0", "q4_k", "q5_k", "q6_k"};
enum { N_TYPES = sizeof TYPES / sizeof *TYPES };

static const char *golden(const char *name, const char *end)
{
    char text[64];
    snprintf(text, sizeof text, "golden/gguf/%s.%s", name, end);
    return check_path(text);
}

TEST(every_type_in_f32)
{
    for (int i = 0; i < N_TYPES; i++)
        golden_compare(TYPES[i], golden(TYPES[i], "gguf"), golden(TYPES[i], "safetensors"),
                       DTYPE_F32, true);
}

TEST(every_type_in_bf16)
{
    for (int i = 0; i < N_TYPES; i++)
        golden_compare(TYPES[i], golden(TYPES[i], "gguf"), golden(TYPES[i], "safetensors"),
                       DTYPE_BF16, true);
}

TEST(what_inspect_says)
{
    Arena     a = {0};
    ModelInfo info;
    char      text[MODEL_FORMAT];
    size_t    bytes = 0;
    T_STATUS_OK(model_info_open(&info, &a, golden("q4_k", "gguf")));
    T_TEXT(info.name, "q4_k");
    T_TEXT(info.arch, "LlamaForCausalLM");
    T_TEXT(info.quantization, "GGUF: Q4_K, Q8_0");
    T_OK(info.n_files == 1 && info.n_tensors == 11 && info.config.tied);
    for (int64_t i = 0; i < info.n_tensors; i++) {
        const ModelTensor *t = &info.tensors[i];
        bytes += model_tensor_bytes(t);
        T_TEXT(t->file, "q4_k.gguf");
        if (strcmp(t->name, "model.layers.0.self_attn.q_proj.weight"))
            continue;
        T_TEXT(model_tensor_format(t, text), "Q4_K");
        T_OK(t->quantizable && t->view.n_dims == 2 && t->view.shape[0] == 32 &&
             t->view.shape[1] == 256 && model_tensor_bytes(t) == 32 * 144);
    }
    T_OK(bytes == info.n_bytes);
    model_info_close(&info);
    arena_close(&a);
}

/* --- files made here: one layer, C 32, F 32, V 8, two heads of 16, one of k and v --- */

typedef struct {
    const char *drop;          // key or tensor that is not there, or NULL
    const char *extra;         // tensor more, F32 [8] of twos, or NULL
    const char *arch;
    uint32_t    q_type;        // of attn_q and attn_k
    uint32_t    heads, width;  // width: key_length, 0 for none
    bool        bias;          // of q, k, v, o
    int         wrong_rows;    // that attn_v has too many
    void      (*keys)(RefGguf *);  // more of them
    int         n_keys;
} Spec;

static const Spec PLAIN = {.arch = "llama", .q_type = TYPE_F32, .heads = 2};

typedef struct {
    const char *name;
    int         rows, cols;  // cols 0: a vector
    bool        turned;      // of q and k
    bool        bias;
} SpecTensor;

static const SpecTensor TENSORS[] = {
    {"token_embd.weight", 8, 32, false, false},
    {"output_norm.weight", 32, 0, false, false},
    {"blk.0.attn_norm.weight", 32, 0, false, false},
    {"blk.0.ffn_norm.weight", 32, 0, false, false},
    {"blk.0.attn_q.weight", 32, 32, true, false},
    {"blk.0.attn_k.weight", 16, 32, true, false},
    {"blk.0.attn_v.weight", 16, 32, false, false},
    {"blk.0.attn_output.weight", 32, 32, false, false},
    {"blk.0.ffn_gate.weight", 32, 32, false, false},
    {"blk.0.ffn_up.weight", 32, 32, false, false},
    {"blk.0.ffn_down.weight", 32, 32, false, false},
    {"blk.0.attn_q.bias", 32, 0, true, true},
    {"blk.0.attn_k.bias", 16, 0, true, true},
    {"blk.0.attn_v.bias", 16, 0, false, true},
    {"blk.0.attn_output.bias", 32, 0, false, true},
};
enum { N_TENSORS = sizeof TENSORS / sizeof *TENSORS };

static const struct {
    const char *name;
    uint32_t    value;
} COUNTS[] = {
    {"llama.vocab_size", 8},         {"llama.context_length", 64},
    {"llama.embedding_length", 32},  {"llama.block_count", 1},
    {"llama.feed_forward_length", 32}, {"llama.attention.head_count", 0},
    {"llama.attention.head_count_kv", 1}, {"tokenizer.ggml.bos_token_id", 1},
    {"tokenizer.ggml.eos_token_id", 2}, {"tokenizer.ggml.eot_token_id", 3},
    {"tokenizer.ggml.eom_token_id", 2},
};
enum { N_COUNTS = sizeof COUNTS / sizeof *COUNTS };

static bool dropped(const Spec *s, const char *name)
{
    return s->drop && strcmp(s->drop, name) == 0;
}

static bool has(const Spec *s, const SpecTensor *t)
{
    return !dropped(s, t->name) && (s->bias || !t->bias);
}

static int rows_of(const Spec *s, const SpecTensor *t)
{
    return t->rows + (strstr(t->name, "attn_v.w") ? s->wrong_rows : 0);
}

static uint32_t type_of(const Spec *s, const SpecTensor *t)
{
    return t->turned && t->cols ? s->q_type : TYPE_F32;
}

/* Row r of the file is r, + 0.25 (c % 4): few bits, so that every type holds it. */
static float number(int row, int col)
{
    return (float)row + 0.25f * (float)(col % 4);
}

static size_t put_row(RefGguf *g, uint32_t type, int row, int cols)
{
    size_t   before = g->n;
    uint16_t quarter = 0x3400;  // f16 0.25: the scale of a block
    if (type == TYPE_Q8_0)
        ref_gguf_bytes(g, &quarter, 2);
    for (int c = 0; c < cols; c++) {
        float    x = number(row, c);
        uint16_t half = type == TYPE_F16 ? f16_from_f32(x) : bf16_from_f32(x);
        int8_t   code = (int8_t)(4 * x);
        if (type == TYPE_F32)
            ref_gguf_bytes(g, &x, 4);
        else if (type == TYPE_Q8_0)
            ref_gguf_bytes(g, &code, 1);
        else
            ref_gguf_bytes(g, &half, 2);
    }
    return g->n - before;
}

static void put_tensor(RefGguf *g, const Spec *s, const SpecTensor *t)
{
    static const unsigned char ZERO[32];
    int    rows = t->cols ? rows_of(s, t) : 1, cols = t->cols ? t->cols : t->rows;
    size_t n = 0;
    for (int r = 0; r < rows; r++)
        if (t->cols)
            n += put_row(g, type_of(s, t), r, cols);
    for (int r = 0; !t->cols && r < t->rows; r++)
        n += put_row(g, TYPE_F32, r, 1);
    ref_gguf_bytes(g, ZERO, (32 - n % 32) % 32);
}

static size_t bytes_of(const Spec *s, const SpecTensor *t)
{
    uint32_t type = type_of(s, t);
    size_t   n = (size_t)rows_of(s, t) * (size_t)(t->cols ? t->cols : 1);
    return type == TYPE_Q8_0 ? n / 32 * 34 : type == TYPE_F32 ? 4 * n : 2 * n;
}

static void put_keys(RefGguf *g, const Spec *s)
{
    if (!dropped(s, "general.architecture"))
        ref_gguf_key_text(g, "general.architecture", s->arch);
    if (!dropped(s, "llama.attention.layer_norm_rms_epsilon"))
        ref_gguf_key_f32(g, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    for (int i = 0; i < N_COUNTS; i++)
        if (!dropped(s, COUNTS[i].name))
            ref_gguf_key_u32(g, COUNTS[i].name, COUNTS[i].value ? COUNTS[i].value : s->heads);
    if (s->width)
        ref_gguf_key_u32(g, "llama.attention.key_length", s->width);
    if (s->keys)
        s->keys(g);
}

static void write_model(const Spec *s)
{
    RefGguf g;
    int     n = s->extra != NULL, n_keys = 2 + N_COUNTS + !!s->width + s->n_keys;
    for (int i = 0; i < N_TENSORS; i++)
        n += has(s, &TENSORS[i]);
    for (int i = 0; i < N_COUNTS; i++)
        n_keys -= dropped(s, COUNTS[i].name);
    n_keys -= dropped(s, "general.architecture");
    n_keys -= dropped(s, "llama.attention.layer_norm_rms_epsilon");
    ref_gguf_begin(&g, 3, (uint64_t)n, (uint64_t)n_keys);
    put_keys(&g, s);
    for (int i = 0; i < N_TENSORS; i++) {
        const SpecTensor *t = &TENSORS[i];
        uint64_t ne[2] = {(uint64_t)(t->cols ? t->cols : t->rows), (uint64_t)rows_of(s, t)};
        if (has(s, t))
            ref_gguf_tensor(&g, t->name, type_of(s, t), t->cols ? 2 : 1, ne, bytes_of(s, t));
    }
    if (s->extra)
        ref_gguf_tensor(&g, s->extra, TYPE_F32, 1, (uint64_t[]){8}, 8 * sizeof(float));
    size_t end = g.data;
    g.data = 0;
    ref_gguf_data(&g);  // the padding only
    end += g.n;
    for (int i = 0; i < N_TENSORS; i++)
        if (has(s, &TENSORS[i]))
            put_tensor(&g, s, &TENSORS[i]);
    while (g.n < end) {
        float two = 2;
        ref_gguf_bytes(&g, &two, sizeof two);
    }
    ref_gguf_save(&g, PATH);
}

/* --- the order of rows --- */

/* Row r of q or k as transformers has it: halves of a head one after the other. */
static int file_row(int r)
{
    int i = r % 16;
    return r - i + i % 8 * 2 + i / 8;
}

static bool right_rows(const float *w, int first, int rows, bool turned)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 32; c++)
            if (w[r * 32 + c] != number(turned ? file_row(first + r) : first + r, c))
                return false;
    return true;
}

static void check_order(uint32_t type)
{
    Arena        a = {0};
    Layers       l;
    LayerWeights w;
    float        part[5 * 32];
    Spec         s = PLAIN;
    s.q_type = type;
    s.bias = true;
    write_model(&s);
    T_STATUS_OK(layers_open(&l, &a, PATH));
    T_STATUS_OK(layers_read(&w, &a, &l, 0));
    for (int kind = W_Q; kind <= W_V; kind++) {
        const LayerMatrix *m = &w.at[kind];
        T_OK(m->n == (kind == W_Q ? 32 : 16) && m->k == 32 && m->bias);
        T_OK(right_rows(m->w, 0, (int)m->n, kind != W_V));
        for (int r = 0; r < m->n; r++)
            T_OK(m->bias[r] == (float)(kind == W_V ? r : file_row(r)));
    }
    for (int64_t i = 0; i < l.info.n_tensors; i++) {
        const ModelTensor *t = &l.info.tensors[i];
        if (!strstr(t->name, "q_proj.weight"))
            continue;
        T_OK(t->packed && !t->view.data);  // nobody takes rows in the file's order
        T_STATUS_OK(layers_read_rows(part, &l, t, 13, 5));
        T_OK(right_rows(part, 13, 5, true));
    }
    layers_close(&l);
    arena_close(&a);
}

TEST(rows_of_q_and_k_come_in_the_usual_order)
{
    check_order(TYPE_F32);
    check_order(TYPE_F16);
    check_order(TYPE_BF16);
    check_order(TYPE_Q8_0);
}

TEST(codes_come_in_the_same_order)
{
    Arena  a = {0};
    Source source;
    Codes  codes;
    float  w[32 * 32];
    Spec   s = PLAIN;
    s.q_type = TYPE_Q8_0;
    write_model(&s);
    T_STATUS_OK(source_open(&source, &a, PATH));
    const ModelTensor *q = source_tensor(&source, 0, ROLE_WEIGHT + W_Q);
    const ModelTensor *v = source_tensor(&source, 0, ROLE_WEIGHT + W_V);
    T_STATUS_OK(source_codes(&codes, &a, &source, q));
    T_OK(codes.codes && codes.n == 32 && codes.k == 32 && codes.bits == 8 && codes.group == 32);
    codes_decode(w, &codes, 0, 32);
    T_OK(right_rows(w, 0, 32, true));
    T_STATUS_OK(source_codes(&codes, &a, &source, v));
    T_OK(!codes.codes);
    source_close(&source);
    arena_close(&a);
}

TEST(scales_of_blocks_must_be_finite)
{
    Arena    a = {0};
    Layers   l;
    LayerWeights w;
    Spec     s = PLAIN;
    size_t   n;
    uint16_t infinite = 0x7c00;
    GgufFile f;
    s.q_type = TYPE_Q8_0;
    write_model(&s);
    T_STATUS_OK(gguf_file_open(&f, &a, PATH));
    size_t at = (size_t)(gguf_tensor(&f, "blk.0.attn_k.weight")->data - f.map.data) + 3 * 34;
    gguf_file_close(&f);
    unsigned char *bytes = ref_read(PATH, &n);
    memcpy(bytes + at, &infinite, 2);
    ref_write(PATH, bytes, n);
    free(bytes);
    T_STATUS_OK(layers_open(&l, &a, PATH));
    /* Row 3 of the file is row 9 of the first head. */
    T_FAILS(layers_read(&w, &a, &l, 0), ERR_RANGE,
            "/m.gguf: tensor model.layers.0.self_attn.k_proj.weight: row 9 has a scale that is "
            "NaN or infinite");
    layers_close(&l);
    arena_close(&a);
}

/* --- keys --- */

TEST(keys_as_a_config)
{
    Arena              a = {0};
    ModelInfo          info;
    const ModelConfig *c = &info.config;
    write_model(&PLAIN);
    T_STATUS_OK(model_info_open(&info, &a, PATH));
    T_OK(c->n_layers == 1 && c->hidden == 32 && c->inter == 32 && c->vocab == 8);
    T_OK(c->n_heads == 2 && c->n_groups == 1 && c->head_dim == 16 && c->n_maps == 1);
    T_OK(c->max_positions == 64 && c->norm_eps == 1e-5 && c->tied);
    T_OK(c->rope.kind == ROPE_DEFAULT && c->rope.theta == 10000);
    T_OK(c->bos == 1 && c->eos == 2 && c->n_stops == 2 && c->stops[1] == 3);
    model_info_close(&info);
    arena_close(&a);
}

static void yarn(RefGguf *g)
{
    ref_gguf_key_text(g, "llama.rope.scaling.type", "yarn");
    ref_gguf_key_f32(g, "llama.rope.scaling.factor", 4);
    ref_gguf_key_u32(g, "llama.rope.scaling.original_context_length", 16);
    ref_gguf_key_f32(g, "llama.rope.scaling.attn_factor", 0.5f);
}

static void old_linear(RefGguf *g)
{
    ref_gguf_key_f32(g, "llama.rope.scale_linear", 4);
}

static void no_scaling(RefGguf *g)
{
    ref_gguf_key_text(g, "llama.rope.scaling.type", "none");
    ref_gguf_key_f32(g, "llama.rope.scaling.factor", 4);
}

static Status rope_of(Rope *r, Arena *a, void (*keys)(RefGguf *), int n, const char *extra)
{
    ModelInfo info;
    Spec      s = PLAIN;
    s.keys = keys;
    s.n_keys = n;
    s.extra = extra;
    write_model(&s);
    TRY(model_info_open(&info, a, PATH));
    *r = info.config.rope;
    model_info_close(&info);
    return OK;
}

TEST(rotations_by_their_keys)
{
    Arena a = {0};
    Rope  r;
    T_STATUS_OK(rope_of(&r, &a, yarn, 4, NULL));
    T_OK(r.kind == ROPE_YARN && r.factor == 4 && r.original_max_positions == 16);
    T_NEAR(r.attention_factor, 0.5 * (1 + 0.1 * log(4)), 1e-6);
    T_STATUS_OK(rope_of(&r, &a, old_linear, 1, NULL));
    T_OK(r.kind == ROPE_LINEAR && r.factor == 4);
    /* Divisors in the file and a factor for all: both divide. */
    T_STATUS_OK(rope_of(&r, &a, old_linear, 1, "rope_freqs.weight"));
    T_OK(r.kind == ROPE_LONGROPE && r.attention_factor == 1);
    T_OK(r.short_factor[0] == 8 && r.long_factor[7] == 8);
    T_STATUS_OK(rope_of(&r, &a, no_scaling, 2, NULL));
    T_OK(r.kind == ROPE_DEFAULT);
    arena_close(&a);
}

/* The divisors that Llama 3.1's rule gives turn as the rule does. */
TEST(rope_freqs_turn_as_llama_3_does)
{
    Arena     a = {0};
    ModelInfo info;
    float     got[2][64 * 8], want[2][64 * 8];
    Rope      rule = {.kind = ROPE_LLAMA3, .theta = 10000, .factor = 8, .low_freq_factor = 1,
                      .high_freq_factor = 4, .original_max_positions = 32, .dims = 16};
    T_STATUS_OK(model_info_open(&info, &a, golden("bf16", "gguf")));
    T_OK(info.config.rope.dims == 16);
    T_STATUS_OK(rope_tables(&info.config.rope, 64, 64, 64, got[0], got[1]));
    T_STATUS_OK(rope_tables(&rule, 64, 64, 64, want[0], want[1]));
    for (int i = 0; i < 64 * 8; i++) {
        T_NEAR(got[0][i], want[0][i], 2e-5);  // 64 radians, each divided twice
        T_NEAR(got[1][i], want[1][i], 2e-5);
    }
    model_info_close(&info);
    arena_close(&a);
}

static void experts(RefGguf *g)
{
    ref_gguf_key_u32(g, "llama.expert_count", 8);
}

static void both_ways(RefGguf *g)
{
    ref_gguf_key_bool(g, "llama.attention.causal", false);
}

static void value_width(RefGguf *g)
{
    ref_gguf_key_u32(g, "llama.attention.value_length", 8);
}

static void rope_width(RefGguf *g)
{
    ref_gguf_key_u32(g, "llama.rope.dimension_count", 8);
}

static void scale(RefGguf *g)
{
    ref_gguf_key_f32(g, "llama.attention.scale", 1);
}

static void heads_of_layers(RefGguf *g)
{
    ref_gguf_key_list(g, "llama.rope.dimension_count", 4, 1);
    ref_gguf_u32(g, 16);
}

static void odd_rope(RefGguf *g)
{
    ref_gguf_key_text(g, "llama.rope.scaling.type", "su");
}

static void longrope(RefGguf *g)
{
    ref_gguf_key_text(g, "llama.rope.scaling.type", "longrope");
}

static void yarn_without(RefGguf *g)
{
    ref_gguf_key_text(g, "llama.rope.scaling.type", "yarn");
}

TEST(models_that_are_refused)
{
    struct {
        Spec        s;
        Status      code;
        const char *words;
    } ROWS[40];
    int n = 0;
#define ROW(change, c, w)                      \
    do {                                       \
        Spec x = PLAIN;                        \
        x.change;                              \
        ROWS[n].s = x;                         \
        ROWS[n].code = c;                      \
        ROWS[n++].words = w;                   \
    } while (0)
#define KEYS(f, c, w) ROW(keys = f; x.n_keys = 1, c, w)
    ROW(arch = "qwen2", ERR_UNSUPPORTED, "m.gguf: architecture \"qwen2\" is not supported; of "
                                         "GGUF files only llama is");
    ROW(drop = "general.architecture", ERR_FORMAT, "key general.architecture is missing");
    ROW(drop = "llama.block_count", ERR_FORMAT, "key llama.block_count is missing");
    ROW(drop = "llama.vocab_size", ERR_FORMAT, "key llama.vocab_size is missing");
    ROW(drop = "llama.attention.layer_norm_rms_epsilon", ERR_FORMAT,
        "key llama.attention.layer_norm_rms_epsilon is missing");
    ROW(heads = 3, ERR_SHAPE, "hidden_size is 32, expected a multiple of num_attention_heads");
    ROW(heads = 4, ERR_SHAPE, "tensor model.layers.0.self_attn.k_proj.weight has shape "
                              "[16,32], expected [8,32] from its GGUF header");
    ROW(width = 32, ERR_SHAPE, "tensor model.layers.0.self_attn.q_proj.weight has shape "
                               "[32,32], expected [64,32] from its GGUF header");
    ROW(wrong_rows = 1, ERR_SHAPE, "/m.gguf: tensor model.layers.0.self_attn.v_proj.weight has "
                                   "shape [17,32], expected [16,32]");
    ROW(drop = "blk.0.ffn_up.weight", ERR_FORMAT,
        "tensor model.layers.0.mlp.up_proj.weight is missing");
    ROW(extra = "blk.0.ffn_gate_inp.weight", ERR_UNSUPPORTED,
        "m.gguf: tensor blk.0.ffn_gate_inp.weight is not part of a llama");
    ROW(extra = "blk..ffn_up.weight", ERR_UNSUPPORTED, "is not part of a llama");
    ROW(extra = "blk.0.weight", ERR_UNSUPPORTED, "is not part of a llama");
    ROW(extra = "model.norm.weight", ERR_UNSUPPORTED, "is not part of a llama");
    ROW(extra = "blk.1.attn_norm.weight", ERR_SHAPE, "tensor model.layers.1.input_layernorm."
        "weight, but its GGUF header has num_hidden_layers 1");
    ROW(extra = "blk.0.ffn_up.bias", ERR_FORMAT, "mlp.gate_proj.bias is missing");
    ROW(q_type = 25, ERR_UNSUPPORTED, "q_proj.weight is I16, expected F32, F16 or BF16");
    KEYS(experts, ERR_UNSUPPORTED, "llama.expert_count is 8: mixtures of experts are not");
    KEYS(both_ways, ERR_UNSUPPORTED, "llama.attention.causal is false");
    KEYS(value_width, ERR_UNSUPPORTED, "value_length is 8, expected the width of a head, 16");
    KEYS(rope_width, ERR_UNSUPPORTED, "dimension_count is 8, expected the width of a head, 16");
    KEYS(scale, ERR_UNSUPPORTED, "llama.attention.scale is 1, expected 1 / sqrt(16)");
    KEYS(heads_of_layers, ERR_FORMAT, "dimension_count is a list of u32, expected a whole");
    KEYS(odd_rope, ERR_UNSUPPORTED, "rope.scaling.type is \"su\", expected none, linear, yarn");
    KEYS(longrope, ERR_FORMAT, "tensor rope_factors_short.weight is missing");
    KEYS(yarn_without, ERR_UNSUPPORTED, "rope.scaling.type is yarn with no factor above 1");
    for (int i = 0; i < n; i++) {
        Arena     a = {0};
        ModelInfo info;
        write_model(&ROWS[i].s);
        T_FAILS(model_info_open(&info, &a, PATH), ROWS[i].code, ROWS[i].words);
        arena_close(&a);
    }
}

/* The config is JSON whatever the numbers are. */
TEST(config_text_is_json)
{
    for (int i = 0; i < N_TYPES; i++) {
        Arena       a = {0};
        GgufFile    f;
        const char *text;
        const Json *root;
        T_STATUS_OK(gguf_file_open(&f, &a, golden(TYPES[i], "gguf")));
        T_STATUS_OK(gguf_config_text(&text, &a, &f));
        T_STATUS_OK(json_parse(&root, &a, "config", text, strlen(text)));
        T_OK(json_member(root, "rms_norm_eps")->number == 1e-5);
        gguf_file_close(&f);
        arena_close(&a);
    }
}

TEST(model_allocations_that_fail)
{
    Status  s = ERR_MEMORY;
    int64_t k = 0;
    Spec    spec = PLAIN;
    spec.q_type = TYPE_Q8_0;
    spec.bias = true;
    write_model(&spec);
    while (s != OK) {
        Arena     a = {0};
        ModelInfo info;
        arena_fail_at(++k);
        s = model_info_open(&info, &a, PATH);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        model_info_close(&info);
        arena_close(&a);
    }
    T_OK(k > 3);
}

/* Any byte may lie: what opens and reads stays inside the file. */
TEST(model_flipped_bytes)
{
    Spec     spec = PLAIN;
    size_t   n;
    uint64_t random = 5;
    int      read = 0;
    spec.q_type = TYPE_Q8_0;
    write_model(&spec);
    unsigned char *bytes = ref_read(PATH, &n);
    for (int i = 0; i < 3000; i++) {
        Arena        a = {0};
        Layers       l;
        LayerWeights w;
        size_t       at = (size_t)((check_uniform(&random) + 1) / 2 * 1400);
        unsigned char kept = bytes[at];
        bytes[at] = (unsigned char)(kept ^ 1 << i % 8);
        ref_write(PATH, bytes, n);
        bytes[at] = kept;
        if (layers_open(&l, &a, PATH) == OK) {
            read += layers_read(&w, &a, &l, 0) == OK;
            layers_close(&l);
        }
        arena_close(&a);
    }
    free(bytes);
    T_OK(read > 0);
}
