/* method.c - runs the method that a scheme names, and what codes decode to. */
#include "quant/methods/method.h"

#include "quant/methods/rounding_parts.h"

void method_decode(Matrix *m, const RtnCodes *codes)
{
    int64_t n = rtn_group_size(&m->scheme, m->k), in_row = rtn_groups(&m->scheme, m->k);
#pragma omp parallel for
    for (int64_t i = 0; i < m->n * in_row; i++) {
        int     zero = m->scheme.asym ? codes->zeros[i] : 0;
        RtnGrid g = rtn_grid(codes->scales[i], zero, &m->scheme);
        for (int64_t k = i * n; k < (i + 1) * n; k++)
            m->w[k] = rtn_decode(codes->codes[k], g);
    }
}

bool method_encode_rows(const RtnCodes *out, Matrix *m)
{
    const RoundingIsa *isa = rounding_isa();
    const Scheme      *s = &m->scheme;
    int64_t            n = rtn_group_size(s, m->k), groups = m->n * rtn_groups(s, m->k);
    RoundSums          sums = {0};
    RoundGroups        r = {.w = m->w, .n = n, .scheme = s, .codes = out->codes,
                            .scales = out->scales, .zeros = out->zeros, .sums = &sums};
    CHECK(s->method == METHOD_RTN || s->method == METHOD_CLIP);
    if (groups * n != m->n * m->k)
        return false;
    if (s->method == METHOD_CLIP) {
        bool good = isa->first_bad(m->w, n, groups, s) == groups;
        if (good)
            clip_encode_rows(out, m);
        return good;
    }
    bool good = isa->round(&r, groups) == groups;
    m->error = rounding_total(&sums);
    return good;
}

Status method_encode(const RtnCodes *out, Matrix *m, Arena *scratch)
{
    switch (m->scheme.method) {
    case METHOD_RTN:
        return rtn_encode_fake(out, m->w, m->name, m->n, m->k, &m->scheme, &m->error);
    case METHOD_CLIP:
        return clip_encode(out, m, scratch);
    case METHOD_GPTQ:
        return gptq_encode(out, m, scratch);
    default:
        FAIL(ERR_UNSUPPORTED, "%s: unknown method %d", m->name, (int)m->scheme.method);
    }
}
