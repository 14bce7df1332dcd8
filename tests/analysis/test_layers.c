/* test_layers.c - a checkpoint taken layer by layer is the checkpoint that the loader
 * reads: the same numbers, the same heads, the same bits of the logits. */
#include "analysis/layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/analysis/ref_checkpoint.h"
#include "tests/analysis/ref_golden.h"
#include "tests/check.h"

enum { N_OF_LLAMA = W_DOWN + 1 };   // matrices that a layer of a llama has

enum { N_TOKENS = 40 };

static const int32_t *tokens(void)
{
    static int32_t ids[N_TOKENS];
    uint64_t       seed = 3;
    for (int i = 0; i < N_TOKENS; i++)
        ids[i] = (int32_t)((check_uniform(&seed) + 1.0f) * 48.0f);
    return ids;
}

static bool same(const float *a, const float *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* --- reading --- */

static RefModel small(bool diff)
{
    return (RefModel){.diff = diff, .hidden = 12, .inter = 20, .vocab = 17, .layers = 2,
                      .heads = 8, .kv_heads = 4, .head_dim = 6, .attention_bias = true,
                      .mlp_bias = !diff};
}

static bool matrix_is(const LayerMatrix *m, RefModel *r)
{
    const RefTensor *t = ref_model_find(r, m->name);
    if (m->n != t->rows || m->k != t->cols || (m->bias == NULL) != (m->bias_name == NULL))
        return false;
    const RefTensor *b = m->bias ? ref_model_find(r, m->bias_name) : NULL;
    return same(m->w, t->data, m->n * m->k) && (!b || same(m->bias, b->data, m->n));
}

TEST(layers_read_what_the_checkpoint_has)
{
    static const char *const ENDS[N_OF_LLAMA] = {"q_proj.weight",   "k_proj.weight",
                                                "v_proj.weight",   "o_proj.weight",
                                                "gate_proj.weight", "up_proj.weight",
                                                "down_proj.weight"};
    for (int diff = 0; diff < 2; diff++) {
        RefModel     r = small(diff);
        Arena        a = {0};
        Layers       l;
        LayerWeights w, d;
        ref_model_fill(&r, "BF16");
        ref_model_write(&r, ref_path("read%d", diff), 3);
        T_STATUS_OK(layers_open(&l, &a, ref_path("read%d", diff)));
        for (int64_t i = 0; i < 2; i++) {
            layers_describe(&d, &l, i);
            T_STATUS_OK(layers_read(&w, &a, &l, i));
            T_OK(w.number == i && d.number == i && !d.norm[0] && !d.norm[1]);
            for (int kind = 0; kind < N_OF_LLAMA; kind++) {
                bool biased = !diff || kind <= W_O;
                T_OK(strstr(w.at[kind].name, ENDS[kind]) && matrix_is(&w.at[kind], &r));
                T_OK((w.at[kind].bias != NULL) == biased);
                T_OK(!d.at[kind].w && !d.at[kind].bias && d.at[kind].n == w.at[kind].n &&
                     d.at[kind].k == w.at[kind].k);
                T_TEXT(d.at[kind].name, w.at[kind].name);
            }
            T_OK(strstr(w.norm_name[0], "input_layernorm.weight"));
            T_OK(strstr(w.norm_name[1], "post_attention_layernorm.weight"));
            for (int k = 0; k < 2; k++)
                T_OK(same(w.norm[k], ref_model_find(&r, w.norm_name[k])->data, 12));
        }
        layers_close(&l);
        layers_close(&l);
        ref_model_free(&r);
        arena_close(&a);
    }
}

TEST(layers_read_any_tensor_and_its_rows)
{
    RefModel     r = small(true);
    Arena        a = {0};
    Layers       l;
    LayerWeights w;
    float        all[17 * 12], rows[17 * 12];
    ref_model_fill(&r, "F16");
    ref_model_write(&r, ref_path("rows"), 1);
    T_STATUS_OK(layers_open(&l, &a, ref_path("rows")));
    for (int64_t i = 0; i < l.info.n_tensors; i++) {
        const ModelTensor *t = &l.info.tensors[i];
        float             *x = arena_raw(&a, tensor_count(&t->view), sizeof *x);
        T_STATUS_OK(layers_read_tensor(x, &l, t));
        T_OK(same(x, ref_model_find(&r, t->name)->data, tensor_count(&t->view)));
    }
    T_STATUS_OK(layers_read_tensor(all, &l, layers_embed(&l)));
    for (int64_t first = 0; first <= 17; first++) {
        rows[0] = NAN;
        T_STATUS_OK(layers_read_rows(rows, &l, layers_embed(&l), first, 17 - first));
        T_OK(same(rows, all + first * 12, (17 - first) * 12) && (first < 17 || isnan(rows[0])));
    }
    T_STATUS_OK(layers_read_rows(rows, &l, layers_head(&l), 3, 1));
    T_OK(same(rows, ref_model_find(&r, "lm_head.weight")->data + 3 * 12, 12));
    T_TEXT(layers_norm(&l)->name, "model.norm.weight");
    layers_close(&l);

    ref_model_find(&r, "model.embed_tokens.weight")->data[9 * 12 + 4] = NAN;
    ref_model_find(&r, "model.layers.1.mlp.up_proj.weight")->data[5] = -INFINITY;
    ref_model_write(&r, ref_path("rows"), 1);
    T_STATUS_OK(layers_open(&l, &a, ref_path("rows")));
    T_FAILS(layers_read_rows(rows, &l, layers_embed(&l), 7, 4), ERR_RANGE,
            "tensor model.embed_tokens.weight[9,4] is NaN");
    T_STATUS_OK(layers_read_rows(rows, &l, layers_embed(&l), 10, 4));
    T_STATUS_OK(layers_read(&w, &a, &l, 0));
    T_FAILS(layers_read(&w, &a, &l, 1), ERR_RANGE,
            "tensor model.layers.1.mlp.up_proj.weight[0,5] is -inf");
    layers_close(&l);
    ref_model_free(&r);
    arena_close(&a);
}

TEST(layers_open_fails_like_the_loader)
{
    Arena    a = {0};
    Layers   l = {0};
    RefModel r = small(true);
    layers_close(&l);
    T_FAILS(layers_open(&l, &a, ref_path("nowhere")), ERR_IO, "nowhere/config.json");
    T_OK(!l.source);
    ref_model_fill(&r, "F32");
    ref_model_find(&r, "model.layers.0.self_attn.lambda_q1")->data[0] = NAN;
    ref_model_write(&r, ref_path("lambda"), 1);
    T_FAILS(layers_open(&l, &a, ref_path("lambda")), ERR_RANGE, "lambda_q1[0] is NaN");
    T_OK(!l.source && !l.info.checkpoint);
    ref_model_free(&r);
    arena_close(&a);
}

/* --- placing --- */

/* All layers of the folder in a model of their own. */
typedef struct {
    Subject      s;
    Layers       l;
    LayerWeights w[12];
} Parts;

static Status parts_open(Parts *p, const char *path, Dtype dtype)
{
    *p = (Parts){0};
    TRY(backend_open(&p->s.be, "cpu", 2));
    TRY(layers_open(&p->l, &p->s.arena, path));
    CHECK(p->l.info.config.n_layers <= 12);
    TRY(layers_model(&p->s.m, &p->s.arena, &p->s.be, &p->l, dtype));
    for (int64_t i = 0; i < p->l.info.config.n_layers; i++)
        TRY(layers_read(&p->w[i], &p->s.arena, &p->l, i));
    return OK;
}

static void parts_close(Parts *p)
{
    layers_close(&p->l);
    subject_close(&p->s);
}

/* whole: of a model whose embedding is narrower than its hidden states, the head is the loader's
 * work alone. */
static Status place_all(Parts *p, const Model *whole)
{
    Model             *m = &p->s.m;
    const ModelConfig *c = &m->config;
    const ModelTensor *head = c->tied ? layers_embed(&p->l) : layers_head(&p->l);
    float             *w = arena_raw(&p->s.arena, c->vocab * c->hidden, sizeof *w);
    for (int64_t i = 0; i < c->n_layers; i++)
        TRY(layers_place(m, &p->l, &p->w[i]));
    if (head->view.shape[1] != c->hidden) {
        m->head = whole->head;
        return OK;
    }
    TRY(layers_read_tensor(w, &p->l, head));
    return op_linear_pack(&p->s.be, &m->head, w, NULL, c->vocab, c->hidden, m->dtype);
}

static Status run(Run *r, Subject *s)
{
    static const int32_t start[] = {0, 29, N_TOKENS};
    static const int64_t number[] = {0, 1};
    Batch batch = {.n_sequences = 2, .start = start, .number = number};
    return subject_run(r, s, tokens(), &batch, NULL, NULL);
}

static Status compare(bool *good, const char *name, Dtype dtype)
{
    ModelOptions options = {.dtype = dtype};
    Subject      whole = {0};
    Parts        parts = {0};
    Run          a, b;
    Status       s = OK;
    GUARD(subject_open(&whole, golden_folder(name), &options, 2));
    GUARD(parts_open(&parts, golden_folder(name), dtype));
    GUARD(place_all(&parts, &whole.m));
    GUARD(run(&a, &whole));
    GUARD(run(&b, &parts.s));
    const ModelConfig *c = &whole.m.config;
    *good = same(a.logits, b.logits, N_TOKENS * c->vocab) &&
            same(a.hidden, b.hidden, c->n_layers * N_TOKENS * c->hidden) &&
            strcmp(whole.m.name, parts.s.m.name) == 0 &&
            whole.m.n_params == parts.s.m.n_params && whole.m.stored == parts.s.m.stored &&
            (layers_head(&parts.l) == NULL) == c->tied;
out:
    parts_close(&parts);
    subject_close(&whole);
    return s;
}

TEST(layers_placed_give_the_logits_of_the_loader)
{
    Arena        a = {0};
    const char **names;
    int64_t      n;
    T_STATUS_OK(golden_names(&names, &n, &a));
    for (int64_t i = 0; i < n; i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            bool good = false;
            T_STATUS_OK(compare(&good, names[i], bf16 ? DTYPE_BF16 : DTYPE_F32));
            if (!good)
                check_fail(__FILE__, __LINE__, "%s: results differ", names[i]);
        }
    arena_close(&a);
}

TEST(layers_place_what_is_there)
{
    Parts p;
    T_STATUS_OK(parts_open(&p, golden_folder("models/diff_odd_kv"), DTYPE_F32));
    LayerWeights w = p.w[1];
    Layer       *layer = &p.s.m.layers[1];
    w.norm[1] = NULL;
    for (int kind = 0; kind < N_OF_LLAMA; kind++)
        w.at[kind].w = kind == W_O ? p.w[1].at[kind].w : NULL;
    T_STATUS_OK(layers_place(&p.s.m, &p.l, &w));
    T_OK(layer->norm_attn.w.data && !layer->norm_mlp.w.data && layer->w[W_O].packed);
    T_OK(!layer->w[W_Q].packed && !layer->w[W_DOWN].packed);
    T_OK(layer->lambda == (float)p.l.info.lambda[1]);
    const void *o = layer->w[W_O].packed;
    w.at[W_O].w = NULL;
    w.at[W_K].w = p.w[1].at[W_K].w;
    T_STATUS_OK(layers_place(&p.s.m, &p.l, &w));
    T_OK(layer->w[W_O].packed == o && layer->w[W_K].n == 6 * 10);  // 3 heads, one twice a pair
    parts_close(&p);
}

/* --- values and what reads them --- */

static void swap(float *x, float *y)
{
    float z = *x;
    *x = *y;
    *y = z;
}

/* In every layer, rows 1 and 3 of value head `head` change places. */
static void swap_rows_of_v(Parts *p, int64_t head)
{
    const ModelConfig *c = &p->s.m.config;
    for (int64_t l = 0; l < c->n_layers; l++) {
        LayerMatrix *v = &p->w[l].at[W_V];
        float       *row = v->w + head * c->head_dim * v->k;
        for (int64_t k = 0; k < v->k; k++)
            swap(row + 1 * v->k + k, row + 3 * v->k + k);
        if (v->bias)
            swap(v->bias + head * c->head_dim + 1, v->bias + head * c->head_dim + 3);
    }
}

/* And so do the columns of o that read it. */
static void swap_columns_of_o(Parts *p, int64_t head)
{
    const ModelConfig *c = &p->s.m.config;
    for (int64_t l = 0; l < c->n_layers; l++)
        for (int64_t i = 0; i < c->n_heads * c->n_maps; i++) {
            LayerMatrix *o = &p->w[l].at[W_O];
            float       *column = o->w + i * c->head_dim;
            if (layers_value_head(&p->l, i / c->n_maps, i % c->n_maps) != head)
                continue;
            for (int64_t n = 0; n < o->n; n++)
                swap(column + n * o->k + 1, column + n * o->k + 3);
        }
}

static Status changed_by_swaps(double *both, double *rows_only, const char *name)
{
    Parts  p;
    Run    before, rows, after;
    Status s = OK;
    GUARD(parts_open(&p, golden_folder(name), DTYPE_F32));
    int64_t n = N_TOKENS * p.s.m.config.vocab;
    int64_t head = p.w[0].at[W_V].n / p.s.m.config.head_dim - 1;
    GUARD(place_all(&p, NULL));
    GUARD(run(&before, &p.s));
    swap_rows_of_v(&p, head);
    GUARD(place_all(&p, NULL));
    GUARD(run(&rows, &p.s));
    swap_columns_of_o(&p, head);
    GUARD(place_all(&p, NULL));
    GUARD(run(&after, &p.s));
    *both = ref_worst_gap(after.logits, before.logits, n);
    *rows_only = ref_worst_gap(rows.logits, before.logits, n);
out:
    parts_close(&p);
    return s;
}

TEST(layers_know_which_columns_of_o_read_a_value_head)
{
    static const char *const NAMES[] = {
        "models/diff_bias_gelu", "models/diff_gqa", "models/diff_gqa_six", "models/diff_mqa",
        "models/diff_odd_kv", "models/diff_odd_kv_wide", "models/diff_one_head",
        "models/diff_wide", "models/llama_gqa", "models/llama_gqa_three",
        "models/llama_mqa_relu", "models/llama_bias_gelu_tanh"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        double both = NAN, rows_only = NAN;
        T_STATUS_OK(changed_by_swaps(&both, &rows_only, NAMES[i]));
        if (!(both <= 2e-6 && rows_only > 1e-3))
            check_fail(__FILE__, __LINE__, "%s: off by %.1e, rows alone by %.1e", NAMES[i], both,
                       rows_only);
    }
}

/* --- under stress --- */

TEST(layers_every_allocation_may_fail)
{
    Status  s = ERR_MEMORY;
    int64_t k = 1;
    for (; s != OK; k++) {
        Parts p = {0};
        T_STATUS_OK(backend_open(&p.s.be, "cpu", 1));
        size_t used = p.s.be.arena.used;
        arena_fail_at(k);
        s = layers_open(&p.l, &p.s.arena, golden_folder("models/diff_bias_gelu"));
        if (s == OK) {
            s = layers_model(&p.s.m, &p.s.arena, &p.s.be, &p.l, DTYPE_F32);
            T_OK(s == OK || (!p.s.m.layers && p.s.be.arena.used == used));
        }
        if (s == OK)
            s = layers_read(&p.w[0], &p.s.arena, &p.l, 0);
        if (s == OK)
            s = layers_place(&p.s.m, &p.l, &p.w[0]);
        arena_fail_at(0);
        T_OK(s == OK || s == ERR_MEMORY);
        parts_close(&p);
    }
    T_OK(k > 60);
}
