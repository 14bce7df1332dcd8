/* test_run_quant.c - a pass that rounds inputs, keys and values: bit for bit what the
 * operations give when each rounding is done by hand beside them; and what a pass must
 * not depend on. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/model/forward.h"
#include "tests/analysis/ref_golden.h"
#include "tests/check.h"

static const char *const MODELS[] = {"llama_gqa", "diff_gqa", "diff_d100"};
enum { N_MODELS = 3, N_TOKENS = 140 };

static const RunQuant ROUNDINGS[] = {
    {.bits = 16, .acts = 8},
    {.bits = 16, .acts = 4, .act_scale = ACTS_TENSOR},
    {.bits = 16, .acts = 8, .act_wide = true},
    {.bits = 16, .kv = 8},
    {.bits = 16, .acts = 6, .kv = 4},
    {.bits = 6, .scale = SCALE_HEAD, .acts = 8, .act_scale = ACTS_TENSOR, .kv = 4},
};
enum { N_ROUNDINGS = sizeof ROUNDINGS / sizeof *ROUNDINGS };

static const int32_t *tokens(void)
{
    static int32_t ids[N_TOKENS];
    uint64_t       seed = 7;
    for (int i = 0; i < N_TOKENS; i++)
        ids[i] = (int32_t)((check_uniform(&seed) + 1.0f) * 48.0f);
    return ids;
}

static Status open_model(Subject *s, const char *name, int n_threads)
{
    static const ModelOptions IN_F32 = {.dtype = DTYPE_F32};
    char path[256];
    snprintf(path, sizeof path, "golden/models/%s", name);
    return subject_open(s, check_path(path), &IN_F32, n_threads);
}

/* out [T,C] of the final norm, in the arena of the subject's backend. */
static Status run(float **out, Subject *s, const int32_t *ids, const Batch *batch, RunQuant q,
                  Probe *probe, Cache *cache)
{
    Tensor  x;
    int64_t shape[2] = {batch->start[batch->n_sequences], s->m.config.hidden};
    TRY(backend_tensor(&s->be, &x, 2, shape));
    *out = x.data;
    return model_forward(&s->m, &x, ids, batch, q, probe, cache);
}

static Status run_one(float **out, Subject *s, const int32_t *ids, int32_t n, RunQuant q,
                      Cache *cache)
{
    int32_t start[2] = {0, n};
    int64_t number = 0;
    Batch   batch = {1, start, &number};
    return run(out, s, ids, &batch, q, NULL, cache);
}

static bool same(const float *a, const float *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

/* --- the pass, written out with its roundings --- */

static void round_inputs(Tensor *x, const Batch *b, RunQuant q)
{
    int64_t K = x->shape[1];
    double  half = pow(2, q.acts - 1), limit = q.act_wide ? half - 0.5 : half - 1;
    if (!q.acts)
        return;
    for (int64_t s = 0; s < b->n_sequences; s++) {
        int64_t step = q.act_scale == ACTS_TENSOR ? b->start[s + 1] - b->start[s] : 1;
        for (int64_t t = b->start[s]; t < b->start[s + 1]; t += step) {
            float *v = (float *)x->data + t * K;
            double top = 0;
            for (int64_t i = 0; i < step * K; i++)
                top = fmax(top, fabs(v[i]));
            float scale = (float)(top / limit);
            for (int64_t i = 0; i < step * K; i++) {
                double code = nearbyint(scale > 0 ? (float)(v[i] / (double)scale) : 0);
                v[i] = (float)(fmax(-half, fmin(half - 1, code)) * scale);
            }
        }
    }
}

/* n values, `step` apart */
static void round_group(float *x, int64_t n, int64_t step, int bits)
{
    double low = x[0], high = x[0];
    for (int64_t i = 0; i < n; i++) {
        low = fmin(low, x[i * step]);
        high = fmax(high, x[i * step]);
    }
    float scale = (float)((double)(float)(high - low) / (pow(2, bits) - 1));
    for (int64_t i = 0; i < n; i++) {
        double code = nearbyint((float)((double)(float)(x[i * step] - low) / scale));
        x[i * step] = (float)((double)(float)(code * scale) + low);
    }
}

static void round_keys_values(Tensor *k, Tensor *v, const Batch *b, int64_t d, int bits)
{
    int64_t C = k->shape[1];
    float  *keys = k->data, *values = v->data;
    if (!bits)
        return;
    for (int64_t s = 0; s < b->n_sequences; s++)
        for (int64_t t = b->start[s]; t + 32 <= b->start[s + 1]; t += 32) {
            for (int64_t c = 0; c < C; c++)
                round_group(keys + t * C + c, 32, C, bits);
            for (int64_t i = t * C; i < (t + 32) * C; i += d)
                for (int64_t c = 0; c < d; c += 32)
                    round_group(values + i + c, d - c < 32 ? d - c : 32, 1, bits);
        }
}

static Status layer_by_hand(Pass *p, int64_t layer)
{
    Backend           *be = p->m->backend;
    const ModelConfig *c = &p->m->config;
    const Layer       *l = &p->m->layers[layer];
    float              eps = (float)c->norm_eps;
    Attention          a = {
        .n_heads = c->n_heads, .n_groups = c->n_groups, .n_maps = c->n_maps,
        .head_dim = c->head_dim, .scale = (float)(1 / sqrt((double)c->head_dim)),
        .lambda = l->lambda, .norm_eps = (float)c->head_norm_eps,
        .out_scale = c->n_maps == 2 ? 1 - l->lambda_init : 1, .dtype = DTYPE_F32,
        .batch = *p->batch, .logit_bits = p->quant.bits, .logit_scale = p->quant.scale};
    TRY(op_rmsnorm(be, &p->n, &p->x, &l->norm_attn.w, eps));
    round_inputs(&p->n, p->batch, p->quant);
    TRY(op_linear(be, &p->q, &p->n, &l->w[W_Q]));
    TRY(op_linear(be, &p->k, &p->n, &l->w[W_K]));
    TRY(op_linear(be, &p->v, &p->n, &l->w[W_V]));
    TRY(op_rope(be, &p->q, c->n_heads * c->n_maps, &p->cs, &p->sn, p->angle_row));
    TRY(op_rope(be, &p->k, c->n_groups * c->n_maps, &p->cs, &p->sn, p->angle_row));
    round_keys_values(&p->k, &p->v, p->batch, c->head_dim, p->quant.kv);
    p->o = p->heads;
    TRY(op_attention(be, &p->o, &p->q, &p->k, &p->v, &a));
    round_inputs(&p->o, p->batch, p->quant);
    TRY(op_linear(be, &p->n, &p->o, &l->w[W_O]));
    TRY(op_add(be, &p->x, &p->n));
    TRY(op_rmsnorm(be, &p->n, &p->x, &l->norm_mlp.w, eps));
    round_inputs(&p->n, p->batch, p->quant);
    TRY(op_linear(be, &p->gate, &p->n, &l->w[W_GATE]));
    TRY(op_linear(be, &p->up, &p->n, &l->w[W_UP]));
    TRY(op_glu(be, &p->gate, &p->up, c->act));
    round_inputs(&p->gate, p->batch, p->quant);
    TRY(op_linear(be, &p->n, &p->gate, &l->w[W_DOWN]));
    return op_add(be, &p->x, &p->n);
}

static Status by_hand(float **out, Subject *s, const int32_t *ids, const Batch *batch,
                      RunQuant q)
{
    Pass p = {.m = &s->m, .batch = batch, .quant = q};
    TRY(forward_open(&p));
    TRY(forward_embed(&p, ids));
    for (int64_t l = 0; l < s->m.config.n_layers; l++)
        TRY(layer_by_hand(&p, l));
    TRY(op_rmsnorm(&s->be, &p.n, &p.x, &s->m.norm.w, (float)s->m.config.norm_eps));
    *out = p.n.data;
    return OK;
}

/* Less than a group, a group and a bit, none, two groups and a bit. */
static const int32_t START[] = {0, 20, 53, 53, N_TOKENS};
static const int64_t NUMBER[] = {0, 1, 2, 3};
static const Batch   BATCH = {4, START, NUMBER};

TEST(a_pass_rounds_what_it_says)
{
    for (int i = 0; i < N_MODELS; i++) {
        Subject s;
        float  *got, *want, *plain;
        T_STATUS_OK(open_model(&s, MODELS[i], 2));
        int64_t n = N_TOKENS * s.m.config.hidden;
        T_STATUS_OK(run(&plain, &s, tokens(), &BATCH, (RunQuant){.bits = 16}, NULL, NULL));
        for (int r = 0; r < N_ROUNDINGS; r++) {
            T_STATUS_OK(run(&got, &s, tokens(), &BATCH, ROUNDINGS[r], NULL, NULL));
            T_STATUS_OK(by_hand(&want, &s, tokens(), &BATCH, ROUNDINGS[r]));
            T_OK(same(got, want, n));
            T_OK(!same(got, plain, n));
        }
        RunQuant none = {.bits = 16, .act_scale = ACTS_TENSOR, .act_wide = true};
        T_STATUS_OK(run(&got, &s, tokens(), &BATCH, none, NULL, NULL));
        T_OK(same(got, plain, n));
        subject_close(&s);
    }
}

/* --- what it does not depend on --- */

TEST(sequences_are_apart)
{
    for (int i = 0; i < N_MODELS; i++)
    for (int r = 0; r < N_ROUNDINGS; r++) {
        Subject s, single;
        float  *all, *alone;
        T_STATUS_OK(open_model(&s, MODELS[i], 3));
        T_STATUS_OK(open_model(&single, MODELS[i], 1));
        int64_t C = s.m.config.hidden;
        T_STATUS_OK(run(&all, &s, tokens(), &BATCH, ROUNDINGS[r], NULL, NULL));
        for (int b = 0; b < 4; b++) {
            int32_t first = START[b], n = START[b + 1] - first;
            if (!n)
                continue;
            T_STATUS_OK(run_one(&alone, &single, tokens() + first, n, ROUNDINGS[r], NULL));
            T_OK(same(all + first * C, alone, n * C));
        }
        subject_close(&s);
        subject_close(&single);
    }
}

/* Records of the first layer's first input are those of a pass that rounds nothing. */
TEST(records_see_what_is_not_yet_rounded)
{
    Subject s;
    Probe   plain, rounded;
    float  *out;
    T_STATUS_OK(open_model(&s, MODELS[1], 1));
    T_STATUS_OK(probe_init(&plain, &s.arena, &s.m, N_TOKENS));
    T_STATUS_OK(probe_init(&rounded, &s.arena, &s.m, N_TOKENS));
    T_STATUS_OK(run(&out, &s, tokens(), &BATCH, (RunQuant){.bits = 16}, &plain, NULL));
    T_STATUS_OK(run(&out, &s, tokens(), &BATCH, ROUNDINGS[0], &rounded, NULL));
    const Moments *a = &plain.values[TAP_QKV_IN][0].moments;
    const Moments *b = &rounded.values[TAP_QKV_IN][0].moments;
    T_OK(a->count == b->count && a->m2 == b->m2 && a->m4 == b->m4);
    T_OK(plain.values[TAP_O_IN][0].moments.m2 != rounded.values[TAP_O_IN][0].moments.m2);
    subject_close(&s);
}

/* --- with a cache --- */

/* Passes that end at whole groups, then some within one: the whole text's bits. */
TEST(passes_by_groups_equal_the_whole)
{
    static const int32_t PARTS[] = {0, 64, 96, 98, 111, 127};
    RunQuant q = {.bits = 16, .acts = 8, .kv = 4};
    for (int i = 0; i < N_MODELS; i++) {
        Subject s;
        Cache  *cache;
        float  *whole, *part;
        T_STATUS_OK(open_model(&s, MODELS[i], 2));
        int64_t C = s.m.config.hidden;
        T_STATUS_OK(run_one(&whole, &s, tokens(), 127, q, NULL));
        T_STATUS_OK(cache_init(&cache, &s.m, &s.arena, N_TOKENS));
        for (int p = 0; p < 5; p++) {
            int32_t first = PARTS[p], n = PARTS[p + 1] - first;
            T_STATUS_OK(run_one(&part, &s, tokens() + first, n, q, cache));
            T_OK(same(part, whole + first * C, n * C));
        }
        subject_close(&s);
    }
}

/* Steps through several groups. With one layer keys and values follow from the tokens
 * alone, so the last rows show that every group that filled was rounded as a whole: equal
 * to rounding (a single row is added up in another order). */
TEST(groups_that_fill_step_by_step_are_rounded)
{
    Subject  s;
    Cache   *cache;
    float   *whole, *step, *plain;
    RunQuant q = {.bits = 16, .kv = 4};
    T_STATUS_OK(open_model(&s, "diff_d100", 1));
    int64_t C = s.m.config.hidden;
    T_OK(s.m.config.n_layers == 1);
    T_STATUS_OK(run_one(&whole, &s, tokens(), 100, q, NULL));
    T_STATUS_OK(run_one(&plain, &s, tokens(), 100, (RunQuant){.bits = 16}, NULL));
    T_STATUS_OK(cache_init(&cache, &s.m, &s.arena, N_TOKENS));
    for (int t = 0; t < 100; t++) {
        T_STATUS_OK(run_one(&step, &s, tokens() + t, 1, q, cache));
        double off = 0, rounded = 0;
        for (int64_t c = 0; c < C; c++) {
            off = fmax(off, fabs((double)step[c] - whole[t * C + c]));
            rounded = fmax(rounded, fabs((double)plain[t * C + c] - whole[t * C + c]));
        }
        if (t >= 95) {
            T_NEAR(off, 0, 5e-6);
            T_OK(rounded > 1e-3);
        }
    }
    subject_close(&s);
}

TEST(unknown_widths_are_refused)
{
    Subject s;
    float  *out;
    T_STATUS_OK(open_model(&s, MODELS[0], 1));
    T_FAILS(run_one(&out, &s, tokens(), 40, (RunQuant){.bits = 16, .acts = 5}, NULL),
            ERR_UNSUPPORTED, "5 bits, expected 8, 6 or 4");
    T_FAILS(run_one(&out, &s, tokens(), 40, (RunQuant){.bits = 16, .kv = 6}, NULL),
            ERR_UNSUPPORTED, "6 bits, expected 8 or 4");
    subject_close(&s);
}
