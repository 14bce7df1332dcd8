/* input_stats.c - sums over the rows of x.
 *
 * Channel sums are made in double, row by row in order: no cut into parts or batches
 * and no number of threads can be seen in them. Those of products are op_gram's. */
#include "analysis/stats/input_stats.h"

#include <math.h>

#include "analysis/stats/input_sums.h"
#include "kernels/cpufeat.h"
#include "kernels/half.h"
#include "kernels/size.h"

enum {
    PART_ROWS = 512,  // that stay in cache while channels are taken from them
    CHANNELS = 64     // a thread's share
};

/* Squares of larger values could overflow in a sum of op_gram's. */
#define GRAM_LIMIT 0x1p58f

Status input_stats_init(InputStats *s, Arena *a, int64_t K, bool with_gram)
{
    *s = (InputStats){.k = K, .dtype = DTYPE_F32};
    ARENA_NEW(s->sum_abs, a, K);
    ARENA_NEW(s->sum2, a, K);
    ARENA_NEW(s->absmax, a, K);
    if (with_gram && !(s->gram = arena_alloc(a, K * K, sizeof *s->gram)))
        FAIL(ERR_MEMORY, "out of memory: products of %lld inputs with each other",
             (long long)K);
    return OK;
}

/* --- sums of channels --- */

/* Channels first .. first + n of x [T,K]. */
static void add_channels(InputStats *s, const float *x, int64_t T, int64_t first, int64_t n)
{
    static InputSumsAdd *const OF[N_CPU_ISAS] = {input_sums_plain, input_sums_avx2,
                                                 input_sums_avx512};
    int32_t   top[CHANNELS];
    InputSums sums = {.sum_abs = s->sum_abs + first, .sum2 = s->sum2 + first, .top = top,
                      .n = n, .T = T, .K = s->k};
    for (int64_t c = 0; c < n; c++)
        top[c] = (int32_t)f32_bits(s->absmax[first + c]);
    OF[cpu_isa()](&sums, x + first);
    for (int64_t c = 0; c < n; c++)
        s->absmax[first + c] = f32_from_bits((uint32_t)top[c]);
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

/* --- all of it --- */

/* Rows on the host: x itself where it lies there, or a copy. */
static Status rows_on_host(const float **out, Arena *scratch, Backend *be, const Tensor *x)
{
    float *copy;
    *out = backend_host(be, x);
    if (*out)
        return OK;
    copy = arena_raw(scratch, tensor_count(x), sizeof *copy);
    if (!copy)
        FAIL(ERR_MEMORY, "out of memory: %lld rows of %lld values", (long long)x->shape[0],
             (long long)x->shape[1]);
    *out = copy;
    return backend_download(be, copy, x);
}

static Status add_rows(InputStats *s, Arena *scratch, Backend *be, const Tensor *x,
                       const char *where)
{
    const float *rows;
    int64_t      T = x->shape[0], before = s->n_rows;
    TRY(rows_on_host(&rows, scratch, be, x));
    for (int64_t t = 0; t < T; t += PART_ROWS) {
        int64_t n = i64_min(PART_ROWS, T - t);
        TRY(add_sums(s, be, rows + t * s->k, n, where));
        s->n_rows = before + t + n;
    }
    return s->gram ? op_gram(be, s->gram, x, s->dtype) : OK;
}

Status input_stats_add(InputStats *s, Arena *scratch, Backend *be, const Tensor *x,
                       const char *where)
{
    ArenaMark mark = arena_mark(scratch);
    CHECK(x->shape[1] == s->k);
    Status status = add_rows(s, scratch, be, x, where);
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
