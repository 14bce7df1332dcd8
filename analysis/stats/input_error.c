/* input_error.c - what a change of weights does to the outputs, from the gram.
 *
 * Over all rows x of a text, with d = w - v a row of the difference,
 *   sum of (x . d)^2 = d G d^T,   G = sum of x^T x
 * d and G are scaled to magnitudes of at most 1 by powers of two, so that nothing
 * overflows in f32; d G is a product in f32, what follows is summed in double. */
#include <math.h>

#include "analysis/stats/input_stats.h"
#include "kernels/size.h"

enum { ROWS = 256 };  // of d, or of G, on their way to the backend

typedef struct {
    Backend     *be;
    int64_t      n, k;
    const float *w, *v;      // [N,K]; v NULL: zeros
    float       *d, *dg;     // [ROWS,K] host
    double       sum[ROWS];  // of each row
    int          d_exponent, g_exponent;  // of the largest magnitudes
    Tensor       g;          // [K,K] in the backend, as the next two
    Tensor       d_there, dg_there;   // [ROWS,K]
} Quadratic;

static double difference(const Quadratic *q, int64_t i)
{
    return (double)q->w[i] - (q->v ? (double)q->v[i] : 0.0);
}

/* The exponents: |x| <= 2^exponent. NaN and infinities end here. */
static Status find_scales(Quadratic *q, const double *gram)
{
    double top_d = 0, top_g = 0;
    int    wrong = 0, threads = q->be->n_threads;
#pragma omp parallel for reduction(max : top_d) reduction(| : wrong) num_threads(threads)
    for (int64_t i = 0; i < q->n * q->k; i++) {
        double d = fabs(difference(q, i));
        wrong |= !(d < INFINITY);
        top_d = d > top_d ? d : top_d;
    }
#pragma omp parallel for reduction(max : top_g) reduction(| : wrong) num_threads(threads)
    for (int64_t i = 0; i < q->k * q->k; i++) {
        double g = fabs(gram[i]);
        wrong |= !(g < INFINITY);
        top_g = g > top_g ? g : top_g;
    }
    if (wrong)
        FAIL(ERR_RANGE, "error of outputs: NaN or infinity in the weights [%lld,%lld] or in "
             "the sums over their inputs", (long long)q->n, (long long)q->k);
    frexp(top_d, &q->d_exponent);
    frexp(top_g, &q->g_exponent);
    return OK;
}

static Status make_buffers(Quadratic *q, Arena *scratch)
{
    q->d = arena_raw(scratch, ROWS * q->k, sizeof *q->d);
    q->dg = arena_raw(scratch, ROWS * q->k, sizeof *q->dg);
    if (!q->d || !q->dg)
        FAIL(ERR_MEMORY, "out of memory: rows of %lld inputs", (long long)q->k);
    TRY(backend_tensor(q->be, &q->d_there, 2, (int64_t[]){ROWS, q->k}));
    TRY(backend_tensor(q->be, &q->dg_there, 2, (int64_t[]){ROWS, q->k}));
    return backend_tensor(q->be, &q->g, 2, (int64_t[]){q->k, q->k});
}

/* G as f32, through the buffer of d where it does not lie on the host. */
static Status upload_gram(Quadratic *q, const double *gram)
{
    double scale = ldexp(1, -q->g_exponent);
    for (int64_t first = 0; first < q->k; first += ROWS) {
        int64_t n = i64_min(ROWS, q->k - first);
        Tensor  rows = rows_of(&q->g, first, n);
        float  *to = backend_on_host(q->be) ? rows.data : q->d;
#pragma omp parallel for num_threads(q->be->n_threads)
        for (int64_t i = 0; i < n * q->k; i++)
            to[i] = (float)(gram[first * q->k + i] * scale);
        TRY(backend_lend(q->be, &rows, to));
    }
    return OK;
}

/* Rows first .. first + n of d, into q->sum. */
static Status add_rows(Quadratic *q, int64_t first, int64_t n)
{
    int64_t K = q->k;
    double  scale = ldexp(1, -q->d_exponent);
    Tensor  d = rows_of(&q->d_there, 0, n), dg = rows_of(&q->dg_there, 0, n);
#pragma omp parallel for num_threads(q->be->n_threads)
    for (int64_t i = 0; i < n * K; i++)
        q->d[i] = (float)(difference(q, first * K + i) * scale);
    TRY(backend_lend(q->be, &d, q->d));
    backend_lend_room(q->be, &dg, q->dg);
    TRY(op_product(q->be, &(MatrixProduct){.m = n, .n = K, .k = K, .alpha = 1, .a = d.data,
                                           .lda = K, .b = q->g.data, .ldb = K,
                                           .c = dg.data, .ldc = K}));
    TRY(backend_return(q->be, q->dg, &dg));
#pragma omp parallel for num_threads(q->be->n_threads)
    for (int64_t i = 0; i < n; i++) {
        q->sum[i] = 0;
        for (int64_t j = i * K; j < (i + 1) * K; j++)
            q->sum[i] += (double)q->d[j] * q->dg[j];
    }
    return OK;
}

static Status sum_rows(double *out, Quadratic *q, Arena *scratch, const double *gram)
{
    double sum = 0;
    TRY(find_scales(q, gram));
    TRY(make_buffers(q, scratch));
    TRY(upload_gram(q, gram));
    for (int64_t first = 0; first < q->n; first += ROWS) {
        int64_t n = i64_min(ROWS, q->n - first);
        TRY(add_rows(q, first, n));
        /* A row's is a sum of squares: below zero only by rounding. NaN stays NaN. */
        for (int64_t i = 0; i < n; i++)
            sum += q->sum[i] < 0 ? 0.0 : q->sum[i];
    }
    *out = ldexp(sum, 2 * q->d_exponent + q->g_exponent);
    return OK;
}

Status input_error(double *out, Arena *scratch, Backend *be, const InputStats *s,
                   const float *w, const float *v, int64_t N)
{
    ArenaMark mark = arena_mark(scratch), device = backend_mark(be);
    Quadratic q = {.be = be, .n = N, .k = s->k, .w = w, .v = v};
    CHECK(s->gram);
    Status status = sum_rows(out, &q, scratch, s->gram);
    backend_rewind(be, device);
    arena_rewind(scratch, mark);
    return status;
}
