/* rtn.c - round to nearest: fits a grid to each group, then rounds onto it.
 * Rows are cut into a fixed number of blocks, so that the sums of errors come
 * out the same whatever the number of threads. */
#include "quant/methods/rtn.h"

#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/size.h"

enum { BLOCKS = 64, CHUNK = 256, LANES = 8 };

int64_t rtn_groups(const Scheme *s, int64_t K)
{
    return s->group ? K / s->group : 1;
}

int64_t rtn_group_size(const Scheme *s, int64_t K)
{
    return s->group ? s->group : K;
}

/* Bits of an f32 as an integer of the same order: NaN beyond the infinities.
 * Integers, because a max of floats that must mind NaN does not vectorize. */
static inline int32_t ordered(float x)
{
    int32_t i = (int32_t)f32_bits(x);
    return i ^ ((i >> 31) & 0x7fffffff);
}

static inline float from_ordered(int32_t i)
{
    return f32_from_bits((uint32_t)(i ^ ((i >> 31) & 0x7fffffff)));
}

/* Smallest and largest of w[0..n) and 0. False if a NaN or Inf is among them. */
static bool range_of(const float *w, int64_t n, float *min, float *max)
{
    int32_t lo = 0, hi = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t x = ordered(w[i]);
        lo = x < lo ? x : lo;
        hi = x > hi ? x : hi;
    }
    *min = from_ordered(lo);
    *max = from_ordered(hi);
    return hi < ordered(INFINITY) && lo > ordered(-INFINITY);
}

float rtn_stored_scale(float scale, Dtype d)
{
    switch (d) {
    case DTYPE_F16:
        return f16_to_f32((uint16_t)i64_max(f16_from_f32(scale), 1));
    case DTYPE_BF16:
        return bf16_to_f32((uint16_t)i64_max(bf16_from_f32(scale), 1));
    default:
        CHECK(d == DTYPE_F32);
        return scale > 0 ? scale : f32_from_bits(1);
    }
}

/* Smallest code, as stored; the largest is -1 - code_min. */
static int code_min(const Scheme *s)
{
    return -(1 << (s->bits - 1));
}

RtnGrid rtn_grid(float scale, int zero, const Scheme *s)
{
    float lo = (float)code_min(s);
    return (RtnGrid){.scale = scale, .zero = (float)zero, .lo = lo, .hi = -1 - lo};
}

bool rtn_fit(RtnGrid *g, const float *w, int64_t n, const Scheme *s)
{
    float min, max;
    if (!range_of(w, n, &min, &max))
        return false;
    float lo = (float)code_min(s), hi = -1 - lo;
    *g = (RtnGrid){.scale = 1, .lo = s->asym ? lo : -hi, .hi = hi};
    if (min == 0 && max == 0)
        return true;
    /* In double: max - min may not fit a float. */
    double scale = s->asym ? ((double)max - min) / (hi - lo) : fmax(-min, max) / (double)hi;
    g->scale = rtn_stored_scale((float)scale, s->scale);
    if (s->asym)
        g->zero = (float)fmin(fmax(rint(lo - min / (double)g->scale), lo), hi);
    return isfinite(g->scale);
}

/* Index of the first group that cannot be fitted, -1 if all can. */
static int64_t first_bad(const float *w, int64_t N, int64_t K, const Scheme *s)
{
    int64_t n = rtn_group_size(s, K), groups = N * rtn_groups(s, K), bad[BLOCKS];
#pragma omp parallel for schedule(static)
    for (int b = 0; b < BLOCKS; b++) {
        bad[b] = -1;
        for (int64_t i = groups * b / BLOCKS; i < groups * (b + 1) / BLOCKS; i++) {
            RtnGrid g;
            if (!rtn_fit(&g, w + i * n, n, s)) {
                bad[b] = i;
                break;
            }
        }
    }
    for (int b = 0; b < BLOCKS; b++)
        if (bad[b] >= 0)
            return bad[b];
    return -1;
}

static Status explain(const char *name, const float *w, int64_t K, int64_t group,
                      const Scheme *s)
{
    int64_t n = rtn_group_size(s, K), at = group * n;
    float min, max;
    if (range_of(w + at, n, &min, &max))
        FAIL(ERR_RANGE, "%s: weights %g to %g in row %lld need a scale beyond what %s holds: "
             "store scales as bf16 or f32", name, (double)min, (double)max,
             (long long)(at / K), dtype_name(s->scale));
    while (isfinite(w[at]))
        at++;
    FAIL(ERR_RANGE, "%s: %s at [%lld,%lld], weights must be finite", name,
         isnan(w[at]) ? "NaN" : w[at] > 0 ? "Inf" : "-Inf", (long long)(at / K),
         (long long)(at % K));
}

Status rtn_check(const char *name, const float *w, int64_t N, int64_t K, const Scheme *s)
{
    CHECK(s->bits == 4 || s->bits == 6 || s->bits == 8);
    if (s->group && K % s->group)
        FAIL(ERR_SHAPE, "%s: rows of %lld weights cannot be cut into groups of %d: use "
             "another group or one scale a channel", name, (long long)K, s->group);
    int64_t bad = K > 0 ? first_bad(w, N, K, s) : -1;
    return bad < 0 ? OK : explain(name, w, K, bad, s);
}

Status rtn_encode(const RtnCodes *out, const char *name, const float *w, int64_t N, int64_t K,
                  const Scheme *s)
{
    TRY(rtn_check(name, w, N, K, s));
    CHECK(out->zeros || !s->asym);
    int64_t n = rtn_group_size(s, K), groups = N * rtn_groups(s, K);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < groups; i++) {
        RtnGrid g;
        CHECK(rtn_fit(&g, w + i * n, n, s));
        for (int64_t k = 0; k < n; k++)
            out->codes[i * n + k] = (int8_t)rtn_code(w[i * n + k], g);
        out->scales[i] = g.scale;
        if (out->zeros)
            out->zeros[i] = (int8_t)g.zero;
    }
    return OK;
}

/* Sums of squares in lanes, which the compiler can keep in one register. */
typedef struct {
    double error2[LANES], sum2[LANES];
} Sums;

static inline void add_lane(Sums *sum, int lane, float w, float back)
{
    double d = (double)w - back;
    sum->error2[lane] += d * d;
    sum->sum2[lane] += (double)w * w;
}

static void add_errors(Sums *sum, const float *w, const float *back, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            add_lane(sum, j, w[i + j], back[i + j]);
    for (; i < n; i++)
        add_lane(sum, (int)(i % LANES), w[i], back[i]);
}

static void round_group(float *w, int64_t n, RtnGrid g, Sums *sum)
{
    float back[CHUNK];
    for (int64_t first = 0; first < n; first += CHUNK) {
        int64_t count = i64_min(CHUNK, n - first);
        for (int64_t i = 0; i < count; i++)
            back[i] = rtn_decode(rtn_code(w[first + i], g), g);
        add_errors(sum, w + first, back, count);
        memcpy(w + first, back, (size_t)count * sizeof *w);
    }
}

static RoundError round_block(float *w, int64_t n, int64_t groups, const Scheme *s)
{
    Sums sum = {0};
    for (int64_t i = 0; i < groups; i++) {
        RtnGrid g;
        CHECK(rtn_fit(&g, w + i * n, n, s));
        round_group(w + i * n, n, g, &sum);
    }
    RoundError e = {0};
    for (int j = 0; j < LANES; j++) {
        e.error2 += sum.error2[j];
        e.sum2 += sum.sum2[j];
    }
    return e;
}

Status rtn_fake(float *w, const char *name, int64_t N, int64_t K, const Scheme *s,
                RoundError *e)
{
    TRY(rtn_check(name, w, N, K, s));
    int64_t n = rtn_group_size(s, K), groups = N * rtn_groups(s, K);
    RoundError part[BLOCKS], all = {0};
#pragma omp parallel for schedule(static)
    for (int b = 0; b < BLOCKS; b++) {
        int64_t first = groups * b / BLOCKS, end = groups * (b + 1) / BLOCKS;
        part[b] = round_block(w + first * n, n, end - first, s);
    }
    for (int b = 0; b < BLOCKS; b++) {
        all.error2 += part[b].error2;
        all.sum2 += part[b].sum2;
    }
    if (e)
        *e = all;
    return OK;
}
