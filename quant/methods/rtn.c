/* rtn.c - round to nearest: fits a grid to each group, then rounds onto it.
 * Rows are cut into a fixed number of blocks, so that the sums of errors come
 * out the same whatever the number of threads. */
#include "quant/methods/rtn.h"

#include <math.h>
#include <string.h>

#include "kernels/size.h"
#include "quant/methods/rounding_parts.h"

enum { BLOCKS = 64 };

int64_t rtn_groups(const Scheme *s, int64_t K)
{
    return s->group ? K / s->group : 1;
}

int64_t rtn_group_size(const Scheme *s, int64_t K)
{
    return s->group ? s->group : K;
}

bool rtn_fit(RtnGrid *g, const float *w, int64_t n, const Scheme *s)
{
    return rounding_isa()->fit(g, w, n, s);
}

/* Index of the first group that cannot be fitted, -1 if all can. */
static int64_t first_bad(const float *w, int64_t N, int64_t K, const Scheme *s)
{
    const RoundingIsa *isa = rounding_isa();
    int64_t n = rtn_group_size(s, K), groups = N * rtn_groups(s, K), bad[BLOCKS];
#pragma omp parallel for schedule(static)
    for (int b = 0; b < BLOCKS; b++) {
        int64_t first = groups * b / BLOCKS, count = groups * (b + 1) / BLOCKS - first;
        int64_t at = isa->first_bad(w + first * n, n, count, s);
        bad[b] = at < count ? first + at : -1;
    }
    for (int b = 0; b < BLOCKS; b++)
        if (bad[b] >= 0)
            return bad[b];
    return -1;
}

static Status explain(const char *name, const float *w, int64_t K, int64_t group,
                      const Scheme *s)
{
    int64_t n = rtn_group_size(s, K), at = group * n, end = at + n;
    float   min = 0, max = 0;
    while (at < end && isfinite(w[at])) {
        min = fminf(min, w[at]);
        max = fmaxf(max, w[at++]);
    }
    if (at == end)
        FAIL(ERR_RANGE, "%s: weights %g to %g in row %lld need a scale beyond what %s holds: "
             "store scales as bf16 or f32", name, (double)min, (double)max,
             (long long)(group * n / K), dtype_name(s->scale));
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

/* All groups, in blocks whose sums are joined in order. What out and back lack is not
 * written. */
static void round_all(const RtnCodes *out, float *back, const float *w, int64_t N, int64_t K,
                      const Scheme *s, RoundError *e)
{
    const RoundingIsa *isa = rounding_isa();
    int64_t            n = rtn_group_size(s, K), groups = N * rtn_groups(s, K);
    RoundSums          sums[BLOCKS] = {0};
#pragma omp parallel for schedule(static)
    for (int b = 0; b < BLOCKS; b++) {
        int64_t     first = groups * b / BLOCKS, end = groups * (b + 1) / BLOCKS;
        RoundGroups r = {.w = w + first * n, .n = n, .scheme = s,
                         .codes = out->codes ? out->codes + first * n : NULL,
                         .scales = out->scales ? out->scales + first : NULL,
                         .zeros = out->zeros ? out->zeros + first : NULL,
                         .back = back ? back + first * n : NULL, .sums = e ? &sums[b] : NULL};
        CHECK(isa->round(&r, end - first) == end - first);
    }
    for (int b = 0; e && b < BLOCKS; b++) {
        RoundError part = rounding_total(&sums[b]);
        e->error2 += part.error2;
        e->sum2 += part.sum2;
    }
}

Status rtn_encode(const RtnCodes *out, const char *name, const float *w, int64_t N, int64_t K,
                  const Scheme *s)
{
    TRY(rtn_check(name, w, N, K, s));
    CHECK(out->zeros || !s->asym);
    round_all(out, NULL, w, N, K, s, NULL);
    return OK;
}

Status rtn_encode_fake(const RtnCodes *out, float *w, const char *name, int64_t N, int64_t K,
                       const Scheme *s, RoundError *e)
{
    TRY(rtn_check(name, w, N, K, s));
    CHECK(out->zeros || !s->asym);
    *e = (RoundError){0};
    round_all(out, w, w, N, K, s, e);
    return OK;
}

Status rtn_fake(float *w, const char *name, int64_t N, int64_t K, const Scheme *s,
                RoundError *e)
{
    RoundError all = {0};
    TRY(rtn_check(name, w, N, K, s));
    round_all(&(RtnCodes){0}, w, w, N, K, s, &all);
    if (e)
        *e = all;
    return OK;
}
