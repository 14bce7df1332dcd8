/* ref_layer.c - norm, attention with one or two maps, norm, gated MLP; plain loops. */
#include "tests/quant/ref_layer.h"

#include <math.h>
#include <string.h>

#include "tests/check.h"

static const double EPS = 1e-5, LAMBDA = 0.43, LAMBDA_INIT = 0.2;

static void *take(Arena *a, int64_t n, size_t size)
{
    void *p = arena_alloc(a, n, size);
    CHECK(p);
    return p;
}

static void matrix(LayerMatrix *m, Arena *a, int64_t N, int64_t K, bool bias, uint64_t *seed)
{
    *m = (LayerMatrix){.name = "layers.0.w.weight", .n = N, .k = K};
    m->w = take(a, N * K, sizeof *m->w);
    for (int64_t i = 0; i < N * K; i++)
        m->w[i] = check_normal(seed) / sqrtf((float)K);
    if (!bias)
        return;
    m->bias_name = "layers.0.w.bias";
    m->bias = take(a, N, sizeof *m->bias);
    for (int64_t i = 0; i < N; i++)
        m->bias[i] = 0.3f * check_normal(seed);
}

void ref_layer_random(LayerWeights *w, Arena *a, const RefShape *s, uint64_t seed)
{
    int64_t Q = s->H * s->M * s->d, V = s->K * s->d;
    *w = (LayerWeights){.norm_name = {"layers.0.a.weight", "layers.0.b.weight"}};
    matrix(&w->at[W_Q], a, Q, s->C, s->bias, &seed);
    matrix(&w->at[W_K], a, V, s->C, s->bias, &seed);
    matrix(&w->at[W_V], a, V, s->C, s->bias, &seed);
    matrix(&w->at[W_O], a, s->C, Q, s->bias, &seed);
    matrix(&w->at[W_GATE], a, s->F, s->C, s->bias, &seed);
    matrix(&w->at[W_UP], a, s->F, s->C, s->bias, &seed);
    matrix(&w->at[W_DOWN], a, s->C, s->F, s->bias, &seed);
    for (int i = 0; i < 2; i++) {
        w->norm[i] = take(a, s->C, sizeof *w->norm[i]);
        for (int64_t k = 0; k < s->C; k++)
            w->norm[i][k] = (k % 7 == 3 ? 9.0f : 1.0f) * (1 + 0.3f * check_normal(&seed));
    }
}

void ref_layer_map(ValueMap *map, Arena *a, const RefShape *s)
{
    int64_t *head = take(a, s->H * s->M, sizeof *head);
    for (int64_t h = 0; h < s->H; h++)
        for (int64_t m = 0; m < s->M; m++)
            head[h * s->M + m] = (h + m * s->H) / (s->H * s->M / s->K);
    *map = (ValueMap){.n_heads = s->H, .n_parts = s->M, .head_dim = s->d, .n_values = s->K,
                      .head = head};
    CHECK(valuemap_pair(map, a) == OK);
}

static double *widened(Arena *a, const float *x, int64_t n)
{
    double *y = take(a, n, sizeof *y);
    for (int64_t i = 0; x && i < n; i++)
        y[i] = (double)x[i];
    return y;
}

void ref_layer_widen(RefLayer *out, Arena *a, const LayerWeights *w)
{
    for (int i = 0; i < N_WEIGHTS; i++) {
        out->w[i] = widened(a, w->at[i].w, w->at[i].n * w->at[i].k);
        out->bias[i] = widened(a, w->at[i].bias, w->at[i].n);
    }
    for (int i = 0; i < 2; i++)
        out->norm[i] = widened(a, w->norm[i], w->at[W_Q].k);
}

static void rms(double *y, const double *x, const double *norm, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] / sqrt(sum / (double)n + EPS) * (norm ? norm[i] : 1);
}

/* y [T,N] = x [T,K] w^T + b */
static double *linear(Arena *a, const double *x, const RefLayer *l, WeightKind kind, int64_t T,
                      int64_t N, int64_t K)
{
    double *y = take(a, T * N, sizeof *y);
    for (int64_t t = 0; t < T; t++)
        for (int64_t n = 0; n < N; n++) {
            double sum = l->bias[kind][n];
            for (int64_t k = 0; k < K; k++)
                sum += x[t * K + k] * l->w[kind][n * K + k];
            y[t * N + n] = sum;
        }
    return y;
}

typedef struct {
    const double *q, *k, *v;
    int64_t       Q, V;  // widths of their rows
} Rows;

/* out [d * M] of output head h at token t. */
static void head_out(double *out, const RefShape *s, const ValueMap *map, const Rows *r,
                     int64_t t, int64_t h)
{
    double  p[64];
    int64_t d = s->d, n = s->H * s->M / s->K;
    CHECK(t < 64);
    memset(out, 0, (size_t)(d * s->M) * sizeof *out);
    for (int64_t m = 0; m < s->M; m++) {
        const double *q = r->q + t * r->Q + (h + m * s->H) * d;
        double        sum = 0;
        for (int64_t u = 0; u <= t; u++) {
            const double *k = r->k + u * r->V + (h + m * s->H) / n * d;
            double        dot = 0;
            for (int64_t i = 0; i < d; i++)
                dot += q[i] * k[i];
            sum += p[u] = exp(dot / sqrt((double)d));
        }
        for (int64_t u = 0; u <= t; u++)
            for (int64_t i = 0; i < d * s->M; i++)
                out[i] += (m ? -LAMBDA : 1) * p[u] / sum *
                          r->v[u * r->V + map->head[h * s->M + i / d] * d + i % d];
    }
    if (s->head_norm) {
        rms(out, out, NULL, d * s->M);
        for (int64_t i = 0; i < d * s->M; i++)
            out[i] *= 1 - LAMBDA_INIT;
    }
}

static double *attention(Arena *a, const RefShape *s, const RefLayer *w, const double *x,
                         int64_t T)
{
    ValueMap map;
    int64_t  Q = s->H * s->M * s->d, V = s->K * s->d;
    Rows     r = {linear(a, x, w, W_Q, T, Q, s->C), linear(a, x, w, W_K, T, V, s->C),
                  linear(a, x, w, W_V, T, V, s->C), Q, V};
    double  *out = take(a, T * Q, sizeof *out);
    ref_layer_map(&map, a, s);
    for (int64_t t = 0; t < T; t++)
        for (int64_t h = 0; h < s->H; h++)
            head_out(out + t * Q + h * s->M * s->d, s, &map, &r, t, h);
    return out;
}

static double *normed(Arena *a, const double *x, const double *norm, int64_t T, int64_t C)
{
    double *y = take(a, T * C, sizeof *y);
    for (int64_t t = 0; t < T; t++)
        rms(y + t * C, x + t * C, norm, C);
    return y;
}

void ref_layer_run(double *y, RefTaps *taps, Arena *a, const RefShape *s, const RefLayer *w,
                   const double *x, int64_t T)
{
    int64_t   C = s->C;
    RefTaps   own;
    ArenaMark mark = arena_mark(a);
    RefTaps  *t = taps ? taps : &own;
    t->qkv = normed(a, x, w->norm[0], T, C);
    t->o = attention(a, s, w, t->qkv, T);
    double *out = linear(a, t->o, w, W_O, T, C, s->H * s->M * s->d);
    for (int64_t i = 0; i < T * C; i++)
        y[i] = x[i] + out[i];
    t->mlp = normed(a, y, w->norm[1], T, C);
    double *gate = linear(a, t->mlp, w, W_GATE, T, s->F, C);
    t->down = linear(a, t->mlp, w, W_UP, T, s->F, C);
    for (int64_t i = 0; i < T * s->F; i++)
        t->down[i] *= gate[i] / (1 + exp(-gate[i]));
    out = linear(a, t->down, w, W_DOWN, T, C, s->F);
    for (int64_t i = 0; i < T * C; i++)
        y[i] += out[i];
    if (!taps)
        arena_rewind(a, mark);
}

double ref_layer_error(const double *a, const double *b, int64_t n)
{
    double error = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(a[i]) || isnan(b[i]))
            return NAN;
        error = fmax(error, fabs(a[i] - b[i]));
        most = fmax(most, fabs(b[i]));
    }
    return error / most;
}
