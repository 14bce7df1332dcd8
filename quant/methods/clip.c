/* clip.c - the scale and zero of least squared error, group by group.
 *
 * Least over the grids tried: sum of weight_i (w_i - w'_i)^2. Trials are the scales
 * around that of the whole range, where single codes change, and ranges that shrink
 * until clipping costs more than it saves; the codes of the best trials are kept and
 * the scale fitted to them by least squares, again and again while it helps.
 * Trials are ranked in f32. What wins is compared with the grid of rtn.h in double,
 * with the codes that will be written: the result is never worse than that.
 * The search of one group is clip_isa.c. */
#include "kernels/cpufeat.h"
#include "kernels/size.h"
#include "quant/methods/clip_parts.h"
#include "quant/methods/method.h"
#include "quant/methods/rounding_parts.h"

static RtnGrid search(const float *w, const float *weight, int64_t n, const Scheme *s)
{
    static const ClipIsa *const ISA[N_CPU_ISAS] = {
        [CPU_PLAIN] = &clip_plain, [CPU_AVX2] = &clip_avx2, [CPU_AVX512] = &clip_avx512,
    };
    RtnGrid whole;
    CHECK(rtn_fit(&whole, w, n, s));
    return ISA[cpu_isa()]->search(w, weight, n, s, rtn_grid(whole.scale, (int)whole.zero, s));
}

GroupScale clip_group(const float *w, const float *weight, int64_t n, const Scheme *s)
{
    RtnGrid g;
    if (s->method == METHOD_RTN)
        CHECK(rtn_fit(&g, w, n, s));
    else
        g = search(w, weight, n, s);
    return (GroupScale){g.scale, (int)g.zero};
}

/* The inputs' importance [K] in f32, the mean 1: squares of a text's activations
 * have no scale of their own. *out NULL where there are none, or all are 0. */
static Status importance(const float **out, Arena *a, const Matrix *m)
{
    *out = NULL;
    if (!m->inputs)
        return OK;
    double sum = 0;
    for (int64_t k = 0; k < m->k; k++)
        sum += m->inputs->sum2[k];
    if (!(sum > 0))
        return OK;
    float *h;
    ARENA_NEW(h, a, m->k);
    for (int64_t k = 0; k < m->k; k++)
        h[k] = (float)(m->inputs->sum2[k] * ((double)m->k / sum));
    *out = h;
    return OK;
}

/* Groups stop at different lengths of search: small shares, by turns. */
enum { SHARE = 16 };

/* Groups first .. end of m; h: the inputs' importance, or NULL. */
static RoundError encode_share(const RtnCodes *out, const Matrix *m, const float *h,
                               int64_t first, int64_t end)
{
    const Scheme *s = &m->scheme;
    int64_t       n = rtn_group_size(s, m->k), in_row = rtn_groups(s, m->k);
    RoundSums     sums = {0};
    for (int64_t i = first; i < end; i++) {
        float      *w = m->w + i * n;
        RtnGrid     g = search(w, h ? h + i % in_row * n : NULL, n, s);
        RoundGroups r = {.w = w, .n = n, .scheme = s, .codes = out->codes + i * n, .back = w,
                         .sums = &sums};
        rounding_isa()->onto(&r, g);
        out->scales[i] = g.scale;
        if (out->zeros)
            out->zeros[i] = (int8_t)g.zero;
    }
    return rounding_total(&sums);
}

Status clip_encode(const RtnCodes *out, Matrix *m, Arena *scratch)
{
    const Scheme *s = &m->scheme;
    ArenaMark     mark = arena_mark(scratch);
    const float  *h;
    RoundError   *errors;
    CHECK(!m->inputs || m->inputs->k == m->k);
    CHECK(out->zeros || !s->asym);
    TRY(rtn_check(m->name, m->w, m->n, m->k, s));
    TRY(importance(&h, scratch, m));
    int64_t groups = m->n * rtn_groups(s, m->k), shares = ceil_div(groups, SHARE);
    ARENA_NEW(errors, scratch, shares);
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t i = 0; i < shares; i++)
        errors[i] = encode_share(out, m, h, i * SHARE, i64_min((i + 1) * SHARE, groups));
    m->error = (RoundError){0};
    for (int64_t i = 0; i < shares; i++) {
        m->error.error2 += errors[i].error2;
        m->error.sum2 += errors[i].sum2;
    }
    arena_rewind(scratch, mark);
    return OK;
}

void clip_encode_rows(const RtnCodes *out, Matrix *m)
{
    CHECK(!m->inputs && (out->zeros || !m->scheme.asym));
    m->error = encode_share(out, m, NULL, 0, m->n * rtn_groups(&m->scheme, m->k));
}
