/* awq.c - tries scales on copies of the weights, then folds the best of them in. */
#include "quant/methods/awq.h"

#include <math.h>

#include "kernels/size.h"
#include "quant/methods/fold.h"
#include "quant/methods/method.h"

enum { STEPS = 20 };
static const double LEAST = 1e-4;

/* Rows of a matrix that a try rounds: its products take rows * K^2. */
static int64_t tried_rows(int64_t n, int64_t K)
{
    return i64_min(n, i64_min(AWQ_ROWS, i64_max(AWQ_ROWS * 2048 / K, 64)));
}

/* What reads one input, and what the tries need. */
typedef struct {
    LayerMatrix      *m[N_WEIGHTS];
    const Scheme     *scheme[N_WEIGHTS];
    int               n;
    int64_t           k;
    const float      *norm;     // [K] the input is a norm's; NULL: it is not
    const InputStats *in;
    Arena            *scratch;
    Backend          *be;
    double           *x, *w;    // [K] means of inputs, of weights
    float            *s;        // [K] what is tried
    float            *best;     // [K]
} Search;

static void add_reader(Search *q, LayerWeights *w, WeightKind kind, const Scheme *scheme)
{
    CHECK(w->at[kind].k == q->k);
    if (!scheme[kind].bits)
        return;
    q->m[q->n] = &w->at[kind];
    q->scheme[q->n++] = &scheme[kind];
}

/* Adds |w| over its group's largest of all rows. */
static void add_weights(double *sum, const LayerMatrix *m, const Scheme *s)
{
    int64_t n = rtn_group_size(s, m->k);
    for (int64_t at = 0; at + n <= m->n * m->k; at += n) {
        const float *w = m->w + at;
        double      *to = sum + at % m->k;
        float        most = 0;
        for (int64_t i = 0; i < n; i++)
            most = fmaxf(most, fabsf(w[i]));
        for (int64_t i = 0; i < n && most > 0; i++)
            to[i] += (double)(fabsf(w[i]) / most);
    }
}

static Status search_open(Search *q)
{
    double rows = 0;
    CHECK(q->in->gram && q->in->k == q->k);
    ARENA_NEW(q->x, q->scratch, q->k);
    ARENA_NEW(q->w, q->scratch, q->k);
    ARENA_NEW(q->s, q->scratch, q->k);
    ARENA_NEW(q->best, q->scratch, q->k);
    for (int i = 0; i < q->n; i++) {
        const LayerMatrix *m = q->m[i];
        TRY(rtn_check(m->name, m->w, m->n, m->k, q->scheme[i]));
        add_weights(q->w, q->m[i], q->scheme[i]);
        rows += (double)q->m[i]->n;
    }
    for (int64_t k = 0; k < q->k; k++) {
        q->w[k] /= rows > 0 ? rows : 1;
        q->x[k] = q->in->sum_abs[k] / (double)i64_max(q->in->n_rows, 1);
    }
    return OK;
}

/* Channels that were always 0 keep 1: their power would only stretch the range. */
static void make_scales(Search *q, double r, bool with_weights)
{
    double most = 0, least = INFINITY;
    for (int64_t k = 0; k < q->k; k++) {
        double s = pow(q->x[k], r) / (with_weights ? pow(q->w[k], 1 - r) + 1e-4 : 1);
        s = fmax(s, LEAST);
        q->s[k] = (float)s;
        if (q->x[k] > 0) {
            most = fmax(most, s);
            least = fmin(least, s);
        }
    }
    float unit = most > 0 ? (float)sqrt(most * least) : 1;
    for (int64_t k = 0; k < q->k; k++)
        q->s[k] = q->x[k] > 0 ? q->s[k] / unit : 1;
    if (q->norm)
        fold_exact(q->s, q->norm, q->k);
}

/* Rows of w [rows,K] rounded as the matrix will be, given inputs' squares. */
static Status round_rows(float *w, int64_t rows, const Search *q, int i, double *sum2)
{
    const Scheme *scheme = q->scheme[i];
    const char   *name = q->m[i]->name;
    int64_t       groups = rtn_groups(scheme, q->k);
    RtnCodes      codes = {0};
    InputStats    in = {.k = q->k, .n_rows = q->in->n_rows, .sum2 = sum2};
    if (scheme->method == METHOD_RTN)
        return rtn_fake(w, name, rows, q->k, scheme, NULL);
    Matrix m = {.name = name, .n = rows, .k = q->k, .w = w, .scheme = *scheme, .inputs = &in,
                .backend = q->be};
    ARENA_NEW(codes.codes, q->scratch, rows * q->k);
    ARENA_NEW(codes.scales, q->scratch, rows * groups);
    ARENA_NEW(codes.zeros, q->scratch, rows * groups);
    return clip_encode(&codes, &m, q->scratch);
}

/* Adds the error of matrix i with scales s, from `rows` of its rows. */
static Status add_error(double *sum, const Search *q, int i, const float *s, int64_t rows)
{
    const LayerMatrix *m = q->m[i];
    int64_t            K = q->k;
    float             *w, *v;
    double            *sum2, error;
    ARENA_NEW(w, q->scratch, rows * K);
    ARENA_NEW(v, q->scratch, rows * K);
    ARENA_NEW(sum2, q->scratch, K);
    for (int64_t k = 0; k < K; k++)
        sum2[k] = q->in->sum2[k] / ((double)s[k] * (double)s[k]);
    for (int64_t r = 0; r < rows; r++) {
        const float *from = m->w + r * m->n / rows * K;
        for (int64_t k = 0; k < K; k++) {
            w[r * K + k] = from[k];
            v[r * K + k] = from[k] * s[k];
        }
    }
    TRY(round_rows(v, rows, q, i, sum2));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < K; k++)
            v[r * K + k] /= s[k];
    TRY(input_error(&error, q->scratch, q->be, q->in, w, v, rows));
    *sum += error * (double)m->n / (double)rows;
    return OK;
}

/* From all rows, or those of a try. */
static Status measure(double *out, const Search *q, const float *s, bool all)
{
    *out = 0;
    for (int i = 0; i < q->n; i++) {
        ArenaMark mark = arena_mark(q->scratch);
        int64_t   n = q->m[i]->n;
        TRY(add_error(out, q, i, s, all ? n : tried_rows(n, q->k)));
        arena_rewind(q->scratch, mark);
    }
    return OK;
}

static void set_ones(float *s, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        s[k] = 1;
}

/* A scale that storage cannot hold makes a try fail, not the run. */
static Status try_scales(double *out, const Search *q, const float *s, bool all)
{
    ArenaMark mark = arena_mark(q->scratch);
    Status    status = measure(out, q, s, all);
    if (status == ERR_RANGE) {
        arena_rewind(q->scratch, mark);
        *out = INFINITY;
        status = OK;
    }
    return status;
}

/* The winner of the tries against no scaling, on all rows. */
static Status confirm(Search *q, double *ratio)
{
    double plain, scaled;
    set_ones(q->s, q->k);
    TRY(measure(&plain, q, q->s, true));
    TRY(try_scales(&scaled, q, q->best, true));
    if (!(scaled < plain))
        *ratio = 0;
    return OK;
}

/* q->best: the scales of least error, *ratio their r; 0: leave all as it is. */
static Status search(Search *q, double *ratio)
{
    double least, error;
    bool   sampled = false;
    *ratio = 0;
    TRY(search_open(q));
    for (int i = 0; i < q->n; i++)
        sampled = sampled || q->m[i]->n > tried_rows(q->m[i]->n, q->k);
    set_ones(q->s, q->k);
    TRY(measure(&least, q, q->s, false));
    for (int i = 2; i < 2 * STEPS; i++) {
        double r = (double)(i / 2) / STEPS;
        make_scales(q, r, i % 2);
        TRY(try_scales(&error, q, q->s, false));
        if (!(error < least))
            continue;
        float *was = q->best;
        q->best = q->s;
        q->s = was;
        least = error;
        *ratio = r;
    }
    return sampled && *ratio > 0 ? confirm(q, ratio) : OK;
}

Status awq_norm(LayerWeights *w, int norm, InputStats *in, const Scheme *scheme,
                Arena *scratch, Backend *be, double *ratio)
{
    ArenaMark  mark = arena_mark(scratch);
    WeightKind kinds[N_WEIGHTS];
    int        n = fold_readers(w, norm, kinds);
    Search     q = {.k = in->k, .norm = w->norm[norm], .in = in, .scratch = scratch, .be = be};
    for (int i = 0; i < n; i++)
        add_reader(&q, w, kinds[i], scheme);
    Status s = search(&q, ratio);
    if (s == OK && *ratio > 0) {
        fold_norm(w, norm, q.best, in->k);
        for (int i = 0; i < n; i++)
            fold_columns(&w->at[kinds[i]], q.best);
        fold_inputs(in, q.best);
    }
    arena_rewind(scratch, mark);
    return s;
}

Status awq_up_down(LayerWeights *w, LayerMatrix *up, InputStats *in, const Scheme *scheme,
                   Arena *scratch, Backend *be, double *ratio)
{
    ArenaMark mark = arena_mark(scratch);
    Search    q = {.k = in->k, .in = in, .scratch = scratch, .be = be};
    CHECK(up->n == in->k);
    add_reader(&q, w, W_DOWN, scheme);
    Status s = search(&q, ratio);
    if (s == OK && *ratio > 0) {
        fold_rows(up, q.best);
        fold_columns(&w->at[W_DOWN], q.best);
        fold_inputs(in, q.best);
    }
    arena_rewind(scratch, mark);
    return s;
}

/* rows = s of o's columns, in the order of v's rows. Takes the place of what was tried. */
static float *in_rows(const Search *q, const ValueMap *map)
{
    int64_t d = map->head_dim;
    for (int64_t i = 0; i < map->n_heads * map->n_parts; i++)
        for (int64_t k = 0; k < d; k++)
            q->s[map->head[i] * d + k] = q->best[i * d + k];
    return q->s;
}

Status awq_value_out(LayerWeights *w, const ValueMap *map, double head_norm_eps,
                     InputStats *in, const Scheme *scheme, Arena *scratch, Backend *be,
                     double *ratio)
{
    const LayerMatrix *v = &w->at[W_V], *o = &w->at[W_O];
    if (head_norm_eps >= 0)
        FAIL(ERR_UNSUPPORTED, "%s: its rows cannot be scaled one by one: the norm of each "
             "head between v and o would change", v->name);
    if (v->n != o->k || !map->paired)
        FAIL(ERR_UNSUPPORTED, "%s: %lld rows for %lld columns of %s: scaling needs as many, "
             "each read once", v->name, (long long)v->n, (long long)o->k, o->name);
    ArenaMark mark = arena_mark(scratch);
    Search    q = {.k = in->k, .in = in, .scratch = scratch, .be = be};
    add_reader(&q, w, W_O, scheme);
    Status s = search(&q, ratio);
    if (s == OK && *ratio > 0) {
        fold_rows(&w->at[W_V], in_rows(&q, map));
        fold_columns(&w->at[W_O], q.best);
        fold_inputs(in, q.best);
    }
    arena_rewind(scratch, mark);
    return s;
}
