/* input_stats.c - sums over the rows of x, PART_ROWS of them at a time.
 *
 * Channel sums are made in double, row by row in order: no cut into parts or batches
 * and no number of threads can be seen in them. The gram of a part is a product in
 * f32, x^T x, of GRAM_ROWS rows of the gram at a time and only from the diagonal on;
 * parts are added in double. So its error is that of sums over PART_ROWS values. */
#include "analysis/stats/input_stats.h"

#include <math.h>

#include "kernels/half.h"
#include "kernels/size.h"

enum {
    PART_ROWS = 512,
    GRAM_ROWS = 512,
    CHANNELS = 64  // a thread's share
};

/* Squares of larger values could overflow in the sum over a part. */
#define GRAM_LIMIT 0x1p58f

Status input_stats_init(InputStats *s, Arena *a, int64_t K, bool with_gram)
{
    *s = (InputStats){.k = K};
    ARENA_NEW(s->sum_abs, a, K);
    ARENA_NEW(s->sum2, a, K);
    ARENA_NEW(s->absmax, a, K);
    if (with_gram && !(s->gram = arena_alloc(a, K * K, sizeof *s->gram)))
        FAIL(ERR_MEMORY, "out of memory: products of %lld inputs with each other",
             (long long)K);
    return OK;
}

/* --- sums of channels --- */

/* Channels first .. first + n of x [T,K]. Compared as bits, NaN is the largest. */
static void add_channels(InputStats *s, const float *x, int64_t T, int64_t first, int64_t n)
{
    double  sum_abs[CHANNELS], sum2[CHANNELS];
    int32_t top[CHANNELS];
    for (int64_t c = 0; c < n; c++) {
        sum_abs[c] = s->sum_abs[first + c];
        sum2[c] = s->sum2[first + c];
        top[c] = (int32_t)f32_bits(s->absmax[first + c]);
    }
    for (int64_t t = 0; t < T; t++) {
        const float *row = x + t * s->k + first;
        for (int64_t c = 0; c < n; c++) {
            float   magnitude = fabsf(row[c]);
            int32_t bits = (int32_t)f32_bits(magnitude);
            sum_abs[c] += magnitude;
            sum2[c] += (double)row[c] * row[c];
            top[c] = bits > top[c] ? bits : top[c];
        }
    }
    for (int64_t c = 0; c < n; c++) {
        s->sum_abs[first + c] = sum_abs[c];
        s->sum2[first + c] = sum2[c];
        s->absmax[first + c] = f32_from_bits((uint32_t)top[c]);
    }
}

static Status not_finite(const InputStats *s, const float *x, const char *where)
{
    int64_t i = 0;
    while (isfinite(x[i]))
        i++;
    FAIL(ERR_RANGE, "%s: channel %lld of token %lld of the text is %s, expected a finite "
         "number", where, (long long)(i % s->k), (long long)(s->n_rows + i / s->k),
         isnan(x[i]) ? "NaN" : x[i] > 0 ? "inf" : "-inf");
}

static Status add_sums(InputStats *s, const Backend *be, const float *x, int64_t T,
                       const char *where)
{
#pragma omp parallel for schedule(static) num_threads(be->n_threads)
    for (int64_t c = 0; c < s->k; c += CHANNELS)
        add_channels(s, x, T, c, i64_min(CHANNELS, s->k - c));
    for (int64_t c = 0; c < s->k; c++)
        if (!(s->absmax[c] < INFINITY))
            return not_finite(s, x, where);
    for (int64_t c = 0; s->gram && c < s->k; c++)
        if (s->absmax[c] > GRAM_LIMIT)
            FAIL(ERR_RANGE, "%s: channel %lld reaches %g, expected at most %g", where,
                 (long long)c, (double)s->absmax[c], (double)GRAM_LIMIT);
    return OK;
}

/* --- products of channels --- */

/* Memory of a part. */
typedef struct {
    float *x;        // [PART_ROWS,K] host
    float *gram;     // [GRAM_ROWS,K] host
    Tensor product;  // the same in the backend
} Part;

static Status part_open(Part *p, Arena *scratch, Backend *be, const InputStats *s)
{
    *p = (Part){0};
    p->x = arena_raw(scratch, PART_ROWS * s->k, sizeof *p->x);
    p->gram = arena_raw(scratch, s->gram ? GRAM_ROWS * s->k : 0, sizeof *p->gram);
    if (!p->x || !p->gram)
        FAIL(ERR_MEMORY, "out of memory: sums over rows of %lld values", (long long)s->k);
    if (!s->gram)
        return OK;
    return backend_tensor(be, &p->product, 1, (int64_t[]){GRAM_ROWS * s->k});
}

/* Rows first .. first + n of the gram, from column `first` on. */
static Status add_gram_rows(InputStats *s, Part *p, Backend *be, const Tensor *x,
                            int64_t first, int64_t n)
{
    int64_t       K = s->k, cols = K - first;
    const float  *columns = (const float *)x->data + first;
    Tensor        product = tensor_2d(DTYPE_F32, p->product.data, n, cols);
    MatrixProduct mp = {.m = n, .n = cols, .k = x->shape[0], .alpha = 1,
                        .a = columns, .lda = K, .a_t = true, .b = columns, .ldb = K,
                        .c = product.data, .ldc = cols};
    TRY(op_product(be, &mp));
    TRY(backend_download(be, p->gram, &product));
#pragma omp parallel for schedule(static) num_threads(be->n_threads)
    for (int64_t i = 0; i < n; i++) {
        double      *to = s->gram + (first + i) * K + first;
        const float *from = p->gram + i * cols;
        for (int64_t j = i; j < cols; j++)
            to[j] += (double)from[j];
    }
    return OK;
}

static Status add_part(InputStats *s, Part *p, Backend *be, const Tensor *x, const char *where)
{
    TRY(backend_download(be, p->x, x));
    TRY(add_sums(s, be, p->x, x->shape[0], where));
    for (int64_t i = 0; s->gram && i < s->k; i += GRAM_ROWS)
        TRY(add_gram_rows(s, p, be, x, i, i64_min(GRAM_ROWS, s->k - i)));
    s->n_rows += x->shape[0];
    return OK;
}

Status input_stats_add(InputStats *s, Arena *scratch, Backend *be, const Tensor *x,
                       const char *where)
{
    ArenaMark mark = arena_mark(scratch), device = backend_mark(be);
    int64_t   T = x->shape[0];
    Part      part;
    CHECK(x->shape[1] == s->k);
    Status status = part_open(&part, scratch, be, s);
    for (int64_t t = 0; status == OK && t < T; t += PART_ROWS) {
        Tensor rows = rows_of(x, t, i64_min(PART_ROWS, T - t));
        status = add_part(s, &part, be, &rows, where);
    }
    backend_rewind(be, device);
    arena_rewind(scratch, mark);
    return status;
}

/* Tile by tile, as one of the two sides goes down the columns. */
void input_stats_close(InputStats *s)
{
    enum { TILE = 64 };
    int64_t K = s->gram ? s->k : 0;
    for (int64_t first = 0; first < K; first += TILE)
        for (int64_t left = 0; left <= first; left += TILE)
            for (int64_t i = first; i < i64_min(first + TILE, K); i++)
                for (int64_t j = left; j < i64_min(left + TILE, i); j++)
                    s->gram[i * K + j] = s->gram[j * K + i];
}
