/* ref_attention.c - whole maps in double, one loop a formula. */
#include "tests/kernels/ref_attention.h"

#include <math.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/half.h"
#include "tests/check.h"

enum { GUARD_FLOATS = 16 };
static const float GUARD_VALUE = 12345;

static Status new_floats(Tensor *t, Arena *a, int64_t n, int64_t guard)
{
    float *p;
    ARENA_NEW(p, a, n + guard);
    *t = tensor_1d(DTYPE_F32, p, n);
    return OK;
}

static void clear_out(Case *c)
{
    float *out = c->out.data;
    for (int64_t i = 0; i < tensor_count(&c->out); i++)
        out[i] = NAN;
    for (int64_t i = 0; i < GUARD_FLOATS; i++)
        out[tensor_count(&c->out) + i] = GUARD_VALUE;
}

int64_t case_q_row(const Attention *a, int64_t h, int64_t m)
{
    int64_t r = a->n_signals ? a->n_signals : 1;
    if (a->n_maps == 1)
        return h;
    return h / r * (r + 1) + (m == 0 ? h % r : r);
}

int64_t case_q_rows(const Attention *a)
{
    return case_q_row(a, a->n_heads - 1, a->n_maps - 1) + 1;
}

int64_t case_value_dim(const Attention *a)
{
    return a->value_dim ? a->value_dim : a->head_dim * a->n_maps;
}

static int64_t key_maps(const Attention *a)
{
    return a->shared_keys ? 1 : a->n_maps;
}

static Status new_out(Case *c)
{
    int64_t T = c->start[c->shape.n_sequences], dv = case_value_dim(&c->a);
    TRY(new_floats(&c->out, &c->arena, T * c->a.n_heads * dv, GUARD_FLOATS));
    c->out.n_dims = 3;
    c->out.shape[0] = T, c->out.shape[1] = c->a.n_heads, c->out.shape[2] = dv;
    clear_out(c);
    return OK;
}

static void fill_normal(const Tensor *t, uint64_t *state)
{
    for (int64_t i = 0; i < tensor_count(t); i++)
        ((float *)t->data)[i] = check_normal(state);
}

static void fill_whole(const Tensor *t, uint64_t *state)
{
    for (int64_t i = 0; i < tensor_count(t); i++)
        ((float *)t->data)[i] = rintf(3 * check_uniform(state));
}

static Status matrix(Tensor *t, Arena *a, int64_t rows, int64_t heads, int64_t width)
{
    TRY(new_floats(t, a, rows * heads * width, 0));
    t->n_dims = 3;
    t->shape[0] = rows, t->shape[1] = heads, t->shape[2] = width;
    return OK;
}

Status case_init(Case *c, const CaseShape *s, uint64_t seed)
{
    return case_init_wide(c, s, &(CaseWide){0}, seed);
}

Status case_init_wide(Case *c, const CaseShape *s, const CaseWide *wide, uint64_t seed)
{
    *c = (Case){.shape = *s};
    for (int64_t b = 0; b < s->n_sequences; b++) {
        c->start[b + 1] = c->start[b] + (int32_t)s->queries[b];
        c->key_start[b + 1] = c->key_start[b] + (int32_t)s->keys[b];
        c->number[b] = 10 + b;
    }
    c->a = (Attention){
        .n_heads = s->n_heads, .n_groups = s->n_groups, .n_maps = s->n_maps,
        .head_dim = s->head_dim, .scale = (float)(1 / sqrt((double)s->head_dim)),
        .lambda = 0.4f, .norm_eps = s->n_maps == 2 ? 1e-5f : -1, .out_scale = 0.8f,
        .dtype = DTYPE_F32, .logit_bits = 16, .n_signals = wide->n_signals,
        .value_dim = wide->value_dim, .reach = wide->reach,
        .shared_keys = wide->shared_keys,
    };
    int64_t T = c->start[s->n_sequences], S = c->key_start[s->n_sequences];
    TRY(matrix(&c->q, &c->arena, T, case_q_rows(&c->a), s->head_dim));
    TRY(matrix(&c->k, &c->arena, S, s->n_groups * key_maps(&c->a), s->head_dim));
    TRY(matrix(&c->v, &c->arena, S, s->n_groups, case_value_dim(&c->a)));
    TRY(new_out(c));
    fill_normal(&c->q, &seed);
    fill_normal(&c->k, &seed);
    fill_normal(&c->v, &seed);
    return OK;
}

void case_make_exact(Case *c, uint64_t seed)
{
    fill_whole(&c->q, &seed);
    fill_whole(&c->k, &seed);
    c->a.scale = 0.25f;
}

/* Where row `row` of a tensor of three dims begins. */
static float *row_at(const Tensor *t, int64_t row)
{
    return (float *)t->data + row * t->shape[1] * t->shape[2];
}

Status case_one_sequence(Case *one, const Case *c, int64_t b)
{
    const CaseShape *s = &c->shape;
    *one = (Case){.shape = *s, .q = c->q, .k = c->k, .v = c->v, .a = c->a};
    one->shape.n_sequences = 1;
    one->start[1] = (int32_t)(one->shape.queries[0] = s->queries[b]);
    one->key_start[1] = (int32_t)(one->shape.keys[0] = s->keys[b]);
    one->number[0] = c->number[b];
    one->q.data = row_at(&c->q, c->start[b]);
    one->k.data = row_at(&c->k, c->key_start[b]);
    one->v.data = row_at(&c->v, c->key_start[b]);
    if (c->a.lambda_rows)
        one->a.lambda_rows += c->start[b] * c->a.n_heads;
    one->q.shape[0] = one->start[1];
    one->k.shape[0] = one->v.shape[0] = one->key_start[1];
    return new_out(one);
}

Status case_run(Case *c, int n_threads)
{
    CpuState state = {0};
    Backend be = {.n_threads = n_threads, .state = &state};
    clear_out(c);
    c->a.batch = (Batch){c->shape.n_sequences, c->start, c->number};
    c->a.key_start = c->key_start;
    Status s = cpu_attention(&be, &c->out, &c->q, &c->k, &c->v, &c->a);
    arena_close(&state.scratch.arena);
    arena_close(&be.arena);
    return s;
}

bool case_guard_intact(const Case *c)
{
    const float *end = (const float *)c->out.data + tensor_count(&c->out);
    for (int64_t i = 0; i < GUARD_FLOATS; i++)
        if (end[i] != GUARD_VALUE)
            return false;
    return true;
}

bool ref_sees(const Case *c, const RefMaps *r, int64_t t, int64_t s)
{
    int64_t position = r->S - r->T + t;
    return s <= position && (c->a.reach == 0 || s > position - c->a.reach);
}

double ref_lambda(const Case *c, int64_t t, int64_t h)
{
    return (double)(c->a.lambda_rows ? c->a.lambda_rows[t * c->a.n_heads + h] : c->a.lambda);
}

static double input(const Case *c, const Tensor *t, int64_t i)
{
    float x = ((const float *)t->data)[i];
    return (double)(c->a.dtype == DTYPE_BF16 ? bf16_round(x) : x);
}

/* One logit: query t of all, key s of all. */
static double logit(const Case *c, int64_t h, int64_t m, int64_t t, int64_t s)
{
    int64_t K = key_maps(&c->a), d = c->a.head_dim, g = h / (c->a.n_heads / c->a.n_groups);
    int64_t q_row = t * case_q_rows(&c->a) + case_q_row(&c->a, h, m);
    int64_t k_row = (s * c->a.n_groups + g) * K + (K == 2 ? m : 0);
    double sum = 0;
    for (int64_t i = 0; i < d; i++)
        sum += input(c, &c->q, q_row * d + i) * input(c, &c->k, k_row * d + i);
    return sum * (double)c->a.scale;
}

static int64_t map_at(const Case *c, const RefMaps *r, int64_t h, int64_t m, int64_t t)
{
    return ((h * c->a.n_maps + m) * r->T + t) * r->S;
}

/* Allowed entries of n rows, fake-quantized together, in f32. */
static void quantize(const RefMaps *r, const int64_t *row, int64_t n, int bits)
{
    float limit = (float)((1 << (bits - 1)) - 1), max = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t s = 0; s < r->S; s++) {
            double x = r->logits[row[i] + s];
            if (!(x == -INFINITY) && !(fabsf((float)x) <= max))
                max = isnan(max) ? max : fabsf((float)x);
        }
    float scale = max / limit;
    for (int64_t i = 0; i < n; i++)
        for (int64_t s = 0; s < r->S; s++) {
            float x = (float)r->logits[row[i] + s];
            if (x == -INFINITY)
                continue;
            float code = scale == 0 ? x : rintf(x / scale);
            code = code > limit ? limit : code < -limit ? -limit : code;
            r->logits[row[i] + s] = (double)(code * scale);
        }
}

static Status quantize_all(const RefMaps *r, Arena *arena, const Case *c)
{
    int64_t maps = c->a.n_heads * c->a.n_maps, *row;
    ARENA_NEW(row, arena, maps * r->T);
    for (int64_t i = 0; i < maps * r->T; i++)
        row[i] = i * r->S;
    int64_t n = c->a.logit_scale == SCALE_TENSOR ? maps * r->T
              : c->a.logit_scale == SCALE_HEAD   ? r->T
                                                 : 1;
    for (int64_t i = 0; i < maps * r->T; i += n)
        quantize(r, row + i, n, c->a.logit_bits);
    return OK;
}

static void softmax(double *w, const double *x, int64_t n)
{
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < n; i++)
        sum += w[i] = exp(x[i] - max);
    for (int64_t i = 0; i < n; i++)
        w[i] /= sum;
}

/* One output row of one head from its row of the differential map. */
static void output(const RefMaps *r, const Case *c, int64_t b, int64_t h, int64_t t)
{
    const Attention *a = &c->a;
    int64_t dv = case_value_dim(a), g = h / (a->n_heads / a->n_groups);
    double *o = r->out + (t * a->n_heads + h) * dv, square = 0;
    for (int64_t i = 0; i < dv; i++) {
        for (int64_t s = 0; s < r->S; s++)
            if (ref_sees(c, r, t, s))
                o[i] += r->diff[(h * r->T + t) * r->S + s] *
                        input(c, &c->v, ((c->key_start[b] + s) * a->n_groups + g) * dv + i);
        square += o[i] * o[i];
    }
    double rms = sqrt(square / (double)dv + (double)a->norm_eps);
    for (int64_t i = 0; a->norm_eps >= 0 && i < dv; i++)
        o[i] = o[i] / rms * (double)a->out_scale *
               (a->norm_weight ? (double)a->norm_weight[i] : 1);
}

static void row_weights(const RefMaps *r, const Case *c, int64_t b, int64_t h, int64_t t)
{
    int64_t allowed = r->S - r->T + t + 1;
    double *diff = r->diff + (h * r->T + t) * r->S;
    for (int64_t m = 0; m < c->a.n_maps; m++) {
        double *w = r->weights + map_at(c, r, h, m, t);
        softmax(w, r->logits + map_at(c, r, h, m, t), allowed);
        for (int64_t s = 0; s < allowed; s++)
            diff[s] += m == 0 ? w[s] : -ref_lambda(c, c->start[b] + t, h) * w[s];
    }
}

Status ref_attention(RefMaps *r, Arena *arena, const Case *c, int64_t b)
{
    int64_t H = c->a.n_heads, M = c->a.n_maps;
    int64_t T = c->shape.queries[b], S = c->shape.keys[b];
    *r = (RefMaps){.T = T, .S = S};
    ARENA_NEW(r->logits, arena, H * M * T * S);
    ARENA_NEW(r->weights, arena, H * M * T * S);
    ARENA_NEW(r->diff, arena, H * T * S);
    ARENA_NEW(r->out, arena, T * H * case_value_dim(&c->a));
    for (int64_t h = 0; h < H; h++)
        for (int64_t m = 0; m < M; m++)
            for (int64_t t = 0; t < T; t++)
                for (int64_t s = 0; s < S; s++)
                    r->logits[map_at(c, r, h, m, t) + s] =
                        ref_sees(c, r, t, s)
                            ? logit(c, h, m, c->start[b] + t, c->key_start[b] + s)
                            : -INFINITY;
    if (c->a.logit_bits < 16)
        TRY(quantize_all(r, arena, c));
    for (int64_t h = 0; h < H; h++)
        for (int64_t t = 0; t < T; t++) {
            row_weights(r, c, b, h, t);
            output(r, c, b, h, t);
        }
    return OK;
}

double ref_error(const Case *c, const RefMaps *r, int64_t b)
{
    int64_t width = c->a.n_heads * case_value_dim(&c->a);
    const float *out = (const float *)c->out.data + c->start[b] * width;
    double max = 0, error = 0;
    for (int64_t i = 0; i < r->T * width; i++) {
        double e = fabs((double)out[i] - r->out[i]);
        max = fmax(max, fabs(r->out[i]));
        if (!(e <= error))
            error = e;
        if (isnan(error))
            return NAN;
    }
    return error / max;
}

double ref_case_error(const Case *c)
{
    double worst = 0;
    for (int64_t b = 0; b < c->shape.n_sequences; b++) {
        RefMaps r;
        Arena   arena = {0};
        if (ref_attention(&r, &arena, c, b) != OK)
            return NAN;
        double e = r.T ? ref_error(c, &r, b) : 0;
        arena_close(&arena);
        if (isnan(e))
            return NAN;
        worst = fmax(worst, e);
    }
    return worst;
}

bool ref_nan_within(const Case *c, const Case *ref, int64_t from, int64_t to, int64_t first,
                    int64_t end)
{
    int64_t      H = c->out.shape[1], dv = c->out.shape[2];
    const float *x = c->out.data, *y = ref->out.data;
    for (int64_t i = 0; i < tensor_count(&c->out); i++) {
        int64_t t = i / dv / H, h = i / dv % H;
        bool    bad = t >= from && t < to && h >= first && h < end;
        if (bad ? !isnan(x[i]) : x[i] != y[i])
            return false;
    }
    return true;
}
