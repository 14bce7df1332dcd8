/* gptq.c - GPTQ (Frantar et al. 2022): rounds one column after another, most important
 * first, and lets the columns to come make up for what each rounding did to the outputs.
 * Order by activations, static groups: scales are those of clip.c on the weights as they
 * were, weighted by mean x^2, in the columns' own order; so any reader of codes reads it.
 *   H = gram / its mean diagonal + damp,  H^-1 = U^T U             (factor.c)
 *   column i of H: e = (w_i - w'_i) / U_ii,  w_j -= e U_ij for all j > i
 * shapes  W [N,K], gram [K,K] of its inputs
 * cost    2/3 K^3 flops in double for U, N K^2 in f32 for what columns hand on, from
 *         block to block of 128 columns by op_product. N = K = 4096, groups of 128: 4.0 s
 *         of one core, of which U 1.5, scales 1.1, op_product 0.9
 * memory  8 K^2 bytes (H, then U in its place), 4 N K in the backend (W transposed: rows of
 *         a column lie together), 8 N K / group for scales; blocks of 128 columns, which
 *         come from the backend to be rounded, and what that leaves goes back
 * shared  U, order and damping are of the inputs: once for all matrices that read them
 * threads take strips of rows: rows do not know of one another
 * dead    an input that is always 0: its weights become 0, its place in H is 1
 * test    tests/quant/test_gptq.c */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/size.h"
#include "quant/methods/factor.h"
#include "quant/methods/method.h"

enum { BLOCK = 128, STRIP = 64, TAKEN = 8 * BLOCK };
/* Damping grows by DAMP_STEP until H has a factor; at 1 any gram has one. */
static const double DAMP_STEP = 10, DAMP_LEAST = 1e-4, DAMP_MOST = 1;

/* --- H and U --- */

static Status check_gram(const InputStats *in, const char *name, int n_threads)
{
    const double *gram = in->gram;
    int64_t       K = in->k, bad = K * K;
#pragma omp parallel for reduction(min : bad) num_threads(n_threads)
    for (int64_t i = 0; i < K; i++)
        for (int64_t j = 0; j < K; j++)
            if (!isfinite(gram[i * K + j]) || (i == j && gram[i * K + j] < 0))
                bad = i64_min(bad, i * K + j);
    if (bad < K * K)
        FAIL(ERR_RANGE, "%s: products of its inputs %lld and %lld sum to %g, expected %s",
             name, (long long)(bad / K), (long long)(bad % K), gram[bad],
             isfinite(gram[bad]) ? "no negative squares" : "finite inputs");
    return OK;
}

typedef struct {
    double  diagonal;
    int32_t column;
} Place;

static int by_diagonal(const void *left, const void *right)
{
    const Place *a = left, *b = right;
    if (a->diagonal != b->diagonal)
        return a->diagonal > b->diagonal ? -1 : 1;
    return a->column < b->column ? -1 : 1;
}

/* order, mean, importance; n_dead. */
static Status rank_inputs(GptqFactor *f, Arena *a, const InputStats *in)
{
    ArenaMark mark = arena_mark(a);
    int64_t   K = f->k;
    Place    *places;
    double    sum = 0;
    ARENA_NEW(places, a, K);
    for (int64_t k = 0; k < K; k++) {
        double diagonal = in->gram[k * K + k];
        places[k] = (Place){diagonal, (int32_t)k};
        sum += diagonal;
        f->n_dead += diagonal == 0;
    }
    qsort(places, (size_t)K, sizeof *places, by_diagonal);
    for (int64_t k = 0; k < K; k++) {
        f->order[k] = places[k].column;
        f->importance[k] = sum > 0 ? (float)(in->gram[k * K + k] * ((double)K / sum)) : 0;
    }
    f->mean = sum / (double)i64_max(K - f->n_dead, 1);
    arena_rewind(a, mark);
    return OK;
}

/* On and right of the diagonal, which is all that factor_inverse reads. The mean of the
 * diagonal is 1, so that damp and the 1 of dead inputs have the same unit. */
static void fill_h(GptqFactor *f, const double *gram, double damp, int n_threads)
{
    int64_t K = f->k, stride = factor_stride(K);
#pragma omp parallel for schedule(dynamic, 16) num_threads(n_threads)
    for (int64_t i = 0; i < K; i++) {
        const double *from = gram + f->order[i] * K;
        double       *to = f->u + i * stride;
        for (int64_t j = i; j < K; j++)
            to[j] = f->mean > 0 ? from[f->order[j]] / f->mean : 0;
        to[i] = (to[i] == 0 ? 1 : to[i]) + damp;
    }
}

static Status factorize(GptqFactor *f, Arena *a, const char *name, const InputStats *in,
                        double damp, int n_threads)
{
    for (;;) {
        fill_h(f, in->gram, damp, n_threads);
        Status s = factor_inverse(f->u, f->k, a, n_threads);
        f->damp_used = damp;
        if (s == OK || s == ERR_MEMORY)
            return s;
        if (damp >= DAMP_MOST)
            FAIL(ERR_RANGE, "%s: products of its inputs are not those of any numbers, even "
                 "with damping %g", name, damp);
        damp = fmin(fmax(DAMP_STEP * damp, DAMP_LEAST), DAMP_MOST);
    }
}

Status gptq_factor(GptqFactor *f, Arena *a, const char *name, const InputStats *in,
                   double damp, int n_threads)
{
    CHECK(in->gram && damp >= 0 && isfinite(damp));
    *f = (GptqFactor){.k = in->k};
    TRY(check_gram(in, name, n_threads));
    f->u = arena_raw(a, in->k * factor_stride(in->k), sizeof *f->u);
    if (!f->u)
        FAIL(ERR_MEMORY, "%s: out of memory: a gram of %lld inputs", name, (long long)in->k);
    ARENA_NEW(f->order, a, in->k);
    ARENA_NEW(f->importance, a, in->k);
    TRY(rank_inputs(f, a, in));
    return factorize(f, a, name, in, damp, n_threads);
}

typedef struct {
    Matrix           *m;
    const RtnCodes   *out;
    const GptqFactor *f;
    int64_t         N, K, groups, group;  // groups of a row, columns of a group
    int64_t         stride;     // of f->u
    int             n_threads;
    float          *scale, *zero;    // [groups,N]
    float          *rows;       // [n_threads,K] a row without its dead columns
    float          *u;          // [BLOCK, columns from the block on] rows of U
    float          *e;          // [BLOCK,N] columns, then what each rounding leaves
    Tensor          wt;         // [K,N] in f->order, transposed, in the backend as
    Tensor          u_there, e_there;   // u [BLOCK * K] and e [BLOCK,N]
} Gptq;

static Tensor rows_of(const Tensor *t, int64_t first, int64_t n)
{
    return tensor_2d(DTYPE_F32, (float *)t->data + first * t->shape[1], n, t->shape[1]);
}

/* --- scales, and the weights as columns --- */

static bool is_dead(const Gptq *g, int64_t k)
{
    return g->m->inputs->gram[k * g->K + k] == 0;
}

static void fit_row(Gptq *g, int64_t n, float *row)
{
    const Scheme *s = &g->m->scheme;
    for (int64_t k = 0; k < g->K; k++)
        row[k] = is_dead(g, k) ? 0 : g->m->w[n * g->K + k];
    for (int64_t i = 0; i < g->groups; i++) {
        const float *weight = g->f->mean > 0 ? g->f->importance + i * g->group : NULL;
        GroupScale   fit = clip_group(row + i * g->group, weight, g->group, s);
        g->out->scales[n * g->groups + i] = g->scale[i * g->N + n] = fit.scale;
        g->zero[i * g->N + n] = (float)fit.zero;
        if (g->out->zeros)
            g->out->zeros[n * g->groups + i] = (int8_t)fit.zero;
    }
}

static void fit_groups(Gptq *g)
{
#pragma omp parallel for schedule(dynamic) num_threads(g->n_threads)
    for (int64_t n = 0; n < g->N; n++)
        fit_row(g, n, g->rows + omp_get_thread_num() * g->K);
}

/* taken [n,N]: n columns of the order from `at` on. 16 rows at a time: they stay in cache while
 * columns are taken from them. */
static void take_some(const Gptq *g, float *taken, int64_t at, int64_t n)
{
    enum { ROWS = 16 };
#pragma omp parallel for num_threads(g->n_threads)
    for (int64_t first = 0; first < g->N; first += ROWS)
        for (int64_t i = 0; i < n; i++) {
            int64_t k = g->f->order[at + i];
            for (int64_t r = first; r < i64_min(first + ROWS, g->N); r++)
                taken[i * g->N + r] = is_dead(g, k) ? 0 : g->m->w[r * g->K + k];
        }
}

static Status take_columns(Gptq *g, Arena *a)
{
    ArenaMark mark = arena_mark(a);
    Status    s = OK;
    float    *taken = arena_raw(a, i64_min(TAKEN, g->K) * g->N, sizeof *taken);
    if (!taken)
        FAIL(ERR_MEMORY, "%s: out of memory: %d columns of %lld weights", g->m->name, TAKEN,
             (long long)g->N);
    for (int64_t at = 0; at < g->K && s == OK; at += TAKEN) {
        Tensor rows = rows_of(&g->wt, at, i64_min(TAKEN, g->K - at));
        take_some(g, taken, at, rows.shape[0]);
        s = backend_upload(g->m->backend, &rows, taken);
    }
    arena_rewind(a, mark);
    return s;
}

/* --- rounding --- */

/* Column `at` of the order for a strip of rows: codes to their place, w becomes what
 * rounding leaves, over U_ii. */
static void round_column(const Gptq *g, int64_t at, int64_t first, int64_t rows, float *w,
                         float u)
{
    int64_t      k = g->f->order[at], i = k / g->group * g->N + first;
    const RtnGrid any = rtn_grid(1, 0, &g->m->scheme);
    float        scale[STRIP], zero[STRIP], code[STRIP];
    for (int64_t r = 0; r < STRIP; r++) {
        scale[r] = r < rows ? g->scale[i + r] : 1;
        zero[r] = r < rows ? g->zero[i + r] : 0;
    }
    for (int64_t r = 0; r < STRIP; r++) {
        RtnGrid grid = {scale[r], zero[r], any.lo, any.hi};
        code[r] = rtn_code(w[r], grid);
        w[r] = (w[r] - rtn_decode(code[r], grid)) / u;
    }
    for (int64_t r = 0; r < rows; r++)
        g->out->codes[(first + r) * g->K + k] = (int8_t)code[r];
}

/* n columns of the order from `at` on, in e, for a strip of rows. */
static void round_strip(const Gptq *g, int64_t at, int64_t n, int64_t first)
{
    float   w[BLOCK][STRIP] = {0};
    int64_t rows = i64_min(STRIP, g->N - first), width = g->K - at;
    for (int64_t i = 0; i < n; i++)
        memcpy(w[i], g->e + i * g->N + first, (size_t)rows * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        const float *u = g->u + i * width;
        round_column(g, at + i, first, rows, w[i], u[i]);
        for (int64_t j = i + 1; j < n; j++)
            for (int64_t r = 0; r < STRIP; r++)
                w[j][r] -= w[i][r] * u[j];
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(g->e + i * g->N + first, w[i], (size_t)rows * sizeof(float));
}

/* All columns from at + n on make up for what rounding those before them left. */
static Status hand_on(Gptq *g, int64_t at, int64_t n)
{
    Backend *be = g->m->backend;
    int64_t  width = g->K - at;
    Tensor   u = tensor_2d(DTYPE_F32, g->u_there.data, n, width);
    Tensor   e = rows_of(&g->e_there, 0, n), rest = rows_of(&g->wt, at + n, width - n);
    if (width == n)
        return OK;
    TRY(backend_upload(be, &u, g->u));
    TRY(backend_upload(be, &e, g->e));
    MatrixProduct product = {
        .m = width - n, .n = g->N, .k = n, .alpha = -1, .beta = 1,
        .a = (const float *)u.data + n, .lda = width, .a_t = true, .b = e.data, .ldb = g->N,
        .c = rest.data, .ldc = g->N};
    return op_product(be, &product);
}

static Status round_block(Gptq *g, int64_t at, int64_t n)
{
    int64_t width = g->K - at;
    Tensor  columns = rows_of(&g->wt, at, n);
    TRY(backend_download(g->m->backend, g->e, &columns));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < width; j++)
            g->u[i * width + j] = (float)g->f->u[(at + i) * g->stride + at + j];
#pragma omp parallel for schedule(dynamic) num_threads(g->n_threads)
    for (int64_t first = 0; first < g->N; first += STRIP)
        round_strip(g, at, n, first);
    return hand_on(g, at, n);
}

/* --- the whole --- */

static Status take_memory(Gptq *g, Arena *a)
{
    Backend *be = g->m->backend;
    TRY(backend_tensor(be, &g->wt, 2, (int64_t[]){g->K, g->N}));
    TRY(backend_tensor(be, &g->u_there, 2, (int64_t[]){BLOCK, g->K}));
    TRY(backend_tensor(be, &g->e_there, 2, (int64_t[]){BLOCK, g->N}));
    ARENA_NEW(g->scale, a, g->groups * g->N);
    ARENA_NEW(g->zero, a, g->groups * g->N);
    ARENA_NEW(g->rows, a, g->n_threads * g->K);
    ARENA_NEW(g->u, a, BLOCK * g->K);
    ARENA_NEW(g->e, a, BLOCK * g->N);
    return OK;
}

static Status run(Gptq *g, Arena *scratch)
{
    TRY(rtn_check(g->m->name, g->m->w, g->N, g->K, &g->m->scheme));
    GptqFactor own;
    if (!g->f) {
        TRY(gptq_factor(&own, scratch, g->m->name, g->m->inputs, g->m->damp, g->n_threads));
        g->f = &own;
    }
    CHECK(g->f->k == g->K);
    g->m->damp_used = g->f->damp_used;
    g->m->n_dead = g->f->n_dead;
    TRY(take_memory(g, scratch));
    fit_groups(g);
    TRY(take_columns(g, scratch));
    for (int64_t at = 0; at < g->K; at += BLOCK)
        TRY(round_block(g, at, i64_min(BLOCK, g->K - at)));
    method_decode(g->m, g->out);
    return OK;
}

Status gptq_encode(const RtnCodes *out, Matrix *m, Arena *scratch)
{
    const InputStats *in = m->inputs;
    CHECK(in && in->gram && in->k == m->k && m->damp >= 0 && isfinite(m->damp));
    CHECK(out->zeros || !m->scheme.asym);
    ArenaMark mark = arena_mark(scratch), device = backend_mark(m->backend);
    Gptq      g = {.m = m, .out = out, .f = m->factor, .N = m->n, .K = m->k,
                   .n_threads = m->backend->n_threads,
                   .groups = rtn_groups(&m->scheme, m->k),
                   .group = rtn_group_size(&m->scheme, m->k), .stride = factor_stride(m->k)};
    Status    s = run(&g, scratch);
    backend_rewind(m->backend, device);
    arena_rewind(scratch, mark);
    return s;
}
