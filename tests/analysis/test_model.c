/* test_model.c - what the loader hands to a backend, in which order, and what
 * it refuses. The backend here only keeps what it is given. */
#include "analysis/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/model/load.h"
#include "tests/analysis/ref_checkpoint.h"
#include "tests/check.h"

enum { N_OF_LLAMA = W_DOWN + 1 };   // matrices that a layer of a llama has

/* --- a backend that keeps --- */

typedef struct {
    float *w;     // [N,K]
    float *bias;  // [N] or NULL
} Kept;

static void keep_close(Backend *be)
{
    arena_close(&be->arena);
}

static Status keep_alloc(Backend *be, Tensor *t)
{
    t->data = arena_raw(&be->arena, tensor_count(t), sizeof(float));
    return t->data ? OK : STATUS(ERR_MEMORY, "out of memory: a tensor");
}

static Status keep_upload(Backend *be, Tensor *dst, const void *host)
{
    (void)be;
    memcpy(dst->data, host, tensor_bytes(dst));
    return OK;
}

static Status keep_pack(Backend *be, Linear *out, const float *w, const float *bias)
{
    Kept *kept;
    ARENA_NEW(kept, &be->arena, 1);
    ARENA_NEW(kept->w, &be->arena, out->n * out->k);
    memcpy(kept->w, w, (size_t)(out->n * out->k) * sizeof *w);
    if (bias) {
        ARENA_NEW(kept->bias, &be->arena, out->n);
        memcpy(kept->bias, bias, (size_t)out->n * sizeof *bias);
    }
    out->packed = kept;
    return OK;
}

static const BackendOps KEEP = {.name = "keep",
                                .close = keep_close,
                                .alloc = keep_alloc,
                                .upload = keep_upload,
                                .linear_pack = keep_pack};

/* --- the models --- */

static Arena   arena;
static Backend backend = {.ops = &KEEP, .n_threads = 1};

static void forget(void)
{
    arena_close(&arena);
    arena_close(&backend.arena);
}

static Status load(Model *m, const char *folder, ModelOptions options)
{
    forget();
    return model_load(m, &arena, &backend, folder, &options);
}

static RefModel small(bool diff)
{
    return (RefModel){.diff = diff, .hidden = 12, .inter = 20, .vocab = 17, .layers = 2,
                      .heads = 8, .kv_heads = 4, .head_dim = 6};
}

static const float *kept_weight(const Model *m, int layer, WeightKind kind)
{
    return ((Kept *)m->layers[layer].w[kind].packed)->w;
}

static bool same(const float *a, const float *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* All rows, of the file. */
static const float *embedding(Model *m)
{
    int64_t  V = m->config.vocab;
    int32_t *ids = arena_alloc(&arena, V, sizeof *ids);
    Tensor   table;
    for (int32_t i = 0; i < V; i++)
        ids[i] = i;
    Status s = backend_tensor(m->backend, &table, 2, (int64_t[]){V, m->config.hidden});
    if (s == OK)
        s = load_rows(m, &table, ids);
    return s == OK && !m->embed.data ? table.data : NULL;
}

static RefTensor *layer_tensor(RefModel *r, int layer, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
    return ref_model_find(r, full);
}

/* --- what arrives --- */

TEST(model_llama_arrives_as_it_stands)
{
    static const char *const NAMES[N_OF_LLAMA] = {
        "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
        "self_attn.o_proj.weight", "mlp.gate_proj.weight",    "mlp.up_proj.weight",
        "mlp.down_proj.weight"};
    static const char *const DTYPES[] = {"F32", "BF16", "F16"};
    for (int pass = 0; pass < 3; pass++) {
        RefModel r = small(false);
        Model    m;
        ref_model_fill(&r, DTYPES[pass]);
        ref_model_write(&r, ref_path("llama"), 1);
        T_STATUS_OK(load(&m, ref_path("llama/"), (ModelOptions){.dtype = DTYPE_F32}));
        T_TEXT(m.name, "llama");
        T_TEXT(m.arch, "LlamaForCausalLM");
        T_TEXT(m.config_text, ref_model_config(&r));
        T_TEXT(dtype_name(m.stored), DTYPES[pass]);
        T_OK(m.dtype == DTYPE_F32 && m.backend == &backend && m.config.n_layers == 2);
        for (int l = 0; l < 2; l++) {
            for (int kind = 0; kind < N_OF_LLAMA; kind++) {
                const RefTensor *t = layer_tensor(&r, l, NAMES[kind]);
                const Linear    *w = &m.layers[l].w[kind];
                T_OK(w->n == t->rows && w->k == t->cols);
                T_OK(same(kept_weight(&m, l, (WeightKind)kind), t->data, t->rows * t->cols));
                T_OK(!((Kept *)w->packed)->bias);
            }
            T_OK(same(m.layers[l].norm_attn.w.data,
                      layer_tensor(&r, l, "input_layernorm.weight")->data, 12));
            T_OK(same(m.layers[l].norm_mlp.w.data,
                      layer_tensor(&r, l, "post_attention_layernorm.weight")->data, 12));
        }
        T_OK(same(embedding(&m), ref_model_find(&r, "model.embed_tokens.weight")->data,
                  17 * 12));
        T_OK(same(m.norm.w.data, ref_model_find(&r, "model.norm.weight")->data, 12));
        T_OK(same(((Kept *)m.head.packed)->w, ref_model_find(&r, "lm_head.weight")->data,
                  17 * 12));
        T_OK(m.n_params == 2 * 17 * 12 + 12 + 2 * (2 * 12 + 12 * (48 + 24 + 24 + 48 + 60)));
        T_OK(m.n_bytes == (size_t)m.n_params * (pass ? 2 : 4));
        ref_model_free(&r);
    }
}

/* Pairs as transformers makes them (architectures.md 4.3): half-heads i and
 * i + H share differential head i; half-head i uses key head i // n and the
 * value heads (i mod H) // n and ((i mod H) + H) // n. */
TEST(model_diff_heads_pair_by_halves)
{
    static const int HEADS[][2] = {{8, 8}, {8, 4}, {8, 2}, {12, 6}, {2, 2},
                                   {4, 1}, {6, 3}, {12, 3}, {2, 1}};  // N, K; then K odd
    for (size_t row = 0; row < sizeof HEADS / sizeof *HEADS; row++) {
        RefModel r = small(true);
        Model    m;
        r.heads = HEADS[row][0];
        r.kv_heads = HEADS[row][1];
        r.attention_bias = true;
        ref_model_fill(&r, "F32");
        ref_model_write(&r, ref_path("diff"), 1);
        T_STATUS_OK(load(&m, ref_path("diff"), (ModelOptions){.dtype = DTYPE_BF16}));
        int64_t H = r.heads / 2, n = r.heads / r.kv_heads, d = 6, block = d * 12;
        int64_t G = m.config.n_groups;
        T_OK(m.config.n_heads == H && m.config.n_maps == 2 && H % G == 0);
        T_OK(G == (r.kv_heads % 2 ? H : r.kv_heads / 2));
        T_OK(m.layers[1].w[W_K].n == G * 2 * d && m.layers[1].w[W_Q].dtype == DTYPE_BF16);
        const float *q = layer_tensor(&r, 1, "self_attn.q_proj.weight")->data;
        const float *k = layer_tensor(&r, 1, "self_attn.k_proj.weight")->data;
        const float *v = layer_tensor(&r, 1, "self_attn.v_proj.weight")->data;
        const float *kb = layer_tensor(&r, 1, "self_attn.k_proj.bias")->data;
        const Kept  *keys = m.layers[1].w[W_K].packed;
        for (int64_t h = 0; h < H; h++)
            for (int64_t map = 0; map < 2; map++) {
                int64_t half = h + map * H, g = h / (H / G);
                T_OK(same(kept_weight(&m, 1, W_Q) + (h * 2 + map) * block, q + half * block,
                          block));
                T_OK(same(keys->w + (g * 2 + map) * block, k + half / n * block, block));
                T_OK(same(keys->bias + (g * 2 + map) * d, kb + half / n * d, d));
                T_OK(same(kept_weight(&m, 1, W_V) + (g * 2 + map) * block,
                          v + (h + map * H) / n * block, block));
            }
        const RefTensor *o = layer_tensor(&r, 1, "self_attn.o_proj.weight");
        T_OK(same(kept_weight(&m, 1, W_O), o->data, o->rows * o->cols));
        ref_model_free(&r);
    }
}

/* Long enough for many chunks and for threads: every item in its place, and of
 * several NaNs the first is named whichever thread meets one first. */
TEST(model_large_matrix)
{
    RefModel r = small(false);
    Model    m;
    r.vocab = 30011;
    r.layers = 1;
    ref_model_fill(&r, "BF16");
    ref_model_write(&r, ref_path("large"), 1);
    T_STATUS_OK(load(&m, ref_path("large"), (ModelOptions){.dtype = DTYPE_F32}));
    float *embed = ref_model_find(&r, "model.embed_tokens.weight")->data;
    T_OK(same(embedding(&m), embed, 30011 * 12));
    embed[30010 * 12 + 11] = embed[20000 * 12] = embed[12000 * 12] = NAN;
    embed[9999 * 12 + 4] = NAN;
    ref_model_write(&r, ref_path("large"), 1);
    T_FAILS(load(&m, ref_path("large"), (ModelOptions){.dtype = DTYPE_F32}), ERR_RANGE,
            "embed_tokens.weight[9999,4] is NaN");
    ref_model_free(&r);
}

TEST(model_biases_and_tied_head)
{
    RefModel r = small(false);
    Model    m;
    r.attention_bias = r.mlp_bias = r.tied = true;
    ref_model_fill(&r, "BF16");
    ref_model_write(&r, ref_path("biases"), 3);
    T_STATUS_OK(load(&m, ref_path("biases"), (ModelOptions){.dtype = DTYPE_F32}));
    T_OK(same(((Kept *)m.layers[1].w[W_Q].packed)->bias,
              layer_tensor(&r, 1, "self_attn.q_proj.bias")->data, 48));
    T_OK(same(((Kept *)m.layers[1].w[W_O].packed)->bias,
              layer_tensor(&r, 1, "self_attn.o_proj.bias")->data, 12));
    T_OK(same(((Kept *)m.layers[0].w[W_DOWN].packed)->bias,
              layer_tensor(&r, 0, "mlp.down_proj.bias")->data, 12));
    T_OK(same(((Kept *)m.head.packed)->w, embedding(&m), 17 * 12));
    T_OK(!((Kept *)m.head.packed)->bias);
    ref_model_free(&r);
}

TEST(model_lambda_of_each_layer)
{
    RefModel  r = small(true);
    Model     m;
    ModelInfo info;
    ref_model_fill(&r, "F32");
    ref_model_write(&r, ref_path("lambda"), 1);
    T_STATUS_OK(load(&m, ref_path("lambda"), (ModelOptions){.dtype = DTYPE_F32}));
    T_STATUS_OK(model_info_open(&info, &arena, ref_path("lambda")));
    for (int l = 0; l < 2; l++) {
        double dot[2] = {0, 0};
        for (int i = 0; i < 6; i++) {
            dot[0] += (double)layer_tensor(&r, l, "self_attn.lambda_q1")->data[i] *
                      layer_tensor(&r, l, "self_attn.lambda_k1")->data[i];
            dot[1] += (double)layer_tensor(&r, l, "self_attn.lambda_q2")->data[i] *
                      layer_tensor(&r, l, "self_attn.lambda_k2")->data[i];
        }
        double init = 0.8 - 0.6 * exp(-0.3 * l);
        double lambda = exp(dot[0]) - exp(dot[1]) + init;
        T_NEAR(m.layers[l].lambda, lambda, 1e-7);
        T_NEAR(m.layers[l].lambda_init, init, 6e-8);
        T_NEAR(info.lambda[l], lambda, 1e-15);
        T_NEAR(info.lambda_init[l], init, 1e-15);
    }
    model_info_close(&info);
    ref_model_free(&r);
}

/* --- editing --- */

typedef struct {
    int  n;
    char names[32][96];
    bool fail;
} Edits;

static Status edit(void *context, const char *name, float *w, int64_t N, int64_t K)
{
    Edits *e = context;
    snprintf(e->names[e->n++], sizeof e->names[0], "%s", name);
    if (e->fail)
        FAIL(ERR_RANGE, "edit of %s", name);
    for (int64_t i = 0; i < N * K; i++)
        w[i] = (float)(i / K);  // the number of its row in the checkpoint
    return OK;
}

TEST(model_edit_sees_rows_as_in_the_checkpoint)
{
    RefModel r = small(true);
    Model    m;
    Edits    e = {0};
    ref_model_fill(&r, "F32");
    ref_model_write(&r, ref_path("edit"), 1);
    T_STATUS_OK(load(&m, ref_path("edit"),
                     (ModelOptions){.dtype = DTYPE_F32, .edit = edit, .edit_context = &e}));
    T_OK(e.n == 2 * N_OF_LLAMA);  // not the embedding, not the head
    T_TEXT(e.names[0], "model.layers.0.self_attn.q_proj.weight");
    T_TEXT(e.names[13], "model.layers.1.mlp.down_proj.weight");
    /* canonical head row 1 is map 2 of head 0: half-head 4, rows 24 .. 29 */
    T_NEAR(kept_weight(&m, 0, W_Q)[6 * 12], 24, 0);
    T_NEAR(kept_weight(&m, 0, W_DOWN)[3 * 20 + 19], 3, 0);
    T_OK(same(((Kept *)m.head.packed)->w, ref_model_find(&r, "lm_head.weight")->data, 17 * 12));
    e = (Edits){.fail = true};
    T_FAILS(load(&m, ref_path("edit"),
                 (ModelOptions){.dtype = DTYPE_F32, .edit = edit, .edit_context = &e}),
            ERR_RANGE, "edit of model.layers.0.self_attn.q_proj.weight");
    T_OK(m.layers == NULL && backend.arena.used == 0);
    ref_model_free(&r);
}

/* --- what is refused, and what is overlooked --- */

static void spoil_missing(RefModel *r)
{
    ref_model_drop(r, "model.layers.1.mlp.up_proj.weight");
}

static void spoil_missing_head(RefModel *r)
{
    ref_model_drop(r, "lm_head.weight");
}

static void spoil_missing_lambda(RefModel *r)
{
    ref_model_drop(r, "model.layers.0.self_attn.lambda_k2");
}

static void spoil_shape(RefModel *r)
{
    layer_tensor(r, 0, "self_attn.k_proj.weight")->rows--;
}

static void spoil_dims(RefModel *r)
{
    RefTensor *t = layer_tensor(r, 0, "input_layernorm.weight");
    t->rows = 1;
    t->cols = 12;
}

static void spoil_columns(RefModel *r)
{
    layer_tensor(r, 1, "self_attn.o_proj.weight")->cols--;
}

static void spoil_third_dim(RefModel *r)
{
    strcpy(layer_tensor(r, 1, "mlp.up_proj.weight")->shape, "20,12,1");
}

static void spoil_dtype(RefModel *r)
{
    strcpy(layer_tensor(r, 0, "self_attn.v_proj.weight")->dtype, "I32");
}

static void spoil_unknown_dtype(RefModel *r)
{
    strcpy(layer_tensor(r, 0, "self_attn.v_proj.weight")->dtype, "F4");
}

static void spoil_nan(RefModel *r)
{
    layer_tensor(r, 1, "mlp.down_proj.weight")->data[20 * 5 + 7] = NAN;
}

static void spoil_inf(RefModel *r)
{
    layer_tensor(r, 0, "input_layernorm.weight")->data[11] = -INFINITY;
}

static void spoil_embedding(RefModel *r)
{
    ref_model_find(r, "model.embed_tokens.weight")->data[12 * 16] = INFINITY;
}

static void spoil_lambda_nan(RefModel *r)
{
    layer_tensor(r, 1, "self_attn.lambda_q2")->data[2] = NAN;
}

static void spoil_lambda_size(RefModel *r)
{
    layer_tensor(r, 1, "self_attn.lambda_q1")->data[2] = 1e4f;
    layer_tensor(r, 1, "self_attn.lambda_k1")->data[2] = 1e4f;
}

static void spoil_subln(RefModel *r)
{
    ref_model_add(r, "model.layers.0.self_attn.subln.weight", 12, 0);
}

static void spoil_layer(RefModel *r)
{
    ref_model_add(r, "model.layers.2.mlp.up_proj.weight", 20, 12);
}

static void spoil_bias(RefModel *r)
{
    ref_model_add(r, "model.layers.1.self_attn.q_proj.bias", 48, 0);
}

static void spoil_stranger(RefModel *r)
{
    ref_model_add(r, "v_head.weight", 1, 12);
}

TEST(model_refuses)
{
    static const struct {
        void      (*spoil)(RefModel *);
        Status      code;
        const char *words;
    } ROWS[] = {
        {spoil_missing, ERR_FORMAT, "tensor model.layers.1.mlp.up_proj.weight is missing"},
        {spoil_missing_head, ERR_FORMAT, "tensor lm_head.weight is missing"},
        {spoil_missing_lambda, ERR_FORMAT,
         "tensor model.layers.0.self_attn.lambda_k2 is missing"},
        {spoil_shape, ERR_SHAPE,
         "/model.safetensors: tensor model.layers.0.self_attn.k_proj.weight has shape [23,12], "
         "expected [24,12] from config.json"},
        {spoil_dims, ERR_SHAPE, "input_layernorm.weight has shape [1,12], expected [12]"},
        {spoil_columns, ERR_SHAPE, "o_proj.weight has shape [12,47], expected [12,48]"},
        {spoil_third_dim, ERR_SHAPE, "up_proj.weight has shape [20,12,1], expected [20,12]"},
        {spoil_dtype, ERR_UNSUPPORTED,
         "self_attn.v_proj.weight is I32, expected F32, F16 or BF16"},
        {spoil_unknown_dtype, ERR_UNSUPPORTED,
         "tensor model.layers.0.self_attn.v_proj.weight: unknown dtype \"F4\""},
        {spoil_nan, ERR_RANGE,
         "/model.safetensors: tensor model.layers.1.mlp.down_proj.weight[5,7] is NaN"},
        {spoil_inf, ERR_RANGE, "tensor model.layers.0.input_layernorm.weight[11] is -inf"},
        {spoil_embedding, ERR_RANGE, "tensor model.embed_tokens.weight[16,0] is inf"},
        {spoil_lambda_nan, ERR_RANGE, "model.layers.1.self_attn.lambda_q2[2] is NaN"},
        {spoil_lambda_size, ERR_RANGE, "lambda of layer 1 is inf"},
        {spoil_subln, ERR_UNSUPPORTED,
         "tensor model.layers.0.self_attn.subln.weight is not part of DiffLlamaForCausalLM"},
        {spoil_layer, ERR_SHAPE,
         "tensor model.layers.2.mlp.up_proj.weight, but config.json has num_hidden_layers 2"},
        {spoil_bias, ERR_UNSUPPORTED,
         "model.layers.1.self_attn.q_proj.bias, but config.json has no bias of q, k"},
        {spoil_stranger, ERR_UNSUPPORTED, "tensor v_head.weight is not part of"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        RefModel    r = small(true);
        Model       m;
        const char *folder = ref_path("bad%zu", i);
        ref_model_fill(&r, "F32");
        ROWS[i].spoil(&r);
        ref_model_write(&r, folder, 1);
        T_FAILS(load(&m, folder, (ModelOptions){.dtype = DTYPE_F32}), ROWS[i].code,
                ROWS[i].words);
        T_OK(strncmp(status_text(), folder, strlen(folder)) == 0);
        T_OK(m.layers == NULL && backend.arena.used == 0);
        ref_model_free(&r);
    }
}

TEST(model_needs_its_files)
{
    Model    m;
    RefModel r = small(false);
    T_FAILS(load(&m, ref_path("nowhere"), (ModelOptions){.dtype = DTYPE_F32}), ERR_IO,
            "nowhere/config.json: No such file");
    ref_model_fill(&r, "F32");
    ref_model_write(&r, ref_path("half"), 2);
    remove(ref_path("half/model-00002-of-00002.safetensors"));
    T_FAILS(load(&m, ref_path("half"), (ModelOptions){.dtype = DTYPE_F32}), ERR_IO,
            "half/model-00002-of-00002.safetensors: No such file");
    ref_model_free(&r);
}

/* Rotary tables of old files, and the head of a tied model that ships it. */
TEST(model_overlooks)
{
    RefModel  r = small(false);
    ModelInfo info;
    r.tied = true;
    ref_model_fill(&r, "F32");
    ref_model_add(&r, "model.layers.0.self_attn.rotary_emb.inv_freq", 3, 0);
    ref_model_add(&r, "model.rotary_emb.inv_freq", 3, 0);
    ref_model_add(&r, "lm_head.weight", 17, 12);
    ref_model_write(&r, ref_path("extra"), 1);
    forget();
    T_STATUS_OK(model_info_open(&info, &arena, ref_path("extra")));
    T_OK(info.n_tensors == r.n - 3);
    model_info_close(&info);
    ref_model_free(&r);
}

/* --- inspect --- */

TEST(model_info_tells)
{
    RefModel  r = small(true);
    ModelInfo info;
    ref_model_fill(&r, "BF16");
    strcpy(layer_tensor(&r, 0, "self_attn.lambda_q1")->dtype, "F32");
    ref_model_write(&r, ref_path("info"), 2);
    forget();
    T_STATUS_OK(model_info_open(&info, &arena, ref_path("info")));
    T_TEXT(info.name, "info");
    T_TEXT(info.pairing, "query heads i and i+4, key-value heads j and j+2");
    T_OK(info.n_tensors == r.n && info.n_files == 2 && info.stored == DTYPE_BF16);
    T_OK(info.n_quantizable == 2 * 12 * (48 + 24 + 24 + 48 + 60));
    T_OK(info.n_params == info.n_quantizable + 2 * 17 * 12 + 12 + 2 * (2 * 12 + 4 * 6));
    T_OK(info.n_bytes == (size_t)info.n_params * 2 + 6 * 2);
    int quantizable = 0;
    for (int64_t i = 0; i < info.n_tensors; i++) {
        T_OK(i == 0 || strcmp(info.tensors[i - 1].name, info.tensors[i].name) < 0);
        bool wanted = strstr(info.tensors[i].name, "_proj.weight") != NULL;
        T_OK(info.tensors[i].quantizable == wanted);
        quantizable += info.tensors[i].quantizable;
    }
    T_OK(quantizable == 2 * N_OF_LLAMA);
    model_info_close(&info);
    model_info_close(&info);
    ref_model_free(&r);
}

/* --- under stress --- */

TEST(model_every_allocation_may_fail)
{
    RefModel r = small(true);
    Model    m;
    r.attention_bias = true;
    r.layers = 1;
    ref_model_fill(&r, "F16");
    ref_model_write(&r, ref_path("memory"), 2);
    ModelOptions options = {.dtype = DTYPE_F32};
    int64_t      k = 1;
    for (Status s = ERR_MEMORY; s != OK; k++) {
        forget();
        arena_fail_at(k);
        s = model_load(&m, &arena, &backend, ref_path("memory"), &options);
        arena_fail_at(0);
        T_OK(s == OK || (s == ERR_MEMORY && !m.layers && backend.arena.used == 0));
    }
    T_OK(k > 40);
    ref_model_free(&r);
}

/* A byte changed anywhere in the table or in the config: an error or a model. */
TEST(model_survives_changed_bytes)
{
    static const char *const FILES[] = {"fuzz/model.safetensors", "fuzz/config.json",
                                        "fuzz/model.safetensors.index.json"};
    RefModel r = small(true);
    uint64_t seed = 11;
    r.layers = 1;
    ref_model_fill(&r, "BF16");
    ref_model_write(&r, ref_path("fuzz"), 1);
    ref_write_text(ref_path("fuzz/model.safetensors.index.json"),
                   "{\"weight_map\":{\"model.norm.weight\":\"model.safetensors\"}}");
    for (int file = 0; file < 3; file++) {
        size_t         n;
        unsigned char *whole = ref_read(ref_path("%s", FILES[file]), &n);
        size_t         table = file ? n : n / 2;
        for (int round = 0; round < 150; round++) {
            Model  m;
            size_t at = (size_t)((check_uniform(&seed) + 1) / 2 * (float)table);
            unsigned char old = whole[at];
            whole[at] = (unsigned char)(check_uniform(&seed) * 128 + 128);
            ref_write(ref_path("%s", FILES[file]), whole, n);
            whole[at] = old;
            Status s = load(&m, ref_path("fuzz"), (ModelOptions){.dtype = DTYPE_F32});
            if ((s == OK) != (m.layers != NULL))
                check_fail(__FILE__, __LINE__, "round %d of %s", round, FILES[file]);
        }
        ref_write(ref_path("%s", FILES[file]), whole, n);
        free(whole);
    }
    ref_model_free(&r);
    forget();
}
